/* Prints a plan on one screen. The one idea: one function per part adds lines to a fixed buffer;
 * groups.c reduces operators to a few lines. Next: plan_json.c prints the same as JSON. */
#include "cli/screen.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget.h"
#include "cli/disks.h"
#include "cli/drive.h"
#include "cli/dtype.h"
#include "cli/launch.h"
#include "cli/links.h"
#include "cli/progress.h"
#include "cli/settle.h"
#include "report/format.h"

enum { INDENT = 8, SECONDS_PER_DAY = 86400 };

cli_text cli_tokens_per_s(double rate)
{
    cli_text text;
    snprintf(text.at, sizeof(text.at), rate < 1000 ? "%.4g" : "%.0f", rate);
    return text;
}

int cli_screen_columns(void)
{
    const int columns = cli_prose_columns(STDOUT_FILENO, CLI_SCREEN_COLUMNS);
    return columns < CLI_SCREEN_COLUMNS ? columns : CLI_SCREEN_COLUMNS;
}

void cli_screen_wrap(const char *text, int columns, cli_line *line)
{
    cli_prose_wrap(text, (size_t)columns, 1, line);
}

/* ---- numbers ---- */

static double times(double a, double b)
{
    return b > 0 ? a / b : 0;
}

cli_speed cli_speed_get(const cli_job *job)
{
    const coh_plan_summary *summary = &job->summary;
    const uint64_t left = job->recipe.steps - job->first_step;
    const double tokens = (double)job->recipe.batch * (double)job->recipe.sequence;
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    cli_speed s = { .step_s = (double)summary->step_ns * 1e-9,
                    .step_fast_s = (double)summary->step_p10_ns * 1e-9,
                    .step_slow_s = (double)summary->step_p90_ns * 1e-9,
                    .steps_left = left,
                    .run_s = cli_job_predicted_seconds(job, left) };
    s.tokens_per_s = times(tokens, s.step_s);
    s.tokens_fast_per_s = times(tokens, s.step_fast_s);
    s.tokens_slow_per_s = times(tokens, s.step_slow_s);
    s.gap = times((double)summary->step_ns, (double)summary->bound_ns) - 1;
    s.run_fast_s = s.run_s * times(s.step_fast_s, s.step_s);
    s.run_slow_s = s.run_s * times(s.step_slow_s, s.step_s);
    s.written_per_day = times(summary->disk_bytes_written * SECONDS_PER_DAY, s.step_s);
    if (coh_profile_summarize(coh_plan_profile(job->plan), &facts) == COH_OK)
        s.endurance_bytes = (double)facts.endurance_bytes;
    s.asks_for_limit = cli_job_wears(job);
    return s;
}

double cli_drive_days(const cli_speed *speed)
{
    return times(speed->endurance_bytes, speed->written_per_day);
}

/* ---- shared by both forms ---- */

/* Adds a line if not everything is trained: how much is trained, and what. */
static void add_trained(const coh_model *model, uint64_t parameter_count, cli_line *line)
{
    const coh_adapters *adapters = &model->adapters;
    const uint64_t trained = coh_model_trained_count(model);
    if (trained == parameter_count)
        return;
    cli_line_add(line, "trains: %" PRIu64 " of %" PRIu64 " parameters (%.3g %%)", trained,
                 parameter_count, 100.0 * (double)trained / (double)parameter_count);
    if (adapters->rank > 0)
        cli_line_add(line, ": adapters of rank %" PRId32 ", alpha %g on %" PRId64 " of %s",
                     adapters->rank, (double)adapters->alpha, coh_model_adapter_count(model),
                     adapters->targets);
    if (adapters->also[0])
        cli_line_add(line, "; %s in full", adapters->also);
    if (adapters->freeze[0])
        cli_line_add(line, "%s %s frozen", adapters->rank > 0 ? ";" : ":", adapters->freeze);
    cli_line_add(line, "\n");
}

const char *cli_rank_pattern(const coh_plan_summary *summary)
{
    return summary->rank_pattern[0] != '\0' ? summary->rank_pattern : "replicate";
}

