/* launch.h - launches a kernel from C: its name, its grid, one struct of arguments.
 *
 *    const coh_cuda_grid grid = { .x = blocks, .y = 1, .z = 1, .threads = 256 };
 *    coh_cuda_launch(queue, COH_CUDA_SCALE_F32, &grid, &arguments);
 *
 * kernel_list.h names every kernel once. Modules are loaded and functions looked up when a queue is
 * made, so that nothing is allocated or compiled inside a step.
 *
 * `queue` is a coh_cuda_queue (memory/cuda_queue.h). Threads: the one that enqueues. */
#ifndef COH_KERNELS_CUDA_LAUNCH_H
#define COH_KERNELS_CUDA_LAUNCH_H

#include <stdint.h>

#include "memory/device.h"

typedef enum coh_cuda_kernel {
#define COH_CUDA_KERNEL(name, symbol, file) COH_CUDA_##name,
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
    COH_CUDA_KERNEL_COUNT
} coh_cuda_kernel;

/* Blocks along three axes, threads of each (along x), and its dynamic shared memory. */
typedef struct coh_cuda_grid {
    uint32_t x, y, z, threads, shared_bytes;
} coh_cuda_grid;

/* Loads every module and finds every kernel. Fails: COH_ERR_DEVICE if the GPU is older than the
 * kernels' targets; COH_ERR_MEMORY. */
coh_status coh_cuda_kernels_open(void *queue);
void coh_cuda_kernels_close(void *queue); /* does nothing if none is open */

/* Enqueues one kernel with its argument struct passed by value. Enqueues nothing if the grid has no
 * blocks. In a rehearsal (memory/cuda_queue.h) it only loads the kernel. A failure is kept in the
 * queue (the first one wins), and the engine asks for it. */
void coh_cuda_launch(void *queue, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                     const void *arguments);

int coh_cuda_multiprocessors(void *queue);

/* Returns the address of the predicate of the instruction that is being issued, for its kernels'
 * arguments. If the value there is 0, they do nothing. NULL: the instruction has none. */
const int32_t *coh_cuda_take_predicate(void *queue);

/* Returns cuBLASLt and cuDNN; NULL: this queue has none. */
const struct coh_cuda_libraries *coh_cuda_queue_libraries(void *queue);

#endif
