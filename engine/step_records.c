/* Keeps the begins and ends of instructions in a ring of steps. The one idea: a lane writes a span
 * at a fixed place, so recording needs no lock and no memory. Next: step_records.h; instruction.c
 * writes the spans, step.c begins and ends records. */
#include "engine/step_records.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "memory/available.h"

/* Tickets of the body that may be unfinished at once. */
enum { IN_FLIGHT = 2 };

coh_status coh_step_records_init(coh_step_records *out_records, uint64_t step_count,
                                 uint32_t instruction_count)
{
    coh_step_records *records = out_records;
    *records = (coh_step_records){ .throttle_descriptor = -1 };
    if (step_count == 0 || instruction_count == 0)
        return COH_OK;
    const size_t slot_count = (size_t)step_count + IN_FLIGHT;
    COH_TRY(COH_ALLOC(slot_count, &records->slots));
    COH_TRY(COH_ALLOC(slot_count * instruction_count, &records->spans));
    /* Touches every page now: a step maps nothing. */
    memset(records->spans, 0xff, slot_count * instruction_count * sizeof(*records->spans));
    for (size_t slot = 0; slot < slot_count; slot++)
        records->slots[slot].step.spans = records->spans + slot * instruction_count;
    records->instruction_count = instruction_count;
    records->throttle_descriptor = coh_cpu_throttle_open("");
    records->slot_count = slot_count;
    return COH_OK;
}

void coh_step_records_fini(coh_step_records *records)
{
    if (records->slot_count > 0 && records->throttle_descriptor >= 0)
        close(records->throttle_descriptor);
    coh_free(records->slots);
    coh_free(records->spans);
    records->slots = NULL;
    records->spans = NULL;
    records->slot_count = 0;
}

coh_step_record *coh_step_records_begin(coh_step_records *records, uint64_t ticket, uint64_t index)
{
    if (records->slot_count == 0)
        return NULL;
    coh_step_record *record = &records->slots[records->begun_count++ % records->slot_count];
    coh_trace_span *spans = record->step.spans;
    *record = (coh_step_record){ .ticket = ticket, .step = { .step = index, .spans = spans } };
    return record;
}

/* Counts an instruction by the logarithm of its time. Only the lane's own thread adds. */
static void count_latency(coh_step_records *records, coh_lane lane, uint64_t ns)
{
    int power = ns == 0 ? 0 : 63 - __builtin_clzll(ns);
    if (power >= COH_TRACE_LATENCIES)
        power = COH_TRACE_LATENCIES - 1;
    _Atomic uint64_t *count = &records->latencies[lane][power];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void coh_step_records_end(coh_step_records *records, coh_step_record *record, coh_lane lane,
                          uint32_t instruction, uint64_t end_ns)
{
    coh_trace_span *span = &record->step.spans[instruction];
    span->end_ns = end_ns;
    count_latency(records, lane, end_ns - span->begin_ns);
}

void coh_step_records_share(coh_step_records *records, coh_step_record *record,
                            const uint32_t *instructions, uint32_t count, const float *predicted_s,
                            uint64_t end_ns)
{
    coh_trace_span *spans = record->step.spans;
    const uint64_t begin_ns = spans[instructions[0]].begin_ns;
    const int is_priced = predicted_s != NULL;
    double whole = 0, before = 0;
    uint64_t at_ns = begin_ns;
    for (uint32_t i = 0; is_priced && i < count; i++)
        whole += (double)predicted_s[instructions[i]];
    for (uint32_t i = 0; i < count; i++) {
        before +=
            is_priced && whole > 0 ? (double)predicted_s[instructions[i]] / whole : 1.0 / count;
        spans[instructions[i]].begin_ns = at_ns;
        at_ns = begin_ns + (uint64_t)((double)(end_ns - begin_ns) * before);
        at_ns = i + 1 == count || at_ns > end_ns ? end_ns : at_ns;
        coh_step_records_end(records, record, COH_LANE_COMPUTE, instructions[i], at_ns);
    }
}

coh_system_counts coh_system_counts_read(const coh_step_records *records)
{
    struct rusage usage = { 0 };
    (void)getrusage(RUSAGE_SELF, &usage);
    return (coh_system_counts){ .minor_faults = (uint64_t)usage.ru_minflt,
                                .major_faults = (uint64_t)usage.ru_majflt,
                                .throttled_ns =
                                    coh_cpu_throttled_ns(records->throttle_descriptor) };
}

void coh_step_records_await(coh_step_records *records, coh_step_record *record, uint64_t step_ns,
                            const coh_system_counts *now)
{
    const coh_system_counts *before = &records->before;
    const int is_counted = now->throttled_ns != UINT64_MAX && before->throttled_ns != UINT64_MAX;
    record->is_awaited = 1;
    record->step.step_ns = step_ns;
    record->step.counters = (coh_trace_counters){
        .minor_faults = now->minor_faults - before->minor_faults,
        .major_faults = now->major_faults - before->major_faults,
        .throttled_ns = is_counted ? now->throttled_ns - before->throttled_ns : UINT64_MAX,
        .store_retries = now->store_retries - before->store_retries,
        .gpu_clock_hz = now->meter.clock_hz,
        .gpu_power_mw = now->meter.power_mw,
    };
    records->before = *now;
}

coh_step_record *coh_step_records_find(coh_step_records *records, uint64_t index)
{
    coh_step_record *found = NULL;
    for (uint64_t slot = 0; slot < records->slot_count; slot++) {
        coh_step_record *record = &records->slots[slot];
        if (record->is_awaited && record->step.step == index &&
            (found == NULL || record->ticket > found->ticket))
            found = record;
    }
    return found;
}

void coh_step_records_count(const coh_step_records *records, coh_step_record *record)
{
    coh_trace_span *spans = record->step.spans;
    uint64_t begin_ns = UINT64_MAX;
    if (record->is_relative)
        return;
    for (uint32_t i = 0; i < records->instruction_count; i++)
        begin_ns = spans[i].begin_ns < begin_ns ? spans[i].begin_ns : begin_ns;
    for (uint32_t i = 0; i < records->instruction_count; i++) {
        spans[i].begin_ns -= begin_ns;
        spans[i].end_ns -= begin_ns;
    }
    record->step.begin_ns = begin_ns;
    record->is_relative = 1;
}
