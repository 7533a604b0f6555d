/* Names what a step loses time to, and what to do about it. The one idea: idle compute time is
 * divided by the chain of waits (analysis.h), busy time by comparison with the prediction; the
 * largest part is the cause, and each remedy is played on the recorded program. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/analysis.h"
#include "report/format.h"

/* A cause below this share of the step is not named, except computing itself. */
#define WORTH_NAMING 0.02
/* A step that loses less than this share to anything is limited by compute. */
#define WORTH_BLAMING 0.1
/* A time is called slower than predicted from this ratio on. */
#define SLOWER 1.15
/* A transfer that would take less at the link's rate is limited by its latency. */
#define SMALL_S 100e-6
/* Cost of a fault, from memory and from a drive, to rank faults among other causes. */
#define MINOR_FAULT_S 0.5e-6
#define MAJOR_FAULT_S 100e-6
#define GAIN_LEAST    0.005

const char *report_kind_name(report_kind kind)
{
    static const char *const names[REPORT_KINDS] = {
        [REPORT_COMPUTE] = "compute",
        [REPORT_WAITS] = "waits",
        [REPORT_SLOW_LINK] = "slow link",
        [REPORT_SMALL_CHUNK] = "small chunks",
        [REPORT_LATE_UPDATE] = "late update",
        [REPORT_BUSY_CORE] = "busy core",
        [REPORT_SLOW_OPERATOR] = "slow operators",
        [REPORT_THROTTLED] = "throttled",
        [REPORT_FAULTS] = "page faults",
        [REPORT_ISSUE] = "issue",
    };
    return names[kind];
}

static double seconds_of(uint64_t ns)
{
    return (double)ns * 1e-9;
}

static report_cause *add_cause(report_analysis *a, report_kind kind, double seconds, int lane)
{
    if (a->cause_count == REPORT_CAUSES ||
        (kind != REPORT_COMPUTE && !(seconds >= WORTH_NAMING * seconds_of(a->window.window_ns))))
        return NULL;
    report_cause *cause = &a->causes[a->cause_count++];
    *cause = (report_cause){ .kind = kind,
                             .seconds = seconds,
                             .saved_s = seconds,
                             .lane = lane,
                             .instruction = COH_TRACE_NONE,
                             .operator_index = COH_TRACE_NONE };
    return cause;
}

/* ---- waits ---- */

/* The instruction of a lane that most of the blame fell on. */
static uint32_t worst_of(const report_window *w, int lane)
{
    uint32_t worst = COH_TRACE_NONE;
    for (uint32_t i = 0; i < w->trace->instruction_count; i++)
        if (w->trace->instructions[i].lane == lane && w->blame_ns[i] > 0 &&
            (worst == COH_TRACE_NONE || w->blame_ns[i] > w->blame_ns[worst]))
            worst = i;
    return worst;
}

/* Is a link latency-bound: are its transfers small, and do they take more than twice their time at
 * the profile's rate? */
static int is_latency_bound(const report_window *w, int lane)
{
    const report_lane *l = &w->lanes[lane];
    const double rate = w->trace->lane_bytes_per_s[lane];
    const double at_rate = (double)l->bytes / rate;
    return l->bytes > 0 && rate > 0 && at_rate < SMALL_S * l->instruction_count &&
           at_rate < 0.5 * seconds_of(l->busy_ns);
}

