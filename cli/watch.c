/* Draws the screen of a run that is watched. The one idea: one function per line adds it to the
 * sheet, which cuts it to the columns and counts the rows, so nothing ever wraps. Next:
 * cmd_watch.c. */
#include "cli/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/recorded.h"
#include "report/format.h"

enum {
    LABEL = 12,
    TEXT_BYTES = 1024,
    OTHER_ROWS = 16, /* than those of the curve, the tiers and the drive */
    CURVE_ROWS = 8,
    STALE_S = 10
};

typedef enum style { PLAIN, STRONG, FAINT, WARNING } style;

typedef struct sheet {
    const cli_view *view;
    cli_line *line;
    int row;
} sheet;

/* ---- the sheet ---- */

/* The columns of the character at text[0], and its bytes. East Asian characters take two. */
static int character_columns(const char *text, int *out_bytes)
{
    const unsigned char lead = (unsigned char)text[0];
    const int most = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned code = most == 1 ? lead : lead & (0xffu >> (most + 1));
    int bytes = 1;
    for (; bytes < most && ((unsigned char)text[bytes] & 0xc0) == 0x80; bytes++)
        code = code << 6 | ((unsigned char)text[bytes] & 0x3f);
    *out_bytes = bytes;
    return 1 + ((code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
                (code >= 0xac00 && code < 0xd7b0) || (code >= 0xf900 && code < 0xfb00) ||
                (code >= 0xfe30 && code < 0xfe70) || (code >= 0xff00 && code < 0xffe7) ||
                code >= 0x1f000);
}

/* Cuts a text to the columns of the screen. */
static void cut(const cli_view *view, char *text)
{
    int columns = 0, bytes;
    char *to = text;
    for (const char *from = text; *from; from += bytes) {
        const int width = character_columns(from, &bytes);
        const int is_replaced = view->is_ascii && bytes > 1;
        columns += is_replaced ? 1 : width;
        if (columns > view->columns)
            break;
        if (is_replaced)
            *to++ = '?';
        else
            for (int i = 0; i < bytes; i++)
                *to++ = from[i];
    }
    *to = '\0';
}

static void put_text(sheet *s, style is, char *text)
{
    static const char *const begins[] = { "", "\033[1m", "\033[2m", "\033[31m" };
    const int styled = s->view->has_colour && is != PLAIN && text[0];
    if (s->row >= s->view->rows)
        return;
    s->row++;
    cut(s->view, text);
    cli_line_add(s->line, "%s%s%s\n", styled ? begins[is] : "", text, styled ? "\033[0m" : "");
}

/* Adds a line; the last one is kept free for the status. */
static void put(sheet *s, style is, const char *label, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void put(sheet *s, style is, const char *label, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    const int begin = snprintf(text, sizeof(text), "%-*s", label[0] ? LABEL : 0, label);
    if (s->row >= s->view->rows - 1)
        return;
    va_start(arguments, format);
    vsnprintf(text + begin, sizeof(text) - (size_t)begin, format, arguments);
    va_end(arguments);
    put_text(s, is, text);
}

/* Prints a bar of `columns` columns into `out`. */
static const char *bar(const cli_view *view, double share, int columns, char out[TEXT_BYTES])
{
    static const char *const full[] = { "█", "#" }, *const empty[] = { "░", "." };
    const int used = (int)(fmin(fmax(share, 0), 1) * columns + 0.5);
    out[0] = '\0';
    for (int i = 0; i < columns; i++)
        strcat(out, i < used ? full[view->is_ascii] : empty[view->is_ascii]);
    return out;
}

/* ---- what the run has ---- */

/* Bytes of a tier: the last step's peak, or the plan's before there is one. */
static double tier_bytes(const report_live *live, int tier)
{
    const report_line *last = report_live_last(live);
    return last ? last->peak_bytes[tier] : live->run.facts.predicted_peak_bytes[tier];
}

static uint64_t recorded_step(const report_live *live)
{
    const report_line *last = report_live_last(live);
    return last ? last->step : 0;
}

/* The last step that is known to be done: by the end of the run, by steps.jsonl, or, if that file
 * was emptied, by the newest checkpoint. */
static uint64_t last_step(const report_live *live)
{
    const report_facts *f = &live->run.facts;
    const uint64_t recorded = recorded_step(live);
    if (!live->is_going && f->ended_step > 0 && f->ended_step <= UINT32_MAX)
        return (uint64_t)f->ended_step;
    if (recorded > 0)
        return recorded;
    const double first = f->first_step <= UINT32_MAX ? fmax(f->first_step, 0) : 0;
    return !live->is_going && live->saved_step > 0 ? live->saved_step : (uint64_t)first;
}

static int has_drive(const report_live *live)
{
    return live->link_bytes[COH_LANE_READ] + live->link_bytes[COH_LANE_WRITE] > 0;
}

/* The rows that other lines leave for the curve. */
static int curve_rows(const cli_view *view, const report_live *live)
{
    int rows = view->rows - OTHER_ROWS - 2 * has_drive(live);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        rows -= tier_bytes(live, tier) > 0;
    return rows < 1 ? 1 : rows > CURVE_ROWS ? CURVE_ROWS : rows;
}

/* ---- the lines ---- */

static void put_head(sheet *s, const report_live *live)
{
    const report_facts *f = &live->run.facts;
    char folder[300], facts[400], text[TEXT_BYTES];
    report_copy_printable(live->run.folder, folder, sizeof(folder));
    put(s, STRONG, "", "cohobate watch  %s", folder);
    snprintf(text, sizeof(text),
             "%.80s, %.2f M parameters, %.16s %.16s on %.80s; %.0f x %.0f tokens a step",
             f->model[0] ? f->model : "a model", f->parameters * 1e-6, f->dtype, f->optimizer,
             f->gpu[0] ? f->gpu : f->cpu, f->batch, f->sequence);
    report_copy_printable(text, facts, sizeof(facts));
    put(s, PLAIN, "", "%s", facts);
    put(s, PLAIN, "", "%s", "");
}

/* Seconds since the process of the run began; NaN: not known. */
static double running_s(const report_live *live, double now)
{
    struct tm date = { 0 };
    const char *end = strptime(live->run.facts.started, "%Y-%m-%dT%H:%M:%SZ", &date);
    return end ? fmax(now - (double)timegm(&date), 0) : NAN;
}

static void put_pace(sheet *s, const report_live *live, const report_pace *pace)
{
    const report_facts *f = &live->run.facts;
    char drawn[TEXT_BYTES], of[80] = "", left[80] = "", plan[80] = "";
    const double running = running_s(live, s->view->now);
    const uint64_t step = last_step(live);
    const double done = f->steps > 0 ? fmin((double)step / f->steps, 1) : pace->done;
    if (f->steps > 0)
        snprintf(of, sizeof(of), " of %.0f", f->steps);
    snprintf(drawn, sizeof(drawn), "%" PRIu64 "%s", step, of);
    char shown[TEXT_BYTES] = "";
    if (isfinite(done))
        bar(s->view, done, s->view->columns - LABEL - 32, shown);
    put(s, PLAIN, "step", "%-20s %7.1f %%  %s", drawn, isfinite(done) ? 100 * done : 0, shown);
    if (live->is_going && pace->left_s > 0)
        snprintf(left, sizeof(left), ", %s left", cli_time(pace->left_s).at);
    put(s, PLAIN, "time", live->is_going ? "running for %s%s" : "began %s ago%s",
        isfinite(running) ? cli_time(running).at : "-", left);
    if (f->predicted_step_s > 0)
        snprintf(plan, sizeof(plan), " (plan: %s)", cli_time(f->predicted_step_s).at);
    if (isfinite(pace->tokens_per_s))
        put(s, PLAIN, "speed", "%.*f tokens/s, %s a step%s, last %" PRIu64 " step%s",
            pace->tokens_per_s < 100 ? 2 : 0, pace->tokens_per_s, cli_time(pace->step_s).at, plan,
            pace->steps, pace->steps == 1 ? "" : "s");
    else
        put(s, PLAIN, "speed", "%s%s",
            pace->steps > 0  ? "not known"
            : live->is_going ? "no step is done yet"
                             : "steps.jsonl has no step",
            plan);
    put(s, PLAIN, "", "%s", "");
}

/* ---- the curve ---- */

/* Fills the mean losses of `columns` columns, NaN where there is none; returns the columns used. */
static int curve_values(const report_live *live, int columns, double *values)
{
    int points = REPORT_LIVE_POINTS;
    while (points > 0 && live->points[points - 1].count == 0)
        points--;
    const int used = points < columns ? points : columns;
    for (int column = 0; column < used; column++) {
        double sum = 0;
        uint64_t count = 0;
        for (int i = column * points / used; i < (column + 1) * points / used; i++) {
            sum += live->points[i].sum;
            count += live->points[i].count;
        }
        values[column] = count ? sum / (double)count : NAN;
    }
    return used;
}

static void put_curve(sheet *s, const report_live *live)
{
    static const char *const eighths[2][9] = { { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" },
                                               { " ", "_", "_", ".", ".", ":", ":", "|", "|" } };
    double values[CLI_WATCH_COLUMNS], least = INFINITY, most = -INFINITY;
    const int used = curve_values(live, s->view->columns - LABEL, values);
    const int rows = curve_rows(s->view, live);
    for (int i = 0; i < used; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    for (int row = rows - 1; row >= 0; row--) {
        char text[TEXT_BYTES] = "", label[32] = "";
        for (int i = 0; i < used; i++) {
            const double share = most > least ? (values[i] - least) / (most - least) : 0;
            const int is_known = isfinite(values[i]) && isfinite(share);
            const int level = is_known ? 1 + (int)(share * (8 * rows - 1) + 0.5) : 0;
            const int here = level - 8 * row;
            strcat(text, eighths[s->view->is_ascii][here < 0 ? 0 : here > 8 ? 8 : here]);
        }
        if (most >= least && (row == rows - 1 || row == 0))
            snprintf(label, sizeof(label), "%10.4f", row == 0 ? least : most);
        put(s, PLAIN, label[0] ? label : " ", "%s", text);
    }
}

static void put_loss(sheet *s, const report_live *live)
{
    const report_line *last = report_live_last(live);
    if (!last) {
        put(s, PLAIN, "loss", "%s", "-");
    } else {
        char norm[40] = "not finite";
        if (isfinite(last->norm))
            snprintf(norm, sizeof(norm), "%.4g", last->norm);
        put(s, STRONG, "loss", "%s   gradient norm %s   learning rate %s", cli_loss(last->loss).at,
            norm, cli_rate_short(last->rate).at);
    }
    put_curve(s, live);
    if (live->stride > 1)
        put(s, FAINT, " ", "steps 1 to %u, means of %" PRIu64 " and more", last ? last->step : 0,
            live->stride);
    else
        put(s, FAINT, " ", "steps 1 to %u", last ? last->step : 0);
}

static void put_kept(sheet *s, const report_live *live)
{
    const report_line *now = &live->validation, *best = &live->best_validation;
    if (live->validation_count == 0)
        put(s, PLAIN, "validation", "%s", "none yet");
    else
        put(s, PLAIN, "validation", "%s at step %u over %.0f windows; lowest %s at %u",
            cli_loss(now->loss).at, now->step, now->windows, cli_loss(best->loss).at, best->step);
    const char *saving = live->is_saving ? "; saving now" : "";
    if (live->saved_step == 0)
        put(s, PLAIN, "saved", "no checkpoint yet%s", saving);
    else
        put(s, PLAIN, "saved", "step-%" PRIu64 ", %s ago%s", live->saved_step,
            cli_time(s->view->now - live->saved_at).at, saving);
    put(s, PLAIN, "", "%s", "");
}

/* ---- the machine ---- */

static void put_waits(sheet *s, const report_pace *pace)
{
    char text[TEXT_BYTES] = "";
    int is_used[COH_LANE_COUNT] = { 0 };
    double sum = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        sum += pace->waits[lane];
    for (int i = 0; i < COH_LANE_COUNT; i++) { /* the largest first */
        int most = -1;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            if (!is_used[lane] && pace->waits[lane] >= 0.001 &&
                (most < 0 || pace->waits[lane] > pace->waits[most]))
                most = lane;
        if (most < 0)
            break;
        is_used[most] = 1;
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%s %.1f %%", used ? ", " : ": for ",
                 coh_lane_name((coh_lane)most), 100 * pace->waits[most]);
    }
    if (sum < 0.001)
        put(s, PLAIN, "waits", "%s", pace->steps ? "none: compute waits for no lane" : "-");
    else
        put(s, PLAIN, "waits", "compute waits %.1f %% of a step%s", 100 * sum, text);
}

static void put_tiers(sheet *s, const report_live *live)
{
    const report_line *last = report_live_last(live);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        char drawn[TEXT_BYTES] = "", text[120];
        const double budget = live->run.facts.budget_bytes[tier];
        const double used = tier_bytes(live, tier);
        if (!(used > 0))
            continue;
        const char *name = coh_tier_name((coh_tier)tier), *note = last ? "" : " (predicted)";
        if (tier == COH_TIER_HOST && !live->run.facts.gpu[0])
            note = " (emulated)";
        if (!(budget > 0)) {
            put(s, PLAIN, name, "%s%s, without a limit", report_size(used).at, note);
            continue;
        }
        snprintf(text, sizeof(text), "%s of %s", report_size(used).at, report_size(budget).at);
        put(s, used > budget ? WARNING : PLAIN, name, "%-26s %5.1f %%  %s%s", text,
            100 * used / budget,
            bar(s->view, used / budget, s->view->columns - LABEL - 36 - (int)strlen(note), drawn),
            note);
    }
}

static void put_drive(sheet *s, const report_live *live, const report_pace *pace)
{
    const double reads = pace->link_bytes[COH_LANE_READ], writes = pace->link_bytes[COH_LANE_WRITE];
    const double written = live->link_bytes[COH_LANE_WRITE], life = live->run.facts.endurance_bytes;
    char wear[80] = "", day[80] = "";
    if (!has_drive(live))
        return;
    put(s, PLAIN, "drive", "%s read, %s written a step", report_written(reads).at,
        report_written(writes).at);
    if (pace->step_s > 0)
        snprintf(day, sizeof(day), ", %s a day", report_written(writes / pace->step_s * 86400).at);
    if (life > 0)
        snprintf(wear, sizeof(wear), ", %.2g %% of its life", 100 * written / life);
    put(s, PLAIN, "wear", "%s written in all%s%s", report_written(written).at, wear, day);
}

static void put_health(sheet *s, const report_live *live)
{
    char parts[6][120], text[TEXT_BYTES] = "";
    int count = 0;
    if (live->skipped_count)
        snprintf(parts[count++], 120, "%" PRIu64 " left out", live->skipped_count);
    if (live->slow_count)
        snprintf(parts[count++], 120, "%" PRIu64 " slow (last: %" PRIu64 ")", live->slow_count,
                 live->slow_step);
    if (live->store_retries > 0)
        snprintf(parts[count++], 120, "%.0f transfers repeated", live->store_retries);
    if (live->throttled_s > 0)
        snprintf(parts[count++], 120, "throttled %s", cli_time(live->throttled_s).at);
    if (live->bad_lines)
        snprintf(parts[count++], 120, "%" PRIu64 " unreadable", live->bad_lines);
    for (int i = 0; i < count; i++) {
        strcat(text, i ? ", " : "");
        strcat(text, parts[i]);
    }
    put(s, count ? WARNING : PLAIN, "health", "%s",
        count ? text : "no slow step, no repeated transfer, no throttling");
    put(s, PLAIN, "", "%s", "");
}

void cli_watch_draw(const report_live *live, const cli_view *view, const char *status,
                    cli_line *line)
{
    cli_view fitting = *view;
    fitting.columns = view->columns < CLI_WATCH_COLUMNS ? view->columns : CLI_WATCH_COLUMNS;
    fitting.rows = view->rows < CLI_WATCH_ROWS ? view->rows : CLI_WATCH_ROWS;
    sheet s = { .view = &fitting, .line = line };
    report_pace pace;
    char last[TEXT_BYTES];
    report_live_pace(live, &pace);
    put_head(&s, live);
    put_pace(&s, live, &pace);
    put_loss(&s, live);
    put_kept(&s, live);
    put_waits(&s, &pace);
    put_tiers(&s, live);
    put_drive(&s, live, &pace);
    put_health(&s, live);
    snprintf(last, sizeof(last), "%s", status);
    put_text(&s, FAINT, last);
}

/* ---- sentences ---- */

void cli_watch_add_status(const report_live *live, const cli_view *view, cli_line *line)
{
    const double silent_s = view->now - live->written_at;
    if (live->offset < live->bytes && live->bytes > REPORT_LIVE_MOST)
        cli_line_add(line, "reading steps.jsonl: %.0f %%; ",
                     100.0 * (double)live->offset / (double)live->bytes);
    else if (live->line_count > 0 && silent_s >= STALE_S)
        cli_line_add(line, "no step since %s; ", cli_time(silent_s).at);
    if (live->process > 0)
        cli_line_add(line, "process %" PRId64 "; ", live->process);
    cli_line_add(line, "%s quits, the run continues", view->has_keys ? "q" : "Ctrl-C");
}

/* Adds the command that continues, with the flags that it must be given again, as they were typed:
 * paths among them are of the folder in which the run was started. */
static void add_resume(const report_live *live, cli_line *line)
{
    enum { FLAGS_BYTES = 2048 };
    cli_line flags;
    char folder[CLI_PATH_BYTES], printable[FLAGS_BYTES];
    cli_recorded *recorded = cli_recorded_open(&live->run);
    cli_line_clear(&flags);
    if (recorded)
        cli_options_add_again(&recorded->options, 0, &flags);
    cli_recorded_close(recorded);
    report_copy_printable(live->run.folder, folder, sizeof(folder));
    report_copy_printable(flags.text, printable, sizeof(printable));
    cli_line_add(line, " with: cohobate train --resume ");
    cli_line_add_word(line, folder);
    cli_line_add(line, "%s",
                 flags.used < FLAGS_BYTES ? printable : " and the flags of its command");
}

static void add_saved(const report_live *live, uint64_t step, cli_line *line)
{
    if (live->saved_step == 0) {
        cli_line_add(line, ". It has no checkpoint");
        return;
    }
    cli_line_add(line, ". Resume it");
    if (live->saved_step != step)
        cli_line_add(line, " from step %" PRIu64, live->saved_step);
    add_resume(live, line);
}

void cli_watch_add_end(const report_live *live, cli_line *line)
{
    const report_facts *f = &live->run.facts;
    const uint64_t step = last_step(live), recorded = recorded_step(live);
    const char *how = f->ended_how[0] ? f->ended_how : isfinite(f->steps) ? "killed" : "";
    char of[120] = "", why[512];
    if (f->steps > 0)
        snprintf(of, sizeof(of), " of %.0f", f->steps);
    if (!live->is_going && recorded < step && recorded > 0)
        snprintf(of + strlen(of), sizeof(of) - strlen(of),
                 " (steps.jsonl ends at step %" PRIu64 ": it was cut)", recorded);
    else if (!live->is_going && recorded == 0 && (step > 0 || strcmp(how, "killed") == 0))
        snprintf(of + strlen(of), sizeof(of) - strlen(of), " (steps.jsonl has no step)");
    report_copy_printable(f->ended_sentence, why, sizeof(why));
    if (live->is_going) {
        cli_line_add(line, "The run continues: step %" PRIu64 "%s is done", step, of);
    } else if (strcmp(how, "finished") == 0) {
        cli_line_add(line, "The run finished: step %" PRIu64 "%s", step, of);
    } else if (strcmp(how, "early") == 0) {
        cli_line_add(line,
                     "The run ended early after step %" PRIu64 "%s: its validation loss had "
                     "stopped falling",
                     step, of);
    } else if (strcmp(how, "failed") == 0) {
        cli_line_add(line, "The run failed after step %" PRIu64 "%s: %s", step, of, why);
        add_saved(live, step, line);
    } else {
        cli_line_add(line, "The run %s after step %" PRIu64 "%s",
                     strcmp(how, "stopped") == 0  ? "was stopped"
                     : strcmp(how, "killed") == 0 ? "was killed"
                                                  : "ended",
                     step, of);
        add_saved(live, step, line);
    }
}

static coh_status check_saved(report_live *live, const char *folder)
{
    cli_line end;
    int is_more = 1;
    coh_status status = report_live_open(folder, live);
    while (status == COH_OK && is_more)
        status = report_live_look(live, &is_more);
    if (status != COH_OK || live->is_going || live->saved_step > 0)
        return COH_OK;
    cli_line_clear(&end);
    cli_watch_add_end(live, &end);
    if (strcmp(live->run.facts.ended_how, "finished") == 0 ||
        strcmp(live->run.facts.ended_how, "early") == 0)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s: %s, and no checkpoint is left there: put it back, or train again",
                        folder, end.text);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s: %s: train again, with --save-every N to keep the steps before a kill",
                    folder, end.text);
}

coh_status cli_watch_check_saved(const char *folder)
{
    char why[1024];
    snprintf(why, sizeof(why), "%s", coh_last_error());
    report_live *live = calloc(1, sizeof(*live));
    if (!live)
        return cli_fail(COH_ERR_MEMORY, "no memory to read how %s ended", folder);
    const coh_status status = check_saved(live, folder);
    report_live_close(live);
    free(live);
    if (status == COH_OK)
        (void)cli_fail(COH_ERR_CORRUPT, "%s", why);
    return status;
}
