/* Analyses a run: the window of a step, its lanes, its gaps, its memory and its operators. The one
 * idea: predicted and measured steps are the same kind of data, three neighbouring slots of spans,
 * so one code reads both. Next: verdict.c names causes, replay.c plays changes. */
#include "report/analysis.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Steps whose begins are this many step times apart have something else between them. */
static const double PAUSED = 1.1;
static const double MISSES_BEFORE = 0.1;

/* ---- spans ---- */

static int is_recorded(const coh_trace_span *span)
{
    return span->begin_ns != 0 || span->end_ns != 0;
}

/* A span in the window's time; may begin before it. Returns 0 if it was not recorded. */
static int span_at(const report_window *w, int slot, uint32_t instruction, int64_t *out_begin,
                   int64_t *out_end)
{
    if (slot < 0 || slot > 2 || !w->spans[slot] || !is_recorded(&w->spans[slot][instruction]))
        return 0;
    *out_begin = (int64_t)w->spans[slot][instruction].begin_ns + w->shift_ns[slot];
    *out_end = (int64_t)w->spans[slot][instruction].end_ns + w->shift_ns[slot];
    return 1;
}

uint64_t report_duration(const report_window *w, uint32_t instruction)
{
    return w->spans[1][instruction].end_ns - w->spans[1][instruction].begin_ns;
}

/* The compute instruction of a slot that begins first; COH_TRACE_NONE: none. */
static uint32_t first_compute(const coh_trace *trace, const coh_trace_span *spans)
{
    uint32_t first = COH_TRACE_NONE;
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (trace->instructions[i].lane == COH_LANE_COMPUTE && is_recorded(&spans[i]) &&
            (first == COH_TRACE_NONE || spans[i].begin_ns < spans[first].begin_ns))
            first = i;
    return first;
}

/* ---- the window ---- */

static coh_status choose_predicted(const coh_trace *trace, report_window *w)
{
    COH_TRY(COH_ALLOC(trace->instruction_count, &w->predicted));
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        w->predicted[i] = (coh_trace_span){ trace->instructions[i].predicted_begin_ns,
                                            trace->instructions[i].predicted_end_ns };
    w->is_predicted = 1;
    w->has_next = trace->predicted_step_ns > 0;
    for (int slot = 0; slot < 3; slot++) {
        w->spans[slot] = slot == 1 || w->has_next ? w->predicted : NULL;
        w->shift_ns[slot] = (int64_t)trace->predicted_step_ns * (slot - 1);
    }
    return COH_OK;
}

/* Returns 1 if the next recorded step follows this one without a pause. A save or a validation
 * between two steps is of neither. */
static int is_followed(const coh_trace *trace, uint32_t index)
{
    const coh_trace_step *this = &trace->steps[index], *next = this + 1;
    if (index + 1 >= trace->step_count || next->step != this->step + 1)
        return 0;
    const uint64_t longer = this->step_ns > next->step_ns ? this->step_ns : next->step_ns;
    const uint64_t apart = next->begin_ns - this->begin_ns;
    return (double)apart <= PAUSED * (double)longer;
}

static void choose_recorded(const coh_trace *trace, uint32_t index, report_window *w)
{
    const coh_trace_step *this = &trace->steps[index];
    w->step = this->step;
    for (int slot = 0; slot < 3; slot++) {
        const int64_t at = (int64_t)index + slot - 1;
        if (at < 0 || at >= trace->step_count ||
            trace->steps[at].step + 1 != this->step + (uint64_t)slot ||
            (slot == 2 && !is_followed(trace, index)))
            continue;
        w->spans[slot] = trace->steps[at].spans;
        w->shift_ns[slot] = (int64_t)trace->steps[at].begin_ns - (int64_t)this->begin_ns;
    }
}

