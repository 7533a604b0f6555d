/* Compares each optimizer's pass over parameters with a non-temporal copy of as many bytes, grain
 * by grain as in a step:
 *
 *     f32       reads work, grad (4 each) and states, writes work and states
 *     split     reads work, low, grad (2 each) and states, writes work, low and states
 *     rounded   as split, without low
 *
 * States have 8 bytes an element with adamw, 4 with lion and sgd, 2 with adamw8 and adamw8sr (and
 * 1/16 for their scales, which is not counted). So adamw moves 28 and 26 bytes, adamw8sr 10.
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
#include "kernels/kernels.h"
#include "kernels/optimizer.h"

enum { GRAIN = 16384, GRAINS = 1024, ELEMENTS = GRAIN * GRAINS };
enum { F32, SPLIT, ROUNDED };

typedef struct states {
    coh_pool *pool;
    const coh_optimizer *optimizer;
    int form;
    float *work, *grad;
    char *streams[4]; /* states, each 4 bytes an element */
    uint16_t *high, *low, *high_grad;
    char *from, *to;
    size_t grain_bytes; /* of the copy: bytes read, and written, for one grain */
} states;

/* Updates all elements, as one parameter. */
static void update(void *argument)
{
    const states *s = argument;
    static const coh_cells cells = { .update_rate = 1e-4f,
                                     .update_scale = 1,
                                     .update_random = { .seed = 1, .step = 1 },
                                     .update_scalars = { 0.1f, 0.05f } };
    static const coh_grain_run run = { .count = ELEMENTS, .rate_factor = 1, .decay = 0.1f };
    const int is_f32 = s->form == F32;
    float numbers[COH_OPTIMIZER_NUMBERS];
    coh_update call = { .optimizer = s->optimizer,
                        .dtype = is_f32 ? COH_DTYPE_F32 : COH_DTYPE_BF16,
                        .grains = { &run, 1 },
                        .work = is_f32 ? (void *)s->work : s->high,
                        .low = s->form == SPLIT ? s->low : NULL,
                        .grad = is_f32 ? (const void *)s->grad : s->high_grad,
                        .cells = &cells,
                        .hyperparameters = numbers };
    for (int i = 0; i < s->optimizer->hyperparameter_count; i++)
        numbers[i] = s->optimizer->hyperparameters[i].initial;
    for (int i = 0; i < s->optimizer->stream_count; i++)
        call.states[i] = s->streams[i];
    coh_kernel_update(s->pool, &call);
}

static void copy_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const size_t at = (size_t)index * s->grain_bytes;
    measure_copy_past_caches(s->to + at, s->from + at, s->grain_bytes);
}

static void copy(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, copy_grain, argument);
}

static void measure(states *s, const char *name, int form, size_t element_bytes, int thread_count)
{
    static const char *const forms[] = { "f32", "split", "rounded" };
    char shape[64];
    measure_result result;
    s->optimizer = coh_optimizer_find(name);
    s->form = form;
    s->grain_bytes = GRAIN * element_bytes / 2;
    for (int i = 0; i < 4; i++)
        memset(s->streams[i], 0, ELEMENTS * sizeof(float));
    measure_pairs(update, copy, s, &result);
    snprintf(shape, sizeof(shape), "%s, %d Mi, %d thread%s", forms[form], ELEMENTS >> 20,
             thread_count, thread_count == 1 ? "" : "s");
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
        measure(&s, "adamw", F32, 28, threads);
        measure(&s, "adamw", SPLIT, 26, threads);
        measure(&s, "adamw8", F32, 16, threads);
        measure(&s, "adamw8", SPLIT, 14, threads);
        measure(&s, "adamw8sr", ROUNDED, 10, threads);
        measure(&s, "lion", F32, 20, threads);
        measure(&s, "lion", SPLIT, 18, threads);
        measure(&s, "sgd", F32, 20, threads);
        measure(&s, "sgd", SPLIT, 18, threads);
        coh_pool_destroy(s.pool);
    }
    return 0;
}
