/* The world of a launcher's processes. Read launch.h first. */
#include "cli/launch.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/say.h"
#include "cli/stop.h"

/* The meetings of train; profile and doctor have the last one. */
enum { TO_PLAN, TO_SHARE, TO_START, MEETINGS };

/* ---- the share of a machine ---- */

/* The processors that a rank may use. */
typedef struct cores {
    cpu_set_t mask;
    int32_t count; /* at most: a cgroup may allow fewer */
} cores;

/* Returns the ranks of a rank's machine that may use its processors, itself too. */
static int32_t sharing_with(const cli_launch *launch, const cores *all, int32_t rank)
{
    const int32_t first = rank / launch->local_count * launch->local_count;
    int32_t sharing = 0;
    for (int32_t other = first; other < first + launch->local_count; other++) {
        cpu_set_t both;
        CPU_AND(&both, &all[rank].mask, &all[other].mask);
        sharing += other == rank || CPU_COUNT(&both) > 0;
    }
    return sharing;
}

/* All ranks get the threads of the one that has the fewest. */
static coh_status divide_cores(cli_launch *launch)
{
    cores own = { .count = coh_machine_core_count() };
    cores *all = calloc((size_t)launch->rank_count, sizeof(*all));
    if (all == NULL)
        return cli_fail(COH_ERR_MEMORY, "no memory for the table of %d ranks",
                        (int)launch->rank_count);
    if (sched_getaffinity(0, sizeof(own.mask), &own.mask) != 0)
        CPU_ZERO(&own.mask); /* more processors than the mask holds: nothing is known */
    const coh_status status = coh_world_gather(launch->world, &own, sizeof(own), all);
    for (int32_t rank = 0; rank < launch->rank_count && status == COH_OK; rank++) {
        const int32_t sharing = sharing_with(launch, all, rank);
        const int32_t share = all[rank].count / sharing, threads = share > 1 ? share : 1;
        if (rank == 0)
            launch->sharing_count = sharing;
        if (rank == 0 || threads < launch->thread_count)
            launch->thread_count = threads;
    }
    free(all);
    return status;
}

/* ---- open ---- */

/* Returns the first of the variables that is set, or NULL. */
static const char *first_set(const char *const *variables, size_t count)
{
    const char *value = NULL;
    for (size_t i = 0; i < count && value == NULL; i++)
        value = getenv(variables[i]);
    return value;
}

static const char *launched_rank(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK" };
    return first_set(variables, sizeof(variables) / sizeof(*variables));
}

void cli_launch_quiet(void)
{
    const char *rank = launched_rank();
    if (rank != NULL)
        cli_say_nothing(strcmp(rank, "0") != 0);
}

/* Returns the first flag of a file that the command writes, or NULL. */
static const char *output_flag(const cli_options *options)
{
    static const struct {
        cli_flag flag;
        const char *name;
    } files[] = { { CLI_FLAG_OUTPUT, "-o" },
                  { CLI_FLAG_HELD_OUT_FILE, "--held-out-file" },
                  { CLI_FLAG_PROGRAM, "--program" },
                  { CLI_FLAG_REPORT, "--report" },
                  { CLI_FLAG_LOGITS, "--logits" } };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (cli_given(options, files[i].flag))
            return files[i].name;
    return NULL;
}

coh_status cli_launch_check_undivided(const cli_options *options)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS" };
    const char *rank = launched_rank();
    const char *count = first_set(variables, sizeof(variables) / sizeof(*variables));
    const char *command = cli_command_name(options->command), *output = output_flag(options);
    if (rank == NULL || count == NULL || strtol(count, NULL, 10) <= 1)
        return COH_OK;
    const int is_first = strcmp(rank, "0") == 0;
    if (output != NULL) {
        cli_say_nothing(!is_first);
        return cli_fail(COH_ERR_ARGUMENT,
                        "each of the %s processes of the launcher would write %s: start %s alone",
                        count, output, command);
    }
    if (is_first)
        cli_note("note: %s is not divided between the %s processes of the launcher: each does all "
                 "of it; start it alone",
                 command, count);
    return COH_OK;
}

/* The flags of a rank above 0: it writes no file, as if the flags of files were not given. */
static void keep_nothing(cli_options *options)
{
    static const cli_flag files[] = { CLI_FLAG_LOG, CLI_FLAG_REPORT, CLI_FLAG_SAVE,
                                      CLI_FLAG_TENSORBOARD };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        options->given[files[i]] = 0;
    options->save = "none";
    options->calibration = "none";
    options->log = options->report = options->tensorboard = NULL;
    options->keep_best = 0;
    options->json = 0;
}

