/* Prints the progress of a run and its totals. The one idea: all text goes through fixed buffers
 * and write(2), so a step allocates nothing. Next: train_loop.c, the caller. */
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/progress.h"

static void close_log(cli_step_log *log)
{
    if (log->descriptor >= 0)
        close(log->descriptor);
    log->descriptor = -1;
}

/* Cuts off a last line without an end. */
static coh_status end_whole(int descriptor)
{
    char text[4096];
    off_t end = lseek(descriptor, 0, SEEK_END);
    while (end > 0) {
        const off_t begin = end > (off_t)sizeof(text) ? end - (off_t)sizeof(text) : 0;
        const ssize_t got = pread(descriptor, text, (size_t)(end - begin), begin);
        if (got <= 0)
            return COH_ERR_IO;
        const char *last = memrchr(text, '\n', (size_t)got);
        end = last ? begin + (last - text) + 1 : begin;
        if (last)
            break;
    }
    return ftruncate(descriptor, end < 0 ? 0 : end) == 0 ? COH_OK : COH_ERR_IO;
}

/* Steps of a run that left no checkpoint are not those of the run that begins here. */
static coh_status start_anew(int descriptor)
{
    return ftruncate(descriptor, 0) == 0 ? COH_OK : COH_ERR_IO;
}

