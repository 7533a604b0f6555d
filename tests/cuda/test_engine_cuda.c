/* Training on a GPU that the stub driver plays, with the host's kernels on its streams, against the
 * host device: the same losses, norms, parameters and states, bit for bit, whatever the order in
 * which streams go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "cohobate/models.h"
#include "cohobate/profile.h"
#include "engine/engine_state.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"
#include "planner/plan.h"
#include "tests/cuda/host_twins.h"
#include "tests/cuda/stub_driver.h"

enum { STEPS = 3, SEQUENCES = 2, TOKENS = 16, MICROBATCHES = 2, VOCABULARY = 65 };
#define GPU_BYTES ((uint64_t)2 << 30)
/* Commands that the driver holds where it is to be full nearly always: fewer than lines have. */
#define SHALLOW 10
#define MANY    UINT64_MAX

typedef struct outcome {
    coh_step_result steps[STEPS];
    double loss_after; /* of an evaluation */
    uint64_t hash;
} outcome;

/* What may not change a bit. */
typedef struct placement {
    const char *name;
    int device_percent; /* of the in-memory bytes; 0: no limit */
    uint64_t disk_bytes;
    int poison;
    int deferred;
} placement;

static const placement placements[] = {
    { "in memory", 0, 0, 0, 1 },          { "streamed", 45, 0, 0, 1 },
    { "streamed, poison", 45, 0, 1, 1 },  { "streamed, updates in backward", 45, 0, 0, 0 },
    { "streamed, disk", 45, MANY, 0, 1 },
};
enum { PLACEMENT_COUNT = sizeof(placements) / sizeof(placements[0]) };

static coh_graph *make_graph(coh_dtype dtype)
{
    coh_graph *graph;
    const coh_gpt2_config config = { .layers = 3,
                                     .heads = 2,
                                     .channels = 32,
                                     .positions = TOKENS,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = dtype };
    assert_int_equal(coh_gpt2_train_graph(&config, SEQUENCES, TOKENS, &graph), COH_OK);
    return graph;
}

/* `profile` NULL: for the host device, in memory. */
static coh_plan *make_plan(const coh_graph *graph, const coh_profile *profile, const placement *p)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    uint64_t whole = 0;
    coh_plan_options_init(&options);
    options.microbatch_count = MICROBATCHES;
    options.deferred_update = p->deferred;
    options.profile = profile;
    options.chunk_bytes = (uint64_t)1 << 16;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &whole), COH_OK);
    if (profile != NULL) {
        const uint64_t model = whole - COH_CUDA_LIBRARY_BYTES;
        options.device_memory_bytes =
            p->device_percent > 0
                ? COH_CUDA_LIBRARY_BYTES + model / 100 * (uint64_t)p->device_percent
                : GPU_BYTES / 2;
        options.emulate_host_bytes = p->disk_bytes > 0 ? model / 2 : (uint64_t)256 << 20;
        options.disk_bytes = p->disk_bytes;
    }
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s: no plan: %s", p->name, coh_last_error());
    return plan;
}

static void run_steps(coh_engine *engine, outcome *out)
{
    int32_t tokens[MICROBATCHES * SEQUENCES * TOKENS], targets[MICROBATCHES * SEQUENCES * TOKENS];
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++) {
            tokens[i] = (int32_t)coh_rng_below(7, step, 2 * i, VOCABULARY);
            targets[i] = (int32_t)coh_rng_below(7, step, 2 * i + 1, VOCABULARY);
        }
        const coh_step_input input = { .step = step,
                                       .seed = 9,
                                       .learning_rate = 1e-2f,
                                       .clip = engine->plan->options.deferred_update ? 0.5f : 0,
                                       .inputs = { tokens, targets } };
        if (coh_engine_step(engine, &input, &out->steps[step]) != COH_OK)
            fail_msg("step %d: %s", (int)step, coh_last_error());
        if (step == STEPS - 1)
            assert_int_equal(coh_engine_evaluate(engine, &input, &out->loss_after), COH_OK);
    }
    assert_int_equal(coh_engine_hash(engine, &out->hash), COH_OK);
}

static void run_on(const coh_plan *plan, const placement *p, const coh_engine_device *device,
                   outcome *out)
{
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    options.poison = p->poison;
    options.thread_count = 3; /* beside a GPU, of the host lane's updates */
    if (coh_engine_create_on(plan, &options, device, &engine) != COH_OK)
        fail_msg("%s: no engine: %s", p->name, coh_last_error());
    const uint64_t fetched_bytes = coh_stub_fetched_bytes();
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    if (p->device_percent == 0) /* what is written anew does not come from the device first */
        assert_int_equal(coh_stub_fetched_bytes(), fetched_bytes);
    run_steps(engine, out);
    coh_engine_destroy(engine);
}

