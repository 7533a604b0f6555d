/* builder.h - builds the parts that all decoder graphs share: the beginning, the end, and the
 * operators that every family has. A family supplies the body between them.
 *
 *   training   tokens, targets, maybe positions [B,T] -> body -> loss
 *   decoding   token [1,T], position [1] -> body -> logits [1,1,V] of the last
 *
 * The two differ in how positions enter, which attention runs and how the graph ends. The functions
 * here handle these differences, so that one body serves both.
 *
 * `name` is an operator's name within its layer, or outside of layers: "mlp.down_proj", "norm". The
 * family's prefix and the layer are put before it: "model.layers.3.mlp.down_proj". */
#ifndef COH_MODELS_BUILDER_H
#define COH_MODELS_BUILDER_H

#include "base/check.h"
#include "cohobate/kinds.h"
#include "cohobate/models.h"

struct coh_family_table;

typedef struct coh_builder {
    const struct coh_family_table *family;
    coh_graph *graph;
    int decode;
    int64_t tokens;      /* decode: rows of the key-value cache */
    int64_t rows;        /* decode: tokens of a step, the last of which has logits; 0: one token */
    coh_tensor position; /* decode: of the first token; separate documents: of each, in its own */
    coh_parameter table; /* token table, also the head of a tied model */
    int32_t block;       /* layer number of the operators being added; -1 outside of layers */
    const coh_adapters *adapters; /* frozen operators and adapted linears; NULL: none */
    double dropout;      /* probability, wherever the family has dropout; 0: no dropout operators */
    double lora_dropout; /* likewise, of the input of each adapter */
    int32_t atomics;     /* coh_model's */
    int32_t frozen_nf4;  /* likewise; training only, as the next */
    int32_t separate_documents;
    /* Training only: `logits`, or `losses` of each token, become an output next to the loss. */
    int with_logits, with_losses;
    coh_tensor logits, losses; /* set by coh_builder_head */
} coh_builder;

/* Builds the graph from token ids to *out_last: logits if b->decode, else the loss. */
typedef coh_status (*coh_builder_body)(coh_builder *b, const void *config, coh_tensor tokens,
                                       coh_tensor targets, coh_tensor *out_last);

/* Adds one operator; `inputs` has as many tensors as the kind requires. */
coh_status coh_builder_op(coh_builder *b, const coh_op_kind *kind, const char *name,
                          const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                          coh_tensor *out_y);

/* y = x weightᵀ + bias, plus `residual` if given, plus the linear's adapter if it has one. All
 * linears are added by this function or the next. */
coh_status coh_builder_linear(coh_builder *b, const char *name, coh_linear_attributes linear,
                              coh_tensor x, const coh_tensor *residual, coh_tensor *out_y);

/* y = residual + dropout(x weightᵀ + bias): the end of a branch in families with dropout there. */
coh_status coh_builder_branch(coh_builder *b, const char *name, coh_linear_attributes linear,
                              coh_tensor x, coh_tensor residual, coh_tensor *out_y);

/* y = dropout(x), or x itself if the probability is 0. */
coh_status coh_builder_dropout(coh_builder *b, const char *name, coh_tensor x, coh_tensor *out_y);

/* An elementwise function after a linear: `fused` is one kind for both; `alone` is used if an
 * adapter comes between them. */
typedef struct coh_builder_activation {
    const coh_op_kind *fused, *alone;
} coh_builder_activation;
extern const coh_builder_activation coh_builder_gelu, coh_builder_relu;

/* y = activation(x weightᵀ + bias) */
coh_status coh_builder_linear_activated(coh_builder *b, const char *name,
                                        coh_linear_attributes linear,
                                        const coh_builder_activation *activation, coh_tensor x,
                                        coh_tensor *out_y);

/* Adds the token table lookup. `padding` is the id whose row is not trained; -1: none. */
coh_status coh_builder_tokens(coh_builder *b, const char *name,
                              const coh_embedding_attributes *embedding, int64_t padding,
                              coh_tensor tokens, coh_tensor *out_x);

/* Adds learned position embeddings to x. */
coh_status coh_builder_positions(coh_builder *b, const char *name,
                                 const coh_position_attributes *positions, coh_tensor x,
                                 coh_tensor *out_y);

/* Rotates the `rope.heads` heads of queries or keys. */
coh_status coh_builder_rope(coh_builder *b, const char *name, coh_rope_attributes rope,
                            coh_tensor x, coh_tensor *out_y);

/* Adds attention over separate queries, keys and values, with dropout of its weights. */
coh_status coh_builder_attention(coh_builder *b, const char *name, int64_t heads, int64_t kv_heads,
                                 coh_attention_scores scores, const coh_tensor qkv[3],
                                 coh_tensor *out_y);

/* Adds the loss or the logits, with a soft cap unless `cap` is 0; the head is the token table, or a
 * separate table if `untied`. */
coh_status coh_builder_head(coh_builder *b, int64_t vocabulary, float init_std, float cap,
                            int untied, coh_tensor x, coh_tensor targets, coh_tensor *out_last);

#endif
