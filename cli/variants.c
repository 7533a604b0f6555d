/* Plans variants of a run and prints them as a table or JSON. The one idea: a variant is a job with
 * other options, planned completely; later rows also try the decisions of earlier plans. Next:
 * sweep.c parses sweeps, largest.c finds the largest model. */
#include "cli/variants.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/budget.h"
#include "cli/refusal.h"
#include "report/format.h"

/* ---- one variant ---- */

/* Does the list name the entry? */
static int names(const char *entries, const char *entry)
{
    const size_t length = strlen(entry);
    for (const char *at = entries; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, entry, length) == 0 && at[length] == '=')
            return 1;
    return 0;
}

/* Adds a flag's value as an entry before the entries, which replace or multiply it. */
static void take_flag(const char *entries, const char *entry, uint64_t bytes, int is_given,
                      cli_line *spec)
{
    if (is_given && names(entries, entry))
        cli_line_add(spec, ",%s=%" PRIu64 "B", entry, bytes);
}

/* Summarises the profile; all zero if there is none. */
static coh_status find_facts(const cli_options *options, coh_profile_summary *out_facts)
{
    coh_profile *profile = NULL;
    *out_facts = (coh_profile_summary){ .struct_bytes = sizeof(*out_facts) };
    if (!options->profile)
        return COH_OK;
    CLI_TRY(coh_profile_read(options->profile, &profile));
    coh_status status = coh_profile_summarize(profile, out_facts);
    coh_profile_destroy(profile);
    return status;
}

static coh_status check_meaning(const cli_options *options, const char *entries)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(find_facts(options, &facts));
    if (facts.is_gpu)
        return COH_OK;
    if (names(entries, "host-memory"))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s: the host device has no host memory next to it: its RAM budget is "
                        "device-memory=",
                        entries);
    if (names(entries, "disk"))
        return cli_fail(COH_ERR_ARGUMENT, "%s: the room on a disk here is that of --disk DIR:SIZE",
                        entries);
    return COH_OK;
}

/* Sets the memory flags to the sizes of the entries: a given size is not limited by any machine. */
static coh_status take_sizes(const char *entries, cli_options *changed)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(find_facts(changed, &facts));
    if (names(entries, "device-memory")) {
        changed->device_memory_bytes = facts.device_bytes;
        changed->given[CLI_FLAG_DEVICE_MEMORY] = 1;
    }
    if (names(entries, "host-memory")) {
        changed->host_memory_bytes = facts.host_bytes;
        changed->given[CLI_FLAG_HOST_MEMORY] = 1;
    }
    return COH_OK;
}

/* Appends the entries to the profile's text, and changes the flags that they replace. */
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
    take_flag(entries, "device-memory", options->device_memory_bytes,
              cli_given(options, CLI_FLAG_DEVICE_MEMORY), spec);
    take_flag(entries, "host-memory", options->host_memory_bytes, options->host_memory_bytes > 0,
              spec);
    cli_line_add(spec, ",%s", entries);
    changed->profile = spec->text;
    return take_sizes(entries, changed);
}

static void take_prices(const cli_job *job, cli_variant *out)
{
    const coh_profile *profile = coh_plan_profile(job->plan);
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    cli_line prices;
    cli_line_clear(&prices);
    cli_screen_prices(job, &prices);
    snprintf(out->prices, sizeof(out->prices), "%.*s", (int)strcspn(prices.text, "\n"),
             prices.text);
    out->is_what_if = cli_budget_is_what_if(job->options, profile);
    if (coh_profile_summarize(profile, &facts) == COH_OK)
        snprintf(out->profile, sizeof(out->profile), "%s", facts.name);
    out->operator_count = facts.operator_count;
}

/* Records the budget. A GPU's profile includes a drive, used if the host is too small. */
static void take_budget(const cli_job *job, cli_variant *out)
{
    const coh_plan_options *o = &job->plan_options;
    out->budget_bytes[COH_TIER_DEVICE] = o->device_memory_bytes;
    out->budget_bytes[COH_TIER_HOST] = o->host_memory_bytes;
    out->budget_bytes[COH_TIER_DISK] = o->disk_bytes > 0 ? o->disk_bytes : o->spare_disk_bytes;
}