/* Adds a line if numbers travel between ranks in fewer bytes than they have. */
static void add_wires(const cli_job *job, cli_line *line)
{
    const coh_wires *wires = &job->plan_options.wires;
    if (wires->weights != COH_WIRE_STORED || wires->gradients != COH_WIRE_STORED)
        cli_line_add(line,
                     "        between them weights travel as %s, gradients as %s: results depend "
                     "on the number of ranks\n",
                     coh_wire_name(wires->weights), coh_wire_name(wires->gradients));
}

/* Adds a line if NCCL adds the gradients of ranks. */
static void add_reduce(const cli_job *job, cli_line *line)
{
    if (job->plan_options.reduce == COH_REDUCE_LIBRARY)
        cli_line_add(line, "        NCCL adds gradients in its own order (--reduce library): "
                           "results depend on the number of ranks, the plan and NCCL\n");
}

/* Adds a line if the ranks divide something: over how many of them. */
static void add_parts(const cli_job *job, cli_line *line)
{
    const coh_rank_parts *parts = &job->summary.rank_parts;
    const struct {
        int32_t ranks;
        const char *what;
    } streams[] = { { parts->state, "states" },
                    { parts->grad, "gradients" },
                    { parts->work, "weights" } };
    int last = 0;
    while (last < 2 && streams[last + 1].ranks > 1)
        last++;
    const int is_even = streams[last].ranks == parts->state;
    if (parts->state == 1)
        return;
    cli_line_add(line, "        each keeps %s", is_even ? "its part of " : "");
    for (int i = 0; i <= last; i++) {
        const char *before = i == 0 ? "" : i == last ? " and " : ", ";
        if (is_even)
            cli_line_add(line, "%s%s", before, streams[i].what);
        else
            cli_line_add(line, "%s1/%" PRId32 " of the %s", before, streams[i].ranks,
                         streams[i].what);
    }
    cli_line_add(line, " (--pattern %s", cli_rank_pattern(&job->summary));
    for (int32_t i = 0; i < job->plan_options.pin_count; i++)
        if (job->plan_options.pins[i].place == COH_PIN_PATTERN)
            cli_line_add(line, ", %s=%s", job->plan_options.pins[i].target,
                         job->plan_options.pins[i].pattern);
    cli_line_add(line, ")\n");
}

/* Returns the ranks that compute on the cores of this process. */
static int32_t sharing_ranks(const cli_job *job)
{
    const int32_t ranks = cli_job_rank_count(job), of_node = job->plan_options.node_ranks;
    if (job->options->launch)
        return job->options->launch->sharing_count;
    return of_node > 0 && of_node < ranks ? of_node : ranks;
}

/* A profile was measured by as many ranks at once, or is of another machine. */
int32_t cli_crowded_ranks(const cli_job *job)
{
    const int32_t ranks = sharing_ranks(job);
    const int is_crowded =
        (int64_t)ranks * job->plan_options.thread_count > coh_machine_core_count();
    return ranks > 1 && is_crowded && !job->on_gpu && !job->options->profile ? ranks : 0;
}

/* Says that the ranks of a machine have fewer cores than threads: each is priced alone. */
static void add_crowd(const cli_job *job, cli_line *line)
{
    const int32_t cores = coh_machine_core_count();
    if (cli_crowded_ranks(job) == 0)
        return;
    cli_line_add(line,
                 "        they share %d core%s, which is not in the prices: a step of each is"
                 " priced alone\n",
                 (int)cores, cores > 1 ? "s" : "");
}

