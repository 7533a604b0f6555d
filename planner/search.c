/* Searches the decisions of a plan: in memory, then starts in the order of their bounds, then local
 * search from the best ones. The idea: evaluations are counted instead of timed, so the same inputs
 * give the same plan. The order is listed in search.h; see initial.c, candidates.c, neighbours.c,
 * perturb.c and search_refuse.c. */
#include "planner/search.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/candidates.h"
#include "planner/fold.h"
#include "planner/in_memory.h"
#include "planner/initial.h"
#include "planner/layout.h"
#include "planner/least_step.h"
#include "planner/neighbours.h"
#include "planner/perturb.h"
#include "planner/pins.h"
#include "planner/plan_make.h"
#include "planner/rank_axes.h"
#include "planner/search_refuse.h"

/* Half of a search: its schedules have about EVALUATED_INSTRUCTIONS instructions in all. */
enum { EVALUATIONS_MOST = 160, EVALUATIONS_LEAST = 1, EVALUATED_INSTRUCTIONS = 350000 };

/* The starts get this part of one half, but no fewer than STARTS_LEAST of it. */
enum { STARTS_PART = 3, STARTS_LEAST = 8 };

/* Starts that are improved, best first. */
enum { VALLEYS = 4 };

/* Likewise, of those with late updates; none that is slower than the best by more than a
 * LATE_PART. */
enum { LATE_VALLEYS = 2, LATE_PART = 16 };

/* Randomly changed sets: at most so many, and none if their effort is enough for fewer than the
 * least. A thorough search has THOROUGH_TIMES as many more, and as much effort. */
enum { PERTURBED_MOST = 240, PERTURBED_LEAST = 16, THOROUGH_TIMES = 10 };

/* Starts built at a time. */
enum { INITIAL_AT_ONCE = 4 };

static coh_status count_survivors(coh_plan *plan)
{
    coh_layout layout;
    coh_object_map map;
    coh_plan_options one = plan->options;
    const coh_decisions whole = { .chunk_bytes = COH_WHOLE_OBJECTS,
                                  .row_passes = 1,
                                  .patterns = coh_pattern_choose(1) };
    one.microbatch_count = 1; /* survivors depend neither on their number nor on replicas */
    one.replicas = (coh_fold_shape){ 0 };
    plan->survivor_bytes = 0;
    COH_TRY(coh_layout_build(plan->graph, &one, &whole, &layout, &map));
    for (uint32_t i = 0; i < layout.object_count; i++)
        if (layout.objects[i].survives && !layout.objects[i].pinned)
            plan->survivor_bytes += layout.objects[i].bytes;
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    return COH_OK;
}

/* ---- streamed ---- */

/* The longer the schedules of a model, the fewer are evaluated, so planning time stays about
 * constant. */
static uint32_t evaluations_for(uint32_t instruction_count)
{
    uint64_t count = EVALUATED_INSTRUCTIONS / (instruction_count > 0 ? instruction_count : 1);
    if (count < EVALUATIONS_LEAST)
        return EVALUATIONS_LEAST;
    return count < EVALUATIONS_MOST ? (uint32_t)count : EVALUATIONS_MOST;
}

static int improves(const coh_plan *plan)
{
    return coh_search_is_whole(plan->options.search) || plan->options.search == COH_SEARCH_COMPARE;
}

/* Without a local search the starts are all that is tried. */
static uint32_t evaluations_of_starts(const coh_candidates *candidates)
{
    const uint32_t half = evaluations_for(candidates->best.instruction_count);
    const uint32_t part = half / STARTS_PART;
    if (!improves(candidates->plan))
        return half;
    if (candidates->is_brief || part >= STARTS_LEAST)
        return part;
    return half < STARTS_LEAST ? half : STARTS_LEAST;
}

/* A step this short is also searched from no host updates: one decision varied at a time does not
 * find every way there from a start that has some. */
static int is_short(const coh_candidates *candidates)
{
    return candidates->plan->options.host_memory_bytes > 0 &&
           evaluations_for(candidates->best.instruction_count) == EVALUATIONS_MOST;
}

static int same_blocks(const coh_decisions *a, const coh_decisions *b)
{
    return a->host_updates == b->host_updates && a->resident == b->resident &&
           memcmp(&a->recompute, &b->recompute, sizeof(a->recompute)) == 0;
}

