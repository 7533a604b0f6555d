/* Draws the figures of the HTML report as SVG. The one idea: no figure grows with the run: bars
 * that would be narrower than a pixel become one bar, and curves become means. Next: page.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "report/format.h"
#include "report/html.h"

#define ADD(...) COH_TRY(coh_text_add(out, __VA_ARGS__))

enum {
    BARS_MOST = 4500, /* drawn one by one; more are merged to BAR_PLACES places of a lane */
    BAR_PLACES = 400,
    ROW_PREDICTED = 13,
    ROW_MEASURED = 28,
    LANE_GAP = 10,
    AXIS = 22,
    MEMORY_HEIGHT = 150,
    CURVE_HEIGHT = 130,
    CURVE_POINTS = 400,
    NAME = 48 /* characters of a name: escaped ones may be six times as long */
};

const char *report_style_of(const coh_trace *trace, uint32_t opcode, int lane)
{
    static const struct {
        const char *opcode, *style;
    } table[] = { { "forward", "forward" },     { "backward", "backward" }, { "add", "backward" },
                  { "recompute", "recompute" }, { "update", "update" },     { "norm", "update" },
                  { "clip", "update" } };
    if (lane != COH_LANE_COMPUTE && lane != COH_LANE_HOST)
        return "move";
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(trace->opcodes[opcode], table[i].opcode) == 0)
            return table[i].style;
    return "other";
}

coh_status report_figure_bar(const char *style, double begin, double end, coh_text *out)
{
    return coh_text_add(out,
                        "<svg width=\"100%%\" height=\"14\" aria-hidden=\"true\">"
                        "<rect class=\"ground\" width=\"100%%\" height=\"14\"/>"
                        "<rect class=\"%s\" x=\"%.2f%%\" width=\"%.2f%%\" height=\"14\"/></svg>",
                        style, 100 * fmin(fmax(begin, 0), 1), 100 * fmin(fmax(end - begin, 0), 1));
}

/* ---- lanes ---- */

/* A drawing of lanes: of a window, and its predicted one. */
typedef struct lanes {
    const report_window *window, *predicted; /* predicted: NULL: the window itself is */
    double scale_ns, coarse_ns;              /* the width; bars below coarse_ns are merged */
} lanes;

static coh_status add_title(const report_window *w, const report_piece *p, coh_text *out)
{
    const coh_trace *t = w->trace;
    const coh_trace_instruction *in = &t->instructions[p->instruction];
    ADD("<title>");
    COH_TRY(report_add_escaped(out, t->opcodes[in->opcode], NAME));
    if (in->operator_index != COH_TRACE_NONE) {
        ADD(" ");
        COH_TRY(report_add_escaped(out, t->operators[in->operator_index].name, NAME));
    }
    if (in->chunk != COH_TRACE_NONE)
        ADD(", chunk %" PRIu32, in->chunk);
    if (in->stream != COH_TRACE_NONE) {
        ADD(" (");
        COH_TRY(report_add_escaped(out, t->purposes[in->stream], NAME));
        ADD(")");
    }
    ADD(": %s from %s", report_time((double)(p->end_ns - p->begin_ns) * 1e-9).at,
        report_time((double)p->begin_ns * 1e-9).at);
    if (!w->is_predicted)
        ADD(", predicted %s%s",
            report_time((double)(in->predicted_end_ns - in->predicted_begin_ns) * 1e-9).at,
            in->is_shared ? "; its share of a command that was measured as a whole" : "");
    if (in->bytes && in->chunk != COH_TRACE_NONE)
        ADD(", %s", report_size((double)in->bytes).at);
    ADD("</title>");
    return COH_OK;
}