static void take_plan(const cli_job *job, cli_variant *out)
{
    take_budget(job, out);
    take_prices(job, out);
    snprintf(out->limit, sizeof(out->limit), "%s", cli_limit_name(&job->summary));
    out->fits = 1;
    out->micro_batch = job->recipe.micro_batch;
    out->batch = job->recipe.batch;
    out->sequence = job->recipe.sequence;
    out->replica_batch = job->recipe.batch / coh_fold_shape_replicas(&job->recipe.replicas);
    out->summary = job->summary;
    out->speed = cli_speed_get(job);
}

/* A plan that stays open, since later plans try its decisions; the job borrows the fields before
 * it. */
typedef struct planned {
    cli_options options;
    cli_line spec;
    cli_job job;
} planned;

/* `earlier`: plans whose decisions are also tried. If the variant fits, *out is open:
 * cli_job_close. */
static coh_status plan_beside(const cli_options *options, const char *entries,
                              const coh_plan *const *earlier, int32_t earlier_count, planned *out,
                              cli_variant *out_variant)
{
    *out_variant = (cli_variant){ 0 };
    snprintf(out_variant->label, sizeof(out_variant->label), "%.199s", entries);
    CLI_TRY(change_options(options, entries, &out->options, &out->spec));
    coh_status status = cli_job_open_beside(&out->options, earlier, earlier_count, &out->job);
    if (status == COH_ERR_FULL) {
        snprintf(out_variant->why, sizeof(out_variant->why), "%s", coh_last_error());
        out_variant->refusal.struct_bytes = sizeof(out_variant->refusal);
        (void)coh_last_refusal(&out_variant->refusal);
        out->job = (cli_job){ 0 };
        return COH_OK;
    }
    CLI_TRY(status);
    take_plan(&out->job, out_variant);
    return COH_OK;
}

coh_status cli_variant_plan(const cli_options *options, const char *entries,
                            cli_variant *out_variant)
{
    planned *one = calloc(1, sizeof(*one));
    if (!one)
        return cli_fail(COH_ERR_MEMORY, "no memory for a plan");
    coh_status status = plan_beside(options, entries, NULL, 0, one, out_variant);
    if (status == COH_OK)
        cli_job_close(&one->job);
    free(one);
    return status;
}

void cli_variant_add_json(const cli_variant *v, cli_line *line)
{
    cli_line_add_json(line, "{'what': %s, 'fits': %i", v->label, v->fits);
    if (!v->fits) {
        cli_line_add_json(line, "'why': %s", v->why);
        cli_refusal_add_json("refusal", &v->refusal, line);
        cli_line_add_json(line, "}");
        return;
    }
    cli_line_add_json(
        line,
        "'batch': %" PRId64 ", 'micro_batch': %" PRId64 ", 'sequence': %" PRId64
        ", 'step_seconds': %.9f, 'bound_seconds': %.9f"
        ", 'gap': %.9g, 'tokens_per_second': %.9g, 'tokens_per_second_p10': %.9g"
        ", 'tokens_per_second_p90': %.9g, 'limit': %s, 'run_seconds': %.9f"
        ", 'disk_bytes_written': %.9g, 'disk_bytes_written_per_day': %.9g"
        ", 'drive_life_days': %.9g, 'what_if': %i, 'operators': %" PRIu32 ", 'profile': %s",
        v->batch, v->micro_batch, v->sequence, v->speed.step_s, (double)v->summary.bound_ns * 1e-9,
        v->speed.gap, v->speed.tokens_per_s, v->speed.tokens_slow_per_s, v->speed.tokens_fast_per_s,
        v->limit, v->speed.run_s, v->summary.disk_bytes_written, v->speed.written_per_day,
        cli_drive_days(&v->speed) > 0 ? cli_drive_days(&v->speed) : NAN, v->is_what_if,
        v->operator_count, v->profile);
    cli_line_add_json_tiers(line, "peak_bytes", v->summary.peak_bytes);
    cli_line_add_json(line, "}");
}

/* ---- several variants ---- */

enum { ROWS_MOST = 1 + CLI_WHAT_IFS + CLI_SWEEP_POINTS };

