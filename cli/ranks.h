/* ranks.h - the engines of a run in this process: one, one for each rank of a world of threads, or
 * that of this process's rank in a launcher's world.
 *
 *     rank 0   the command's own thread    submit | wait | report, save | submit | ...
 *     rank 1   a separate thread           submit | wait |              | submit | ...
 *
 * The one idea: the command trains as with one engine. Calls that all ranks must make together are
 * a function that cli_ranks_run runs on each rank's thread, with that rank's engine. Rank 0 does
 * what one rank can do alone (save, validate, report), since every rank has the same values. Where
 * each rank is a process, all run the command, and what one must know of the others is gathered.
 * Next: train_loop.c. */
#ifndef COH_CLI_RANKS_H
#define COH_CLI_RANKS_H

#include "cohobate/engine.h"

typedef struct cli_ranks cli_ranks;

/* Returns a failure with coh_last_error of this thread. */
typedef coh_status (*cli_rank_work)(void *context, coh_engine *engine, int32_t rank);

/* Creates the engines of `plan`, which has rank_count ranks, together; only this process's rank if
 * it is one of options->world. Other ranks lie in pairs and nodes as in `plan_options`.
 * Fails: as coh_engine_create and coh_world_open_threads; *out_ranks is then NULL. */
coh_status cli_ranks_open(const coh_plan *plan, const coh_plan_options *plan_options,
                          const coh_engine_options *options, int32_t rank_count,
                          cli_ranks **out_ranks);
/* Destroys the engines. Accepts NULL. */
void cli_ranks_close(cli_ranks *ranks);

int32_t cli_ranks_count(const cli_ranks *ranks);
/* Returns the calling thread's engine, and whether it is rank 0's. NULL: no engine. */
coh_engine *cli_ranks_engine(const cli_ranks *ranks);
int cli_ranks_is_first(const cli_ranks *ranks);

/* Completes a table with one record of `bytes` for each rank, of which those of this process are
 * filled in. All processes call it together. Allocates nothing. */
coh_status cli_ranks_gather(cli_ranks *ranks, void *records, size_t bytes);

/* Lets the processes of all ranks meet at the same point. They may wait there for any time, unlike
 * in a step (--rank-timeout). Without processes it does nothing. */
coh_status cli_ranks_meet(cli_ranks *ranks);

/* Runs `work` on all ranks of this process at once, or on one after the other from rank 0 on, and
 * waits for all. Of several failures rank 0's is returned, else that of the lowest rank. A failure
 * that is not the engine's (input, memory) does not end the other ranks: it must be the same on all
 * threads. */
coh_status cli_ranks_run(cli_ranks *ranks, cli_rank_work work, void *context);
coh_status cli_ranks_run_in_turn(cli_ranks *ranks, cli_rank_work work, void *context);

#endif
