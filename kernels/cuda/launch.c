/* Loads the compiled kernels into a CUDA context and launches them by number. Everything is looked
 * up when a queue is made, so a launch only passes arguments. Next: launch.h, kernel_list.h. */
#include "kernels/cuda/launch.h"

#include <string.h>

#include "base/alloc.h"
#include "kernels/cuda/index_check.h"
#include "memory/cuda_queue.h"

/* The compiled kernels, as data inside the library: one image for each .cu of this folder, made by
 * nvcc, with machine code for several GPUs, and PTX. The driver selects the code for its GPU.
 * embed.py writes the table. */
typedef struct coh_fatbin {
    const char *name; /* of the .cu file, without its extension */
    const void *image;
    uint64_t bytes;
} coh_fatbin;

extern const coh_fatbin coh_fatbins[]; /* the last entry has the name NULL */

typedef struct kernel_name {
    const char *symbol, *file;
} kernel_name;

static const kernel_name kernel_names[] = {
#define COH_CUDA_KERNEL(name, symbol, file) { symbol, file },
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
};

typedef struct coh_cuda_kernels {
    CUmodule *modules; /* as coh_fatbins; NULL: not loaded */
    CUfunction functions[COH_CUDA_KERNEL_COUNT];
    /* Most dynamic shared memory of a block of each kernel. The maximum is requested: the default
     * limit of 48 KiB includes a kernel's static shared memory as well. */
    uint32_t shared_bytes[COH_CUDA_KERNEL_COUNT];
} coh_cuda_kernels;

static coh_status load_modules(const coh_cuda_driver *driver, coh_cuda_kernels *kernels)
{
    size_t count = 0;
    while (coh_fatbins[count].name != NULL)
        count++;
    COH_TRY(COH_ALLOC(count, &kernels->modules));
    for (size_t i = 0; i < count; i++)
        COH_TRY(coh_cuda_check(driver,
                               driver->cuModuleLoadData(&kernels->modules[i], coh_fatbins[i].image),
                               "cuModuleLoadData of the kernels of %s.cu", coh_fatbins[i].name));
    return COH_OK;
}

/* Loads each function now: a driver may otherwise do so at the first launch, in the first step. */
static coh_status find_function(const coh_cuda_driver *driver, coh_cuda_kernels *kernels,
                                int kernel)
{
    const kernel_name *name = &kernel_names[kernel];
    for (size_t i = 0; coh_fatbins[i].name != NULL; i++) {
        if (strcmp(coh_fatbins[i].name, name->file) != 0)
            continue;
        CUfunction *function = &kernels->functions[kernel];
        COH_TRY(coh_cuda_check(
            driver, driver->cuModuleGetFunction(function, kernels->modules[i], name->symbol),
            "cuModuleGetFunction of %s in %s.cu", name->symbol, name->file));
        return coh_cuda_check(driver, driver->cuFuncLoad(*function), "cuFuncLoad of %s",
                              name->symbol);
    }
    return coh_fail(COH_ERR_INTERNAL, "kernel %s is listed in %s.cu, which was not compiled",
                    name->symbol, name->file);
}

coh_status coh_cuda_kernels_open(void *queue)
{
    coh_cuda_queue *q = queue;
    coh_status status = COH_OK;
    COH_TRY(COH_ALLOC(1, &q->kernels));
    COH_TRY_GOTO(status, load_modules(q->driver, q->kernels), failed);
    for (int kernel = 0; kernel < COH_CUDA_KERNEL_COUNT; kernel++)
        COH_TRY_GOTO(status, find_function(q->driver, q->kernels, kernel), failed);
    return COH_OK;
failed:
    coh_cuda_kernels_close(queue);
    return status;
}

void coh_cuda_kernels_close(void *queue)
{
    coh_cuda_queue *q = queue;
    if (q->kernels == NULL)
        return;
    for (size_t i = 0; q->kernels->modules != NULL && coh_fatbins[i].name != NULL; i++)
        if (q->kernels->modules[i] != NULL)
            (void)q->driver->cuModuleUnload(q->kernels->modules[i]);
    coh_free(q->kernels->modules);
    coh_free(q->kernels);
    q->kernels = NULL;
}

static coh_status launch(coh_cuda_queue *q, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                         const void *arguments)
{
    if (q->kernels == NULL)
        return coh_fail(COH_ERR_INTERNAL, "kernel %s on lane %s, where no kernels were loaded",
                        kernel_names[kernel].symbol, coh_lane_name(q->lane));
    CUfunction function = q->kernels->functions[kernel];
    if (grid->shared_bytes > q->kernels->shared_bytes[kernel]) {
        COH_TRY(coh_cuda_check(
            q->driver,
            q->driver->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          (int)grid->shared_bytes),
            "cuFuncSetAttribute of %s, %u bytes of shared memory", kernel_names[kernel].symbol,
            grid->shared_bytes));
        q->kernels->shared_bytes[kernel] = grid->shared_bytes;
    }
    if (q->is_rehearsing || !coh_cuda_queue_admit(q, 1))
        return COH_OK;
    /* The driver copies as many bytes of each argument as the kernel declares. */
    void *parameters[] = { (void *)(uintptr_t)arguments };
    return coh_cuda_check(q->driver,
                          q->driver->cuLaunchKernel(function, grid->x, grid->y, grid->z,
                                                    grid->threads, 1, 1, grid->shared_bytes,
                                                    q->stream, parameters, NULL),
                          "cuLaunchKernel of %s, %u x %u x %u blocks of %u threads",
                          kernel_names[kernel].symbol, grid->x, grid->y, grid->z, grid->threads);
}

void coh_cuda_launch(void *queue, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                     const void *arguments)
{
    if (grid->x > 0 && grid->y > 0 && grid->z > 0)
        coh_cuda_queue_fail(queue, launch(queue, kernel, grid, arguments));
}

int coh_cuda_multiprocessors(void *queue)
{
    return ((const coh_cuda_queue *)queue)->multiprocessor_count;
}

const int32_t *coh_cuda_take_predicate(void *queue)
{
    coh_cuda_queue *q = queue;
    q->predicate_is_taken = 1;
    return q->predicate;
}

const struct coh_cuda_libraries *coh_cuda_queue_libraries(void *queue)
{
    return ((const coh_cuda_queue *)queue)->libraries;
}

coh_cuda_index_checks *coh_cuda_queue_index_checks(void *queue)
{
    return ((const coh_cuda_queue *)queue)->index_checks;
}
