/* Arguments that the kinds refuse, with a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/kernels/shapes.h"

typedef struct refusal {
    const coh_op_kind *kind;
    const void *attributes;
    coh_shape inputs[4];
    const char *says;
} refusal;

static const refusal refusals[] = {
    { &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 10, 4),
      { F32(2, 3) },
      "i32 is needed" },
    { &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 10, 4),
      { I32(2, 3, 1) },
      "2 dimensions" },
    { &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 0, 4),
      { I32(2, 3) },
      "vocabulary is 0" },
    { &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 10, -4),
      { I32(2, 3) },
      "channels is -4" },
    { &coh_kind_embedding_padded,
      ATTRIBUTES(coh_embedding_padded_attributes, { 10, 4 }, 10),
      { I32(2, 3) },
      "token 10" },
    { &coh_kind_embedding_padded,
      ATTRIBUTES(coh_embedding_padded_attributes, { 10, 4 }, -1),
      { I32(2, 3) },
      "token -1" },
    { &coh_kind_position,
      ATTRIBUTES(coh_position_attributes, 5, 1.0f, -1),
      { F32(2, 3, 3) },
      "offset is -1" },
    { &coh_kind_position,
      ATTRIBUTES(coh_position_attributes, 5, 1.0f, 2),
      { F32(2, 6, 3) },
      "6 tokens" },
    { &coh_kind_position, ATTRIBUTES(coh_position_attributes, 5), { F32(2, 6, 3) }, "6 tokens" },
    { &coh_kind_position, ATTRIBUTES(coh_position_attributes, 5), { F32(2, 6) }, "3 dimensions" },
    { &coh_kind_position_at,
      ATTRIBUTES(coh_position_attributes, 5),
      { F32(2, 2, 3), I32(2) },
      "got 2 positions" },
    { &coh_kind_position_at,
      ATTRIBUTES(coh_position_attributes, 5),
      { F32(2, 1, 3), F32(1) },
      "i32 is needed" },
    { &coh_kind_layernorm, ATTRIBUTES(coh_layernorm_attributes, -1.0f), { F32(2, 3) }, "epsilon" },
    { &coh_kind_layernorm,
      ATTRIBUTES(coh_layernorm_attributes, 1e-5f),
      { F32(2, 0) },
      "every dimension" },
    { &coh_kind_rmsnorm, ATTRIBUTES(coh_rmsnorm_attributes, NAN), { F32(2, 3) }, "epsilon" },
    { &coh_kind_rmsnorm, ATTRIBUTES(coh_rmsnorm_attributes, 1.0f), { F32(2, 3) }, "epsilon" },
    { &coh_kind_rmsnorm, ATTRIBUTES(coh_rmsnorm_attributes, 1e-6f, 4), { F32(2, 6) }, "4 heads" },
    { &coh_kind_rmsnorm, ATTRIBUTES(coh_rmsnorm_attributes, 1e-6f, -3), { F32(2, 6) }, "-3 heads" },
    { &coh_kind_swiglu_packed, NULL, { F32(2, 7) }, "even number" },
    { &coh_kind_rope_split,
      ATTRIBUTES(coh_rope_split_attributes, 3, { 4, 1e4 }),
      { F32(2, 3, 40) },
      "divisor" },
    { &coh_kind_rope_split,
      ATTRIBUTES(coh_rope_split_attributes, 0, { 4, 1e4 }),
      { F32(2, 3, 40) },
      "kv_heads is 0" },
    { &coh_kind_rope_split,
      ATTRIBUTES(coh_rope_split_attributes, 2, { 4, 1e4 }),
      { F32(2, 3, 40) },
      "8 heads" },
    { &coh_kind_rope_split,
      ATTRIBUTES(coh_rope_split_attributes, 2, { 4, 0.5 }),
      { F32(2, 3, 32) },
      "theta is 0.5" },
    { &coh_kind_linear, ATTRIBUTES(coh_linear_attributes, 0), { F32(2, 3) }, "outputs is 0" },
    { &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 4),
      { F32(2, INT64_C(1) << 31) },
      "every dimension" },
    { &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 4),
      { F32(INT32_MAX, INT32_MAX, 64) },
      "62 bits" },
    { &coh_kind_linear_residual,
      ATTRIBUTES(coh_linear_attributes, 4),
      { F32(2, 3), F32(2, 5) },
      "f32 [2,5]" },
    { &coh_kind_linear_residual,
      ATTRIBUTES(coh_linear_attributes, 4),
      { F32(2, 3), F32(2, 1, 4) },
      "must agree" },
    { &coh_kind_gelu, NULL, { I32(2, 3) }, "f32 or bf16 is needed" },
    { &coh_kind_relu, NULL, { I32(2, 3) }, "f32 or bf16 is needed" },
    { &coh_kind_scale, ATTRIBUTES(coh_scale_attributes, 1.0f), { I32(2, 3) }, "f32 or bf16" },
    { &coh_kind_scale, ATTRIBUTES(coh_scale_attributes, NAN), { F32(2, 3) }, "factor is nan" },
    { &coh_kind_swiglu, NULL, { F32(2, 3), BF16(2, 3) }, "f32 is needed" },
    { &coh_kind_swiglu, NULL, { F32(2, 3), F32(2, 4) }, "must agree" },
    { &coh_kind_add, NULL, { F32(2, 3), F32(3, 2) }, "must agree" },
    { &coh_kind_reshape,
      ATTRIBUTES(coh_reshape_attributes, { -1, -1 }, 2),
      { F32(2, 6) },
      "one -1" },
    { &coh_kind_reshape,
      ATTRIBUTES(coh_reshape_attributes, { 5, -1 }, 2),
      { F32(2, 6) },
      "no divisor" },
    { &coh_kind_reshape, ATTRIBUTES(coh_reshape_attributes, { 5 }, 1), { F32(2, 6) }, "make 5" },
    { &coh_kind_reshape, ATTRIBUTES(coh_reshape_attributes, { 5 }, 6), { F32(2, 6) }, "rank is 6" },
    { &coh_kind_slice, ATTRIBUTES(coh_slice_attributes, 2, 2, 1), { F32(2, 6) }, "2 to 2" },
    { &coh_kind_slice, ATTRIBUTES(coh_slice_attributes, 2, 7, 1), { F32(2, 6) }, "axis of 6" },
    { &coh_kind_slice, ATTRIBUTES(coh_slice_attributes, 0, 1, 2), { F32(2, 6) }, "axis is 2" },
    { &coh_kind_concat,
      ATTRIBUTES(coh_axis_attributes, -3),
      { F32(2, 6), F32(2, 6) },
      "axis is -3" },
    { &coh_kind_concat,
      ATTRIBUTES(coh_axis_attributes, 1),
      { F32(2, 6), F32(3, 6) },
      "in every axis except 1" },
    { &coh_kind_mean, ATTRIBUTES(coh_axis_attributes, 0), { I32(2, 6) }, "f32 or bf16" },
    { &coh_kind_softmax, NULL, { I32(2, 6) }, "f32 or bf16" },
    { &coh_kind_cross_entropy, NULL, { F32(2, 3, 5), I32(2, 5) }, "one target per row" },
    { &coh_kind_cross_entropy, NULL, { F32(2, 3, 5), I32(6) }, "one target per row" },
    { &coh_kind_mean_squared_error, NULL, { F32(2, 6), F32(2, 1) }, "must agree" },
    { &coh_kind_mean_squared_error, NULL, { F32(2, 6), BF16(2, 6) }, "f32 is needed" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 2, 1e4), { F32(2, 6) }, "3 dimensions" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 2, 1e4), { F32(2, 3, 6) }, "even number" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 1, 1e4), { F32(2, 3, 514) }, "at most 512" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 0, 1e4), { F32(2, 3, 6) }, "heads is 0" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 1, 0.0), { F32(2, 3, 6) }, "theta is 0" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 1, 0.5), { F32(2, 3, 6) }, "theta is 0.5" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 1, 1e31), { F32(2, 3, 6) }, "theta" },
    { &coh_kind_rope, ATTRIBUTES(coh_rope_attributes, 1, NAN), { F32(2, 3, 6) }, "theta" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1.0, COH_ROPE_YARN, 8.0f, 1.0f, 32.0f, 64, 1.0f),
      { F32(2, 3, 6) },
      "above 1 is needed" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_YARN, 8.0f, 1.0f, 32.0f, 64, 0.0f),
      { F32(2, 3, 6) },
      "magnitude is 0" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_YARN, 8.0f, 32.0f, 1.0f, 64, 1.0f),
      { F32(2, 3, 6) },
      "low_frequency is 32" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, 4),
      { F32(2, 3, 6) },
      "scaling 4 is unknown" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_LINEAR, -0.5f),
      { F32(2, 3, 6) },
      "factor" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_LINEAR, 0x1p-30f),
      { F32(2, 3, 6) },
      "up to 2 are possible" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_LLAMA3, 8.0f, 4.0f, 4.0f, 64),
      { F32(2, 3, 6) },
      "high_frequency" },
    { &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4, COH_ROPE_LLAMA3, 8.0f, 1.0f, 4.0f, 0),
      { F32(2, 3, 6) },
      "original_positions is 0" },
    { &coh_kind_rope_at,
      ATTRIBUTES(coh_rope_attributes, 1, 1e4),
      { F32(2, 2, 6), I32(2) },
      "got 2 positions" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 3),
      { F32(2, 3, 8), F32(2, 3, 6), F32(2, 3, 6) },
      "a divisor" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 0),
      { F32(2, 3, 8), F32(2, 3, 6), F32(2, 3, 6) },
      "kv_heads is 0" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { F32(2, 3, 10), F32(2, 3, 4), F32(2, 3, 4) },
      "multiple of 4" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { F32(2, 3, 8), F32(2, 3, 4), F32(2, 3, 6) },
      "v has 6 channels" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { F32(2, 3, 8), F32(2, 4, 4), F32(2, 3, 4) },
      "k is f32 [2,4,4]" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 1, 1),
      { F32(2, 3, 513), F32(2, 3, 513), F32(2, 3, 513) },
      "513 channels" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { F32(2, 3, 8), BF16(2, 3, 4), F32(2, 3, 4) },
      "f32 is needed" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2, { .window = -1 }),
      { F32(2, 3, 8), F32(2, 3, 4), F32(2, 3, 4) },
      "window of -1" },
    { &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2, { .scale = NAN }),
      { F32(2, 3, 8), F32(2, 3, 4), F32(2, 3, 4) },
      "scaled by nan" },
    { &coh_kind_attention_grouped_decode,
      ATTRIBUTES(coh_attention_grouped_decode_attributes, 4, 2, 9, { .cap = -1.0f }),
      { F32(2, 1, 8), F32(2, 1, 4), F32(2, 1, 4), I32(1) },
      "soft cap of -1" },
    { &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 5, 1.0f, INFINITY),
      { F32(2, 3, 8), I32(2, 3) },
      "soft cap of inf" },
    { &coh_kind_attention_grouped_decode,
      ATTRIBUTES(coh_attention_grouped_decode_attributes, 4, 2, 0),
      { F32(2, 1, 8), F32(2, 1, 4), F32(2, 1, 4), I32(1) },
      "positions is 0" },
    { &coh_kind_attention_grouped_decode,
      ATTRIBUTES(coh_attention_grouped_decode_attributes, 4, 2, 9),
      { F32(2, 3, 8), F32(2, 3, 4), F32(2, 3, 4), I32(3) },
      "got 3 positions" },
    { &coh_kind_attention, ATTRIBUTES(coh_attention_attributes, 4), { F32(2, 3, 18) }, "4 heads" },
    { &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 2),
      { F32(2, 3, 3 * 2 * 513) },
      "513 channels" },
    { &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 0),
      { F32(2, 3, 18) },
      "heads is 0" },
    { &coh_kind_attention_decode,
      ATTRIBUTES(coh_attention_decode_attributes, 2, 0),
      { F32(2, 1, 18), I32(1) },
      "positions is 0" },
    { &coh_kind_attention_decode,
      ATTRIBUTES(coh_attention_decode_attributes, 2, 9),
      { F32(2, 3, 18), I32(2) },
      "got 2 positions" },
    { &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 9),
      { F32(2, 3, 4), I32(3, 2) },
      "one target" },
    { &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, -9),
      { F32(2, 3, 4), I32(2, 3) },
      "vocabulary" },
    { &coh_kind_logits, ATTRIBUTES(coh_classifier_attributes, 9), { F32(2, 3) }, "3 dimensions" },
};

static void shapes_that_do_not_go_together_are_refused_with_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        coh_op_facts facts = { 0 };
        assert_int_equal(
            refusals[i].kind->infer(refusals[i].attributes, refusals[i].inputs, &facts),
            COH_ERR_SHAPE);
        if (strstr(coh_last_error(), refusals[i].says) == NULL)
            fail_msg("%s says \"%s\", not \"%s\"", refusals[i].kind->name, coh_last_error(),
                     refusals[i].says);
    }
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const coh_embedding_attributes table = { 10, 4, 1.0f };
    const coh_classifier_attributes classes = { 10, 1.0f };
    const coh_shape tokens[] = { I32(2, 3) }, items[] = { F32(2, 3, 4), I32(2, 3) };
    static const int32_t bad[] = { 10, -2, INT32_MAX, INT32_MIN };
    coh_case embedding, classifier;
    coh_case_create(&embedding, &coh_kind_embedding, &table, tokens, 1);
    coh_case_create(&classifier, &coh_kind_classifier, &classes, items, 1);
    for (int i = 0; i < 4; i++) {
        ((int32_t *)embedding.call.input[0].data)[5] = bad[i];
        assert_int_equal(coh_case_forward(&embedding, NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "place 5"));
        ((int32_t *)classifier.call.input[1].data)[5] = bad[i];
        assert_int_equal(coh_case_forward(&classifier, NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "place 5"));
    }
    ((int32_t *)embedding.call.input[0].data)[5] = -1; /* "no target" has no embedding */
    assert_int_equal(coh_case_forward(&embedding, NULL), COH_ERR_CORRUPT);
    coh_case_destroy(&embedding);
    coh_case_destroy(&classifier);
}

