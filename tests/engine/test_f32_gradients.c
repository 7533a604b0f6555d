/* Gradients of bf16 weights summed in f32 over four micro-batches. They are compared with the sum
 * in double of each micro-batch's own gradients, and with sums in bf16; every placement gives the
 * same bits. The graph is a GPT-2 with a tied table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "engine/grains.h"
#include "engine/optimizer_numbers.h"
#include "planner/plan.h"
#include "tests/engine/drawn_tokens.h"
#include "tests/engine/must.h"
#include "tests/search_length.h"
#include "tests/temporary.h"

enum { SEQUENCES = 2, TOKENS = 37, VOCABULARY = 300, MICROBATCHES = 4, PARAMETERS_MOST = 40 };
enum { IDS = SEQUENCES * TOKENS };

static const coh_gpt2_config config = { .layers = 2,
                                        .heads = 2,
                                        .channels = 64,
                                        .positions = 48,
                                        .vocabulary = VOCABULARY,
                                        .layernorm_epsilon = 1e-5f,
                                        .dtype = COH_DTYPE_BF16 };
static int32_t tokens[MICROBATCHES * IDS], targets[MICROBATCHES * IDS];
static coh_graph *graph;

static int make_graph(void **state)
{
    (void)state;
    draw_tokens(tokens, targets, MICROBATCHES * IDS, VOCABULARY);
    return coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, &graph) == COH_OK ? 0 : -1;
}

static int drop_graph(void **state)
{
    (void)state;
    coh_graph_destroy(graph);
    return 0;
}

static coh_plan_options options_of(int microbatches, int f32_gradients)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.microbatch_count = microbatches;
    options.f32_gradients = f32_gradients;
    options.chunk_bytes = 1 << 16;
    return options;
}

/* Opens an engine on this plan, with first values. */
static coh_engine *open_engine(const coh_plan *plan)
{
    coh_engine_options options;
    coh_engine *engine = NULL;
    coh_engine_options_init(&options);
    options.poison = 1;
    options.store = "mem";
    options.disk_folder = ".";
    must(coh_engine_create(plan, &options, &engine), "engine");
    must(coh_engine_init(engine, 3), "init");
    return engine;
}

/* Runs one step; returns the norm of its gradient. */
static double run_step(coh_engine *engine, uint64_t step, int first_microbatch, float rate,
                       float clip)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .step = step,
                                   .seed = 1,
                                   .learning_rate = rate,
                                   .clip = clip,
                                   .inputs = { tokens + first_microbatch * IDS,
                                               targets + first_microbatch * IDS } };
    must(coh_engine_step(engine, &input, &result), "step");
    assert_true(result.finite);
    return result.grad_norm;
}

/* ---- sums ---- */

/* All gradients of one step from the first values, parameter by parameter. */
typedef struct gradients {
    size_t begin[PARAMETERS_MOST + 1]; /* by parameter of the layout */
    int count;
    float *values;
} gradients;

static gradients gradients_of(int microbatches, int first_microbatch, int f32_gradients)
{
    const coh_plan_options options = options_of(microbatches, f32_gradients);
    coh_plan *plan = NULL;
    gradients g = { 0 };
    must(coh_plan_create(graph, &options, &plan), "plan");
    coh_engine *engine = open_engine(plan);
    (void)run_step(engine, 0, first_microbatch, 0, 1e30f);
    g.count = (int)plan->layout.parameter_count;
    assert_in_range(g.count, 20, PARAMETERS_MOST);
    for (int i = 0; i < g.count; i++)
        g.begin[i + 1] = g.begin[i] + plan->layout.parameters[i].elements;
    g.values = calloc(g.begin[g.count], sizeof(float));
    assert_non_null(g.values);
    for (int i = 0; i < g.count; i++) {
        const coh_parameter which = { plan->layout.parameters[i].parameter };
        must(coh_engine_fetch(engine, which, COH_FETCH_GRADIENT, g.values + g.begin[i]), "fetch");
    }
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return g;
}

/* Returns the 2-norm of `of` (NULL: zeros) - sum over elements [begin, end). */
static double distance(const float *of, const double *sum, size_t begin, size_t end)
{
    double squares = 0;
    for (size_t i = begin; i < end; i++) {
        const double apart = (of != NULL ? (double)of[i] : 0.0) - sum[i];
        squares += apart * apart;
    }
    return sqrt(squares);
}

/* Counts the values that bf16 cannot represent. */
static size_t beyond_bf16(const float *values, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        found += (bits & 0xffffu) != 0;
    }
    return found;
}

