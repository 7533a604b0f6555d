/* attention_cases.h - attention shapes for the emulated and the real CUDA kernels, as operator
 * cases that are compared with tests/reference. */
#ifndef COH_TESTS_CUDA_ATTENTION_CASES_H
#define COH_TESTS_CUDA_ATTENTION_CASES_H

#include "cohobate/kinds.h"
#include "tests/reference/call.h"

typedef struct attention_shape {
    const char *why;
    coh_dtype dtype;
    int64_t B, T, H, G, D; /* G == H without scores: q, k and v are adjacent in one tensor */
    double dropped;        /* share of the weights that is dropped; 0: the kind without dropout */
    coh_attention_scores scores;
    int32_t document; /* mean length of a row's documents; 0: it is one, without positions */
} attention_shape;

static const attention_shape attention_shapes[] = {
    { "one token", COH_DTYPE_BF16, 1, 1, 1, 1, 64, 0 },
    { "GPT-2's width, a block and a query", COH_DTYPE_BF16, 2, 65, 2, 2, 64, 0 },
    { "shared by threes, three blocks but one", COH_DTYPE_BF16, 1, 191, 3, 1, 64, 0 },
    { "dropout, shared heads, two blocks and a rest", COH_DTYPE_BF16, 2, 131, 4, 2, 64, 0.3 },
    { "narrow", COH_DTYPE_BF16, 2, 70, 3, 3, 16, 0 },
    { "eight wide, dropout", COH_DTYPE_BF16, 1, 33, 2, 1, 8, 0.1 },
    { "80 wide", COH_DTYPE_BF16, 1, 97, 2, 2, 80, 0 },
    { "72 of 80 columns, shared, dropout", COH_DTYPE_BF16, 1, 100, 2, 1, 72, 0.5 },
    { "96 wide, dropout", COH_DTYPE_BF16, 1, 70, 1, 1, 96, 0.2 },
    { "Llama's width, shared by fours", COH_DTYPE_BF16, 1, 129, 4, 1, 128, 0 },
    { "Llama's width, dropout", COH_DTYPE_BF16, 1, 67, 2, 2, 128, 0.1 },
    { "the widest tiles", COH_DTYPE_BF16, 1, 97, 2, 1, 256, 0 },
    { "200 of 256 columns, dropout", COH_DTYPE_BF16, 1, 66, 1, 1, 200, 0.4 },
    { "bf16 off 16 bytes", COH_DTYPE_BF16, 1, 45, 2, 2, 20, 0 },
    { "bf16 wider than tiles, shared", COH_DTYPE_BF16, 1, 37, 2, 1, 264, 0.1 },
    { "all ones in f32", COH_DTYPE_F32, 1, 1, 1, 1, 1, 0 },
    { "f32, two blocks and a rest, shared", COH_DTYPE_F32, 2, 67, 4, 2, 64, 0 },
    { "f32, odd width, dropout", COH_DTYPE_F32, 1, 50, 3, 3, 33, 0.25 },
    { "f32, the widest, dk in two parts", COH_DTYPE_F32, 1, 40, 2, 1, 512, 0 },
    { "a window of a key", COH_DTYPE_BF16, 1, 65, 1, 1, 32, 0, { 1 } },
    { "a window within tiles, shared", COH_DTYPE_BF16, 1, 200, 2, 1, 64, 0, { 50 } },
    { "a window of a tile and a key, dropout", COH_DTYPE_BF16, 1, 199, 2, 1, 128, 0.2, { 65 } },
    { "a window of the widest tiles", COH_DTYPE_BF16, 1, 131, 1, 1, 256, 0, { 33 } },
    { "f32, a window", COH_DTYPE_F32, 1, 131, 2, 1, 40, 0, { 34 } },
    { "f32, a window below a tile, dropout", COH_DTYPE_F32, 1, 70, 2, 2, 33, 0.25, { 7 } },
    { "capped", COH_DTYPE_BF16, 1, 97, 2, 1, 64, 0, { .cap = 2.0f } },
    { "capped, another scale, a window, dropout",
      COH_DTYPE_BF16,
      1,
      131,
      2,
      2,
      128,
      0.2,
      { 70, 0.2f, 3.0f } },
    { "the widest tiles, capped", COH_DTYPE_BF16, 1, 67, 2, 1, 256, 0, { .cap = 1.5f } },
    { "f32, capped, a window", COH_DTYPE_F32, 1, 70, 2, 1, 33, 0, { 40, 0.0f, 1.5f } },
    { "documents of a token", COH_DTYPE_BF16, 1, 65, 1, 1, 32, 0, { 0 }, 1 },
    { "documents within tiles, shared", COH_DTYPE_BF16, 2, 200, 2, 1, 64, 0, { 0 }, 20 },
    { "documents of about a tile, side by side", COH_DTYPE_BF16, 1, 199, 2, 2, 128, 0, { 0 }, 64 },
    { "documents, a window and a cap, 96 wide",
      COH_DTYPE_BF16,
      1,
      131,
      2,
      1,
      96,
      0,
      { 30, 0.0f, 2.0f },
      50 },
    { "documents in the widest tiles", COH_DTYPE_BF16, 1, 131, 1, 1, 256, 0, { 0 }, 40 },
    { "documents, dropout, shared", COH_DTYPE_BF16, 1, 131, 4, 2, 64, 0.3, { 0 }, 40 },
    { "f32, documents", COH_DTYPE_F32, 2, 131, 2, 1, 40, 0, { 0 }, 30 },
    { "f32, documents side by side, dropout", COH_DTYPE_F32, 1, 70, 2, 2, 33, 0.25, { 0 }, 9 },
    { "f32, another scale", COH_DTYPE_F32, 1, 40, 1, 1, 16, 0, { .scale = 0.4f } },
};
#define ATTENTION_SHAPES ((int)(sizeof(attention_shapes) / sizeof(attention_shapes[0])))

