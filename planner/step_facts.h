/* step_facts.h - what a training step must compute, read and keep, whatever is decided: the figures
 * of the linear programme of least_step.h.
 *
 *     |  forward     |   backward    |  forward   |   backward  ...  CLIP |
 *     |  AHEAD       |   EARLIER     |  BETWEEN   |   BACK                |
 *
 * The body is lowered twice, with no block recomputed and with all; the difference is what
 * recomputation costs and saves. Each instruction has the least time of any partition of its
 * work. */
#ifndef COH_PLANNER_STEP_FACTS_H
#define COH_PLANNER_STEP_FACTS_H

#include "planner/layout.h"
#include "planner/plan.h"

/* The phases of a step, as bits of a mask. BACK is the last backward, in which gradients become
 * final; with one pass there is no BETWEEN and no EARLIER. */
enum {
    COH_AHEAD = 1,
    COH_BETWEEN = 2,
    COH_BACK = 4,
    COH_EARLIER = 8,
    COH_PHASE_MASKS = 16,
    COH_PHASES = 4
};

/* No chunk is smaller, except at the end of an object. */
#define COH_CHUNK_LEAST ((double)COH_GRAIN_ELEMENTS * 2)

/* A block, a parameter group outside blocks, or all other activations. Bytes are of one pass over
 * it; the first `copies` units of a kind are one. */
typedef struct coh_step_unit {
    double frozen, frozen_back; /* weights: all, and those that backward reads */
    double work, work_back, state, grad;
    double kept, recomputed; /* activations that live at the turn if it is kept, or recomputed */
    double recompute_ns, light_ns; /* in backward: if it is recomputed, or kept */
    double update_ns, host_update_ns;
    double copies; /* equal units */
    int32_t is_block;
} coh_step_unit;

typedef struct coh_step_facts {
    coh_step_unit *units; /* different ones, the largest first */
    int32_t unit_count, block_count;
    double compute_ns[COH_PHASE_MASKS]; /* by mask; without updates and recomputation */
    double passes;                      /* turns of a step: 1, or one per micro-batch */
    double pinned_bytes;
    double object_count;
} coh_step_facts;

/* Keeps the `unit_most` largest units. `light`: which operators of kept blocks run again (light.h).
 * Fails: COH_ERR_MEMORY, and as coh_layout_build;
 * *out_facts can then be released. */
coh_status coh_step_facts_find(const coh_graph *graph, const coh_plan_options *options,
                               const coh_pricer *pricer, int32_t unit_most, int light,
                               coh_step_facts *out_facts);
void coh_step_facts_fini(coh_step_facts *facts); /* accepts a zeroed struct */

#endif
