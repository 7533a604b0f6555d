#include "tests/engine/small_model.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/length.h"
#include "tests/reference/float_bits.h"

/* ---- elements ---- */

/* Rounds to the nearest bf16, ties to even; NaN stays NaN. */
TEST_ORACLE static uint16_t round_bf16(float value)
{
    uint32_t bits = bits_of(value), upper = bits >> 16;
    if (isnan(value))
        return (uint16_t)(upper | 0x40);
    uint32_t rest = bits & 0xffff;
    return (uint16_t)(upper + (rest > 0x8000 || (rest == 0x8000 && (upper & 1))));
}

/* Tensors are transferred in pieces, by copies that a sanitizer checks as one range each; copying
 * element by element would take most of a test's time. */
enum { PIECE = 1000 };
_Static_assert(SMALL_ELEMENTS % PIECE == 0, "whole pieces");

static char *piece_at(const coh_view *view, int begin)
{
    return (char *)view->data + (size_t)begin * coh_dtype_bytes(view->shape.dtype);
}

TEST_ORACLE static void widen(coh_dtype dtype, const void *raw, float *out)
{
    for (int i = 0; i < PIECE; i++)
        out[i] = dtype == COH_DTYPE_F32 ? ((const float *)raw)[i]
                                        : float_of((uint32_t)((const uint16_t *)raw)[i] << 16);
}

TEST_ORACLE static void narrow(coh_dtype dtype, const float *values, void *out_raw)
{
    for (int i = 0; i < PIECE; i++)
        if (dtype == COH_DTYPE_F32)
            ((float *)out_raw)[i] = values[i];
        else
            ((uint16_t *)out_raw)[i] = round_bf16(values[i]);
}

static void get(const coh_view *view, int begin, float *out)
{
    uint32_t raw[PIECE];
    memcpy(raw, piece_at(view, begin), PIECE * coh_dtype_bytes(view->shape.dtype));
    widen(view->shape.dtype, raw, out);
}

TEST_ORACLE static void add(float *sums, const float *values)
{
    for (int i = 0; i < PIECE; i++)
        sums[i] += values[i];
}

static void put(const coh_view *view, int begin, const float *values, uint32_t adds)
{
    uint32_t raw[PIECE];
    float sums[PIECE];
    if (adds) {
        get(view, begin, sums);
        add(sums, values);
    }
    narrow(view->shape.dtype, adds ? sums : values, raw);
    memcpy(piece_at(view, begin), raw, PIECE * coh_dtype_bytes(view->shape.dtype));
}

/* out = a b + c; c may be NULL */
TEST_ORACLE static void multiply(const float *a, const float *b, const float *c, float *out)
{
    for (int i = 0; i < PIECE; i++)
        out[i] = c != NULL ? a[i] * b[i] + c[i] : a[i] * b[i];
}

/* ---- kinds ---- */

static coh_status layer_infer(const void *attributes, const coh_shape *inputs,
                              coh_op_facts *out_facts)
{
    (void)attributes;
    out_facts->output[0] = inputs[0];
    out_facts->parameter[0] = (coh_parameter_facts){
        .name = "weight", .shape = inputs[0], .init = COH_INIT_NORMAL, .init_std = 0.5f, .decays = 1
    };
    out_facts->parameter[1] =
        (coh_parameter_facts){ .name = "bias", .shape = inputs[0], .init = COH_INIT_ONE };
    return COH_OK;
}

static coh_status layer_forward(const coh_call *call)
{
    const coh_view *x = &call->input[0], *w = &call->parameter[0], *b = &call->parameter[1];
    const coh_view *y = &call->output[0];
    const uint64_t seed = call->random_cell != NULL && *(const int *)call->attributes == 2
                              ? call->random_cell->seed
                              : 0;
    const int is_broken = seed == SMALL_BROKEN_SEED;
    if (seed == SMALL_FAILING_SEED)
        return COH_ERR_ARGUMENT;
    for (int begin = 0; begin < SMALL_ELEMENTS; begin += PIECE) {
        float xs[PIECE], ws[PIECE], bs[PIECE], ys[PIECE];
        get(x, begin, xs);
        get(w, begin, ws);
        get(b, begin, bs);
        multiply(xs, ws, bs, ys);
        if (is_broken && call->microbatch == 1 && begin + PIECE == SMALL_ELEMENTS)
            ys[PIECE - 1] = NAN;
        put(y, begin, ys, 0);
    }
    return COH_OK;
}

