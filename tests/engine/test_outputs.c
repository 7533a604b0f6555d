/* Kinds with several outputs in training: a router, whose output 0 is integers, trains what comes
 * before it by its other outputs, and an output that nothing uses has no gradient. Gradients are
 * compared with closed forms in double. */
#include <math.h>
#include <string.h>

#include "tests/engine/must.h"

enum { ROWS = 5, WIDTH = 6, STEPS = 3 };
enum { INDEX, LARGEST, SUM, OUTPUTS };

static float x[ROWS * WIDTH], y[ROWS];

/* ---- a router: the index of the largest element of each row, that element, and the sum ---- */

static int absent_grads; /* bit i: the last backward got no gradient of output i */

static coh_status router_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    for (int i = 0; i < OUTPUTS; i++)
        facts->output[i] =
            (coh_shape){ i == INDEX ? COH_DTYPE_I32 : COH_DTYPE_F32, 2, { inputs[0].dim[0], 1 } };
    return COH_OK;
}

static coh_status router_forward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++) {
        const float *row = (const float *)call->input[0].data + r * WIDTH;
        int32_t largest = 0;
        float sum = 0;
        for (int32_t c = 0; c < WIDTH; c++) {
            largest = row[c] > row[largest] ? c : largest;
            sum += row[c];
        }
        ((int32_t *)call->output[INDEX].data)[r] = largest;
        ((float *)call->output[LARGEST].data)[r] = row[largest];
        ((float *)call->output[SUM].data)[r] = sum;
    }
    return COH_OK;
}

static coh_status router_backward(const coh_call *call)
{
    const float *dlargest = call->output_grad[LARGEST].data, *dsum = call->output_grad[SUM].data;
    absent_grads = (call->output_grad[INDEX].data == NULL) << INDEX |
                   (dlargest == NULL) << LARGEST | (dsum == NULL) << SUM;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++)
            ((float *)call->input_grad[0].data)[r * WIDTH + c] =
                (dsum != NULL ? dsum[r] : 0) +
                (dlargest != NULL && ((const int32_t *)call->output[INDEX].data)[r] == c
                     ? dlargest[r]
                     : 0);
    return COH_OK;
}

static const coh_op_kind router = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.router",
    .revision = 1,
    .input_count = 1,
    .output_count = OUTPUTS,
    .backward_reads = { .outputs = 1u << INDEX },
    .infer = router_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = router_forward, .backward = router_backward } },
};

/* ---- y = x (1 + index) ---- */

static coh_status weigh_forward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++)
        ((float *)call->output[0].data)[r] =
            ((const float *)call->input[0].data)[r] *
            (1.0f + (float)((const int32_t *)call->input[1].data)[r]);
    return COH_OK;
}

static coh_status weigh_backward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++)
        ((float *)call->input_grad[0].data)[r] =
            ((const float *)call->output_grad[0].data)[r] *
            (1.0f + (float)((const int32_t *)call->input[1].data)[r]);
    return COH_OK;
}

COH_LAYER(weigh, "test.weigh", 2, 0, weigh_forward, weigh_backward,
          .index = { [1] = { 0, WIDTH } });

/* ---- x -> linear -> router -> some of its outputs -> loss ---- */

typedef struct model {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_parameter weight;
} model;

static coh_tensor add(const model *m, const coh_op_kind *kind, const char *name,
                      const coh_tensor *inputs)
{
    coh_tensor output;
    const coh_op_args args = { .name = name, .inputs = inputs, .block = -1 };
    must(coh_graph_op(m->graph, kind, &args, &output, NULL), name);
    return output;
}

/* Trains `used`: LARGEST, SUM, or 0 for both; `is_weighed`: times 1 + index. */
static void open_model(model *m, int used, int is_weighed)
{
    static const coh_linear_attributes linear = { WIDTH, 0, 0.5f };
    const coh_shape rows = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };
    const coh_shape column = { COH_DTYPE_F32, 2, { ROWS, 1 } };
    const coh_op_args first = {
        .name = "first", .attributes = &linear, .attribute_bytes = sizeof(linear), .block = 0
    };
    coh_op_args args = first;
    coh_tensor input, hidden, out[OUTPUTS], pair[2], result;
    coh_plan_options options;
    coh_engine_options engine_options;
    *m = (model){ 0 };
    must(coh_graph_create(&m->graph), "graph");
    must(coh_graph_input(m->graph, "x", &rows, &input), "x");
    must(coh_graph_input(m->graph, "target", &column, &pair[1]), "target");
    const coh_tensor target = pair[1];
    args.inputs = &input;
    must(coh_graph_op(m->graph, &coh_kind_linear, &args, &hidden, &m->weight), "first");
    args = (coh_op_args){ .name = "router", .inputs = &hidden, .block = 0 };
    must(coh_graph_op(m->graph, &router, &args, out, NULL), "router");
    result = used == 0 ? add(m, &coh_kind_add, "both", &out[LARGEST]) : out[used];
    if (is_weighed)
        result = add(m, &weigh, "weigh", (coh_tensor[]){ result, out[INDEX] });
    result = add(m, &coh_kind_mean_squared_error, "loss", (coh_tensor[]){ result, target });
    must(coh_graph_loss(m->graph, result), "the loss");
    coh_plan_options_init(&options);
    must(coh_plan_create(m->graph, &options, &m->plan), "plan");
    coh_engine_options_init(&engine_options);
    engine_options.poison = 1;
    must(coh_engine_create(m->plan, &engine_options, &m->engine), "engine");
    must(coh_engine_init(m->engine, 1), "init");
}

