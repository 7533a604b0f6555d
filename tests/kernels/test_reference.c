/* The naive references, the standard for everything else, compared with their own finite
 * differences: d/dx sum(dy * y) by central differences in double, for every element. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "cohobate/kinds.h"
#include "tests/kernels/shapes.h"
#include "tests/reference/reference.h"

static double objective(coh_reference *r)
{
    double sum = 0.0;
    coh_reference_forward(r);
    if (r->output_grad == NULL)
        return r->output.value[0] * r->of->call.loss_scale;
    for (int64_t i = 0; i < r->output.count; i++)
        sum += r->output_grad[i] * r->output.value[i];
    return sum;
}

static void check_gradient(coh_reference *r, double *at, const coh_array *gradient)
{
    const double step = 1e-4;
    for (int64_t i = 0; i < gradient->count; i++) {
        const double start = at[i];
        at[i] = start + step;
        double up = objective(r);
        at[i] = start - step;
        double down = objective(r);
        at[i] = start;
        /* the difference is off by step^2 / 6 times the third derivative, below 100 here, and by
         * 1e-16 / step times the objective */
        const double difference = (up - down) / (2.0 * step),
                     error = fabs(difference - gradient->value[i]);
        if (!(error <= 1e-6 * (1.0 + fabs(difference))))
            fail_msg("%s: element %lld: %.12g, by differences %.12g", r->of->kind->name,
                     (long long)i, gradient->value[i], difference);
    }
}

static void check(const coh_op_kind *kind, const void *attributes, const coh_shape *inputs,
                  int32_t ids)
{
    coh_case one;
    coh_case_create(&one, kind, attributes, inputs, 17);
    coh_case_scale_loss(&one, 0.25f);
    for (int i = 0; i < kind->input_count; i++)
        if (inputs[i].dtype == COH_DTYPE_I32)
            coh_case_ids(&one, i, ids, 3);
    if (kind->is_loss && inputs[1].dtype == COH_DTYPE_I32)
        ((int32_t *)one.call.input[1].data)[1] = -1;
    coh_reference r;
    coh_reference_create(&r, &one);
    coh_reference_backward(&r);
    for (int i = 0; i < COH_REFERENCE_INPUTS; i++)
        check_gradient(&r, r.input[i], &r.input_grad[i]);
    for (int i = 0; i < 2; i++)
        check_gradient(&r, r.parameter[i], &r.parameter_grad[i]);
    coh_reference_destroy(&r);
    coh_case_destroy(&one);
}

/* The padding's row affects the objective, yet its gradient is defined as zero, so differences
 * cannot check it. */
static void check_padding(const coh_embedding_padded_attributes *attributes)
{
    const coh_shape tokens = I32(2, 9);
    coh_case one;
    coh_reference r;
    coh_case_create(&one, &coh_kind_embedding_padded, attributes, &tokens, 17);
    coh_case_ids(&one, 0, 3, 3);
    coh_reference_create(&r, &one);
    coh_reference_backward(&r);
    for (int64_t c = 0; c < 9; c++)
        assert_int_equal(r.parameter_grad[0].value[c] == 0.0, c / 3 == attributes->padding);
    coh_reference_destroy(&r);
    coh_case_destroy(&one);
}

