/* Fold shapes: their texts, and their division between ranks, which must keep each sum's
 * parentheses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/fold_shape.h"

static void a_text_is_read_and_written_back(void **state)
{
    (void)state;
    static const struct {
        const char *read, *written;
        int32_t replicas;
    } texts[] = { { "1", "1", 1 },       { "8", "8", 8 },     { "2x2x2", "2x2x2", 8 },
                  { "4x2", "4x2", 8 },   { "1x1x1", "1", 1 }, { "65536", "65536", 65536 },
                  { "3x1x5", "3x5", 15 } };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_fold_shape shape;
        char text[COH_FOLD_TEXT_BYTES];
        assert_int_equal(coh_fold_shape_parse(texts[i].read, &shape), COH_OK);
        assert_int_equal(coh_fold_shape_write(&shape, text), COH_OK);
        assert_string_equal(text, texts[i].written);
        assert_int_equal(coh_fold_shape_replicas(&shape), texts[i].replicas);
    }
}

static void any_other_text_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "",        "x",          "2x",  "x2",      "0",
                                         "2x0",     "-2",         "2X2", "2 x2",    "2x2 ",
                                         "2x2x2x2", "65537",      "2.0", "2x32769", "a",
                                         "2x2,2",   "4294967297", " 2",  "2x 2x2" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_fold_shape shape;
        if (coh_fold_shape_parse(texts[i], &shape) != COH_ERR_ARGUMENT)
            fail_msg("'%s' was read", texts[i]);
    }
}

typedef struct sum {
    char text[256];
    int32_t next; /* contribution */
} sum;

static void append(sum *to, const char *text)
{
    assert_true(strlen(to->text) + strlen(text) < sizeof(to->text));
    (void)strcat(to->text, text);
}

/* Appends the sum that the first `factor_count` factors describe, with all its parentheses. A leaf
 * is a sum of the shape `leaf`, or (NULL) the next contribution. */
static void append_sum(sum *to, const coh_fold_shape *shape, int factor_count,
                       const coh_fold_shape *leaf)
{
    if (factor_count == 0 && leaf != NULL) {
        append_sum(to, leaf, coh_fold_factor_count(leaf), NULL);
        return;
    }
    if (factor_count == 0) {
        char number[16];
        (void)snprintf(number, sizeof(number), "%d", to->next++);
        append(to, number);
        return;
    }
    const int32_t count = shape->factors[factor_count - 1];
    for (int32_t i = 1; i < count; i++)
        append(to, "(");
    for (int32_t i = 0; i < count; i++) {
        append(to, i > 0 ? "+" : "");
        append_sum(to, shape, factor_count - 1, leaf);
        append(to, i > 0 ? ")" : "");
    }
}

static void a_divided_fold_keeps_each_parenthesis(void **state)
{
    (void)state;
    static const char *const texts[] = { "2x2x2", "4x2", "2x4", "8", "3x2", "2x3x2" };
    int divided = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_fold_shape shape, inner, outer;
        sum whole = { 0 }, parts = { 0 };
        assert_int_equal(coh_fold_shape_parse(texts[i], &shape), COH_OK);
        const int32_t count = coh_fold_replicas(&shape);
        append_sum(&whole, &shape, coh_fold_factor_count(&shape), NULL);
        for (int32_t ranks = -1; ranks <= count + 1; ranks++) {
            int32_t product = 1;
            int is_whole = ranks == 1;
            for (int f = coh_fold_factor_count(&shape) - 1; f >= 0; f--) {
                product *= shape.factors[f];
                is_whole |= ranks == product;
            }
            const coh_status status = coh_fold_shape_divide(&shape, ranks, &inner, &outer);
            assert_int_equal(status, is_whole ? COH_OK : COH_ERR_ARGUMENT);
            if (!is_whole)
                continue;
            assert_int_equal(coh_fold_replicas(&outer), ranks);
            assert_int_equal(coh_fold_replicas(&inner) * ranks, count);
            parts = (sum){ 0 };
            append_sum(&parts, &outer, coh_fold_factor_count(&outer), &inner);
            assert_string_equal(parts.text, whole.text);
            divided++;
        }
    }
    assert_true(divided > 6);
}

static void a_refusal_names_the_ranks_that_would_do(void **state)
{
    (void)state;
    coh_fold_shape shape, inner, outer;
    assert_int_equal(coh_fold_shape_parse("2x4", &shape), COH_OK);
    assert_int_equal(coh_fold_shape_divide(&shape, 2, &inner, &outer), COH_ERR_ARGUMENT);
    assert_string_equal(coh_last_error(),
                        "replicas 2x4 cannot be divided between 2 ranks in whole factors: "
                        "use 8 or 4 or 1 ranks, or another shape");
    assert_int_equal(coh_fold_shape_parse("1", &shape), COH_OK);
    assert_int_equal(coh_fold_shape_divide(&shape, 4, &inner, &outer), COH_ERR_ARGUMENT);
    assert_string_equal(coh_last_error(),
                        "4 ranks share replicas of the batch, and there is one: give replicas 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_read_and_written_back),
        cmocka_unit_test(any_other_text_is_refused),
        cmocka_unit_test(a_divided_fold_keeps_each_parenthesis),
        cmocka_unit_test(a_refusal_names_the_ranks_that_would_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