static void close_model(model *m)
{
    coh_engine_destroy(m->engine);
    coh_plan_destroy(m->plan);
    coh_graph_destroy(m->graph);
}

/* The gradient of the mean of (y' - y)² over rows, with respect to weight [outputs, channels]. */
static void closed_form(const float *weight, int used, int is_weighed, double *gradient)
{
    memset(gradient, 0, WIDTH * WIDTH * sizeof(*gradient));
    for (int r = 0; r < ROWS; r++) {
        double hidden[WIDTH] = { 0 }, sum = 0;
        int largest = 0;
        for (int o = 0; o < WIDTH; o++) {
            for (int c = 0; c < WIDTH; c++)
                hidden[o] += (double)weight[o * WIDTH + c] * (double)x[r * WIDTH + c];
            largest = hidden[o] > hidden[largest] ? o : largest;
            sum += hidden[o];
        }
        const double factor = is_weighed ? 1.0 + largest : 1.0;
        const double result =
            factor * ((used == SUM ? 0 : hidden[largest]) + (used == LARGEST ? 0 : sum));
        const double slope = factor * 2 * (result - (double)y[r]) / ROWS;
        for (int o = 0; o < WIDTH; o++)
            for (int c = 0; c < WIDTH; c++)
                gradient[o * WIDTH + c] +=
                    slope * (double)x[r * WIDTH + c] *
                    ((used == SUM ? 0 : o == largest) + (used == LARGEST ? 0 : 1));
    }
}

/* Steps a model and compares its gradients with the closed form, for outputs that are used or not.
 * The bound: a hundred roundings of sums of at most 60. */
static void check_model(int used, int is_weighed, int absent)
{
    model m;
    open_model(&m, used, is_weighed);
    for (int s = 0; s < STEPS; s++) {
        float weight[WIDTH * WIDTH], gradient[WIDTH * WIDTH];
        double expected[WIDTH * WIDTH], size = 0;
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { sizeof(input), (uint64_t)s, 1, 1e-2f, 0, { x, y }, 1.0f };
        must(coh_engine_fetch(m.engine, m.weight, COH_FETCH_VALUE, weight), "weight");
        closed_form(weight, used, is_weighed, expected);
        must(coh_engine_step(m.engine, &input, &result), "step");
        must(coh_engine_fetch(m.engine, m.weight, COH_FETCH_GRADIENT, gradient), "gradient");
        for (int i = 0; i < WIDTH * WIDTH; i++) {
            size = fmax(size, fabs(expected[i]));
            if (!(fabs((double)gradient[i] - expected[i]) <= 100 * 60 * 0x1p-24))
                fail_msg("output %d, element %d: %g in place of %g", used, i, (double)gradient[i],
                         expected[i]);
        }
        assert_true(size > 0.1);
        assert_int_equal(absent_grads, absent);
    }
    close_model(&m);
}

static void outputs_after_integers_train_what_comes_before_them(void **state)
{
    (void)state;
    check_model(LARGEST, 0, 1 << INDEX | 1 << SUM);
    check_model(LARGEST, 1, 1 << INDEX | 1 << SUM);
    check_model(0, 1, 1 << INDEX);
}

static void an_output_that_nothing_uses_has_no_gradient(void **state)
{
    (void)state;
    check_model(SUM, 0, 1 << INDEX | 1 << LARGEST);
    check_model(SUM, 1, 1 << INDEX | 1 << LARGEST);
}

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = sinf((float)(i * 37 % 101));
    for (int i = 0; i < ROWS; i++)
        y[i] = (float)(i % 3) - 1.0f;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_after_integers_train_what_comes_before_them),
        cmocka_unit_test(an_output_that_nothing_uses_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
