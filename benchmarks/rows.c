/* Compares the kernels that are passes over memory, in both element types, with the roof of their
 * bytes: bytes read and written are copied with non-temporal stores, bytes only read are read. Each
 * tensor, including the table, has four times the bytes of this machine's last-level cache, so no
 * call finds data of the call before; in a step, tensors may still be cached, which can only be
 * faster.
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

enum { C = 768, T = 256, PIECE_BYTES = 1 << 20, CACHES = 4 };
#define SOFTMAX_ROWS 16 /* rows of COH_ROW_BLOCK logits, as in the classifier */

typedef struct tensors {
    coh_pool *pool;
    coh_dtype dtype;
    size_t element_bytes;
    int64_t N;                       /* a multiple of T, depends on the type */
    char *x, *y, *dy, *dx;           /* [N, C] */
    char *table, *dtable;            /* [N, C]: as many rows as tokens */
    char *weight, *dweight, *dbias;  /* [C] */
    float *mean, *rstd, *partials;   /* [N], [N] */
    int32_t *tokens, *order;         /* [N], and scratch to sort them */
    size_t read_bytes, copied_bytes; /* of the roof: bytes only read, and bytes read and written */
    _Atomic uint64_t sum;
} tensors;

static int64_t elements(const tensors *t)
{
    return t->N * C;
}

static coh_norm norm_of(const tensors *t)
{
    return (coh_norm){ .N = t->N,
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
        .N = t->N,
        .C = C,
        .row_end = t->N,
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

/* Norms by root mean square. */
static void rms(void *argument)
{
    tensors *t = argument;
    coh_norm n = norm_of(t);
    n.mean = NULL;
    coh_kernel_norm(t->pool, &n);
}

static void rms_backward(void *argument)
{
    tensors *t = argument;
    coh_norm n = norm_of(t);
    n.mean = NULL;
    n.dbias = NULL;
    coh_kernel_norm_backward(t->pool, &n);
}

static void relu(void *argument)
{
    tensors *t = argument;
    coh_kernel_activate(t->pool, COH_ACTIVATION_RELU, t->dtype, t->y, t->x, elements(t));
}

static void relu_backward(void *argument)
{
    tensors *t = argument;
    coh_kernel_activate_backward(t->pool, COH_ACTIVATION_RELU, t->dtype, t->dx, t->dy, t->x,
                                 elements(t), 0);
}

static void swiglu(void *argument)
{
    tensors *t = argument;
    const coh_swiglu s = {
        .dtype = t->dtype, .count = elements(t), .gate = t->x, .up = t->dy, .y = t->y
    };
    coh_kernel_swiglu(t->pool, &s);
}

static void swiglu_backward(void *argument)
{
    tensors *t = argument;
    const coh_swiglu s = { .dtype = t->dtype,
                           .count = elements(t),
                           .gate = t->x,
                           .up = t->table,
                           .dy = t->dy,
                           .dgate = t->dx,
                           .dup = t->dtable };
    coh_kernel_swiglu_backward(t->pool, &s);
}

/* Heads of 64 channels. */
static void rope(void *argument)
{
    tensors *t = argument;
    float frequencies[32];
    for (int c = 0; c < 32; c++)
        frequencies[c] = powf(1e4f, -(float)c / 32.0f);
    const coh_rope r = { .B = t->N / T,
                         .T = T,
                         .H = C / 64,
                         .D = 64,
                         .x_stride = C,
                         .y_stride = C,
                         .magnitude = 1.0f,
                         .dtype = t->dtype,
                         .frequencies = frequencies,
                         .x = t->x,
                         .y = t->y };
    coh_kernel_rope(t->pool, &r);
}

static void gelu(void *argument)
{
    tensors *t = argument;
    coh_kernel_activate(t->pool, COH_ACTIVATION_GELU, t->dtype, t->y, t->x, elements(t));
}

static void gelu_backward(void *argument)
{
    tensors *t = argument;
    coh_kernel_activate_backward(t->pool, COH_ACTIVATION_GELU, t->dtype, t->dx, t->dy, t->x,
                                 elements(t), 0);
}

static void position(void *argument)
{
    tensors *t = argument;
    const coh_position p = { .dtype = t->dtype,
                             .B = t->N / T,
                             .T = T,
                             .C = C,
                             .rows = T,
                             .x = t->x,
                             .weight = t->table,
                             .y = t->y };
    coh_kernel_position(t->pool, &p);
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
    coh_kernel_column_sum(t->pool, &(coh_column_sum){ .dtype = t->dtype,
                                                      .sums_dtype = t->dtype,
                                                      .sums = t->dbias,
                                                      .x = t->dy,
                                                      .rows = t->N,
                                                      .columns = C });
}

/* The classifier's work on a tile between its products, SOFTMAX_ROWS at a time: a pass for the
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

/* Repeated calls converge to about a quarter from values near one, so y stays finite. */
static void softmax_backward_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    for (int64_t row = index * SOFTMAX_ROWS; row < (index + 1) * SOFTMAX_ROWS; row++)
        coh_rows_for(t->dtype)->softmax_again(coh_element(t->dtype, t->y, row * COH_ROW_BLOCK),
                                              COH_ROW_BLOCK, 1.0f, 0.5f);
}

static int64_t softmax_pieces(const tensors *t)
{
    return elements(t) / COH_ROW_BLOCK / SOFTMAX_ROWS;
}

static void softmax(void *argument)
{
    const tensors *t = argument;
    coh_pool_run(t->pool, softmax_pieces(t), softmax_piece, argument);
}

static void softmax_backward(void *argument)
{
    const tensors *t = argument;
    coh_pool_run(t->pool, softmax_pieces(t), softmax_backward_piece, argument);
}

/* ---- the roof ---- */

static void copy_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    size_t at = (size_t)index * PIECE_BYTES % ((size_t)elements(t) * t->element_bytes);
    measure_copy_past_caches(t->y + at / 64 * 64, t->x + at / 64 * 64, PIECE_BYTES);
}