static void check_equal(const placement *p, const outcome *a, const outcome *b)
{
    for (int step = 0; step < STEPS; step++) {
        if (a->steps[step].loss != b->steps[step].loss ||
            a->steps[step].grad_norm != b->steps[step].grad_norm)
            fail_msg("%s, step %d: loss %.17g and %.17g, norm %.17g and %.17g", p->name, step,
                     a->steps[step].loss, b->steps[step].loss, a->steps[step].grad_norm,
                     b->steps[step].grad_norm);
        assert_int_equal(a->steps[step].applied_count, b->steps[step].applied_count);
    }
    assert_true(a->loss_after == b->loss_after);
    assert_int_equal(a->hash, b->hash);
}

static const coh_engine_device host = { .ops = &coh_device_host };
static const coh_engine_device gpu = { .ops = &coh_device_cuda,
                                       .kernels = &host_twins,
                                       .driver = &coh_stub_driver };

/* Bytes of parameters that the host lane updates. */
static uint64_t compare(coh_dtype dtype, const placement *p, uint64_t seed)
{
    coh_graph *graph = make_graph(dtype);
    coh_profile *profile;
    outcome expected, found;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *host_plan = make_plan(graph, NULL, p), *gpu_plan = make_plan(graph, profile, p);
    run_on(host_plan, p, &host, &expected);
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_set_depth(seed % 2 == 1 ? SHALLOW : 0);
    coh_stub_start(seed);
    run_on(gpu_plan, p, &gpu, &found);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
    check_equal(p, &found, &expected);
    assert_int_equal(found.steps[STEPS - 1].peak_bytes[0], gpu_plan->layout.arena_bytes[0]);
    coh_plan_summary summary;
    coh_plan_summarize(gpu_plan, &summary);
    coh_plan_destroy(gpu_plan);
    coh_plan_destroy(host_plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
    return summary.host_update_bytes;
}

static void f32_has_the_bits_of_the_host(void **state)
{
    uint64_t host_updates = 0;
    (void)state;
    for (int i = 0; i < PLACEMENT_COUNT; i++)
        host_updates += compare(COH_DTYPE_F32, &placements[i], (uint64_t)i + 1);
    assert_true(host_updates > 0);
}

static void bf16_has_the_bits_of_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < PLACEMENT_COUNT; i++)
        (void)compare(COH_DTYPE_BF16, &placements[i], (uint64_t)i + 11);
}

/* A call of the driver fails in the midst of a step: a sentence with operator or line, and nothing
 * is left. */
static void a_failing_driver_stops_the_step(void **state)
{
    static const coh_stub_call calls[] = { COH_STUB_cuMemcpyAsync, COH_STUB_cuStreamWaitEvent,
                                           COH_STUB_cuStreamWriteValue64, COH_STUB_cuEventRecord };
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_profile *profile;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *plan = make_plan(graph, profile, &placements[1]);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        coh_engine_options options;
        coh_engine *engine;
        coh_step_result result;
        static const int32_t ids[MICROBATCHES * SEQUENCES * TOKENS];
        const coh_step_input input = { .learning_rate = 1e-2f, .inputs = { ids, ids } };
        coh_engine_options_init(&options);
        coh_stub_reset((size_t)GPU_BYTES);
        coh_stub_start(5);
        assert_int_equal(coh_engine_create_on(plan, &options, &gpu, &engine), COH_OK);
        assert_int_equal(coh_engine_init(engine, 42), COH_OK);
        coh_stub_fail_nth(calls[i], 20, CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(coh_engine_step(engine, &input, &result), COH_ERR_DEVICE);
        assert_non_null(strstr(coh_last_error(), coh_stub_call_name(calls[i])));
        assert_true(strstr(coh_last_error(), "operator '") != NULL ||
                    strstr(coh_last_error(), "line ") != NULL);
        assert_int_equal(coh_engine_step(engine, &input, &result), COH_ERR_DEVICE);
        coh_engine_destroy(engine);
        coh_stub_stop();
        assert_int_equal(coh_stub_live_count(), 0);
    }
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

static void a_plan_of_another_device_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_plan *plan = make_plan(graph, NULL, &placements[0]);
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    assert_int_equal(coh_engine_create_on(plan, &options, &gpu, &engine), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "plan with a profile of the device"));
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_has_the_bits_of_the_host),
        cmocka_unit_test(bf16_has_the_bits_of_the_host),
        cmocka_unit_test(a_failing_driver_stops_the_step),
        cmocka_unit_test(a_plan_of_another_device_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
