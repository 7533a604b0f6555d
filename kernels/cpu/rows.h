/* rows.h - the innermost loops: one row, one grain or one tile at a time, in one thread.
 *
 * Every loop is compiled from the same C once per instruction set (isa/) and, if it touches
 * tensors, once per element type. The results are tables, one of which is selected at run time
 * (dispatch.h). All instruction sets give the same bits: sums run in the sixteen lanes of
 * isa/lanes.h whatever the width of the registers, and bf16 is rounded in integer arithmetic.
 *
 * `void *` is a row of the table's element type, `float *` is f32 in every table. Rows are
 * contiguous and may overlap only where the comment allows it. */
#ifndef COH_KERNELS_CPU_ROWS_H
#define COH_KERNELS_CPU_ROWS_H

#include <stdint.h>

#include "cohobate/fold_shape.h"
#include "cohobate/optimizer.h"
#include "kernels/kernels.h"

/* ---- over f32, the same function in every table of an instruction set ---- */

/* The update of an optimizer (kernels/optimizers.c). */
typedef void coh_row_update(const coh_update_call *call);
typedef coh_row_update coh_row_adamw, coh_row_adamw8, coh_row_lion, coh_row_sgd;
typedef void coh_row_join(float *master, const uint16_t *high, const uint16_t *low, int64_t count);
typedef void coh_row_split(uint16_t *high, uint16_t *low, const float *master, int64_t count);
typedef void coh_row_scale(float *x, float factor, int64_t count);
/* cosine and sine of position * frequencies[i], the product rounded to float first; it is below
 * 2^31. */
typedef void coh_row_turns(float *cosine, float *sine, const float *frequencies, float position,
                           int64_t count);

/* `groups` groups of random words from number `group` on (kernels/random.h). */
typedef void coh_row_random(uint32_t *words, const coh_random *random, uint64_t group,
                            int64_t groups);

/* values[i] = (float)(scale * coh_rng_normal(seed, stream, first + i)), base/rng.h */
typedef void coh_row_normal(float *values, uint64_t seed, uint64_t stream, uint64_t first,
                            int64_t count, double scale);

/* y = x as bf16, rounded away from zero if the discarded bits plus the element's half reach 2^16
 * (kernels/quantise.h). */
typedef void coh_row_stochastic_round(uint16_t *y, const float *x, const uint32_t *halves,
                                      int64_t count);
/* Quantises one block, with its elements' halves or (NULL) to nearest; returns its scale. And
 * back. */
typedef float coh_row_quantise(int8_t *codes, const float *x, const uint32_t *halves,
                               int64_t count);
typedef void coh_row_dequantise(float *y, const int8_t *codes, float scale, int64_t count);

/* Running softmax (Milakov and Gimelshein 2018, alg. 3): folds a row's next `count` scores into
 * *max and *sum (start: -infinity and 0). Replaces each score by exp(score - new max). Returns
 * exp(old max - new max), the factor for earlier accumulations. */
typedef float coh_row_softmax_exp(float *row, int64_t count, float *max, float *sum);

/* ---- over the element type ---- */

/* Sum of x^2 in double, lanes first. */
typedef double coh_row_square_sum(const void *x, int64_t count);
typedef int coh_row_all_finite(const void *x, int64_t count);
/* to += from */
typedef void coh_row_add(void *to, const void *from, int64_t count);
/* to = a + b; `to` may be a or b */
typedef void coh_row_sum(void *to, const void *a, const void *b, int64_t count);
/* total += factor * from */
typedef void coh_row_add_scaled(float *total, const void *from, float factor, int64_t count);
typedef float coh_row_dot(const void *a, const void *b, int64_t count);
/* Between f32 sums and rows: total += from; to (= or +=) total, rounded once. */
typedef void coh_row_gather(float *total, const void *from, int64_t count);
typedef void coh_row_put(void *to, const float *total, int64_t count, int adds);
/* sums = the rows from[0] + first, from[1] + first, ..., added in the order of the shape. */
typedef void coh_row_fold(float *sums, const void *const *from, int64_t first,
                          const coh_fold_shape *shape, int64_t count);

/* y = gelu(x); y may be x */
typedef void coh_row_gelu(void *y, const void *x, int64_t count);
/* dx (= or +=) dy * gelu'(x); dx may be dy if it does not add */
typedef void coh_row_gelu_backward(void *dx, const void *dy, const void *x, int64_t count,
                                   int adds);

/* dh = dy * gelu'(h), and sums += dh before it is rounded. dh may be dy. */
typedef void coh_row_gelu_gradient(void *dh, const void *dy, const void *h, float *sums,
                                   int64_t count);

/* y = max(x, 0): NaN stays; y may be x. dx (= or +=) dy where y > 0, 0 elsewhere; dx may be dy if
 * it does not add. */
typedef coh_row_gelu coh_row_relu;
typedef coh_row_gelu_backward coh_row_relu_backward;
/* As gelu_gradient, with relu's y. */
typedef coh_row_gelu_gradient coh_row_relu_gradient;

