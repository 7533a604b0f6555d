/* arguments.h - the arguments of each kernel of this folder: one struct by value, the same bytes in
 * C and in CUDA. Pointers are the device's. Shape letters and meanings are those of
 * kernels/kernels.h. Tensors are of the element type in the kernel's name.
 *
 * `packed`: every tensor begins on a boundary of 16 bytes (and so does each row, if rows are
 * walked), so that 16 bytes can be moved at a time. It changes no result. */
#ifndef COH_KERNELS_CUDA_ARGUMENTS_H
#define COH_KERNELS_CUDA_ARGUMENTS_H

#include <stdint.h>

#include "cohobate/kinds.h"

/* Packs of a row that a thread holds in registers (row.cuh). */
#define COH_CUDA_ROW_HELD 4

/* ---- elementwise.cu ---- */

/* y (= or +=) a function of x; derivatives take dy too, and x or y of the forward as x. */
typedef struct coh_cuda_map_arguments {
    int64_t count;
    const void *x, *dy;
    void *y;
    float factor; /* of scale; the soft cap */
    int32_t adds, packed;
} coh_cuda_map_arguments;

typedef struct coh_cuda_swiglu_arguments {
    int64_t count, columns; /* columns 0: all are contiguous */
    const void *gate, *up, *dy;
    void *y;
    void *dgate, *dup; /* NULL: not wanted */
    int32_t dgate_adds, dup_adds, packed;
} coh_cuda_swiglu_arguments;

/* y (= or +=) x in rows of `columns`: columns [first, last) come from x, the others are zeros. */
typedef struct coh_cuda_blocks_arguments {
    int64_t count; /* elements of y to write */
    int64_t columns, first, last, x_stride, y_stride;
    const void *x;
    void *y;
    int32_t adds, packed;
} coh_cuda_blocks_arguments;

/* y [outer, repeats, inner] (= or +=) factor x [outer, inner]. */
typedef struct coh_cuda_spread_arguments {
    int64_t count, repeats, inner;
    const void *x;
    void *y;
    float factor;
    int32_t adds, packed;
} coh_cuda_spread_arguments;

/* y = the numbers of 4-bit weights (kernels/nf4.h). */
typedef struct coh_cuda_nf4_arguments {
    int64_t count;
    const void *packed;
    void *y; /* begins on a boundary of 16 bytes */
} coh_cuda_nf4_arguments;

/* ---- dropout.cu ---- */

typedef struct coh_cuda_dropout_arguments {
    int64_t count;
    uint64_t first;
    /* the call's stream (kernels/random.h), which the kernel computes from the cell */
    const coh_random_cell *cell;
    int32_t operator_index, microbatch;
    uint32_t threshold; /* 0: nothing is dropped; the cell may be NULL */
    float scale;
    const void *x, *base; /* base NULL: none */
    void *y;
    int32_t packed; /* 1: elements that begin a group of words are aligned */
} coh_cuda_dropout_arguments;

/* ---- wire.cu ---- */

#define COH_CUDA_FOLD_MOST    192 /* COH_FOLD_CUDA_MOST */
#define COH_CUDA_FOLD_FACTORS 3   /* COH_FOLD_FACTORS */
#define COH_CUDA_WIRE_BLOCK   128 /* COH_WIRE_BLOCK */

/* y = the sum of from[0], from[1], ... in the order of the factors, all at least 1. */
typedef struct coh_cuda_fold_arguments {
    int64_t count;
    void *y;
    int32_t factors[COH_CUDA_FOLD_FACTORS];
    int32_t bf16_y, packed; /* y is bf16, else f32 */
    const void *from[COH_CUDA_FOLD_MOST];
} coh_cuda_fold_arguments;

/* Blocks of elements, and where they lie on the wire. */
typedef struct coh_cuda_wire_arguments {
    int64_t count;
    void *elements;
    uint8_t *codes; /* of the bf16 wire: elements */
    float *scales;
    int32_t levels; /* of the codes: 127, 7; 0: the bf16 wire */
    int32_t packed; /* elements are aligned to a pack of four */
} coh_cuda_wire_arguments;

/* ---- sums.cu ---- */

#define COH_CUDA_SUM_THREADS      512
#define COH_CUDA_GRADIENT_THREADS 128
#define COH_CUDA_PIECE_THREADS    256
#define COH_CUDA_PIECE_ROWS       256 /* of a column sum: COH_COLUMN_SUM_PIECE */

/* sums [columns] (= or +=) the column sums of x [rows, columns], rows `stride` elements apart.
 * Blocks with y = 1 do the same for `second` and the next columns of x. */
