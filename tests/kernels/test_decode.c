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

enum { B = 2, T = 277 }; /* T crosses the tile of 256 keys */

/* Copies rows [t, t + rows of `step`) of each sequence of `whole`, as far as there are any. */
static void take_rows(coh_case *step, const coh_case *whole, int input, int64_t t)
{
    const coh_shape *shape = &whole->call.input[input].shape;
    const int64_t all = shape->dim[1], rows = step->call.input[input].shape.dim[1];
    const size_t bytes = (size_t)shape->dim[2] * coh_dtype_bytes(shape->dtype);
    for (int64_t b = 0; b < shape->dim[0]; b++)
        memcpy((char *)step->call.input[input].data + (size_t)(b * rows) * bytes,
               (const char *)whole->call.input[input].data + (size_t)(b * all + t) * bytes,
               (size_t)(all - t < rows ? all - t : rows) * bytes);
}

/* Compares the outputs of a step from row t on with the reference; rows after the last are padding
 * and must be finite. Adds the real rows to `y`. */
static void check_step(const coh_case *step, const coh_reference *r, int64_t t, double *y)
{
    const int64_t *dim = step->call.output[0].shape.dim;
    double *got = coh_doubles_of(&step->call.output[0]);
    for (int64_t i = 0; i < dim[0] * dim[1] * dim[2]; i++) {
        const int64_t n = i / dim[2], row = t + n % dim[1];
        const int64_t at = (n / dim[1] * T + row) * dim[2] + i % dim[2];
        assert_true(isfinite(got[i]));
        if (row >= T)
            continue;
        /* one key at a time instead of a product: twice the roundings */
        if (!(fabs(got[i] - r->output.value[at]) <= 2.0 * r->output.bound[at]))
            fail_msg("token %d: %g, should be %g", (int)row, got[i], r->output.value[at]);
        y[at] = got[i];
    }
    free(got);
}

/* Feeds a whole sequence to a decoder of as many rows as `step` has. Returns y of all rows. */
static double *feed(coh_case *step, const coh_case *whole, const coh_reference *r)
{
    const int inputs = whole->kind->input_count;
    const int64_t rows = step->call.input[0].shape.dim[1];
    double *y = calloc((size_t)coh_shape_elements(&whole->call.output[0].shape), sizeof(*y));
    assert_non_null(y);
    for (int32_t t = 0; t < T; t += (int32_t)rows) {
        *(int32_t *)step->call.input[inputs].data = t;
        for (int i = 0; i < inputs; i++)
            take_rows(step, whole, i, t);
        assert_int_equal(coh_case_forward(step, NULL), COH_OK);
        check_step(step, r, t, y);
    }
    return y;
}

/* Feeds it one by one, and in chunks whose last one has padding: behind the cache's end if the
 * cache has T positions. On the host a row's bits are those of a step of its own. */
static void feed_in_chunks(const coh_case *whole, const coh_op_kind *kind, const void *attributes,
                           const coh_shape *row_shapes)
{
    static const int64_t chunks[] = { 1, 2, 7, 64, T + 1 };
    coh_reference r;
    double *first = NULL;
    coh_reference_create(&r, whole);
    coh_reference_forward(&r);
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        coh_shape shapes[4];
        memcpy(shapes, row_shapes, (size_t)kind->input_count * sizeof(*shapes));
        for (int port = 0; port < whole->kind->input_count; port++)
            shapes[port].dim[1] = chunks[i];
        coh_case step;
        coh_case_create(&step, kind, attributes, shapes, 12);
        double *y = feed(&step, whole, &r);
        if (first != NULL)
            assert_memory_equal(y, first, (size_t)r.output.count * sizeof(*y));
        coh_case_destroy(&step);
        if (first != NULL)
            free(y);
        else
            first = y;
    }
    free(first);
    coh_reference_destroy(&r);
}

static void decode_all(coh_dtype dtype, int64_t positions)
{
    enum { H = 3, C = 15 };
    const coh_attention_attributes whole_attributes = { H };
    const coh_attention_decode_attributes step_attributes = { H, positions };
    coh_shape whole_shape[] = { F32(B, T, 3 * C) };
    coh_shape step_shapes[] = { F32(B, 1, 3 * C), I32(1) };
    coh_case whole;
    whole_shape[0].dtype = step_shapes[0].dtype = dtype;
    coh_case_create(&whole, &coh_kind_attention, &whole_attributes, whole_shape, 11);
    feed_in_chunks(&whole, &coh_kind_attention_decode, &step_attributes, step_shapes);
    coh_case_destroy(&whole);
}

static void decoding_in_chunks_is_causal_attention(void **state)
{
    (void)state;
    decode_all(COH_DTYPE_F32, T + 4);
    decode_all(COH_DTYPE_BF16, T);
}

