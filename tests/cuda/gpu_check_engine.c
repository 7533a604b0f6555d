/* An engine on a GPU: a tiny GPT-2, and a model of the kinds that any model needs, trained in
 * memory and streamed, through the library's public calls, as CUDA graphs and launched one by one.
 * All have the same bits, and losses within the bound that every architecture keeps from the host
 * device (tests/cli/test_device_cuda.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/rng.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "cohobate/profile.h"
#include "memory/library_workspace.h"
#include "tests/cuda/gpu_check.h"
#include "tests/engine/any_model.h"
#include "tests/search_length.h"

enum { STEPS = 2, SEQUENCES = 2, TOKENS = 16, MICROBATCHES = 2, VOCABULARY = 65 };
enum { IDS = MICROBATCHES * SEQUENCES * TOKENS };

typedef struct outcome {
    double losses[STEPS];
    uint64_t link_bytes; /* moved to and from the GPU in all steps */
    uint64_t hash;
} outcome;

/* A model and its training. */
typedef struct model {
    coh_dtype dtype;
    enum { GPT2, CLASSES, NUMBERS } of;
    uint64_t chunk_bytes, streamed_percent;
    double bound; /* of losses from the host's */
} model;

static coh_graph *make_graph(const model *m)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 32,
                                     .positions = TOKENS,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = m->dtype };
    coh_graph *graph;
    if (m->of != GPT2)
        return any_model_graph(m->dtype, m->of == CLASSES);
    assert_int_equal(coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, &graph), COH_OK);
    return graph;
}

/* Makes a plan; `profile` NULL: for the host. `percent`: of the in-memory bytes, in addition to
 * those of the libraries. */
static coh_plan *make_plan(const coh_graph *graph, const model *m, const coh_profile *profile,
                           uint64_t percent)
{
    coh_plan_options options;
    coh_plan *plan;
    uint64_t whole;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.microbatch_count = m->of == GPT2 ? MICROBATCHES : 1;
    options.deferred_update = 1;
    options.profile = profile;
    options.chunk_bytes = m->chunk_bytes;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &whole), COH_OK);
    if (profile != NULL) {
        const uint64_t own = whole - COH_CUDA_LIBRARY_BYTES;
        options.device_memory_bytes = COH_CUDA_LIBRARY_BYTES + own / 100 * percent;
        options.host_memory_bytes = percent < 100 ? (uint64_t)64 << 20 : 0;
    }
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("no plan: %s", coh_last_error());
    return plan;
}

static void train(const model *m, coh_engine *engine, outcome *out)
{
    static int32_t ids[2][IDS];
    static any_model_data data;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    any_model_fill(&data, m->dtype, m->of == CLASSES);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < IDS; i++) {
            ids[0][i] = (int32_t)coh_rng_below(7, step, 2 * i, VOCABULARY);
            ids[1][i] = (int32_t)coh_rng_below(7, step, 2 * i + 1, VOCABULARY);
        }
        const coh_step_input input = {
            .struct_bytes = sizeof(input),
            .step = step,
            .seed = 9,
            .learning_rate = 1e-2f,
            .clip = 0.5f,
            .inputs = { m->of == GPT2 ? (void *)ids[0] : data.x,
                        m->of == GPT2 ? (void *)ids[1] : data.targets },
        };
        if (coh_engine_step(engine, &input, &result) != COH_OK)
            fail_msg("step %d: %s", (int)step, coh_last_error());
        out->losses[step] = result.loss;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            out->link_bytes += result.link_bytes[lane];
    }
}

static outcome run(const model *m, const coh_plan *plan, const char *device)
{
    coh_engine_options options;
    coh_engine *engine;
    outcome found = { 0 };
    coh_engine_options_init(&options);
    options.device = device;
    if (coh_engine_create(plan, &options, &engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    train(m, engine, &found);
    if (coh_engine_hash(engine, &found.hash) != COH_OK)
        fail_msg("no hash: %s", coh_last_error());
    coh_engine_destroy(engine);
    return found;
}

static outcome plan_and_run(const model *m, const char *device, uint64_t percent)
{
    coh_graph *graph = make_graph(m);
    coh_profile *profile = NULL;
    if (device != NULL)
        assert_int_equal(coh_profile_read("h200", &profile), COH_OK);
    coh_plan *plan = make_plan(graph, m, profile, percent);
    const outcome found = run(m, plan, device);
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
    return found;
}

static void check_equal(const outcome *a, const outcome *b)
{
    for (int step = 0; step < STEPS; step++)
        assert_true(a->losses[step] == b->losses[step]);
    assert_int_equal(a->hash, b->hash);
}

static void compare(const model *m)
{
    const outcome host = plan_and_run(m, NULL, 0);
    const outcome whole = plan_and_run(m, "cuda:0", 110);
    const outcome streamed = plan_and_run(m, "cuda:0", m->streamed_percent);
    assert_int_equal(whole.link_bytes, 0);
    assert_true(streamed.link_bytes > 0);
    for (int step = 0; step < STEPS; step++) {
        const double off = whole.losses[step] - host.losses[step];
        if (!((off < 0 ? -off : off) <= m->bound * host.losses[step]))
            fail_msg("step %d: loss %.9g, on the host %.9g", step, whole.losses[step],
                     host.losses[step]);
    }
    check_equal(&streamed, &whole);
    if (m->of == GPT2) /* which device_cuda_program runs without graphs */
        return;
    assert_int_equal(setenv("COH_CUDA_GRAPHS", "none", 1), 0);
    const outcome launched = plan_and_run(m, "cuda:0", 110);
    assert_int_equal(unsetenv("COH_CUDA_GRAPHS"), 0);
    check_equal(&launched, &whole);
}

static void streamed_training_in_f32_has_the_bits_of_training_in_memory(void **state)
{
    (void)state;
    compare(&(model){ COH_DTYPE_F32, GPT2, 1 << 16, 45, 2e-5 });
}

static void streamed_training_in_bf16_has_the_bits_of_training_in_memory(void **state)
{
    (void)state;
    compare(&(model){ COH_DTYPE_BF16, GPT2, 1 << 16, 45, 2e-2 });
}

static void the_kinds_of_any_model_train_alike_streamed_and_without_graphs(void **state)
{
    (void)state;
    compare(&(model){ COH_DTYPE_F32, CLASSES, 4096, 75, 2e-5 });
    compare(&(model){ COH_DTYPE_F32, NUMBERS, 4096, 75, 2e-5 });
    compare(&(model){ COH_DTYPE_BF16, CLASSES, 4096, 75, 2e-2 });
    compare(&(model){ COH_DTYPE_BF16, NUMBERS, 4096, 75, 2e-2 });
}

int gpu_check_engine(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_training_in_f32_has_the_bits_of_training_in_memory),
        cmocka_unit_test(streamed_training_in_bf16_has_the_bits_of_training_in_memory),
        cmocka_unit_test(the_kinds_of_any_model_train_alike_streamed_and_without_graphs),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
