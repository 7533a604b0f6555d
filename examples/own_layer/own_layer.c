/* own_layer.c - an existing layer, trained by Cohobate: in memory, and streamed through a third of
 * that memory with the rest on disk. Both runs end with the same bits.
 *
 *     make && ./own_layer [FOLDER FOR THE SCRATCH FILE]
 *
 * Part 1 is the existing layer, part 2 wraps it, part 3 builds a model with it, part 4 runs it. */
#include <cohobate/cohobate.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- 1. the layer: y = x * sigmoid(gate[c] * x + shift[c]), for rows of `width` numbers ---- */

static void gate_forward(float *y, const float *x, const float *gate, const float *shift,
                         int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            float in = x[r * width + c];
            y[r * width + c] = in / (1.0f + expf(-(gate[c] * in + shift[c])));
        }
}

/* Overwrites dx, dgate and dshift, as most existing layers do. */
static void gate_backward(float *dx, float *dgate, float *dshift, const float *dy, const float *x,
                          const float *gate, const float *shift, int64_t rows, int64_t width)
{
    for (int64_t c = 0; c < width; c++)
        dgate[c] = dshift[c] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            float in = x[r * width + c], out_grad = dy[r * width + c];
            float s = 1.0f / (1.0f + expf(-(gate[c] * in + shift[c])));
            float ds = out_grad * in * s * (1.0f - s);
            dx[r * width + c] = out_grad * s + ds * gate[c];
            dgate[c] += ds * in;
            dshift[c] += ds;
        }
}

/* ---- 2. the same layer as a kind: two calls, and the shapes of its parameters ---- */

static coh_status gate_call_forward(const coh_call *call)
{
    const int64_t width = call->parameter[0].shape.dim[0];
    gate_forward(call->output[0].data, call->input[0].data, call->parameter[0].data,
                 call->parameter[1].data, coh_shape_elements(&call->input[0].shape) / width, width);
    return COH_OK;
}

static coh_status gate_call_backward(const coh_call *call)
{
    const int64_t width = call->parameter[0].shape.dim[0];
    gate_backward(call->input_grad[0].data, call->parameter_grad[0].data,
                  call->parameter_grad[1].data, call->output_grad[0].data, call->input[0].data,
                  call->parameter[0].data, call->parameter[1].data,
                  coh_shape_elements(&call->input[0].shape) / width, width);
    return COH_OK;
}

/* One input, two parameters as wide as its last axis (-1). */
COH_LAYER(gate_kind, "mine.gate", 1, 2, gate_call_forward, gate_call_backward,
          .parameter = { { "gate", { -1 }, COH_INIT_ONE }, { "shift", { -1 } } });

/* ---- 3. a model: embedding, four blocks of linear and gate, classifier ---- */

enum {
    SEQUENCES = 4,
    TOKENS = 32,
    CHANNELS = 128,
    VOCABULARY = 61,
    BLOCKS = 4,
    MICRO_BATCHES = 2,
    STEPS = 12,
    BATCH_IDS = MICRO_BATCHES * SEQUENCES * TOKENS
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        coh_status try_status_ = (call);                                                           \
        if (try_status_ != COH_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

static coh_status add_block(coh_graph *graph, int block, coh_tensor *x)
{
    char name[32];
    const coh_linear_attributes linear = { .outputs = CHANNELS, .has_bias = 1, .init_std = 0.1f };
    coh_op_args args = { .name = name,
                         .attributes = &linear,
                         .attribute_bytes = sizeof(linear),
                         .inputs = x,
                         .block = block };
    coh_tensor y;
    snprintf(name, sizeof(name), "block.%d.linear", block);
    TRY(coh_graph_op(graph, &coh_kind_linear, &args, &y, NULL));

    const coh_op_args gate_args = { .name = name, .inputs = &y, .block = block };
    snprintf(name, sizeof(name), "block.%d.gate", block);
    return coh_graph_op(graph, &gate_kind, &gate_args, x, NULL);
}

static coh_status build(coh_graph *graph)
{
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { SEQUENCES, TOKENS } };
    const coh_embedding_attributes embedding = { .vocabulary = VOCABULARY,
                                                 .channels = CHANNELS,
                                                 .init_std = 0.5f };
    const coh_classifier_attributes classifier = { .vocabulary = VOCABULARY, .init_std = 0.05f };
    coh_tensor tokens, targets, x, loss;
    TRY(coh_graph_input(graph, "tokens", &ids, &tokens));
    TRY(coh_graph_input(graph, "targets", &ids, &targets));
    const coh_op_args embedding_args = { .name = "embedding",
                                         .attributes = &embedding,
                                         .attribute_bytes = sizeof(embedding),
                                         .inputs = &tokens,
                                         .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_embedding, &embedding_args, &x, NULL));
    for (int block = 0; block < BLOCKS; block++)
        TRY(add_block(graph, block, &x));
    const coh_tensor classifier_inputs[] = { x, targets };
    const coh_op_args classifier_args = { .name = "classifier",
                                          .attributes = &classifier,
                                          .attribute_bytes = sizeof(classifier),
                                          .inputs = classifier_inputs,
                                          .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_classifier, &classifier_args, &loss, NULL));
    return coh_graph_loss(graph, loss);
}

