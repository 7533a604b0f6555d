/* The table of GPT-2's family in Hugging Face folders: fields of config.json and tensors. Linears
 * are of a class that stores weights as [inputs, outputs]. OpenAI's own files have no prefix, and
 * contain the attention mask as a tensor. Next: gpt2.c for the graph. */
#include "models/gpt2.h"

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

static const coh_tensor_lines lines = { .prefix = "transformer.",
                                        .layer = "h.",
                                        .begin = begin,
                                        .in_layer = in_layer,
                                        .end = end,
                                        .buffers = buffers };

static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    const coh_gpt2_config *c = config;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_QKV] = 3 * c->channels,
                  [COH_SIDE_INNER] = coh_gpt2_inner(c),
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
    .check = coh_gpt2_check,
    .size = coh_gpt2_size,
    .body = coh_gpt2_body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .fields = fields,
    .adapter_targets = "c_attn",
    .lines = &lines,
    .sizes = sizes,
};
