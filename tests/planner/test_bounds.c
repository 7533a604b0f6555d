/* Compares lower bounds with schedules: no program of any decisions is faster than a bound or moves
 * fewer bytes, and a bound is met where a single resource limits. For small sequences the fewest
 * bytes are compared with all ways to keep bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "planner/bounds.h"
#include "planner/bounds_traffic.h"
#include "planner/least_step.h"
#include "planner/lower_late.h"
#include "planner/plan_make.h"
#include "planner/schedule.h"
#include "planner/step_facts.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

typedef struct draws {
    uint64_t seed, n;
} draws;

static uint64_t draw(draws *d, uint64_t below)
{
    return coh_rng_below(77, d->seed, d->n++, below);
}

/* ---- random machines ---- */

static coh_link_profile make_link(draws *d)
{
    uint64_t mib_per_s = (uint64_t)1 << draw(d, 14);
    return (coh_link_profile){ .latency_ns = coh_figure_of((double)draw(d, 30000)),
                               .bytes_per_s = coh_figure_of((double)(mib_per_s << 20)),
                               .depth = 1 + (uint32_t)draw(d, 8) };
}

/* `meet`: lanes slow one another, and of every other seed share a memory. */
static void make_profile(draws *d, int meet, coh_profile *out)
{
    coh_profile_init(out);
    snprintf(out->name, sizeof(out->name), "made");
    for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
        out->flops_per_s[roof] = coh_figure_of(1e9 * (double)((uint64_t)1 << draw(d, 10)));
    out->memory_bytes_per_s = coh_figure_of(1e9 * (double)(1 + draw(d, 100)));
    out->host_update_bytes_per_s = coh_figure_of(1e9 * (double)(1 + draw(d, 40)));
    out->instruction_ns = coh_figure_of((double)draw(d, 3000));
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        out->link[lane] = make_link(d);
    for (int a = 0; meet && a <= COH_LANE_WRITE; a++)
        for (int b = 0; b <= COH_LANE_WRITE; b++)
            if (a != b && draw(d, 2))
                out->contention[a][b] = 0.3 + 0.07 * (double)draw(d, 10);
    for (int lane = COH_LANE_H2D; meet && d->seed % 2 && lane <= COH_LANE_HOST; lane++)
        out->memory_part[lane] = 0.1 * (double)coh_rng_below(78, d->seed, (uint64_t)lane, 13);
}

static void make_toy(draws *d, toy_options *toy)
{
    *toy = (toy_options){ .layers = 1 + (int)draw(d, 5) };
    toy->width = 16 * (1 + (int64_t)draw(d, 24));
    toy->vocabulary = 50 + (int64_t)draw(d, 3000);
    toy->rows = 1 + (int64_t)draw(d, 400);
    toy->is_tied = (int)draw(d, 2);
    toy->overwrites = (int)draw(d, 2);
    toy->freezes = (int)draw(d, 2);
    toy->extras = (int)draw(d, 2);
    toy->caches = (int)draw(d, 2);
    toy->slices = draw(d, 4) > 0;
    toy->dtype = draw(d, 2) ? COH_DTYPE_BF16 : COH_DTYPE_F32;
}

static void make_decisions(draws *d, int layers, uint64_t memory, coh_decisions *out)
{
    *out =
        (coh_decisions){ .device_bytes = (memory / 20 * (2 + draw(d, 18))) & ~(uint64_t)4095,
                         .chunk_bytes = (uint64_t)65536 << draw(d, 6),
                         .in_memory = draw(d, 10) == 0,
                         .cache = (int32_t)draw(d, 2),
                         .row_passes = draw(d, 2) ? 1 : 1 + (int32_t)draw(d, 40),
                         .slices = draw(d, 4) ? 2 + (int32_t)draw(d, 7) : 1,
                         .resident = draw(d, 2) ? 0 : (int32_t)draw(d, (uint64_t)layers + 1),
                         .tie_break = (int32_t)draw(d, COH_TIE_COUNT),
                         .patient = (int32_t)draw(d, 2),
                         .boundary = (int32_t)draw(d, COH_BOUNDARY_COUNT),
                         .horizon = (int32_t)draw(d, 30),
                         .host_updates = draw(d, 2) ? 0 : (int32_t)draw(d, (uint64_t)layers + 2) };
    out->patterns = coh_pattern_choose(out->slices);
    for (int32_t block = 0; block < layers; block++)
        if (draw(d, 2))
            coh_block_set_add(&out->recompute, block);
}

