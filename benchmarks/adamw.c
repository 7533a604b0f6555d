/* Compares the optimizer's pass over parameters with a non-temporal copy of as many bytes, grain by
 * grain as in a step:
 *
 *     f32     reads work, grad, m, v: 16 bytes an element; writes work, m, v: 12
 *     split   reads work and low (2 each), grad (2), m, v: 14; writes work, low, m, v: 12
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

enum { GRAIN = 16384, GRAINS = 1024, ELEMENTS = GRAIN * GRAINS };

typedef struct states {
    coh_pool *pool;
    float *work, *grad, *m, *v;
    uint16_t *high, *low, *high_grad;
    char *from, *to;
    size_t grain_bytes; /* of the copy: bytes read, and written, for one grain */
} states;

static const coh_adamw step = { .rate = 1e-4f,
                                .scale = 1,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .bias1 = 0.1f,
                                .bias2 = 0.05f,
                                .epsilon = 1e-8f,
                                .decay = 0.1f };

static void whole_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const int64_t at = index * GRAIN;
    coh_kernel_adamw(&step, s->work + at, s->grad + at, s->m + at, s->v + at, GRAIN);
}

static void split_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const int64_t at = index * GRAIN;
    coh_kernel_adamw_split(&step, s->high + at, s->low + at, s->high_grad + at, s->m + at,
                           s->v + at, GRAIN);
}

static void copy_grain(void *argument, int64_t index)
{
    const states *s = argument;
    const size_t at = (size_t)index * s->grain_bytes;
    measure_copy_past_caches(s->to + at, s->from + at, s->grain_bytes);
}

static void whole(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, whole_grain, argument);
}

static void split(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, split_grain, argument);
}

static void copy(void *argument)
{
    coh_pool_run(((states *)argument)->pool, GRAINS, copy_grain, argument);
}

static void measure(states *s, void (*run)(void *), const char *name, size_t element_bytes,
                    int thread_count)
{
    char shape[64];
    measure_result result;
    s->grain_bytes = GRAIN * element_bytes / 2;
    measure_pairs(run, copy, s, &result);
    snprintf(shape, sizeof(shape), "%s, %d Mi, %d thread%s", name, ELEMENTS >> 20, thread_count,
             thread_count == 1 ? "" : "s");
    measure_print("adamw", shape, 1e-9 * (double)element_bytes * ELEMENTS, "GB", &result);
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
                  .m = zeroed(4),
                  .v = zeroed(4),
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
        measure(&s, whole, "f32", 28, threads);
        measure(&s, split, "split", 26, threads);
        coh_pool_destroy(s.pool);
    }
    return 0;
}
