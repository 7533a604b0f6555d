/* Builds the graph of Llama's family (Touvron et al. 2023; Mistral and Qwen2 are the same graph
 * with other biases). Names are Hugging Face's, prefixed with "model.". Next: builder.c, family.h,
 * rope.h.
 *
 *   tokens -> embed_tokens -> layers -> norm -> lm_head (its own table, or that of embed_tokens)
 *
 *   input_layernorm -> q k v -> rope of q and k -> self_attn -> o_proj(+)
 *   -> post_attention_layernorm -> gate up -> gate / (1 + e^-gate) * up -> down_proj(+)
 *
 * Qwen3 has norms of each head of q and k before rope. Phi-3 has one linear for q, k and v, which
 * rope takes apart, and one for gate and up.
 *
 * Dropout, in training: on self_attn's weights; Phi-3 also on what o_proj and down_proj add. */
#include "models/family.h"

#include <inttypes.h>
#include <string.h>

#include "models/rope.h"

/* Qwen's types have a flag for the window and a list of layers that have it. */
static int is_qwen(const coh_llama_config *c)
{
    return c->type == COH_LLAMA_QWEN2 || c->type == COH_LLAMA_QWEN3;
}

/* Qwen's windows, of some layers only, are not computed: longer sequences are refused. */
static int64_t positions_of(const void *config)
{
    const coh_llama_config *c = config;
    return is_qwen(c) && c->window > 0 && c->window < c->positions ? c->window : c->positions;
}

/* Checks fields that the model type fixes; other values could not be written as that type. */
static coh_status check_type(const coh_llama_config *c)
{
    static const char *const names[] = { "llama", "mistral", "qwen2", "qwen3", "phi3" };
    int32_t qkv = c->qkv_biases != 0, fits;
    switch (c->type) {
    case COH_LLAMA_PLAIN:
        fits = qkv == (c->output_bias != 0) && c->window == 0;
        break;
    case COH_LLAMA_QWEN3:
        fits = qkv == (c->output_bias != 0) && !c->mlp_bias;
        break;
    case COH_LLAMA_MISTRAL:
    case COH_LLAMA_PHI3:
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

static coh_status check(const void *config)
{
    const coh_llama_config *c = config;
    const coh_model_size size = coh_family_size(&coh_family_llama, config);
    COH_TRY(coh_family_check_size("a Llama", &size));
    COH_TRY(coh_family_check_grouped_heads(c->heads, c->kv_heads, c->head_width));
    COH_TRY(coh_rope_config_check(&c->rope, "rope_theta", size.positions));
    COH_TRY(check_type(c));
    if (c->type == COH_LLAMA_PHI3 && c->rope.scaling != COH_ROPE_UNSCALED)
        return coh_fail(COH_ERR_ARGUMENT, "a Phi-3 has no scaling of turns %d",
                        (int)c->rope.scaling);
    if (c->inner < 1 || c->inner > INT32_MAX || c->window < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an inner width of %" PRId64 " or a window of %" PRId64 " is out of range",
                        c->inner, c->window);
    COH_TRY(coh_family_check_init(c->vocabulary, c->padding, c->init_std));
    return coh_family_check_epsilon("rms_norm_eps", c->rmsnorm_epsilon);
}

/* ---- the graph ---- */

static coh_status add_linear(coh_builder *b, const coh_llama_config *c, const char *name,
                             int64_t outputs, int has_bias, coh_tensor x, coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs,
                                           .has_bias = has_bias != 0,
                                           .init_std = c->init_std };
    return coh_builder_linear(b, name, linear, x, NULL, out_y);
}

static coh_status add_norm(coh_builder *b, const coh_llama_config *c, const char *name,
                           coh_tensor x, coh_tensor *out_y)
{
    const coh_rmsnorm_attributes norm = { .epsilon = c->rmsnorm_epsilon };
    return coh_builder_op(b, &coh_kind_rmsnorm, name, &norm, sizeof(norm), &x, out_y);
}

/* y = residual + x weightᵀ + bias: the end of a branch. */
static coh_status add_branch(coh_builder *b, const coh_llama_config *c, const char *name,
                             int has_bias, coh_tensor x, coh_tensor residual, coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = c->channels,
                                           .has_bias = has_bias != 0,
                                           .init_std = c->init_std };
    return c->type == COH_LLAMA_PHI3 ? coh_builder_branch(b, name, linear, x, residual, out_y)
                                     : coh_builder_linear(b, name, linear, x, &residual, out_y);
}

