/* step_records.h - the begin and end of each instruction of the last training steps.
 *
 *     submit  coh_step_records_begin: a slot of the ring     | step s     |  s + 1  |  s + 2  |
 *     lanes   spans[instruction] = begin, end                | slot 0     | slot 1  | slot 2  |
 *     await   coh_step_records_await: counts of the system
 *
 * Two steps are in flight, so the ring has two more slots than the steps that are kept. The rings
 * are allocated and touched once. A record costs the two clock readings that an instruction's time
 * needs (instruction_times.h) and two stores.
 *
 * On a GPU the times are those of events around the work, mapped to the host's clock
 * (memory/device_cuda_times.c). They are written when the step is waited for; the times of
 * instructions and of stalls use the same events.
 *
 * Threads: each lane writes the spans of its instructions; for a GPU's lanes, the thread that
 * takes their times. All else belongs to the creating
 * thread, which reads a span once its lane has retired the instruction. */
#ifndef COH_ENGINE_STEP_RECORDS_H
#define COH_ENGINE_STEP_RECORDS_H

#include <stdatomic.h>

#include "base/check.h"
#include "cohobate/trace.h"
#include "memory/device.h"

/* Totals since the process began. */
typedef struct coh_system_counts {
    uint64_t minor_faults, major_faults, throttled_ns, store_retries;
    coh_device_meter meter; /* at present */
} coh_system_counts;

typedef struct coh_step_record {
    uint64_t ticket;
    int is_awaited;
    int is_relative; /* spans count from step.begin_ns */
    coh_trace_step step;
} coh_step_record;

typedef struct coh_step_records {
    coh_step_record *slots;
    uint64_t slot_count; /* 0: nothing is recorded */
    uint64_t begun_count;
    coh_trace_span *spans; /* of all slots */
    uint32_t instruction_count;
    int throttle_descriptor;  /* of coh_cpu_throttle_open */
    coh_system_counts before; /* at the end of the step before */
    /* as coh_trace_latency; each lane adds its own */
    _Atomic uint64_t latencies[COH_LANE_COUNT][COH_TRACE_LATENCIES];
} coh_step_records;

/* Makes the ring for the last `step_count` steps; empty if it is 0. Fails: COH_ERR_MEMORY;
 * *out_records can then be released. */
coh_status coh_step_records_init(coh_step_records *out_records, uint64_t step_count,
                                 uint32_t instruction_count);
void coh_step_records_fini(coh_step_records *records); /* accepts a zeroed one */

/* Returns the slot of a ticket that runs step `index`; NULL if nothing is recorded. */
coh_step_record *coh_step_records_begin(coh_step_records *records, uint64_t ticket, uint64_t index);
/* Record the end of an instruction on its lane; of `count` instructions that were issued as one,
 * which began with the first of them: each gets its share by the predicted times, in order. */
void coh_step_records_end(coh_step_records *records, coh_step_record *record, coh_lane lane,
                          uint32_t instruction, uint64_t end_ns);
void coh_step_records_share(coh_step_records *records, coh_step_record *record,
                            const uint32_t *instructions, uint32_t count, const float *predicted_s,
                            uint64_t end_ns);

/* Reads the process's totals; the caller adds those of the store and the device. */
coh_system_counts coh_system_counts_read(const coh_step_records *records);
/* The step was waited for: takes its time, and what the system counted since the step before. */
void coh_step_records_await(coh_step_records *records, coh_step_record *record, uint64_t step_ns,
                            const coh_system_counts *now);

/* Returns the newest record of a step that was waited for; NULL: there is none. */
coh_step_record *coh_step_records_find(coh_step_records *records, uint64_t index);
/* Counts the spans of a finished step from its earliest begin. */
void coh_step_records_count(const coh_step_records *records, coh_step_record *record);

#endif
