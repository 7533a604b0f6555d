/* rows.h - the innermost loops: one row, one grain or one tile at a time, in one thread.
 *
 * Every loop is compiled once per instruction set from the same C (isa/), as a table; which table
 * runs is chosen at run time (dispatch.h). All tables give the same bits: sums run in the sixteen
 * lanes of isa/lanes.h whatever the width of the registers.
 *
 * Rows are contiguous and may overlap only where it says so. */
#ifndef COH_KERNELS_CPU_ROWS_H
#define COH_KERNELS_CPU_ROWS_H

#include <stdint.h>

#include "kernels/cpu/tile.h"
#include "kernels/kernels.h"

typedef void coh_row_adamw(const coh_adamw *step, float *work, const float *grad, float *m,
                           float *v, int64_t count);
/* Sum of x^2 in double, lanes first. */
typedef double coh_row_square_sum(const float *x, int64_t count);
typedef int coh_row_all_finite(const float *x, int64_t count);
/* to += from */
typedef void coh_row_add(float *to, const float *from, int64_t count);
/* to = a + b; `to` may be a or b */
typedef void coh_row_sum(float *to, const float *a, const float *b, int64_t count);
/* to += factor * from */
typedef void coh_row_add_scaled(float *to, const float *from, float factor, int64_t count);
typedef void coh_row_scale(float *x, float factor, int64_t count);
typedef float coh_row_dot(const float *a, const float *b, int64_t count);

/* y = gelu(x); y may be x */
typedef void coh_row_gelu(float *y, const float *x, int64_t count);
/* dx (= or +=) dy * gelu'(x); dx may be dy when it does not add */
typedef void coh_row_gelu_backward(float *dx, const float *dy, const float *x, int64_t count,
                                   int adds);

/* y = (x - mean) * rstd * weight + bias over C channels; gives mean and rstd. y may be x. */
typedef void coh_row_norm(float *y, const float *x, const float *weight, const float *bias,
                          int64_t C, float epsilon, float *out_mean, float *out_rstd);
/* One row of layer norm's backward. dx NULL: not wanted. dweight, dbias: C sums that this row is
 * added to. dx may be dy when it does not add. */
typedef struct coh_norm_row {
    float *dx;
    const float *dy, *x, *weight;
    float mean, rstd;
    float *dweight, *dbias;
    int64_t C;
    int32_t adds;
} coh_norm_row;
typedef void coh_row_norm_backward(const coh_norm_row *row);

/* Running softmax (Milakov and Gimelshein 2018, alg. 3): takes a row's next `count` scores into
 * *max and *sum (start: -infinity and 0). softmax_take leaves the row as it is; softmax_exp puts
 * exp(score - new max) in its place and returns exp(old max - new max), by which what was
 * accumulated before must shrink. */
typedef void coh_row_softmax_take(const float *row, int64_t count, float *max, float *sum);
typedef float coh_row_softmax_exp(float *row, int64_t count, float *max, float *sum);
/* row = factor * exp(row - shift) */
typedef void coh_row_softmax_again(float *row, int64_t count, float shift, float factor);
/* score -> p = exp(score - shift); gradient -> scale * p * (gradient - mean_gradient) */
typedef void coh_row_softmax_backward(float *score, float *gradient, int64_t count, float shift,
                                      float mean_gradient, float scale);

typedef void coh_row_matmul(const coh_tile *tile);

#define COH_ROW_LIST(X)                                                                            \
    X(adamw)                                                                                       \
    X(square_sum)                                                                                  \
    X(all_finite)                                                                                  \
    X(add)                                                                                         \
    X(sum)                                                                                         \
    X(add_scaled)                                                                                  \
    X(scale)                                                                                       \
    X(dot)                                                                                         \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(norm)                                                                                        \
    X(norm_backward)                                                                               \
    X(softmax_take)                                                                                \
    X(softmax_exp)                                                                                 \
    X(softmax_again)                                                                               \
    X(softmax_backward)                                                                            \
    X(matmul)

typedef struct coh_rows {
    const char *name; /* "plain", "avx2", "avx512" */
#define COH_ROW_FIELD(row) coh_row_##row *row;
    COH_ROW_LIST(COH_ROW_FIELD)
#undef COH_ROW_FIELD
} coh_rows;

#endif