/* Normalises each head of queries or keys. */
static coh_status add_head_norm(coh_builder *b, const coh_llama_config *c, const char *name,
                                int64_t heads, coh_tensor x, coh_tensor *out_y)
{
    const coh_rmsnorm_attributes norm = { .epsilon = c->rmsnorm_epsilon, .heads = (int32_t)heads };
    return coh_builder_op(b, &coh_kind_rmsnorm, name, &norm, sizeof(norm), &x, out_y);
}

static coh_rope_attributes rope_of(const coh_llama_config *c, int64_t heads)
{
    coh_rope_attributes rope = c->rope;
    rope.heads = heads;
    return rope;
}

/* Queries, keys and values of x, the first two rotated: of three linears. */
static coh_status add_qkv(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                          coh_tensor qkv[3])
{
    const int64_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    COH_TRY(add_linear(b, c, "self_attn.q_proj", queries, c->qkv_biases, x, &qkv[0]));
    COH_TRY(add_linear(b, c, "self_attn.k_proj", keys, c->qkv_biases, x, &qkv[1]));
    COH_TRY(add_linear(b, c, "self_attn.v_proj", keys, c->qkv_biases, x, &qkv[2]));
    if (c->type == COH_LLAMA_QWEN3) {
        COH_TRY(add_head_norm(b, c, "self_attn.q_norm", c->heads, qkv[0], &qkv[0]));
        COH_TRY(add_head_norm(b, c, "self_attn.k_norm", c->kv_heads, qkv[1], &qkv[1]));
    }
    COH_TRY(coh_builder_rope(b, "self_attn.q_rope", rope_of(c, c->heads), qkv[0], &qkv[0]));
    return coh_builder_rope(b, "self_attn.k_rope", rope_of(c, c->kv_heads), qkv[1], &qkv[1]);
}

/* As above, of one linear. */
static coh_status add_packed_qkv(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                                 coh_tensor qkv[3])
{
    const coh_rope_split_attributes split = { c->kv_heads, rope_of(c, c->heads) };
    const int64_t outputs = (c->heads + 2 * c->kv_heads) * c->head_width;
    coh_tensor inputs[2] = { x, b->position };
    COH_TRY(add_linear(b, c, "self_attn.qkv_proj", outputs, 0, x, &inputs[0]));
    return coh_builder_op(b, b->decode ? &coh_kind_rope_split_at : &coh_kind_rope_split,
                          "self_attn.qkv_rope", &split, sizeof(split), inputs, qkv);
}

/* y = x + attention of x */
static coh_status add_attention(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                                coh_tensor *out_y)
{
    const coh_attention_scores scores = { .window = c->window };
    coh_tensor normed, qkv[3], attended;
    COH_TRY(add_norm(b, c, "input_layernorm", x, &normed));
    if (c->type == COH_LLAMA_PHI3)
        COH_TRY(add_packed_qkv(b, c, normed, qkv));
    else
        COH_TRY(add_qkv(b, c, normed, qkv));
    COH_TRY(coh_builder_attention(b, "self_attn", c->heads, c->kv_heads, scores, qkv, &attended));
    return add_branch(b, c, "self_attn.o_proj", c->output_bias, attended, x, out_y);
}

