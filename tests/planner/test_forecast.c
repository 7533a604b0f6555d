/* Reports on a finished plan: estimates in their order, quantiles of drawn durations, and the
 * occupancy of each tier, recomputed moment by moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "planner/plan.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/planner/small_program.h"
#include "tests/planner/toy_graph.h"

static const coh_layout no_layout;

/* A plan that streams through half of its memory; over two links if `with_host` is set. */
static coh_plan *make_streamed(const coh_graph *graph, int with_host)
{
    coh_plan *plan = NULL;
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 2,
                                 .microbatch_count = 2,
                                 .deferred_update = 1,
                                 .kernel_path = "toy" };
    uint64_t in_memory = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &in_memory), COH_OK);
    options.device_memory_bytes = in_memory / 2;
    options.disk_bytes = UINT64_MAX;
    options.emulate_host = 1;
    options.host_memory_bytes = with_host ? in_memory / 4 : 0;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    return plan;
}

/* Without and with a host tier. Made once: no test changes them. */
static coh_graph *toy;
static coh_plan *streamed_plans[2];

static int make_plans(void **state)
{
    (void)state;
    const toy_options options = {
        .layers = 3, .width = 128, .vocabulary = 900, .rows = 300, .in_place = 1
    };
    assert_int_equal(toy_graph_make(&options, &toy), COH_OK);
    for (int with_host = 0; with_host < 2; with_host++)
        streamed_plans[with_host] = make_streamed(toy, with_host);
    return 0;
}

static int drop_plans(void **state)
{
    (void)state;
    for (int with_host = 0; with_host < 2; with_host++)
        coh_plan_destroy(streamed_plans[with_host]);
    coh_graph_destroy(toy);
    return 0;
}

static void quotes_lie_around_the_prediction(void **state)
{
    (void)state;
    const coh_plan *plan = streamed_plans[1];
    coh_plan_summary s = { .struct_bytes = sizeof(s) };
    assert_int_equal(coh_plan_summarize(plan, &s), COH_OK);
    assert_true(s.step_alone_ns < s.step_ns && s.step_ns < s.step_contended_ns);
    assert_true(s.bound_ns <= s.step_ns);
    /* the built-in profile has no spread */
    assert_true(s.step_p10_ns == s.step_ns && s.step_p50_ns == s.step_ns &&
                s.step_p90_ns == s.step_ns);
}

/* One instruction: the quantiles of the whole are those of its price, up to the accuracy of 101
 * draws. */
static void quantiles_of_one_instruction_are_its_own(void **state)
{
    (void)state;
    made m;
    coh_pricer pricer;
    coh_forecast forecast, again;
    coh_profile profile = unit_profile();
    profile.flops_per_s[COH_ROOF_F32] =
        (coh_figure){ .p10 = 1e9 / 1.3, .p50 = 1e9, .p90 = 1e9 / 0.9, .samples = 5 };
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_COMPUTE, 1000000);
    assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
    assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &forecast), COH_OK);
    assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &again), COH_OK);
    assert_memory_equal(&forecast, &again, sizeof(forecast));
    assert_in_range(forecast.p10_ns, 850000, 940000);
    assert_int_equal(forecast.p50_ns, 1000000);
    assert_in_range(forecast.p90_ns, 1200000, 1430000);
    assert_int_equal(forecast.alone_ns, 1000000);
    assert_int_equal(forecast.contended_ns, 1000000);
    coh_pricer_fini(&pricer);
}

/* Errors of many figures would average out, but a run is fast or slow as a whole. An instruction
 * that no run calibrates keeps its time. */
