/* Builds the graph of GPT-2's family (Radford et al. 2019). Operator names are Hugging Face's, so
 * that "<op>.<parameter>" is the name of a tensor in published weights. Next: gpt2_folder.c.
 *
 *   tokens -> wte -> wpe -> [ ln_1 -> c_attn -> attn -> c_proj(+) -> ln_2 -> c_fc
 *                             -> c_proj(+) ] x layers -> ln_f -> lm_head (table of wte)
 *
 * Dropout, in training: after wpe, on attn's weights, after both c_proj.
 *
 * The embedding sets the dtype; every other kind follows its inputs (kinds.h).
 * */
#include "models/gpt2.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const float table_std = 0.02f;
/* The position table's initial standard deviation is half the token table's, as in GPT-2's release.
 * the token table's spread, as in GPT-2's release. */
static const float position_std = 0.01f;

coh_model_size coh_gpt2_size(const void *config)
{
    const coh_gpt2_config *c = config;
    return (coh_model_size){ .layers = c->layers,
                             .heads = c->heads,
                             .channels = c->channels,
                             .vocabulary = c->vocabulary,
                             .positions = c->positions,
                             .dtype = c->dtype };
}

coh_status coh_gpt2_check(const void *config)
{
    const coh_gpt2_config *c = config;
    const coh_model_size size = coh_gpt2_size(config);
    COH_TRY(coh_family_check_size("a GPT-2", &size));
    COH_TRY(coh_family_check_heads(&size, "n_embd", "n_head"));
    COH_TRY(coh_family_check_epsilon("layer_norm_epsilon", c->layernorm_epsilon));
    if (c->inner < 0 || coh_gpt2_inner(c) > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"n_inner\" is %" PRId64 ", outside 1..%d (0: 4 times \"n_embd\")",
                        coh_gpt2_inner(c), INT32_MAX);
    if (c->channels > INT32_MAX / 3)
        return coh_fail(COH_ERR_ARGUMENT, "\"n_embd\" is %" PRId64 ", and must be at most %d",
                        c->channels, INT32_MAX / 3);
    return COH_OK;
}

int64_t coh_gpt2_inner(const coh_gpt2_config *config)
{
    return config->inner ? config->inner : 4 * config->channels;
}

/* ---- the graph ---- */

static coh_status add_linear(coh_builder *b, const char *name, int64_t outputs, coh_tensor x,
                             coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs,
                                           .has_bias = 1,
                                           .init_std = table_std };
    return coh_builder_linear(b, name, &linear, x, NULL, out_y);
}

/* Adds the end of a branch. Each layer adds two branches to the residual; the initial weights are
 * scaled so that the variance of the sum stays that of one. */
static coh_status add_branch(coh_builder *b, const coh_gpt2_config *config, const char *name,
                             coh_tensor x, coh_tensor residual, coh_tensor *out_y)
{
    const double std = (double)table_std / sqrt(2.0 * (double)config->layers);
    const coh_linear_attributes linear = { .outputs = config->channels,
                                           .has_bias = 1,
                                           .init_std = (float)std };
    return coh_builder_branch(b, name, &linear, x, residual, out_y);
}

/* y = gelu(x weightᵀ + bias) */
static coh_status add_linear_gelu(coh_builder *b, const char *name, int64_t outputs, coh_tensor x,
                                  coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs,
                                           .has_bias = 1,
                                           .init_std = table_std };
    return coh_builder_linear_activated(b, name, &linear, &coh_builder_gelu, x, out_y);
}

static coh_status add_norm(coh_builder *b, const coh_gpt2_config *config, const char *name,
                           coh_tensor x, coh_tensor *out_y)
{
    const coh_layernorm_attributes norm = { .epsilon = config->layernorm_epsilon };
    return coh_builder_op(b, &coh_kind_layernorm, name, &norm, sizeof(norm), &x, out_y);
}