static void say_link(const report_analysis *a, report_cause *cause)
{
    const report_lane *l = &a->window.lanes[cause->lane];
    const char *name = coh_lane_name((coh_lane)cause->lane);
    const double rate = l->busy_ns ? (double)l->bytes / seconds_of(l->busy_ns) : 0;
    const double ceiling = a->run->trace->lane_bytes_per_s[cause->lane];
    char known[80] = "";
    if (ceiling > 0)
        snprintf(known, sizeof(known), ", and the profile's rate is %s", report_rate(ceiling).at);
    if (cause->kind == REPORT_SMALL_CHUNK)
        snprintf(cause->text, sizeof(cause->text),
                 "compute waits %s for %s, whose %" PRIu32 " transfers are small (%s on average): "
                 "latency fills the lane, which moves %s%s",
                 report_time(cause->seconds).at, name, l->instruction_count,
                 report_size((double)l->bytes / l->instruction_count).at, report_rate(rate).at,
                 known);
    else if (cause->kind == REPORT_SLOW_LINK)
        snprintf(cause->text, sizeof(cause->text),
                 "compute waits %s for %s, which is slower than predicted: it moves %s%s",
                 report_time(cause->seconds).at, name, report_rate(rate).at, known);
    else
        snprintf(cause->text, sizeof(cause->text), "compute waits %s for %s, which moves %s%s",
                 report_time(cause->seconds).at, name, report_rate(rate).at, known);
}

static void add_waits(report_analysis *a)
{
    const report_window *w = &a->window;
    for (int lane = COH_LANE_COMPUTE + 1; lane < COH_LANE_COUNT; lane++) {
        const report_lane *l = &w->lanes[lane];
        const int is_slower =
            !w->is_predicted && (double)l->durations_ns > SLOWER * (double)l->predicted_ns;
        report_kind kind = is_latency_bound(w, lane) ? REPORT_SMALL_CHUNK
                           : is_slower               ? REPORT_SLOW_LINK
                                                     : REPORT_WAITS;
        if (lane == COH_LANE_HOST)
            kind = REPORT_LATE_UPDATE;
        report_cause *cause = add_cause(a, kind, seconds_of(l->blame_ns), lane);
        if (!cause)
            continue;
        cause->instruction = worst_of(w, lane);
        if (cause->instruction != COH_TRACE_NONE)
            cause->operator_index = w->trace->instructions[cause->instruction].operator_index;
        if (kind == REPORT_LATE_UPDATE)
            snprintf(cause->text, sizeof(cause->text),
                     "compute waits %s for updates on the host lane, which take %s a step "
                     "(predicted %s)",
                     report_time(cause->seconds).at, report_time(seconds_of(l->durations_ns)).at,
                     report_time(seconds_of(l->predicted_ns)).at);
        else
            say_link(a, cause);
    }
    report_cause *issue = add_cause(a, REPORT_ISSUE, seconds_of(w->issue_ns), REPORT_LANE_NONE);
    if (issue)
        snprintf(issue->text, sizeof(issue->text),
                 "compute is idle for %s with nothing left to wait for: instructions are issued "
                 "late, or the step's end was not recorded",
                 report_time(issue->seconds).at);
}

/* ---- computing slower than predicted ---- */

static uint64_t predicted_ns(const report_window *w, uint32_t i)
{
    return w->trace->instructions[i].predicted_end_ns -
           w->trace->instructions[i].predicted_begin_ns;
}

/* The share of predicted compute time in instructions within a quarter of the mean ratio. */
static double share_alike(const report_window *w, double ratio)
{
    double alike = 0, all = 0;
    for (uint32_t i = 0; i < w->trace->instruction_count; i++) {
        const double predicted = (double)predicted_ns(w, i);
        if (w->trace->instructions[i].lane != COH_LANE_COMPUTE || !(predicted > 0))
            continue;
        all += predicted;
        if (fabs((double)report_duration(w, i) / predicted / ratio - 1) < 0.25)
            alike += predicted;
    }
    return all > 0 ? alike / all : 0;
}

/* The operator that lost most against its prediction, and how much. */
static uint32_t worst_operator(const report_analysis *a, double *out_s)
{
    uint32_t worst = COH_TRACE_NONE;
    *out_s = 0;
    for (uint32_t i = 0; i < a->operator_count; i++) {
        const double excess = a->operators[i].measured_s - a->operators[i].predicted_s;
        if (excess > *out_s) {
            *out_s = excess;
            worst = a->operators[i].index;
        }
    }
    return worst;
}

