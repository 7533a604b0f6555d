/* gpu_turns.h - runs the same work on a GPU by several sides in turns: by our kernels alone, as in
 * a run (our calls with this machine's libraries), by a library called directly.
 *
 *     gpu_side sides[] = { { work, context, .is_alone = 1 }, { work, context }, { bare, other } };
 *     gpu_turns_open -> gpu_turns_take(&turns, sides, 3, seconds) -> measure_compare -> close
 *
 * Another line in the array adds a side to a comparison. Programs that divide their sizes use
 * gpu_turns_main. */
#ifndef COH_BENCHMARKS_GPU_TURNS_H
#define COH_BENCHMARKS_GPU_TURNS_H

#include "benchmarks/measure.h"
#include "cohobate/model.h"
#include "kernels/cuda/libraries.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"

enum { GPU_SIDES_MOST = 4, GPU_DIVISOR_MOST = 256 };

/* gpu_turns_open sets all members. */
typedef struct gpu_turns {
    coh_device *device;
    coh_queue *queue;
    const coh_cuda_libraries *libraries; /* of this machine */
    char *arena;                         /* on the GPU, after the libraries' part */
    uint64_t arena_bytes;
    uint64_t number; /* number of calls so far */
} gpu_turns;

typedef struct gpu_side {
    coh_device_work work; /* enqueues the work once, with any line numbers */
    void *context;        /* of the work */
    int is_alone;         /* kernels find no libraries */
    gpu_turns *turns;     /* gpu_turns_take sets this and the following members */
    int calls;            /* calls between two waits for the queue */
} gpu_side;

/* Opens the first GPU, with `arena_bytes` of its memory. Errors: those of a device; gpu_turns_close
 * then frees what was made. device NULL: there is no usable GPU. */
coh_status gpu_turns_open(gpu_turns *turns, uint64_t arena_bytes);
void gpu_turns_close(const gpu_turns *turns);
coh_cuda_queue *gpu_turns_queue(const gpu_turns *turns);

/* Does `work` once, with the GPU's context current, and waits for what it enqueued. Errors: the
 * device's failure. */
coh_status gpu_turns_once(gpu_turns *turns, coh_device_work work, void *context);

/* Fills `bytes` from the arena's begin with normal numbers, repeating one piece. */
coh_status gpu_turns_fill(const gpu_turns *turns, coh_dtype dtype, size_t bytes);

/* Runs `count` sides in turns, one at a time, after two unmeasured calls of each; gives the seconds
 * per call, for every turn. Errors: the device's failure. */
coh_status gpu_turns_take(gpu_turns *turns, gpu_side sides[], int count,
                          double out_s[][MEASURE_PAIRS]);

/* Gives the shortest time of one call of the side's work, for a roof. Errors: the device's
 * failure. */
coh_status gpu_turns_best(gpu_turns *turns, gpu_side *side, double *out_s);

/* Divides a size by DIVISOR, rounded to a multiple of 16: libraries want rows to begin at multiples
 * of 16 bytes. */
int64_t gpu_turns_divided(int64_t size, int64_t divisor);

/* A benchmark program: NAME [DIVISOR]. */
typedef struct gpu_program {
    const char *name;
    const char *divided; /* what DIVISOR divides: "sizes" */
    uint64_t (*arena_bytes)(int64_t divisor);
    /* Returns the name of a missing library without which there is nothing to measure; NULL:
     * none. */
    const char *(*missing)(const coh_cuda_libraries *libraries);
    coh_status (*measure)(gpu_turns *turns, int64_t divisor);
} gpu_program;

/* The program's main; returns its exit code, MEASURE_ABSENT if there is no GPU or something is
 * missing. */
int gpu_turns_main(const gpu_program *program, int argc, char **argv);

#endif
