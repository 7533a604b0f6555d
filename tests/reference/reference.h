/* reference.h - the results that the built-in kinds must give: naive loops in double, with bounds
 * for the error of float.
 *
 * Bounds are derived, not fitted: an operation rounds by 2^-24 of its result, a sum of n terms in
 * any order is off by at most n 2^-24 sum |term|, and errors of inputs are propagated. In bf16
 * inputs are the stored values, and storing rounds by 2^-8 of a value. The naive backward passes
 * are compared with finite differences of the naive forward passes
 * (tests/kernels/test_reference.c). */
#ifndef COH_TESTS_REFERENCE_REFERENCE_H
#define COH_TESTS_REFERENCE_REFERENCE_H

#include "tests/reference/call.h"

typedef struct coh_array {
    double *value;
    double *bound; /* |float result - value| <= bound */
    int64_t count;
} coh_array;

enum { COH_REFERENCE_INPUTS = 4 };

/* The operator of a case, with inputs and parameters as doubles. */
typedef struct coh_reference {
    const coh_case *of;
    double *input[COH_REFERENCE_INPUTS], *parameter[2];
    const int32_t *ids[COH_REFERENCE_INPUTS];
    double *output_grad; /* NULL for a loss */
    /* relative rounding error of storing: 2^-8 in bf16; in f32 it is among the sums' errors */
    double store;
    /* relative rounding error of a product before bias and residual are added, in a library; 0:
     * none */
    double rounds_products;
    /* count 0: no such gradient */
    coh_array output, input_grad[COH_REFERENCE_INPUTS], parameter_grad[2];
} coh_reference;

/* Copies the case's present data. */
void coh_reference_create(coh_reference *out_reference, const coh_case *of);
void coh_reference_destroy(coh_reference *reference);

void coh_reference_forward(coh_reference *reference);
void coh_reference_backward(coh_reference *reference);

/* Compares a tensor with an array; on a failure prints name, place and both numbers and returns 0.
 * `before`: contents before an adding backward (NULL: none). */
int coh_reference_agrees(const char *name, const coh_array *expected, const coh_view *got,
                         const double *before);

/* Returns a tensor's elements as doubles, or NULL if there are none; the caller frees them. */
double *coh_doubles_of(const coh_view *view);

/* ---- per kind (reference_*.c) ---- */

void coh_reference_linear(coh_reference *r, int backward);
void coh_reference_linear_gelu(coh_reference *r, int backward);
void coh_reference_linear_relu(coh_reference *r, int backward);
void coh_reference_layernorm(coh_reference *r, int backward);
void coh_reference_rmsnorm(coh_reference *r, int backward);
void coh_reference_gelu(coh_reference *r, int backward);
void coh_reference_relu(coh_reference *r, int backward);
void coh_reference_scale(coh_reference *r, int backward);
void coh_reference_swiglu(coh_reference *r, int backward);
void coh_reference_geglu(coh_reference *r, int backward);
void coh_reference_add(coh_reference *r, int backward);
void coh_reference_swiglu_packed(coh_reference *r, int backward);
void coh_reference_embedding(coh_reference *r, int backward);
void coh_reference_position(coh_reference *r, int backward);
void coh_reference_rope(coh_reference *r, int backward);
void coh_reference_attention(coh_reference *r, int backward);
void coh_reference_attention_grouped(coh_reference *r, int backward);
void coh_reference_attention_dropout(coh_reference *r, int backward);
void coh_reference_attention_grouped_dropout(coh_reference *r, int backward);
void coh_reference_dropout(coh_reference *r, int backward);
void coh_reference_classifier(coh_reference *r, int backward);
void coh_reference_reshape(coh_reference *r, int backward);
void coh_reference_slice(coh_reference *r, int backward);
void coh_reference_concat(coh_reference *r, int backward);
void coh_reference_mean(coh_reference *r, int backward);
void coh_reference_softmax(coh_reference *r, int backward);
void coh_reference_cross_entropy(coh_reference *r, int backward);
void coh_reference_mean_squared_error(coh_reference *r, int backward);

/* ---- random words, as kernels/random.h numbers them (reference_dropout.c) ---- */

void coh_reference_philox(uint32_t block[4], const uint32_t counter[4], const uint32_t key[2]);
/* Writes a call's stream: the key of its words, then the upper half of their counters. */
void coh_reference_stream(const coh_call *call, uint32_t out_stream[4]);
/* Returns a word: by its number, or for query i and key j of one head of all sequences. */
uint32_t coh_reference_word(const uint32_t stream[4], uint64_t number);
uint32_t coh_reference_half(const uint32_t stream[4], uint64_t number);
uint32_t coh_reference_pair_word(const uint32_t stream[4], int64_t head, int64_t T, int64_t i,
                                 int64_t j);
/* Returns the factor of an element with that word. */
double coh_reference_kept(uint32_t word, double probability);

#define COH_EPS 0x1p-24

#endif
