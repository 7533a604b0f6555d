/* Gradients of replicas, made apart and added in a fold shape. They are compared bit for bit with
 * runs of one replica each, whose gradients a plain recursion adds; every placement gives the same
 * bits. The graph is a GPT-2 with a tied table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "planner/plan_make.h"
#include "tests/engine/drawn_tokens.h"
#include "tests/engine/must.h"
#include "tests/length.h"
#include "tests/search_length.h"

enum { SEQUENCES = 1, TOKENS = 37, VOCABULARY = 300, MICROBATCHES_MOST = 8, REPLICAS_MOST = 8 };
enum { IDS = SEQUENCES * TOKENS };

static int32_t tokens[MICROBATCHES_MOST * IDS], targets[MICROBATCHES_MOST * IDS];

static int draw_inputs(void **state)
{
    (void)state;
    draw_tokens(tokens, targets, MICROBATCHES_MOST * IDS, VOCABULARY);
    return 0;
}

static coh_graph *make_graph(coh_dtype dtype)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 64,
                                     .positions = 48,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = dtype };
    coh_graph *graph = NULL;
    must(coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, &graph), "graph");
    return graph;
}

/* A numeric plan: `count` micro-batches for each of the shape's replicas. */
typedef struct numbers {
    coh_dtype dtype;
    const char *shape;
    int count;
    coh_sweep_order order;
    int deferred;
} numbers;

static coh_plan_options options_of(const numbers *of)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    must(coh_fold_shape_parse(of->shape, &options.replicas), "shape");
    options.search = test_search();
    options.microbatch_count = of->count * coh_fold_shape_replicas(&options.replicas);
    options.sweep_order = of->order;
    options.deferred_update = of->deferred;
    options.f32_gradients = of->dtype == COH_DTYPE_BF16;
    options.chunk_bytes = 1 << 16;
    return options;
}

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

static coh_step_result run_step(coh_engine *engine, uint64_t step, int first_microbatch,
                                float loss_factor, float rate, float clip)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .step = step,
                                   .seed = 1,
                                   .learning_rate = rate,
                                   .clip = clip,
                                   .loss_factor = loss_factor,
                                   .inputs = { tokens + first_microbatch * IDS,
                                               targets + first_microbatch * IDS } };
    must(coh_engine_step(engine, &input, &result), "step");
    assert_true(result.finite);
    return result;
}

/* ---- gradients ---- */

typedef struct gradients {
    size_t count;
    float *values; /* of all parameters */
    double loss;   /* mean of the micro-batches */
} gradients;

/* The gradients of one step of the plan from the first values. */
static gradients gradients_by(const coh_plan *plan, int first_microbatch, float loss_factor)
{
    gradients g = { 0 };
    coh_engine *engine = open_engine(plan);
    g.loss = run_step(engine, 0, first_microbatch, loss_factor, 0, 1e30f).loss / loss_factor;
    for (uint32_t i = 0; i < plan->layout.parameter_count; i++)
        g.count += plan->layout.parameters[i].elements;
    g.values = calloc(g.count, sizeof(float));
    assert_non_null(g.values);
    size_t at = 0;
    for (uint32_t i = 0; i < plan->layout.parameter_count; i++) {
        const coh_parameter which = { plan->layout.parameters[i].parameter };
        must(coh_engine_fetch(engine, which, COH_FETCH_GRADIENT, g.values + at), "fetch");
        at += plan->layout.parameters[i].elements;
    }
    coh_engine_destroy(engine);
    return g;
}

