/* trace.h - a step of a plan, instruction by instruction: when each was predicted to run, and when
 * it ran.
 *
 *     coh_plan_trace ──> coh_trace ──> coh_trace_file_create ──> trace.bin <── coh_trace_read
 *     (what, predicted)                         ^
 *     coh_engine_recorded ──> coh_trace_step ───┘  coh_trace_file_put, one slot for each step
 *     (measured)
 *
 * The one idea: a trace holds everything that a report needs, so a reader needs no plan, no graph
 * and no engine. The tables describe the plan's body; the spans of a step have one entry for each
 * instruction of it.
 *
 * All times are nanoseconds. All indices are into the tables of the same trace. Texts and tables
 * belong to the trace and live as long as it does. Threads: one at a time per object; a call
 * with an engine: the engine's. */
#ifndef COHOBATE_TRACE_H
#define COHOBATE_TRACE_H

#include "cohobate/engine.h"
#include "cohobate/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An index into no table. */
#define COH_TRACE_NONE UINT32_MAX

/* An operator, by `name` and `kind`. */
typedef struct coh_trace_operator {
    const char *name, *kind;
    const char *activations, *parameters, *states, *updates, *pattern; /* as coh_plan_operator's */
    int32_t block;                                                     /* -1: of no block */
} coh_trace_operator;

/* An instruction of the body. `flops` are its operations; it has `wait_count` waits from
 * waits[`wait_begin`] on. */
typedef struct coh_trace_instruction {
    /* In a step of the steady state, from its earliest begin on. Lanes retire in order, but a lane
     * may have several instructions in flight. */
    uint64_t predicted_begin_ns, predicted_end_ns;
    uint64_t bytes; /* movers: over the link. Others: memory traffic */
    double flops;
    uint32_t opcode; /* in opcodes */
    /* that computes, or whose parameters or activations move or are updated; or NONE */
    uint32_t operator_index;
    uint32_t chunk;  /* the first chunk that a mover moves; others: NONE */
    uint32_t stream; /* in purposes: that of the chunk; NONE without one */
    uint32_t wait_begin, wait_count;
    int32_t microbatch; /* -1: of none */
    uint8_t lane;       /* coh_lane */
    /* 1: issued together with others as one command of the device. Only the whole was measured, and
     * the span is its share by the predicted times. */
    uint8_t is_shared;
} coh_trace_instruction;

/* An instruction begins after `instruction` has ended: in the same step, or with `carry` 1 in the
 * step before. */
typedef struct coh_trace_wait {
    uint32_t instruction, carry;
} coh_trace_wait;

/* Bytes that are in use from the begin of instruction `first` to the end of the last of its users,
 * of which `last` is the latest by the list. at_begin 1: from the begin of the step on; at_end 1:
 * beyond its end. `bytes` of `tier`, a coh_tier. */
typedef struct coh_trace_extent {
    uint64_t bytes;
    uint32_t first, last;
    uint32_t purpose; /* in purposes */
    uint8_t tier, at_begin, at_end;
} coh_trace_extent;

/* When an instruction ran. */
typedef struct coh_trace_span {
    uint64_t begin_ns, end_ns; /* of the work, after all waits; both 0: not recorded */
} coh_trace_span;

/* Classes of latencies. */
enum { COH_TRACE_LATENCIES = 48 };
/* Latencies of a lane's instructions over all recorded and unrecorded steps of the process:
 * counts[i] instructions took 2^i to 2^(i + 1) ns. */
typedef struct coh_trace_latency {
    uint64_t counts[COH_TRACE_LATENCIES];
} coh_trace_latency;

/* Counts of the system for this process during a step; UINT64_MAX: unknown. */
typedef struct coh_trace_counters {
    uint64_t minor_faults, major_faults; /* of pages */
    uint64_t throttled_ns;               /* the cgroup's CPU limit kept it from running */
    uint64_t store_retries;              /* requests that the working store made again */
    uint64_t gpu_clock_hz, gpu_power_mw; /* at the end of the step */
} coh_trace_counters;

/* A recorded step, with `counters` of the system. */
typedef struct coh_trace_step {
    uint64_t step;     /* counted from 0 */
    uint64_t begin_ns; /* CLOCK_MONOTONIC at the earliest begin of its instructions; spans count
                        * from here */
    uint64_t step_ns;  /* coh_step_result.step_ns */
    int32_t is_slow;   /* kept because it took more than 1.5 times the median */
    coh_trace_counters counters;
    coh_trace_span *spans; /* by instruction */
} coh_trace_step;

/* The tables of a body, and recorded steps. `opcodes`, `purposes`, `operators`, `instructions`,
 * `waits`, `extents` and `steps` are arrays; `opcode_count`, `purpose_count`, `operator_count`,
 * `instruction_count`, `wait_count`, `extent_count` and `step_count` are their lengths.
 * `predicted_step_ns` and `program_hash` are the plan's; `latencies` is by lane. */
