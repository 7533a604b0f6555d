/* Copies of blocks, means, softmax and the losses over given logits and numbers on CUDA compared
 * with the host's, where the shapes of test_kinds.c do not reach: targets of another dtype, rows
 * that begin between boundaries of 16 bytes, in place, infinities and NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/plain.h"
#include "tests/cuda/twins.h"

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
static const float loss_factor = 1.5f;

/* ---- blocks ---- */

static void run_blocks(void *queue, const void *call)
{
    const coh_blocks *b = call;
    (b->part_out != NULL ? coh_kernel_take_blocks : coh_kernel_put_blocks)(queue, b);
}

/* Also the bits of a NaN: nothing is computed. */
static void copied_blocks_have_the_hosts_bits(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int shift = 0; shift < 2; shift++)
            for (int how = 0; how < 5; how++) { /* take, put; both adding; put with zeros */
                const coh_dtype dtype = dtypes[d];
                const int64_t whole = 7 * 48, part = 7 * 16;
                const int takes = how < 4 && how % 2 == 0, adds = how == 2 || how == 3;
                coh_blocks call = {
                    .dtype = dtype,
                    .outer = 7,
                    .count = 16,
                    .wide = 48,
                    .begin = 24 + shift,
                    .adds = adds,
                    .clears = how == 4,
                };
                void *from = coh_twins_random(dtype, takes ? whole : part, shift, 1);
                void *to = coh_twins_random(dtype, takes ? part : whole, 0, 2);
                if (!adds)
                    memset((char *)from + 10 * coh_dtype_bytes(dtype), 0xff,
                           coh_dtype_bytes(dtype));
                call.whole_in = takes ? from : NULL;
                call.part_out = takes ? to : NULL;
                call.part_in = takes ? NULL : from;
                call.whole_out = takes ? NULL : to;
                coh_twins_check(
                    &(coh_twins_case){ .name = "blocks",
                                       .run = run_blocks,
                                       .call = &call,
                                       .outputs = { { dtype, takes ? part : whole, to } } });
                coh_twins_release();
            }
}

/* ---- means ---- */

static void run_mean(void *queue, const void *call)
{
    coh_kernel_mean(queue, call);
}

static void run_mean_backward(void *queue, const void *call)
{
    coh_kernel_mean_backward(queue, call);
}

/* Sums are double on both sides, so their order shows rarely; backward rounds once. */
static void means_are_the_hosts(void **state)
{
    static const int64_t shapes[][3] = { { 5, 96, 1 }, { 3, 40, 24 }, { 2, 7, 13 }, { 1, 1, 1 } };
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 4; s++)
            for (int how = 0; how < 4; how++) {
                const int64_t outer = shapes[s][0], count = shapes[s][1], inner = shapes[s][2];
                const int64_t whole = outer * count * inner, part = outer * inner, shift = how / 2;
                coh_mean call = { .dtype = dtypes[d],
                                  .outer = outer,
                                  .count = count,
                                  .inner = inner,
                                  .from = coh_twins_random(dtypes[d], whole, shift, 1),
                                  .to = coh_twins_poisoned(dtypes[d], part, 0) };
                coh_twins_case one = { .name = "mean",
                                       .run = run_mean,
                                       .call = &call,
                                       .outputs = { { dtypes[d], part, call.to } },
                                       .units = 2 };
                coh_twins_check(&one);
                call.to = coh_twins_random(dtypes[d], whole, shift, 2);
                call.adds = how % 2;
                one = (coh_twins_case){ .name = "mean backward",
                                        .run = run_mean_backward,
                                        .call = &call,
                                        .outputs = { { dtypes[d], whole, call.to } },
                                        .units = call.adds ? 2 : 0 };
                coh_twins_check(&one);
                coh_twins_release();
            }
}

/* ---- softmax ---- */

static void run_softmax(void *queue, const void *call)
{
    coh_kernel_softmax(queue, call);
}

static void run_softmax_backward(void *queue, const void *call)
{
    coh_kernel_softmax_backward(queue, call);
}

enum { ROWS = 3, COLUMNS = 2048 };

static coh_softmax softmax_of(coh_dtype dtype, void *x, void *to)
{
    return (coh_softmax){ .dtype = dtype, .rows = ROWS, .columns = COLUMNS, .from = x, .to = to };
}

static void softmax_works_in_place_both_ways(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        void *x = coh_twins_random(dtypes[d], ROWS * COLUMNS, 0, 1);
        coh_softmax call = softmax_of(dtypes[d], x, x);
        coh_twins_case one = { .name = "softmax in place",
                               .run = run_softmax,
                               .call = &call,
                               .outputs = { { dtypes[d], ROWS * COLUMNS, x } },
                               .units = dtypes[d] == COH_DTYPE_BF16 ? 2 : 32,
                               .absolute = 0x1p-24 };
        coh_twins_check(&one);
        call.y = coh_twins_random(dtypes[d], ROWS * COLUMNS, 0, 2);
        one.name = "its gradient in dy's place";
        one.run = run_softmax_backward;
        one.units = dtypes[d] == COH_DTYPE_BF16 ? 2 : 0;
        one.absolute = 0x1p-24 * COLUMNS; /* the sum of products of normal numbers */
        coh_twins_check(&one);
        coh_twins_release();
    }
}