/* ---- one configuration ---- */

typedef struct tally {
    int built, refused, met;
    int sliced, resident; /* programs with operators in slices, with resident blocks */
    int light;            /* programs in which light operators of kept blocks run again */
    int beyond; /* programs whose states, all on the host lane, exceed the room above the drive */
    int binding[COH_PLAN_BOUND_COUNT];
    double ratio_sum;
    int least;        /* programs of which a bound over all decisions is known */
    double least_sum; /* of their step over that bound */
} tally;

static int is_of_two_lanes(int bound)
{
    return bound == COH_PLAN_BOUND_LINK || bound == COH_PLAN_BOUND_DRIVE ||
           bound == COH_PLAN_BOUND_CORES || bound == COH_PLAN_BOUND_DRAM ||
           bound == COH_PLAN_BOUND_HOST_WINDOW;
}

static void compare(uint64_t seed, const coh_bounds *bounds, const coh_simulation *alone,
                    const coh_simulation *fluid, tally *t)
{
    for (int b = 0; b < COH_PLAN_BOUND_COUNT; b++) {
        uint64_t step_ns = is_of_two_lanes(b) ? fluid->period_ns : alone->period_ns;
        if (bounds->ns[b] > step_ns)
            fail_msg("seed %llu: %s bound %llu ns, simulated %llu", (unsigned long long)seed,
                     coh_plan_bound_name((coh_plan_bound)b), (unsigned long long)bounds->ns[b],
                     (unsigned long long)step_ns);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (bounds->least_bytes[lane] > fluid->link_bytes[lane])
            fail_msg("seed %llu: %llu bytes over %s are no least, %llu go",
                     (unsigned long long)seed, (unsigned long long)bounds->least_bytes[lane],
                     coh_lane_name((coh_lane)lane), (unsigned long long)fluid->link_bytes[lane]);
    t->binding[bounds->binding]++;
    t->met += bounds->most_ns * 1.01 >= (double)fluid->period_ns;
    t->ratio_sum += (double)fluid->period_ns / (double)bounds->most_ns;
    t->built++;
}

/* The step uses each state once: states without room are therefore read and written once a step. */
static void check_states(uint64_t seed, const coh_layout *layout, const coh_decisions *decisions,
                         uint64_t host_bytes, const coh_bounds *bounds, tally *t)
{
    uint64_t room = decisions->device_bytes + host_bytes - layout->pinned_bytes, bytes = 0;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].stream == COH_STREAM_STATE && !layout->objects[i].pinned)
            bytes += layout->objects[i].bytes;
    if (bytes <= room)
        return;
    for (int lane = COH_LANE_READ; lane <= COH_LANE_WRITE; lane++)
        if (bounds->least_bytes[lane] < bytes - room)
            fail_msg("seed %llu: %llu bytes are a bound over %s, %llu have no room",
                     (unsigned long long)seed, (unsigned long long)bounds->least_bytes[lane],
                     coh_lane_name((coh_lane)lane), (unsigned long long)(bytes - room));
    t->beyond++;
}

