/* Plans a step otherwise, and says what that would bring. The one idea: each hint is a quick plan
 * of the job's own options with one or two changed. Next: hints.h; screen.c prints hints. */
#include "cli/hints.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/settle.h"

/* The largest shares of a step's time that are worth a change of states, or of what gradients are
 * clipped by or how they are summed; the least gain in tokens/s that is worth another step. */
#define WORTH_SAYING        0.99
#define WORTH_SAYING_BITS   0.95
#define WORTH_SAYING_TOKENS 1.25
/* A step that computes for less of its time than this waits for bytes that more tokens share. */
#define COMPUTES_MOSTLY 0.75

/* HINT_CALLS_MOST: the longest step for which plans are compared. Its measure is calls of operators
 * (operators times micro-batches), since the plan's own instructions may be many only for its small
 * chunks. TOKENS_FEW: with fewer at once a line is printed, if there could be more, since products
 * of few rows are slow. TOKENS_TIMES: the larger step that is tried. */
enum { HINT_CALLS_MOST = 4000, TOKENS_FEW = 2048, TOKENS_TIMES = 4 };

static uint64_t calls_of(const cli_job *job)
{
    return (uint64_t)coh_plan_operator_count(job->plan) *
           (uint64_t)job->plan_options.microbatch_count;
}

/* A plan with other options. */
typedef struct other {
    double share;        /* of the job's step; INFINITY: there is no plan */
    double days;         /* that the drive lasts; 0: unknown */
    double disk_written; /* bytes of a step */
} other;

static other plan_otherwise(const cli_job *job, const coh_graph *graph, coh_plan_options options)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    const cli_speed speed = cli_speed_get(job);
    other found = { .share = INFINITY };
    options.search = COH_SEARCH_QUICK;
    if (options.spare_disk_bytes > 0) /* this plan may do without it */
        options.disk_bytes = 0;
    if (coh_plan_estimate(graph, &options, &summary) != COH_OK || job->summary.step_ns == 0)
        return found;
    found.share = (double)summary.step_ns / (double)job->summary.step_ns;
    found.disk_written = summary.disk_bytes_written;
    if (found.disk_written > 0)
        found.days = cli_drive_days(&speed) * job->summary.disk_bytes_written / found.disk_written *
                     found.share;
    return found;
}

/* ---- one hint ---- */

/* Begins a hint. The list has room for one of each label. */
static cli_hint *begin_hint(cli_hints *hints, const char *label)
{
    cli_hint *hint = &hints->at[hints->count++];
    *hint = (cli_hint){ .label = label };
    return hint;
}

