/* The analysis of steps: sums hold to the nanosecond, and a stall that was planted in a step is the
 * first cause named, with its seconds and the gain of its remedy. The oracle is the play of
 * made_trace.c: the step with the stall against the step without it. */
#include "tests/report/made_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "report/analysis.h"
#include "report/format.h"

static const made_options usual = { .operators = 6,
                                    .chunks = 2,
                                    .steps = 4,
                                    .chunk_bytes = 4 << 20,
                                    .forward_ns = 3000000,
                                    .backward_ns = 6000000,
                                    .update_ns = 100000,
                                    .read_ns = 500000,
                                    .write_ns = 200000,
                                    .read_bytes_per_s = (4 << 20) / 500e-6 };

static const char facts[] = "{\"version\": 1, \"model\": \"made\", \"tokens_per_step\": 1000}";

static void analyse(const coh_trace *trace, report_run *run, report_analysis *a)
{
    assert_int_equal(report_run_of_plan(facts, strlen(facts), trace, run), COH_OK);
    *a = (report_analysis){ 0 };
    assert_int_equal(report_analyse(run, a), COH_OK);
    assert_true(a->has_window);
}

static void done(report_run *run, report_analysis *a, coh_trace *trace)
{
    report_analysis_close(a);
    report_run_close(run);
    coh_trace_free(trace);
}

/* The time from one step's first compute instruction to the next one's. */
static double period_s(const coh_trace *trace)
{
    const uint32_t first = made_find(trace, "forward", 0);
    const coh_trace_step *a = &trace->steps[1], *b = &trace->steps[2];
    return (double)(b->begin_ns + b->spans[first].begin_ns - a->begin_ns -
                    a->spans[first].begin_ns) *
           1e-9;
}

static void check_sums(const report_analysis *a)
{
    const report_window *w = &a->window;
    uint64_t exposed = 0, opcodes = 0, gaps = 0, blamed = 0;
    assert_true(w->lanes[COH_LANE_COMPUTE].busy_ns + w->idle_ns == w->window_ns);
    for (int lane = 1; lane < COH_LANE_COUNT; lane++) {
        exposed += w->lanes[lane].exposed_ns;
        blamed += w->lanes[lane].blame_ns;
        assert_true(w->lanes[lane].busy_ns <= w->window_ns);
    }
    for (uint32_t i = 0; i < w->trace->opcode_count; i++)
        opcodes += w->opcode_ns[i];
    for (uint32_t i = 0; i < w->gap_count; i++)
        gaps += w->gaps[i].end_ns - w->gaps[i].begin_ns;
    assert_true(exposed + w->issue_ns == w->idle_ns);
    assert_true(opcodes == w->lanes[COH_LANE_COMPUTE].busy_ns);
    assert_true(gaps == w->idle_ns && blamed <= exposed);
}

static void a_step_as_predicted_is_limited_by_compute(void **state)
{
    (void)state;
    report_run run;
    report_analysis a;
    for (int measured = 0; measured < 2; measured++) {
        coh_trace *trace = made_trace(&usual);
        if (!measured)
            trace->step_count = 0;
        analyse(trace, &run, &a);
        check_sums(&a);
        assert_int_equal(a.is_measured, measured);
        assert_int_equal(a.causes[0].kind, REPORT_COMPUTE);
        assert_true(fabs(a.causes[0].seconds - 6 * 9e-3) < 1e-12);
        assert_non_null(strstr(a.verdict, measured ? "Step 2 takes" : "predicted to take"));
        /* the room of two operators is full: their bytes and the pinned ones */
        assert_true(a.memory.peak_bytes[COH_TIER_DEVICE] >= (1 << 20) + 2 * (4 << 20));
        assert_true(a.memory.peak_bytes[COH_TIER_DEVICE] <= trace->arena_bytes[COH_TIER_DEVICE]);
        done(&run, &a, trace);
    }
}

/* Saves between steps, of five steps each, are no time of the step that is shown. */
static void a_pause_between_steps_is_of_no_step(void **state)
{
    (void)state;
    for (uint32_t every = 1; every < 4; every++) {
        report_run run;
        report_analysis a;
        coh_trace *trace = made_trace(&usual);
        const double period = period_s(trace);
        const uint64_t pause_ns = (uint64_t)(5e9 * period);
        for (uint32_t s = 0; s < trace->step_count; s++)
            trace->steps[s].begin_ns += s / every * pause_ns;
        analyse(trace, &run, &a);
        check_sums(&a);
        assert_true(a.is_measured);
        assert_true((double)a.window.window_ns * 1e-9 < 1.5 * period);
        assert_int_equal(a.causes[0].kind, REPORT_COMPUTE);
        done(&run, &a, trace);
    }
}

