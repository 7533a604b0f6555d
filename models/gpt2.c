/* The graphs of GPT-2's family: one body for training and decoding, which differ in how positions
 * enter, which attention runs and how the graph ends. Radford et al. 2019; op names are Hugging
 * Face's, so that "<op>.<parameter>" is the name of a tensor in published weights.
 *
 *   tokens -> wte -> wpe -> [ ln_1 -> c_attn -> attn -> c_proj(+) -> ln_2 -> c_fc
 *                             -> c_proj(+) ] x layers -> ln_f -> lm_head (table of wte)
 *
 * The embedding decides the dtype: every other kind follows what it is given (kinds.h).
 */
#include "models/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cohobate/kinds.h"

#define NAME_BYTES 64

static const float table_std = 0.02f;
/* The position table starts at half of the token table's spread, as in GPT-2's release. */
static const float position_std = 0.01f;

static const struct preset {
    const char *name;
    int64_t layers, heads, channels;
} presets[] = {
    { "gpt2-nano", 6, 6, 384 },     { "gpt2", 12, 12, 768 },     { "gpt2-medium", 24, 16, 1024 },
    { "gpt2-large", 36, 20, 1280 }, { "gpt2-xl", 48, 25, 1600 },
};

coh_status coh_gpt2_preset(const char *name, int64_t vocabulary, coh_gpt2_config *out_config)
{
    if (!name || !out_config)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a preset needs a name and a place for its configuration");
    if (vocabulary < 0 || vocabulary > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRId64 " is outside 1..%d (0: GPT-2's 50257)",
                        vocabulary, INT32_MAX);
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        *out_config = (coh_gpt2_config){
            .layers = presets[i].layers,
            .heads = presets[i].heads,
            .channels = presets[i].channels,
            .positions = 1024,
            .vocabulary = vocabulary ? vocabulary : 50257,
            .layernorm_epsilon = 1e-5f,
        };
        return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT,
                    "\"%.200s\" is not a preset: these are gpt2-nano, gpt2, gpt2-medium, "
                    "gpt2-large and gpt2-xl",
                    name);
}

/* What all operators of one graph share while it is built. */
typedef struct builder {
    coh_graph *graph;
    const coh_gpt2_config *config;
    int decode;
    int64_t tokens;      /* decode: rows of keys and values */
    coh_tensor position; /* decode only */
    coh_parameter table; /* wte.weight, used again by lm_head */
} builder;

coh_status coh_gpt2_config_check(const coh_gpt2_config *config)
{
    if (config->layers < 1 || config->heads < 1 || config->channels < 1 || config->positions < 1 ||
        config->vocabulary < 1)
        return coh_fail(
            COH_ERR_ARGUMENT,
            "a GPT-2 needs layers, heads, channels, positions and vocabulary of at "
            "least 1, not %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " and %" PRId64,
            config->layers, config->heads, config->channels, config->positions, config->vocabulary);
    if (config->layers > 100000)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRId64 " layers are more than the 100000 allowed",
                        config->layers);
    if (config->channels > INT32_MAX || config->vocabulary > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId64 " channels or a vocabulary of %" PRId64 " exceed %d",
                        config->channels, config->vocabulary, INT32_MAX);
    if (config->channels % config->heads != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " channels do not divide into %" PRId64
                        " heads: choose a multiple",
                        config->channels, config->heads);
    if (!(config->layernorm_epsilon > 0) || !isfinite(config->layernorm_epsilon))
        return coh_fail(COH_ERR_ARGUMENT, "layernorm_epsilon is %g, must be positive and finite",
                        (double)config->layernorm_epsilon);
    if (config->dtype != COH_DTYPE_F32 && config->dtype != COH_DTYPE_BF16)
        return coh_fail(COH_ERR_ARGUMENT, "a GPT-2 is computed in f32 or bf16, not in dtype %d",
                        (int)config->dtype);
    return COH_OK;
}

static coh_status check_tokens(const coh_gpt2_config *config, int64_t tokens)
{
    if (tokens < 1 || tokens > config->positions)
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " tokens do not fit the model's %" PRId64
                        " positions: choose 1..%" PRId64,
                        tokens, config->positions, config->positions);
    return COH_OK;
}

