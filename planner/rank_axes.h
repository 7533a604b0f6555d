/* rank_axes.h - rank patterns (cohobate/rank_pattern.h) on the mesh of a plan's ranks: a stream is
 * divided over the innermost axes.
 *
 *     axes data0=2 data1=2 data2=2, pattern 2/4/8: 1 axis for weights, 2 for gradients, 3 for
 * states
 */
#ifndef COH_PLANNER_RANK_AXES_H
#define COH_PLANNER_RANK_AXES_H

#include "cohobate/plan.h"
#include "planner/graph.h"
#include "planner/program.h"

/* Returns the ranks of a pair, of a node and of all. */
coh_rank_levels coh_rank_levels_of(const coh_plan_options *options);

/* Returns the axes of a pattern for the ranks of `options`. Fails: COH_ERR_ARGUMENT: as
 * coh_rank_parts_find; no product of innermost factors of the ranks is that number. */
coh_status coh_rank_axes_find(const coh_plan_options *options, const char *pattern,
                              coh_rank_axes *out_axes);

/* Finds by graph parameter the axes of the pattern that a pin gives it, or of
 * options->rank_pattern. Fails: as coh_rank_axes_find, coh_pins_check. */
coh_status coh_rank_axes_of_parameters(const coh_graph *graph, const coh_plan_options *options,
                                       coh_rank_axes *out_axes);

/* Returns 1 if ranks divide some stream, by options->rank_pattern or a pin. */
int coh_ranks_divide(const coh_plan_options *options);

#endif
