/* Builds the graphs of Gemma 2 and of Gemma 3's text model (Gemma Team 2024, 2025). Names are
 * Hugging Face's, prefixed with "model.". Next: builder.c, family.h; llama.c is the nearest
 * relative.
 *
 *   tokens -> embed_tokens -> times sqrt(channels) -> layers -> norm -> lm_head, capped
 *
 *   input_layernorm -> q k v -> (Gemma 3: norms of each head of q and k) -> rope -> self_attn,
 *   capped -> o_proj -> post_attention_layernorm (+)
 *   -> pre_feedforward_layernorm -> gate up -> gelu(gate) * up -> down_proj
 *   -> post_feedforward_layernorm (+)
 *
 * Every n-th layer is global; the others are local, with a window and, in Gemma 3, their own rope.
 * Norms multiply by 1 + weight. Dropout, in training: on self_attn's weights. */
#include "models/family.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "models/rope.h"

static coh_status check(const void *config)
{
    const coh_gemma_config *c = config;
    const coh_model_size size = coh_family_size(&coh_family_gemma, config);
    const coh_rope_attributes local = { .theta = c->local_theta };
    COH_TRY(coh_family_check_size("a Gemma", &size));
    COH_TRY(coh_family_check_grouped_heads(c->heads, c->kv_heads, c->head_width));
    if (c->channels % c->heads != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "\"hidden_size\" is %" PRId64 ", and must be a multiple of the %" PRId64
                        " heads",
                        c->channels, c->heads);
    if (c->type != COH_GEMMA_2 && c->type != COH_GEMMA_3)
        return coh_fail(COH_ERR_ARGUMENT, "a Gemma of type %d is not known", (int)c->type);
    COH_TRY(coh_rope_config_check(&c->rope, "rope_theta", c->positions));
    COH_TRY(coh_rope_config_check(&local, "rope_local_base_freq", c->positions));
    if (c->type == COH_GEMMA_2 &&
        (c->rope.scaling != COH_ROPE_UNSCALED || c->local_theta != c->rope.theta))
        return coh_fail(COH_ERR_ARGUMENT, "a Gemma 2 has one rope_theta for all layers, unscaled");
    if (c->inner < 1 || c->inner > INT32_MAX || c->window < 1 || c->pattern < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an inner width of %" PRId64 ", a window of %" PRId64
                        " or a global layer in every %" PRId64 " is out of range",
                        c->inner, c->window, c->pattern);
    COH_TRY(coh_family_check_init(c->vocabulary, c->padding, c->init_std));
    if (c->scalar < 1 || !(c->score_cap >= 0) || !isfinite(c->score_cap) || !(c->logit_cap >= 0) ||
        !isfinite(c->logit_cap) || (c->type == COH_GEMMA_3 && c->score_cap > 0))
        return coh_fail(COH_ERR_ARGUMENT,
                        "a query_pre_attn_scalar of %" PRId64 ", or soft caps of %g (scores; only "
                        "Gemma 2) and %g (logits) are out of range",
                        c->scalar, (double)c->score_cap, (double)c->logit_cap);
    return coh_family_check_epsilon("rms_norm_eps", c->rmsnorm_epsilon);
}

/* ---- the graph ---- */

static coh_status add_linear(coh_builder *b, const coh_gemma_config *c, const char *name,
                             int64_t outputs, coh_tensor x, coh_tensor *out_y)
{
    const coh_linear_attributes linear = { .outputs = outputs, .init_std = c->init_std };
    return coh_builder_linear(b, name, linear, x, NULL, out_y);
}

/* `heads` 0: one norm of the whole row. */
static coh_status add_norm(coh_builder *b, const coh_gemma_config *c, const char *name,
                           int64_t heads, coh_tensor x, coh_tensor *out_y)
{
    const coh_rmsnorm_attributes norm = { .epsilon = c->rmsnorm_epsilon,
                                          .heads = (int32_t)heads,
                                          .from_one = 1 };
    return coh_builder_op(b, &coh_kind_rmsnorm, name, &norm, sizeof(norm), &x, out_y);
}

