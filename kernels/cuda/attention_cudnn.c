/* Attention by cuDNN: keeps a plan per shape, decides which passes cuDNN takes, and enqueues them
 * in the cuts of attention_scratch.h. Next: attention_cudnn.h; cudnn_graph.c builds the plans. */
#include "kernels/cuda/attention_cudnn.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/libraries.h"
#include "memory/cuda_queue.h"

typedef struct entry {
    coh_cudnn_shape shape;
    coh_cudnn_plan *plan; /* NULL: refused, do not ask again */
} entry;

struct coh_attention_plans {
    coh_attention_plans_config config;
    entry *entries;
    size_t count, capacity;
};

coh_status coh_attention_plans_create(const coh_attention_plans_config *config,
                                      coh_attention_plans **out_plans)
{
    COH_TRY(COH_ALLOC(1, out_plans));
    (*out_plans)->config = *config;
    return COH_OK;
}

void coh_attention_plans_destroy(coh_attention_plans *plans)
{
    if (plans == NULL)
        return;
    for (size_t i = 0; i < plans->count; i++)
        coh_cudnn_plan_destroy(plans->entries[i].plan);
    coh_free(plans->entries);
    coh_free(plans);
}

int64_t coh_attention_plans_count(const coh_attention_plans *plans)
{
    int64_t count = 0;
    for (size_t i = 0; i < plans->count; i++)
        count += plans->entries[i].plan != NULL;
    return count;
}

static void tell_refusal(const coh_attention_plans *plans, const coh_cudnn_shape *s,
                         const char *why)
{
    char sentence[320];
    if (plans->config.log == NULL)
        return;
    snprintf(sentence, sizeof(sentence),
             "cuDNN does not take attention %s of %lld x %lld heads (%lld of keys) by %lld tokens "
             "by %lld: %s; kernels of our own compute it",
             s->atomics       ? "backward by atomics"
             : s->is_backward ? "backward"
                              : "forward",
             (long long)s->B, (long long)s->H, (long long)s->G, (long long)s->T, (long long)s->D,
             why);
    plans->config.log(plans->config.log_context, sentence);
}

/* Finds a plan, or makes it. *out_plan is NULL if cuDNN refuses or needs more than
 * `workspace_bytes`. There are few shapes, so the search is linear. */
static coh_status find_plan(coh_attention_plans *plans, const coh_cudnn_shape *shape,
                            size_t workspace_bytes, coh_cudnn_plan **out_plan)
{
    for (size_t i = 0; i < plans->count; i++)
        if (memcmp(&plans->entries[i].shape, shape, sizeof(*shape)) == 0) {
            *out_plan = plans->entries[i].plan;
            return COH_OK;
        }
    const coh_cudnn_target target = { .call = plans->config.call, .handle = plans->config.handle };
    coh_cudnn_plan *plan = NULL;
    const char *refusal = NULL;
    *out_plan = NULL;
    COH_TRY(COH_GROW(&plans->entries, &plans->capacity, plans->count + 1));
    COH_TRY(coh_cudnn_plan_create(&target, shape, &plan, &refusal));
    if (plan != NULL && coh_cudnn_plan_workspace(plan) > workspace_bytes) {
        coh_cudnn_plan_destroy(plan);
        plan = NULL;
        refusal = "it wants more workspace than was planned for";
    }
    if (plan == NULL)
        tell_refusal(plans, shape, refusal);
    plans->entries[plans->count++] = (entry){ *shape, plan };
    *out_plan = plan;
    return COH_OK;
}

/* ---- which shapes ---- */

static int takes(const coh_attention *a)
{
    return coh_cudnn_takes_heads(a->dtype, a->T, a->D) && a->drop.threshold == 0 &&
           a->window == 0 && a->positions == NULL && a->scale == 0 && a->cap == 0 &&
           a->q_stride % 8 == 0 && a->kv_stride % 8 == 0 &&
           COH_CUDA_PACKED(a->q, a->k, a->v, a->y, a->dy, a->dq, a->dk, a->dv);
}

