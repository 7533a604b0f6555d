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

/* Seconds for the what-ifs of a plan's report; its user waits for a search anyway. */
#define PLAN_SECONDS 8.0

/* ---- what if ---- */

/* The plans of one report. */
typedef struct what_ifs {
    cli_options options; /* of the plan as it is */
    cli_variant base, found;
    double begin_s, longest_s, most_s;
    report_analysis *out;
} what_ifs;

/* Plans a variant, unless time is short. Returns 0 if there is none. */
static int plan_one(what_ifs *w, const cli_options *options, const char *entries)
{
    const double before = cli_seconds_now();
    if (before - w->begin_s + w->longest_s > w->most_s ||
        w->out->what_if_count == REPORT_WHAT_IFS) {
        w->out->unplanned_count++;
        return 0;
    }
    const coh_status status = cli_variant_plan(options, entries, &w->found);
    w->longest_s = fmax(w->longest_s, cli_seconds_now() - before);
    return status == COH_OK;
}

static void take(what_ifs *w, int is_link, const char *text)
{
    report_what_if *row = &w->out->what_ifs[w->out->what_if_count++];
    *row = (report_what_if){ .step_s = NAN, .gain = NAN, .is_link = is_link };
    snprintf(row->text, sizeof(row->text), "%s", text);
    if (!w->found.fits)
        return;
    row->step_s = w->found.speed.step_s;
    row->gain = w->found.speed.tokens_per_s / w->base.speed.tokens_per_s - 1;
    snprintf(row->limit, sizeof(row->limit), "%s", w->found.limit);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        row->peak_bytes[tier] = (double)w->found.summary.peak_bytes[tier];
}

static void try_memory(what_ifs *w, cli_options *changed)
{
    static const double factors[] = { 1.25, 1.5, 2, 0.8 };
    const uint64_t had = w->base.budget_bytes[COH_TIER_DEVICE];
    char text[128];
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]) && had < UINT64_MAX / 4; i++) {
        *changed = w->options;
        const uint64_t bytes = (uint64_t)((double)had * factors[i]) >> 20 << 20;
        changed->device_memory_bytes = bytes;
        changed->given[CLI_FLAG_DEVICE_MEMORY] = 1;
        if (bytes == 0 || !plan_one(w, changed, ""))
            continue;
        snprintf(text, sizeof(text), "%s %s device memory (--device-memory %s)",
                 cli_size(bytes > had ? bytes - had : had - bytes).at,
                 bytes > had ? "more" : "less", cli_size_whole(bytes).at);
        take(w, 0, text);
    }
}

/* An emulated link is as fast as its flag, whatever the profile says. */
static void try_emulated_link(what_ifs *w, cli_options *changed)
{
    char text[128];
    *changed = w->options;
    changed->link_bytes_per_s *= 2;
    if (!plan_one(w, changed, ""))
        return;
    snprintf(text, sizeof(text), "a host link twice as fast (--link-rate %.9gMB/s)",
             (double)changed->link_bytes_per_s * 1e-6);
    take(w, 1, text);
}

static void try_links(what_ifs *w, cli_options *changed)
{
    static const struct {
        coh_lane lane;
        const char *entries, *text;
    } links[] = { { COH_LANE_READ, "disk-read=2x", "a drive that reads twice as fast" },
                  { COH_LANE_WRITE, "disk-write=2x", "a drive that writes twice as fast" },
                  { COH_LANE_H2D, "pcie=2x", "a host link twice as fast" } };
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (w->base.summary.link_bytes[links[i].lane] == 0)
            continue;
        if (links[i].lane == COH_LANE_H2D && w->options.link_bytes_per_s > 0)
            try_emulated_link(w, changed);
        else if (plan_one(w, &w->options, links[i].entries))
            take(w, 1, links[i].text);
    }
}

static void try_micro_batch(what_ifs *w, cli_options *changed)
{
    char text[128];
    *changed = w->options;
    changed->micro_batch = 2 * w->base.micro_batch;
    changed->given[CLI_FLAG_MICRO_BATCH] = 1;
    if (w->base.micro_batch <= 0 || !plan_one(w, changed, ""))
        return;
    snprintf(text, sizeof(text), "micro-batches of %lld (--micro-batch %lld): other rounding",
             (long long)changed->micro_batch, (long long)changed->micro_batch);
    take(w, 0, text);
}

void cli_report_what_ifs(const cli_options *options, double seconds, report_analysis *out_analysis)
{
    what_ifs *w = calloc(1, sizeof(*w));
    cli_options *changed = calloc(1, sizeof(*changed));
    out_analysis->what_if_count = out_analysis->unplanned_count = 0;
    if (w && changed && !options->plan_file) {
        w->options = *options;
        w->options.command = CLI_PLAN;
        w->options.calibration = "none"; /* it holds for the plan as it is only */
        w->options.search = COH_SEARCH_QUICK;
        w->out = out_analysis;
        w->most_s = seconds;
        w->begin_s = cli_seconds_now();
        if (plan_one(w, &w->options, "") && w->found.fits) {
            w->base = w->found;
            take(w, 0, "as it is");
            try_memory(w, changed);
            try_links(w, changed);
            try_micro_batch(w, changed);
        }
    }
    free(changed);
    free(w);
}

/* ---- the plan ---- */

/* Reads back what cli_record_write_run wrote. */
static coh_status run_of(const cli_job *job, const coh_trace *trace, report_run *out_run)
{
    char *text = NULL;
    const int descriptor = memfd_create("run.json", MFD_CLOEXEC);
    if (descriptor < 0)
        return cli_fail(COH_ERR_IO, "the system has no room for a temporary file");
    coh_status status = cli_record_write_run(job, trace, descriptor);
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
        cli_report_what_ifs(job->options, PLAN_SECONDS, analysis);
        status = draw(job, trace, form, analysis);
        coh_trace_free(trace);
    }
    free(analysis);
    return status;
}
