/* move_order.h - the order in which a level's fetches and stores cross their links.
 *
 * A lane runs its instructions in order. In the order of need, a fetch whose place is free only
 * shortly before its use keeps back all that are needed after it, though their places may have been
 * free for long. In the order in which content changes, a store whose place is wanted soon waits
 * behind all that changed before it, though their places may not be wanted before the next run. So
 * a link takes, whenever it is free, of the moves that may run the one that must run first:
 * earliest deadline first, with release times and without preemption (Schrage's rule, which is not
 * always the best order).
 *
 *           may run                               must run
 *     fetch when its place is free                before the step that needs it
 *     store after the step that changed it last   before a step or a fetch takes its place, and
 *                                                 before its chunk is fetched again
 *
 * The clock is of the program alone, so that no profile changes a program: a step that computes
 * takes its operations, or those of its bytes, exchanges and updates of the host take none, and all
 * moves over a link together take a given part of all steps. */
#ifndef COH_PLANNER_MOVE_ORDER_H
#define COH_PLANNER_MOVE_ORDER_H

#include "planner/assemble.h"

/* When steps begin and end if nothing waits for data, in operations. */
typedef struct coh_step_clock {
    uint32_t step_count;
    double *begin; /* by step; step_count: the end of the last one */
} coh_step_clock;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_step_clock_make(const coh_lowered *lowered, coh_step_clock *out_clock);
/* The clock of the steps of the next level out. */
coh_status coh_step_clock_outer(const coh_step_clock *clock, const coh_outer_list *outer,
                                coh_step_clock *out_clock);
void coh_step_clock_fini(coh_step_clock *clock); /* accepts a zeroed struct */

/* Makes the fetches of a residency run in that order: each before a step from move->earliest on,
 * and no later than before. They are listed in the order of need, each with earliest <= step.
 * `part`: the time of all fetches, as part of that of all steps. Fails: COH_ERR_MEMORY. */
coh_status coh_fetch_order(const coh_layout *layout, const coh_step_clock *clock, double part,
                           coh_residency *residency);

/* Makes the stores run in that order, each after a step up to move->latest. The fetches are in
 * their order. Lowers move->latest to what the fetches allow. Fails: COH_ERR_MEMORY. */
coh_status coh_store_order(const coh_layout *layout, const coh_step_clock *clock, double part,
                           coh_residency *residency);

#endif
