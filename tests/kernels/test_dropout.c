/* Random words and dropout: the generator compared with published vectors, the same words on every
 * instruction set and in any pieces, masks with the right share of zeros. (test_kinds.c,
 * test_attention.c and test_reference.c compare the kinds with dropout, and their gradients, with
 * naive loops that use such a mask.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/kinds.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/random.h"
#include "tests/kernels/shapes.h"
#include "tests/reference/reference.h"

/* "philox4x32 10" of Random123's tests/kat_vectors (Salmon et al. 2011). */
static const struct {
    uint32_t counter[4], key[2], block[4];
} known[] = {
    { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u } },
    { { ~0u, ~0u, ~0u, ~0u },
      { ~0u, ~0u },
      { 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu } },
    { { 0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u },
      { 0xa4093822u, 0x299f31d0u },
      { 0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u } },
};

static void blocks_are_those_that_were_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t block[4];
        coh_philox(block, known[i].counter, known[i].key);
        assert_memory_equal(block, known[i].block, sizeof(block));
        coh_reference_philox(block, known[i].counter, known[i].key);
        assert_memory_equal(block, known[i].block, sizeof(block));
    }
}

/* Groups around the places where a counter's lower half overflows. */
static void every_instruction_set_makes_the_same_words(void **state)
{
    (void)state;
    static const char *const isas[] = { "plain", "avx2", "avx512" };
    static const uint64_t groups[] = { 0, 1, 77, 0x0fffffffu, 0x10000000u, 0x3fffffffffffffeu };
    const coh_random random = { { 0xa4093822u, 0x299f31d0u }, { 0x13198a2eu, 0x03707344u } };
    const uint32_t stream[4] = { 0xa4093822u, 0x299f31d0u, 0x13198a2eu, 0x03707344u };
    for (int isa = 0; isa < 3; isa++)
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
            const coh_rows *rows = coh_rows_of(isas[isa], COH_DTYPE_F32);
            uint32_t words[2 * COH_RANDOM_GROUP];
            if (rows == NULL)
                continue;
            rows->random(words, &random, groups[g], 2);
            for (uint64_t i = 0; i < 2 * COH_RANDOM_GROUP; i++)
                assert_int_equal(words[i],
                                 coh_reference_word(stream, groups[g] * COH_RANDOM_GROUP + i));
        }
}

static coh_call call_of(const coh_random_cell *cell, int32_t operator_index, int32_t microbatch)
{
    return (coh_call){ .random_cell = cell,
                       .operator_index = operator_index,
                       .microbatch = microbatch };
}

static void words_are_a_function_of_their_number(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    const coh_random_cell cell = { 3, 4 };
    const coh_call call = call_of(&cell, 5, 6);
    uint32_t whole[COUNT], part[COUNT], stream[4];
    coh_random_words(&call, 0, COUNT, whole);
    coh_reference_stream(&call, stream);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(whole[i], coh_reference_word(stream, i));
    for (int64_t first = 0; first < 200; first += 7)
        for (int64_t count = 0; count < 150; count += 13) {
            coh_random_words(&call, (uint64_t)first, count, part);
            assert_memory_equal(part, whole + first, (size_t)count * sizeof(*part));
        }
}

/* All bits of seed, step, operator and micro-batch matter: two streams of 256 words share a word at
 * the same place with probability 6e-8. */
