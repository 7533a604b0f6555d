/* Builds the graph of OPT's family (Zhang et al. 2022). Names are Hugging Face's, prefixed with
 * "model.decoder.". Next: opt_folder.c.
 *
 *   tokens -> embed_tokens -> [project_in] -> embed_positions -> layers -> [final_layer_norm]
 *          -> [project_out] -> lm_head (table of embed_tokens)
 *
 * A layer with norm_before, and one without (350M):
 *
 *   self_attn_layer_norm -> q k v -> self_attn -> out_proj(+)
 *   -> final_layer_norm -> fc1 and relu -> fc2(+)
 *
 *   q k v -> self_attn -> out_proj(+) -> self_attn_layer_norm
 *   -> fc1 and relu -> fc2(+) -> final_layer_norm
 *
 * Dropout, in training: on self_attn's weights, after out_proj and fc2.
 * */
#include "models/opt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const float layernorm_epsilon = 1e-5f; /* not configurable in config.json */

coh_model_size coh_opt_size(const void *config)
{
    const coh_opt_config *c = config;
    return (coh_model_size){ .layers = c->layers,
                             .heads = c->heads,
                             .channels = c->channels,
                             .vocabulary = c->vocabulary,
                             .positions = c->positions,
                             .dtype = c->dtype };
}

coh_status coh_opt_check(const void *config)
{
    const coh_opt_config *c = config;
    const coh_model_size size = coh_opt_size(config);
    COH_TRY(coh_family_check_size("an OPT", &size));
    COH_TRY(coh_family_check_heads(&size, "hidden_size", "num_attention_heads"));
    if (c->positions > INT32_MAX - COH_OPT_POSITION_OFFSET)
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"max_position_embeddings\" is %" PRId64 ", and must be at most %d",
                        c->positions, INT32_MAX - COH_OPT_POSITION_OFFSET);
    if (c->inner < 1 || c->inner > INT32_MAX || c->embedding < 1 || c->embedding > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an inner width of %" PRId64 " or an embedding of %" PRId64
                        " is outside 1..%d",
                        c->inner, c->embedding, INT32_MAX);
    if (c->padding < -1 || c->padding >= c->vocabulary)
        return coh_fail(COH_ERR_ARGUMENT,
                        "padding %" PRId64 " is no id of a vocabulary of %" PRId64 " (-1: none)",
                        c->padding, c->vocabulary);
    if (!(c->init_std > 0) || !isfinite(c->init_std))
        return coh_fail(COH_ERR_ARGUMENT, "init_std is %g, must be positive and finite",
                        (double)c->init_std);
    return COH_OK;
}

/* ---- the graph ---- */

/* Names an operator of the current layer. */
static void layer_name(const coh_builder *b, const char *what, char name[COH_BUILDER_NAME_BYTES])
{
    snprintf(name, COH_BUILDER_NAME_BYTES, "model.decoder.layers.%" PRId32 ".%s", b->block, what);
}

/* Adds a linear; with `residual` it is the end of a branch. */
static coh_status add_linear(coh_builder *b, const coh_opt_config *c, const char *what,
                             int64_t outputs, coh_tensor x, const coh_tensor *residual,
                             coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs,
                                           .has_bias = c->biases != 0,
                                           .init_std = c->init_std };
    char name[COH_BUILDER_NAME_BYTES];
    layer_name(b, what, name);
    return residual ? coh_builder_branch(b, name, &linear, x, *residual, out_y)
                    : coh_builder_linear(b, name, &linear, x, NULL, out_y);
}

static coh_status add_norm(coh_builder *b, const char *name, coh_tensor x, coh_tensor *out_y)
{
    const coh_layernorm_attributes norm = { .epsilon = layernorm_epsilon };
    return coh_builder_op(b, &coh_kind_layernorm, name, &norm, sizeof(norm), &x, out_y);
}