static void add_excess(report_analysis *a, double hidden_s)
{
    const report_lane *compute = &a->window.lanes[COH_LANE_COMPUTE];
    const double measured = seconds_of(compute->durations_ns);
    const double predicted = seconds_of(compute->predicted_ns);
    const double excess = measured - predicted - hidden_s;
    if (a->window.is_predicted || !(measured > 1.05 * predicted) || !(predicted > 0))
        return;
    if (share_alike(&a->window, measured / predicted) > 0.6) {
        report_cause *cause = add_cause(a, REPORT_BUSY_CORE, excess, COH_LANE_COMPUTE);
        if (cause)
            snprintf(cause->text, sizeof(cause->text),
                     "all compute instructions alike take %.2f times as long as predicted, %s in "
                     "all: the cores are busy with other work or clocked lower",
                     measured / predicted, report_time(cause->seconds).at);
        return;
    }
    double seconds;
    const uint32_t worst = worst_operator(a, &seconds);
    report_cause *cause = worst == COH_TRACE_NONE
                              ? NULL
                              : add_cause(a, REPORT_SLOW_OPERATOR, excess, COH_LANE_COMPUTE);
    if (!cause)
        return;
    cause->operator_index = worst;
    snprintf(cause->text, sizeof(cause->text),
             "compute takes %s longer than predicted, most of all operator %.120s (%s longer)",
             report_time(excess).at, a->run->trace->operators[worst].name, report_time(seconds).at);
}

/* Returns the seconds that the system took, which also appear as slow instructions. */
static double add_system(report_analysis *a)
{
    const coh_trace *t = a->run->trace;
    const coh_trace_counters *c = NULL;
    double sum = 0;
    for (uint32_t i = 0; i < t->step_count && a->is_measured; i++)
        if (t->steps[i].step == a->window.step)
            c = &t->steps[i].counters;
    if (!c)
        return 0;
    if (c->throttled_ns != UINT64_MAX) {
        report_cause *cause =
            add_cause(a, REPORT_THROTTLED, seconds_of(c->throttled_ns), REPORT_LANE_NONE);
        sum += seconds_of(c->throttled_ns);
        if (cause)
            snprintf(cause->text, sizeof(cause->text),
                     "the CPU limit of the cgroup stopped the process for %s",
                     report_time(cause->seconds).at);
    }
    const double minor = c->minor_faults == UINT64_MAX ? 0 : (double)c->minor_faults;
    const double major = c->major_faults == UINT64_MAX ? 0 : (double)c->major_faults;
    report_cause *cause = add_cause(a, REPORT_FAULTS, minor * MINOR_FAULT_S + major * MAJOR_FAULT_S,
                                    REPORT_LANE_NONE);
    sum += minor * MINOR_FAULT_S + major * MAJOR_FAULT_S;
    if (cause)
        snprintf(cause->text, sizeof(cause->text),
                 "%.0f page faults, of these %.0f from a drive, cost about %s", minor + major,
                 major, report_time(cause->seconds).at);
    return sum;
}

static int cause_order(const void *left, const void *right)
{
    const report_cause *a = left, *b = right;
    if ((a->kind == REPORT_COMPUTE) != (b->kind == REPORT_COMPUTE))
        return a->kind == REPORT_COMPUTE ? 1 : -1;
    return (a->saved_s < b->saved_s) - (a->saved_s > b->saved_s);
}

static void find_causes(report_analysis *a)
{
    const report_window *w = &a->window;
    add_waits(a);
    add_excess(a, add_system(a));
    report_cause *cause = add_cause(
        a, REPORT_COMPUTE, seconds_of(w->lanes[COH_LANE_COMPUTE].busy_ns), COH_LANE_COMPUTE);
    if (cause)
        snprintf(cause->text, sizeof(cause->text), "compute is busy for %s of %s (%.0f %%)",
                 report_time(cause->seconds).at, report_time(seconds_of(w->window_ns)).at,
                 100 * cause->seconds / seconds_of(w->window_ns));
}

