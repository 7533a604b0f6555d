/* Measures causal attention in bf16 on a GPU, three sides in turns: our kernels, the fallback where
 * cuDNN is missing or has no plan; coh_attention as in a run, which cuts cuDNN's backward pass
 * (kernels/cuda/attention_scratch.h); and cuDNN itself, with the whole shape at once and all the
 * workspace it wants. All are without atomics. Backward has a fourth side: what `--atomics on` uses
 * instead of the cut. The heads are those of GPT-2, of a 7B model, and of a model whose heads share
 * keys. Half of the square counts as work. With cuBLASLt, rates are also given as a fraction of the
 * roof of products (gpu_bare.h).
 *
 *     gpu_attention [DIVISOR]    divides tokens and sequences, default 1; 77: there is no GPU, or
 *                                no cuDNN */
#include <stdio.h>

#include "benchmarks/gpu_bare.h"
#include "benchmarks/gpu_turns.h"
#include "benchmarks/gpu_whole.h"
#include "benchmarks/measure.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/kernels.h"

enum { TENSORS = 8 };
#define TENSOR_ELEMENTS ((int64_t)1 << 25) /* in the largest shape */
#define LSE_BYTES       ((size_t)4 << 20)
/* For the uncut backward of 7B's heads: squares of 1 GiB, gradients of shared keys 128 MiB. */
#define SCRATCH_BYTES ((size_t)1280 << 20)
#define GOAL          1.0 /* ratio to cuDNN's own time */

typedef struct attention {
    gpu_turns *turns;
    int64_t divisor;
    double roof; /* GFLOP/s; 0: not known */
    int is_backward;
    coh_attention call;
} attention;

typedef struct shape {
    const char *name;
    int64_t B, T, H, G, D;
} shape;

static const shape shapes[] = {
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
        coh_kernel_attention_backward(a->turns->queue, &a->call);
    else
        coh_kernel_attention(a->turns->queue, &a->call);
}

static size_t tensor_bytes(int64_t divisor)
{
    return (size_t)(TENSOR_ELEMENTS / divisor) * sizeof(uint16_t) / 256 * 256;
}

static uint64_t arena_bytes(int64_t divisor)
{
    return TENSORS * tensor_bytes(divisor) + LSE_BYTES + SCRATCH_BYTES;
}

static char *tensor(const attention *a, int index)
{
    return a->turns->arena + (size_t)index * tensor_bytes(a->divisor);
}

