/* The kernels that are passes over memory, in both element types, against the roof of their bytes:
 * what they read and write is copied past the caches, what they only read is read. The tensors are
 * larger than a last-level cache, so a step, whose tensors may still be in it, can only do better.
 *
 *     rows 2 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "benchmarks/measure.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"

enum { N = 16384, C = 768, T = 256, ROWS_OF_TABLE = 50257, PIECE_BYTES = 1 << 20 };
#define ELEMENTS       ((int64_t)N * C)
#define SOFTMAX_ROWS   16 /* rows of COH_ROW_BLOCK logits, as the classifier cuts them */
#define SOFTMAX_PIECES (ELEMENTS / COH_ROW_BLOCK / SOFTMAX_ROWS)

typedef struct tensors {
    coh_pool *pool;
    coh_dtype dtype;
    size_t element_bytes;
    char *x, *y, *dy, *dx;           /* [N, C] */
    char *table, *dtable;            /* [ROWS_OF_TABLE, C] */
    char *weight, *dweight, *dbias;  /* [N]: the first C or T x C are used */
    float *mean, *rstd, *partials;   /* [N], [N] */
    int32_t *tokens, *order;         /* [N], and scratch to sort them */
    size_t read_bytes, copied_bytes; /* of the roof: only read, and read and written */
    _Atomic uint64_t sum;
} tensors;

static coh_norm norm_of(const tensors *t)
{
    return (coh_norm){ .N = N,
                       .C = C,
                       .dtype = t->dtype,
                       .epsilon = 1e-5f,
                       .x = t->x,
                       .weight = t->weight,
                       .bias = t->weight,
                       .y = t->y,
                       .mean = t->mean,
                       .rstd = t->rstd,
                       .dy = t->dy,
                       .dx = t->dx,
                       .dweight = t->dweight,
                       .dbias = t->dbias,
                       .partials = t->partials };
}

static coh_embedding embedding_of(const tensors *t)
{
    return (coh_embedding){
        .N = N,
        .C = C,
        .row_end = ROWS_OF_TABLE,
        .tokens = t->tokens,
        .dtype = t->dtype,
        .order = t->order,
    };
}

static void norm(void *argument)
{
    tensors *t = argument;
    coh_norm n = norm_of(t);
    coh_kernel_norm(t->pool, &n);
}

static void norm_backward(void *argument)
{
    tensors *t = argument;
    coh_norm n = norm_of(t);
    coh_kernel_norm_backward(t->pool, &n);
}

static void gelu(void *argument)
{
    tensors *t = argument;
    coh_kernel_gelu(t->pool, t->dtype, t->y, t->x, ELEMENTS);
}

static void gelu_backward(void *argument)
{
    tensors *t = argument;
    coh_kernel_gelu_backward(t->pool, t->dtype, t->dx, t->dy, t->x, ELEMENTS, 0);
}

static void position(void *argument)
{
    tensors *t = argument;
    coh_kernel_position(t->pool, t->dtype, t->y, t->x, t->table, N / T, T, C);
}

static void embedding(void *argument)
{
    tensors *t = argument;
    coh_embedding e = embedding_of(t);
    coh_kernel_embedding(t->pool, &e, t->y, t->table);
}

static void embedding_backward(void *argument)
{
    tensors *t = argument;
    coh_embedding e = embedding_of(t);
    coh_kernel_embedding_backward(t->pool, &e, t->dtable, t->dy, 0);
}

static void column_sum(void *argument)
{
    tensors *t = argument;
    coh_kernel_column_sum(t->pool, t->dtype, t->dbias, t->dy, N, C, 0);
}

/* What the classifier does with a tile between its products, SOFTMAX_ROWS at a time: a pass for the
 * loss, and one that turns the tile into gradients in place. */
static void softmax_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    for (int64_t row = index * SOFTMAX_ROWS; row < (index + 1) * SOFTMAX_ROWS; row++) {
        float max = -INFINITY, sum = 0.0f;
        coh_rows_for(t->dtype)->softmax_take(coh_element_const(t->dtype, t->x, row * COH_ROW_BLOCK),
                                             COH_ROW_BLOCK, &max, &sum);
        t->mean[row] = max;
        t->rstd[row] = sum;
    }
}

/* What is near one comes near a quarter, the more often the nearer: y never leaves the numbers. */
static void softmax_backward_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    for (int64_t row = index * SOFTMAX_ROWS; row < (index + 1) * SOFTMAX_ROWS; row++)
        coh_rows_for(t->dtype)->softmax_again(coh_element(t->dtype, t->y, row * COH_ROW_BLOCK),
                                              COH_ROW_BLOCK, 1.0f, 0.5f);
}

static void softmax(void *argument)
{
    coh_pool_run(((tensors *)argument)->pool, SOFTMAX_PIECES, softmax_piece, argument);
}

static void softmax_backward(void *argument)
{
    coh_pool_run(((tensors *)argument)->pool, SOFTMAX_PIECES, softmax_backward_piece, argument);
}

/* ---- the roof ---- */

static void copy_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    size_t at = (size_t)index * PIECE_BYTES % ((size_t)ELEMENTS * t->element_bytes);
    measure_copy_past_caches(t->y + at / 64 * 64, t->x + at / 64 * 64, PIECE_BYTES);
}

