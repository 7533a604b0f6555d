/* Draws a report for a terminal: 80 columns, bars of blocks. The one idea: the order is that of the
 * questions: is it fast, what holds it back, what to change, was the plan true. Next: page.c draws
 * the same as HTML. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/draw.h"
#include "report/format.h"

enum { COLUMNS = 80, BAR = 28, OPERATORS = 8 };

#define ADD(...) COH_TRY(coh_text_add(out, __VA_ARGS__))

/* Adds words in lines of COLUMNS, after `indent` spaces. */
static coh_status add_words(const char *text, int indent, coh_text *out)
{
    int column = COLUMNS + 1;
    for (const char *at = text; *at;) {
        const size_t bytes = strcspn(at, " ");
        int width = 0;
        for (size_t i = 0; i < bytes; i++)
            width += ((unsigned char)at[i] & 0xc0) != 0x80;
        if (column + 1 + width > COLUMNS) {
            ADD("%s%*s", column > COLUMNS ? "" : "\n", indent, "");
            column = indent;
        } else {
            ADD(" ");
            column++;
        }
        ADD("%.*s", (int)bytes, at);
        column += width;
        at += bytes + strspn(at + bytes, " ");
    }
    ADD("\n");
    return COH_OK;
}

static coh_status add_bar(double share, const char *full, coh_text *out)
{
    const double cells = fmin(fmax(share, 0), 1) * BAR;
    int used = (int)cells;
    for (int i = 0; i < used; i++)
        ADD("%s", full);
    if (cells - used >= 0.5) {
        ADD("▌");
        used++;
    }
    ADD("%*s", BAR - used, "");
    return COH_OK;
}

static coh_status add_head(const report_analysis *a, coh_text *out)
{
    const report_facts *f = &a->run->facts;
    char line[640];
    snprintf(line, sizeof(line), "%.100s · %s parameters · %.16s · %.100s%s%.40s",
             f->model[0] ? f->model : "a model", report_count(f->parameters).at,
             f->dtype[0] ? f->dtype : "-", f->gpu[0] ? f->gpu : f->cpu, f->started[0] ? " · " : "",
             f->started);
    ADD("cohobate report  %.120s\n",
        a->run->folder ? a->run->folder : "of a plan: nothing ran, all times are predicted");
    COH_TRY(add_words(line, 0, out));
    ADD("\n");
    COH_TRY(add_words(a->verdict, 2, out));
    ADD("\n  tokens/s %s · model FLOPs used %s · of in-memory speed %s\n",
        report_count(a->tokens_per_s).at, report_percent(a->utilisation).at,
        report_percent(a->of_in_memory).at);
    ADD("  step %s (predicted %s%s, %s)", report_time(a->step_s).at, report_time(a->predicted_s).at,
        report_guesses(&a->run->facts, 1) ? ": a guess" : "",
        report_change(a->step_s / a->predicted_s - 1).at);
    if (a->timed_count)
        ADD(" · median of %zu, %s to %s", a->timed_count, report_time(a->least_s).at,
            report_time(a->most_s).at);
    ADD("\n");
    if (a->run->facts.first_step > 0)
        ADD("  resumed at step %.0f: times are of the steps since\n", a->run->facts.first_step);
    return COH_OK;
}

static coh_status add_actions(const report_analysis *a, coh_text *out)
{
    if (a->action_count)
        ADD("\nWHAT TO DO\n");
    for (int i = 0; i < a->action_count; i++) {
        char line[512];
        snprintf(line, sizeof(line), "%d. %s (%s%s): %s", i + 1,
                 report_change(a->actions[i].gain).at, a->actions[i].basis,
                 a->actions[i].is_guess ? "; a guess, not calibrated" : "", a->actions[i].text);
        COH_TRY(add_words(line, 2, out));
    }
    return COH_OK;
}

