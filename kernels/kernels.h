/* kernels.h - all computation: plain pointers, shapes and a queue. Nothing here allocates or waits.
 *
 * Shape letters, everywhere in this folder:
 *
 *    B sequences   T tokens of a sequence   N = B * T rows   C channels   O outputs of a layer
 *    H heads       D = C / H head width     V vocabulary   G heads of keys and values
 *
 * `queue` determines the device (kernels/table.h). On the host it is the worker pool
 * (coh_parallel), or NULL for the calling thread; a call on the host has finished its work when it
 * returns. Work is cut into pieces by the shape alone (matrix products: only as far as pieces
 * change bits; kernels/cpu/matmul.c), and sums are folded in index order. So the bits are the same
 * for any number of threads and, except for matrix products and attention, on every instruction set
 * (kernels/cpu/rows.h). `adds` != 0: the result is added to the old contents.
 *
 * Tensors are contiguous and row-major. `dtype` is the stored type of their elements: COH_DTYPE_F32
 * (which is 0) or COH_DTYPE_BF16, the upper half of a float. bf16 is a storage format only: all
 * arithmetic is f32 in registers, and results are rounded to nearest, ties to even, when stored.
 * Pointers to tensors of the model are `void *`; float pointers are f32 under either dtype. With
 * `f32_grads` the gradients of parameters are f32, whatever `dtype` is. */
#ifndef COH_KERNELS_KERNELS_H
#define COH_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/kinds.h"
#include "kernels/product.h"
#include "kernels/random.h"

/* Selects instruction set and BLAS, once; further calls do nothing. Any thread. The kernels call it
 * themselves. Call it at start-up, so that the selection and its allocations happen then. */
void coh_kernels_start(void);

/* ---- element-wise: one thread, any range of elements ---- */

/* Join the master of a bf16 parameter from its halves and split it, for initial values, checkpoints
 * and hashes. The upper half is the bf16, rounded half up in magnitude; the lower one the
 * remainder, as a signed 16-bit number in units of the last place of a float:
 *    high = (bits + 0x8000) >> 16,  low = bits - (high << 16);  bits = (high << 16) + low
 * Exact for every bit pattern. `low` NULL: there are no states, so joining widens `high` and
 * splitting rounds to it. */
void coh_kernel_join(float *master, const uint16_t *high, const uint16_t *low, int64_t count);
void coh_kernel_split(uint16_t *high, uint16_t *low, const float *master, int64_t count);

/* values[i] = (float)(scale * coh_rng_normal(seed, stream, first + i)), base/rng.h: a tensor's
 * initial values. */
void coh_kernel_normal(float *values, uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                       double scale);

/* Blocks of a weight's rows (coh_parameter_facts.row_block) that the device of a queue multiplies
 * at once: 1, or COH_GPU_ROW_BLOCKS. */
int64_t coh_kernel_row_blocks(const void *queue);

/* Sum of x^2 in double, for one grain (at most COH_GRAIN_ELEMENTS). Pieces of COH_SQUARE_PIECE
 * elements are summed each as a row is, and their sums added in order: a GPU sums the pieces of a
 * grain at the same time, with the same bits. */
#define COH_SQUARE_PIECE 1024
double coh_kernel_square_sum(coh_dtype dtype, const void *x, int64_t count);

/* to += from */
void coh_kernel_add(coh_dtype dtype, void *to, const void *from, int64_t count);

/* Returns 1 if no element is NaN or infinite. */
int coh_kernel_all_finite(coh_dtype dtype, const void *x, int64_t count);

/* to = from, or to += from with `adds`, on the pool. to == from is allowed and then does nothing (a
 * gradient passed on in place). */
void coh_kernel_pass(void *queue, coh_dtype dtype, void *to, const void *from, int64_t count,
                     int adds);

/* to = from, or to += from with `adds`, on the pool: rounds f32 sums to their destination. */
void coh_kernel_round(void *queue, coh_dtype dtype, void *to, const float *from, int64_t count,
                      int adds);

/* ---- matrix products ---- */

