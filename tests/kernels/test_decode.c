/* The kinds of a decoder: each must give the results of the training kinds for the same tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/shapes.h"
#include "tests/reference/reference.h"

/* Feeds the rows of a whole sequence one by one; `T` crosses the tile of 256 keys. */
static void decode_all(coh_dtype dtype)
{
    enum { B = 2, T = 277, H = 3, C = 15 };
    const coh_attention_attributes whole_attributes = { H };
    const coh_attention_decode_attributes step_attributes = { H, T + 4 };
    coh_shape whole_shape[] = { F32(B, T, 3 * C) };
    coh_shape step_shapes[] = { F32(B, 1, 3 * C), I32(1) };
    whole_shape[0].dtype = step_shapes[0].dtype = dtype;
    const size_t row_bytes = 3 * C * coh_dtype_bytes(dtype);
    coh_case whole, step;
    coh_reference r;
    coh_case_create(&whole, &coh_kind_attention, &whole_attributes, whole_shape, 11);
    coh_case_create(&step, &coh_kind_attention_decode, &step_attributes, step_shapes, 12);
    coh_reference_create(&r, &whole);
    coh_reference_forward(&r);
    const char *qkv = whole.call.input[0].data;
    for (int32_t t = 0; t < T; t++) {
        *(int32_t *)step.call.input[1].data = t;
        for (int b = 0; b < B; b++)
            memcpy((char *)step.call.input[0].data + (size_t)b * row_bytes,
                   qkv + (size_t)(b * T + t) * row_bytes, row_bytes);
        assert_int_equal(coh_case_forward(&step, NULL), COH_OK);
        double *got_all = coh_doubles_of(&step.call.output[0]);
        for (int b = 0; b < B; b++)
            for (int c = 0; c < C; c++) {
                const int64_t at = (b * T + t) * C + c;
                const double got = got_all[b * C + c];
                /* one key at a time instead of a product: twice the roundings */
                if (!(fabs(got - r.output.value[at]) <= 2.0 * r.output.bound[at]))
                    fail_msg("token %d: %g, should be %g", t, got, r.output.value[at]);
            }
        free(got_all);
    }
    coh_reference_destroy(&r);
    coh_case_destroy(&step);
    coh_case_destroy(&whole);
}

static void decoding_token_by_token_is_causal_attention(void **state)
{
    (void)state;
    decode_all(COH_DTYPE_F32);
    decode_all(COH_DTYPE_BF16);
}

/* Copies row `t` of each sequence of `whole` to the row of the same sequence in `step`. */
static void take_row(coh_case *step, const coh_case *whole, int input, int64_t t)
{
    const coh_shape *shape = &whole->call.input[input].shape;
    const int64_t T = shape->dim[1];
    const size_t bytes = (size_t)shape->dim[2] * coh_dtype_bytes(shape->dtype);
    for (int64_t b = 0; b < shape->dim[0]; b++)
        memcpy((char *)step->call.input[input].data + (size_t)b * bytes,
               (const char *)whole->call.input[input].data + (size_t)(b * T + t) * bytes, bytes);
}

static void decode_grouped(coh_dtype dtype, coh_attention_scores scores)
{
    enum { B = 2, T = 277, H = 6, G = 2, D = 5, C = H * D, WIDE = G * D };
    const coh_attention_grouped_attributes whole_attributes = { H, G, scores };
    const coh_attention_grouped_decode_attributes step_attributes = { H, G, T + 4, scores };
    coh_shape whole_shapes[] = { F32(B, T, C), F32(B, T, WIDE), F32(B, T, WIDE) };
    coh_shape step_shapes[] = { F32(B, 1, C), F32(B, 1, WIDE), F32(B, 1, WIDE), I32(1) };
    for (int i = 0; i < 3; i++)
        whole_shapes[i].dtype = step_shapes[i].dtype = dtype;
    coh_case whole, step;
    coh_reference r;
    coh_case_create(&whole, &coh_kind_attention_grouped, &whole_attributes, whole_shapes, 11);
    coh_case_create(&step, &coh_kind_attention_grouped_decode, &step_attributes, step_shapes, 12);
    coh_reference_create(&r, &whole);
    coh_reference_forward(&r);
    for (int32_t t = 0; t < T; t++) {
        *(int32_t *)step.call.input[3].data = t;
        for (int i = 0; i < 3; i++)
            take_row(&step, &whole, i, t);
        assert_int_equal(coh_case_forward(&step, NULL), COH_OK);
        double *got = coh_doubles_of(&step.call.output[0]);
        for (int i = 0; i < B * C; i++) {
            const int64_t at = (i / C * T + t) * C + i % C;
            /* one key at a time instead of a product: twice the roundings */
            if (!(fabs(got[i] - r.output.value[at]) <= 2.0 * r.output.bound[at]))
                fail_msg("token %d: %g, should be %g", t, got[i], r.output.value[at]);
        }
        free(got);
    }
    coh_reference_destroy(&r);
    coh_case_destroy(&step);
    coh_case_destroy(&whole);
}