/* Moves the best start of each way to recompute, to update and to keep weights to the front, in the
 * same order: of the others, which differ in caches and row ranges, few are tried. */
static void spread_starts(coh_initial_candidate *starts, int count)
{
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        const coh_initial_candidate start = starts[i];
        int k = 0;
        while (k < distinct && !same_blocks(&starts[k].decisions, &start.decisions))
            k++;
        if (k < distinct)
            continue;
        memmove(&starts[distinct + 1], &starts[distinct], (size_t)(i - distinct) * sizeof(start));
        starts[distinct++] = start;
    }
}

static int has_fitting(const coh_candidates *candidates)
{
    for (size_t i = 0; i < candidates->count; i++)
        if (candidates->all[i].valid)
            return 1;
    return 0;
}

/* Tries the starts in their order until one fits, first one, then a few at a time. If a plan in
 * memory is known, little effort is spent on this. */
static coh_status try_any(coh_candidates *candidates, const coh_initial_candidate *starts,
                          int count)
{
    const int is_spare = candidates->best.valid;
    for (int i = 0; i < count && !has_fitting(candidates);) {
        const int most = i == 0 ? 1 : INITIAL_AT_ONCE;
        coh_decisions list[INITIAL_AT_ONCE];
        int taken = 0;
        if (is_spare && candidates->effort > COH_QUICK_EFFORT_MOST)
            break;
        while (i < count && taken < most)
            list[taken++] = starts[i++].decisions;
        COH_TRY(coh_candidates_try(candidates, list, taken));
    }
    return COH_OK;
}

/* Tries the starts in their order, a few at a time, up to `most` evaluations (0: those that starts
 * get); a start that cannot beat the best is not built. */
static coh_status try_starts(coh_candidates *candidates, const coh_initial_candidate *starts,
                             int count, uint32_t most)
{
    const coh_candidate *best = &candidates->best;
    for (int i = 0; i < count;) {
        coh_decisions list[INITIAL_AT_ONCE];
        int taken = 0;
        if (candidates->evaluations >= (most > 0 ? most : evaluations_of_starts(candidates)))
            break;
        for (; i < count && taken < INITIAL_AT_ONCE / (1 + candidates->is_brief); i++)
            if (starts[i].bound_ns < best->step_ns ||
                (is_short(candidates) && starts[i].decisions.host_updates == 0))
                list[taken++] = starts[i].decisions;
        COH_TRY(coh_candidates_try(candidates, list, taken));
    }
    return COH_OK;
}