/* y = residual + norm of x: the end of a branch. */
static coh_status end_branch(coh_builder *b, const coh_gemma_config *c, const char *norm_name,
                             const char *name, coh_tensor x, coh_tensor residual, coh_tensor *out_y)
{
    coh_tensor inputs[2] = { x, residual };
    COH_TRY(add_norm(b, c, norm_name, 0, x, &inputs[0]));
    return coh_builder_op(b, &coh_kind_add, name, NULL, 0, inputs, out_y);
}

static int is_local(const coh_builder *b, const coh_gemma_config *c)
{
    return c->pattern == 0 || (b->block + 1) % c->pattern != 0;
}

static coh_rope_attributes rope_of(const coh_builder *b, const coh_gemma_config *c, int64_t heads)
{
    coh_rope_attributes rope = c->rope;
    if (is_local(b, c))
        rope = (coh_rope_attributes){ .theta = c->local_theta };
    rope.heads = heads;
    return rope;
}

/* y = x + norm of attention of x */
static coh_status add_attention(coh_builder *b, const coh_gemma_config *c, coh_tensor x,
                                coh_tensor *out_y)
{
    const int64_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    const coh_attention_scores scores = { .window = is_local(b, c) ? c->window : 0,
                                          .scale = c->scalar == c->head_width
                                                       ? 0.0f /* as attention has it */
                                                       : (float)(1.0 / sqrt((double)c->scalar)),
                                          .cap = c->score_cap };
    coh_tensor normed, qkv[3], y;
    COH_TRY(add_norm(b, c, "input_layernorm", 0, x, &normed));
    COH_TRY(add_linear(b, c, "self_attn.q_proj", queries, normed, &qkv[0]));
    COH_TRY(add_linear(b, c, "self_attn.k_proj", keys, normed, &qkv[1]));
    COH_TRY(add_linear(b, c, "self_attn.v_proj", keys, normed, &qkv[2]));
    if (c->type == COH_GEMMA_3) {
        COH_TRY(add_norm(b, c, "self_attn.q_norm", c->heads, qkv[0], &qkv[0]));
        COH_TRY(add_norm(b, c, "self_attn.k_norm", c->kv_heads, qkv[1], &qkv[1]));
    }
    COH_TRY(coh_builder_rope(b, "self_attn.q_rope", rope_of(b, c, c->heads), qkv[0], &qkv[0]));
    COH_TRY(coh_builder_rope(b, "self_attn.k_rope", rope_of(b, c, c->kv_heads), qkv[1], &qkv[1]));
    COH_TRY(coh_builder_attention(b, "self_attn", c->heads, c->kv_heads, scores, qkv, &y));
    COH_TRY(add_linear(b, c, "self_attn.o_proj", c->channels, y, &y));
    return end_branch(b, c, "post_attention_layernorm", "self_attn.residual", y, x, out_y);
}

/* y = x + norm of the gated MLP of x */
static coh_status add_inner(coh_builder *b, const coh_gemma_config *c, coh_tensor x,
                            coh_tensor *out_y)
{
    coh_tensor normed, gated[2], y;
    COH_TRY(add_norm(b, c, "pre_feedforward_layernorm", 0, x, &normed));
    COH_TRY(add_linear(b, c, "mlp.gate_proj", c->inner, normed, &gated[0]));
    COH_TRY(add_linear(b, c, "mlp.up_proj", c->inner, normed, &gated[1]));
    COH_TRY(coh_builder_op(b, &coh_kind_geglu, "mlp.act_fn", NULL, 0, gated, &y));
    COH_TRY(add_linear(b, c, "mlp.down_proj", c->channels, y, &y));
    return end_branch(b, c, "post_feedforward_layernorm", "mlp.residual", y, x, out_y);
}

/* sqrt(channels) in the model's dtype, as `transformers` rounds it. */
static float embedding_scale(const coh_gemma_config *c)
{
    const float scale = (float)sqrt((double)c->channels);
    return c->dtype == COH_DTYPE_BF16 ? coh_f32_of_bf16(coh_bf16_of_f32(scale)) : scale;
}

