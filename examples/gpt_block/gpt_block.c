/* gpt_block.c - existing layer functions and an existing optimizer, trained by Cohobate without
 * changing a line of them: in memory, and streamed through a quarter of that memory with the rest
 * on disk. Both runs end with the bits of the existing training loop.
 *
 *     make && ./gpt_block [FOLDER FOR THE SCRATCH FILE]
 *
 * layers.c and trainer.c are the existing code. Part 1 wraps its layers, part 2 its optimizer,
 * part 3 builds the model, part 4 trains it and compares. */
#include <cohobate/cohobate.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "trainer.h"

/* ---- 1. the layers: which argument is which port ---- */

#define IN(i)           ((const float *)call->input[i].data)
#define IDS(i)          ((const int *)call->input[i].data)
#define OUT             ((float *)call->output[0].data)
#define PARAM(i)        ((const float *)call->parameter[i].data)
#define DOUT            ((const float *)call->output_grad[0].data)
#define DIN(i)          ((float *)call->input_grad[i].data)
#define DPARAM(i)       ((float *)call->parameter_grad[i].data)
#define SAVED           ((float *)call->saved)
#define DIM(view, axis) ((int)(view).shape.dim[axis])
#define COUNT           ((int)coh_shape_elements(&call->input[0].shape))

/* Defines name##_forward and name##_backward, each of one call. */
#define WRAP(name, forward_call, backward_call)                                                    \
    static coh_status name##_forward_(const coh_call *call)                                        \
    {                                                                                              \
        forward_call;                                                                              \
        return COH_OK;                                                                             \
    }                                                                                              \
    static coh_status name##_backward_(const coh_call *call)                                       \
    {                                                                                              \
        backward_call;                                                                             \
        return COH_OK;                                                                             \
    }

WRAP(encoder, encoder_forward(OUT, IDS(0), PARAM(0), PARAM(1), B, T, C),
     encoder_backward(DPARAM(0), DPARAM(1), DOUT, IDS(0), B, T, C))
COH_LAYER_THAT_ADDS(encoder, "mine.encoder", 1, 2, encoder_forward_, encoder_backward_,
                    .parameter = { { "wte", { V, C }, .decays = 1 },
                                   { "wpe", { T, C }, .decays = 1 } },
                    .output = { -2, -1, C }, .index = { { 0, V } });

WRAP(layernorm, layernorm_forward(OUT, SAVED, SAVED + B * T, IN(0), PARAM(0), PARAM(1), B, T, C),
     layernorm_backward(DIN(0), DPARAM(0), DPARAM(1), DOUT, IN(0), PARAM(0), SAVED, SAVED + B * T,
                        B, T, C))
COH_LAYER_THAT_ADDS(layernorm, "mine.layernorm", 1, 2, layernorm_forward_, layernorm_backward_,
                    .parameter = { { "weight", { -1 }, .decays = 1 },
                                   { "bias", { -1 }, .decays = 1 } },
                    .saved = { 2, -3, -2 });

WRAP(matmul,
     matmul_forward(OUT, IN(0), PARAM(0), PARAM(1), B, T, DIM(call->input[0], 2),
                    DIM(call->output[0], 2)),
     matmul_backward(DIN(0), DPARAM(0), DPARAM(1), DOUT, IN(0), PARAM(0), B, T,
                     DIM(call->input[0], 2), DIM(call->output_grad[0], 2)))
#define MATMUL(identifier, outputs)                                                                \
    COH_LAYER_THAT_ADDS(identifier, "mine." #identifier, 1, 2, matmul_forward_, matmul_backward_,  \
                        .parameter = { { "weight", { outputs, -1 }, .decays = 1 },                 \
                                       { "bias", { outputs }, .decays = 1 } },                     \
                        .output = { -3, -2, outputs })
MATMUL(qkv, 3 * C);
MATMUL(projection, C);
MATMUL(expansion, 4 * C);
COH_LAYER_THAT_ADDS(head, "mine.head", 1, 1, matmul_forward_, matmul_backward_,
                    .parameter = { { "weight", { V, C }, .decays = 1 } }, .output = { -3, -2, V });

WRAP(attention, attention_forward(OUT, SAVED, IN(0), B, T, C, NH),
     attention_backward(DIN(0), call->workspace, DOUT, IN(0), SAVED, B, T, C, NH))
COH_LAYER_THAT_ADDS(attention, "mine.attention", 1, 0, attention_forward_, attention_backward_,
                    .output = { -3, -2, C }, .saved = { NH, -3, -2, -2 },
                    .workspace = { NH, -3, -2, -2 });