/* to = base + scale * from where the word is at least `threshold`, else base; base NULL counts as
 * zeros. `to` may be `from` or `base`. */
typedef struct coh_drop_row {
    void *to;
    const void *from, *base;
    const uint32_t *words; /* one per element */
    uint32_t threshold;
    float scale;
    int64_t count;
} coh_drop_row;
typedef void coh_row_drop(const coh_drop_row *row);

/* y = gate / (1 + e^-gate) * up; y may be either */
typedef void coh_row_swiglu(void *y, const void *gate, const void *up, int64_t count);
/* dgate or dup NULL: not wanted. Either may be dy if it does not add. */
typedef struct coh_swiglu_row {
    const void *dy, *gate, *up;
    void *dgate, *dup;
    int64_t count;
    int32_t dgate_adds, dup_adds;
} coh_swiglu_row;
typedef void coh_row_swiglu_backward(const coh_swiglu_row *row);
/* As above, with gelu(gate) * up. */
typedef coh_row_swiglu coh_row_geglu;
typedef coh_row_swiglu_backward coh_row_geglu_backward;

/* y (= or +=) a row of heads, each pair (x[i], x[i + half]) rotated by cosine[i] and sine[i]. y may
 * be x if it does not add. */
typedef struct coh_rope_row {
    const void *x;
    void *y;
    const float *cosine, *sine;
    int64_t heads, half;
    int32_t adds;
} coh_rope_row;
typedef void coh_row_rope(const coh_rope_row *row);

/* y = (x - mean) * rstd * weight + bias over C channels; returns mean and rstd. y may be x. */
typedef void coh_row_norm(void *y, const void *x, const void *weight, const void *bias, int64_t C,
                          float epsilon, float *out_mean, float *out_rstd);
/* One row of layer norm's backward. dx NULL: not wanted. dweight, dbias: C sums to which this row
 * is added. dx may be dy if it does not add. */
typedef struct coh_norm_row {
    void *dx;
    const void *dy, *x, *weight;
    float mean, rstd;
    float *dweight, *dbias;
    int64_t C;
    int32_t adds;
    float offset; /* RMS norm */
} coh_norm_row;
typedef void coh_row_norm_backward(const coh_norm_row *row);

/* RMS norm: y = x * rstd * (weight + offset), rstd = 1 / sqrt(mean(x^2) + epsilon). Backward uses
 * neither mean nor dbias. */
typedef void coh_row_rms(void *y, const void *x, const void *weight, int64_t C, float epsilon,
                         float offset, float *out_rstd);
typedef void coh_row_rms_backward(const coh_norm_row *row);

/* As softmax_exp, but leaves the row unchanged. */
typedef void coh_row_softmax_take(const void *row, int64_t count, float *max, float *sum);
/* to = cap tanh(from / cap). And the gradient behind it, to the element type: to = gradient (1 -
 * (capped / cap)^2). */
typedef void coh_row_soft_cap(float *to, const void *from, int64_t count, float cap);
typedef void coh_row_soft_cap_back(void *to, const float *gradient, const float *capped,
                                   int64_t count, float cap);
/* row = factor * exp(row - shift) */
typedef void coh_row_softmax_again(void *row, int64_t count, float shift, float factor);

#define COH_FLOAT_ROW_LIST(X)                                                                      \
    X(adamw)                                                                                       \
    X(adamw8)                                                                                      \
    X(dequantise)                                                                                  \
    X(join)                                                                                        \
    X(lion)                                                                                        \
    X(normal)                                                                                      \
    X(quantise)                                                                                    \
    X(random)                                                                                      \
    X(split)                                                                                       \
    X(sgd)                                                                                         \
    X(scale)                                                                                       \
    X(softmax_exp)                                                                                 \
    X(stochastic_round)                                                                            \
    X(turns)

#define COH_ROW_LIST(X)                                                                            \
    X(square_sum)                                                                                  \
    X(all_finite)                                                                                  \
    X(add)                                                                                         \
    X(sum)                                                                                         \
    X(add_scaled)                                                                                  \
    X(dot)                                                                                         \
    X(gather)                                                                                      \
    X(fold)                                                                                        \
    X(put)                                                                                         \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(gelu_gradient)                                                                               \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(relu_gradient)                                                                               \
    X(drop)                                                                                        \
    X(swiglu)                                                                                      \
    X(swiglu_backward)                                                                             \
    X(geglu)                                                                                       \
    X(geglu_backward)                                                                              \
    X(rope)                                                                                        \
    X(norm)                                                                                        \
    X(norm_backward)                                                                               \
    X(rms)                                                                                         \
    X(rms_backward)                                                                                \
    X(soft_cap)                                                                                    \
    X(soft_cap_back)                                                                               \
    X(softmax_take)                                                                                \
    X(softmax_again)

typedef struct coh_rows {
    const char *name; /* "plain", "avx2", "avx512" */
#define COH_ROW_FIELD(row) coh_row_##row *row;
    COH_FLOAT_ROW_LIST(COH_ROW_FIELD)
    COH_ROW_LIST(COH_ROW_FIELD)
#undef COH_ROW_FIELD
} coh_rows;

#endif