/* ---- actions ---- */

/* Names the step shown: "step 3", or "a step" if it is predicted. */
static report_text step_name(const report_analysis *a)
{
    report_text text = { "a step" };
    if (a->is_measured)
        snprintf(text.at, sizeof(text.at), "step %" PRIu64, a->window.step + 1);
    return text;
}

/* Adds a change that makes a step, which is named, of before_s one of after_s. */
static void add_action(report_analysis *a, report_text name, double before_s, double after_s,
                       const char *source, int is_guess, const char *text)
{
    const double gain = after_s > 0 ? before_s / after_s - 1 : 0;
    int at = a->action_count;
    if (!(gain >= GAIN_LEAST))
        return;
    while (at > 0 && a->actions[at - 1].gain < gain)
        at--;
    if (at == REPORT_ACTIONS)
        return;
    if (a->action_count < REPORT_ACTIONS)
        a->action_count++;
    memmove(&a->actions[at + 1], &a->actions[at],
            sizeof(a->actions[0]) * (size_t)(a->action_count - 1 - at));
    report_action *action = &a->actions[at];
    *action = (report_action){ .gain = gain,
                               .before_s = before_s,
                               .after_s = after_s,
                               .source = source,
                               .is_guess = is_guess };
    snprintf(action->text, sizeof(action->text), "%s", text);
    snprintf(action->basis, sizeof(action->basis), "%s: %s takes %s instead of %s", source, name.at,
             report_time(after_s).at, report_time(before_s).at);
}

static int is_link(int lane, coh_lane in, coh_lane out)
{
    return lane == (int)in || lane == (int)out;
}

/* The lane of the same link or drive in the other direction; else `lane`. */
static int other_way(int lane)
{
    switch (lane) {
    case COH_LANE_H2D:
        return COH_LANE_D2H;
    case COH_LANE_D2H:
        return COH_LANE_H2D;
    case COH_LANE_READ:
        return COH_LANE_WRITE;
    case COH_LANE_WRITE:
        return COH_LANE_READ;
    default:
        return lane;
    }
}

/* Writes what to do about a cause. Returns 0 if there is nothing. */
static int name_remedy(const report_analysis *a, const report_cause *cause, char text[256])
{
    const char *lane = cause->lane < COH_LANE_COUNT ? coh_lane_name((coh_lane)cause->lane) : "";
    switch (cause->kind) {
    case REPORT_WAITS:
        if (is_link(cause->lane, COH_LANE_H2D, COH_LANE_D2H))
            snprintf(text, 256, "double the rate of h2d and d2h: a faster link to the host tier");
        else if (is_link(cause->lane, COH_LANE_READ, COH_LANE_WRITE))
            snprintf(text, 256, "double the rate of read and write: a faster drive, or one more");
        else
            snprintf(text, 256, "double the rate of %s", lane);
        break;
    case REPORT_SLOW_LINK:
        snprintf(text, 256,
                 "bring %s back to its predicted rate: look for other users of the link, or "
                 "measure the profile again",
                 lane);
        break;
    case REPORT_SMALL_CHUNK:
        snprintf(text, 256, "use larger chunks (--chunk), so that %s moves at its rate", lane);
        break;
    case REPORT_LATE_UPDATE:
        snprintf(text, 256,
                 "halve the updates on the host lane: more threads for it, or smaller optimizer "
                 "states (--state lean)");
        break;
    case REPORT_BUSY_CORE:
        snprintf(text, 256, "free the cores: stop other work, or pin and cool the machine");
        break;
    case REPORT_SLOW_OPERATOR:
        snprintf(text, 256,
                 "bring compute to its predicted time, operator %.80s first: measure the machine "
                 "(cohobate profile) to see which time is wrong, and try cohobate tune",
                 a->run->trace->operators[cause->operator_index].name);
        break;
    case REPORT_THROTTLED:
        snprintf(text, 256, "raise the CPU limit of the cgroup, or use fewer threads (--threads)");
        break;
    case REPORT_FAULTS:
        snprintf(text, 256, "avoid page faults: leave memory free, and switch swap off");
        break;
    case REPORT_COMPUTE:
    case REPORT_ISSUE:
    case REPORT_KINDS:
        return 0;
    }
    return 1;
}

