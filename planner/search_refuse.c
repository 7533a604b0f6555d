/* Reports why a plan's search finds nothing: bytes that lack under any decisions are known before
 * it, the least that would do after it. Interface: search_refuse.h; the sentences are made in
 * base/refusal_text.c. */
#include "planner/search_refuse.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/refusal.h"
#include "planner/fold.h"
#include "planner/in_memory.h"
#include "planner/initial.h"
#include "planner/layout.h"
#include "planner/live.h"
#include "planner/neighbours.h"
#include "planner/pins.h"
#include "planner/schedule.h"

uint64_t coh_survivor_room(const coh_plan_options *o)
{
    uint64_t room = 0;
    if (o->disk_bytes > 0)
        return o->disk_bytes;
    return __builtin_add_overflow(o->device_memory_bytes, o->host_memory_bytes, &room) ? UINT64_MAX
                                                                                       : room;
}

/* Adds what all refusals of a plan have. */
static coh_status refuse_as(const coh_plan *plan, coh_refusal *refusal)
{
    refusal->is_gpu = plan->profile.device_kind != COH_DEVICE_HOST;
    refusal->microbatch_count = plan->options.microbatch_count;
    return coh_refuse(refusal);
}

static uint64_t room_of(const coh_plan_options *o, coh_tier tier)
{
    return tier == COH_TIER_DISK ? o->disk_bytes : o->host_memory_bytes;
}

coh_status coh_search_check_survivors(const coh_plan *plan)
{
    const coh_plan_options *o = &plan->options;
    const uint64_t bytes = plan->survivor_bytes, room = coh_survivor_room(o);
    const coh_tier tier = o->disk_bytes > 0 ? COH_TIER_DISK : COH_TIER_HOST;
    if (bytes <= room)
        return COH_OK;
    coh_refusal refusal = tier == COH_TIER_DISK
                              ? coh_refusal_bytes(COH_REFUSAL_STATES, tier, room, bytes)
                              : coh_refusal_bytes(COH_REFUSAL_ALL_TIERS, -1, room, bytes);
    refusal.is_least = refusal.is_proven = 1;
    coh_refusal_raise(&refusal, tier, room_of(o, tier) + (bytes - room));
    refusal.changes[0].is_least = 1;
    return refuse_as(plan, &refusal);
}

static int compare_far(const void *x, const void *y)
{
    const coh_candidate *a = x, *b = y;
    if (a->far_bytes != b->far_bytes)
        return a->far_bytes < b->far_bytes ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

coh_status coh_search_note_least_far(coh_candidates *candidates, coh_plan *plan)
{
    coh_candidate *all = candidates->all;
    const int32_t counts_all = plan->counts_all;
    uint64_t effort = 0; /* of those built; a long program is not built again for fewer bytes */
    plan->least_far_bytes = 0;
    if (coh_plan_has_spare(&plan->options) || candidates->least_worn_bytes > 0)
        return COH_OK; /* nobody reads the refusal */
    plan->counts_all = 1;
    if (candidates->count > 1)
        qsort(all, candidates->count, sizeof(*all), compare_far);
    for (size_t i = 0; i < candidates->count; i++) {
        coh_candidate whole;
        if (all[i].far_bytes == 0)
            continue;
        if (plan->least_far_bytes > 0 &&
            (all[i].far_bytes >= plan->least_far_bytes || effort > COH_QUICK_EFFORT_MOST))
            break;
        COH_TRY(coh_candidate_make(plan, &all[i].decisions, &whole));
        effort += whole.effort;
        if (whole.far_bytes == 0 ||
            (plan->least_far_bytes > 0 && whole.far_bytes >= plan->least_far_bytes))
            continue;
        plan->least_far_bytes = whole.far_bytes;
        plan->far_refusal.struct_bytes = sizeof(plan->far_refusal);
        (void)coh_last_refusal(&plan->far_refusal);
    }
    if (plan->least_far_bytes == 0)
        plan->counts_all = counts_all;
    return COH_OK;
}

/* Adds what leaves a step more room. */
static void raise_memory(const coh_plan *plan, coh_refusal *refusal)
{
    coh_refusal_raise(refusal, COH_TIER_DEVICE, 0);
    if (plan->options.host_memory_bytes > 0)
        coh_refusal_raise(refusal, COH_TIER_HOST, 0);
}

/* Refuses wear_bytes, with the bytes that a step has to write. A larger drive does not help. */
static coh_status refuse_wear(const coh_plan *plan)
{
    const uint64_t worn = plan->least_worn_bytes;
    coh_refusal refusal =
        coh_refusal_bytes(COH_REFUSAL_SEARCH, COH_TIER_DISK, plan->options.wear_bytes, worn);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_WEAR, worn);
    raise_memory(plan, &refusal);
    if (plan->options.pin_count > 0)
        coh_refusal_add(&refusal, COH_CHANGE_DROP_PIN, 0);
    return refuse_as(plan, &refusal);
}

