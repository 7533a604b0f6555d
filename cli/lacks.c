/* Finds what else a refused run lacks, and what keeps to its limit of disk writes. The one idea: a
 * remedy is followed here before it is printed, and the next refusal has the next remedy. Next:
 * lacks.h, cohobate/refusal.h. */
#include "cli/lacks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/hints.h"
#include "cli/settle.h"

#define DAY_NS 86400e9

/* MORE_MOST: remedies that are followed. INSTRUCTIONS_MOST: the longest program for which the last
 * plan is made by the job's own search, which may take longer than a quick one. NEAR_LIMIT: a plan
 * that writes this many times the limit may have a neighbour that keeps to it. WAYS_INSTRUCTIONS:
 * instructions of quick plans, about a quarter of a minute, after which nothing further is tried.
 * BOUND_PART: the part by which a bound of a long program's memory is raised. */
enum {
    MORE_MOST = 6,
    INSTRUCTIONS_MOST = 10000,
    NEAR_LIMIT = 4,
    WAYS_INSTRUCTIONS = 50000,
    FAILED_INSTRUCTIONS = 10000,
    BOUND_PART = 64
};

/* Is the refusal printed by itself, rather than as a row of a table, and by one process? */
static int is_single(const cli_job *job)
{
    const cli_options *o = job->options;
    return !o->max && !o->sweep && !o->what_if[0] && !o->launch;
}

/* A single budget needs no second plan, which may take seconds, except that of frozen weights in 4
 * bits. JSON has the refusal as data. */
static int has_several_limits(const cli_job *job)
{
    const cli_options *o = job->options;
    const int limits_disk = job->plan_options.disk_bytes > 0 &&
                            job->plan_options.disk_bytes != UINT64_MAX && o->disk_count > 0;
    return !o->json &&
           (limits_disk || cli_given(o, CLI_FLAG_EMULATE_HOST) ||
            job->plan_options.host_memory_bytes > 0 || cli_given(o, CLI_FLAG_DISK_WRITE_LIMIT));
}

/* The bytes that a size has once it is typed as it is printed here: a larger budget may have
 * another plan. */
static uint64_t as_typed(cli_text text, uint64_t bytes)
{
    uint64_t typed = bytes;
    return coh_size_parse(text.at, &typed) == COH_OK ? typed : bytes;
}

/* Rounds a disk budget up as it is printed. Of several folders, equal parts of it are whole units,
 * which alone count. */
static uint64_t enough_disk(uint64_t bytes, int disk_count)
{
    const uint64_t units = COH_DISK_UNIT_BYTES * (uint64_t)disk_count;
    if (disk_count < 2)
        return as_typed(cli_size_enough(bytes), bytes);
    return (bytes / units + (bytes % units > 0)) * units;
}

static uint64_t enough_writes(uint64_t bytes)
{
    cli_text typed = cli_daily_enough(bytes);
    typed.at[strcspn(typed.at, "/")] = '\0';
    return as_typed(typed, bytes);
}

/* Changes the options as a refusal proposes. Returns 0 if it proposes no number. */
static int follow(const coh_refusal *refusal, int disk_count, coh_plan_options *options)
{
    for (int32_t i = 0; i < refusal->change_count; i++) {
        const coh_change *change = &refusal->changes[i];
        const uint64_t bytes = change->bytes;
        if (bytes == 0)
            continue;
        if (change->kind == COH_CHANGE_RAISE_WRITES)
            options->disk_write_bytes_per_day = enough_writes(bytes);
        else if (change->kind != COH_CHANGE_RAISE || change->tier < 0)
            continue;
        else if (change->tier == COH_TIER_DISK)
            options->disk_bytes = enough_disk(bytes, disk_count);
        else
            *(change->tier == COH_TIER_DEVICE ? &options->device_memory_bytes
                                              : &options->host_memory_bytes) =
                as_typed(cli_size_enough(bytes), bytes);
        return 1;
    }
    return 0;
}

/* Does the batch choose what changes results? It chooses without a calibration, plans with it, and
 * holds both plans to the limit of disk writes. */
static int chooses_by_batch(const coh_batch *batch, const coh_plan_options *options)
{
    return batch->may_change || options->sweep_order == COH_SWEEP_AUTO;
}

/* Finds out whether the batch has a plan. A refusal of a fixed micro-batch need not say which other
 * one would do, which may take long. */
static coh_status check_plan(const coh_batch *batch, const coh_plan_options *options,
                             coh_plan_summary *out_summary)
{
    coh_graph *graph = NULL;
    coh_plan_options fixed = *options;
    if (chooses_by_batch(batch, options))
        return coh_batch_plan_estimate(batch, options, out_summary);
    fixed.microbatch_count = (int32_t)(batch->batch / batch->microbatch);
    coh_status status = batch->make_graph(batch->context, batch->microbatch, &graph);
    if (status == COH_OK)
        status = coh_plan_estimate(graph, &fixed, out_summary);
    coh_graph_destroy(graph);
    return status;
}

