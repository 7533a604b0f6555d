/* plan_batch.h - plans a step of a whole batch, and may choose the micro-batch that it is cut into.
 *
 *     batch, graph of a micro-batch, options ──> coh_batch_plan_create ──> graph + plan
 *
 * coh_plan_create plans one graph. This function also knows how to make the graph of another
 * micro-batch: it finds one that fits or is faster, and if nothing fits, the refusal (refusal.h)
 * names the micro-batch, or the disk, with which the batch does.
 * Threads: make_graph is called by the thread that called coh_batch_plan_create or _estimate. */
#ifndef COHOBATE_PLAN_BATCH_H
#define COHOBATE_PLAN_BATCH_H

#include "cohobate/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the graph of a micro-batch of `microbatch` sequences; the library destroys it.
 * Fails: COH_ERR_SHAPE or COH_ERR_FULL if this micro-batch has no graph, and another one may have.
 * Any other failure ends the call that asked, with its status and text. */
typedef coh_status (*coh_graph_source)(void *context, int64_t microbatch, coh_graph **out_graph);

/* A batch, and how its graphs are made: `make_graph` is called with `context`. */
typedef struct coh_batch {
    uint32_t struct_bytes;
    /* 1: another divisor of the batch may be chosen: the largest that fits if `microbatch` does
     * not, or one whose step is predicted to be at least 3 % faster. Results then have other
     * rounding; calibration does not influence the choice. After the first, others are searched
     * with COH_SEARCH_COMPARE where the options ask for the usual or a thorough search; one that
     * has no graph (coh_graph_source) is passed over. 0: only `microbatch`. */
    int32_t may_change;
    coh_graph_source make_graph;
    void *context;
    int64_t batch;      /* sequences per step */
    int64_t microbatch; /* wanted; divides the batch */
} coh_batch;

/* A `plan` and the `graph` that it is of; both belong to this struct. */
typedef struct coh_batch_plan {
    uint32_t struct_bytes;
    coh_graph *graph;
    coh_plan *plan;
    int64_t microbatch; /* the chosen one */
    /* Predicted steps with the wanted and the chosen micro-batch, on which the choice rests:
     * without calibration and without a limit of writes per day. 0: the wanted one does not fit. */
    uint64_t wanted_step_ns, chosen_step_ns;
} coh_batch_plan;

/* Makes the plan; options->microbatch_count is ignored. The caller destroys the result.
 * Fails: as coh_plan_create and make_graph. A refusal says which micro-batches were tried, and its
 * first changes are those that were found to help. */
COH_API coh_status coh_batch_plan_create(const coh_batch *batch, const coh_plan_options *options,
                                         coh_batch_plan *out_plan);
/* Summarizes the plan that coh_batch_plan_create would make, as coh_plan_estimate does. Fails: as
 * coh_batch_plan_create; COH_ERR_ARGUMENT (struct_bytes). */
COH_API coh_status coh_batch_plan_estimate(const coh_batch *batch, const coh_plan_options *options,
                                           coh_plan_summary *out_summary);
/* Destroys plan and graph. Accepts NULL and a zeroed struct. */
COH_API void coh_batch_plan_destroy(coh_batch_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
