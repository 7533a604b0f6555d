/* Draws the report of a plan, and plans its what-ifs. The one idea: a plan is drawn as a run
 * without steps, of the same run.json and trace. Next: record.c, variants.c. */
#include "cli/plan_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/record.h"
#include "cli/variants.h"
#include "cohobate/machine.h"

/* Seconds for the what-ifs of a plan's report; its user waits for a search anyway. */
#define PLAN_SECONDS 8.0

/* ---- what if ---- */

/* A change of the plan as it is. */
typedef struct change {
    cli_options options;
    const char *entries; /* of the profile */
    int is_link;
    char text[128];
} change;

/* The changes of one report. The first one is none: the plan as it is. */
typedef struct what_ifs {
    change changes[REPORT_WHAT_IFS];
    int count;
    int64_t search; /* of the run */
    cli_variant base, found;
    uint64_t most_device_bytes; /* that a change may give */
    double begin_s, longest_s, most_s;
    report_analysis *out;
} what_ifs;

/* Plans a change, unless time is short. Returns 0 if there is no plan. */
static int plan_one(what_ifs *w, const change *of)
{
    const double before = cli_seconds_now();
    if (before - w->begin_s + w->longest_s > w->most_s)
        return 0;
    const coh_status status = cli_variant_plan(&of->options, of->entries, &w->found);
    w->longest_s = fmax(w->longest_s, cli_seconds_now() - before);
    return status == COH_OK;
}

static void take(const what_ifs *w, const change *of, int is_quick, report_what_if *row)
{
    *row = (report_what_if){
        .step_s = NAN, .gain = NAN, .is_link = of->is_link, .is_quick = is_quick
    };
    snprintf(row->text, sizeof(row->text), "%s", of->text);
    if (!w->found.fits)
        return;
    row->step_s = w->found.speed.step_s;
    row->gain = w->found.speed.tokens_per_s / w->base.speed.tokens_per_s - 1;
    snprintf(row->limit, sizeof(row->limit), "%s", w->found.limit);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        row->peak_bytes[tier] = (double)w->found.summary.peak_bytes[tier];
}

/* Begins a change: a copy of the plan as it is. NULL: the list is full. */
static change *begin_change(what_ifs *w)
{
    if (w->count == REPORT_WHAT_IFS)
        return NULL;
    change *one = &w->changes[w->count++];
    *one = w->changes[0];
    return one;
}

/* Is all data in the device, and nothing recomputed to save room? */
static int needs_no_memory(const coh_plan_summary *plan)
{
    uint64_t moved = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        moved += plan->link_bytes[lane];
    return moved == 0 && plan->recomputes == 0;
}

static void list_memory(what_ifs *w)
{
    static const double factors[] = { 1.25, 1.5, 2, 0.8 };
    const uint64_t had = w->base.budget_bytes[COH_TIER_DEVICE];
    const int unit = had >> 24 > 0 ? 20 : 12; /* below 16 MiB: whole 4 KiB */
    w->out->needs_no_memory = needs_no_memory(&w->base.summary);
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]) && had < UINT64_MAX / 4; i++) {
        const uint64_t bytes = (uint64_t)((double)had * factors[i]) >> unit << unit;
        if (factors[i] > 1 && (w->out->needs_no_memory || bytes > w->most_device_bytes))
            continue;
        change *one = bytes > 0 ? begin_change(w) : NULL;
        if (!one)
            continue;
        one->options.device_memory_bytes = bytes;
        one->options.given[CLI_FLAG_DEVICE_MEMORY] = 1;
        snprintf(one->text, sizeof(one->text), "%s %s device memory (--device-memory %s)",
                 cli_size(bytes > had ? bytes - had : had - bytes).at,
                 bytes > had ? "more" : "less", cli_size_whole(bytes).at);
    }
}

/* An emulated link is as fast as its flag, whatever the profile says. */
static void double_emulated_link(change *one)
{
    one->options.link_bytes_per_s *= 2;
    one->entries = "";
    snprintf(one->text, sizeof(one->text), "a host link twice as fast (--link-rate %.9gMB/s)",
             (double)one->options.link_bytes_per_s * 1e-6);
}

