/* ranks.h - the engines of a run: one, or one for each rank of a world in this process.
 *
 *     rank 0   the command's own thread    submit | wait | report, save | submit | ...
 *     rank 1   a thread of its own         submit | wait |              | submit | ...
 *
 * The one idea: the command trains as with one engine. Calls that all ranks must make together are
 * a function that cli_ranks_run runs on each rank's thread, with that rank's engine. Rank 0 does
 * what one rank can do alone (save, validate, report), since every rank has the same values. Next:
 * train_loop.c. */
#ifndef COH_CLI_RANKS_H
#define COH_CLI_RANKS_H

#include "cohobate/engine.h"

typedef struct cli_ranks cli_ranks;

/* Returns a failure with coh_last_error of this thread. */
typedef coh_status (*cli_rank_work)(void *context, coh_engine *engine, int32_t rank);

/* Creates the engines of `plan`, which has rank_count ranks, together. options->world is ignored.
 * Fails: as coh_engine_create and coh_world_open_threads; *out_ranks is then NULL. */
coh_status cli_ranks_open(const coh_plan *plan, const coh_engine_options *options,
                          int32_t rank_count, cli_ranks **out_ranks);
/* Destroys the engines. Accepts NULL. */
void cli_ranks_close(cli_ranks *ranks);

int32_t cli_ranks_count(const cli_ranks *ranks);
/* Returns rank 0's engine: the calling thread's; NULL for NULL. */
coh_engine *cli_ranks_engine(const cli_ranks *ranks);

/* Runs `work` on all ranks at once, or on one after the other from rank 0 on, and waits for all. Of
 * several failures rank 0's is returned, else that of the lowest rank. A failure that is not the
 * engine's (input, memory) does not end the other ranks: it must be the same on all. */
coh_status cli_ranks_run(cli_ranks *ranks, cli_rank_work work, void *context);
coh_status cli_ranks_run_in_turn(cli_ranks *ranks, cli_rank_work work, void *context);

#endif