static coh_status add_op(builder *b, const coh_op_kind *kind, const char *name, int32_t block,
                         const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                         coh_tensor *out_tensor)
{
    coh_op_args args = { .name = name,
                         .attributes = attributes,
                         .attribute_bytes = attribute_bytes,
                         .inputs = inputs,
                         .block = block };
    return coh_graph_op(b->graph, kind, &args, out_tensor, NULL);
}

/* y = x weightᵀ + bias, or residual + that when `residual` is given. */
static coh_status add_linear(builder *b, const char *name, int32_t block, int64_t outputs,
                             coh_tensor x, const coh_tensor *residual, coh_tensor *out_y)
{
    coh_linear_attributes linear = { .outputs = outputs, .has_bias = 1, .init_std = table_std };
    coh_tensor inputs[2] = { x, residual ? *residual : x };
    if (!residual)
        return add_op(b, &coh_kind_linear, name, block, &linear, sizeof(linear), inputs, out_y);
    /* Each layer adds two branches to the residual: their sum keeps the variance of one. */
    linear.init_std = (float)((double)table_std / sqrt(2.0 * (double)b->config->layers));
    return add_op(b, &coh_kind_linear_residual, name, block, &linear, sizeof(linear), inputs,
                  out_y);
}

/* y = gelu(x weightᵀ + bias) */
static coh_status add_linear_gelu(builder *b, const char *name, int32_t block, int64_t outputs,
                                  coh_tensor x, coh_tensor *out_y)
{
    coh_linear_attributes linear = { .outputs = outputs, .has_bias = 1, .init_std = table_std };
    return add_op(b, &coh_kind_linear_gelu, name, block, &linear, sizeof(linear), &x, out_y);
}

static coh_status add_norm(builder *b, const char *name, int32_t block, coh_tensor x,
                           coh_tensor *out_y)
{
    coh_layernorm_attributes norm = { .epsilon = b->config->layernorm_epsilon };
    return add_op(b, &coh_kind_layernorm, name, block, &norm, sizeof(norm), &x, out_y);
}

static coh_status add_attention(builder *b, const char *name, int32_t block, coh_tensor qkv,
                                coh_tensor *out_y)
{
    if (b->decode) {
        coh_attention_decode_attributes attributes = { .heads = b->config->heads,
                                                       .positions = b->tokens };
        coh_tensor inputs[2] = { qkv, b->position };
        return add_op(b, &coh_kind_attention_decode, name, block, &attributes, sizeof(attributes),
                      inputs, out_y);
    }
    coh_attention_attributes attributes = { .heads = b->config->heads };
    return add_op(b, &coh_kind_attention, name, block, &attributes, sizeof(attributes), &qkv,
                  out_y);
}

static coh_status add_layer(builder *b, int32_t n, coh_tensor x, coh_tensor *out_y)
{
    int64_t C = b->config->channels;
    coh_tensor normed, qkv, attended, residual, active;
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "h.%" PRId32 ".ln_1", n);
    COH_TRY(add_norm(b, name, n, x, &normed));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn.c_attn", n);
    COH_TRY(add_linear(b, name, n, 3 * C, normed, NULL, &qkv));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn", n);
    COH_TRY(add_attention(b, name, n, qkv, &attended));
    snprintf(name, sizeof(name), "h.%" PRId32 ".attn.c_proj", n);
    COH_TRY(add_linear(b, name, n, C, attended, &x, &residual));
    snprintf(name, sizeof(name), "h.%" PRId32 ".ln_2", n);
    COH_TRY(add_norm(b, name, n, residual, &normed));
    snprintf(name, sizeof(name), "h.%" PRId32 ".mlp.c_fc", n);
    COH_TRY(add_linear_gelu(b, name, n, 4 * C, normed, &active));
    snprintf(name, sizeof(name), "h.%" PRId32 ".mlp.c_proj", n);
    return add_linear(b, name, n, C, active, &residual, out_y);
}