static void add_model(const cli_job *job, cli_line *line)
{
    const coh_model_size size = coh_model_size_get(&job->model);
    cli_line_add(
        line, "model:  %s, %.2f M parameters (%s, %s, %" PRId64 " wide, vocabulary %" PRId64 ")\n",
        job->model.name, (double)job->summary.parameter_count * 1e-6,
        cli_count((uint64_t)size.layers, "layer").at, cli_count((uint64_t)size.heads, "head").at,
        size.channels, size.vocabulary);
    add_trained(&job->model, job->summary.parameter_count, line);
    cli_describe_dropout(&job->recipe, line);
    if (job->on_gpu)
        cli_line_add(line, "dtype:  %s (%s)\n", cli_dtype_name(size.dtype),
                     size.dtype == COH_DTYPE_BF16
                         ? "--dtype f32 for full precision"
                         : "full precision; --dtype bf16 takes less memory");
    else
        cli_dtype_describe(job->options, size.dtype, job->model.checkpoint[0] && !job->freezes_anew,
                           line);
    cli_describe_frozen_dtype(&job->model, line);
    if (size.dtype == COH_DTYPE_BF16)
        cli_dtype_describe_gradients(job->options, job->plan_options.f32_gradients,
                                     job->recipe.batch / job->recipe.micro_batch,
                                     coh_model_trained_count(&job->model), line);
    if (coh_fold_shape_replicas(&job->plan_options.replicas) > 1)
        cli_line_add(line, "        gradients of replicas made apart, added as %s\n",
                     cli_shape_text(&job->plan_options.replicas).at);
    if (cli_job_rank_count(job) > 1) {
        cli_line_add(line,
                     "ranks:  %d%s, their gradients added as %s; the figures are of one rank\n",
                     (int)cli_job_rank_count(job),
                     job->options->launch                 ? " in processes of a launcher"
                     : job->options->command == CLI_TRAIN ? " in this process"
                                                          : "",
                     cli_shape_text(&job->ranks).at);
        add_crowd(job, line);
    }
    add_parts(job, line);
    add_wires(job, line);
    add_reduce(job, line);
    if (job->model.atomics)
        cli_line_add(line,
                     "        attention backward by atomics where cuDNN takes it: the same seed "
                     "ends with other bits each time\n");
}

/* A replay may use the memory of another profile or flag than the plan's. */
static void add_made_for(const cli_job *job, cli_line *line)
{
    if (!job->made || job->plan_options.device_memory_bytes == job->made_device_bytes)
        return;
    cli_line_add(line, " %s(planned for %s)",
                 cli_given(job->options, CLI_FLAG_DEVICE_MEMORY) ? "" : "of the profile ",
                 cli_size(job->made_device_bytes).at);
}

static void add_budget(const cli_job *job, cli_line *line)
{
    const cli_options *options = job->options;
    cli_line_add(line, "budget: device %s", cli_size(job->plan_options.device_memory_bytes).at);
    add_made_for(job, line);
    if (job->on_gpu)
        cli_line_add(line, ", host %s", cli_size(job->plan_options.host_memory_bytes).at);
    if (job->on_gpu && options->disk_count == 0 && job->plan_options.disk_bytes)
        cli_line_add(line, ", disk %s", cli_size(job->plan_options.disk_bytes).at);
    if (job->made && !job->on_gpu && job->plan_options.disk_bytes)
        cli_line_add(line, ", a disk");
    if (cli_job_emulated_bytes(job))
        cli_line_add(line, ", EMULATED host tier %s (a test-bed: its speed means nothing)",
                     cli_size(cli_job_emulated_bytes(job)).at);
    cli_disks_add(options, ", disk ", " up to ", line);
}

static void add_fit(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (summary->peak_bytes[tier])
            cli_line_add(line, "%s%s %s", tier ? ", " : "", cli_tier_name(tier, job->on_gpu),
                         cli_size(summary->peak_bytes[tier]).at);
    cli_line_add(line, " at most, to the byte%s\n",
                 job->refused_here[0] ? "; train would be refused here, see the note" : "");
}

/* "; links and updates share 191 GB/s of host memory, 3.7 of its machine's 8 shares" */
static void add_host_rate(const coh_profile_summary *facts, cli_line *line)
{
    cli_line_add(line, "; links and updates share %.3g GB/s of host memory",
                 facts->shared_host_bytes_per_s * 1e-9);
    if (facts->host_gpus > 1 && facts->host_shares > 0)
        cli_line_add(line, ", %.2g of its machine's %" PRId32 " shares", facts->host_shares,
                     facts->host_gpus);
}