static int takes_backward(const coh_attention *a)
{
    return takes(a) && a->dq != NULL && a->dk != NULL && a->dv != NULL && !a->dq_adds &&
           !a->dk_adds && !a->dv_adds &&
           (a->atomics ? a->dq != a->dy : coh_cudnn_cut_of(a->B, a->T, a->H, a->G, a->D).B > 0);
}

static coh_cudnn_shape shape_of(const coh_attention *a, int64_t B, int64_t G, int is_backward)
{
    return (coh_cudnn_shape){ .B = B,
                              .T = a->T,
                              .H = G * (a->H / a->G),
                              .G = G,
                              .D = a->D,
                              .q_stride = a->q_stride,
                              .kv_stride = a->kv_stride,
                              .y_stride = a->H * a->D,
                              .is_backward = is_backward,
                              .atomics = is_backward && a->atomics };
}

static coh_status find_forward(coh_attention_plans *plans, const coh_attention *a,
                               coh_cudnn_plan **out_plan)
{
    const coh_cudnn_shape shape = shape_of(a, a->B, a->G, 0);
    return find_plan(plans, &shape, plans->config.workspace_bytes, out_plan);
}

static coh_status find_backward(coh_attention_plans *plans, const coh_attention *a,
                                coh_cudnn_plan **out_plan)
{
    const coh_cudnn_cut whole = { a->B, a->G },
                        cut = a->atomics ? whole : coh_cudnn_cut_of(a->B, a->T, a->H, a->G, a->D);
    const coh_cudnn_shape shape = shape_of(a, cut.B, cut.G, 1);
    const int64_t bytes = a->atomics ? coh_cudnn_atomic_plan_bytes(a->B, a->T, a->H, a->G, a->D)
                                     : coh_cudnn_plan_bytes(cut.B, a->T, shape.H, cut.G, a->D);
    return find_plan(plans, &shape, (size_t)bytes, out_plan);
}

/* ---- passes ---- */

static coh_attention_plans *plans_of(void *queue)
{
    const coh_cuda_libraries *libraries = coh_cuda_queue_libraries(queue);
    return libraries != NULL ? libraries->attention : NULL;
}

/* Most commands that a plan enqueues, as far as known: the backward and the sums of shared
 * gradients; with atomics also the clearing and rounding of dq's sums. */
enum { PLAN_COMMANDS = 8 };

/* In a rehearsal: prepares the execution, and runs a plan that has never run. */
static coh_status execute(coh_cuda_queue *queue, const coh_attention_plans *plans,
                          coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors)
{
    const int runs = !queue->is_rehearsing || !coh_cudnn_plan_has_run(plan);
    if (runs && !coh_cuda_queue_admit(queue, PLAN_COMMANDS))
        return COH_OK;
    const cudnnStatus_t status =
        runs ? coh_cudnn_plan_execute(plan, tensors) : coh_cudnn_plan_prepare(plan, tensors);
    if (status == CUDNN_STATUS_SUCCESS)
        return COH_OK;
    return coh_fail(COH_ERR_DEVICE, "cudnnBackendExecute of attention: %s",
                    plans->config.call->cudnnGetErrorString(status));
}

int coh_cudnn_attention(void *queue, const coh_attention *a)
{
    coh_cuda_queue *q = queue;
    coh_attention_plans *plans = plans_of(queue);
    coh_cudnn_plan *plan = NULL;
    if (plans == NULL || !takes(a))
        return 0;
    const coh_cudnn_tensors tensors = { .q = a->q,
                                        .k = a->k,
                                        .v = a->v,
                                        .y = a->y,
                                        .statistics = a->lse,
                                        .workspace = plans->config.workspace };
    coh_status status = find_forward(plans, a, &plan);
    if (status == COH_OK && plan == NULL)
        return 0;
    if (status == COH_OK)
        status = execute(q, plans, plan, &tensors);
    coh_cuda_queue_fail(q, status);
    return 1;
}

static void *bf16_at(const void *tensor, int64_t element)
{
    return (char *)(uintptr_t)tensor + 2 * element;
}

