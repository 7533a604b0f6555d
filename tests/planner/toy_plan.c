#include "tests/planner/toy_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

coh_plan_options toy_plan_options(const coh_graph *graph, const toy_tiers *tiers)
{
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 2,
                                 .microbatch_count = tiers->microbatches,
                                 .deferred_update = tiers->deferred,
                                 .sweep_order = tiers->order,
                                 .kernel_path = "toy" };
    uint64_t memory = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = memory / 100 * (uint64_t)tiers->percent;
    options.emulate_host = 1;
    options.host_memory_bytes = tiers->disk ? memory / 2 : 4 * memory;
    options.disk_bytes = tiers->disk ? UINT64_MAX : 0;
    return options;
}

coh_status toy_plan_make(const coh_graph *graph, const coh_plan_options *options,
                         const coh_decisions *decisions, coh_plan **out_plan)
{
    assert_int_equal(coh_plan_open(graph, options, out_plan), COH_OK);
    coh_decisions *all = &(*out_plan)->decisions;
    *all = *decisions;
    all->device_bytes = options->device_memory_bytes & ~4095ull;
    all->chunk_bytes = 65536;
    all->row_passes = 4;
    all->patterns = coh_pattern_choose(1);
    all->patient = 1;
    all->horizon = 16;
    return coh_plan_finish(*out_plan);
}
