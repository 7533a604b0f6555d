/* Matrix products on a GPU: by product.cu, and by cuBLASLt except what it refuses. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/products.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/product_checks.h"

/* Shapes of a small model, at tiles' edges, of one row, and one deep enough to be split. */
int gpu_check_matmul(void)
{
    static const int64_t shapes[][3] = {
        { 1, 1, 1 },      { 7, 130, 33 },   { 129, 65, 31 },  { 256, 768, 192 },
        { 1, 1000, 768 }, { 513, 257, 64 }, { 64, 64, 8192 }, { 300, 24, 1536 },
    };
    gpu.rounded_elements = gpu.rounded_forms = gpu.wrong_forms = 0;
    product_check_shapes(&gpu, shapes, sizeof(shapes) / sizeof(shapes[0]));
    if (gpu_failed(&gpu))
        printf("%s\n", gpu.failure);
    return gpu_failed(&gpu) || gpu.wrong_forms > 0;
}

/* Prints refusals, but not for addresses and types that the library is never asked about. */
static void print_refused(void *context, const coh_product_form *form)
{
    (void)context;
    if (form->alignment >= 16 && !form->mixed)
        printf("cuBLASLt has no algorithm for %" PRId64 " x %" PRId64 " x %" PRId64
               ", layout %d, type %d to %d, strides %" PRId64 ", %" PRId64 ", %" PRId64
               ", adds %d, bias %d, relu %d\n",
               form->rows, form->columns, form->depth, form->layout, form->dtype, form->c_dtype,
               form->a_stride, form->b_stride, form->c_stride, form->adds, form->bias, form->relu);
}

/* Fails if the library refuses everything: only the project's own kernels would have been
 * checked. */
int gpu_check_matmul_library(void)
{
    const coh_cuda_queue *queue = (const coh_cuda_queue *)(const void *)gpu.queue;
    const coh_cuda_products *products = queue->libraries->products;
    coh_cuda_products_facts facts;
    gpu.rounds_products = 1;
    const int failed = gpu_check_matmul();
    gpu.rounds_products = 0;
    coh_cuda_products_facts_of(products, &facts);
    coh_cuda_products_refused(products, print_refused, NULL);
    printf("cuBLASLt %" PRId64 " on %s: %" PRId64 " forms planned, %" PRId64
           " left to own kernels; %d products were rounded before something was added\n",
           facts.device.library_version, facts.device.name, facts.plan_count, facts.refused_count,
           gpu.rounded_forms);
    return failed || facts.plan_count == 0;
}