void cli_screen_prices(const cli_job *job, cli_line *line)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const int is_what_if = cli_budget_is_what_if(job->options, coh_plan_profile(job->plan));
    if (coh_profile_summarize(coh_plan_profile(job->plan), &facts) != COH_OK)
        return;
    cli_line_add(line, "prices: %sprofile %s (%s%s%s, hash %016" PRIx64 ")",
                 is_what_if ? "WHAT-IF, " : "", facts.name, facts.source,
                 facts.date[0] ? " of " : "", facts.date, facts.hash);
    if (job->calibration.runs > 0)
        cli_line_add(line, ", calibrated by %" PRIu32 " run%s (--calibration none leaves them out)",
                     job->calibration.runs, job->calibration.runs == 1 ? "" : "s");
    else if (!job->on_gpu && !is_what_if && facts.fingerprint == 0)
        cli_line_add(line, ": a guess, not calibrated");
    if (job->on_gpu && facts.fingerprint == 0)
        cli_line_add(line, ": peaks, no run is as fast");
    if (is_what_if && facts.fingerprint != 0 && facts.operator_count == 0)
        cli_line_add(line, ": by rates alone, without the measured times of operators");
    if (facts.shared_host_bytes_per_s > 0 && job->summary.peak_bytes[COH_TIER_HOST] > 0)
        add_host_rate(&facts, line);
    cli_line_add(line, "\n");
}

static void add_speed(const cli_job *job, const cli_speed *s, cli_line *line)
{
    const cli_recipe *recipe = &job->recipe;
    cli_line_add(line, "speed:  %s tokens/s predicted", cli_tokens_per_s(s->tokens_per_s).at);
    if (s->step_fast_s < s->step_slow_s)
        cli_line_add(line, " (%s to %s by the spread of figures)",
                     cli_tokens_per_s(s->tokens_slow_per_s).at,
                     cli_tokens_per_s(s->tokens_fast_per_s).at);
    cli_line_add(line, ", %s a step of %" PRId64 " x %s, %" PRId64 " at once",
                 cli_time(s->step_s).at, recipe->batch,
                 cli_count((uint64_t)recipe->sequence, "token").at, recipe->micro_batch);
}

/* "100 steps in 11 s" */
static void add_run(const cli_speed *s, cli_line *line)
{
    cli_line_add(line, "%" PRIu64 " step%s in %s", s->steps_left, s->steps_left == 1 ? "" : "s",
                 cli_time(s->run_s).at);
}

coh_lane cli_limiting_exchanges(const coh_plan_summary *summary)
{
    static const coh_lane links[] = { COH_LANE_COMM0, COH_LANE_COMM1 };
    uint64_t most_ns = summary->bounds_ns[summary->binding];
    coh_lane most = COH_LANE_COMPUTE;
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (summary->busy_ns[links[i]] > most_ns) {
            most = links[i];
            most_ns = summary->busy_ns[most];
        }
    return most;
}

const char *cli_limit_name(const coh_plan_summary *summary)
{
    const coh_lane exchanges = cli_limiting_exchanges(summary);
    return exchanges != COH_LANE_COMPUTE ? coh_lane_name(exchanges)
                                         : coh_plan_bound_name(summary->binding);
}

static const char *bound_name(coh_plan_bound bound)
{
    return report_limit(coh_plan_bound_name(bound));
}

/* Returns what a limit's name leaves open, in parentheses; "": nothing. */
static const char *limit_words(coh_plan_bound bound)
{
    switch (bound) {
    case COH_PLAN_BOUND_PHASE:
        return " (part of the step waits for the transfer of more bytes than memory holds at once)";
    case COH_PLAN_BOUND_UPDATE_PHASE:
        return " (the first forward waits for the states of all updates)";
    case COH_PLAN_BOUND_HOST_WINDOW:
        return " (the updates of the host fit only between gradients and the next forward)";
    case COH_PLAN_BOUND_TURNAROUND:
        return " (a gradient leaves, the host updates, the weight returns)";
    case COH_PLAN_BOUND_COMPUTE:
    case COH_PLAN_BOUND_H2D:
    case COH_PLAN_BOUND_D2H:
    case COH_PLAN_BOUND_READ:
    case COH_PLAN_BOUND_WRITE:
    case COH_PLAN_BOUND_HOST:
    case COH_PLAN_BOUND_LINK:
    case COH_PLAN_BOUND_DRIVE:
    case COH_PLAN_BOUND_CORES:
    case COH_PLAN_BOUND_DRAM:
    case COH_PLAN_BOUND_COUNT:
        break;
    }
    return "";
}