/* Kinds of computing differ in height, too, so that they differ without colour. */
static void extent_of(const char *style, int height, int *top, int *bottom)
{
    *top = strcmp(style, "backward") == 0 || strcmp(style, "update") == 0 ? height / 4
           : strcmp(style, "other") == 0                                  ? height / 2
                                                                          : 0;
    *bottom =
        strcmp(style, "update") == 0 || strcmp(style, "recompute") == 0 ? height * 3 / 4 : height;
}

/* A bar of one piece or of several merged ones, which end at `end_ns`. */
static coh_status add_bar(const lanes *l, const report_window *w, int lane, uint32_t first,
                          uint32_t count, uint64_t end_ns, int y, int height, coh_text *out)
{
    const report_piece *p = &w->lanes[lane].pieces[first];
    const coh_trace_instruction *in = &w->trace->instructions[p->instruction];
    const char *style = report_style_of(w->trace, in->opcode, lane);
    const double x = 100 * (double)p->begin_ns / l->scale_ns;
    const double width = 100 * (double)(end_ns - p->begin_ns) / l->scale_ns;
    int top, bottom;
    extent_of(style, height, &top, &bottom);
    ADD("<rect class=\"b%s %s%s\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\" height=\"%d\">",
        width > 0.4 ? " w" : "", style, w->is_predicted && l->predicted ? " predicted" : "", x,
        y + top, width, bottom - top);
    if (count == 1)
        COH_TRY(add_title(w, p, out));
    else
        ADD("<title>%" PRIu32 " instructions: %s from %s</title>", count,
            report_time((double)(end_ns - p->begin_ns) * 1e-9).at,
            report_time((double)p->begin_ns * 1e-9).at);
    ADD("</rect>");
    if (width > 4 && height == ROW_MEASURED) {
        ADD("<svg x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\" height=\"%d\"><text class=\"in\" x=\"5\" "
            "y=\"%d\">",
            x, y, width, height, (top + bottom) / 2 + 4);
        if (count > 1)
            ADD("%" PRIu32 " instructions", count);
        else if (in->operator_index != COH_TRACE_NONE)
            COH_TRY(report_add_escaped(out, w->trace->operators[in->operator_index].name, NAME));
        else
            COH_TRY(report_add_escaped(out, w->trace->opcodes[in->opcode], NAME));
        ADD("</text></svg>");
    }
    return COH_OK;
}

static coh_status add_bars(const lanes *l, const report_window *w, int lane, int y, int height,
                           coh_text *out)
{
    const report_lane *of = &w->lanes[lane];
    for (uint32_t p = 0; p < of->piece_count;) {
        uint64_t end = of->pieces[p].end_ns;
        uint32_t next = p + 1;
        while (next < of->piece_count && l->coarse_ns > 0 &&
               (double)(of->pieces[next].end_ns - of->pieces[p].begin_ns) < l->coarse_ns) {
            end = of->pieces[next].end_ns > end ? of->pieces[next].end_ns : end;
            next++;
        }
        COH_TRY(add_bar(l, w, lane, p, next - p, end, y, height, out));
        p = next;
    }
    return COH_OK;
}

static coh_status add_gaps(const lanes *l, int y, coh_text *out)
{
    const report_window *w = l->window;
    for (uint32_t i = 0; i < w->gap_count; i++) {
        const report_gap *gap = &w->gaps[i];
        const double ns = (double)(gap->end_ns - gap->begin_ns);
        if (ns < l->coarse_ns)
            continue;
        ADD("<rect class=\"b wait\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\" height=\"%d\"><title>"
            "idle %s",
            100 * (double)gap->begin_ns / l->scale_ns, y, 100 * ns / l->scale_ns, ROW_MEASURED,
            report_time(ns * 1e-9).at);
        if (gap->waited != COH_TRACE_NONE) {
            const coh_trace_instruction *in = &w->trace->instructions[gap->waited];
            ADD(": waits for %s %s", coh_lane_name((coh_lane)gap->lane),
                in->operator_index != COH_TRACE_NONE ? "of " : "");
            if (in->operator_index != COH_TRACE_NONE)
                COH_TRY(
                    report_add_escaped(out, w->trace->operators[in->operator_index].name, NAME));
            if (in->chunk != COH_TRACE_NONE)
                ADD(", chunk %" PRIu32, in->chunk);
        }
        ADD("</title></rect>");
    }
    return COH_OK;
}