static void every_part_of_the_key_makes_other_words(void **state)
{
    (void)state;
    enum { COUNT = 256, STREAMS = 9 };
    static const coh_random_cell cells[] = {
        { 1, 1 }, { 1 | 1ull << 32, 1 }, { 1, 1 | 1ull << 32 }, { 2, 1 }, { 1, 2 }
    };
    const coh_call calls[STREAMS] = { call_of(&cells[0], 1, 1), call_of(&cells[1], 1, 1),
                                      call_of(&cells[2], 1, 1), call_of(&cells[3], 1, 1),
                                      call_of(&cells[4], 1, 1), call_of(&cells[0], 2, 1),
                                      call_of(&cells[0], 1, 2), call_of(&cells[0], 2, 2),
                                      call_of(&cells[0], 0, 1) };
    uint32_t words[STREAMS][COUNT];
    for (int s = 0; s < STREAMS; s++)
        coh_random_words(&calls[s], 0, COUNT, words[s]);
    for (int s = 0; s < STREAMS; s++)
        for (int other = 0; other < s; other++)
            for (int i = 0; i < COUNT; i++)
                assert_int_not_equal(words[s][i], words[other][i]);
}

/* ---- masks ---- */

/* Elements are 1, so a kept element is 1 / (1 - p). The numbers of dropped elements, and of
 * neighbours that are both dropped, are those of independent draws within five standard
 * deviations. */
static void check_share(int64_t count, const int32_t *is_dropped, int64_t pitch, double p)
{
    int64_t dropped = 0, both = 0, pairs = 0;
    for (int64_t i = 0; i < count; i++) {
        dropped += is_dropped[i];
        both += i + pitch < count && is_dropped[i] && is_dropped[i + pitch];
        pairs += i + pitch < count;
    }
    const double n = (double)count, m = (double)pairs, q = p * p;
    assert_true(fabs((double)dropped - n * p) <= 5.0 * sqrt(n * p * (1.0 - p)));
    /* pairs that share an element are not independent: variance q(1-q) + 2 (p^3 - p^4) each */
    const double deviation = sqrt(m * (q * (1.0 - q) + 2.0 * (p * q - q * q)));
    assert_true(fabs((double)both - m * q) <= 5.0 * deviation);
}

static void the_share_of_zeros_is_the_probability(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    static const double shares[] = { 0.001, 0.1, 0.5, 0.9 };
    static const int64_t pitches[] = { 1, 2, 4, 16, 64, 1024 };
    int32_t *is_dropped = calloc(COUNT, sizeof(*is_dropped));
    assert_non_null(is_dropped);
    for (int s = 0; s < 4; s++) {
        const coh_dropout_attributes attributes = { shares[s] };
        const coh_shape shape[] = { F32(COUNT) };
        coh_case one;
        coh_case_create(&one, &coh_kind_dropout, &attributes, shape, 1);
        float *x = one.call.input[0].data;
        for (int64_t i = 0; i < COUNT; i++)
            x[i] = 1.0f;
        assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
        const float *y = one.call.output[0].data;
        for (int64_t i = 0; i < COUNT; i++) {
            is_dropped[i] = y[i] == 0.0f;
            assert_true(is_dropped[i] || y[i] == (float)(1.0 / (1.0 - shares[s])));
        }
        for (int pitch = 0; pitch < 6; pitch++)
            check_share(COUNT, is_dropped, pitches[pitch], shares[s]);
        coh_case_destroy(&one);
    }
    free(is_dropped);
}

/* Equal scores, so that the weights of query i are 1 / (i + 1), and values that identify their key:
 * y shows which weights were dropped. */
static void attention_drops_its_share_of_pairs(void **state)
{
    (void)state;
    enum { T = 512, H = 4 };
    static int32_t is_dropped[H * T * (T + 1) / 2];
    const double p = 0.3;
    const coh_attention_dropout_attributes attributes = { { H }, p };
    const coh_shape shape[] = { F32(1, T, 3 * H * T) };
    coh_case one;
    coh_case_create(&one, &coh_kind_attention_dropout, &attributes, shape, 1);
    float *qkv = one.call.input[0].data;
    memset(qkv, 0, (size_t)T * 3 * H * T * sizeof(float));
    for (int64_t j = 0; j < T; j++)
        for (int64_t h = 0; h < H; h++)
            qkv[(j * 3 + 2) * H * T + h * T + j] = 1.0f;
    assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
    const float *y = one.call.output[0].data;
    int64_t count = 0;
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = 0; j <= i; j++) {
                const float weight = y[(i * H + h) * T + j];
                const double kept = 1.0 / ((double)(i + 1) * (1.0 - p));
                is_dropped[count++] = weight == 0.0f;
                assert_true(weight == 0.0f || fabs(weight - kept) <= 1e-5 * kept);
            }
    check_share(count, is_dropped, 1, p);
    coh_case_destroy(&one);
}