static void the_naive_gradients_are_those_of_the_naive_formulas(void **state)
{
    (void)state;
    const coh_linear_attributes linear = { .outputs = 5, .has_bias = 1 };
    check(&coh_kind_linear, &linear, (coh_shape[]){ F32(3, 7) }, 0);
    check(&coh_kind_linear_residual, &linear, (coh_shape[]){ F32(2, 3, 7), F32(2, 3, 5) }, 0);
    check(&coh_kind_linear_gelu, &linear, (coh_shape[]){ F32(3, 7) }, 0);
    check(&coh_kind_linear_relu, &linear, (coh_shape[]){ F32(3, 7) }, 0);
    const coh_layernorm_attributes norm = { .epsilon = 1e-5f };
    check(&coh_kind_layernorm, &norm, (coh_shape[]){ F32(4, 11) }, 0);
    const coh_rmsnorm_attributes rms = { .epsilon = 1e-5f };
    check(&coh_kind_rmsnorm, &rms, (coh_shape[]){ F32(4, 11) }, 0);
    const coh_rmsnorm_attributes rms_heads = { .epsilon = 1e-5f, .heads = 3 };
    check(&coh_kind_rmsnorm, &rms_heads, (coh_shape[]){ F32(2, 2, 3 * 5) }, 0);
    const coh_rmsnorm_attributes from_one = { .epsilon = 1e-5f, .from_one = 1 };
    check(&coh_kind_rmsnorm, &from_one, (coh_shape[]){ F32(4, 11) }, 0);
    check(&coh_kind_gelu, NULL, (coh_shape[]){ F32(67) }, 0);
    check(&coh_kind_relu, NULL, (coh_shape[]){ F32(67) }, 0);
    const coh_scale_attributes scale = { -2.5f };
    check(&coh_kind_scale, &scale, (coh_shape[]){ F32(67) }, 0);
    check(&coh_kind_swiglu, NULL, (coh_shape[]){ F32(67), F32(67) }, 0);
    check(&coh_kind_geglu, NULL, (coh_shape[]){ F32(67), F32(67) }, 0);
    check(&coh_kind_add, NULL, (coh_shape[]){ F32(67), F32(67) }, 0);
    check(&coh_kind_swiglu_packed, NULL, (coh_shape[]){ F32(5, 2 * 7) }, 0);
    const coh_embedding_attributes table = { .vocabulary = 9, .channels = 3 };
    check(&coh_kind_embedding, &table, (coh_shape[]){ I32(2, 5) }, 9);
    const coh_embedding_padded_attributes padded = { { .vocabulary = 3, .channels = 3 }, 1 };
    check_padding(&padded);
    const coh_position_attributes positions = { .positions = 7 };
    check(&coh_kind_position, &positions, (coh_shape[]){ F32(2, 5, 3) }, 0);
    const coh_position_attributes later = { .positions = 5, .offset = 2 };
    check(&coh_kind_position, &later, (coh_shape[]){ F32(2, 5, 3) }, 0);
    const coh_rope_attributes turns = { 2, 10000.0, COH_ROPE_LLAMA3, 8.0f, 1.0f, 4.0f, 64 };
    check(&coh_kind_rope, &turns, (coh_shape[]){ F32(2, 5, 2 * 6) }, 0);
    const coh_rope_attributes yarn = { 2, 1e4, COH_ROPE_YARN, 4.0f, 1.0f, 32.0f, 64, 1.14f };
    check(&coh_kind_rope, &yarn, (coh_shape[]){ F32(2, 5, 2 * 6) }, 0);
    const coh_attention_attributes heads = { .heads = 2 };
    check(&coh_kind_attention, &heads, (coh_shape[]){ F32(2, 7, 18) }, 0);
    const coh_attention_grouped_attributes groups = { .heads = 4, .kv_heads = 2 };
    check(&coh_kind_attention_grouped, &groups,
          (coh_shape[]){ F32(2, 7, 4 * 3), F32(2, 7, 2 * 3), F32(2, 7, 2 * 3) }, 0);
    static const coh_attention_scores scores[] = { { .window = 3 }, { 5, 0.4f, 1.25f } };
    for (int i = 0; i < 2; i++) {
        const coh_attention_grouped_attributes shaped = { 4, 2, scores[i] };
        check(&coh_kind_attention_grouped, &shaped,
              (coh_shape[]){ F32(2, 7, 4 * 3), F32(2, 7, 2 * 3), F32(2, 7, 2 * 3) }, 0);
    }
    const coh_dropout_attributes dropout = { .probability = 0.4 };
    check(&coh_kind_dropout, &dropout, (coh_shape[]){ F32(67) }, 0);
    check(&coh_kind_dropout_residual, &dropout, (coh_shape[]){ F32(67), F32(67) }, 0);
    const coh_attention_dropout_attributes dropped = { heads, 0.3 };
    check(&coh_kind_attention_dropout, &dropped, (coh_shape[]){ F32(2, 7, 18) }, 0);
    const coh_attention_grouped_dropout_attributes dropped_groups = { 4, 2, 0.3, { 4 } };
    check(&coh_kind_attention_grouped_dropout, &dropped_groups,
          (coh_shape[]){ F32(2, 7, 4 * 3), F32(2, 7, 2 * 3), F32(2, 7, 2 * 3) }, 0);
    const coh_classifier_attributes classes = { .vocabulary = 13 };
    check(&coh_kind_classifier, &classes, (coh_shape[]){ F32(2, 3, 5), I32(2, 3) }, 13);
    const coh_classifier_attributes capped = { .vocabulary = 13, .cap = 1.5f };
    check(&coh_kind_classifier, &capped, (coh_shape[]){ F32(2, 3, 5), I32(2, 3) }, 13);
}