static coh_status add_axis(double seconds, int height, coh_text *out)
{
    const double power = pow(10, floor(log10(seconds / 5)));
    const double about = seconds / 5 / power;
    const double step = power * (about < 2 ? 2 : about < 5 ? 5 : 10);
    ADD("<g class=\"ticks\">");
    for (int i = 0; i * step < seconds * 0.94; i++) {
        const double at = i * step;
        ADD("<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"%d\"/><text "
            "class=\"mute\" x=\"%.3f%%\" y=\"%d\">%s</text>",
            100 * at / seconds, 100 * at / seconds, height - 16, 100 * at / seconds, height - 3,
            at > 0 ? report_time(at).at : "0");
    }
    ADD("</g>");
    return COH_OK;
}

static int lane_height(const lanes *l)
{
    return (l->predicted ? ROW_PREDICTED + 2 : 0) + ROW_MEASURED + LANE_GAP;
}

static coh_status add_lane_svg(const lanes *l, coh_text *out)
{
    const report_window *w = l->window;
    int y = 2, height = AXIS;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        height += w->lanes[lane].piece_count ? lane_height(l) : 0;
    ADD("<div class=\"chart\"><svg width=\"100%%\" height=\"%d\" aria-hidden=\"true\">", height);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (w->lanes[lane].piece_count == 0)
            continue;
        const int middle = y + (l->predicted ? ROW_PREDICTED + 2 : 0) + ROW_MEASURED / 2;
        ADD("<text x=\"0\" y=\"%d\">%s</text><text class=\"mute\" x=\"0\" y=\"%d\">busy %.0f "
            "%%</text>",
            middle, coh_lane_name((coh_lane)lane), middle + 13,
            100 * (double)w->lanes[lane].busy_ns / (double)w->window_ns);
        y += lane_height(l);
    }
    ADD("</svg><div class=\"pane\" tabindex=\"0\" role=\"group\" aria-label=\"Lanes of a step; + "
        "and - zoom, arrows move\"><svg class=\"lanes\" width=\"100%%\" height=\"%d\" "
        "data-seconds=\"%.9g\" role=\"img\" aria-label=\"Each instruction of a step by lane and "
        "time\">",
        height, l->scale_ns * 1e-9);
    COH_TRY(add_axis(l->scale_ns * 1e-9, height, out));
    y = 2;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (w->lanes[lane].piece_count == 0)
            continue;
        int row = y;
        if (l->predicted) {
            COH_TRY(add_bars(l, l->predicted, lane, row, ROW_PREDICTED, out));
            row += ROW_PREDICTED + 2;
        }
        COH_TRY(add_bars(l, w, lane, row, ROW_MEASURED, out));
        if (lane == COH_LANE_COMPUTE)
            COH_TRY(add_gaps(l, row, out));
        y += lane_height(l);
    }
    ADD("</svg></div></div>");
    return COH_OK;
}

static coh_status add_lane_legend(coh_text *out)
{
    static const struct {
        const char *style, *text;
    } table[] = { { "forward", "forward" },
                  { "recompute", "recompute" },
                  { "backward", "backward" },
                  { "update", "norm, clip, update" },
                  { "other", "other" },
                  { "move", "transfer" },
                  { "wait", "idle: compute waits" } };
    int top, bottom;
    ADD("<ul class=\"legend\">");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        extent_of(table[i].style, 16, &top, &bottom);
        ADD("<li><svg width=\"16\" height=\"16\" aria-hidden=\"true\"><rect class=\"%s\" y=\"%d\" "
            "width=\"16\" height=\"%d\"/></svg>%s</li>",
            table[i].style, top, bottom - top, table[i].text);
    }
    ADD("</ul>");
    return COH_OK;
}

