/* Cuts a batch into the shares of replicas and ranks. The one idea: a refusal names all flags that
 * have to change, since whoever mends one at a time is refused again. Next: shares.h, and
 * docs/ranks.md. */
#include "cli/shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/budget.h"
#include "cli/launch.h"
#include "cli/topology.h"

/* Adds " --replicas 2x4x2": the shape of the links where they are known, since sums over a pair and
 * a node then send less over the network. */
static void add_replicas(const cli_job *job, int32_t replicas, cli_line *line)
{
    coh_plan_options sizes = { .ranks = { { replicas } } };
    cli_topology_sizes(job->options, job->profile, &sizes);
    const int32_t pair = sizes.pair_ranks > 1 ? sizes.pair_ranks : 1;
    const int32_t node = sizes.node_ranks > pair ? sizes.node_ranks : pair;
    const int nests = replicas % node == 0 && node % pair == 0;
    const int32_t factors[] = { nests ? pair : 1, nests ? node / pair : 1,
                                nests ? replicas / node : replicas };
    const char *before = " --replicas ";
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
        if (factors[i] > 1) {
            cli_line_add(line, "%s%" PRId32, before, factors[i]);
            before = "x";
        }
}

/* Adds the flags that have to change for a batch in `replicas` shares, of several ranks or of one,
 * as " --batch 9 --gradients f32", and returns their number. */
static int add_flags(const cli_job *job, int32_t replicas, int is_of_ranks, cli_line *line)
{
    const cli_recipe *recipe = &job->recipe;
    const int64_t share = recipe->batch / replicas + (recipe->batch % replicas != 0);
    const int64_t given = job->options->micro_batch; /* 0: it follows from the share */
    int64_t divisor = given;
    int count = 0;
    if (coh_fold_shape_replicas(&recipe->replicas) != replicas && ++count)
        add_replicas(job, replicas, line);
    if (recipe->batch % replicas != 0 && ++count)
        cli_line_add(line, " --batch %" PRId64, share * replicas);
    while (divisor > 0 && share % divisor != 0)
        divisor--;
    if (divisor != given && ++count)
        cli_line_add(line, " --micro-batch %" PRId64, divisor);
    if (coh_model_size_get(&job->model).dtype == COH_DTYPE_BF16 && !recipe->f32_gradients &&
        ++count)
        cli_line_add(line, " --gradients f32");
    const int needs_pattern =
        job->options->wire != NULL || job->options->reduce == COH_REDUCE_LIBRARY;
    if (is_of_ranks && needs_pattern && job->options->pattern == NULL && ++count)
        cli_line_add(line, " --pattern zero3"); /* results depend on it */
    if (is_of_ranks && recipe->speculates && ++count)
        cli_line_add(line, " --clip-mode exact");
    return count;
}

static coh_status check_batch(const cli_recipe *recipe)
{
    const int32_t replicas = coh_fold_shape_replicas(&recipe->replicas);
    if (recipe->batch % replicas != 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--replicas %s: %" PRId32 " replicas do not divide --batch %" PRId64
                        ": give a multiple of %" PRId32 ", or other replicas",
                        cli_shape_text(&recipe->replicas).at, replicas, recipe->batch, replicas);
    const int64_t share = recipe->batch / replicas;
    if (share % recipe->micro_batch != 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--micro-batch %" PRId64 " does not divide the %" PRId64
                        " sequences of each of %" PRId32
                        " replicas: give a divisor, or leave it out for %" PRId64,
                        recipe->micro_batch, share, replicas, cli_default_micro_batch(recipe));
    return COH_OK;
}

static coh_status divide(cli_job *job, int32_t ranks)
{
    const coh_fold_shape *all = &job->recipe.replicas;
    char sentence[1024];
    cli_line flags;
    coh_status status = coh_fold_shape_divide(all, ranks, &job->rank_replicas, &job->ranks);
    const int32_t replicas = status == COH_OK ? coh_fold_shape_replicas(all) : ranks;
    if (status == COH_OK)
        status = check_batch(&job->recipe);
    if (status == COH_OK)
        return COH_OK;
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    cli_line_clear(&flags);
    if (add_flags(job, replicas, ranks > 1, &flags) < 2) /* then the sentence names it */
        return cli_fail(status, "%s", sentence);
    return cli_fail(status, "%s; for example%s", sentence, flags.text);
}