static int compare_candidates(const void *x, const void *y)
{
    const coh_candidate *a = x, *b = y;
    if (coh_candidate_is_better(a, b))
        return -1;
    if (coh_candidate_is_better(b, a))
        return 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* The candidates that are improved. */
enum improved { IMPROVE_ANY, IMPROVE_WITHOUT_HOST, IMPROVE_LATE };

/* Moves the candidates to improve to the front, in the same order: with a host tier the best of
 * each number of host updates, since others of that number mostly lead to the same local optimum;
 * or those of none. */
static size_t take_valleys(const coh_plan *plan, enum improved which, coh_candidate *all,
                           size_t count)
{
    const size_t most = which == IMPROVE_LATE ? LATE_VALLEYS : VALLEYS;
    const int has_host = which != IMPROVE_WITHOUT_HOST && plan->options.host_memory_bytes > 0;
    const uint64_t near_ns = count > 0 ? all[0].step_ns + all[0].step_ns / LATE_PART : 0;
    size_t valleys = 0;
    for (size_t i = 0; i < count && valleys < most && all[i].valid; i++) {
        int is_taken =
            which == IMPROVE_ANY ||
            (which == IMPROVE_LATE && all[i].decisions.late > 0 && all[i].step_ns <= near_ns) ||
            (which == IMPROVE_WITHOUT_HOST && all[i].decisions.host_updates == 0);
        for (size_t k = 0; has_host && k < valleys; k++)
            is_taken &= all[k].decisions.host_updates != all[i].decisions.host_updates;
        if (is_taken)
            all[valleys++] = all[i];
    }
    return valleys;
}

/* Returns 1 if a candidate recomputes and updates about as many blocks as the linear programme's
 * solution. */
static int is_near_least(const coh_plan *plan, const coh_decisions *d)
{
    const int32_t few = (coh_graph_block_count(plan->graph) + 7) / 8;
    const int32_t recompute = coh_block_set_count(&d->recompute) - plan->least.plain.recompute;
    const int32_t updates = d->host_updates - plan->least.plain.host_updates;
    return recompute >= -few && recompute <= few && updates >= -few && updates <= few;
}

/* Where ranks divide something: moves the best candidate near the linear programme's solution to
 * the second place, if the best of all is far from it. What keeps it from being fastest is often
 * how early work is gathered and how long memory is unused. Returns 1 if it did. */
static int take_least(const coh_plan *plan, coh_candidate *all, size_t count)
{
    if (plan->least.ns == 0 || count == 0 || !coh_ranks_divide(&plan->options) ||
        is_near_least(plan, &all[0].decisions))
        return 0;
    for (size_t i = 1; i < count && all[i].valid; i++)
        if (is_near_least(plan, &all[i].decisions)) {
            const coh_candidate near = all[i];
            memmove(&all[2], &all[1], (i - 1) * sizeof(near));
            all[1] = near;
            return 1;
        }
    return 0;
}

/* Improves from the best candidate, then from the next best: they may lead to other local
 * optima. */
static coh_status improve_several(coh_candidates *candidates, enum improved which,
                                  uint64_t bound_ns)
{
    coh_candidate *from = NULL, best = candidates->best;
    COH_TRY(COH_ALLOC(candidates->count, &from));
    for (size_t i = 0; i < candidates->count; i++)
        from[i] = candidates->all[i];
    qsort(from, candidates->count, sizeof(*from), compare_candidates);
    const int has_least =
        which == IMPROVE_ANY && take_least(candidates->plan, from, candidates->count);
    const size_t count =
        has_least ? 2 : take_valleys(candidates->plan, which, from, candidates->count);
    coh_status status = COH_OK;
    for (size_t i = 0; i < count && status == COH_OK; i++) {
        candidates->best = from[i];
        if (has_least && i == 1)
            candidates->evaluations_most += evaluations_for(from[i].instruction_count);
        status = coh_candidates_improve(candidates, bound_ns);
        if (coh_candidate_is_better(&candidates->best, &best))
            best = candidates->best;
    }
    candidates->best = best;
    coh_free(from);
    return status;
}

/* Lists starts with as few slices as fit. */
static coh_status list_initial(const coh_candidates *candidates, coh_initial_candidate *starts,
                               int *out_count)
{
    *out_count = 0;
    for (int slices = 1; *out_count == 0 && slices <= COH_SLICES_MOST; slices *= 4)
        COH_TRY(coh_initial_list(candidates->plan, candidates->pool, slices, starts, out_count));
    return COH_OK;
}

/* Tries a set however much effort was spent, except in a probe: if a plan exists it must be found.
 */
static coh_status try_in_any_case(coh_candidates *candidates, const coh_decisions *decisions)
{
    const uint64_t spent = candidates->effort;
    if (candidates->plan->options.search != COH_SEARCH_PROBE)
        candidates->effort = 0;
    const coh_status status = coh_candidates_try(candidates, decisions, 1);
    if (candidates->plan->options.search != COH_SEARCH_PROBE)
        candidates->effort += spent;
    return status;
}

/* Tries the decisions of the least device memory. In a large memory there are many smallest chunks,
 * which take long to place: larger ones come first, and if they leave only another tier short, the
 * smallest do not help. */
static coh_status try_last_resort(coh_candidates *candidates, const coh_decisions *smallest)
{
    const coh_plan *plan = candidates->plan;
    const size_t before = candidates->count;
    coh_decisions larger = *smallest;
    coh_effort effort;
    uint64_t usual_bytes = 0;
    COH_TRY(coh_initial_chunk(plan, &usual_bytes));
    COH_TRY(coh_effort_of(plan->graph, &plan->options, &larger, &effort));
    while (coh_effort_sum(&effort) > COH_LAST_EFFORT && larger.chunk_bytes < usual_bytes) {
        larger.chunk_bytes *= 2;
        COH_TRY(coh_effort_of(plan->graph, &plan->options, &larger, &effort));
    }
    COH_TRY(try_in_any_case(candidates, &larger));
    if (candidates->best.valid ||
        (candidates->count > before && candidates->all[before].far_bytes > 0))
        return COH_OK;
    return try_in_any_case(candidates, smallest);
}

/* Local search, from every valley. The programme's bound ends it; of a plan without one,
 * `start_ns`. */
static coh_status improve_all(coh_candidates *candidates, uint64_t start_ns)
{
    const uint64_t least_ns = candidates->plan->least.ns;
    const uint64_t bound_ns = least_ns > 0 ? least_ns : start_ns;
    const uint32_t half = evaluations_for(candidates->best.instruction_count);
    candidates->evaluations_most =
        candidates->evaluations + (candidates->is_brief ? half / STARTS_PART : half);
    if (!candidates->is_brief && candidates->evaluations_most < 2 * half)
        candidates->evaluations_most = 2 * half;
    if (is_short(candidates)) {
        COH_TRY(improve_several(candidates, IMPROVE_WITHOUT_HOST, bound_ns));
        candidates->evaluations_most = candidates->evaluations + half / 4;
    }
    COH_TRY(improve_several(candidates, IMPROVE_ANY, bound_ns));
    return coh_candidates_spread(candidates, half, bound_ns);
}

/* Tries the best sets of different numbers of host updates with late ones. */
static coh_status try_late(coh_candidates *candidates)
{
    coh_candidate *all = NULL;
    coh_decisions list[VALLEYS];
    COH_TRY(COH_ALLOC(candidates->count, &all));
    for (size_t i = 0; i < candidates->count; i++)
        all[i] = candidates->all[i];
    qsort(all, candidates->count, sizeof(*all), compare_candidates);
    const size_t count = take_valleys(candidates->plan, IMPROVE_ANY, all, candidates->count);
    int taken = 0;
    for (size_t i = 0; i < count; i++)
        if (all[i].decisions.host_updates > 0) {
            list[taken] = all[i].decisions;
            list[taken++].late = candidates->plan->least.plain.late;
        }
    coh_free(all);
    return coh_candidates_try(candidates, list, taken);
}

/* Searches once more, with late updates on the host lane, where backward leaves too little time for
 * them: with these, other numbers of updates and recomputed blocks are best. */
static coh_status search_late(coh_candidates *candidates, coh_initial_candidate *starts, int count)
{
    const coh_plan *plan = candidates->plan;
    const uint32_t half = evaluations_for(candidates->best.instruction_count);
    int late_count = 0;
    if (plan->least.plain.late == 0 ||
        candidates->best.step_ns <= plan->least.ns + plan->least.ns / 500)
        return COH_OK;
    for (int i = 0; i < count; i++) {
        starts[i].decisions.late = plan->least.plain.late;
        if (starts[i].decisions.host_updates > 0)
            starts[late_count++] = starts[i];
    }
    candidates->evaluations_most = candidates->evaluations + half;
    COH_TRY(try_late(candidates));
    COH_TRY(try_starts(candidates, starts, late_count, candidates->evaluations + half / 4));
    candidates->evaluations_most = candidates->evaluations + half;
    return improve_several(candidates, IMPROVE_LATE, plan->least.ns);
}

/* Lets the last part of a search spend more than is left, but not of one to compare, or of one that
 * repeats another with chunks of another size. */
static void leave_effort(const coh_plan *plan, coh_candidates *candidates)
{
    const uint64_t last = candidates->effort + COH_REFINE_EFFORT;
    if (coh_search_is_whole(plan->options.search) &&
        plan->chunk_bytes == plan->options.chunk_bytes && candidates->effort_most < last)
        candidates->effort_most = last;
}

/* Finds out first whether any start fits: the bounds that rank them take long. */
static coh_status search_candidates(coh_candidates *candidates, const coh_decisions *smallest)
{
    const coh_plan *plan = candidates->plan;
    coh_initial_candidate *starts = NULL;
    int count = 0;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(COH_INITIAL_MOST, &starts), done);
    COH_TRY_GOTO(status, list_initial(candidates, starts, &count), done);
    COH_TRY_GOTO(status, try_any(candidates, starts, count), done);
    if (!candidates->best.valid)
        COH_TRY_GOTO(status, try_last_resort(candidates, smallest), done);
    if (!has_fitting(candidates) || plan->depth == COH_PLAN_FITS)
        goto done;
    candidates->is_brief = plan->folded == COH_FOLDED_LONG ||
                           evaluations_for(candidates->best.instruction_count) < STARTS_LEAST;
    const uint64_t useful_ns = candidates->best.valid ? candidates->best.step_ns : UINT64_MAX;
    COH_TRY_GOTO(status, coh_initial_rank(plan, candidates->pool, starts, count, useful_ns), done);
    const uint64_t least_ns = count > 0 ? starts[0].bound_ns : 0;
    spread_starts(starts, count);
    COH_TRY_GOTO(status, try_starts(candidates, starts, count, 0), done);
    if (improves(plan)) {
        COH_TRY_GOTO(status, improve_all(candidates, least_ns), done);
        COH_TRY_GOTO(status, search_late(candidates, starts, count), done);
        leave_effort(plan, candidates);
        const uint32_t some = evaluations_for(candidates->best.instruction_count) / 2;
        if (some > 0) /* else each schedule takes many seconds */
            status = coh_candidates_refine(candidates, some, least_ns);
    }
done:
    coh_free(starts);
    return status;
}