coh_status report_figure_lanes(const report_analysis *a, coh_text *out)
{
    report_window predicted = { 0 };
    lanes l = { .window = &a->window, .scale_ns = (double)a->window.window_ns };
    uint64_t bars = 0;
    if (!a->window.is_predicted) {
        const coh_status status = report_window_open(a->run->trace, UINT32_MAX, &predicted);
        if (status == COH_ERR_MEMORY)
            return status;
        if (status == COH_OK && predicted.window_ns > 0)
            l.predicted = &predicted;
    }
    if (l.predicted)
        l.scale_ns = fmax(l.scale_ns, (double)predicted.window_ns);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        bars += a->window.lanes[lane].piece_count + predicted.lanes[lane].piece_count;
    l.coarse_ns = bars > BARS_MOST ? l.scale_ns / BAR_PLACES : 0;
    coh_status status = coh_text_add(
        out, "<div class=\"zoomable\"><div class=\"tools\"><button type=\"button\" "
             "data-zoom=\"2\">Zoom in</button><button type=\"button\" data-zoom=\"0.5\">Zoom "
             "out</button><button type=\"button\" data-zoom=\"0\">Whole step</button></div>");
    if (status == COH_OK)
        status = add_lane_svg(&l, out);
    if (status == COH_OK)
        status = coh_text_add(out, "<p class=\"info\" aria-live=\"polite\">Point at a bar for its "
                                   "instruction. Keys + and - zoom, arrows move.</p></div>");
    if (status == COH_OK)
        status = add_lane_legend(out);
    if (status == COH_OK && l.coarse_ns > 0)
        status = coh_text_add(out,
                              "<p class=\"soft\">The step has %" PRIu32
                              " instructions; neighbours that would be narrower than %s are drawn "
                              "as one bar.</p>",
                              a->run->trace->instruction_count, report_time(l.coarse_ns * 1e-9).at);
    report_window_close(&predicted);
    return status;
}

/* ---- memory ---- */

static const uint64_t *moment_of(const report_memory *m, int tier, int point)
{
    return m->bytes + ((size_t)tier * REPORT_POINTS + (size_t)point) * m->purpose_count;
}

/* The upper edge of `purpose` in the stack, in per cent of `top` from above. */
static double edge(const report_analysis *a, int tier, int point, int64_t purpose, double top)
{
    double bytes = (double)a->run->trace->pinned_bytes[tier];
    for (int64_t p = 0; p <= purpose; p++)
        bytes += (double)moment_of(&a->memory, tier, point)[p];
    return 100 - 100 * bytes / top;
}

static coh_status add_area(const report_analysis *a, int tier, int64_t purpose, double top,
                           coh_text *out)
{
    ADD("<path class=\"p%d\" d=\"M0 %.2f", (int)((purpose + 1) % 8),
        edge(a, tier, 0, purpose, top));
    for (int point = 0; point < REPORT_POINTS; point++) {
        const double y = edge(a, tier, point, purpose, top);
        if (point == 0 || fabs(y - edge(a, tier, point - 1, purpose, top)) > 0.004)
            ADD("H%dV%.2f", point, y);
    }
    ADD("H%d", REPORT_POINTS);
    for (int point = REPORT_POINTS - 1; point >= 0 && purpose >= 0; point--) {
        const double y = edge(a, tier, point, purpose - 1, top);
        if (point == REPORT_POINTS - 1 ||
            fabs(y - edge(a, tier, point + 1, purpose - 1, top)) > 0.004)
            ADD("H%dV%.2f", point + 1, y);
    }
    ADD(purpose >= 0 ? "H0Z\"/>" : "V100H0Z\"/>");
    return COH_OK;
}

