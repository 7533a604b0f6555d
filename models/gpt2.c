/* Builds the graph of GPT-2's family (Radford et al. 2019). Operator names are Hugging Face's, so
 * that "<op>.<parameter>" is the name of a tensor in published weights. Next: builder.c, family.h.
 *
 *   tokens -> wte -> wpe -> [ ln_1 -> c_attn -> attn -> c_proj(+) -> ln_2 -> c_fc
 *                             -> c_proj(+) ] x layers -> ln_f -> lm_head (table of wte)
 *
 * Dropout, in training: after wpe, on attn's weights, after both c_proj.
 *
 * The embedding sets the dtype; every other kind follows its inputs (kinds.h).
 *
 * In folders, linears are of a class that stores weights as [inputs, outputs]. OpenAI's own files
 * have no prefix, and contain the attention mask as a tensor. */
#include "models/family.h"

#include <inttypes.h>
#include <math.h>

static const float table_std = 0.02f;
/* The position table's initial standard deviation is half the token table's, as in GPT-2's
 * release. */
static const float position_std = 0.01f;

static int64_t inner_of(const coh_gpt2_config *config)
{
    return config->inner ? config->inner : 4 * config->channels;
}

static coh_status check(const void *config)
{
    const coh_gpt2_config *c = config;
    const coh_model_size size = coh_family_size(&coh_family_gpt2, config);
    COH_TRY(coh_family_check_size("a GPT-2", &size));
    COH_TRY(coh_family_check_heads(&size, "n_embd", "n_head"));
    COH_TRY(coh_family_check_epsilon("layer_norm_epsilon", c->layernorm_epsilon));
    if (c->inner < 0 || inner_of(c) > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"n_inner\" is %" PRId64 ", outside 1..%d (0: 4 times \"n_embd\")",
                        inner_of(c), INT32_MAX);
    if (c->channels > INT32_MAX / 3)
        return coh_fail(COH_ERR_ARGUMENT, "\"n_embd\" is %" PRId64 ", and must be at most %d",
                        c->channels, INT32_MAX / 3);
    return COH_OK;
}

/* ---- the graph ---- */

static coh_linear_attributes linear(int64_t outputs, double std)
{
    return (coh_linear_attributes){ .outputs = outputs, .has_bias = 1, .init_std = (float)std };
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
    const coh_tensor inputs[2] = { qkv, b->position };
    if (b->decode) {
        const coh_attention_decode_attributes attributes = { .heads = config->heads,
                                                             .positions = b->tokens };
        return coh_builder_op(b, &coh_kind_attention_decode, name, &attributes, sizeof(attributes),
                              inputs, out_y);
    }
    const coh_attention_attributes attributes = { .heads = config->heads };
    if (b->dropout > 0) {
        const coh_attention_dropout_attributes dropped = { attributes, b->dropout };
        return coh_builder_op(b,
                              b->separate_documents ? &coh_kind_attention_documents_dropout
                                                    : &coh_kind_attention_dropout,
                              name, &dropped, sizeof(dropped), inputs, out_y);
    }
    return coh_builder_op(b,
                          b->separate_documents ? &coh_kind_attention_documents
                          : b->atomics          ? &coh_kind_attention_atomic
                                                : &coh_kind_attention,
                          name, &attributes, sizeof(attributes), inputs, out_y);
}

static coh_status add_layer(coh_builder *b, const coh_gpt2_config *config, coh_tensor x,
                            coh_tensor *out_y)
{
    const int64_t C = config->channels;
    /* Each layer adds two branches to the residual; their initial weights are scaled so that the
     * variance of the sum stays that of one. */
    const double branch_std = (double)table_std / sqrt(2.0 * (double)config->layers);
    coh_tensor normed, qkv, attended, residual, active;
    COH_TRY(add_norm(b, config, "ln_1", x, &normed));
    COH_TRY(coh_builder_linear(b, "attn.c_attn", linear(3 * C, table_std), normed, NULL, &qkv));
    COH_TRY(add_attention(b, config, "attn", qkv, &attended));
    COH_TRY(coh_builder_branch(b, "attn.c_proj", linear(C, branch_std), attended, x, &residual));
    COH_TRY(add_norm(b, config, "ln_2", residual, &normed));
    COH_TRY(coh_builder_linear_activated(b, "mlp.c_fc", linear(inner_of(config), table_std),
                                         &coh_builder_gelu, normed, &active));
    return coh_builder_branch(b, "mlp.c_proj", linear(C, branch_std), active, residual, out_y);
}

static coh_status body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
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
    return coh_builder_head(b, c->vocabulary, table_std, 0, c->untied, x, targets, out_last);
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

/* ---- config.json ---- */

#define FIELD(member) offsetof(coh_gpt2_config, member)

static const coh_gpt2_config gpt2_defaults = { .layers = 12,
                                               .heads = 12,
                                               .channels = 768,
                                               .positions = 1024,
                                               .vocabulary = 50257,
                                               .layernorm_epsilon = 1e-5f };