/* Returns 1 if the remedy of the cause changes the instructions of a lane. A faster link is faster
 * both ways. */
static int changes_lane(const report_cause *cause, int whole, int lane)
{
    return lane == cause->lane ||
           (!whole && cause->kind == REPORT_WAITS && lane == other_way(cause->lane));
}

/* How much longer than predicted all instructions of the cause's lane took together. Of compute
 * without what the system took, which is a cause of its own. */
static double late_ns(const report_window *w, const report_cause *cause)
{
    const report_lane *lane = &w->lanes[cause->lane];
    return cause->lane == COH_LANE_COMPUTE
               ? cause->seconds * 1e9
               : (double)lane->durations_ns - (double)lane->predicted_ns;
}

/* Brings the cause's lane back to its predicted time, as a whole: the late instructions lose the
 * same share of their delay, and those that were early stay. So the step saves no more than the
 * lane was late, and saves it where it was late. */
static void bring_back(const report_window *w, const report_cause *cause, uint64_t *durations)
{
    const coh_trace *t = w->trace;
    double delay_ns = 0; /* of the late instructions alone */
    for (uint32_t i = 0; i < t->instruction_count; i++)
        if (t->instructions[i].lane == cause->lane && durations[i] > predicted_ns(w, i))
            delay_ns += (double)(durations[i] - predicted_ns(w, i));
    if (!(delay_ns > 0))
        return;
    const double share = fmin(fmax(late_ns(w, cause), 0) / delay_ns, 1);
    for (uint32_t i = 0; i < t->instruction_count; i++)
        if (t->instructions[i].lane == cause->lane && durations[i] > predicted_ns(w, i))
            durations[i] -= (uint64_t)(share * (double)(durations[i] - predicted_ns(w, i)));
}

/* Fills the durations with the remedy; `whole`: as if all of the cause were gone. */
static void apply_remedy(const report_window *w, const report_cause *cause, int whole,
                         uint64_t *durations)
{
    const coh_trace *t = w->trace;
    const double rate = t->lane_bytes_per_s[cause->lane];
    const int is_wait = cause->kind == REPORT_WAITS || cause->kind == REPORT_LATE_UPDATE;
    for (uint32_t i = 0; i < t->instruction_count; i++)
        durations[i] = report_duration(w, i);
    if (!is_wait && cause->kind != REPORT_SMALL_CHUNK) {
        bring_back(w, cause, durations);
        return;
    }
    for (uint32_t i = 0; i < t->instruction_count; i++) {
        const coh_trace_instruction *in = &t->instructions[i];
        if (!changes_lane(cause, whole, in->lane))
            continue;
        if (is_wait)
            durations[i] = whole ? 0 : durations[i] / 2;
        else
            durations[i] = (uint64_t)fmin((double)in->bytes / rate * 1e9, 1e18);
    }
}

/* The seconds of the step shown with a change, if `after_ns` and `before_ns` are those of its
 * replays with it and without it. A replay repeats until it is steady, so it is not as long as the
 * step. Of a shorter one the difference counts: a step that idles for other reasons, too, saves no
 * more. Of a longer one the share counts. */
static double shown_s(const report_window *w, uint64_t after_ns, uint64_t before_ns)
{
    const double step = seconds_of(w->window_ns);
    const double saved = seconds_of(before_ns) - seconds_of(after_ns);
    return before_ns > w->window_ns ? step - saved * step / seconds_of(before_ns) : step - saved;
}