static void add_limits(const cli_job *job, const cli_speed *s, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    const coh_lane exchanges = cli_limiting_exchanges(summary);
    const double bound_s = (double)summary->bounds_ns[summary->binding] * 1e-9;
    if (exchanges != COH_LANE_COMPUTE) {
        const double busy_s = (double)summary->busy_ns[exchanges] * 1e-9;
        cli_line_add(line,
                     "limit:  %s: the exchanges of these patterns take %s (the step: %.1f %% more);"
                     " then %s, %s\n",
                     coh_lane_name(exchanges), cli_time(busy_s).at,
                     100 * (times(s->step_s, busy_s) - 1), bound_name(summary->binding),
                     cli_time(bound_s).at);
        return;
    }
    cli_line_add(
        line, "limit:  %s%s: no schedule of these decisions is below %s (this one: %.1f %% above)",
        bound_name(summary->binding), limit_words(summary->binding), cli_time(bound_s).at,
        100 * (times(s->step_s, bound_s) - 1));
    if (summary->bounds_ns[summary->runner_up] > 0 && summary->runner_up != summary->binding)
        cli_line_add(line, "; then %s, %s", bound_name(summary->runner_up),
                     cli_time((double)summary->bounds_ns[summary->runner_up] * 1e-9).at);
    /* The bound of all decisions may see what those of the chosen ones leave out: how much of each
     * kind of data memory holds between the phases of a step. */
    if (summary->bound_ns != summary->bounds_ns[summary->binding])
        cli_line_add(line, "; %sno decisions go below %s (%.1f %% above)",
                     summary->bound_ns > summary->bounds_ns[summary->binding] ? "by a closer bound "
                                                                              : "",
                     cli_time((double)summary->bound_ns * 1e-9).at, 100 * s->gap);
    cli_line_add(line, "\n");
}

void cli_screen_drive(const cli_options *options, const coh_plan_summary *summary,
                      const cli_speed *s, cli_line *line)
{
    if (s->written_per_day <= 0)
        return;
    cli_line_add(line, "drive:  %s written a step, %s a day",
                 report_written(summary->disk_bytes_written).at,
                 report_written(s->written_per_day).at);
    if (s->endurance_bytes > 0)
        cli_line_add(line, "; it lasts %s of that",
                     cli_time(cli_drive_days(s) * SECONDS_PER_DAY).at);
    if (cli_given(options, CLI_FLAG_DISK_WRITE_LIMIT))
        cli_line_add(line, "; at most %s allowed",
                     report_written((double)options->disk_write_limit).at);
    else if (s->asks_for_limit)
        cli_line_add(line, "; train asks for a --disk-write-limit to bound it");
    cli_line_add(line, "\n");
}

/* Does data move between tiers or ranks? */
static int moves(const coh_plan_summary *summary)
{
    int some = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        some |= summary->link_bytes[lane] > 0;
    return some;
}

/* The size of chunks is left out if no chunk moves. Where some do, the usual search may be better
 * than the quick one. */
static void add_program(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *s = &job->summary;
    cli_line_add(line, "plan:   %u instructions in the step, ", s->instruction_count);
    if (moves(s) && job->options->search == COH_SEARCH_QUICK && !job->options->plan_file)
        cli_line_add(line, "found by the quick search, ");
    if (moves(s))
        cli_line_add(line, "chunks of at most %s, ", cli_size(s->chunk_bytes).at);
    cli_line_add(
        line, "%d whole block%s recomputed; numbers %016" PRIx64 ", program %016" PRIx64 "\n",
        s->recomputes, s->recomputes == 1 ? "" : "s", s->numeric_fingerprint, s->program_hash);
}

/* ---- tables ---- */

/* Adds what a step uses of each arena, if another program uses more. */
static void add_step_peaks(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *s = &job->summary;
    int any = 0;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        any |= s->step_peak_bytes[tier] < s->peak_bytes[tier];
    if (!any)
        return;
    cli_line_add(line, "%-13s", "in a step");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (s->step_peak_bytes[tier] < s->peak_bytes[tier])
            cli_line_add(line, " %s up to %s;", cli_tier_name(tier, job->on_gpu),
                         cli_size(s->step_peak_bytes[tier]).at);
    cli_line_add(line, " the rest is for first values, evaluations or saves\n");
}