/* ---- pieces and passes ---- */

static void view_piece(coh_view *view, int64_t begin, int64_t end)
{
    view->data =
        (char *)view->data + (size_t)(begin * view->stride[0]) * coh_dtype_bytes(view->shape.dtype);
    view->shape.dim[0] = end - begin;
    view->origin[0] = begin;
}

/* Sequence by sequence, with rows whose length is no multiple of a group of words. */
static void a_piece_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    const coh_dropout_attributes dropout = { 0.4 };
    const coh_attention_dropout_attributes attention = { { 3 }, 0.4 };
    const coh_shape shapes[][2] = { { F32(4, 7, 15), F32(4, 7, 15) }, { F32(4, 37, 45) } };
    for (int i = 0; i < 3; i++) {
        const coh_op_kind *kinds[] = { &coh_kind_dropout, &coh_kind_dropout_residual,
                                       &coh_kind_attention_dropout };
        coh_case whole;
        coh_case_create(&whole, kinds[i], i < 2 ? (const void *)&dropout : &attention,
                        shapes[i == 2], 9);
        assert_int_equal(coh_case_forward(&whole, NULL), COH_OK);
        coh_view *y = &whole.call.output[0];
        const size_t bytes = (size_t)coh_shape_elements(&y->shape) * sizeof(float);
        float *expected = malloc(bytes);
        assert_non_null(expected);
        memcpy(expected, y->data, bytes);
        memset(y->data, 0xff, bytes);
        for (int64_t b = 0; b < 4; b++) {
            coh_call call = whole.call;
            for (int port = 0; port < kinds[i]->input_count; port++)
                view_piece(&call.input[port], b, b + 1);
            view_piece(&call.output[0], b, b + 1);
            assert_int_equal(kinds[i]->devices[COH_DEVICE_HOST].forward(&call), COH_OK);
        }
        assert_memory_equal(expected, y->data, bytes);
        free(expected);
        coh_case_destroy(&whole);
    }
}

/* Without a cell, as in evaluation, a kind has the bits of the plain kind. */
static void a_call_that_draws_nothing_drops_nothing(void **state)
{
    (void)state;
    const coh_dropout_attributes dropout = { 0.4 };
    const coh_attention_dropout_attributes dropped = { { 3 }, 0.4 };
    const coh_shape x[] = { F32(4, 7, 45) };
    coh_case one, plain;
    coh_case_create(&one, &coh_kind_dropout, &dropout, x, 9);
    one.call.random_cell = NULL;
    assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
    assert_memory_equal(one.call.output[0].data, one.call.input[0].data, 4 * 7 * 45 * 4);
    coh_case_destroy(&one);
    coh_case_create(&one, &coh_kind_attention_dropout, &dropped, x, 9);
    coh_case_create(&plain, &coh_kind_attention, &dropped.attention, x, 9);
    one.call.random_cell = NULL;
    coh_case *both[] = { &one, &plain };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(coh_case_forward(both[i], NULL), COH_OK);
        assert_int_equal(coh_case_backward(both[i], NULL), COH_OK);
    }
    assert_memory_equal(one.call.output[0].data, plain.call.output[0].data, 4 * 7 * 15 * 4);
    assert_memory_equal(one.call.input_grad[0].data, plain.call.input_grad[0].data, 4 * 7 * 45 * 4);
    coh_case_destroy(&one);
    coh_case_destroy(&plain);
}