static coh_status search_streamed(coh_plan *plan, coh_candidate *best)
{
    coh_decisions smallest = { 0 };
    coh_candidates candidates;
    coh_status status = COH_OK;
    COH_TRY(coh_candidates_open(&candidates, plan, UINT32_MAX));
    candidates.best = *best;
    candidates.effort = plan->search_effort;
    COH_TRY_GOTO(status, coh_initial_smallest(plan, candidates.pool, &smallest), done);
    smallest.device_bytes = coh_bytes_whole_pages(plan->options.device_memory_bytes);
    if (smallest.device_bytes < plan->smallest_device_bytes)
        goto done;
    COH_TRY_GOTO(status, coh_search_check_survivors(plan), done);
    COH_TRY_GOTO(status, coh_least_step_of(plan), done);
    status = search_candidates(&candidates, &smallest);
    *best = candidates.best;
    if (status == COH_OK && !best->valid)
        status = coh_search_note_least_far(&candidates, plan);
    plan->least_worn_bytes = candidates.least_worn_bytes;
    plan->search_effort = candidates.effort;
done:
    coh_candidates_close(&candidates);
    return status;
}

/* A search is repeated with other chunks if the step takes this long and is more than this part
 * above the bound: a shorter step is then worth a longer search. It is not if the other sweep
 * order's plan is faster by so large a part that other chunks are not enough. */
