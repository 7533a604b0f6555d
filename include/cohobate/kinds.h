/* kinds.h - the operator kinds of the library. They are plain tables, as yours are (model.h).
 *
 * Shapes: B sequences, T tokens, C channels, I inputs, O outputs, H heads (G of them for keys and
 * values), D = C / H head width, V vocabulary. Token ids are i32. All other tensors have one
 * element type, f32 or bf16: the embedding sets it, and each kind takes it over from input 0,
 * parameters included. Losses and the output of `logits` are always f32. Weights are [outputs,
 * inputs], row-major. Every comment gives the formula of forward; backward is its exact derivative.
 * The comment of coh_call (model.h) gives the alignment of tensors.
 * Threads: the kinds are constant. Any thread may read them. */
#ifndef COHOBATE_KINDS_H
#define COHOBATE_KINDS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Embedding lookup: tokens i32 [B,T] -> y [B,T,C]; weight [V,C]: y[b,t,:] = weight[tokens[b,t],:].
 * Row-split. A token outside 0..V-1 fails with COH_ERR_CORRUPT. If the tokens are a graph input,
 * submit refuses it with COH_ERR_ARGUMENT before the step. V is `vocabulary`, C `channels`; the
 * weight starts normal with `init_std`. */
typedef struct coh_embedding_attributes {
    int64_t vocabulary, channels;
    float init_std;
    coh_dtype dtype; /* of weight and y; 0 is f32 */
} coh_embedding_attributes;
extern COH_API const coh_op_kind coh_kind_embedding;

/* As coh_kind_embedding, but one id means "no token": looking it up gives its row no gradient. (A
 * tied head's gradient still reaches that row.) `embedding` as there. */
typedef struct coh_embedding_padded_attributes {
    coh_embedding_attributes embedding;
    int64_t padding; /* the id */
} coh_embedding_padded_attributes;
extern COH_API const coh_op_kind coh_kind_embedding_padded;

/* Learned position embedding: x [B,T,C] -> y = x + weight[t + offset,:]; weight [positions +
 * offset, C], T <= positions. The first `offset` rows are never read (OPT has two such rows). The
 * weight starts normal with `init_std`. */
typedef struct coh_position_attributes {
    int64_t positions;
    float init_std;
    int32_t offset;
} coh_position_attributes;
extern COH_API const coh_op_kind coh_kind_position;

/* The same for rows that several documents share, whose positions begin again with each: x [B,T,C],
 * positions i32 [B,T] -> y = x + weight[positions + offset,:]. `positions` as in
 * coh_kind_attention_documents. */
extern COH_API const coh_op_kind coh_kind_position_documents;

/* Position embedding for one step of a decoder: x [B,T,C], position i32 [1] -> y = x +
 * weight[position + t + offset,:]. Rows of x after the table's last position are padding: y = x.
 * Forward only. */
extern COH_API const coh_op_kind coh_kind_position_at;

/* Layer norm: x [..,C] -> y = (x - mean) / sqrt(var + epsilon) * weight + bias, over the last axis,
 * biased variance (Ba et al. 2016). Saves mean and 1/std. */
typedef struct coh_layernorm_attributes {
    float epsilon;
} coh_layernorm_attributes;
extern COH_API const coh_op_kind coh_kind_layernorm;

/* RMS norm: x [..,C] -> y = x / sqrt(mean(x²) + epsilon) * weight, over the last axis (Zhang and
 * Sennrich 2019). With `heads`, x is [..,heads*D], each head has its own mean, and weight [D] is
 * the same for all heads. With `from_one` the factor is 1 + weight, and weight starts at 0
 * (Gemma). Saves 1 / sqrt. */
typedef struct coh_rmsnorm_attributes {
    float epsilon;
    int32_t heads; /* 0: as 1 */
    int32_t from_one;
} coh_rmsnorm_attributes;
extern COH_API const coh_op_kind coh_kind_rmsnorm;