static uint64_t most_of(const report_analysis *a, int tier, uint32_t purpose)
{
    uint64_t most = 0;
    for (int point = 0; point < REPORT_POINTS; point++) {
        const uint64_t bytes = moment_of(&a->memory, tier, point)[purpose];
        most = bytes > most ? bytes : most;
    }
    return most;
}

static coh_status add_level(const char *style, double share, coh_text *out)
{
    return coh_text_add(out, "<path class=\"%s\" d=\"M0 %.2fH%d\"/>", style, 100 - 100 * share,
                        REPORT_POINTS);
}

static coh_status add_memory_legend(const report_analysis *a, int tier, coh_text *out)
{
    const coh_trace *t = a->run->trace;
    ADD("<ul class=\"legend\">");
    for (int64_t p = (int64_t)t->purpose_count - 1; p >= -1; p--) {
        const uint64_t bytes = p < 0 ? t->pinned_bytes[tier] : most_of(a, tier, (uint32_t)p);
        if (bytes == 0)
            continue;
        ADD("<li><svg width=\"16\" height=\"12\" aria-hidden=\"true\"><rect class=\"p%d\" "
            "width=\"16\" height=\"12\"/></svg>",
            (int)((p + 1) % 8));
        COH_TRY(report_add_escaped(out, p < 0 ? "pinned" : t->purposes[p], NAME));
        ADD(": at most %s</li>", report_size((double)bytes).at);
    }
    ADD("</ul>");
    return COH_OK;
}

static coh_status add_tier(const report_analysis *a, int tier, coh_text *out)
{
    const coh_trace *t = a->run->trace;
    const double peak = (double)a->memory.peak_bytes[tier];
    if (a->memory.peak_bytes[tier] == t->pinned_bytes[tier])
        return coh_text_add(out, "<h3>%s</h3><p>%s all the time.</p>",
                            coh_tier_name((coh_tier)tier), report_size(peak).at);
    const double arena =
        fmax(a->run->facts.predicted_peak_bytes[tier], (double)t->arena_bytes[tier]);
    const int has_budget = t->budget_bytes[tier] != UINT64_MAX && t->budget_bytes[tier] > 0 &&
                           (double)t->budget_bytes[tier] < 3 * fmax(peak, arena);
    const double budget = has_budget ? (double)t->budget_bytes[tier] : 0;
    const double top = fmax(fmax(peak, arena), budget) * 1.04;
    ADD("<figure><h3>%s</h3><div class=\"chart\"><svg width=\"100%%\" height=\"%d\" "
        "aria-hidden=\"true\"><text x=\"0\" y=\"10\" class=\"mute\">%s</text><text x=\"0\" "
        "y=\"%d\" class=\"mute\">0</text></svg><svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 "
        "%d 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Bytes in use along a "
        "step\"><rect class=\"ground\" width=\"%d\" height=\"100\"/>",
        coh_tier_name((coh_tier)tier), MEMORY_HEIGHT, report_size(top).at, MEMORY_HEIGHT - 2,
        MEMORY_HEIGHT, REPORT_POINTS, REPORT_POINTS);
    if (t->pinned_bytes[tier])
        COH_TRY(add_area(a, tier, -1, top, out));
    for (uint32_t p = 0; p < t->purpose_count; p++)
        if (most_of(a, tier, p))
            COH_TRY(add_area(a, tier, p, top, out));
    if (has_budget)
        COH_TRY(add_level("budget", budget / top, out));
    if (arena > 0)
        COH_TRY(add_level("peak", arena / top, out));
    ADD("</svg></div><figcaption>In the step: at most %s. Dotted: the plan's peak, %s",
        report_size(peak).at, report_size(arena).at);
    if (a->run->peak_bytes[tier] > 0)
        ADD("; measured in the run: %s", report_size(a->run->peak_bytes[tier]).at);
    if (has_budget)
        ADD(". Dashed: the budget, %s", report_size(budget).at);
    else if (t->budget_bytes[tier] != UINT64_MAX && t->budget_bytes[tier] > 0)
        ADD(". The budget, %s, is far above", report_size((double)t->budget_bytes[tier]).at);
    ADD(".</figcaption>");
    COH_TRY(add_memory_legend(a, tier, out));
    ADD("</figure>");
    return COH_OK;
}

