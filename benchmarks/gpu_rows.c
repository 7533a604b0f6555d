/* The kernels of CUDA that are passes over memory, in both element types, against this GPU's own
 * copy of as many bytes (the driver's, from tensor to tensor): bytes are those that must be moved,
 * each operand once. Tensors have 2^27 elements, several second caches each, and random bits.
 *
 *     gpu_rows [C [ELEMENTS]]      rows of C elements, 4096 unless told, in tensors of so many; 77:
 *                                  there is no GPU */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "benchmarks/measure.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/scratch.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/quantise.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"

enum { T_MOST = 2048, CALLS = 8, TENSORS = 8, SQUARES = 5 }; /* SQUARES: what AdamW takes as v */
#define BOTH_SIGNS  0x80008000u
#define ELEMENTS    ((int64_t)1 << 27)
#define SMALL_BYTES ((size_t)256 << 20) /* for all that is not of ELEMENTS */

static const coh_device_ops *const ops = &coh_device_cuda;

typedef struct tensors {
    coh_device *device;
    coh_queue *queue;
    char *arena;
    size_t arena_bytes, used_bytes;
    uint64_t number;
    coh_dtype dtype;
    int64_t N, T, C;                /* T: rows of a sequence */
    int64_t most;                   /* elements of a tensor: at least N C */
    char *of[TENSORS];              /* [N, C], of f32 where they are longest */
    char *weight, *dweight, *dbias; /* [C] */
    float *mean, *rstd, *partials;
    int32_t *tokens, *order;
    coh_cells *cells;
    double *squares;
    const struct pass *pass;
    size_t roof_bytes; /* of one call of the pass */
} tensors;

static int64_t elements(const tensors *t)
{
    return t->N * t->C;
}

static coh_norm norm_of(const tensors *t)
{
    return (coh_norm){ .N = t->N,
                       .C = t->C,
                       .dtype = t->dtype,
                       .epsilon = 1e-5f,
                       .x = t->of[0],
                       .weight = t->weight,
                       .bias = t->weight,
                       .y = t->of[1],
                       .mean = t->mean,
                       .rstd = t->rstd,
                       .dy = t->of[2],
                       .dx = t->of[1],
                       .dweight = t->dweight,
                       .dbias = t->dbias,
                       .partials = t->partials };
}

static void norm(tensors *t)
{
    const coh_norm n = norm_of(t);
    coh_kernel_norm(t->queue, &n);
}

static void norm_backward(tensors *t)
{
    const coh_norm n = norm_of(t);
    coh_kernel_norm_backward(t->queue, &n);
}

static void gelu(tensors *t)
{
    coh_kernel_gelu(t->queue, t->dtype, t->of[1], t->of[0], elements(t));
}

static void gelu_backward(tensors *t)
{
    coh_kernel_gelu_backward(t->queue, t->dtype, t->of[1], t->of[2], t->of[0], elements(t), 0);
}

/* With bias gradients in the same pass. */
static void activation_gradient(tensors *t)
{
    const coh_activation_gradient g = { .activation = COH_ACTIVATION_GELU,
                                        .dtype = t->dtype,
                                        .N = t->N,
                                        .O = t->C,
                                        .dy = t->of[2],
                                        .of = t->of[0],
                                        .dh = t->of[1],
                                        .sums = t->dbias,
                                        .partials = t->partials };
    coh_kernel_activation_gradient(t->queue, &g);
}

static void swiglu(tensors *t)
{
    const coh_swiglu s = {
        .dtype = t->dtype, .count = elements(t), .gate = t->of[0], .up = t->of[2], .y = t->of[1]
    };
    coh_kernel_swiglu(t->queue, &s);
}

static void swiglu_backward(tensors *t)
{
    const coh_swiglu s = { .dtype = t->dtype,
                           .count = elements(t),
                           .gate = t->of[0],
                           .up = t->of[2],
                           .dy = t->of[3],
                           .dgate = t->of[1],
                           .dup = t->of[4] };
    coh_kernel_swiglu_backward(t->queue, &s);
}

static void dropout(tensors *t)
{
    const coh_dropout d = {
        .dtype = t->dtype,
        .count = elements(t),
        .drop = { .cell = &t->cells->random, .threshold = 0x1999999au, .scale = 1.0f / 0.9f },
        .x = t->of[0],
        .residual = t->of[2],
        .y = t->of[1]
    };
    coh_kernel_dropout(t->queue, &d);
}

