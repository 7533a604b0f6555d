/* Builds decoder graphs: inputs, shared operators, loss or logits. The one idea: a family's body is
 * called between a common beginning and end, and all linears pass through one function, which adds
 * their adapters. Next: gpt2.c, opt.c, llama.c and
 * gemma.c are the bodies. */
#include "models/builder.h"

#include <inttypes.h>
#include <stdio.h>

#include "models/adapters.h"
#include "models/family.h"

#define NAME_BYTES         96 /* the longest operator name */
#define WITHIN_LAYER_BYTES 48

const coh_builder_activation coh_builder_gelu = { &coh_kind_linear_gelu, &coh_kind_gelu };
const coh_builder_activation coh_builder_relu = { &coh_kind_linear_relu, &coh_kind_relu };

/* A mask of all parameters of an operator if it is frozen, else 0. */
static uint32_t frozen_parameters(const coh_builder *b, const char *name)
{
    return coh_adapters_freeze(b->adapters, name) ? UINT32_MAX : 0;
}

/* Writes the whole name of an operator. */
static void name_of(const coh_builder *b, const char *what, char name[NAME_BYTES])
{
    const coh_tensor_lines *lines = &b->family->lines;
    const char *prefix = lines->ours_prefixed ? lines->prefix : "";
    if (b->block < 0)
        snprintf(name, NAME_BYTES, "%s%s", prefix, what);
    else
        snprintf(name, NAME_BYTES, "%s%s%" PRId32 ".%s", prefix, lines->layer, b->block, what);
}

/* add_op, add_adapter and add_linear take whole names. */
static coh_status add_op(coh_builder *b, const coh_op_kind *kind, const char *name,
                         const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                         coh_tensor *out_y, coh_parameter *out_parameters)
{
    coh_op_args args = { .name = name,
                         .attributes = attributes,
                         .attribute_bytes = attribute_bytes,
                         .inputs = inputs,
                         .frozen_parameters = frozen_parameters(b, name),
                         .block = b->block };
    return coh_graph_op(b->graph, kind, &args, out_y, out_parameters);
}

/* Drops elements of *x, the input of the adapter of the operator of that name. Each adapter has a
 * dropout of its own, also where several linears read the same x. */
static coh_status drop_input(coh_builder *b, const char *name, coh_tensor *x)
{
    const coh_dropout_attributes dropout = { .probability = b->lora_dropout };
    char part[NAME_BYTES + sizeof(".lora_dropout")];
    if (b->lora_dropout == 0)
        return COH_OK;
    snprintf(part, sizeof(part), "%s.lora_dropout", name);
    return add_op(b, &coh_kind_dropout, part, &dropout, sizeof(dropout), x, x, NULL);
}

/* Adds (alpha / rank) (x Aᵀ) Bᵀ to y if the operator of that name has an adapter. The narrowest of
 * the three tensors is scaled. */
static coh_status add_adapter(coh_builder *b, const char *name, int64_t outputs, coh_tensor x,
                              coh_tensor *y)
{
    if (!coh_adapters_target(b->adapters, name))
        return COH_OK;
    const int32_t rank = b->adapters->rank;
    const coh_linear_attributes down = { .outputs = rank }, up = { .outputs = outputs };
    const coh_scale_attributes scale = { .factor = b->adapters->alpha / (float)rank };
    char part[NAME_BYTES + sizeof(".lora_scale")];
    coh_tensor inputs[2];
    COH_TRY(drop_input(b, name, &x));
    snprintf(part, sizeof(part), "%s." COH_ADAPTER_A, name);
    COH_TRY(add_op(b, &coh_kind_linear_uniform, part, &down, sizeof(down), &x, &inputs[0], NULL));
    snprintf(part, sizeof(part), "%s.lora_scale", name);
    COH_TRY(add_op(b, &coh_kind_scale, part, &scale, sizeof(scale), inputs, &inputs[0], NULL));
    inputs[1] = *y;
    snprintf(part, sizeof(part), "%s." COH_ADAPTER_B, name);
    return add_op(b, &coh_kind_linear_residual, part, &up, sizeof(up), inputs, y, NULL);
}

/* Chooses how the weight of a linear of x is stored. */
static coh_status choose_stored(const coh_builder *b, const char *name, coh_tensor x,
                                coh_linear_attributes *linear)
{
    coh_shape shape;
    if (!b->frozen_nf4 || !coh_adapters_freeze(b->adapters, name))
        return COH_OK;
    COH_TRY(coh_graph_tensor_shape(b->graph, x, &shape));
    if (shape.dim[shape.rank - 1] % COH_NF4_ROW_UNIT == 0)
        linear->stored = COH_DTYPE_NF4;
    return COH_OK;
}

