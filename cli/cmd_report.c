/* cohobate report and cohobate diff: read run folders and write reports of them. The one idea: all
 * that was measured is in the folder; only what-ifs are planned here. Next: report/report.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/recorded.h"
#include "cohobate/machine.h"
#include "report/format.h"
#include "report/report.h"

/* The runs of the operands. */
typedef struct runs {
    int count;
    report_run of[CLI_RUNS_MOST];
    report_analysis analyses[CLI_RUNS_MOST];
    const report_analysis *list[CLI_RUNS_MOST];
} runs;

/* The most instructions of a plan that is made again, and the seconds for all of them. */
#define AGAIN_INSTRUCTIONS 5000
#define AGAIN_SECONDS      5.0

/* The most device memory that its machine could have given the run. A profile changes none of it: a
 * run computes where it is. Without --device-memory a run on a GPU had all of it. */
static uint64_t most_device_bytes(const cli_options *options)
{
    if (strcmp(options->device, "host") == 0)
        return coh_machine_most_bytes();
    return cli_given(options, CLI_FLAG_DEVICE_MEMORY) ? UINT64_MAX : 0;
}

/* Sets the memory that the run had, where its command leaves it to the machine: less or more may be
 * free now. A GPU's own memory stays as it is. */
static void take_budgets(const report_run *run, cli_options *options)
{
    const int on_gpu = strcmp(options->device, "host") != 0;
    const cli_flag flag = on_gpu ? CLI_FLAG_HOST_MEMORY : CLI_FLAG_DEVICE_MEMORY;
    const double bytes = run->facts.budget_bytes[on_gpu ? COH_TIER_HOST : COH_TIER_DEVICE];
    if (cli_given(options, flag) || !(bytes > 0 && bytes < 1e18))
        return;
    *(on_gpu ? &options->host_memory_bytes : &options->device_memory_bytes) = (uint64_t)bytes;
    options->given[flag] = 1;
}

/* Sets the sequence that the run had: an earlier version did not take that of the run that it began
 * with. */
static void take_sequence(const report_run *run, cli_options *options)
{
    const double tokens = run->facts.sequence;
    if (cli_given(options, CLI_FLAG_SEQUENCE) || !(tokens >= 1 && tokens < 1e9))
        return;
    options->sequence = (int64_t)tokens;
    options->given[CLI_FLAG_SEQUENCE] = 1;
}

/* Plans the run again, by its command, for other budgets and links. A resumed run takes its recipe
 * from a checkpoint, which may be gone: it has none. */
static void find_what_ifs(const report_run *run, report_analysis *analysis)
{
    if (!run->trace || run->trace->instruction_count > AGAIN_INSTRUCTIONS)
        return;
    cli_recorded *recorded = cli_recorded_open(run);
    if (recorded && !recorded->options.resume) {
        cli_options *options = &recorded->options;
        const uint64_t most_bytes = most_device_bytes(options); /* by the flags as typed */
        take_budgets(run, options);
        take_sequence(run, options);
        cli_report_what_ifs(options, most_bytes, AGAIN_SECONDS, analysis);
    }
    cli_recorded_close(recorded);
}

static coh_status read_runs(const cli_options *options, runs *all)
{
    for (int i = 0; i < options->operand_count; i++) {
        CLI_TRY(report_run_read(options->operands[i], &all->of[i]));
        all->count = i + 1;
        if (i == 0 && options->command == CLI_REPORT)
            find_what_ifs(&all->of[i], &all->analyses[i]);
        CLI_TRY(report_analyse(&all->of[i], &all->analyses[i]));
        all->list[i] = &all->analyses[i];
    }
    return COH_OK;
}

static void close_runs(runs *all)
{
    for (int i = 0; i < all->count; i++) {
        report_analysis_close(&all->analyses[i]);
        report_run_close(&all->of[i]);
    }
    free(all);
}

static int ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcasecmp(text + bytes - end_bytes, end) == 0;
}

/* The first of these variables that is set decides. */
int cli_locale_is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return 0;
}

coh_status cli_report_form(const char *flag, const char *path, report_form *out_form)
{
    *out_form = ends_with(path, ".txt")    ? REPORT_TEXT
                : ends_with(path, ".json") ? REPORT_JSON
                                           : REPORT_HTML;
    if (*out_form == REPORT_HTML && !ends_with(path, ".html") && !ends_with(path, ".htm"))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s %s: the form of a report is the end of its name: .html, .txt or .json",
                        flag, path);
    return COH_OK;
}