static int is_whole(coh_search search)
{
    return search == COH_SEARCH_USUAL || search == COH_SEARCH_THOROUGH;
}

/* Is there a plan? A probe, or the job's own search if it is shorter, finds out whether one fits: a
 * quick search of a long program that has none tries as much as a usual one. The job's own search
 * has to fit, too, since its faster plan may write more to the drive. */
static coh_status check_budgets(const coh_batch *batch, const coh_plan_options *options,
                                coh_plan_summary *out_summary)
{
    coh_plan_options probe = *options;
    probe.search = COH_SEARCH_PROBE;
    const coh_status status = check_plan(batch, &probe, out_summary);
    if (status != COH_OK || !is_whole(options->search) ||
        out_summary->instruction_count > INSTRUCTIONS_MOST)
        return status;
    return check_plan(batch, options, out_summary);
}

/* Is all that lacks a room on the drive that the library has tried? */
static int names_enough_disk(const coh_refusal *refusal, const coh_plan_options *options)
{
    const coh_change *first = refusal->changes;
    return refusal->change_count > 0 && first->kind == COH_CHANGE_RAISE &&
           first->tier == COH_TIER_DISK && first->bytes > 0 && !first->is_least &&
           options->disk_write_bytes_per_day == 0;
}

/* Follows remedies until a plan fits, and returns their number; *options then has its budgets.
 * 0: no plan was found. */
static int find_enough(const coh_refusal *first, const coh_batch *batch, int disk_count,
                       coh_plan_options *options)
{
    coh_refusal refusal = *first;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    if (names_enough_disk(first, options) && follow(&refusal, disk_count, options))
        return 1;
    for (int n = 0; n < MORE_MOST && follow(&refusal, disk_count, options); n++) {
        if (check_budgets(batch, options, &summary) == COH_OK)
            return n + 1;
        if (!coh_last_refusal(&refusal))
            return 0;
    }
    return 0;
}

/* Adds the budgets that have to change, as flags. */
static void add_changes(const coh_plan_options *given, const coh_plan_options *enough,
                        int disk_count, cli_line *line)
{
    const uint64_t writes = enough->disk_write_bytes_per_day;
    if (enough->device_memory_bytes != given->device_memory_bytes)
        cli_line_add(line, " %s %s", coh_term_text(COH_TERM_DEVICE_MEMORY),
                     cli_size_enough(enough->device_memory_bytes).at);
    if (enough->host_memory_bytes != given->host_memory_bytes)
        cli_line_add(
            line, " %s %s",
            coh_term_text(given->emulate_host ? COH_TERM_EMULATED_HOST : COH_TERM_HOST_MEMORY),
            cli_size_enough(enough->host_memory_bytes).at);
    if (enough->disk_bytes != given->disk_bytes)
        cli_line_add(line, " --disk %s:%s", disk_count > 1 ? "(all together)" : "DIR",
                     (disk_count > 1 ? cli_size_whole(enough->disk_bytes)
                                     : cli_size_enough(enough->disk_bytes))
                         .at);
    if (writes != given->disk_write_bytes_per_day)
        cli_line_add(line, " %s %s", coh_term_text(COH_TERM_WRITE_LIMIT),
                     cli_daily_enough(writes).at);
}

/* ---- other graphs ---- */

/* The job with another model, and the batch whose graphs are that model's. */
typedef struct variant {
    cli_job *job;
    coh_batch batch;
} variant;

static coh_status variant_init(variant *out_variant, const cli_job *job, const coh_batch *batch)
{
    out_variant->job = malloc(sizeof(*out_variant->job));
    if (!out_variant->job)
        return COH_ERR_MEMORY;
    *out_variant->job = *job; /* what batch->make_graph reads */
    out_variant->batch = *batch;
    out_variant->batch.context = out_variant->job;
    return COH_OK;
}

/* Adds frozen weights in 4 bits to a refusal if a plan then fits within the same budgets. */
static void add_frozen_change(const cli_job *job, const coh_batch *batch, coh_refusal *refusal)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_change change = { .kind = COH_CHANGE_FROZEN_NF4, .tier = refusal->tier };
    variant packed;
    if (refusal->change_count == COH_REFUSAL_CHANGES || !cli_may_pack_frozen(job) ||
        variant_init(&packed, job, batch) != COH_OK)
        return;
    packed.job->model.frozen_nf4 = 1;
    if (check_budgets(&packed.batch, &job->plan_options, &summary) == COH_OK) {
        if (change.tier >= 0 && summary.peak_bytes[change.tier] == 0) /* needs no far tier */
            change.tier = COH_TIER_DEVICE;
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            if (change.tier < 0 || change.tier == tier)
                change.bytes += summary.peak_bytes[tier];
        refusal->changes[refusal->change_count++] = change;
    }
    free(packed.job);
}