static coh_status add_linear(coh_builder *b, const char *name, coh_linear_attributes linear,
                             coh_tensor x, const coh_tensor *residual, coh_tensor *out_y)
{
    const coh_tensor inputs[2] = { x, residual ? *residual : x };
    COH_TRY(choose_stored(b, name, x, &linear));
    COH_TRY(add_op(b, residual ? &coh_kind_linear_residual : &coh_kind_linear, name, &linear,
                   sizeof(linear), inputs, out_y, NULL));
    return add_adapter(b, name, linear.outputs, x, out_y);
}

/* ---- operators of the families ---- */

coh_status coh_builder_op(coh_builder *b, const coh_op_kind *kind, const char *name,
                          const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                          coh_tensor *out_y)
{
    char whole[NAME_BYTES];
    name_of(b, name, whole);
    return add_op(b, kind, whole, attributes, attribute_bytes, inputs, out_y, NULL);
}

coh_status coh_builder_linear(coh_builder *b, const char *name, coh_linear_attributes linear,
                              coh_tensor x, const coh_tensor *residual, coh_tensor *out_y)
{
    char whole[NAME_BYTES];
    name_of(b, name, whole);
    return add_linear(b, whole, linear, x, residual, out_y);
}

coh_status coh_builder_branch(coh_builder *b, const char *name, coh_linear_attributes linear,
                              coh_tensor x, coh_tensor residual, coh_tensor *out_y)
{
    const coh_dropout_attributes dropout = { .probability = b->dropout };
    char behind[WITHIN_LAYER_BYTES];
    coh_tensor inputs[2] = { x, residual };
    if (b->dropout == 0)
        return coh_builder_linear(b, name, linear, x, &residual, out_y);
    snprintf(behind, sizeof(behind), "%s.dropout", name);
    COH_TRY(coh_builder_linear(b, name, linear, x, NULL, &inputs[0]));
    return coh_builder_op(b, &coh_kind_dropout_residual, behind, &dropout, sizeof(dropout), inputs,
                          out_y);
}

coh_status coh_builder_dropout(coh_builder *b, const char *name, coh_tensor x, coh_tensor *out_y)
{
    const coh_dropout_attributes dropout = { .probability = b->dropout };
    *out_y = x;
    if (b->dropout == 0)
        return COH_OK;
    return coh_builder_op(b, &coh_kind_dropout, name, &dropout, sizeof(dropout), &x, out_y);
}

coh_status coh_builder_linear_activated(coh_builder *b, const char *name,
                                        coh_linear_attributes linear,
                                        const coh_builder_activation *activation, coh_tensor x,
                                        coh_tensor *out_y)
{
    char whole[NAME_BYTES], behind[WITHIN_LAYER_BYTES];
    coh_tensor sum;
    name_of(b, name, whole);
    COH_TRY(choose_stored(b, whole, x, &linear));
    if (!coh_adapters_target(b->adapters, whole))
        return add_op(b, activation->fused, whole, &linear, sizeof(linear), &x, out_y, NULL);
    snprintf(behind, sizeof(behind), "%s.activation", name);
    COH_TRY(add_linear(b, whole, linear, x, NULL, &sum));
    return coh_builder_op(b, activation->alone, behind, NULL, 0, &sum, out_y);
}

coh_status coh_builder_tokens(coh_builder *b, const char *name,
                              const coh_embedding_attributes *embedding, int64_t padding,
                              coh_tensor tokens, coh_tensor *out_x)
{
    const coh_embedding_padded_attributes padded = { .embedding = *embedding, .padding = padding };
    char whole[NAME_BYTES];
    name_of(b, name, whole);
    return padding < 0 ? add_op(b, &coh_kind_embedding, whole, embedding, sizeof(*embedding),
                                &tokens, out_x, &b->table)
                       : add_op(b, &coh_kind_embedding_padded, whole, &padded, sizeof(padded),
                                &tokens, out_x, &b->table);
}

coh_status coh_builder_positions(coh_builder *b, const char *name,
                                 const coh_position_attributes *positions, coh_tensor x,
                                 coh_tensor *out_y)
{
    const coh_op_kind *kind = b->decode               ? &coh_kind_position_at
                              : b->separate_documents ? &coh_kind_position_documents
                                                      : &coh_kind_position;
    coh_tensor inputs[2] = { x, b->position };
    return coh_builder_op(b, kind, name, positions, sizeof(*positions), inputs, out_y);
}

coh_status coh_builder_rope(coh_builder *b, const char *name, coh_rope_attributes rope,
                            coh_tensor x, coh_tensor *out_y)
{
    const coh_tensor inputs[2] = { x, b->position };
    return coh_builder_op(b, b->decode ? &coh_kind_rope_at : &coh_kind_rope, name, &rope,
                          sizeof(rope), inputs, out_y);
}