/* The bound over all decisions is above no program, whatever its decisions. */
static void compare_least(uint64_t seed, const coh_graph *graph, const coh_plan_options *options,
                          const coh_pricer *pricer, const coh_decisions *decisions,
                          const coh_simulation *fluid, tally *t)
{
    coh_plan_options of = *options;
    coh_least_step least;
    of.device_memory_bytes = decisions->in_memory ? UINT64_MAX : decisions->device_bytes;
    assert_int_equal(coh_least_step_find(graph, &of, pricer, &least), COH_OK);
    if (least.light_ns > fluid->period_ns)
        fail_msg("seed %llu: a step of %llu ns, least is %llu", (unsigned long long)seed,
                 (unsigned long long)fluid->period_ns, (unsigned long long)least.light_ns);
    t->least += least.light_ns > 0;
    if (least.light_ns > 0)
        t->least_sum += (double)fluid->period_ns / (double)least.light_ns;
}

static int has_slices(const coh_program *body)
{
    int found = 0;
    for (uint32_t i = 0; i < body->call_count; i++)
        found |= body->calls[i].column_slices != 0;
    return found;
}

static int has_light(const coh_graph *graph, const coh_decisions *decisions,
                     const coh_program *body)
{
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_RECOMPUTE)
            continue;
        const int32_t op = body->calls[instruction->call].operator_index;
        if (!coh_block_set_has(&decisions->recompute, graph->ops[op].blocks_before))
            return 1;
    }
    return 0;
}

static void price_all(const coh_layout *layout, const coh_program *body, const coh_pricer *pricer,
                      coh_simulation *alone)
{
    uint64_t *service_ns = NULL;
    assert_int_equal(COH_ALLOC(body->instruction_count, &service_ns), COH_OK);
    for (uint32_t i = 0; i < body->instruction_count; i++)
        service_ns[i] =
            coh_whole_ns(coh_price_instruction(pricer, layout, body, &body->instructions[i]).p50);
    assert_int_equal(
        coh_simulate(body, pricer->profile, service_ns, COH_CONTENTION_NONE, alone, NULL), COH_OK);
    coh_free(service_ns);
}

/* Checks that bounds that may end early answer whether the largest reaches a time, and that it is
 * exact below it. */
static void check_until(coh_bound_base *base, const coh_decisions *decisions,
                        const coh_plan_options *options, const coh_bounds *exact)
{
    const uint64_t enough_ns[] = { 1, exact->most_ns / 2, exact->most_ns, exact->most_ns + 1 };
    for (size_t i = 0; i < sizeof(enough_ns) / sizeof(enough_ns[0]); i++) {
        coh_bounds until;
        assert_int_equal(coh_bounds_until(base, decisions->device_bytes, options->host_memory_bytes,
                                          enough_ns[i], &until),
                         COH_OK);
        assert_true((until.most_ns >= enough_ns[i]) == (exact->most_ns >= enough_ns[i]));
        assert_true(until.most_ns <= exact->most_ns);
        if (exact->most_ns < enough_ns[i])
            assert_int_equal(until.most_ns, exact->most_ns);
    }
}

