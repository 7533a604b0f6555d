/* pool.h - worker threads that run the pieces of one kernel call.
 *
 * Pieces are handed out dynamically, one index at a time and in ascending order. A thread that
 * loses its core to another process delays only its own piece; a caller whose pieces differ in size
 * should number the larger ones first. The caller works, too. Waiters spin for some tens of
 * microseconds, then sleep. Nothing is allocated after create.
 *
 * To kernels a pool is a queue (queue_head.h): the host's.
 *
 * Threads: one thread at a time may call coh_pool_run (the compute lane). Workers are named
 * coh-pool-1, coh-pool-2, ... */
#ifndef COH_BASE_POOL_H
#define COH_BASE_POOL_H

#include <stdint.h>

#include "base/check.h"
#include "base/cores.h"

/* A larger number is an uninitialised one. */
enum { COH_THREADS_MOST = 1024 };

typedef struct coh_pool coh_pool;
typedef void (*coh_pool_piece)(void *argument, int64_t index);

/* Creates a pool. `thread_count` includes the caller: 1 creates no worker. Fails: COH_ERR_ARGUMENT,
 * COH_ERR_MEMORY. */
coh_status coh_pool_create(int thread_count, coh_pool **out_pool);
/* As coh_pool_create, with a given table of cores (cores.h): for tests. `ops` and `context` must
 * outlive the pool; its threads call them. */
coh_status coh_pool_create_on(int thread_count, const coh_core_ops *ops, void *context,
                              coh_pool **out_pool);
void coh_pool_destroy(coh_pool *pool); /* accepts NULL */

/* Runs piece(argument, i) for every i in [0, piece_count); returns when all are done. A NULL pool
 * runs them in the caller, and so does a call from a piece, of any pool. */
void coh_pool_run(coh_pool *pool, int64_t piece_count, coh_pool_piece piece, void *argument);

int coh_pool_thread_count(const coh_pool *pool); /* NULL: 1 */

#endif