static coh_status body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                       coh_tensor *out_last)
{
    const coh_gemma_config *c = config;
    const coh_embedding_attributes table = { .vocabulary = c->vocabulary,
                                             .channels = c->channels,
                                             .init_std = c->init_std,
                                             .dtype = c->dtype };
    const coh_scale_attributes scale = { .factor = embedding_scale(c) };
    coh_tensor row, x;
    COH_TRY(coh_builder_tokens(b, "embed_tokens", &table, c->padding, tokens, &row));
    COH_TRY(coh_builder_op(b, &coh_kind_scale, "embed_scale", &scale, sizeof(scale), &row, &x));
    for (b->block = 0; b->block < c->layers; b->block++) {
        COH_TRY(add_attention(b, c, x, &x));
        COH_TRY(add_inner(b, c, x, &x));
    }
    b->block = -1;
    COH_TRY(add_norm(b, c, "norm", 0, x, &x));
    return coh_builder_head(b, c->vocabulary, c->init_std, c->logit_cap, c->untied, x, targets,
                            out_last);
}

/* ---- config.json ---- */

#define FIELD(member) offsetof(coh_gemma_config, member)

/* Defaults of the `transformers` classes, of version 5, for members that config.json omits. */
#define COMMON_DEFAULTS                                                                            \
    .layers = 26, .heads = 8, .channels = 2304, .kv_heads = 4, .head_width = 256, .inner = 9216,   \
    .window = 4096, .scalar = 256, .local_theta = 1e4, .rmsnorm_epsilon = 1e-6f, .init_std = 0.02f
static const coh_gemma_config gemma2_defaults = { COMMON_DEFAULTS,      .positions = 8192,
                                                  .vocabulary = 256000, .pattern = 2,
                                                  .rope.theta = 1e4,    .score_cap = 50,
                                                  .logit_cap = 30,      .type = COH_GEMMA_2 };
static const coh_gemma_config gemma3_defaults = { COMMON_DEFAULTS,      .positions = 131072,
                                                  .vocabulary = 262208, .pattern = 6,
                                                  .rope.theta = 1e6,    .type = COH_GEMMA_3 };

/* By coh_gemma_type. */
static const coh_config_type types[] = {
    [COH_GEMMA_2] = { "gemma2", "Gemma2ForCausalLM Gemma2Model", &gemma2_defaults },
    [COH_GEMMA_3] = { "gemma3_text", "Gemma3ForCausalLM Gemma3TextModel", &gemma3_defaults },
};

static int type_of(const void *config)
{
    return ((const coh_gemma_config *)config)->type;
}

enum { TWO = 1 << COH_GEMMA_2, THREE = 1 << COH_GEMMA_3 };

