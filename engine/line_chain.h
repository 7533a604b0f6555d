/* line_chain.h - a program whose lines run one function each, in sequence. It measures the overhead
 * of a line in addition to its kernel. */
#ifndef COH_ENGINE_LINE_CHAIN_H
#define COH_ENGINE_LINE_CHAIN_H

#include "cohobate/engine.h"

struct coh_engine_device;

/* The device, and the profile that its plan needs; both are read while a chain is created. */
typedef struct coh_line_chain_place {
    const struct coh_engine_device *device;
    const coh_profile *profile;
} coh_line_chain_place;

typedef struct coh_line_chain {
    coh_op_kind kind;
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} coh_line_chain;

/* Makes a chain of `line_count` operators in a row. Each one runs `forward`, on either device.
 * `place` NULL: the host. Fails: with the error of graph, plan or engine. */
coh_status coh_line_chain_create(coh_status (*forward)(const coh_call *call), uint32_t line_count,
                                 int32_t thread_count, const coh_line_chain_place *place,
                                 coh_line_chain *out_chain);
/* Runs all lines once. */
coh_status coh_line_chain_run(coh_line_chain *chain);
void coh_line_chain_fini(coh_line_chain *chain); /* accepts a zeroed one */

#endif