/* y = x + gated MLP of x */
static coh_status add_inner(coh_builder *b, const coh_llama_config *c, coh_tensor x,
                            coh_tensor *out_y)
{
    coh_tensor normed, gated[2], inner;
    COH_TRY(add_norm(b, c, "post_attention_layernorm", x, &normed));
    if (c->type == COH_LLAMA_PHI3) {
        COH_TRY(add_linear(b, c, "mlp.gate_up_proj", 2 * c->inner, 0, normed, &gated[0]));
        COH_TRY(coh_builder_op(b, &coh_kind_swiglu_packed, "mlp.activation_fn", NULL, 0, gated,
                               &inner));
    } else {
        COH_TRY(add_linear(b, c, "mlp.gate_proj", c->inner, c->mlp_bias, normed, &gated[0]));
        COH_TRY(add_linear(b, c, "mlp.up_proj", c->inner, c->mlp_bias, normed, &gated[1]));
        COH_TRY(coh_builder_op(b, &coh_kind_swiglu, "mlp.act_fn", NULL, 0, gated, &inner));
    }
    return add_branch(b, c, "mlp.down_proj", c->mlp_bias, inner, x, out_y);
}

static coh_status body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                       coh_tensor *out_last)
{
    const coh_llama_config *c = config;
    const coh_embedding_attributes table = { .vocabulary = c->vocabulary,
                                             .channels = c->channels,
                                             .init_std = c->init_std,
                                             .dtype = c->dtype };
    coh_tensor x;
    COH_TRY(coh_builder_tokens(b, "embed_tokens", &table, c->padding, tokens, &x));
    for (b->block = 0; b->block < c->layers; b->block++) {
        COH_TRY(add_attention(b, c, x, &x));
        COH_TRY(add_inner(b, c, x, &x));
    }
    b->block = -1;
    COH_TRY(add_norm(b, c, "norm", x, &x));
    return coh_builder_head(b, c->vocabulary, c->init_std, 0, c->untied, x, targets, out_last);
}

/* ---- config.json ---- */

#define FIELD(member) offsetof(coh_llama_config, member)

/* Defaults of the `transformers` classes for members that config.json omits. */
#define COMMON_DEFAULTS                                                                            \
    .layers = 32, .heads = 32, .channels = 4096, .padding = -1, .rope = { .theta = 1e4 },          \
    .rmsnorm_epsilon = 1e-6f, .init_std = 0.02f, .untied = 1
static const coh_llama_config llama_defaults = { COMMON_DEFAULTS, .positions = 2048,
                                                 .vocabulary = 32000, .inner = 11008,
                                                 .type = COH_LLAMA_PLAIN };
static const coh_llama_config mistral_defaults = { COMMON_DEFAULTS,          .positions = 131072,
                                                   .vocabulary = 32000,      .kv_heads = 8,
                                                   .inner = 14336,           .window = 4096,
                                                   .type = COH_LLAMA_MISTRAL };
static const coh_llama_config qwen2_defaults = { COMMON_DEFAULTS,      .positions = 32768,
                                                 .vocabulary = 151936, .kv_heads = 32,
                                                 .inner = 22016,       .type = COH_LLAMA_QWEN2,
                                                 .qkv_biases = 1 };
static const coh_llama_config qwen3_defaults = { COMMON_DEFAULTS,        .positions = 32768,
                                                 .vocabulary = 151936,   .kv_heads = 32,
                                                 .head_width = 128,      .inner = 22016,
                                                 .type = COH_LLAMA_QWEN3 };
static const coh_llama_config phi3_defaults = {
    .layers = 32,
    .heads = 32,
    .channels = 3072,
    .positions = 4096,
    .vocabulary = 32064,
    .inner = 8192,
    .padding = 32000,
    .rope.theta = 1e4,
    .rmsnorm_epsilon = 1e-5f,
    .init_std = 0.02f,
    .untied = 1,
    .type = COH_LLAMA_PHI3,
};
static const int64_t qwen_window = 4096;

/* By coh_llama_type. */
static const coh_config_type types[] = {
    [COH_LLAMA_PLAIN] = { "llama", "LlamaForCausalLM LlamaModel", &llama_defaults },
    [COH_LLAMA_MISTRAL] = { "mistral", "MistralForCausalLM MistralModel", &mistral_defaults },
    [COH_LLAMA_QWEN2] = { "qwen2", "Qwen2ForCausalLM Qwen2Model", &qwen2_defaults },
    [COH_LLAMA_QWEN3] = { "qwen3", "Qwen3ForCausalLM Qwen3Model", &qwen3_defaults },
    [COH_LLAMA_PHI3] = { "phi3", "Phi3ForCausalLM Phi3Model", &phi3_defaults, "qkv_proj" },
};

