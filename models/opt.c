/* Builds the graph of OPT's family (Zhang et al. 2022). Names are Hugging Face's, prefixed with
 * "model.decoder.". Next: builder.c, family.h.
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
 *
 * The folders first published have no "model." before the names. */
#include "models/family.h"

#include <inttypes.h>

/* Unused rows of the position table before the row of position 0. */
enum { POSITION_OFFSET = 2 };

static const float layernorm_epsilon = 1e-5f; /* not configurable in config.json */

static coh_status check(const void *config)
{
    const coh_opt_config *c = config;
    const coh_model_size size = coh_family_size(&coh_family_opt, config);
    COH_TRY(coh_family_check_size("an OPT", &size));
    COH_TRY(coh_family_check_heads(&size, "hidden_size", "num_attention_heads"));
    if (c->positions > INT32_MAX - POSITION_OFFSET)
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"max_position_embeddings\" is %" PRId64 ", and must be at most %d",
                        c->positions, INT32_MAX - POSITION_OFFSET);
    if (c->inner < 1 || c->inner > INT32_MAX || c->embedding < 1 || c->embedding > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an inner width of %" PRId64 " or an embedding of %" PRId64
                        " is outside 1..%d",
                        c->inner, c->embedding, INT32_MAX);
    return coh_family_check_init(c->vocabulary, c->padding, c->init_std);
}

/* ---- the graph ---- */

static coh_linear_attributes linear(const coh_opt_config *c, int64_t outputs)
{
    return (coh_linear_attributes){ .outputs = outputs,
                                    .has_bias = c->biases != 0,
                                    .init_std = c->init_std };
}

static coh_status add_norm(coh_builder *b, const char *name, coh_tensor x, coh_tensor *out_y)
{
    const coh_layernorm_attributes norm = { .epsilon = layernorm_epsilon };
    return coh_builder_op(b, &coh_kind_layernorm, name, &norm, sizeof(norm), &x, out_y);
}

/* Adds a layer's norm if this variant has it here; else y is x. */
static coh_status add_layer_norm(coh_builder *b, int is_here, const char *name, coh_tensor x,
                                 coh_tensor *out_y)
{
    *out_y = x;
    return is_here ? add_norm(b, name, x, out_y) : COH_OK;
}

/* y = x + attention of x */
static coh_status add_attention(coh_builder *b, const coh_opt_config *c, coh_tensor x,
                                coh_tensor *out_y)
{
    const int64_t C = c->channels;
    coh_tensor from, qkv[3], attended;
    COH_TRY(add_layer_norm(b, c->norm_before, "self_attn_layer_norm", x, &from));
    COH_TRY(coh_builder_linear(b, "self_attn.q_proj", linear(c, C), from, NULL, &qkv[0]));
    COH_TRY(coh_builder_linear(b, "self_attn.k_proj", linear(c, C), from, NULL, &qkv[1]));
    COH_TRY(coh_builder_linear(b, "self_attn.v_proj", linear(c, C), from, NULL, &qkv[2]));
    COH_TRY(coh_builder_attention(b, "self_attn", c->heads, c->heads, (coh_attention_scores){ 0 },
                                  qkv, &attended));
    COH_TRY(coh_builder_branch(b, "self_attn.out_proj", linear(c, C), attended, x, out_y));
    return add_layer_norm(b, !c->norm_before, "self_attn_layer_norm", *out_y, out_y);
}

/* y = x + fc2(relu(fc1(x))) */
static coh_status add_inner(coh_builder *b, const coh_opt_config *c, coh_tensor x,
                            coh_tensor *out_y)
{
    coh_tensor from, inner;
    COH_TRY(add_layer_norm(b, c->norm_before, "final_layer_norm", x, &from));
    COH_TRY(coh_builder_linear_activated(b, "fc1", linear(c, c->inner), &coh_builder_relu, from,
                                         &inner));
    COH_TRY(coh_builder_branch(b, "fc2", linear(c, c->channels), inner, x, out_y));
    return add_layer_norm(b, !c->norm_before, "final_layer_norm", *out_y, out_y);
}

