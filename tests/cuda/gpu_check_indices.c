/* An index out of range stops a GPU, with the host's message (kernels/cuda/index_check.h). The test
 * makes its own device, which is unusable afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/cuda/gpu_check.h"

static void check_indices(void *queue, void *check)
{
    assert_int_equal(coh_kernel_check_indices(queue, check), COH_OK);
}

static void a_bad_index_stops_the_device_in_the_hosts_words(void **state)
{
    (void)state;
    enum { COUNT = 3000, BYTES = COUNT * sizeof(int32_t) };
    static int32_t indices[COUNT];
    static gpu_check other;
    coh_index_check check = {
        .what = "token", .remedy = "take another", .count = COUNT, .most = 6
    };
    char told[sizeof(other.failure)], expected[sizeof(other.failure)];
    if (gpu_open(&other) != COH_OK)
        fail_msg("%s", coh_last_error());
    int32_t *there = gpu_take(&other, BYTES);
    gpu_put(&other, there, indices, BYTES);
    check.indices = there;
    gpu_run(&other, check_indices, &check, NULL);
    snprintf(told, sizeof(told), "%s", other.failure);
    assert_string_equal(told, "");
    indices[2999] = -2;
    indices[1700] = 7;
    gpu_put(&other, there, indices, BYTES);
    gpu_run(&other, check_indices, &check, NULL);
    snprintf(told, sizeof(told), "%s", other.failure);
    gpu_close(&other);
    check.indices = indices;
    assert_int_equal(coh_kernel_check_indices(NULL, &check), COH_ERR_CORRUPT);
    snprintf(expected, sizeof(expected), "lane compute: %s", coh_last_error());
    assert_string_equal(told, expected);
}

int gpu_check_indices(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_index_stops_the_device_in_the_hosts_words),
    };
    return cmocka_run_group_tests_name("indices", tests, NULL, NULL);
}
