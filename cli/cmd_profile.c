/* cohobate profile: measures this machine, or one of its GPUs, and writes a profile for --profile.
 * Next: cohobate/measure.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/agree.h"
#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/disks.h"
#include "cli/job.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cohobate/kernels.h"

enum { GRAPHS_MOST = 32 };

/* The graphs to measure: each model in several micro-batches. */
typedef struct subjects {
    coh_graph *graphs[GRAPHS_MOST];
    uint32_t count;
    int f32_gradients, accumulates; /* the same for all graphs */
    uint64_t models_hash;           /* of all models (agree.h) */
    coh_dtype dtype;                /* of the last one */
} subjects;

static void drop(subjects *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        coh_graph_destroy(s->graphs[i]);
    s->count = 0;
}

static coh_status add_graph(subjects *s, const cli_job *job, int64_t micro_batch)
{
    CLI_TRY(coh_model_train_graph(&job->model, micro_batch, job->recipe.sequence,
                                  &s->graphs[s->count]));
    s->count++;
    return COH_OK;
}

/* Adds a model in micro-batches of 1, 2, 4, ... and that of the recipe; with --quick only in 1 and
 * that one. */
static coh_status add_model(const cli_options *options, subjects *s)
{
    cli_job job;
    CLI_TRY(cli_job_open_unplanned(options, &job));
    const int64_t own = job.recipe.micro_batch;
    s->f32_gradients = job.recipe.f32_gradients != 0;
    s->accumulates = job.recipe.batch > own;
    s->dtype = coh_model_size_get(&job.model).dtype;
    coh_status status = cli_agree_hash_model(&job.model, &s->models_hash);
    for (int64_t n = 1; status == COH_OK && n < own && s->count + 1 < GRAPHS_MOST; n *= 2)
        if (n == 1 || !options->quick)
            status = add_graph(s, &job, n);
    if (status == COH_OK)
        status = add_graph(s, &job, own);
    cli_job_close(&job);
    return status;
}

/* Without a MODEL: small and medium operators, from the smallest presets. */
static coh_status add_models(const cli_options *options, subjects *s)
{
    static const char *const names[] = { "gpt2-nano", "gpt2" };
    if (options->operand)
        return add_model(options, s);
    for (int i = 0; i < (options->quick ? 1 : 2); i++) {
        cli_options named = *options;
        named.operand = names[i];
        CLI_TRY(add_model(&named, s));
    }
    return COH_OK;
}

/* ---- progress ---- */

typedef struct watcher {
    int is_terminal, is_shown;
    double begin;
} watcher;

static void clear(watcher *w)
{
    if (w->is_shown)
        (void)cli_write(STDERR_FILENO, "\r\x1b[K", 4);
    w->is_shown = 0;
}

/* Shows a progress bar on a terminal; elsewhere nothing, since figures are printed at the end. */
static void show(void *context, uint32_t done, uint32_t total, const char *what)
{
    enum { BAR = 24 };
    watcher *w = context;
    char line[160], bar[BAR + 1];
    if (!w->is_terminal) /* nor is it one of a rank above 0, which says nothing */
        return;
    const int full = total > 0 ? (int)((uint64_t)done * BAR / total) : 0;
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)(full < BAR ? full : BAR));
    bar[BAR] = '\0';
    int length = snprintf(line, sizeof(line), "\r\x1b[K[%s] %" PRIu32 "/%" PRIu32 " %s %.60s", bar,
                          done, total, cli_time(cli_seconds_now() - w->begin).at, what);
    (void)cli_write(STDERR_FILENO, line, (size_t)length);
    w->is_shown = 1;
}

static void hear(void *context, const char *sentence)
{
    clear(context);
    cli_note("note: %s", sentence);
}

/* Returns 1 for rank 0, or a process that is no rank. */
static int is_first(const cli_options *options)
{
    return options->launch == NULL || options->launch->rank == 0;
}

/* ---- result ---- */

static void print_rate(const char *what, double rate, const char *unit)
{
    if (rate > 0)
        printf("  %-34s %10.1f %s/s\n", what, rate / 1e9, unit);
}

static void print_exchange(const char *what, double rate, double latency_s)
{
    if (rate > 0)
        printf("  %-34s %10.1f GB/s, %.0f us\n", what, rate / 1e9, latency_s * 1e6);
}

