/* Reports a call on a GPU to a kind that is written outside the library.
 *
 * The queue's own struct stays private; a kind sees a copy of the few facts that it needs.
 * Next: memory/cuda_queue.h has the facts, and memory/device_cuda_queue.c sets them. */
#include "cohobate/cuda.h"

#include "base/check.h"
#include "base/queue_head.h"
#include "base/struct_bytes.h"
#include "coh_config.h"
#ifdef COH_HAVE_CUDA
#include "memory/cuda_queue.h"
#include "memory/device_cuda_state.h"

static coh_cuda_call facts_of(coh_cuda_queue *queue, uint32_t command_count)
{
    return (coh_cuda_call){ .enqueues =
                                !queue->is_rehearsing && coh_cuda_queue_admit(queue, command_count),
                            .is_rehearsal = queue->is_rehearsing,
                            .is_recording = queue->is_recording,
                            .stream = queue->stream,
                            .device_index = queue->device->config.index,
                            .multiprocessor_count = queue->multiprocessor_count };
}
#endif

coh_status coh_cuda_begin(const coh_call *call, int32_t command_count, coh_cuda_call *out_call)
{
    COH_NEED(call);
    COH_NEED_STRUCT(coh_cuda_call, out_call);
    if (command_count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "a call enqueues %d commands: 1 or more is possible",
                        (int)command_count);
    const coh_queue_head *head = call->queue;
    if (head == NULL || head->kernels == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this call computes on the host: it has no stream; call "
                                          "coh_cuda_begin in devices[COH_DEVICE_CUDA] only");
#ifdef COH_HAVE_CUDA
    const coh_cuda_call facts = facts_of(call->queue, (uint32_t)command_count);
    COH_STRUCT_FILL(facts, out_call);
#endif
    return COH_OK;
}