static int type_of(const void *config)
{
    return ((const coh_llama_config *)config)->type;
}

enum {
    PLAIN = 1 << COH_LLAMA_PLAIN,
    MISTRAL = 1 << COH_LLAMA_MISTRAL,
    QWEN2 = 1 << COH_LLAMA_QWEN2,
    QWEN3 = 1 << COH_LLAMA_QWEN3,
    PHI3 = 1 << COH_LLAMA_PHI3
};

static const coh_config_field fields[] = {
    { "num_hidden_layers", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST },
    { "num_attention_heads", COH_FIELD_COUNT, FIELD(heads) },
    { "num_key_value_heads", COH_FIELD_COUNT_MAYBE, FIELD(kv_heads) },
    { "hidden_size", COH_FIELD_COUNT, FIELD(channels) },
    { "head_dim", COH_FIELD_COUNT, FIELD(head_width), .types = QWEN3 },
    { "head_dim", COH_FIELD_COUNT_MAYBE, FIELD(head_width), .types = ~(uint32_t)QWEN3 },
    { "intermediate_size", COH_FIELD_COUNT, FIELD(inner) },
    { "max_position_embeddings", COH_FIELD_COUNT, FIELD(positions) },
    { "vocab_size", COH_FIELD_COUNT, FIELD(vocabulary) },
    { "pad_token_id", COH_FIELD_ID, FIELD(padding) },
    { "rms_norm_eps", COH_FIELD_POSITIVE, FIELD(rmsnorm_epsilon) },
    { "initializer_range", COH_FIELD_POSITIVE, FIELD(init_std) },
    { "tie_word_embeddings", COH_FIELD_NOT, FIELD(untied) },
    { "hidden_act", COH_FIELD_WORD, .words = "silu swish" },
    { "attention_bias", COH_FIELD_OWN, .types = PLAIN | QWEN3 },
    { "mlp_bias", COH_FIELD_FLAG, FIELD(mlp_bias), .types = PLAIN },
    { "rope_theta", COH_FIELD_OWN },
    { "rope_scaling", COH_FIELD_OWN },
    { "rope_parameters", COH_FIELD_OWN },
    { "original_max_position_embeddings", COH_FIELD_KEPT, .types = PHI3 }, /* of longrope */
    { "original_max_position_embeddings", COH_FIELD_OWN },
    { "partial_rotary_factor", COH_FIELD_OWN },
    { "sliding_window", COH_FIELD_OWN, .types = MISTRAL | QWEN2 | QWEN3 | PHI3 },
    { "use_sliding_window", COH_FIELD_OWN, .types = QWEN2 | QWEN3 },
    { "layer_types", COH_FIELD_OWN_KEPT, .types = QWEN2 | QWEN3 },
    { "max_window_layers", COH_FIELD_KEPT, .types = QWEN2 | QWEN3 },
    { "attention_dropout", COH_FIELD_DROPOUT },
    { "resid_pdrop", COH_FIELD_DROPOUT, .types = PHI3 },
    { "embd_pdrop", COH_FIELD_DROPOUT, .types = PHI3 }, /* its class drops nothing there */
    { "pretraining_tp", COH_FIELD_KEPT, .types = PLAIN },
    { "is_llama_config", COH_FIELD_KEPT, .types = PLAIN },
    { "rope_interleaved", COH_FIELD_ONLY, .words = "false", .types = PLAIN },
    { NULL },
};

/* ---- windows ---- */

/* Checks the list of each layer's window type. */
static coh_status check_layer_types(const json_t *list, const coh_llama_config *c)
{
    if (!list || json_is_null(list))
        return COH_OK;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return coh_config_refuse("layer_types", list, "null or a list of one word for each layer");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const char *word = json_string_value(value);
        const int slides = word && strcmp(word, "sliding_attention") == 0;
        if (!slides && !(word && strcmp(word, "full_attention") == 0))
            return coh_config_refuse("layer_types", value, "full_attention or sliding_attention");
        if (slides && c->window == 0)
            return coh_config_refuse("layer_types", value,
                                     "full_attention where there is no sliding_window");
    }
    return COH_OK;
}