static void runs_that_differed_widen_the_spread_of_the_whole_step(void **state)
{
    enum { INSTRUCTIONS = 64 };
    (void)state;
    coh_profile profile = unit_profile();
    /* of five runs of equal weight the next one is uncertain by sqrt(6 / 4) times the deviation */
    const double part = 0.1, deviation = 2 * part / 1.2247448713915890, percentile = 1.2815515655;
    profile.calibration[COH_OP_FORWARD] =
        (coh_calibration){ .factor = 2, .runs = 5, .deviation = deviation };
    for (int half = 0; half < 2; half++) {
        made m;
        coh_pricer pricer;
        coh_forecast forecast;
        make(&m, COH_PROGRAM_EVALUATE);
        for (int i = 0; i < INSTRUCTIONS; i++) {
            const int is_calibrated = !half || i % 2 == 0;
            add(&m, COH_LANE_COMPUTE, is_calibrated ? 10000 : 20000);
            m.instructions[i].opcode = is_calibrated ? COH_OP_FORWARD : COH_OP_BACKWARD;
        }
        assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
        assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &forecast), COH_OK);
        const double away = INSTRUCTIONS * 20000 * part * percentile / (1 + half);
        assert_int_equal(forecast.p50_ns, INSTRUCTIONS * 20000);
        assert_in_range(forecast.p90_ns, forecast.p50_ns + (uint64_t)(0.7 * away),
                        forecast.p50_ns + (uint64_t)(1.3 * away));
        assert_in_range(forecast.p10_ns, forecast.p50_ns - (uint64_t)(1.3 * away),
                        forecast.p50_ns - (uint64_t)(0.7 * away));
        coh_pricer_fini(&pricer);
    }
}

/* Two lanes in parallel; one is as long as the other's 90th percentile, so the shorter does not
 * show. */
static void what_is_hidden_does_not_widen_the_spread(void **state)
{
    (void)state;
    made m;
    coh_pricer pricer;
    coh_forecast forecast;
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].bytes_per_s =
        (coh_figure){ .p10 = 0.5e9, .p50 = 1e9, .p90 = 2e9, .samples = 5 };
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_COMPUTE, 100000);
    add(&m, COH_LANE_READ, 10000);
    assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
    assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &forecast), COH_OK);
    assert_true(forecast.p10_ns == 100000 && forecast.p90_ns == 100000);
    coh_pricer_fini(&pricer);
}

/* Instructions in sequence, each priced from its own figure, whose spread is upward only: the
 * plan uses the measured medians, and no walk is faster. */
static void figures_that_lean_one_way_leave_the_step_within_its_tenths(void **state)
{
    enum { FIGURES = 16 };
    (void)state;
    made m;
    coh_pricer pricer;
    coh_forecast forecast;
    coh_operator_sample samples[FIGURES];
    coh_operator_times times[FIGURES];
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_EVALUATE);
    for (int i = 0; i < FIGURES; i++) {
        samples[i] = (coh_operator_sample){
            .flops = 1000, .seconds = { .p10 = 1e-6, .p50 = 1e-6, .p90 = 3e-6, .samples = 9 }
        };
        times[i] = (coh_operator_times){ .lane = COH_LANE_COMPUTE,
                                         .samples = &samples[i],
                                         .sample_count = 1 };
        snprintf(times[i].kind, sizeof(times[i].kind), "%s", coh_price_name((coh_opcode)i));
        add(&m, COH_LANE_COMPUTE, 1000);
        m.instructions[i].opcode = (uint8_t)i;
    }
    profile.operators = times;
    profile.operator_count = FIGURES;
    assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
    assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &forecast), COH_OK);
    assert_int_equal(forecast.p50_ns, 1000 * FIGURES);
    assert_true(forecast.p10_ns <= forecast.p50_ns && forecast.p90_ns > forecast.p50_ns);
    coh_pricer_fini(&pricer);
}

static coh_figure random_rate(uint64_t seed, uint64_t n)
{
    const double rate = 1e9 * (0.5 + coh_rng_uniform(seed, 31, 3 * n));
    return (coh_figure){ .p10 = rate * (1 - 0.7 * coh_rng_uniform(seed, 31, 3 * n + 1)),
                         .p50 = rate,
                         .p90 = rate * (1 + 2 * coh_rng_uniform(seed, 31, 3 * n + 2)),
                         .samples = 5 };
}

/* Whichever way the figures are skewed, the planned time is the reported median, between the 10th
 * and 90th percentiles. */