static coh_status set_window(report_window *w)
{
    const coh_trace *trace = w->trace;
    const uint32_t first = first_compute(trace, w->spans[1]);
    int64_t begin, end, last = 0;
    if (first == COH_TRACE_NONE)
        return coh_fail(COH_ERR_ARGUMENT, "no compute instruction of the step was recorded");
    const int64_t zero = (int64_t)w->spans[1][first].begin_ns;
    for (int slot = 0; slot < 3; slot++)
        w->shift_ns[slot] -= zero;
    const uint32_t next = w->spans[2] ? first_compute(trace, w->spans[2]) : COH_TRACE_NONE;
    w->has_next = next != COH_TRACE_NONE && span_at(w, 2, next, &begin, &end) && begin > 0;
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (span_at(w, 1, i, &last, &end) && end > (int64_t)w->window_ns)
            w->window_ns = (uint64_t)end;
    if (w->has_next)
        w->window_ns = (uint64_t)begin;
    return COH_OK;
}

static int piece_order(const void *left, const void *right)
{
    const report_piece *a = left, *b = right;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    return a->instruction < b->instruction ? -1 : a->instruction > b->instruction;
}

static void add_piece(report_window *w, int slot, uint32_t i, int counts)
{
    int64_t begin, end;
    report_lane *lane = &w->lanes[w->trace->instructions[i].lane];
    const int64_t most = (int64_t)w->window_ns;
    if (!span_at(w, slot, i, &begin, &end) || end <= 0 || begin >= most)
        return;
    if (!counts)
        lane->pieces[lane->piece_count] =
            (report_piece){ begin > 0 ? (uint64_t)begin : 0,
                            end < most ? (uint64_t)end : w->window_ns, i, slot };
    lane->piece_count++;
}