/* Refuses without a number, since nothing was found that fits. */
static coh_status refuse_search(const coh_plan *plan)
{
    coh_refusal refusal = coh_refusal_make(COH_REFUSAL_SEARCH);
    raise_memory(plan, &refusal);
    if (plan->options.disk_bytes > 0)
        coh_refusal_raise(&refusal, COH_TIER_DISK, 0);
    else
        coh_refusal_add(&refusal, COH_CHANGE_ADD_DISK, 0);
    if (plan->options.pin_count > 0)
        coh_refusal_add(&refusal, COH_CHANGE_DROP_PIN, 0);
    return refuse_as(plan, &refusal);
}

/* Refuses for lack of another tier than the device. The schedule gives the reason: the one that
 * needs the least of that tier, which was built before, else one of the least device memory. */
static coh_status refuse_far(const coh_plan *plan)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_effort effort;
    uint64_t chunk_bytes = 0;
    if (plan->least_worn_bytes > 0)
        return refuse_wear(plan); /* the tiers are large enough */
    if (plan->least_far_bytes > 0)
        return coh_refuse(&plan->far_refusal);
    if (coh_plan_has_spare(&plan->options))
        return refuse_search(plan); /* nobody reads it */
    COH_TRY(coh_initial_chunk(plan, &chunk_bytes));
    const coh_decisions decisions = { .device_bytes =
                                          coh_bytes_whole_pages(plan->options.device_memory_bytes),
                                      .chunk_bytes = chunk_bytes,
                                      .row_passes = COH_ROW_PASSES_MOST,
                                      .slices = COH_SLICES_MOST,
                                      .patterns = coh_pattern_choose(COH_SLICES_MOST),
                                      .horizon = COH_HORIZON_USUAL };
    COH_TRY(coh_effort_of(plan->graph, &plan->options, &decisions, &effort));
    if (coh_effort_is_bearable(&effort)) {
        COH_TRY(coh_schedule_build(plan->graph, &plan->options, &plan->profile, &decisions, 0,
                                   plan->counts_all, &layout, programs));
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
            coh_program_fini(&programs[kind]);
        coh_layout_fini(&layout);
    }
    return refuse_search(plan);
}

/* A decision made by hand, and the change that leaves it to the planner. */
typedef struct by_hand {
    int is_made;
    uint32_t bit;
    coh_change_kind change;
    coh_plan_options without;
} by_hand;

/* Records the decisions made by hand, and as changes those without which the bound is lower. */
static coh_status note_by_hand(const coh_plan *plan, coh_refusal *refusal)
{
    const coh_plan_options *o = &plan->options;
    by_hand all[] = { { o->chunk_bytes > 0, COH_BY_HAND_CHUNK, COH_CHANGE_DROP_CHUNK, *o },
                      { o->recompute != COH_RECOMPUTE_AUTO && o->mode == COH_PLAN_TRAIN,
                        COH_BY_HAND_RECOMPUTE, COH_CHANGE_DROP_RECOMPUTE, *o },
                      { o->pin_count > 0, COH_BY_HAND_PINS, COH_CHANGE_DROP_PINS, *o } };
    all[0].without.chunk_bytes = 0;
    all[1].without.recompute = COH_RECOMPUTE_AUTO;
    all[2].without.pin_count = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_plan other = *plan;
        coh_decisions unused;
        if (!all[i].is_made)
            continue;
        refusal->by_hand |= all[i].bit;
        other.options = all[i].without;
        COH_TRY(coh_initial_smallest(&other, NULL, &unused));
        if (other.smallest_device_bytes < plan->smallest_device_bytes)
            coh_refusal_add(refusal, all[i].change, other.smallest_device_bytes);
    }
    return COH_OK;
}