/* Widths of a table's columns. A column for the drive is there if some row writes to one; the
 * label and the limit then take only what they need. */
typedef struct columns {
    int label, change, step, limit;
    int has_drive, has_life; /* some row writes to a drive; some drive's life is known */
} columns;

static const columns usual = { .label = 27, .change = 9, .step = 9, .limit = 14 };

enum { STEP_MOST = 12 }; /* "12 h 30 min" */

static const char *label_of(const cli_variant *v)
{
    return v->label[0] ? v->label : "as it is";
}

/* The longest text, from `width` on and up to `most`. */
static int wider(int width, int most, const char *text)
{
    const size_t length = strlen(text);
    return (int)length <= width ? width : (int)length < most ? (int)length : most;
}

static columns fit_columns(const cli_variant *rows, int count)
{
    columns c = { .label = 8, .change = 8, .step = usual.step, .limit = 5 };
    for (int i = 0; i < count; i++) {
        c.label = wider(c.label, usual.label, label_of(&rows[i]));
        if (!rows[i].fits)
            continue;
        c.limit = wider(c.limit, usual.limit, report_limit(rows[i].limit));
        c.step = wider(c.step, STEP_MOST, cli_time(rows[i].speed.step_s).at);
        c.has_drive |= rows[i].speed.written_per_day > 0;
        c.has_life |= cli_drive_days(&rows[i].speed) > 0;
    }
    if (!c.has_drive)
        c = (columns){ usual.label, usual.change, c.step, usual.limit, 0, 0 };
    return c;
}

/* "22.6 GiB": three digits, where the column of the drive takes room. */
static cli_text three_digits(uint64_t bytes)
{
    const cli_text whole = cli_size(bytes);
    cli_text text = whole;
    char *unit = NULL;
    const double number = strtod(whole.at, &unit);
    if (strchr(whole.at, '.'))
        snprintf(text.at, sizeof(text.at), "%.*f%s",
                 number < 10    ? 2
                 : number < 100 ? 1
                                : 0,
                 number, unit);
    return text;
}

/* "5.3 days", "2.1 years"; if no drive's life is known, the bytes written in a step. */
static cli_text drive_of(const cli_variant *v, const columns *c)
{
    const double days = cli_drive_days(&v->speed);
    cli_text text;
    if (v->speed.written_per_day <= 0)
        snprintf(text.at, sizeof(text.at), "-");
    else if (!c->has_life)
        snprintf(text.at, sizeof(text.at), "%.31s",
                 report_written(v->summary.disk_bytes_written).at);
    else if (days < 730)
        snprintf(text.at, sizeof(text.at), days < 100 ? "%.1f days" : "%.0f days", days);
    else
        snprintf(text.at, sizeof(text.at), "%.4g years", days / 365.25);
    return text;
}

static void print_head(const columns *c)
{
    printf("%-*s %9s %*s %*s %-*s ", c->label, "what if", "tokens/s", c->change, "change", c->step,
           "a step", c->limit, "limit");
    if (c->has_drive)
        printf("%10s ", c->has_life ? "drive life" : "written");
    printf("device, host, disk\n");
}

/* A label in the columns there are: ".." stands for its end. */
static void print_label(const cli_variant *v, const columns *c)
{
    const char *label = label_of(v);
    if ((int)strlen(label) > c->label)
        printf("%.*s..", c->label - 2, label);
    else
        printf("%-*s", c->label, label);
}

static void print_row(const cli_variant *v, const cli_variant *base, const columns *c)
{
    char change[32] = "-";
    print_label(v, c);
    if (!v->fits) {
        printf(" %9s\n", "-");
        return;
    }
    if (v != base && base->fits && v->operator_count >= base->operator_count)
        snprintf(change, sizeof(change), "%+.1f %%",
                 100 * (v->speed.tokens_per_s / base->speed.tokens_per_s - 1));
    printf(" %9s %*s %*s %-*.*s ", cli_tokens_per_s(v->speed.tokens_per_s).at, c->change, change,
           c->step, cli_time(v->speed.step_s).at, c->limit, c->limit, report_limit(v->limit));
    if (c->has_drive)
        printf("%10s ", drive_of(v, c).at);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        const uint64_t bytes = v->summary.peak_bytes[tier];
        const cli_text size = c->has_drive ? three_digits(bytes) : cli_size(bytes);
        printf("%s%s", tier ? ", " : "", bytes ? size.at : "-");
    }
    printf("\n");
}

