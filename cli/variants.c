#include "cli/variants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/budget.h"

/* ---- one ---- */

/* Does the list name the entry? */
static int names(const char *entries, const char *entry)
{
    const size_t length = strlen(entry);
    for (const char *at = entries; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, entry, length) == 0 && at[length] == '=')
            return 1;
    return 0;
}

/* What is given by a flag is what an entry replaces or multiplies. */
static void take_flag(const char *entries, const char *entry, uint64_t bytes, int is_given,
                      cli_line *spec)
{
    if (is_given && names(entries, entry))
        cli_line_add(spec, ",%s=%" PRIu64 "B", entry, bytes);
}

static coh_status check_meaning(const cli_options *options, const char *entries)
{
    coh_profile *profile = NULL;
    coh_profile_summary facts = { 0 };
    if (options->profile)
        CLI_TRY(coh_profile_read(options->profile, &profile));
    coh_status status = profile ? coh_profile_summarize(profile, &facts) : COH_OK;
    coh_profile_destroy(profile);
    CLI_TRY(status);
    if (facts.is_gpu)
        return COH_OK;
    if (names(entries, "host-memory"))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s: the host device has no host memory beside it: its RAM budget is "
                        "device-memory=",
                        entries);
    if (names(entries, "disk"))
        return cli_fail(COH_ERR_ARGUMENT, "%s: the room on a disk here is that of --disk DIR:SIZE",
                        entries);
    return COH_OK;
}

/* The profile's text with the entries behind it, and the flags that they replace gone. */
static coh_status change_options(const cli_options *options, const char *entries,
                                 cli_options *changed, cli_line *spec)
{
    *changed = *options;
    if (!entries[0])
        return COH_OK;
    CLI_TRY(check_meaning(options, entries));
    cli_line_clear(spec);
    if (options->profile)
        cli_line_add(spec, "%s", options->profile);
    else
        cli_line_add(spec, "built-in-%d", (int)cli_budget_thread_count(options));
    const int has_budget = cli_given(options, CLI_FLAG_DEVICE_MEMORY);
    take_flag(entries, "device-memory",
              has_budget ? options->device_memory_bytes : coh_machine_free_bytes(),
              has_budget || !options->profile, spec);
    take_flag(entries, "host-memory", options->host_memory_bytes,
              cli_given(options, CLI_FLAG_HOST_MEMORY), spec);
    cli_line_add(spec, ",%s", entries);
    if (names(entries, "device-memory"))
        changed->given[CLI_FLAG_DEVICE_MEMORY] = 0;
    if (names(entries, "host-memory"))
        changed->given[CLI_FLAG_HOST_MEMORY] = 0;
    changed->profile = spec->text;
    return COH_OK;
}

static void take_plan(const cli_job *job, cli_variant *out)
{
    snprintf(out->limit, sizeof(out->limit), "%s", coh_plan_bound_name(job->summary.binding));
    out->fits = 1;
    out->micro_batch = job->recipe.micro_batch;
    out->summary = job->summary;
    out->speed = cli_speed_get(job);
}

coh_status cli_variant_plan(const cli_options *options, const char *entries,
                            cli_variant *out_variant)
{
    cli_options changed;
    cli_line spec;
    cli_job job;
    *out_variant = (cli_variant){ 0 };
    snprintf(out_variant->label, sizeof(out_variant->label), "%.199s", entries);
    CLI_TRY(change_options(options, entries, &changed, &spec));
    coh_status status = cli_job_open(&changed, &job);
    if (status == COH_ERR_FULL) {
        snprintf(out_variant->why, sizeof(out_variant->why), "%s", coh_last_error());
        return COH_OK;
    }
    CLI_TRY(status);
    take_plan(&job, out_variant);
    cli_job_close(&job);
    return COH_OK;
}

void cli_variant_add_json(const cli_variant *v, cli_line *line)
{
    cli_line_add(line, "\"what\": ");
    cli_line_add_json_string(line, v->label);
    if (!v->fits) {
        cli_line_add(line, ", \"fits\": false, \"why\": ");
        cli_line_add_json_string(line, v->why);
        return;
    }
    cli_line_add(line,
                 ", \"fits\": true, \"micro_batch\": %" PRId64 ", \"step_seconds\": %.9f"
                 ", \"bound_seconds\": %.9f, \"gap\": %.9g, \"tokens_per_second\": %.9g"
                 ", \"tokens_per_second_p10\": %.9g, \"tokens_per_second_p90\": %.9g"
                 ", \"limit\": \"%s\", \"run_seconds\": %.9f"
                 ", \"disk_bytes_written_per_day\": %.9g, \"peak_bytes\": {",
                 v->micro_batch, v->speed.step_s, (double)v->summary.bound_ns * 1e-9, v->speed.gap,
                 v->speed.tokens_per_s, v->speed.tokens_slow_per_s, v->speed.tokens_fast_per_s,
                 v->limit, v->speed.run_s, v->speed.written_per_day);
    for (int tier = 0; tier < COH_PLAN_TIERS; tier++)
        cli_line_add(line, "%s\"%s\": %" PRIu64, tier ? ", " : "", cli_tier_names[tier],
                     v->summary.peak_bytes[tier]);
    cli_line_add(line, "}");
}

