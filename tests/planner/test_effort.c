/* Plans of steps that are too large: refused by bytes first, then by program length, always with
 * advice on what to change. Also the estimates behind these refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cohobate/kinds.h"
#include "planner/effort.h"
#include "planner/initial.h"
#include "planner/layout.h"
#include "planner/live.h"
#include "planner/plan_make.h"
#include "planner/search.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)

static coh_plan_options plan_options(int32_t microbatches)
{
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 1,
                                 .microbatch_count = microbatches,
                                 .deferred_update = 1,
                                 .kernel_path = "toy" };
    return options;
}

static coh_graph *make_graph(int layers, int64_t rows)
{
    const toy_options toy = {
        .layers = layers, .width = 256, .vocabulary = 1000, .rows = rows, .caches = 1, .is_tied = 1
    };
    coh_graph *graph = NULL;
    if (toy_graph_make(&toy, &graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

static void assert_refused(const coh_graph *graph, const coh_plan_options *options,
                           coh_status status, const char *words)
{
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_create(graph, options, &plan), status);
    assert_null(plan);
    if (strstr(coh_last_error(), words) == NULL)
        fail_msg("no \"%s\" in: %s", words, coh_last_error());
}

static void a_program_that_is_too_long_is_refused_with_what_shortens_it(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(12, 64);
    coh_plan_options options = plan_options(65536);
    assert_refused(graph, &options, COH_ERR_ARGUMENT, "raise micro-batch, or lower batch");
    options.sweep_order = COH_SWEEP_LAYER;
    assert_refused(graph, &options, COH_ERR_ARGUMENT, "raise micro-batch, or lower batch");
    options = plan_options(65537);
    assert_refused(graph, &options, COH_ERR_ARGUMENT, "raise micro-batch, or lower batch");
    coh_graph_destroy(graph);
    graph = make_graph(2, (int64_t)1 << 30); /* each activation has 1 TiB: 2^24 chunks */
    options = plan_options(1);
    options.chunk_bytes = 64 * KIB;
    assert_refused(graph, &options, COH_ERR_ARGUMENT, "raise chunk size, or leave out chunk size");
    coh_graph_destroy(graph);
}

/* Without the refusal by bytes, the first case would be refused by length, and the others would
 * take minutes. */
static void bytes_are_refused_before_length(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(12, (int64_t)1 << 30);
    coh_plan_options options = plan_options(65536);
    options.device_memory_bytes = 64 * TIB;
    options.emulate_host = 1;
    options.host_memory_bytes = 4 * GIB;
    options.recompute = COH_RECOMPUTE_NONE;
    options.sweep_order = COH_SWEEP_LAYER;
    assert_refused(graph, &options, COH_ERR_FULL, "bytes short");
    options.sweep_order = COH_SWEEP_MICROBATCH;
    options.device_memory_bytes = 4 * TIB;
    assert_refused(graph, &options, COH_ERR_FULL, "a step keeps at least");
    coh_graph_destroy(graph);
}

/* Where the device has room for more than the smallest chunks, and the host is what is short, a
 * search spends less than the set of the least device memory would take. */
