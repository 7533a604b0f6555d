/* made_trace.h - traces of a made-up streamed model, so that a test knows what happened in a step.
 *
 *     READ i.0 .. i.n -> FWD i ............ BWD i -> UPDATE i -> WRITE i      of each operator i
 *                         ^                                        |
 *                         └──────── the next step's READ ──────────┘
 *
 * made_run plays the program by list order with a duration for each instruction: an instruction
 * begins when its lane is free and all its waits have ended. */
#ifndef COH_TESTS_REPORT_MADE_TRACE_H
#define COH_TESTS_REPORT_MADE_TRACE_H

#include "planner/trace_tables.h"

typedef struct made_options {
    uint32_t operators, chunks; /* chunks of each operator */
    uint32_t steps;
    uint64_t chunk_bytes;
    uint64_t forward_ns, backward_ns, update_ns, read_ns, write_ns; /* read: of a chunk */
    double read_bytes_per_s;                                        /* of the profile */
    const char *operator_name;                                      /* prefix; NULL: "blocks." */
} made_options;

/* A trace with predictions (the given durations) and steps that took as long as predicted. */
coh_trace *made_trace(const made_options *options);

/* Plays all steps of the trace again, with `durations` for each instruction. */
void made_run(coh_trace *trace, const uint64_t *durations);

/* Index of the first instruction with this opcode and operator. */
uint32_t made_find(const coh_trace *trace, const char *opcode, uint32_t operator_index);
/* Multiplies the durations of all instructions with this opcode; "" means all instructions. */
void made_scale(const coh_trace *trace, uint64_t *durations, const char *opcode, double factor);
/* The predicted durations; free with coh_free. */
uint64_t *made_durations(const coh_trace *trace);

#endif