/* Returns the addresses for sequences from `b` and heads of keys from `g` on; `dy` begins at
 * sequence b. */
static coh_cudnn_tensors tensors_of(const coh_attention *a, const void *dy, int64_t b, int64_t g)
{
    const int64_t row = b * a->T, h = g * (a->H / a->G), of_head = (b * a->H + h) * a->T;
    const int64_t q = row * a->q_stride + h * a->D, kv = row * a->kv_stride + g * a->D;
    return (coh_cudnn_tensors){ .q = bf16_at(a->q, q),
                                .k = bf16_at(a->k, kv),
                                .v = bf16_at(a->v, kv),
                                .dy = bf16_at(dy, h * a->D),
                                .y = bf16_at(a->y, (row * a->H + h) * a->D),
                                .dq = bf16_at(a->dq, q),
                                .dk = bf16_at(a->dk, kv),
                                .dv = bf16_at(a->dv, kv),
                                .statistics = a->lse + of_head,
                                .delta = a->scratch + of_head };
}

static coh_status copy_dy(coh_cuda_queue *queue, void *copy, const void *dy, size_t bytes)
{
    if (queue->is_rehearsing || !coh_cuda_queue_admit(queue, 1))
        return COH_OK;
    return coh_cuda_check(
        queue->driver,
        queue->driver->cuMemcpyAsync((CUdeviceptr)copy, (CUdeviceptr)dy, bytes, queue->stream),
        "cuMemcpyAsync of %zu bytes of dy", bytes);
}

/* cuDNN still reads dy after it has begun to write dq. So if dq shares memory with dy, it gets a
 * copy of dy. */
static coh_status backward(coh_cuda_queue *queue, const coh_attention_plans *plans,
                           coh_cudnn_plan *plan, const coh_attention *a)
{
    const coh_cudnn_cut cut = coh_cudnn_cut_of(a->B, a->T, a->H, a->G, a->D);
    char *copy = (char *)a->scratch + coh_attention_scratch_part(4 * a->B * a->H * a->T);
    const size_t bytes = (size_t)(2 * cut.B * a->T * a->H * a->D);
    for (int64_t b = 0; b < a->B; b += cut.B) {
        const void *dy = bf16_at(a->dy, b * a->T * a->H * a->D);
        if (a->dq == a->dy) {
            COH_TRY(copy_dy(queue, copy, dy, bytes));
            dy = copy;
        }
        for (int64_t g = 0; g < a->G; g += cut.G) {
            coh_cudnn_tensors tensors = tensors_of(a, dy, b, g);
            tensors.workspace = copy + coh_attention_scratch_part((int64_t)bytes);
            COH_TRY(execute(queue, plans, plan, &tensors));
        }
    }
    return COH_OK;
}

static coh_status backward_by_atomics(coh_cuda_queue *queue, const coh_attention_plans *plans,
                                      coh_cudnn_plan *plan, const coh_attention *a)
{
    const int64_t rows = a->B * a->H * a->T;
    coh_cudnn_tensors tensors = tensors_of(a, a->dy, 0, 0);
    char *sum = (char *)a->scratch + coh_attention_scratch_part(4 * rows);
    tensors.dq_sum = (float *)(void *)sum;
    tensors.workspace = sum + coh_attention_scratch_part(4 * rows * a->D);
    return execute(queue, plans, plan, &tensors);
}

int coh_cudnn_attention_backward(void *queue, const coh_attention *a)
{
    coh_cuda_queue *q = queue;
    coh_attention_plans *plans = plans_of(queue);
    coh_cudnn_plan *plan = NULL;
    if (plans == NULL || !takes_backward(a))
        return 0;
    coh_status status = find_backward(plans, a, &plan);
    if (status == COH_OK && plan == NULL)
        return 0;
    if (status == COH_OK)
        status = (a->atomics ? backward_by_atomics : backward)(q, plans, plan, a);
    coh_cuda_queue_fail(q, status);
    return 1;
}
