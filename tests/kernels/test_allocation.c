/* A kernel call allocates or maps nothing, OpenBLAS included: this program's malloc and mmap
 * replace the C library's and count calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernels/cpu/dispatch.h"
#include "tests/kernels/shapes.h"
#include "tests/length.h"
#include <cmocka.h>

#if !TEST_IS_SANITIZED
#include "tests/allocation_calls.h"

static void no_call_of_any_kind_allocates(void **state)
{
    (void)state;
    coh_pool *pool;
    coh_kernels_start();
    assert_int_equal(coh_pool_create(3, &pool), COH_OK);
    assert_true(allocation_calls_are_counted());
    for (int index = 0; index < SHAPE_CASES; index++) {
        coh_case one;
        shape_case_create(&one, index, 41);
        const uint64_t before = atomic_load(&allocation_calls);
        coh_status forward = coh_case_forward(&one, pool);
        coh_status backward = coh_case_backward(&one, pool);
        const uint64_t after = atomic_load(&allocation_calls);
        assert_int_equal(forward, COH_OK);
        assert_int_equal(backward, COH_OK);
        if (after != before)
            fail_msg("%s: %llu allocations", shape_case_at(index)->why,
                     (unsigned long long)(after - before));
        coh_case_destroy(&one);
    }
    coh_pool_destroy(pool);
}

/* OpenBLAS chooses kernels by size and transposition: sizes on both sides of its limits. */
static void no_tile_of_any_size_allocates(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 3, 16, 33, 64, 67, 100, 101, 128, 193 };
    static float a[193 * 193], b[193 * 193], c[193 * 193];
    coh_kernels_start();
    coh_openblas_start();
    const uint64_t before = atomic_load(&allocation_calls);
    for (int at = 0; at < 10 * 10 * 10 * 8 * 3; at++) {
        static const coh_product products[] = { COH_PRODUCT_PANELS, COH_PRODUCT_PANELS,
                                                COH_PRODUCT_OPENBLAS };
        coh_tile tile = { .rows = sizes[at % 10],
                          .columns = sizes[at / 10 % 10],
                          .depth = sizes[at / 100 % 10],
                          .dtype = at / 8000 == 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                          .a = a,
                          .b = b,
                          .c = c,
                          .a_stride = 193,
                          .b_stride = 193,
                          .c_stride = 193,
                          .a_transposed = at / 1000 & 1,
                          .b_transposed = at / 2000 & 1,
                          .adds = at / 4000 & 1 };
        coh_tile_run_by(products[at / 8000], &tile);
    }
    assert_int_equal(atomic_load(&allocation_calls) - before, 0);
}
#endif

int main(void)
{
#if TEST_IS_SANITIZED
    print_message("skipped: the sanitizer's own malloc cannot be counted\n");
    return 77;
#else
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_of_any_kind_allocates),
        cmocka_unit_test(no_tile_of_any_size_allocates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