static void print_summary(const coh_profile_summary *summary, double seconds)
{
    printf("%s: %s, %s; %" PRIu32 " operators and instructions\n", summary->name, summary->machine,
           summary->date, summary->operator_count);
    print_rate("products of f32", summary->f32_flops_per_s, "GFLOP");
    print_rate("products of bf16", summary->bf16_flops_per_s, "GFLOP");
    print_rate("memory, read and written", summary->memory_bytes_per_s, "GB");
    print_rate("memory of the host", summary->host_memory_bytes_per_s, "GB");
    print_rate(summary->is_gpu ? "host to device" : "emulated far tier, to the device",
               summary->h2d_bytes_per_s, "GB");
    print_rate(summary->is_gpu ? "device to host" : "emulated far tier, from the device",
               summary->d2h_bytes_per_s, "GB");
    print_rate("drive, reads", summary->read_bytes_per_s, "GB");
    print_rate("drive, writes", summary->write_bytes_per_s, "GB");
    print_exchange("between ranks of a pair", summary->pair_bytes_per_s, summary->pair_latency_s);
    print_exchange("between ranks of a node", summary->comm0_bytes_per_s, summary->comm0_latency_s);
    print_exchange("between nodes", summary->comm1_bytes_per_s, summary->comm1_latency_s);
    printf("measured in %s\n", cli_time(seconds).at);
}

void cli_profile_add_rates_json(const coh_profile_summary *s, cli_line *line)
{
    cli_line_add_json(line,
                      "'f32_flops_per_s': %.17g, 'bf16_flops_per_s': %.17g"
                      ", 'memory_bytes_per_s': %.17g, 'host_memory_bytes_per_s': %.17g"
                      ", 'h2d_bytes_per_s': %.17g, 'd2h_bytes_per_s': %.17g"
                      ", 'read_bytes_per_s': %.17g, 'write_bytes_per_s': %.17g"
                      ", 'comm0_bytes_per_s': %.17g, 'comm1_bytes_per_s': %.17g"
                      ", 'comm0_latency_s': %.17g, 'comm1_latency_s': %.17g"
                      ", 'pair_bytes_per_s': %.17g, 'pair_latency_s': %.17g",
                      s->f32_flops_per_s, s->bf16_flops_per_s, s->memory_bytes_per_s,
                      s->host_memory_bytes_per_s, s->h2d_bytes_per_s, s->d2h_bytes_per_s,
                      s->read_bytes_per_s, s->write_bytes_per_s, s->comm0_bytes_per_s,
                      s->comm1_bytes_per_s, s->comm0_latency_s, s->comm1_latency_s,
                      s->pair_bytes_per_s, s->pair_latency_s);
}

static void print_json(const coh_profile_summary *summary, double seconds)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(
        &line,
        "{'name': %s, 'machine': %s, 'device': %s, 'date': %s, 'threads': %d"
        ", 'operators': %" PRIu32 ", 'fingerprint': '%016" PRIx64 "', 'hash': '%016" PRIx64 "'",
        summary->name, summary->machine, summary->is_gpu ? "gpu" : "host", summary->date,
        (int)summary->threads, summary->operator_count, summary->fingerprint, summary->hash);
    cli_profile_add_rates_json(summary, &line);
    cli_line_add_json(&line, "'seconds': %.17g}", seconds);
    cli_print("%s", line.text);
}

/* ---- command ---- */

/* Waits for the other ranks, which measure the same, each on its own GPU. Rank 0 alone writes -o: a
 * file that another rank names would silently be none. */
static coh_status meet(const cli_options *options, const subjects *s)
{
    const cli_launch_fact facts[] = {
        { "another --device", cli_budget_on_gpu(options) != 0 },
        { "another --dtype", s->dtype },
        { "another --gradients", (uint64_t)s->f32_gradients },
        { "another model", s->models_hash },
        { "another --batch", (uint64_t)options->batch },
        { "another --micro-batch", (uint64_t)options->micro_batch },
        { "another --sequence", (uint64_t)options->sequence },
        { "another --dropout", cli_agree_hash_text(options->written[CLI_FLAG_DROPOUT]) },
        { "another --kernels", coh_kernels_hash() },
        { "another --quick", options->quick != 0 },
        { "another -o", cli_agree_hash_text(options->output) },
    };
    if (options->launch == NULL)
        return COH_OK;
    CLI_TRY(cli_launch_check_device(options->device, options->launch->rank_count));
    return cli_launch_agree(options->launch, facts, sizeof(facts) / sizeof(facts[0]));
}