/* Linear layer: x [..,I] -> y [..,O] = x weightᵀ + bias; weight [O,I], bias [O] (absent unless
 * has_bias). O is `outputs`.
 *
 * A frozen weight may be stored in 4.25 bits an element: `stored` COH_DTYPE_NF4 (Dettmers, Pagnoni,
 * Holtzman and Zettlemoyer 2023, "QLoRA"). Blocks of 64 elements of a row share a scale, the
 * largest magnitude rounded to bf16, and each element is the nearest of 16 quantiles of the normal
 * distribution, times the scale, rounded to bf16. Products see these numbers in x's dtype: results
 * are the bits of a weight that holds them. Quantising them again changes nothing. I must be a
 * multiple of COH_NF4_ROW_UNIT. */
typedef struct coh_linear_attributes {
    int64_t outputs;
    int32_t has_bias;
    float init_std;   /* 0: the weight starts at zero */
    int32_t stored;   /* of the weight: 0 as x, or COH_DTYPE_NF4 */
    int32_t reserved; /* 0 */
} coh_linear_attributes;
extern COH_API const coh_op_kind coh_kind_linear;

/* As coh_kind_linear, but the weight starts uniform from -1/sqrt(I) to 1/sqrt(I) and init_std is
 * ignored: the first factor of a low-rank adapter (Hu et al. 2021; PEFT). */
extern COH_API const coh_op_kind coh_kind_linear_uniform;

/* Linear layer with residual, in one pass: x [..,I], residual [..,O] -> y = residual + x weightᵀ +
 * bias. */
extern COH_API const coh_op_kind coh_kind_linear_residual;

/* Linear layer with GELU, in one pass: x [..,I] -> y [..,O] = gelu(x weightᵀ + bias): linear and
 * gelu with the same parameters. Saves the input of the gelu. */
extern COH_API const coh_op_kind coh_kind_linear_gelu;

/* Linear layer with ReLU, in one pass: x [..,I] -> y [..,O] = max(x weightᵀ + bias, 0): linear and
 * relu with the same parameters. Saves nothing. */
extern COH_API const coh_op_kind coh_kind_linear_relu;

/* GELU: x -> y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))) (Hendrycks and Gimpel 2016; the
 * tanh form, as in GPT-2). */
extern COH_API const coh_op_kind coh_kind_gelu;

/* Scaling: x -> y = factor x. */
typedef struct coh_scale_attributes {
    float factor;
} coh_scale_attributes;
extern COH_API const coh_op_kind coh_kind_scale;

/* Dropout: x -> y = 0 for a share `probability` of its elements, x / (1 - probability) for the
 * others (Srivastava et al. 2014, scaled in training). Element i is dropped if word i of the call
 * (coh_random_words) is below floor(probability 2^32); backward generates the same words again.
 * Outside training y = x. 0 <= probability < 1. */
typedef struct coh_dropout_attributes {
    double probability;
} coh_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_dropout;

/* Dropout with residual, in one pass: x, residual -> y = residual + dropout(x). */
extern COH_API const coh_op_kind coh_kind_dropout_residual;

/* ReLU: x -> y = max(x, 0). Backward reads y, so y may overwrite x. */
extern COH_API const coh_op_kind coh_kind_relu;

/* SwiGLU: gate [..], up [..] -> y = gate / (1 + e^-gate) * up (Shazeer 2020: gate and up are two
 * linears of the same x). */
extern COH_API const coh_op_kind coh_kind_swiglu;

/* GeGLU: gate [..], up [..] -> y = gelu(gate) * up, with the gelu of coh_kind_gelu (Shazeer
 * 2020). */
extern COH_API const coh_op_kind coh_kind_geglu;

/* Sum: x, residual -> y = x + residual. */
extern COH_API const coh_op_kind coh_kind_add;
/* SwiGLU of one tensor: x [..,2I] -> y [..,I]; the first half of a row is gate, the second up. Has
 * the bits of coh_kind_swiglu. */
extern COH_API const coh_op_kind coh_kind_swiglu_packed;