static void rope(tensors *t)
{
    float frequencies[64];
    for (int c = 0; c < 64; c++)
        frequencies[c] = powf(1e4f, -(float)c / 64.0f);
    const coh_rope r = { .B = t->N / t->T,
                         .T = t->T,
                         .H = t->C / 128,
                         .D = 128,
                         .dtype = t->dtype,
                         .frequencies = frequencies,
                         .x = t->of[0],
                         .y = t->of[1] };
    coh_kernel_rope(t->queue, &r);
}

static void position(tensors *t)
{
    const coh_position p = { .dtype = t->dtype,
                             .B = t->N / t->T,
                             .T = t->T,
                             .C = t->C,
                             .rows = t->T,
                             .x = t->of[0],
                             .weight = t->of[2],
                             .y = t->of[1] };
    coh_kernel_position(t->queue, &p);
}

static coh_embedding embedding_of(const tensors *t)
{
    return (coh_embedding){ .N = t->N,
                            .C = t->C,
                            .row_end = t->N,
                            .tokens = t->tokens,
                            .dtype = t->dtype,
                            .order = t->order };
}

static void embedding(tensors *t)
{
    const coh_embedding e = embedding_of(t);
    coh_kernel_embedding(t->queue, &e, t->of[1], t->of[0]);
}

static void embedding_backward(tensors *t)
{
    const coh_embedding e = embedding_of(t);
    coh_kernel_embedding_backward(t->queue, &e, t->of[1], t->of[2], 0);
}

static void column_sum(tensors *t)
{
    coh_kernel_column_sum(t->queue, t->dtype, t->dbias, t->dtype, t->of[0], t->N, t->C, 0);
}

/* One tensor, as a chunk of grains. */
static coh_grain_run all_grains(const tensors *t)
{
    return (coh_grain_run){ .count = elements(t), .decays = 1 };
}

static void square_sums(tensors *t)
{
    const coh_grain_run run = all_grains(t);
    const coh_square_sums s = {
        .dtype = t->dtype, .grains = { &run, 1 }, .grad = t->of[2], .partials = t->squares
    };
    coh_kernel_square_sums(t->queue, &s);
}

static void update(tensors *t)
{
    const coh_grain_run run = all_grains(t);
    const coh_update u = { .dtype = t->dtype,
                           .grains = { &run, 1 },
                           .work = t->of[1],
                           .grad = t->of[2],
                           .low = t->dtype == COH_DTYPE_BF16 ? (uint16_t *)(void *)t->of[3] : NULL,
                           .m = (float *)(void *)t->of[4],
                           .v = (float *)(void *)t->of[SQUARES],
                           .cells = t->cells,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .epsilon = 1e-8f,
                           .decay = 0.1f };
    coh_kernel_update(t->queue, &u);
}

static void stochastic_round(tensors *t)
{
    const coh_stochastic_round r = { .count = elements(t),
                                     .rounding = { .cell = &t->cells->random },
                                     .x = (const float *)(const void *)t->of[0],
                                     .y = (uint16_t *)(void *)t->of[1] };
    coh_kernel_stochastic_round(t->queue, &r);
}

static void quantise(tensors *t)
{
    const coh_quantise q = { .count = elements(t),
                             .rounding = { .cell = &t->cells->random },
                             .x = (const float *)(const void *)t->of[0],
                             .codes = (int8_t *)t->of[1],
                             .scales = (float *)(void *)t->of[2] };
    coh_kernel_quantise(t->queue, &q);
}

static void dequantise(tensors *t)
{
    const coh_dequantise d = { .count = elements(t),
                               .codes = (const int8_t *)t->of[0],
                               .scales = (const float *)(const void *)t->of[2],
                               .y = (float *)(void *)t->of[1] };
    coh_kernel_dequantise(t->queue, &d);
}

/* What is read and written of each element: of its type, floats, and in bf16 numbers of 16 bits
 * (the lower half of a master) and bytes (codes; their scales are left out of the count). Passes
 * that are of no type are run with bf16's. */
