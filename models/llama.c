/* Builds the graph of Llama's family (Touvron et al. 2023; Mistral and Qwen2 are the same graph
 * with other biases). Names are Hugging Face's, prefixed with "model.". Next: llama_folder.c.
 *
 *   tokens -> embed_tokens -> layers -> norm -> lm_head (its own table, or that of embed_tokens)
 *
 *   input_layernorm -> q k v -> rope of q and k -> self_attn -> o_proj(+)
 *   -> post_attention_layernorm -> gate up -> gate / (1 + e^-gate) * up -> down_proj(+)
 *
 * Dropout, in training: on self_attn's weights.
 * */
#include "models/llama.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

coh_model_size coh_llama_size(const void *config)
{
    const coh_llama_config *c = config;
    const int windowed = c->window > 0 && c->window < c->positions;
    return (coh_model_size){ .layers = c->layers,
                             .heads = c->heads,
                             .channels = c->channels,
                             .vocabulary = c->vocabulary,
                             .positions = windowed ? c->window : c->positions,
                             .dtype = c->dtype };
}

static coh_status check_heads(const coh_llama_config *c)
{
    int64_t width;
    if (c->kv_heads < 1 || c->heads % c->kv_heads != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " heads do not divide into %" PRId64
                        " of keys and values: choose a divisor",
                        c->heads, c->kv_heads);
    if (c->head_width < 2 || c->head_width % 2 != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "heads of %" PRId64 " channels cannot be turned in pairs: choose an even "
                        "width",
                        c->head_width);
    COH_TRY(coh_family_check_head_width(
        "\"head_dim\" (\"hidden_size\" / \"num_attention_heads\" where it is not there)",
        c->head_width));
    if (__builtin_mul_overflow(c->heads, c->head_width, &width) || width > INT32_MAX)
        return coh_fail(COH_ERR_SHAPE, "%" PRId64 " heads of %" PRId64 " channels exceed %d",
                        c->heads, c->head_width, INT32_MAX);
    return COH_OK;
}

/* Checks the parameters of RoPE at every position of the model. */
static coh_status check_rope(const coh_llama_rope *rope, int64_t positions)
{
    if (!(rope->theta >= 1.0 && rope->theta <= COH_ROPE_THETA_MOST))
        return coh_fail(COH_ERR_ARGUMENT, "\"rope_theta\" is %g, and must be from 1 to 2^100 (%g)",
                        rope->theta, COH_ROPE_THETA_MOST);
    if (!isfinite(rope->factor) || !isfinite(rope->low_frequency) ||
        !isfinite(rope->high_frequency))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"rope_scaling\" has a number that is not finite (factor %g, frequencies "
                        "%g and %g): what a scaling does not use is 0",
                        (double)rope->factor, (double)rope->low_frequency,
                        (double)rope->high_frequency);
    switch (rope->scaling) {
    case COH_ROPE_UNSCALED:
        return COH_OK;
    case COH_ROPE_LLAMA3:
        if (!(rope->low_frequency > 0) || !(rope->high_frequency > rope->low_frequency) ||
            !isfinite(rope->high_frequency) || rope->original_positions < 1)
            return coh_fail(COH_ERR_ARGUMENT,
                            "frequency factors %g and %g over %" PRId64
                            " positions: the first must be positive, the second above it",
                            (double)rope->low_frequency, (double)rope->high_frequency,
                            rope->original_positions);
        break;
    case COH_ROPE_LINEAR:
        break;
    default:
        return coh_fail(COH_ERR_ARGUMENT, "a scaling of turns %d is not known", (int)rope->scaling);
    }
    if (!((double)rope->factor * 0x1p31 >= (double)positions) || !isfinite(rope->factor))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"factor\" of the scaling of turns is %g, and must be finite and at least "
                        "%g for %" PRId64 " positions",
                        (double)rope->factor, (double)positions * 0x1p-31, positions);
    return COH_OK;
}

/* Checks fields that the model type fixes; other values could not be written as that type. */
static coh_status check_type(const coh_llama_config *c)
{
    static const char *const names[] = { "llama", "mistral", "qwen2" };
    int32_t qkv = c->qkv_biases != 0, fits;
    switch (c->type) {
    case COH_LLAMA_PLAIN:
        fits = qkv == (c->output_bias != 0) && c->window == 0;
        break;
    case COH_LLAMA_MISTRAL:
        fits = !qkv && !c->output_bias && !c->mlp_bias;
        break;
    case COH_LLAMA_QWEN2:
        fits = qkv && !c->output_bias && !c->mlp_bias;
        break;
    default:
        return coh_fail(COH_ERR_ARGUMENT, "a Llama of type %d is not known", (int)c->type);
    }
    if (!fits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "no %s has these biases (%d, %d, %d) and a window of %" PRId64,
                        names[c->type], qkv, c->output_bias != 0, c->mlp_bias != 0, c->window);
    return COH_OK;
}

coh_status coh_llama_check(const void *config)
{
    const coh_llama_config *c = config;
    const coh_model_size size = coh_llama_size(config);
    COH_TRY(coh_family_check_size("a Llama", &size));
    COH_TRY(check_heads(c));
    COH_TRY(check_rope(&c->rope, size.positions));
    COH_TRY(check_type(c));
    if (c->inner < 1 || c->inner > INT32_MAX || c->window < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an inner width of %" PRId64 " or a window of %" PRId64 " is out of range",
                        c->inner, c->window);
    if (c->padding < -1 || c->padding >= c->vocabulary)
        return coh_fail(COH_ERR_ARGUMENT,
                        "padding %" PRId64 " is no id of a vocabulary of %" PRId64 " (-1: none)",
                        c->padding, c->vocabulary);
    if (!(c->init_std > 0) || !isfinite(c->init_std))
        return coh_fail(COH_ERR_ARGUMENT, "init_std is %g, must be positive and finite",
                        (double)c->init_std);
    return coh_family_check_epsilon("rms_norm_eps", c->rmsnorm_epsilon);
}

