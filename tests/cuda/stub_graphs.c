/* Capture and graphs of the stub driver. */
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/cuda/stub_state.h"

/* ---- capture ---- */

CUresult stub_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    STUB_BEGIN(cuStreamBeginCapture);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_ILLEGAL_STATE);
    stream->capture = calloc(1, sizeof(*stream->capture));
    if (stream->capture == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    stream->capture->is_strict = mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

static void drop(CUgraph graph)
{
    coh_stub.live_count--;
    free(graph->commands.all);
    free(graph);
}

/* A failed capture has ended, too. */
CUresult stub_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    const CUresult result = coh_stub_begin(COH_STUB_cuStreamEndCapture, 1);
    CUgraph captured = stream->capture;
    *graph = NULL;
    stream->capture = NULL;
    if (captured == NULL)
        return coh_stub_end(result != CUDA_SUCCESS ? result : CUDA_ERROR_ILLEGAL_STATE);
    if (result == CUDA_SUCCESS && !captured->is_invalid) {
        *graph = captured;
        return coh_stub_end(CUDA_SUCCESS);
    }
    drop(captured);
    return coh_stub_end(result != CUDA_SUCCESS ? result : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

void coh_stub_drop_capture(CUstream stream)
{
    if (stream->capture != NULL)
        drop(stream->capture);
    stream->capture = NULL;
}

int coh_stub_ends_capture(CUstream stream)
{
    if (stream->capture == NULL)
        return 0;
    stream->capture->is_invalid = 1;
    return 1;
}

int coh_stub_ends_strict_capture(void)
{
    int ends = 0;
    for (int i = 0; i < coh_stub.stream_count; i++) {
        CUstream stream = coh_stub.streams[i];
        if (stream != NULL && stream->capture != NULL && stream->capture->is_strict)
            ends |= coh_stub_ends_capture(stream);
    }
    return ends;
}

/* ---- a query as the capture begins ---- */

#define HOLD_NS 100000000u

void coh_stub_hold_query(void)
{
    atomic_store(&coh_stub.query_hold, STUB_TO_BE_HELD);
}

int coh_stub_query_is_held(void)
{
    return atomic_load(&coh_stub.query_hold) == STUB_HELD;
}

static int is_captured(const struct CUstream_st *stream)
{
    pthread_mutex_lock(&coh_stub.mutex);
    const int found = stream->capture != NULL;
    pthread_mutex_unlock(&coh_stub.mutex);
    return found;
}

int coh_stub_begin_hold(const struct CUstream_st *stream)
{
    stub_hold wanted = STUB_TO_BE_HELD;
    const uint64_t end_ns = coh_clock_ns() + HOLD_NS;
    if (!atomic_compare_exchange_strong(&coh_stub.query_hold, &wanted, STUB_HELD))
        return 0;
    while (!is_captured(stream) && coh_clock_ns() < end_ns)
        sched_yield();
    return 1;
}

void coh_stub_end_hold(int is_held)
{
    if (is_held)
        atomic_store(&coh_stub.query_hold, STUB_NOT_HELD);
}

/* ---- graphs ---- */

CUresult stub_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    STUB_BEGIN(cuGraphGetNodes);
    *count = graph->commands.end;
    return coh_stub_end(nodes == NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

CUresult stub_cuGraphDestroy(CUgraph graph)
{
    const CUresult result = coh_stub_begin(COH_STUB_cuGraphDestroy, 1);
    drop(graph);
    return coh_stub_end(result);
}

CUresult stub_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph,
                                          unsigned long long flags)
{
    STUB_BEGIN(cuGraphInstantiateWithFlags);
    if (flags != 0)
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    if (coh_stub.graph_bytes > coh_stub.memory_bytes - coh_stub.used_bytes)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    *executable = calloc(1, sizeof(**executable));
    if (*executable == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < graph->commands.end; i++)
        coh_stub_append(&(*executable)->commands, &graph->commands.all[i]);
    (*executable)->bytes = coh_stub.graph_bytes;
    coh_stub.used_bytes += coh_stub.graph_bytes;
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

CUresult stub_cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    (void)executable;
    STUB_BEGIN(cuGraphUpload);
    return coh_stub_end(coh_stub_ends_capture(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                      : CUDA_SUCCESS);
}

CUresult stub_cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    STUB_BEGIN(cuGraphLaunch);
    coh_stub_push_all(stream, &executable->commands);
    return coh_stub_end(CUDA_SUCCESS);
}

CUresult stub_cuGraphExecDestroy(CUgraphExec executable)
{
    const CUresult result = coh_stub_begin(COH_STUB_cuGraphExecDestroy, 1);
    coh_stub.used_bytes -= executable->bytes;
    coh_stub.live_count--;
    free(executable->commands.all);
    free(executable);
    return coh_stub_end(result);
}

void coh_stub_set_graph_bytes(size_t bytes)
{
    coh_stub.graph_bytes = bytes;
}