static coh_status layer_backward(const coh_call *call)
{
    const coh_view *x = &call->input[0], *w = &call->parameter[0], *dy = &call->output_grad[0];
    const coh_view *dx = &call->input_grad[0];
    const coh_view *dw = &call->parameter_grad[0], *db = &call->parameter_grad[1];
    for (int begin = 0; begin < SMALL_ELEMENTS; begin += PIECE) {
        float dys[PIECE], others[PIECE], products[PIECE];
        get(dy, begin, dys);
        if (dx->data != NULL) {
            get(w, begin, others);
            multiply(dys, others, NULL, products);
            put(dx, begin, products, call->input_grad_adds & 1);
        }
        if (dw->data != NULL) {
            get(x, begin, others);
            multiply(dys, others, NULL, products);
            put(dw, begin, products, call->parameter_grad_adds & 1);
        }
        if (db->data != NULL)
            put(db, begin, dys, (call->parameter_grad_adds >> 1) & 1);
    }
    return COH_OK;
}

static const coh_op_kind layer_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.layer",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 2,
    .backward_reads = { .inputs = 1, .parameters = 1 },
    .can_add_grad = { .inputs = 1, .parameters = 3 },
    .can_skip_grad = { .inputs = 1 },
    .draws = 1,
    .infer = layer_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = layer_forward, .backward = layer_backward } },
};

static coh_status loss_infer(const void *attributes, const coh_shape *inputs,
                             coh_op_facts *out_facts)
{
    (void)attributes;
    (void)inputs;
    out_facts->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    return COH_OK;
}

TEST_ORACLE static double add_squares(double sum, const float *values)
{
    for (int i = 0; i < PIECE; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

TEST_ORACLE static void scale(float *values, float factor)
{
    for (int i = 0; i < PIECE; i++)
        values[i] = values[i] * factor / SMALL_ELEMENTS;
}

static coh_status loss_forward(const coh_call *call)
{
    double sum = 0;
    for (int begin = 0; begin < SMALL_ELEMENTS; begin += PIECE) {
        float values[PIECE];
        get(&call->input[0], begin, values);
        sum = add_squares(sum, values);
    }
    *(float *)call->output[0].data = (float)(sum / (2.0 * SMALL_ELEMENTS));
    return COH_OK;
}

static coh_status loss_backward(const coh_call *call)
{
    for (int begin = 0; begin < SMALL_ELEMENTS; begin += PIECE) {
        float values[PIECE];
        get(&call->input[0], begin, values);
        scale(values, call->loss_scale);
        put(&call->input_grad[0], begin, values, call->input_grad_adds & 1);
    }
    return COH_OK;
}

static const coh_op_kind loss_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.half_square",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .inputs = 1 },
    .is_loss = 1,
    .infer = loss_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = loss_forward, .backward = loss_backward } },
};

static coh_status create(const coh_op_kind *kind, coh_dtype dtype, int frozen_layer,
                         coh_graph **out_graph)
{
    coh_graph *graph = NULL;
    coh_status status = coh_graph_create(&graph);
    const coh_shape shape = { .dtype = dtype, .rank = 1, .dim = { SMALL_ELEMENTS } };
    coh_tensor tensor;
    if (status == COH_OK)
        status = coh_graph_input(graph, "x", &shape, &tensor);
    for (int i = 0; status == COH_OK && i < SMALL_LAYERS; i++) {
        char name[] = "layer0";
        name[5] = (char)('0' + i);
        coh_tensor output;
        const coh_op_args args = { .name = name,
                                   .attributes = &i,
                                   .attribute_bytes = sizeof(i),
                                   .inputs = &tensor,
                                   .frozen_parameters = i == frozen_layer ? 3 : 0,
                                   .block = i };
        status = coh_graph_op(graph, kind, &args, &output, NULL);
        tensor = output;
    }
    const coh_op_args args = { .name = "loss", .inputs = &tensor, .block = -1 };
    coh_tensor loss;
    if (status == COH_OK)
        status = coh_graph_op(graph, &loss_kind, &args, &loss, NULL);
    if (status == COH_OK)
        status = coh_graph_loss(graph, loss);
    *out_graph = graph;
    return status;
}

