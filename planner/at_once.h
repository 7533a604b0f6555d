/* at_once.h - pieces of planning that do not depend on one another, by all threads of a pool. What
 * comes out is what the caller alone would make: of failures the first by index counts. */
#ifndef COH_PLANNER_AT_ONCE_H
#define COH_PLANNER_AT_ONCE_H

#include "base/check.h"
#include "base/pool.h"

enum { COH_AT_ONCE_MOST = 16 };

typedef coh_status (*coh_at_once_piece)(void *argument, int index);

/* piece(argument, i) for i in [0, count), count <= COH_AT_ONCE_MOST, on any threads at once; each
 * fills places of its own. A NULL pool: in the caller.
 * Fails: as the first piece that does, with its sentence; all have ended then. */
coh_status coh_at_once(coh_pool *pool, int count, coh_at_once_piece piece, void *argument);

#endif