static coh_status play_remedy(report_analysis *a, const report_cause *cause, uint64_t before_ns,
                              uint64_t *durations)
{
    const report_window *w = &a->window;
    const double step = seconds_of(w->window_ns);
    uint64_t after_ns;
    char text[256];
    for (const report_cause *c = a->causes; c < cause; c++)
        if (c->kind == REPORT_WAITS && changes_lane(c, 0, cause->lane) &&
            cause->kind == REPORT_WAITS)
            return COH_OK; /* has that remedy */
    if (!name_remedy(a, cause, text))
        return COH_OK;
    if (cause->lane == REPORT_LANE_NONE) { /* what the system took is in no single instruction */
        add_action(a, step_name(a), step, step - cause->seconds, "estimated", 0, text);
        return COH_OK;
    }
    apply_remedy(w, cause, 0, durations);
    COH_TRY(report_replay(w, durations, &after_ns));
    add_action(a, step_name(a), step, shown_s(w, after_ns, before_ns), "replayed",
               (cause->kind != REPORT_WAITS || !a->is_measured) &&
                   report_guesses(&a->run->facts, 1),
               text);
    return COH_OK;
}

/* Finds what the step would save without the cause. */
static coh_status play_without(const report_window *w, report_cause *cause, uint64_t before_ns,
                               uint64_t *durations)
{
    uint64_t after_ns;
    if (cause->kind == REPORT_COMPUTE || cause->lane == REPORT_LANE_NONE)
        return COH_OK;
    apply_remedy(w, cause, 1, durations);
    COH_TRY(report_replay(w, durations, &after_ns));
    cause->saved_s = fmax(0, seconds_of(w->window_ns) - shown_s(w, after_ns, before_ns));
    return COH_OK;
}

static int are_alike(const report_what_if *a, const report_what_if *b)
{
    int alike = a->step_s == b->step_s;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        alike &= a->peak_bytes[tier] == b->peak_bytes[tier];
    return alike;
}

/* Is a what-if the plan of an earlier one? More memory than a plan needs changes nothing. */
static int is_again(const report_analysis *a, int index)
{
    for (int i = 0; i < index; i++)
        if (are_alike(&a->what_ifs[i], &a->what_ifs[index]))
            return 1;
    return 0;
}

static coh_status find_actions(report_analysis *a)
{
    const report_window *w = &a->window;
    static const report_text planned = { "a step" }, of_run = { "without calibration a step" };
    uint64_t *durations, before_ns;
    /* A replay of a measured step has its computing, which a plan only predicts. */
    for (int i = 0; i < a->what_if_count; i++)
        if (a->what_ifs[i].gain > 0 && !(a->is_measured && a->what_ifs[i].is_link) &&
            !is_again(a, i))
            add_action(a, a->is_measured ? of_run : planned,
                       a->what_ifs[i].step_s * (1 + a->what_ifs[i].gain), a->what_ifs[i].step_s,
                       a->what_ifs[i].is_quick ? "planned quickly" : "planned",
                       report_guesses(&a->run->facts, 0), a->what_ifs[i].text);
    COH_TRY(COH_ALLOC(w->trace->instruction_count, &durations));
    for (uint32_t i = 0; i < w->trace->instruction_count; i++)
        durations[i] = report_duration(w, i);
    coh_status status = report_replay(w, durations, &before_ns);
    for (int i = 0; i < a->cause_count && status == COH_OK; i++)
        status = play_without(w, &a->causes[i], before_ns, durations);
    if (status == COH_OK)
        qsort(a->causes, (size_t)a->cause_count, sizeof(a->causes[0]), cause_order);
    for (int i = 0; i < a->cause_count && status == COH_OK; i++)
        status = play_remedy(a, &a->causes[i], before_ns, durations);
    coh_free(durations);
    return status;
}

/* ---- slow steps and the sentence ---- */