/* Plans, and gives the gradients of each of `count` replicas alone, in `out`. */
static void gradients_of(const numbers *of, int count, float loss_factor, gradients *out)
{
    const coh_plan_options options = options_of(of);
    coh_graph *graph = make_graph(of->dtype);
    coh_plan *plan = NULL;
    must(coh_plan_create(graph, &options, &plan), "plan");
    for (int i = 0; i < count; i++)
        out[i] = gradients_by(plan, i * of->count, loss_factor);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Adds the gradients of the node of `level` factors that begins with replica *next to its first
 * one's; returns that one's place. */
static gradients *fold(gradients *each, const int *factors, int level, int *next)
{
    if (level == 0)
        return &each[(*next)++];
    gradients *sum = fold(each, factors, level - 1, next);
    for (int member = 1; member < factors[level - 1]; member++) {
        const gradients *more = fold(each, factors, level - 1, next);
        for (size_t i = 0; i < sum->count; i++)
            sum->values[i] += more->values[i];
        sum->loss += more->loss;
    }
    return sum;
}

/* Trains the replicas one by one and adds. A replica alone has R times its share of the loss. */
static gradients naive_gradients(const numbers *of, const int *factors, int levels)
{
    gradients each[REPLICAS_MOST] = { { 0 } };
    numbers alone = *of;
    int replicas = 1, next = 0;
    alone.shape = "1";
    for (int i = 0; i < levels; i++)
        replicas *= factors[i];
    gradients_of(&alone, replicas, 1.0f / (float)replicas, each);
    gradients sum = *fold(each, factors, levels, &next);
    sum.loss /= replicas;
    assert_int_equal(next, replicas);
    for (int r = 1; r < replicas; r++)
        free(each[r].values);
    return sum;
}

static void expect_naive(coh_dtype dtype, const char *shape, const int *factors, int levels,
                         int count, coh_sweep_order order)
{
    const numbers of = { dtype, shape, count, order, 1 };
    const gradients naive = naive_gradients(&of, factors, levels);
    gradients made;
    gradients_of(&of, 1, 1.0f, &made);
    assert_int_equal(made.count, naive.count);
    for (size_t i = 0; i < made.count; i++)
        if (memcmp(&made.values[i], &naive.values[i], sizeof(float)) != 0)
            fail_msg("replicas %s, %d micro-batches each: element %zu is %a, the fold gives %a",
                     shape, count, i, (double)made.values[i], (double)naive.values[i]);
    /* exact unless a third was rounded */
    if (!(fabs(made.loss - naive.loss) <= (factors[0] == 3 ? 1e-15 : 0) * fabs(naive.loss)))
        fail_msg("replicas %s: loss %a, the fold gives %a", shape, made.loss, naive.loss);
    free(naive.values);
    free(made.values);
}

static void a_fold_is_that_of_single_replicas(void **state)
{
    (void)state;
    static const int four[] = { 4 }, pairs[] = { 2, 2 }, cube[] = { 2, 2, 2 }, three[] = { 3 };
    static const int uneven[] = { 3, 2 };
    expect_naive(COH_DTYPE_F32, "4", four, 1, 1, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_F32, "4", four, 1, 2, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_F32, "2x2", pairs, 2, 2, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_F32, "2x2", pairs, 2, 2, COH_SWEEP_LAYER);
    expect_naive(COH_DTYPE_F32, "2x2x2", cube, 3, 1, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_F32, "3", three, 1, 2, COH_SWEEP_LAYER);
    expect_naive(COH_DTYPE_F32, "3x2", uneven, 2, 1, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_BF16, "2x2", pairs, 2, 1, COH_SWEEP_MICROBATCH);
    expect_naive(COH_DTYPE_BF16, "3", three, 1, 2, COH_SWEEP_MICROBATCH);
}

/* Were the order of no account, the test above would show nothing. */
static void the_shape_decides_bits(void **state)
{
    (void)state;
    static const numbers of[] = { { COH_DTYPE_F32, "1", 4, COH_SWEEP_MICROBATCH, 1 },
                                  { COH_DTYPE_F32, "4", 1, COH_SWEEP_MICROBATCH, 1 },
                                  { COH_DTYPE_F32, "2x2", 1, COH_SWEEP_MICROBATCH, 1 },
                                  { COH_DTYPE_F32, "2", 2, COH_SWEEP_MICROBATCH, 1 } };
    gradients g[4];
    if (test_is_brief() &&
        !test_seeks_races()) /* bits alone: the test above makes such gradients */
        return;
    for (int i = 0; i < 4; i++)
        gradients_of(&of[i], 1, 1.0f, &g[i]);
    for (int i = 0; i < 4; i++)
        for (int other = 0; other < i; other++)
            assert_memory_not_equal(g[i].values, g[other].values, g[i].count * sizeof(float));
    for (int i = 0; i < 4; i++)
        free(g[i].values);
}

/* ---- bits ---- */

typedef enum place { IN_MEMORY, DISK, HOST, HOST_UPDATES } place;

/* Plans; in a place that is not in memory with a quarter of its bytes, or the least if it is more.
 */
static coh_plan *plan_in(const coh_graph *graph, coh_plan_options options, place where)
{
    uint64_t whole = 0;
    coh_plan *plan = NULL, *other = NULL;
    must(coh_plan_in_memory_bytes(graph, &options, &whole), "in memory");
    if (where != IN_MEMORY) {
        options.device_memory_bytes = whole / 4;
        options.disk_bytes = where == DISK ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = where == DISK ? 0 : 4 * whole;
    }
    must(coh_plan_create(graph, &options, &plan), "plan");
    assert_int_equal(plan->decisions.in_memory, where == IN_MEMORY);
    if (where != HOST_UPDATES)
        return plan;
    must(coh_plan_open(graph, &plan->options, &other), "open");
    other->decisions = plan->decisions;
    other->decisions.host_updates = 1;
    must(coh_plan_finish(other), "host updates");
    assert_true(other->programs[COH_PROGRAM_BODY].lane_length[COH_LANE_HOST] > 0);
    coh_plan_destroy(plan);
    return other;
}

/* Returns the hash after three steps. */
static uint64_t train(const numbers *of, place where, int threads, float clip)
{
    coh_plan_options options = options_of(of);
    coh_graph *graph = make_graph(of->dtype);
    uint64_t hash = 0;
    options.thread_count = threads;
    coh_plan *plan = plan_in(graph, options, where);
    coh_engine *engine = open_engine(plan);
    for (uint64_t step = 0; step < 3; step++)
        (void)run_step(engine, step, 0, 1.0f, 1e-2f, clip);
    must(coh_engine_hash(engine, &hash), "hash");
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return hash;
}

static void no_placement_changes_a_bit(void **state)
{
    (void)state;
    static const numbers of[] = { { COH_DTYPE_F32, "2x2", 2, COH_SWEEP_MICROBATCH, 1 },
                                  { COH_DTYPE_F32, "3", 2, COH_SWEEP_LAYER, 1 },
                                  { COH_DTYPE_BF16, "2x2", 1, COH_SWEEP_MICROBATCH, 0 },
                                  { COH_DTYPE_F32, "2", 4, COH_SWEEP_LAYER, 0 } };
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i += 1 + (size_t)test_is_brief()) {
        const float clip = of[i].deferred ? 0.5f : 0.0f;
        const uint64_t expected = train(&of[i], IN_MEMORY, 1, clip);
        if (!test_is_brief() || test_seeks_races()) /* HOST has two threads */
            assert_int_equal(train(&of[i], IN_MEMORY, 2, clip), expected);
        assert_int_equal(train(&of[i], DISK, 1, clip), expected);
        assert_int_equal(train(&of[i], HOST, 2, clip), expected);
        assert_int_equal(train(&of[i], HOST_UPDATES, 1, clip), expected);
    }
}

