/* world.h - a world of ranks: several engines that train one model.
 *
 * Each rank is one thread of control with its own engine and memory. A world connects N of them:
 *
 *     coh_world *world, *worlds[4];
 *     coh_world_open(&options, &world);               this process is one of N of a launcher
 *     coh_world_open_threads(&options, worlds);       or: N ranks in this process
 *
 *     rank r:    coh_world_rank(world) == r
 *                coh_world_share_text(...)            rank 0's text, to all
 *                coh_world_barrier(...)               waits for all
 *                coh_world_close(world)
 *
 * The one idea: ranks end together. A rank that cannot go on stops the world with a sentence; each
 * call of every other rank, also one that waits, then fails with this status and sentence, which
 * begins with the number of the rank that stopped. So no rank waits for one that is gone, and all
 * report the same reason.
 *
 * Ranks are numbered so that neighbours share the fastest links: the ranks of a pair, then the
 * pairs of a node, then the nodes (coh_link_level, tier.h).
 *
 * Threads: a handle is used by one thread at a time, the handles of different ranks by different
 * threads; coh_world_stop by any thread. share, gather and barrier are meetings: every rank makes
 * the same calls in the same order, and each waits for all. */
#ifndef COHOBATE_WORLD_H
#define COHOBATE_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"
#include "cohobate/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most ranks of a world, and most bytes of a record. */
#define COH_WORLD_RANKS_MOST        1024
#define COH_WORLD_RECORD_BYTES_MOST 4096

/* One rank's handle of its world. */
typedef struct coh_world coh_world;

/* The size of a world and of its levels. All ranks of a level are consecutive. */
typedef struct coh_world_options {
    uint32_t struct_bytes; /* sizeof(coh_world_options) */
    int32_t rank_count;    /* 1 to COH_WORLD_RANKS_MOST; of processes, 0: as many as there are */
    int32_t pair_ranks;    /* ranks of a pair: a divisor of node_ranks; 0: 1 */
    int32_t node_ranks; /* ranks of a node: a divisor of rank_count; 0: all, or those of a host */
} coh_world_options;

/* Opens the world of the processes that a launcher (mpirun, srun) has started with this one, over
 * MPI, by opening libcohobate-mpi.so. *out_world is this process's handle, NULL on failure. A
 * process that no launcher has started is a world of one rank, and opens no MPI. All processes call
 * it together, once: MPI starts once in a process. A program that has started MPI itself, with
 * MPI_THREAD_MULTIPLE, keeps it; else coh_world_close ends it. Starts one thread.
 * Fails: COH_ERR_ARGUMENT: rank_count differs from the launcher's, levels that do not divide one
 * another, hosts that hold different numbers of ranks or ranks that are not consecutive;
 * COH_ERR_DEVICE: libcohobate-mpi.so is missing or of another version, MPI fails, or has no
 * MPI_THREAD_MULTIPLE; COH_ERR_MEMORY. */
COH_API coh_status coh_world_open(const coh_world_options *options, coh_world **out_world);

/* Opens a world of options->rank_count ranks in this process. out_worlds[r] is the handle of rank
 * r; on failure all are NULL. The levels describe links; in one process they change no speed.
 * Fails: COH_ERR_ARGUMENT: fewer than 1 or more than COH_WORLD_RANKS_MOST ranks, or levels that do
 * not divide one another; COH_ERR_MEMORY. */
COH_API coh_status coh_world_open_threads(const coh_world_options *options, coh_world **out_worlds);

/* Frees the handle. Meet in a barrier first, unless the world has stopped: a rank that closes its
 * handle stops the others. A process waits until all others close; after a failure at most 8 s, and
 * its launcher ends those that have not come when it exits. Accepts NULL. */
COH_API void coh_world_close(coh_world *world);

/* Returns the number of this rank, from 0; -1 for NULL. */
COH_API int32_t coh_world_rank(const coh_world *world);
/* Returns the number of ranks; 0 for NULL. */
COH_API int32_t coh_world_size(const coh_world *world);

/* Returns how many consecutive ranks the links of a level connect: 1, the ranks of a pair, of a
 * node, of the world. 0 for NULL or another level. */
COH_API int32_t coh_world_level_ranks(const coh_world *world, coh_link_level level);

/* Sets how many ranks a pair has, of a world that was opened before its plan was made: a divisor of
 * the ranks of a node; 0: 1. Every rank sets the number of the plan before it creates its engine,
 * which compares them. Fails: COH_ERR_ARGUMENT: it is no such divisor. */
COH_API coh_status coh_world_set_pair_ranks(coh_world *world, int32_t pair_ranks);

/* Finds how many ranks a pair has by the links of the machine, for coh_world_set_pair_ranks: blocks
 * of neighbours that are linked with each other and with no other rank of their node. Links are
 * NVLinks between GPUs, as bridges; without any, ranks are near whose GPU, or whose processors, are
 * at one memory node of several. GPUs behind a switch are all alike, so they have no pairs.
 * `device`: what this rank will compute on: NULL or "host", or "cuda:0", ... A meeting of all
 * ranks. *out_pair_ranks: 1 if there are no pairs, or if the ranks' numbers do not follow them.
 * Fails: COH_ERR_ARGUMENT: no device has this name; COH_ERR_DEVICE: there is no such GPU;
 * COH_ERR_MEMORY; a stopped world. */
COH_API coh_status coh_world_find_pairs(coh_world *world, const char *device,
                                        int32_t *out_pair_ranks);

/* Gives rank 0's text to all. Other ranks pass any text, such as "". *out_text is valid until this
 * rank's next share or close. Fails: COH_ERR_MEMORY; a stopped world. */
COH_API coh_status coh_world_share_text(coh_world *world, const char *text, const char **out_text);

/* Gathers a record of `bytes` from each rank, at most COH_WORLD_RECORD_BYTES_MOST, to all:
 * out_records has room for the records of all ranks and gets them in rank order.
 * Fails: COH_ERR_ARGUMENT, on all ranks if their sizes or calls differ; a stopped world. */
COH_API coh_status coh_world_gather(coh_world *world, const void *record, size_t bytes,
                                    void *out_records);

/* Waits until all ranks have called it. Fails: a stopped world. */
COH_API coh_status coh_world_barrier(coh_world *world);

/* Stops all ranks with a failure and a sentence, which needs no full stop at its end. The first
 * stop wins: a later one changes nothing and returns COH_OK, too.
 * Fails: COH_ERR_ARGUMENT if `status` is no failure, or the sentence is empty. */
COH_API coh_status coh_world_stop(coh_world *world, coh_status status, const char *sentence);

#ifdef __cplusplus
}
#endif
#endif