#define LONG_STEP_NS ((uint64_t)10000000000)
enum { FAR_PART = 20, RIVAL_PART = 8 };

static int may_resize(const coh_plan *plan, const coh_candidate *best)
{
    const uint64_t least_ns = plan->least.light_ns;
    return coh_search_is_whole(plan->options.search) && plan->depth != COH_PLAN_FITS &&
           plan->chunk_bytes == 0 && best->valid && !best->decisions.in_memory &&
           best->step_ns >= LONG_STEP_NS && least_ns > 0 &&
           best->step_ns > least_ns + least_ns / FAR_PART &&
           (plan->rival_ns == 0 || best->step_ns <= plan->rival_ns + plan->rival_ns / RIVAL_PART) &&
           plan->folded != COH_FOLDED_LONG &&
           evaluations_for(best->instruction_count) >= STARTS_LEAST;
}

/* Searches again with chunks of half and of twice the size: with another size other numbers of
 * recomputed blocks are best, and one decision varied at a time does not find both. The two share
 * what the first search has left. */
static coh_status search_sizes(coh_plan *plan, coh_candidate *best)
{
    const uint64_t found = best->decisions.chunk_bytes, sizes[] = { found / 2, 2 * found };
    const uint64_t effort = plan->search_effort, all = COH_SEARCH_EFFORT_MOST + COH_REFINE_EFFORT;
    const uint64_t share = effort < all ? (all - effort) / 2 : 0;
    coh_status status = COH_OK;
    if (!may_resize(plan, best) || share < COH_RESIZE_EFFORT)
        return COH_OK;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && status == COH_OK; i++) {
        coh_candidate other = { 0 };
        if (sizes[i] < COH_CHUNK_BYTES_LEAST || sizes[i] > COH_CHUNK_BYTES_MOST)
            continue;
        plan->chunk_bytes = sizes[i];
        plan->search_effort = COH_SEARCH_EFFORT_MOST - share;
        status = search_streamed(plan, &other);
        if (other.valid && coh_candidate_is_better(&other, best))
            *best = other;
    }
    plan->chunk_bytes = plan->options.chunk_bytes;
    plan->search_effort = effort;
    return status;
}

