/* Makes the starting points of the search: ways to recompute, caches and row ranges, ordered by
 * their lower bounds; and the decisions with the least device memory. The idea: bounds are cheap
 * (bounds.c), so all starts are ranked before any is built. search.c builds them; the interface is
 * initial.h. */
#include "planner/initial.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "planner/at_once.h"
#include "planner/bounds.h"
#include "planner/candidates.h"
#include "planner/fold.h"
#include "planner/neighbours.h"
#include "planner/rank_axes.h"
#include "planner/residency.h"
#include "planner/schedule.h"

#define KIB ((uint64_t)1 << 10)

/* Finer ranges than our schedules use, to check whether these would need less. */
enum { RANGES_MOST = 1 << 20 };

/* Chunks of a budget: this many are enough for a choice of victims; models many times the budget
 * use as few as CHUNKS_LEAST. */
enum { CHUNKS_USUAL = 128, CHUNKS_LEAST = 32 };

/* If the program would be too long, as few as this. */
enum { CHUNKS_FEWEST = 16 };

/* If the budget is this many times a row-split parameter, shorter row ranges are useless. */
enum { ROOMY = 16 };

/* Starts are bounded up to this sum of efforts, then they stay as listed: a search tries few of
 * those of a program that takes long to bound. */
enum { BOUNDED_EFFORT_MOST = COH_SEARCH_EFFORT_MOST / 2 };

/* ---- choices ---- */

int coh_initial_choices(const coh_plan *plan, int32_t *choices)
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

/* Returns the budget that chunks are a part of. A host tier before a drive passes all of them, so a
 * chunk may take 1/16 of it; 1/4 if there would be too many. */
static uint64_t chunk_budget(const coh_plan *plan)
{
    enum { HOST_TIMES = 8 };
    const coh_plan_options *o = &plan->options;
    const uint64_t device = o->device_memory_bytes, host = o->host_memory_bytes;
    const int passes = host > 0 && o->disk_bytes > 0;
    return passes && host < device / HOST_TIMES ? host * HOST_TIMES : device;
}

static uint64_t usual_chunk_bytes(const coh_plan *plan)
{
    const uint64_t budget = chunk_budget(plan);
    const uint64_t usual = budget / CHUNKS_USUAL, most = budget / CHUNKS_LEAST;
    const uint64_t of_many = plan->survivor_bytes / COH_INITIAL_SURVIVORS;
    uint64_t bytes = 256 * KIB;
    if (plan->chunk_bytes > 0)
        return plan->chunk_bytes;
    while (bytes < COH_CHUNK_BYTES_MOST &&
           (bytes * 2 <= usual || (bytes < of_many && bytes * 2 <= most)))
        bytes *= 2;
    return bytes;
}

coh_status coh_initial_chunk(const coh_plan *plan, uint64_t *out_bytes)
{
    coh_decisions decisions = { .chunk_bytes = usual_chunk_bytes(plan),
                                .row_passes = 1,
                                .patterns = coh_pattern_choose(1) };
    *out_bytes = decisions.chunk_bytes;
    if (plan->chunk_bytes > 0)
        return COH_OK;
    const uint64_t budget = chunk_budget(plan), device = plan->options.device_memory_bytes;
    const uint64_t most = budget < device ? budget / CHUNKS_LEAST : device / CHUNKS_FEWEST;
    COH_TRY(coh_effort_raise_chunk(plan->graph, &plan->options,
                                   most < COH_CHUNK_BYTES_MOST ? most : COH_CHUNK_BYTES_MOST,
                                   &decisions));
    *out_bytes = decisions.chunk_bytes;
    return COH_OK;
}

/* ---- the least memory ---- */

/* Sets of decisions, and the device bytes that each needs. */
typedef struct least_sizes {
    const coh_plan *plan;
    coh_decisions decisions[COH_AT_ONCE_MOST];
    uint64_t bytes[COH_AT_ONCE_MOST];
    int count;
} least_sizes;

static coh_status find_least(void *argument, int index)
{
    least_sizes *n = argument;
    return coh_schedule_bound(n->plan->graph, &n->plan->options, &n->decisions[index],
                              &n->bytes[index], NULL);
}