static void set_call(attention *a, const shape *s)
{
    a->call = (coh_attention){ .B = s->B > a->divisor ? s->B / a->divisor : 1,
                               .T = s->T / a->divisor,
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

static void print(const attention *a, const char *name, const char *side,
                  double ours_s[MEASURE_PAIRS], double ceiling_s[MEASURE_PAIRS], double goal)
{
    char row[128];
    measure_result result;
    const double products = a->is_backward ? 5 : 2;
    const coh_attention *c = &a->call;
    const measure_aims aims = { .goal = goal, .roof = a->roof };
    measure_compare(ours_s, ceiling_s, &result);
    snprintf(row, sizeof(row), "%s%s", name, side);
    measure_print_aims("gpu_attention", row,
                       1e-9 * products * (double)(c->B * c->H * c->T * c->T * c->D), "GFLOP",
                       &result, &aims);
}

/* Reports whether cuDNN has a plan by atomics, and room for its scratch. Without one, our own
 * kernels would be measured. */
static coh_status find_atomic(attention *atomic, const char *name, int *out_has)
{
    const coh_attention *c = &atomic->call;
    const coh_attention_plans *plans = atomic->turns->libraries->attention;
    const int64_t known = coh_attention_plans_count(plans);
    *out_has = 0;
    if (!atomic->is_backward)
        return COH_OK;
    if (coh_cuda_attention_atomic_bytes(c->dtype, c->B, c->T, c->H, c->G, c->D) <= SCRATCH_BYTES)
        COH_TRY(gpu_turns_once(atomic->turns, enqueue, atomic));
    *out_has = coh_attention_plans_count(plans) > known;
    if (!*out_has)
        fprintf(stderr, "gpu_attention: cuDNN has no plan by atomics for %s\n", name);
    return COH_OK;
}

/* If cuDNN cannot run the whole shape, our kernels are only compared with the cut. */
static coh_status measure_sides_of(attention *a, const char *name, gpu_whole *whole)
{
    enum { OURS, ALONE, OTHERS };
    double seconds[GPU_SIDES_MOST][MEASURE_PAIRS];
    gpu_side sides[GPU_SIDES_MOST] = { [OURS] = { .work = enqueue, .context = a },
                                       [ALONE] = { .work = enqueue, .context = a, .is_alone = 1 } };
    int count = OTHERS, whole_at = 0, atomic_at = 0, has_atomic;
    attention atomic = *a;
    atomic.call.atomics = 1;
    COH_TRY(find_atomic(&atomic, name, &has_atomic));
    if (whole->plan != NULL)
        sides[whole_at = count++] = (gpu_side){ .work = gpu_whole_enqueue, .context = whole };
    if (has_atomic)
        sides[atomic_at = count++] = (gpu_side){ .work = enqueue, .context = &atomic };
    COH_TRY(gpu_turns_take(a->turns, sides, count, seconds));
    if (whole_at > 0) {
        print(a, name, "", seconds[OURS], seconds[whole_at], GOAL);
        print(a, name, ", own kernels", seconds[ALONE], seconds[whole_at], 0.0);
    } else {
        print(a, name, ", own kernels against the cut", seconds[ALONE], seconds[OURS], 0.0);
    }
    if (atomic_at > 0)
        print(a, name, ", by atomics against the cut", seconds[atomic_at], seconds[OURS], 0.0);
    return COH_OK;
}

static coh_status measure_pass(attention *a, const shape *s)
{
    char name[64];
    gpu_whole whole;
    snprintf(name, sizeof(name), "%s %s", s->name, a->is_backward ? "backward" : "forward");
    const int64_t known = coh_attention_plans_count(a->turns->libraries->attention);
    /* Forward leaves the inputs of backward, and plans are made. */
    COH_TRY(gpu_turns_once(a->turns, enqueue, a));
    if (coh_attention_plans_count(a->turns->libraries->attention) == known) {
        fprintf(stderr, "gpu_attention: cuDNN has no plan for %s\n", name);
        return COH_OK;
    }
    coh_status status = gpu_whole_open(a->turns, &a->call, a->is_backward, SCRATCH_BYTES, &whole);
    if (whole.refusal[0] != '\0')
        fprintf(stderr, "gpu_attention: %s uncut is not measured: %s\n", name, whole.refusal);
    if (status == COH_OK)
        status = measure_sides_of(a, name, &whole);
    gpu_whole_close(&whole);
    return status;
}

static coh_status measure_shape(attention *a, const shape *s)
{
    set_call(a, s);
    if (coh_cuda_attention_scratch_bytes(COH_DTYPE_BF16, a->call.B, a->call.T, s->H, s->G, s->D) >
        SCRATCH_BYTES)
        return coh_fail(COH_ERR_FULL, "attention of %s needs more scratch than %zu bytes", s->name,
                        SCRATCH_BYTES);
    for (a->is_backward = 0; a->is_backward < 2; a->is_backward++)
        COH_TRY(measure_pass(a, s));
    return COH_OK;
}

/* Call before the tensors are filled: the products overwrite them. */
static coh_status measure_roof(attention *a)
{
    double flops_per_s = 0.0;
    gpu_bare bare = { 0 };
    if (a->turns->libraries->products == NULL) {
        fprintf(stderr, "gpu_attention: the roof of products: cuBLASLt is not on this machine\n");
        return COH_OK;
    }
    coh_status status = gpu_bare_open(a->turns, &bare);
    if (status == COH_OK)
        status = gpu_bare_roof(&bare, "gpu_attention", COH_DTYPE_BF16, a->divisor, &flops_per_s);
    gpu_bare_close(&bare);
    a->roof = 1e-9 * flops_per_s;
    return status;
}

static coh_status measure(gpu_turns *turns, int64_t divisor)
{
    attention a = { .turns = turns, .divisor = divisor };
    COH_TRY(measure_roof(&a));
    COH_TRY(gpu_turns_fill(turns, COH_DTYPE_BF16, TENSORS * tensor_bytes(divisor)));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        COH_TRY(measure_shape(&a, &shapes[i]));
    return COH_OK;
}

static const char *missing(const coh_cuda_libraries *libraries)
{
    return libraries->attention == NULL ? "cuDNN" : NULL;
}

int main(int argc, char **argv)
{
    static const gpu_program program = { .name = "gpu_attention",
                                         .divided = "tokens and sequences",
                                         .arena_bytes = arena_bytes,
                                         .missing = missing,
                                         .measure = measure };
    return gpu_turns_main(&program, argc, argv);
}