/* A micro-batch alone has four times its share of the loss, an exact factor. Each f32 sum has at
 * most about 4 * TOKENS * SEQUENCES terms, in any order; the floor is for the keys' bias, whose
 * true gradient is zero. */
static void sums_over_microbatches_are_f32(void **state)
{
    (void)state;
    const gradients wide = gradients_of(MICROBATCHES, 0, 1),
                    half = gradients_of(MICROBATCHES, 0, 0);
    const size_t all = wide.begin[wide.count];
    double *sum = calloc(all, sizeof(double));
    assert_non_null(sum);
    for (int m = 0; m < MICROBATCHES; m++) {
        const gradients alone = gradients_of(1, m, 1);
        assert_int_equal(alone.begin[alone.count], all);
        assert_true(beyond_bf16(alone.values, all) > all / 2);
        for (size_t i = 0; i < all; i++)
            sum[i] += (double)alone.values[i] / MICROBATCHES;
        free(alone.values);
    }
    const double size = distance(NULL, sum, 0, all);
    for (int i = 0; i < wide.count; i++) {
        const size_t begin = wide.begin[i], end = wide.begin[i + 1];
        const double off = distance(wide.values, sum, begin, end);
        const double rounded = distance(half.values, sum, begin, end);
        const double here = distance(NULL, sum, begin, end);
        if (!(off <= 1e-6 * here + 1e-8 * size))
            fail_msg("parameter %d is %g of %g from the sum in double", i, off, here);
        if (here > 1e-4 * size && !(rounded > 100 * off))
            fail_msg("parameter %d: sums in bf16 are off by %g, in f32 by %g", i, rounded, off);
    }
    print_message("of the whole gradient: f32 %.2g, bf16 %.2g from the sum in double\n",
                  distance(wide.values, sum, 0, all) / size,
                  distance(half.values, sum, 0, all) / size);
    free(sum);
    free(wide.values);
    free(half.values);
}

/* The norm is that of the f32 sums, and the first update's m is (1 - beta1) times the sums. */
static void the_norm_and_the_update_take_them_as_they_are(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(MICROBATCHES, 1);
    coh_plan *plan = NULL;
    coh_optimizer_numbers adamw; /* beta1 is the first */
    double squares = 0;
    must(coh_plan_create(graph, &options, &plan), "plan");
    coh_engine *engine = open_engine(plan);
    const double norm = run_step(engine, 0, 0, 0, 1e30f);
    coh_optimizer_numbers_default(coh_optimizer_find("adamw"), &adamw);
    for (uint32_t i = 0; i < plan->layout.parameter_count; i++) {
        const coh_parameter which = { plan->layout.parameters[i].parameter };
        const size_t count = plan->layout.parameters[i].elements;
        float *grad = calloc(count, sizeof(float)), *m = calloc(count, sizeof(float));
        must(coh_engine_fetch(engine, which, COH_FETCH_GRADIENT, grad), "fetch");
        for (size_t k = 0; k < count; k++)
            squares += (double)grad[k] * (double)grad[k];
        must(coh_engine_fetch_state(engine, which, "m", m), "fetch");
        for (size_t k = 0; k < count; k++)
            assert_true(m[k] == (1.0f - adamw.values[0]) * grad[k]);
        free(grad);
        free(m);
    }
    assert_true(fabs(norm - sqrt(squares)) <= 1e-12 * norm);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
}

/* Each gradient chunk has the elements of its weight chunk, in twice the bytes. */
static void a_chunk_has_the_elements_of_its_weights(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(MICROBATCHES, 1);
    coh_plan *plan = NULL;
    coh_grain_table table = { 0 };
    must(coh_plan_create(graph, &options, &plan), "plan");
    must(coh_grain_table_init(&plan->layout, 0, NULL, &table), "grains");
    for (uint32_t g = 0; g < plan->layout.group_count; g++) {
        const coh_object *work = &plan->layout.objects[plan->layout.groups[g].work];
        const coh_object *grad = &plan->layout.objects[plan->layout.groups[g].grad];
        assert_int_equal(grad->chunk_count, work->chunk_count);
        for (uint32_t i = 0; i < work->chunk_count; i++) {
            const uint32_t w = work->chunk_begin + i, d = grad->chunk_begin + i;
            const coh_chunk_grains *runs = &table.chunks[w];
            assert_int_equal(plan->layout.chunks[d].bytes, 2 * plan->layout.chunks[w].bytes);
            assert_int_equal(table.chunks[d].run_count, runs->run_count);
            for (int32_t r = 0; r < runs->run_count; r++) {
                assert_int_equal(table.chunks[d].runs[r].element, runs->runs[r].element);
                assert_int_equal(table.chunks[d].runs[r].count, runs->runs[r].count);
                assert_int_equal(table.chunks[d].runs[r].partial_begin,
                                 runs->runs[r].partial_begin);
            }
        }
    }
    coh_grain_table_fini(&table);
    coh_plan_destroy(plan);
}