/* c [rows, columns] (= or +=) op(a) op(b), cut into tiles of c by the shape and, if that changes no
 * bit, the number of threads (Goto and van de Geijn 2008 explain the tile size for full rate):
 *   COH_MATMUL_NT  a [rows, depth], b [columns, depth]    y = x weight^T
 *   COH_MATMUL_NN  a [rows, depth], b [depth, columns]    dx = dy weight
 *   COH_MATMUL_TN  a [depth, rows], b [depth, columns]    dweight = dy^T x
 * Without `adds`, bias [columns] and residual (laid out as c; may be c) are part of the sum if they
 * are not NULL. Strides are row lengths in memory, in elements.
 *
 * Sums are f32 whatever the element type, and are rounded once, when c is stored. a, b, bias and
 * residual are of `dtype` (F32 or BF16), c and activated of `c_dtype`. If `activated` is not NULL,
 * it receives gelu or relu of the values stored in c, laid out as c, so that a user of c can
 * compute the same bits again; it may be c. kernels/product.h determines which product runs. */
typedef struct coh_matmul {
    coh_matmul_layout layout;
    coh_dtype dtype, c_dtype;
    int64_t rows, columns, depth;
    const void *a, *b;
    int64_t a_stride, b_stride, c_stride;
    void *c;
    const void *bias, *residual;
    void *activated;
    coh_activation activation;
    int adds;
} coh_matmul;
void coh_kernel_matmul(void *queue, const coh_matmul *matmul);

/* sums [columns] of `sums_dtype` (x's, or f32) (= or +=) the column sums of x [rows, columns]. */
typedef struct coh_column_sum {
    coh_dtype dtype, sums_dtype;
    void *sums;
    const void *x;
    int64_t rows, columns;
    int adds;
    /* Scratch of a GPU, aligned to 16 bytes, for the sums of pieces of the rows; NULL: there is one
     * piece. The host needs none. */
    float *partials;
} coh_column_sum;
#define COH_COLUMN_SUM_PIECE 256 /* rows */
/* Returns the floats of the partials; monotonic. 0: there is one piece. */
static inline int64_t coh_kernel_column_sum_partials(int64_t rows, int64_t columns)
{
    const int64_t pieces = (rows + COH_COLUMN_SUM_PIECE - 1) / COH_COLUMN_SUM_PIECE;
    return pieces > 1 ? pieces * columns : 0;
}
void coh_kernel_column_sum(void *queue, const coh_column_sum *sum);

/* ---- embedding and position ---- */

/* Fails if an index is outside least..most: COH_ERR_CORRUPT with "`what` 7 at place 3 is outside
 * 0..6: `remedy`". The host fails at once. Another device returns COH_OK and keeps the failure in
 * its queue; later kernels skip such an index. The texts must live as long as the program. */
typedef struct coh_index_check {
    const char *what, *remedy;
    const int32_t *indices;
    int64_t count, least, most;
} coh_index_check;
coh_status coh_kernel_check_indices(void *queue, const coh_index_check *check);

/* y [N,C] = weight[tokens[n], :] for the tokens in [row_begin, row_end); other rows of y are
 * unchanged. `weight` points at row row_begin. */
typedef struct coh_embedding {
    int64_t N, C, row_begin, row_end;
    const int32_t *tokens;
    coh_dtype dtype;
    int32_t *order; /* backward: coh_kernel_embedding_order elements of scratch */
    /* backward: tokens equal to `padding` are ignored */
    int has_padding;
    int32_t padding;
    int f32_grads; /* backward: of dweight */
} coh_embedding;
void coh_kernel_embedding(void *queue, const coh_embedding *embedding, void *y, const void *weight);
/* dweight [row_end - row_begin, C] (= or +=) the sum of dy over each row's tokens, in token
 * order. */
void coh_kernel_embedding_backward(void *queue, const coh_embedding *embedding, void *dweight,
                                   const void *dy, int adds);
int64_t coh_kernel_embedding_order(int64_t N);

/* y [B,T,C] = x + weight[position + t, :], from a table of `rows`; y = x after its end. y may be
 * x. */