static coh_status take_places(cli_launch *launch, const cli_options *options)
{
    launch->rank = coh_world_rank(launch->world);
    launch->rank_count = coh_world_size(launch->world);
    launch->local_count = coh_world_level_ranks(launch->world, COH_LEVEL_NODE);
    cli_say_nothing(launch->rank > 0);
    if (cli_given(options, CLI_FLAG_RANKS) && options->ranks != launch->rank_count)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--ranks %" PRId64 ", and the launcher has started %" PRId32
                        " processes, which are the ranks: leave --ranks out",
                        options->ranks, launch->rank_count);
    return divide_cores(launch);
}

static coh_status open_world(cli_options *options)
{
    static cli_launch launch; /* one a process */
    const coh_world_options any = { .struct_bytes = sizeof(any) };
    const coh_status status = coh_world_open(&any, &launch.world);
    if (status != COH_OK) {
        cli_say_nothing(0); /* rank 0 may know nothing of it */
        return status;
    }
    if (coh_world_size(launch.world) == 1) {
        coh_world_close(launch.world);
        cli_say_nothing(0);
        return COH_OK;
    }
    options->launch = &launch;
    launch.meeting_count = options->command == CLI_TRAIN ? TO_PLAN : TO_START;
    CLI_TRY(take_places(&launch, options));
    if (launch.rank > 0)
        keep_nothing(options);
    return COH_OK;
}

/* Refuses to train in each task of an srun that connects none of them: all would train the whole
 * run. A batch script has SLURM_NTASKS, too; only tasks of srun have SLURM_STEP_NUM_TASKS.
 * Commands that know no ranks, and profile, may well be of one task each: they are not refused. Nor
 * is a command in the shell of `srun --pty`, the only task of its step that has a terminal. */
static coh_status check_connected(const cli_options *options)
{
    static const char *const launchers[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK" };
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *task = getenv("SLURM_PROCID");
    const int is_alone = cli_given(options, CLI_FLAG_RANKS) && options->ranks == 1;
    if (options->command != CLI_TRAIN || is_alone || tasks == NULL ||
        strtol(tasks, NULL, 10) <= 1 || isatty(STDIN_FILENO) ||
        first_set(launchers, sizeof(launchers) / sizeof(*launchers)) != NULL)
        return COH_OK;
    cli_say_nothing(task != NULL && strcmp(task, "0") != 0);
    return cli_fail(COH_ERR_ARGUMENT,
                    "srun has started %s tasks without connecting them, so each would train the "
                    "whole run: start them by srun --mpi=pmix (or mpirun) to make them ranks of "
                    "one run, or give --ranks 1 for %s independent runs",
                    tasks, tasks);
}

coh_status cli_launch_open(coh_status parsed, cli_options *options)
{
    char sentence[1024];
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    if (parsed == COH_OK)
        CLI_TRY(check_connected(options));
    const coh_status status = open_world(options);
    return parsed == COH_OK ? status : cli_fail(parsed, "%s", sentence);
}

int32_t cli_launch_gpu(const coh_world *launched, int32_t local_rank)
{
    coh_device_summary second = { .struct_bytes = sizeof(second) };
    const int sees_one = launched != NULL && coh_device_summarize("cuda:1", &second) != COH_OK;
    return sees_one ? 0 : local_rank;
}

const char *cli_launch_device(const coh_world *launched, const char *device, int32_t local_rank,
                              char text[CLI_DEVICE_BYTES])
{
    if (strcmp(device, "cuda") != 0)
        return device;
    snprintf(text, CLI_DEVICE_BYTES, "cuda:%" PRId32, cli_launch_gpu(launched, local_rank));
    return text;
}

coh_status cli_launch_check_device(const char *device, int32_t rank_count)
{
    if (rank_count == 1 || strcmp(device, "host") == 0 || strcmp(device, "cuda") == 0)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--device %s is one GPU, and each of %d ranks needs its own: give --device "
                    "cuda, by which the ranks of a machine take its GPUs in their order",
                    device, (int)rank_count);
}

coh_status cli_launch_find_pairs(const cli_launch *launch, const char *device)
{
    int32_t pair_ranks;
    CLI_TRY(coh_world_find_pairs(launch->world, device, &pair_ranks));
    return coh_world_set_pair_ranks(launch->world, pair_ranks);
}

/* ---- meetings ---- */

