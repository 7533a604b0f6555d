/* search_refuse.h - why a plan's search finds nothing: what lacks, and the least that would do.
 *
 * A refusal before the search is proven: it holds under any decisions. One after it names the
 * smallest sizes that the search saw fit. */
#ifndef COH_PLANNER_SEARCH_REFUSE_H
#define COH_PLANNER_SEARCH_REFUSE_H

#include "planner/candidates.h"
#include "planner/effort.h"

/* Returns the bytes in which survivors lie between programs: the drive's, or without a drive those
 * of the device and the host tier together. */
uint64_t coh_survivor_room(const coh_plan_options *options);

/* Estimates the shortest program that the options allow: in memory, or streamed if that is
 * impossible. */
coh_status coh_search_shortest_effort(const coh_plan *plan, coh_effort *out);

/* Checks bytes first, since more memory helps; then the length of the program. Decides whether
 * the step is folded. Fails: COH_ERR_FULL. */
coh_status coh_search_check_size(coh_plan *plan);

/* Survivors need the same room under any decisions: too little is reported before anything is
 * streamed. Fails: COH_ERR_FULL. */
coh_status coh_search_check_survivors(const coh_plan *plan);

/* Records the least outermost bytes of the candidates that lacked only these: with this many bytes
 * there is a plan, with fewer there is none. The sets tried until one fits do not depend on that
 * capacity, except those that the linear programme names. Each is built again with all programs,
 * which need no less than the body alone, until the next body needs more than the least found.
 * Sorts candidates->all. Fails: COH_ERR_MEMORY. */
coh_status coh_search_note_least_far(coh_candidates *candidates, coh_plan *plan);

/* Refuses after a search without a valid candidate; `in_memory`: that of the least memory. Always
 * fails: COH_ERR_FULL, or COH_ERR_MEMORY. */
coh_status coh_search_refuse(const coh_plan *plan, const coh_candidate *in_memory);

#endif
