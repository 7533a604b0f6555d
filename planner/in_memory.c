/* Searches the fastest plan that keeps everything on the device: the fewest recomputed blocks that
 * fit, with or without light operators. The idea: nothing moves, so more recomputation only takes
 * longer. Interface: in_memory.h. */
#include "planner/in_memory.h"

#include "planner/effort.h"
#include "planner/initial.h"
#include "planner/layout.h"
#include "planner/lower_ahead.h"
#include "planner/neighbours.h"
#include "planner/rank_axes.h"

#define MIB ((uint64_t)1 << 20)

coh_status coh_in_memory_decisions(const coh_plan *plan, coh_decisions *out)
{
    *out = (coh_decisions){
        .device_bytes = UINT64_MAX,
        .chunk_bytes = 8 * MIB,
        .in_memory = 1,
        .row_passes = 1,
        .patterns = coh_pattern_choose(1),
    };
    while (out->chunk_bytes < COH_CHUNK_BYTES_MOST &&
           out->chunk_bytes * 4096 < plan->survivor_bytes)
        out->chunk_bytes *= 2;
    if (plan->options.chunk_bytes > 0) {
        out->chunk_bytes = plan->options.chunk_bytes;
        return COH_OK;
    }
    return coh_effort_raise_chunk(plan->graph, &plan->options, COH_WHOLE_OBJECTS, out);
}

/* Tries to gather work earlier than the best plan in memory does, where ranks divide it. */
static coh_status gather_earlier(const coh_plan *plan, coh_candidate *best)
{
    coh_decisions decisions = best->decisions;
    if (!coh_ranks_divide(&plan->options))
        return COH_OK;
    for (int32_t lead = 1; best->valid && lead <= COH_LEAD_MOST; lead *= 2) {
        coh_candidate candidate;
        decisions.lead = lead;
        COH_TRY(coh_candidate_make(plan, &decisions, &candidate));
        if (coh_candidate_is_better(&candidate, best))
            *best = candidate;
    }
    return COH_OK;
}

/* Finds when ranks gather work, and tries larger chunks: each exchange of a chunk has a latency, as
 * have its norm and its update on a GPU. */
static coh_status enlarge_chunks(const coh_plan *plan, coh_candidate *best)
{
    COH_TRY(gather_earlier(plan, best));
    coh_decisions decisions = best->decisions;
    const uint64_t chunk_bytes = decisions.chunk_bytes;
    while (best->valid && plan->options.chunk_bytes == 0 &&
           decisions.chunk_bytes <= COH_CHUNK_BYTES_MOST / 4) {
        coh_candidate candidate;
        decisions.chunk_bytes *= 4;
        COH_TRY(coh_candidate_make(plan, &decisions, &candidate));
        if (!coh_candidate_is_better(&candidate, best))
            break;
        *best = candidate;
    }
    return best->decisions.chunk_bytes > chunk_bytes ? gather_earlier(plan, best) : COH_OK;
}

/* Bisects between `low` recomputed blocks, which do not fit, and `high`, which may, for as few as
 * fit; improves *best. */
static coh_status bisect(const coh_plan *plan, coh_decisions decisions, int32_t low, int32_t high,
                         coh_candidate *best)
{
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        coh_candidate candidate;
        decisions.recompute = coh_block_set_first(middle);
        COH_TRY(coh_candidate_make(plan, &decisions, &candidate));
        if (coh_candidate_is_better(&candidate, best))
            *best = candidate;
        if (candidate.valid)
            high = middle;
        else
            low = middle;
    }
    return COH_OK;
}

/* Recomputes fewer blocks than the best plan in memory does: more than the next smaller one of the
 * usual choices, which did not fit. */
static coh_status recompute_fewest(const coh_plan *plan, coh_candidate *best)
{
    int32_t choices[COH_INITIAL_CHOICES], low = 0;
    const int32_t high = coh_block_set_count(&best->decisions.recompute);
    const int count = coh_initial_choices(plan, choices);
    for (int i = 0; i < count && choices[i] < high; i++)
        low = choices[i];
    return bisect(plan, best->decisions, low, high, best);
}

/* Recomputes fewer blocks than the best plan in memory does where light operators of the others run
 * again: they take less time for the bytes that they save. */
static coh_status recompute_light(const coh_plan *plan, coh_candidate *best)
{
    const int32_t high = coh_block_set_count(&best->decisions.recompute);
    coh_decisions decisions = best->decisions;
    for (decisions.light = COH_LIGHT_ELEMENTS; decisions.light < COH_LIGHT_COUNT; decisions.light++)
        COH_TRY(bisect(plan, decisions, -1, high, best));
    return COH_OK;
}

coh_status coh_in_memory_search(const coh_plan *plan, coh_candidate *best,
                                coh_candidate *out_smallest)
{
    int32_t choices[COH_INITIAL_CHOICES];
    int count = coh_initial_choices(plan, choices);
    *out_smallest = (coh_candidate){ .device_bytes = UINT64_MAX };
    coh_decisions decisions;
    COH_TRY(coh_in_memory_decisions(plan, &decisions));
    if (plan->options.device_memory_bytes == UINT64_MAX)
        count = 1;
    for (int cache = 0; cache <= coh_candidates_have_caches(plan); cache++) {
        for (int i = 0; i < count; i++) {
            coh_candidate candidate;
            decisions.cache = cache;
            decisions.recompute = coh_block_set_first(choices[i]);
            COH_TRY(coh_candidate_make(plan, &decisions, &candidate));
            if (candidate.device_bytes > 0 && candidate.device_bytes < out_smallest->device_bytes)
                *out_smallest = candidate;
            if (coh_candidate_is_better(&candidate, best))
                *best = candidate;
            if (candidate.valid && coh_plan_has_far(&plan->options))
                break;
            if (candidate.valid && i < count - 2)
                i = count - 2; /* the last is the smallest */
        }
    }
    if (plan->options.recompute == COH_RECOMPUTE_AUTO) {
        COH_TRY(recompute_fewest(plan, best));
        COH_TRY(recompute_light(plan, best));
    }
    const int has_latencies =
        plan->options.ranks.factors[0] > 1 ||
        (plan->profile.device_kind != COH_DEVICE_HOST && best->decisions.in_memory);
    return has_latencies ? enlarge_chunks(plan, best) : COH_OK;
}