typedef struct coh_cuda_column_sum_arguments {
    int64_t rows, columns, stride;
    const void *x;
    void *sums, *second;
    int32_t adds, second_adds, packed;
    int32_t f32_sums; /* else of the kernel's element type */
} coh_cuda_column_sum_arguments;

/* y [outer, inner] = means of x [outer, count, inner] over `count`. */
typedef struct coh_cuda_mean_arguments {
    int64_t outer, count, inner;
    const void *x;
    void *y;
    int32_t width; /* inner 1: threads of a row */
    int32_t packed;
} coh_cuda_mean_arguments;

/* Rows whose sums an activation's gradient keeps in registers. */
#define COH_CUDA_GRADIENT_ROWS 32

/* dh = dy times the slope at `of`; partials [blocks of COH_CUDA_GRADIENT_ROWS rows, O] or NULL. */
typedef struct coh_cuda_activation_gradient_arguments {
    int64_t N, O;
    const void *dy, *of;
    void *dh;
    float *partials;
    int32_t packed;
} coh_cuda_activation_gradient_arguments;

/* ---- norm.cu ---- */

/* Columns of a thread backward, whose sums stay in registers. */
#define COH_CUDA_NORM_COLUMNS 8
/* Most dynamic shared memory of a block backward: a block of every GPU since sm_80 may have it. It
 * holds the rows that are copied ahead, at most COH_CUDA_NORM_STAGES, or the sums of rows of more
 * columns than 1024 threads have: two floats a column. Still longer rows are "widest". */
#define COH_CUDA_NORM_SHARED (96 << 10)
#define COH_CUDA_NORM_STAGES 4
#define COH_CUDA_NORM_WIDE   (COH_CUDA_NORM_SHARED / 8) /* columns */
/* Threads of a block that has more than one row at a time. */
#define COH_CUDA_NORM_BLOCK 512

typedef struct coh_cuda_norm_arguments {
    int64_t N, C, block_rows; /* backward: rows of one partial */
    const void *x, *weight, *bias, *dy;
    void *y, *dx;
    float *mean, *rstd;
    float *partials;      /* [blocks, 2C]: of dweight, of dbias */
    float epsilon, share; /* share: 1 / C */
    float offset;         /* of weight: RMS norm */
    int32_t width;        /* threads of a row: a multiple of 32 that divides the block's */
    int32_t dx_adds, packed;
    int32_t stages; /* backward: rows of a row lane in shared memory at a time */
} coh_cuda_norm_arguments;

/* ---- embedding.cu ---- */

/* Keys of tokens are row << 32 | place; keys of ignored tokens are COH_CUDA_NO_ROW. */
#define COH_CUDA_NO_ROW        UINT64_MAX
#define COH_CUDA_SORT_TILE     2048 /* keys that a block sorts */
#define COH_CUDA_HEAVY_THREADS 256

typedef struct coh_cuda_embedding_arguments {
    int64_t N, C, row_begin, row_end;
    const int32_t *tokens;
    int64_t padding; /* -1: none */
    const void *from;
    void *to;
    uint64_t *keys;                  /* [N] */
    const uint64_t *spare;           /* [N], input of a merge */
    int64_t run;                     /* merging: keys in a sorted run */
    int32_t adds, packed, f32_grads; /* backward: `to` is f32 */
} coh_cuda_embedding_arguments;

/* The first bad index of all checks of a queue: the one at the lowest place. It carries the host's
 * text for the error, which the device only passes on. */
typedef struct coh_cuda_index_note {
    const char *what, *remedy; /* the host's strings */
    int64_t least, most, place;
    uint32_t instruction_index; /* of the line with the check */
    int32_t index;
    int64_t is_there; /* written last; 0: no bad index */
} coh_cuda_index_note;

#define COH_CUDA_CHECK_THREADS 1024

typedef struct coh_cuda_index_check_arguments {
    const int32_t *indices;
    int64_t count;
    coh_cuda_index_note found; /* except place, index and is_there */
    coh_cuda_index_note *note; /* pinned host memory that the device can address */
} coh_cuda_index_check_arguments;

/* For B sequences of `plane` = T C elements: y = x + the table from row *position on (NULL: 0);
 * positions after its `table` elements add nothing. Backward: y [count] (= or +=) the sum of x over
 * the sequences from element `begin` on, zeros elsewhere. */