static void check_configuration(uint64_t seed, const coh_graph *graph,
                                const coh_plan_options *options, const coh_profile *profile,
                                const coh_decisions *decisions, tally *t)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_pricer pricer;
    coh_simulation alone, fluid;
    coh_bound_base *base = NULL;
    coh_bounds bounds;
    coh_status status =
        coh_schedule_build(graph, options, profile, decisions, 0, 0, &layout, programs);
    t->refused += status == COH_ERR_FULL;
    if (status == COH_ERR_FULL)
        return;
    assert_int_equal(status, COH_OK);
    const coh_program *body = &programs[COH_PROGRAM_BODY];
    assert_int_equal(coh_pricer_init(&pricer, profile, graph), COH_OK);
    price_all(&layout, body, &pricer, &alone);
    assert_int_equal(coh_simulate_priced(&layout, body, &pricer, &fluid, NULL), COH_OK);
    assert_int_equal(coh_bound_base_create(graph, options, &pricer, decisions, &base), COH_OK);
    /* a base that was asked for no more than the compute time */
    assert_int_equal(
        coh_bounds_until(base, decisions->device_bytes, options->host_memory_bytes, 0, &bounds),
        COH_OK);
    assert_int_equal(bounds.most_ns, alone.busy_ns[COH_LANE_COMPUTE]);
    assert_int_equal(
        coh_bounds_at(base, decisions->device_bytes, options->host_memory_bytes, &bounds), COH_OK);
    check_until(base, decisions, options, &bounds);
    compare(seed, &bounds, &alone, &fluid, t);
    compare_least(seed, graph, options, &pricer, decisions, &fluid, t);
    if (options->disk_bytes > 0 && options->host_memory_bytes > 0 && !decisions->in_memory &&
        decisions->host_updates > coh_graph_block_count(graph))
        check_states(seed, &layout, decisions, options->host_memory_bytes, &bounds, t);
    t->sliced += has_slices(body);
    t->resident += decisions->resident > 0;
    t->light += has_light(graph, decisions, body);
    coh_bound_base_destroy(base);
    coh_pricer_fini(&pricer);
    coh_program_fini(&programs[COH_PROGRAM_BODY]);
    coh_layout_fini(&layout);
}

static void options_of(draws *d, const coh_profile *profile, uint64_t memory,
                       coh_plan_options *options)
{
    uint64_t tiers = 1 + draw(d, 3);
    options->disk_bytes = tiers & 1 ? UINT64_MAX : 0;
    options->emulate_host = 1;
    options->host_memory_bytes = tiers == 2 ? 4 * memory : tiers == 3 ? memory / 3 + 600000 : 0;
    options->profile = profile;
}

static uint64_t in_memory(const coh_graph *graph, const coh_plan_options *options)
{
    uint64_t bytes = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, options, &bytes), COH_OK);
    return bytes;
}

/* `drives`: trains with updates on the host lane and a host tier backed by a drive. */
static void check_seed(uint64_t seed, int drives, tally *t)
{
    draws d = { .seed = seed };
    toy_options toy;
    coh_graph *graph = NULL;
    coh_plan_options options;
    coh_profile profile;
    coh_decisions decisions;
    make_toy(&d, &toy);
    toy.holds = seed % 5 < 2;
    toy.in_place = seed % 2 == 0;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    coh_plan_options_init(&options);
    options.microbatch_count = 1 + (int32_t)draw(&d, 3);
    if (options.microbatch_count > 1 && seed % 4 == 1) /* more than are lowered one by one */
        options.microbatch_count += 3;
    options.deferred_update = (int32_t)draw(&d, 2);
    options.sweep_order = seed % 3 == 0 ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
    options.mode = draw(&d, 12) == 0 && !drives ? COH_PLAN_INFER : COH_PLAN_TRAIN;
    if (options.mode == COH_PLAN_INFER)
        options.microbatch_count = 1;
    make_profile(&d, (int)draw(&d, 2), &profile);
    uint64_t memory = in_memory(graph, &options);
    options_of(&d, &profile, memory, &options);
    make_decisions(&d, toy.layers, memory, &decisions);
    if (drives) {
        options.disk_bytes = UINT64_MAX;
        options.emulate_host = 1;
        options.host_memory_bytes = (memory / 20 * draw(&d, 8) + 600000) & ~(uint64_t)4095;
        decisions.in_memory = 0;
        decisions.chunk_bytes = 65536;
        decisions.device_bytes = (memory / 20 * (2 + draw(&d, 8))) & ~(uint64_t)4095;
        decisions.host_updates = toy.layers + 1;
        if (draw(&d, 2))
            decisions.host_updates = 1 + (int32_t)draw(&d, (uint64_t)toy.layers);
    }
    decisions.late = draw(&d, 2) ? 0 : (int32_t)draw(&d, COH_LATE_PARTS + 1);
    decisions.light =
        options.recompute == COH_RECOMPUTE_AUTO ? (int32_t)draw(&d, COH_LIGHT_COUNT) : 0;
    decisions.patient = draw(&d, 2) ? decisions.patient : COH_PATIENT_MOVED;
    check_configuration(seed, graph, &options, &profile, &decisions, t);
    coh_profile_fini(&profile);
    coh_graph_destroy(graph);
}