/* ---- the option ---- */

static coh_plan_summary summary_of(const numbers *of)
{
    const coh_plan_options options = options_of(of);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_graph *graph = make_graph(of->dtype);
    coh_plan *plan = NULL;
    must(coh_plan_create(graph, &options, &plan), "plan");
    must(coh_plan_summarize(plan, &summary), "summary");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return summary;
}

static void factors_of_one_change_nothing(void **state)
{
    (void)state;
    const numbers none = { COH_DTYPE_F32, "1", 4, COH_SWEEP_MICROBATCH, 1 };
    numbers other = none;
    const coh_plan_summary expected = summary_of(&none);
    other.shape = "1x1x1";
    coh_plan_summary same = summary_of(&other);
    assert_int_equal(same.program_hash, expected.program_hash);
    assert_int_equal(same.numeric_fingerprint, expected.numeric_fingerprint);
    other = (numbers){ COH_DTYPE_F32, "4", 1, COH_SWEEP_MICROBATCH, 1 };
    const coh_plan_summary four = summary_of(&other);
    other.shape = "1x4";
    same = summary_of(&other);
    assert_int_equal(same.program_hash, four.program_hash);
    assert_int_equal(same.numeric_fingerprint, four.numeric_fingerprint);
    other.shape = "2x2";
    assert_int_not_equal(summary_of(&other).numeric_fingerprint, four.numeric_fingerprint);
    assert_int_not_equal(four.numeric_fingerprint, expected.numeric_fingerprint);
}