static const coh_config_field fields[] = {
    { "num_hidden_layers", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST },
    { "num_attention_heads", COH_FIELD_COUNT, FIELD(heads) },
    { "num_key_value_heads", COH_FIELD_COUNT, FIELD(kv_heads) },
    { "hidden_size", COH_FIELD_COUNT, FIELD(channels) },
    { "head_dim", COH_FIELD_COUNT, FIELD(head_width) },
    { "intermediate_size", COH_FIELD_COUNT, FIELD(inner) },
    { "max_position_embeddings", COH_FIELD_COUNT, FIELD(positions) },
    { "vocab_size", COH_FIELD_COUNT, FIELD(vocabulary) },
    { "pad_token_id", COH_FIELD_ID, FIELD(padding) },
    { "sliding_window", COH_FIELD_COUNT, FIELD(window) },
    { "query_pre_attn_scalar", COH_FIELD_COUNT, FIELD(scalar) },
    { "rms_norm_eps", COH_FIELD_POSITIVE, FIELD(rmsnorm_epsilon) },
    { "initializer_range", COH_FIELD_POSITIVE, FIELD(init_std) },
    { "final_logit_softcapping", COH_FIELD_POSITIVE_MAYBE, FIELD(logit_cap) },
    { "attn_logit_softcapping", COH_FIELD_POSITIVE_MAYBE, FIELD(score_cap), .types = TWO },
    { "attn_logit_softcapping", COH_FIELD_NONE, .types = THREE },
    { "tie_word_embeddings", COH_FIELD_NOT, FIELD(untied) },
    { "hidden_activation", COH_FIELD_WORD, .words = "gelu_pytorch_tanh" },
    { "attention_bias", COH_FIELD_ONLY, .words = "false" },
    { "use_bidirectional_attention", COH_FIELD_NONE },
    { "layer_types", COH_FIELD_OWN },
    { "sliding_window_pattern", COH_FIELD_OWN, .types = THREE },
    { "_sliding_window_pattern", COH_FIELD_DROPPED, .types = THREE },
    { "rope_theta", COH_FIELD_OWN },
    { "rope_local_base_freq", COH_FIELD_OWN, .types = THREE },
    { "rope_scaling", COH_FIELD_OWN },
    { "rope_parameters", COH_FIELD_OWN },
    { "original_max_position_embeddings", COH_FIELD_OWN },
    { "partial_rotary_factor", COH_FIELD_OWN },
    { "attention_dropout", COH_FIELD_DROPOUT },
    { "hidden_act", COH_FIELD_KEPT },          /* `transformers` reads hidden_activation */
    { "sliding_window_size", COH_FIELD_KEPT }, /* in published files, next to sliding_window */
    { "cache_implementation", COH_FIELD_KEPT },
    { NULL },
};

/* ---- rotary embeddings ---- */

/* Up to version 4: rope_theta, rope_local_base_freq and rope_scaling; since 5: rope_parameters, in
 * Gemma 3 an object for each type of layer. */
static coh_status read_rope(coh_config_reader *reader, coh_gemma_config *c)
{
    const json_t *root = reader->root, *parameters = json_object_get(root, "rope_parameters"),
                 *full = json_object_get(parameters, "full_attention"),
                 *sliding = json_object_get(parameters, "sliding_attention");
    const int by_layer = c->type == COH_GEMMA_3;
    const coh_rope_source source = { "rope_theta", json_object_get(root, "rope_scaling"),
                                     by_layer ? full : parameters, .scales = by_layer };
    const coh_rope_source local_source = { "rope_local_base_freq", .parameters = sliding };
    coh_rope_attributes local = { .theta = c->local_theta };
    if (by_layer && parameters && !json_is_null(parameters) &&
        (!json_is_object(parameters) ||
         json_object_size(parameters) != (size_t)(full != NULL) + (size_t)(sliding != NULL)))
        return coh_config_refuse("rope_parameters", parameters,
                                 "an object for full_attention and one for sliding_attention");
    COH_TRY(coh_rope_config_read(reader, &source, c->positions, &c->rope));
    if (by_layer)
        COH_TRY(coh_rope_config_read(reader, &local_source, c->positions, &local));
    c->local_theta = by_layer ? local.theta : c->rope.theta;
    return COH_OK;
}

/* ---- layers ---- */

/* Finds n of a list in which every n-th layer is global. */
static coh_status read_layer_types(const json_t *list, coh_gemma_config *c)
{
    if (!list || json_is_null(list))
        return COH_OK;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return coh_config_refuse("layer_types", list, "null or a list of one word for each layer");
    c->pattern = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        const char *word = json_string_value(value);
        const int is_global = word && strcmp(word, "full_attention") == 0;
        if (!is_global && !(word && strcmp(word, "sliding_attention") == 0))
            return coh_config_refuse("layer_types", value, "full_attention or sliding_attention");
        if (is_global && c->pattern == 0)
            c->pattern = i + 1;
        if (is_global != (c->pattern > 0 && (i + 1) % c->pattern == 0))
            return coh_fail(COH_ERR_CORRUPT,
                            "config.json: \"layer_types\" has %s as layer %" PRId64
                            ", and what is computed has full_attention in every n-th layer",
                            word, i);
    }
    return COH_OK;
}

