/* CUDA's kernels, emulated, in groups: test_kernels [GROUP]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/index_check.h"
#include "kernels/kernels.h"
#include "kernels/plain.h"
#include "tests/cuda/emulate.h"
#include "tests/cuda/twins.h"

static void run_check(void *queue, const void *call)
{
    assert_int_equal(coh_kernel_check_indices(queue, call), COH_OK);
}

/* The device reports nothing at once; the host learns of the lowest index later, once, with its own
 * message. */
static void an_index_out_of_range_is_told_later(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    int32_t *indices = coh_twins_zeros(COUNT * sizeof(int32_t));
    coh_cuda_index_note note = { 0 };
    coh_cuda_index_checks checks = { .note = &note, .there = &note };
    const coh_twins_line line = { .checks = &checks };
    const coh_index_check good = {
        .what = "token", .remedy = "none", .indices = indices, .count = COUNT, .most = 6
    };
    const coh_index_check bad = { .what = "target",
                                  .remedy = "take another",
                                  .indices = indices,
                                  .count = COUNT,
                                  .least = -1,
                                  .most = 6 };
    coh_twins_enqueue(run_check, &good, 0, &line);
    assert_int_equal(coh_cuda_index_checks_look(&checks), COH_OK);
    indices[2999] = -2;
    indices[1700] = 7;
    coh_twins_enqueue(run_check, &bad, 0, &line);
    coh_twins_enqueue(run_check, &good, 0, &line);
    assert_int_equal(coh_cuda_index_checks_look(&checks), COH_ERR_CORRUPT);
    char told[256];
    snprintf(told, sizeof(told), "%s", coh_last_error());
    assert_int_equal(coh_kernel_check_indices(NULL, &bad), COH_ERR_CORRUPT);
    assert_string_equal(told, coh_last_error());
    assert_int_equal(coh_cuda_index_checks_look(&checks), COH_OK);
    coh_twins_release();
}

static int indices(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_out_of_range_is_told_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- rows longer than the registers of a block ---- */

enum { LONG = 1024 * 4 * 8 + 8 }; /* columns */

static void run_entropy(void *queue, const void *call)
{
    coh_kernel_cross_entropy(queue, call);
}

static void run_softmax(void *queue, const void *call)
{
    coh_kernel_softmax(queue, call);
}

static void run_norm(void *queue, const void *call)
{
    coh_kernel_norm(queue, call);
}

/* Returns the packs that CUDA's kernel loads in one run. */
static int64_t packs_of(const coh_twins_case *one)
{
    coh_twins_check(one);
    const int64_t before = coh_emulated_packs;
    coh_twins_enqueue(one->run, one->call, 0, NULL);
    return coh_emulated_packs - before;
}

/* They are read several times, each time by packs if they are aligned: element by element takes
 * eight times as many loads. */
static void long_rows_are_loaded_by_packs(void **state)
{
    (void)state;
    int32_t target = LONG - 1;
    const coh_dtype dtype = COH_DTYPE_BF16;
    void *x = coh_twins_random(dtype, LONG, 0, 1), *y = coh_twins_poisoned(dtype, LONG, 0);
    float *facts[4];
    for (int i = 0; i < 4; i++)
        facts[i] = coh_twins_poisoned(COH_DTYPE_F32, 1, 0);
    const coh_cross_entropy entropy = { .dtype = dtype,
                                        .rows = 1,
                                        .columns = LONG,
                                        .logits = x,
                                        .targets = &target,
                                        .max = facts[0],
                                        .sum = facts[1],
                                        .each = facts[2] };
    const coh_softmax softmax = { .dtype = dtype, .rows = 1, .columns = LONG, .from = x, .to = y };
    const coh_norm norm = { .dtype = dtype,
                            .N = 1,
                            .C = LONG,
                            .x = x,
                            .weight = coh_twins_random(dtype, LONG, 0, 2),
                            .y = y,
                            .rstd = facts[3],
                            .epsilon = 1e-5f };
    const struct {
        coh_twins_case one;
        int64_t passes;
    } cases[] = {
        { { "cross-entropy", run_entropy, &entropy, { { COH_DTYPE_F32, 1, facts[2] } }, 64, 0 },
          2 },
        { { "softmax", run_softmax, &softmax, { { dtype, LONG, y } }, 2, 0x1p-24 }, 3 },
        { { "norm", run_norm, &norm, { { dtype, LONG, y } }, 2, 0 }, 2 },
    };
    for (int i = 0; i < 3; i++)
        assert_int_equal(packs_of(&cases[i].one), cases[i].passes * LONG / 8);
    coh_twins_release();
}

static int long_rows(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_rows_are_loaded_by_packs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } groups[] = {
        { "elementwise", coh_twins_elementwise },
        { "rows", coh_twins_rows },
        { "classifier", coh_twins_classifier },
        { "losses", coh_twins_losses },
        { "optimizer", coh_twins_optimizer },
        { "optimizers", coh_twins_optimizers },
        { "wires", coh_twins_wires },
        { "kinds", coh_twins_kinds },
        { "indices", indices },
        { "long_rows", long_rows },
    };
    int failed = 0, count = 0;
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (argc < 2 || strcmp(argv[1], groups[i].name) == 0) {
            failed += groups[i].run();
            count++;
        }
    if (count == 0)
        fprintf(stderr, "no group is called %s\n", argv[1]);
    return failed != 0 || count == 0;
}
