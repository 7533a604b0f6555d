/* own_cuda_layer.c - an existing layer with its own kernels, trained by Cohobate: on the CPU, or
 * on a GPU, in memory, and streamed through less memory. Both runs end with the same bits.
 *
 *     make && ./own_cuda_layer [FOLDER FOR THE SCRATCH FILE]           on the CPU
 *     ./own_cuda_layer FOLDER cuda:0 rtx-4090                          on a GPU, as this datasheet
 *
 * gate.c and gate.cu are the existing layer, gate_kind.c wraps it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gate_kind.h"

enum {
    SEQUENCES = 4,
    TOKENS = 32,
    CHANNELS = 256,
    VOCABULARY = 61,
    BLOCKS = 8,
    STEPS = 12,
    IDS = SEQUENCES * TOKENS
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        coh_status try_status_ = (call);                                                           \
        if (try_status_ != COH_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* ---- a model: embedding, blocks of linear and gate, classifier ---- */

static coh_status add_block(coh_graph *graph, int block, coh_tensor *x)
{
    const coh_op_kind gate = gate_kind();
    const coh_linear_attributes linear = { .outputs = CHANNELS, .has_bias = 1, .init_std = 0.06f };
    char name[32];
    coh_tensor y;
    const coh_op_args linear_args = { .name = name,
                                      .attributes = &linear,
                                      .attribute_bytes = sizeof(linear),
                                      .inputs = x,
                                      .block = block };
    const coh_op_args gate_args = { .name = name, .inputs = &y, .block = block };
    snprintf(name, sizeof(name), "block.%d.linear", block);
    TRY(coh_graph_op(graph, &coh_kind_linear, &linear_args, &y, NULL));
    snprintf(name, sizeof(name), "block.%d.gate", block);
    return coh_graph_op(graph, &gate, &gate_args, x, NULL);
}

static coh_status build(coh_graph *graph)
{
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { SEQUENCES, TOKENS } };
    const coh_embedding_attributes table = { .vocabulary = VOCABULARY,
                                             .channels = CHANNELS,
                                             .init_std = 0.5f };
    const coh_classifier_attributes classifier = { .vocabulary = VOCABULARY, .init_std = 0.05f };
    coh_tensor tokens, compared[2], loss;
    TRY(coh_graph_input(graph, "tokens", &ids, &tokens));
    TRY(coh_graph_input(graph, "targets", &ids, &compared[1]));
    const coh_op_args first = { .name = "embedding",
                                .attributes = &table,
                                .attribute_bytes = sizeof(table),
                                .inputs = &tokens,
                                .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_embedding, &first, &compared[0], NULL));
    for (int block = 0; block < BLOCKS; block++)
        TRY(add_block(graph, block, &compared[0]));
    const coh_op_args last = { .name = "classifier",
                               .attributes = &classifier,
                               .attribute_bytes = sizeof(classifier),
                               .inputs = compared,
                               .block = -1 };
    TRY(coh_graph_op(graph, &coh_kind_classifier, &last, &loss, NULL));
    return coh_graph_loss(graph, loss);
}

/* ---- train it ---- */

typedef struct outcome {
    uint64_t hash, peak_bytes, moved_bytes;
    double first_loss, last_loss;
} outcome;

static coh_status train(coh_engine *engine, outcome *out)
{
    TRY(coh_engine_init(engine, 1));
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[IDS], targets[IDS];
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = (uint64_t)step,
                                       .seed = 1,
                                       .learning_rate = 1e-2f,
                                       .clip = 1.0f,
                                       .inputs = { tokens, targets } };
        for (int i = 0; i < IDS; i++) { /* one token determines the next */
            tokens[i] = i % TOKENS ? targets[i - 1] : (step * 31 + i) % VOCABULARY;
            targets[i] = (7 * tokens[i] + 3) % VOCABULARY;
        }
        TRY(coh_engine_step(engine, &input, &result));
        if (step == 0)
            out->first_loss = result.loss;
        out->last_loss = result.loss;
        out->peak_bytes = result.peak_bytes[COH_TIER_DEVICE];
        for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
            out->moved_bytes += result.link_bytes[lane];
    }
    return coh_engine_hash(engine, &out->hash);
}