static coh_status collect_pieces(report_window *w)
{
    for (int counts = 1; counts >= 0; counts--) {
        for (int slot = 0; slot < 3; slot++)
            for (uint32_t i = 0; w->spans[slot] && i < w->trace->instruction_count; i++)
                add_piece(w, slot, i, counts);
        for (int lane = 0; counts && lane < COH_LANE_COUNT; lane++) {
            COH_TRY(COH_ALLOC(w->lanes[lane].piece_count + 1, &w->lanes[lane].pieces));
            w->lanes[lane].piece_count = 0;
        }
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        qsort(w->lanes[lane].pieces, w->lanes[lane].piece_count, sizeof(report_piece), piece_order);
    return COH_OK;
}

/* Busy time: each moment belongs to the piece that covered it first. */
static void add_busy(report_window *w, int lane_index)
{
    report_lane *lane = &w->lanes[lane_index];
    uint64_t covered = 0;
    for (uint32_t p = 0; p < lane->piece_count; p++) {
        const report_piece *piece = &lane->pieces[p];
        const uint64_t begin = piece->begin_ns > covered ? piece->begin_ns : covered;
        const uint64_t ns = piece->end_ns > begin ? piece->end_ns - begin : 0;
        lane->busy_ns += ns;
        covered = begin + ns;
        if (lane_index == COH_LANE_COMPUTE)
            w->opcode_ns[w->trace->instructions[piece->instruction].opcode] += ns;
        uint32_t together = 1;
        for (uint32_t before = p; before > 0 && p - before < 64; before--)
            together += lane->pieces[before - 1].end_ns > piece->begin_ns;
        lane->in_flight = together > lane->in_flight ? together : lane->in_flight;
    }
}

static void add_sums(report_window *w)
{
    for (uint32_t i = 0; i < w->trace->instruction_count; i++) {
        const coh_trace_instruction *in = &w->trace->instructions[i];
        report_lane *lane = &w->lanes[in->lane];
        if (!is_recorded(&w->spans[1][i]))
            continue;
        lane->bytes += in->bytes;
        lane->instruction_count++;
        lane->durations_ns += report_duration(w, i);
        lane->predicted_ns += in->predicted_end_ns - in->predicted_begin_ns;
    }
}

/* ---- gaps ---- */

/* The successor of a gap: an instruction of a slot. */
typedef struct moment {
    int slot;
    uint32_t instruction;
} moment;

/* The wait of `at` that ended last, at or before `limit`; `previous`: also the instruction before
 * it in its lane. Returns 0 if there is none. */
static int last_wait(const report_window *w, moment at, const uint32_t *previous, int64_t limit,
                     moment *out, int64_t *out_end)
{
    const coh_trace_instruction *in = &w->trace->instructions[at.instruction];
    int64_t begin, end;
    int is_found = 0;
    for (uint32_t i = 0; i < in->wait_count + (previous != NULL); i++) {
        moment one;
        if (i < in->wait_count) {
            const coh_trace_wait *wait = &w->trace->waits[in->wait_begin + i];
            one = (moment){ at.slot - (int)wait->carry, wait->instruction };
        } else {
            one = (moment){ at.slot - (previous[at.instruction] >= at.instruction),
                            previous[at.instruction] };
        }
        if (!span_at(w, one.slot, one.instruction, &begin, &end) || end > limit ||
            (is_found && end <= *out_end))
            continue;
        *out = one;
        *out_end = end;
        is_found = 1;
    }
    return is_found;
}

/* Follows the chain of waits back through the gap a..b, which ends when `at` ended or began. */
static void blame(report_window *w, const uint32_t *previous, moment at, int64_t a, int64_t b)
{
    for (uint32_t guard = 0; b > a && guard < w->trace->instruction_count; guard++) {
        int64_t begin = 0, end = 0;
        (void)span_at(w, at.slot, at.instruction, &begin, &end);
        if (begin < a)
            begin = a;
        if (begin < b)
            w->blame_ns[at.instruction] += (uint64_t)(b - begin);
        b = begin < b ? begin : b;
        if (!last_wait(w, at, previous, b, &at, &end) || end <= a)
            return;
        b = end;
    }
}

static void add_gap(report_window *w, const uint32_t *previous, int64_t a, int64_t b, moment next)
{
    report_gap *gap = &w->gaps[w->gap_count++];
    moment wait;
    int64_t end;
    *gap = (report_gap){ (uint64_t)a, (uint64_t)b, next.instruction, COH_TRACE_NONE,
                         REPORT_LANE_NONE };
    w->idle_ns += (uint64_t)(b - a);
    uint64_t charged = 0;
    if (next.instruction != COH_TRACE_NONE && last_wait(w, next, NULL, b, &wait, &end) && end > a &&
        w->trace->instructions[wait.instruction].lane != COH_LANE_COMPUTE) {
        gap->waited = wait.instruction;
        gap->lane = w->trace->instructions[wait.instruction].lane;
        charged = (uint64_t)(end - a);
        w->lanes[gap->lane].exposed_ns += charged;
        blame(w, previous, wait, a, end);
    }
    w->issue_ns += (uint64_t)(b - a) - charged;
}

/* The instruction before each one in its lane; for the first one the last. */
static void link_lanes(const coh_trace *trace, uint32_t *previous)
{
    uint32_t last[COH_LANE_COUNT];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        last[lane] = COH_TRACE_NONE;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < trace->instruction_count; i++) {
            const int lane = trace->instructions[i].lane;
            previous[i] = last[lane] == COH_TRACE_NONE ? i : last[lane];
            last[lane] = i;
        }
}

static coh_status find_gaps(report_window *w)
{
    const report_lane *compute = &w->lanes[COH_LANE_COMPUTE];
    uint32_t *previous;
    uint64_t covered = 0;
    COH_TRY(COH_ALLOC(compute->piece_count + 1, &w->gaps));
    COH_TRY(COH_ALLOC(w->trace->instruction_count, &previous));
    link_lanes(w->trace, previous);
    for (uint32_t p = 0; p < compute->piece_count; p++) {
        const report_piece *piece = &compute->pieces[p];
        if (piece->begin_ns > covered)
            add_gap(w, previous, (int64_t)covered, (int64_t)piece->begin_ns,
                    (moment){ piece->slot, piece->instruction });
        covered = piece->end_ns > covered ? piece->end_ns : covered;
    }
    if (covered < w->window_ns)
        add_gap(w, previous, (int64_t)covered, (int64_t)w->window_ns,
                (moment){ 2, w->has_next ? first_compute(w->trace, w->spans[2]) : COH_TRACE_NONE });
    coh_free(previous);
    for (uint32_t i = 0; i < w->trace->instruction_count; i++)
        w->lanes[w->trace->instructions[i].lane].blame_ns += w->blame_ns[i];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        report_lane *l = &w->lanes[lane];
        l->hidden_ns = l->busy_ns > l->exposed_ns ? l->busy_ns - l->exposed_ns : 0;
    }
    return COH_OK;
}