/* Names the operator that needs the most in the decisions of the least memory. */
static coh_status note_operator(const coh_plan *plan, coh_refusal *refusal)
{
    coh_plan again = *plan;
    coh_decisions smallest;
    uint64_t bytes;
    int32_t op;
    COH_TRY(coh_initial_smallest(&again, NULL, &smallest));
    COH_TRY(coh_schedule_bound(plan->graph, &plan->options, &smallest, &bytes, &op));
    if (op >= 0)
        snprintf(refusal->operator_name, sizeof(refusal->operator_name), "%s",
                 plan->graph->ops[op].name);
    return COH_OK;
}

/* Refuses a budget below the need of any schedule. */
static coh_status refuse_device(const coh_plan *plan)
{
    const uint64_t least = plan->smallest_device_bytes;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_STEP, COH_TIER_DEVICE,
                                            plan->options.device_memory_bytes, least);
    refusal.is_least = 1;
    refusal.is_proven = plan->smallest_is_proven;
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, least);
    refusal.changes[0].is_least = 1;
    COH_TRY(note_by_hand(plan, &refusal));
    COH_TRY(note_operator(plan, &refusal));
    return refuse_as(plan, &refusal);
}

coh_status coh_search_shortest_effort(const coh_plan *plan, coh_effort *out)
{
    int32_t choices[COH_INITIAL_CHOICES];
    coh_decisions decisions;
    COH_TRY(coh_in_memory_decisions(plan, &decisions));
    if (coh_plan_has_far(&plan->options) &&
        plan->survivor_bytes > plan->options.device_memory_bytes) {
        decisions.in_memory = 0;
        COH_TRY(coh_initial_chunk(plan, &decisions.chunk_bytes));
    }
    (void)coh_initial_choices(plan, choices);
    decisions.recompute = coh_block_set_first(choices[0]);
    return coh_effort_of(plan->graph, &plan->options, &decisions, out);
}

static coh_status refuse_length(const coh_plan *plan)
{
    coh_effort effort;
    COH_TRY(coh_search_shortest_effort(plan, &effort));
    COH_TRY(coh_effort_refuse(&effort, &plan->options));
    coh_refusal refusal = coh_refusal_length(COH_UNIT_INSTRUCTIONS, 0, 0);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_MICROBATCH, 0);
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, 0);
    coh_refusal_add(&refusal, COH_CHANGE_LOWER_BATCH, 0);
    return refuse_as(plan, &refusal);
}

/* Checks the bytes that exist at once in a step, under any decisions, against all tiers together. A
 * short program is left to the search, which finds exact numbers. */
static coh_status check_live_room(const coh_plan *plan, const coh_effort *shortest)
{
    const coh_plan_options *o = &plan->options;
    const int32_t blocks = o->recompute == COH_RECOMPUTE_NONE || o->mode != COH_PLAN_TRAIN
                               ? 0
                               : coh_graph_block_count(plan->graph);
    const coh_block_set recompute = coh_block_set_first(blocks);
    const coh_tier outermost = o->disk_bytes > 0 ? COH_TIER_DISK : COH_TIER_HOST;
    uint64_t live = 0, room = o->device_memory_bytes;
    if (!coh_plan_has_far(o) || coh_effort_sum(shortest) <= COH_SHORT_EFFORT)
        return COH_OK;
    if (__builtin_add_overflow(room, o->host_memory_bytes, &room) ||
        __builtin_add_overflow(room, o->disk_bytes, &room))
        return COH_OK;
    COH_TRY(coh_live_bytes(plan->graph, o, &recompute, COH_LIGHT_NONE,
                           o->recompute == COH_RECOMPUTE_AUTO, &live));
    if (live <= room)
        return COH_OK;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_ALL_TIERS, -1, room, live);
    refusal.is_least = refusal.is_proven = 1;
    if (o->recompute == COH_RECOMPUTE_NONE)
        refusal.by_hand |= COH_BY_HAND_RECOMPUTE;
    coh_refusal_raise(&refusal, outermost, room_of(o, outermost) + (live - room));
    refusal.changes[0].is_least = 1;
    coh_refusal_add(&refusal, COH_CHANGE_LOWER_MICROBATCH, 0);
    if (o->recompute == COH_RECOMPUTE_NONE)
        coh_refusal_add(&refusal, COH_CHANGE_DROP_RECOMPUTE, 0);
    return refuse_as(plan, &refusal);
}

