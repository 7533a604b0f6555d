#include "planner/search.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "cohobate/machine.h"
#include "planner/layout.h"
#include "planner/pins.h"
#include "planner/residency.h"
#include "planner/schedule.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

/* Passes over a split parameter's rows when memory is scarce; a call never takes less than a row
 * unit. */
enum { ROW_PASSES_MOST = 1024 };

/* Steps for which room should have stood idle before something is fetched into it: as many lines as
 * the disk lanes have in flight, together. */
enum { HORIZON = 16 };

/* What one set of decisions promises. */
typedef struct offer {
    coh_decisions decisions;
    uint64_t step_ns, link_bytes, device_bytes;
    int valid;
} offer;

/* Builds and simulates the body. Not to fit is no error: the offer is then not valid. */
static coh_status make_offer(const coh_plan *plan, const coh_decisions *decisions, offer *out_offer)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_simulation simulation = { 0 };
    *out_offer = (offer){ .decisions = *decisions };
    coh_status status = coh_schedule_build(plan->graph, &plan->options, &plan->profile, decisions,
                                           0, &layout, programs);
    if (status == COH_ERR_FULL)
        return COH_OK;
    COH_TRY(status);
    status = coh_simulate_priced(&layout, &programs[COH_PROGRAM_BODY], &plan->pricer, &simulation);
    if (status == COH_OK) {
        out_offer->step_ns = simulation.period_ns;
        out_offer->device_bytes = layout.arena_bytes[COH_TIER_DEVICE];
        out_offer->valid = out_offer->device_bytes <= plan->options.device_memory_bytes;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            out_offer->link_bytes += simulation.link_bytes[lane];
        if (plan->options.wear_bytes > 0 &&
            simulation.link_bytes[COH_LANE_WRITE] > plan->options.wear_bytes)
            out_offer->valid = 0;
    }
    coh_program_fini(&programs[COH_PROGRAM_BODY]);
    coh_layout_fini(&layout);
    return status;
}

/* Faster, or as fast with fewer bytes over the links. */
static int is_better(const offer *a, const offer *b)
{
    if (!a->valid || !b->valid)
        return a->valid;
    if (a->step_ns != b->step_ns)
        return a->step_ns < b->step_ns;
    return a->link_bytes < b->link_bytes;
}

static coh_status try_decisions(const coh_plan *plan, const coh_decisions *decisions, offer *best)
{
    offer o;
    COH_TRY(make_offer(plan, decisions, &o));
    if (is_better(&o, best))
        *best = o;
    return COH_OK;
}

/* ---- choices ---- */

/* How many of the first blocks to recompute: the choices that the options leave, fewest first. */
enum { RECOMPUTE_CHOICES = 5 };
static int recompute_choices(const coh_plan *plan, int32_t *choices)
{
    int32_t blocks = plan->options.mode == COH_PLAN_TRAIN ? coh_graph_block_count(plan->graph) : 0;
    int count = 0;
    if (plan->options.recompute == COH_RECOMPUTE_ALL || blocks == 0) {
        choices[count++] = plan->options.recompute == COH_RECOMPUTE_ALL ? blocks : 0;
        return count;
    }
    choices[count++] = 0;
    for (int quarter = 1; plan->options.recompute == COH_RECOMPUTE_AUTO && quarter <= 4; quarter++)
        if (blocks * quarter / 4 > choices[count - 1])
            choices[count++] = blocks * quarter / 4;
    return count;
}

/* Has any operator a cache to give room to? */
static int has_caches(const coh_plan *plan)
{
    int some = 0;
    for (size_t i = 0; plan->options.mode == COH_PLAN_TRAIN && i < plan->graph->op_count; i++)
        some |= plan->graph->ops[i].facts.cache_bytes > 0;
    return some;
}

/* The largest power of two of at most 1/128 of the budget, from 256 KiB to 256 MiB: about a hundred
 * chunks at once are enough for a choice of victims, and more lines cost planning time. */
static uint64_t usual_chunk(const coh_plan *plan)
{
    uint64_t bytes = 256 * KIB;
    if (plan->options.chunk_bytes > 0)
        return plan->options.chunk_bytes;
    while (bytes < 256 * MIB && bytes * 2 <= plan->options.device_memory_bytes / 128)
        bytes *= 2;
    return bytes;
}