/* The first row that fits: the profile's line for the table is its own, since the others are
 * changes of it. NULL: none fits. */
static const cli_variant *find_fit(const cli_variant *rows, int count)
{
    for (int i = 0; i < count; i++)
        if (rows[i].fits)
            return &rows[i];
    return NULL;
}

/* Prints the work of a step, which is the same in all rows, and what the drive's column is. */
static void print_step(const cli_variant *of, const columns *c)
{
    printf("a step: %" PRId64 " x %s", of->batch, cli_count((uint64_t)of->sequence, "token").at);
    if (c->has_life)
        printf("; drive life: days of training until the drive's endurance is written");
    else if (c->has_drive)
        printf("; written: to the drive in a step");
    printf("\n");
}

const char *cli_variant_search(const cli_options *options)
{
    return options->search == COH_SEARCH_QUICK
               ? "search: quick (--search quick); the usual search often finds faster plans\n"
               : "";
}

/* Prints what holds for all rows: whose prices they are, and how they were searched. */
static void print_footer(const cli_options *options, const cli_variant *first)
{
    cli_line line, wrapped;
    cli_line_clear(&line);
    cli_line_clear(&wrapped);
    cli_line_add(&line,
                 "%s\nWHAT-IF: rows with an entry are of a machine that is not there\n"
                 "calibrations by earlier runs are left out of all rows, so that rows compare\n%s",
                 first->prices, cli_variant_search(options));
    cli_screen_wrap(line.text, cli_screen_columns(), &wrapped);
    printf("%s", wrapped.text);
}

static void print_table(const cli_options *options, const cli_variant *rows, int count)
{
    const cli_variant *first = find_fit(rows, count);
    const columns c = fit_columns(rows, count);
    print_head(&c);
    for (int i = 0; i < count; i++)
        print_row(&rows[i], &rows[0], &c);
    if (first) {
        print_step(first, &c);
        print_footer(options, first);
    }
    for (int i = 1; i < count; i++)
        if (rows[i].fits && rows[i].operator_count < rows[0].operator_count)
            printf("%s: by rates alone, without the measured times of operators (%" PRIu32
                   " in the first row's profile), so not compared with it\n",
                   rows[i].label, rows[0].operator_count);
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
    cli_line_add_json(&line, "{'model': %s, 'rows': [", options->operand ? options->operand : "");
    for (int i = 0; i < count; i++) {
        cli_variant_add_json(&rows[i], &line);
        cli_line_flush(&line);
    }
    printf("]}\n");
}

/* Fixes memory that no flag sets, once for all rows: free memory differs at each query, and a
 * profile with entries would have the amount at its measurement. Rows of a GPU of another machine
 * all use the profile's. */
static coh_status fix_budget(cli_options *options)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    coh_plan_options plan_options;
    coh_profile *profile = NULL;
    const int on_gpu = cli_budget_on_gpu(options);
    CLI_TRY(find_facts(options, &facts));
    if (!on_gpu && (facts.is_gpu || cli_given(options, CLI_FLAG_DEVICE_MEMORY)))
        return COH_OK;
    if (options->profile)
        CLI_TRY(coh_profile_read(options->profile, &profile));
    cli_budget_plan_options(options, profile, COH_PLAN_TRAIN, &plan_options);
    coh_profile_destroy(profile);
    options->device_memory_bytes = plan_options.device_memory_bytes;
    options->given[CLI_FLAG_DEVICE_MEMORY] = 1;
    if (!on_gpu)
        return COH_OK;
    options->host_memory_bytes = plan_options.host_memory_bytes;
    options->given[CLI_FLAG_HOST_MEMORY] = 1;
    return COH_OK;
}

/* All plans stay open until the table is complete, since a row may reuse another row's
 * decisions. */
typedef struct table {
    const cli_options *options;
    planned *plans[ROWS_MOST];
    const char *entries[ROWS_MOST];
    cli_variant *rows;
    int count;
} table;

static coh_status open_planned(planned **out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? COH_OK : cli_fail(COH_ERR_MEMORY, "no memory for a table of plans");
}