static void decode_grouped(coh_dtype dtype, coh_attention_scores scores)
{
    enum { H = 6, G = 2, D = 5, C = H * D, WIDE = G * D };
    const coh_attention_grouped_attributes whole_attributes = { H, G, scores };
    const coh_attention_grouped_decode_attributes step_attributes = { H, G, T, scores };
    coh_shape whole_shapes[] = { F32(B, T, C), F32(B, T, WIDE), F32(B, T, WIDE) };
    coh_shape step_shapes[] = { F32(B, 1, C), F32(B, 1, WIDE), F32(B, 1, WIDE), I32(1) };
    coh_case whole;
    for (int i = 0; i < 3; i++)
        whole_shapes[i].dtype = step_shapes[i].dtype = dtype;
    coh_case_create(&whole, &coh_kind_attention_grouped, &whole_attributes, whole_shapes, 11);
    feed_in_chunks(&whole, &coh_kind_attention_grouped_decode, &step_attributes, step_shapes);
    coh_case_destroy(&whole);
}

static void decoding_in_chunks_is_grouped_attention(void **state)
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

/* Compares every output of the kind for a decoder of `rows` rows with that for sequences. */
static void turn_rows(const coh_case *whole, const coh_op_kind *at, const void *attributes,
                      int64_t rows)
{
    const coh_shape *shape = &whole->call.input[0].shape;
    const int64_t sequences = shape->dim[0], all = shape->dim[1];
    coh_shape shapes[] = { F32(sequences, rows, shape->dim[2]), I32(1) };
    coh_case step;
    shapes[0].dtype = shape->dtype;
    coh_case_create(&step, at, attributes, shapes, 17);
    for (int32_t t = 0; t < all; t += (int32_t)rows) {
        const int64_t real = all - t < rows ? all - t : rows;
        *(int32_t *)step.call.input[1].data = t;
        take_rows(&step, whole, 0, t);
        assert_int_equal(coh_case_forward(&step, NULL), COH_OK);
        for (int64_t i = 0; i < sequences * whole->kind->output_count; i++) {
            const int64_t b = i % sequences, port = i / sequences;
            const size_t bytes =
                (size_t)step.facts.output[port].dim[2] * coh_dtype_bytes(shape->dtype);
            assert_memory_equal((char *)step.call.output[port].data + (size_t)(b * rows) * bytes,
                                (char *)whole->call.output[port].data +
                                    (size_t)(b * all + t) * bytes,
                                (size_t)real * bytes);
        }
    }
    coh_case_destroy(&step);
}

static void turn_tokens(const coh_op_kind *sequence, const coh_op_kind *at, const void *attributes)
{
    enum { C = 4 * 38 };
    static const int64_t rows[] = { 1, 3, 16, 40 };
    for (int dtype = 0; dtype < 2; dtype++) {
        coh_shape whole_shape[] = { F32(3, 29, C) };
        coh_case whole;
        whole_shape[0].dtype = dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_case_create(&whole, sequence, attributes, whole_shape, 16);
        assert_int_equal(coh_case_forward(&whole, NULL), COH_OK);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            turn_rows(&whole, at, attributes, rows[i]);
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

/* Rows after the last position are padding: nothing is added to them. */
static void add_positions(coh_dtype dtype, int32_t offset, int64_t rows)
{
    enum { C = 37, POSITIONS = 11 };
    const coh_position_attributes attributes = { POSITIONS, 1.0f, offset };
    coh_shape shapes[] = { F32(B, rows, C), I32(1) };
    shapes[0].dtype = dtype;
    coh_case one;
    coh_case_create(&one, &coh_kind_position_at, &attributes, shapes, 13);
    double *x = coh_doubles_of(&one.call.input[0]), *table = coh_doubles_of(&one.call.parameter[0]);
    for (int32_t position = 0; position < POSITIONS; position++) {
        *(int32_t *)one.call.input[1].data = position;
        assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
        double *y = coh_doubles_of(&one.call.output[0]);
        for (int64_t i = 0; i < B * rows * C; i++) {
            const int64_t row = position + i / C % rows;
            const double sum = x[i] + (row < POSITIONS ? table[(row + offset) * C + i % C] : 0.0);
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
    for (int64_t rows = 1; rows <= 11; rows += 5) {
        add_positions(COH_DTYPE_F32, 0, rows);
        add_positions(COH_DTYPE_F32, 2, rows);
        add_positions(COH_DTYPE_BF16, 2, rows);
    }
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
    enum { N = 6, C = 29, V = 2500 };
    const coh_classifier_attributes attributes = { V, 1.0f };
    coh_shape shapes[] = { F32(2, 3, C) };
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
        cmocka_unit_test(decoding_in_chunks_is_causal_attention),
        cmocka_unit_test(decoding_in_chunks_is_grouped_attention),
        cmocka_unit_test(a_decoder_has_the_window_and_cap_of_its_sequence),
        cmocka_unit_test(a_token_is_turned_as_in_its_sequence),
        cmocka_unit_test(a_token_before_the_first_is_not_turned),
        cmocka_unit_test(a_position_is_added_by_its_number),
        cmocka_unit_test(a_position_outside_the_table_is_refused),
        cmocka_unit_test(logits_are_x_times_the_table_and_ranges_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