static int has_far(const coh_plan_options *options)
{
    return options->emulate_host_bytes > 0 || options->disk_bytes > 0;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return bytes & ~(uint64_t)(COH_PAGE_BYTES - 1);
}

/* Bytes of what stands somewhere between steps, but for what is pinned. */
static coh_status count_survivors(const coh_plan *plan, uint64_t *out_bytes)
{
    coh_layout layout;
    coh_object_map map;
    *out_bytes = 0;
    COH_TRY(coh_layout_build(plan->graph, &plan->options, 256 * MIB, 0, &layout, &map));
    for (uint32_t i = 0; i < layout.object_count; i++)
        if (layout.objects[i].survives && !layout.objects[i].pinned)
            *out_bytes += layout.objects[i].bytes;
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    return COH_OK;
}

/* ---- in memory ---- */

/* 8 MiB; of the largest models more, so that there are not many more than 4,096. */
static uint64_t in_memory_chunk(const coh_plan *plan, uint64_t survivor_bytes)
{
    uint64_t bytes = 8 * MIB;
    while (bytes < 256 * MIB && bytes * 4096 < survivor_bytes)
        bytes *= 2;
    return plan->options.chunk_bytes ? plan->options.chunk_bytes : bytes;
}

/* Everything on the device: first without, then with recomputation of ever more blocks, until it
 * fits. *out_smallest: the least that any of them takes; with room for anything, that of the
 * fastest. */
static coh_status try_in_memory(const coh_plan *plan, uint64_t survivor_bytes, offer *best,
                                uint64_t *out_smallest)
{
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    *out_smallest = UINT64_MAX;
    int caches = has_caches(plan);
    if (plan->options.device_memory_bytes == UINT64_MAX)
        count = 1;
    for (int i = 0; i < count * (1 + caches); i++) {
        coh_decisions decisions = { .device_bytes = UINT64_MAX,
                                    .chunk_bytes = in_memory_chunk(plan, survivor_bytes),
                                    .in_memory = 1,
                                    .cache = i >= count,
                                    .recompute = coh_block_set_first(choices[i % count]),
                                    .row_passes = 1 };
        offer o;
        COH_TRY(make_offer(plan, &decisions, &o));
        if (o.device_bytes > 0 && o.device_bytes < *out_smallest)
            *out_smallest = o.device_bytes;
        if (is_better(&o, best))
            *best = o;
    }
    return COH_OK;
}

/* ---- streamed ---- */

/* The decisions that need the fewest device bytes, and how many: no schedule of ours is below. */
static coh_status find_smallest(coh_plan *plan, coh_decisions *out_decisions)
{
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    plan->smallest_device_bytes = UINT64_MAX;
    plan->smallest_is_proven = 1;
    for (int i = 0; i < count; i++) {
        coh_decisions decisions = { .chunk_bytes =
                                        plan->options.chunk_bytes
                                            ? plan->options.chunk_bytes
                                            : (uint64_t)COH_GRAIN_ELEMENTS * sizeof(float),
                                    .recompute = coh_block_set_first(choices[i]),
                                    .row_passes = ROW_PASSES_MOST };
        uint64_t bytes = 0;
        COH_TRY(coh_schedule_bound(plan->graph, &plan->options, &decisions, &bytes));
        if (bytes < plan->smallest_device_bytes) {
            plan->smallest_device_bytes = bytes;
            *out_decisions = decisions;
            out_decisions->device_bytes = bytes;
        }
    }
    return COH_OK;
}

static coh_status vary_chunks(const coh_plan *plan, offer *best)
{
    uint64_t usual = usual_chunk(plan);
    const uint64_t sizes[] = { usual / 2, 2 * usual, 4 * usual };
    for (size_t i = 0; plan->options.chunk_bytes == 0 && i < 3; i++) {
        coh_decisions d = best->decisions;
        d.chunk_bytes = sizes[i];
        COH_TRY(try_decisions(plan, &d, best));
    }
    return COH_OK;
}

static coh_status vary_recompute(const coh_plan *plan, offer *best)
{
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    for (int i = 1; i + 1 < count; i++) {
        coh_decisions d = best->decisions;
        d.recompute = coh_block_set_first(choices[i]);
        COH_TRY(try_decisions(plan, &d, best));
    }
    return COH_OK;
}

