/* Elementwise functions, dropout and sums over rows on CUDA compared with the host's: both element
 * types, tensors aligned to 16 bytes or not, lengths with and without a tail, in place and added to
 * existing values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/nf4.h"
#include "tests/cuda/twins.h"

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
static const int64_t counts[] = { 1, 7, 64, 1001, 9001 };

/* The arguments of most kernels here. */
typedef struct map {
    coh_dtype dtype;
    int64_t count;
    const void *x, *other;
    void *y;
    int adds;
} map;

static void run_gelu(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_activate(queue, COH_ACTIVATION_GELU, m->dtype, m->y, m->x, m->count);
}

static void run_gelu_backward(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_activate_backward(queue, COH_ACTIVATION_GELU, m->dtype, m->y, m->other, m->x,
                                 m->count, m->adds);
}

static void run_relu(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_activate(queue, COH_ACTIVATION_RELU, m->dtype, m->y, m->x, m->count);
}

static void run_relu_backward(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_activate_backward(queue, COH_ACTIVATION_RELU, m->dtype, m->y, m->other, m->x,
                                 m->count, m->adds);
}

static void run_scale(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_scale(queue, &(coh_scale){ .dtype = m->dtype,
                                          .count = m->count,
                                          .x = m->x,
                                          .y = m->y,
                                          .factor = 0.37f,
                                          .adds = m->adds });
}

static void run_pass(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_pass(queue, m->dtype, m->y, m->x, m->count, m->adds);
}

static void run_swiglu(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_swiglu(
        queue, &(coh_swiglu){
                   .dtype = m->dtype, .count = m->count, .gate = m->x, .up = m->other, .y = m->y });
}

static void run_geglu(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_swiglu(queue, &(coh_swiglu){ .dtype = m->dtype,
                                            .count = m->count,
                                            .gate = m->x,
                                            .up = m->other,
                                            .y = m->y,
                                            .gelu = 1 });
}

/* In place, of f32, in rows that are apart. */
static void run_soft_cap(void *queue, const void *call)
{
    const coh_soft_cap *c = call;
    coh_kernel_soft_cap(queue, c);
}

static void capped_rows_are_the_hosts(void **state)
{
    (void)state;
    for (int64_t columns = 21; columns <= 25; columns += 4) { /* some of a row; whole rows */
        const coh_soft_cap call = { .rows = 3,
                                    .columns = columns,
                                    .stride = 25,
                                    .x = coh_twins_random(COH_DTYPE_F32, 75, 0, 1),
                                    .cap = 1.5f };
        coh_twins_check(&(coh_twins_case){ .name = "soft cap",
                                           .run = run_soft_cap,
                                           .call = &call,
                                           .outputs = { { COH_DTYPE_F32, 75, call.x } },
                                           .units = 2,
                                           .absolute = 0x1p-20 });
        coh_twins_release();
    }
}

/* `f32_units`: error in units of the last place for f32, from the exponential and the quotient; for
 * bf16 one unit, if an element rounds the other way. */
static void check_maps(const char *name, void (*run)(void *queue, const void *call), int may_add,
                       double f32_units)
{
    for (int d = 0; d < 2; d++)
        for (int c = 0; c < 5; c++)
            for (int shift = 0; shift < 2; shift++)
                for (int adds = 0; adds <= may_add; adds++) {
                    const coh_dtype dtype = dtypes[d];
                    const int64_t count = counts[c];
                    map call = { .dtype = dtype,
                                 .count = count,
                                 .x = coh_twins_random(dtype, count, shift, 1),
                                 .other = coh_twins_random(dtype, count, 0, 2),
                                 .adds = adds };
                    call.y = adds ? coh_twins_random(dtype, count, 2 * shift, 3)
                                  : coh_twins_poisoned(dtype, count, 2 * shift);
                    coh_twins_check(&(coh_twins_case){
                        .name = name,
                        .run = run,
                        .call = &call,
                        .outputs = { { dtype, count, call.y } },
                        .units = dtype == COH_DTYPE_BF16 ? 2 : f32_units,
                        .absolute = f32_units > 0 ? 0x1p-20 : 0,
                    });
                    coh_twins_release();
                }
}

static void functions_of_an_element_are_the_hosts(void **state)
{
    (void)state;
    check_maps("gelu", run_gelu, 0, 16);
    check_maps("gelu backward", run_gelu_backward, 1, 16);
    check_maps("swiglu", run_swiglu, 0, 16);
    check_maps("geglu", run_geglu, 0, 16);
}