static coh_status add_parts(const report_analysis *a, coh_text *out)
{
    report_part parts[REPORT_PARTS];
    const int count = report_parts(a, parts);
    const double window = (double)a->window.window_ns;
    if (count == 0)
        return COH_OK;
    if (a->is_measured)
        ADD("\nWHERE THE TIME GOES  step %" PRIu64 ", %s\n", a->window.step + 1,
            report_time(window * 1e-9).at);
    else
        ADD("\nWHERE THE TIME GOES  predicted step, %s\n", report_time(window * 1e-9).at);
    if (a->window.idle_ns > a->window.issue_ns)
        ADD("  waits go to the lane that ended them; the verdict follows them to their origin\n");
    for (int i = 0; i < count; i++) {
        const double share = (double)parts[i].ns / window;
        ADD("  ");
        COH_TRY(report_add_cell(out, parts[i].name, 18));
        ADD(" ");
        COH_TRY(add_bar(share, parts[i].kind == REPORT_PART_COMPUTE ? "█" : "░", out));
        COH_TRY(report_add_cell(out, report_time((double)parts[i].ns * 1e-9).at, -11));
        COH_TRY(report_add_cell(out, report_percent(share).at, -9));
        ADD("\n");
    }
    return COH_OK;
}

static coh_status add_row(coh_text *out, const char *const *cells, const int *columns, int count)
{
    ADD("  ");
    for (int i = 0; i < count; i++)
        COH_TRY(report_add_cell(out, cells[i], columns[i]));
    ADD("\n");
    return COH_OK;
}

static coh_status add_lanes(const report_analysis *a, coh_text *out)
{
    static const int columns[] = { 9, -10, -11, -11, -12, -12, -12 };
    static const char *const head[] = { "lane",  "busy", "exposed", "hidden",
                                        "moved", "rate", "profile" };
    const report_window *w = &a->window;
    if (!a->has_window)
        return COH_OK;
    ADD("\nLANES\n");
    COH_TRY(add_row(out, head, columns, 7));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const report_lane *l = &w->lanes[lane];
        if (l->busy_ns == 0 && l->bytes == 0)
            continue;
        const double busy = (double)l->busy_ns * 1e-9;
        const int moves = lane != COH_LANE_COMPUTE && lane != COH_LANE_HOST;
        const report_text busy_text = report_time(busy),
                          exposed = report_time(lane ? (double)l->exposed_ns * 1e-9 : NAN),
                          hidden = report_time(lane ? (double)l->hidden_ns * 1e-9 : NAN),
                          moved = report_size(moves ? (double)l->bytes : NAN),
                          rate = report_rate(moves ? (double)l->bytes / busy : NAN),
                          profile = report_rate(w->trace->lane_bytes_per_s[lane] > 0
                                                    ? w->trace->lane_bytes_per_s[lane]
                                                    : NAN);
        const char *const cells[] = { coh_lane_name((coh_lane)lane),
                                      busy_text.at,
                                      exposed.at,
                                      hidden.at,
                                      moved.at,
                                      rate.at,
                                      profile.at };
        COH_TRY(add_row(out, cells, columns, 7));
    }
    return COH_OK;
}

static coh_status add_memory(const report_analysis *a, coh_text *out)
{
    static const int columns[] = { 9, -14, -14, -14, -14 };
    static const char *const head[] = { "memory", "peak", "predicted", "budget", "step shown" };
    int is_any = 0;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        const report_facts *f = &a->run->facts;
        const double measured = a->run->peak_bytes[tier];
        if (!(measured > 0) && !(f->predicted_peak_bytes[tier] > 0))
            continue;
        if (!is_any++) {
            ADD("\n");
            COH_TRY(add_row(out, head, columns, 5));
        }
        const report_text peak = report_size(measured > 0 ? measured : NAN),
                          predicted = report_size(f->predicted_peak_bytes[tier]),
                          budget = report_size(f->budget_bytes[tier]),
                          shown =
                              report_size(a->has_window ? (double)a->memory.peak_bytes[tier] : NAN);
        const char *const cells[] = { coh_tier_name((coh_tier)tier), peak.at, predicted.at,
                                      budget.at, shown.at };
        COH_TRY(add_row(out, cells, columns, 5));
    }
    return COH_OK;
}