coh_status coh_builder_attention(coh_builder *b, const char *name, int64_t heads, int64_t kv_heads,
                                 coh_attention_scores scores, const coh_tensor qkv[3],
                                 coh_tensor *out_y)
{
    coh_tensor inputs[4] = { qkv[0], qkv[1], qkv[2], b->position };
    if (scores.window >= b->tokens)
        scores.window = 0; /* no limit */
    if (b->decode) {
        coh_attention_grouped_decode_attributes attributes = { heads, kv_heads, b->tokens, scores };
        return coh_builder_op(b, &coh_kind_attention_grouped_decode, name, &attributes,
                              sizeof(attributes), inputs, out_y);
    }
    if (b->dropout > 0) {
        coh_attention_grouped_dropout_attributes dropped = { heads, kv_heads, b->dropout, scores };
        return coh_builder_op(b,
                              b->separate_documents ? &coh_kind_attention_grouped_documents_dropout
                                                    : &coh_kind_attention_grouped_dropout,
                              name, &dropped, sizeof(dropped), inputs, out_y);
    }
    coh_attention_grouped_attributes attributes = { heads, kv_heads, scores };
    return coh_builder_op(b,
                          b->separate_documents ? &coh_kind_attention_grouped_documents
                          : b->atomics          ? &coh_kind_attention_grouped_atomic
                                                : &coh_kind_attention_grouped,
                          name, &attributes, sizeof(attributes), inputs, out_y);
}

/* Keeps the last row of x. */
static coh_status keep_last(coh_builder *b, coh_tensor *x)
{
    const coh_slice_attributes last = { .begin = b->rows - 1, .end = b->rows, .axis = 1 };
    if (b->rows == 0)
        return COH_OK;
    return coh_builder_op(b, &coh_kind_slice, "last", &last, sizeof(last), x, x);
}

coh_status coh_builder_head(coh_builder *b, int64_t vocabulary, float init_std, float cap,
                            int untied, coh_tensor x, coh_tensor targets, coh_tensor *out_last)
{
    coh_classifier_attributes classifier = { .vocabulary = vocabulary,
                                             .init_std = init_std,
                                             .cap = cap };
    COH_TRY(keep_last(b, &x));
    coh_tensor inputs[2] = { x, targets };
    coh_op_args head = { .name = "lm_head",
                         .attributes = &classifier,
                         .attribute_bytes = sizeof(classifier),
                         .inputs = inputs,
                         .tied = untied ? NULL : &b->table,
                         .frozen_parameters = untied ? frozen_parameters(b, "lm_head") : 0,
                         .block = b->block };
    coh_parameter weight;
    COH_TRY(coh_graph_op(b->graph, b->decode ? &coh_kind_logits : &coh_kind_classifier, &head,
                         out_last, &weight));
    if (!b->with_logits && !b->with_losses)
        return COH_OK;
    head.name = "lm_head.logits";
    head.tied = untied ? &weight : &b->table;
    COH_TRY(coh_graph_op(b->graph, &coh_kind_logits, &head, &b->logits, NULL));
    const coh_op_args losses = { .name = "lm_head.losses",
                                 .inputs = (coh_tensor[]){ b->logits, targets },
                                 .block = b->block };
    return b->with_losses
               ? coh_graph_op(b->graph, &coh_kind_token_losses, &losses, &b->losses, NULL)
               : COH_OK;
}

/* ---- whole graphs ---- */

static coh_status check_model(const coh_model *model, int64_t tokens)
{
    const coh_family_table *family = coh_family_of(model);
    if (!family)
        return coh_fail(COH_ERR_ARGUMENT, "a model of family %d is not known", (int)model->family);
    COH_TRY(family->check(coh_family_config(model)));
    if (!(model->dropout >= 0 && model->dropout < 1))
        return coh_fail(COH_ERR_ARGUMENT, "a dropout of %g: from 0 to below 1 is possible",
                        model->dropout);
    if (!(model->lora_dropout >= 0 && model->lora_dropout < 1))
        return coh_fail(COH_ERR_ARGUMENT, "a lora_dropout of %g: from 0 to below 1 is possible",
                        model->lora_dropout);
    if (model->lora_dropout > 0 && model->adapters.rank == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a lora_dropout of %g, and the model has no adapters: set them, or set 0",
                        model->lora_dropout);
    COH_TRY(coh_adapters_check(model));
    const int64_t positions = coh_model_size_get(model).positions;
    if (tokens < 1 || tokens > positions)
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " tokens do not fit the model's %" PRId64
                        " positions: choose 1..%" PRId64,
                        tokens, positions, positions);
    return COH_OK;
}