static void list_links(what_ifs *w)
{
    static const struct {
        coh_lane lane;
        const char *entries, *text;
    } links[] = { { COH_LANE_READ, "disk-read=2x", "a drive that reads twice as fast" },
                  { COH_LANE_WRITE, "disk-write=2x", "a drive that writes twice as fast" },
                  { COH_LANE_H2D, "pcie=2x", "a host link twice as fast" } };
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        change *one = w->base.summary.link_bytes[links[i].lane] > 0 ? begin_change(w) : NULL;
        if (!one)
            continue;
        one->is_link = 1;
        one->entries = links[i].entries;
        snprintf(one->text, sizeof(one->text), "%s", links[i].text);
        if (links[i].lane == COH_LANE_H2D && one->options.link_bytes_per_s > 0)
            double_emulated_link(one);
    }
}

static void list_micro_batch(what_ifs *w)
{
    const int divides =
        w->base.micro_batch > 0 && w->base.replica_batch % (2 * w->base.micro_batch) == 0;
    change *one = divides ? begin_change(w) : NULL;
    if (!one)
        return;
    one->options.micro_batch = 2 * w->base.micro_batch;
    one->options.given[CLI_FLAG_MICRO_BATCH] = 1;
    snprintf(one->text, sizeof(one->text),
             "micro-batches of %lld (--micro-batch %lld): other "
             "rounding",
             (long long)one->options.micro_batch, (long long)one->options.micro_batch);
}

/* Plans all changes by the quick search. rows[i] is the change of w->changes[planned[i]]. */
static void plan_quickly(what_ifs *w, int planned[REPORT_WHAT_IFS])
{
    report_analysis *out = w->out;
    if (!plan_one(w, &w->changes[0]) || !w->found.fits)
        return;
    w->base = w->found;
    list_memory(w);
    list_links(w);
    list_micro_batch(w);
    for (int i = 0; i < w->count; i++) {
        if (i > 0 && !plan_one(w, &w->changes[i])) {
            out->unplanned_count++;
            continue;
        }
        planned[out->what_if_count] = i;
        take(w, &w->changes[i], w->search != COH_SEARCH_QUICK,
             &out->what_ifs[out->what_if_count++]);
    }
}

/* The quick row that a report would put among its actions; -1: none is left. */
static int next_to_confirm(const report_analysis *out)
{
    int next = -1, above = 0;
    for (int i = 1; i < out->what_if_count; i++)
        if (out->what_ifs[i].is_quick && out->what_ifs[i].gain > 0 &&
            (next < 0 || out->what_ifs[i].gain > out->what_ifs[next].gain))
            next = i;
    for (int i = 1; i < out->what_if_count && next >= 0; i++)
        above += !out->what_ifs[i].is_quick && out->what_ifs[i].gain >= out->what_ifs[next].gain;
    return above < REPORT_ACTIONS ? next : -1;
}

/* Plans the plan as it is and the largest gains by the usual search, which the run had. */
static void confirm(what_ifs *w, const int planned[REPORT_WHAT_IFS])
{
    report_analysis *out = w->out;
    for (int i = 0; i < w->count; i++)
        w->changes[i].options.search = w->search;
    if (out->what_if_count < 2 || !plan_one(w, &w->changes[0]) || !w->found.fits)
        return;
    w->base = w->found;
    take(w, &w->changes[0], 0, &out->what_ifs[0]);
    for (int row; (row = next_to_confirm(out)) >= 0;) {
        if (!plan_one(w, &w->changes[planned[row]]))
            return;
        take(w, &w->changes[planned[row]], 0, &out->what_ifs[row]);
    }
}