typedef struct coh_position {
    coh_dtype dtype;
    int64_t B, T, C, rows;
    const void *x, *weight;
    void *y;
    const int32_t *position; /* in device memory; NULL: 0 */
} coh_position;
void coh_kernel_position(void *queue, const coh_position *position);
/* dweight [rows, C]: row offset + t (= or +=) the sum of dy over B; other rows get nothing. */
typedef struct coh_position_gradient {
    coh_dtype dtype;
    int64_t B, T, C, rows, offset;
    const void *dy;
    void *dweight;
    int adds, f32_grads;
} coh_position_gradient;
void coh_kernel_position_backward(void *queue, const coh_position_gradient *gradient);

/* y [B,T,H*D] = x, with channels c and c + D/2 of each head rotated by the angle (position + t)
 * frequencies[c], c < D/2 <= COH_HEAD_WIDTH_MOST / 2, and multiplied by `magnitude`. `turns_back`
 * rotates by the negative angle, which is the derivative. Rows of x and y are that many elements
 * from the next, so that they may be parts of wider rows. y may be x if it does not add. */
typedef struct coh_rope {
    int64_t B, T, H, D, x_stride, y_stride;
    const int32_t *position; /* in device memory; NULL: 0 */
    coh_dtype dtype;
    const float *frequencies; /* [D / 2], host memory: read before the call returns */
    float magnitude;
    const void *x;
    void *y;
    int turns_back, adds;
} coh_rope;
void coh_kernel_rope(void *queue, const coh_rope *rope);

/* ---- norms, and functions of single elements ---- */

/* Layer norm: (x - mean) / sqrt(var + epsilon) * weight + bias. If `mean` is NULL, RMS norm: x /
 * sqrt(mean(x^2) + epsilon) * (weight + offset), without a bias. */
typedef struct coh_norm {
    int64_t N, C;
    coh_dtype dtype;
    float epsilon;
    float offset; /* RMS norm; -0.0, which no sum with it changes, or 1 */
    const void *x, *weight, *bias;
    void *y;
    float *mean, *rstd; /* [N] each: written by forward, read by backward */
    /* backward; NULL: not wanted; dx may be dy if it does not add */
    const void *dy;
    void *dx, *dweight, *dbias;
    int dx_adds, dweight_adds, dbias_adds, f32_grads;
    float *partials; /* coh_kernel_norm_partials elements of scratch */
} coh_norm;
void coh_kernel_norm(void *queue, const coh_norm *norm);
void coh_kernel_norm_backward(void *queue, const coh_norm *norm);
int64_t coh_kernel_norm_partials(int64_t N, int64_t C);

/* y = gelu(x) or max(x, 0); y may be x. */
void coh_kernel_activate(void *queue, coh_activation activation, coh_dtype dtype, void *y,
                         const void *x, int64_t count);
/* dx (= or +=) dy gelu'(of), or dy where of > 0. `of` is gelu's x, relu's y. dx may be dy if it
 * does not add. */
void coh_kernel_activate_backward(void *queue, coh_activation activation, coh_dtype dtype, void *dx,
                                  const void *dy, const void *of, int64_t count, int adds);

/* y (= or +=) factor x; y may be x if it does not add. */
typedef struct coh_scale {
    coh_dtype dtype;
    int64_t count;
    const void *x;
    void *y;
    float factor;
    int adds;
} coh_scale;
void coh_kernel_scale(void *queue, const coh_scale *scale);

/* x = cap tanh(x / cap), for `columns` elements of each row, rows `stride` apart. */
typedef struct coh_soft_cap {
    int64_t rows, columns, stride;
    float *x;
    float cap;
} coh_soft_cap;
void coh_kernel_soft_cap(void *queue, const coh_soft_cap *soft_cap);

/* y (= or +=) scale x + residual (NULL: none), with x where its word keeps it, else 0
 * (kernels/random.h); x's first element has number `first`. y may be x or residual if it does not
 * add. If nothing is dropped, y = x + residual. */
typedef struct coh_dropout {
    coh_dtype dtype;
    int64_t count;
    uint64_t first;
    coh_drop drop;
    const void *x, *residual; /* with `adds`, residual is NULL */
    void *y;
    int adds;
} coh_dropout;
void coh_kernel_dropout(void *queue, const coh_dropout *dropout);

