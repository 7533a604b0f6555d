/* Builds decoder graphs: inputs, shared operators, loss or logits. The one idea: a family's body is
 * called between a common beginning and end, and all linears pass through one function, which adds
 * their adapters. Next: gpt2.c, opt.c and llama.c are the bodies. */
#include "models/builder.h"

#include <inttypes.h>
#include <stdio.h>

#include "models/adapters.h"
#include "models/family.h"

const coh_builder_activation coh_builder_gelu = { &coh_kind_linear_gelu, &coh_kind_gelu };
const coh_builder_activation coh_builder_relu = { &coh_kind_linear_relu, &coh_kind_relu };

/* A mask of all parameters of an operator if it is frozen, else 0. */
static uint32_t frozen_parameters(const coh_builder *b, const char *name)
{
    return coh_adapters_freeze(b->adapters, name) ? UINT32_MAX : 0;
}

coh_status coh_builder_op(coh_builder *b, const coh_op_kind *kind, const char *name,
                          const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                          coh_tensor *out_y)
{
    coh_op_args args = { .name = name,
                         .attributes = attributes,
                         .attribute_bytes = attribute_bytes,
                         .inputs = inputs,
                         .frozen_parameters = frozen_parameters(b, name),
                         .block = b->block };
    return coh_graph_op(b->graph, kind, &args, out_y, NULL);
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
    char part[COH_BUILDER_NAME_BYTES];
    coh_tensor inputs[2];
    snprintf(part, sizeof(part), "%s." COH_ADAPTER_A, name);
    COH_TRY(coh_builder_op(b, &coh_kind_linear_uniform, part, &down, sizeof(down), &x, &inputs[0]));
    snprintf(part, sizeof(part), "%s.lora_scale", name);
    COH_TRY(coh_builder_op(b, &coh_kind_scale, part, &scale, sizeof(scale), inputs, &inputs[0]));
    inputs[1] = *y;
    snprintf(part, sizeof(part), "%s." COH_ADAPTER_B, name);
    return coh_builder_op(b, &coh_kind_linear_residual, part, &up, sizeof(up), inputs, y);
}

coh_status coh_builder_linear(coh_builder *b, const char *name, const coh_linear_attributes *linear,
                              coh_tensor x, const coh_tensor *residual, coh_tensor *out_y)
{
    const coh_tensor inputs[2] = { x, residual ? *residual : x };
    COH_TRY(coh_builder_op(b, residual ? &coh_kind_linear_residual : &coh_kind_linear, name, linear,
                           sizeof(*linear), inputs, out_y));
    return add_adapter(b, name, linear->outputs, x, out_y);
}

coh_status coh_builder_branch(coh_builder *b, const char *name, const coh_linear_attributes *linear,
                              coh_tensor x, coh_tensor residual, coh_tensor *out_y)
{
    const coh_dropout_attributes dropout = { .probability = b->dropout };
    char behind[COH_BUILDER_NAME_BYTES];
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
                                        const coh_linear_attributes *linear,
                                        const coh_builder_activation *activation, coh_tensor x,
                                        coh_tensor *out_y)
{
    char behind[COH_BUILDER_NAME_BYTES];
    coh_tensor sum;
    if (!coh_adapters_target(b->adapters, name))
        return coh_builder_op(b, activation->fused, name, linear, sizeof(*linear), &x, out_y);
    snprintf(behind, sizeof(behind), "%s.activation", name);
    COH_TRY(coh_builder_linear(b, name, linear, x, NULL, &sum));
    return coh_builder_op(b, activation->alone, behind, NULL, 0, &sum, out_y);
}

coh_status coh_builder_tokens(coh_builder *b, const char *name,
                              const coh_embedding_attributes *embedding, int64_t padding,
                              coh_tensor tokens, coh_tensor *out_x)
{
    coh_op_args args = { .name = name,
                         .attributes = embedding,
                         .attribute_bytes = sizeof(*embedding),
                         .inputs = &tokens,
                         .frozen_parameters = frozen_parameters(b, name),
                         .block = b->block };
    if (padding < 0)
        return coh_graph_op(b->graph, &coh_kind_embedding, &args, out_x, &b->table);
    coh_embedding_padded_attributes padded = { .embedding = *embedding, .padding = padding };
    args.attributes = &padded;
    args.attribute_bytes = sizeof(padded);
    return coh_graph_op(b->graph, &coh_kind_embedding_padded, &args, out_x, &b->table);
}

coh_status coh_builder_positions(coh_builder *b, const char *name,
                                 const coh_position_attributes *positions, coh_tensor x,
                                 coh_tensor *out_y)
{
    coh_tensor inputs[2] = { x, b->position };
    return coh_builder_op(b, b->decode ? &coh_kind_position_at : &coh_kind_position, name,
                          positions, sizeof(*positions), inputs, out_y);
}