/* d/dx of sum(dy * y), with y from the kernels: linear in each element, so differences are exact
 * except for rounding; in attention the error is of second order. */
static void gradients_are_the_differences_of_what_was_dropped(void **state)
{
    (void)state;
    const coh_attention_dropout_attributes attributes = { { 2 }, 0.3 };
    const coh_shape shape[] = { F32(2, 19, 3 * 2 * 4) };
    coh_case one;
    coh_case_create(&one, &coh_kind_attention_dropout, &attributes, shape, 11);
    assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
    assert_int_equal(coh_case_backward(&one, NULL), COH_OK);
    float *x = one.call.input[0].data;
    const float *dx = one.call.input_grad[0].data, *y = one.call.output[0].data;
    const float *dy = one.call.output_grad[0].data;
    for (int64_t i = 0; i < 2 * 19 * 24; i += 5) {
        const float start = x[i], step = 0x1p-6f;
        double objective[2] = { 0 };
        for (int side = 0; side < 2; side++) {
            x[i] = side ? start + step : start - step;
            assert_int_equal(coh_case_forward(&one, NULL), COH_OK);
            for (int64_t k = 0; k < 2 * 19 * 8; k++)
                objective[side] += (double)dy[k] * (double)y[k];
        }
        x[i] = start;
        const double difference = (objective[1] - objective[0]) / (2.0 * (double)step);
        /* step^2 / 6 of a third derivative below 40, and 300 roundings of 2^-24 over the step */
        assert_true(fabs(difference - (double)dx[i]) <= 4e-3 * (1.0 + fabs(difference)));
    }
    coh_case_destroy(&one);
}

static void what_is_no_probability_is_refused(void **state)
{
    (void)state;
    static const double bad[] = { -0.1, 1.0, 1.5, NAN, INFINITY };
    const coh_shape x[] = { F32(2, 4, 6), F32(2, 4, 6) }, other[] = { F32(2, 4, 6), F32(2, 4, 5) };
    const coh_shape huge[] = { F32(1 << 20, 1 << 16, 3) };
    coh_op_facts facts = { 0 };
    for (int i = 0; i < 5; i++) {
        const coh_dropout_attributes dropout = { bad[i] };
        const coh_attention_dropout_attributes attention = { { 2 }, bad[i] };
        assert_int_equal(coh_kind_dropout.infer(&dropout, x, &facts), COH_ERR_SHAPE);
        assert_non_null(strstr(coh_last_error(), "from 0 to below 1"));
        assert_int_equal(coh_kind_dropout_residual.infer(&dropout, x, &facts), COH_ERR_SHAPE);
        assert_int_equal(coh_kind_attention_dropout.infer(&attention, x, &facts), COH_ERR_SHAPE);
    }
    const coh_dropout_attributes dropout = { 0.1 };
    const coh_attention_dropout_attributes attention = { { 1 }, 0.1 };
    assert_int_equal(coh_kind_dropout_residual.infer(&dropout, other, &facts), COH_ERR_SHAPE);
    assert_int_equal(coh_kind_attention.infer(&attention.attention, huge, &facts), COH_OK);
    assert_int_equal(coh_kind_attention_dropout.infer(&attention, huge, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "lower the micro-batch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_that_were_published),
        cmocka_unit_test(every_instruction_set_makes_the_same_words),
        cmocka_unit_test(words_are_a_function_of_their_number),
        cmocka_unit_test(every_part_of_the_key_makes_other_words),
        cmocka_unit_test(the_share_of_zeros_is_the_probability),
        cmocka_unit_test(attention_drops_its_share_of_pairs),
        cmocka_unit_test(a_piece_has_the_bits_of_the_whole),
        cmocka_unit_test(a_call_that_draws_nothing_drops_nothing),
        cmocka_unit_test(gradients_are_the_differences_of_what_was_dropped),
        cmocka_unit_test(what_is_no_probability_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
