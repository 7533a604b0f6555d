/* attention.h - shared parts of attention's forward and backward: heads, masks, the exponential.
 *
 * Scores are stored transposed, a row per key and a lane per query. So the maximum, sum and
 * gradient's mean of a query are lanes of a vector, and a pair of keys is a pair of rows. */
#ifndef COH_KERNELS_CPU_ISA_ATTENTION_H
#define COH_KERNELS_CPU_ISA_ATTENTION_H

#include <math.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa/block.h"
#include "kernels/cpu/isa/philox.h"
#include "kernels/cpu/smaller.h"

#define attention_forward  COH_ISA_EXPAND(coh_attention_forward, COH_ISA)
#define attention_backward COH_ISA_EXPAND(coh_attention_backward, COH_ISA)
#define attention_fold     COH_ISA_EXPAND(coh_attention_fold, COH_ISA)
#define attention_group    COH_ISA_EXPAND(coh_attention_group, COH_ISA)

void attention_forward(const coh_attention *attention, int64_t index);
void attention_backward(const coh_attention *attention, int64_t index);
void attention_fold(const coh_attention *attention, int64_t index);
void attention_group(const coh_attention *attention, int64_t index);

/* One head of queries of one sequence, with its head of keys and values. */
typedef struct head {
    coh_dtype dtype;
    int64_t T, D, window;
    const int32_t *positions; /* of the tokens in their documents; NULL: the row is one */
    int is_band;              /* a window or documents: a query may see no key of the first tile */
    int64_t q_stride, kv_stride, y_stride;
    int64_t width, words, depth; /* D in columns, in words of a row with and without padding */
    int64_t queries, keys;       /* of a block */
    const void *q, *k, *v;
    void *y;
    float *lse;
    const void *dy;
    void *dq, *dk, *dv; /* NULL: not wanted */
    float scale;
    float cap, to_cap; /* of scores before scaling, and its inverse; 0: none */
    const coh_drop *drop;
    coh_random random;  /* for dropout */
    uint32_t first_row; /* of four keys: in the counters of the words for dropout */
    float kept;         /* final factor of the weights that are not dropped */
} head;

LANES_INLINE void *gradient_at(coh_dtype dtype, void *tensor, int64_t index)
{
    return tensor == NULL ? NULL : coh_element(dtype, tensor, index);
}

LANES_INLINE head head_at(const coh_attention *a, int64_t index)
{
    const int64_t b = index / a->H, h = index % a->H, C = a->H * a->D;
    const int64_t q = b * a->T * a->q_stride + h * a->D, y = b * a->T * C + h * a->D;
    const int64_t kv = b * a->T * a->kv_stride + h / (a->H / a->G) * a->D;
    const coh_attention_cut cut = coh_attention_cut_of(a);
    head one = {
        .dtype = a->dtype,
        .T = a->T,
        .D = a->D,
        .window = a->window > 0 ? a->window : a->T, /* T is no limit */
        .positions = a->positions == NULL ? NULL : a->positions + b * a->T,
        .is_band = cut.is_band,
        .q_stride = a->q_stride,
        .kv_stride = a->kv_stride,
        .y_stride = C,
        .width = cut.width,
        .depth = (a->D + WORD_ELEMENTS - 1) / WORD_ELEMENTS,
        .queries = cut.queries,
        .keys = cut.keys,
        .q = coh_element_const(a->dtype, a->q, q),
        .k = coh_element_const(a->dtype, a->k, kv),
        .v = coh_element_const(a->dtype, a->v, kv),
        .y = coh_element(a->dtype, a->y, y),
        .lse = a->lse + index * a->T,
        .dy = gradient_at(a->dtype, (void *)a->dy, y),
        .dq = gradient_at(a->dtype, a->dq, q),
        .dk = gradient_at(a->dtype, a->dk, kv),
        .dv = gradient_at(a->dtype, a->dv, kv),
        .scale = a->scale > 0 ? a->scale : 1.0f / sqrtf((float)a->D),
        .drop = &a->drop,
        .first_row = (uint32_t)((a->first_head + index) * ((a->T + 3) / 4)),
        .kept = a->drop.threshold > 0 ? a->drop.scale : 1.0f,
    };
    one.words = block_round(one.depth, 16);
    if (a->cap > 0) {
        one.cap = a->cap / one.scale;
        one.to_cap = one.scale / a->cap;
    }
    if (a->drop.threshold > 0)
        one.random = coh_random_of(a->drop.cell, a->drop.operator_index, a->drop.microbatch);
    return one;
}

/* Packs rows [begin, begin + rows) of a tensor of the head, padded. */
LANES_INLINE void head_rows(const head *one, float *to, int64_t padded, const void *tensor,
                            int64_t stride, int64_t begin, int64_t rows)
{
    const block_source source = { one->dtype, coh_element_const(one->dtype, tensor, begin * stride),
                                  stride, rows, one->D };
    block_rows(to, one->words, padded, &source);
}