/* Adds a projection between the widths of the token table and of the layers, if they differ. */
static coh_status add_projection(coh_builder *b, const coh_opt_config *c, const char *name,
                                 int64_t outputs, coh_tensor x, coh_tensor *out_y)
{
    const coh_linear_attributes plain = { .outputs = outputs, .init_std = c->init_std };
    *out_y = x;
    return c->embedding == c->channels ? COH_OK
                                       : coh_builder_linear(b, name, plain, x, NULL, out_y);
}

static coh_status body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                       coh_tensor *out_last)
{
    const coh_opt_config *c = config;
    const coh_embedding_attributes table = { .vocabulary = c->vocabulary,
                                             .channels = c->embedding,
                                             .init_std = c->init_std,
                                             .dtype = c->dtype };
    const coh_position_attributes positions = { .positions = c->positions,
                                                .init_std = c->init_std,
                                                .offset = POSITION_OFFSET };
    coh_tensor x;
    COH_TRY(coh_builder_tokens(b, "decoder.embed_tokens", &table, c->padding, tokens, &x));
    COH_TRY(add_projection(b, c, "decoder.project_in", c->channels, x, &x));
    COH_TRY(coh_builder_positions(b, "decoder.embed_positions", &positions, x, &x));
    for (b->block = 0; b->block < c->layers; b->block++) {
        COH_TRY(add_attention(b, c, x, &x));
        COH_TRY(add_inner(b, c, x, &x));
    }
    b->block = -1;
    if (c->norm_before && c->last_norm)
        COH_TRY(add_norm(b, "decoder.final_layer_norm", x, &x));
    COH_TRY(add_projection(b, c, "decoder.project_out", c->embedding, x, &x));
    return coh_builder_head(b, c->vocabulary, c->init_std, 0, c->untied, x, targets, out_last);
}

/* ---- config.json ---- */

#define FIELD(member) offsetof(coh_opt_config, member)

static const coh_opt_config opt_defaults = { .layers = 12,
                                             .heads = 12,
                                             .channels = 768,
                                             .positions = 2048,
                                             .vocabulary = 50272,
                                             .inner = 3072,
                                             .padding = 1,
                                             .init_std = 0.02f,
                                             .norm_before = 1,
                                             .last_norm = 1,
                                             .biases = 1 };

static const coh_config_type types[] = {
    { "opt", "OPTForCausalLM OPTModel", &opt_defaults },
};

static const coh_config_field fields[] = {
    { "num_hidden_layers", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST },
    { "num_attention_heads", COH_FIELD_COUNT, FIELD(heads) },
    { "hidden_size", COH_FIELD_COUNT, FIELD(channels) },
    { "max_position_embeddings", COH_FIELD_COUNT, FIELD(positions) },
    { "vocab_size", COH_FIELD_COUNT, FIELD(vocabulary) },
    { "ffn_dim", COH_FIELD_COUNT, FIELD(inner) },
    { "word_embed_proj_dim", COH_FIELD_COUNT_MAYBE, FIELD(embedding) },
    { "pad_token_id", COH_FIELD_ID, FIELD(padding) },
    { "init_std", COH_FIELD_POSITIVE, FIELD(init_std) },
    { "do_layer_norm_before", COH_FIELD_FLAG, FIELD(norm_before) },
    { "_remove_final_layer_norm", COH_FIELD_NOT, FIELD(last_norm) },
    { "enable_bias", COH_FIELD_FLAG, FIELD(biases) },
    { "tie_word_embeddings", COH_FIELD_NOT, FIELD(untied) },
    { "activation_function", COH_FIELD_WORD, .words = "relu" },
    { "layer_norm_elementwise_affine", COH_FIELD_ONLY, .words = "true" },
    { "dropout", COH_FIELD_DROPOUT },
    { "attention_dropout", COH_FIELD_DROPOUT },
    { "activation_dropout", COH_FIELD_DROPOUT },
    { "layerdrop", COH_FIELD_DROPOUT },
    { NULL },
};

static coh_status read_own(coh_config_reader *reader, void *config)
{
    (void)reader;
    coh_opt_config *c = config;
    if (c->embedding == 0)
        c->embedding = c->channels;
    return COH_OK;
}

/* ---- tensors ---- */

enum {
    BIASES = COH_TENSOR_UNTIED << 1,
    NORM_BEFORE = BIASES << 1,
    NORM_AFTER = NORM_BEFORE << 1,
    LAST_NORM = NORM_AFTER << 1,
    PROJECTED = LAST_NORM << 1
};