/* Plays the trace with these durations; expects the cause first, with the seconds that the step
 * became longer by, within `slack`, and the gain of its remedy. */
static void expect(coh_trace *trace, uint64_t *durations, report_kind kind, double slack)
{
    report_run run;
    report_analysis a;
    const double before = period_s(trace);
    made_run(trace, durations);
    const double after = period_s(trace);
    assert_true(after > 1.1 * before);
    analyse(trace, &run, &a);
    check_sums(&a);
    if (a.causes[0].kind != kind)
        print_error("%s\n", a.verdict);
    assert_int_equal(a.causes[0].kind, kind);
    if (!(fabs(a.causes[0].seconds - (after - before)) <= slack * (after - before)))
        print_error("%s: %g s, not %g s\n", a.verdict, a.causes[0].seconds, after - before);
    assert_true(fabs(a.causes[0].seconds - (after - before)) <= slack * (after - before));
    assert_non_null(strstr(a.verdict, report_kind_name(kind)));
    assert_true(a.action_count >= 1 && a.actions[0].gain > 0);
    /* the remedy of all but a late update brings the planned step back */
    if (kind != REPORT_LATE_UPDATE)
        assert_true(fabs(a.actions[0].gain - (after / before - 1)) <= slack * (after / before - 1));
    coh_free(durations);
    done(&run, &a, trace);
}

static void a_slow_read_is_named(void **state)
{
    (void)state;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    made_scale(trace, durations, "read", 12);
    expect(trace, durations, REPORT_SLOW_LINK, 0.1);
}

/* All parameters wait for the last update, that of the first operator. */
static void a_late_update_is_named(void **state)
{
    (void)state;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    durations[made_find(trace, "update", 0)] = 30000000;
    expect(trace, durations, REPORT_LATE_UPDATE, 0.02);
}

/* 64 chunks of 16 KiB take 200 us each; at the link's rate they would take 2 us. */
static void small_chunks_are_named(void **state)
{
    (void)state;
    made_options options = usual;
    options.chunks = 64;
    options.chunk_bytes = 16 << 10;
    options.read_ns = 2000;
    options.read_bytes_per_s = (16 << 10) / 2e-6;
    coh_trace *trace = made_trace(&options);
    uint64_t *durations = made_durations(trace);
    made_scale(trace, durations, "read", 100);
    expect(trace, durations, REPORT_SMALL_CHUNK, 0.1);
}

static void a_busy_core_is_named(void **state)
{
    (void)state;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    made_scale(trace, durations, "forward", 1.3);
    made_scale(trace, durations, "backward", 1.3);
    expect(trace, durations, REPORT_BUSY_CORE, 0.02);
}

static void a_slow_operator_is_named(void **state)
{
    (void)state;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    durations[made_find(trace, "backward", 3)] *= 4;
    expect(trace, durations, REPORT_SLOW_OPERATOR, 0.02);
}

/* The same slowness with a throttled process: not a busy core. */
static void throttling_is_named(void **state)
{
    (void)state;
    report_run run;
    report_analysis a;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    made_scale(trace, durations, "forward", 1.3);
    made_scale(trace, durations, "backward", 1.3);
    made_run(trace, durations);
    for (uint32_t i = 0; i < trace->step_count; i++)
        trace->steps[i].counters.throttled_ns = 6 * 2700000;
    analyse(trace, &run, &a);
    assert_int_equal(a.causes[0].kind, REPORT_THROTTLED);
    assert_true(fabs(a.causes[0].seconds - 6 * 2.7e-3) < 1e-9);
    assert_int_equal(a.causes[1].kind, REPORT_COMPUTE);
    coh_free(durations);
    done(&run, &a, trace);
}

/* Makes every second instruction of an opcode take `late` times as long, the others `early`. */
static void scale_by_turns(const coh_trace *trace, uint64_t *durations, const char *opcode,
                           double late, double early)
{
    int turn = 0;
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (strcmp(trace->opcodes[trace->instructions[i].opcode], opcode) == 0)
            durations[i] = (uint64_t)((double)durations[i] * (turn++ % 2 ? early : late));
}

/* The cause of this kind. */
static const report_cause *find_cause(const report_analysis *a, report_kind kind)
{
    for (int i = 0; i < a->cause_count; i++)
        if (a->causes[i].kind == kind)
            return &a->causes[i];
    print_error("no %s: %s\n", report_kind_name(kind), a->verdict);
    fail();
    return NULL;
}