static void the_step_is_never_outside_its_tenths(void **state)
{
    (void)state;
    int wide = 0;
    for (uint64_t seed = 0; seed < (test_is_brief() ? 10 : 60); seed++) {
        made m;
        coh_pricer pricer;
        coh_forecast forecast;
        coh_simulation step;
        coh_profile profile = unit_profile();
        profile.flops_per_s[COH_ROOF_F32] = random_rate(seed, 0);
        for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
            profile.link[lane].bytes_per_s = random_rate(seed, 1 + (uint64_t)lane);
        share_drive(&profile);
        if (seed % 2)
            make_random(&m, seed, COH_PROGRAM_EVALUATE);
        else
            make_random_body(&m, seed);
        assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
        assert_int_equal(coh_forecast_make(&no_layout, &m.program, &pricer, 0, &forecast), COH_OK);
        assert_int_equal(coh_simulate_priced(&no_layout, &m.program, &pricer, &step, NULL), COH_OK);
        assert_true(forecast.p50_ns == step.period_ns);
        if (forecast.p10_ns > step.period_ns || forecast.p90_ns < step.period_ns)
            fail_msg("seed %" PRIu64 ": %" PRIu64 " ns, tenths %" PRIu64 " and %" PRIu64, seed,
                     step.period_ns, forecast.p10_ns, forecast.p90_ns);
        wide += forecast.p10_ns < forecast.p90_ns;
        coh_pricer_fini(&pricer);
    }
    assert_true(wide > (test_is_brief() ? 7 : 50));
}

/* ---- memory ---- */

typedef struct life {
    uint64_t begin, end;
    int is_used;
} life;

static life find_life(const coh_program *body, const uint64_t *instruction_ns, uint32_t extent)
{
    life found = { .begin = UINT64_MAX };
    for (uint32_t i = 0; i < body->instruction_count; i++)
        for (uint32_t o = 0; o < body->instructions[i].operand_count; o++) {
            const coh_operand *operand = &body->operands[body->instructions[i].operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++)
                if (body->touches[operand->touch_begin + t].extent == extent) {
                    found.is_used = 1;
                    /* until the end, bytes that it is written in place of are those of another */
                    const uint64_t begin = instruction_ns[2 * i + (operand->takes > 0)];
                    if (begin < found.begin)
                        found.begin = begin;
                    if (instruction_ns[2 * i + 1] > found.end)
                        found.end = instruction_ns[2 * i + 1];
                }
        }
    return found;
}

/* Counts the runs in [-8, 8] of a body, one per period, that hold the extent at `when`. A copy that
 * stays at the end of a run is the one that the next run begins with, so a double count is
 * subtracted. */
static int64_t holders(const coh_extent *extent, const life *of, uint64_t period, uint64_t when)
{
    int64_t count = 0;
    for (int64_t run = -8; run <= 8; run++) {
        int64_t at = (int64_t)when - run * (int64_t)period;
        int64_t begin = extent->at_begin ? 0 : (int64_t)of->begin;
        int64_t end = extent->at_end ? (int64_t)period : (int64_t)of->end;
        if (!of->is_used && !extent->at_end)
            end = begin;
        count += (at >= begin && at < end) - (at >= end && at < begin);
    }
    return count;
}

static int64_t occupied(const coh_plan *plan, const life *lives, int tier, uint64_t period,
                        uint64_t when)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int64_t bytes = tier == COH_TIER_DEVICE ? (int64_t)plan->layout.pinned_bytes : 0;
    for (uint32_t i = 0; i < body->extent_count; i++) {
        const coh_extent *extent = &body->extents[i];
        if (extent->tier != tier || (!lives[i].is_used && !extent->at_begin) ||
            (tier == COH_TIER_DEVICE && extent->offset < plan->layout.pinned_bytes))
            continue;
        bytes += holders(extent, &lives[i], period, when) * (int64_t)extent->bytes;
    }
    return bytes;
}

enum { PARTS = 16 };

/* Occupancy rises only at the begin of a lifetime: the maximum of an interval is at one of those
 * moments or at the interval's begin. */