static coh_status add_memory(const cli_job *job, cli_line *line)
{
    uint64_t bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES];
    CLI_TRY(coh_plan_memory(job->plan, bytes));
    cli_line_add(line, "\n%-13s %12s %12s %12s %12s %12s %12s\n", "memory", "parameters",
                 "gradients", "states", "activations", "workspaces", "peak");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        if (!job->summary.peak_bytes[tier])
            continue;
        cli_line_add(line, "%-13s", cli_tier_name(tier, job->on_gpu));
        for (int purpose = 0; purpose < COH_PLAN_PURPOSES; purpose++)
            cli_line_add(line, " %12s",
                         bytes[tier][purpose] ? cli_size(bytes[tier][purpose]).at : "-");
        cli_line_add(line, " %12s\n", cli_size(job->summary.peak_bytes[tier]).at);
    }
    add_step_peaks(job, line);
    return COH_OK;
}

/* The last component of a name. */
static const char *own_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* A size in at most 10 columns: "1002.0 MiB". */
static cli_text short_size(uint64_t bytes)
{
    cli_text text = cli_size(bytes);
    char *space = strchr(text.at, ' ');
    if (strlen(text.at) > 10 && space)
        memmove(space - 1, space, strlen(space) + 1);
    return text;
}

/* Widths of the table of operators. */
typedef struct columns {
    int name, pattern, stored, states;
} columns;

/* As usual, and the least. With the column of sizes, 10 wide, a line has 100 columns. */
static const columns usual = { 29, 9, 16, 16 }, narrow = { 20, 9, 6, 6 };
enum { WAY_WIDTH = 15, MANY_WAYS = 20 }; /* of activations, as usual */

/* Every way at once is said in fewer words. */
static const char *ways_of(const cli_group *g)
{
    return strlen(g->activations) > MANY_WAYS ? "in all ways" : g->activations;
}

static void widen(int *width, const char *text)
{
    if ((int)strlen(text) > *width)
        *width = (int)strlen(text);
}

/* Narrows a column to at least `least`; returns how many columns are still missing. */
static int narrow_by(int *width, int least, int missing)
{
    const int part = missing < *width - least ? missing : *width - least;
    if (part <= 0)
        return missing;
    *width -= part;
    return missing - part;
}

/* Where patterns or activations are long, places give way, and then names. */
static columns fit_columns(const cli_group *groups, int32_t count)
{
    columns c = usual, needed = narrow;
    int way = WAY_WIDTH;
    for (int32_t i = 0; i < count; i++) {
        widen(&c.pattern, groups[i].pattern);
        widen(&way, ways_of(&groups[i]));
        widen(&needed.stored, groups[i].parameters);
        widen(&needed.states, groups[i].states);
    }
    int missing = c.pattern - usual.pattern + way - WAY_WIDTH;
    missing = narrow_by(&c.states, needed.states, missing);
    missing = narrow_by(&c.stored, needed.stored, missing);
    (void)narrow_by(&c.name, narrow.name, missing);
    return c;
}

/* Adds a name in at most `width` columns: without its path, or with ".." for its end. */
static void add_name(cli_line *line, const char *name, int width)
{
    const char *shown = (int)strlen(name) > width ? own_name(name) : name;
    if ((int)strlen(shown) > width)
        cli_line_add(line, "%.*s..", width - 2, shown);
    else
        cli_line_add(line, "%s", shown);
}

/* Adds "blocks 0-6 (133 operators)", without the count where there is no room. */
static void add_blocks(const cli_group *g, int width, cli_line *line)
{
    const int is_one = g->last_block == g->first_block;
    char blocks[32], count[40];
    if (g->last_block < 0)
        snprintf(blocks, sizeof(blocks), "from block %d on", (int)g->first_block);
    else if (is_one)
        snprintf(blocks, sizeof(blocks), "block %d", (int)g->first_block);
    else
        snprintf(blocks, sizeof(blocks), "blocks %d-%d", (int)g->first_block, (int)g->last_block);
    snprintf(count, sizeof(count), " (%s)", cli_count((uint64_t)g->operator_count, "operator").at);
    const int has_room = (int)(strlen(blocks) + strlen(count)) <= width;
    cli_line_add(line, "%s%s", blocks, g->last_block >= 0 && has_room ? count : "");
}

