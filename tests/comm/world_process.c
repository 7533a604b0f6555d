/* One rank of a world of processes, for test_mpi_world.py: opens it as a program does, shares and
 * gathers, then ends as its argument says, and prints each failure with its rank. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/world.h"

static int report(int32_t rank, coh_status status)
{
    (void)printf("%" PRId32 ": %s: %s\n", rank, coh_status_name(status), coh_last_error());
    (void)fflush(stdout);
    return coh_status_exit_code(status);
}

/* Rank 0's text reaches all, and each rank's number. */
static coh_status meet(coh_world *world)
{
    const char *text;
    int32_t rank = coh_world_rank(world), all[16];
    coh_status status = coh_world_share_text(world, rank == 0 ? "the plan" : "", &text);
    if (status == COH_OK && strcmp(text, "the plan") != 0)
        return coh_world_stop(world, COH_ERR_INTERNAL, "another text");
    if (status == COH_OK)
        status = coh_world_gather(world, &rank, sizeof(rank), all);
    for (int32_t i = 0; status == COH_OK && i < coh_world_size(world); i++)
        if (all[i] != i)
            return coh_world_stop(world, COH_ERR_INTERNAL, "another record");
    return status;
}

/* The part of the rank before the last. */
static void end_early(coh_world *world, const char *how)
{
    if (strcmp(how, "stops") == 0)
        (void)coh_world_stop(world, COH_ERR_FULL, "the disk is full");
    if (strcmp(how, "is-killed") == 0)
        (void)raise(SIGKILL);
    if (strcmp(how, "exits") == 0)
        _exit(5);
    while (strcmp(how, "hangs") == 0)
        (void)pause();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "ends";
    const coh_world_options options = { .struct_bytes = sizeof(options),
                                        .rank_count = argc > 2 ? atoi(argv[2]) : 0,
                                        .pair_ranks = argc > 3 ? atoi(argv[3]) : 0,
                                        .node_ranks = argc > 4 ? atoi(argv[4]) : 0 };
    coh_world *world, *second;
    coh_status status = coh_world_open(&options, &world);
    if (status != COH_OK)
        return report(-1, status);
    const int32_t rank = coh_world_rank(world), size = coh_world_size(world);
    (void)printf("%" PRId32 ": of %" PRId32 ", pairs of %" PRId32 ", nodes of %" PRId32 "\n", rank,
                 size, coh_world_level_ranks(world, COH_LEVEL_PAIR),
                 coh_world_level_ranks(world, COH_LEVEL_NODE));
    const int hangs = strcmp(how, "hangs") == 0;
    status = meet(world);
    /* The stop may come before this rank has seen that all have met: it hangs all the same. */
    if (rank == size - 2 && (status == COH_OK || hangs))
        end_early(world, how);
    if (status == COH_OK && hangs)
        (void)coh_world_stop(world, COH_ERR_NUMBER, "a number is broken");
    if (status == COH_OK)
        status = coh_world_barrier(world);
    const int code = status == COH_OK ? 0 : report(rank, status);
    coh_world_close(world);
    if (strcmp(how, "ends") == 0)
        (void)report(rank, coh_world_open(&options, &second));
    return code;
}
