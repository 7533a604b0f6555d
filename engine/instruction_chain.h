/* instruction_chain.h - a program whose instructions run one function each, in sequence. It
 * measures the overhead of an instruction in addition to its kernel. */
#ifndef COH_ENGINE_INSTRUCTION_CHAIN_H
#define COH_ENGINE_INSTRUCTION_CHAIN_H

#include "cohobate/engine.h"

struct coh_engine_device;

typedef struct coh_instruction_chain {
    coh_op_kind kind;
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} coh_instruction_chain;

/* Makes a chain of `instruction_count` operators in a row. Each one runs `forward`, on either
 * device. `device` and the profile that its plan needs are read while the chain is created; NULL:
 * the host. Fails: with the error of graph, plan or engine. */
coh_status coh_instruction_chain_create(coh_status (*forward)(const coh_call *call),
                                        uint32_t instruction_count, int32_t thread_count,
                                        const struct coh_engine_device *device,
                                        const coh_profile *profile,
                                        coh_instruction_chain *out_chain);
/* Runs all instructions once. */
coh_status coh_instruction_chain_run(coh_instruction_chain *chain);
void coh_instruction_chain_fini(coh_instruction_chain *chain); /* accepts a zeroed one */

#endif