/* Builds tokens, targets and maybe positions -> body -> loss, and what else b asks for. */
static coh_status add_training(coh_builder *b, const void *config, int64_t sequences)
{
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { sequences, b->tokens } };
    coh_tensor ids, targets, loss;
    COH_TRY(coh_graph_input(b->graph, "tokens", &shape, &ids));
    COH_TRY(coh_graph_input(b->graph, "targets", &shape, &targets));
    if (b->separate_documents)
        COH_TRY(coh_graph_input(b->graph, "positions", &shape, &b->position));
    COH_TRY(b->family->body(b, config, ids, targets, &loss));
    if (b->with_logits)
        COH_TRY(coh_graph_output(b->graph, b->logits));
    if (b->with_losses)
        COH_TRY(coh_graph_output(b->graph, b->losses));
    return coh_graph_loss(b->graph, loss);
}

/* Builds token and position -> body -> logits. */
static coh_status add_decoding(coh_builder *b, const void *config)
{
    const coh_shape token_shape = { .dtype = COH_DTYPE_I32,
                                    .rank = 2,
                                    .dim = { 1, b->rows ? b->rows : 1 } };
    const coh_shape position_shape = { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { 1 } };
    coh_tensor id;
    COH_TRY(coh_graph_input(b->graph, "token", &token_shape, &id));
    COH_TRY(coh_graph_input(b->graph, "position", &position_shape, &b->position));
    COH_TRY(b->family->body(b, config, id, id, &b->logits));
    return coh_graph_output(b->graph, b->logits);
}

/* Hands the graph to the caller, or frees it after a failure. */
static coh_status build(coh_builder *b, const coh_model *model, int64_t sequences,
                        coh_graph **out_graph)
{
    const void *config = coh_family_config(model);
    *out_graph = NULL;
    COH_TRY(check_model(model, b->tokens));
    if (!b->decode && sequences < 1)
        return coh_fail(COH_ERR_SHAPE, "a micro-batch of %" PRId64 " sequences: at least 1",
                        sequences);
    b->family = coh_family_of(model);
    b->adapters = &model->adapters;
    b->block = -1;
    if (!b->decode) {
        b->dropout = model->dropout;
        b->lora_dropout = model->lora_dropout;
        b->atomics = model->atomics;
        b->frozen_nf4 = model->frozen_nf4;
        b->separate_documents = model->separate_documents;
    }
    COH_TRY(coh_graph_create(&b->graph));
    const coh_status status =
        b->decode ? add_decoding(b, config) : add_training(b, config, sequences);
    if (status != COH_OK)
        coh_graph_destroy(b->graph);
    else
        *out_graph = b->graph;
    return status;
}

coh_status coh_model_train_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                 coh_graph **out_graph)
{
    if (!model || !out_graph)
        return coh_fail(COH_ERR_ARGUMENT, "a graph needs a model and a place for itself");
    coh_builder b = { .tokens = tokens };
    return build(&b, model, sequences, out_graph);
}

coh_status coh_model_logits_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                  coh_graph **out_graph, coh_tensor *out_logits)
{
    if (!model || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a graph with logits needs a model and places for itself and its logits");
    coh_builder b = { .tokens = tokens, .with_logits = 1 };
    COH_TRY(build(&b, model, sequences, out_graph));
    *out_logits = b.logits;
    return COH_OK;
}

coh_status coh_model_token_losses_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                        coh_graph **out_graph, coh_tensor *out_losses)
{
    if (!model || !out_graph || !out_losses)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a graph with losses needs a model and places for itself and its losses");
    coh_builder b = { .tokens = tokens, .with_losses = 1 };
    COH_TRY(build(&b, model, sequences, out_graph));
    *out_losses = b.losses;
    return COH_OK;
}

coh_status coh_model_decode_graph(const coh_model *model, int64_t tokens, coh_graph **out_graph,
                                  coh_tensor *out_logits)
{
    if (!model || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a decoder needs a model and places for itself and its logits");
    coh_builder b = { .tokens = tokens, .decode = 1 };
    COH_TRY(build(&b, model, 1, out_graph));
    *out_logits = b.logits;
    return COH_OK;
}

coh_status coh_model_prefill_graph(const coh_model *model, int64_t tokens, int64_t rows,
                                   coh_graph **out_graph, coh_tensor *out_logits)
{
    if (!model || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a decoder needs a model and places for itself and its logits");
    *out_graph = NULL;
    const int64_t positions = coh_model_size_get(model).positions;
    if (coh_family_of(model) && (rows < 1 || rows > positions))
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " tokens a step do not fit the model's %" PRId64
                        " positions: choose 1..%" PRId64,
                        rows, positions, positions);
    coh_builder b = { .tokens = tokens, .decode = 1, .rows = rows };
    COH_TRY(build(&b, model, 1, out_graph));
    *out_logits = b.logits;
    return COH_OK;
}