coh_status coh_builder_attention(coh_builder *b, const char *name, int64_t heads, int64_t kv_heads,
                                 const coh_tensor qkv[3], coh_tensor *out_y)
{
    coh_tensor inputs[4] = { qkv[0], qkv[1], qkv[2], b->position };
    if (b->decode) {
        coh_attention_grouped_decode_attributes attributes = { .heads = heads,
                                                               .kv_heads = kv_heads,
                                                               .positions = b->tokens };
        return coh_builder_op(b, &coh_kind_attention_grouped_decode, name, &attributes,
                              sizeof(attributes), inputs, out_y);
    }
    coh_attention_grouped_attributes attributes = { .heads = heads, .kv_heads = kv_heads };
    if (b->dropout > 0) {
        coh_attention_grouped_dropout_attributes dropped = { attributes, b->dropout };
        return coh_builder_op(b, &coh_kind_attention_grouped_dropout, name, &dropped,
                              sizeof(dropped), inputs, out_y);
    }
    return coh_builder_op(
        b, b->atomics ? &coh_kind_attention_grouped_atomic : &coh_kind_attention_grouped, name,
        &attributes, sizeof(attributes), inputs, out_y);
}

coh_status coh_builder_head(coh_builder *b, int64_t vocabulary, float init_std, int untied,
                            coh_tensor x, coh_tensor targets, coh_tensor *out_last)
{
    coh_classifier_attributes classifier = { .vocabulary = vocabulary, .init_std = init_std };
    coh_tensor inputs[2] = { x, targets };
    coh_op_args head = { .name = "lm_head",
                         .attributes = &classifier,
                         .attribute_bytes = sizeof(classifier),
                         .inputs = inputs,
                         .tied = untied ? NULL : &b->table,
                         .frozen_parameters = frozen_parameters(b, "lm_head"),
                         .block = b->block };
    coh_parameter weight;
    COH_TRY(coh_graph_op(b->graph, b->decode ? &coh_kind_logits : &coh_kind_classifier, &head,
                         out_last, &weight));
    if (!b->with_logits)
        return COH_OK;
    head.name = "lm_head.logits";
    head.tied = untied ? &weight : &b->table;
    return coh_graph_op(b->graph, &coh_kind_logits, &head, &b->logits, NULL);
}

/* ---- whole graphs ---- */

/* Hands the graph to the caller, or frees it after a failure. */
static coh_status finish(coh_builder *b, coh_status status, coh_graph **out_graph)
{
    if (status != COH_OK)
        coh_graph_destroy(b->graph);
    else
        *out_graph = b->graph;
    return status;
}

static coh_status build_train(coh_builder_body body, const coh_model *model, int64_t sequences,
                              int64_t tokens, coh_graph **out_graph, coh_tensor *out_logits)
{
    *out_graph = NULL;
    if (sequences < 1)
        return coh_fail(COH_ERR_SHAPE, "a micro-batch of %" PRId64 " sequences: at least 1",
                        sequences);
    coh_builder b = {
        .tokens = tokens,
        .block = -1,
        .adapters = &model->adapters,
        .dropout = model->dropout,
        .atomics = model->atomics,
        .with_logits = out_logits != NULL,
    };
    coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { sequences, tokens } };
    coh_tensor ids, targets, loss;
    coh_status status;
    COH_TRY_GOTO(status, coh_graph_create(&b.graph), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "tokens", &shape, &ids), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "targets", &shape, &targets), done);
    COH_TRY_GOTO(status, body(&b, coh_family_config(model), ids, targets, &loss), done);
    if (out_logits != NULL) {
        COH_TRY_GOTO(status, coh_graph_output(b.graph, b.logits), done);
        *out_logits = b.logits;
    }
    COH_TRY_GOTO(status, coh_graph_loss(b.graph, loss), done);
done:
    return finish(&b, status, out_graph);
}

coh_status coh_builder_train(coh_builder_body body, const coh_model *model, int64_t sequences,
                             int64_t tokens, coh_graph **out_graph)
{
    return build_train(body, model, sequences, tokens, out_graph, NULL);
}

coh_status coh_builder_logits(coh_builder_body body, const coh_model *model, int64_t sequences,
                              int64_t tokens, coh_graph **out_graph, coh_tensor *out_logits)
{
    return build_train(body, model, sequences, tokens, out_graph, out_logits);
}

coh_status coh_builder_decode(coh_builder_body body, const coh_model *model, int64_t tokens,
                              coh_graph **out_graph, coh_tensor *out_logits)
{
    *out_graph = NULL;
    coh_builder b = { .decode = 1, .tokens = tokens, .block = -1, .adapters = &model->adapters };
    coh_shape token_shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, 1 } };
    coh_shape position_shape = { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { 1 } };
    coh_tensor id, logits;
    coh_status status;
    COH_TRY_GOTO(status, coh_graph_create(&b.graph), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "token", &token_shape, &id), done);
    COH_TRY_GOTO(status, coh_graph_input(b.graph, "position", &position_shape, &b.position), done);
    COH_TRY_GOTO(status, body(&b, coh_family_config(model), id, id, &logits), done);
    COH_TRY_GOTO(status, coh_graph_output(b.graph, logits), done);
    *out_logits = logits;
done:
    return finish(&b, status, out_graph);
}
