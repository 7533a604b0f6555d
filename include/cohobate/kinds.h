/* kinds.h - the operator kinds that come with the library: tables like any user's (model.h).
 *
 * Shapes: B sequences, T tokens, C channels, O outputs, H heads (G of them for keys and values),
 * D = C / H, V vocabulary. Token ids are i32; everything else is of one element type, f32 or bf16,
 * which begins at the embedding and which each kind takes over from input 0, parameters included;
 * losses and the output of `logits` are always f32. Weights are [outputs, inputs], row-major. Every
 * kind states its formula; the backward pass is its exact derivative. */
#ifndef COHOBATE_KINDS_H
#define COHOBATE_KINDS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tokens i32 [B,T] -> y [B,T,C]; weight [V,C]: y[b,t,:] = weight[tokens[b,t],:]. Row-split. A token
 * outside 0..V-1 fails with COH_ERR_CORRUPT; where tokens are an input of the graph, submit already
 * refuses it with COH_ERR_ARGUMENT. */
typedef struct coh_embedding_attributes {
    int64_t vocabulary, channels;
    float init_std;
    coh_dtype dtype; /* of weight and y; 0 is f32 */
} coh_embedding_attributes;
extern COH_API const coh_op_kind coh_kind_embedding;

/* The same where one id stands for "no token": looking it up gives its row no gradient. (A tied
 * head's gradient reaches that row all the same.) */
typedef struct coh_embedding_padded_attributes {
    coh_embedding_attributes embedding;
    int64_t padding; /* the id */
} coh_embedding_padded_attributes;
extern COH_API const coh_op_kind coh_kind_embedding_padded;

/* x [B,T,C] -> y = x + weight[t + offset,:]; weight [positions + offset, C], T <= positions. The
 * first `offset` rows are never read (OPT has two of them). */
typedef struct coh_position_attributes {
    int64_t positions;
    float init_std;
    int32_t offset;
} coh_position_attributes;
extern COH_API const coh_op_kind coh_kind_position;

/* x [B,1,C], position i32 [1] -> y = x + weight[position + offset,:]: one step of a decoder.
 * Forward only. */
extern COH_API const coh_op_kind coh_kind_position_at;

/* x [..,C] -> y = (x - mean) / sqrt(var + epsilon) * weight + bias, over the last axis, biased
 * variance (Ba et al. 2016). Saves mean and 1/std. */
typedef struct coh_layernorm_attributes {
    float epsilon;
} coh_layernorm_attributes;
extern COH_API const coh_op_kind coh_kind_layernorm;

/* x [..,C] -> y = x / sqrt(mean(x²) + epsilon) * weight, over the last axis (Zhang and Sennrich
 * 2019). Saves 1 / sqrt. */
typedef struct coh_rmsnorm_attributes {
    float epsilon;
} coh_rmsnorm_attributes;
extern COH_API const coh_op_kind coh_kind_rmsnorm;

/* x [..,I] -> y [..,O] = x weightᵀ + bias; weight [O,I], bias [O] (absent unless has_bias). */
typedef struct coh_linear_attributes {
    int64_t outputs;
    int32_t has_bias;
    float init_std; /* 0: the weight begins at zero */
} coh_linear_attributes;
extern COH_API const coh_op_kind coh_kind_linear;

/* The same, its weight drawn uniformly from -1/sqrt(I) to 1/sqrt(I) (init_std is not looked at), as
 * the first factor of an adapter of low rank begins (Hu et al. 2021; PEFT). */
extern COH_API const coh_op_kind coh_kind_linear_uniform;

/* x [..,I], residual [..,O] -> y = residual + x weightᵀ + bias, in one pass. */
extern COH_API const coh_op_kind coh_kind_linear_residual;

/* x [..,I] -> y [..,O] = gelu(x weightᵀ + bias), in one pass: linear and gelu below with the same
 * parameters. Saves what the gelu takes. */
extern COH_API const coh_op_kind coh_kind_linear_gelu;

/* x [..,I] -> y [..,O] = max(x weightᵀ + bias, 0), in one pass: linear and relu below with the same
 * parameters. Saves nothing. */
extern COH_API const coh_op_kind coh_kind_linear_relu;

/* x -> y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))) (Hendrycks and Gimpel 2016, the tanh
 * form, GPT-2's). */
extern COH_API const coh_op_kind coh_kind_gelu;

/* x -> y = factor x. */
typedef struct coh_scale_attributes {
    float factor;
} coh_scale_attributes;
extern COH_API const coh_op_kind coh_kind_scale;

/* x -> y = 0 for a share `probability` of its elements, x / (1 - probability) for the others
 * (Srivastava et al. 2014, scaled in training). Element i is dropped where word i of the call
 * (coh_random_words) is below floor(probability 2^32); backward makes it again. Outside of training
 * y = x. 0 <= probability < 1. */
typedef struct coh_dropout_attributes {
    double probability;
} coh_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_dropout;

/* x, residual -> y = residual + dropout(x), in one pass. */
extern COH_API const coh_op_kind coh_kind_dropout_residual;

/* x -> y = max(x, 0). Backward reads y, so that y may take x's bytes. */
extern COH_API const coh_op_kind coh_kind_relu;

/* gate [..], up [..] -> y = gate / (1 + e^-gate) * up (Shazeer 2020: the gate is one linear of x,
 * up another). */
extern COH_API const coh_op_kind coh_kind_swiglu;

