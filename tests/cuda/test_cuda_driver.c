/* The driver is found at run time, or a message names what is missing. argv[1] is the toolkit's
 * stub library, which has every function and refuses every call. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "memory/cuda_driver.h"

static const char *library;

/* Under the driver's name, the stub library replaces it: all functions are found, and the first
 * call to it fails. */
static void every_function_is_in_the_toolkits_library(void **state)
{
    (void)state;
    coh_cuda_driver *driver;
    void *opened = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    assert_non_null(opened);
    assert_int_equal(coh_cuda_driver_open(&driver), COH_ERR_DEVICE);
    assert_null(driver);
    assert_non_null(strstr(coh_last_error(), "cuDriverGetVersion: "));
    assert_non_null(strstr(coh_last_error(), "number 34")); /* CUDA_ERROR_STUB_LIBRARY */
    dlclose(opened);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        printf("skipped: the toolkit has no library that stands for the driver\n");
        return 77;
    }
    library = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_in_the_toolkits_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