static void what_rounds_at_most_once_has_the_hosts_bits(void **state)
{
    (void)state;
    check_maps("relu", run_relu, 0, 0);
    check_maps("relu backward", run_relu_backward, 1, 0);
    check_maps("pass", run_pass, 1, 0);
}

static void scaled_tensors_are_the_hosts(void **state)
{
    (void)state;
    check_maps("scale", run_scale, 1, 4);
}

static void functions_work_in_place(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        map call = { .dtype = dtypes[d], .count = 3001 };
        call.y = coh_twins_random(dtypes[d], 3001, 0, 1);
        call.x = call.y;
        call.other = coh_twins_random(dtypes[d], 3001, 0, 2);
        coh_twins_case one = { .name = "gelu in place",
                               .run = run_gelu,
                               .call = &call,
                               .outputs = { { dtypes[d], 3001, call.y } },
                               .units = 16,
                               .absolute = 0x1p-20 };
        coh_twins_check(&one);
        one.name = "swiglu in its gate's place";
        one.run = run_swiglu;
        coh_twins_check(&one);
        call.other = call.y;
        call.x = coh_twins_random(dtypes[d], 3001, 0, 2);
        one.name = "gelu backward in dy's place";
        one.run = run_gelu_backward;
        coh_twins_check(&one);
        coh_twins_release();
    }
}

static void nan_and_infinity_stay(void **state)
{
    (void)state;
    const float special[] = { NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 100.0f, -100.0f, 1e38f };
    map call = { .dtype = COH_DTYPE_F32, .count = 8 };
    call.x = coh_twins_copy(special, sizeof(special));
    call.other = coh_twins_random(COH_DTYPE_F32, 8, 0, 1);
    call.y = coh_twins_poisoned(COH_DTYPE_F32, 8, 0);
    coh_twins_case one = { .call = &call,
                           .outputs = { { COH_DTYPE_F32, 8, call.y } },
                           .units = 16,
                           .absolute = 0x1p-100 }; /* e^-87 is accurate to 87 roundings */
    void (*const runs[])(void *,
                         const void *) = { run_gelu,          run_gelu_backward, run_relu,
                                           run_relu_backward, run_swiglu,        run_geglu };
    for (int r = 0; r < 6; r++) {
        char name[64];
        snprintf(name, sizeof(name), "special numbers, function %d", r);
        one.name = name;
        one.run = runs[r];
        coh_twins_check(&one);
    }
    coh_twins_release();
}

/* ---- swiglu's gradients ---- */

static void run_swiglu_backward(void *queue, const void *call)
{
    coh_kernel_swiglu_backward(queue, call);
}

static void gradients_of_swiglu_are_the_hosts(void **state)
{
    (void)state;
    for (int wanted = 1; wanted < 32; wanted += wanted == 15 ? 2 : 1)
        for (int d = 0; d < 2; d++) {
            const coh_dtype dtype = dtypes[d];
            coh_swiglu call = { .dtype = dtype,
                                .gelu = wanted >= 16,
                                .count = 1003,
                                .gate = coh_twins_random(dtype, 1003, 0, 1),
                                .up = coh_twins_random(dtype, 1003, 0, 2),
                                .dy = coh_twins_random(dtype, 1003, 0, 3),
                                .dgate_adds = wanted & 4,
                                .dup_adds = wanted & 8 };
            coh_twins_case one = { .name = "swiglu backward",
                                   .run = run_swiglu_backward,
                                   .call = &call,
                                   .units = dtype == COH_DTYPE_BF16 ? 2 : 16,
                                   .absolute = 0x1p-20 };
            int outputs = 0;
            if (wanted & 1)
                one.outputs[outputs++].data = call.dgate = coh_twins_random(dtype, 1003, 0, 4);
            if (wanted & 2)
                one.outputs[outputs++].data = call.dup = coh_twins_random(dtype, 1003, 0, 5);
            for (int o = 0; o < outputs; o++) {
                one.outputs[o].dtype = dtype;
                one.outputs[o].count = 1003;
            }
            coh_twins_check(&one);
            coh_twins_release();
        }
}

/* ---- f32 sums, rounded ---- */

static void run_round(void *queue, const void *call)
{
    const map *m = call;
    coh_kernel_round(queue, m->dtype, m->y, m->x, m->count, m->adds);
}

