/* Metrics of a training plan: tensors marked with coh_graph_output, among them a second loss, are
 * those of plain loops in double over the weights before each step, in memory and streamed, and
 * change no bit of the training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/cohobate.h"

enum { ROWS = 12, INPUTS = 48, WIDTH = 128, CLASSES = 5, STEPS = 3, LAYERS = 4 };

static float x[2 * ROWS * INPUTS], numbers[2 * ROWS * CLASSES];
static int32_t labels[2 * ROWS];

/* x -> LAYERS linear layers -> y [ROWS, CLASSES]. The loss compares y with numbers. The metrics: a
 * second loss compares y with classes; each row's share of it; y itself. */
typedef struct model {
    coh_graph *graph;
    coh_tensor loss, entropy, losses, y;
} model;

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

static coh_tensor add(coh_graph *graph, const coh_op_kind *kind, const char *name,
                      const coh_linear_attributes *attributes, coh_tensor first, coh_tensor second)
{
    const coh_tensor inputs[] = { first, second };
    const coh_op_args args = { .name = name,
                               .attributes = attributes,
                               .attribute_bytes = attributes != NULL ? sizeof(*attributes) : 0,
                               .inputs = inputs,
                               .block = -1 };
    coh_tensor output;
    must(coh_graph_op(graph, kind, &args, &output, NULL));
    return output;
}

enum { NO_METRICS, METRICS, UNREAD_LOSS };

static void add_metrics(model *m, coh_tensor label)
{
    m->entropy = add(m->graph, &coh_kind_cross_entropy, "entropy", NULL, m->y, label);
    m->losses = add(m->graph, &coh_kind_token_losses, "losses", NULL, m->y, label);
    must(coh_graph_output(m->graph, m->entropy));
    must(coh_graph_output(m->graph, m->losses));
    must(coh_graph_output(m->graph, m->y));
}

/* Makes the model without the call of coh_graph_loss. */
static model make_graph(int metrics)
{
    static const char *const names[LAYERS] = { "layer0", "layer1", "layer2", "layer3" };
    const coh_shape in = { COH_DTYPE_F32, 2, { ROWS, INPUTS } };
    const coh_shape out = { COH_DTYPE_F32, 2, { ROWS, CLASSES } };
    const coh_shape one = { COH_DTYPE_I32, 1, { ROWS } };
    model m = { 0 };
    coh_tensor number, label;
    must(coh_graph_create(&m.graph));
    must(coh_graph_input(m.graph, "x", &in, &m.y));
    must(coh_graph_input(m.graph, "numbers", &out, &number));
    must(coh_graph_input(m.graph, "labels", &one, &label));
    for (int i = 0; i < LAYERS; i++) {
        const coh_linear_attributes layer = { i < LAYERS - 1 ? WIDTH : CLASSES, 1, 0.1f };
        m.y = add(m.graph, &coh_kind_linear, names[i], &layer, m.y, m.y);
    }
    if (metrics == METRICS)
        add_metrics(&m, label);
    if (metrics == UNREAD_LOSS)
        add(m.graph, &coh_kind_cross_entropy, "unread", NULL, m.y, label);
    m.loss = add(m.graph, &coh_kind_mean_squared_error, "loss", NULL, m.y, number);
    return m;
}

static model make_model(int metrics)
{
    const model m = make_graph(metrics);
    must(coh_graph_loss(m.graph, m.loss));
    return m;
}

/* ---- plain loops ---- */

typedef struct oracle {
    float weight[LAYERS][WIDTH * WIDTH], bias[LAYERS][WIDTH];
    double y[ROWS][CLASSES], loss, entropy, losses[ROWS];
} oracle;

static void take_weights(coh_engine *engine, const model *m, oracle *o)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        coh_parameter at;
        snprintf(name, sizeof(name), "layer%d.weight", i);
        must(coh_graph_parameter_find(m->graph, name, &at));
        must(coh_engine_fetch(engine, at, COH_FETCH_VALUE, o->weight[i]));
        snprintf(name, sizeof(name), "layer%d.bias", i);
        must(coh_graph_parameter_find(m->graph, name, &at));
        must(coh_engine_fetch(engine, at, COH_FETCH_VALUE, o->bias[i]));
    }
}

static void one_row(oracle *o, int row, const float *in, const float *number, int32_t label)
{
    double from[WIDTH], to[WIDTH], sum = 0;
    for (int i = 0; i < INPUTS; i++)
        from[i] = (double)in[i];
    for (int l = 0; l < LAYERS; l++) {
        const int rows = l < LAYERS - 1 ? WIDTH : CLASSES, columns = l > 0 ? WIDTH : INPUTS;
        for (int r = 0; r < rows; r++) {
            to[r] = (double)o->bias[l][r];
            for (int c = 0; c < columns; c++)
                to[r] += (double)o->weight[l][r * columns + c] * from[c];
        }
        memcpy(from, to, sizeof(from));
    }
    for (int c = 0; c < CLASSES; c++) {
        o->y[row][c] = from[c];
        sum += exp(from[c]);
        o->loss += pow(from[c] - (double)number[c], 2) / (ROWS * CLASSES);
    }
    o->losses[row] = label < 0 ? 0 : log(sum) - from[label];
    o->entropy += o->losses[row] / ROWS;
}

/* Runs micro-batch `index` of the inputs. */
static void run_plain(oracle *o, int index)
{
    o->loss = o->entropy = 0;
    for (int row = 0; row < ROWS; row++) {
        const int at = index * ROWS + row;
        one_row(o, row, x + at * INPUTS, numbers + at * CLASSES, labels[at]);
    }
}

/* ---- the engine ---- */

