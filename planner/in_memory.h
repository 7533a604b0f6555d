/* in_memory.h - plans that keep everything on the device. */
#ifndef COH_PLANNER_IN_MEMORY_H
#define COH_PLANNER_IN_MEMORY_H

#include "planner/candidates.h"

/* Makes the decisions without recomputation. The chunk size is 8 MiB; for the largest models more,
 * so that there are not many more than 4,096 chunks. Nothing moves in memory, so if the batch makes
 * the program too long, chunks grow further. */
coh_status coh_in_memory_decisions(const coh_plan *plan, coh_decisions *out);

/* Tries everything on the device and improves *best: first without recomputation, then with more
 * and more blocks until it fits, then with as few as fit, alone and with light operators that run
 * again (light.h); on a GPU and with several ranks, in the end with larger chunks. *out_smallest:
 * the candidate of the least memory, computed if a plan fits and has no far tier, or if none fits.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_in_memory_search(const coh_plan *plan, coh_candidate *best,
                                coh_candidate *out_smallest);

#endif