static void without_any_target_there_is_no_loss_and_no_gradient(void **state)
{
    (void)state;
    const coh_classifier_attributes classes = { 10, 1.0f };
    const coh_shape items[] = { F32(2, 3, 4), I32(2, 3) };
    coh_case one;
    coh_case_create(&one, &coh_kind_classifier, &classes, items, 2);
    memset(one.call.input[1].data, 0xff, 6 * sizeof(int32_t));
    assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
    assert_int_equal(coh_case_backward(&one, NULL), COH_OK);
    assert_true(*(float *)one.call.output[0].data == 0.0f);
    for (int i = 0; i < 24; i++)
        assert_true(((float *)one.call.input_grad[0].data)[i] == 0.0f);
    for (int i = 0; i < 40; i++)
        assert_true(((float *)one.call.parameter_grad[0].data)[i] == 0.0f);
    coh_case_destroy(&one);
}

/* 1024 rows of any width fill whole pages, and so do ranges of such blocks. */
static void blocks_of_rows_are_whole_pages(void **state)
{
    (void)state;
    for (int64_t C = 1; C <= 100; C += 3) {
        const coh_embedding_attributes table = { 5000, C, 1.0f };
        const coh_shape tokens[] = { I32(2, 3) };
        coh_op_facts facts = { 0 };
        assert_int_equal(coh_kind_embedding.infer(&table, tokens, &facts), COH_OK);
        assert_true(facts.parameter[0].row_block > 0);
        assert_int_equal(facts.parameter[0].row_block * C * 4 % 4096, 0);
    }
}