/* ---- the graph ---- */

/* Names an operator of the current layer. */
static void layer_name(const coh_builder *b, const char *what, char name[COH_BUILDER_NAME_BYTES])
{
    snprintf(name, COH_BUILDER_NAME_BYTES, "model.layers.%" PRId32 ".%s", b->block, what);
}

static coh_status add_linear(coh_builder *b, const coh_llama_config *c, const char *what,
                             int64_t outputs, int has_bias, coh_tensor x,
                             const coh_tensor *residual, coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs,
                                           .has_bias = has_bias != 0,
                                           .init_std = c->init_std };
    char name[COH_BUILDER_NAME_BYTES];
    layer_name(b, what, name);
    return coh_builder_linear(b, name, &linear, x, residual, out_y);
}

static coh_status add_norm(coh_builder *b, const coh_llama_config *c, const char *name,
                           coh_tensor x, coh_tensor *out_y)
{
    const coh_rmsnorm_attributes norm = { .epsilon = c->rmsnorm_epsilon };
    return coh_builder_op(b, &coh_kind_rmsnorm, name, &norm, sizeof(norm), &x, out_y);
}

/* Rotates the heads of queries or keys. */
static coh_status add_rope(coh_builder *b, const coh_llama_config *c, const char *what,
                           int64_t heads, coh_tensor x, coh_tensor *out_y)
{
    const coh_rope_attributes rope = { .heads = heads,
                                       .theta = c->rope.theta,
                                       .scaling = c->rope.scaling,
                                       .factor = c->rope.factor,
                                       .low_frequency = c->rope.low_frequency,
                                       .high_frequency = c->rope.high_frequency,
                                       .original_positions = c->rope.original_positions };
    const coh_tensor inputs[2] = { x, b->position };
    char name[COH_BUILDER_NAME_BYTES];
    layer_name(b, what, name);
    return coh_builder_op(b, b->decode ? &coh_kind_rope_at : &coh_kind_rope, name, &rope,
                          sizeof(rope), inputs, out_y);
}

/* y = x + attention of x */
static coh_status add_attention(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                                coh_tensor *out_y)
{
    const int64_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    coh_tensor normed, qkv[3], attended;
    char name[COH_BUILDER_NAME_BYTES];
    layer_name(b, "input_layernorm", name);
    COH_TRY(add_norm(b, c, name, x, &normed));
    COH_TRY(add_linear(b, c, "self_attn.q_proj", queries, c->qkv_biases, normed, NULL, &qkv[0]));
    COH_TRY(add_linear(b, c, "self_attn.k_proj", keys, c->qkv_biases, normed, NULL, &qkv[1]));
    COH_TRY(add_linear(b, c, "self_attn.v_proj", keys, c->qkv_biases, normed, NULL, &qkv[2]));
    COH_TRY(add_rope(b, c, "self_attn.q_rope", c->heads, qkv[0], &qkv[0]));
    COH_TRY(add_rope(b, c, "self_attn.k_rope", c->kv_heads, qkv[1], &qkv[1]));
    layer_name(b, "self_attn", name);
    COH_TRY(coh_builder_attention(b, name, c->heads, c->kv_heads, qkv, &attended));
    return add_linear(b, c, "self_attn.o_proj", c->channels, c->output_bias, attended, &x, out_y);
}

/* y = x + gated MLP of x */
static coh_status add_inner(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                            coh_tensor *out_y)
{
    coh_tensor normed, gated[2], inner;
    char name[COH_BUILDER_NAME_BYTES];
    layer_name(b, "post_attention_layernorm", name);
    COH_TRY(add_norm(b, c, name, x, &normed));
    COH_TRY(add_linear(b, c, "mlp.gate_proj", c->inner, c->mlp_bias, normed, NULL, &gated[0]));
    COH_TRY(add_linear(b, c, "mlp.up_proj", c->inner, c->mlp_bias, normed, NULL, &gated[1]));
    layer_name(b, "mlp.act_fn", name);
    COH_TRY(coh_builder_op(b, &coh_kind_swiglu, name, NULL, 0, gated, &inner));
    return add_linear(b, c, "mlp.down_proj", c->channels, c->mlp_bias, inner, &x, out_y);
}

coh_status coh_llama_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                          coh_tensor *out_last)
{
    const coh_llama_config *c = config;
    const coh_embedding_attributes table = { .vocabulary = c->vocabulary,
                                             .channels = c->channels,
                                             .init_std = c->init_std,
                                             .dtype = c->dtype };
    coh_tensor x;
    COH_TRY(coh_builder_tokens(b, "model.embed_tokens", &table, c->padding, tokens, &x));
    for (b->block = 0; b->block < c->layers; b->block++) {
        COH_TRY(add_attention(b, c, x, &x));
        COH_TRY(add_inner(b, c, x, &x));
    }
    b->block = -1;
    COH_TRY(add_norm(b, c, "model.norm", x, &x));
    return coh_builder_head(b, c->vocabulary, c->init_std, c->untied, x, targets, out_last);
}
