/* Finds what else a refused run lacks. The one idea: a remedy is followed here before it is
 * printed, and the next refusal has the next remedy. Next: lacks.h, cohobate/refusal.h. */
#include "cli/lacks.h"

#include <stdio.h>
#include <string.h>

#define GB UINT64_C(1000000000)
enum { MORE_MOST = 4 };

/* A single budget needs no second plan, which may take seconds. JSON has the refusal as data. */
static int has_several_limits(const cli_job *job)
{
    const cli_options *o = job->options;
    const int is_table = o->max || o->sweep || o->what_if[0];
    const int limits_disk = job->plan_options.disk_bytes > 0 &&
                            job->plan_options.disk_bytes != UINT64_MAX && o->disk_count > 0;
    return !o->json && !is_table && !o->launch &&
           (limits_disk || cli_given(o, CLI_FLAG_EMULATE_HOST) ||
            cli_given(o, CLI_FLAG_HOST_MEMORY) || cli_given(o, CLI_FLAG_DISK_WRITE_LIMIT));
}

/* Changes the options as a refusal proposes. Returns 0 if it proposes no number. */
static int follow(const coh_refusal *refusal, coh_plan_options *options)
{
    uint64_t *const budgets[COH_TIER_COUNT] = {
        [COH_TIER_DEVICE] = &options->device_memory_bytes,
        [COH_TIER_HOST] = &options->host_memory_bytes,
        [COH_TIER_DISK] = &options->disk_bytes,
    };
    for (int32_t i = 0; i < refusal->change_count; i++) {
        const coh_change *change = &refusal->changes[i];
        if (change->bytes == 0)
            continue;
        if (change->kind == COH_CHANGE_RAISE && change->tier >= 0)
            *budgets[change->tier] = change->bytes;
        else if (change->kind == COH_CHANGE_RAISE_WRITES)
            options->disk_write_bytes_per_day =
                (change->bytes / GB + 1) * GB; /* as it is printed */
        else
            continue;
        return 1;
    }
    return 0;
}

/* Finds out whether the batch has a plan. A refusal of a fixed micro-batch need not say which other
 * one would do, which may take long. */
static coh_status check_plan(const coh_batch *batch, const coh_plan_options *options)
{
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    coh_plan_options fixed = *options;
    if (batch->may_change) {
        const coh_status status = coh_batch_plan_create(batch, options, &made);
        coh_batch_plan_destroy(&made);
        return status;
    }
    fixed.microbatch_count = (int32_t)(batch->batch / batch->microbatch);
    coh_status status = batch->make_graph(batch->context, batch->microbatch, &made.graph);
    if (status == COH_OK)
        status = coh_plan_create(made.graph, &fixed, &made.plan);
    coh_batch_plan_destroy(&made);
    return status;
}

/* Follows remedies until a plan fits, and returns their number; *options then has its budgets.
 * 0: no plan was found. */
static int find_enough(const coh_refusal *first, const coh_batch *batch, coh_plan_options *options)
{
    coh_refusal refusal = *first;
    options->search = COH_SEARCH_QUICK; /* any plan will do */
    for (int n = 0; n < MORE_MOST && follow(&refusal, options); n++) {
        if (check_plan(batch, options) == COH_OK)
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
                     cli_size_enough(enough->disk_bytes).at);
    if (enough->disk_write_bytes_per_day != given->disk_write_bytes_per_day)
        cli_line_add(line, " %s %s/day", coh_term_text(COH_TERM_WRITE_LIMIT),
                     cli_size_enough(enough->disk_write_bytes_per_day).at);
}

coh_status cli_lacks_name(const cli_job *job, const coh_batch *batch, coh_status status)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    coh_plan_options options = job->plan_options;
    char sentence[1024];
    cli_line flags;
    if (status != COH_ERR_FULL || !has_several_limits(job) || !coh_last_refusal(&refusal))
        return status;
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    cli_line_clear(&flags);
    if (find_enough(&refusal, batch, &options) < 2) /* the sentence names the only one */
        return cli_fail(status, "%s", sentence);
    add_changes(&job->plan_options, &options, job->options->disk_count, &flags);
    return cli_fail(status, "%s; enough is%s", sentence, flags.text);
}