static coh_status open_steps(const char *folder, uint64_t first_step, cli_step_log *log)
{
    char path[CLI_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/steps.jsonl", folder);
    log->name = "steps.jsonl";
    log->descriptor = open(path, O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0666);
    const coh_status status = log->descriptor < 0 ? COH_ERR_IO
                              : first_step == 0   ? start_anew(log->descriptor)
                                                  : end_whole(log->descriptor);
    if (status == COH_OK)
        return COH_OK;
    return cli_fail(COH_ERR_IO, "%s cannot be written: %s: give another --save", path,
                    strerror(errno));
}

/* Cuts off what a kill left of a line of --log; a pipe or a device has no such thing. */
static void end_log(const char *path, int descriptor)
{
    struct stat facts;
    const int is_file = fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
    const int reader = is_file ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (reader < 0)
        return; /* only writing was permitted */
    (void)end_whole(reader);
    close(reader);
}

/* A log that is the folder's steps.jsonl would get each line twice. */
static int is_same(int one, int other)
{
    struct stat a, b;
    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

coh_status cli_report_open(const char *log_path, const char *folder, uint64_t first_step,
                           uint64_t last_step, int64_t tokens_per_step, double predicted_step_s,
                           cli_report *out_report)
{
    *out_report = (cli_report){ .logs = { { -1, "--log" }, { -1, NULL } },
                                .terminal = isatty(STDERR_FILENO),
                                .shown = NAN,
                                .first_step = first_step,
                                .last_step = last_step,
                                .tokens_per_step = tokens_per_step,
                                .rank_count = 1,
                                .predicted_step_s = predicted_step_s,
                                .last_loss = NAN,
                                .last_validation = NAN };
    cli_tensorboard_clear(&out_report->board);
    if (folder[0])
        CLI_TRY(open_steps(folder, first_step, &out_report->logs[1]));
    if (!log_path)
        return COH_OK;
    int *descriptor = &out_report->logs[0].descriptor;
    *descriptor = open(log_path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
    if (*descriptor < 0)
        return cli_fail(COH_ERR_IO,
                        "--log %s cannot be written: %s: give another name, or leave it out",
                        log_path, strerror(errno));
    if (folder[0] && is_same(*descriptor, out_report->logs[1].descriptor))
        close_log(&out_report->logs[0]);
    else
        end_log(log_path, *descriptor);
    return COH_OK;
}

void cli_report_clear(cli_report *report)
{
    *report = (cli_report){ .logs = { { -1, NULL }, { -1, NULL } } };
    cli_tensorboard_clear(&report->board);
}

coh_status cli_report_open_board(cli_report *report, const char *folder)
{
    return cli_tensorboard_open(folder, report->first_step, &report->board);
}

void cli_report_undo(const cli_report *report)
{
    cli_tensorboard_undo(&report->board);
}

void cli_report_close(cli_report *report)
{
    cli_report_break(report);
    for (int i = 0; i < CLI_STEP_LOGS; i++)
        close_log(&report->logs[i]);
    cli_tensorboard_close(&report->board);
}

void cli_report_start(cli_report *report)
{
    report->started = report->last_moment = cli_seconds_now();
}

void cli_report_break(cli_report *report)
{
    if (report->live_shown)
        (void)cli_write(STDERR_FILENO, "\n", 1);
    report->live_shown = 0;
}

/* ---- one step ---- */

/* A full drive ends the events, not the run. */
static void add_events(cli_report *report, uint64_t step, const cli_scalar *scalars, int count)
{
    if (cli_tensorboard_add(&report->board, step, scalars, count) == COH_OK)
        return;
    const int error = errno;
    cli_report_break(report);
    cli_note("warning: --tensorboard ends here: %s; the run continues without it", strerror(error));
}

static void add_step_events(cli_report *report, const coh_step_result *result, double learning_rate)
{
    const double seconds = (double)result->step_ns * 1e-9;
    const cli_scalar scalars[] = {
        { "train/loss", result->loss },
        { "train/gradient_norm", result->grad_norm },
        { "train/learning_rate", learning_rate },
        { "train/tokens_per_second",
          seconds > 0 ? (double)report->tokens_per_step / seconds : NAN },
    };
    add_events(report, result->step + 1, scalars, sizeof(scalars) / sizeof(*scalars));
}

static void add_seconds_json(cli_line *line, const char *key, const double *seconds)
{
    cli_line_add_json(line, "%s: {", key);
    for (int lane = COH_LANE_COMPUTE; lane < COH_LANE_COUNT; lane++)
        if (seconds[lane] != 0)
            cli_line_add_json(line, "%s: %.6f", coh_lane_name(lane), seconds[lane]);
    cli_line_add_json(line, "}");
}

static void add_bytes_json(cli_line *line, const char *key, const uint64_t *bytes)
{
    cli_line_add_json(line, "%s: {", key);
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        if (bytes[lane] != 0)
            cli_line_add_json(line, "%s: %" PRIu64, coh_lane_name(lane), bytes[lane]);
    cli_line_add_json(line, "}");
}

/* Appends a whole line or nothing. If the log can no longer be written, prints that once and stops
 * logging; the run continues. */
static void append_log(cli_report *report, cli_step_log *log, const cli_line *line)
{
    off_t end = lseek(log->descriptor, 0, SEEK_END);
    if (cli_write(log->descriptor, line->text, line->used) == COH_OK)
        return;
    int error = errno;
    if (end >= 0 && ftruncate(log->descriptor, end) != 0)
        end = -1; /* half a line stays */
    cli_report_break(report);
    cli_note("warning: %s ends here%s: %s; the run continues without it", log->name,
             end < 0 ? ", in the middle of a line" : "", strerror(error));
    close_log(log);
}

static int has_log(const cli_report *report)
{
    return report->logs[0].descriptor >= 0 || report->logs[1].descriptor >= 0;
}

static void append_logs(cli_report *report, const cli_line *line)
{
    for (int i = 0; i < CLI_STEP_LOGS; i++)
        if (report->logs[i].descriptor >= 0)
            append_log(report, &report->logs[i], line);
}

/* Adds what is out of the ordinary. */
static void add_health_json(const cli_step_health *health, cli_line *line)
{
    const coh_trace_counters *counters = &health->counters;
    if (health->is_slow)
        cli_line_add_json(line, "'slow': true");
    if (counters->throttled_ns > 0 && counters->throttled_ns < UINT64_MAX)
        cli_line_add_json(line, "'throttled_seconds': %.6f", (double)counters->throttled_ns * 1e-9);
    if (counters->store_retries > 0 && counters->store_retries < UINT64_MAX)
        cli_line_add_json(line, "'store_retries': %" PRIu64, counters->store_retries);
}

static void write_log(cli_report *report, const coh_step_result *result, double learning_rate,
                      const cli_step_health *health)
{
    double exposed_s[COH_LANE_COUNT];
    cli_line line;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        exposed_s[lane] = (double)result->exposed_ns[lane] * 1e-9;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'step': %" PRIu64 ", 'loss': %.17g, 'grad_norm': %.17g, 'lr': %.17g"
                      ", 'tokens': %" PRId64 ", 'learned': %" PRId64 ", 'seconds': %.6f",
                      result->step + 1, result->loss, result->grad_norm, learning_rate,
                      report->tokens_per_step, report->learned_tokens,
                      (double)result->step_ns * 1e-9);
    add_seconds_json(&line, "exposed_seconds", exposed_s);
    add_bytes_json(&line, "link_bytes", result->link_bytes);
    add_bytes_json(&line, "frozen_link_bytes", result->frozen_bytes);
    cli_line_add_json_tiers(&line, "peak_bytes", result->peak_bytes);
    if (!result->finite)
        cli_line_add_json(&line, "'skipped': true");
    if (result->ran_twice)
        cli_line_add_json(&line, "'ran_twice': true");
    add_health_json(health, &line);
    cli_line_add_json(&line, "}\n");
    append_logs(report, &line);
}

/* Adds the rate and the waits of the steps in `recent` to the line. */
static void take_recent(const cli_report *report, cli_progress *progress)
{
    const uint64_t newest = report->step_count - 1;
    const uint64_t spans = newest < CLI_REPORT_RECENT - 1 ? newest : CLI_REPORT_RECENT - 1;
    double sum_s = 0, passed_s = 0;
    for (uint64_t i = newest - spans; i <= newest; i++) {
        const cli_recent_step *step = &report->recent[i % CLI_REPORT_RECENT];
        sum_s += step->step_s;
        passed_s += i > newest - spans ? step->passed_s : 0;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            progress->waits[lane] += step->exposed_s[lane];
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        progress->waits[lane] = sum_s > 0 ? progress->waits[lane] / sum_s : 0;
    progress->is_predicted = spans == 0;
    const double step_s = spans == 0 ? report->predicted_step_s : passed_s / (double)spans;
    if (spans > 0 && step_s > 0)
        progress->tokens_per_s = (double)report->tokens_per_step / step_s;
    progress->left_s = step_s * (double)(report->last_step - progress->step);
}

/* Is a line due? A terminal gets the first step, the last one, and ten in a second. */
static int is_due(const cli_report *report, uint64_t step)
{
    const double passed = report->last_moment - report->shown; /* NaN: none was shown */
    if (!report->terminal)
        return !(passed < CLI_PROGRESS_PLAIN_S);
    return !(passed < 0.1) || step == report->last_step;
}

static void show_step(cli_report *report, const coh_step_result *result)
{
    cli_line line;
    cli_progress progress = { .step = result->step + 1,
                              .last_step = report->last_step,
                              .loss = result->finite ? result->loss : NAN,
                              .tokens_per_s = NAN };
    if (!is_due(report, progress.step))
        return;
    take_recent(report, &progress);
    memcpy(progress.peak_bytes, result->peak_bytes, sizeof(progress.peak_bytes));
    cli_line_clear(&line);
    if (report->terminal)
        cli_line_add(&line, "\r");
    /* The last column stays free: some terminals wrap when it is written. */
    const size_t columns = report->terminal ? cli_terminal_columns(STDERR_FILENO) : 0;
    cli_progress_add(&progress, columns > 1 ? columns - 1 : columns, &line);
    cli_line_add(&line, report->terminal ? "\033[K" : "\n");
    (void)cli_write(STDERR_FILENO, line.text, line.used);
    report->live_shown = report->terminal;
    report->shown = report->last_moment;
}

void cli_report_step(cli_report *report, const coh_step_result *result, double learning_rate,
                     const cli_step_health *health)
{
    double now = cli_seconds_now();
    cli_recent_step *recent = &report->recent[report->step_count++ % CLI_REPORT_RECENT];
    *recent = (cli_recent_step){ .passed_s = now - report->last_moment,
                                 .step_s = (double)result->step_ns * 1e-9 };
    report->skipped_count += !result->finite;
    report->twice_count += result->ran_twice != 0;
    report->step_s += now - report->last_moment;
    report->last_moment = now;
    report->last_loss = result->loss;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        recent->exposed_s[lane] = (double)result->exposed_ns[lane] * 1e-9;
        report->exposed_s[lane] += recent->exposed_s[lane];
        report->link_bytes[lane] += result->link_bytes[lane];
        report->frozen_bytes[lane] += result->frozen_bytes[lane];
    }
    memcpy(report->peak_bytes, result->peak_bytes, sizeof(report->peak_bytes));
    show_step(report, result);
    if (has_log(report))
        write_log(report, result, learning_rate, health);
    add_step_events(report, result, learning_rate);
}

void cli_report_validation(cli_report *report, uint64_t step, double loss, uint64_t windows,
                           uint64_t total)
{
    cli_line line;
    report->last_validation = loss;
    report->validation_step = step;
    report->validation_windows = windows;
    report->validation_windows_total = total;
    cli_report_break(report);
    cli_note("step %" PRIu64 "  validation loss %s over %" PRIu64 " of %s", step, cli_loss(loss).at,
             windows, cli_count(total, "window").at);
    add_events(report, step, &(const cli_scalar){ "validation/loss", loss }, 1);
    if (!has_log(report))
        return;
    cli_line_clear(&line);
    cli_line_add_json(&line,
                      "{'step': %" PRIu64 ", 'validation_loss': %.17g, 'windows': %" PRIu64
                      ", 'windows_total': %" PRIu64 "}\n",
                      step, loss, windows, total);
    append_logs(report, &line);
}

void cli_report_skip_time(cli_report *report)
{
    report->last_moment = cli_seconds_now();
}

/* ---- the end ---- */

uint64_t cli_report_process_peak(void)
{
    char text[4096];
    int descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    ssize_t got = read(descriptor, text, sizeof(text) - 1);
    close(descriptor);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *found = strstr(text, "VmHWM:");
    return found ? strtoull(found + 6, NULL, 10) * 1024 : 0;
}

/* Returns the memory of the arenas of all ranks; all have equal ones. */
static uint64_t arena_bytes(const cli_report *report, const coh_engine_facts *facts)
{
    return (facts->arena_bytes[COH_TIER_DEVICE] + facts->arena_bytes[COH_TIER_HOST]) *
           (uint64_t)report->rank_count;
}

/* Memory of the process at its peak, without the arenas. */
static uint64_t overhead_bytes(const cli_report *report, const coh_engine_facts *facts,
                               uint64_t process_peak)
{
    const uint64_t arenas = arena_bytes(report, facts);
    return process_peak > arenas ? process_peak - arenas : 0;
}

/* Adds the bytes of frozen parameters among those moved; no lane writes them. */
static void add_frozen(const cli_report *report, cli_line *line)
{
    int moved = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        moved |= report->frozen_bytes[lane] > 0;
    for (int lane = COH_LANE_H2D; moved && lane < COH_LANE_COUNT; lane++)
        if (report->link_bytes[lane])
            cli_line_add(line, "%s %s %s", moved++ == 1 ? "; of these frozen parameters:" : ",",
                         coh_lane_name(lane), cli_size(report->frozen_bytes[lane]).at);
}

void cli_report_gpu(const coh_engine_facts *facts, cli_line *line)
{
    if (facts->device_context_bytes + facts->device_library_bytes == 0)
        return;
    cli_line_add(line,
                 "GPU:    overhead outside the arena: context and other programs %s, kernels and "
                 "libraries %s; %s free\n",
                 cli_size(facts->device_context_bytes).at, cli_size(facts->device_library_bytes).at,
                 cli_size(facts->device_free_bytes).at);
}

void cli_report_peaks(cli_report *report, const coh_engine *engine)
{
    coh_engine_ledger_row row;
    for (uint32_t i = 0; coh_engine_ledger_row_at(engine, i, &row); i++)
        for (int tier = 0; tier < COH_TIER_DISK; tier++)
            if (strcmp(row.purpose, "highest end") == 0 &&
                strcmp(row.tier, coh_tier_name((coh_tier)tier)) == 0)
                report->peak_bytes[tier] = row.peak_bytes;
}

void cli_report_totals(const cli_report *report, const coh_plan_summary *summary,
                       const coh_engine_facts *facts, cli_line *line)
{
    double steps = report->step_count ? (double)report->step_count : 1;
    double still = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        still += report->exposed_s[lane];
    cli_line_add(line, "time:   %s in %" PRIu64 " step%s, %s each (predicted %s)",
                 cli_time(report->step_s).at, report->step_count,
                 report->step_count == 1 ? "" : "s", cli_time(report->step_s / steps).at,
                 cli_time((double)summary->step_ns * 1e-9).at);
    if (still > 0)
        cli_line_add(line, "; compute waited %s of it", cli_time(still).at);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (report->exposed_s[lane] > 0)
            cli_line_add(line, ", for %s %s", coh_lane_name(lane),
                         cli_time(report->exposed_s[lane]).at);
    if (summary->kept_bytes)
        cli_line_add(line,
                     "\nclip:   %" PRIu64 " of them ran twice, their norm being above the limit",
                     report->twice_count);
    cli_line_add(line, "\nbytes: ");
    int moved = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        if (report->link_bytes[lane]) {
            cli_line_add(line, "%s %s %s (%s a step)", moved++ ? "," : "", coh_lane_name(lane),
                         cli_size(report->link_bytes[lane]).at,
                         cli_size((uint64_t)((double)report->link_bytes[lane] / steps)).at);
        }
    add_frozen(report, line);
    static const char *const verdicts[] = { " (less: of a program that did not run)", " (equal)",
                                            " (DIFFERENT)" };
    cli_line_add(line, moved ? "\npeak:  " : " nothing moved\npeak:  ");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (summary->peak_bytes[tier])
            cli_line_add(line, "%s %s predicted %" PRIu64 " measured %" PRIu64 " bytes%s",
                         tier ? "," : "", coh_tier_name(tier), summary->peak_bytes[tier],
                         report->peak_bytes[tier],
                         verdicts[1 + (report->peak_bytes[tier] > summary->peak_bytes[tier]) -
                                  (report->peak_bytes[tier] < summary->peak_bytes[tier])]);
    uint64_t process = cli_report_process_peak();
    cli_line_add(line, "\nprocess: %s at its peak (VmHWM) = arenas %s + overhead %s\n",
                 cli_size(process).at, cli_size(arena_bytes(report, facts)).at,
                 cli_size(overhead_bytes(report, facts, process)).at);
    cli_report_gpu(facts, line);
}

void cli_report_totals_json(const cli_report *report, const coh_plan_summary *summary,
                            const coh_engine_facts *facts, cli_line *line)
{
    uint64_t process = cli_report_process_peak();
    cli_line_add_json(line,
                      "'loss': %.17g, 'validation_loss': %.17g, 'validation_step': %" PRIu64
                      ", 'validation_windows': %" PRIu64 ", 'validation_windows_total': %" PRIu64
                      ", 'steps_run': %" PRIu64 ", 'skipped_steps': %" PRIu64
                      ", 'steps_run_twice': %" PRIu64
                      ", 'seconds': %.6f, 'predicted_step_seconds': %.9f",
                      report->last_loss, report->last_validation, report->validation_step,
                      report->validation_windows, report->validation_windows_total,
                      report->step_count, report->skipped_count, report->twice_count,
                      report->step_s, (double)summary->step_ns * 1e-9);
    add_seconds_json(line, "exposed_seconds", report->exposed_s);
    add_bytes_json(line, "link_bytes", report->link_bytes);
    add_bytes_json(line, "frozen_link_bytes", report->frozen_bytes);
    cli_line_add_json_tiers(line, "peak_bytes", report->peak_bytes);
    cli_line_add_json_tiers(line, "predicted_peak_bytes", summary->peak_bytes);
    cli_line_add_json(line, "'process_peak_bytes': %" PRIu64 ", 'overhead_bytes': %" PRIu64,
                      process, overhead_bytes(report, facts, process));
    if (facts->device_context_bytes + facts->device_library_bytes > 0)
        cli_line_add_json(line,
                          "'device_overhead_bytes': {'context': %" PRIu64 ", 'libraries': %" PRIu64
                          ", 'free': %" PRIu64 "}",
                          facts->device_context_bytes, facts->device_library_bytes,
                          facts->device_free_bytes);
    cli_line_add_json(line,
                      "'store': %s, 'store_direct': %i, 'numeric_fingerprint': '%016" PRIx64
                      "', 'program_hash': '%016" PRIx64 "'",
                      facts->store_backend ? facts->store_backend : "none", facts->store_direct > 0,
                      summary->numeric_fingerprint, summary->program_hash);
}

void cli_report_ledger_json(const coh_engine *engine, cli_line *line)
{
    coh_engine_ledger_row row;
    cli_line_add_json(line, "'ledger': [");
    for (uint32_t i = 0; coh_engine_ledger_row_at(engine, i, &row); i++)
        cli_line_add_json(line,
                          "{'tier': %s, 'purpose': %s, 'owner': %s, 'bytes': %" PRIu64
                          ", 'peak_bytes': %" PRIu64 "}",
                          row.tier, row.purpose, row.owner, row.bytes, row.peak_bytes);
    cli_line_add_json(line, "]");
}