/* The types whose linears have biases if "attention_bias" asks for them. */
static int has_bias_flag(const coh_llama_config *c)
{
    return c->type == COH_LLAMA_PLAIN || c->type == COH_LLAMA_QWEN3;
}

static coh_status read_window(coh_config_reader *reader, coh_llama_config *c)
{
    const json_t *value = json_object_get(reader->root, "sliding_window");
    if (c->type == COH_LLAMA_PLAIN)
        return COH_OK;
    if (is_qwen(c)) {
        const json_t *used = json_object_get(reader->root, "use_sliding_window");
        int32_t is_used = 0;
        if (used)
            COH_TRY(coh_config_flag("use_sliding_window", used, &is_used));
        c->window = is_used ? qwen_window : 0;
        if (!is_used)
            value = NULL;
    }
    if (json_is_null(value)) /* null: none */
        c->window = 0;
    else if (value)
        COH_TRY(coh_config_count("sliding_window", value, INT32_MAX, &c->window));
    if (is_qwen(c))
        COH_TRY(check_layer_types(json_object_get(reader->root, "layer_types"), c));
    if (is_qwen(c) && c->window > 0 && c->window < c->positions)
        coh_config_note(reader,
                        "its sliding window changes nothing within %" PRId64
                        " tokens; longer sequences are refused",
                        c->window);
    return COH_OK;
}

/* ---- other checks ---- */

static coh_status read_heads(const json_t *root, coh_llama_config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_width == 0 && c->channels % c->heads != 0)
        return coh_config_refuse("num_attention_heads",
                                 json_object_get(root, "num_attention_heads"),
                                 "a divisor of hidden_size where there is no head_dim");
    if (c->head_width == 0)
        c->head_width = c->channels / c->heads;
    return COH_OK;
}

static coh_status read_own(coh_config_reader *reader, void *config)
{
    coh_llama_config *c = config;
    const json_t *bias = json_object_get(reader->root, "attention_bias");
    if (has_bias_flag(c) && bias) {
        COH_TRY(coh_config_flag("attention_bias", bias, &c->qkv_biases));
        c->output_bias = c->qkv_biases;
    }
    COH_TRY(read_heads(reader->root, c));
    const coh_rope_source rope = { "rope_theta", json_object_get(reader->root, "rope_scaling"),
                                   json_object_get(reader->root, "rope_parameters"),
                                   .scales = c->type != COH_LLAMA_PHI3 };
    COH_TRY(coh_rope_config_read(reader, &rope, c->positions, &c->rope));
    return read_window(reader, c);
}

/* ---- writing ---- */

static void write_own(const void *config, coh_text *text)
{
    const coh_llama_config *c = config;
    /* Versions before "rope_type" read "type"; all later versions read it, too. */
    coh_rope_config_write(&c->rope, c->rope.scaling == COH_ROPE_LINEAR ? "type" : "rope_type",
                          text);
    if (has_bias_flag(c))
        (void)coh_text_add(text, ", \"attention_bias\": %s", c->qkv_biases ? "true" : "false");
    if (c->type == COH_LLAMA_PLAIN)
        return;
    if (is_qwen(c))
        (void)coh_text_add(text, ", \"use_sliding_window\": %s", c->window ? "true" : "false");
    if (c->window)
        (void)coh_text_add(text, ", \"sliding_window\": %" PRId64, c->window);
    else
        (void)coh_text_add(text, ", \"sliding_window\": null");
}

/* ---- tensors ---- */

enum {
    QKV_BIASES = COH_TENSOR_UNTIED << 1,
    OUTPUT_BIAS = QKV_BIASES << 1,
    MLP_BIAS = OUTPUT_BIAS << 1,
    HEAD_NORMS = MLP_BIAS << 1,
    SEPARATE = HEAD_NORMS << 1, /* q, k, v, gate and up have a linear each */
    PACKED = SEPARATE << 1
};

static const coh_tensor_line begin[] = {
    { "embed_tokens.weight", COH_SIDE_VOCABULARY, COH_SIDE_CHANNELS },
    { NULL },
};