coh_status report_figure_memory(const report_analysis *a, coh_text *out)
{
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (a->memory.peak_bytes[tier] > 0)
            COH_TRY(add_tier(a, tier, out));
    return COH_OK;
}

/* ---- curves ---- */

typedef enum curve_kind {
    CURVE_LOSS,
    CURVE_NORM,
    CURVE_RATE,
    CURVE_TOKENS,
    CURVE_KINDS
} curve_kind;

static double value_of(const report_analysis *a, size_t row, curve_kind kind)
{
    const report_row *r = &a->run->rows[row];
    switch (kind) {
    case CURVE_LOSS:
        return (double)r->loss;
    case CURVE_NORM:
        return (double)r->norm;
    case CURVE_RATE:
        return (double)r->rate;
    case CURVE_TOKENS:
        return a->run->facts.tokens_per_step / (double)r->seconds;
    case CURVE_KINDS:
        break;
    }
    return NAN;
}

/* The mean of the finite values of point `point` of CURVE_POINTS. */
static double mean_at(const report_analysis *a, size_t point, size_t points, curve_kind kind)
{
    const size_t rows = a->run->row_count;
    double sum = 0, count = 0;
    for (size_t row = point * rows / points; row < (point + 1) * rows / points; row++) {
        const double value = value_of(a, row, kind);
        if (isfinite(value)) {
            sum += value;
            count++;
        }
    }
    return count > 0 ? sum / count : NAN;
}

typedef struct curve_range {
    double least, most, last;
    uint32_t first_step, last_step;
} curve_range;

/* The mean of the finite losses of point `point` of CURVE_POINTS of a run's validations, and the
 * step of the last of them. */
static double validation_at(const report_run *run, size_t point, size_t points, uint32_t *out_step)
{
    const size_t count = run->validation_count, end = (point + 1) * count / points;
    double sum = 0, finite = 0;
    for (size_t i = point * count / points; i < end; i++)
        if (isfinite(run->validations[i].loss)) {
            sum += (double)run->validations[i].loss;
            finite++;
        }
    *out_step = run->validations[end - 1].step;
    return finite > 0 ? sum / finite : NAN;
}

static size_t validation_points(const report_run *run)
{
    return run->validation_count < CURVE_POINTS ? run->validation_count : CURVE_POINTS;
}

/* Widens the range by a run's validations. */
static void include_validations(const report_run *run, curve_range *r)
{
    const size_t points = validation_points(run);
    uint32_t step;
    for (size_t point = 0; point < points; point++) {
        const double loss = validation_at(run, point, points, &step);
        if (!isfinite(loss))
            continue;
        r->least = fmin(r->least, loss);
        r->most = fmax(r->most, loss);
    }
}

static int range_of(const report_analysis *const *all, int count, curve_kind kind, curve_range *r)
{
    *r = (curve_range){ .least = INFINITY, .most = -INFINITY, .first_step = UINT32_MAX };
    for (int run = 0; run < count; run++) {
        const size_t rows = all[run]->run->row_count;
        const size_t points = rows < CURVE_POINTS ? rows : CURVE_POINTS;
        for (size_t point = 0; point < points; point++) {
            const double value = mean_at(all[run], point, points, kind);
            if (!isfinite(value))
                continue;
            r->least = fmin(r->least, value);
            r->most = fmax(r->most, value);
            r->last = run == 0 ? value : r->last;
        }
        if (kind == CURVE_LOSS && rows > 0)
            include_validations(all[run]->run, r);
        if (rows > 0 && all[run]->run->rows[0].step < r->first_step)
            r->first_step = all[run]->run->rows[0].step;
        if (rows > 0 && all[run]->run->rows[rows - 1].step > r->last_step)
            r->last_step = all[run]->run->rows[rows - 1].step;
    }
    return r->least <= r->most;
}