/* Rotary position embedding (RoPE): x [B,T,H*D] -> y: rotates channels c and c + D/2 of every head
 * by the angle t f_c, c < D/2 (Su et al. 2021; the pairing of channels is Hugging Face's
 * convention):
 *
 *     y[c]       = x[c] cos(t f_c) - x[c + D/2] sin(t f_c)
 *     y[c + D/2] = x[c + D/2] cos(t f_c) + x[c] sin(t f_c)
 *
 * f_c = theta^(-2c / D), then scaled. COH_ROPE_LINEAR divides f_c by `factor`. COH_ROPE_LLAMA3
 * depends on the wavelength 2 pi / f_c: above original_positions / low_frequency it divides by
 * `factor`, below original_positions / high_frequency it leaves f_c unchanged, and between the two
 * it interpolates linearly in original_positions / wavelength. COH_ROPE_YARN (Peng et al. 2023)
 * interpolates linearly in c instead, from 0 at `first` to 1 at `last`:
 *
 *     c(r)  = D ln(original_positions / (2 pi r)) / (2 ln theta)
 *     first = max(floor(c(high_frequency)), 0)
 *     last  = min(ceil(c(low_frequency)), D - 1), or first + 0.001 if it is `first`
 *     part  = (c - first) / (last - first), held within 0 and 1
 *     f_c becomes (1 - part) f_c + part f_c / factor
 *
 * and multiplies cosines and sines by `magnitude`. f_c and t f_c are rounded to float, as in the
 * training of models of that folder format. Fields that a scaling does not use are 0. theta is from
 * 1 to COH_ROPE_THETA_MOST (YaRN: above 1), D at most COH_HEAD_WIDTH_MOST, T times the fastest f_c
 * at most 2^31. */
#define COH_HEAD_WIDTH_MOST 512
/* limit of theta */
#define COH_ROPE_THETA_MOST 0x1p100
/* Scalings of f_c: UNSCALED, LINEAR, LLAMA3, YARN, as above. */
typedef enum coh_rope_scaling {
    COH_ROPE_UNSCALED,
    COH_ROPE_LINEAR,
    COH_ROPE_LLAMA3,
    COH_ROPE_YARN
} coh_rope_scaling;
/* H is `heads`. `theta`, `factor`, `low_frequency`, `high_frequency`, `original_positions` and
 * `magnitude` are those of the formulas above. */
typedef struct coh_rope_attributes {
    int64_t heads;
    double theta;
    int32_t scaling; /* coh_rope_scaling */
    float factor, low_frequency, high_frequency;
    int64_t original_positions;
    float magnitude;
    int32_t reserved; /* 0 */
} coh_rope_attributes;
extern COH_API const coh_op_kind coh_kind_rope;

/* RoPE for one step of a decoder: x [B,T,H*D], position i32 [1] -> y, rotated as tokens `position`
 * + t of a sequence. Forward only. */
extern COH_API const coh_op_kind coh_kind_rope_at;

/* RoPE that takes one tensor apart: qkv [B,T,(H+2G)*D] -> q [B,T,H*D] and k [B,T,G*D], rotated, and
 * v [B,T,G*D], copied (rotated by 0: -0 may become 0). H is rope.heads, G kv_heads, a divisor of
 * H. */
typedef struct coh_rope_split_attributes {
    int64_t kv_heads;
    coh_rope_attributes rope;
} coh_rope_split_attributes;
extern COH_API const coh_op_kind coh_kind_rope_split;

/* The same for one step of a decoder: qkv [B,T,(H+2G)*D], position i32 [1]. Forward only. */
extern COH_API const coh_op_kind coh_kind_rope_split_at;

/* Causal self-attention: qkv [B,T,3C] -> y [B,T,C]: causal softmax(q kᵀ / sqrt(D)) v per head.
 * Never holds T x T for the whole batch (online softmax, Milakov and Gimelshein 2018; Dao et al.
 * 2022). Saves log-sum-exp [B,H,T]. D is at most COH_HEAD_WIDTH_MOST, here and below. H is
 * `heads`. */
typedef struct coh_attention_attributes {
    int64_t heads;
} coh_attention_attributes;
extern COH_API const coh_op_kind coh_kind_attention;