static const coh_tensor_line in_layer[] = {
    { "input_layernorm.weight", COH_SIDE_CHANNELS },
    { "self_attn.qkv_proj.weight", COH_SIDE_QKV, COH_SIDE_CHANNELS, .needs = PACKED },
    { "self_attn.q_proj.weight", COH_SIDE_QUERIES, COH_SIDE_CHANNELS, .needs = SEPARATE },
    { "self_attn.q_proj.bias", COH_SIDE_QUERIES, .needs = QKV_BIASES },
    { "self_attn.k_proj.weight", COH_SIDE_KEYS, COH_SIDE_CHANNELS, .needs = SEPARATE },
    { "self_attn.k_proj.bias", COH_SIDE_KEYS, .needs = QKV_BIASES },
    { "self_attn.v_proj.weight", COH_SIDE_KEYS, COH_SIDE_CHANNELS, .needs = SEPARATE },
    { "self_attn.v_proj.bias", COH_SIDE_KEYS, .needs = QKV_BIASES },
    { "self_attn.q_norm.weight", COH_SIDE_HEAD, .needs = HEAD_NORMS },
    { "self_attn.k_norm.weight", COH_SIDE_HEAD, .needs = HEAD_NORMS },
    { "self_attn.o_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_QUERIES },
    { "self_attn.o_proj.bias", COH_SIDE_CHANNELS, .needs = OUTPUT_BIAS },
    { "post_attention_layernorm.weight", COH_SIDE_CHANNELS },
    { "mlp.gate_up_proj.weight", COH_SIDE_GATED, COH_SIDE_CHANNELS, .needs = PACKED },
    { "mlp.gate_proj.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS, .needs = SEPARATE },
    { "mlp.gate_proj.bias", COH_SIDE_INNER, .needs = MLP_BIAS },
    { "mlp.up_proj.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS, .needs = SEPARATE },
    { "mlp.up_proj.bias", COH_SIDE_INNER, .needs = MLP_BIAS },
    { "mlp.down_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_INNER },
    { "mlp.down_proj.bias", COH_SIDE_CHANNELS, .needs = MLP_BIAS },
    { NULL },
};

static const coh_tensor_line end[] = {
    { "norm.weight", COH_SIDE_CHANNELS },
    { "lm_head.weight", COH_SIDE_VOCABULARY, COH_SIDE_CHANNELS, .bare = 1,
      .needs = COH_TENSOR_UNTIED },
    { NULL },
};

static const char *const buffers[] = { "self_attn.rotary_emb.inv_freq", NULL };

static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    const coh_llama_config *c = config;
    const int64_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_QKV] = queries + 2 * keys,
                  [COH_SIDE_INNER] = c->inner,
                  [COH_SIDE_GATED] = 2 * c->inner,
                  [COH_SIDE_VOCABULARY] = c->vocabulary,
                  [COH_SIDE_QUERIES] = queries,
                  [COH_SIDE_KEYS] = keys,
                  [COH_SIDE_HEAD] = c->head_width },
        .layers = c->layers,
        .has = (c->type == COH_LLAMA_PHI3 ? PACKED : SEPARATE) |
               (c->type == COH_LLAMA_QWEN3 ? HEAD_NORMS : 0) | (c->untied ? COH_TENSOR_UNTIED : 0) |
               (c->qkv_biases ? QKV_BIASES : 0) | (c->output_bias ? OUTPUT_BIAS : 0) |
               (c->mlp_bias ? MLP_BIAS : 0),
    };
}

const coh_family_table coh_family_llama = {
    .name = "llama",
    .config_bytes = sizeof(coh_llama_config),
    .dtype_offset = FIELD(dtype),
    .check = check,
    .positions = positions_of,
    .body = body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .type_of = type_of,
    .fields = fields,
    .read_own = read_own,
    .write_own = write_own,
    .adapter_targets = "q_proj,v_proj",
    .lines = { .prefix = "model.",
               .ours_prefixed = 1,
               .layer = "layers.",
               .begin = begin,
               .in_layer = in_layer,
               .end = end,
               .buffers = buffers },
    .sizes = sizes,
};