static void add_group(const cli_group *g, const columns *c, cli_line *line)
{
    const size_t begin = line->used;
    if (g->first_block >= 0) {
        add_blocks(g, c->name, line);
    } else if (g->count > 1) {
        const char *last = own_name(g->last);
        const int half = (c->name - 4) / 2;
        add_name(line, own_name(g->first), half);
        cli_line_add(line, " .. ");
        add_name(line, last, c->name - (int)(line->used - begin));
    } else {
        add_name(line, g->first, c->name);
    }
    cli_line_add(line, "%*s %-*s %10s %-*s %-*s %s\n", c->name - (int)(line->used - begin), "",
                 c->pattern, g->pattern,
                 g->parameter_bytes ? short_size(g->parameter_bytes).at : "-", c->stored,
                 g->parameters, c->states, g->states, ways_of(g));
}

static coh_status add_groups(const cli_job *job, int32_t most, cli_line *line)
{
    cli_group groups[CLI_GROUPS];
    int32_t count;
    CLI_TRY(cli_groups(job->plan, most, groups, &count));
    const columns c = fit_columns(groups, count);
    cli_line_add(line, "\n%-*s %-*s %10s %-*s %-*s %s\n", c.name, "operators", c.pattern, "pattern",
                 "parameters", c.stored, "stored", c.states, "states", "activations");
    for (int32_t i = 0; i < count; i++)
        add_group(&groups[i], &c, line);
    return COH_OK;
}

static void add_rehearsal(const cli_job *job, cli_line *line)
{
    const coh_rehearsal *r = &job->rehearsal;
    cli_line_add(line,
                 "\nrehearsed without memory: %" PRId64 " steps, %d other programs, %" PRIu64
                 " instructions\n        bytes over links and peaks of tiers are those above; a "
                 "step takes %s (predicted %s)\n",
                 job->options->rehearse, (int)r->program_count - 1, r->executed_count,
                 cli_time((double)r->step_ns * 1e-9).at,
                 cli_time((double)r->predicted_step_ns * 1e-9).at);
}

/* ---- public functions ---- */

static void add_room(const cli_job *job, uint64_t in_memory_bytes, cli_line *line)
{
    if (job->summary.smallest_device_bytes == 0) { /* there was no search */
        cli_line_add(line, "        all in memory, nothing recomputed: %s\n",
                     cli_size(in_memory_bytes).at);
        return;
    }
    cli_line_add(line,
                 "        all in memory, nothing recomputed: %s; the smallest device budget is "
                 "%s%s (%" PRIu64 " bytes, %s)\n",
                 cli_size(in_memory_bytes).at, job->summary.smallest_is_proven ? "at least " : "",
                 cli_size(job->summary.smallest_device_bytes).at,
                 job->summary.smallest_device_bytes,
                 job->summary.smallest_is_proven ? "proven" : "smallest found");
}

/* Adds the effect of contention, and the duration of the run. */
static void add_quotes(const cli_job *job, const cli_speed *s, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    if (summary->step_alone_ns != summary->step_contended_ns)
        cli_line_add(line, "        %s if nothing that runs at once met, %s if all did\n",
                     cli_time((double)summary->step_alone_ns * 1e-9).at,
                     cli_time((double)summary->step_contended_ns * 1e-9).at);
    cli_line_add(line, "run:    ");
    add_run(s, line);
    if (s->step_fast_s < s->step_slow_s)
        cli_line_add(line, " (%s to %s by the spread of figures)", cli_time(s->run_fast_s).at,
                     cli_time(s->run_slow_s).at);
    cli_line_add(line, "; a save takes %s\n", cli_time((double)summary->save_ns * 1e-9).at);
}