/* Checks whether finer ranges than the search uses would need less; if so, smallest_device_bytes is
 * not a proven bound. */
static coh_status check_ranges(coh_plan *plan, const coh_decisions *smallest)
{
    coh_decisions finest = *smallest;
    uint64_t bytes = 0;
    finest.row_passes = finest.slices = RANGES_MOST;
    finest.patterns = coh_pattern_choose(RANGES_MOST);
    COH_TRY(coh_schedule_bound(plan->graph, &plan->options, &finest, &bytes, NULL));
    plan->smallest_is_proven = bytes >= plan->smallest_device_bytes;
    return COH_OK;
}

coh_status coh_initial_smallest(coh_plan *plan, coh_pool *pool, coh_decisions *out_decisions)
{
    int32_t choices[COH_INITIAL_CHOICES];
    int count = coh_initial_choices(plan, choices);
    least_sizes n = { .plan = plan };
    plan->smallest_device_bytes = UINT64_MAX;
    /* An update on the host lane takes no device memory. */
    int lanes = plan->options.host_memory_bytes > 0 ? 2 : 1;
    for (int i = 0; i < count * lanes; i++)
        n.decisions[n.count++] =
            (coh_decisions){ .chunk_bytes = plan->options.chunk_bytes
                                                ? plan->options.chunk_bytes
                                                : (uint64_t)COH_GRAIN_ELEMENTS * sizeof(float),
                             .recompute = coh_block_set_first(choices[i % count]),
                             .host_updates = i < count ? 0 : coh_graph_block_count(plan->graph) + 1,
                             .row_passes = COH_ROW_PASSES_MOST,
                             .slices = COH_SLICES_MOST,
                             .patterns = coh_pattern_choose(COH_SLICES_MOST) };
    COH_TRY(coh_at_once(pool, n.count, find_least, &n));
    for (int i = 0; i < n.count; i++)
        if (n.bytes[i] < plan->smallest_device_bytes) {
            plan->smallest_device_bytes = n.bytes[i];
            *out_decisions = n.decisions[i];
            out_decisions->device_bytes = n.bytes[i];
        }
    return check_ranges(plan, out_decisions);
}

/* ---- the most promising ---- */

/* Compares by bound; of equal bounds, that of fewer recomputed blocks and fewer host updates. */
static int compare_initial(const void *x, const void *y)
{
    const coh_initial_candidate *a = x, *b = y;
    if (a->bound_ns != b->bound_ns)
        return a->bound_ns < b->bound_ns ? -1 : 1;
    const int32_t differences[] = { coh_block_set_count(&a->decisions.recompute) -
                                        coh_block_set_count(&b->decisions.recompute),
                                    a->decisions.host_updates - b->decisions.host_updates,
                                    a->decisions.resident - b->decisions.resident,
                                    a->decisions.cache - b->decisions.cache,
                                    a->decisions.row_passes - b->decisions.row_passes };
    for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++)
        if (differences[i] != 0)
            return differences[i];
    return 0;
}

/* Computes the bound for a step of `microbatches` micro-batches; from `enough_ns` on any. */
static coh_status bound_of(const coh_plan *plan, const coh_decisions *decisions,
                           int32_t microbatches, uint64_t enough_ns, uint64_t *out_ns)
{
    const coh_plan_options options = coh_fold_options(plan, microbatches);
    coh_bound_base *base = NULL;
    coh_bounds bounds = { 0 };
    COH_TRY(coh_bound_base_create(plan->graph, &options, &plan->pricer, decisions, &base));
    coh_status status = coh_bounds_until(base, decisions->device_bytes, options.host_memory_bytes,
                                         enough_ns, &bounds);
    *out_ns = bounds.most_ns;
    coh_bound_base_destroy(base);
    return status;
}

/* Continues the bounds of one and of two micro-batches to `count`. */
static uint64_t continued(const uint64_t *ns, uint64_t count)
{
    return ns[1] > ns[0] ? ns[1] + (ns[1] - ns[0]) * (count - 2) : ns[1];
}