/* A schedule spreads over all the memory that it may use. Where everything fits on the device, most
 * of it is needless: tries the memory of the plan that keeps everything there, `bytes`, then a
 * quarter more each time, and takes the first schedule that is no slower. */
static coh_status take_less_memory(const coh_plan *plan, uint64_t bytes, coh_candidate *best)
{
    coh_decisions decisions = best->decisions;
    for (; bytes < best->device_bytes; bytes += bytes / 4) {
        coh_candidate candidate;
        decisions.device_bytes = coh_bytes_whole_pages(bytes);
        COH_TRY(coh_candidate_make(plan, &decisions, &candidate));
        if (!candidate.valid || coh_candidate_is_better(best, &candidate))
            continue;
        *best = candidate;
        break;
    }
    return COH_OK;
}

static coh_status try_each_earlier(const coh_plan *plan, coh_candidate *best)
{
    for (int32_t i = 0; i < plan->options.earlier_count; i++) {
        const coh_plan *earlier = plan->options.earlier[i];
        coh_candidate candidate;
        if (earlier->numeric_fingerprint != plan->numeric_fingerprint)
            continue; /* of another micro-batch, or a sweep order with other bits */
        if (earlier->decisions.in_memory && coh_plan_speculates(&plan->options))
            continue;
        COH_TRY(coh_candidate_make(plan, &earlier->decisions, &candidate));
        if (coh_candidate_is_better(&candidate, best))
            *best = candidate;
    }
    return COH_OK;
}

/* Tries the decisions of earlier plans. A program that fits a smaller memory fits a larger one; in
 * a fixed program shorter instructions never take longer. Both are exact for whole steps only. */
static coh_status try_earlier(coh_plan *plan, coh_candidate *best)
{
    const int32_t folded = plan->folded;
    coh_candidate whole = *best;
    coh_status status = COH_OK;
    if (plan->options.earlier_count == 0)
        return COH_OK;
    plan->folded = 0;
    if (folded > 0 && best->valid)
        status = coh_candidate_make(plan, &best->decisions, &whole);
    if (whole.valid)
        *best = whole;
    if (status == COH_OK)
        status = try_each_earlier(plan, best);
    plan->folded = folded;
    return status;
}

/* Returns 1 if streaming may be faster. It may be faster than recomputing in memory; it is
 * faster than keeping everything in memory only if the host performs updates that would take
 * device time. */
static int may_gain_far(const coh_plan *plan, const coh_candidate *in_memory)
{
    const coh_plan_options *o = &plan->options;
    if (in_memory->valid &&
        (plan->depth == COH_PLAN_FITS || plan->survivor_bytes > coh_survivor_room(o)))
        return 0;
    return !in_memory->valid || coh_block_set_count(&in_memory->decisions.recompute) > 0 ||
           (o->mode == COH_PLAN_TRAIN && o->host_memory_bytes > 0 &&
            plan->profile.device_kind != COH_DEVICE_HOST);
}

coh_status coh_plan_search(coh_plan *plan)
{
    coh_candidate best = { 0 }, in_memory = { 0 };
    COH_TRY(count_survivors(plan));
    COH_TRY(coh_search_check_size(plan));
    /* When offloading is possible, fail without computing the shortfall: the largest models take
     * long to place whole. */
    if (!coh_pins_need_far(&plan->options) && !coh_plan_speculates(&plan->options) &&
        (plan->survivor_bytes <= plan->options.device_memory_bytes ||
         !coh_plan_has_far(&plan->options)))
        COH_TRY(coh_in_memory_search(plan, &best, &in_memory));
    if (best.valid && coh_plan_has_far(&plan->options)) {
        coh_decisions unused;
        COH_TRY(coh_initial_smallest(plan, NULL, &unused));
    } else if (best.valid || !coh_plan_has_far(&plan->options)) {
        plan->smallest_device_bytes = in_memory.device_bytes;
    }
    if (coh_plan_has_far(&plan->options) && may_gain_far(plan, &best)) {
        const coh_candidate whole = best;
        COH_TRY(search_streamed(plan, &best));
        COH_TRY(search_sizes(plan, &best));
        if (whole.valid && !best.decisions.in_memory)
            COH_TRY(take_less_memory(plan, whole.device_bytes, &best));
    }
    COH_TRY(try_earlier(plan, &best));
    if (!best.valid)
        return coh_search_refuse(plan, &in_memory);
    plan->decisions = best.decisions;
    plan->step_ns = best.step_ns;
    return COH_OK;
}