/* Attention for one step of a decoder: qkv [B,T,3C], position i32 [1] -> y [B,T,C], with states
 * keys and values [B,positions,C]: writes rows `position` + t of both, then row t attends over rows
 * 0..position + t. T is 1 for a drawn token, more for a chunk of a prompt (chunked prefill). Rows
 * from `positions` on are padding: they are not written, and their y means nothing. Forward only. H
 * is `heads`. */
typedef struct coh_attention_decode_attributes {
    int64_t heads, positions;
} coh_attention_decode_attributes;
extern COH_API const coh_op_kind coh_kind_attention_decode;

/* The keys that a query of grouped attention attends over, and their scores. All zero: every key
 * up to its own, q k / sqrt(D). */
typedef struct coh_attention_scores {
    /* Query i attends over keys j with i - window < j <= i (Beltagy et al. 2020); 0: no limit. Work
     * outside the window is skipped, and a window of at least T changes no bit. */
    int64_t window;
    float scale; /* factor of q k; 0: 1 / sqrt(D) */
    /* Soft cap: a scaled score s becomes cap tanh(s / cap) (Gemma Team 2024, section 2); 0: none.
     * cuDNN's attention has neither window nor cap: on a GPU our own kernels compute it. */
    float cap;
} coh_attention_scores;

/* Grouped-query attention: q [B,T,H*D], k and v [B,T,G*D] -> y [B,T,H*D]. Several query
 * heads share a head of keys and values (Ainslie et al. 2023): head h of q attends over head h / (H
 * / G) of k and v. G is `kv_heads`, a divisor of `heads`; with G = H the bits are
 * those of coh_kind_attention. Saves log-sum-exp [B,H,T].
 *
 * `scores`, here and below, was added later: a struct without it is taken, too. */
typedef struct coh_attention_grouped_attributes {
    int64_t heads, kv_heads;
    coh_attention_scores scores;
} coh_attention_grouped_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped;

/* The two attention kinds above, but on a GPU their backward is one pass over all rows where cuDNN
 * supports it. That pass adds up dq by atomics, in varying order, so its bits vary from run to run
 * (coh_op_kind.atomics). Scratch: 8 bytes per element of q, 12 if heads share keys. On the host the
 * bits are those of the plain kinds. devices[COH_DEVICE_CUDA].accepts tells whether cuDNN may
 * support a shape. */
extern COH_API const coh_op_kind coh_kind_attention_atomic, coh_kind_attention_grouped_atomic;

/* The two plain attention kinds with dropout of the weights after the softmax, in training: y = (m
 * * softmax) v. m is 0 for a share `probability` of all pairs of a query and a key, 1 / (1 -
 * probability) for the others. kernels/kernels.h says which pair uses which word of the call. B H
 * ceil(T / 4) is below 2^32. The attributes begin with the heads of the plain kind. */
typedef struct coh_attention_dropout_attributes {
    coh_attention_attributes attention;
    double probability;
} coh_attention_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_attention_dropout;

/* As above, for grouped attention: `heads`, `kv_heads` and `scores` as without dropout,
 * `probability` as above. */
typedef struct coh_attention_grouped_dropout_attributes {
    int64_t heads, kv_heads;
    double probability;
    coh_attention_scores scores;
} coh_attention_grouped_dropout_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped_dropout;

/* The plain attention kinds for rows that several documents share: the last input,
 * positions i32 [B,T], has the position of each token in its document, as `position_ids` of
 * `transformers`: 0 for its first token, then one more each. Query i attends over keys from i -
 * positions[i] on, so over its own document. Blocks of keys that no query of a block sees are
 * skipped. Of a row of one document the host computes y as the other kinds do, to the bit; backward
 * may add in another order.
 * cuDNN is not given documents: on a GPU our own kernels compute them. */
extern COH_API const coh_op_kind coh_kind_attention_documents, coh_kind_attention_grouped_documents;

/* The same with dropout, as the kinds above: on a GPU by general kernels, a tenth as fast. */
extern COH_API const coh_op_kind coh_kind_attention_documents_dropout,
    coh_kind_attention_grouped_documents_dropout;