/* Adds a point to a path: a place of the figure, after "M" or "L". */
static coh_status add_point(char letter, uint32_t step, double value, const curve_range *r,
                            coh_text *out)
{
    const double width = r->last_step > r->first_step ? r->last_step - r->first_step : 1;
    const double height = r->most > r->least ? r->most - r->least : 1;
    return coh_text_add(out, "%c%.1f %.1f", letter, 1000 * (step - r->first_step) / width,
                        r->most > r->least ? 96 - 92 * (value - r->least) / height : 50);
}

static coh_status add_curve(const report_analysis *a, int run, curve_kind kind,
                            const curve_range *r, coh_text *out)
{
    const size_t rows = a->run->row_count;
    const size_t points = rows < CURVE_POINTS ? rows : CURVE_POINTS;
    int is_drawing = 0;
    ADD("<path class=\"line r%d\" d=\"M0 100", run % 8);
    for (size_t point = 0; point < points; point++) {
        const double value = mean_at(a, point, points, kind);
        const uint32_t step = a->run->rows[(2 * point + 1) * rows / (2 * points)].step;
        if (isfinite(value))
            COH_TRY(add_point(is_drawing ? 'L' : 'M', step, value, r, out));
        is_drawing = isfinite(value);
    }
    ADD("\"/>");
    return COH_OK;
}

/* Draws the validations of a run: a line, or with `is_dots` its points, as strokes without length,
 * which stay round at any width of the figure. */
static coh_status add_validations(const report_run *of, int run, int is_dots, const curve_range *r,
                                  coh_text *out)
{
    const size_t points = validation_points(of);
    int is_drawing = 0;
    ADD("<path class=\"%s r%d\" d=\"M0 100", is_dots ? "dots" : "line held", run % 8);
    for (size_t point = 0; point < points; point++) {
        uint32_t step;
        const double loss = validation_at(of, point, points, &step);
        const int is_inside = isfinite(loss) && step >= r->first_step && step <= r->last_step;
        if (is_inside)
            COH_TRY(add_point(is_drawing && !is_dots ? 'L' : 'M', step, loss, r, out));
        if (is_inside && is_dots)
            ADD("h0");
        is_drawing = is_inside;
    }
    ADD("\"/>");
    return COH_OK;
}

static coh_status add_all_validations(const report_analysis *const *analyses, int count,
                                      const curve_range *r, coh_text *out)
{
    for (int run = 0; run < count; run++)
        for (int is_dots = 0; is_dots < 2; is_dots++)
            if (analyses[run]->run->row_count > 0 && analyses[run]->run->validation_count > 0)
                COH_TRY(add_validations(analyses[run]->run, run, is_dots, r, out));
    return COH_OK;
}

/* Adds what the lines of the losses are, if a run has validations. */
static coh_status add_loss_legend(const report_analysis *const *analyses, int count, coh_text *out)
{
    int has_any = 0;
    for (int run = 0; run < count; run++)
        has_any |= analyses[run]->run->validation_count > 0;
    if (has_any)
        ADD("<ul class=\"legend\"><li><svg width=\"34\" height=\"10\" aria-hidden=\"true\"><path "
            "class=\"line r0\" d=\"M0 5H34\"/></svg>training</li><li><svg width=\"34\" "
            "height=\"10\" aria-hidden=\"true\"><path class=\"line held r0\" d=\"M0 5H34\"/><path "
            "class=\"dots r0\" d=\"M17 5h0\"/></svg>validation</li></ul>");
    return COH_OK;
}