/* Adds attention over queries, keys and values from one linear. */
static coh_status add_attention(coh_builder *b, const coh_gpt2_config *config, const char *name,
                                coh_tensor qkv, coh_tensor *out_y)
{
    if (b->decode) {
        const coh_attention_decode_attributes attributes = { .heads = config->heads,
                                                             .positions = b->tokens };
        const coh_tensor inputs[2] = { qkv, b->position };
        return coh_builder_op(b, &coh_kind_attention_decode, name, &attributes, sizeof(attributes),
                              inputs, out_y);
    }
    const coh_attention_attributes attributes = { .heads = config->heads };
    if (b->dropout > 0) {
        const coh_attention_dropout_attributes dropped = { attributes, b->dropout };
        return coh_builder_op(b, &coh_kind_attention_dropout, name, &dropped, sizeof(dropped), &qkv,
                              out_y);
    }
    return coh_builder_op(b, b->atomics ? &coh_kind_attention_atomic : &coh_kind_attention, name,
                          &attributes, sizeof(attributes), &qkv, out_y);
}

static coh_status add_layer(coh_builder *b, const coh_gpt2_config *config, coh_tensor x,
                            coh_tensor *out_y)
{
    const int64_t C = config->channels;
    const int32_t n = b->block;
    coh_tensor normed, qkv, attended, residual, active;
    char name[COH_BUILDER_NAME_BYTES];

    snprintf(name, sizeof(name), "h.%" PRId32 ".ln_1", n);
    COH_TRY(add_norm(b, config, name, x, &normed));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn.c_attn", n);
    COH_TRY(add_linear(b, name, 3 * C, normed, &qkv));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn", n);
    COH_TRY(add_attention(b, config, name, qkv, &attended));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn.c_proj", n);
    COH_TRY(add_branch(b, config, name, attended, x, &residual));
    snprintf(name, sizeof(name), "h.%" PRId32 ".ln_2", n);
    COH_TRY(add_norm(b, config, name, residual, &normed));
    snprintf(name, sizeof(name), "h.%" PRId32 ".mlp.c_fc", n);
    COH_TRY(add_linear_gelu(b, name, coh_gpt2_inner(config), normed, &active));
    snprintf(name, sizeof(name), "h.%" PRId32 ".mlp.c_proj", n);
    return add_branch(b, config, name, active, residual, out_y);
}

coh_status coh_gpt2_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                         coh_tensor *out_last)
{
    const coh_gpt2_config *c = config;
    const coh_embedding_attributes wte = { .vocabulary = c->vocabulary,
                                           .channels = c->channels,
                                           .init_std = table_std,
                                           .dtype = c->dtype };
    const coh_position_attributes wpe = { .positions = c->positions, .init_std = position_std };
    coh_tensor x;
    COH_TRY(coh_builder_tokens(b, "wte", &wte, -1, tokens, &x));
    COH_TRY(coh_builder_positions(b, "wpe", &wpe, x, &x));
    COH_TRY(coh_builder_dropout(b, "drop", x, &x));
    for (b->block = 0; b->block < c->layers; b->block++)
        COH_TRY(add_layer(b, c, x, &x));
    b->block = -1;
    COH_TRY(add_norm(b, c, "ln_f", x, &x));
    return coh_builder_head(b, c->vocabulary, table_std, c->untied, x, targets, out_last);
}

/* A model with only this configuration. */
static coh_model model_of(const coh_gpt2_config *config)
{
    return (coh_model){ .family = COH_FAMILY_GPT2, .gpt2 = *config };
}

coh_status coh_gpt2_train_graph(const coh_gpt2_config *config, int64_t sequences, int64_t tokens,
                                coh_graph **out_graph)
{
    if (!config || !out_graph)
        return coh_fail(COH_ERR_ARGUMENT, "a graph needs a configuration and a place for itself");
    const coh_model model = model_of(config);
    return coh_model_train_graph(&model, sequences, tokens, out_graph);
}

coh_status coh_gpt2_decode_graph(const coh_gpt2_config *config, int64_t tokens,
                                 coh_graph **out_graph, coh_tensor *out_logits)
{
    if (!config || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a decoder needs a configuration and places for itself and its logits");
    const coh_model model = model_of(config);
    return coh_model_decode_graph(&model, tokens, out_graph, out_logits);
}