static void sums_are_rounded_as_the_host_does(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int c = 0; c < 5; c++)
            for (int adds = 0; adds < 2; adds++)
                for (int shift = 0; shift < 2; shift++) {
                    map call = { .dtype = dtypes[d], .count = counts[c], .adds = adds };
                    call.x = coh_twins_random(COH_DTYPE_F32, call.count, shift, 1);
                    call.y = coh_twins_random(dtypes[d], call.count, 0, 2);
                    coh_twins_check(
                        &(coh_twins_case){ .name = "round",
                                           .run = run_round,
                                           .call = &call,
                                           .outputs = { { dtypes[d], call.count, call.y } } });
                    coh_twins_release();
                }
}

/* ---- dropout ---- */

static void run_dropout(void *queue, const void *call)
{
    coh_kernel_dropout(queue, call);
}

static const coh_random_cell cell = { .seed = 0x123456789abcdefu, .step = 77 };

/* Returns the word of number 0 (kernels/random.h). */
static uint32_t first_word(int32_t operator_index, int32_t microbatch)
{
    const coh_random stream = coh_random_of(&cell, operator_index, microbatch);
    const uint32_t counter[4] = { 0, 0, stream.high[0], stream.high[1] };
    uint32_t block[4];
    coh_philox(block, counter, stream.key);
    return block[0];
}

/* A word equal to the threshold keeps its element. */
static void dropout_has_the_hosts_words_and_bits(void **state)
{
    (void)state;
    static const uint64_t firsts[] = { 0, 8, 61, ((uint64_t)1 << 36) + 40 };
    for (int d = 0; d < 2; d++)
        for (int f = 0; f < 4; f++)
            for (int how = 0; how < 6; how++) {
                const coh_dtype dtype = dtypes[d];
                const int64_t count = how == 5 ? 3 : 1501;
                coh_dropout call = {
                    .dtype = dtype,
                    .count = count,
                    .first = firsts[f],
                    .drop = { .cell = coh_twins_copy(&cell, sizeof(cell)),
                              .operator_index = 5,
                              .microbatch = 2,
                              .threshold = how == 4   ? 0
                                           : how == 5 ? first_word(5, 2)
                                                      : 0x40000000u,
                              .scale = how == 4 ? 1.0f : 4.0f / 3.0f },
                    .x = coh_twins_random(dtype, count, 0, 1),
                    .residual = how == 1 || how == 4 ? coh_twins_random(dtype, count, 0, 2) : NULL,
                    .y = coh_twins_random(dtype, count, how == 3 ? 1 : 0, 3),
                    .adds = how == 2,
                };
                coh_twins_check(&(coh_twins_case){ .name = "dropout",
                                                   .run = run_dropout,
                                                   .call = &call,
                                                   .outputs = { { dtype, count, call.y } } });
                coh_twins_release();
            }
}

/* ---- sums over rows ---- */

static void run_column_sum(void *queue, const void *call)
{
    coh_kernel_column_sum(queue, call);
}

/* Bounds the error for `rows` normal numbers: (rows / 64 + 64) 2^-24 times the sum of their
 * magnitudes. */
static double sum_error(int64_t rows)
{
    return (double)rows * (double)(rows / 64 + 64) * 0x1p-24;
}

static void column_sums_are_the_hosts(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1, 1 },   { 3, 40 },   { 700, 16 }, { 259, 37 },
                                         { 64, 96 }, { 256, 24 }, { 523, 280 } };
    for (int d = 0; d < 3; d++) /* the last: f32 sums of bf16 */
        for (int s = 0; s < 7; s++)
            for (int how = 0; how < 4; how++) {
                const int64_t rows = shapes[s][0], columns = shapes[s][1];
                const int64_t partials = coh_kernel_column_sum_partials(rows, columns);
                const coh_dtype dtype = dtypes[d > 0], sums_dtype = dtypes[d % 2];
                coh_column_sum call = {
                    .dtype = dtype,
                    .sums_dtype = sums_dtype,
                    .sums = coh_twins_random(sums_dtype, columns, 0, 1),
                    .x = coh_twins_random(dtype, rows * columns, s == 3, 2),
                    .rows = rows,
                    .columns = columns,
                    .adds = how & 1,
                    .partials = (how & 2) != 0 && partials > 0
                                    ? coh_twins_poisoned(COH_DTYPE_F32, partials, 0)
                                    : NULL,
                };
                coh_twins_check(
                    &(coh_twins_case){ .name = "column sum",
                                       .run = run_column_sum,
                                       .call = &call,
                                       .outputs = { { sums_dtype, columns, call.sums } },
                                       .units = 2,
                                       .absolute = sum_error(rows) });
                coh_twins_release();
            }
}

