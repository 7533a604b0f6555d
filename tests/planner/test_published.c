/* Published systems, expressed as decisions: their fixed policies are among the plans that the
 * search may choose, so the search is never slower. PatrickStar and Gemini stream a whole model
 * through the device in chunks of one size and keep activations only at the blocks' borders;
 * Elixir also keeps a part of the model on the device. They update on the host, which holds the
 * states. Prices are those of a datasheet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cohobate/models.h"
#include "planner/graph.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "planner/schedule.h"
#include "tests/length.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Chunk sizes in MiB of f32 (ColossalAI's Gemini searches from 32 Mi elements of fp16 upwards;
 * PatrickStar's default is 64 Mi bytes). */
static const uint64_t chunk_sizes[] = { 64 * MIB, 128 * MIB };

typedef struct published_case {
    const char *model, *profile;
    uint64_t device_bytes;
    int32_t microbatches;
    int32_t deferred;
} published_case;

static const published_case cases[] = {
    { "opt-125m", "a100-40g", 600 * MIB, 1, 1 },
    { "opt-125m", "rtx-3090", 1200 * MIB, 4, 0 },
    /* only in full runs: larger models */
    { "opt-1.3b", "a100-40g", 4 * GIB, 1, 1 },
    { "opt-1.3b", "rtx-3090", 8 * GIB, 4, 0 },
    { "opt-2.7b", "rtx-4090", 10 * GIB, 2, 1 },
};

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* Returns the step time of fixed decisions, or UINT64_MAX if they do not fit. */
static uint64_t step_ns(const coh_plan *plan, const coh_decisions *decisions)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_simulation simulation;
    coh_status status = coh_schedule_build(plan->graph, &plan->options, &plan->profile, decisions,
                                           0, 0, &layout, programs);
    if (status == COH_ERR_FULL)
        return UINT64_MAX;
    must(status);
    must(coh_simulate_priced(&layout, &programs[COH_PROGRAM_BODY], &plan->pricer, &simulation,
                             NULL));
    coh_program_fini(&programs[COH_PROGRAM_BODY]);
    coh_layout_fini(&layout);
    return simulation.period_ns;
}

/* All blocks recomputed, chunks of one size, no prefetch; returns the time of the faster size. */
static uint64_t whole_model_ns(const coh_plan *plan, int32_t host_updates)
{
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < sizeof(chunk_sizes) / sizeof(chunk_sizes[0]); i++) {
        const coh_decisions decisions = {
            .device_bytes = plan->options.device_memory_bytes & ~(uint64_t)4095,
            .chunk_bytes = chunk_sizes[i],
            .recompute = coh_block_set_first(coh_graph_block_count(plan->graph)),
            .row_passes = 1,
            .patterns = coh_pattern_choose(1),
            .boundary = COH_BOUNDARY_FREE,
            .host_updates = host_updates
        };
        uint64_t ns = step_ns(plan, &decisions);
        best = ns < best ? ns : best;
    }
    return best;
}

static void the_search_is_never_slower_than_published_systems(void **state)
{
    (void)state;
    const size_t count = test_is_short() ? 2 : sizeof(cases) / sizeof(cases[0]);
    for (size_t i = 0; i < count; i++) {
        const published_case *c = &cases[i];
        coh_model model;
        coh_graph *graph = NULL;
        coh_profile *profile = NULL;
        coh_plan_options options;
        coh_plan *plan = NULL;
        must(coh_model_preset(c->model, 0, &model));
        coh_model_dtype_set(&model, COH_DTYPE_BF16);
        must(coh_model_train_graph(&model, 8, 256, &graph));
        must(coh_profile_read(c->profile, &profile));
        coh_plan_options_init(&options);
        options.profile = profile;
        options.device_memory_bytes = c->device_bytes;
        options.emulate_host = 1;
        options.host_memory_bytes = 1024 * GIB;
        options.microbatch_count = c->microbatches;
        options.deferred_update = c->deferred;
        must(coh_plan_create(graph, &options, &plan));
        uint64_t ours = plan->simulations[COH_PROGRAM_BODY].period_ns;
        uint64_t on_device = whole_model_ns(plan, 0);
        uint64_t on_host = whole_model_ns(plan, coh_graph_block_count(graph) + 1);
        uint64_t theirs = on_host < on_device ? on_host : on_device;
        print_message("%s on %s, %llu MiB: %.3f s a step, whole model streamed %.3f s, updated at "
                      "the host %.3f s (%.2f times)\n",
                      c->model, c->profile, (unsigned long long)(c->device_bytes / MIB),
                      (double)ours * 1e-9, (double)on_device * 1e-9, (double)on_host * 1e-9,
                      (double)theirs / (double)ours);
        assert_true(on_device < UINT64_MAX && on_host < UINT64_MAX);
        assert_true(ours <= theirs);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
        coh_profile_destroy(profile);
    }
}

/* Both sweep orders of this step take equally long once they are whole, and the search had found
 * one of them faster. */
static void a_plan_of_either_order_has_its_programs(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    must(coh_model_preset("opt-13b", 0, &model));
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    must(coh_model_train_graph(&model, 8, 2, &graph));
    must(coh_profile_read("h100", &profile));
    coh_plan_options_init(&options);
    options.profile = profile;
    options.device_memory_bytes = 223986645266;
    options.host_memory_bytes = 6748168530;
    options.microbatch_count = 2;
    options.deferred_update = 1;
    options.recompute = COH_RECOMPUTE_NONE;
    options.sweep_order = COH_SWEEP_AUTO;
    must(coh_plan_create(graph, &options, &plan));
    assert_true(plan->programs[COH_PROGRAM_BODY].instruction_count > 0);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    coh_profile_destroy(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_search_is_never_slower_than_published_systems),
        cmocka_unit_test(a_plan_of_either_order_has_its_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