/* Reads the profile that will be rewritten; NULL: there is none. */
static coh_status read_known(const cli_options *options, coh_profile **out_known)
{
    *out_known = NULL;
    struct stat facts;
    if (!options->output || stat(options->output, &facts) != 0 || facts.st_size == 0)
        return COH_OK;
    coh_status status = coh_profile_read(options->output, out_known);
    return status == COH_OK ? COH_OK : cli_blame(status, "-o");
}

/* Measures as one of the launcher's ranks, on its own GPU. */
static coh_status join_ranks(const cli_options *options, char device[CLI_DEVICE_BYTES],
                             coh_measure_options *measuring)
{
    const cli_launch *launch = options->launch;
    measuring->world = launch->world;
    measuring->device = cli_launch_device(launch->world, options->device,
                                          launch->rank % launch->local_count, device);
    return cli_launch_find_pairs(launch, measuring->device);
}

static coh_status measure(const cli_options *options, const subjects *s, const coh_profile *known,
                          coh_profile **out_profile)
{
    watcher w = { .is_terminal = isatty(STDERR_FILENO) && is_first(options),
                  .begin = cli_seconds_now() };
    coh_measure_options measuring;
    cli_disks disks;
    char device[CLI_DEVICE_BYTES];
    coh_measure_options_init(&measuring);
    measuring.graphs = (const coh_graph *const *)s->graphs;
    measuring.graph_count = s->count;
    measuring.f32_gradients = s->f32_gradients;
    measuring.accumulates = s->accumulates;
    measuring.thread_count = cli_budget_thread_count(options);
    cli_disks_list(options, &disks);
    measuring.disks = disks.of;
    measuring.disk_count = disks.count;
    measuring.disk_bytes = disks.count > 0 ? options->disk_bytes : UINT64_MAX;
    measuring.quick = options->quick != 0;
    measuring.again = options->again != 0;
    measuring.device = options->device;
    if (cli_given(options, CLI_FLAG_MEASURE_MEMORY))
        measuring.device_bytes = options->device_memory_bytes;
    measuring.kernel_table = options->tune;
    measuring.progress = show;
    measuring.log = hear;
    measuring.context = &w;
    if (options->launch)
        CLI_TRY(join_ranks(options, device, &measuring));
    coh_status status = coh_profile_measure(&measuring, known, out_profile);
    clear(&w);
    return status;
}

static coh_status tell(const cli_options *options, const coh_profile *profile, double seconds)
{
    coh_profile_summary summary = { .struct_bytes = sizeof(summary) };
    CLI_TRY(coh_profile_summarize(profile, &summary));
    if (options->json)
        print_json(&summary, seconds);
    else
        print_summary(&summary, seconds);
    return COH_OK;
}

/* Refuses flags that apply only to a GPU if no GPU is measured. */
static coh_status check_flags(const cli_options *options)
{
    CLI_TRY(cli_output_check(options));
    if (options->tune && !cli_budget_on_gpu(options))
        return cli_fail(
            COH_ERR_ARGUMENT,
            "--tune %s is of a GPU's products: add --device cuda:0, or write a table of "
            "the processor's with cohobate tune",
            options->tune);
    if (cli_given(options, CLI_FLAG_MEASURE_MEMORY) && !cli_budget_on_gpu(options))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--device-memory of a profile is what measuring may take of a GPU: add "
                        "--device cuda:0, or leave it out");
    return COH_OK;
}

coh_status cli_profile(const cli_options *options)
{
    subjects s = { 0 };
    coh_profile *known = NULL, *profile = NULL;
    coh_status status = COH_OK;
    const double begin = cli_seconds_now();
    CLI_TRY_GOTO(status, check_flags(options), done);
    CLI_TRY_GOTO(status, read_known(options, &known), done);
    CLI_TRY_GOTO(status, add_models(options, &s), done);
    if (options->kernels)
        CLI_TRY_GOTO(status, cli_budget_use_kernels(options->kernels, 0, COH_DTYPE_F32), done);
    if (!options->output)
        cli_note("note: figures are printed and kept nowhere; -o FILE keeps them for --profile");
    CLI_TRY_GOTO(status, meet(options, &s), done);
    status = measure(options, &s, known, &profile);
    if (status != COH_OK && known && status == COH_ERR_ARGUMENT)
        status = cli_blame(status, "-o %s", options->output);
    if (status == COH_OK && options->output && is_first(options))
        status = coh_profile_write(profile, options->output);
    if (status == COH_OK && is_first(options))
        status = tell(options, profile, cli_seconds_now() - begin);
done:
    coh_profile_destroy(profile);
    coh_profile_destroy(known);
    drop(&s);
    return status;
}