static void read_piece(void *argument, int64_t index)
{
    tensors *t = argument;
    size_t at = (size_t)index * PIECE_BYTES % ((size_t)elements(t) * t->element_bytes);
    t->sum += measure_read(t->dy + at / 64 * 64, PIECE_BYTES);
}

static void roof(void *argument)
{
    tensors *t = argument;
    coh_pool_run(t->pool, (int64_t)(t->copied_bytes / 2 / PIECE_BYTES), copy_piece, t);
    coh_pool_run(t->pool, (int64_t)(t->read_bytes / PIECE_BYTES), read_piece, t);
}

/* numbers of [N, C] tensors read and written, and other bytes */
static const struct pass {
    const char *name;
    void (*run)(void *);
    int read, written;
    int table_is_written;
} passes[] = { { "norm", norm, 1, 1, 0 },
               { "norm backward", norm_backward, 2, 1, 0 },
               { "rms norm", rms, 1, 1, 0 },
               { "rms norm backward", rms_backward, 2, 1, 0 },
               { "relu", relu, 1, 1, 0 },
               { "relu backward", relu_backward, 2, 1, 0 },
               { "swiglu", swiglu, 2, 1, 0 },
               { "swiglu backward", swiglu_backward, 3, 2, 0 },
               { "rope", rope, 1, 1, 0 },
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
    size_t tensor_bytes = (size_t)elements(t) * t->element_bytes;
    size_t written = tensor_bytes * (size_t)pass->written +
                     (pass->table_is_written ? (size_t)elements(t) * t->element_bytes : 0);
    size_t read = tensor_bytes * (size_t)pass->read, both = read < written ? read : written;
    /* writes without reads have no roof here: they count as half a copy's bytes */
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

/* Fills with values around zero, in either type: the sign and two bits vary. */
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

/* Returns the rows of C elements that fill CACHES last-level caches. */
static int64_t rows_for(size_t element_bytes)
{
    const size_t wanted = CACHES * measure_last_cache_bytes(), row = C * element_bytes;
    return (int64_t)((wanted + row - 1) / row + T - 1) / T * T;
}

static int make(tensors *t)
{
    const int64_t N = rows_for(2); /* the more rows; in f32 no fewer bytes */
    const size_t bytes = (size_t)rows_for(4) * C * 4;
    t->x = tensor(bytes);
    t->y = tensor(bytes);
    t->dy = tensor(bytes);
    t->dx = tensor(bytes);
    t->table = tensor(bytes);
    t->dtable = tensor(bytes);
    t->weight = tensor(C * 4);
    t->dweight = tensor(C * 4);
    t->dbias = tensor(C * 4);
    t->mean = calloc((size_t)N, sizeof(float));
    t->rstd = calloc((size_t)N, sizeof(float));
    t->partials = malloc((size_t)coh_kernel_norm_partials(N, C) * sizeof(float));
    t->tokens = malloc((size_t)N * sizeof(int32_t));
    t->order = malloc((size_t)coh_kernel_embedding_order(N) * sizeof(int32_t));
    if (!t->x || !t->y || !t->dy || !t->dx || !t->table || !t->dtable || !t->weight ||
        !t->dweight || !t->dbias || !t->mean || !t->rstd || !t->partials || !t->tokens || !t->order)
        return 1;
    memset(t->dtable, 0, bytes);
    memset(t->dx, 0, bytes);
    memset(t->y, 0, bytes);
    return 0;
}

/* Makes tensors of this type; the order of the tokens' rows looks random. */
static void use(tensors *t, coh_dtype dtype)
{
    t->dtype = dtype;
    t->element_bytes = dtype == COH_DTYPE_F32 ? 4 : 2;
    t->N = rows_for(t->element_bytes);
    for (int64_t i = 0; i < t->N; i++)
        t->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)t->N);
    fill(t->x, t, elements(t));
    fill(t->dy, t, elements(t));
    fill(t->table, t, elements(t));
    fill(t->weight, t, C);
}

int main(int argc, char **argv)
{
    static tensors t; /* lives as long as the process */
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    coh_kernels_start();
    if (coh_pool_create(argc > 1 ? atoi(argv[1]) : 2, &t.pool) != COH_OK || make(&t) != 0) {
        fprintf(stderr, "rows: no memory for six tensors of %d last-level caches of %zu MiB\n",
                CACHES, measure_last_cache_bytes() >> 20);
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        use(&t, dtypes[i]);
        for (size_t j = 0; j < sizeof(passes) / sizeof(passes[0]); j++)
            measure_pass(&t, &passes[j]);
    }
    coh_pool_destroy(t.pool);
    return 0;
}
