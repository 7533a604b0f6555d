/* Stochastic rounding and blocks of bytes on CUDA compared with the host's: the same bits of every
 * element, including NaNs, for pieces that begin and end within groups, aligned and misaligned
 * tensors, and more elements than a grid has threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/quantise.h"
#include "tests/cuda/twins.h"

enum { BLOCK = COH_QUANTISE_BLOCK };

static const coh_random_cell cell = { .seed = 0x123456789abcdefu, .step = 77 };

static coh_rounding rounding_of(int is_random)
{
    const coh_rounding rounding = { .tensor = 5, .use = 2 };
    if (!is_random)
        return rounding;
    return (coh_rounding){ coh_twins_copy(&cell, sizeof(cell)), rounding.tensor, rounding.use };
}

/* Makes numbers: `how` 0: any bit patterns; 1: normal numbers and a few NaNs or infinities; 2:
 * subnormal numbers. */
static float *numbers(int64_t count, int64_t shift, int how)
{
    float *x = coh_twins_random(COH_DTYPE_F32, count, shift, 1);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t drawn = coh_rng_u64(1, 2, (uint64_t)i);
        if (how == 0)
            x[i] = coh_f32_of_bits((uint32_t)drawn);
        else if (how == 2)
            x[i] *= 0x1p-140f;
        else if (drawn % 700 == 0)
            x[i] = drawn & 1024 ? NAN : -INFINITY;
        else if (i / BLOCK == 2)
            x[i] = 0.0f;
    }
    return x;
}

/* CUDA must write the host's bytes. `outputs`: ends with one without data. */
typedef struct bytes_of {
    void *data;
    size_t bytes;
} bytes_of;

static void check_bytes(void (*run)(void *queue, const void *call), const void *call,
                        const bytes_of *outputs)
{
    void *host[3] = { 0 };
    run(NULL, call);
    for (int o = 0; outputs[o].data != NULL; o++)
        host[o] = coh_twins_copy(outputs[o].data, outputs[o].bytes);
    for (int turn = 0; turn < 2; turn++) {
        for (int o = 0; outputs[o].data != NULL; o++)
            memset(outputs[o].data, 0x55, outputs[o].bytes);
        coh_twins_enqueue(run, call, turn, NULL);
        for (int o = 0; outputs[o].data != NULL; o++)
            assert_memory_equal(outputs[o].data, host[o], outputs[o].bytes);
    }
}

/* ---- to bf16 ---- */

static void run_round(void *queue, const void *call)
{
    coh_kernel_stochastic_round(queue, call);
}

static void stochastic_rounding_has_the_hosts_bits(void **state)
{
    (void)state;
    static const uint64_t firsts[] = { 0, 8, 61, 127, ((uint64_t)1 << 37) + 40 };
    static const int64_t counts[] = { 1, 3, 127, 1501 };
    for (int f = 0; f < 5; f++)
        for (int c = 0; c < 4; c++)
            for (int shift = 0; shift < 2; shift++) {
                const int64_t count = counts[c];
                const coh_stochastic_round call = {
                    .count = count,
                    .first = firsts[f],
                    .rounding = rounding_of(1),
                    .x = numbers(count, shift, f % 3),
                    .y = coh_twins_poisoned(COH_DTYPE_BF16, count, shift),
                };
                const bytes_of outputs[] = { { call.y, (size_t)count * sizeof(*call.y) },
                                             { NULL, 0 } };
                check_bytes(run_round, &call, outputs);
                coh_twins_release();
            }
}

/* ---- to bytes and back ---- */

static void run_quantise(void *queue, const void *call)
{
    coh_kernel_quantise(queue, call);
}

static void run_dequantise(void *queue, const void *call)
{
    coh_kernel_dequantise(queue, call);
}

/* Checks codes and scales, then their decoded values. */
static void check_blocks(int64_t count, uint64_t first, int64_t shift, int is_random, int how)
{
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
    const coh_quantise call = {
        .count = count,
        .first = first,
        .rounding = rounding_of(is_random),
        .x = numbers(count, shift, how),
        .codes = (int8_t *)coh_twins_poisoned(COH_DTYPE_F32, count, 0) + shift,
        .scales = coh_twins_poisoned(COH_DTYPE_F32, blocks, shift),
    };
    const bytes_of quantised[] = { { call.codes, (size_t)count },
                                   { call.scales, (size_t)blocks * sizeof(float) },
                                   { NULL, 0 } };
    check_bytes(run_quantise, &call, quantised);
    const coh_dequantise back = { .count = count,
                                  .codes = call.codes,
                                  .scales = call.scales,
                                  .y = coh_twins_poisoned(COH_DTYPE_F32, count, shift) };
    const bytes_of values[] = { { back.y, (size_t)count * sizeof(float) }, { NULL, 0 } };
    check_bytes(run_dequantise, &back, values);
    coh_twins_release();
}

static void blocks_have_the_hosts_codes_and_scales(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 3, BLOCK - 1, 2 * BLOCK, 11 * BLOCK + 86 };
    for (int c = 0; c < 5; c++)
        for (int how = 0; how < 3; how++)
            for (int shift = 0; shift < 2; shift++)
                for (int is_random = 0; is_random < 2; is_random++)
                    check_blocks(counts[c], c == 1 ? ((uint64_t)1 << 37) + BLOCK : 3 * BLOCK, shift,
                                 is_random, how);
}

/* With one multiprocessor: 32 blocks, whose threads loop over the rest. */
static void more_than_a_grid_has_the_hosts_bits(void **state)
{
    (void)state;
    enum { COUNT = 300000 };
    const coh_stochastic_round call = { .count = COUNT,
                                        .rounding = rounding_of(1),
                                        .x = numbers(COUNT, 0, 1),
                                        .y = coh_twins_poisoned(COH_DTYPE_BF16, COUNT, 0) };
    const bytes_of outputs[] = { { call.y, COUNT * sizeof(*call.y) }, { NULL, 0 } };
    check_bytes(run_round, &call, outputs);
    coh_twins_release();
    check_blocks(COUNT / 4, 0, 0, 1, 1);
}

int coh_twins_quantise(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stochastic_rounding_has_the_hosts_bits),
        cmocka_unit_test(blocks_have_the_hosts_codes_and_scales),
        cmocka_unit_test(more_than_a_grid_has_the_hosts_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