/* Half of the backward passes are late and half are early: compute as a whole is late by the
 * difference, and a step of nothing but computing is shorter by no more than that. What the system
 * took of it remains. */
static void compute_brought_back_saves_what_it_was_late(void **state)
{
    (void)state;
    for (int is_throttled = 0; is_throttled < 2; is_throttled++) {
        report_run run;
        report_analysis a;
        coh_trace *trace = made_trace(&usual);
        uint64_t *durations = made_durations(trace);
        const double predicted = period_s(trace), throttled = is_throttled ? 4e-3 : 0;
        scale_by_turns(trace, durations, "backward", 2, 0.5);
        made_run(trace, durations);
        const double late = 3 * 6e-3 - 3 * 3e-3; /* of 6 ms each */
        assert_true(fabs(period_s(trace) - predicted - late) < 1e-5);
        for (uint32_t i = 0; i < trace->step_count; i++)
            trace->steps[i].counters.throttled_ns = (uint64_t)(throttled * 1e9);
        analyse(trace, &run, &a);
        const report_cause *cause = find_cause(&a, REPORT_SLOW_OPERATOR);
        assert_true(fabs(cause->seconds - (late - throttled)) < 1e-5);
        assert_true(fabs(cause->saved_s - (late - throttled)) < 1e-5);
        assert_non_null(strstr(a.actions[0].text, "bring compute to its predicted time"));
        assert_true(fabs(a.actions[0].after_s - (predicted + throttled)) < 1e-5);
        coh_free(durations);
        done(&run, &a, trace);
    }
}

/* Reads fill the step before the first backward pass. Each second one is early, so that all of them
 * are late by 1.4 times: with the link at its predicted rate the step takes its predicted time. */
static void a_link_brought_back_saves_what_it_was_late(void **state)
{
    (void)state;
    report_run run;
    report_analysis a;
    made_options options = usual;
    options.read_ns = 6000000;
    options.read_bytes_per_s = (4 << 20) / 6e-3;
    coh_trace *trace = made_trace(&options);
    uint64_t *durations = made_durations(trace);
    const double predicted = period_s(trace);
    scale_by_turns(trace, durations, "read", 2.2, 0.6);
    made_run(trace, durations);
    const double late = 12 * 0.4 * 6e-3;
    assert_true(fabs(period_s(trace) - predicted - late) < 1e-5);
    analyse(trace, &run, &a);
    assert_true(fabs(find_cause(&a, REPORT_SLOW_LINK)->saved_s - late) < 1e-5);
    assert_non_null(strstr(a.actions[0].text, "bring read back to its predicted rate"));
    assert_true(fabs(a.actions[0].after_s - predicted) < 1e-5);
    coh_free(durations);
    done(&run, &a, trace);
}

/* The change is to halve the updates, also if they were predicted to be shorter than that. */
static void halved_updates_take_half_their_time(void **state)
{
    (void)state;
    report_run run;
    report_analysis a;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    const uint32_t last = made_find(trace, "update", 0);
    durations[last] = 15000000;
    made_run(trace, durations);
    const double halved = period_s(trace);
    durations[last] = 30000000;
    made_run(trace, durations);
    analyse(trace, &run, &a);
    assert_int_equal(a.causes[0].kind, REPORT_LATE_UPDATE);
    assert_non_null(strstr(a.actions[0].text, "halve the updates"));
    assert_true(fabs(a.actions[0].after_s - halved) < 1e-4);
    coh_free(durations);
    done(&run, &a, trace);
}

/* Lets `late_ns` pass before each next step, as on a busy machine: the steps shown are then longer
 * than their replay. */
static void delay_steps(coh_trace *trace, uint64_t late_ns)
{
    for (uint32_t s = 0; s < trace->step_count; s++)
        trace->steps[s].begin_ns += s * late_ns;
}

/* Verdict and change are of the same step: without the cause it takes as long as with the remedy,
 * and the gain is the quotient of the two times that are printed. */