static const struct pass {
    const char *name;
    void (*run)(tensors *t);
    int of_type, floats, halves, bytes;
} passes[] = {
    { "norm", norm, 2, 0, 0, 0 },
    { "norm backward", norm_backward, 3, 0, 0, 0 },
    { "gelu", gelu, 2, 0, 0, 0 },
    { "gelu backward", gelu_backward, 3, 0, 0, 0 },
    { "activation gradient", activation_gradient, 3, 0, 0, 0 },
    { "swiglu", swiglu, 3, 0, 0, 0 },
    { "swiglu backward", swiglu_backward, 5, 0, 0, 0 },
    { "dropout", dropout, 3, 0, 0, 0 },
    { "rope", rope, 2, 0, 0, 0 },
    { "position", position, 2, 0, 0, 0 },
    { "embedding", embedding, 2, 0, 0, 0 },
    { "embedding backward", embedding_backward, 2, 0, 0, 0 },
    { "column sum", column_sum, 1, 0, 0, 0 },
    { "square sums", square_sums, 1, 0, 0, 0 },
    { "update", update, 3, 4, 2, 0 },
    { "stochastic round", stochastic_round, 0, 1, 1, 0 },
    { "quantise", quantise, 0, 1, 0, 1 },
    { "dequantise", dequantise, 0, 1, 0, 1 },
};

/* ---- runs ---- */

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    tensors *t = context;
    (void)number;
    (void)index;
    t->pass->run(t);
}

static void ours(void *argument)
{
    tensors *t = argument;
    for (int i = 0; i < CALLS; i++)
        ops->launch(t->queue, enqueue, t, ++t->number, 0, NULL);
    ops->finish(t->queue);
}

/* Moves as many bytes: half of them are read, half written. */
static void roof(void *argument)
{
    const tensors *t = argument;
    const size_t most = (size_t)t->most * sizeof(float);
    for (int i = 0; i < CALLS; i++)
        for (size_t left = t->roof_bytes / 2; left > 0;) {
            const size_t bytes = left < most ? left : most;
            ops->copy(t->queue, t->of[TENSORS - 1], t->of[TENSORS - 2], bytes);
            left -= bytes;
        }
    ops->finish(t->queue);
}

static void measure_pass(tensors *t, const struct pass *pass)
{
    char shape[64];
    measure_result result;
    t->pass = pass;
    size_t bytes = (size_t)pass->of_type * coh_dtype_bytes(t->dtype);
    bytes += (size_t)pass->floats * sizeof(float);
    if (t->dtype == COH_DTYPE_BF16)
        bytes += (size_t)pass->halves * sizeof(uint16_t) + (size_t)pass->bytes;
    t->roof_bytes = (size_t)elements(t) * bytes;
    measure_pairs(ours, roof, t, &result);
    snprintf(shape, sizeof(shape), "%s %s", pass->name, t->dtype == COH_DTYPE_F32 ? "f32" : "bf16");
    measure_print("gpu_rows", shape, 1e-9 * CALLS * (double)t->roof_bytes, "GB", &result);
}

/* ---- memory ---- */

static void *take(tensors *t, size_t bytes)
{
    void *memory = t->arena + t->used_bytes;
    t->used_bytes += (bytes + 255) / 256 * 256;
    return t->used_bytes <= t->arena_bytes ? memory : NULL;
}

/* Numbers of about one hundredth in either type, of both signs or (signs 0) of none. */
static coh_status fill(tensors *t, void *tensor, size_t bytes, uint32_t signs)
{
    enum { PIECE = 1 << 20 };
    static uint32_t words[PIECE];
    uint32_t state = 12345;
    for (size_t at = 0; at < bytes; at += sizeof(words)) {
        for (int i = 0; i < PIECE; i++) {
            state = state * 1664525u + 1013904223u;
            words[i] = 0x3c003c00u | (state & (signs | 0x03ff03ffu));
        }
        const size_t rest = bytes - at;
        COH_TRY(ops->put(t->device, (char *)tensor + at, words,
                         rest < sizeof(words) ? rest : sizeof(words)));
    }
    return COH_OK;
}

static coh_status fill_small(tensors *t)
{
    static const coh_cells cells = {
        .update_rate = 1e-4f, .update_scale = 1.0f, .update_bias1 = 0.5f, .update_bias2 = 0.5f
    };
    const size_t token_bytes = (size_t)t->N * sizeof(int32_t);
    int32_t *tokens = malloc(token_bytes);
    if (tokens == NULL)
        return coh_fail(COH_ERR_MEMORY, "no memory for %zu bytes of tokens", token_bytes);
    for (int64_t i = 0; i < t->N; i++)
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)t->N);
    const coh_status status = ops->put(t->device, t->tokens, tokens, token_bytes);
    free(tokens);
    COH_TRY(status);
    COH_TRY(ops->put(t->device, t->cells, &cells, sizeof(cells)));
    COH_TRY(fill(t, t->rstd, (size_t)t->N * sizeof(float), 0));
    COH_TRY(fill(t, t->mean, (size_t)t->N * sizeof(float), BOTH_SIGNS));
    return fill(t, t->weight, (size_t)t->C * sizeof(float), BOTH_SIGNS);
}

