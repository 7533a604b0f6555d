/* own_optimizer.c - an optimizer of your own, trained by Cohobate: in memory, and streamed through
 * less than half of that memory with the rest on disk, stopped halfway by a checkpoint. Both runs
 * end with the same bits.
 *
 *     make && ./own_optimizer [FOLDER FOR THE SCRATCH FILE AND THE CHECKPOINT]
 *
 * Part 1 is the optimizer, part 2 a model, part 3 trains it. */
#include <cohobate/cohobate.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- 1. Adam-mini (Zhang et al. 2024), simplified: one second moment for 64 elements ---- */

enum { BLOCK = 64 };
enum { MEAN_DECAY, SQUARE_DECAY, EPSILON };

/* `call` has whole blocks, except at the end of a parameter. */
static void update_block(const coh_update_call *call, int64_t begin, int64_t count)
{
    const float mean_decay = call->hyperparameters[MEAN_DECAY];
    const float square_decay = call->hyperparameters[SQUARE_DECAY];
    const float *grad = (const float *)call->grad + begin;
    float *work = (float *)call->work + begin, *mean = (float *)call->states[0] + begin;
    float *square = (float *)call->states[1] + begin / BLOCK;
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += call->scale * grad[i] * (call->scale * grad[i]);
    *square = square_decay * *square + (1 - square_decay) * (sum / (float)count);
    const float root = sqrtf(*square / call->scalars[1]) + call->hyperparameters[EPSILON];
    for (int64_t i = 0; i < count; i++) {
        mean[i] = mean_decay * mean[i] + (1 - mean_decay) * (call->scale * grad[i]);
        work[i] -= call->rate * (mean[i] / call->scalars[0] / root + call->decay * work[i]);
    }
}

static void update(const coh_update_call *call)
{
    for (int64_t begin = 0; begin < call->count; begin += BLOCK)
        update_block(call, begin, call->count - begin < BLOCK ? call->count - begin : BLOCK);
}

/* takes_bf16 stays 0: the engine converts bf16 parameters to f32 and back for us. */
static const coh_optimizer mini = {
    .struct_bytes = sizeof(coh_optimizer),
    .name = "mini",
    .revision = 1,
    .stream_count = 2,
    .streams = { { "mean", 4, 1, 1 }, { "block_square", 4, BLOCK, 1 } },
    .hyperparameter_count = 3,
    .hyperparameters = { [MEAN_DECAY] = { "mean_decay", 0.9f, 0, 0.9999f },
                         [SQUARE_DECAY] = { "square_decay", 0.95f, 0, 0.9999f },
                         [EPSILON] = { "epsilon", 1e-8f, 1e-20f, 1 } },
    .scalar_count = 2, /* 1 - decay^t, the corrections of both moments */
    .scalars = { MEAN_DECAY, SQUARE_DECAY },
    .update = update,
};

/* ---- 2. a model: embedding, linears, classifier ---- */

enum {
    SEQUENCES = 4,
    TOKENS = 32,
    CHANNELS = 256,
    VOCABULARY = 61,
    LINEARS = 6,
    STEPS = 12,
    IDS = SEQUENCES * TOKENS
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        coh_status try_status_ = (call);                                                           \
        if (try_status_ != COH_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

static coh_status build(coh_graph *graph)
{
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { SEQUENCES, TOKENS } };
    const coh_embedding_attributes embedding = { .vocabulary = VOCABULARY,
                                                 .channels = CHANNELS,
                                                 .init_std = 0.5f };
    const coh_linear_attributes linear = { .outputs = CHANNELS, .has_bias = 1, .init_std = 0.06f };
    const coh_classifier_attributes classifier = { .vocabulary = VOCABULARY, .init_std = 0.05f };
    coh_tensor tokens, targets, x, loss;
    TRY(coh_graph_input(graph, "tokens", &ids, &tokens));
    TRY(coh_graph_input(graph, "targets", &ids, &targets));
    coh_op_args args = { .name = "embedding",
                         .attributes = &embedding,
                         .attribute_bytes = sizeof(embedding),
                         .inputs = &tokens,
                         .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_embedding, &args, &x, NULL));
    for (int i = 0; i < LINEARS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "linear.%d", i);
        args = (coh_op_args){ .name = name,
                              .attributes = &linear,
                              .attribute_bytes = sizeof(linear),
                              .inputs = &x,
                              .block = i };
        TRY(coh_graph_op(graph, &coh_kind_linear, &args, &x, NULL));
    }
    const coh_tensor inputs[] = { x, targets };
    args = (coh_op_args){ .name = "classifier",
                          .attributes = &classifier,
                          .attribute_bytes = sizeof(classifier),
                          .inputs = inputs,
                          .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_classifier, &args, &loss, NULL));
    return coh_graph_loss(graph, loss);
}