/* Sequences of two tokens and four heads of 8 to 256 channels, by eights, are what cuDNN takes. */
static const refusal limits_of_atomics[] = {
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { BF16(1, 2, 3 * 4 * 8) },
      NULL },
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { BF16(1, 2, 3 * 4 * 256) },
      NULL },
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { BF16(1, 2, 3 * 4 * 264) },
      "heads of 264 channels" },
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { BF16(1, 2, 3 * 4 * 12) },
      "a multiple of 8, at most 256" },
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { BF16(1, 1, 3 * 4 * 8) },
      "1 token" },
    { &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 4),
      { F32(1, 2, 3 * 4 * 8) },
      "not bf16" },
    { &coh_kind_attention_grouped_atomic,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { BF16(1, 2, 4 * 8), BF16(1, 2, 2 * 8), BF16(1, 2, 2 * 8) },
      NULL },
    { &coh_kind_attention_grouped_atomic,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2),
      { BF16(1, 2, 4 * 12), BF16(1, 2, 2 * 12), BF16(1, 2, 2 * 12) },
      "heads of 12 channels" },
    { &coh_kind_attention_grouped_atomic,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2, { .window = 2 }),
      { BF16(1, 2, 4 * 8), BF16(1, 2, 2 * 8), BF16(1, 2, 2 * 8) },
      NULL },
    { &coh_kind_attention_grouped_atomic,
      ATTRIBUTES(coh_attention_grouped_attributes, 4, 2, { .window = 2 }),
      { BF16(1, 3, 4 * 8), BF16(1, 3, 2 * 8), BF16(1, 3, 2 * 8) },
      "window of 2 keys" },
};

