/* Layers that write in place, or over what they have read, train to the same bits. So does
 * a wrapped layer that only overwrites its gradients, as one that adds. Here
 * every value is one product or one sum, so scratch and ADD round as the kernel's own addition
 * does. In bf16 the scratch is rounded first, so only different placements give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/plan.h"
#include "tests/engine/must.h"
#include "tests/engine/small_model.h"
#include "tests/search_length.h"

static float input[SMALL_MICROBATCHES * SMALL_ELEMENTS];
static float stored_input[SMALL_MICROBATCHES * SMALL_ELEMENTS];

/* Trains three steps and returns the hash; uses `percent` of the in-memory bytes, and a disk. */
static uint64_t train_as(coh_dtype dtype, const coh_graph *graph, uint64_t percent, int deferred,
                         int f32_gradients)
{
    coh_plan_options plan_options;
    coh_engine_options options;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    uint64_t whole = 0, hash = 0;
    coh_plan_options_init(&plan_options);
    plan_options.search = test_search();
    plan_options.microbatch_count = SMALL_MICROBATCHES;
    plan_options.deferred_update = deferred;
    plan_options.chunk_bytes = 1 << 16;
    plan_options.f32_gradients = f32_gradients;
    must(coh_plan_in_memory_bytes(graph, &plan_options, &whole), "in memory");
    if (percent < 100) {
        plan_options.device_memory_bytes = whole * percent / 100;
        plan_options.disk_bytes = UINT64_MAX;
    }
    must(coh_plan_create(graph, &plan_options, &plan), "plan");
    coh_engine_options_init(&options);
    options.poison = 1;
    options.store = "mem";
    options.disk_folder = ".";
    must(coh_engine_create(plan, &options, &engine), "create");
    must(coh_engine_init(engine, 7), "init");
    for (uint64_t step = 0; step < 3; step++) {
        coh_step_input step_input = { .struct_bytes = sizeof(step_input),
                                      .step = step,
                                      .seed = 1,
                                      .learning_rate = 0.01f,
                                      .clip = deferred ? 1.0f : 0.0f,
                                      .inputs = { stored_input } };
        coh_step_result result = { .struct_bytes = sizeof(result) };
        small_model_input(dtype, step, input, stored_input);
        must(coh_engine_step(engine, &step_input, &result), "step");
        assert_true(result.finite);
    }
    must(coh_engine_hash(engine, &hash), "hash");
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return hash;
}

static uint64_t train(coh_dtype dtype, const coh_graph *graph, uint64_t percent, int deferred)
{
    return train_as(dtype, graph, percent, deferred, 0);
}

static void kinds_that_overwrite_train_to_the_bits_of_kinds_that_add(void **state)
{
    (void)state;
    coh_graph *adding = NULL, *overwriting = NULL;
    must(small_model_create(COH_DTYPE_F32, &adding), "graph");
    must(small_model_create_overwriting(COH_DTYPE_F32, &overwriting), "graph");
    for (int deferred = 0; deferred < 2; deferred++) {
        uint64_t expected = train(COH_DTYPE_F32, adding, 100, deferred);
        assert_int_equal(train(COH_DTYPE_F32, overwriting, 100, deferred), expected);
        assert_int_equal(train(COH_DTYPE_F32, overwriting, 60, deferred), expected);
    }
    coh_graph_destroy(adding);
    coh_graph_destroy(overwriting);
}

static void in_bf16_scratch_and_sums_do_not_depend_on_the_placement(void **state)
{
    (void)state;
    coh_graph *overwriting = NULL;
    must(small_model_create_overwriting(COH_DTYPE_BF16, &overwriting), "graph");
    for (int deferred = 0; deferred < 2; deferred++)
        assert_int_equal(train(COH_DTYPE_BF16, overwriting, 60, deferred),
                         train(COH_DTYPE_BF16, overwriting, 100, deferred));
    coh_graph_destroy(overwriting);
}

/* Kinds without f32 gradients get scratch in bf16, whether they can add or not; sums over
 * micro-batches are still f32. */
static void kinds_that_know_of_no_f32_gradients_train_with_them(void **state)
{
    (void)state;
    coh_graph *adding = NULL, *overwriting = NULL;
    must(small_model_create(COH_DTYPE_BF16, &adding), "graph");
    must(small_model_create_overwriting(COH_DTYPE_BF16, &overwriting), "graph");
    for (int deferred = 0; deferred < 2; deferred++) {
        const uint64_t expected = train_as(COH_DTYPE_BF16, adding, 100, deferred, 1);
        assert_int_equal(train_as(COH_DTYPE_BF16, overwriting, 100, deferred, 1), expected);
        assert_int_equal(train_as(COH_DTYPE_BF16, adding, 60, deferred, 1), expected);
        assert_int_not_equal(train_as(COH_DTYPE_BF16, adding, 100, deferred, 0), expected);
    }
    coh_graph_destroy(adding);
    coh_graph_destroy(overwriting);
}

/* Operands of a program that are written in place of another one. */
static uint32_t count_takers(const coh_program *program)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->operand_count; i++)
        count += program->operands[i].takes > 0;
    return count;
}

static uint64_t in_memory_bytes(const coh_graph *graph)
{
    coh_plan_options options;
    uint64_t bytes = 0;
    coh_plan_options_init(&options);
    must(coh_plan_in_memory_bytes(graph, &options, &bytes), "in memory");
    return bytes;
}

/* Forward keeps its inputs for backward in training only. */
static void check_what_is_in_place(const coh_graph *graph)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    coh_plan_options_init(&options);
    must(coh_plan_create(graph, &options, &plan), "plan");
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++)
        for (uint32_t o = 0; o < body->instructions[i].operand_count; o++)
            assert_true(body->operands[body->instructions[i].operand_begin + o].takes == 0 ||
                        body->instructions[i].opcode == COH_OP_BACKWARD);
    assert_int_equal(count_takers(body), SMALL_LAYERS - 1);
    assert_int_equal(count_takers(&plan->programs[COH_PROGRAM_EVALUATE]), SMALL_LAYERS - 1);
    coh_plan_destroy(plan);
}

static void what_is_written_in_place_has_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    coh_graph *apart = NULL, *in_place = NULL, *spoiling = NULL;
    must(small_model_create(COH_DTYPE_F32, &apart), "graph");
    must(small_model_create_in_place(COH_DTYPE_F32, &in_place), "graph");
    must(small_model_create_spoiling(COH_DTYPE_F32, &spoiling), "graph");
    check_what_is_in_place(in_place);
    assert_true(in_memory_bytes(in_place) <= in_memory_bytes(apart));
    for (int deferred = 0; deferred < 2; deferred++) {
        const uint64_t expected = train(COH_DTYPE_F32, apart, 100, deferred);
        for (uint64_t percent = 60; percent <= 100; percent += 40) {
            assert_int_equal(train(COH_DTYPE_F32, in_place, percent, deferred), expected);
            assert_int_equal(train(COH_DTYPE_F32, spoiling, percent, deferred), expected);
        }
    }
    coh_graph_destroy(apart);
    coh_graph_destroy(in_place);
    coh_graph_destroy(spoiling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_that_overwrite_train_to_the_bits_of_kinds_that_add),
        cmocka_unit_test(in_bf16_scratch_and_sums_do_not_depend_on_the_placement),
        cmocka_unit_test(kinds_that_know_of_no_f32_gradients_train_with_them),
        cmocka_unit_test(what_is_written_in_place_has_the_same_bits_in_less_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