/* Computes the bound of a folded step. If the compute time alone takes `enough_ns`, it is the
 * result. */
static coh_status bound_folded(const coh_plan *plan, uint64_t enough_ns,
                               coh_initial_candidate *start)
{
    const uint64_t count = (uint64_t)plan->options.microbatch_count;
    coh_bound_base *bases[2] = { NULL, NULL };
    coh_plan_options options[2];
    coh_status status = COH_OK;
    start->bound_ns = 0;
    for (int i = 0; i < 2; i++) {
        options[i] = coh_fold_options(plan, i + 1);
        COH_TRY_GOTO(status,
                     coh_bound_base_create(plan->graph, &options[i], &plan->pricer,
                                           &start->decisions, &bases[i]),
                     done);
    }
    for (int is_all = 0; is_all < 2 && (is_all == 0 || start->bound_ns < enough_ns); is_all++) {
        uint64_t ns[2];
        for (int i = 0; i < 2; i++) {
            coh_bounds bounds;
            COH_TRY_GOTO(status,
                         coh_bounds_until(bases[i], start->decisions.device_bytes,
                                          options[i].host_memory_bytes, is_all ? UINT64_MAX : 0,
                                          &bounds),
                         done);
            ns[i] = bounds.most_ns;
        }
        start->bound_ns = continued(ns, count);
    }
done:
    coh_bound_base_destroy(bases[0]);
    coh_bound_base_destroy(bases[1]);
    return status;
}

coh_status coh_initial_bound(const coh_plan *plan, uint64_t enough_ns, coh_initial_candidate *start)
{
    return plan->folded ? bound_folded(plan, enough_ns, start)
                        : bound_of(plan, &start->decisions, plan->options.microbatch_count,
                                   enough_ns, &start->bound_ns);
}

/* Bytes of the largest parameter that can be taken in row ranges. */
static uint64_t largest_split_bytes(const coh_graph *graph)
{
    uint64_t most = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_parameter_facts *facts = &graph->parameters[i].facts;
        if (facts->row_block > 0 && !graph->ops[graph->parameters[i].op].kind.column_slices &&
            coh_shape_bytes(&facts->shape) > most)
            most = coh_shape_bytes(&facts->shape);
    }
    return most;
}

/* The starts of each way to recompute, cache and update, before sorting. */
typedef struct ways {
    const coh_plan *plan;
    coh_decisions decisions[COH_INITIAL_WAYS];
    coh_initial_candidate starts[COH_INITIAL_WAYS][COH_INITIAL_ROW_CHOICES];
    int counts[COH_INITIAL_WAYS];
    int begin;         /* of the ways that are listed at once */
    int one_is_enough; /* more passes over rows would only cost time */
} ways;

static coh_status list_way(void *argument, int index)
{
    static const int32_t row_passes[COH_INITIAL_ROW_CHOICES] = { 1, 4, COH_ROW_PASSES_MOST };
    ways *w = argument;
    index += w->begin;
    for (int k = 0; k < COH_INITIAL_ROW_CHOICES; k++) {
        coh_initial_candidate *s = &w->starts[index][w->counts[index]];
        uint64_t least_bytes = 0;
        *s = (coh_initial_candidate){ .decisions = w->decisions[index] };
        s->decisions.row_passes = row_passes[k];
        coh_effort effort;
        int is_bearable;
        COH_TRY(coh_fold_effort(w->plan, &s->decisions, &effort, &is_bearable));
        if (!is_bearable)
            break;
        COH_TRY(coh_schedule_bound(w->plan->graph, &w->plan->options, &s->decisions, &least_bytes,
                                   NULL));
        if (least_bytes > s->decisions.device_bytes)
            continue;
        s->bound_ns = w->plan->least.ns;
        s->effort = coh_effort_sum(&effort);
        w->counts[index]++;
        if (w->one_is_enough)
            break;
    }
    return COH_OK;
}

/* Adds a number to a rising list, unless it is there. Returns the new count. */
static int add_choice(int32_t *list, int count, int32_t number)
{
    int at = 0;
    while (at < count && list[at] < number)
        at++;
    if (at < count && list[at] == number)
        return count;
    memmove(&list[at + 1], &list[at], (size_t)(count - at) * sizeof(*list));
    list[at] = number;
    return count + 1;
}