/* x [B,T,H*D] -> y: channels c and c + D/2 of every head of D are turned by t f_c, c < D/2 (Su et
 * al. 2021; which channels are a pair is Hugging Face's convention):
 *
 *     y[c]       = x[c] cos(t f_c) - x[c + D/2] sin(t f_c)
 *     y[c + D/2] = x[c + D/2] cos(t f_c) + x[c] sin(t f_c)
 *
 * f_c = theta^(-2c / D), scaled: COH_ROPE_LINEAR divides it by `factor`. COH_ROPE_LLAMA3 does so
 * where a turn takes more than original_positions / low_frequency positions, leaves it as it is
 * where it takes fewer than original_positions / high_frequency, and goes from one to the other
 * linearly in turns per original_positions between. f_c and t f_c are rounded to float, as models
 * of that folder format are trained with. What a scaling does not use is 0. theta is from 1 to
 * COH_ROPE_THETA_MOST, D at most COH_HEAD_WIDTH_MOST, T times the fastest f_c at most 2^31. */
#define COH_HEAD_WIDTH_MOST 512
#define COH_ROPE_THETA_MOST 0x1p100
typedef enum coh_rope_scaling {
    COH_ROPE_UNSCALED,
    COH_ROPE_LINEAR,
    COH_ROPE_LLAMA3
} coh_rope_scaling;
typedef struct coh_rope_attributes {
    int64_t heads;
    double theta;
    int32_t scaling; /* coh_rope_scaling */
    float factor, low_frequency, high_frequency;
    int64_t original_positions;
} coh_rope_attributes;
extern COH_API const coh_op_kind coh_kind_rope;

/* x [B,1,H*D], position i32 [1] -> y, turned as token `position` of a sequence: one step of a
 * decoder. Forward only. */
extern COH_API const coh_op_kind coh_kind_rope_at;

/* qkv [B,T,3C] -> y [B,T,C]: causal softmax(q kᵀ / sqrt(D)) v per head, never holding T x T for the
 * whole batch (online softmax, Milakov and Gimelshein 2018; Dao et al. 2022). Saves log-sum-exp
 * [B,H,T]. D is at most COH_HEAD_WIDTH_MOST, here and below. */
typedef struct coh_attention_attributes {
    int64_t heads;
} coh_attention_attributes;
extern COH_API const coh_op_kind coh_kind_attention;

/* qkv [B,1,3C], position i32 [1] -> y [B,1,C], with states keys and values [B,positions,C]: writes
 * row `position` of both, attends over rows 0..position. Forward only. */
typedef struct coh_attention_decode_attributes {
    int64_t heads, positions;
} coh_attention_decode_attributes;
extern COH_API const coh_op_kind coh_kind_attention_decode;

/* q [B,T,H*D], k and v [B,T,G*D] -> y [B,T,H*D]: the same where heads of queries share heads of
 * keys and values (Ainslie et al. 2023): head h of q attends over head h / (H / G) of k and v. G is
 * `kv_heads`, a divisor of `heads`; with G = H the bits are those of coh_kind_attention. Saves
 * log-sum-exp [B,H,T]. */
typedef struct coh_attention_grouped_attributes {
    int64_t heads, kv_heads;
} coh_attention_grouped_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped;

/* The two of them, backward on a GPU in one pass over all rows where cuDNN takes them: that adds up
 * dq by atomics, in another order and so to other bits each time (coh_op_kind.atomics). Scratch is
 * 8 bytes for each element of q, 12 where heads share keys. The host's bits are those of the plain
 * kinds. */
extern COH_API const coh_op_kind coh_kind_attention_atomic, coh_kind_attention_grouped_atomic;

/* The plain two with dropout of the weights after the softmax, in training: y = (m * softmax) v,
 * m being 0 for a share `probability` of all pairs of a query and a key, 1 / (1 - probability) for
 * the others. Which pair has which word of the call: kernels/kernels.h. B H ceil(T / 4) is below
 * 2^32. With the attributes of the plain kind in front. */
typedef struct coh_attention_dropout_attributes {
    coh_attention_attributes attention;
    double probability;
} coh_attention_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_attention_dropout;

typedef struct coh_attention_grouped_dropout_attributes {
    coh_attention_grouped_attributes attention;
    double probability;
} coh_attention_grouped_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped_dropout;

/* q [B,1,H*D], k and v [B,1,G*D], position i32 [1] -> y [B,1,H*D], with states keys and values
 * [B,positions,G*D]: writes row `position` of both, attends over rows 0..position. Forward only. */
typedef struct coh_attention_grouped_decode_attributes {
    int64_t heads, kv_heads, positions;
} coh_attention_grouped_decode_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped_decode;

/* x [B,T,C], targets i32 [B,T] -> loss [1]: mean over all B*T items of
 * -log softmax(x weightᵀ)[target]; a target of -1 counts as 0 loss. weight [V,C], row-split: passes
 * over ranges of vocabulary rows, so logits need never be held for batch x tokens x vocabulary;
 * where it is given a cache it keeps them for backward. Saves running max, sum and the target's
 * logit per token, and in bf16 has room there for the sums of its input's gradient. */
typedef struct coh_classifier_attributes {
    int64_t vocabulary;
    float init_std;
    int32_t reserved; /* 0 */
} coh_classifier_attributes;
extern COH_API const coh_op_kind coh_kind_classifier;

/* x [B,T,C] -> logits [B,T,V] = x weightᵀ; weight [V,C], row-split. Forward only. */
extern COH_API const coh_op_kind coh_kind_logits;

#ifdef __cplusplus
}
#endif
#endif
