#include "planner/plan.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cohobate/machine.h"
#include "planner/fingerprint.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "planner/schedule.h"
#include "planner/verify.h"

#define MIB ((uint64_t)1 << 20)

/* Passes over a split parameter's rows when memory is scarce; a call never takes less than a row unit. */
enum { ROW_PASSES_MOST = 1024 };

/* ---- one set of decisions: built, priced, or finished ---- */

static void plan_clear(coh_plan *plan)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&plan->programs[kind]);
    coh_layout_fini(&plan->layout);
}

/* Builds, verifies and prices every program of plan->decisions. */
coh_status coh_plan_finish(coh_plan *plan)
{
    COH_TRY(coh_schedule_build(plan->graph, &plan->options, &plan->profile, &plan->decisions, 1,
                               &plan->layout, plan->programs));
    const coh_verify_options verify = { .budget_bytes = { plan->options.device_memory_bytes,
                                                          plan->options.emulate_host_bytes,
                                                          plan->options.disk_bytes },
                                        .wear_bytes = plan->options.wear_bytes };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *program = &plan->programs[kind];
        if (program->line_count == 0)
            continue;
        coh_status status = coh_verify(&plan->layout, program, &verify, NULL);
        if (status == COH_ERR_CORRUPT)
            return coh_fail_prefix(COH_ERR_INTERNAL, "the planner wrote a program that its "
                                                     "verifier refuses (please report this)");
        COH_TRY(status);
        COH_TRY(
            coh_simulate(&plan->layout, program, &plan->profile, &plan->simulations[kind], NULL));
    }
    plan->program_hash = coh_program_hash(&plan->layout, &plan->programs[COH_PROGRAM_BODY]);
    return COH_OK;
}

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
    status = coh_simulate(&layout, &programs[COH_PROGRAM_BODY], &plan->profile, &simulation, NULL);
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

/* Faster by more than the simulator can mean, or as fast with fewer bytes. */
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

/* ---- choosing ---- */

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

static int has_far(const coh_plan_options *options)
{
    return options->emulate_host_bytes > 0 || options->disk_bytes > 0;
}

/* Everything on the device: first without, then with recomputation. *best keeps the smaller one if none
 * fits. */