static void no_program_is_faster_than_a_bound(void **state)
{
    (void)state;
    tally t = { 0 };
    const int cases = (int)test_cases(500);
    for (int seed = 0; seed < cases; seed++)
        check_seed((uint64_t)seed, 0, &t);
    print_message("%d programs, %d refused, %d within 1 %% of the bound, mean ratio %.3f\n",
                  t.built, t.refused, t.met, t.ratio_sum / t.built);
    print_message("%d steps over the least of all decisions: mean ratio %.3f\n", t.least,
                  t.least_sum / t.least);
    for (int b = 0; b < COH_PLAN_BOUND_COUNT; b++)
        print_message("  %-14s %d\n", coh_plan_bound_name((coh_plan_bound)b), t.binding[b]);
    print_message("  in slices %d, with blocks that stay %d, with light operators run again %d\n",
                  t.sliced, t.resident, t.light);
    /* All the draws together include every variety; the first tenth of them need not. */
    const int is_whole = cases == 500;
    assert_true(t.built >= cases * 3 / 5);
    assert_true(t.light > 0);
    assert_true(!is_whole || (t.sliced >= cases * 3 / 100 && t.resident >= cases * 3 / 50));
}

/* The bound is not above what programs move, and not so low that it omits the states. */
static void the_drive_carries_what_the_host_lane_needs(void **state)
{
    (void)state;
    tally t = { 0 };
    const int cases = (int)test_cases(500);
    for (int seed = 1000; seed < 1000 + cases; seed++)
        check_seed((uint64_t)seed, 1, &t);
    print_message("%d programs with updates on the host over a drive, %d refused; the states of %d "
                  "have no room above it\n",
                  t.built, t.refused, t.beyond);
    assert_true(t.built >= cases / 2 && t.beyond >= cases / 10);
}

/* Returns the bound of updates on the host, which run at 0.6 of their speed beside the lane
 * `meets`, and it beside them; COH_LANE_HOST: no lane slows another. */
static uint64_t host_window_ns(const coh_graph *graph, coh_lane meets)
{
    coh_plan_options options;
    coh_profile profile;
    coh_pricer pricer;
    coh_bound_base *base = NULL;
    coh_bounds bounds;
    coh_profile_init(&profile);
    profile.flops_per_s[COH_ROOF_F32] = coh_figure_of(100e9);
    profile.memory_bytes_per_s = coh_figure_of(100e9);
    profile.host_update_bytes_per_s = coh_figure_of(10e9);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_D2H; lane++)
        profile.link[lane] = (coh_link_profile){ .bytes_per_s = coh_figure_of(10e9), .depth = 1 };
    if (meets != COH_LANE_HOST)
        profile.contention[meets][COH_LANE_HOST] = profile.contention[COH_LANE_HOST][meets] = 0.6;
    coh_plan_options_init(&options);
    options.profile = &profile;
    options.deferred_update = 0; /* gradients leave in the window, too */
    options.emulate_host = 1;
    options.host_memory_bytes = (uint64_t)1 << 30;
    const coh_decisions decisions = { .device_bytes = (uint64_t)1 << 24,
                                      .chunk_bytes = 65536,
                                      .row_passes = 1,
                                      .patterns = coh_pattern_choose(1),
                                      .host_updates = 8 };
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    assert_int_equal(coh_bound_base_create(graph, &options, &pricer, &decisions, &base), COH_OK);
    assert_int_equal(
        coh_bounds_at(base, decisions.device_bytes, options.host_memory_bytes, &bounds), COH_OK);
    assert_int_equal(bounds.binding, COH_PLAN_BOUND_HOST_WINDOW);
    coh_bound_base_destroy(base);
    coh_pricer_fini(&pricer);
    coh_profile_fini(&profile);
    return bounds.ns[COH_PLAN_BOUND_HOST_WINDOW];
}

