#include "tests/cuda/engine_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"
#include "planner/plan_make.h"
#include "tests/cuda/host_twins.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { VOCABULARY = 65 };

const coh_engine_device trial_host = { .ops = &coh_device_host };
const coh_engine_device trial_gpu = { .ops = &coh_device_cuda,
                                      .kernels = &host_twins,
                                      .driver = &coh_stub_driver };

/* ---- graph and plan ---- */

coh_graph *trial_graph(coh_dtype dtype, int layers)
{
    coh_graph *graph;
    const coh_gpt2_config config = { .layers = layers,
                                     .heads = 2,
                                     .channels = 32,
                                     .positions = TRIAL_TOKENS,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = dtype };
    assert_int_equal(coh_gpt2_train_graph(&config, TRIAL_SEQUENCES, TRIAL_TOKENS, &graph), COH_OK);
    return graph;
}

/* Replaces the plan by one with the updates of the last block on the host lane. */
static coh_plan *put_updates(coh_plan *from, const coh_graph *graph)
{
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_open(graph, &from->options, &plan), COH_OK);
    plan->decisions = from->decisions;
    plan->decisions.host_updates = 1;
    if (coh_plan_finish(plan) != COH_OK)
        fail_msg("no plan with updates on the host: %s", coh_last_error());
    coh_plan_destroy(from);
    return plan;
}

coh_plan *trial_plan(const coh_graph *graph, const coh_profile *profile, const trial_placement *p)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    uint64_t whole = 0;
    coh_plan_options_init(&options);
    options.microbatch_count = p->microbatches > 0 ? p->microbatches : TRIAL_MICROBATCHES;
    options.deferred_update = p->deferred;
    options.f32_gradients = p->f32_gradients;
    options.profile = profile;
    options.chunk_bytes = (uint64_t)1 << 16;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &whole), COH_OK);
    if (profile != NULL) {
        const uint64_t model = whole - COH_CUDA_LIBRARY_BYTES;
        options.device_memory_bytes =
            p->device_percent > 0
                ? COH_CUDA_LIBRARY_BYTES + model / 100 * (uint64_t)p->device_percent
                : TRIAL_GPU_BYTES / 2;
        options.host_memory_bytes = p->disk_bytes > 0     ? model / 2
                                    : p->host_percent > 0 ? model / 100 * (uint64_t)p->host_percent
                                    : p->device_percent > 0 ? (uint64_t)256 << 20
                                                            : 0;
        options.disk_bytes = p->disk_bytes;
    }
    /* The usual search puts updates on the host, but takes most of the time. In short a quick
     * search runs, and the last block's updates are put on the host. */
    const int is_short = test_is_brief() || (test_is_short() && !p->searches);
    const int is_quick = is_short && profile != NULL && p->device_percent > 0;
    if (is_quick)
        options.search = COH_SEARCH_QUICK;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s: no plan: %s", p->name, coh_last_error());
    return is_quick && plan->decisions.host_updates == 0 ? put_updates(plan, graph) : plan;
}

/* ---- training ---- */

coh_step_input trial_input(const coh_plan *plan, uint64_t step, trial_ids *ids)
{
    for (uint64_t i = 0; i < TRIAL_IDS; i++) {
        ids->tokens[i] = (int32_t)coh_rng_below(7, step, 2 * i, VOCABULARY);
        ids->targets[i] = (int32_t)coh_rng_below(7, step, 2 * i + 1, VOCABULARY);
    }
    return (coh_step_input){ .struct_bytes = sizeof(coh_step_input),
                             .step = step,
                             .seed = 9,
                             .learning_rate = 1e-2f,
                             .clip = plan->options.deferred_update ? 0.5f : 0,
                             .inputs = { ids->tokens, ids->targets } };
}

static uint64_t live_bytes(const coh_engine *engine, uint64_t *out_peak)
{
    coh_ledger_sums sums;
    coh_ledger_read(engine->ledger, COH_TIER_DEVICE, &sums);
    *out_peak = sums.live_peak_bytes;
    return sums.live_bytes;
}

void trial_run_steps(coh_engine *engine, trial_outcome *out)
{
    trial_ids ids;
    out->live_before = live_bytes(engine, &out->live_peak);
    for (uint64_t step = 0; step < TRIAL_STEPS; step++) {
        const coh_step_input input = trial_input(engine->plan, step, &ids);
        out->steps[step] = (coh_step_result){ .struct_bytes = sizeof(coh_step_result) };
        if (coh_engine_step(engine, &input, &out->steps[step]) != COH_OK)
            fail_msg("step %d: %s", (int)step, coh_last_error());
        if (step == TRIAL_STEPS - 1)
            assert_int_equal(coh_engine_evaluate(engine, &input, &out->loss_after), COH_OK);
    }
    assert_int_equal(coh_engine_hash(engine, &out->hash), COH_OK);
    out->live_after = live_bytes(engine, &out->live_peak);
}

void trial_run(const coh_plan *plan, const trial_placement *p, const coh_engine_device *device,
               trial_outcome *out)
{
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    options.poison = p->poison;
    options.thread_count = 3; /* next to a GPU: threads for the host lane's updates */
    if (coh_engine_create_on(plan, &options, device, &engine) != COH_OK)
        fail_msg("%s: no engine: %s", p->name, coh_last_error());
    const uint64_t fetched_bytes = coh_stub_fetched_bytes();
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    if (p->device_percent == 0) /* values that are overwritten are not fetched from the device
                                 * first */
        assert_int_equal(coh_stub_fetched_bytes(), fetched_bytes);
    trial_run_steps(engine, out);
    coh_engine_destroy(engine);
}

void trial_check_equal(const trial_placement *p, const trial_outcome *a, const trial_outcome *b)
{
    for (int step = 0; step < TRIAL_STEPS; step++) {
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