static coh_status flip_cache(const coh_plan *plan, offer *best)
{
    coh_decisions d = best->decisions;
    d.cache = !d.cache;
    return has_caches(plan) ? try_decisions(plan, &d, best) : COH_OK;
}

static coh_status vary_places(const coh_plan *plan, offer *best)
{
    static const int32_t horizons[] = { HORIZON / 4, HORIZON * 3, 0 };
    for (int boundary = COH_BOUNDARY_FREE; boundary < COH_BOUNDARY_COUNT; boundary++)
        for (int patient = 0; patient < 2; patient++) {
            coh_decisions d = best->decisions;
            if (boundary == d.boundary && patient == d.patient)
                continue;
            d.boundary = boundary;
            d.patient = patient;
            COH_TRY(try_decisions(plan, &d, best));
        }
    for (size_t i = 0; i < sizeof(horizons) / sizeof(horizons[0]); i++) {
        coh_decisions d = best->decisions;
        d.horizon = horizons[i];
        COH_TRY(try_decisions(plan, &d, best));
    }
    coh_decisions ends = best->decisions;
    ends.tie_break = COH_TIE_TWO_ENDS;
    return try_decisions(plan, &ends, best);
}

/* List scheduling is anomalous: less room can be faster. The budgets tried lie on a grid of quarter
 * octaves that does not depend on this one, so that neighbours try the same. */
static coh_status vary_budget(const coh_plan *plan, offer *best)
{
    static const uint64_t quarters[] = { 65536, 77936, 92682, 110218 }; /* 2^(16 + k/4) */
    uint64_t budget = plan->options.device_memory_bytes;
    for (int octave = 0; octave < 40; octave++)
        for (int k = 0; k < 4; k++) {
            coh_decisions d = best->decisions;
            d.device_bytes = whole_pages(quarters[k] << octave);
            if (d.device_bytes >= budget || d.device_bytes <= budget / 2 ||
                d.device_bytes < plan->smallest_device_bytes)
                continue;
            COH_TRY(try_decisions(plan, &d, best));
        }
    return COH_OK;
}

/* What survives stands in the outermost tier, whatever else is decided: too little room there is
 * said before anything is tried. */
static coh_status check_far_room(const coh_plan *plan)
{
    uint64_t bytes;
    COH_TRY(count_survivors(plan, &bytes));
    int with_disk = plan->options.disk_bytes > 0;
    uint64_t room = with_disk ? plan->options.disk_bytes : plan->options.emulate_host_bytes;
    if (bytes <= room)
        return COH_OK;
    return coh_fail(COH_ERR_FULL,
                    "parameters and optimizer states take %" PRIu64 " bytes, %s allows %" PRIu64
                    ": raise it to at least %" PRIu64 "MiB",
                    bytes, with_disk ? "--disk" : "--emulate-host", room, (bytes >> 20) + 1);
}

static coh_status search_streamed(coh_plan *plan, offer *best)
{
    static const int32_t row_passes[] = { 1, 4, ROW_PASSES_MOST };
    coh_decisions smallest = { 0 };
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    uint64_t budget = whole_pages(plan->options.device_memory_bytes);
    COH_TRY(find_smallest(plan, &smallest));
    if (budget < plan->smallest_device_bytes)
        return COH_OK;
    COH_TRY(check_far_room(plan));
    for (int k = 0; k<count; k += count> 1 ? count - 1 : 1) /* none and all */
        for (size_t i = 0; i < 3; i++) {
            coh_decisions d = { .device_bytes = budget,
                                .chunk_bytes = usual_chunk(plan),
                                .recompute = coh_block_set_first(choices[k]),
                                .row_passes = row_passes[i],
                                .patient = 1,
                                .boundary = COH_BOUNDARY_SETTLED,
                                .horizon = HORIZON };
            COH_TRY(try_decisions(plan, &d, best));
        }
    if (!best->valid) {
        smallest.device_bytes = budget;
        COH_TRY(try_decisions(plan, &smallest, best));
    }
    if (!best->valid)
        return COH_OK;
    COH_TRY(flip_cache(plan, best));
    COH_TRY(vary_places(plan, best));
    COH_TRY(vary_chunks(plan, best));
    COH_TRY(vary_recompute(plan, best));
    COH_TRY(flip_cache(plan, best));
    COH_TRY(vary_places(plan, best)); /* what is best there depends on the other two */
    return vary_budget(plan, best);
}