void cli_report_what_ifs(const cli_options *options, uint64_t most_device_bytes, double seconds,
                         report_analysis *out_analysis)
{
    int planned[REPORT_WHAT_IFS];
    what_ifs *w = calloc(1, sizeof(*w));
    const int were_dropped = cli_choices_drop(1); /* the run or plan of the report made them */
    out_analysis->what_if_count = out_analysis->unplanned_count = out_analysis->needs_no_memory = 0;
    if (w && !options->plan_file) {
        change *as_it_is = &w->changes[w->count++];
        *as_it_is = (change){ .options = *options, .entries = "", .text = "as it is" };
        as_it_is->options.command = CLI_PLAN;
        as_it_is->options.calibration = "none"; /* it holds for the plan as it is only */
        as_it_is->options.search = COH_SEARCH_QUICK;
        /* A thorough search would take the report minutes; all rows have the same effort. */
        w->search = options->search == COH_SEARCH_QUICK ? COH_SEARCH_QUICK : COH_SEARCH_USUAL;
        w->out = out_analysis;
        w->most_device_bytes = most_device_bytes;
        w->most_s = seconds;
        w->begin_s = cli_seconds_now();
        plan_quickly(w, planned);
        if (w->search != COH_SEARCH_QUICK)
            confirm(w, planned);
    }
    free(w);
    (void)cli_choices_drop(were_dropped);
}

/* ---- the plan ---- */

/* Memory that a machine lacks is no change of the plan. Without --device-memory the plan of a GPU
 * has all of its memory. A profile may be of another machine. */
static uint64_t most_device_bytes(const cli_options *options)
{
    if (!options->profile && strcmp(options->device, "host") == 0)
        return coh_machine_most_bytes();
    return cli_given(options, CLI_FLAG_DEVICE_MEMORY) ? UINT64_MAX : 0;
}

/* Reads back what cli_record_write_run wrote. */
static coh_status run_of(const cli_job *job, const coh_trace *trace, report_run *out_run)
{
    char *text = NULL;
    const int descriptor = memfd_create("run.json", MFD_CLOEXEC);
    if (descriptor < 0)
        return cli_fail(COH_ERR_IO, "the system has no room for a temporary file");
    coh_status status = cli_record_write_run(job, trace, NULL, descriptor);
    const off_t bytes = lseek(descriptor, 0, SEEK_END);
    if (status == COH_OK && (bytes < 0 || !(text = malloc((size_t)bytes + 1))))
        status = cli_fail(COH_ERR_MEMORY, "no memory for the facts of a plan");
    if (status == COH_OK && pread(descriptor, text, (size_t)bytes, 0) != bytes)
        status = cli_fail(COH_ERR_IO, "the facts of a plan cannot be read back");
    close(descriptor);
    if (status == COH_OK)
        status = report_run_of_plan(text, (size_t)bytes, trace, out_run);
    free(text);
    return status;
}

static coh_status draw(const cli_job *job, const coh_trace *trace, report_form form,
                       report_analysis *analysis)
{
    report_run run = { 0 };
    CLI_TRY(run_of(job, trace, &run));
    if (cli_budget_is_what_if(job->options, job->profile)) { /* another machine than this one */
        run.facts.device = run.facts.profile;
        run.facts.cpu = run.facts.gpu = "";
        run.facts.cores = run.facts.memory_bytes = NAN;
    }
    run.facts.started = "";
    coh_status status = report_analyse(&run, analysis);
    if (status == COH_OK) {
        const report_analysis *const list[] = { analysis };
        status = report_write(list, 1, form, job->options->report);
        report_analysis_close(analysis);
    }
    report_run_close(&run);
    return status;
}

coh_status cli_plan_report(const cli_job *job)
{
    report_form form = REPORT_HTML;
    coh_trace *trace = NULL;
    CLI_TRY(cli_report_form("--report", job->options->report, &form));
    report_analysis *analysis = calloc(1, sizeof(*analysis));
    if (!analysis)
        return cli_fail(COH_ERR_MEMORY, "no memory for a report");
    coh_status status = coh_plan_trace(job->plan, &trace);
    if (status == COH_OK) {
        cli_report_what_ifs(job->options, most_device_bytes(job->options), PLAN_SECONDS, analysis);
        status = draw(job, trace, form, analysis);
        coh_trace_free(trace);
    }
    free(analysis);
    return status;
}