static void so_are_those_of_the_kinds_with_documents(void **state)
{
    (void)state;
    const coh_position_attributes later = { .positions = 5, .offset = 2 };
    check(&coh_kind_position_documents, &later, (coh_shape[]){ F32(2, 5, 3), I32(2, 5) }, 2);
    const coh_attention_attributes heads = { .heads = 2 };
    const coh_attention_dropout_attributes dropped = { heads, 0.3 };
    const coh_attention_grouped_dropout_attributes dropped_groups = { 4, 2, 0.3, { 4 } };
    check(&coh_kind_attention_documents, &heads, (coh_shape[]){ F32(2, 7, 18), I32(2, 7) }, 3);
    check(&coh_kind_attention_documents_dropout, &dropped,
          (coh_shape[]){ F32(2, 7, 18), I32(2, 7) }, 3);
    const coh_attention_grouped_attributes shaped = { 4, 2, { 5, 0.4f, 1.25f } };
    const coh_shape grouped[] = { F32(2, 7, 4 * 3), F32(2, 7, 2 * 3), F32(2, 7, 2 * 3), I32(2, 7) };
    check(&coh_kind_attention_grouped_documents, &shaped, grouped, 3);
    check(&coh_kind_attention_grouped_documents_dropout, &dropped_groups, grouped, 3);
}

static void so_are_those_of_the_kinds_of_any_model(void **state)
{
    (void)state;
    const coh_reshape_attributes dimensions = { { 5, -1 }, 2 };
    check(&coh_kind_reshape, &dimensions, (coh_shape[]){ F32(2, 3, 5) }, 0);
    const coh_slice_attributes slice = { 1, 3, -1 };
    check(&coh_kind_slice, &slice, (coh_shape[]){ F32(2, 3, 5) }, 0);
    for (int32_t axis = 0; axis < 2; axis++) {
        const coh_axis_attributes along = { axis };
        check(&coh_kind_concat, &along, (coh_shape[]){ F32(2, 3, 5), F32(2, 3, 5) }, 0);
        check(&coh_kind_mean, &along, (coh_shape[]){ F32(2, 3, 5) }, 0);
    }
    check(&coh_kind_softmax, NULL, (coh_shape[]){ F32(3, 7) }, 0);
    check(&coh_kind_cross_entropy, NULL, (coh_shape[]){ F32(2, 3, 5), I32(2, 3) }, 5);
    check(&coh_kind_mean_squared_error, NULL, (coh_shape[]){ F32(3, 7), F32(3, 7) }, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_naive_gradients_are_those_of_the_naive_formulas),
        cmocka_unit_test(so_are_those_of_the_kinds_with_documents),
        cmocka_unit_test(so_are_those_of_the_kinds_of_any_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