/* Lists how many of the last blocks to update on the host lane, into
 * counts[COH_INITIAL_HOST_CHOICES]. Returns the number of choices. */
static int host_choices(const coh_plan *plan, int32_t *counts)
{
    const int32_t blocks = coh_graph_block_count(plan->graph);
    const int32_t all[] = { 0, (blocks + 3) / 4, (blocks + 1) / 2, blocks + 1,
                            plan->least.plain.host_updates };
    const int has_host =
        plan->options.mode == COH_PLAN_TRAIN && plan->options.host_memory_bytes > 0;
    int count = 0;
    for (int i = 0; i < (has_host ? COH_INITIAL_HOST_CHOICES : 1); i++)
        count = add_choice(counts, count, all[i]);
    return count;
}

/* Lists how many of the first blocks to recompute, as coh_initial_choices, and the number that the
 * linear programme names. */
static int recompute_choices(const coh_plan *plan, int32_t *choices)
{
    const int count = coh_initial_choices(plan, choices);
    return plan->options.recompute == COH_RECOMPUTE_AUTO
               ? add_choice(choices, count, plan->least.plain.recompute)
               : count;
}

/* Part of the device's memory that resident weights may take; the rest is for windows. */
#define RESIDENT_PART 0.8

/* Lists how many of the first blocks keep their weights on the device, into
 * choices[COH_INITIAL_RESIDENTS]. With a host tier and a drive, all tiers are full of what
 * survives: what lies on the device for good needs no place in the host tier, and none of the
 * drive's time. The bounds cannot tell, since they take any placement. */
static int resident_choices(const coh_plan *plan, int32_t *choices)
{
    const coh_plan_options *o = &plan->options;
    const int32_t blocks = coh_graph_block_count(plan->graph);
    double bytes = 0;
    choices[0] = 0;
    if (o->mode != COH_PLAN_TRAIN || o->host_memory_bytes == 0 || o->disk_bytes == 0 || blocks == 0)
        return 1;
    for (size_t i = 0; i < plan->graph->parameter_count; i++)
        if (plan->graph->ops[plan->graph->parameters[i].op].block >= 0)
            bytes += (double)coh_shape_bytes(&plan->graph->parameters[i].facts.shape) / blocks;
    const double fit = bytes > 0 ? RESIDENT_PART * (double)o->device_memory_bytes / bytes : 0;
    choices[1] = fit < blocks - 1 ? (int32_t)fit : blocks - 1;
    return choices[1] > 0 ? 2 : 1;
}

/* Calls by which work is gathered early: without any, compute waits for each exchange. */
enum { LEAD_USUAL = 2 };

/* A way to start from, in as many slices. */
static coh_decisions start_of(const coh_plan *plan, uint64_t chunk_bytes, int slices,
                              int32_t recompute, int32_t host_updates)
{
    return (coh_decisions){ .device_bytes =
                                coh_bytes_whole_pages(plan->options.device_memory_bytes),
                            .chunk_bytes = chunk_bytes,
                            .recompute = coh_block_set_first(recompute),
                            .host_updates = host_updates,
                            .slices = slices,
                            .patterns = coh_pattern_choose(slices),
                            .patient = 1,
                            .boundary = COH_BOUNDARY_SETTLED,
                            .horizon = COH_HORIZON_USUAL,
                            .lead = coh_ranks_divide(&plan->options) ? LEAD_USUAL : 0 };
}

/* Fills the decisions of every way. Returns the number of ways. */
static int list_decisions(const coh_plan *plan, uint64_t chunk_bytes, int slices,
                          coh_decisions *list)
{
    int32_t choices[COH_INITIAL_CHOICES + 1], hosts[COH_INITIAL_HOST_CHOICES];
    int32_t residents[COH_INITIAL_RESIDENTS];
    const int count = recompute_choices(plan, choices), host_count = host_choices(plan, hosts);
    const int resident_count = resident_choices(plan, residents);
    int way_count = 0;
    for (int cache = 0; cache <= coh_candidates_have_caches(plan); cache++)
        for (int h = 0; h < host_count; h++)
            for (int i = 0; i < count; i++)
                for (int r = 0; r < resident_count; r++) {
                    list[way_count] = start_of(plan, chunk_bytes, slices, choices[i], hosts[h]);
                    list[way_count].resident = residents[r];
                    list[way_count++].cache = cache;
                }
    return way_count;
}