/* The form of the output, and its path; "": standard output. */
static coh_status choose_form(const cli_options *options, report_form *out_form,
                              char path[CLI_PATH_BYTES])
{
    path[0] = '\0';
    if (options->output && (options->text || options->json))
        return cli_fail(COH_ERR_ARGUMENT, "-o %s and %s are two outputs: leave one out",
                        options->output, options->text ? "--text" : "--json");
    if (options->text && options->json)
        return cli_fail(COH_ERR_ARGUMENT, "--text and --json are two forms: leave one out");
    *out_form = options->json ? REPORT_JSON : REPORT_TEXT;
    if (options->output) {
        CLI_TRY(cli_report_form("-o", options->output, out_form));
        snprintf(path, CLI_PATH_BYTES, "%s", options->output);
    } else if (!options->text && !options->json) {
        *out_form = REPORT_HTML;
        if (snprintf(path, CLI_PATH_BYTES, "%s/report.html", options->operand) >= CLI_PATH_BYTES)
            return cli_fail(COH_ERR_ARGUMENT, "the path %s is too long", options->operand);
    }
    if (*out_form == REPORT_TEXT && (options->ascii || (!path[0] && !cli_locale_is_utf8())))
        *out_form = REPORT_ASCII;
    return COH_OK;
}

/* Prints where the report is, the verdict, and the changes with their gains. */
static void print_found(const char *path, const report_analysis *analysis)
{
    cli_print("%s\n%s", path, analysis->verdict);
    for (int i = 0; i < analysis->action_count; i++) {
        const report_action *action = &analysis->actions[i];
        cli_print("  %d. %s tokens/s (%s%s): %s", i + 1, report_change(action->gain).at,
                  action->basis, action->is_guess ? "; a guess, not calibrated" : "", action->text);
    }
}

static coh_status report_operands(const cli_options *options, report_form form, const char *path,
                                  int says)
{
    runs *all = calloc(1, sizeof(*all));
    if (!all)
        return cli_fail(COH_ERR_MEMORY, "no memory for a report");
    coh_status status = read_runs(options, all);
    if (status == COH_OK)
        status = report_write(all->list, all->count, form, path);
    /* A folder of somebody else can be read, but not written. */
    if (status == COH_ERR_IO && says && !options->output) {
        static const char remedy[] = ": give another"; /* the path is not the user's own */
        char why[512];
        snprintf(why, sizeof(why), "%s", coh_last_error());
        if (ends_with(why, remedy))
            why[strlen(why) - strlen(remedy)] = '\0';
        status = cli_fail(status, "%s: give another place by -o FILE", why);
    }
    if (status == COH_OK && says)
        print_found(path, &all->analyses[0]);
    close_runs(all);
    return status;
}

coh_status cli_report_folder(const char *folder, const char *path)
{
    char *operands[] = { (char *)(uintptr_t)folder };
    report_form form = REPORT_HTML;
    cli_options *options = calloc(1, sizeof(*options));
    if (!options)
        return cli_fail(COH_ERR_MEMORY, "no memory for a report");
    options->command = CLI_REPORT;
    options->operands = operands;
    options->operand_count = 1;
    coh_status status = cli_report_form("--report", path, &form);
    if (status == COH_OK)
        status = report_operands(options, form, path, 0);
    free(options);
    return status;
}

coh_status cli_report_runs(const cli_options *options)
{
    char path[CLI_PATH_BYTES];
    report_form form = REPORT_HTML;
    CLI_TRY(cli_output_check(options));
    CLI_TRY(choose_form(options, &form, path));
    return report_operands(options, form, path[0] ? path : NULL, path[0] != '\0');
}

coh_status cli_diff_runs(const cli_options *options)
{
    runs *all = calloc(1, sizeof(*all));
    if (!all)
        return cli_fail(COH_ERR_MEMORY, "no memory for a report");
    coh_status status = read_runs(options, all);
    if (status == COH_OK)
        status = report_diff(all->list[0], all->list[1],
                             options->ascii || !cli_locale_is_utf8() ? REPORT_ASCII : REPORT_TEXT);
    close_runs(all);
    return status;
}
