/* Recording: a stream captures the launches of instructions into a CUDA graph, which is
 * instantiated and uploaded to the GPU at once. The capture is relaxed, because a library may load
 * or allocate inside a call, although a rehearsal has run its plans. No other work of the device is
 * in flight meanwhile. Read device_cuda.h first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "memory/device_cuda_state.h"

/* A single command is one call without a graph, too. */
#define COMMANDS_LEAST 2

coh_status coh_cuda_graphs_wanted(int *out_are_wanted)
{
    const char *graphs = getenv("COH_CUDA_GRAPHS");
    *out_are_wanted = graphs == NULL;
    if (graphs == NULL || strcmp(graphs, "none") == 0)
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "COH_CUDA_GRAPHS=%s: unset it, or give 'none' to launch every instruction by itself",
        graphs);
}

/* ---- making ---- */

coh_status coh_cuda_record_begin(coh_queue *queue)
{
    coh_device *device = queue->base.device;
    /* Waits until coh-retire has passed the rehearsals. Their work is done, but coh-watch queries
     * the stream until that is known, and a query would end the capture. */
    (void)coh_counter_wait(&queue->popped,
                           atomic_load_explicit(&queue->pushed, memory_order_relaxed));
    COH_TRY(coh_cuda_enter(device));
    pthread_mutex_lock(&device->watch_mutex);
    const coh_status status = coh_cuda_check(
        device->driver,
        device->driver->cuStreamBeginCapture(queue->base.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture");
    pthread_mutex_unlock(&device->watch_mutex);
    coh_cuda_leave(device);
    queue->record_status = COH_OK;
    queue->base.is_recording = status == COH_OK;
    return status;
}

static coh_status read_free(const coh_device *device, size_t *out_bytes)
{
    size_t total;
    return coh_cuda_check(device->driver, device->driver->cuMemGetInfo(out_bytes, &total),
                          "cuMemGetInfo");
}

/* Instantiates and uploads the graph, so that the first launch is as fast as later ones. */
static coh_status make_ready(coh_queue *queue, CUgraph graph, coh_recording *recording)
{
    const coh_device *device = queue->base.device;
    const coh_cuda_driver *driver = device->driver;
    size_t before, after;
    COH_TRY(read_free(device, &before));
    COH_TRY(coh_cuda_check(driver, driver->cuGraphInstantiateWithFlags(&recording->graph, graph, 0),
                           "cuGraphInstantiateWithFlags"));
    COH_TRY(coh_cuda_check(driver, driver->cuGraphUpload(recording->graph, queue->base.stream),
                           "cuGraphUpload"));
    COH_TRY(read_free(device, &after));
    if (after < before)
        queue->recorded_bytes += before - after;
    if (queue->recorded_bytes > COH_CUDA_GRAPH_BYTES)
        return coh_fail(COH_ERR_MEMORY,
                        "they would take %" PRIu64 " bytes of the GPU's memory, %" PRIu64
                        " are kept for them",
                        queue->recorded_bytes, COH_CUDA_GRAPH_BYTES);
    return COH_OK;
}

static void destroy(const coh_queue *queue, coh_recording *recording)
{
    if (recording->graph != NULL)
        (void)queue->base.driver->cuGraphExecDestroy(recording->graph);
    coh_free(recording);
}

static coh_status keep(coh_queue *queue, CUgraph graph, coh_recording **out_recording)
{
    const coh_cuda_driver *driver = queue->base.driver;
    size_t count = 0;
    coh_recording *recording;
    COH_TRY(
        coh_cuda_check(driver, driver->cuGraphGetNodes(graph, NULL, &count), "cuGraphGetNodes"));
    if (count < COMMANDS_LEAST)
        return COH_OK;
    COH_TRY(COH_ALLOC(1, &recording));
    recording->commands =
        count < COH_CUDA_GRAPH_COMMANDS ? (uint32_t)count : COH_CUDA_GRAPH_COMMANDS;
    const coh_status status = make_ready(queue, graph, recording);
    if (status != COH_OK) {
        destroy(queue, recording);
        return status;
    }
    recording->next = queue->recordings;
    queue->recordings = recording;
    *out_recording = recording;
    return COH_OK;
}

coh_status coh_cuda_record_end(coh_queue *queue, coh_recording **out_recording)
{
    const coh_device *device = queue->base.device;
    CUgraph graph = NULL;
    *out_recording = NULL;
    queue->base.is_recording = 0;
    const coh_status entered = coh_cuda_enter(device);
    if (entered != COH_OK) { /* the stream would still be capturing */
        coh_cuda_queue_fail(&queue->base, entered);
        return entered;
    }
    const CUresult result = device->driver->cuStreamEndCapture(queue->base.stream, &graph);
    coh_status status = queue->record_status;
    if (status != COH_OK) /* report why the recording ended, not that it ended */
        coh_error_restore(queue->record_text);
    else if (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        status = coh_fail(COH_ERR_DEVICE, "a call waits for its stream or queries it, which ends a "
                                          "recording: only enqueue");
    else
        status = coh_cuda_check(device->driver, result, "cuStreamEndCapture");
    if (status == COH_OK)
        status = keep(queue, graph, out_recording);
    if (graph != NULL)
        (void)device->driver->cuGraphDestroy(graph);
    coh_cuda_leave(device);
    return status;
}

/* ---- destroying ---- */

void coh_cuda_drop_recordings(coh_queue *queue)
{
    while (queue->recordings != NULL) {
        coh_recording *recording = queue->recordings;
        queue->recordings = recording->next;
        destroy(queue, recording);
    }
}
