/* Causal attention in bf16 on a GPU: our kernels, which serve where cuDNN is not or has no plan,
 * against cuDNN's plans, both as coh_attention asks for them and both without atomics: heads of
 * GPT-2, of a 7B model, and of one whose heads share keys. Half of the square counts as work. What
 * the products of attention could reach is gpu_products' 8192 cubed.
 *
 *     gpu_attention [DIVISOR]    of the tokens, 1 unless told; 77: there is no GPU, or no cuDNN */
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/rng.h"
#include "benchmarks/gpu_turns.h"
#include "benchmarks/measure.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/kernels.h"

enum { TENSORS = 8, DIVISOR_MOST = 256 };
#define TENSOR_ELEMENTS ((int64_t)1 << 25) /* of the largest shape */
#define TENSOR_BYTES    ((size_t)TENSOR_ELEMENTS * sizeof(uint16_t))
#define LSE_BYTES       ((size_t)4 << 20)
#define SCRATCH_BYTES   ((size_t)512 << 20)
#define ARENA_BYTES     (TENSORS * TENSOR_BYTES + LSE_BYTES + SCRATCH_BYTES)

static const coh_device_ops *const ops = &coh_device_cuda;

typedef struct attention {
    gpu_turns turns;
    int64_t divisor;
    int is_backward;
    coh_attention call;
} attention;

static const struct shape {
    const char *name;
    int64_t B, T, H, G, D;
} shapes[] = {
    { "124M", 8, 1024, 12, 12, 64 },
    { "XL", 8, 1024, 25, 25, 64 },
    { "7B", 4, 2048, 32, 32, 128 },
    { "8B grouped", 4, 2048, 32, 8, 128 },
};

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    const attention *a = context;
    (void)number;
    (void)index;
    if (a->is_backward)
        coh_kernel_attention_backward(a->turns.queue, &a->call);
    else
        coh_kernel_attention(a->turns.queue, &a->call);
}

static char *tensor(const attention *a, int index)
{
    return a->turns.arena + (size_t)index * TENSOR_BYTES;
}

static void set_call(attention *a, const struct shape *s, int64_t T)
{
    a->call = (coh_attention){ .B = s->B,
                               .T = T,
                               .H = s->H,
                               .G = s->G,
                               .D = s->D,
                               .dtype = COH_DTYPE_BF16,
                               .q_stride = s->H * s->D,
                               .kv_stride = s->G * s->D,
                               .q = tensor(a, 0),
                               .k = tensor(a, 1),
                               .v = tensor(a, 2),
                               .y = tensor(a, 3),
                               .dy = tensor(a, 4),
                               .dq = tensor(a, 5),
                               .dk = tensor(a, 6),
                               .dv = tensor(a, 7),
                               .lse = (float *)(void *)tensor(a, TENSORS),
                               .scratch = (float *)(void *)(tensor(a, TENSORS) + LSE_BYTES) };
}

static coh_status measure_shape(attention *a, const struct shape *s)
{
    static const char *const passes[] = { "forward", "backward" };
    static const double products[] = { 2, 5 };
    const int64_t T = s->T / a->divisor,
                  known = coh_attention_plans_count(a->turns.libraries->attention);
    measure_result result;
    set_call(a, s, T);
    if (coh_cuda_attention_scratch_bytes(COH_DTYPE_BF16, s->B, T, s->H, s->G, s->D) > SCRATCH_BYTES)
        return coh_fail(COH_ERR_FULL, "attention of %s needs more scratch than %zu bytes", s->name,
                        SCRATCH_BYTES);
    for (a->is_backward = 0; a->is_backward < 2; a->is_backward++) {
        char name[64];
        /* The forward pass leaves what the backward one reads, and plans are made. */
        gpu_turns_libraries(&a->turns);
        COH_TRY(ops->failure(a->turns.device));
        snprintf(name, sizeof(name), "%s %s", s->name, passes[a->is_backward]);
        if (coh_attention_plans_count(a->turns.libraries->attention) <= known + a->is_backward) {
            fprintf(stderr, "gpu_attention: cuDNN has no plan for %s\n", name);
            continue;
        }
        measure_pairs(gpu_turns_ours, gpu_turns_libraries, &a->turns, &result);
        measure_print("gpu_attention", name,
                      1e-9 * GPU_TURNS_CALLS * products[a->is_backward] *
                          (double)(s->B * s->H * T * T * s->D),
                      "GFLOP", &result);
        COH_TRY(ops->failure(a->turns.device));
    }
    return COH_OK;
}

/* Normal numbers, one piece again and again. */
static coh_status fill(const attention *a)
{
    enum { PIECE = 1 << 20 };
    static uint16_t piece[PIECE];
    for (int i = 0; i < PIECE; i++)
        piece[i] = coh_bf16_of_f32((float)coh_rng_normal(1, 2, (uint64_t)i));
    for (size_t at = 0; at < TENSORS * TENSOR_BYTES; at += sizeof(piece))
        COH_TRY(ops->put(a->turns.device, a->turns.arena + at, piece, sizeof(piece)));
    return COH_OK;
}

int main(int argc, char **argv)
{
    attention a = { .divisor = argc > 1 ? atoll(argv[1]) : 1 };
    a.turns.work = enqueue;
    a.turns.context = &a;
    if (a.divisor < 1 || a.divisor > DIVISOR_MOST) {
        fprintf(stderr, "gpu_attention: tokens are divided by 1 to %d\n", DIVISOR_MOST);
        return 2;
    }
    coh_status status = gpu_turns_open(&a.turns, ARENA_BYTES);
    int is_absent = status != COH_OK && a.turns.device == NULL;
    if (status == COH_OK && a.turns.libraries->attention == NULL) {
        fprintf(stderr, "gpu_attention: cuDNN is not on this machine\n");
        is_absent = 1;
    } else if (status == COH_OK) {
        status = fill(&a);
        for (size_t i = 0; status == COH_OK && i < sizeof(shapes) / sizeof(shapes[0]); i++)
            status = measure_shape(&a, &shapes[i]);
    }
    if (status != COH_OK)
        fprintf(stderr, "gpu_attention: %s\n", coh_last_error());
    gpu_turns_close(&a.turns);
    return is_absent ? MEASURE_ABSENT : status != COH_OK;
}