static const coh_config_type types[] = {
    { "gpt2", "GPT2LMHeadModel GPT2Model", &gpt2_defaults },
};

static const coh_config_field fields[] = {
    { "n_layer", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST },
    { "num_hidden_layers", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST, .alias = 1 },
    { "n_head", COH_FIELD_COUNT, FIELD(heads) },
    { "num_attention_heads", COH_FIELD_COUNT, FIELD(heads), .alias = 1 },
    { "n_embd", COH_FIELD_COUNT, FIELD(channels) },
    { "hidden_size", COH_FIELD_COUNT, FIELD(channels), .alias = 1 },
    { "n_positions", COH_FIELD_COUNT, FIELD(positions) },
    { "max_position_embeddings", COH_FIELD_COUNT, FIELD(positions), .alias = 1 },
    { "vocab_size", COH_FIELD_COUNT, FIELD(vocabulary) },
    { "n_inner", COH_FIELD_COUNT_MAYBE, FIELD(inner) },
    { "layer_norm_epsilon", COH_FIELD_POSITIVE, FIELD(layernorm_epsilon) },
    { "tie_word_embeddings", COH_FIELD_NOT, FIELD(untied) },
    { "activation_function", COH_FIELD_WORD, .words = "gelu_new gelu_pytorch_tanh" },
    { "scale_attn_weights", COH_FIELD_ONLY, .words = "true" },
    { "scale_attn_by_inverse_layer_idx", COH_FIELD_ONLY, .words = "false" },
    { "add_cross_attention", COH_FIELD_ONLY, .words = "false" },
    { "resid_pdrop", COH_FIELD_DROPOUT },
    { "embd_pdrop", COH_FIELD_DROPOUT },
    { "attn_pdrop", COH_FIELD_DROPOUT },
    /* attention is computed in f32 for every dtype */
    { "reorder_and_upcast_attn", COH_FIELD_KEPT },
    { "initializer_range", COH_FIELD_KEPT },
    { "n_ctx", COH_FIELD_KEPT },
    /* of task heads other than language models */
    { "summary_type", COH_FIELD_KEPT },
    { "summary_use_proj", COH_FIELD_KEPT },
    { "summary_activation", COH_FIELD_KEPT },
    { "summary_proj_to_labels", COH_FIELD_KEPT },
    { "summary_first_dropout", COH_FIELD_KEPT },
    { NULL },
};

/* ---- tensors ---- */

static const coh_tensor_line begin[] = {
    { "wte.weight", COH_SIDE_VOCABULARY, COH_SIDE_CHANNELS },
    { "wpe.weight", COH_SIDE_POSITIONS, COH_SIDE_CHANNELS },
    { NULL },
};

static const coh_tensor_line in_layer[] = {
    { "ln_1.weight", COH_SIDE_CHANNELS },
    { "ln_1.bias", COH_SIDE_CHANNELS },
    { "attn.c_attn.weight", COH_SIDE_QKV, COH_SIDE_CHANNELS, .transposed = 1 },
    { "attn.c_attn.bias", COH_SIDE_QKV },
    { "attn.c_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_CHANNELS, .transposed = 1 },
    { "attn.c_proj.bias", COH_SIDE_CHANNELS },
    { "ln_2.weight", COH_SIDE_CHANNELS },
    { "ln_2.bias", COH_SIDE_CHANNELS },
    { "mlp.c_fc.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS, .transposed = 1 },
    { "mlp.c_fc.bias", COH_SIDE_INNER },
    { "mlp.c_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_INNER, .transposed = 1 },
    { "mlp.c_proj.bias", COH_SIDE_CHANNELS },
    { NULL },
};

static const coh_tensor_line end[] = {
    { "ln_f.weight", COH_SIDE_CHANNELS },
    { "ln_f.bias", COH_SIDE_CHANNELS },
    { "lm_head.weight", COH_SIDE_VOCABULARY, COH_SIDE_CHANNELS, .bare = 1,
      .needs = COH_TENSOR_UNTIED },
    { NULL },
};

static const char *const buffers[] = { "attn.bias", "attn.masked_bias", NULL };

static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    const coh_gpt2_config *c = config;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_QKV] = 3 * c->channels,
                  [COH_SIDE_INNER] = inner_of(c),
                  [COH_SIDE_VOCABULARY] = c->vocabulary,
                  [COH_SIDE_POSITIONS] = c->positions },
        .layers = c->layers,
        .has = c->untied ? COH_TENSOR_UNTIED : 0,
    };
}

const coh_family_table coh_family_gpt2 = {
    .name = "gpt2",
    .config_bytes = sizeof(coh_gpt2_config),
    .dtype_offset = FIELD(dtype),
    .check = check,
    .body = body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .fields = fields,
    .adapter_targets = "c_attn",
    .lines = { .prefix = "transformer.",
               .layer = "h.",
               .begin = begin,
               .in_layer = in_layer,
               .end = end,
               .buffers = buffers },
    .sizes = sizes,
};