coh_status small_model_create(coh_dtype dtype, coh_graph **out_graph)
{
    return create(&layer_kind, dtype, -1, out_graph);
}

coh_status small_model_create_frozen(coh_dtype dtype, int layer, coh_graph **out_graph)
{
    coh_op_kind kind = layer_kind;
    kind.can_skip_grad.parameters = 3;
    return create(&kind, dtype, layer, out_graph);
}

coh_status small_model_create_overwriting(coh_dtype dtype, coh_graph **out_graph)
{
    coh_op_kind kind = layer_kind;
    kind.can_add_grad = (coh_port_mask){ 0 };
    kind.can_skip_grad = (coh_port_mask){ 0 };
    return create(&kind, dtype, -1, out_graph);
}

coh_status small_model_create_in_place(coh_dtype dtype, coh_graph **out_graph)
{
    coh_op_kind kind = layer_kind; /* each piece is read before it is written */
    kind.in_place_count[COH_PHASE_FORWARD] = kind.in_place_count[COH_PHASE_BACKWARD] = 1;
    return create(&kind, dtype, -1, out_graph);
}

static coh_status spoiling_backward(const coh_call *call)
{
    const coh_view *dy = &call->output_grad[0];
    const coh_status status = layer_backward(call);
    memset(dy->data, 0xff,
           (size_t)coh_shape_elements(&dy->shape) * coh_dtype_bytes(dy->shape.dtype));
    return status;
}

coh_status small_model_create_spoiling(coh_dtype dtype, coh_graph **out_graph)
{
    coh_op_kind kind = layer_kind;
    kind.devices[COH_DEVICE_HOST].backward = spoiling_backward;
    kind.overwrites_output_grads = 1;
    return create(&kind, dtype, -1, out_graph);
}

void small_model_input(coh_dtype dtype, uint64_t step, float *input, void *stored)
{
    for (int i = 0; i < SMALL_MICROBATCHES * SMALL_ELEMENTS; i++) {
        input[i] = (float)coh_rng_uniform(11, step, (uint64_t)i) * 2 - 1;
        if (dtype == COH_DTYPE_BF16) {
            ((uint16_t *)stored)[i] = round_bf16(input[i]);
            input[i] = float_of((uint32_t)round_bf16(input[i]) << 16);
        } else {
            ((float *)stored)[i] = input[i];
        }
    }
}

/* ---- the oracle ---- */

TEST_ORACLE double small_oracle_work(coh_dtype dtype, float master)
{
    if (dtype == COH_DTYPE_F32)
        return (double)master;
    return (double)float_of((bits_of(master) + 0x8000u) & 0xffff0000u); /* ties away from zero */
}

TEST_ORACLE double small_oracle_kept(coh_dtype dtype, double value)
{
    return dtype == COH_DTYPE_F32 ? value
                                  : (double)float_of((uint32_t)round_bf16((float)value) << 16);
}

/* A product before it is added to a sum: bf16 tensors are computed in f32. */
TEST_ORACLE static double product(const small_oracle *o, double a, double b)
{
    return o->dtype == COH_DTYPE_F32 ? a * b : (double)(float)(a * b);
}

/* Computes one element through all layers, forward and backward. */
TEST_ORACLE static void oracle_element(small_oracle *o, int e, double input)
{
    double x[SMALL_LAYERS + 1];
    x[0] = input;
    for (int l = 0; l < SMALL_LAYERS; l++)
        x[l + 1] =
            small_oracle_kept(o->dtype, product(o, x[l], small_oracle_work(o->dtype, o->w[l][e])) +
                                            small_oracle_work(o->dtype, o->b[l][e]));
    o->loss += x[SMALL_LAYERS] * x[SMALL_LAYERS];
    double d = small_oracle_kept(o->dtype, x[SMALL_LAYERS] / SMALL_ELEMENTS / SMALL_MICROBATCHES);
    for (int l = SMALL_LAYERS - 1; l >= 0; l--) {
        o->gw[l][e] = small_oracle_kept(o->dtype, o->gw[l][e] + product(o, d, x[l]));
        o->gb[l][e] = small_oracle_kept(o->dtype, o->gb[l][e] + d);
        d = small_oracle_kept(o->dtype, product(o, d, small_oracle_work(o->dtype, o->w[l][e])));
    }
}