/* ---- bits ---- */

/* Returns the hash after three steps, with `percent` of the in-memory bytes and a far tier. */
static uint64_t train(uint64_t percent, int on_disk, float clip)
{
    coh_plan_options options = options_of(MICROBATCHES, 1);
    coh_plan *plan = NULL;
    uint64_t whole = 0, hash = 0;
    options.deferred_update = clip > 0;
    must(coh_plan_in_memory_bytes(graph, &options, &whole), "in memory");
    if (percent < 100) {
        options.device_memory_bytes = whole * percent / 100;
        options.disk_bytes = on_disk ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = on_disk ? 0 : 2 * whole;
    }
    must(coh_plan_create(graph, &options, &plan), "plan");
    coh_engine *engine = open_engine(plan);
    for (uint64_t step = 0; step < 3; step++)
        (void)run_step(engine, step, 0, 1e-2f, clip);
    must(coh_engine_hash(engine, &hash), "hash");
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return hash;
}

static void no_placement_changes_a_bit(void **state)
{
    (void)state;
    for (int clips = 0; clips < 2; clips++) {
        const float clip = clips ? 0.5f : 0.0f;
        const uint64_t expected = train(100, 0, clip);
        assert_int_equal(train(50, 0, clip), expected);
        assert_int_equal(train(50, 1, clip), expected);
    }
}

/* ---- limits of the option ---- */

static coh_plan_summary summary_of(const coh_graph *of, int f32_gradients)
{
    const coh_plan_options options = options_of(MICROBATCHES, f32_gradients);
    coh_plan *plan = NULL;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    must(coh_plan_create(of, &options, &plan), "plan");
    must(coh_plan_summarize(plan, &summary), "summary");
    coh_plan_destroy(plan);
    return summary;
}

static void it_is_of_the_numeric_plan_where_weights_are_bf16(void **state)
{
    (void)state;
    coh_graph *f32 = NULL;
    coh_gpt2_config other = config;
    other.dtype = COH_DTYPE_F32;
    must(coh_gpt2_train_graph(&other, SEQUENCES, TOKENS, &f32), "graph");
    const coh_plan_summary wide = summary_of(graph, 1), half = summary_of(graph, 0);
    assert_int_not_equal(wide.numeric_fingerprint, half.numeric_fingerprint);
    assert_int_equal(wide.stream_bytes * 7, half.stream_bytes * 8); /* bytes per parameter */
    const coh_plan_summary one = summary_of(f32, 1), two = summary_of(f32, 0);
    assert_int_equal(one.numeric_fingerprint, two.numeric_fingerprint);
    assert_int_equal(one.program_hash, two.program_hash);
    coh_graph_destroy(f32);
}

static void a_plan_file_keeps_it(void **state)
{
    (void)state;
    char path[256];
    coh_plan_options options = options_of(MICROBATCHES, 1);
    coh_plan *plan = NULL, *again = NULL;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    must(coh_plan_create(graph, &options, &plan), "plan");
    must(coh_plan_write(plan, path), "write");
    must(coh_plan_file_read(path, &file), "read");
    assert_int_equal(file.f32_gradients, 1);
    must(coh_plan_read(graph, &options, path, &again), "rebuild");
    assert_int_equal(again->program_hash, plan->program_hash);
    coh_plan_destroy(again);
    options.f32_gradients = 0;
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "give gradients f32"));
    coh_plan_destroy(plan);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_over_microbatches_are_f32),
        cmocka_unit_test(the_norm_and_the_update_take_them_as_they_are),
        cmocka_unit_test(a_chunk_has_the_elements_of_its_weights),
        cmocka_unit_test(no_placement_changes_a_bit),
        cmocka_unit_test(it_is_of_the_numeric_plan_where_weights_are_bf16),
        cmocka_unit_test(a_plan_file_keeps_it),
    };
    return cmocka_run_group_tests(tests, make_graph, drop_graph);
}