static coh_status read_own(coh_config_reader *reader, void *config)
{
    coh_gemma_config *c = config;
    const json_t *pattern = json_object_get(reader->root, "sliding_window_pattern");
    if (pattern && c->type == COH_GEMMA_3)
        COH_TRY(coh_config_count("sliding_window_pattern", pattern, COH_LAYERS_MOST, &c->pattern));
    COH_TRY(read_layer_types(json_object_get(reader->root, "layer_types"), c));
    return read_rope(reader, c);
}

/* Every version reads these members. layer_types is written if the class has another default. */
static void write_own(const void *config, coh_text *text)
{
    const coh_gemma_config *c = config;
    coh_rope_config_write(&c->rope, "rope_type", text);
    if (c->type == COH_GEMMA_3) {
        (void)coh_text_add(text, ", \"rope_local_base_freq\": ");
        (void)coh_config_text_add_double(text, c->local_theta);
    }
    if (c->pattern == (c->type == COH_GEMMA_3 ? 6 : 2))
        return;
    if (c->type == COH_GEMMA_3 && c->pattern > 0)
        (void)coh_text_add(text, ", \"sliding_window_pattern\": %" PRId64, c->pattern);
    (void)coh_text_add(text, ", \"layer_types\": [");
    for (int64_t i = 0; i < c->layers; i++)
        (void)coh_text_add(text, "%s\"%s_attention\"", i ? ", " : "",
                           c->pattern > 0 && (i + 1) % c->pattern == 0 ? "full" : "sliding");
    (void)coh_text_add(text, "]");
}

/* ---- tensors ---- */

enum { HEAD_NORMS = COH_TENSOR_UNTIED << 1 };

static const coh_tensor_line begin[] = {
    { "embed_tokens.weight", COH_SIDE_VOCABULARY, COH_SIDE_CHANNELS },
    { NULL },
};

static const coh_tensor_line in_layer[] = {
    { "input_layernorm.weight", COH_SIDE_CHANNELS },
    { "self_attn.q_proj.weight", COH_SIDE_QUERIES, COH_SIDE_CHANNELS },
    { "self_attn.k_proj.weight", COH_SIDE_KEYS, COH_SIDE_CHANNELS },
    { "self_attn.v_proj.weight", COH_SIDE_KEYS, COH_SIDE_CHANNELS },
    { "self_attn.q_norm.weight", COH_SIDE_HEAD, .needs = HEAD_NORMS },
    { "self_attn.k_norm.weight", COH_SIDE_HEAD, .needs = HEAD_NORMS },
    { "self_attn.o_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_QUERIES },
    { "post_attention_layernorm.weight", COH_SIDE_CHANNELS },
    { "pre_feedforward_layernorm.weight", COH_SIDE_CHANNELS },
    { "mlp.gate_proj.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS },
    { "mlp.up_proj.weight", COH_SIDE_INNER, COH_SIDE_CHANNELS },
    { "mlp.down_proj.weight", COH_SIDE_CHANNELS, COH_SIDE_INNER },
    { "post_feedforward_layernorm.weight", COH_SIDE_CHANNELS },
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
    const coh_gemma_config *c = config;
    *out_sizes = (coh_tensor_sizes){
        .side = { [COH_SIDE_CHANNELS] = c->channels,
                  [COH_SIDE_INNER] = c->inner,
                  [COH_SIDE_VOCABULARY] = c->vocabulary,
                  [COH_SIDE_QUERIES] = c->heads * c->head_width,
                  [COH_SIDE_KEYS] = c->kv_heads * c->head_width,
                  [COH_SIDE_HEAD] = c->head_width },
        .layers = c->layers,
        .has = (c->untied ? COH_TENSOR_UNTIED : 0) | (c->type == COH_GEMMA_3 ? HEAD_NORMS : 0),
    };
}

const coh_family_table coh_family_gemma = {
    .name = "gemma",
    .config_bytes = sizeof(coh_gemma_config),
    .dtype_offset = FIELD(dtype),
    .check = check,
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