typedef struct coh_trace {
    const char *const *opcodes;
    uint32_t opcode_count;
    const char *const *purposes; /* of memory: "work", "grad", "state", "activation", ... */
    uint32_t purpose_count;
    const coh_trace_operator *operators;
    uint32_t operator_count;
    const coh_trace_instruction *instructions;
    uint32_t instruction_count;
    const coh_trace_wait *waits;
    uint32_t wait_count;
    const coh_trace_extent *extents;
    uint32_t extent_count;
    /* Bytes of a tier that are in use all the time and in no extent: pinned objects, the working
     * store. */
    uint64_t pinned_bytes[COH_TIER_COUNT];
    uint64_t arena_bytes[COH_TIER_COUNT];  /* the plan's peaks over all programs */
    uint64_t budget_bytes[COH_TIER_COUNT]; /* UINT64_MAX: no limit; 0: no such tier */
    uint64_t predicted_step_ns;
    /* Rates of the profile: bytes per second of each lane that moves (0: not known), and operations
     * per second of the compute lane. */
    double lane_bytes_per_s[COH_LANE_COUNT], flops_per_s;
    uint64_t program_hash;
    coh_trace_latency latencies[COH_LANE_COUNT];
    /* The recorded steps, ascending by `step`. */
    coh_trace_step *steps;
    uint32_t step_count;
} coh_trace;

/* Describes the body of a plan, with predicted times and no steps; is_shared is 0 everywhere.
 * Fails: COH_ERR_MEMORY, COH_ERR_FULL (a size overflows). */
COH_API coh_status coh_plan_trace(const coh_plan *plan, coh_trace **out_trace);
/* As coh_plan_trace for the engine's plan, with is_shared as the engine's device issues it. */
COH_API coh_status coh_engine_trace(const coh_engine *engine, coh_trace **out_trace);
/* Frees a trace, whichever call made it. Accepts NULL. */
COH_API void coh_trace_free(coh_trace *trace);

/* Reads the record of a step that was waited for. The engine keeps those of the last
 * coh_engine_options.record_steps steps, so call it after each coh_engine_wait. Waits until the
 * step's last transfers have ended, as the next coh_engine_submit does. *out_step points into the
 * engine and holds until the next call on it. Allocates nothing.
 * Fails: COH_ERR_ARGUMENT: the step is not kept (any more), or nothing is recorded; the engine's
 * failure. */
COH_API coh_status coh_engine_recorded(coh_engine *engine, uint64_t step, coh_trace_step *out_step);
/* Reads the latencies of all lanes so far, by lane. Fails: COH_ERR_ARGUMENT (no records). */
COH_API coh_status coh_engine_latencies(coh_engine *engine,
                                        coh_trace_latency out_latencies[COH_LANE_COUNT]);

/* ---- the file ---- */

/* A trace file has the tables, written once, then `slots` slots of one step each, which are written
 * again and again. Each part ends with its checksum, so after a kill at most the slot that was
 * being written is lost. docs/report.md has the layout. */
typedef struct coh_trace_file coh_trace_file;

/* Returns the bytes of a trace file when all its slots are used; UINT64_MAX for NULL, or a trace
 * that cannot be stored. */
COH_API uint64_t coh_trace_file_bytes(const coh_trace *trace, uint32_t slots);
/* Creates `path` with the tables of `trace` and empty slots, and opens it for coh_trace_file_put.
 * Fails: COH_ERR_IO, COH_ERR_MEMORY; nothing is left then. */
COH_API coh_status coh_trace_file_create(const char *path, const coh_trace *trace, uint32_t slots,
                                         coh_trace_file **out_file);
/* Writes a step into slot `slot`, in place of the one there. Allocates nothing. Fails: COH_ERR_IO,
 * COH_ERR_ARGUMENT. */
COH_API coh_status coh_trace_file_put(coh_trace_file *file, uint32_t slot,
                                      const coh_trace_step *step);
/* Replaces the latencies. Allocates nothing. Fails: COH_ERR_IO. */
COH_API coh_status coh_trace_file_put_latencies(coh_trace_file *file,
                                                const coh_trace_latency latencies[COH_LANE_COUNT]);
/* Accepts NULL. */
COH_API void coh_trace_file_close(coh_trace_file *file);

/* Reads a trace file. Slots that are empty or whose checksum is wrong are left out; out_lost counts
 * the latter, and may be NULL.
 * Fails: COH_ERR_IO (cannot be read), COH_ERR_CORRUPT (no trace, a newer version, the tables are
 * truncated, changed or inconsistent), COH_ERR_MEMORY. */
COH_API coh_status coh_trace_read(const char *path, coh_trace **out_trace, uint32_t *out_lost);

#ifdef __cplusplus
}
#endif
#endif
