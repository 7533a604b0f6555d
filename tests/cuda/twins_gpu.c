#include "tests/cuda/twins.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/gpu_check.h"

/* The queue of tests on a GPU: gpu-check's, which is waited for after each call. Tensors are in
 * pinned memory, at the same addresses for both sides. */

#define BOUNDARY 64

void *coh_twins_memory(size_t bytes)
{
    void *memory = gpu.shared + gpu.shared_used_bytes;
    gpu.shared_used_bytes += (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    assert_true(gpu.shared_used_bytes <= gpu.shared_bytes);
    return memory;
}

void coh_twins_release(void)
{
    gpu.shared_used_bytes = 0;
}

void coh_twins_share(void *memory, size_t bytes)
{
    gpu_check_share(memory, bytes);
}

void coh_twins_unshare(void *memory)
{
    gpu_check_unshare(memory);
}

/* Multiplies on the host tensors that both sides reach, once the queue has finished them. */
static void host_matmul(void *queue, const coh_matmul *matmul)
{
    if (((const coh_cuda_queue *)queue)->is_rehearsing)
        return;
    gpu_check_wait();
    coh_cpu_matmul(NULL, matmul);
}

void coh_twins_wait(void)
{
    gpu_check_wait();
}

int coh_twins_has_library(void)
{
    const coh_cuda_queue *queue = (const coh_cuda_queue *)(const void *)gpu.queue;
    return queue->libraries != NULL && queue->libraries->products != NULL;
}

typedef struct twin_call {
    void (*run)(void *queue, const void *call);
    const void *call;
} twin_call;

static void enqueue(void *queue, void *context)
{
    const twin_call *one = context;
    one->run(queue, one->call);
}

void coh_twins_enqueue(void (*run)(void *queue, const void *call), const void *call, int turn,
                       const coh_twins_line *line)
{
    coh_queue_head *head = (coh_queue_head *)(void *)gpu.queue;
    const coh_kernel_table *before = head->kernels;
    coh_kernel_table table = coh_kernel_table_cuda;
    twin_call one = { run, call };
    (void)turn;
    if (line == NULL || !line->has_own_products)
        table.matmul = host_matmul;
    head->kernels = &table;
    gpu_run(&gpu, enqueue, &one, line != NULL ? line->predicate : NULL);
    head->kernels = before;
    if (gpu_failed(&gpu))
        fail_msg("%s", gpu.failure);
}
