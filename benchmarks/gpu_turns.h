/* gpu_turns.h - the same work on a GPU by several sides, in turns: by our own kernels alone, as a
 * run has it (this machine's libraries, asked by our calls), by a library called directly.
 *
 *     gpu_side sides[] = { { work, context, .is_alone = 1 }, { work, context }, { bare, other } };
 *     gpu_turns_open -> gpu_turns_take(&turns, sides, 3, seconds) -> measure_compare -> close
 *
 * A side may be added to a comparison by another line of its array. The programs that divide their
 * sizes begin and end in gpu_turns_main. */
#ifndef COH_BENCHMARKS_GPU_TURNS_H
#define COH_BENCHMARKS_GPU_TURNS_H

#include "benchmarks/measure.h"
#include "cohobate/model.h"
#include "kernels/cuda/libraries.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"

enum { GPU_SIDES_MOST = 4, GPU_DIVISOR_MOST = 256 };

/* All are gpu_turns_open's to set. */
typedef struct gpu_turns {
    coh_device *device;
    coh_queue *queue;
    const coh_cuda_libraries *libraries; /* of this machine */
    char *arena;                         /* on the GPU, behind what libraries have of it */
    uint64_t arena_bytes;
    uint64_t number; /* of calls so far */
} gpu_turns;

typedef struct gpu_side {
    coh_device_work work; /* enqueues it once; any numbers */
    void *context;        /* of the work */
    int is_alone;         /* kernels that would ask libraries find none */
    gpu_turns *turns;     /* this and what follows are gpu_turns_take's to set */
    int calls;            /* of the work, until the queue is waited for */
} gpu_side;

/* The first GPU, with so many bytes of its memory. Fails as a device does: gpu_turns_close then
 * takes back what was made; device NULL: there is no GPU to use. */
coh_status gpu_turns_open(gpu_turns *turns, uint64_t arena_bytes);
void gpu_turns_close(const gpu_turns *turns);
coh_cuda_queue *gpu_turns_queue(const gpu_turns *turns);

/* Does `work` once, with the GPU's context current, and waits for what it enqueued. Fails: the
 * device's failure. */
coh_status gpu_turns_once(gpu_turns *turns, coh_device_work work, void *context);

/* Normal numbers into `bytes` of the arena from its begin on, one piece again and again. */
coh_status gpu_turns_fill(const gpu_turns *turns, coh_dtype dtype, size_t bytes);

/* `count` sides in turns, with nothing under way between them, after two calls of each that do not
 * count: seconds of one call of the work, of every turn. Fails: the device's failure. */
coh_status gpu_turns_take(gpu_turns *turns, gpu_side sides[], int count,
                          double out_s[][MEASURE_PAIRS]);

/* The least seconds of one call of the side's work: for a roof. Fails: the device's failure. */
coh_status gpu_turns_best(gpu_turns *turns, gpu_side *side, double *out_s);

/* A size for DIVISOR: a multiple of 16, as libraries want rows to begin on 16 bytes. */
int64_t gpu_turns_divided(int64_t size, int64_t divisor);

/* A program of benchmarks: NAME [DIVISOR]. */
typedef struct gpu_program {
    const char *name;
    const char *divided; /* what DIVISOR divides: "sizes" */
    uint64_t (*arena_bytes)(int64_t divisor);
    /* What is missing of these, without which there is nothing to measure; NULL: nothing. */
    const char *(*missing)(const coh_cuda_libraries *libraries);
    coh_status (*measure)(gpu_turns *turns, int64_t divisor);
} gpu_program;

/* For main: its exit code, MEASURE_ABSENT where there is no GPU or something is missing. */
int gpu_turns_main(const gpu_program *program, int argc, char **argv);

#endif
