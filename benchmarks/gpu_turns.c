#include "benchmarks/gpu_turns.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/cuda/device_kernels.h"
#include "memory/library_workspace.h"

/* A GPU needs no time to find its cores, as threads do, so turns are shorter than measure_pairs'.
 * Waiting for the queue takes about 10 us, so calls worth RUN_S are enqueued between two waits:
 * this measures a GPU that is busy, as in a step. */
#define RUN_S     0.003
#define RUNS_MOST 256
#define UNTIMED_S 0.005
#define TIMED_S   0.01

static const coh_device_ops *const ops = &coh_device_cuda;

coh_status gpu_turns_open(gpu_turns *turns, uint64_t arena_bytes)
{
    const coh_device_config config = { .thread_count = 1, .kernels = &coh_cuda_device_kernels };
    void *arena = NULL;
    COH_TRY(ops->create(&config, &turns->device));
    COH_TRY(ops->arena_create(turns->device, COH_TIER_DEVICE, COH_CUDA_LIBRARY_BYTES + arena_bytes,
                              &arena));
    turns->arena = (char *)arena + COH_CUDA_LIBRARY_BYTES;
    turns->arena_bytes = arena_bytes;
    COH_TRY(ops->queue_create(turns->device, COH_LANE_COMPUTE, &turns->queue));
    turns->libraries = gpu_turns_queue(turns)->libraries;
    return COH_OK;
}

void gpu_turns_close(const gpu_turns *turns)
{
    ops->queue_destroy(turns->queue);
    if (turns->arena != NULL)
        ops->arena_destroy(turns->device, COH_TIER_DEVICE);
    ops->destroy(turns->device);
}

coh_cuda_queue *gpu_turns_queue(const gpu_turns *turns)
{
    return (coh_cuda_queue *)(void *)turns->queue;
}

coh_status gpu_turns_once(gpu_turns *turns, coh_device_work work, void *context)
{
    ops->launch(turns->queue, work, context, ++turns->number, 0, NULL);
    ops->finish(turns->queue);
    return ops->failure(turns->device);
}

coh_status gpu_turns_fill(const gpu_turns *turns, coh_dtype dtype, size_t bytes)
{
    enum { PIECE = 1 << 20 };
    static float piece[PIECE];
    const size_t piece_bytes = (size_t)PIECE * coh_dtype_bytes(dtype);
    for (int i = 0; i < PIECE; i++) {
        const float value = (float)coh_rng_normal(1, 2, (uint64_t)i);
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)(void *)piece)[i] = coh_bf16_of_f32(value);
        else
            piece[i] = value;
    }
    for (size_t at = 0; at < bytes; at += piece_bytes)
        COH_TRY(ops->put(turns->device, turns->arena + at, piece,
                         bytes - at < piece_bytes ? bytes - at : piece_bytes));
    return COH_OK;
}

/* ---- turns ---- */

static void run(void *argument)
{
    static const coh_cuda_libraries none;
    const gpu_side *side = argument;
    gpu_turns *turns = side->turns;
    coh_cuda_queue *queue = gpu_turns_queue(turns);
    if (side->is_alone)
        queue->libraries = &none;
    for (int i = 0; i < side->calls; i++)
        ops->launch(turns->queue, side->work, side->context, ++turns->number, 0, NULL);
    ops->finish(turns->queue);
    queue->libraries = turns->libraries;
}

/* Makes a turn of that side. The first call makes plans and loads code; the second is timed. */
static measure_side side_of(gpu_side *side)
{
    side->calls = 1;
    run(side);
    const uint64_t begin_ns = coh_clock_ns();
    run(side);
    const double seconds = (double)(coh_clock_ns() - begin_ns) * 1e-9 + 1e-9;
    const double calls = RUN_S / seconds;
    side->calls = calls > RUNS_MOST ? RUNS_MOST : calls < 1.0 ? 1 : (int)calls;
    return (measure_side){ run, side, seconds > TIMED_S ? 0.0 : UNTIMED_S, TIMED_S };
}

coh_status gpu_turns_take(gpu_turns *turns, gpu_side sides[], int count,
                          double out_s[][MEASURE_PAIRS])
{
    measure_side runs[GPU_SIDES_MOST] = { 0 };
    for (int i = 0; i < count; i++) {
        sides[i].turns = turns;
        runs[i] = side_of(&sides[i]);
        COH_TRY(ops->failure(turns->device));
    }
    measure_sides(runs, count, out_s);
    for (int i = 0; i < count; i++)
        for (int pair = 0; pair < MEASURE_PAIRS; pair++)
            out_s[i][pair] /= sides[i].calls;
    return ops->failure(turns->device);
}

coh_status gpu_turns_best(gpu_turns *turns, gpu_side *side, double *out_s)
{
    enum { RUNS = 4 };
    side->turns = turns;
    (void)side_of(side);
    *out_s = measure_best(RUNS, run, side) / side->calls;
    return ops->failure(turns->device);
}

/* ---- programs ---- */

int64_t gpu_turns_divided(int64_t size, int64_t divisor)
{
    return (size / divisor + 15) / 16 * 16;
}

static coh_status measure(const gpu_program *program, gpu_turns *turns, int64_t divisor,
                          const char **out_missing)
{
    COH_TRY(gpu_turns_open(turns, program->arena_bytes(divisor)));
    *out_missing = program->missing(turns->libraries);
    return *out_missing != NULL ? COH_OK : program->measure(turns, divisor);
}

int gpu_turns_main(const gpu_program *program, int argc, char **argv)
{
    const int64_t divisor = argc > 1 ? atoll(argv[1]) : 1;
    const char *missing = NULL;
    gpu_turns turns = { 0 };
    if (divisor < 1 || divisor > GPU_DIVISOR_MOST) {
        fprintf(stderr, "%s: %s are divided by 1 to %d\n", program->name, program->divided,
                GPU_DIVISOR_MOST);
        return 2;
    }
    const coh_status status = measure(program, &turns, divisor, &missing);
    if (status != COH_OK)
        fprintf(stderr, "%s: %s\n", program->name, coh_last_error());
    else if (missing != NULL)
        fprintf(stderr, "%s: %s is not on this machine\n", program->name, missing);
    const int is_absent = missing != NULL || (status != COH_OK && turns.device == NULL);
    gpu_turns_close(&turns);
    return is_absent ? MEASURE_ABSENT : status != COH_OK;
}