/* Worked out by hand: while d ns of gradients leave, or arrive as parameters, both lanes run at
 * 0.6 of their speed. d takes d / 0.6 ns then, in which updates make 0.6 * d / 0.6 = d ns of
 * progress: they end d / 0.6 - d = 2 d / 3 ns later. Of the parameters, the last to arrive moves
 * when no update runs. */
static void what_slows_the_host_in_its_window_raises_the_bound(void **state)
{
    (void)state;
    enum { LAYERS = 6, WIDTH = 128, VOCABULARY = 600 };
    const toy_options toy = {
        .layers = LAYERS, .width = WIDTH, .vocabulary = VOCABULARY, .rows = 40
    };
    /* f32, at 10 bytes a ns: two tables, and each layer's weight and bias, in grains of 4096 B */
    const double grain_ns = 4096 / 10.0;
    const double bytes = 4.0 * (2 * VOCABULARY * WIDTH + LAYERS * (WIDTH * WIDTH + WIDTH));
    const double all_ns = bytes / 10, padded_ns = all_ns + LAYERS * grain_ns;
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    const uint64_t alone_ns = host_window_ns(graph, COH_LANE_HOST);
    const double out_ns = (double)(host_window_ns(graph, COH_LANE_D2H) - alone_ns),
                 in_ns = (double)(host_window_ns(graph, COH_LANE_H2D) - alone_ns);
    assert_true(out_ns >= 2 * all_ns / 3 && out_ns <= 2 * padded_ns / 3);
    assert_true(fabs(out_ns - in_ns - 2 * grain_ns / 3) <= 2); /* each rounded to whole ns */
    assert_true(host_window_ns(graph, COH_LANE_COMPUTE) > alone_ns);
    coh_graph_destroy(graph);
}

/* With a bound that is low enough for the caller, one below it is told only if there is one. */
static void check_enough(const coh_graph *graph, const coh_plan_options *options, uint64_t least_ns)
{
    const uint64_t enough_ns[] = { least_ns / 2 + 1, least_ns, least_ns + 1, 2 * least_ns + 1 };
    for (size_t i = 0; i < sizeof(enough_ns) / sizeof(enough_ns[0]); i++) {
        uint64_t ns = UINT64_MAX;
        assert_int_equal(coh_plan_least_below(graph, options, enough_ns[i], &ns), COH_OK);
        if (ns < enough_ns[i])
            assert_true(least_ns <= ns);
        assert_int_equal(ns == 0, least_ns == 0);
    }
}

/* Returns 1 if there is a plan. Its lower bound, known before planning, is at most an eighth above
 * its step time. */
