#include "tests/reference/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/kinds.h"
#include "kernels/nf4.h"

static void *take(int64_t count)
{
    void *memory = calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    if (memory == NULL) {
        fprintf(stderr, "the reference is out of memory\n");
        exit(1);
    }
    return memory;
}

static float widened(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Decodes element `i` of blocks of 64: a scale in bf16, then 32 bytes of two codes each. */
static float nf4_at(const void *data, int64_t i)
{
    static const float values[] = COH_NF4_VALUES;
    const unsigned char *block = (const unsigned char *)data + i / 64 * 34;
    const int pair = block[2 + i % 64 / 2], code = i % 2 ? pair / 16 : pair % 16;
    const float number = values[code] * widened((uint16_t)(block[0] + block[1] * 256));
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    const uint32_t rest = bits & 0xffff,
                   is_up = rest > 0x8000 || (rest == 0x8000 && bits >> 16 & 1);
    return widened((uint16_t)((bits >> 16) + is_up));
}

double *coh_doubles_of(const coh_view *view)
{
    if (view->data == NULL || view->shape.dtype == COH_DTYPE_I32)
        return NULL;
    const int64_t count = coh_shape_elements(&view->shape);
    double *values = take(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = view->shape.dtype == COH_DTYPE_BF16 ? widened(((const uint16_t *)view->data)[i])
                    : view->shape.dtype == COH_DTYPE_NF4 ? nf4_at(view->data, i)
                                                         : ((const float *)view->data)[i];
    return values;
}

static coh_array array_for(const coh_view *view)
{
    coh_array array = { 0 };
    if (view->data == NULL)
        return array;
    array.count = coh_shape_elements(&view->shape);
    array.value = take(array.count);
    array.bound = take(array.count);
    return array;
}

void coh_reference_create(coh_reference *out_reference, const coh_case *of)
{
    coh_reference *r = out_reference;
    *r = (coh_reference){ .of = of };
    for (int i = 0; i < COH_REFERENCE_INPUTS; i++) {
        r->input[i] = coh_doubles_of(&of->call.input[i]);
        if (of->call.input[i].shape.dtype == COH_DTYPE_I32)
            r->ids[i] = of->call.input[i].data;
        r->input_grad[i] = array_for(&of->call.input_grad[i]);
    }
    for (int i = 0; i < 2; i++) {
        r->parameter[i] = coh_doubles_of(&of->call.parameter[i]);
        r->parameter_grad[i] = array_for(&of->call.parameter_grad[i]);
    }
    const coh_shape *first = &of->call.input[0].shape;
    if (first->dtype == COH_DTYPE_I32)
        first = &of->call.output[0].shape;
    r->store = first->dtype == COH_DTYPE_BF16 ? 0x1p-8 : 0.0;
    r->output = array_for(&of->call.output[0]);
    r->output_grad = coh_doubles_of(&of->call.output_grad[0]);
}

static void free_array(coh_array *array)
{
    free(array->value);
    free(array->bound);
}

void coh_reference_destroy(coh_reference *reference)
{
    for (int i = 0; i < COH_REFERENCE_INPUTS; i++) {
        free(reference->input[i]);
        free_array(&reference->input_grad[i]);
    }
    for (int i = 0; i < 2; i++) {
        free(reference->parameter[i]);
        free_array(&reference->parameter_grad[i]);
    }
    free_array(&reference->output);
    free(reference->output_grad);
}

static void run(coh_reference *r, int backward)
{
    static const struct {
        const coh_op_kind *kind;
        void (*run)(coh_reference *r, int backward);
    } references[] = {
        { &coh_kind_linear, coh_reference_linear },
        { &coh_kind_linear_residual, coh_reference_linear },
        { &coh_kind_linear_gelu, coh_reference_linear_gelu },
        { &coh_kind_linear_relu, coh_reference_linear_relu },
        { &coh_kind_layernorm, coh_reference_layernorm },
        { &coh_kind_rmsnorm, coh_reference_rmsnorm },
        { &coh_kind_gelu, coh_reference_gelu },
        { &coh_kind_relu, coh_reference_relu },
        { &coh_kind_linear_uniform, coh_reference_linear },
        { &coh_kind_scale, coh_reference_scale },
        { &coh_kind_swiglu, coh_reference_swiglu },
        { &coh_kind_geglu, coh_reference_geglu },
        { &coh_kind_add, coh_reference_add },
        { &coh_kind_swiglu_packed, coh_reference_swiglu_packed },
        { &coh_kind_embedding, coh_reference_embedding },
        { &coh_kind_embedding_padded, coh_reference_embedding },
        { &coh_kind_position, coh_reference_position },
        { &coh_kind_position_documents, coh_reference_position },
        { &coh_kind_rope, coh_reference_rope },
        { &coh_kind_attention, coh_reference_attention },
        { &coh_kind_attention_grouped, coh_reference_attention_grouped },
        { &coh_kind_attention_atomic, coh_reference_attention },
        { &coh_kind_attention_grouped_atomic, coh_reference_attention_grouped },
        { &coh_kind_attention_dropout, coh_reference_attention_dropout },
        { &coh_kind_attention_grouped_dropout, coh_reference_attention_grouped_dropout },
        { &coh_kind_attention_documents, coh_reference_attention },
        { &coh_kind_attention_grouped_documents, coh_reference_attention_grouped },
        { &coh_kind_attention_documents_dropout, coh_reference_attention_dropout },
        { &coh_kind_attention_grouped_documents_dropout, coh_reference_attention_grouped_dropout },
        { &coh_kind_dropout, coh_reference_dropout },
        { &coh_kind_dropout_residual, coh_reference_dropout },
        { &coh_kind_classifier, coh_reference_classifier },
        { &coh_kind_reshape, coh_reference_reshape },
        { &coh_kind_slice, coh_reference_slice },
        { &coh_kind_concat, coh_reference_concat },
        { &coh_kind_mean, coh_reference_mean },
        { &coh_kind_softmax, coh_reference_softmax },
        { &coh_kind_cross_entropy, coh_reference_cross_entropy },
        { &coh_kind_mean_squared_error, coh_reference_mean_squared_error },
    };
    for (size_t i = 0; i < sizeof(references) / sizeof(references[0]); i++)
        if (references[i].kind == r->of->kind)
            references[i].run(r, backward);
}

/* Results are rounded once, when stored. */
static void round_stored(const coh_reference *r, const coh_view *view, coh_array *array)
{
    if (view->shape.dtype == COH_DTYPE_F32)
        return;
    for (int64_t i = 0; i < array->count; i++)
        array->bound[i] += r->store * (fabs(array->value[i]) + array->bound[i]);
}

static void clear(coh_array *array)
{
    memset(array->value, 0, (size_t)array->count * sizeof(double));
    memset(array->bound, 0, (size_t)array->count * sizeof(double));
}

void coh_reference_forward(coh_reference *reference)
{
    clear(&reference->output);
    run(reference, 0);
    if (!reference->of->kind->is_loss)
        round_stored(reference, &reference->of->call.output[0], &reference->output);
}

void coh_reference_backward(coh_reference *reference)
{
    for (int i = 0; i < COH_REFERENCE_INPUTS; i++)
        if (reference->input_grad[i].count > 0)
            clear(&reference->input_grad[i]);
    for (int i = 0; i < 2; i++)
        if (reference->parameter_grad[i].count > 0)
            clear(&reference->parameter_grad[i]);
    run(reference, 1);
    for (int i = 0; i < COH_REFERENCE_INPUTS; i++)
        round_stored(reference, &reference->of->call.input_grad[i], &reference->input_grad[i]);
    for (int i = 0; i < 2; i++)
        round_stored(reference, &reference->of->call.parameter_grad[i],
                     &reference->parameter_grad[i]);
}

int coh_reference_agrees(const char *name, const coh_array *expected, const coh_view *view,
                         const double *before)
{
    int agrees = 1;
    double *got = coh_doubles_of(view);
    const double store = view->shape.dtype == COH_DTYPE_BF16 ? 0x1p-8 : 0.0;
    for (int64_t i = 0; i < expected->count && agrees; i++) {
        const double start = before != NULL ? before[i] : 0.0;
        const double value = expected->value[i] + start;
        double bound = expected->bound[i];
        if (before != NULL) /* one more addition, and BLAS adds panel by panel */
            bound += (4.0 * COH_EPS + store) * (fabs(start) + fabs(value));
        const double error = fabs(got[i] - value);
        if (!(error <= bound)) {
            fprintf(stderr, "%s[%lld] is %.9g, should be %.9g: off by %.3g, bound %.3g\n", name,
                    (long long)i, got[i], value, error, bound);
            agrees = 0;
        }
    }
    free(got);
    return agrees;
}
