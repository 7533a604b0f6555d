/* mine.c - a layer, an optimizer and a model of your own for the command line, one shared object.
 *
 *     make
 *     cohobate train mine-gated --kinds ./libmine.so --optimizer mine_momentum --data corpus.txt
 *
 * Part 1 is the layer (../own_layer explains it), part 2 the optimizer (../own_optimizer), part 3
 * builds the model, part 4 is the table that the program reads. */
#include <cohobate/cohobate.h>

#include <math.h>
#include <stdio.h>

/* ---- 1. the layer: y = x * sigmoid(gate[c] * x + shift[c]) ---- */

static coh_status gate_forward(const coh_call *call)
{
    const int64_t width = call->parameter[0].shape.dim[0];
    const float *x = call->input[0].data, *gate = call->parameter[0].data,
                *shift = call->parameter[1].data;
    float *y = call->output[0].data;
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        y[i] = x[i] / (1.0f + expf(-(gate[i % width] * x[i] + shift[i % width])));
    return COH_OK;
}

static coh_status gate_backward(const coh_call *call)
{
    const int64_t width = call->parameter[0].shape.dim[0];
    const float *x = call->input[0].data, *gate = call->parameter[0].data,
                *shift = call->parameter[1].data, *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dgate = call->parameter_grad[0].data,
          *dshift = call->parameter_grad[1].data;
    for (int64_t c = 0; c < width; c++)
        dgate[c] = dshift[c] = 0;
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        const int64_t c = i % width;
        const float s = 1.0f / (1.0f + expf(-(gate[c] * x[i] + shift[c])));
        const float ds = dy[i] * x[i] * s * (1.0f - s);
        dx[i] = dy[i] * s + ds * gate[c];
        dgate[c] += ds * x[i];
        dshift[c] += ds;
    }
    return COH_OK;
}

COH_LAYER(gate_kind, "mine.gate", 1, 2, gate_forward, gate_backward,
          .parameter = { { "gate", { -1 }, COH_INIT_ONE }, { "shift", { -1 } } });

/* ---- 2. the optimizer: momentum ---- */

static void update(const coh_update_call *call)
{
    float *work = call->work, *velocity = call->states[0];
    const float *grad = call->grad;
    for (int64_t i = 0; i < call->count; i++) {
        velocity[i] = call->hyperparameters[0] * velocity[i] + call->scale * grad[i];
        work[i] -= call->rate * (velocity[i] + call->decay * work[i]);
    }
}

static const coh_optimizer momentum = { .struct_bytes = sizeof(coh_optimizer),
                                        .name = "mine_momentum",
                                        .revision = 1,
                                        .stream_count = 1,
                                        .streams = { { "velocity", 4, 1, 1 } },
                                        .hyperparameter_count = 1,
                                        .hyperparameters = { { "momentum", 0.9f, 0, 0.999f } },
                                        .update = update };

/* ---- 3. the model: embedding, layers of linear and gate, logits, loss ---- */

static coh_status build(coh_own_graph *to)
{
    const int64_t width = to->size.channels, rows = to->size.vocabulary;
    const coh_embedding_attributes table = {
        .vocabulary = rows, .channels = width, .init_std = 0.5f, .dtype = to->size.dtype
    };
    const coh_linear_attributes inner = { .outputs = width, .has_bias = 1, .init_std = 0.06f };
    const coh_linear_attributes head = { .outputs = rows, .init_std = 0.05f };
    coh_op_args args = { .name = "embedding",
                         .attributes = &table,
                         .attribute_bytes = sizeof(table),
                         .inputs = &to->tokens,
                         .block = -1 };
    coh_tensor x;
    coh_status status = coh_graph_op(to->graph, &coh_kind_embedding, &args, &x, NULL);
    for (int32_t layer = 0; status == COH_OK && layer < (int32_t)to->size.layers; layer++) {
        char name[2][32];
        snprintf(name[0], sizeof(name[0]), "h.%d.linear", (int)layer);
        snprintf(name[1], sizeof(name[1]), "h.%d.gate", (int)layer);
        args = (coh_op_args){ name[0], &inner, sizeof(inner), &x, .block = layer };
        status = coh_graph_op(to->graph, &coh_kind_linear, &args, &x, NULL);
        args = (coh_op_args){ .name = name[1], .inputs = &x, .block = layer };
        if (status == COH_OK)
            status = coh_graph_op(to->graph, &gate_kind, &args, &x, NULL);
    }
    args = (coh_op_args){ "head", &head, sizeof(head), &x, .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(to->graph, &coh_kind_linear, &args, &to->logits, NULL);
    const coh_tensor pair[] = { to->logits, to->targets };
    args = (coh_op_args){ .name = "loss", .inputs = pair, .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(to->graph, &coh_kind_cross_entropy, &args, &to->loss, NULL);
    return status;
}

static const coh_own_model gated = {
    .struct_bytes = sizeof(coh_own_model),
    .name = "mine-gated",
    .size = { .layers = 4, .heads = 1, .channels = 64, .vocabulary = 257, .positions = 256 },
    .build = build
};

/* ---- 4. what each of several ranks keeps ---- */

/* States are divided within a node: updated weights never leave it. */
static coh_rank_parts states_in_node(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ .work = 1, .grad = 1, .state = levels->node };
}

static const coh_rank_pattern by_node = { .struct_bytes = sizeof(coh_rank_pattern),
                                          .name = "mine_node",
                                          .parts = states_in_node };

/* ---- 5. the table ---- */

COH_EXTENSION(.name = "mine", .revision = 1, .kind_count = 1, .kinds = { &gate_kind },
              .optimizer_count = 1, .optimizers = { &momentum }, .model_count = 1,
              .models = { &gated }, .rank_pattern_count = 1, .rank_patterns = { &by_node });