/* y = gate / (1 + e^-gate) * up, or with `gelu` gelu(gate) * up; y may be either. Backward: NULL
 * is not wanted; dgate or dup may be dy if it does not add. With `columns`, gate and up are halves
 * of rows of 2 columns, and so are dgate and dup; `count` is that of y. */
typedef struct coh_swiglu {
    coh_dtype dtype;
    int64_t count, columns; /* columns 0: all are contiguous */
    const void *gate, *up;
    void *y;
    const void *dy;
    void *dgate, *dup;
    int dgate_adds, dup_adds;
    int gelu;
} coh_swiglu;
void coh_kernel_swiglu(void *queue, const coh_swiglu *swiglu);
void coh_kernel_swiglu_backward(void *queue, const coh_swiglu *swiglu);

/* dh [N,O] = dy * gelu'(h), or dy where relu's result `y` is above 0; and sums [O] (= or +=) its
 * column sums, in the same pass. sums NULL: not wanted. partials: coh_kernel_activation_partials
 * elements of scratch. dh may be dy. */
typedef struct coh_activation_gradient {
    coh_activation activation;
    coh_dtype dtype;
    int64_t N, O;
    const void *dy;
    const void *of; /* gelu: h, relu: y */
    void *dh, *sums;
    int sums_adds, f32_grads; /* of sums: a bias's gradient */
    float *partials;
} coh_activation_gradient;
void coh_kernel_activation_gradient(void *queue, const coh_activation_gradient *gradient);
int64_t coh_kernel_activation_partials(int64_t N, int64_t O);

/* ---- attention ---- */

/* Causal attention: q [B,T,H*D], k and v [B,T,G*D] -> y [B,T,H*D]; head h of q attends over head h
 * / (H / G) of k and v. D <= COH_HEAD_WIDTH_MOST. A row of q, k, v (and of their gradients) is
 * q_stride or kv_stride elements from the next, so that they may lie next to each other in one
 * tensor; y and dy are contiguous. Blocks live on the stack: up to 640 KiB.
 *
 * With `drop`, weights become zero or are scaled after the softmax, by words of `drop`'s stream.
 * The word of query i and key j of head n = first_head + b H + h is word j % 4 of the block whose
 * counter has i and n ceil(T / 4) + floor(j / 4) as its lowest words. So a register of queries and
 * four keys need one register of blocks. The second counter word must be below 2^32. */
typedef struct coh_attention {
    int64_t B, T, H, G, D;
    coh_dtype dtype;
    int64_t q_stride, kv_stride;
    int64_t window; /* query i sees keys above i - window; 0 or below T */
    float scale;    /* of scores; 0: 1 / sqrt(D) */
    float cap;      /* scaled scores s become cap tanh(s / cap); 0: they do not */
    const void *q, *k, *v;
    void *y;    /* written by forward, read by backward */
    float *lse; /* [B,H,T] log-sum-exp of the scores; as y */
    /* backward; NULL: not wanted; dq may be dy if their rows are laid out alike and it does not
     * add */
    const void *dy;
    void *dq, *dk, *dv;
    int dq_adds, dk_adds, dv_adds;
    float *scratch; /* coh_kernel_attention_scratch elements */
    coh_drop drop;  /* threshold 0 (all zero will do): nothing is dropped */
    int64_t first_head;
    int atomics; /* 1: on CUDA dq may be added up by atomics, so bits vary; scratch:
                  * kernels/cuda/attention_scratch.h */
    /* [B,T], in device memory: the position of each token in its document, so query i sees keys
     * from i - positions[i] on. Each is 0 or one more than the one before. NULL: a row is one
     * document. */
    const int32_t *positions;
} coh_attention;
void coh_kernel_attention(void *queue, const coh_attention *attention);
void coh_kernel_attention_backward(void *queue, const coh_attention *attention);
int64_t coh_kernel_attention_scratch(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D);

/* One step of a decoder: writes the T rows of k and v as rows `position` + t of keys and values
 * [B,positions,G*D]; row t of y [B,T,H*D] attends over rows 0..position + t. Rows of q, k and v are
 * q_stride and kv_stride elements from the next. Rows from `positions` on are padding: they are not
 * written, and attend over all rows. The host needs no scratch, CUDA needs coh_cuda_decode_bytes
 * (kernels/cuda/attention_scratch.h). */