/* ---- 3. train it ---- */

typedef struct outcome {
    uint64_t hash, peak_bytes;
    double first_loss, last_loss;
} outcome;

static coh_status steps(coh_engine *engine, int begin, int end, outcome *out)
{
    for (int step = begin; step < end; step++) {
        int32_t tokens[IDS], targets[IDS];
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = (uint64_t)step,
                                       .seed = 1,
                                       .learning_rate = 1e-3f,
                                       .clip = 1.0f,
                                       .inputs = { tokens, targets } };
        for (int i = 0; i < IDS; i++) { /* one token determines the next */
            tokens[i] = i % TOKENS ? targets[i - 1] : (step * 31 + i) % VOCABULARY;
            targets[i] = (7 * tokens[i] + 3) % VOCABULARY;
        }
        TRY(coh_engine_step(engine, &input, &result));
        out->first_loss = step == 0 ? result.loss : out->first_loss;
        out->last_loss = result.loss;
        out->peak_bytes = result.peak_bytes[COH_TIER_DEVICE];
    }
    return COH_OK;
}

/* Runs steps [begin, end): from a new model, or from checkpoint `load`; saves to `save` if it is
 * not NULL. */
static coh_status run(const coh_plan *plan, const char *folder, int begin, int end,
                      const char *load, const char *save, outcome *out)
{
    coh_engine_options options;
    coh_engine *engine = NULL;
    coh_engine_options_init(&options);
    options.disk_folder = folder;
    options.thread_count = 2;
    coh_status status = coh_engine_create(plan, &options, &engine);
    if (status == COH_OK)
        status = load ? coh_engine_load(engine, load, NULL) : coh_engine_init(engine, 1);
    if (status == COH_OK)
        status = steps(engine, begin, end, out);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = (uint64_t)end,
                                       .json = "{}" };
    if (status == COH_OK && save)
        status = coh_engine_save(engine, save, &note);
    if (status == COH_OK)
        status = coh_engine_hash(engine, &out->hash);
    coh_engine_destroy(engine);
    return status;
}

static coh_status plan_within(const coh_graph *graph, uint64_t bytes, coh_plan **out_plan)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    snprintf(options.optimizer, sizeof(options.optimizer), "mini");
    options.device_memory_bytes = bytes;
    options.disk_bytes = bytes == UINT64_MAX ? 0 : UINT64_MAX;
    options.thread_count = 2;
    return coh_plan_create(graph, &options, out_plan);
}

/* Trains in memory, and streamed with a stop in the middle. */
static coh_status compare(const coh_graph *graph, const char *folder, int *out_equal)
{
    outcome in_memory = { 0 }, streamed = { 0 };
    coh_plan *whole = NULL, *part = NULL;
    char checkpoint[4096];
    snprintf(checkpoint, sizeof(checkpoint), "%s/own_optimizer.checkpoint", folder);
    (void)coh_checkpoint_remove(checkpoint); /* of an earlier run */
    coh_status status = plan_within(graph, UINT64_MAX, &whole);
    if (status == COH_OK)
        status = run(whole, NULL, 0, STEPS, NULL, NULL, &in_memory);
    if (status == COH_OK)
        status = plan_within(graph, in_memory.peak_bytes * 2 / 5, &part);
    if (status == COH_OK)
        status = run(part, folder, 0, STEPS / 2, NULL, checkpoint, &streamed);
    if (status == COH_OK)
        status = run(part, folder, STEPS / 2, STEPS, checkpoint, NULL, &streamed);
    coh_plan_destroy(part);
    coh_plan_destroy(whole);
    TRY(status);
    TRY(coh_checkpoint_remove(checkpoint));
    printf("in memory: loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 "\n",
           in_memory.first_loss, in_memory.last_loss, in_memory.peak_bytes, in_memory.hash);
    printf("streamed:  loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 "\n",
           streamed.first_loss, streamed.last_loss, streamed.peak_bytes, streamed.hash);
    *out_equal = in_memory.hash == streamed.hash && streamed.last_loss < streamed.first_loss &&
                 streamed.peak_bytes <= in_memory.peak_bytes * 2 / 5;
    return COH_OK;
}

int main(int argument_count, char **arguments)
{
    coh_graph *graph = NULL;
    int equal = 0;
    coh_status status = coh_optimizer_register(&mini);
    if (status == COH_OK)
        status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = build(graph);
    if (status == COH_OK)
        status = compare(graph, argument_count > 1 ? arguments[1] : ".", &equal);
    coh_graph_destroy(graph);
    if (status != COH_OK) {
        fprintf(stderr, "own_optimizer: %s\n", coh_last_error());
        return coh_status_exit_code(status);
    }
    if (!equal)
        fprintf(stderr, "own_optimizer: the streamed run is not the run in memory\n");
    return !equal;
}