static void read_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    size_t at = (size_t)index * PIECE_BYTES % ((size_t)ELEMENTS * t->element_bytes);
    t->sum += measure_read(t->dy + at / 64 * 64, PIECE_BYTES);
}

static void roof(void *argument)
{
    tensors *t = argument;
    coh_pool_run(t->pool, (int64_t)(t->copied_bytes / 2 / PIECE_BYTES), copy_piece, t);
    coh_pool_run(t->pool, (int64_t)(t->read_bytes / PIECE_BYTES), read_piece, t);
}

/* tensors of [N, C] that are read, and that are written, and bytes beside them */
static const struct pass {
    const char *name;
    void (*run)(void *);
    int read, written;
    int table_is_written;
} passes[] = { { "norm", norm, 1, 1, 0 },
               { "norm backward", norm_backward, 2, 1, 0 },
               { "gelu", gelu, 1, 1, 0 },
               { "gelu backward", gelu_backward, 2, 1, 0 },
               { "position", position, 1, 1, 0 },
               { "embedding", embedding, 1, 1, 0 },
               { "embedding backward", embedding_backward, 1, 0, 1 },
               { "column sum", column_sum, 1, 0, 0 },
               { "softmax", softmax, 1, 0, 0 },
               { "softmax backward", softmax_backward, 1, 1, 0 } };

static void measure_pass(tensors *t, const struct pass *pass)
{
    char shape[64];
    measure_result result;
    size_t tensor_bytes = (size_t)ELEMENTS * t->element_bytes;
    size_t written = tensor_bytes * (size_t)pass->written +
                     (pass->table_is_written ? (size_t)ROWS_OF_TABLE * C * t->element_bytes : 0);
    size_t read = tensor_bytes * (size_t)pass->read, both = read < written ? read : written;
    /* writes without reads have no roof of their own here: half a copy's bytes each */
    t->copied_bytes = 2 * both + (written - both);
    t->read_bytes = read - both;
    measure_pairs(pass->run, roof, t, &result);
    snprintf(shape, sizeof(shape), "%s %s", pass->name, t->dtype == COH_DTYPE_F32 ? "f32" : "bf16");
    measure_print("rows", shape, 1e-9 * (double)(read + written), "GB", &result);
}

static char *tensor(size_t bytes)
{
    return aligned_alloc(64, (bytes + PIECE_BYTES + 63) / 64 * 64);
}

/* Values around zero, in either type: the sign and two bits vary. */
static void fill(char *x, const tensors *t, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (i * 2654435761u & 0x80000000u) | 0x3f000000u | (uint32_t)(i % 97) << 16;
        uint16_t high = (uint16_t)(bits >> 16);
        if (t->dtype == COH_DTYPE_F32)
            memcpy(x + i * 4, &bits, 4);
        else
            memcpy(x + i * 2, &high, 2);
    }
}

static int make(tensors *t)
{
    size_t bytes = (size_t)ELEMENTS * 4, table_bytes = (size_t)ROWS_OF_TABLE * C * 4;
    t->x = tensor(bytes);
    t->y = tensor(bytes);
    t->dy = tensor(bytes);
    t->dx = tensor(bytes);
    t->table = tensor(table_bytes);
    t->dtable = tensor(table_bytes);
    t->weight = tensor(N * 4);
    t->dweight = tensor(N * 4);
    t->dbias = tensor(N * 4);
    t->mean = calloc(N, sizeof(float));
    t->rstd = calloc(N, sizeof(float));
    t->partials = malloc((size_t)coh_kernel_norm_partials(N, C) * sizeof(float));
    t->tokens = malloc(N * sizeof(int32_t));
    t->order = malloc((size_t)coh_kernel_embedding_order(N) * sizeof(int32_t));
    if (!t->x || !t->y || !t->dy || !t->dx || !t->table || !t->dtable || !t->weight ||
        !t->dweight || !t->dbias || !t->mean || !t->rstd || !t->partials || !t->tokens || !t->order)
        return 1;
    for (int i = 0; i < N; i++)
        t->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % ROWS_OF_TABLE);
    memset(t->dtable, 0, table_bytes);
    memset(t->dx, 0, bytes);
    memset(t->y, 0, bytes);
    return 0;
}

int main(int argc, char **argv)
{
    static tensors t; /* lives as long as the process */
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    coh_kernels_start();
    if (coh_pool_create(argc > 1 ? atoi(argv[1]) : 2, &t.pool) != COH_OK || make(&t) != 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        t.dtype = dtypes[i];
        t.element_bytes = dtypes[i] == COH_DTYPE_F32 ? 4 : 2;
        fill(t.x, &t, ELEMENTS);
        fill(t.dy, &t, ELEMENTS);
        fill(t.table, &t, (int64_t)ROWS_OF_TABLE * C);
        fill(t.weight, &t, N);
        for (size_t j = 0; j < sizeof(passes) / sizeof(passes[0]); j++)
            measure_pass(&t, &passes[j]);
    }
    coh_pool_destroy(t.pool);
    return 0;
}
