/* One rank of engines that are processes: trains a small GPT-2 with the world of its launcher, then
 * rank 0 trains the same step on one rank. All hashes must be those of the one rank. By the public
 * interface only, as a program does it. Run it with 2 or 4 processes: engine_process memory|disk */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/cohobate.h"
#include "tests/engine/drawn_tokens.h"

enum { TOKENS = 37, VOCABULARY = 300, REPLICAS = 4, STEPS = 3 };

static int32_t tokens[REPLICAS * TOKENS], targets[REPLICAS * TOKENS];

static void must(coh_status status, const char *what)
{
    if (status == COH_OK)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, coh_last_error());
    exit(1); /* the launcher ends the others */
}

/* Plans this rank's part of the step; with a quarter of the memory and a drive if `streams`. */
static coh_plan *plan_of(const coh_graph *graph, int32_t rank_count, int streams)
{
    coh_plan_options options;
    coh_fold_shape all;
    uint64_t whole;
    coh_plan *plan;
    coh_plan_options_init(&options);
    must(coh_fold_shape_parse("2x2", &all), "shape");
    must(coh_fold_shape_divide(&all, rank_count, &options.replicas, &options.ranks), "ranks");
    options.microbatch_count = REPLICAS / rank_count;
    options.search = COH_SEARCH_QUICK;
    options.deferred_update = 1;
    options.chunk_bytes = 1 << 16;
    must(coh_plan_in_memory_bytes(graph, &options, &whole), "bytes in memory");
    if (streams) {
        options.device_memory_bytes = whole / 4;
        options.disk_bytes = UINT64_MAX;
    }
    must(coh_plan_create(graph, &options, &plan), "plan");
    return plan;
}

static uint64_t train(const coh_graph *graph, coh_world *world, int streams)
{
    const int32_t rank_count = world != NULL ? coh_world_size(world) : 1;
    const int32_t rank = world != NULL ? coh_world_rank(world) : 0;
    coh_plan *plan = plan_of(graph, rank_count, streams);
    coh_engine_options options;
    coh_engine *engine;
    uint64_t hash;
    const size_t first = (size_t)(rank * (REPLICAS / rank_count)) * TOKENS;
    coh_engine_options_init(&options);
    options.world = world;
    options.disk_folder = ".";
    must(coh_engine_create(plan, &options, &engine), "engine");
    must(coh_engine_init(engine, 3), "init");
    for (uint64_t step = 0; step < STEPS; step++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .learning_rate = 1e-2f,
                                       .clip = 0.5f,
                                       .loss_factor = 1.0f,
                                       .inputs = { tokens + first, targets + first } };
        coh_step_result result = { .struct_bytes = sizeof(result) };
        must(coh_engine_step(engine, &input, &result), "step");
    }
    must(coh_engine_hash(engine, &hash), "hash");
    if (world != NULL)
        must(coh_world_barrier(world), "barrier");
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return hash;
}

int main(int argument_count, char **arguments)
{
    const coh_world_options world_options = { .struct_bytes = sizeof(world_options) };
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 64,
                                     .positions = 48,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = COH_DTYPE_F32 };
    coh_world *world;
    coh_graph *graph;
    uint64_t hashes[REPLICAS];
    draw_tokens(tokens, targets, REPLICAS * TOKENS, VOCABULARY);
    must(coh_world_open(&world_options, &world), "world");
    must(coh_gpt2_train_graph(&config, 1, TOKENS, &graph), "graph");
    const int streams = argument_count > 1 && strcmp(arguments[1], "disk") == 0;
    const uint64_t own = train(graph, world, streams);
    must(coh_world_gather(world, &own, sizeof(own), hashes), "gather");
    if (coh_world_rank(world) == 0) {
        const uint64_t twin = train(graph, NULL, 0);
        for (int32_t rank = 0; rank < coh_world_size(world); rank++)
            if (hashes[rank] != twin) {
                (void)fprintf(stderr,
                              "rank %" PRId32 " ends with %016" PRIx64 ", one rank with %016" PRIx64
                              "\n",
                              rank, hashes[rank], twin);
                return 1;
            }
        (void)printf("%" PRId32 " ranks: %016" PRIx64 "\n", coh_world_size(world), twin);
    }
    must(coh_world_barrier(world), "last barrier");
    coh_graph_destroy(graph);
    coh_world_close(world);
    return 0;
}