/* Flops of 2 heads of 4 channels: 4 per channel and pair of a query and a key that it sees. */
static void a_window_is_priced_by_its_pairs(void **state)
{
    (void)state;
    const coh_shape inputs[] = { F32(3, 64, 8), F32(3, 64, 4), F32(3, 64, 4) };
    static const double pairs[][2] = { { 0, 2048 }, { 64, 2048 }, { 99, 2048 }, { 16, 896 } };
    for (int i = 0; i < 4; i++) {
        const coh_attention_grouped_attributes a = { 2, 1, { .window = (int64_t)pairs[i][0] } };
        coh_op_facts facts = { 0 };
        assert_int_equal(coh_kind_attention_grouped.infer(&a, inputs, &facts), COH_OK);
        assert_true(facts.flops[COH_PHASE_FORWARD] == 4.0 * 3 * 8 * pairs[i][1]);
        assert_true(facts.flops[COH_PHASE_BACKWARD] == 10.0 * 3 * 8 * pairs[i][1]);
    }
}

static void attention_by_atomics_names_the_limit_of_cudnn_and_runs_all_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(limits_of_atomics) / sizeof(limits_of_atomics[0]); i++) {
        const refusal *one = &limits_of_atomics[i];
        const coh_kind_device *gpu = &one->kind->devices[COH_DEVICE_CUDA];
        coh_op_facts facts = { 0 };
        assert_int_equal(one->kind->infer(one->attributes, one->inputs, &facts), COH_OK);
        assert_int_equal(gpu->accepts(one->attributes, one->inputs),
                         one->says == NULL ? COH_OK : COH_ERR_SHAPE);
        if (one->says != NULL)
            assert_non_null(strstr(coh_last_error(), one->says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_do_not_go_together_are_refused_with_a_sentence),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(without_any_target_there_is_no_loss_and_no_gradient),
        cmocka_unit_test(blocks_of_rows_are_whole_pages),
        cmocka_unit_test(a_window_is_priced_by_its_pairs),
        cmocka_unit_test(attention_by_atomics_names_the_limit_of_cudnn_and_runs_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