/* Grouped-query attention for one step of a decoder: q [B,T,H*D], k and v [B,T,G*D], position i32
 * [1] -> y [B,T,H*D], with states keys and values [B,positions,G*D]: as coh_kind_attention_decode,
 * but row t attends over the last `window` rows if there is one. `heads`, `kv_heads` and `scores`
 * as in coh_attention_grouped_attributes. */
typedef struct coh_attention_grouped_decode_attributes {
    int64_t heads, kv_heads, positions;
    coh_attention_scores scores;
} coh_attention_grouped_decode_attributes;
extern COH_API const coh_op_kind coh_kind_attention_grouped_decode;

/* Classifier head with cross-entropy loss: x [B,T,C], targets i32 [B,T] -> loss [1]: mean over all
 * B*T items of -log softmax(x weightᵀ)[target]; a target of -1 contributes 0. weight [V,C],
 * row-split: passes over ranges of vocabulary rows, so the logits of batch x tokens x vocabulary
 * are never all held, unless the plan gives it a cache to keep them for backward. Saves running
 * max, sum and the target's logit per token; in bf16 the same object has room for the sums of the
 * input's gradient. The weight starts normal with `init_std`. */
typedef struct coh_classifier_attributes {
    int64_t vocabulary;
    float init_std;
    float cap; /* soft cap: a logit z becomes cap tanh(z / cap), before the softmax; 0: none */
} coh_classifier_attributes;
extern COH_API const coh_op_kind coh_kind_classifier;

/* ---- kinds of any model ----
 *
 * An axis counts from 0; -1 is the last one. */

/* The same elements in other dimensions: x -> y of `rank` dimensions `dim`. One of them may be -1:
 * as many as are left over. */
typedef struct coh_reshape_attributes {
    int64_t dim[COH_RANK_MAX];
    int32_t rank;
    int32_t reserved; /* 0 */
} coh_reshape_attributes;
extern COH_API const coh_op_kind coh_kind_reshape;

/* Slice: x -> y = the elements `begin` to `end` - 1 of an axis of x. */
typedef struct coh_slice_attributes {
    int64_t begin, end;
    int32_t axis;
    int32_t reserved; /* 0 */
} coh_slice_attributes;
extern COH_API const coh_op_kind coh_kind_slice;

/* Attributes of kinds that work along one axis. */
typedef struct coh_axis_attributes {
    int32_t axis; /* from 0; -1 is the last */
} coh_axis_attributes;

/* Concat: x, second -> y, which has all of x and then all of second along an axis. The other axes
 * agree. */
extern COH_API const coh_op_kind coh_kind_concat;

/* Mean over an axis, which y lacks: x [..,n,..] -> y [..]; if x has no other axis, y is [1]. */
extern COH_API const coh_op_kind coh_kind_mean;

/* Softmax over the last axis: y = e^x / sum(e^x). Backward reads y, so y may overwrite x. */
extern COH_API const coh_op_kind coh_kind_softmax;

/* Cross-entropy of given logits: logits [..,V], targets i32 [..] -> loss [1]: mean over all items
 * of -log softmax(logits)[target]; a target of -1 contributes 0. coh_kind_classifier has the same
 * loss and never holds all logits. Saves maximum and sum of each row. */
extern COH_API const coh_op_kind coh_kind_cross_entropy;

/* The loss of each item: logits [..,V], targets i32 [..] -> losses f32 [..] = -log
 * softmax(logits)[target]; 0 for a target of -1. Forward only: for plans of COH_PLAN_INFER. */
extern COH_API const coh_op_kind coh_kind_token_losses;

/* Mean squared error: x, target -> loss [1] = mean((x - target)²) over all elements. The target has
 * the dimensions of x; its dtype is that of x or f32. */
extern COH_API const coh_op_kind coh_kind_mean_squared_error;

/* Logits of the classifier head: x [B,T,C] -> logits [B,T,V] = x weightᵀ, capped as the
 * classifier's; weight [V,C], row-split. Forward only. */
extern COH_API const coh_op_kind coh_kind_logits;

#ifdef __cplusplus
}
#endif
#endif
