/* shapes.h - the table of cases shared by the tests of the kinds; each shape is there for a
 * reason. */
#ifndef COH_TESTS_KERNELS_SHAPES_H
#define COH_TESTS_KERNELS_SHAPES_H

#include "cohobate/kinds.h"
#include "kernels/cpu/panel.h"
#include "tests/reference/call.h"

#define F32(...)                                                                                   \
    {                                                                                              \
        .dtype = COH_DTYPE_F32, .dim = { __VA_ARGS__ },                                            \
        .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)                               \
    }
#define BF16(...)                                                                                  \
    {                                                                                              \
        .dtype = COH_DTYPE_BF16, .dim = { __VA_ARGS__ },                                           \
        .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)                               \
    }
#define I32(...)                                                                                   \
    {                                                                                              \
        .dtype = COH_DTYPE_I32, .dim = { __VA_ARGS__ },                                            \
        .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)                               \
    }

typedef struct shape_case {
    const char *why;
    const coh_op_kind *kind;
    const void *attributes;
    coh_shape inputs[3];
    int32_t ids;  /* upper bound of the i32 input */
    int is_large; /* one of the four cases with more multiplications than all others together */
} shape_case;

#define ATTRIBUTES(type, ...)                                                                      \
    &(const type)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const shape_case shape_cases[] = {
    { "linear: all ones",
      &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 1, 1, 0.02f),
      { F32(1, 1) },
      0 },
    { "linear: primes, no bias",
      &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 17, 0, 0.02f),
      { F32(3, 5, 13) },
      0 },
    { "linear: middle tiles, remainders of 16",
      &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 401, 1, 0.02f),
      { F32(257, 67) },
      0,
      1 },
    { "linear: largest tiles, several of each side",
      &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 1031, 1, 0.02f),
      { F32(2, 311, 31) },
      0,
      1 },
    { "linear: two blocks of depth of pairs of bf16, three of floats",
      &coh_kind_linear,
      ATTRIBUTES(coh_linear_attributes, 41, 1, 0.02f),
      { F32(1, 13, 2 * COH_PANEL_WORDS + 29) },
      0 },
    { "linear_residual: primes",
      &coh_kind_linear_residual,
      ATTRIBUTES(coh_linear_attributes, 23, 1, 0.02f),
      { F32(2, 7, 11), F32(2, 7, 23) },
      0 },
    { "linear_residual: no bias, several tiles",
      &coh_kind_linear_residual,
      ATTRIBUTES(coh_linear_attributes, 199, 0, 0.02f),
      { F32(301, 29), F32(301, 199) },
      0 },
    { "linear_gelu: all ones",
      &coh_kind_linear_gelu,
      ATTRIBUTES(coh_linear_attributes, 1, 1, 0.02f),
      { F32(1, 1) },
      0 },
    { "linear_gelu: primes, no bias",
      &coh_kind_linear_gelu,
      ATTRIBUTES(coh_linear_attributes, 17, 0, 0.02f),
      { F32(3, 5, 13) },
      0 },
    { "linear_gelu: two strips of columns, three blocks of rows",
      &coh_kind_linear_gelu,
      ATTRIBUTES(coh_linear_attributes, 4099, 1, 0.02f),
      { F32(2, 17, 7) },
      0 },
    { "linear_relu: all ones",
      &coh_kind_linear_relu,
      ATTRIBUTES(coh_linear_attributes, 1, 1, 0.02f),
      { F32(1, 1) },
      0 },
    { "linear_relu: primes, no bias",
      &coh_kind_linear_relu,
      ATTRIBUTES(coh_linear_attributes, 17, 0, 0.02f),
      { F32(3, 5, 13) },
      0 },
    { "linear_relu: two strips of columns, three blocks of rows",
      &coh_kind_linear_relu,
      ATTRIBUTES(coh_linear_attributes, 4099, 1, 0.02f),
      { F32(2, 17, 7) },
      0 },
    { "layernorm: one channel",
      &coh_kind_layernorm,
      ATTRIBUTES(coh_layernorm_attributes, 1e-5f),
      { F32(3, 1) },
      0 },
    { "layernorm: primes, three blocks of rows",
      &coh_kind_layernorm,
      ATTRIBUTES(coh_layernorm_attributes, 1e-5f),
      { F32(1, 131, 37) },
      0 },
    { "layernorm: more channels than one fold",
      &coh_kind_layernorm,
      ATTRIBUTES(coh_layernorm_attributes, 1e-5f),
      { F32(5, 13, 389) },
      0 },
    { "rmsnorm: one channel",
      &coh_kind_rmsnorm,
      ATTRIBUTES(coh_rmsnorm_attributes, 1e-5f),
      { F32(3, 1) },
      0 },
    { "rmsnorm: primes, three blocks of rows",
      &coh_kind_rmsnorm,
      ATTRIBUTES(coh_rmsnorm_attributes, 1e-6f),
      { F32(1, 131, 37) },
      0 },
    { "rmsnorm: more channels than one fold",
      &coh_kind_rmsnorm,
      ATTRIBUTES(coh_rmsnorm_attributes, 1e-5f),
      { F32(5, 13, 389) },
      0 },
    { "relu: one", &coh_kind_relu, NULL, { F32(1) }, 0 },
    { "relu: more than one grain, odd rest", &coh_kind_relu, NULL, { F32(3, 6007) }, 0 },
    { "linear_uniform: primes, no bias",
      &coh_kind_linear_uniform,
      ATTRIBUTES(coh_linear_attributes, 5, 0, 0.0f),
      { F32(3, 11, 37) },
      0 },
    { "scale: one", &coh_kind_scale, ATTRIBUTES(coh_scale_attributes, -0.375f), { F32(1) }, 0 },
    { "scale: more than one grain, odd rest",
      &coh_kind_scale,
      ATTRIBUTES(coh_scale_attributes, 1.9f),
      { F32(3, 6007) },
      0 },
    { "swiglu: one", &coh_kind_swiglu, NULL, { F32(1), F32(1) }, 0 },
    { "swiglu: more than one grain, odd rest",
      &coh_kind_swiglu,
      NULL,
      { F32(3, 6007), F32(3, 6007) },
      0 },
    { "gelu: one", &coh_kind_gelu, NULL, { F32(1) }, 0 },
    { "gelu: more than one grain, odd rest", &coh_kind_gelu, NULL, { F32(3, 6007) }, 0 },
    { "embedding: one row",
      &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 1, 1, 1.0f),
      { I32(1, 1) },
      1 },
    { "embedding: several blocks, odd channels, tokens that repeat",
      &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 3083, 67, 1.0f),
      { I32(3, 97) },
      3083 },
    { "embedding: few rows, each hit often",
      &coh_kind_embedding,
      ATTRIBUTES(coh_embedding_attributes, 3, 5, 1.0f),
      { I32(7, 29) },
      3 },
    { "embedding_padded: few rows, one of them the padding",
      &coh_kind_embedding_padded,
      ATTRIBUTES(coh_embedding_padded_attributes, { 3, 5, 1.0f }, 1),
      { I32(7, 29) },
      3 },
    { "embedding_padded: two blocks of rows",
      &coh_kind_embedding_padded,
      ATTRIBUTES(coh_embedding_padded_attributes, { 1031, 3, 1.0f }, 1026),
      { I32(9, 211) },
      1031 },
    { "position: unused rows",
      &coh_kind_position,
      ATTRIBUTES(coh_position_attributes, 41, 1.0f),
      { F32(3, 19, 23) },
      0 },
    { "position: all ones",
      &coh_kind_position,
      ATTRIBUTES(coh_position_attributes, 1, 1.0f),
      { F32(1, 1, 1) },
      0 },
    { "position: rows that are never read, before and after",
      &coh_kind_position,
      ATTRIBUTES(coh_position_attributes, 31, 1.0f, 2),
      { F32(3, 19, 23) },
      0 },
    { "rope: one pair",
      &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 1, 10000.0),
      { F32(1, 1, 2) },
      0 },
    { "rope: odd halves, several pieces",
      &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 3, 10000.0),
      { F32(2, 67, 3 * 2 * 21) },
      0 },
    { "rope: whole vectors, linear scaling",
      &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 2, 10000.0, COH_ROPE_LINEAR, 4.0f),
      { F32(1, 40, 2 * 64) },
      0 },
    { "rope: llama3, all three bands, the middle one several pairs wide",
      &coh_kind_rope,
      ATTRIBUTES(coh_rope_attributes, 2, 500000.0, COH_ROPE_LLAMA3, 8.0f, 1.0f, 4.0f, 64),
      { F32(2, 33, 2 * 48) },
      0 },
    { "attention: all ones",
      &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 1),
      { F32(1, 1, 3) },
      0 },
    { "attention: primes, two blocks of queries",
      &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 3),
      { F32(2, 67, 3 * 3 * 5) },
      0 },
    { "attention: exact tiles",
      &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 2),
      { F32(1, 256, 3 * 2 * 16) },
      0 },
    { "attention: two tiles of keys, odd rest",
      &coh_kind_attention,
      ATTRIBUTES(coh_attention_attributes, 1),
      { F32(1, 331, 3 * 17) },
      0 },
    { "attention_grouped: all ones",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 1, 1),
      { F32(1, 1, 1), F32(1, 1, 1), F32(1, 1, 1) },
      0 },
    { "attention_grouped: two heads of keys for six, primes",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 6, 2),
      { F32(2, 67, 6 * 5), F32(2, 67, 2 * 5), F32(2, 67, 2 * 5) },
      0 },
    { "attention_grouped: one for all, several parts and blocks, odd rest",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 3, 1),
      { F32(1, 277, 3 * 17), F32(1, 277, 17), F32(1, 277, 17) },
      0 },
    { "attention_grouped: as many of both",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 3, 3),
      { F32(2, 67, 3 * 5), F32(2, 67, 3 * 5), F32(2, 67, 3 * 5) },
      0 },
    { "attention_grouped: one part a head",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 8, 2),
      { F32(5, 19, 8 * 16), F32(5, 19, 2 * 16), F32(5, 19, 2 * 16) },
      0 },
    { "attention_grouped: a window of one key",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 2, 1, { .window = 1 }),
      { F32(1, 21, 2 * 6), F32(1, 21, 6), F32(1, 21, 6) },
      0 },
    { "attention_grouped: a window that ends within tiles, several parts",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 3, 1, { .window = 37 }),
      { F32(1, 277, 3 * 17), F32(1, 277, 17), F32(1, 277, 17) },
      0 },
    { "attention_grouped: a window as long as the sequence",
      &coh_kind_attention_grouped,
      ATTRIBUTES(coh_attention_grouped_attributes, 6, 2, { .window = 67 }),
      { F32(2, 67, 6 * 5), F32(2, 67, 2 * 5), F32(2, 67, 2 * 5) },
      0 },
    { "attention_atomic: primes, two blocks of queries",
      &coh_kind_attention_atomic,
      ATTRIBUTES(coh_attention_attributes, 3),
      { F32(2, 67, 3 * 3 * 5) },
      0 },
    { "attention_grouped_atomic: two heads of keys for six, primes",
      &coh_kind_attention_grouped_atomic,
      ATTRIBUTES(coh_attention_grouped_attributes, 6, 2),
      { F32(2, 67, 6 * 5), F32(2, 67, 2 * 5), F32(2, 67, 2 * 5) },
      0 },
    { "dropout: one", &coh_kind_dropout, ATTRIBUTES(coh_dropout_attributes, 0.5), { F32(1) }, 0 },
    { "dropout: more than one grain, odd rest",
      &coh_kind_dropout,
      ATTRIBUTES(coh_dropout_attributes, 0.1),
      { F32(3, 6007) },
      0 },
    { "dropout: never",
      &coh_kind_dropout,
      ATTRIBUTES(coh_dropout_attributes, 0.0),
      { F32(3, 5, 7) },
      0 },
    { "dropout_residual: more than one grain, odd rest",
      &coh_kind_dropout_residual,
      ATTRIBUTES(coh_dropout_attributes, 0.7),
      { F32(3, 53, 113), F32(3, 53, 113) },
      0 },
    { "attention_dropout: one pair",
      &coh_kind_attention_dropout,
      ATTRIBUTES(coh_attention_dropout_attributes, { 1 }, 0.25),
      { F32(1, 1, 3) },
      0 },
    { "attention_dropout: primes, two blocks of queries",
      &coh_kind_attention_dropout,
      ATTRIBUTES(coh_attention_dropout_attributes, { 3 }, 0.1),
      { F32(2, 67, 3 * 3 * 5) },
      0 },
    { "attention_dropout: two tiles of keys, odd rest",
      &coh_kind_attention_dropout,
      ATTRIBUTES(coh_attention_dropout_attributes, { 1 }, 0.6),
      { F32(1, 331, 3 * 17) },
      0 },
    { "attention_grouped_dropout: two heads of keys for six, primes",
      &coh_kind_attention_grouped_dropout,
      ATTRIBUTES(coh_attention_grouped_dropout_attributes, 6, 2, 0.3),
      { F32(2, 67, 6 * 5), F32(2, 67, 2 * 5), F32(2, 67, 2 * 5) },
      0 },
    { "attention_grouped_dropout: as many of both",
      &coh_kind_attention_grouped_dropout,
      ATTRIBUTES(coh_attention_grouped_dropout_attributes, 3, 3, 0.1),
      { F32(2, 135, 3 * 5), F32(2, 135, 3 * 5), F32(2, 135, 3 * 5) },
      0 },
    { "attention_grouped_dropout: a window of a tile of keys and a half",
      &coh_kind_attention_grouped_dropout,
      ATTRIBUTES(coh_attention_grouped_dropout_attributes, 3, 3, 0.1, { .window = 190 }),
      { F32(1, 333, 3 * 5), F32(1, 333, 3 * 5), F32(1, 333, 3 * 5) },
      0 },
    { "classifier: all ones",
      &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 1, 1.0f),
      { F32(1, 1, 1), I32(1, 1) },
      1 },
    { "classifier: primes",
      &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 257, 1.0f),
      { F32(3, 7, 13), I32(3, 7) },
      257 },
    { "classifier: three blocks of rows",
      &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 2083, 1.0f),
      { F32(2, 19, 11), I32(2, 19) },
      2083 },
    { "classifier: two chunks of tokens (f32), two blocks of rows",
      &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 1031, 1.0f),
      { F32(5, 215, 7), I32(5, 215) },
      1031,
      1 },
    { "classifier: two chunks of tokens (bf16), two blocks of rows",
      &coh_kind_classifier,
      ATTRIBUTES(coh_classifier_attributes, 1031, 1.0f),
      { F32(7, 331, 5), I32(7, 331) },
      1031,
      1 },
};
#define SHAPE_COUNT ((int)(sizeof(shape_cases) / sizeof(shape_cases[0])))
/* Every shape in f32, then every shape in bf16. */
#define SHAPE_CASES (2 * SHAPE_COUNT)