static int check_plan(uint64_t seed, int *out_tight)
{
    draws d = { .seed = seed };
    toy_options toy;
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_plan_options options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_profile profile;
    uint64_t least_ns = 1;
    make_toy(&d, &toy);
    toy.in_place = seed % 2 == 0;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    coh_plan_options_init(&options);
    options.microbatch_count = 1 + (int32_t)draw(&d, 3);
    options.deferred_update = (int32_t)draw(&d, 2);
    options.sweep_order = (coh_sweep_order)draw(&d, 3);
    assert_int_equal(coh_plan_least_ns(graph, &options, &least_ns), COH_OK);
    assert_int_equal(least_ns, 0); /* no far tier: no bound is known */
    make_profile(&d, (int)draw(&d, 2), &profile);
    const uint64_t memory = in_memory(graph, &options);
    options_of(&d, &profile, memory, &options);
    options.device_memory_bytes = memory / 20 * (3 + draw(&d, 20));
    assert_int_equal(coh_plan_least_ns(graph, &options, &least_ns), COH_OK);
    check_enough(graph, &options, least_ns);
    const int is_planned = coh_plan_create(graph, &options, &plan) == COH_OK;
    if (is_planned) {
        if (!plan->folded) /* orders are compared before one is finished */
            assert_int_equal(plan->step_ns, plan->simulations[COH_PROGRAM_BODY].period_ns);
        assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
        if (least_ns > summary.step_ns + summary.step_ns / 8)
            fail_msg("seed %llu: a step of %llu ns, known is %llu", (unsigned long long)seed,
                     (unsigned long long)summary.step_ns, (unsigned long long)least_ns);
        *out_tight += least_ns > 0 && summary.step_ns <= least_ns + least_ns / 20;
    }
    coh_plan_destroy(plan);
    coh_profile_fini(&profile);
    coh_graph_destroy(graph);
    return is_planned;
}

static void no_plan_is_much_faster_than_what_is_known_without_making_it(void **state)
{
    (void)state;
    /* A plan takes as long as a hundred programs of given decisions. */
    const int cases = test_is_brief() ? 5 : test_is_short() ? 10 : 100;
    int planned = 0, tight = 0;
    for (int seed = 2000; seed < 2000 + cases; seed++)
        planned += check_plan((uint64_t)seed, &tight);
    print_message("%d plans, %d within 5 %% of what was known\n", planned, tight);
    assert_true(planned >= cases * 4 / 5 && tight >= cases * 3 / 20);
}

/* Up to three micro-batches are lowered, all of them; each further one adds the same. */
static void facts_of_many_micro_batches_grow_evenly(void **state)
{
    enum { MOST = 6, EXACT = 3 };
    (void)state;
    for (coh_sweep_order order = COH_SWEEP_MICROBATCH; order <= COH_SWEEP_LAYER; order++) {
        coh_step_facts facts[MOST + 1] = { 0 };
        const toy_options toy = { .layers = 2, .width = 64, .vocabulary = 100, .rows = 64 };
        coh_graph *graph = NULL;
        coh_profile profile;
        coh_pricer pricer;
        assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
        coh_profile_builtin(2, 0, 0, &profile);
        assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
        for (int32_t count = 1; count <= MOST; count++) {
            coh_plan_options options;
            coh_plan_options_init(&options);
            options.microbatch_count = count;
            options.sweep_order = order;
            options.disk_bytes = UINT64_MAX;
            assert_int_equal(coh_step_facts_find(graph, &options, &pricer, 10, 0, &facts[count]),
                             COH_OK);
        }
        for (int32_t count = EXACT + 1; count <= MOST; count++)
            for (int mask = 0; mask < COH_PHASE_MASKS; mask++) {
                const double exact = facts[EXACT].compute_ns[mask];
                const double more = exact - facts[EXACT - 1].compute_ns[mask];
                const double sum = exact + (count - EXACT) * more;
                assert_true(fabs(facts[count].compute_ns[mask] - sum) <= 1e-9 * sum);
            }
        for (int32_t count = EXACT + 1; count <= MOST; count++)
            for (int32_t i = 0; i < facts[EXACT].unit_count; i++) {
                const coh_step_unit *two = &facts[EXACT - 1].units[i];
                const coh_step_unit *all = &facts[EXACT].units[i];
                const double further = count - EXACT;
                assert_true(facts[count].units[i].kept ==
                            all->kept + further * (all->kept - two->kept));
                assert_true(fabs(facts[count].units[i].recompute_ns - all->recompute_ns -
                                 further * (all->recompute_ns - two->recompute_ns)) <=
                            1e-9 * all->recompute_ns * count);
            }
        for (int32_t count = 1; count <= MOST; count++)
            coh_step_facts_fini(&facts[count]);
        coh_pricer_fini(&pricer);
        coh_graph_destroy(graph);
    }
}