/* A row that is not aligned to 16 bytes has the bits of one that is: sums are of the same packs. */
static void alignment_changes_no_bit(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const size_t bytes = ROWS * COLUMNS * coh_dtype_bytes(dtypes[d]);
        void *y[2];
        for (int shift = 0; shift < 2; shift++) {
            void *x = coh_twins_random(dtypes[d], ROWS * COLUMNS, shift, 1);
            y[shift] = coh_twins_poisoned(dtypes[d], ROWS * COLUMNS, 0);
            const coh_softmax call = softmax_of(dtypes[d], x, y[shift]);
            coh_twins_enqueue(run_softmax, &call, 0, NULL);
        }
        assert_memory_equal(y[0], y[1], bytes);
        coh_twins_release();
    }
}

/* ---- cross-entropy ---- */

static void run_entropy(void *queue, const void *call)
{
    coh_kernel_cross_entropy(queue, call);
}

/* Masked classes have -infinity; a row with NaN has a loss of NaN; a row without target has 0. */
static void losses_of_masked_and_spoilt_rows_are_the_hosts(void **state)
{
    enum { CLASSES = 70 };
    (void)state;
    for (int d = 0; d < 2; d++) {
        const size_t element = coh_dtype_bytes(dtypes[d]);
        static const int32_t targets[4] = { 69, 0, -1, 3 };
        static const uint32_t bits[] = { 0xff800000u, 0x7fc00000u }; /* -infinity, NaN */
        char *logits = coh_twins_random(dtypes[d], 4 * CLASSES, 0, 1);
        for (int c = 1; c < CLASSES - 2; c++) /* bf16: the upper half */
            memcpy(logits + (CLASSES * 0 + c) * element, (const char *)&bits[0] + 4 - element,
                   element);
        memcpy(logits + (CLASSES + 5) * element, (const char *)&bits[1] + 4 - element, element);
        const coh_cross_entropy call = {
            .dtype = dtypes[d],
            .rows = 4,
            .columns = CLASSES,
            .logits = logits,
            .targets = coh_twins_copy(targets, sizeof(targets)),
            .max = coh_twins_poisoned(COH_DTYPE_F32, 4, 0),
            .sum = coh_twins_poisoned(COH_DTYPE_F32, 4, 0),
            .each = coh_twins_poisoned(COH_DTYPE_F32, 4, 0),
        };
        coh_twins_check(&(coh_twins_case){ .name = "losses of rows",
                                           .run = run_entropy,
                                           .call = &call,
                                           .outputs = { { COH_DTYPE_F32, 4, call.each },
                                                        { COH_DTYPE_F32, 4, call.max },
                                                        { COH_DTYPE_F32, 4, call.sum } },
                                           .units = 64 });
        coh_twins_enqueue(run_entropy, &call, 0, NULL);
        assert_true(isfinite(call.each[0]) && isnan(call.each[1]));
        assert_true(call.each[2] == 0.0f);
        coh_twins_release();
    }
}

/* ---- mean squared error ---- */

static void run_squares(void *queue, const void *call)
{
    coh_kernel_squares(queue, call);
    coh_kernel_squares_backward(queue, call);
}

/* f32, bf16, and bf16 with a target in f32. */
static void squared_errors_are_the_hosts(void **state)
{
    static const int64_t counts[] = { 1, 4096, 16384 + 4099 };
    (void)state;
    for (int d = 0; d < 3; d++)
        for (int c = 0; c < 3; c++)
            for (int how = 0; how < 8; how++) {
                const coh_dtype dtype = dtypes[d > 0], target_dtype = dtypes[d == 1];
                const int64_t count = counts[c];
                const coh_squares call = {
                    .dtype = dtype,
                    .target_dtype = target_dtype,
                    .count = count,
                    .x = coh_twins_random(dtype, count, how & 1, 1),
                    .target = coh_twins_random(target_dtype, count, 0, 2),
                    .partial =
                        coh_twins_zeros((size_t)coh_kernel_grain_partials(count) * sizeof(double)),
                    .loss = coh_twins_poisoned(COH_DTYPE_F32, 1, 0),
                    .to = coh_twins_random(dtype, count, 0, 3),
                    .to_target = how & 2 ? coh_twins_random(target_dtype, count, 0, 4) : NULL,
                    .loss_share = 0.25f,
                    .loss_factor =
                        how & 4 ? coh_twins_copy(&loss_factor, sizeof(loss_factor)) : NULL,
                    .adds = how & 4,
                    .target_adds = how & 4,
                };
                coh_twins_check(
                    &(coh_twins_case){ .name = "mean squared error",
                                       .run = run_squares,
                                       .call = &call,
                                       .outputs = { { COH_DTYPE_F32, 1, call.loss },
                                                    { dtype, count, call.to },
                                                    { target_dtype, count, call.to_target } },
                                       .units = 8,
                                       .absolute = 0x1p-22 });
                coh_twins_release();
            }
}

int coh_twins_losses(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_blocks_have_the_hosts_bits),
        cmocka_unit_test(means_are_the_hosts),
        cmocka_unit_test(softmax_works_in_place_both_ways),
        cmocka_unit_test(alignment_changes_no_bit),
        cmocka_unit_test(losses_of_masked_and_spoilt_rows_are_the_hosts),
        cmocka_unit_test(squared_errors_are_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