static void decoding_token_by_token_is_grouped_attention(void **state)
{
    (void)state;
    decode_grouped(COH_DTYPE_F32, (coh_attention_scores){ 0 });
    decode_grouped(COH_DTYPE_BF16, (coh_attention_scores){ 0 });
}

static void a_decoder_has_the_window_and_cap_of_its_sequence(void **state)
{
    (void)state;
    decode_grouped(COH_DTYPE_F32, (coh_attention_scores){ .window = 1 });
    decode_grouped(COH_DTYPE_BF16, (coh_attention_scores){ .window = 19 });
    decode_grouped(COH_DTYPE_F32, (coh_attention_scores){ .window = 270 });
    decode_grouped(COH_DTYPE_F32, (coh_attention_scores){ 19, 0.5f, 1.5f });
    decode_grouped(COH_DTYPE_BF16, (coh_attention_scores){ .cap = 2.0f });
}

/* Compares every output of the kind for a decoder with that for sequences. */
static void turn_tokens(const coh_op_kind *sequence, const coh_op_kind *at, const void *attributes)
{
    enum { B = 3, T = 29, C = 4 * 38 };
    for (int dtype = 0; dtype < 2; dtype++) {
        coh_shape whole_shape[] = { F32(B, T, C) }, step_shapes[] = { F32(B, 1, C), I32(1) };
        whole_shape[0].dtype = step_shapes[0].dtype = dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_case whole, step;
        coh_case_create(&whole, sequence, attributes, whole_shape, 16);
        coh_case_create(&step, at, attributes, step_shapes, 17);
        assert_int_equal(coh_case_forward(&whole, NULL), COH_OK);
        for (int32_t t = 0; t < T; t++) {
            *(int32_t *)step.call.input[1].data = t;
            take_row(&step, &whole, 0, t);
            assert_int_equal(coh_case_forward(&step, NULL), COH_OK);
            for (int i = 0; i < B * sequence->output_count; i++) {
                const int b = i % B, port = i / B;
                const size_t bytes =
                    (size_t)step.facts.output[port].dim[2] * coh_dtype_bytes(whole_shape[0].dtype);
                assert_memory_equal(
                    (char *)step.call.output[port].data + (size_t)b * bytes,
                    (char *)whole.call.output[port].data + (size_t)(b * T + t) * bytes, bytes);
            }
        }
        coh_case_destroy(&step);
        coh_case_destroy(&whole);
    }
}

static void a_token_is_turned_as_in_its_sequence(void **state)
{
    (void)state;
    const coh_rope_attributes one = { 4, 500000.0, COH_ROPE_LLAMA3, 8.0f, 1.0f, 4.0f, 64 };
    const coh_rope_split_attributes split = {
        1, { 2, 10000.0, COH_ROPE_YARN, 4.0f, 1.0f, 32.0f, 64, 1.14f }
    };
    turn_tokens(&coh_kind_rope, &coh_kind_rope_at, &one);
    turn_tokens(&coh_kind_rope_split, &coh_kind_rope_split_at, &split);
}

static void add_positions(coh_dtype dtype, int32_t offset)
{
    enum { B = 3, C = 37, POSITIONS = 11 };
    const coh_position_attributes attributes = { POSITIONS, 1.0f, offset };
    coh_shape shapes[] = { F32(B, 1, C), I32(1) };
    shapes[0].dtype = dtype;
    coh_case one;
    coh_case_create(&one, &coh_kind_position_at, &attributes, shapes, 13);
    double *x = coh_doubles_of(&one.call.input[0]), *table = coh_doubles_of(&one.call.parameter[0]);
    for (int32_t position = 0; position < POSITIONS; position++) {
        *(int32_t *)one.call.input[1].data = position;
        assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
        double *y = coh_doubles_of(&one.call.output[0]);
        for (int i = 0; i < B * C; i++) {
            const double sum = x[i] + table[(position + offset) * C + i % C];
            const double rounding = dtype == COH_DTYPE_BF16 ? 0x1p-8 : COH_EPS;
            assert_true(fabs(y[i] - sum) <= rounding * fabs(sum));
        }
        free(y);
    }
    free(x);
    free(table);
    coh_case_destroy(&one);
}