static void the_gain_is_of_the_step_that_the_verdict_names(void **state)
{
    (void)state;
    static const double slower[] = { 1.3, 1.6, 2 };
    for (size_t i = 0; i < sizeof(slower) / sizeof(slower[0]); i++) {
        report_run run;
        report_analysis a;
        coh_trace *trace = made_trace(&usual);
        uint64_t *durations = made_durations(trace);
        made_scale(trace, durations, "forward", slower[i]);
        made_scale(trace, durations, "backward", slower[i]);
        made_run(trace, durations);
        delay_steps(trace, (uint64_t)(0.05e9 * period_s(trace)));
        const double shown = period_s(trace);
        analyse(trace, &run, &a);
        const report_action *action = &a.actions[0];
        char words[200];
        assert_int_equal(a.causes[0].kind, REPORT_BUSY_CORE);
        assert_true(fabs(action->before_s - shown) < 1e-9);
        assert_true(fabs(action->after_s - (shown - a.causes[0].saved_s)) < 1e-9);
        assert_true(fabs(action->gain - (action->before_s / action->after_s - 1)) < 1e-12);
        /* all computing is late by this; the delay between steps is another's */
        assert_true(fabs(action->after_s - (shown - (slower[i] - 1) * 6 * 9e-3)) < 1e-5);
        snprintf(words, sizeof(words), "replayed: step %d takes %s instead of %s",
                 (int)a.window.step + 1, report_time(action->after_s).at, report_time(shown).at);
        assert_string_equal(action->basis, words);
        snprintf(words, sizeof(words), "Step %d takes %s; it would take %s without",
                 (int)a.window.step + 1, report_time(shown).at, report_time(action->after_s).at);
        if (strncmp(a.verdict, words, strlen(words)) != 0)
            print_error("%s\n%s\n", a.verdict, words);
        assert_memory_equal(a.verdict, words, strlen(words));
        coh_free(durations);
        done(&run, &a, trace);
    }
}

/* Of three recorded steps, one has both neighbours. If its time is not that of the run's steps, the
 * step before it is shown, and the median is named. */
static void the_step_shown_is_a_typical_one(void **state)
{
    (void)state;
    for (int is_odd = 0; is_odd < 2; is_odd++) {
        report_run run;
        report_analysis a;
        char median[80];
        made_options options = usual;
        options.steps = 3;
        coh_trace *trace = made_trace(&options);
        const double period = period_s(trace);
        if (is_odd) {
            trace->steps[1].step_ns += trace->steps[1].step_ns / 3;
            trace->steps[2].begin_ns += trace->steps[1].step_ns / 4;
        }
        assert_int_equal(report_run_of_plan(facts, strlen(facts), trace, &run), COH_OK);
        assert_int_equal(COH_ALLOC(5, &run.rows), COH_OK);
        for (uint32_t i = 0; i < 5; i++)
            run.rows[i] =
                (report_row){ .step = i + 1,
                              .seconds = (float)((is_odd && i == 1 ? 4. / 3 : 1) * period) };
        run.row_count = run.row_capacity = 5;
        a = (report_analysis){ 0 };
        assert_int_equal(report_analyse(&run, &a), COH_OK);
        assert_true(a.is_measured);
        assert_int_equal(a.window.step, is_odd ? 0 : 1);
        snprintf(median, sizeof(median), "(median of 5 steps: %s)", report_time(period).at);
        assert_non_null(strstr(a.verdict, median));
        done(&run, &a, trace);
    }
}

/* The larger of two stalls is first. */
static void causes_are_ranked_by_their_seconds(void **state)
{
    (void)state;
    report_run run;
    report_analysis a;
    coh_trace *trace = made_trace(&usual);
    uint64_t *durations = made_durations(trace);
    made_scale(trace, durations, "read", 12);
    durations[made_find(trace, "update", 0)] = 10000000;
    made_run(trace, durations);
    analyse(trace, &run, &a);
    check_sums(&a);
    assert_int_equal(a.causes[0].kind, REPORT_SLOW_LINK);
    assert_int_equal(a.causes[1].kind, REPORT_LATE_UPDATE);
    assert_true(a.causes[0].seconds > a.causes[1].seconds);
    assert_true(fabs(a.causes[1].seconds - 10e-3) < 1e-4);
    coh_free(durations);
    done(&run, &a, trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_as_predicted_is_limited_by_compute),
        cmocka_unit_test(a_pause_between_steps_is_of_no_step),
        cmocka_unit_test(a_slow_read_is_named),
        cmocka_unit_test(a_late_update_is_named),
        cmocka_unit_test(small_chunks_are_named),
        cmocka_unit_test(a_busy_core_is_named),
        cmocka_unit_test(a_slow_operator_is_named),
        cmocka_unit_test(throttling_is_named),
        cmocka_unit_test(compute_brought_back_saves_what_it_was_late),
        cmocka_unit_test(a_link_brought_back_saves_what_it_was_late),
        cmocka_unit_test(halved_updates_take_half_their_time),
        cmocka_unit_test(the_gain_is_of_the_step_that_the_verdict_names),
        cmocka_unit_test(the_step_shown_is_a_typical_one),
        cmocka_unit_test(causes_are_ranked_by_their_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