typedef struct coh_attention_decode {
    int64_t B, T, H, G, D, positions;
    int64_t window;          /* a query sees the last `window` rows; 0: all */
    float scale, cap;        /* as in coh_attention */
    const int32_t *position; /* in device memory */
    coh_dtype dtype;
    int64_t q_stride, kv_stride;
    const void *q, *k, *v;
    void *keys, *values, *y;
    float *scratch;
} coh_attention_decode;
void coh_kernel_attention_decode(void *queue, const coh_attention_decode *decode);

/* ---- classifier ---- */

/* Rows of the table are processed COH_ROW_BLOCK at a time (COH_GPU_TABLE_BLOCKS times as many on a
 * GPU), tokens in chunks: without a cache, logits exist for only one such tile. */
#define COH_ROW_BLOCK 1024

/* Returns the elements between the logits of two tokens, with a cache and without: cuBLASLt adds in
 * another order if rows are not aligned to 16 bytes, so both must have the same. */
static inline int64_t coh_logit_stride(int64_t rows)
{
    return (rows + 7) / 8 * 8;
}

/* Softmax cross-entropy over x weight^T, rows [row_begin, row_end) of the table's V in this call;
 * `weight` and `dweight` point at row row_begin. Calls must come in rising order and cover 0..V. */
typedef struct coh_classifier {
    int64_t N, C, V, row_begin, row_end;
    coh_dtype dtype;
    const void *x, *weight;
    float cap;              /* soft cap of logits; 0: none. Tiles and cache hold x weight^T */
    const int32_t *targets; /* [N]; -1: no loss, no gradient */
    float *max, *sum, *target_logit; /* [N] each, kept between calls and for backward */
    void *logits;                    /* coh_kernel_classifier_logits elements of scratch */
    /* NULL, or N x coh_logit_stride(V) elements that forward leaves for backward, which overwrites
     * them */
    void *cache;
    float *loss; /* [1], written by the last call: sum over items / N */
    /* backward; NULL: not wanted */
    void *dx, *dweight;
    int dx_adds, dweight_adds, f32_grads; /* of dweight */
    float *dx_sum;      /* coh_kernel_classifier_dx_sums, kept between calls; 0 of them: NULL */
    float *dweight_sum; /* coh_kernel_classifier_dweight_sums of scratch; 0 of them: NULL */
    /* backward: factors of gradients: loss_share and *loss_factor, in device memory; NULL: 1 */
    float loss_share;
    const float *loss_factor;
} coh_classifier;
void coh_kernel_classifier(void *queue, const coh_classifier *classifier);
void coh_kernel_classifier_backward(void *queue, const coh_classifier *classifier);
/* Returns the tokens of a chunk: the same with a cache and without. */
int64_t coh_kernel_classifier_chunk(coh_dtype dtype);
/* Return the elements of each buffer; the sums are f32, and 0 if they are not needed. */
int64_t coh_kernel_classifier_logits(coh_dtype dtype, int64_t N, int64_t V);
int64_t coh_kernel_classifier_dx_sums(coh_dtype dtype, int64_t N, int64_t C);
int64_t coh_kernel_classifier_dweight_sums(coh_dtype dtype, int64_t N, int64_t C, int64_t V);

/* Returns the stored type of a parameter's gradient in a graph with tensors of `dtype`. */
static inline coh_dtype coh_grad_dtype(coh_dtype dtype, int f32_grads)
{
    return f32_grads ? COH_DTYPE_F32 : dtype;
}

/* Returns the address of element `index` of a tensor. */
static inline void *coh_element(coh_dtype dtype, void *tensor, int64_t index)
{
    return (char *)tensor + (size_t)index * (dtype == COH_DTYPE_BF16 ? 2 : 4);
}

static inline const void *coh_element_const(coh_dtype dtype, const void *tensor, int64_t index)
{
    return (const char *)tensor + (size_t)index * (dtype == COH_DTYPE_BF16 ? 2 : 4);
}

#endif
