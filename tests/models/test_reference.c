/* The results of every family's graphs, compared with float64 runs of `transformers` recorded by
 * record_reference.py, and of PEFT's adapters recorded by record_peft.py: loss, gradients, the last
 * loss of a training, and the logits of a decoder, token by token. The weights are functions of
 * tensor names and offsets in a file, so the tables of names, shapes and transpositions are
 * checked, too. */
#include "tests/models/recorded.h"

#include <math.h>

#include "cohobate/engine.h"
#include "planner/graph.h"
#include "tests/search_length.h"

enum { SEQUENCES = 2, TOKENS = 7, VOCABULARY = 37, STEPS = 100, BATCHES = 4 };

/* ---- the draws of record_reference.py ---- */

static uint64_t name_seed(const char *before, const char *name)
{
    uint64_t seed = 0xcbf29ce484222325;
    for (const char *c = before; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 0x100000001b3;
    for (const char *c = name; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 0x100000001b3;
    return seed;
}

static double drawn(uint64_t seed, int64_t place)
{
    uint64_t x = seed + (uint64_t)(place + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    return (double)(x >> 40) / (1 << 24) - 0.5;
}

static void draw_ids(const char *name, int32_t *ids)
{
    const uint64_t seed = name_seed("", name);
    for (int64_t i = 0; i < (int64_t)SEQUENCES * TOKENS; i++)
        ids[i] = (int32_t)((drawn(seed, i) + 0.5) * VOCABULARY);
}

/* Finds an adapter's factor, as in a file of adapters. */
static int find_factor(const coh_model *model, const char *name, coh_model_tensor *out_tensor)
{
    coh_model_adapter adapter;
    for (int64_t i = 0; coh_model_adapter_at(model, i, &adapter) == COH_OK; i++) {
        const size_t length = strlen(adapter.name);
        if (strncmp(adapter.name, name, length) != 0 || name[length] != '.')
            continue;
        const int is_up = strcmp(name + length, ".lora_B.weight") == 0;
        *out_tensor = (coh_model_tensor){ .rank = 2 };
        out_tensor->dim[0] = is_up ? adapter.outputs : model->adapters.rank;
        out_tensor->dim[1] = is_up ? model->adapters.rank : adapter.inputs;
        snprintf(out_tensor->published, sizeof(out_tensor->published), "%s%s", adapter.module,
                 name + length);
        return 1;
    }
    return 0;
}

static int find_tensor(const coh_model *model, const char *name, coh_model_tensor *out_tensor)
{
    if (coh_model_is_adapter_name(name))
        return find_factor(model, name, out_tensor);
    for (int64_t i = 0; coh_model_tensor_at(model, i, out_tensor) == COH_OK; i++)
        if (strcmp(out_tensor->name, name) == 0)
            return 1;
    return 0;
}

/* Returns the file index of our element. */
static int64_t published_place(const coh_model_tensor *tensor, int64_t element)
{
    if (!tensor->transposed)
        return element;
    return element % tensor->dim[1] * tensor->dim[0] + element / tensor->dim[1];
}

/* Moves every weight by up to two roundings, each run of another number (0: none) otherwise. */
static uint64_t shake;

static float shaken(float value, uint64_t place)
{
    return shake == 0 ? value : value * (float)(1.0 + 0x1p-21 * drawn(shake, (int64_t)place));
}

static coh_status weights(void *context, coh_parameter parameter, const char *name,
                          uint64_t element_begin, uint64_t count, float *values)
{
    coh_model_tensor tensor;
    if (!find_tensor(context, name, &tensor)) /* on a thread that cannot fail the test */
        return coh_kind_fail(COH_ERR_ARGUMENT, "no tensor is called %s", name);
    const uint64_t seed = name_seed("", tensor.published);
    const size_t length = strlen(tensor.published);
    const int is_gain = tensor.rank == 1 && strcmp(tensor.published + length - 6, "weight") == 0;
    const int from_one = ((const coh_model *)context)->family == COH_FAMILY_GEMMA;
    (void)parameter;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t place = published_place(&tensor, (int64_t)(element_begin + i));
        values[i] =
            shaken((float)(0.5 * drawn(seed, place) + (is_gain && !from_one)), element_begin + i);
    }
    return COH_OK;
}

/* ---- one engine ---- */

typedef struct made {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} made;

static void ok(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* Makes an engine; it takes ownership of `graph`. */
/* `small`: another graph whose shapes the engine runs with; NULL: none. */
static made make_engine_of(const coh_model *model, coh_graph *graph, const coh_graph *small,
                           coh_plan_mode mode)
{
    made m = { .graph = graph };
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.mode = mode;
    options.deferred_update = mode == COH_PLAN_TRAIN;
    ok(coh_plan_create(graph, &options, &m.plan));
    coh_engine_options_init(&engine_options);
    engine_options.small_graph = small;
    ok(coh_engine_create(m.plan, &engine_options, &m.engine));
    ok(coh_engine_init_from(m.engine, 1, weights, (void *)(uintptr_t)model));
    return m;
}

static made make_engine(const coh_model *model, coh_graph *graph, coh_plan_mode mode)
{
    return make_engine_of(model, graph, NULL, mode);
}

static void drop(made *m)
{
    coh_engine_destroy(m->engine);
    coh_plan_destroy(m->plan);
    coh_graph_destroy(m->graph);
}

/* ---- comparisons ---- */

static double number(const json_t *value)
{
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Checks |g - g64| <= 1e-5 |g64| + 1e-7 |all g64|, by the norm and along one random direction,
 * whose elements are below 1/2. */
static void assert_gradient(const json_t *one, const coh_model *model, const made *m, size_t index,
                            double all_norm)
{
    const coh_graph_parameter *parameter = &m->graph->parameters[index];
    coh_model_tensor tensor;
    assert_true(find_tensor(model, parameter->name, &tensor));
    const json_t *expected = json_object_get(json_object_get(one, "gradients"), tensor.published);
    const int64_t count = coh_shape_elements(&parameter->facts.shape);
    const uint64_t seed = name_seed("g ", tensor.published);
    double squares = 0, product = 0;
    float *gradient = calloc((size_t)count, sizeof(float));
    assert_non_null(gradient);
    ok(coh_engine_fetch(m->engine, (coh_parameter){ (int32_t)index }, COH_FETCH_GRADIENT,
                        gradient));
    for (int64_t i = 0; i < count; i++) {
        squares += (double)gradient[i] * (double)gradient[i];
        product += (double)gradient[i] * drawn(seed, published_place(&tensor, i));
    }
    free(gradient);
    const double norm = number(json_array_get(expected, 0)),
                 along = number(json_array_get(expected, 1)), bound = 1e-5 * norm + 1e-7 * all_norm;
    if (!(fabs(sqrt(squares) - norm) <= bound) ||
        !(fabs(product - along) <= bound * 0.5 * sqrt((double)count)))
        fail_msg("%s, %s: norm %.9g for %.9g, along %.9g for %.9g", recorded_text(one, "case"),
                 tensor.published, sqrt(squares), norm, product, along);
}

static double all_gradients(const json_t *one)
{
    double squares = 0;
    const char *name;
    json_t *pair;
    json_object_foreach(json_object_get(one, "gradients"), name, pair)
    {
        const double norm = number(json_array_get(pair, 0));
        squares += norm * norm;
    }
    return sqrt(squares);
}

static double step(const made *m, coh_step_result *out_result)
{
    int32_t tokens[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    draw_ids("tokens", tokens);
    draw_ids("targets", targets);
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .seed = 1,
                                   .inputs = { tokens, targets } };
    ok(coh_engine_step(m->engine, &input, out_result));
    return out_result->loss;
}

static void check_training(const json_t *one, const coh_model *model)
{
    coh_graph *graph;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    ok(coh_model_train_graph(model, SEQUENCES, TOKENS, &graph));
    made m = make_engine(model, graph, COH_PLAN_TRAIN);
    const double loss = step(&m, &result), expected = number(json_object_get(one, "loss"));
    const double norm = all_gradients(one);
    if (!(fabs(loss - expected) <= 1e-5))
        fail_msg("%s: loss %.9g for %.9g", recorded_text(one, "case"), loss, expected);
    assert_true(fabs(result.grad_norm - norm) <= 1e-5 * norm);
    for (size_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i].frozen)
            assert_gradient(one, model, &m, i, norm);
    drop(&m);
}

/* Returns the loss of the last of a hundred steps. */
static double train_hundred_steps(const coh_model *model)
{
    coh_graph *graph;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    char name[32];
    ok(coh_model_train_graph(model, SEQUENCES, TOKENS, &graph));
    made m = make_engine(model, graph, COH_PLAN_TRAIN);
    for (uint64_t i = 0; i < STEPS; i++) {
        int32_t tokens[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
        snprintf(name, sizeof(name), "tokens %d", (int)(i % BATCHES));
        draw_ids(name, tokens);
        snprintf(name, sizeof(name), "targets %d", (int)(i % BATCHES));
        draw_ids(name, targets);
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = i,
                                       .seed = 1,
                                       .learning_rate = 1e-3f,
                                       .inputs = { tokens, targets } };
        ok(coh_engine_step(m.engine, &input, &result));
    }
    drop(&m);
    return result.loss;
}

/* A hundred steps of a few models turn roundings, which differ by processor, into more than 1e-3 of
 * the loss. Runs whose weights differ by roundings show how much. */
static void check_hundred_steps(const json_t *one, const coh_model *model)
{
    const double expected = number(json_object_get(one, "trained"));
    const double loss = train_hundred_steps(model);
    double bound = 1e-3;
    for (shake = 1; shake <= 4 && !(fabs(loss - expected) <= bound); shake++)
        bound = fmax(bound, 2 * fabs(train_hundred_steps(model) - loss));
    shake = 0;
    if (!(fabs(loss - expected) <= bound))
        fail_msg("%s: loss %.9g for %.9g, bound %.3g", recorded_text(one, "case"), loss, expected,
                 bound);
}

/* bf16 rounds weights and activations by 2^-9. */
static void check_bf16(const json_t *one, const coh_model *model)
{
    coh_graph *graph;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_model typed = *model;
    coh_model_dtype_set(&typed, COH_DTYPE_BF16);
    ok(coh_model_train_graph(&typed, SEQUENCES, TOKENS, &graph));
    made m = make_engine(&typed, graph, COH_PLAN_TRAIN);
    const double loss = step(&m, &result), expected = number(json_object_get(one, "loss"));
    if (!(fabs(loss - expected) <= 2e-2))
        fail_msg("%s: loss %.9g for %.9g", recorded_text(one, "case"), loss, expected);
    drop(&m);
}

/* Feeds the tokens from t on to a decoder of `rows` rows, and compares the logits after the last
 * row. */
static void check_logits(const json_t *one, const made *m, const coh_graph *graph,
                         coh_tensor logits, const int32_t *tokens, int32_t t, int32_t rows)
{
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .step = (uint64_t)t,
                                   .inputs = { &tokens[t], &t },
                                   .graph = graph };
    const void *data;
    size_t bytes;
    ok(coh_engine_evaluate(m->engine, &input, NULL));
    ok(coh_engine_output(m->engine, logits, &data, &bytes));
    assert_int_equal(bytes, VOCABULARY * sizeof(float));
    const int32_t last = t + rows - 1;
    const json_t *row = json_array_get(json_object_get(one, "logits"), (size_t)last);
    for (size_t v = 0; v < VOCABULARY && last < TOKENS; v++) {
        const double got = (double)((const float *)data)[v],
                     expected = number(json_array_get(row, v));
        if (!(fabs(got - expected) <= 1e-4))
            fail_msg("%s: logit %zu at %d, of %d rows, is %.9g for %.9g",
                     recorded_text(one, "case"), v, (int)last, (int)rows, got, expected);
    }
}

static void check_decoding(const json_t *one, const coh_model *model)
{
    coh_graph *graph;
    coh_tensor logits;
    int32_t tokens[SEQUENCES * TOKENS];
    draw_ids("tokens", tokens);
    ok(coh_model_decode_graph(model, TOKENS, &graph, &logits));
    made m = make_engine(model, graph, COH_PLAN_INFER);
    for (int32_t t = 0; t < TOKENS; t++)
        check_logits(one, &m, NULL, logits, tokens, t, 1);
    drop(&m);
}

/* Reads prompts of all lengths in chunks, and the last token of each alone. A prompt finds the keys
 * and values of the one before, and a chunk those of its own padding. */
static void check_chunks(const json_t *one, const coh_model *model)
{
    static const int32_t chunks[] = { 2, 5, TOKENS };
    coh_graph *graph, *small;
    coh_tensor logits;
    int32_t tokens[SEQUENCES * TOKENS];
    draw_ids("tokens", tokens);
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        const int32_t rows = chunks[i];
        ok(coh_model_prefill_graph(model, TOKENS, rows, &graph, &logits));
        ok(coh_model_prefill_graph(model, TOKENS, 1, &small, &logits));
        made m = make_engine_of(model, graph, small, COH_PLAN_INFER);
        for (int32_t last = 0; last < TOKENS; last++) {
            for (int32_t t = 0; t < last; t += rows)
                check_logits(one, &m, NULL, logits, tokens, t, rows);
            check_logits(one, &m, small, logits, tokens, last, 1);
        }
        drop(&m);
        coh_graph_destroy(small);
    }
}

/* Sets what is trained, if a case specifies it. */
static void take_adapters(const json_t *one, coh_model *model)
{
    const json_t *said = json_object_get(one, "adapters");
    if (!said)
        return;
    coh_adapters adapters = { .rank = (int32_t)number(json_object_get(said, "rank")),
                              .alpha = (float)number(json_object_get(said, "alpha")) };
    snprintf(adapters.targets, sizeof(adapters.targets), "%s", recorded_text(said, "targets"));
    ok(coh_model_adapters_set(model, &adapters));
    assert_int_equal(2 * coh_model_adapter_count(model),
                     json_object_size(json_object_get(one, "gradients")));
}

static void each_of(const char *name, size_t least,
                    void (*check)(const json_t *, const coh_model *))
{
    size_t i;
    json_t *one, *root = recorded_load(FIXTURES, name);
    assert_true(json_array_size(json_object_get(root, "cases")) >= least);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        coh_model model = recorded_model(json_object_get(one, "config"));
        coh_model_dtype_set(&model, COH_DTYPE_F32);
        take_adapters(one, &model);
        check(one, &model);
    }
    json_decref(root);
}

static void each(void (*check)(const json_t *one, const coh_model *model))
{
    each_of("reference.json", 20, check);
    each_of("peft.json", 8, check);
}

static void losses_and_gradients_are_those_of_transformers(void **state)
{
    (void)state;
    each(check_training);
}

static void a_hundred_steps_end_where_those_of_transformers_do(void **state)
{
    (void)state;
    if (test_is_brief()) /* the next test has the same graphs, and test_engine many steps */
        each_of("peft.json", 8, check_hundred_steps);
    else
        each(check_hundred_steps);
}

static void losses_in_bf16_are_near_those_of_transformers(void **state)
{
    (void)state;
    each(check_bf16);
}

static void logits_of_decoders_are_those_of_transformers(void **state)
{
    (void)state;
    each(check_decoding);
}

static void logits_of_prompts_in_chunks_are_those_of_transformers(void **state)
{
    (void)state;
    each(check_chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_are_those_of_transformers),
        cmocka_unit_test(a_hundred_steps_end_where_those_of_transformers_do),
        cmocka_unit_test(losses_in_bf16_are_near_those_of_transformers),
        cmocka_unit_test(logits_of_decoders_are_those_of_transformers),
        cmocka_unit_test(logits_of_prompts_in_chunks_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
