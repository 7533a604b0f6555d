/* lower_late.h - the order of updates on the host lane that run while backward continues.
 *
 *     gradients   4      3      2      1             the last block's first
 *     late 0      UPD 4     UPD 3     UPD 2     UPD 1     then FWD 1 of the next step
 *     late 8      UPD 4     UPD 2     UPD 1     UPD 3     FWD 1 beside UPD 3
 *
 * The one idea: gradients arrive in the reverse of the order in which the next forward needs their
 * weights. A host lane that is slower than backward lags behind, and in the order of arrival it
 * does last what is needed first. Therefore some updates, spread evenly, leave their turn to
 * younger gradients, and run after all others in the order of next use, beside the next forward.
 * How many depends on the speeds of the machine: a decision of the search. */
#ifndef COH_PLANNER_LOWER_LATE_H
#define COH_PLANNER_LOWER_LATE_H

#include "planner/lower.h"

/* The unit of `late`: parts of the bytes that the host lane updates. */
enum { COH_LATE_PARTS = 16 };

/* Moves `late` parts of the updates on the host lane behind the last one. An update stays where it
 * is if a later instruction touches the same chunks. Fails: COH_ERR_MEMORY; the program is then as
 * it was. */
coh_status coh_lower_late(const coh_layout *layout, int late, coh_lowered *lowered);

#endif
