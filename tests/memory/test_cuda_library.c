/* The search for NVIDIA's libraries (memory/cuda_library.h), in a made-up tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/cuda_library.h"
#include "tests/temporary.h"

static char folder[PATH_MAX / 2];
static const coh_cuda_library_name *const cudnn = &coh_cuda_library_cudnn;
static char made_library[PATH_MAX / 2]; /* a file that opens */

static void shell(const char *format, ...)
{
    char command[2 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    (void)state;
    static const char *const variables[] = { "COH_CUDA_LIBRARIES", "CUDA_HOME",    "CUDA_PATH",
                                             "VIRTUAL_ENV",        "CONDA_PREFIX", "PYTHONPATH",
                                             "LD_LIBRARY_PATH" };
    assert_int_equal(temporary_folder(folder, sizeof(folder), "cuda-library"), 0);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    setenv("HOME", "/home/person", 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    setenv("PATH", "/usr/bin:/bin", 1);
    shell("rm -r '%s'", folder);
    return 0;
}

/* Puts libcudnn.so.9 below a folder of the tree: a link to a library, or an invalid file. */
static void plant(const char *at, int opens)
{
    setenv("PATH", "/usr/bin:/bin", 1);
    shell("mkdir -p '%s%s'", folder, at);
    if (opens)
        shell("ln -s '%s' '%s%s/libcudnn.so.9'", made_library, folder, at);
    else
        shell("echo none > '%s%s/libcudnn.so.9'", folder, at);
}

static const struct place {
    const char *at, *variable, *value;
} places[] = {
    { "/first", "COH_CUDA_LIBRARIES", "/nothing:/first/" },
    { "/second", "COH_CUDA_LIBRARIES", "/first:/second" },
    { "/tree/lib64", "CUDA_HOME", "/tree" },
    { "/tree/lib", "CUDA_HOME", "/tree" },
    { "/path/targets/sbsa-linux/lib", "CUDA_PATH", "/path" },
    { "/usr/local/cuda/lib64", NULL, NULL },
    { "/venv/lib/python3.12/site-packages/nvidia/cudnn/lib", "VIRTUAL_ENV", "/venv" },
    { "/conda/lib/python3.11/site-packages/nvidia/cu13/lib", "CONDA_PREFIX", "/conda" },
    { "/mine/nvidia/cudnn/lib", "PYTHONPATH", "/other:/mine" },
    { "/pyenv/lib/python3.11/site-packages/nvidia/cudnn/lib", "PATH", "/a/sbin:/pyenv/bin/:/bin" },
    { "/home/person/.local/lib/python3.10/site-packages/nvidia/cudnn/lib", NULL, NULL },
    { "/usr/local/lib/python3.12/dist-packages/nvidia/cudnn/lib", NULL, NULL },
    { "/usr/lib/python3/dist-packages/nvidia/cudnn/lib", NULL, NULL },
};
enum { PLACE_COUNT = sizeof(places) / sizeof(places[0]) };

static void set_variables(size_t from)
{
    for (size_t i = PLACE_COUNT; i-- > from;)
        if (places[i].variable != NULL)
            setenv(places[i].variable, places[i].value, 1);
}

/* With files in all places, the first is found; after its removal, the next one. */
static void places_are_searched_in_the_order_of_the_header(void **state)
{
    (void)state;
    char path[COH_CUDA_LIBRARY_PATH_BYTES], expected[PATH_MAX];
    for (size_t i = 0; i < PLACE_COUNT; i++)
        plant(places[i].at, 1);
    setenv("COH_CUDA_LIBRARIES", "/nothing:/first/:/second", 1);
    set_variables(2);
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        assert_true(coh_cuda_library_find(folder, cudnn, path));
        snprintf(expected, sizeof(expected), "%s%s/libcudnn.so.9", folder, places[i].at);
        assert_string_equal(path, expected);
        assert_int_equal(unlink(path), 0);
    }
    assert_false(coh_cuda_library_find(folder, cudnn, path));
    assert_string_equal(path, "");
}

static void a_folder_that_is_not_named_is_not_searched(void **state)
{
    (void)state;
    char path[COH_CUDA_LIBRARY_PATH_BYTES];
    plant("/tree/lib64", 1);
    plant("/a/lib/python3.12/site-packages/nvidia/cudnn/lib", 1);
    setenv("PATH", "/a/sbin:/b/bin", 1); /* a's programs are not in its bin */
    assert_false(coh_cuda_library_find(folder, cudnn, path));
    setenv("PATH", "/a/bin", 1);
    assert_true(coh_cuda_library_find(folder, cudnn, path));
    assert_false(coh_cuda_library_find(folder, &coh_cuda_library_nccl, path));
}

static void a_file_that_does_not_open_gives_way_to_the_next(void **state)
{
    (void)state;
    static const char *const functions[] = { "made_one", "made_two" };
    char path[COH_CUDA_LIBRARY_PATH_BYTES];
    struct {
        int (*one)(void), (*two)(void);
    } table = { NULL, NULL };
    void *library;
    plant("/tree/lib64", 0);
    plant("/usr/local/cuda/lib64", 1);
    setenv("CUDA_HOME", "/tree", 1);
    assert_int_equal(coh_cuda_library_open(folder, cudnn, &library, path), COH_OK);
    assert_non_null(strstr(path, "/usr/local/cuda/lib64/libcudnn.so.9"));
    assert_int_equal(coh_cuda_library_bind(library, cudnn, functions, 2, &table), COH_OK);
    assert_int_equal(table.one(), 1);
    assert_int_equal(table.two(), 2);
    dlclose(library);
}

static void what_is_missing_is_named_with_what_to_install(void **state)
{
    (void)state;
    static const char *const functions[] = { "made_one", "made_three" };
    void *library, *table[2];
    char path[COH_CUDA_LIBRARY_PATH_BYTES];
    assert_int_equal(coh_cuda_library_open(folder, cudnn, &library, path), COH_ERR_DEVICE);
    assert_null(library);
    assert_non_null(strstr(coh_last_error(), "cuDNN (libcudnn.so.9) is not on this machine"));
    assert_non_null(strstr(coh_last_error(), "nvidia-cudnn-cu13"));
    assert_non_null(strstr(coh_last_error(), "COH_CUDA_LIBRARIES"));
    plant("/tree/lib64", 0);
    setenv("CUDA_HOME", "/tree", 1);
    assert_int_equal(coh_cuda_library_open(folder, cudnn, &library, path), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "/tree/lib64/libcudnn.so.9"));
    plant("/usr/local/cuda/lib64", 1);
    assert_int_equal(coh_cuda_library_open(folder, cudnn, &library, path), COH_OK);
    assert_int_equal(coh_cuda_library_bind(library, cudnn, functions, 2, table), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "made_three"));
    dlclose(library);
}