typedef struct coh_cuda_position_arguments {
    int64_t B, C, plane;
    const void *x;
    void *y;
    const void *weight;
    int64_t table;
    const int32_t *position;
    int64_t begin, count;
    int32_t adds, packed, f32_grads; /* backward: y is f32 */
} coh_cuda_position_arguments;

/* ---- rope.cu ---- */

typedef struct coh_cuda_rope_arguments {
    int64_t B, T, H, D, x_stride, y_stride;
    const int32_t *position; /* NULL: 0 */
    const void *x;
    void *y;
    int32_t turns_back, adds, packed;
    float magnitude;
    float frequencies[COH_HEAD_WIDTH_MOST / 2]; /* D / 2 of them */
} coh_cuda_rope_arguments;

/* ---- classifier.cu ---- */

#define COH_CUDA_LOGIT_ROWS 1024 /* logits of a token that a warp holds at a time */

/* Logits of `tokens` tokens against table rows [v0, v0 + rows), rows `stride` elements apart.
 * Arrays by token begin with this tile's first token. */
typedef struct coh_cuda_logits_arguments {
    int64_t tokens, rows, stride, v0;
    void *logits;
    const int32_t *targets;
    float *max, *sum, *target_logit;
    void *gradient;           /* backward: laid out as the logits; may be these */
    const float *loss_factor; /* backward: NULL, or a factor of `share` */
    float cap;                /* soft cap of logits; 0: none */
    float share;              /* the scale of each token's gradient, times N */
    int64_t N;                /* all tokens */
    int32_t adds, packed;
} coh_cuda_logits_arguments;

typedef struct coh_cuda_loss_arguments {
    int64_t N;
    const int32_t *targets;
    const float *max, *sum, *target_logit;
    float *loss;
} coh_cuda_loss_arguments;

/* ---- loss.cu ---- */

#define COH_CUDA_LOSS_THREADS    1024
#define COH_CUDA_SQUARES_GRAIN   16384 /* COH_GRAIN_ELEMENTS */
#define COH_CUDA_SQUARES_THREADS 256

/* Rows of `columns`. Forward: y = softmax(x). Backward: y (= or +=) p (x - sum(p x)). */
typedef struct coh_cuda_softmax_arguments {
    int64_t rows, columns;
    const void *x, *p;
    void *y;
    int32_t width, adds, packed;
} coh_cuda_softmax_arguments;

/* The maximum of each row of x [rows, columns], the sum of e^(x - maximum), and what the loss needs
 * of it. */
typedef struct coh_cuda_entropy_arguments {
    int64_t rows, columns;
    const void *x;
    const int32_t *targets;
    float *max, *sum;
    float *target_logit; /* NULL: not wanted; 0 without a target */
    float *each;         /* NULL: not wanted; loss of the row */
    int32_t width, packed;
} coh_cuda_entropy_arguments;

/* Mean squared error of x and target. */
typedef struct coh_cuda_squares_arguments {
    int64_t count;
    const void *x, *target;
    double *partials;         /* forward: one for each grain */
    void *dx, *dtarget;       /* backward; NULL: not wanted */
    const float *loss_factor; /* backward: NULL, or a factor of `share` */
    float share;
    int32_t dx_adds, dtarget_adds, packed;
    int32_t f32_target; /* else of the kernel's element type */
} coh_cuda_squares_arguments;

/* loss = the sum of partials / items. */
typedef struct coh_cuda_squares_loss_arguments {
    int64_t partial_count, items;
    const double *partials;
    float *loss;
} coh_cuda_squares_loss_arguments;

/* ---- product.cu ---- */

/* Rows and columns of the tile of c that a block computes. */
#define COH_CUDA_PRODUCT_TILE_BF16 128
#define COH_CUDA_PRODUCT_TILE_F32  64

/* c [rows, columns] (= or +=) op(a) op(b) + bias + residual: coh_matmul without `activated`. a, b,
 * bias and residual are of the kernel's element type. */
typedef struct coh_cuda_product_arguments {
    int64_t rows, columns, depth, a_stride, b_stride, c_stride;
    const void *a, *b;
    void *c;
    const void *bias, *residual; /* NULL: none */
    int32_t adds, c_is_bf16;
    int32_t a_packed, b_packed; /* each of its rows is 16-byte aligned */
} coh_cuda_product_arguments;

/* y = gelu or relu of x [rows, columns], rows of both `stride` elements apart. */
typedef struct coh_cuda_activate_arguments {
    int64_t rows, columns, stride;
    const void *x;
    void *y;
    int32_t is_relu, packed;
} coh_cuda_activate_arguments;

#endif
