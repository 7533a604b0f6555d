#include "benchmarks/gpu_turns.h"

#include "kernels/cuda/device_kernels.h"
#include "memory/cuda_queue.h"
#include "memory/library_workspace.h"

static const coh_device_ops *const ops = &coh_device_cuda;

coh_status gpu_turns_open(gpu_turns *turns, uint64_t arena_bytes)
{
    const coh_device_config config = { .thread_count = 1, .kernels = &coh_cuda_device_kernels };
    void *arena = NULL;
    COH_TRY(ops->create(&config, &turns->device));
    COH_TRY(ops->arena_create(turns->device, COH_TIER_DEVICE, COH_CUDA_LIBRARY_BYTES + arena_bytes,
                              &arena));
    turns->arena = (char *)arena + COH_CUDA_LIBRARY_BYTES;
    COH_TRY(ops->queue_create(turns->device, COH_LANE_COMPUTE, &turns->queue));
    turns->libraries = ((const coh_cuda_queue *)(const void *)turns->queue)->libraries;
    return COH_OK;
}

void gpu_turns_close(const gpu_turns *turns)
{
    ops->queue_destroy(turns->queue);
    if (turns->arena != NULL)
        ops->arena_destroy(turns->device, COH_TIER_DEVICE);
    ops->destroy(turns->device);
}

static void take_turn(gpu_turns *turns, const coh_cuda_libraries *libraries)
{
    coh_cuda_queue *queue = (coh_cuda_queue *)(void *)turns->queue;
    queue->libraries = libraries;
    for (int i = 0; i < GPU_TURNS_CALLS; i++)
        ops->launch(turns->queue, turns->work, turns->context, ++turns->number, 0, NULL);
    ops->finish(turns->queue);
    queue->libraries = turns->libraries;
}

void gpu_turns_ours(void *turns)
{
    static const coh_cuda_libraries none;
    take_turn(turns, &none);
}

void gpu_turns_libraries(void *turns)
{
    take_turn(turns, ((const gpu_turns *)turns)->libraries);
}