coh_status cli_launch_share_plan(cli_launch *launch, const coh_plan *plan, const char *note,
                                 const char **out_text)
{
    launch->meeting_count++;
    return coh_world_share_plan(launch->world, plan, note, out_text);
}

/* Returns the first fact that differs from rank 0's, if one does. */
static coh_status compare(const cli_launch *launch, const cli_launch_fact *facts, int fact_count,
                          const uint64_t *all)
{
    for (int32_t rank = 1; rank < launch->rank_count; rank++)
        for (int i = 0; i < fact_count; i++)
            if (all[rank * CLI_LAUNCH_FACTS_MOST + i] != facts[i].value)
                return cli_fail(COH_ERR_ARGUMENT,
                                "rank %" PRId32 " has %s than rank 0: give all the same", rank,
                                facts[i].other);
    return COH_OK;
}

coh_status cli_launch_agree(cli_launch *launch, const cli_launch_fact *facts, int fact_count)
{
    uint64_t own[CLI_LAUNCH_FACTS_MOST] = { 0 };
    launch->meeting_count++;
    CLI_TRY(coh_world_barrier(launch->world));
    uint64_t *all = calloc((size_t)launch->rank_count, sizeof(own));
    if (all == NULL)
        return cli_fail(COH_ERR_MEMORY, "no memory for the table of %d ranks",
                        (int)launch->rank_count);
    for (int i = 0; i < fact_count; i++)
        own[i] = facts[i].value;
    coh_status status = coh_world_gather(launch->world, own, sizeof(own), all);
    if (status == COH_OK && launch->rank == 0)
        status = compare(launch, facts, fact_count, all);
    free(all);
    return status;
}

/* ---- the end ---- */

/* A rank above 0 that fails on its way to a meeting still takes part: if rank 0 fails, too, as
 * with a mistaken flag, its sentence is the one to print. */
static coh_status come_to_next_meeting(cli_launch *launch)
{
    const char *text;
    if (launch->rank == 0 || launch->meeting_count == MEETINGS)
        return COH_OK;
    return launch->meeting_count == TO_SHARE ? cli_launch_share_plan(launch, NULL, NULL, &text)
                                             : coh_world_barrier(launch->world);
}

void cli_launch_keep_words(cli_launch *launch, const char *words)
{
    if (launch != NULL)
        snprintf(launch->go_on, sizeof(launch->go_on), "%s", words);
}

/* Returns the failure that the world has stopped with; on rank 0 without its own number, and with
 * the words on how to go on, which a transport or another rank that failed first does not know. */
static coh_status take_sentence(const cli_launch *launch)
{
    static const char own[] = "rank 0: ";
    char sentence[1024];
    const coh_status status = coh_world_barrier(launch->world);
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    const int is_own = launch->rank == 0 && strncmp(sentence, own, strlen(own)) == 0;
    const char *said = sentence + (is_own ? strlen(own) : 0);
    if (launch->rank != 0 || strstr(said, launch->go_on))
        return cli_fail(status, "%s", said);
    return cli_fail(status, "%s; %s", said, launch->go_on);
}

static int is_failure(const cli_launch *launch, coh_status status)
{
    return status != COH_OK && !(status == COH_ERR_STOPPED && launch->has_begun);
}

void cli_launch_stop(cli_launch *launch, coh_status status)
{
    char sentence[1024];
    if (launch == NULL || launch->is_stopped || !is_failure(launch, status))
        return;
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    launch->is_stopped = 1;
    if (come_to_next_meeting(launch) == COH_OK)
        (void)coh_world_stop(launch->world, status, sentence);
}

coh_status cli_launch_end(cli_launch *launch, coh_status status)
{
    char sentence[1024];
    int32_t codes[COH_WORLD_RANKS_MOST];
    if (launch == NULL)
        return status;
    cli_launch_stop(launch, status);
    if (launch->is_stopped)
        return take_sentence(launch);
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    const int32_t code = status == COH_OK ? 0 : cli_stop_exit_code();
    if (coh_world_gather(launch->world, &code, sizeof(code), codes) != COH_OK)
        return take_sentence(launch);
    launch->exit_code = codes[0];
    return status == COH_OK ? COH_OK : cli_fail(status, "%s", sentence);
}

int cli_launch_close(cli_launch *launch, int exit_code)
{
    if (launch == NULL)
        return exit_code;
    coh_world_close(launch->world);
    return exit_code != 0 && launch->exit_code != 0 ? launch->exit_code : exit_code;
}