static coh_status try_in_memory(const coh_plan *plan, offer *best, uint64_t *out_smallest)
{
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    *out_smallest = UINT64_MAX;
    for (int i = 0; i < count && !best->valid; i++) {
        coh_decisions decisions = { .device_bytes = UINT64_MAX,
                                    .chunk_bytes =
                                        plan->options.chunk_bytes ? plan->options.chunk_bytes : MIB,
                                    .in_memory = 1,
                                    .recompute = choices[i],
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

/* The decisions that need the fewest device bytes, and how many: no schedule of ours is below. */
static coh_status find_smallest(coh_plan *plan, coh_decisions *out_decisions)
{
    plan->smallest_device_bytes = UINT64_MAX;
    plan->smallest_is_proven = 1;
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    for (int i = 0; i < count; i++) {
        uint64_t grain_bytes = (uint64_t)COH_GRAIN_ELEMENTS * sizeof(float);
        coh_decisions decisions = { .chunk_bytes = plan->options.chunk_bytes
                                                       ? plan->options.chunk_bytes
                                                       : grain_bytes,
                                    .recompute = choices[i],
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

/* Varies one decision at a time from the best so far; each list is tried whole before the next. */
static coh_status vary(const coh_plan *plan, offer *best)
{
    static const uint64_t chunk_bytes[] = { MIB / 4, 4 * MIB, 16 * MIB };
    static const int32_t horizons[] = { 4, 48, 0 };
    static const int32_t shares[] = { 90, 80, 65 }; /* percent of the budget */
    for (size_t i = 0; plan->options.chunk_bytes == 0 && i < 3; i++) {
        coh_decisions d = best->decisions;
        d.chunk_bytes = chunk_bytes[i];
        if (chunk_bytes[i] <= plan->options.device_memory_bytes / 16)
            COH_TRY(try_decisions(plan, &d, best));
    }
    for (size_t i = 0; i < 3; i++) {
        coh_decisions d = best->decisions;
        d.horizon = horizons[i];
        COH_TRY(try_decisions(plan, &d, best));
    }
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    for (int i = 1; i + 1 < count; i++) {
        coh_decisions d = best->decisions;
        d.recompute = choices[i];
        COH_TRY(try_decisions(plan, &d, best));
    }
    coh_decisions ends = best->decisions;
    ends.tie_break = COH_TIE_TWO_ENDS;
    COH_TRY(try_decisions(plan, &ends, best));
    for (size_t i = 0; i < 3; i++) {
        coh_decisions d = best->decisions;
        d.device_bytes = plan->options.device_memory_bytes / 100 * (uint64_t)shares[i] &
                         ~(uint64_t)(COH_PAGE_BYTES - 1);
        if (d.device_bytes >= plan->smallest_device_bytes)
            COH_TRY(try_decisions(plan, &d, best));
    }
    return COH_OK;
}

static coh_status search_streamed(coh_plan *plan, offer *best)
{
    static const int32_t row_passes[] = { 1, 4, ROW_PASSES_MOST };
    coh_decisions smallest = { 0 };
    COH_TRY(find_smallest(plan, &smallest));
    uint64_t budget = plan->options.device_memory_bytes & ~(uint64_t)(COH_PAGE_BYTES - 1);
    if (budget < plan->smallest_device_bytes)
        return COH_OK;
    int32_t choices[RECOMPUTE_CHOICES];
    int count = recompute_choices(plan, choices);
    for (int k = 0; k<count; k += count> 1 ? count - 1 : 1) /* none and all; vary() goes between */
        for (size_t i = 0; i < 3; i++) {
            coh_decisions d = { .device_bytes = budget,
                                .chunk_bytes =
                                    plan->options.chunk_bytes ? plan->options.chunk_bytes : MIB,
                                .recompute = choices[k],
                                .row_passes = row_passes[i],
                                .horizon = 16 };
            COH_TRY(try_decisions(plan, &d, best));
        }
    if (!best->valid) {
        smallest.device_bytes = budget;
        COH_TRY(try_decisions(plan, &smallest, best));
    }
    return best->valid ? vary(plan, best) : COH_OK;
}

static coh_status refuse(const coh_plan *plan, uint64_t in_memory_bytes)
{
    char budget[32], memory[32], smallest[32];
    coh_size_format(plan->options.device_memory_bytes, budget, sizeof(budget));
    coh_size_format(in_memory_bytes, memory, sizeof(memory));
    coh_size_format(plan->smallest_device_bytes, smallest, sizeof(smallest));
    if (!has_far(&plan->options))
        return coh_fail(
            COH_ERR_FULL,
            "device memory: %s (%" PRIu64 " bytes) do not hold this step, which needs %s (%" PRIu64
            " bytes) without a far tier: raise --device-memory to that, or give --disk DIR",
            budget, plan->options.device_memory_bytes, memory, in_memory_bytes);
    if (plan->options.device_memory_bytes < plan->smallest_device_bytes)
        return coh_fail(
            COH_ERR_FULL,
            "device memory: %s (%" PRIu64 " bytes) are %" PRIu64
            " bytes short: no plan is smaller than %s (proven: what one operator needs at "
            "once); raise --device-memory to %" PRIu64 "B",
            budget, plan->options.device_memory_bytes,
            plan->smallest_device_bytes - plan->options.device_memory_bytes, smallest,
            plan->smallest_device_bytes);
    return coh_fail(COH_ERR_FULL,
                    "no plan was found for %s (%" PRIu64
                    " bytes) of device memory, though none was "
                    "proven impossible: raise --device-memory (in memory: %" PRIu64
                    "B), --disk or --emulate-host",
                    budget, plan->options.device_memory_bytes, in_memory_bytes);
}

static coh_status decide(coh_plan *plan)
{
    offer best = { 0 };
    uint64_t in_memory_bytes = 0;
    COH_TRY(try_in_memory(plan, &best, &in_memory_bytes));
    if (best.valid && has_far(&plan->options)) {
        coh_decisions unused;
        COH_TRY(find_smallest(plan, &unused));
    } else if (best.valid || !has_far(&plan->options)) {
        plan->smallest_device_bytes = in_memory_bytes;
    }
    /* Recomputing in memory is worth comparing with streaming; keeping all is not. */
    if (has_far(&plan->options) && (!best.valid || best.decisions.recompute))
        COH_TRY(search_streamed(plan, &best));
    if (!best.valid)
        return refuse(plan, in_memory_bytes);
    plan->decisions = best.decisions;
    return COH_OK;
}

/* ---- public ---- */

static coh_status check_options(const coh_plan_options *options)
{
    if (options->struct_bytes != sizeof(*options))
        return coh_fail(COH_ERR_ARGUMENT,
                        "plan options of %u bytes, this library has %zu: call "
                        "coh_plan_options_init",
                        options->struct_bytes, sizeof(*options));
    if (options->thread_count < 1 || options->thread_count > 1024)
        return coh_fail(COH_ERR_ARGUMENT, "%d threads are not 1..1024", options->thread_count);
    if (options->microbatch_count < 1 || options->microbatch_count > 65536)
        return coh_fail(COH_ERR_ARGUMENT, "%d micro-batches are not 1..65536",
                        options->microbatch_count);
    if (options->mode == COH_PLAN_INFER && options->microbatch_count != 1)
        return coh_fail(COH_ERR_ARGUMENT, "a forward-only plan runs one micro-batch at a time");
    return COH_OK;
}

coh_status coh_plan_open(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan)
{
    *out_plan = NULL;
    COH_TRY(check_options(options));
    coh_plan *plan = NULL;
    COH_TRY(COH_ALLOC(1, &plan));
    plan->graph = graph;
    plan->options = *options;
    coh_profile_builtin(options->thread_count, options->link_bytes_per_s, &plan->profile);
    plan->numeric_fingerprint = coh_numeric_fingerprint(graph, options);
    *out_plan = plan;
    return COH_OK;
}

coh_status coh_plan_create(const coh_graph *graph, const coh_plan_options *options,
                           coh_plan **out_plan)
{
    coh_plan *plan = NULL;
    *out_plan = NULL;
    COH_TRY(coh_plan_open(graph, options, &plan));
    coh_status status = decide(plan);
    if (status == COH_OK)
        status = coh_plan_finish(plan);
    if (status != COH_OK) {
        coh_plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return COH_OK;
}

void coh_plan_destroy(coh_plan *plan)
{
    if (plan == NULL)
        return;
    plan_clear(plan);
    coh_free(plan);
}

coh_status coh_plan_in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                    uint64_t *out_bytes)
{
    coh_plan_options without = *options;
    without.device_memory_bytes = UINT64_MAX;
    without.emulate_host_bytes = without.disk_bytes = without.wear_bytes = 0;
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_create(graph, &without, &plan));
    *out_bytes = plan->layout.arena_bytes[COH_TIER_DEVICE];
    coh_plan_destroy(plan);
    return COH_OK;
}