WRAP(gelu, gelu_forward(OUT, IN(0), COUNT), gelu_backward(DIN(0), IN(0), DOUT, COUNT))
COH_LAYER(gelu, "mine.gelu", 1, 0, gelu_forward_, gelu_backward_, .takes_bf16 = 0);

WRAP(residual, residual_forward(OUT, IN(0), IN(1), COUNT),
     residual_backward(DIN(0), DIN(1), DOUT, COUNT))
COH_LAYER_THAT_ADDS(residual, "mine.residual", 2, 0, residual_forward_, residual_backward_,
                    .takes_bf16 = 0);

WRAP(loss, *OUT = crossentropy_forward(SAVED, IN(0), IDS(1), B, T, V) / (B * T),
     crossentropy_backward(DIN(0), SAVED, IDS(1), call->loss_scale / (B * T), B, T, V))
COH_LOSS_LAYER(loss, "mine.loss", 2, 0, loss_forward_, loss_backward_, .output = { 1 },
               .saved = { -3, -2, -1 }, .index = { [1] = { 0, V } });

/* ---- 2. the optimizer ---- */

static void update(const coh_update_call *call)
{
    adamw_update(call->work, call->grad, call->states[0], call->states[1], call->count, call->rate,
                 beta1, beta2, epsilon, call->decay, call->scalars[0], call->scalars[1]);
}

static const coh_optimizer adamw = {
    .struct_bytes = sizeof(coh_optimizer),
    .name = "mine",
    .revision = 1,
    .stream_count = 2,
    .streams = { { "mean", 4, 1, 1 }, { "square", 4, 1, 1 } },
    .hyperparameter_count = 2,
    .hyperparameters = { { "beta1", 0.9f, 0, 1 }, { "beta2", 0.95f, 0, 1 } },
    .scalar_count = 2,
    .scalars = { 0, 1 },
    .update = update,
};

/* ---- 3. the model ---- */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        coh_status try_status_ = (call);                                                           \
        if (try_status_ != COH_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* Adds one operator of a block; -1: of none. */
static coh_status add(coh_graph *graph, const coh_op_kind *kind, int block, const char *name,
                      const coh_tensor *inputs, coh_tensor *out)
{
    char full[64];
    snprintf(full, sizeof(full), block < 0 ? "%s" : "%s.%d", name, block);
    const coh_op_args args = { .name = full, .inputs = inputs, .block = block };
    return coh_graph_op(graph, kind, &args, out, NULL);
}

static coh_status add_block(coh_graph *graph, int block, coh_tensor *x)
{
    coh_tensor y, pair[2] = { *x };
    TRY(add(graph, &layernorm, block, "ln1", x, &y));
    TRY(add(graph, &qkv, block, "qkv", &y, &y));
    TRY(add(graph, &attention, block, "attention", &y, &y));
    TRY(add(graph, &projection, block, "projection", &y, &pair[1]));
    TRY(add(graph, &residual, block, "residual1", pair, x));
    TRY(add(graph, &layernorm, block, "ln2", x, &y));
    TRY(add(graph, &expansion, block, "fc", &y, &y));
    TRY(add(graph, &gelu, block, "gelu", &y, &y));
    pair[0] = *x;
    TRY(add(graph, &projection, block, "fc2", &y, &pair[1]));
    return add(graph, &residual, block, "residual2", pair, x);
}

static coh_status build(coh_graph *graph)
{
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { B, T } };
    coh_tensor tokens, targets, x, compared[2], mean;
    coh_parameter tables[2];
    TRY(coh_graph_input(graph, "tokens", &ids, &tokens));
    TRY(coh_graph_input(graph, "targets", &ids, &targets));
    const coh_op_args first = { .name = "encoder", .inputs = &tokens, .block = -1 };
    TRY(coh_graph_op(graph, &encoder, &first, &x, tables));
    for (int block = 0; block < L; block++)
        TRY(add_block(graph, block, &x));
    TRY(add(graph, &layernorm, -1, "lnf", &x, &x));
    const coh_op_args last = { .name = "head", .inputs = &x, .tied = tables, .block = -1 };
    TRY(coh_graph_op(graph, &head, &last, &compared[0], NULL));
    compared[1] = targets;
    TRY(add(graph, &loss, -1, "loss", compared, &mean));
    return coh_graph_loss(graph, mean);
}

/* ---- 4. train it and compare ---- */

/* The trainer's weights: parameters have the same order in the graph and in the trainer. */
static coh_status weights(void *trained, coh_parameter parameter, const char *name, uint64_t begin,
                          uint64_t count, float *values)
{
    const trainer *t = trained;
    (void)name;
    memcpy(values, t->param[parameter.index] + begin, count * sizeof(float));
    return COH_OK;
}