/* Adds a layer's norm if this variant has it here; else y is x. */
static coh_status add_layer_norm(coh_builder *b, int is_here, const char *what, coh_tensor x,
                                 coh_tensor *out_y)
{
    char name[COH_BUILDER_NAME_BYTES];
    *out_y = x;
    if (!is_here)
        return COH_OK;
    layer_name(b, what, name);
    return add_norm(b, name, x, out_y);
}

/* y = x + attention of x */
static coh_status add_attention(coh_builder *b, const coh_opt_config *c, coh_tensor x,
                                coh_tensor *out_y)
{
    const int64_t C = c->channels;
    coh_tensor from, qkv[3], attended;
    char name[COH_BUILDER_NAME_BYTES];
    COH_TRY(add_layer_norm(b, c->norm_before, "self_attn_layer_norm", x, &from));
    COH_TRY(add_linear(b, c, "self_attn.q_proj", C, from, NULL, &qkv[0]));
    COH_TRY(add_linear(b, c, "self_attn.k_proj", C, from, NULL, &qkv[1]));
    COH_TRY(add_linear(b, c, "self_attn.v_proj", C, from, NULL, &qkv[2]));
    layer_name(b, "self_attn", name);
    COH_TRY(coh_builder_attention(b, name, c->heads, c->heads, qkv, &attended));
    COH_TRY(add_linear(b, c, "self_attn.out_proj", C, attended, &x, out_y));
    return add_layer_norm(b, !c->norm_before, "self_attn_layer_norm", *out_y, out_y);
}

/* y = x + fc2(relu(fc1(x))) */
static coh_status add_inner(coh_builder *b, const coh_opt_config *c, coh_tensor x,
                            coh_tensor *out_y)
{
    const coh_linear_attributes fc1 = { .outputs = c->inner,
                                        .has_bias = c->biases != 0,
                                        .init_std = c->init_std };
    coh_tensor from, inner;
    char name[COH_BUILDER_NAME_BYTES];
    COH_TRY(add_layer_norm(b, c->norm_before, "final_layer_norm", x, &from));
    layer_name(b, "fc1", name);
    COH_TRY(coh_builder_linear_activated(b, name, &fc1, &coh_builder_relu, from, &inner));
    COH_TRY(add_linear(b, c, "fc2", c->channels, inner, &x, out_y));
    return add_layer_norm(b, !c->norm_before, "final_layer_norm", *out_y, out_y);
}

/* Adds a projection between the widths of the token table and of the layers, if they differ. */
static coh_status add_projection(coh_builder *b, const coh_opt_config *c, const char *name,
                                 int64_t outputs, coh_tensor x, coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs, .init_std = c->init_std };
    *out_y = x;
    if (c->embedding == c->channels)
        return COH_OK;
    return coh_builder_linear(b, name, &linear, x, NULL, out_y);
}

coh_status coh_opt_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                        coh_tensor *out_last)
{
    const coh_opt_config *c = config;
    const coh_embedding_attributes table = { .vocabulary = c->vocabulary,
                                             .channels = c->embedding,
                                             .init_std = c->init_std,
                                             .dtype = c->dtype };
    const coh_position_attributes positions = { .positions = c->positions,
                                                .init_std = c->init_std,
                                                .offset = COH_OPT_POSITION_OFFSET };
    coh_tensor x;
    COH_TRY(coh_builder_tokens(b, "model.decoder.embed_tokens", &table, c->padding, tokens, &x));
    COH_TRY(add_projection(b, c, "model.decoder.project_in", c->channels, x, &x));
    COH_TRY(coh_builder_positions(b, "model.decoder.embed_positions", &positions, x, &x));
    for (b->block = 0; b->block < c->layers; b->block++) {
        COH_TRY(add_attention(b, c, x, &x));
        COH_TRY(add_inner(b, c, x, &x));
    }
    b->block = -1;
    if (c->norm_before && c->last_norm)
        COH_TRY(add_norm(b, "model.decoder.final_layer_norm", x, &x));
    COH_TRY(add_projection(b, c, "model.decoder.project_out", c->embedding, x, &x));
    return coh_builder_head(b, c->vocabulary, c->init_std, c->untied, x, targets, out_last);
}