static coh_status add_embeddings(builder *b, coh_tensor tokens, coh_tensor *out_x)
{
    coh_embedding_attributes embedding = { .vocabulary = b->config->vocabulary,
                                           .channels = b->config->channels,
                                           .init_std = table_std,
                                           .dtype = b->config->dtype };
    coh_op_args wte = { .name = "wte",
                        .attributes = &embedding,
                        .attribute_bytes = sizeof(embedding),
                        .inputs = &tokens,
                        .block = -1 };
    coh_tensor embedded;
    COH_TRY(coh_graph_op(b->graph, &coh_kind_embedding, &wte, &embedded, &b->table));

    coh_position_attributes position = { .positions = b->config->positions,
                                         .init_std = position_std };
    coh_tensor inputs[2] = { embedded, b->position };
    const coh_op_kind *kind = b->decode ? &coh_kind_position_at : &coh_kind_position;
    return add_op(b, kind, "wpe", -1, &position, sizeof(position), inputs, out_x);
}

/* Embeddings, layers, last norm and head. `last_inputs` of the head: x, and targets in training. */
static coh_status add_body(builder *b, coh_tensor tokens, coh_tensor targets, coh_tensor *out_last)
{
    coh_tensor x;
    COH_TRY(add_embeddings(b, tokens, &x));
    for (int64_t n = 0; n < b->config->layers; n++)
        COH_TRY(add_layer(b, (int32_t)n, x, &x));
    COH_TRY(add_norm(b, "ln_f", -1, x, &x));

    coh_classifier_attributes classifier = { .vocabulary = b->config->vocabulary,
                                             .init_std = table_std };
    coh_tensor inputs[2] = { x, targets };
    coh_op_args head = { .name = "lm_head",
                         .attributes = &classifier,
                         .attribute_bytes = sizeof(classifier),
                         .inputs = inputs,
                         .tied = &b->table,
                         .block = -1 };
    const coh_op_kind *kind = b->decode ? &coh_kind_logits : &coh_kind_classifier;
    return coh_graph_op(b->graph, kind, &head, out_last, NULL);
}

coh_status coh_gpt2_train_graph(const coh_gpt2_config *config, int64_t sequences, int64_t tokens,
                                coh_graph **out_graph)
{
    if (!config || !out_graph)
        return coh_fail(COH_ERR_ARGUMENT, "a graph needs a configuration and a place for itself");
    *out_graph = NULL;
    COH_TRY(coh_gpt2_config_check(config));
    COH_TRY(check_tokens(config, tokens));
    if (sequences < 1)
        return coh_fail(COH_ERR_SHAPE, "a micro-batch of %" PRId64 " sequences: at least 1",
                        sequences);
    builder b = { .config = config, .tokens = tokens };
    coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { sequences, tokens } };
    coh_tensor ids, targets, loss;
    coh_status status;
    COH_TRY_GOTO(status, coh_graph_create(&b.graph), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "tokens", &shape, &ids), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "targets", &shape, &targets), done);
    b.position = ids; /* not read in training */
    COH_TRY_GOTO(status, add_body(&b, ids, targets, &loss), done);
    COH_TRY_GOTO(status, coh_graph_loss(b.graph, loss), done);
done:
    if (status != COH_OK)
        coh_graph_destroy(b.graph);
    else
        *out_graph = b.graph;
    return status;
}

coh_status coh_gpt2_decode_graph(const coh_gpt2_config *config, int64_t tokens,
                                 coh_graph **out_graph, coh_tensor *out_logits)
{
    if (!config || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a decoder needs a configuration and places for itself and its logits");
    *out_graph = NULL;
    COH_TRY(coh_gpt2_config_check(config));
    COH_TRY(check_tokens(config, tokens));
    builder b = { .config = config, .decode = 1, .tokens = tokens };
    coh_shape token_shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, 1 } };
    coh_shape position_shape = { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { 1 } };
    coh_tensor id, logits;
    coh_status status;
    COH_TRY_GOTO(status, coh_graph_create(&b.graph), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "token", &token_shape, &id), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "position", &position_shape, &b.position), done);
    COH_TRY_GOTO(status, add_body(&b, id, id, &logits), done);
    COH_TRY_GOTO(status, coh_graph_output(b.graph, logits), done);
    *out_logits = logits;
done:
    if (status != COH_OK)
        coh_graph_destroy(b.graph);
    else
        *out_graph = b.graph;
    return status;
}