static void run_activation_gradient(void *queue, const void *call)
{
    coh_kernel_activation_gradient(queue, call);
}

static void gradients_before_an_activation_are_the_hosts(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1, 8 }, { 33, 264 }, { 97, 65 }, { 70, 136 } };
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 4; s++)
            for (int how = 0; how < 6; how++) {
                const coh_dtype dtype = dtypes[d];
                const int64_t N = shapes[s][0], O = shapes[s][1];
                coh_activation_gradient call = {
                    .activation = how & 1 ? COH_ACTIVATION_RELU : COH_ACTIVATION_GELU,
                    .dtype = dtype,
                    .N = N,
                    .O = O,
                    .dy = coh_twins_random(dtype, N * O, 0, 1),
                    .of = coh_twins_random(dtype, N * O, 0, 2),
                    .dh = coh_twins_poisoned(dtype, N * O, 0),
                    .sums = how < 4 ? coh_twins_random(dtype, O, 0, 3) : NULL,
                    .sums_adds = how & 2,
                    .partials =
                        coh_twins_poisoned(COH_DTYPE_F32, coh_kernel_activation_partials(N, O), 0),
                };
                coh_twins_check(&(coh_twins_case){
                    .name = "activation gradient",
                    .run = run_activation_gradient,
                    .call = &call,
                    .outputs = { { dtype, N * O, call.dh }, { dtype, O, call.sums } },
                    .units = dtype == COH_DTYPE_BF16 ? 2 : 16,
                    .absolute = sum_error(N),
                });
                coh_twins_release();
            }
}

static void run_nf4(void *queue, const void *call)
{
    coh_kernel_nf4(queue, call);
}

/* Codes of any bytes, scales of any size; more blocks than a grid has threads for at once. */
static void weights_in_4_bits_have_the_hosts_bits(void **state)
{
    (void)state;
    static const int64_t blocks[] = { 1, 2, 37, 5000 };
    for (int d = 0; d < 2; d++)
        for (int b = 0; b < 4; b++) {
            const int64_t count = blocks[b] * COH_NF4_BLOCK;
            const size_t bytes = (size_t)coh_dtype_array_bytes(COH_DTYPE_NF4, (uint64_t)count);
            unsigned char *packed = coh_twins_zeros(bytes);
            for (size_t i = 0; i < bytes; i++)
                packed[i] = (unsigned char)(i * 167 + i / 256);
            for (int64_t i = 0; i < blocks[b]; i++) {
                const uint16_t scale = (uint16_t)(0x2000 + i * 97 % 0x5f00); /* finite, above 0 */
                memcpy(packed + i * COH_NF4_BLOCK_BYTES, &scale, sizeof(scale));
            }
            const coh_nf4_weight call = { .dtype = dtypes[d],
                                          .count = count,
                                          .packed = packed,
                                          .y = coh_twins_poisoned(dtypes[d], count, 0) };
            coh_twins_check(&(coh_twins_case){ .name = "nf4",
                                               .run = run_nf4,
                                               .call = &call,
                                               .outputs = { { dtypes[d], count, call.y } } });
            coh_twins_release();
        }
}

int coh_twins_elementwise(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_an_element_are_the_hosts),
        cmocka_unit_test(weights_in_4_bits_have_the_hosts_bits),
        cmocka_unit_test(what_rounds_at_most_once_has_the_hosts_bits),
        cmocka_unit_test(scaled_tensors_are_the_hosts),
        cmocka_unit_test(capped_rows_are_the_hosts),
        cmocka_unit_test(functions_work_in_place),
        cmocka_unit_test(nan_and_infinity_stay),
        cmocka_unit_test(gradients_of_swiglu_are_the_hosts),
        cmocka_unit_test(sums_are_rounded_as_the_host_does),
        cmocka_unit_test(dropout_has_the_hosts_words_and_bits),
        cmocka_unit_test(column_sums_are_the_hosts),
        cmocka_unit_test(gradients_before_an_activation_are_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