static void a_plan_file_keeps_the_shape(void **state)
{
    (void)state;
    static const char path[] = "replicas-plan.json";
    const numbers of = { COH_DTYPE_F32, "2x2", 1, COH_SWEEP_MICROBATCH, 1 };
    coh_plan_options options = options_of(&of);
    coh_graph *graph = make_graph(of.dtype);
    coh_plan *plan = NULL, *again = NULL;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    must(coh_plan_create(graph, &options, &plan), "plan");
    must(coh_plan_write(plan, path), "write");
    must(coh_plan_file_read(path, &file), "read");
    assert_memory_equal(&file.replicas, &options.replicas, sizeof(file.replicas));
    must(coh_plan_read(graph, &options, path, &again), "rebuild");
    assert_int_equal(again->program_hash, plan->program_hash);
    coh_plan_destroy(again);
    must(coh_fold_shape_parse("4", &options.replicas), "shape");
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "is for replicas 2x2"));
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

static void what_cannot_be_folded_is_refused(void **state)
{
    (void)state;
    const numbers of = { COH_DTYPE_BF16, "2", 1, COH_SWEEP_MICROBATCH, 1 };
    coh_plan_options options = options_of(&of);
    coh_graph *graph = make_graph(of.dtype);
    coh_plan *plan = NULL;
    options.f32_gradients = 0;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "give gradients f32"));
    options.f32_gradients = 1;
    options.microbatch_count = 3;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "3 micro-batches do not give each of 2 replicas"));
    options.replicas = (coh_fold_shape){ { -2 } };
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    options.replicas = (coh_fold_shape){ { 65536, 65536, 65536 } };
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_null(plan);
    coh_graph_destroy(graph);
}

static void texts_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const good[][2] = { { "1", "1" },         { "4", "4" },
                                           { "2x2x2", "2x2x2" }, { "1x3x1", "3" },
                                           { "65536", "65536" }, { "16384x2x2", "16384x2x2" } };
    static const char *const bad[] = { "",        "0",          "x2",
                                       "2x",      "2x0",        "-2",
                                       "2X2",     " 2",         "2 ",
                                       "2x2x2x2", "2.5",        "65537",
                                       "256x257", "4294967298", "99999999999999999999",
                                       "2x2x",    "1x2x3x4" };
    char text[COH_FOLD_TEXT_BYTES];
    coh_fold_shape shape;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        must(coh_fold_shape_parse(good[i][0], &shape), good[i][0]);
        must(coh_fold_shape_write(&shape, text), good[i][0]);
        assert_string_equal(text, good[i][1]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (coh_fold_shape_parse(bad[i], &shape) != COH_ERR_ARGUMENT)
            fail_msg("'%s' was read", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fold_is_that_of_single_replicas),
        cmocka_unit_test(the_shape_decides_bits),
        cmocka_unit_test(no_placement_changes_a_bit),
        cmocka_unit_test(factors_of_one_change_nothing),
        cmocka_unit_test(a_plan_file_keeps_the_shape),
        cmocka_unit_test(what_cannot_be_folded_is_refused),
        cmocka_unit_test(texts_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, draw_inputs, NULL);
}