static inline const shape_case *shape_case_at(int index)
{
    return &shape_cases[index % SHAPE_COUNT];
}

/* Makes case `index` with random data; a few targets are -1. */
static inline void shape_case_create(coh_case *one, int index, uint64_t seed)
{
    static coh_embedding_padded_attributes in_bf16[SHAPE_COUNT];
    const shape_case *from = shape_case_at(index);
    const void *attributes = from->attributes;
    coh_shape inputs[3] = { from->inputs[0], from->inputs[1], from->inputs[2] };
    for (int i = 0; i < from->kind->input_count && index >= SHAPE_COUNT; i++)
        if (inputs[i].dtype == COH_DTYPE_F32)
            inputs[i].dtype = COH_DTYPE_BF16;
    if (index >= SHAPE_COUNT && inputs[0].dtype == COH_DTYPE_I32) {
        coh_embedding_padded_attributes *here = &in_bf16[index % SHAPE_COUNT];
        if (from->kind == &coh_kind_embedding)
            here->embedding = *(const coh_embedding_attributes *)attributes;
        else
            *here = *(const coh_embedding_padded_attributes *)attributes;
        here->embedding.dtype = COH_DTYPE_BF16;
        attributes = here;
    }
    coh_case_create(one, from->kind, attributes, inputs, seed);
    for (int i = 0; i < from->kind->input_count; i++)
        if (from->inputs[i].dtype == COH_DTYPE_I32)
            coh_case_ids(one, i, from->ids, seed);
    const int64_t items = coh_shape_elements(&one->call.input[1].shape);
    for (int64_t n = 3; from->kind->is_loss && n < items; n += 7)
        ((int32_t *)one->call.input[1].data)[n] = -1;
}

#endif