/* Makes a machine whose memory is so fast that updates take hardly any time. */
static void make_fast_memory(coh_profile *out)
{
    coh_profile_builtin(2, 0, 0, out);
    out->memory_bytes_per_s = out->host_update_bytes_per_s = coh_figure_of(1e15);
}

/* Computes the bound with one memory of `room_bytes` over a drive, of which one lane is slow. */
static double least_of(const coh_graph *graph, const coh_plan_options *given, double room_bytes,
                       coh_lane slow, double ns_per_byte)
{
    coh_plan_options options = *given;
    coh_profile profile;
    coh_pricer pricer;
    coh_least_step least;
    options.device_memory_bytes = (uint64_t)room_bytes;
    make_fast_memory(&profile);
    for (int lane = COH_LANE_READ; lane <= COH_LANE_WRITE; lane++) {
        const double factor = lane == (int)slow ? 1 : 1000;
        profile.link[lane] =
            (coh_link_profile){ .bytes_per_s = coh_figure_of(factor * 1e9 / ns_per_byte),
                                .depth = 1 };
    }
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    assert_int_equal(coh_least_step_find(graph, &options, &pricer, &least), COH_OK);
    coh_pricer_fini(&pricer);
    return (double)least.light_ns;
}

/* States that have no room cross within one phase, the first forward or the last backward, and the
 * other phases take at least their compute time. The lane is so slow that this is more than all
 * compute time, and more than the time of all states on it. */
static void check_crossing(const coh_graph *graph, const coh_plan_options *options,
                           const coh_step_facts *facts, coh_lane slow)
{
    const int deferred = options->deferred_update;
    double states = 0, others_ns = 0;
    for (int32_t i = 0; i < facts->unit_count; i++)
        states += facts->units[i].copies * facts->units[i].state;
    for (int mask = 1; mask < COH_PHASE_MASKS; mask++)
        if (!(mask & (deferred ? COH_AHEAD : COH_BACK)))
            others_ns += facts->compute_ns[mask];
    const double room = states * 0.5, ns_per_byte = 1.5 * others_ns / states;
    const double least_ns = least_of(graph, options, room + facts->pinned_bytes, slow, ns_per_byte);
    assert_true(least_ns >= 0.99 * (others_ns + (states - room) * ns_per_byte));
}

static void states_cross_in_the_phase_of_their_update(void **state)
{
    (void)state;
    const toy_options toy = {
        .layers = 2, .width = 256, .vocabulary = 256, .rows = 64, .dtype = COH_DTYPE_BF16
    };
    coh_graph *graph = NULL;
    coh_profile profile;
    coh_pricer pricer;
    coh_plan_options options;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    make_fast_memory(&profile);
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    coh_plan_options_init(&options);
    options.microbatch_count = 2;
    options.sweep_order = COH_SWEEP_MICROBATCH;
    options.disk_bytes = UINT64_MAX;
    for (options.deferred_update = 0; options.deferred_update < 2; options.deferred_update++) {
        coh_step_facts facts;
        assert_int_equal(coh_step_facts_find(graph, &options, &pricer, 10, 0, &facts), COH_OK);
        check_crossing(graph, &options, &facts, COH_LANE_READ);
        check_crossing(graph, &options, &facts, COH_LANE_WRITE);
        coh_step_facts_fini(&facts);
    }
    coh_pricer_fini(&pricer);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_program_is_faster_than_a_bound),
        cmocka_unit_test(what_slows_the_host_in_its_window_raises_the_bound),
        cmocka_unit_test(the_drive_carries_what_the_host_lane_needs),
        cmocka_unit_test(no_plan_is_much_faster_than_what_is_known_without_making_it),
        cmocka_unit_test(facts_of_many_micro_batches_grow_evenly),
        cmocka_unit_test(states_cross_in_the_phase_of_their_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