/* ---- many ---- */

static void print_row(const cli_variant *v, const cli_variant *base)
{
    char rate[32], change[32] = "-", step[32], peak[COH_PLAN_TIERS][32];
    const char *label = v->label[0] ? v->label : "as it is";
    if (!v->fits) {
        printf("%-27.27s %9s\n", label, "-");
        return;
    }
    if (v != base && base->fits)
        snprintf(change, sizeof(change), "%+.1f %%",
                 100 * (v->speed.tokens_per_s / base->speed.tokens_per_s - 1));
    snprintf(rate, sizeof(rate), v->speed.tokens_per_s < 1000 ? "%.4g" : "%.0f",
             v->speed.tokens_per_s);
    for (int tier = 0; tier < COH_PLAN_TIERS; tier++)
        if (v->summary.peak_bytes[tier])
            coh_size_format(v->summary.peak_bytes[tier], peak[tier], sizeof(peak[tier]));
        else
            snprintf(peak[tier], sizeof(peak[tier]), "-");
    printf("%-27.27s %9s %9s %9.9s %-14.14s %s, %s, %s\n", label, rate, change,
           cli_duration(v->speed.step_s, step), v->limit, peak[0], peak[1], peak[2]);
}

static void print_table(const cli_variant *rows, int count)
{
    printf("%-27s %9s %9s %9s %-14s %s\n", "what if", "tokens/s", "change", "a step", "limit",
           "device, host, disk");
    for (int i = 0; i < count; i++)
        print_row(&rows[i], &rows[0]);
    for (int i = 0; i < count; i++)
        if (!rows[i].fits)
            printf("%s does not fit: %s\n", rows[i].label[0] ? rows[i].label : "as it is",
                   rows[i].why);
    for (int i = 1; i < count; i++)
        if (rows[i].fits && rows[0].fits && rows[i].micro_batch != rows[0].micro_batch)
            printf("%s: micro-batch %" PRId64 ", not %" PRId64 ": other rounding\n", rows[i].label,
                   rows[i].micro_batch, rows[0].micro_batch);
}

static void print_json(const cli_options *options, const cli_variant *rows, int count)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "{\"model\": ");
    cli_line_add_json_string(&line, options->operand ? options->operand : "");
    printf("%s, \"rows\": [", line.text);
    for (int i = 0; i < count; i++) {
        cli_line_clear(&line);
        cli_variant_add_json(&rows[i], &line);
        printf("%s{%s}", i ? ", " : "", line.text);
    }
    printf("]}\n");
}

/* What earlier runs found is of one machine as it is: no row has it, so that rows compare. */
static coh_status plan_rows(const cli_options *as_given, const cli_sweep *sweep, cli_variant *rows,
                            int *out_count)
{
    cli_options plain = *as_given;
    const cli_options *options = &plain;
    int count = 0;
    plain.calibration = "none";
    CLI_TRY(cli_variant_plan(options, "", &rows[count++]));
    for (int i = 0; options->what_if[i]; i++)
        CLI_TRY(cli_variant_plan(options, options->what_if[i], &rows[count++]));
    for (int i = 0; i < sweep->count; i++)
        CLI_TRY(cli_variant_plan(options, sweep->entries[i], &rows[count++]));
    *out_count = count;
    return COH_OK;
}

coh_status cli_plan_variants(const cli_options *options)
{
    cli_sweep *sweep = calloc(1, sizeof(*sweep));
    cli_variant *rows = calloc(1 + CLI_WHAT_IFS + CLI_SWEEP_POINTS, sizeof(*rows));
    int count = 0;
    coh_status status = sweep && rows ? COH_OK : COH_ERR_MEMORY;
    if (status != COH_OK)
        (void)cli_fail(status, "no memory for a table of plans");
    if (status == COH_OK && options->sweep)
        status = cli_sweep_read(options->sweep, sweep);
    if (status == COH_OK)
        status = plan_rows(options, sweep, rows, &count);
    if (status == COH_OK && options->json)
        print_json(options, rows, count);
    else if (status == COH_OK)
        print_table(rows, count);
    free(rows);
    free(sweep);
    return status;
}