/* ---- a limit of disk writes ---- */

/* What keeps to the limit, and the instructions of the plans that found it. A failed plan counts as
 * FAILED_INSTRUCTIONS. */
typedef struct ways {
    const cli_job *job;
    const coh_batch *batch;
    uint64_t instruction_count;
    cli_line line;
} ways;

/* Makes a plan of *options, which has no limit of writes a day. Returns the bytes that it writes a
 * day, INFINITY if there is none; *out_ns is its step. */
static double written_per_day(ways *w, const coh_batch *batch, const coh_plan_options *options,
                              double *out_ns)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    if (check_plan(batch, options, &summary) != COH_OK || summary.step_ns == 0) {
        w->instruction_count += FAILED_INSTRUCTIONS;
        return INFINITY;
    }
    w->instruction_count += summary.instruction_count;
    *out_ns = (double)summary.step_ns;
    return summary.disk_bytes_written * DAY_NS / *out_ns;
}

/* Has the batch a plan that keeps to the limit of writes? By at most two quick plans, the second
 * one if the first is near the limit: a refusal of the limit itself looks for the least limit,
 * which takes long. */
static int keeps_limit(ways *w, const coh_batch *batch, const coh_plan_options *options)
{
    const double limit = (double)options->disk_write_bytes_per_day;
    coh_plan_options quick = *options;
    double ns = 0;
    quick.search = COH_SEARCH_QUICK;
    quick.disk_write_bytes_per_day = 0;
    const double day = written_per_day(w, batch, &quick, &ns);
    quick.wear_bytes = (uint64_t)(limit * ns / DAY_NS);
    return day <= limit || (day <= NEAR_LIMIT * limit && quick.wear_bytes > 0 &&
                            written_per_day(w, batch, &quick, &ns) <= limit);
}

static void add_way(ways *w, const char *flags)
{
    cli_line_add(&w->line, "%s%s", w->line.used > 0 ? ", or with " : "", flags);
}

/* Adds 8-bit moments, if the states are AdamW's: alone, or with clipping by the norm of the step
 * before. */
static void add_lean(ways *w)
{
    const cli_job *job = w->job;
    coh_plan_options options = job->plan_options;
    char both[64];
    if (job->options->resume || !cli_lean_is_free(job))
        return;
    cli_lean_take(&options);
    if (keeps_limit(w, w->batch, &options)) {
        add_way(w, cli_lean_flag(job));
        return;
    }
    if (!cli_clip_previous_is_free(job))
        return;
    cli_clip_previous_take(&options);
    snprintf(both, sizeof(both), "%s --clip-mode previous", cli_lean_flag(job));
    if (keeps_limit(w, w->batch, &options))
        add_way(w, both);
}

/* Adds adapters, if all is trained: their states are small. */
static void add_lora(ways *w)
{
    const cli_job *job = w->job;
    static const coh_adapters adapters = { .rank = 16 };
    variant other;
    if (job->options->resume || job->model.adapters.rank > 0 || job->model.adapters.freeze[0] ||
        variant_init(&other, job, w->batch) != COH_OK)
        return;
    if (coh_model_adapters_set(&other.job->model, &adapters) == COH_OK &&
        keeps_limit(w, &other.batch, &job->plan_options))
        add_way(w, "--lora 16 (trains adapters only)");
    free(other.job);
}

/* Adds frozen weights in 4 bits: the memory that they leave keeps other data off the drive. */
static void add_frozen(ways *w)
{
    variant packed;
    if (!cli_may_pack_frozen(w->job) || variant_init(&packed, w->job, w->batch) != COH_OK)
        return;
    packed.job->model.frozen_nf4 = 1;
    if (keeps_limit(w, &packed.batch, &w->job->plan_options))
        add_way(w, coh_term_text(COH_TERM_FROZEN_NF4));
    free(packed.job);
}

/* Raises lower bounds. With a long program a probe of the bound itself takes long, and it mostly
 * fails. */
static void leave_room(coh_refusal *refusal)
{
    for (int32_t i = 0; i < refusal->change_count; i++)
        if (refusal->changes[i].is_least)
            refusal->changes[i].bytes += refusal->changes[i].bytes / BOUND_PART;
}

/* Adds the memory that makes the drive unnecessary. A probe tries few sets of decisions; where a
 * step's data nearly fits in memory, the others take as much. */