/* A GPU's plan needs its prices and the names of its kernels. */
static coh_status use_device(const char *device, const coh_profile *profile,
                             coh_plan_options *options)
{
    coh_device_summary facts = { .struct_bytes = sizeof(facts) };
    if (profile == NULL)
        return COH_OK;
    TRY(coh_device_summarize(device, &facts));
    options->profile = profile;
    snprintf(options->kernel_path, sizeof(options->kernel_path), "%s", facts.kernel_path);
    return COH_OK;
}

/* Plans within `percent` of the memory that all of it takes. */
static coh_status run(const coh_graph *graph, int percent, const char *folder, const char *device,
                      const coh_profile *profile, outcome *out)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    uint64_t whole = 0;
    *out = (outcome){ 0 };
    coh_plan_options_init(&options);
    TRY(use_device(device, profile, &options));
    TRY(coh_plan_in_memory_bytes(graph, &options, &whole));
    options.device_memory_bytes = percent < 100 ? whole / 100 * (uint64_t)percent : whole;
    options.disk_bytes = percent < 100 && profile == NULL ? UINT64_MAX : 0;
    options.host_memory_bytes = percent < 100 && profile != NULL ? whole : 0;
    coh_engine_options_init(&engine_options);
    engine_options.disk_folder = folder;
    engine_options.device = device;
    coh_status status = coh_plan_create(graph, &options, &plan);
    if (status == COH_OK)
        status = coh_engine_create(plan, &engine_options, &engine);
    if (status == COH_OK)
        status = train(engine, out);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return status;
}

static coh_status compare(coh_graph *graph, const char *folder, const char *device,
                          const coh_profile *profile, int *out_equal)
{
    /* On a GPU the workspace of its libraries is most of a model this small. */
    const int percent = profile == NULL ? 33 : 90;
    outcome in_memory, streamed;
    TRY(build(graph));
    TRY(run(graph, 100, folder, device, profile, &in_memory));
    TRY(run(graph, percent, folder, device, profile, &streamed));
    printf("in memory: loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 "\n",
           in_memory.first_loss, in_memory.last_loss, in_memory.peak_bytes, in_memory.hash);
    printf("streamed:  loss %.4f -> %.4f, peak %" PRIu64 " bytes, hash %016" PRIx64 ", %" PRIu64
           " bytes moved\n",
           streamed.first_loss, streamed.last_loss, streamed.peak_bytes, streamed.hash,
           streamed.moved_bytes);
    *out_equal = in_memory.hash == streamed.hash && streamed.moved_bytes > 0 &&
                 streamed.peak_bytes < in_memory.peak_bytes &&
                 streamed.last_loss < streamed.first_loss;
    return COH_OK;
}

int main(int count, char **arguments)
{
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    int equal = 0;
    if (count > 4 || count == 3) {
        fprintf(stderr, "usage: own_cuda_layer [FOLDER [cuda:N DATASHEET]]\n");
        return 2;
    }
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK && count == 4)
        status = coh_profile_read(arguments[3], &profile);
    if (status == COH_OK)
        status = compare(graph, count > 1 ? arguments[1] : ".", count == 4 ? arguments[2] : NULL,
                         profile, &equal);
    coh_graph_destroy(graph);
    coh_profile_destroy(profile);
    if (status != COH_OK) {
        fprintf(stderr, "own_cuda_layer: %s\n", coh_last_error());
        return coh_status_exit_code(status);
    }
    if (!equal)
        fprintf(stderr, "own_cuda_layer: the streamed run is not the run in memory\n");
    return !equal;
}