LANES_INLINE int64_t within(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Returns the first token of the document of token i, or of the last one for i >= T. */
LANES_INLINE int64_t head_document(const head *one, int64_t i)
{
    i = smaller(i, one->T - 1);
    return i - within(one->positions[i], 0, i);
}

/* Returns the first key that query i sees. */
LANES_INLINE int64_t head_first_key(const head *one, int64_t i)
{
    const int64_t first = i < one->window ? 0 : i + 1 - one->window;
    if (one->positions == NULL)
        return first;
    const int64_t begin = head_document(one, i);
    return begin > first ? begin : first;
}

/* Returns the end of the queries that see key j; documents are searched by halves. */
static inline int64_t head_end_query(const head *one, int64_t j)
{
    int64_t low = j + 1, high = smaller(one->T, j + one->window);
    if (one->positions == NULL)
        return j + one->window;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (head_document(one, middle) > j)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Writes the first keys that queries [begin, begin + count) see; those from T on, as the last. */
static inline void head_first_keys(const head *one, int32_t *to, int64_t begin, int64_t count)
{
    for (int64_t i = 0; i < count && one->positions != NULL; i++)
        to[i] = (int32_t)head_first_key(one, smaller(begin + i, one->T - 1));
}

/* Caps the scores, not scaled yet, of `keys` rows in lanes [first, end). */
LANES_INLINE void head_cap(const head *one, float *scores, int64_t keys, int64_t first, int64_t end)
{
    const vector cap = vector_all(one->cap), to_cap = vector_all(one->to_cap);
    for (int64_t j = 0; j < keys && one->cap > 0; j++)
        for (int64_t c = first; c < end; c += COH_VECTOR_FLOATS) {
            float *at = scores + j * one->queries + c;
            vector_store(at, cap * vector_tanh(vector_load(at) * to_cap));
        }
}

/* Computes masks of the weights of keys j to j + 3, j a multiple of four, that dropout keeps in the
 * queries from i on. */
LANES_INLINE void head_kept(const head *one, int64_t j, int64_t i, vector_bits kept[4])
{
    const coh_random *random = &one->random;
    kept[0] = bits_all((uint32_t)i) + bits_order();
    kept[1] = bits_all(one->first_row + (uint32_t)(j / 4));
    kept[2] = bits_all(random->high[0]);
    kept[3] = bits_all(random->high[1]);
    const philox_keys keys = philox_keys_of(random->key);
    philox_blocks(kept, &keys);
    for (int e = 0; e < 4; e++)
        kept[e] = bits_kept(kept[e], one->drop->threshold);
}

LANES_INLINE vector vector_multiply_add(vector a, vector b, vector c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* Returns `a` in the lanes from `first` on and `other` in the lanes below; 0 <= first <= lanes. */
LANES_INLINE vector lanes_from(int64_t first, vector a, vector other)
{
#if defined(__AVX512F__)
    return _mm512_mask_mov_ps(other, (__mmask16)(0xffffu << first), a);
#elif defined(__AVX__)
    const vector order = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return vector_select((vector_bits)(order >= vector_all((float)first)), a, other);
#else
    const vector order = { 0, 1, 2, 3 };
    return vector_select((vector_bits)(order >= vector_all((float)first)), a, other);
#endif
}

/* Returns `a` in the lanes of queries i, i + 1, ... that see key j, and `other` in the others.
 * `first_keys`: of these queries, by head_first_keys. */
LANES_INLINE vector head_seen(const head *one, const int32_t *first_keys, int64_t i, int64_t j,
                              vector a, float other)
{
    const int64_t first = within(j - i, 0, COH_VECTOR_FLOATS);
    const int64_t end = within(j - i + one->window, 0, COH_VECTOR_FLOATS);
    const vector none = vector_all(other);
    if (first > 0)
        a = lanes_from(first, a, none);
    if (one->positions != NULL) {
        vector_bits begins;
        memcpy(&begins, first_keys, sizeof(begins));
        return vector_select((vector_bits)(begins > bits_all((uint32_t)j)), none, a);
    }
    return end < COH_VECTOR_FLOATS ? lanes_from(end, none, a) : a;
}

/* 2^x for x <= 0 and a little above: n = round(x), |r| <= 1/2, 2^r by the polynomial of degree 5
 * with the least relative error and p(0) = 1 (below 3 * 2^-24 with rounding). Below -125 the result
 * is about 2^-125. NaN stays NaN, because 2^n is multiplied and not added to the exponent. The base
 * is 2 because log2(e) is part of the scale of the scores. */
LANES_INLINE vector vector_exp2(vector x)
{
    const vector round_shift = vector_all(0x1.8p23f + 127.0f); /* its last bits: exponent of 2^n */
    x = vector_larger(vector_all(-125.0f), x);
    const vector shifted = x + round_shift;
    const vector r = x - (shifted - round_shift);
    vector power = vector_all(0x1.5bba14p-10f);
    power = vector_multiply_add(power, r, vector_all(0x1.3cea88p-7f));
    power = vector_multiply_add(power, r, vector_all(0x1.c6b752p-5f));
    power = vector_multiply_add(power, r, vector_all(0x1.ebf9bcp-3f));
    power = vector_multiply_add(power, r, vector_all(0x1.62e42ap-1f));
    power = vector_multiply_add(power, r, vector_all(1.0f));
    return power * (vector)((vector_bits)shifted << 23);
}

#if WORD_ELEMENTS == 2
/* Words of two floats each, rounded to nearest even. */
LANES_INLINE vector vector_pair(vector first, vector second)
{
    const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first));
    const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second));
    return (vector)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#endif

#define LOG2_E 0x1.715476p+0f

#endif