/* Takes a better set. Of a folded search the whole steps are compared. */
static coh_status take_perturbed(coh_plan *plan, const coh_candidate *better, int *out_is_changed)
{
    coh_candidate before = { 0 }, after = *better;
    const int32_t folded = plan->folded;
    coh_status status = COH_OK;
    coh_plan_drop_programs(plan);
    plan->folded = 0;
    if (folded)
        status = coh_candidate_make(plan, &plan->decisions, &before);
    if (folded && status == COH_OK)
        status = coh_candidate_make(plan, &better->decisions, &after);
    plan->folded = folded;
    if (status == COH_OK && coh_candidate_is_better(&after, &before)) {
        plan->decisions = after.decisions;
        plan->step_ns = after.step_ns;
        *out_is_changed = 1;
    }
    return status;
}

/* Goes on from what the usual search has taken, which stays unless a set is better as a whole. */
static coh_status be_thorough(coh_plan *plan, coh_candidates *candidates, int *out_is_changed)
{
    const coh_candidate usual = candidates->best;
    candidates->effort = 0;
    candidates->effort_most = (uint64_t)THOROUGH_TIMES * COH_PERTURB_EFFORT;
    COH_TRY(coh_candidates_perturb_leaders(candidates, THOROUGH_TIMES * PERTURBED_MOST,
                                           plan->least.light_ns));
    return coh_candidate_is_better(&candidates->best, &usual)
               ? take_perturbed(plan, &candidates->best, out_is_changed)
               : COH_OK;
}

coh_status coh_plan_perturb(coh_plan *plan, int *out_is_changed)
{
    coh_candidates candidates;
    coh_candidate from;
    *out_is_changed = 0;
    if (plan->options.mode != COH_PLAN_TRAIN || !coh_search_is_whole(plan->options.search) ||
        plan->depth == COH_PLAN_FITS || plan->least.ns == 0 || plan->decisions.in_memory ||
        !coh_perturb_may_gain(plan->step_ns, plan->least.light_ns))
        return COH_OK;
    COH_TRY(coh_candidate_make(plan, &plan->decisions, &from));
    if (!from.valid || from.effort > COH_PERTURB_EFFORT / PERTURBED_LEAST)
        return COH_OK;
    COH_TRY(coh_candidates_open(&candidates, plan, 0));
    candidates.effort_most = COH_PERTURB_EFFORT;
    candidates.best = from;
    coh_status status = coh_candidates_perturb(&candidates, PERTURBED_MOST, plan->least.light_ns);
    if (status == COH_OK && coh_candidate_is_better(&candidates.best, &from))
        status = take_perturbed(plan, &candidates.best, out_is_changed);
    if (status == COH_OK && plan->options.search == COH_SEARCH_THOROUGH)
        status = be_thorough(plan, &candidates, out_is_changed);
    coh_candidates_close(&candidates);
    return status;
}

coh_status coh_plan_search_bound(coh_plan *plan, uint64_t enough_ns, uint64_t *out_ns)
{
    coh_initial_candidate *starts = NULL;
    coh_candidates candidates;
    coh_effort shortest;
    int count = 0;
    coh_status status = COH_OK;
    *out_ns = 0;
    if (!coh_plan_has_far(&plan->options))
        return COH_OK;
    COH_TRY(count_survivors(plan));
    COH_TRY(coh_search_shortest_effort(plan, &shortest));
    if (!coh_effort_is_bearable(&shortest))
        return COH_OK;
    plan->folded = coh_fold_count(plan, &shortest);
    COH_TRY(coh_least_step_of(plan));
    COH_TRY(coh_candidates_open(&candidates, plan, 0));
    COH_TRY_GOTO(status, COH_ALLOC(COH_INITIAL_MOST, &starts), done);
    COH_TRY_GOTO(status, list_initial(&candidates, starts, &count), done);
    status = coh_initial_least(plan, candidates.pool, starts, count, enough_ns, out_ns);
done:
    coh_free(starts);
    coh_candidates_close(&candidates);
    return status;
}
