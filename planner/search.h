/* search.h - choose the decisions of a plan, priced by the simulator.
 *
 *     in memory            if everything fits, perhaps with recomputed blocks or light operators
 *     starts               every way to recompute, to cache and to update on the host, in the order
 *                          of their lower bounds (bounds.h), first the best of each number of
 *                          blocks recomputed and updated there; a start that cannot beat the best
 *                          is not built; the linear programme (least_step.h) adds one of each
 *     neighbours           of the best, one decision varied at a time, first all, then those that
 *                          gained, until none is better, one is as fast as the programme's bound,
 *                          or the evaluations are used up
 *     spread               with a host tier: of the best, as many recomputed blocks or fewer,
 *                          spread evenly in place of the first ones, and their neighbours
 *     light                with a far tier: of the best, light operators (light.h) that run again,
 *                          writes to dead space, half the host tier's window, and their
 *                          neighbours
 *     other chunks         of a step of 10 s and more that is far above the programme's bound: all
 *                          of this again with chunks of half and of twice the size
 *     less memory          if everything would fit: the best again, in the device memory of the
 *                          plan that keeps everything there, or a little more
 *
 * Then coh_plan_perturb, if the programme's bound is a hundredth or more below: of the best, and of
 * the best near the programme's solutions with light operators, up to four decisions changed at
 * random; in a thorough search then ten times as many changes of the eight fastest sets.
 *
 * Evaluations are counted, never timed: the same inputs give the same plan. */
#ifndef COH_PLANNER_SEARCH_H
#define COH_PLANNER_SEARCH_H

#include "planner/plan.h"

/* Fills plan->decisions and smallest_device_bytes. Fails: COH_ERR_FULL: nothing fits; the message
 * has the size that would. COH_ERR_MEMORY. */
coh_status coh_plan_search(coh_plan *plan);

/* Changes at random, with effort of its own, the decisions that a usual search has found for a
 * training step that streams, and takes better ones. Does nothing if few sets can be built with
 * that effort. The sweep order is chosen before, so that one of two plans pays for it. Another
 * program than the body may not fit with the new decisions. *out_is_changed: it took some. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_plan_perturb(coh_plan *plan, int *out_is_changed);

/* Computes the least bound of the sets of decisions that the search starts from; 0: there is no far
 * tier, or none fits. Of bounds below `enough_ns` it takes any one (0: there are none below), since
 * all of them take as long as many plans. Fails: COH_ERR_MEMORY. */
coh_status coh_plan_search_bound(coh_plan *plan, uint64_t enough_ns, uint64_t *out_ns);

#endif