static coh_status make(tensors *t)
{
    const size_t row = (size_t)t->C * sizeof(float), rows = (size_t)t->N * sizeof(float);
    const size_t norms = (size_t)coh_cuda_norm_partials(t->N, t->C);
    const size_t sums = (size_t)coh_kernel_activation_partials(t->N, t->C);
    for (int i = 0; i < TENSORS; i++) {
        t->of[i] = take(t, (size_t)t->most * sizeof(float));
        COH_TRY(fill(t, t->of[i], (size_t)t->most * sizeof(float), i == SQUARES ? 0 : BOTH_SIGNS));
    }
    t->weight = take(t, row);
    t->dweight = take(t, row);
    t->dbias = take(t, row);
    t->mean = take(t, rows);
    t->rstd = take(t, rows);
    t->partials = take(t, (norms > sums ? norms : sums) * sizeof(float));
    t->tokens = take(t, rows);
    t->order = take(t, (size_t)coh_cuda_embedding_order(t->N) * sizeof(int32_t));
    t->cells = take(t, sizeof(*t->cells));
    t->squares = take(t, (size_t)(t->most / COH_GRAIN_ELEMENTS + 1) * sizeof(double));
    if (t->squares == NULL)
        return coh_fail(COH_ERR_FULL, "rows of %lld elements need more scratch than %zu bytes",
                        (long long)t->C, SMALL_BYTES);
    return fill_small(t);
}

static coh_status open_gpu(tensors *t)
{
    const coh_device_config config = { .thread_count = 1, .kernels = &coh_cuda_device_kernels };
    const size_t tensor_bytes = TENSORS * (size_t)t->most * sizeof(float);
    void *arena = NULL;
    t->arena_bytes = tensor_bytes + SMALL_BYTES;
    COH_TRY(ops->create(&config, &t->device));
    COH_TRY(ops->arena_create(t->device, COH_TIER_DEVICE, COH_CUDA_LIBRARY_BYTES + t->arena_bytes,
                              &arena));
    t->arena = (char *)arena + COH_CUDA_LIBRARY_BYTES;
    COH_TRY(ops->queue_create(t->device, COH_LANE_COMPUTE, &t->queue));
    return make(t);
}

static void close_gpu(tensors *t)
{
    ops->queue_destroy(t->queue);
    if (t->arena != NULL)
        ops->arena_destroy(t->device, COH_TIER_DEVICE);
    ops->destroy(t->device);
}

int main(int argc, char **argv)
{
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    tensors t = { .C = argc > 1 ? atoll(argv[1]) : 4096,
                  .most = argc > 2 ? atoll(argv[2]) : ELEMENTS };
    if (t.C < 128 || t.C % 128 != 0 || t.most < t.C || t.most > ELEMENTS) {
        fprintf(stderr,
                "gpu_rows: rows of a multiple of 128 elements are measured, in tensors of one row "
                "to %lld elements\n",
                (long long)ELEMENTS);
        return 2;
    }
    t.T = t.most / t.C < T_MOST ? t.most / t.C : T_MOST;
    t.N = t.most / t.C / t.T * t.T;
    coh_status status = open_gpu(&t);
    if (status != COH_OK && t.device == NULL) {
        fprintf(stderr, "gpu_rows: %s\n", coh_last_error());
        return MEASURE_ABSENT;
    }
    for (int i = 0; i < 2 && status == COH_OK; i++) {
        t.dtype = dtypes[i];
        for (size_t j = 0; j < sizeof(passes) / sizeof(passes[0]) && status == COH_OK; j++) {
            if (passes[j].of_type == 0 && t.dtype == COH_DTYPE_F32)
                continue;
            measure_pass(&t, &passes[j]);
            status = ops->failure(t.device);
        }
    }
    if (status != COH_OK)
        fprintf(stderr, "gpu_rows: %s\n", coh_last_error());
    close_gpu(&t);
    return status != COH_OK;
}