/* ---- refusing ---- */

/* Something else than the device is short: the schedule says what, on the decisions that need
 * least. */
static coh_status refuse_far(const coh_plan *plan)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_decisions decisions = { .device_bytes = whole_pages(plan->options.device_memory_bytes),
                                .chunk_bytes = usual_chunk(plan),
                                .row_passes = ROW_PASSES_MOST,
                                .horizon = HORIZON };
    COH_TRY(coh_schedule_build(plan->graph, &plan->options, &plan->profile, &decisions, 0, &layout,
                               programs));
    coh_program_fini(&programs[COH_PROGRAM_BODY]);
    coh_layout_fini(&layout);
    return coh_fail(COH_ERR_FULL,
                    "no plan was found within these limits, though none was proven impossible: "
                    "raise --device-memory, --disk or --emulate-host%s",
                    plan->options.pin_count > 0 ? ", or leave out a pin" : "");
}

static coh_status refuse(const coh_plan *plan, uint64_t in_memory_bytes)
{
    char budget[32], memory[32], smallest[32];
    const coh_decisions least = { .chunk_bytes = plan->options.chunk_bytes
                                                     ? plan->options.chunk_bytes
                                                     : COH_GRAIN_ELEMENTS * sizeof(float),
                                  .row_passes = ROW_PASSES_MOST };
    if (has_far(&plan->options))
        COH_TRY(coh_pins_blame(plan->graph, &plan->options, &least));
    coh_size_format(plan->options.device_memory_bytes, budget, sizeof(budget));
    coh_size_format(in_memory_bytes, memory, sizeof(memory));
    coh_size_format(plan->smallest_device_bytes, smallest, sizeof(smallest));
    if (!has_far(&plan->options))
        return coh_fail(COH_ERR_FULL,
                        "device memory: %s (%" PRIu64
                        " bytes) do not hold this step, which needs %s (%" PRIu64
                        " bytes) without a far tier: raise --device-memory to that, or give "
                        "--disk DIR",
                        budget, plan->options.device_memory_bytes, memory, in_memory_bytes);
    if (plan->options.device_memory_bytes < plan->smallest_device_bytes)
        return coh_fail(COH_ERR_FULL,
                        "device memory: %s (%" PRIu64 " bytes) are %" PRIu64
                        " bytes short: one step of this plan needs %s at once (proven: no schedule "
                        "of these operators and this micro-batch is smaller); raise "
                        "--device-memory to %" PRIu64 "B",
                        budget, plan->options.device_memory_bytes,
                        plan->smallest_device_bytes - plan->options.device_memory_bytes, smallest,
                        plan->smallest_device_bytes);
    return refuse_far(plan);
}

coh_status coh_plan_search(coh_plan *plan)
{
    offer best = { 0 };
    uint64_t in_memory_bytes = 0, survivors;
    COH_TRY(count_survivors(plan, &survivors));
    /* Where far tiers are there to be used, not to fit needs no number: the largest models take
     * long to place whole. */
    if (!coh_pins_need_far(&plan->options) &&
        (survivors <= plan->options.device_memory_bytes || !has_far(&plan->options)))
        COH_TRY(try_in_memory(plan, survivors, &best, &in_memory_bytes));
    if (best.valid && has_far(&plan->options)) {
        coh_decisions unused;
        COH_TRY(find_smallest(plan, &unused));
    } else if (best.valid || !has_far(&plan->options)) {
        plan->smallest_device_bytes = in_memory_bytes;
    }
    /* Recomputing in memory is worth comparing with streaming; keeping all is not. */
    if (has_far(&plan->options) &&
        (!best.valid || coh_block_set_count(&best.decisions.recompute) > 0))
        COH_TRY(search_streamed(plan, &best));
    if (!best.valid)
        return refuse(plan, in_memory_bytes);
    plan->decisions = best.decisions;
    return COH_OK;
}
