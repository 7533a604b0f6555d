/* coh_cuda_matmul without a GPU: product.cu emulated (tests/cuda/emulate.h), and cuBLASLt replaced
 * by a library that computes from its descriptors (fake_cublaslt.h). The checks are those of
 * gpu-check. Its device is this machine's memory, and a second run has another order of a block's
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/emulate.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/product_checks.h"

static coh_cuda_libraries libraries;
static int launches, modes;
static coh_status queue_failure;

/* ---- replacements for memory/ and kernels/cuda/launch.c ---- */

static const char *const symbols[] = {
#define COH_CUDA_KERNEL(name, symbol, file) symbol,
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
};

void coh_cuda_launch(void *queue, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                     const void *arguments)
{
    coh_emulated_kernel *run = coh_emulate_find(symbols[kernel]);
    if (run == NULL)
        fail_msg("%s is not in this program", symbols[kernel]);
    if (((const coh_cuda_queue *)queue)->is_rehearsing)
        return;
    launches++;
    coh_emulate_launch(run, (coh_emulated_index){ grid->x, grid->y, grid->z }, grid->threads,
                       grid->shared_bytes, arguments, modes % 2 ? COH_EMULATE_BACKWARD : 0);
}

int coh_cuda_multiprocessors(void *queue)
{
    (void)queue;
    return 1; /* so that a block processes several rows */
}

void coh_cuda_queue_fail(coh_cuda_queue *queue, coh_status status)
{
    (void)queue;
    queue_failure = status;
}

/* ---- gpu-check's device ---- */

void *gpu_take(gpu_check *check, size_t bytes)
{
    const size_t begin = check->used_bytes;
    bytes = (bytes + 255) / 256 * 256;
    assert_true(bytes <= check->arena_bytes - begin);
    check->used_bytes += bytes;
    return check->arena + begin;
}

void gpu_put(gpu_check *check, void *to, const void *from, size_t bytes)
{
    (void)check;
    memcpy(to, from, bytes);
}

void gpu_get(gpu_check *check, void *to, const void *from, size_t bytes)
{
    (void)check;
    memcpy(to, from, bytes);
}

/* A rehearsal launches nothing, and has the library multiply where a plan is new; the call then
 * uses what it prepared. */
void gpu_run(gpu_check *check, void (*enqueue)(void *queue, void *context), void *context,
             const int32_t *predicate)
{
    static const coh_kernel_table table = { .matmul = coh_cuda_matmul };
    coh_cuda_queue queue = { .head = { &table }, .libraries = &libraries, .is_rehearsing = 1 };
    const int launched = launches, asked_before = fake_lt.heuristics;
    int multiplied = fake_lt.products;
    char *kept = malloc(check->used_bytes);
    (void)predicate;
    memcpy(kept, check->arena, check->used_bytes);
    enqueue(&queue, context);
    assert_int_equal(launches, launched);
    const int asked = fake_lt.heuristics;
    assert_true(fake_lt.products <= multiplied + asked - asked_before);
    multiplied = fake_lt.products;
    enqueue(&queue, context);
    assert_int_equal(fake_lt.products, multiplied);
    memcpy(check->arena, kept, check->used_bytes);
    free(kept);
    queue.is_rehearsing = 0;
    enqueue(&queue, context);
    assert_int_equal(fake_lt.heuristics, asked);
    modes++;
}

/* ---- tests ---- */

static void check_all(void)
{
    /* below, at and above the tiles' edges; depths below one step, of whole steps, and with a
     * remainder */
    static const int64_t shapes[][3] = {
        { 1, 1, 1 }, { 7, 130, 33 }, { 129, 65, 31 }, { 64, 64, 64 }, { 65, 3, 97 }
    };
    gpu_check check = { .arena_bytes = (size_t)1 << 22 };
    check.arena = aligned_alloc(256, check.arena_bytes);
    assert_non_null(check.arena);
    launches = 0;
    queue_failure = COH_OK;
    product_check_shapes(&check, shapes, sizeof(shapes) / sizeof(shapes[0]));
    free(check.arena);
    assert_int_equal(check.wrong_forms, 0);
    if (gpu_failed(&check))
        fail_msg("%s", check.failure);
    assert_int_equal(queue_failure, COH_OK);
}

static void without_a_library_every_product_is_right(void **state)
{
    (void)state;
    libraries.products = NULL;
    check_all();
}

static coh_cuda_products *start(void)
{
    static char workspace[1];
    const coh_cuda_products_config config = { .functions = &fake_lt_functions,
                                              .workspace = workspace,
                                              .workspace_bytes = sizeof(workspace),
                                              .device_name = "made up",
                                              .multiprocessors = 1 };
    coh_cuda_products *products;
    fake_lt_reset();
    assert_int_equal(coh_cuda_products_create(&config, &products), COH_OK);
    return products;
}

/* The library is not asked about misaligned addresses, so both ways are used. */
static void with_a_library_every_product_is_right(void **state)
{
    (void)state;
    libraries.products = start();
    check_all();
    assert_true(fake_lt.products > 100);
    assert_true(launches > 100);
    assert_int_equal(fake_lt.broken, 0);
    coh_cuda_products_destroy(libraries.products);
}

/* If the library's launch fails, no other kernel computes the product instead. */
static void a_launch_that_fails_is_the_queues_failure(void **state)
{
    (void)state;
    _Alignas(256) static float a[256], c[256];
    const coh_matmul m = { .layout = COH_MATMUL_NN,
                           .rows = 16,
                           .columns = 16,
                           .depth = 16,
                           .a = a,
                           .b = a,
                           .c = c,
                           .a_stride = 16,
                           .b_stride = 16,
                           .c_stride = 16,
                           .activated = c };
    coh_cuda_queue queue = { .libraries = &libraries };
    libraries.products = start();
    int has_run;
    assert_int_equal(coh_cuda_products_prepare(libraries.products, &m, &has_run), COH_OK);
    launches = 0;
    fake_lt.fail_nth = 1;
    queue_failure = COH_OK;
    coh_cuda_matmul(&queue, &m);
    assert_int_equal(queue_failure, COH_ERR_DEVICE);
    assert_int_equal(launches, 0);
    coh_cuda_products_destroy(libraries.products);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_library_every_product_is_right),
        cmocka_unit_test(with_a_library_every_product_is_right),
        cmocka_unit_test(a_launch_that_fails_is_the_queues_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