TEST_ORACLE static void oracle_gradients(small_oracle *o, const float *input)
{
    memset(o->gw, 0, sizeof(o->gw));
    memset(o->gb, 0, sizeof(o->gb));
    o->loss = 0;
    for (int e = 0; e < SMALL_ELEMENTS; e++)
        for (int mb = 0; mb < SMALL_MICROBATCHES; mb++)
            oracle_element(o, e, (double)input[mb * SMALL_ELEMENTS + e]);
    o->loss /= 2.0 * SMALL_ELEMENTS * SMALL_MICROBATCHES;
    double sum = 0;
    for (int l = 0; l < SMALL_LAYERS; l++)
        for (int e = 0; e < SMALL_ELEMENTS; e++)
            sum += o->gw[l][e] * o->gw[l][e] + o->gb[l][e] * o->gb[l][e];
    o->norm = sqrt(sum);
}

/* The numbers of AdamW in one run. */
typedef struct oracle_numbers {
    double beta1, beta2, epsilon;
} oracle_numbers;

/* Returns a number of AdamW: its default, unless the options set it. */
static double number_of(const coh_engine_options *options, const char *name)
{
    const coh_optimizer *adamw = coh_optimizer_find("adamw");
    double value = NAN;
    for (int32_t i = 0; i < adamw->hyperparameter_count; i++)
        if (strcmp(adamw->hyperparameters[i].name, name) == 0)
            value = (double)adamw->hyperparameters[i].initial;
    for (uint32_t i = 0; i < options->hyperparameter_count; i++)
        if (strcmp(options->hyperparameters[i].name, name) == 0)
            value = (double)options->hyperparameters[i].value;
    return value;
}

/* Loshchilov and Hutter 2019, algorithm 2. */
TEST_ORACLE static void oracle_adamw(const small_oracle *o, const oracle_numbers *numbers,
                                     double rate, double decay, double g, float *w, float *m,
                                     float *v)
{
    double beta1 = numbers->beta1, beta2 = numbers->beta2;
    double count = (double)o->applied;
    double new_m = beta1 * (double)*m + (1 - beta1) * g;
    double new_v = beta2 * (double)*v + (1 - beta2) * g * g;
    double unbiased_m = new_m / (1 - pow(beta1, count)),
           unbiased_v = new_v / (1 - pow(beta2, count));
    *w = (float)((double)*w -
                 rate * (unbiased_m / (sqrt(unbiased_v) + numbers->epsilon) + decay * (double)*w));
    *m = (float)new_m;
    *v = (float)new_v;
}

TEST_ORACLE void small_oracle_step(small_oracle *o, const coh_engine_options *options,
                                   const float *input, double rate, double clip)
{
    const oracle_numbers numbers = { number_of(options, "beta1"), number_of(options, "beta2"),
                                     number_of(options, "epsilon") };
    oracle_gradients(o, input);
    const double norm = o->clips_by_previous ? o->previous_norm : o->norm;
    const double scale = clip > 0 && norm > clip ? clip / norm : 1;
    o->previous_norm = o->norm;
    o->applied++;
    for (int l = 0; l < SMALL_LAYERS; l++)
        for (int e = 0; e < SMALL_ELEMENTS; e++) {
            oracle_adamw(o, &numbers, rate * o->rate_factor[l][0], o->decay[l][0],
                         o->gw[l][e] * scale, &o->w[l][e], &o->wm[l][e], &o->wv[l][e]);
            oracle_adamw(o, &numbers, rate * o->rate_factor[l][1], o->decay[l][1],
                         o->gb[l][e] * scale, &o->b[l][e], &o->bm[l][e], &o->bv[l][e]);
        }
}
