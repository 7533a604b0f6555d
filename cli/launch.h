/* launch.h - train as one of the processes that mpirun or srun started: a rank of their world.
 *
 *     rank 0   agree ──> plan ──> share ──> data ──> agree ──> engine, steps ──> end   prints
 *     rank 1   agree ───> wait ─> share ──> data ──> agree ──> engine, steps ──> end   is silent
 *
 * The one idea: every process runs the same command with the same flags. Rank 0 decides and keeps;
 * the others take its plan, and their flags for files are as with --save none. A failure of any
 * rank ends all, and rank 0 prints it. A process that was started alone has no cli_launch. */
#ifndef COH_CLI_LAUNCH_H
#define COH_CLI_LAUNCH_H

#include "cli/options.h"

typedef struct cli_launch {
    coh_world *world;
    int32_t rank, rank_count;
    int32_t local_count;   /* ranks of a machine */
    int32_t thread_count;  /* of each rank by default: cores that it shares with no other */
    int32_t sharing_count; /* ranks of the machine, rank 0 too, that may use rank 0's cores */
    int meeting_count;     /* of agree, share, agree */
    int has_begun;         /* the first step: from here on all ranks stop together on request */
    int is_stopped;        /* by cli_launch_stop */
    int exit_code;         /* rank 0's */
    char go_on[1024];      /* rank 0's words on how to go on; "": none */
} cli_launch;

/* Opens the world if a launcher has started several processes, and sets options->launch; else it
 * stays NULL. For rank 0, all flags stay; the others lose those for files, and print nothing.
 * `parsed` is the status of parsing the options: if it is a failure, it is returned, and the world
 * is there for cli_launch_end.
 * Fails: as coh_world_open; COH_ERR_ARGUMENT: --ranks is another number, or srun started several
 * tasks to train that nothing connects, without --ranks 1. */
coh_status cli_launch_open(coh_status parsed, cli_options *options);

/* Returns which of the GPUs that this process sees its rank takes: the one with its number among
 * the machine's ranks, or the only one, since a launcher may show each process its own alone.
 * `launched`: NULL for ranks of one process. */
int32_t cli_launch_gpu(const coh_world *launched, int32_t local_rank);

/* Returns the name of the device of a rank of this machine: `device`, or of "cuda" its GPU as
 * above, in `text`. */
enum { CLI_DEVICE_BYTES = 32 };
const char *cli_launch_device(const coh_world *launched, const char *device, int32_t local_rank,
                              char text[CLI_DEVICE_BYTES]);

/* Refuses one GPU ("cuda:1") for several ranks. */
coh_status cli_launch_check_device(const char *device, int32_t rank_count);

/* Finds the pairs of the world by this rank's device, and sets them: a meeting of all ranks. */
coh_status cli_launch_find_pairs(const cli_launch *launch, const char *device);

/* Says nothing from here on if the environment names this process a rank above 0. */
void cli_launch_quiet(void);

/* Of a command that knows no ranks: rank 0 of several processes notes that each does all of it.
 * Fails: COH_ERR_ARGUMENT: all would write the same file; ranks above 0 print nothing then. */
coh_status cli_launch_check_undivided(const cli_options *options);

/* Shares rank 0's plan: coh_world_share_plan. */
coh_status cli_launch_share_plan(cli_launch *launch, const coh_plan *plan, const char *note,
                                 const char **out_text);

/* A number that all ranks must have alike. */
typedef struct cli_launch_fact {
    const char *other; /* what a rank has that differs: "another --data" */
    uint64_t value;
} cli_launch_fact;
enum { CLI_LAUNCH_FACTS_MOST = 64 };

/* Waits until all ranks have come as far, and compares their facts with rank 0's. train calls it
 * before it plans and before it creates its engine, profile and doctor before they measure.
 * Fails: COH_ERR_ARGUMENT, on rank 0, with the rank and its words for the fact. */
coh_status cli_launch_agree(cli_launch *launch, const cli_launch_fact *facts, int fact_count);

/* Keeps words that follow the sentence of the first failure, whichever rank has it. `launch` NULL:
 * does nothing. */
void cli_launch_keep_words(cli_launch *launch, const char *words);

/* Stops all ranks if `status`, with this thread's error text, is a failure (as cli_launch_end).
 * Before a rank's engine ends: on a GPU its end waits for the others. Accepts NULL. */
void cli_launch_stop(cli_launch *launch, coh_status status);

/* Ends the command with `status` and this thread's error text: waits for all ranks if it is COH_OK,
 * or a stop after the first step; else stops all. Returns the status of the world, with its
 * sentence. Accepts NULL: returns `status`. */
coh_status cli_launch_end(cli_launch *launch, coh_status status);
/* Closes the world, and returns the exit code of all. Accepts NULL: returns `exit_code`. */
int cli_launch_close(cli_launch *launch, int exit_code);

#endif
