/* emulate.h - runs the very text of a kernel on the host: one coroutine a thread of the block, one
 * block after another. A .cu file that includes kernels/cuda/device.cuh is compiled as plain C++
 * with tests/cuda/emulate.cuh before it; what is left is this.
 *
 *     threads of a block   run one at a time, each up to its next barrier or exchange in its warp
 *     __syncthreads        goes on when every thread that has not returned is there
 *     shuffles, mma, ...   exchanges: each lane leaves its operands and reads those of all 32
 *     cp.async             copies happen at the call (early) or only at the wait for them (late)
 *     shared memory        exactly as long as asked for and full of NaN when a block begins, so a
 *                          build with the address sanitizer sees what runs past it
 *
 * Threads of a warp reach an exchange together or the process ends with a sentence that says where.
 * A missing barrier shows as other results under another order or timing: run all of them.
 * Not shown: speed, bank conflicts, alignment beyond 16 bytes, what other blocks do meanwhile. */
#ifndef COH_TESTS_CUDA_EMULATE_H
#define COH_TESTS_CUDA_EMULATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_emulated_index {
    uint32_t x, y, z;
} coh_emulated_index;

/* Of the thread that runs: what kernels call threadIdx, blockIdx, blockDim and gridDim. */
typedef struct coh_emulated_thread {
    coh_emulated_index thread, block, threads, blocks;
    unsigned char *shared; /* the block's dynamic shared memory */
} coh_emulated_thread;
extern coh_emulated_thread coh_emulated;

enum {
    COH_EMULATE_BACKWARD = 1, /* threads run from the last to the first */
    COH_EMULATE_LATE = 2,     /* asynchronous copies happen as late as they may */
    COH_EMULATE_MODES = 4     /* 0..3: every combination */
};

/* A kernel with its argument struct unpacked: COH_EMULATED in emulate.cuh makes one. */
typedef void coh_emulated_kernel(const void *arguments);

/* Runs every block of a grid; threads of a block in x alone, at most 1024. mode: COH_EMULATE_*. */
void coh_emulate_launch(coh_emulated_kernel *kernel, coh_emulated_index blocks, uint32_t threads,
                        size_t shared_bytes, const void *arguments, int mode);

/* ---- for emulate.cuh ---- */

/* Makes a kernel known by its symbol, before main. */
void coh_emulate_register(const char *symbol, coh_emulated_kernel *kernel, size_t argument_bytes);
/* NULL: there is no such kernel in this program. */
coh_emulated_kernel *coh_emulate_find(const char *symbol);
/* Of its argument struct; 0: there is no such kernel. */
size_t coh_emulate_argument_bytes(const char *symbol);

#define COH_EMULATED_VALUE 32 /* bytes a lane can leave in an exchange */

void coh_emulate_barrier(void);
/* Leaves `bytes` of `value` and returns the 32 lanes' values, COH_EMULATED_VALUE apart, valid until
 * this lane's next exchange. `what` names the instruction and must be one object in all lanes. */
const unsigned char *coh_emulate_exchange(const char *what, const void *value, size_t bytes);

/* 16 or 4 bytes to shared memory, zeros for a source of 0 bytes; in groups that are waited for. */
void coh_emulate_copy(void *to, const void *from, size_t bytes, int is_zero);
void coh_emulate_copy_commit(void);
void coh_emulate_copy_wait(int groups_left);

#ifdef __cplusplus
}
#endif

#endif