/* The kind of time by which a recorded slow step differs most from the step shown. */
static coh_status explain_slow(report_analysis *a, report_slow_step *slow)
{
    const coh_trace *t = a->run->trace;
    report_window w;
    uint32_t index = 0;
    while (index < t->step_count && t->steps[index].step + 1 != slow->step)
        index++;
    if (index == t->step_count)
        return COH_OK;
    const coh_status status = report_window_open(t, index, &w);
    if (status != COH_OK)
        return status == COH_ERR_MEMORY ? status : COH_OK;
    const report_window *usual = &a->window;
    double most = seconds_of(w.lanes[COH_LANE_COMPUTE].busy_ns) -
                  seconds_of(usual->lanes[COH_LANE_COMPUTE].busy_ns);
    const char *what = "computing";
    for (int lane = 1; lane < COH_LANE_COUNT; lane++) {
        const double more =
            seconds_of(w.lanes[lane].blame_ns) - seconds_of(usual->lanes[lane].blame_ns);
        if (more > most) {
            most = more;
            what = coh_lane_name((coh_lane)lane);
        }
    }
    snprintf(slow->why, sizeof(slow->why), "%s%s took %s more",
             strcmp(what, "computing") == 0 ? "" : "waiting for ", what, report_time(most).at);
    report_window_close(&w);
    return COH_OK;
}

/* Begins the verdict with the step that is shown, and with the usual one if steps were timed. */
static void say_subject(const report_analysis *a, char *text, size_t text_bytes)
{
    const report_text step = report_time(seconds_of(a->window.window_ns));
    if (!a->is_measured)
        snprintf(text, text_bytes, "A step is predicted to take %s", step.at);
    else if (a->timed_count > 1)
        snprintf(text, text_bytes, "Step %" PRIu64 " takes %s (median of %zu steps: %s)",
                 a->window.step + 1, step.at, a->timed_count, report_time(a->step_s).at);
    else
        snprintf(text, text_bytes, "Step %" PRIu64 " takes %s", a->window.step + 1, step.at);
}

static void write_verdict(report_analysis *a)
{
    const report_cause *cause = &a->causes[0];
    const double step = seconds_of(a->window.window_ns);
    if (!a->has_window) {
        if (isfinite(a->step_s))
            snprintf(a->verdict, sizeof(a->verdict),
                     "%s %s; %s, so what holds it back cannot be named.",
                     a->timed_count ? "A step takes" : "A step is predicted to take",
                     report_time(a->step_s).at,
                     a->run->is_trace_unreadable ? "trace.bin is damaged" : "no step was recorded");
        else
            snprintf(a->verdict, sizeof(a->verdict),
                     "The run has no steps, so nothing can be said about its speed.");
        return;
    }
    char subject[160];
    say_subject(a, subject, sizeof(subject));
    const double busy = seconds_of(a->window.lanes[COH_LANE_COMPUTE].busy_ns);
    const report_text without = report_time(fmax(0, step - cause->saved_s));
    if (cause->kind == REPORT_COMPUTE)
        snprintf(a->verdict, sizeof(a->verdict),
                 "%s and is limited by compute, which is busy for %.0f %% of it; no "
                 "cause could save more than %.0f %%.",
                 subject, 100 * busy / step, 100 * WORTH_NAMING);
    else if (cause->saved_s < WORTH_BLAMING * step)
        snprintf(a->verdict, sizeof(a->verdict),
                 "%s and is limited by compute, which is busy for %.0f %% of it; the largest "
                 "other cause is %s, without which it would take %s: %s.",
                 subject, 100 * busy / step, report_kind_name(cause->kind), without.at,
                 cause->text);
    else
        snprintf(a->verdict, sizeof(a->verdict),
                 "%s; it would take %s without its main cause, %s: %s.", subject, without.at,
                 report_kind_name(cause->kind), cause->text);
}

coh_status report_judge(report_analysis *a)
{
    if (a->has_window) {
        find_causes(a);
        COH_TRY(find_actions(a));
        for (int i = 0; i < a->slow_count && i < REPORT_SLOW_STEPS; i++)
            COH_TRY(explain_slow(a, &a->slow_steps[i]));
    }
    write_verdict(a);
    return COH_OK;
}