static void close_planned(planned *plan)
{
    if (plan)
        cli_job_close(&plan->job);
    free(plan);
}

/* `before`: a row whose decisions are also tried, in addition to those of the first row; or -1. */
static coh_status add_row(table *t, const char *entries, int before)
{
    const coh_plan *earlier[2];
    int32_t count = 0;
    if (t->count > 0 && t->plans[0]->job.plan)
        earlier[count++] = t->plans[0]->job.plan;
    if (before > 0 && t->plans[before]->job.plan)
        earlier[count++] = t->plans[before]->job.plan;
    const int row = t->count;
    t->entries[row] = entries;
    CLI_TRY(open_planned(&t->plans[row]));
    t->count++;
    return plan_beside(t->options, entries, earlier, count, t->plans[row], &t->rows[row]);
}

static int is_faster(const cli_variant *a, const cli_variant *b)
{
    return a->fits && (!b->fits || a->speed.tokens_per_s > b->speed.tokens_per_s);
}

/* Plans a row again, also trying the decisions of all faster rows. */
static coh_status improve_row(table *t, int row)
{
    const coh_plan *earlier[ROWS_MOST];
    int32_t count = 0;
    planned *again = NULL;
    cli_variant found;
    for (int i = 0; i < t->count; i++)
        if (is_faster(&t->rows[i], &t->rows[row]))
            earlier[count++] = t->plans[i]->job.plan;
    if (count == 0)
        return COH_OK;
    CLI_TRY(open_planned(&again));
    const coh_status status =
        plan_beside(t->options, t->entries[row], earlier, count, again, &found);
    if (status == COH_OK && is_faster(&found, &t->rows[row])) {
        planned *slower = t->plans[row];
        t->plans[row] = again;
        t->rows[row] = found;
        again = slower;
    }
    close_planned(again);
    return status;
}

/* Refuses entries that no row can have before the first row, which may take minutes. */
static coh_status check_entries(const table *t)
{
    planned *row = NULL;
    coh_status status = COH_OK;
    CLI_TRY(open_planned(&row));
    for (int i = 0; t->options->what_if[i] && status == COH_OK; i++) {
        const char *entries = t->options->what_if[i];
        status = change_options(t->options, entries, &row->options, &row->spec);
        if (status != COH_OK)
            status = cli_blame(status, "--what-if %s", entries);
    }
    free(row);
    return status;
}

static coh_status add_rows(table *t, const cli_sweep *sweep)
{
    CLI_TRY(check_entries(t));
    CLI_TRY(add_row(t, "", -1));
    for (int i = 0; t->options->what_if[i]; i++) {
        const coh_status status = add_row(t, t->options->what_if[i], -1);
        if (status != COH_OK)
            return cli_blame(status, "--what-if %s", t->options->what_if[i]);
    }
    const int first = t->count;
    for (int i = 0; i < sweep->count; i++)
        CLI_TRY(add_row(t, sweep->entries[i], i > 0 ? t->count - 1 : -1));
    for (int row = first; row < t->count; row++)
        CLI_TRY(improve_row(t, row));
    return COH_OK;
}

/* Plans all rows without calibration, which holds only for one unchanged machine, so that rows
 * compare. */
static coh_status plan_rows(const cli_options *as_given, const cli_sweep *sweep, cli_variant *rows,
                            int *out_count)
{
    cli_options plain = *as_given;
    plain.calibration = "none";
    if (cli_budget_on_gpu(&plain) && !plain.profile)
        CLI_TRY(cli_budget_datasheet(&plain, &plain.profile));
    CLI_TRY(fix_budget(&plain));
    table t = { .options = &plain, .rows = rows };
    coh_status status = add_rows(&t, sweep);
    for (int i = 0; i < t.count; i++)
        close_planned(t.plans[i]);
    *out_count = t.count;
    return status;
}

coh_status cli_plan_variants(const cli_options *options)
{
    cli_sweep *sweep = calloc(1, sizeof(*sweep));
    cli_variant *rows = calloc(ROWS_MOST, sizeof(*rows));
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
        print_table(options, rows, count);
    free(rows);
    free(sweep);
    return status;
}
