/* Numbers of a plan's options without the plan: the least step, the least bytes written, the memory
 * of a step that keeps everything. The idea: each is the least over the rank patterns and sweep
 * orders that the options leave open. Interface: cohobate/plan.h and plan_make.h. */
#include "base/check.h"
#include "planner/live.h"
#include "planner/plan_make.h"
#include "planner/rank_choice.h"
#include "planner/schedule.h"
#include "planner/search.h"

static coh_status least_written(const coh_graph *graph, const coh_plan_options *options,
                                uint64_t enough, uint64_t *out_bytes)
{
    (void)enough;
    coh_plan_options each = *options;
    const int any_order = each.sweep_order == COH_SWEEP_AUTO;
    for (int i = 0; i < 1 + any_order; i++) {
        coh_plan *plan = NULL;
        if (any_order)
            each.sweep_order = i == 0 ? COH_SWEEP_MICROBATCH : COH_SWEEP_LAYER;
        COH_TRY(coh_plan_open(graph, &each, &plan));
        const coh_status status = coh_plan_search(plan);
        const uint64_t bytes = plan->least_worn_bytes;
        coh_plan_destroy(plan);
        if (status != COH_OK && status != COH_ERR_FULL)
            return status;
        if (bytes > 0 && (*out_bytes == 0 || bytes < *out_bytes))
            *out_bytes = bytes;
    }
    return COH_OK;
}

coh_status coh_plan_least_written(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t *out_bytes)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_bytes);
    *out_bytes = 0;
    coh_plan_options next_to_none;
    COH_TRY(coh_plan_options_read(options, &next_to_none));
    next_to_none.wear_bytes = 1;
    COH_TRY(coh_plan_check_options(&next_to_none));
    next_to_none.sweep_order = coh_plan_order(graph, &next_to_none);
    return coh_rank_choice_least(graph, &next_to_none, least_written, 0, out_bytes);
}

static coh_status least_in_order(const coh_graph *graph, const coh_plan_options *options,
                                 uint64_t enough_ns, uint64_t *out_ns)
{
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_open(graph, options, &plan));
    const coh_status status = coh_plan_search_bound(plan, enough_ns, out_ns);
    coh_plan_destroy(plan);
    return status;
}

coh_status coh_plan_least_below(const coh_graph *graph, const coh_plan_options *options,
                                uint64_t enough_ns, uint64_t *out_ns)
{
    coh_plan_options each = *options;
    uint64_t other_ns = 0;
    *out_ns = 0;
    COH_TRY(coh_plan_check_options(options));
    const int keeps_bits = options->sweep_order == COH_SWEEP_SAME_BITS;
    each.sweep_order = coh_plan_order(graph, options);
    if (each.sweep_order != COH_SWEEP_AUTO)
        return coh_rank_choice_least(graph, &each, least_in_order, enough_ns, out_ns);
    each.uncalibrated |= !keeps_bits; /* as coh_plan_create */
    each.sweep_order = COH_SWEEP_LAYER;
    COH_TRY(coh_rank_choice_least(graph, &each, least_in_order, enough_ns, out_ns));
    if (*out_ns < enough_ns)
        return COH_OK;
    each.sweep_order = COH_SWEEP_MICROBATCH;
    COH_TRY(coh_rank_choice_least(graph, &each, least_in_order, enough_ns, &other_ns));
    if (other_ns < *out_ns)
        *out_ns = other_ns;
    return COH_OK;
}

coh_status coh_plan_least_ns(const coh_graph *graph, const coh_plan_options *options,
                             uint64_t *out_ns)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_ns);
    coh_plan_options known;
    *out_ns = 0;
    COH_TRY(coh_plan_options_read(options, &known));
    return coh_plan_least_below(graph, &known, 0, out_ns);
}

static coh_status in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t enough, uint64_t *out_bytes)
{
    (void)enough;
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_open(graph, options, &plan));
    coh_status status = coh_plan_search(plan);
    /* In memory, a long step takes as many bytes as its first micro-batches. */
    if (status == COH_OK)
        status = coh_schedule_build(plan->graph, &plan->options, &plan->profile, &plan->decisions,
                                    plan->folded, 1, &plan->layout, plan->programs);
    *out_bytes = plan->layout.arena_bytes[COH_TIER_DEVICE];
    if (status == COH_ERR_ARGUMENT) { /* too long a program to build */
        const coh_block_set none = coh_block_set_first(0);
        status = coh_live_bytes(graph, options, &none, COH_LIGHT_NONE, 0, out_bytes);
    }
    coh_plan_destroy(plan);
    return status;
}

coh_status coh_plan_in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                    uint64_t *out_bytes)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_bytes);
    coh_plan_options without;
    COH_TRY(coh_plan_options_read(options, &without));
    without.device_memory_bytes = UINT64_MAX;
    without.host_memory_bytes = without.disk_bytes = without.wear_bytes = 0;
    without.spare_disk_bytes = without.disk_write_bytes_per_day = 0;
    without.pin_count = 0;
    COH_TRY(coh_plan_check_options(&without));
    return coh_rank_choice_least(graph, &without, in_memory_bytes, 0, out_bytes);
}