static coh_status fill_window(report_window *w, uint32_t index)
{
    const coh_trace *trace = w->trace;
    COH_TRY(COH_ALLOC(trace->opcode_count, &w->opcode_ns));
    COH_TRY(COH_ALLOC(trace->instruction_count, &w->blame_ns));
    if (index == UINT32_MAX)
        COH_TRY(choose_predicted(trace, w));
    else
        choose_recorded(trace, index, w);
    COH_TRY(set_window(w));
    COH_TRY(collect_pieces(w));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        add_busy(w, lane);
    add_sums(w);
    return find_gaps(w);
}

coh_status report_window_open(const coh_trace *trace, uint32_t index, report_window *out_window)
{
    *out_window = (report_window){ .trace = trace };
    const coh_status status = fill_window(out_window, index);
    if (status != COH_OK)
        report_window_close(out_window);
    return status;
}

void report_window_close(report_window *w)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(w->lanes[lane].pieces);
    coh_free(w->opcode_ns);
    coh_free(w->blame_ns);
    coh_free(w->gaps);
    coh_free(w->predicted);
    *w = (report_window){ 0 };
}

/* ---- memory ---- */

typedef struct event {
    int64_t at_ns;
    const coh_trace_extent *extent;
    int is_end;
} event;

static int event_order(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns ? -1 : 1;
    return b->is_end - a->is_end; /* what ends makes room first */
}

/* Adds the extent's begin and end in a slot. Bytes that stay over the end of a step are the next
 * step's from its window's begin on. */
static void add_events(const report_window *w, int slot, const coh_trace_extent *e, event *events,
                       size_t *count)
{
    const int64_t borders[4] = { INT64_MIN, 0, (int64_t)w->window_ns, INT64_MAX };
    int64_t begin, end, other;
    if (!span_at(w, slot, e->first, &begin, &other) || !span_at(w, slot, e->last, &other, &end))
        return;
    begin = e->at_begin ? borders[slot] : begin;
    end = e->at_end ? borders[slot + 1] : end;
    if (end <= 0 || begin >= (int64_t)w->window_ns || begin >= end)
        return;
    events[(*count)++] = (event){ begin > 0 ? begin : 0, e, 0 };
    events[(*count)++] = (event){ end, e, 1 };
}

/* Copies the bytes by purpose into point `point`, if the tier is fuller than at an earlier moment
 * of it. */
static void take_moment(report_memory *m, int tier, uint32_t point, const uint64_t *now)
{
    uint64_t *out = m->bytes + ((size_t)tier * REPORT_POINTS + point) * m->purpose_count;
    uint64_t had = 0, has = 0;
    for (uint32_t p = 0; p < m->purpose_count; p++) {
        had += out[p];
        has += now[p];
    }
    if (has > had)
        memcpy(out, now, m->purpose_count * sizeof(*now));
    m->peak_bytes[tier] = has > m->peak_bytes[tier] ? has : m->peak_bytes[tier];
}

static void sweep(const report_window *w, const event *events, size_t count, report_memory *m,
                  uint64_t *now)
{
    const uint64_t window = w->window_ns ? w->window_ns : 1;
    uint32_t point[COH_TIER_COUNT] = { 0 };
    for (size_t i = 0; i <= count; i++) {
        const uint64_t at =
            i < count && events[i].at_ns < (int64_t)window ? (uint64_t)events[i].at_ns : window - 1;
        const uint32_t reached = (uint32_t)((double)at / (double)window * REPORT_POINTS);
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            for (; point[tier] < reached && point[tier] < REPORT_POINTS - 1; point[tier]++) {
                take_moment(m, tier, point[tier], now + (size_t)tier * m->purpose_count);
                take_moment(m, tier, point[tier] + 1, now + (size_t)tier * m->purpose_count);
            }
        if (i == count)
            break;
        const coh_trace_extent *e = events[i].extent;
        uint64_t *of = now + (size_t)e->tier * m->purpose_count;
        of[e->purpose] += events[i].is_end ? 0 - e->bytes : e->bytes;
        take_moment(m, e->tier, point[e->tier], now + (size_t)e->tier * m->purpose_count);
    }
}

