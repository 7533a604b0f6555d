/* at_once.h - run independent pieces of planning on all threads of a pool. The result is the same
 * as on one thread. If several pieces fail, the failure with the lowest index is reported. */
#ifndef COH_PLANNER_AT_ONCE_H
#define COH_PLANNER_AT_ONCE_H

#include "base/check.h"
#include "base/pool.h"

enum { COH_AT_ONCE_MOST = 16 };

typedef coh_status (*coh_at_once_piece)(void *argument, int index);

/* Calls piece(argument, i) for i in [0, count), count <= COH_AT_ONCE_MOST, on several threads at
 * once; each call writes only its own outputs. With a NULL pool all calls run on the caller's
 * thread. Fails: as the failed piece of lowest index, with its message; all calls have returned by
 * then. */
coh_status coh_at_once(coh_pool *pool, int count, coh_at_once_piece piece, void *argument);

#endif