/* ---- 4. train it ---- */

typedef struct outcome {
    uint64_t hash, peak_bytes, moved_bytes;
    double first_loss, last_loss;
} outcome;

/* Sequences in which one token determines the next: the next id is 7 id + 3, modulo VOCABULARY. */
static void make_batch(int step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH_IDS; i++) {
        tokens[i] = i % TOKENS ? targets[i - 1] : (step * 31 + i) % VOCABULARY;
        targets[i] = (7 * tokens[i] + 3) % VOCABULARY;
    }
}

static coh_status train(coh_engine *engine, outcome *out_outcome)
{
    static int32_t tokens[BATCH_IDS], targets[BATCH_IDS];
    TRY(coh_engine_init(engine, 1));
    for (int step = 0; step < STEPS; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = (uint64_t)step,
                                       .seed = 1,
                                       .learning_rate = 1e-2f,
                                       .clip = 1.0f,
                                       .inputs = { tokens, targets } };
        make_batch(step, tokens, targets);
        TRY(coh_engine_step(engine, &input, &result));
        if (step == 0)
            out_outcome->first_loss = result.loss;
        out_outcome->last_loss = result.loss;
        out_outcome->peak_bytes = result.peak_bytes[COH_TIER_DEVICE];
        for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
            out_outcome->moved_bytes += result.link_bytes[lane];
    }
    return coh_engine_hash(engine, &out_outcome->hash);
}

/* Plans within `budget_bytes` and trains; `folder` NULL: without a disk. */
static coh_status run(const coh_graph *graph, uint64_t budget_bytes, const char *folder,
                      outcome *out_outcome)
{
    coh_plan_options plan_options;
    coh_engine_options engine_options;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    *out_outcome = (outcome){ 0 };
    coh_plan_options_init(&plan_options);
    plan_options.device_memory_bytes = budget_bytes;
    plan_options.disk_bytes = folder ? UINT64_MAX : 0;
    plan_options.microbatch_count = MICRO_BATCHES;
    plan_options.thread_count = 2;
    coh_engine_options_init(&engine_options);
    engine_options.disk_folder = folder;
    engine_options.disk_bytes = UINT64_MAX;
    engine_options.thread_count = 2;

    coh_status status = coh_plan_create(graph, &plan_options, &plan);
    if (status == COH_OK)
        status = coh_engine_create(plan, &engine_options, &engine);
    if (status == COH_OK)
        status = train(engine, out_outcome);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return status;
}

static coh_status compare(coh_graph *graph, const char *folder, int *out_equal)
{
    outcome in_memory, streamed;
    TRY(build(graph));
    TRY(run(graph, UINT64_MAX, NULL, &in_memory));
    TRY(run(graph, in_memory.peak_bytes / 3, folder, &streamed));
    printf("in memory: loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 "\n",
           in_memory.first_loss, in_memory.last_loss, in_memory.peak_bytes, in_memory.hash);
    printf("streamed:  loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 ", %" PRIu64
           " bytes moved\n",
           streamed.first_loss, streamed.last_loss, streamed.peak_bytes, streamed.hash,
           streamed.moved_bytes);
    *out_equal = in_memory.hash == streamed.hash && streamed.moved_bytes > 0 &&
                 streamed.peak_bytes <= in_memory.peak_bytes / 3 &&
                 streamed.last_loss < streamed.first_loss;
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
        fprintf(stderr, "own_layer: %s\n", coh_last_error());
        return coh_status_exit_code(status);
    }
    if (!equal)
        fprintf(stderr, "own_layer: the streamed run is not the run in memory\n");
    return !equal;
}
