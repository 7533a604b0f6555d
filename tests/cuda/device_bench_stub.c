/* A bench on the stub driver, with its own kernel. */
#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static uint32_t turned(uint32_t x)
{
    return x * 2654435761u + 12345u;
}

typedef struct turn_arguments {
    uint32_t *to;
    const uint32_t *from;
    int count;
} turn_arguments;

static void turn_numbers(const void *arguments)
{
    const turn_arguments *a = arguments;
    for (int i = 0; i < a->count; i++)
        a->to[i] = turned(a->from[i]);
}

static void turn(coh_queue *queue, uint32_t *to, const uint32_t *from, int count)
{
    const turn_arguments arguments = { .to = to, .from = from, .count = count };
    coh_stub_enqueue(((const coh_cuda_queue *)(void *)queue)->stream, turn_numbers, &arguments,
                     sizeof(arguments));
}

const bench_machine bench_here = { .driver = &coh_stub_driver, .turn = turn, .turned = turned };