static coh_status fill_memory(const report_window *w, report_memory *m)
{
    const coh_trace *t = w->trace;
    event *events = NULL;
    uint64_t *now = NULL;
    size_t count = 0;
    m->purpose_count = t->purpose_count;
    coh_status status =
        COH_ALLOC((size_t)COH_TIER_COUNT * REPORT_POINTS * t->purpose_count, &m->bytes);
    if (status == COH_OK)
        status = COH_ALLOC((size_t)t->extent_count * 6, &events);
    if (status == COH_OK)
        status = COH_ALLOC((size_t)COH_TIER_COUNT * t->purpose_count, &now);
    if (status == COH_OK) {
        for (int slot = 0; slot < 3; slot++)
            for (uint32_t i = 0; i < t->extent_count; i++)
                add_events(w, slot, &t->extents[i], events, &count);
        qsort(events, count, sizeof(*events), event_order);
        sweep(w, events, count, m, now);
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            m->peak_bytes[tier] += t->pinned_bytes[tier];
    }
    coh_free(events);
    coh_free(now);
    return status;
}

/* ---- operators ---- */

static int operator_order(const void *left, const void *right)
{
    const report_operator *a = left, *b = right;
    const double x = isnan(a->measured_s) ? a->predicted_s : fabs(a->measured_s - a->predicted_s);
    const double y = isnan(b->measured_s) ? b->predicted_s : fabs(b->measured_s - b->predicted_s);
    if (x != y)
        return x > y ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Does the step count for averages? Slow steps do not, unless there is no other. */
static int counts(const coh_trace *trace, uint32_t step)
{
    for (uint32_t i = 0; i < trace->step_count; i++)
        if (!trace->steps[i].is_slow)
            return !trace->steps[step].is_slow;
    return 1;
}

static coh_status fill_operators(const coh_trace *t, report_analysis *a)
{
    COH_TRY(COH_ALLOC(t->operator_count, &a->operators));
    a->operator_count = t->operator_count;
    for (uint32_t s = 0; s < t->step_count; s++)
        a->measured_count += (uint32_t)counts(t, s);
    for (uint32_t i = 0; i < t->operator_count; i++)
        a->operators[i] =
            (report_operator){ .index = i, .measured_s = a->measured_count ? 0 : NAN };
    for (uint32_t i = 0; i < t->instruction_count; i++) {
        const coh_trace_instruction *in = &t->instructions[i];
        if (in->operator_index == COH_TRACE_NONE ||
            (in->lane != COH_LANE_COMPUTE && in->lane != COH_LANE_HOST))
            continue;
        report_operator *o = &a->operators[in->operator_index];
        o->predicted_s += (double)(in->predicted_end_ns - in->predicted_begin_ns) * 1e-9;
        o->flops += in->flops;
        for (uint32_t s = 0; s < t->step_count; s++)
            if (counts(t, s))
                o->measured_s +=
                    (double)(t->steps[s].spans[i].end_ns - t->steps[s].spans[i].begin_ns) * 1e-9 /
                    a->measured_count;
    }
    qsort(a->operators, a->operator_count, sizeof(*a->operators), operator_order);
    return COH_OK;
}

/* ---- the run ---- */

static int real_order(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* Is it a step of the last process of the run, whose plan run.json describes? */
static int is_of_this_plan(const report_run *run, const report_row *row)
{
    return !((double)row->step <= run->facts.first_step);
}

static coh_status fill_steps(const report_run *run, report_analysis *a)
{
    float *seconds;
    size_t count = 0;
    COH_TRY(COH_ALLOC(run->row_count, &seconds));
    for (size_t i = 0; i < run->row_count; i++)
        if (is_of_this_plan(run, &run->rows[i]) && isfinite(run->rows[i].seconds) &&
            run->rows[i].seconds > 0)
            seconds[count++] = run->rows[i].seconds;
    a->timed_count = count;
    a->step_s = a->first_s = a->least_s = a->most_s = NAN;
    if (count > 0) {
        a->first_s = (double)seconds[0];
        qsort(seconds, count, sizeof(*seconds), real_order);
        a->step_s = (double)seconds[count / 2];
        a->least_s = (double)seconds[0];
        a->most_s = (double)seconds[count - 1];
    }
    coh_free(seconds);
    for (size_t i = 0; i < run->row_count; i++) {
        const report_row *row = &run->rows[i];
        if (!is_of_this_plan(run, row) || !((double)row->seconds > 1.5 * a->step_s))
            continue;
        if (a->slow_count < REPORT_SLOW_STEPS)
            a->slow_steps[a->slow_count] =
                (report_slow_step){ .step = row->step,
                                    .seconds = (double)row->seconds,
                                    .why = "its instructions are not recorded" };
        a->slow_count++;
    }
    return COH_OK;
}

static void fill_speed(report_analysis *a)
{
    const report_facts *f = &a->run->facts;
    const coh_trace *t = a->run->trace;
    a->predicted_s = f->predicted_step_s;
    if (isnan(a->predicted_s) && t && t->predicted_step_ns)
        a->predicted_s = (double)t->predicted_step_ns * 1e-9;
    if (isnan(a->step_s) && a->has_window)
        a->step_s = (double)a->window.window_ns * 1e-9;
    if (isnan(a->step_s))
        a->step_s = a->predicted_s;
    a->tokens_per_s = f->tokens_per_step / a->step_s;
    a->utilisation = f->flops_per_step / a->step_s / f->peak_flops_per_s;
    a->of_in_memory = f->predicted_in_memory_step_s / a->step_s;
    if (!isfinite(a->tokens_per_s))
        a->tokens_per_s = NAN;
    if (!isfinite(a->utilisation) || a->utilisation <= 0)
        a->utilisation = NAN;
}

/* The recorded step to show: not slow, with a next one and no pause before that if there is one, of
 * a time next to the run's median. No step before it counts as much as MISSES_BEFORE of the median:
 * only what was under way at its begin is unknown then. */
static uint32_t choose_step(const coh_trace *t, double median_s)
{
    uint32_t best = UINT32_MAX;
    double best_cost = INFINITY;
    for (uint32_t s = 0; s < t->step_count; s++) {
        const int has_next = is_followed(t, s);
        const int has_before = s > 0 && t->steps[s - 1].step + 1 == t->steps[s].step;
        const double seconds = (double)t->steps[s].step_ns * 1e-9;
        const double cost = 100.0 * !counts(t, s) + 10.0 * !has_next + MISSES_BEFORE * !has_before +
                            (median_s > 0 ? fmin(9, fabs(seconds / median_s - 1)) : 0);
        if (cost < best_cost && first_compute(t, t->steps[s].spans) != COH_TRACE_NONE) {
            best_cost = cost;
            best = s;
        }
    }
    return best;
}

static coh_status analyse(report_analysis *a)
{
    const coh_trace *t = a->run->trace;
    COH_TRY(fill_steps(a->run, a));
    if (t) {
        const uint32_t step = choose_step(t, a->step_s);
        const coh_status status = report_window_open(t, step, &a->window);
        if (status == COH_ERR_MEMORY)
            return status;
        a->has_window = status == COH_OK && a->window.window_ns > 0;
        a->is_measured = a->has_window && step != UINT32_MAX;
        COH_TRY(fill_operators(t, a));
        if (a->has_window)
            COH_TRY(fill_memory(&a->window, &a->memory));
    }
    fill_speed(a);
    return report_judge(a);
}

coh_status report_analyse(const report_run *run, report_analysis *out)
{
    report_analysis kept = { .run = run,
                             .what_if_count = out->what_if_count,
                             .unplanned_count = out->unplanned_count,
                             .needs_no_memory = out->needs_no_memory };
    memcpy(kept.what_ifs, out->what_ifs, sizeof(kept.what_ifs));
    *out = kept;
    const coh_status status = analyse(out);
    if (status != COH_OK)
        report_analysis_close(out);
    return status;
}

void report_analysis_close(report_analysis *a)
{
    report_window_close(&a->window);
    coh_free(a->operators);
    coh_free(a->memory.bytes);
    *a = (report_analysis){ 0 };
}
