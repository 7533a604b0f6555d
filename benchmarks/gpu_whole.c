#include "benchmarks/gpu_whole.h"

#include <stdio.h>

#include "kernels/cuda/attention_scratch.h"

/* Most commands that a plan is known to enqueue. */
enum { PLAN_COMMANDS = 6 };

static coh_status check(const gpu_whole *w, cudnnStatus_t status, const char *call)
{
    return status == CUDNN_STATUS_SUCCESS ? COH_OK
                                          : coh_fail(COH_ERR_DEVICE, "%s: %s", call,
                                                     w->library->call.cudnnGetErrorString(status));
}

static coh_cudnn_tensors tensors_of(const coh_attention *a, int is_backward)
{
    char *scratch = (char *)a->scratch;
    coh_cudnn_tensors tensors = {
        .q = a->q, .k = a->k, .v = a->v, .y = a->y, .statistics = a->lse
    };
    tensors.workspace = scratch + coh_attention_scratch_part(4 * a->B * a->H * a->T);
    if (is_backward) {
        tensors.dy = a->dy;
        tensors.dq = a->dq;
        tensors.dk = a->dk;
        tensors.dv = a->dv;
        tensors.delta = a->scratch;
    }
    return tensors;
}

static coh_status make_plan(gpu_whole *w)
{
    const coh_attention *a = w->call;
    const coh_cudnn_target target = { .call = &w->library->call, .handle = w->handle };
    const coh_cudnn_shape shape = { .B = a->B,
                                    .T = a->T,
                                    .H = a->H,
                                    .G = a->G,
                                    .D = a->D,
                                    .q_stride = a->q_stride,
                                    .kv_stride = a->kv_stride,
                                    .y_stride = a->H * a->D,
                                    .is_backward = w->is_backward };
    const char *refusal = NULL;
    COH_TRY(coh_cudnn_plan_create(&target, &shape, &w->plan, &refusal));
    w->tensors = tensors_of(a, w->is_backward);
    if (w->plan == NULL) {
        snprintf(w->refusal, sizeof(w->refusal), "cuDNN has no plan: %s", refusal);
        return COH_OK;
    }
    const size_t wanted = coh_cudnn_plan_workspace(w->plan);
    const size_t room =
        w->scratch_bytes - (size_t)((const char *)w->tensors.workspace - (const char *)a->scratch);
    if (wanted > room) {
        snprintf(w->refusal, sizeof(w->refusal), "it wants %zu bytes of workspace, %zu are there",
                 wanted, room);
        coh_cudnn_plan_destroy(w->plan);
        w->plan = NULL;
    }
    return COH_OK;
}

static coh_status start_all(gpu_whole *w)
{
    COH_TRY(check(w, w->library->call.cudnnCreate(&w->handle), "cudnnCreate"));
    COH_TRY(check(w, w->library->call.cudnnSetStream(w->handle, gpu_turns_queue(w->turns)->stream),
                  "cudnnSetStream"));
    return make_plan(w);
}

static void start(void *context, uint64_t number, uint32_t index)
{
    gpu_whole *w = context;
    (void)number;
    (void)index;
    coh_cuda_queue_fail(gpu_turns_queue(w->turns), start_all(w));
}

coh_status gpu_whole_open(gpu_turns *turns, const coh_attention *call, int is_backward,
                          size_t scratch_bytes, gpu_whole *out_whole)
{
    *out_whole = (gpu_whole){
        .turns = turns, .call = call, .scratch_bytes = scratch_bytes, .is_backward = is_backward
    };
    COH_TRY(coh_cudnn_open(&out_whole->library));
    return gpu_turns_once(turns, start, out_whole);
}

static void stop(void *context, uint64_t number, uint32_t index)
{
    const gpu_whole *w = context;
    (void)number;
    (void)index;
    coh_cudnn_plan_destroy(w->plan);
    (void)w->library->call.cudnnDestroy(w->handle);
}

/* On a failed device, nothing may be called; the rest is freed when the process ends. */
void gpu_whole_close(gpu_whole *whole)
{
    if (whole->handle != NULL)
        (void)gpu_turns_once(whole->turns, stop, whole);
    coh_cudnn_close(whole->library);
}

void gpu_whole_enqueue(void *whole, uint64_t number, uint32_t index)
{
    gpu_whole *w = whole;
    coh_cuda_queue *queue = gpu_turns_queue(w->turns);
    (void)number;
    (void)index;
    if (!coh_cuda_queue_admit(queue, PLAN_COMMANDS))
        return;
    coh_cuda_queue_fail(
        queue, check(w, coh_cudnn_plan_execute(w->plan, &w->tensors), "cudnnBackendExecute"));
}
