/* gpu_turns.h - the same work on a GPU by our own kernels and by this machine's libraries, in
 * turns: a queue's kernels ask the libraries that it names, and ours where it names none.
 *
 *     gpu_turns_open -> measure_pairs(gpu_turns_ours, gpu_turns_libraries, turns, ...) -> close */
#ifndef COH_BENCHMARKS_GPU_TURNS_H
#define COH_BENCHMARKS_GPU_TURNS_H

#include "kernels/cuda/libraries.h"
#include "memory/device_cuda.h"

enum { GPU_TURNS_CALLS = 4 }; /* of the work in each turn */

/* All but the first two are gpu_turns_open's to set. */
typedef struct gpu_turns {
    coh_device_work work; /* enqueues it once; any numbers */
    void *context;        /* of the work */
    coh_device *device;
    coh_queue *queue;
    const coh_cuda_libraries *libraries; /* of this machine */
    char *arena;                         /* on the GPU, behind what libraries have of it */
    uint64_t number;                     /* of calls so far */
} gpu_turns;

/* The first GPU, with so many bytes of its memory. Fails as a device does: gpu_turns_close then
 * takes back what was made; device NULL: there is no GPU to use. */
coh_status gpu_turns_open(gpu_turns *turns, uint64_t arena_bytes);
void gpu_turns_close(const gpu_turns *turns);

/* A turn, with nothing under way before it and after it; `turns` is a gpu_turns. */
void gpu_turns_ours(void *turns);
void gpu_turns_libraries(void *turns);

#endif
