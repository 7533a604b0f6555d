/* Compares each optimizer's pass over parameters with a non-temporal copy of as many bytes, grain
 * by grain as in a step:
 *
 *     f32     reads work, grad (4 each) and states, writes work and states
 *     split   reads work, low, grad (2 each) and states, writes work, low and states
 *
 * States have 8 bytes an element with adamw, 4 with lion and sgd, 2 with adamw8 (and 1/16 for its
 * scales, which is not counted). So adamw moves 28 and 26 bytes.
 *
 *     adamw 2      threads
 *
 * Writing a cache line that was just read costs only the write-back. The pass may therefore be
 * faster than the copy, which writes to lines that it has not read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "benchmarks/measure.h"
#include "cohobate/optimizer.h"
#include "kernels/kernels.h"

enum { GRAIN = 16384, GRAINS = 1024, ELEMENTS = GRAIN * GRAINS };

typedef struct states {
    coh_pool *pool;
    const coh_optimizer *optimizer;
    int is_split;
    float *work, *grad;
    char *streams[4]; /* states, each 4 bytes an element */
    uint16_t *high, *low, *high_grad;
    char *from, *to;
    size_t grain_bytes; /* of the copy: bytes read, and written, for one grain */
} states;

static const coh_random_cell random_cell = { .seed = 1, .step = 1 };
static const float scalars[] = { 0.1f, 0.05f };

static void update_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const coh_dtype dtype = s->is_split ? COH_DTYPE_BF16 : COH_DTYPE_F32;
    const int64_t at = index * GRAIN;
    float numbers[COH_OPTIMIZER_NUMBERS];
    coh_update_call call = {
        .count = GRAIN,
        .first = (uint64_t)at,
        .rate = 1e-4f,
        .scale = 1,
        .decay = 0.1f,
        .hyperparameters = numbers,
        .scalars = scalars,
        .random = &random_cell,
        .work_dtype = dtype,
        .grad_dtype = dtype,
        .work = s->is_split ? (void *)(s->high + at) : s->work + at,
        .low = s->is_split ? s->low + at : NULL,
        .grad = s->is_split ? (const void *)(s->high_grad + at) : s->grad + at,
    };
    for (int i = 0; i < s->optimizer->hyperparameter_count; i++)
        numbers[i] = s->optimizer->hyperparameters[i].initial;
    for (int i = 0; i < s->optimizer->stream_count; i++)
        call.states[i] = s->streams[i] + coh_state_bytes(&s->optimizer->streams[i], (uint64_t)at);
    s->optimizer->update(&call);
}

static void copy_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const size_t at = (size_t)index * s->grain_bytes;
    measure_copy_past_caches(s->to + at, s->from + at, s->grain_bytes);
}

static void update(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, update_grain, argument);
}

static void copy(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, copy_grain, argument);
}

static void measure(states *s, const char *name, int is_split, size_t element_bytes,
                    int thread_count)
{
    char shape[64];
    measure_result result;
    s->optimizer = coh_optimizer_find(name);
    s->is_split = is_split;
    s->grain_bytes = GRAIN * element_bytes / 2;
    for (int i = 0; i < 4; i++)
        memset(s->streams[i], 0, ELEMENTS * sizeof(float));
    measure_pairs(update, copy, s, &result);
    snprintf(shape, sizeof(shape), "%s, %d Mi, %d thread%s", is_split ? "split" : "f32",
             ELEMENTS >> 20, thread_count, thread_count == 1 ? "" : "s");
    measure_print(name, shape, 1e-9 * (double)element_bytes * ELEMENTS, "GB", &result);
}

static void *zeroed(size_t element_bytes)
{
    void *memory = aligned_alloc(64, ELEMENTS * element_bytes);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memset(memory, 0, ELEMENTS * element_bytes);
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 2;
    static states s; /* lives as long as the process */
    s = (states){ .work = zeroed(4),
                  .grad = zeroed(4),
                  .streams = { zeroed(4), zeroed(4), zeroed(4), zeroed(4) },
                  .high = zeroed(2),
                  .low = zeroed(2),
                  .high_grad = zeroed(2),
                  .from = zeroed(14),
                  .to = zeroed(14) };
    for (int i = 0; i < ELEMENTS; i++) {
        s.grad[i] = (float)(i % 17) * 1e-3f;
        s.high_grad[i] = (uint16_t)(0x3a80 + i % 17);
    }
    coh_kernels_start();
    for (int threads = 1; threads <= most; threads = threads < most ? most : most + 1) {
        if (coh_pool_create(threads, &s.pool) != COH_OK)
            return 1;
        measure(&s, "adamw", 0, 28, threads);
        measure(&s, "adamw", 1, 26, threads);
        measure(&s, "adamw8", 0, 16, threads);
        measure(&s, "adamw8", 1, 14, threads);
        measure(&s, "lion", 0, 20, threads);
        measure(&s, "lion", 1, 18, threads);
        measure(&s, "sgd", 0, 20, threads);
        measure(&s, "sgd", 1, 18, threads);
        coh_pool_destroy(s.pool);
    }
    return 0;
}
