/* The table of OPT's family in Hugging Face folders: fields of config.json and tensors. The folders
 * first published have no "model." before the names. Next: opt.c for the graph. */
#include "models/opt.h"

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

static const coh_tensor_lines lines = { .prefix = "model.",
                                        .ours_prefixed = 1,
                                        .layer = "decoder.layers.",
                                        .begin = begin,
                                        .in_layer = in_layer,
                                        .end = end,
                                        .buffers = buffers };

static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    const coh_opt_config *c = config;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_INNER] = c->inner,
                  [COH_SIDE_VOCABULARY] = c->vocabulary,
                  [COH_SIDE_POSITIONS] = c->positions + COH_OPT_POSITION_OFFSET,
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
    .check = coh_opt_check,
    .size = coh_opt_size,
    .body = coh_opt_body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .fields = fields,
    .read_own = read_own,
    .adapter_targets = "q_proj,v_proj",
    .lines = &lines,
    .sizes = sizes,
};
