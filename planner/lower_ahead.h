/* lower_ahead.h - gathers work earlier than the call that reads it.
 *
 *     lead 0   GATHER 1  FWD 1  GATHER 2  FWD 2  GATHER 3  FWD 3
 *     lead 1   GATHER 1  GATHER 2  FWD 1  GATHER 3  FWD 2  FWD 3
 *
 * The one idea: lowering writes what a call needs directly before it, which is always right; this
 * pass then moves it up past `lead` calls, so that the comm lane works beside them. A deferred
 * update moves with the GATHERs that follow it. Nothing passes an instruction that touches the same
 * chunks, unless both only read them. More is live at once: a decision of the search. */
#ifndef COH_PLANNER_LOWER_AHEAD_H
#define COH_PLANNER_LOWER_AHEAD_H

#include "planner/lower.h"

/* Most calls that the search lets a GATHER come early. */
enum { COH_LEAD_MOST = 4 };

/* Reorders the program. Fails: COH_ERR_MEMORY; the program is then as it was. */
coh_status coh_lower_ahead(const coh_layout *layout, int lead, coh_lowered *lowered);

#endif