static coh_status add_operators(const report_analysis *a, coh_text *out)
{
    static const int columns[] = { 34, -12, -12, -10, -10 };
    const char *const head[] = { "operator", "predicted", "measured", "error", "updates" };
    if (a->operator_count == 0)
        return COH_OK;
    ADD("\n%s\n",
        a->measured_count ? "OPERATORS  most seconds off first" : "OPERATORS  longest first");
    COH_TRY(add_row(out, head, columns, 5));
    for (uint32_t i = 0; i < a->operator_count && i < OPERATORS; i++) {
        const report_operator *o = &a->operators[i];
        const coh_trace_operator *facts = &a->run->trace->operators[o->index];
        const report_text predicted = report_time(o->predicted_s),
                          measured = report_time(o->measured_s),
                          error = report_change(o->measured_s / o->predicted_s - 1);
        char name[200];
        snprintf(name, sizeof(name), "%.199s", facts->name);
        coh_text_make_printable(name);
        const char *const cells[] = { name, predicted.at, measured.at, error.at, facts->updates };
        COH_TRY(add_row(out, cells, columns, 5));
    }
    return COH_OK;
}

/* A text that is longer than the rest of its line goes to separate lines. */
static coh_status add_what_if(const report_what_if *row, coh_text *out)
{
    const int fits = !isnan(row->step_s);
    const int is_long = strlen(row->text) > COLUMNS - 26;
    ADD("  %12s %c%8s  %s\n", fits ? report_time(row->step_s).at : "does not fit",
        row->is_quick ? '~' : ' ', report_change(row->gain).at, is_long ? "" : row->text);
    return is_long ? add_words(row->text, 26, out) : COH_OK;
}

static coh_status add_rest(const report_analysis *a, coh_text *out)
{
    if (a->what_if_count)
        ADD("\nWHAT IF  %s, so \"as it is\" is not the step above;\n"
            "         gains are over \"as it is\"; rows with ~ and their gains are of the\n"
            "         quick search, also of the plan as it is\n",
            report_guesses(&a->run->facts, 0) ? "a guess, not calibrated"
                                              : "predicted without calibration");
    for (int i = 0; i < a->what_if_count; i++)
        COH_TRY(add_what_if(&a->what_ifs[i], out));
    if (a->needs_no_memory)
        ADD("  more device memory changes nothing: all data is in it\n");
    if (a->unplanned_count)
        ADD("  %d more not planned: time was short\n", a->unplanned_count);
    if (a->slow_count)
        ADD("\nSLOW STEPS  %d took more than 1.5 times the median\n", a->slow_count);
    for (int i = 0; i < a->slow_count && i < REPORT_SLOW_STEPS; i++)
        ADD("  step %" PRIu64 "  %s  %s\n", a->slow_steps[i].step,
            report_time(a->slow_steps[i].seconds).at, a->slow_steps[i].why);
    if (a->run->skipped_count)
        ADD("\n%" PRIu64 " step%s left out: numbers were not finite\n", a->run->skipped_count,
            a->run->skipped_count == 1 ? " was" : "s were");
    if (report_fallback(a->run, 0))
        ADD("\nSLOWER WAYS THAN USUAL\n");
    for (size_t i = 0; report_fallback(a->run, i); i++)
        COH_TRY(add_words(report_fallback(a->run, i), 2, out));
    if (a->run->note_count)
        ADD("\nNOTES\n");
    for (int i = 0; i < a->run->note_count; i++)
        COH_TRY(add_words(a->run->notes[i], 2, out));
    return COH_OK;
}

coh_status report_draw_text(const report_analysis *a, coh_text *out)
{
    COH_TRY(add_head(a, out));
    COH_TRY(add_actions(a, out));
    COH_TRY(add_parts(a, out));
    COH_TRY(add_lanes(a, out));
    COH_TRY(add_memory(a, out));
    COH_TRY(add_operators(a, out));
    COH_TRY(add_rest(a, out));
    /* names come from files and must not send commands to a terminal; lines stay lines */
    for (char *line = out->data; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        coh_text_make_printable(line);
        if (end)
            *end = '\n';
        line = end ? end + 1 : NULL;
    }
    return COH_OK;
}