/* Fills the few ways of a long program: the bound of one takes about as long as its schedule. First
 * what the linear programme names, then its neighbours among the usual choices. */
static int list_few(const coh_plan *plan, uint64_t chunk_bytes, int slices, coh_decisions *list)
{
    int32_t choices[COH_INITIAL_CHOICES + 1], hosts[COH_INITIAL_HOST_CHOICES];
    const int count = recompute_choices(plan, choices), host_count = host_choices(plan, hosts);
    int at = 0, host_at = 0, way_count = 0;
    while (at + 1 < count && choices[at] < plan->least.plain.recompute)
        at++;
    while (host_at + 1 < host_count && hosts[host_at] < plan->least.plain.host_updates)
        host_at++;
    const int near[][2] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 0, -1 }, { -1, 0 } };
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
        const int r = at + near[i][0], h = host_at + near[i][1];
        if (r >= 0 && r < count && h >= 0 && h < host_count)
            list[way_count++] = start_of(plan, chunk_bytes, slices, choices[r], hosts[h]);
    }
    return way_count;
}

/* Returns whether the shortest way is a long program. Without the linear programme's solution none
 * is: nothing else says which ways are promising. */
static coh_status find_long(const coh_plan *plan, uint64_t chunk_bytes, int slices,
                            int *out_is_long)
{
    coh_decisions first = start_of(plan, chunk_bytes, slices, 0, 0);
    coh_effort effort;
    int unused;
    first.row_passes = 1;
    COH_TRY(coh_fold_effort(plan, &first, &effort, &unused));
    *out_is_long =
        plan->least.ns > 0 && (plan->folded || effort.instructions > COH_LONG_INSTRUCTIONS ||
                               effort.touches > COH_LONG_TOUCHES);
    return COH_OK;
}

/* Blocks by which a way differs from the linear programme's solution. */
static int32_t distance_of(const coh_plan *plan, const coh_decisions *way)
{
    return abs(coh_block_set_count(&way->recompute) - plan->least.plain.recompute) +
           abs(way->host_updates - plan->least.plain.host_updates);
}

/* Sorts ways by distance, else as they are. */
static void sort_ways(const coh_plan *plan, coh_decisions *list, int count)
{
    for (int i = 1; i < count; i++) {
        const coh_decisions way = list[i];
        int at = i;
        for (; at > 0 && distance_of(plan, &list[at - 1]) > distance_of(plan, &way); at--)
            list[at] = list[at - 1];
        list[at] = way;
    }
}

coh_status coh_initial_list(const coh_plan *plan, coh_pool *pool, int slices,
                            coh_initial_candidate *starts, int *out_count)
{
    const uint64_t budget = coh_bytes_whole_pages(plan->options.device_memory_bytes);
    uint64_t chunk_bytes = 0;
    ways w = { .plan = plan, .one_is_enough = largest_split_bytes(plan->graph) <= budget / ROOMY };
    int is_long;
    COH_TRY(coh_initial_chunk(plan, &chunk_bytes));
    COH_TRY(find_long(plan, chunk_bytes, slices, &is_long));
    const int way_count =
        (is_long ? list_few : list_decisions)(plan, chunk_bytes, slices, w.decisions);
    sort_ways(plan, w.decisions, way_count);
    for (; w.begin < way_count; w.begin += COH_AT_ONCE_MOST) {
        const int left = way_count - w.begin;
        COH_TRY(coh_at_once(pool, left < COH_AT_ONCE_MOST ? left : COH_AT_ONCE_MOST, list_way, &w));
    }
    *out_count = 0;
    for (int i = 0; i < way_count; i++)
        for (int k = 0; k < w.counts[i]; k++)
            starts[(*out_count)++] = w.starts[i][k];
    return COH_OK;
}