void cli_screen_short(const cli_job *job, cli_line *line)
{
    const cli_speed speed = cli_speed_get(job);
    add_model(job, line);
    add_budget(job, line);
    cli_line_add(line, "; takes ");
    add_fit(job, line);
    cli_screen_prices(job, line);
    add_speed(job, &speed, line);
    cli_line_add(line, "; ");
    add_run(&speed, line);
    cli_line_add(line, "\n");
    add_limits(job, &speed, line);
    add_program(job, line);
}

/* Counts the lines of a text once long ones are broken. On a narrower terminal the same tables are
 * shown, and more lines. */
static int count_lines(const char *text)
{
    cli_line wrapped;
    int count = 0;
    cli_line_clear(&wrapped);
    cli_screen_wrap(text, CLI_SCREEN_COLUMNS, &wrapped);
    for (const char *at = wrapped.text; (at = strchr(at, '\n')) != NULL; at++)
        count++;
    return count;
}

enum { HEAD_LINES = 2, ADDED_LINES = 3 }; /* of the table of groups; of hints, usually */

/* Returns how many groups the other lines leave room for, next to the head of their table and the
 * hints. */
static int32_t groups_that_fit(int lines, int hints)
{
    const int added = hints > ADDED_LINES ? hints : ADDED_LINES;
    const int left = CLI_SCREEN_LINES - HEAD_LINES - lines - added;
    return left < CLI_GROUPS_LEAST ? CLI_GROUPS_LEAST : left > CLI_GROUPS ? CLI_GROUPS : left;
}

/* Adds hints as long as their lines fit. */
static void add_hints(const cli_hints *hints, int room, cli_line *line)
{
    for (int i = 0; hints && i < hints->count; i++) {
        char label[16];
        cli_line one;
        cli_line_clear(&one);
        snprintf(label, sizeof(label), "%s:", hints->at[i].label);
        cli_line_add(&one, "%-*s%s\n", INDENT, label, hints->at[i].text);
        room -= count_lines(one.text);
        if (room < 0)
            return;
        cli_line_add(line, "%s", one.text);
    }
}

/* Adds all lines of the summary but the hints. */
static void add_summary(const cli_job *job, uint64_t in_memory_bytes,
                        const cli_recompute *recompute, cli_line *line)
{
    const cli_speed speed = cli_speed_get(job);
    add_model(job, line);
    add_budget(job, line);
    cli_line_add(line, "\nfits:   ");
    add_fit(job, line);
    add_room(job, in_memory_bytes, line);
    cli_screen_prices(job, line);
    add_speed(job, &speed, line);
    cli_line_add(line, "\n");
    add_quotes(job, &speed, line);
    add_limits(job, &speed, line);
    cli_recompute_add(recompute, line);
    cli_screen_drive(job->options, &job->summary, &speed, line);
}

coh_status cli_screen(const cli_job *job, uint64_t in_memory_bytes, const cli_hints *hints,
                      cli_line *line)
{
    const int width = cli_screen_columns();
    cli_recompute recompute;
    cli_line summary, tables, after, all;
    CLI_TRY(cli_recompute_find(job, in_memory_bytes, &recompute));
    cli_line_clear(&summary);
    cli_line_clear(&tables);
    cli_line_clear(&after);
    cli_line_clear(&all);
    add_summary(job, in_memory_bytes, &recompute, &summary);
    CLI_TRY(add_memory(job, &tables));
    cli_links_add(job, &tables);
    cli_line_add(&after, "\n");
    add_program(job, &after);
    add_hints(hints, CLI_SCREEN_LINES, &all);
    const int others = count_lines(summary.text) + count_lines(after.text);
    const int added = count_lines(all.text) + cli_drive_start_lines(job);
    CLI_TRY(add_groups(job, groups_that_fit(others + count_lines(tables.text), added), &tables));
    const int room = CLI_SCREEN_LINES - others - count_lines(tables.text);
    if (room >= added) /* hints come first */
        cli_drive_add_start(job, &summary);
    add_hints(hints, room, &summary);
    if (job->options->rehearse > 0)
        add_rehearsal(job, &after);
    cli_screen_wrap(summary.text, width, line);
    cli_screen_wrap(tables.text, CLI_SCREEN_COLUMNS, line);
    cli_screen_wrap(after.text, width, line);
    return COH_OK;
}