/* Storage of the attributes, owned by the caller. */
typedef union attention_attributes {
    coh_attention_attributes plain;
    coh_attention_dropout_attributes dropout;
    coh_attention_grouped_attributes grouped;
    coh_attention_grouped_dropout_attributes grouped_dropout;
} attention_attributes;

/* Has it scores that plain attention has not? */
static inline int attention_is_shaped(const attention_shape *s)
{
    return s->scores.window > 0 || s->scores.scale > 0 || s->scores.cap > 0;
}

/* Creates the case of a kind with documents, whose positions are its last input. */
static inline void attention_documents_create(coh_case *one, const attention_shape *s,
                                              const coh_op_kind *kind,
                                              const attention_attributes *attributes,
                                              const coh_shape *inputs)
{
    coh_shape all[4];
    const int count = kind->input_count;
    for (int i = 0; i + 1 < count; i++)
        all[i] = inputs[i];
    all[count - 1] = (coh_shape){ .dtype = COH_DTYPE_I32, .rank = 2, .dim = { s->B, s->T } };
    coh_case_create(one, kind, attributes, all, 11);
    coh_case_ids(one, count - 1, s->document, 11);
}

static inline coh_shape attention_rows(const attention_shape *s, int64_t columns)
{
    return (coh_shape){ .dtype = s->dtype, .rank = 3, .dim = { s->B, s->T, columns } };
}

/* atomics: a kind that may add by atomics, where nothing is dropped. */
static inline void attention_case_create(coh_case *one, const attention_shape *s, int atomics,
                                         attention_attributes *attributes)
{
    const coh_op_kind *const kinds[2][2] = {
        { &coh_kind_attention, &coh_kind_attention_grouped },
        { &coh_kind_attention_atomic, &coh_kind_attention_grouped_atomic },
    };
    const int drops = s->dropped > 0;
    if (s->G == s->H && !attention_is_shaped(s)) {
        const coh_shape qkv = attention_rows(s, 3 * s->H * s->D);
        if (drops)
            attributes->dropout = (coh_attention_dropout_attributes){ { s->H }, s->dropped };
        else
            attributes->plain = (coh_attention_attributes){ s->H };
        if (s->document > 0)
            attention_documents_create(one, s,
                                       drops ? &coh_kind_attention_documents_dropout
                                             : &coh_kind_attention_documents,
                                       attributes, &qkv);
        else
            coh_case_create(one, drops ? &coh_kind_attention_dropout : kinds[atomics][0],
                            attributes, &qkv, 11);
        return;
    }
    const coh_shape shapes[] = { attention_rows(s, s->H * s->D), attention_rows(s, s->G * s->D),
                                 attention_rows(s, s->G * s->D) };
    if (drops)
        attributes->grouped_dropout =
            (coh_attention_grouped_dropout_attributes){ s->H, s->G, s->dropped, s->scores };
    else
        attributes->grouped = (coh_attention_grouped_attributes){ s->H, s->G, s->scores };
    if (s->document > 0)
        attention_documents_create(one, s,
                                   drops ? &coh_kind_attention_grouped_documents_dropout
                                         : &coh_kind_attention_grouped_documents,
                                   attributes, shapes);
    else
        coh_case_create(one, drops ? &coh_kind_attention_grouped_dropout : kinds[atomics][1],
                        attributes, shapes, 11);
}

#endif
