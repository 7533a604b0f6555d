/* The table of products: what it accepts, what it refuses, and that paths identify tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/pool.h"
#include "cohobate/engine.h"
#include "kernels/cpu/tile.h"
#include "kernels/kernels.h"

static const coh_product_choice two[] = {
    { COH_DTYPE_F32, COH_MATMUL_NT, 64, 96, 128, COH_PRODUCT_OPENBLAS },
    { COH_DTYPE_F32, COH_MATMUL_TN, 96, 128, 64, COH_PRODUCT_PANELS },
};

static void a_shape_goes_where_the_table_says_and_others_to_the_default(void **state)
{
    (void)state;
    assert_int_equal(coh_kernels_choose(two, 2), COH_OK);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_NT, 64, 96, 128),
                     COH_PRODUCT_OPENBLAS);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_TN, 96, 128, 64),
                     COH_PRODUCT_PANELS);
    const coh_product standard = coh_product_default(COH_DTYPE_F32);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_NN, 64, 96, 128), standard);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_NT, 65, 96, 128), standard);
    assert_int_equal(coh_product_find(COH_DTYPE_BF16, COH_MATMUL_NT, 64, 96, 128),
                     coh_product_default(COH_DTYPE_BF16));
    assert_int_equal(coh_kernels_choose(NULL, 0), COH_OK);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_NT, 64, 96, 128), standard);
}

static void the_path_changes_with_the_table_and_not_with_its_order(void **state)
{
    (void)state;
    const coh_product_choice turned[] = { two[1], two[0] };
    char without[128], with[128];
    strcpy(without, coh_kernel_path());
    assert_int_equal(coh_kernels_choose(two, 2), COH_OK);
    strcpy(with, coh_kernel_path());
    assert_non_null(strstr(with, "openblas"));
    assert_non_null(strstr(with, "+table-"));
    assert_int_equal(coh_kernels_choose(turned, 2), COH_OK);
    assert_string_equal(coh_kernel_path(), with);
    assert_int_equal(coh_kernels_choose(two, 1), COH_OK);
    assert_string_not_equal(coh_kernel_path(), with);
    assert_int_equal(coh_kernels_choose(NULL, 0), COH_OK);
    assert_string_equal(coh_kernel_path(), without);
}

static void a_table_that_cannot_be_followed_is_refused_and_the_old_one_stays(void **state)
{
    (void)state;
    const coh_product_choice twice[] = { two[0], two[0] };
    const coh_product_choice missing = { COH_DTYPE_BF16,      COH_MATMUL_NT, 64, 96, 128,
                                         COH_PRODUCT_OPENBLAS };
    double seconds;
    assert_int_equal(coh_kernels_choose(two, 2), COH_OK);
    assert_int_equal(coh_kernels_choose(twice, 2), COH_ERR_ARGUMENT);
    assert_int_equal(coh_kernels_choose(&missing, 1), COH_ERR_ARGUMENT);
    assert_int_equal(coh_kernels_choose(two, COH_PRODUCT_CHOICES_MAX + 1), COH_ERR_ARGUMENT);
    assert_int_equal(coh_kernels_time(NULL, &missing, &seconds), COH_ERR_ARGUMENT);
    assert_int_equal(coh_product_find(COH_DTYPE_F32, COH_MATMUL_NT, 64, 96, 128),
                     COH_PRODUCT_OPENBLAS);
    assert_int_equal(coh_kernels_choose(NULL, 0), COH_OK);
}

static void a_table_names_a_product_for_the_element_type_it_names_it_for(void **state)
{
    (void)state;
    assert_false(coh_product_is_named(COH_PRODUCT_OPENBLAS, COH_DTYPE_F32));
    assert_int_equal(coh_kernels_choose(two, 2), COH_OK);
    assert_true(coh_product_is_named(COH_PRODUCT_OPENBLAS, COH_DTYPE_F32));
    assert_true(coh_product_is_named(COH_PRODUCT_PANELS, COH_DTYPE_F32));
    assert_false(coh_product_is_named(COH_PRODUCT_OPENBLAS, COH_DTYPE_BF16));
    assert_false(coh_product_is_named(COH_PRODUCT_ONEDNN, COH_DTYPE_F32));
    assert_int_equal(coh_kernels_choose(NULL, 0), COH_OK);
    assert_false(coh_product_is_named(COH_PRODUCT_OPENBLAS, COH_DTYPE_F32));
}

static void every_available_product_can_be_timed(void **state)
{
    (void)state;
    coh_pool *pool;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    for (int dtype = 0; dtype < 2; dtype++)
        for (int product = COH_PRODUCT_DEFAULT; product < COH_PRODUCT_COUNT; product++) {
            const coh_product_choice choice = { (coh_dtype)dtype,    COH_MATMUL_TN, 130, 70, 90,
                                                (coh_product)product };
            double seconds = 0.0;
            if (!coh_product_available(choice.product, choice.dtype))
                continue;
            assert_int_equal(coh_kernels_time(pool, &choice, &seconds), COH_OK);
            assert_true(seconds > 0.0);
        }
    coh_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_goes_where_the_table_says_and_others_to_the_default),
        cmocka_unit_test(the_path_changes_with_the_table_and_not_with_its_order),
        cmocka_unit_test(a_table_that_cannot_be_followed_is_refused_and_the_old_one_stays),
        cmocka_unit_test(a_table_names_a_product_for_the_element_type_it_names_it_for),
        cmocka_unit_test(every_available_product_can_be_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