/* Starts to bound at once, those from `begin` on. */
typedef struct starts_part {
    const coh_plan *plan;
    coh_initial_candidate *starts;
    int begin;
    uint64_t enough_ns; /* see coh_initial_bound */
} starts_part;

/* Returns the first start that differs from start `of` at most in the blocks with resident weights:
 * bounds leave these out, so it has the same bound. */
static int first_alike(const coh_initial_candidate *starts, int of)
{
    for (int i = 0; i < of; i++) {
        coh_decisions earlier = starts[i].decisions;
        earlier.resident = starts[of].decisions.resident;
        if (coh_decisions_same_but_map(&earlier, &starts[of].decisions))
            return i;
    }
    return of;
}

static coh_status bound_start(void *argument, int index)
{
    const starts_part *part = argument;
    const int at = part->begin + index;
    coh_initial_candidate *start = &part->starts[at];
    const int is_exact =
        part->plan->options.host_memory_bytes > 0 && start->decisions.host_updates == 0;
    if (first_alike(part->starts, at) < at)
        return COH_OK;
    return coh_initial_bound(part->plan, is_exact ? UINT64_MAX : part->enough_ns, start);
}

/* Returns whether the starts are of a long program. */
static coh_status are_long(const coh_plan *plan, const coh_initial_candidate *starts, int count,
                           int *out_are_long)
{
    *out_are_long = 0;
    if (count == 0)
        return COH_OK;
    return find_long(plan, starts[0].decisions.chunk_bytes, starts[0].decisions.slices,
                     out_are_long);
}

/* Bounds the starts from `begin` to before `end`, but no more than there may be pieces at once;
 * returns how many in *out_count. All before them have their bounds. */
static coh_status bound_some(const coh_plan *plan, coh_pool *pool, coh_initial_candidate *starts,
                             int begin, int end, uint64_t enough_ns, int *out_count)
{
    starts_part part = { plan, starts, begin, enough_ns };
    const int count = end - begin < COH_AT_ONCE_MOST ? end - begin : COH_AT_ONCE_MOST;
    COH_TRY(coh_at_once(pool, count, bound_start, &part));
    for (int i = begin; i < begin + count; i++)
        starts[i].bound_ns = starts[first_alike(starts, i)].bound_ns;
    *out_count = count;
    return COH_OK;
}

coh_status coh_initial_rank(const coh_plan *plan, coh_pool *pool, coh_initial_candidate *starts,
                            int count, uint64_t enough_ns)
{
    int is_long, some, begin = 0;
    uint64_t effort = 0;
    COH_TRY(are_long(plan, starts, count, &is_long));
    if (is_long || count == 0)
        return COH_OK;
    for (; begin < count && effort < BOUNDED_EFFORT_MOST; begin += some) {
        COH_TRY(bound_some(plan, pool, starts, begin, count, enough_ns, &some));
        for (int i = begin; i < begin + some; i++)
            effort += starts[i].effort;
    }
    qsort(starts, (size_t)begin, sizeof(*starts), compare_initial);
    return COH_OK;
}

coh_status coh_initial_least(const coh_plan *plan, coh_pool *pool, coh_initial_candidate *starts,
                             int count, uint64_t enough_ns, uint64_t *out_ns)
{
    int is_long, some;
    *out_ns = count > 0 ? starts[0].bound_ns : 0;
    COH_TRY(are_long(plan, starts, count, &is_long));
    if (is_long || count == 0 || (enough_ns > 0 && *out_ns >= enough_ns))
        return COH_OK;
    *out_ns = UINT64_MAX;
    for (int begin = 0; begin < count && *out_ns >= enough_ns; begin += some) {
        const int end = begin == 0 && enough_ns > 0 ? 1 : count;
        COH_TRY(bound_some(plan, pool, starts, begin, end, UINT64_MAX, &some));
        for (int i = begin; i < begin + some; i++)
            if (starts[i].bound_ns < *out_ns)
                *out_ns = starts[i].bound_ns;
    }
    return COH_OK;
}
