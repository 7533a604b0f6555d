/* holes.h - closes the holes of an arena: addresses below its peak that nothing ever uses. A
 * schedule that places content from both ends of a budget (COH_TIE_TWO_ENDS) leaves one if it needs
 * less:
 *
 *     placed   |homes|weights     |      hole      |   activations|  budget
 *     closed   |homes|weights     |   activations|
 *
 * What lies above a hole moves down. Neighbours stay neighbours and overlaps stay overlaps, so
 * windows stay contiguous, the waits are the same, and no predicted time changes. All sizes and
 * offsets are whole pages, and so is what they move by. */
#ifndef COH_PLANNER_HOLES_H
#define COH_PLANNER_HOLES_H

#include "planner/residency.h"

/* Closes the holes that all of `runs` and the residents of the level's tier have in common, and
 * updates their offsets and peaks. Homes and pinned objects stay where they are. Fails:
 * COH_ERR_MEMORY; nothing has moved then. */
coh_status coh_holes_close(const coh_level *level, coh_residency *const *runs, int run_count,
                           coh_resident *residents, uint32_t resident_count);

#endif