static void check_tier(const coh_plan *plan, const life *lives, int tier, uint64_t period,
                       const uint64_t *curve)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int64_t most[PARTS];
    for (uint64_t part = 0; part < PARTS; part++) {
        uint64_t begin = (uint64_t)((double)period * (double)part / PARTS);
        most[part] = occupied(plan, lives, tier, period, begin);
    }
    for (uint32_t i = 0; i < body->extent_count; i++)
        for (int end = 0; end < 2; end++) {
            uint64_t when = end ? lives[i].end : lives[i].begin;
            if (!lives[i].is_used)
                continue;
            when %= period;
            uint64_t part = 0;
            while (part + 1 < PARTS &&
                   when >= (uint64_t)((double)period * (double)(part + 1) / PARTS))
                part++;
            int64_t bytes = occupied(plan, lives, tier, period, when);
            most[part] = bytes > most[part] ? bytes : most[part];
        }
    for (int part = 0; part < PARTS; part++)
        if (curve[part] != (uint64_t)most[part] || curve[part] > plan->layout.arena_bytes[tier])
            fail_msg("tier %d part %d: %" PRIu64 ", counted %" PRId64 " of %" PRIu64, tier, part,
                     curve[part], most[part], plan->layout.arena_bytes[tier]);
}

static void the_memory_curve_is_what_is_occupied_at_each_moment(void **state)
{
    (void)state;
    for (int with_host = 0; with_host < 2; with_host++) {
        const coh_plan *plan = streamed_plans[with_host];
        const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
        uint64_t *instruction_ns = NULL, *service_ns = NULL, curve[COH_TIER_COUNT * PARTS];
        life *lives = NULL;
        coh_simulation s;
        assert_int_equal(COH_ALLOC(2 * (size_t)body->instruction_count, &instruction_ns), COH_OK);
        assert_int_equal(COH_ALLOC(body->instruction_count, &service_ns), COH_OK);
        assert_int_equal(COH_ALLOC(body->extent_count, &lives), COH_OK);
        for (uint32_t i = 0; i < body->instruction_count; i++) {
            const coh_instruction *instruction = &body->instructions[i];
            service_ns[i] =
                (uint64_t)(coh_price_instruction(&plan->pricer, &plan->layout, body, instruction)
                               .p50 +
                           0.5);
        }
        assert_int_equal(coh_simulate(body, &plan->profile, service_ns, COH_CONTENTION_FLUID, &s,
                                      instruction_ns),
                         COH_OK);
        for (uint32_t i = 0; i < body->extent_count; i++)
            lives[i] = find_life(body, instruction_ns, i);
        assert_int_equal(coh_plan_memory_curve(plan, PARTS, curve), COH_OK);
        check_tier(plan, lives, COH_TIER_DEVICE, s.period_ns, curve);
        check_tier(plan, lives, COH_TIER_HOST, s.period_ns, curve + PARTS);
        assert_int_equal(curve[2 * PARTS], plan->layout.file_bytes);
        assert_true(curve[0] > 0 && (curve[PARTS] > 0) == with_host);
        coh_free(lives);
        coh_free(service_ns);
        coh_free(instruction_ns);
    }
}

static void a_curve_of_no_points_is_refused(void **state)
{
    (void)state;
    uint64_t bytes[3];
    const coh_plan *plan = streamed_plans[0];
    assert_int_equal(coh_plan_memory_curve(plan, 0, bytes), COH_ERR_ARGUMENT);
    assert_int_equal(coh_plan_memory_curve(plan, 1, bytes), COH_OK);
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    const coh_plan *plan = streamed_plans[0];
    for (uint64_t n = 1;; n += 1 + (test_is_brief() ? n / 4 : 0)) {
        uint64_t bytes[3 * PARTS];
        coh_forecast forecast;
        alloc_fail_nth(n);
        coh_status status = coh_plan_memory_curve(plan, PARTS, bytes);
        if (status == COH_OK)
            status = coh_forecast_make(&plan->layout, &plan->programs[COH_PROGRAM_BODY],
                                       &plan->pricer, 0, &forecast);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_lie_around_the_prediction),
        cmocka_unit_test(quantiles_of_one_instruction_are_its_own),
        cmocka_unit_test(figures_that_lean_one_way_leave_the_step_within_its_tenths),
        cmocka_unit_test(the_step_is_never_outside_its_tenths),
        cmocka_unit_test(runs_that_differed_widen_the_spread_of_the_whole_step),
        cmocka_unit_test(what_is_hidden_does_not_widen_the_spread),
        cmocka_unit_test(the_memory_curve_is_what_is_occupied_at_each_moment),
        cmocka_unit_test(a_curve_of_no_points_is_refused),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, make_plans, drop_plans);
}
