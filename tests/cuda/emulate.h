/* emulate.h - runs a kernel's source on the host: one coroutine per thread of the block, one block
 * after another. A .cu file that includes kernels/cuda/device.cuh is compiled as plain C++ with
 * tests/cuda/emulate.cuh before it, and linked with these functions.
 *
 *     threads of a block   run one at a time, each up to its next barrier or exchange in its warp
 *     __syncthreads        continues once every thread that has not returned has arrived
 *     shuffles, mma, ...   are exchanges: each lane gives its operands and reads those of all 32
 *     cp.async             copies at the call (early) or only at the wait for it (late)
 *     shared memory        has exactly the requested size and is full of NaN when a block begins,
 *                          so the address sanitizer finds accesses past its end
 *
 * If the threads of a warp do not reach an exchange together, the process ends with a message that
 * names the place. A missing barrier changes results under some order or timing: run all modes.
 * Not shown: speed, bank conflicts, alignment beyond 16 bytes, concurrent blocks. */
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

/* State of the running thread: threadIdx, blockIdx, blockDim and gridDim in kernels. */
typedef struct coh_emulated_thread {
    coh_emulated_index thread, block, threads, blocks;
    unsigned char *shared; /* the block's dynamic shared memory */
} coh_emulated_thread;
extern coh_emulated_thread coh_emulated;

extern int64_t coh_emulated_packs; /* loads of 8 or 16 bytes so far (emulate_load.cuh) */

enum {
    COH_EMULATE_BACKWARD = 1, /* threads run from the last to the first */
    COH_EMULATE_LATE = 2,     /* asynchronous copies happen as late as allowed */
    COH_EMULATE_MODES = 4     /* 0..3: every combination */
};

/* A kernel with its argument struct unpacked, made by COH_EMULATED in emulate.cuh. */
typedef void coh_emulated_kernel(const void *arguments);

/* Runs every block of a grid; threads of a block are in x only, at most 1024. mode:
 * COH_EMULATE_*. */
void coh_emulate_launch(coh_emulated_kernel *kernel, coh_emulated_index blocks, uint32_t threads,
                        size_t shared_bytes, const void *arguments, int mode);

/* ---- for emulate.cuh ---- */

/* Registers a kernel under its symbol, before main. */
void coh_emulate_register(const char *symbol, coh_emulated_kernel *kernel, size_t argument_bytes);
/* Returns NULL if this program has no such kernel. */
coh_emulated_kernel *coh_emulate_find(const char *symbol);
/* Returns the size of its argument struct; 0: no such kernel. */
size_t coh_emulate_argument_bytes(const char *symbol);

#define COH_EMULATED_VALUE 32 /* most bytes a lane can give in an exchange */

void coh_emulate_barrier(void);
/* Gives `bytes` of `value` and returns the 32 lanes' values, COH_EMULATED_VALUE apart, valid until
 * this lane's next exchange. `what` names the instruction and must be the same in all lanes. */
const unsigned char *coh_emulate_exchange(const char *what, const void *value, size_t bytes);

/* Copies 16 or 4 bytes to shared memory, zeros if the source has 0 bytes; in groups that are waited
 * for. */
void coh_emulate_copy(void *to, const void *from, size_t bytes, int is_zero);
void coh_emulate_copy_commit(void);
void coh_emulate_copy_wait(int groups_left);

#ifdef __cplusplus
}
#endif

#endif