/* Adds the drawing of one kind of curve. */
static coh_status add_figure(const report_analysis *const *analyses, int count, curve_kind kind,
                             const curve_range *range, coh_text *out)
{
    static const char *const names[] = { "Loss", "Gradient norm", "Learning rate", "Tokens/s" };
    ADD("<figure><h3>%s</h3><svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 1000 100\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s by step\"><rect "
        "class=\"ground\" width=\"1000\" height=\"100\"/>",
        names[kind], CURVE_HEIGHT, names[kind]);
    for (int run = 0; run < count; run++)
        if (analyses[run]->run->row_count > 0)
            COH_TRY(add_curve(analyses[run], run, kind, range, out));
    if (kind == CURVE_LOSS)
        COH_TRY(add_all_validations(analyses, count, range, out));
    ADD("</svg><figcaption>Steps %" PRIu32 " to %" PRIu32 "; from %s to %s, at the end "
        "%s",
        range->first_step, range->last_step, report_real(range->least).at,
        report_real(range->most).at, report_real(range->last).at);
    const report_run *run = analyses[0]->run;
    if (kind == CURVE_LOSS && run->validation_count > 0)
        ADD("; validation %s at step %" PRIu32,
            report_real((double)run->validations[run->validation_count - 1].loss).at,
            run->validations[run->validation_count - 1].step);
    ADD("</figcaption>");
    if (kind == CURVE_LOSS)
        COH_TRY(add_loss_legend(analyses, count, out));
    ADD("</figure>");
    return COH_OK;
}

coh_status report_figure_curves(const report_analysis *const *analyses, int count, coh_text *out)
{
    curve_range range;
    ADD("<div class=\"curves\">");
    for (int kind = 0; kind < CURVE_KINDS; kind++)
        if (range_of(analyses, count, (curve_kind)kind, &range))
            COH_TRY(add_figure(analyses, count, (curve_kind)kind, &range, out));
    ADD("</div>");
    if (count < 2)
        return COH_OK;
    ADD("<ul class=\"legend\">");
    for (int run = 0; run < count; run++) {
        ADD("<li><svg width=\"34\" height=\"10\" aria-hidden=\"true\"><path class=\"line r%d\" "
            "d=\"M0 5H34\"/></svg>",
            run % 8);
        COH_TRY(report_add_escaped(out, analyses[run]->run->folder, NAME));
        ADD("</li>");
    }
    ADD("</ul>");
    return COH_OK;
}

/* ---- latencies ---- */

coh_status report_figure_latency(const coh_trace_latency *latency, coh_text *out)
{
    int first = -1, last = 0;
    uint64_t most = 0;
    for (int i = 0; i < COH_TRACE_LATENCIES; i++) {
        if (latency->counts[i] == 0)
            continue;
        first = first < 0 ? i : first;
        last = i;
        most = latency->counts[i] > most ? latency->counts[i] : most;
    }
    if (first < 0)
        return coh_text_add(out, "-");
    const int width = (last - first + 1) * 9;
    ADD("<svg width=\"%d\" height=\"26\" role=\"img\" aria-label=\"Latencies from %s to %s\">",
        width, report_time(ldexp(1e-9, first)).at, report_time(ldexp(1e-9, last + 1)).at);
    for (int i = first; i <= last; i++) {
        const double height = 25 * sqrt((double)latency->counts[i] / (double)most);
        ADD("<rect class=\"move\" x=\"%d\" y=\"%.1f\" width=\"8\" height=\"%.1f\"><title>%" PRIu64
            " of %s to %s</title></rect>",
            (i - first) * 9, 26 - height, height, latency->counts[i],
            report_time(ldexp(1e-9, i)).at, report_time(ldexp(1e-9, i + 1)).at);
    }
    ADD("</svg><span class=\"soft\">%s to %s</span>", report_time(ldexp(1e-9, first)).at,
        report_time(ldexp(1e-9, last + 1)).at);
    return COH_OK;
}