static void a_position_is_added_by_its_number(void **state)
{
    (void)state;
    add_positions(COH_DTYPE_F32, 0);
    add_positions(COH_DTYPE_F32, 2);
    add_positions(COH_DTYPE_BF16, 2);
}

static void a_position_outside_the_table_is_refused(void **state)
{
    (void)state;
    const coh_position_attributes attributes = { 5, 1.0f };
    const coh_attention_decode_attributes decode = { 1, 5 };
    const coh_attention_grouped_decode_attributes grouped = { 3, 1, 5 };
    const coh_shape shapes[] = { F32(1, 1, 3), I32(1) };
    const coh_shape grouped_shapes[] = { F32(1, 1, 3), F32(1, 1, 1), F32(1, 1, 1), I32(1) };
    static const int32_t bad[] = { -1, 5, INT32_MAX, INT32_MIN };
    coh_case at, step, grouped_step;
    coh_case_create(&grouped_step, &coh_kind_attention_grouped_decode, &grouped, grouped_shapes,
                    14);
    coh_case_create(&at, &coh_kind_position_at, &attributes, shapes, 14);
    coh_case_create(&step, &coh_kind_attention_decode, &decode, shapes, 14);
    for (int i = 0; i < 4; i++) {
        *(int32_t *)at.call.input[1].data = *(int32_t *)step.call.input[1].data = bad[i];
        assert_int_equal(coh_case_forward(&at, NULL), COH_ERR_CORRUPT);
        assert_int_equal(coh_case_forward(&step, NULL), COH_ERR_CORRUPT);
        *(int32_t *)grouped_step.call.input[3].data = bad[i];
        assert_int_equal(coh_case_forward(&grouped_step, NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "outside 0..4"));
    }
    coh_case_destroy(&grouped_step);
    coh_case_destroy(&at);
    coh_case_destroy(&step);
}

static void a_token_before_the_first_is_not_turned(void **state)
{
    (void)state;
    const coh_rope_attributes attributes = { 1, 10000.0 };
    const coh_shape shapes[] = { F32(1, 1, 4), I32(1) };
    coh_case one;
    coh_case_create(&one, &coh_kind_rope_at, &attributes, shapes, 14);
    *(int32_t *)one.call.input[1].data = -1;
    assert_int_equal(coh_case_forward(&one, NULL), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "position -1"));
    coh_case_destroy(&one);
}

static void check_logits(coh_dtype dtype)
{
    enum { B = 2, T = 3, N = B * T, C = 29, V = 2500 };
    const coh_classifier_attributes attributes = { V, 1.0f };
    coh_shape shapes[] = { F32(B, T, C) };
    shapes[0].dtype = dtype;
    static float whole[N * V];
    coh_case one;
    coh_case_create(&one, &coh_kind_logits, &attributes, shapes, 15);
    assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
    memcpy(whole, one.call.output[0].data, sizeof(whole));
    double *x = coh_doubles_of(&one.call.input[0]);
    double *weight = coh_doubles_of(&one.call.parameter[0]);
    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++) {
            double sum = 0.0, size = 0.0;
            for (int c = 0; c < C; c++) {
                sum += x[n * C + c] * weight[v * C + c];
                size += fabs(x[n * C + c] * weight[v * C + c]);
            }
            assert_true(fabs(whole[n * V + v] - sum) <= COH_EPS * (C + 2) * size);
        }
    for (int64_t blocks = 1; blocks <= 3; blocks++) {
        assert_int_equal(coh_case_forward_ranges(&one, NULL, blocks), COH_OK);
        assert_memory_equal(whole, one.call.output[0].data, sizeof(whole));
    }
    free(x);
    free(weight);
    coh_case_destroy(&one);
}

/* Always f32, so that a sampler sees the unrounded products. */
static void logits_are_x_times_the_table_and_ranges_change_no_bit(void **state)
{
    (void)state;
    check_logits(COH_DTYPE_F32);
    check_logits(COH_DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_token_by_token_is_causal_attention),
        cmocka_unit_test(decoding_token_by_token_is_grouped_attention),
        cmocka_unit_test(a_decoder_has_the_window_and_cap_of_its_sequence),
        cmocka_unit_test(a_token_is_turned_as_in_its_sequence),
        cmocka_unit_test(a_token_before_the_first_is_not_turned),
        cmocka_unit_test(a_position_is_added_by_its_number),
        cmocka_unit_test(a_position_outside_the_table_is_refused),
        cmocka_unit_test(logits_are_x_times_the_table_and_ranges_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