static const coh_tensor_line begin[] = {
    { "decoder.embed_tokens.weight", COH_SIDE_VOCABULARY, COH_SIDE_EMBEDDING },
    { "decoder.project_in.weight", COH_SIDE_CHANNELS, COH_SIDE_EMBEDDING, .needs = PROJECTED },
    { "decoder.embed_positions.weight", COH_SIDE_POSITIONS, COH_SIDE_CHANNELS },
    { NULL },
};

static const coh_tensor_line in_layer[] = {
    { "self_attn_layer_norm.weight", COH_SIDE_CHANNELS, .needs = NORM_BEFORE },
    { "self_attn_layer_norm.bias", COH_SIDE_CHANNELS, .needs = NORM_BEFORE },
    { "self_attn.q_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_CHANNELS },
    { "self_attn.q_proj.bias", COH_SIDE_CHANNELS, .needs = BIASES },
    { "self_attn.k_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_CHANNELS },
    { "self_attn.k_proj.bias", COH_SIDE_CHANNELS, .needs = BIASES },
    { "self_attn.v_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_CHANNELS },
    { "self_attn.v_proj.bias", COH_SIDE_CHANNELS, .needs = BIASES },
    { "self_attn.out_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_CHANNELS },
    { "self_attn.out_proj.bias", COH_SIDE_CHANNELS, .needs = BIASES },
    { "self_attn_layer_norm.weight", COH_SIDE_CHANNELS, .needs = NORM_AFTER },
    { "self_attn_layer_norm.bias", COH_SIDE_CHANNELS, .needs = NORM_AFTER },
    { "final_layer_norm.weight", COH_SIDE_CHANNELS, .needs = NORM_BEFORE },
    { "final_layer_norm.bias", COH_SIDE_CHANNELS, .needs = NORM_BEFORE },
    { "fc1.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS },
    { "fc1.bias", COH_SIDE_INNER, .needs = BIASES },
    { "fc2.weight", COH_SIDE_CHANNELS, COH_SIDE_INNER },
    { "fc2.bias", COH_SIDE_CHANNELS, .needs = BIASES },
    { "final_layer_norm.weight", COH_SIDE_CHANNELS, .needs = NORM_AFTER },
    { "final_layer_norm.bias", COH_SIDE_CHANNELS, .needs = NORM_AFTER },
    { NULL },
};

static const coh_tensor_line end[] = {
    { "decoder.final_layer_norm.weight", COH_SIDE_CHANNELS, .needs = LAST_NORM },
    { "decoder.final_layer_norm.bias", COH_SIDE_CHANNELS, .needs = LAST_NORM },
    { "decoder.project_out.weight", COH_SIDE_EMBEDDING, COH_SIDE_CHANNELS, .needs = PROJECTED },
    { "lm_head.weight", COH_SIDE_VOCABULARY, COH_SIDE_EMBEDDING, .bare = 1,
      .needs = COH_TENSOR_UNTIED },
    { NULL },
};

static const char *const buffers[] = { NULL };

static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    const coh_opt_config *c = config;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_INNER] = c->inner,
                  [COH_SIDE_VOCABULARY] = c->vocabulary,
                  [COH_SIDE_POSITIONS] = c->positions + POSITION_OFFSET,
                  [COH_SIDE_EMBEDDING] = c->embedding },
        .layers = c->layers,
        .has = (c->untied ? COH_TENSOR_UNTIED : 0) | (c->biases ? BIASES : 0) |
               (c->norm_before ? NORM_BEFORE : NORM_AFTER) |
               (c->norm_before && c->last_norm ? LAST_NORM : 0) |
               (c->embedding != c->channels ? PROJECTED : 0),
    };
}

const coh_family_table coh_family_opt = {
    .name = "opt",
    .config_bytes = sizeof(coh_opt_config),
    .dtype_offset = FIELD(dtype),
    .check = check,
    .body = body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .fields = fields,
    .read_own = read_own,
    .adapter_targets = "q_proj,v_proj",
    .lines = { .prefix = "model.",
               .ours_prefixed = 1,
               .layer = "decoder.layers.",
               .begin = begin,
               .in_layer = in_layer,
               .end = end,
               .buffers = buffers },
    .sizes = sizes,
};
