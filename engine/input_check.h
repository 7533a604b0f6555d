/* input_check.h - checks a step's numbers and integer inputs before anything runs. An id outside
 * its table is the caller's mistake and must not end the engine. */
#ifndef COH_ENGINE_INPUT_CHECK_H
#define COH_ENGINE_INPUT_CHECK_H

#include "cohobate/engine.h"
#include "planner/graph.h"

/* The values allowed in one graph input: the intersection of its readers' ranges (coh_op_facts). */
typedef struct coh_input_limit {
    int64_t least, end;
    int32_t op;      /* the operator with the narrowest range; -1: any value */
    int32_t counter; /* an operator for which it counts tokens of documents; -1: none */
} coh_input_limit;

/* Finds the limit of each graph input. */
void coh_input_limits_find(const coh_graph *graph, coh_input_limit out_limits[COH_PORT_MAX]);

/* Checks that inputs are given, that learning rate, clip and loss factor are finite and not
 * negative, and that the integers of `microbatch_count` micro-batches are within `limits`. Fails:
 * COH_ERR_ARGUMENT with input, place, value and limits. Allocates nothing. */
coh_status coh_input_check(const coh_graph *graph, const coh_input_limit limits[COH_PORT_MAX],
                           const coh_step_input *input, uint64_t microbatch_count);

#endif
