/* Measures copies between this host's pinned memory and a GPU, by size: a kernel that reads or
 * writes host memory compared with the copy engine of that direction; and both engines at once
 * compared with one after the other, a ratio of 2 if neither slows the other. Bytes are random.
 *
 *     gpu_copies [MOST]      bytes of the largest copy, default 256 MiB; 77: there is no GPU */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "benchmarks/measure.h"
#include "cohobate/machine.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/kernels.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"

enum { DIRECTIONS = 2, CALLS_MOST = 64, GROWTH = 16 };
#define LEAST_BYTES ((size_t)64 << 10)
#define MOST_BYTES  ((size_t)256 << 20)
#define TURN_BYTES  ((size_t)16 << 20) /* moved by all small copies of a turn */

static const coh_device_ops *const ops = &coh_device_cuda;
static const coh_lane lanes[DIRECTIONS] = { COH_LANE_H2D, COH_LANE_D2H };
static const char *const names[DIRECTIONS] = { "to the device", "from it" };

typedef struct copies {
    coh_device *device;
    coh_queue *compute, *engines[DIRECTIONS];
    char *arena, *shared; /* one half for each direction */
    void *pinned;
    size_t most, bytes; /* of a half; of a copy */
    int direction, calls;
    uint64_t number;
} copies;

static void ends(const copies *c, int direction, char **out_to, char **out_from)
{
    char *device = c->arena + (size_t)direction * c->most;
    char *host = c->shared + (size_t)direction * c->most;
    *out_to = lanes[direction] == COH_LANE_H2D ? device : host;
    *out_from = lanes[direction] == COH_LANE_H2D ? host : device;
}

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    const copies *c = context;
    char *to, *from;
    (void)number;
    (void)index;
    ends(c, c->direction, &to, &from);
    coh_kernel_pass(c->compute, COH_DTYPE_F32, to, from, (int64_t)(c->bytes / sizeof(float)), 0);
}

static void by_kernel(void *argument)
{
    copies *c = argument;
    for (int i = 0; i < c->calls; i++)
        ops->launch(c->compute, enqueue, c, ++c->number, 0, NULL);
    ops->finish(c->compute);
}

static void submit(const copies *c, int direction)
{
    char *to, *from;
    ends(c, direction, &to, &from);
    for (int i = 0; i < c->calls; i++)
        ops->copy(c->engines[direction], to, from, c->bytes);
}

static void by_engine(void *argument)
{
    const copies *c = argument;
    submit(c, c->direction);
    ops->finish(c->engines[c->direction]);
}

static void at_once(void *argument)
{
    const copies *c = argument;
    for (int i = 0; i < DIRECTIONS; i++)
        submit(c, i);
    for (int i = 0; i < DIRECTIONS; i++)
        ops->finish(c->engines[i]);
}

static void one_by_one(void *argument)
{
    const copies *c = argument;
    for (int i = 0; i < DIRECTIONS; i++) {
        submit(c, i);
        ops->finish(c->engines[i]);
    }
}

static coh_status measure_size(copies *c)
{
    char size[32], shape[64];
    measure_result result;
    const size_t calls = TURN_BYTES / c->bytes;
    c->calls = calls < 1 ? 1 : calls > CALLS_MOST ? CALLS_MOST : (int)calls;
    const double work = 1e-9 * (double)c->bytes * c->calls;
    coh_size_format(c->bytes, size, sizeof(size));
    for (c->direction = 0; c->direction < DIRECTIONS; c->direction++) {
        measure_pairs(by_kernel, by_engine, c, &result);
        snprintf(shape, sizeof(shape), "%s %s", names[c->direction], size);
        measure_print("gpu_copies", shape, work, "GB", &result);
    }
    measure_pairs(at_once, one_by_one, c, &result);
    snprintf(shape, sizeof(shape), "both %s", size);
    measure_print("gpu_copies", shape, DIRECTIONS * work, "GB", &result);
    return ops->failure(c->device);
}

static coh_status fill(const copies *c)
{
    uint64_t *words = (uint64_t *)(void *)c->shared;
    for (size_t i = 0; i < DIRECTIONS * c->most / sizeof(*words); i++)
        words[i] = coh_rng_u64(1, 2, i);
    return ops->put(c->device, c->arena, c->shared, DIRECTIONS * c->most);
}

static coh_status open_gpu(copies *c)
{
    const coh_device_config config = { .thread_count = 1, .kernels = &coh_cuda_device_kernels };
    void *arena = NULL;
    COH_TRY(ops->create(&config, &c->device));
    COH_TRY(ops->arena_create(c->device, COH_TIER_DEVICE,
                              COH_CUDA_LIBRARY_BYTES + DIRECTIONS * c->most, &arena));
    c->arena = (char *)arena + COH_CUDA_LIBRARY_BYTES;
    COH_TRY(ops->share(c->device, DIRECTIONS * c->most, &c->pinned));
    c->shared = c->pinned;
    COH_TRY(ops->queue_create(c->device, COH_LANE_COMPUTE, &c->compute));
    for (int i = 0; i < DIRECTIONS; i++)
        COH_TRY(ops->queue_create(c->device, lanes[i], &c->engines[i]));
    return fill(c);
}

static void close_gpu(const copies *c)
{
    for (int i = 0; i < DIRECTIONS; i++)
        ops->queue_destroy(c->engines[i]);
    ops->queue_destroy(c->compute);
    if (c->device != NULL)
        ops->unshare(c->device, c->pinned);
    if (c->arena != NULL)
        ops->arena_destroy(c->device, COH_TIER_DEVICE);
    ops->destroy(c->device);
}

int main(int argc, char **argv)
{
    copies c = { .most = argc > 1 ? (size_t)atoll(argv[1]) : MOST_BYTES };
    if (c.most < LEAST_BYTES || c.most > MOST_BYTES || c.most % LEAST_BYTES != 0) {
        fprintf(stderr, "gpu_copies: the largest copy has a multiple of %zu bytes, %zu at most\n",
                LEAST_BYTES, MOST_BYTES);
        return 2;
    }
    coh_status status = open_gpu(&c);
    const int is_absent = status != COH_OK && c.device == NULL;
    for (c.bytes = LEAST_BYTES; status == COH_OK && c.bytes <= c.most; c.bytes *= GROWTH)
        status = measure_size(&c);
    if (status != COH_OK)
        fprintf(stderr, "gpu_copies: %s\n", coh_last_error());
    close_gpu(&c);
    return is_absent ? MEASURE_ABSENT : status != COH_OK;
}