static void add_text(cli_hint *hint, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_text(cli_hint *hint, const char *format, ...)
{
    const size_t used = strlen(hint->text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(hint->text + used, sizeof(hint->text) - used, format, arguments);
    va_end(arguments);
}

/* Adds "a quick plan takes 6.1 s, 0.53 of this one" of a plan whose step has as many tokens. */
static void add_step(const cli_job *job, const other *found, cli_hint *hint)
{
    const double step_s = found->share * (double)job->summary.step_ns * 1e-9;
    add_text(hint, "a quick plan takes %s, %.2f of this one", cli_time(step_s).at, found->share);
}

/* Adds what becomes of the drive if this plan uses it. */
static void add_drive(const cli_job *job, const other *found, cli_hint *hint)
{
    if (job->summary.disk_bytes_written > 0 && found->disk_written <= 0)
        add_text(hint, "; drive unused");
    else if (found->days > 0)
        add_text(hint, "; drive %s", cli_time(found->days * 86400).at);
}

/* ---- states and clipping ---- */

const char *cli_lean_flag(const cli_job *job)
{
    const int is_bf16 = coh_model_size_get(&job->model).dtype == COH_DTYPE_BF16;
    return is_bf16 ? "--state lean" : "--optimizer adamw8";
}

int cli_lean_is_free(const cli_job *job)
{
    const coh_plan_options *options = &job->plan_options;
    return options->optimizer_choice_count == 0 &&
           (options->optimizer[0] == '\0' || strcmp(options->optimizer, "adamw") == 0);
}

void cli_lean_take(coh_plan_options *options)
{
    snprintf(options->optimizer, sizeof(options->optimizer), "adamw8");
}

int cli_clip_previous_is_free(const cli_job *job)
{
    return job->plan_options.deferred_update && !cli_given(job->options, CLI_FLAG_CLIP_MODE);
}

void cli_clip_previous_take(coh_plan_options *options)
{
    options->deferred_update = options->speculates = 0;
}

/* Do states that may be lean move over a link? */
static int may_be_lean(const cli_job *job)
{
    return job->summary.state_link_bytes > 0 && cli_lean_is_free(job);
}

/* Do gradients move over a link since their updates wait for the norm? */
static int may_clip_by_previous(const cli_job *job)
{
    return job->summary.grad_link_bytes > 0 && cli_clip_previous_is_free(job);
}

/* Plans with 8-bit moments, with clipping by the norm of the step before, and with both. */
typedef struct states {
    other lean, previous, both;
} states;

static states plan_states(const cli_job *job)
{
    const other none = { .share = INFINITY };
    states found = { none, none, none };
    coh_plan_options options = job->plan_options;
    const int lean = may_be_lean(job), previous = may_clip_by_previous(job);
    if (lean) {
        cli_lean_take(&options);
        found.lean = plan_otherwise(job, job->graph, options);
    }
    if (lean && previous) {
        cli_clip_previous_take(&options);
        found.both = plan_otherwise(job, job->graph, options);
    }
    options = job->plan_options;
    if (previous) {
        cli_clip_previous_take(&options);
        found.previous = plan_otherwise(job, job->graph, options);
    }
    return found;
}

/* A hint for states, and one for clipping: alone, or with those states if that is better than each
 * of them. */
static void add_states(const cli_job *job, cli_hints *hints)
{
    const states found = plan_states(job);
    if (found.lean.share < WORTH_SAYING) {
        cli_hint *hint = begin_hint(hints, "states");
        add_text(hint, "8-bit moments (%s): ", cli_lean_flag(job));
        add_step(job, &found.lean, hint);
        add_drive(job, &found.lean, hint);
    }
    if (found.both.share <
        WORTH_SAYING_BITS * fmin(fmin(found.lean.share, found.previous.share), 1)) {
        cli_hint *hint = begin_hint(hints, "both");
        add_text(hint, "%s --clip-mode previous: ", cli_lean_flag(job));
        add_step(job, &found.both, hint);
        add_drive(job, &found.both, hint);
    } else if (found.previous.share < WORTH_SAYING_BITS) {
        cli_hint *hint = begin_hint(hints, "clip");
        add_text(hint, "by the last step's norm (--clip-mode previous) ");
        add_step(job, &found.previous, hint);
    }
}

/* Frozen weights in 4 bits, if weights move over a link: the plan of another graph. */
static void add_frozen(const cli_job *job, cli_hints *hints)
{
    coh_graph *graph = NULL;
    if (job->summary.work_link_bytes == 0 || !cli_may_pack_frozen(job))
        return;
    coh_model model = job->model;
    model.frozen_nf4 = 1;
    if (coh_model_train_graph(&model, job->recipe.micro_batch, job->recipe.sequence, &graph) !=
        COH_OK)
        return;
    const other found = plan_otherwise(job, graph, job->plan_options);
    coh_graph_destroy(graph);
    if (found.share >= WORTH_SAYING_BITS)
        return;
    cli_hint *hint = begin_hint(hints, "frozen");
    add_text(hint, "weights in 4 bits (--frozen-dtype nf4): ");
    add_step(job, &found, hint);
    add_drive(job, &found, hint);
}

/* ---- other steps ---- */

/* Does a step stream each micro-batch through all layers only since the other order rounds
 * otherwise (tied models), and nobody asked for that? The planner chooses no other rounding by
 * itself; a run that goes on keeps its own. */
static int may_go_by_layers(const cli_job *job)
{
    const coh_plan_summary *summary = &job->summary;
    const coh_plan_options *options = &job->plan_options;
    return !summary->order_keeps_bits && summary->sweep_order != COH_SWEEP_LAYER &&
           summary->work_link_bytes + summary->grad_link_bytes > 0 &&
           options->microbatch_count > coh_fold_shape_replicas(&options->replicas) &&
           !cli_given(job->options, CLI_FLAG_SWEEP_ORDER) && !job->options->resume;
}

static void add_layers(const cli_job *job, cli_hints *hints)
{
    coh_plan_options options = job->plan_options;
    if (!may_go_by_layers(job))
        return;
    options.sweep_order = COH_SWEEP_LAYER;
    const other found = plan_otherwise(job, job->graph, options);
    if (found.share < WORTH_SAYING_BITS) {
        cli_hint *hint = begin_hint(hints, "order");
        add_text(hint, "by layers (--sweep-order layer, other rounding) ");
        add_step(job, &found, hint);
    }
}

/* Adds a hint if a step of `times` as many tokens has more of them a second: `flag` with
 * `value`. */
static void add_gain(const cli_job *job, const other *found, double times, const char *flag,
                     int64_t value, cli_hints *hints)
{
    const double gain = times / found->share;
    if (gain < WORTH_SAYING_TOKENS)
        return;
    cli_hint *hint = begin_hint(hints, "tokens");
    const double tokens_per_s = gain * cli_speed_get(job).tokens_per_s;
    add_text(hint,
             "a quick plan of more of them (--%s %" PRId64 ") trains %s tokens/s, %.1f times as "
             "many",
             flag, value, cli_tokens_per_s(tokens_per_s).at, gain);
}

/* A longer sequence, if the default was taken: the plan of another graph. Returns 0 if the model
 * takes none. */
static int add_sequence(const cli_job *job, cli_hints *hints)
{
    const cli_recipe *recipe = &job->recipe;
    const int64_t positions = coh_model_size_get(&job->model).positions;
    coh_graph *graph = NULL;
    int64_t times = 1;
    while (times < 2 * TOKENS_TIMES && 2 * times * recipe->sequence <= positions)
        times *= 2;
    if (cli_given(job->options, CLI_FLAG_SEQUENCE) || times == 1)
        return 0;
    const int64_t sequence = times * recipe->sequence;
    if (coh_model_train_graph(&job->model, recipe->micro_batch, sequence, &graph) != COH_OK)
        return 0;
    const other found = plan_otherwise(job, graph, job->plan_options);
    coh_graph_destroy(graph);
    add_gain(job, &found, (double)times, "sequence", sequence, hints);
    return isfinite(found.share);
}

/* A larger step shares what a step moves among more tokens. */
static void add_tokens(const cli_job *job, cli_hints *hints)
{
    const coh_plan_summary *summary = &job->summary;
    coh_plan_options options = job->plan_options;
    const double compute = (double)summary->busy_ns[COH_LANE_COMPUTE];
    if (summary->state_link_bytes + summary->work_link_bytes + summary->grad_link_bytes == 0 ||
        compute > COMPUTES_MOSTLY * (double)summary->step_ns || job->options->resume ||
        add_sequence(job, hints) || calls_of(job) * TOKENS_TIMES > HINT_CALLS_MOST)
        return;
    options.microbatch_count *= TOKENS_TIMES;
    options.sweep_order = cli_job_order(job); /* one micro-batch has none */
    const other found = plan_otherwise(job, job->graph, options);
    add_gain(job, &found, TOKENS_TIMES, "batch", TOKENS_TIMES * job->recipe.batch, hints);
}

/* Tells how the default micro-batch came to be small. Other sizes round otherwise, so the planner
 * chooses none by itself. */
static void add_micro_batch(const cli_job *job, cli_hints *hints)
{
    const cli_recipe *recipe = &job->recipe;
    const int64_t share = recipe->batch / coh_fold_shape_replicas(&recipe->replicas);
    if (cli_given(job->options, CLI_FLAG_MICRO_BATCH) || job->options->resume ||
        recipe->micro_batch >= share || recipe->micro_batch * recipe->sequence >= TOKENS_FEW)
        return;
    cli_hint *hint = begin_hint(hints, "batch");
    add_text(hint,
             "%" PRId64 " x %s at once are few (%" PRId64 " is the largest divisor of %" PRId64
             " up to 8); --micro-batch auto looks for a faster divisor (other rounding)",
             recipe->micro_batch, cli_count((uint64_t)recipe->sequence, "token").at,
             recipe->micro_batch, share);
}

/* A step that is too long to be compared. */
static void add_untried(const cli_job *job, cli_hints *hints)
{
    const char *const flags[] = { may_be_lean(job) ? cli_lean_flag(job) : NULL,
                                  may_clip_by_previous(job) ? "--clip-mode previous" : NULL,
                                  job->summary.work_link_bytes > 0 && cli_may_pack_frozen(job)
                                      ? "--frozen-dtype nf4"
                                      : NULL,
                                  may_go_by_layers(job) ? "--sweep-order layer" : NULL };
    cli_hint *hint = NULL;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (flags[i] == NULL)
            continue;
        if (hint == NULL)
            hint = begin_hint(hints, "try");
        add_text(hint, "%s%s", hint->text[0] != '\0' ? " " : "", flags[i]);
    }
    if (hint != NULL)
        add_text(hint, ", perhaps faster (not compared: %" PRIu64 " calls of operators in a step)",
                 calls_of(job));
}

void cli_hints_find(const cli_job *job, cli_hints *out_hints)
{
    cli_hints *hints = out_hints;
    hints->count = 0;
    if (job->budget.plan_file != NULL)
        return;
    if (calls_of(job) > HINT_CALLS_MOST) {
        add_untried(job, hints);
    } else {
        cli_progress_begin("comparing with other states of", job->model.name, CLI_PROGRESS_FIRST_S);
        add_states(job, hints);
        add_frozen(job, hints);
        const int count = hints->count;
        add_layers(job, hints);
        if (hints->count == count) /* one of them is enough */
            add_tokens(job, hints);
        cli_progress_end();
    }
    add_micro_batch(job, hints);
}