static void what_is_too_old_is_refused_with_what_to_install(void **state)
{
    (void)state;
    static const int32_t refused[] = { 0, 90100, 91500, 91800 }; /* 0: it does not report one */
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(coh_cuda_library_accept(cudnn, refused[i]), COH_ERR_DEVICE);
        assert_non_null(strstr(coh_last_error(), "before 9.18.1"));
        assert_non_null(strstr(coh_last_error(), "nvidia-cudnn-cu13"));
        assert_non_null(strstr(coh_last_error(), "COH_CUDA_LIBRARIES"));
    }
    assert_non_null(strstr(coh_last_error(), "cuDNN 9.18.0 is not used"));
    assert_int_equal(coh_cuda_library_accept(cudnn, 91801), COH_OK);
    assert_int_equal(coh_cuda_library_accept(cudnn, 92400), COH_OK);
    assert_int_equal(coh_cuda_library_accept(&coh_cuda_library_cublaslt, 0), COH_OK);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(places_are_searched_in_the_order_of_the_header),
        IN_FOLDER(a_folder_that_is_not_named_is_not_searched),
        IN_FOLDER(a_file_that_does_not_open_gives_way_to_the_next),
        IN_FOLDER(what_is_missing_is_named_with_what_to_install),
        cmocka_unit_test(what_is_too_old_is_refused_with_what_to_install),
    };
    char path[PATH_MAX];
    if (argument_count != 2 || realpath(arguments[1], path) == NULL)
        return 2;
    snprintf(made_library, sizeof(made_library), "%.2000s", path);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