/* Checks the device bytes of a single instruction, with few micro-batches, since all have the same
 * instructions. */
static coh_status check_device(const coh_plan *plan)
{
    enum { FEW = 3 };
    coh_plan few = *plan;
    coh_decisions unused;
    few.options = coh_few_microbatches(&plan->options, FEW);
    COH_TRY(coh_initial_smallest(&few, NULL, &unused));
    return few.options.device_memory_bytes < few.smallest_device_bytes ? refuse_device(&few)
                                                                       : COH_OK;
}

coh_status coh_search_check_size(coh_plan *plan)
{
    coh_effort shortest;
    COH_TRY(coh_search_shortest_effort(plan, &shortest));
    plan->folded = coh_fold_count(plan, &shortest);
    COH_TRY(check_live_room(plan, &shortest));
    if (!coh_effort_is_bearable(&shortest) && coh_plan_has_far(&plan->options))
        COH_TRY(check_device(plan));
    return coh_effort_refuse(&shortest, &plan->options);
}

/* Compares the budget with the bound that holds with a disk, however large: below it a search with
 * a disk is refused, too. */
static coh_status disk_can_help(const coh_plan *plan, int *out_can)
{
    coh_plan with_disk = *plan;
    coh_decisions unused;
    with_disk.options.disk_bytes = UINT64_MAX;
    COH_TRY(coh_initial_smallest(&with_disk, NULL, &unused));
    *out_can = plan->options.device_memory_bytes >= with_disk.smallest_device_bytes;
    return COH_OK;
}

static coh_status refuse_in_memory(const coh_plan *plan, const coh_candidate *in_memory)
{
    int disk_helps = 0;
    COH_TRY(disk_can_help(plan, &disk_helps));
    coh_refusal refusal =
        coh_refusal_bytes(COH_REFUSAL_IN_MEMORY, COH_TIER_DEVICE, plan->options.device_memory_bytes,
                          in_memory->device_bytes);
    refusal.is_least = in_memory->is_refused;
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, in_memory->device_bytes);
    refusal.changes[0].is_least = in_memory->is_refused;
    if (disk_helps)
        coh_refusal_add(&refusal, COH_CHANGE_ADD_DISK, 0);
    return refuse_as(plan, &refusal);
}

coh_status coh_search_refuse(const coh_plan *plan, const coh_candidate *in_memory)
{
    const coh_decisions least = { .chunk_bytes = plan->options.chunk_bytes
                                                     ? plan->options.chunk_bytes
                                                     : COH_GRAIN_ELEMENTS * sizeof(float),
                                  .row_passes = COH_ROW_PASSES_MOST,
                                  .slices = COH_SLICES_MOST,
                                  .patterns = coh_pattern_choose(COH_SLICES_MOST) };
    if (coh_plan_has_far(&plan->options))
        COH_TRY(coh_pins_blame(plan->graph, &plan->options, &least));
    if (!coh_plan_has_far(&plan->options) &&
        in_memory->device_bytes <= plan->options.device_memory_bytes)
        return refuse_length(plan);
    if (!coh_plan_has_far(&plan->options))
        return refuse_in_memory(plan, in_memory);
    if (plan->options.device_memory_bytes < plan->smallest_device_bytes)
        return refuse_device(plan);
    return refuse_far(plan);
}