static void check_output(coh_engine *engine, coh_tensor tensor, const double *expected,
                         size_t count)
{
    const void *data;
    size_t bytes;
    must(coh_engine_output(engine, tensor, &data, &bytes));
    assert_int_equal(bytes, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        const double found = (double)((const float *)data)[i];
        if (!(fabs(found - expected[i]) <= 1e-5 * (1 + fabs(expected[i]))))
            fail_msg("element %d is %.9g, by plain loops it is %.9g", (int)i, found, expected[i]);
    }
}

static void check_step(coh_engine *engine, const model *m, const oracle *o)
{
    check_output(engine, m->entropy, &o->entropy, 1);
    check_output(engine, m->losses, o->losses, ROWS);
    check_output(engine, m->y, &o->y[0][0], ROWS * CLASSES);
}

static coh_plan *make_plan(const coh_graph *graph, int microbatches, uint64_t memory_bytes)
{
    coh_plan_options options;
    coh_plan *plan;
    coh_plan_options_init(&options);
    options.microbatch_count = microbatches;
    options.device_memory_bytes = memory_bytes;
    options.disk_bytes = memory_bytes == UINT64_MAX ? 0 : UINT64_MAX;
    must(coh_plan_create(graph, &options, &plan));
    return plan;
}

/* Trains and returns the hash; compares the metrics with plain loops if there are some. */
static uint64_t train(const model *m, int has_metrics, int microbatches, uint64_t memory_bytes)
{
    static oracle o;
    coh_engine_options options;
    coh_engine *engine;
    uint64_t hash;
    coh_plan *plan = make_plan(m->graph, microbatches, memory_bytes);
    coh_engine_options_init(&options);
    options.store = "mem";
    options.disk_folder = ".";
    must(coh_engine_create(plan, &options, &engine));
    must(coh_engine_init(engine, 7));
    for (uint64_t step = 0; step < STEPS; step++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .learning_rate = 0.01f,
                                       .clip = 1,
                                       .inputs = { x, numbers, labels } };
        coh_step_result result = { .struct_bytes = sizeof(result) };
        double loss = 0;
        take_weights(engine, m, &o);
        must(coh_engine_step(engine, &input, &result));
        for (int i = 0; i < microbatches; i++) {
            run_plain(&o, i);
            loss += o.loss / microbatches;
        }
        assert_true(fabs(result.loss - loss) <= 1e-5 * (1 + loss));
        if (has_metrics)
            check_step(engine, m, &o); /* of the last micro-batch */
    }
    if (has_metrics) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .inputs = { x, numbers, labels } };
        double loss;
        take_weights(engine, m, &o);
        must(coh_engine_evaluate(engine, &input, &loss));
        run_plain(&o, 0);
        assert_true(fabs(loss - o.loss) <= 1e-5 * (1 + o.loss));
        check_step(engine, m, &o);
    }
    must(coh_engine_hash(engine, &hash));
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return hash;
}

static void metrics_are_those_of_plain_loops_and_change_no_bit(void **state)
{
    (void)state;
    model with = make_model(METRICS), without = make_model(NO_METRICS);
    for (int microbatches = 1; microbatches <= 2; microbatches++) {
        coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
        coh_plan *plan = make_plan(with.graph, microbatches, UINT64_MAX);
        must(coh_plan_summarize(plan, &summary));
        coh_plan_destroy(plan);
        const uint64_t expected = train(&without, 0, microbatches, UINT64_MAX);
        assert_int_equal(train(&with, 1, microbatches, UINT64_MAX), expected);
        assert_int_equal(
            train(&with, 1, microbatches, summary.peak_bytes[COH_TIER_DEVICE] * 6 / 10), expected);
    }
    coh_graph_destroy(with.graph);
    coh_graph_destroy(without.graph);
}

/* A loss that nobody reads changes nothing. */
static void a_second_loss_may_be_left_unread(void **state)
{
    (void)state;
    model with = make_model(UNREAD_LOSS), without = make_model(NO_METRICS);
    assert_int_equal(train(&with, 0, 2, UINT64_MAX), train(&without, 0, 2, UINT64_MAX));
    coh_graph_destroy(with.graph);
    coh_graph_destroy(without.graph);
}

static void the_loss_is_no_output(void **state)
{
    (void)state;
    model m = make_model(NO_METRICS);
    assert_int_equal(coh_graph_output(m.graph, m.loss), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "which each result has as a number"));
    coh_graph_destroy(m.graph);
    m = make_graph(NO_METRICS);
    must(coh_graph_output(m.graph, m.loss));
    assert_int_equal(coh_graph_loss(m.graph, m.loss), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "which each result has as a number"));
    coh_graph_destroy(m.graph);
}

/* The backward of a loss passes no gradient on, so a loss of a loss would train wrongly. */
static void a_loss_of_a_loss_is_refused(void **state)
{
    (void)state;
    coh_plan_options options;
    coh_plan *plan = NULL;
    model m = make_graph(NO_METRICS);
    coh_plan_options_init(&options);
    m.loss = add(m.graph, &coh_kind_mean_squared_error, "outer", NULL, m.loss, m.loss);
    must(coh_graph_loss(m.graph, m.loss));
    assert_int_equal(coh_plan_create(m.graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "operator loss is of kind"));
    coh_graph_destroy(m.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_those_of_plain_loops_and_change_no_bit),
        cmocka_unit_test(a_second_loss_may_be_left_unread),
        cmocka_unit_test(the_loss_is_no_output),
        cmocka_unit_test(a_loss_of_a_loss_is_refused),
    };
    for (int i = 0; i < 2 * ROWS * INPUTS; i++)
        x[i] = sinf((float)(i * 37 % 101));
    for (int i = 0; i < 2 * ROWS * CLASSES; i++)
        numbers[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 2 * ROWS; i++)
        labels[i] = i % 5 == 3 ? -1 : i % CLASSES;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