/* Refuses a flag of several ranks without them, with flags for the fewest. */
static coh_status needs_ranks(const cli_job *job, const char *flag)
{
    const int64_t of_node = job->options->node_ranks, of_pair = job->options->pair_ranks,
                  least = of_node > of_pair ? of_node : of_pair,
                  given = coh_fold_shape_replicas(&job->recipe.replicas);
    const int32_t ranks = given > 1 ? (int32_t)given : least > 2 ? (int32_t)least : 2;
    cli_line flags;
    cli_line_clear(&flags);
    (void)add_flags(job, ranks, 1, &flags);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--%s is for several ranks: add --ranks %" PRId32 "%s, for example, or start "
                    "the command with mpirun",
                    flag, ranks, flags.text);
}

/* Checks that each rank of this machine has a GPU, and that they are alike. Of processes that see
 * one GPU each, the engines check it. */
static coh_status check_gpus(const cli_job *job, int32_t ranks)
{
    const int32_t local = cli_budget_local_ranks(job->options);
    coh_device_summary first = { .struct_bytes = sizeof(first) };
    if (job->options->command != CLI_TRAIN)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%d ranks on GPUs train (cohobate train) and are planned (cohobate plan): "
                        "use one rank, or the host device",
                        (int)ranks);
    CLI_TRY(cli_launch_check_device(job->options->device, ranks));
    for (int32_t i = 0; i < local; i++) {
        char name[16];
        coh_device_summary gpu = { .struct_bytes = sizeof(gpu) };
        const coh_world *launched = job->options->launch ? job->options->launch->world : NULL;
        snprintf(name, sizeof(name), "cuda:%d", (int)cli_launch_gpu(launched, i));
        if (coh_device_summarize(name, &gpu) != COH_OK)
            return cli_fail(COH_ERR_ARGUMENT,
                            "%d ranks on this machine need %d GPUs, one each: %s; start as many "
                            "ranks as it has GPUs",
                            (int)local, (int)local, coh_last_error());
        if (i == 0)
            first = gpu;
        if (strcmp(first.kernel_path, gpu.kernel_path) != 0)
            return cli_fail(COH_ERR_ARGUMENT,
                            "GPU 0 computes by '%s' and GPU %d by '%s': ranks need GPUs of one "
                            "kind (CUDA_VISIBLE_DEVICES selects them)",
                            first.kernel_path, (int)i, gpu.kernel_path);
    }
    return COH_OK;
}

coh_status cli_job_share(cli_job *job)
{
    static const cli_flag of_ranks[] = { CLI_FLAG_PATTERN, CLI_FLAG_WIRE, CLI_FLAG_REDUCE,
                                         CLI_FLAG_NODE_RANKS, CLI_FLAG_PAIR_RANKS };
    const int is_profile = job->options->command == CLI_PROFILE; /* it measures one rank's share */
    const int32_t ranks = is_profile ? 1 : cli_budget_rank_count(job->options);
    if (ranks > 1 && job->on_gpu && job->options->command != CLI_PLAN)
        CLI_TRY(check_gpus(job, ranks));
    if (ranks > COH_WORLD_RANKS_MOST && job->options->command != CLI_PLAN)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--ranks %d: at most %d can train; more can be planned (cohobate plan)",
                        (int)ranks, COH_WORLD_RANKS_MOST);
    for (size_t i = 0; ranks == 1 && i < sizeof(of_ranks) / sizeof(of_ranks[0]); i++)
        if (cli_given(job->options, of_ranks[i]))
            return needs_ranks(job, cli_flag_table[of_ranks[i]].name);
    if (job->options->wire != NULL)
        CLI_TRY(coh_wires_parse(job->options->wire, &job->wires));
    CLI_TRY(cli_topology_check_ranks(job->options, job->profile, ranks));
    return divide(job, ranks);
}