typedef struct outcome {
    uint64_t peak_bytes, moved_bytes;
    double loss[STEPS];
    long different; /* numbers that are not those of the trainer */
} outcome;

static coh_status train(coh_engine *engine, const trainer *start, const trainer *end, outcome *out)
{
    static float values[4 * C * C];
    TRY(coh_engine_init_from(engine, 1, weights, (void *)(uintptr_t)start));
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[MICRO_BATCHES * B * T], targets[MICRO_BATCHES * B * T];
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = (uint64_t)step,
                                       .seed = 1,
                                       .learning_rate = rate,
                                       .inputs = { tokens, targets } };
        make_batch(step, tokens, targets);
        TRY(coh_engine_step(engine, &input, &result));
        out->loss[step] = result.loss;
        out->peak_bytes = result.peak_bytes[COH_TIER_DEVICE];
        for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
            out->moved_bytes += result.link_bytes[lane];
    }
    for (int p = 0; p < PARAMETERS; p++) {
        TRY(coh_engine_fetch(engine, (coh_parameter){ p }, COH_FETCH_VALUE, values));
        for (long i = 0; i < end->count[p]; i++)
            out->different += memcmp(&values[i], &end->param[p][i], sizeof(float)) != 0;
    }
    return COH_OK;
}

/* Plans within `budget_bytes` and trains; `folder` NULL: without a disk. */
static coh_status run(const coh_graph *graph, uint64_t budget_bytes, const char *folder,
                      const trainer *start, const trainer *end, outcome *out)
{
    coh_plan_options plan_options;
    coh_engine_options engine_options;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    *out = (outcome){ 0 };
    coh_plan_options_init(&plan_options);
    snprintf(plan_options.optimizer, sizeof(plan_options.optimizer), "mine");
    plan_options.device_memory_bytes = budget_bytes;
    plan_options.disk_bytes = folder ? UINT64_MAX : 0;
    plan_options.microbatch_count = MICRO_BATCHES;
    coh_engine_options_init(&engine_options);
    engine_options.disk_folder = folder;
    engine_options.disk_bytes = UINT64_MAX;
    engine_options.weight_decay = decay;
    coh_status status = coh_plan_create(graph, &plan_options, &plan);
    if (status == COH_OK)
        status = coh_engine_create(plan, &engine_options, &engine);
    if (status == COH_OK)
        status = train(engine, start, end, out);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return status;
}

static coh_status compare(coh_graph *graph, const char *folder, int *out_equal)
{
    static trainer start, end;
    static outcome in_memory, streamed;
    double losses[STEPS];
    if (!trainer_create(&start) || !trainer_create(&end))
        return COH_ERR_MEMORY;
    for (int step = 0; step < STEPS; step++)
        losses[step] = trainer_step(&end, step);
    TRY(coh_optimizer_register(&adamw));
    TRY(build(graph));
    TRY(run(graph, UINT64_MAX, NULL, &start, &end, &in_memory));
    TRY(run(graph, in_memory.peak_bytes / 4, folder, &start, &end, &streamed));
    *out_equal = in_memory.different == 0 && streamed.different == 0 &&
                 memcmp(losses, in_memory.loss, sizeof(losses)) == 0 &&
                 memcmp(losses, streamed.loss, sizeof(losses)) == 0 &&
                 streamed.peak_bytes <= in_memory.peak_bytes / 4 && streamed.moved_bytes > 0;
    printf("existing loop: loss %.4f -> %.4f in %d steps\n", losses[0], losses[STEPS - 1], STEPS);
    printf("in memory:     loss %.4f -> %.4f, %ld of %ld numbers differ, peak %" PRIu64 " bytes\n",
           in_memory.loss[0], in_memory.loss[STEPS - 1], in_memory.different, end.all_count,
           in_memory.peak_bytes);
    printf("streamed:      loss %.4f -> %.4f, %ld of %ld numbers differ, peak %" PRIu64
           " bytes, %" PRIu64 " bytes moved\n",
           streamed.loss[0], streamed.loss[STEPS - 1], streamed.different, end.all_count,
           streamed.peak_bytes, streamed.moved_bytes);
    trainer_destroy(&start);
    trainer_destroy(&end);
    return COH_OK;
}

int main(int argument_count, char **arguments)
{
    coh_graph *graph = NULL;
    int equal = 0;
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = compare(graph, argument_count > 1 ? arguments[1] : ".", &equal);
    coh_graph_destroy(graph);
    if (status != COH_OK) {
        fprintf(stderr, "gpt_block: %s\n", coh_last_error());
        return coh_status_exit_code(status);
    }
    if (!equal)
        fprintf(stderr, "gpt_block: the wrapped runs are not the existing loop\n");
    return !equal;
}