static void add_memory(ways *w)
{
    const cli_job *job = w->job;
    const coh_plan_options *given = &job->plan_options;
    coh_plan_options enough = *given;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    cli_line flags;
    enough.disk_bytes = enough.spare_disk_bytes = enough.disk_write_bytes_per_day = 0;
    enough.search = COH_SEARCH_PROBE;
    if (check_plan(w->batch, &enough, &summary) == COH_OK || !coh_last_refusal(&refusal))
        return;
    if (w->instruction_count > INSTRUCTIONS_MOST)
        leave_room(&refusal);
    if (find_enough(&refusal, w->batch, job->options->disk_count, &enough) == 0)
        return;
    enough.disk_bytes = given->disk_bytes;
    enough.spare_disk_bytes = given->spare_disk_bytes;
    enough.disk_write_bytes_per_day = given->disk_write_bytes_per_day;
    enough.search = COH_SEARCH_QUICK;
    /* With the limit, since without it a plan may use the drive all the same. */
    if (check_plan(w->batch, &enough, &summary) != COH_OK)
        return;
    cli_line_clear(&flags);
    add_changes(given, &enough, job->options->disk_count, &flags);
    add_way(w, flags.text + 1);
}

/* Adds what keeps to the limit of writes, each by itself. After long plans no more is tried, and
 * what was not is named as such. */
static void add_ways(const cli_job *job, const coh_batch *batch, cli_line *line)
{
    static void (*const adders[])(ways *) = { add_lean, add_lora, add_frozen, add_memory };
    static const char *const names[] = { "--state lean", "--lora 16", "--frozen-dtype nf4",
                                         "more memory" };
    ways w = { .job = job, .batch = batch };
    cli_line untried;
    cli_line_clear(&w.line);
    cli_line_clear(&untried);
    for (size_t i = 0; i < sizeof(adders) / sizeof(adders[0]); i++)
        if (w.instruction_count < WAYS_INSTRUCTIONS)
            adders[i](&w);
        else if (adders[i] != add_frozen || cli_may_pack_frozen(job))
            cli_line_add(&untried, "%s%s", untried.used > 0 ? " and " : "", names[i]);
    if (w.line.used > 0)
        cli_line_add(line, "; the limit is kept with %s", w.line.text);
    if (untried.used > 0)
        cli_line_add(line, "; not tried, since these plans are long: %s", untried.text);
}

/* Has the refusal a limit of disk writes that is accepted? The library has tried it, for the plan
 * of one micro-batch and one sweep order. */
static int names_enough_writes(const coh_refusal *refusal, const coh_batch *batch,
                               const coh_plan_options *options)
{
    return refusal->reason == COH_REFUSAL_WRITES && refusal->change_count > 0 &&
           refusal->changes[0].bytes > 0 && !chooses_by_batch(batch, options);
}

/* Does the limit of disk writes suffice, without other budgets? */
static int raises_writes_alone(const coh_plan_options *given, const coh_plan_options *enough)
{
    return enough->device_memory_bytes == given->device_memory_bytes &&
           enough->host_memory_bytes == given->host_memory_bytes &&
           enough->disk_bytes == given->disk_bytes;
}

/* Replaces the limit of disk writes in the refusal by one that is accepted; 0: none is known. */
static void name_enough_writes(uint64_t bytes, coh_refusal *refusal)
{
    for (int32_t i = 0; i < refusal->change_count; i++)
        if (refusal->changes[i].kind == COH_CHANGE_RAISE_WRITES)
            refusal->changes[i].bytes = bytes;
}

coh_status cli_lacks_name(const cli_job *job, const coh_batch *batch, coh_status status)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_plan_options options = job->plan_options;
    const int disk_count = job->options->disk_count;
    cli_line kept, flags;
    char sentence[2048];
    if (status != COH_ERR_FULL || !is_single(job) || !coh_last_refusal(&refusal))
        return status;
    const int is_of_writes = refusal.reason == COH_REFUSAL_WRITES;
    if (!is_of_writes)
        add_frozen_change(job, batch, &refusal);
    if (!has_several_limits(job))
        return coh_refuse(&refusal); /* the plans that were tried have left others */
    cli_line_clear(&kept);
    cli_line_clear(&flags);
    if (is_of_writes)
        add_ways(job, batch, &kept);
    if (!names_enough_writes(&refusal, batch, &options)) {
        const int followed = find_enough(&refusal, batch, disk_count, &options);
        const int is_alone = is_of_writes && raises_writes_alone(&job->plan_options, &options);
        if (is_of_writes)
            name_enough_writes(followed > 0 && is_alone ? options.disk_write_bytes_per_day : 0,
                               &refusal);
        if (followed > 1 && !is_alone) /* else the sentence names the only one */
            add_changes(&job->plan_options, &options, disk_count, &flags);
    }
    (void)coh_refusal_sentence(&refusal, sentence, sizeof(sentence));
    return cli_fail(status, "%s%s%s%s", sentence, kept.text, flags.used > 0 ? "; enough is" : "",
                    flags.text);
}