static void the_last_resort_takes_no_more_chunks_than_a_search_can_place(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(4, 262144);
    coh_plan_options options = plan_options(1);
    coh_plan *plan = NULL;
    coh_decisions smallest;
    coh_effort effort;
    options.device_memory_bytes = GIB;
    options.emulate_host = 1;
    options.host_memory_bytes = GIB;
    assert_int_equal(coh_plan_open(graph, &options, &plan), COH_OK);
    assert_int_equal(coh_initial_smallest(plan, NULL, &smallest), COH_OK);
    assert_int_equal(coh_effort_of(graph, &options, &smallest, &effort), COH_OK);
    assert_int_equal(coh_plan_search(plan), COH_ERR_FULL);
    assert_true(plan->least_far_bytes > options.host_memory_bytes);
    assert_true(plan->search_effort < coh_effort_sum(&effort));
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Activations in 8 MiB chunks would have 2^17 chunks each. In memory no chunk has to move. */
static void a_huge_batch_in_memory_gets_larger_chunks(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(4, (int64_t)1 << 30);
    const coh_plan_options options = plan_options(1);
    coh_plan *plan = NULL;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    assert_true(summary.chunk_bytes > 8 * 1024 * KIB);
    assert_true(plan->layout.chunk_count <= COH_CHUNKS_MOST);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The oracle is a schedule: whatever it recomputes, it has room for everything that exists at
 * once. */
static void no_schedule_takes_fewer_bytes_than_the_bound(void **state)
{
    (void)state;
    const uint64_t count = test_is_brief() ? 8 : test_is_short() ? 20 : 200;
    for (uint64_t seed = 0; seed < count; seed++) {
        uint64_t n = 0;
#define DRAW(bound) coh_rng_below(21, seed, n++, bound)
        const int layers = 1 + (int)DRAW(5);
        coh_graph *graph = make_graph(layers, 1 + (int64_t)DRAW(3000));
        coh_plan_options options = plan_options(1 + (int32_t)DRAW(6));
        options.deferred_update = (int32_t)DRAW(2);
        options.sweep_order = DRAW(2) ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
        options.recompute = DRAW(2) ? COH_RECOMPUTE_ALL : COH_RECOMPUTE_NONE;
        const coh_block_set blocks =
            coh_block_set_first(options.recompute == COH_RECOMPUTE_ALL ? COH_BLOCK_SET_MOST : 0);
        uint64_t live = 0;
        coh_plan *plan = NULL;
        assert_int_equal(coh_live_bytes(graph, &options, &blocks, COH_LIGHT_NONE, 0, &live),
                         COH_OK);
        if (coh_plan_create(graph, &options, &plan) != COH_OK)
            fail_msg("%s", coh_last_error());
        const uint64_t taken = plan->layout.arena_bytes[COH_TIER_DEVICE];
        if (live > taken || live < taken / 2)
            fail_msg("seed %d: at least %llu bytes exist, the plan takes %llu", (int)seed,
                     (unsigned long long)live, (unsigned long long)taken);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

/* Gradients that wait for the next step and activations are never there at once, so tiers that hold
 * the larger of them do. The oracle is a plan in little more. */
static void waiting_gradients_and_activations_do_not_add_up(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(8, 100);
    coh_plan_options options = plan_options(4);
    coh_plan *plan = NULL;
    uint64_t live = 0, memory = 0;
    options.sweep_order = COH_SWEEP_LAYER;
    options.recompute = COH_RECOMPUTE_NONE;
    options.search = COH_SEARCH_QUICK;
    options.chunk_bytes = 16 * KIB;
    const coh_block_set none = coh_block_set_first(0);
    assert_int_equal(coh_live_bytes(graph, &options, &none, COH_LIGHT_NONE, 0, &live), COH_OK);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = memory / 2;
    options.host_memory_bytes = memory / 100 * 42;
    options.emulate_host = 1;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_in_range(live, 1,
                    plan->layout.arena_bytes[COH_TIER_DEVICE] +
                        plan->layout.arena_bytes[COH_TIER_HOST]);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* In the usual order backward of the first micro-batch leaves its gradients for the others to add
 * to, so forward of the second finds them all. */
static void gradients_that_micro_batches_add_to_are_there_with_activations(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(8, 800);
    const coh_block_set none = coh_block_set_first(0);
    uint64_t live[2], parameters = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        parameters += coh_shape_bytes(&graph->parameters[i].facts.shape);
    for (int i = 0; i < 2; i++) {
        const coh_plan_options options = plan_options(1 + i);
        assert_int_equal(coh_live_bytes(graph, &options, &none, COH_LIGHT_NONE, 0, &live[i]),
                         COH_OK);
    }
    assert_true(live[1] >= live[0] + parameters);
    coh_graph_destroy(graph);
}

static coh_tensor add_op(coh_graph *graph, const coh_op_kind *kind, const char *name,
                         const coh_tensor *inputs, const void *attributes, size_t bytes, int block,
                         uint32_t frozen)
{
    const coh_op_args args = { .name = name,
                               .inputs = inputs,
                               .attributes = attributes,
                               .attribute_bytes = bytes,
                               .block = block,
                               .frozen_parameters = frozen };
    coh_tensor output;
    if (coh_graph_op(graph, kind, &args, &output, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
    return output;
}

/* Blocks that read wide tensors from outside which their backward does not read: recomputing such a
 * block keeps its input. */
static coh_graph *make_wide_inputs(void)
{
    enum { BLOCKS = 10, WIDTH = 64, WIDE = 2048 };
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, 128 } };
    const coh_embedding_attributes narrow = { .vocabulary = 64, .channels = WIDTH };
    const coh_embedding_attributes wide = { .vocabulary = 64, .channels = WIDE };
    const coh_linear_attributes linear = { .outputs = WIDTH };
    const coh_classifier_attributes classifier = { .vocabulary = 64 };
    coh_graph *graph = NULL;
    coh_tensor tokens, targets, stream;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "tokens", &shape, &tokens), COH_OK);
    assert_int_equal(coh_graph_input(graph, "targets", &shape, &targets), COH_OK);
    stream = add_op(graph, &coh_kind_embedding, "start", &tokens, &narrow, sizeof(narrow), -1, 0);
    for (int i = 0; i < BLOCKS; i++) {
        char names[3][16];
        for (int k = 0; k < 3; k++)
            snprintf(names[k], sizeof(names[k]), "%c%d", "abc"[k], i);
        coh_tensor side =
            add_op(graph, &coh_kind_embedding, names[0], &tokens, &wide, sizeof(wide), -1, 0);
        side =
            add_op(graph, &coh_kind_linear_relu, names[1], &side, &linear, sizeof(linear), i, ~0u);
        stream = add_op(graph, &coh_kind_linear_residual, names[2], (coh_tensor[]){ side, stream },
                        &linear, sizeof(linear), i, 0);
    }
    stream = add_op(graph, &coh_kind_classifier, "head", (coh_tensor[]){ stream, targets },
                    &classifier, sizeof(classifier), -1, 0);
    assert_int_equal(coh_graph_loss(graph, stream), COH_OK);
    return graph;
}

/* Where recomputing keeps more than it saves, the plan without recomputation needs less. */
static void the_bound_of_all_blocks_is_one_of_plans_that_recompute_none(void **state)
{
    (void)state;
    coh_graph *graph = make_wide_inputs();
    coh_plan_options options = plan_options(4);
    options.recompute = COH_RECOMPUTE_NONE;
    const coh_block_set all = coh_block_set_first(COH_BLOCK_SET_MOST);
    uint64_t live = 0;
    coh_plan *plan = NULL;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_live_bytes(graph, &options, &all, COH_LIGHT_NONE, 1, &live), COH_OK);
    assert_in_range(live, 1, plan->layout.arena_bytes[COH_TIER_DEVICE]);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void the_estimate_is_near_the_program(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(6, 500);
    /* short with a sanitizer: each order in one of the two numbers */
    for (int i = 0; i < 4; i += test_is_brief() ? 3 : 1) {
        coh_plan_options options = plan_options(i < 2 ? 1 : 24);
        options.sweep_order = i % 2 ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
        coh_plan *plan = NULL;
        coh_effort effort;
        if (coh_plan_create(graph, &options, &plan) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_int_equal(coh_effort_of(graph, &options, &plan->decisions, &effort), COH_OK);
        const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
        assert_in_range(effort.instructions, body->instruction_count / 2,
                        body->instruction_count * 2);
        assert_in_range(effort.touches, body->touch_count / 2, body->touch_count * 2);
        assert_in_range(effort.chunks, plan->layout.chunk_count / 2, plan->layout.chunk_count * 2);
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

/* A layout cuts chunks of whole grains (64 KiB), even if a smaller size is requested. */
static void a_chunk_below_a_grain_counts_as_a_grain(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(6, 500);
    const coh_plan_options options = plan_options(4);
    const uint64_t sizes[] = { 0, 1, 4 * KIB, 64 * KIB + 1, 64 * KIB };
    coh_effort effort[5];
    for (int i = 0; i < 5; i++) {
        const coh_decisions decisions = { .chunk_bytes = sizes[i],
                                          .row_passes = 1,
                                          .patterns = coh_pattern_choose(1) };
        assert_int_equal(coh_effort_of(graph, &options, &decisions, &effort[i]), COH_OK);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(effort[i].touches, effort[4].touches);
        assert_int_equal(effort[i].chunks, effort[4].chunks);
    }
    assert_int_equal(coh_layout_chunk_bytes(1),
                     COH_CHUNK_BYTES_LEAST); /* as callers are promised */
    assert_int_equal(coh_layout_chunk_bytes(2 * COH_CHUNK_BYTES_LEAST - 1), COH_CHUNK_BYTES_LEAST);
    coh_graph_destroy(graph);
}

/* Graphs, batches and budgets of all sizes give a plan within the budgets or a message. */
static void any_request_is_answered(void **state)
{
    (void)state;
    const uint64_t count = test_is_short() ? 4 : 400;
    for (uint64_t seed = 0; seed < count; seed++) {
        uint64_t n = 0;
        const int layers = 1 + (int)DRAW(8);
        coh_graph *graph = make_graph(layers, (int64_t)1 << DRAW(34));
        coh_plan_options options = plan_options((int32_t)1 << DRAW(17));
        options.device_memory_bytes = (uint64_t)1 << (20 + DRAW(24));
        options.emulate_host = 1;
        options.host_memory_bytes = DRAW(2) ? (uint64_t)1 << (20 + DRAW(24)) : 0;
        options.disk_bytes = DRAW(2) ? (uint64_t)1 << (20 + DRAW(24)) : 0;
        options.chunk_bytes = DRAW(3) ? 0 : 64 * KIB << DRAW(16);
        options.recompute = (coh_recompute)DRAW(3);
        options.sweep_order = (coh_sweep_order)DRAW(3);
        options.deferred_update = (int32_t)DRAW(2);
        coh_plan *plan = NULL;
        const coh_status status = coh_plan_create(graph, &options, &plan);
        if (status == COH_OK &&
            plan->layout.arena_bytes[COH_TIER_DEVICE] > options.device_memory_bytes)
            fail_msg("seed %d: the plan does not keep its budget", (int)seed);
        if (status != COH_OK && status != COH_ERR_FULL && status != COH_ERR_ARGUMENT)
            fail_msg("seed %d: %s", (int)seed, coh_last_error());
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_is_too_long_is_refused_with_what_shortens_it),
        cmocka_unit_test(bytes_are_refused_before_length),
        cmocka_unit_test(the_last_resort_takes_no_more_chunks_than_a_search_can_place),
        cmocka_unit_test(a_huge_batch_in_memory_gets_larger_chunks),
        cmocka_unit_test(no_schedule_takes_fewer_bytes_than_the_bound),
        cmocka_unit_test(waiting_gradients_and_activations_do_not_add_up),
        cmocka_unit_test(gradients_that_micro_batches_add_to_are_there_with_activations),
        cmocka_unit_test(the_bound_of_all_blocks_is_one_of_plans_that_recompute_none),
        cmocka_unit_test(the_estimate_is_near_the_program),
        cmocka_unit_test(a_chunk_below_a_grain_counts_as_a_grain),
        cmocka_unit_test(any_request_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
