/* Local search over decisions: varies one decision of the best set at a time, or two that depend on
 * each other, and moves to the best neighbour. The idea: the neighbours and their order are fixed,
 * so every machine finds the same plan. Evaluation is in candidates.c; search.c calls this from
 * several starts. */
#include "planner/neighbours.h"

#include <string.h>

#include "base/bytes.h"
#include "planner/at_once.h"
#include "planner/initial.h"
#include "planner/lower_ahead.h"
#include "planner/lower_late.h"
#include "planner/rank_axes.h"
#include "planner/residency.h"

#define KIB         ((uint64_t)1 << 10)
#define CHUNK_LEAST (256 * KIB)

/* Stop within 1/500 of the lower bound. */
enum { CLOSE_ENOUGH = 500 };

int coh_candidates_have_caches(const coh_plan *plan)
{
    int some = 0;
    for (size_t i = 0; plan->options.mode == COH_PLAN_TRAIN && i < plan->graph->op_count; i++)
        some |= plan->graph->ops[i].facts.cache_bytes > 0;
    return some;
}

/* Sets that differ from the best in one decision, or in two that depend on each other. Their number
 * affects the search: another number gives other plans. */
enum { NEIGHBOURS_MOST = 16 };
_Static_assert((int)NEIGHBOURS_MOST <= (int)COH_AT_ONCE_MOST, "all neighbours are tried at once");

typedef struct neighbours {
    coh_decisions list[NEIGHBOURS_MOST];
    int count;
} neighbours;

/* Adds a neighbour, initially equal to the best; returns NULL if there are enough. */
static coh_decisions *add_neighbour(neighbours *n, const coh_candidates *candidates)
{
    if (n->count == NEIGHBOURS_MOST)
        return NULL;
    n->list[n->count] = candidates->best.decisions;
    return &n->list[n->count++];
}

int coh_may_decide_chunk(const coh_plan *plan, uint64_t now, uint64_t bytes)
{
    const uint64_t of_many = plan->survivor_bytes / (2 * COH_INITIAL_SURVIVORS);
    uint64_t least = of_many > CHUNK_LEAST ? of_many : CHUNK_LEAST;
    if (plan->folded && least < now) /* the whole step is built, too */
        least = now;
    return plan->chunk_bytes == 0 && bytes >= least && bytes <= COH_CHUNK_BYTES_MOST;
}

static void vary_sizes(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan *plan = candidates->plan;
    const uint64_t chunk = candidates->best.decisions.chunk_bytes;
    const uint64_t sizes[] = { chunk / 2, 2 * chunk, 4 * chunk };
    coh_decisions *d;
    if (coh_candidates_have_caches(plan) && (d = add_neighbour(n, candidates)) != NULL)
        d->cache = !d->cache;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (coh_may_decide_chunk(plan, chunk, sizes[i]) &&
            (d = add_neighbour(n, candidates)) != NULL)
            d->chunk_bytes = sizes[i];
}

/* Returns 1 if the recomputed blocks are the first ones, as in every start. */
static int recomputes_first(const coh_block_set *recompute)
{
    const coh_block_set first = coh_block_set_first(coh_block_set_count(recompute));
    return memcmp(recompute, &first, sizeof(first)) == 0;
}

void coh_decide_recompute(const coh_graph *graph, int32_t count, coh_decisions *decisions)
{
    decisions->recompute = recomputes_first(&decisions->recompute)
                               ? coh_block_set_first(count)
                               : coh_block_set_spread(count, coh_graph_block_count(graph));
}

/* Varies the number of recomputed blocks: by a quarter, a sixteenth, one. */
static void vary_recompute(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan *plan = candidates->plan;
    int32_t blocks = plan->options.mode == COH_PLAN_TRAIN ? coh_graph_block_count(plan->graph) : 0;
    int32_t now = coh_block_set_count(&candidates->best.decisions.recompute);
    const int32_t steps[] = { blocks / 4, blocks / 16, 1 };
    for (size_t i = 0; plan->options.recompute == COH_RECOMPUTE_AUTO && i < 3; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int32_t next = now + sign * steps[i];
            coh_decisions *d;
            if (steps[i] > 0 && next >= 0 && next <= blocks &&
                (d = add_neighbour(n, candidates)) != NULL)
                coh_decide_recompute(candidates->plan->graph, next, d);
        }
}

static void vary_places(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan_options *o = &candidates->plan->options;
    /* Where fetches run early, space that was idle for long lets them run earlier. */
    const int32_t first = o->host_memory_bytes > 0 && o->disk_bytes > 0 ? COH_HORIZON_USUAL / 8
                                                                        : COH_HORIZON_USUAL * 6;
    const int32_t horizons[] = { first, COH_HORIZON_USUAL / 4, COH_HORIZON_USUAL,
                                 COH_HORIZON_USUAL * 3, 0 };
    coh_decisions *d;
    for (int boundary = COH_BOUNDARY_FREE; boundary <= COH_BOUNDARY_WANTED; boundary++)
        for (int patient = 0; patient < 2; patient++)
            if ((d = add_neighbour(n, candidates)) != NULL) {
                d->boundary = boundary;
                d->patient = patient;
            }
    for (size_t i = 0; i < sizeof(horizons) / sizeof(horizons[0]); i++)
        if ((d = add_neighbour(n, candidates)) != NULL)
            d->horizon = horizons[i];
    for (int tie_break = 0; tie_break < COH_TIE_COUNT; tie_break++)
        if ((d = add_neighbour(n, candidates)) != NULL)
            d->tie_break = tie_break;
}

/* Tries a boundary map with changed content that leaves during the next run, where links may be
 * idle; another tie break changes which does. */
static void vary_late_map(const coh_candidates *candidates, neighbours *n)
{
    for (int tie_break = 0; tie_break < COH_TIE_COUNT; tie_break++) {
        coh_decisions *d = add_neighbour(n, candidates);
        d->boundary = COH_BOUNDARY_LATE;
        d->tie_break = tie_break;
    }
}

/* With parts of ranks: varies how early work is gathered. */
static void vary_leads(const coh_candidates *candidates, neighbours *n)
{
    coh_decisions *d;
    if (!coh_ranks_divide(&candidates->plan->options))
        return;
    for (int32_t lead = 0; lead <= COH_LEAD_MOST; lead = lead == 0 ? 1 : 2 * lead)
        if ((d = add_neighbour(n, candidates)) != NULL)
            d->lead = lead;
}

void coh_decide_host_updates(int32_t count, coh_decisions *decisions)
{
    decisions->host_updates = count;
    decisions->late = count > 0 ? decisions->late : 0;
}

/* With a host tier: varies the updates there: none, all, a quarter or half of them, and a few more
 * or fewer; these first where little else can be tried. */
static void vary_updates(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan *plan = candidates->plan;
    int32_t blocks = coh_graph_block_count(plan->graph);
    int32_t now = candidates->best.decisions.host_updates, few = (blocks + 7) / 8;
    const int32_t counts[] = { now + few,        now - few, 0,         blocks + 1, (blocks + 3) / 4,
                               (blocks + 1) / 2, now - few, now + few, now - 1,    now + 1 };
    coh_decisions *d;
    if (plan->options.mode != COH_PLAN_TRAIN || plan->options.host_memory_bytes == 0)
        return;
    for (size_t i = candidates->is_brief ? 0 : 2; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] >= 0 && counts[i] <= blocks + 1 && (d = add_neighbour(n, candidates)) != NULL)
            coh_decide_host_updates(counts[i], d);
}

/* Varies how many of the host lane's updates run late, if some do. */
static void vary_late(const coh_candidates *candidates, neighbours *n)
{
    enum { FEW = COH_LATE_PARTS / 8 };
    const int32_t now = candidates->best.decisions.late;
    const int32_t parts[] = { now - FEW, now + FEW, now - 1, now + 1 };
    coh_decisions *d;
    for (size_t i = 0; now > 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i] >= 0 && parts[i] <= COH_LATE_PARTS &&
            (d = add_neighbour(n, candidates)) != NULL)
            d->late = parts[i];
}

/* Varies recomputation and updates together: one leaves time on the link or the device that the
 * other takes. */
static void vary_both(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan *plan = candidates->plan;
    const int32_t blocks = coh_graph_block_count(plan->graph), few = (blocks + 7) / 8;
    const coh_decisions *now = &candidates->best.decisions;
    const int32_t recompute = coh_block_set_count(&now->recompute);
    if (plan->options.mode != COH_PLAN_TRAIN || plan->options.host_memory_bytes == 0 ||
        plan->options.recompute != COH_RECOMPUTE_AUTO)
        return;
    for (int i = 0; i < 4; i++) {
        const int32_t blocks_more = recompute + (i & 1 ? few : -few);
        const int32_t updates_more = now->host_updates + (i & 2 ? few : -few);
        coh_decisions *d;
        if (blocks_more < 0 || blocks_more > blocks || updates_more < 0 ||
            updates_more > blocks + 1 || (d = add_neighbour(n, candidates)) == NULL)
            continue;
        coh_decide_recompute(candidates->plan->graph, blocks_more, d);
        coh_decide_host_updates(updates_more, d);
    }
}

/* Varies the number of blocks with resident weights. The first blocks are the last that backward
 * updates and the first that the next forward needs, so keeping their weights gains most. */
static void vary_resident(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan *plan = candidates->plan;
    int32_t blocks = coh_graph_block_count(plan->graph);
    int32_t now = candidates->best.decisions.resident, few = (blocks + 7) / 8;
    const int32_t counts[] = { 0,         blocks / 4, blocks / 2, blocks * 3 / 4,
                               now - few, now + few,  now - 1,    now + 1 };
    coh_decisions *d;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] >= 0 && counts[i] < blocks && (d = add_neighbour(n, candidates)) != NULL)
            d->resident = counts[i];
}

/* With a host tier and a drive: varies the window of the host tier. */
static void vary_window(const coh_candidates *candidates, neighbours *n)
{
    static const int32_t windows[] = { 0, 2, 4, 6, 8, 16 };
    const coh_plan *plan = candidates->plan;
    coh_decisions *d;
    if (plan->options.host_memory_bytes == 0 || plan->options.disk_bytes == 0)
        return;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
        if ((d = add_neighbour(n, candidates)) != NULL)
            d->host_window = windows[i];
}

/* With a host tier and a drive: varies which fetches run early. */
static void vary_order(const coh_candidates *candidates, neighbours *n)
{
    const coh_plan_options *o = &candidates->plan->options;
    coh_decisions *d;
    for (int early = 0; o->host_memory_bytes > 0 && o->disk_bytes > 0 && early < COH_EARLY_COUNT;
         early++)
        if ((d = add_neighbour(n, candidates)) != NULL)
            d->early = early;
}

/* Tries decisions that help only together: a filled boundary map, a horizon, and sparing changed
 * content. */
static void vary_together(const coh_candidates *candidates, neighbours *n)
{
    static const int32_t maps[] = { COH_BOUNDARY_FULL, COH_BOUNDARY_WANTED };
    static const int32_t horizons[] = { COH_HORIZON_USUAL / 8, COH_HORIZON_USUAL };
    static const int32_t tie_breaks[] = { COH_TIE_LOWEST, COH_TIE_CLEAN };
    for (int i = 0; i < NEIGHBOURS_MOST; i++) {
        coh_decisions *d = add_neighbour(n, candidates);
        d->boundary = maps[i & 1];
        d->horizon = horizons[i >> 1 & 1];
        d->tie_break = tie_breaks[i >> 2 & 1];
        d->patient = i >> 3 & 1;
    }
}

/* Varies the budget: list scheduling is anomalous, so less memory can be faster. The budgets tried
 * lie on a fixed grid of quarter octaves, so that neighbours try the same ones. */
static void vary_budget(const coh_candidates *candidates, neighbours *n)
{
    static const uint64_t quarters[] = { 65536, 77936, 92682, 110218 }; /* 2^(16 + k/4) */
    const coh_plan *plan = candidates->plan;
    uint64_t budget = plan->options.device_memory_bytes;
    for (int octave = 39; octave >= 0; octave--)
        for (int k = 3; k >= 0; k--) {
            uint64_t bytes = coh_bytes_whole_pages(quarters[k] << octave);
            coh_decisions *d;
            if (bytes < budget && bytes > budget / 2 && bytes >= plan->smallest_device_bytes &&
                (d = add_neighbour(n, candidates)) != NULL)
                d->device_bytes = bytes;
        }
}

/* The bounds of neighbours, computed at once. */
typedef struct bounded {
    const coh_candidates *candidates;
    const neighbours *list;
    int begin; /* of those that are bounded at once */
    int is_hopeless[NEIGHBOURS_MOST];
} bounded;

/* A neighbour whose bound is not below the best step cannot be better. Other decisions than these
 * change no bound by much. */
static coh_status check_hope(void *argument, int index)
{
    bounded *b = argument;
    index += b->begin;
    const coh_candidate *best = &b->candidates->best;
    coh_initial_candidate of = { .decisions = b->list->list[index] };
    const coh_decisions *d = &of.decisions, *now = &best->decisions;
    if ((d->host_updates == now->host_updates && d->cache == now->cache &&
         coh_block_set_count(&d->recompute) == coh_block_set_count(&now->recompute)) ||
        coh_candidates_was_tried(b->candidates, d))
        return COH_OK;
    COH_TRY(coh_initial_bound(b->candidates->plan, best->step_ns, &of));
    b->is_hopeless[index] = of.bound_ns >= best->step_ns;
    return COH_OK;
}

/* Leaves out hopeless neighbours. Bounds no more of them than will be tried. */
static coh_status drop_hopeless(const coh_candidates *candidates, neighbours *n)
{
    bounded b = { .candidates = candidates, .list = n };
    const uint32_t left = candidates->evaluations_most - candidates->evaluations;
    uint32_t untried = 0;
    int count = 0;
    if (candidates->best.instruction_count > COH_LONG_INSTRUCTIONS * 2)
        return COH_OK; /* bounds take as long as schedules */
    while (b.begin < n->count && untried < left) {
        const int end = (uint32_t)(n->count - b.begin) < left - untried
                            ? n->count
                            : b.begin + (int)(left - untried);
        COH_TRY(coh_at_once(candidates->pool, end - b.begin, check_hope, &b));
        for (; b.begin < end; b.begin++)
            if (!b.is_hopeless[b.begin]) {
                untried += !coh_candidates_was_tried(candidates, &n->list[b.begin]);
                n->list[count++] = n->list[b.begin];
            }
    }
    for (; b.begin < n->count; b.begin++)
        n->list[count++] = n->list[b.begin];
    n->count = count;
    return COH_OK;
}

typedef void vary(const coh_candidates *, neighbours *);

static vary *const variations[] = { vary_window,   vary_updates, vary_sizes,  vary_recompute,
                                    vary_resident, vary_places,  vary_budget, vary_together,
                                    vary_both,     vary_leads,   vary_late,   vary_order,
                                    vary_late_map };
enum { VARIATION_COUNT = sizeof(variations) / sizeof(variations[0]) };

/* Tries the neighbours that one variation makes; *out_gains: one is better than the best. */
static coh_status try_variation(coh_candidates *candidates, vary *variation, int *out_gains)
{
    const uint64_t before_ns = candidates->best.step_ns;
    neighbours n = { .count = 0 };
    variation(candidates, &n);
    COH_TRY(drop_hopeless(candidates, &n));
    COH_TRY(coh_candidates_try(candidates, n.list, n.count));
    *out_gains = candidates->best.step_ns < before_ns;
    return COH_OK;
}

/* Returns 1 if the best is as fast as the bound, or the evaluations are used up. */
static int is_done(const coh_candidates *candidates, uint64_t bound_ns)
{
    return candidates->best.step_ns <= bound_ns + bound_ns / CLOSE_ENOUGH ||
           candidates->evaluations >= candidates->evaluations_most;
}

coh_status coh_candidates_improve(coh_candidates *candidates, uint64_t bound_ns)
{
    int gains[VARIATION_COUNT];
    for (int is_whole = 1;;) { /* a round of all variations, else of those that gained last */
        int some = 0;
        for (int i = 0; i < VARIATION_COUNT; i++) {
            if (is_done(candidates, bound_ns))
                return COH_OK;
            if (!is_whole && !gains[i])
                continue;
            COH_TRY(try_variation(candidates, variations[i], &gains[i]));
            some |= gains[i];
        }
        if (!some && is_whole)
            return COH_OK;
        is_whole = !some;
    }
}

/* Lists as many blocks, spread evenly in place of the first ones, and an eighth and a quarter
 * fewer: between spread blocks the link takes the activations of more kept ones. It is nearly full
 * then, so content that needs no STORE leaves first, and a long horizon gives what is fetched the
 * time of several blocks. */
static void list_spread(const coh_candidates *candidates, neighbours *n)
{
    const int32_t blocks = coh_graph_block_count(candidates->plan->graph);
    const int32_t now = coh_block_set_count(&candidates->best.decisions.recompute);
    const int32_t counts[] = { now, now - now / 8, now - now / 4 };
    const size_t count = candidates->is_brief ? 1 : sizeof(counts) / sizeof(counts[0]);
    for (size_t i = 0; now > 0 && now < blocks && i < count; i++) {
        coh_decisions *d = add_neighbour(n, candidates);
        d->recompute = coh_block_set_spread(counts[i], blocks);
        d->tie_break = COH_TIE_CLEAN;
        d->horizon = COH_HORIZON_USUAL * 3;
    }
}

/* From a spread set goes on to fewer blocks, with the same horizon and a longer one, by an eighth
 * of them, then by ever smaller steps: the fewer blocks are recomputed, the more arrives, so the
 * best horizon grows with it, and one decision varied at a time would not find both. */
static coh_status spread_fewer(coh_candidates *candidates, uint64_t bound_ns)
{
    const int32_t blocks = coh_graph_block_count(candidates->plan->graph);
    int32_t fewer = (coh_block_set_count(&candidates->best.decisions.recompute) + 7) / 8;
    while (fewer > 0 && !is_done(candidates, bound_ns)) {
        const uint64_t before_ns = candidates->best.step_ns;
        const int32_t next = coh_block_set_count(&candidates->best.decisions.recompute) - fewer;
        neighbours n = { .count = 0 };
        for (int longer = 0; next > 0 && longer < 2 - candidates->is_brief; longer++) {
            coh_decisions *d = add_neighbour(&n, candidates);
            d->recompute = coh_block_set_spread(next, blocks);
            d->horizon += longer * COH_HORIZON_USUAL;
        }
        COH_TRY(coh_candidates_try(candidates, n.list, n.count));
        if (candidates->best.step_ns >= before_ns)
            fewer = candidates->is_brief ? 0 : fewer / 2;
    }
    return COH_OK;
}

coh_status coh_candidates_spread(coh_candidates *candidates, uint32_t most, uint64_t bound_ns)
{
    const coh_plan_options *o = &candidates->plan->options;
    const uint64_t before_ns = candidates->best.step_ns;
    neighbours n = { .count = 0 };
    if (o->mode != COH_PLAN_TRAIN || o->host_memory_bytes == 0 ||
        o->recompute != COH_RECOMPUTE_AUTO || before_ns <= bound_ns + bound_ns / CLOSE_ENOUGH ||
        !recomputes_first(&candidates->best.decisions.recompute))
        return COH_OK;
    list_spread(candidates, &n);
    candidates->evaluations_most = candidates->evaluations + most;
    COH_TRY(coh_candidates_try(candidates, n.list, n.count));
    candidates->evaluations_most = candidates->evaluations + most / 2;
    if (candidates->best.step_ns >= before_ns)
        return COH_OK;
    COH_TRY(spread_fewer(candidates, bound_ns));
    return candidates->is_brief ? COH_OK : coh_candidates_improve(candidates, bound_ns);
}

/* Blocks recomputed with light operators and writes to dead space: a fifth fewer than before, since
 * outputs of norms and of products of elements are about a sixth of a block's activations, so a
 * fifth more blocks have room; with attention two fifths. A guess: neighbours of a better set vary
 * the number. Fewer than five have no fifth. */
enum { FEWER_PART = 5 };

/* Adds a neighbour whose light operators run again and whose writes go to dead space at once, with
 * so many fewer recomputed blocks. */
static void add_light(const coh_candidates *candidates, neighbours *n, int light, int32_t fewer)
{
    const int32_t now = coh_block_set_count(&candidates->best.decisions.recompute);
    coh_decisions *d = add_neighbour(n, candidates);
    d->light = light;
    d->patient = COH_PATIENT_MOVED;
    if (fewer > 0)
        coh_decide_recompute(candidates->plan->graph, now - fewer, d);
}

/* Lists sets nearer to the linear programme's solution with these light operators: a quarter, a
 * third and half of the way back from it to the present number of recomputed blocks, in the whole
 * device memory. A light operator costs the same time in each kept block, so few more of these may
 * be slower where many are faster; and what they keep needs room. */
static void list_toward_least(const coh_candidates *candidates, neighbours *n, int light)
{
    enum { QUARTER = 4, HALF = 2 };
    const coh_plan *plan = candidates->plan;
    const int32_t now = coh_block_set_count(&candidates->best.decisions.recompute);
    const int32_t least = plan->least.light[light].recompute;
    for (int part = candidates->is_brief ? HALF : QUARTER; part >= HALF && least >= 0; part--) {
        const int32_t fewer = now - least - (now - least) / part;
        if (fewer <= light * now / FEWER_PART)
            continue;
        add_light(candidates, n, light, fewer);
        n->list[n->count - 1].device_bytes =
            coh_bytes_whole_pages(plan->options.device_memory_bytes);
    }
}

/* Lists ways to move less that the other variations leave out: light operators run again in
 * backward in place of keeping their outputs, and what compute writes goes to dead space at once,
 * so that fewer activations leave. And a host tier of half the window holds more that need not
 * cross to the drive. */
static void list_light(const coh_candidates *candidates, neighbours *n)
{
    const int32_t now = coh_block_set_count(&candidates->best.decisions.recompute);
    const int may_repeat = candidates->plan->options.recompute == COH_RECOMPUTE_AUTO;
    if (!may_repeat || !candidates->is_brief)
        add_neighbour(n, candidates)->patient = COH_PATIENT_MOVED;
    if (candidates->best.decisions.host_window > 1 && !candidates->is_brief)
        add_neighbour(n, candidates)->host_window /= 2;
    if (!may_repeat)
        return;
    if (!candidates->is_brief)
        add_neighbour(n, candidates)->light = COH_LIGHT_ELEMENTS;
    for (int light = COH_LIGHT_ELEMENTS; light < COH_LIGHT_COUNT; light++) {
        add_light(candidates, n, light, 0);
        if (now >= FEWER_PART)
            add_light(candidates, n, light, light * now / FEWER_PART);
        list_toward_least(candidates, n, light);
    }
}

/* Returns the best of the candidates from `first` on whose light operators are cheap ones, or of
 * the others; NULL: none fits. */
static const coh_candidate *best_light(const coh_candidates *candidates, size_t first, int is_cheap)
{
    const coh_candidate *best = NULL;
    for (size_t i = first; i < candidates->count; i++) {
        const coh_candidate *c = &candidates->all[i];
        if (c->valid && (c->decisions.light == COH_LIGHT_CHEAP) == is_cheap &&
            (best == NULL || coh_candidate_is_better(c, best)))
            best = c;
    }
    return best;
}

/* Goes on from a candidate, to fewer recomputed blocks and to neighbours. */
static coh_status improve_light(coh_candidates *candidates, const coh_candidate *from,
                                uint32_t most, uint64_t bound_ns)
{
    const coh_candidate best = candidates->best;
    candidates->best = *from;
    candidates->evaluations_most = candidates->evaluations + most;
    coh_status status = COH_OK;
    if (!recomputes_first(&from->decisions.recompute))
        status = spread_fewer(candidates, bound_ns);
    if (status == COH_OK)
        status = coh_candidates_improve(candidates, bound_ns);
    if (!coh_candidate_is_better(&candidates->best, &best))
        candidates->best = best;
    return status;
}

static coh_status try_light(coh_candidates *candidates, uint32_t most, uint64_t bound_ns)
{
    const uint64_t before_ns = candidates->best.step_ns;
    const size_t first = candidates->count;
    coh_candidate from[2] = { 0 };
    neighbours n = { .count = 0 };
    list_light(candidates, &n);
    candidates->evaluations_most = candidates->evaluations + (uint32_t)n.count + 1;
    COH_TRY(coh_candidates_try(candidates, n.list, n.count));
    const int is_cheap = candidates->best.decisions.light == COH_LIGHT_CHEAP;
    for (int i = 0; i < 2; i++) {
        const coh_candidate *best = best_light(candidates, first, i == 0 ? is_cheap : !is_cheap);
        if (best != NULL)
            from[i] = *best;
    }
    for (int i = 0; i < 2; i++)
        if (from[i].valid && from[i].step_ns < before_ns)
            COH_TRY(improve_light(candidates, &from[i], most, bound_ns));
    return COH_OK;
}

/* Returns the best candidate whose number of host updates is a quarter of the blocks or more away
 * from the best's, and whose step is at most a sixteenth longer; NULL: there is none. */
static const coh_candidate *best_elsewhere(const coh_candidates *candidates)
{
    enum { APART = 4, NEAR_PART = 16 };
    const coh_candidate *best = &candidates->best, *found = NULL;
    const int32_t blocks = coh_graph_block_count(candidates->plan->graph);
    for (size_t i = 0; i < candidates->count; i++) {
        const coh_candidate *c = &candidates->all[i];
        const int32_t away = c->decisions.host_updates - best->decisions.host_updates;
        if (c->valid && APART * (away < 0 ? -away : away) >= blocks &&
            c->step_ns <= best->step_ns + best->step_ns / NEAR_PART &&
            (found == NULL || coh_candidate_is_better(c, found)))
            found = c;
    }
    return found;
}

/* Tries light operators from another valley, too: they save most where most crosses the link, which
 * without them is slower. */
static coh_status try_light_elsewhere(coh_candidates *candidates, uint32_t most, uint64_t bound_ns)
{
    const coh_candidate best = candidates->best;
    const coh_candidate *elsewhere = candidates->is_brief ? NULL : best_elsewhere(candidates);
    if (elsewhere == NULL)
        return COH_OK;
    candidates->best = *elsewhere;
    const coh_status status = try_light(candidates, most, bound_ns);
    if (!coh_candidate_is_better(&candidates->best, &best))
        candidates->best = best;
    return status;
}

coh_status coh_candidates_refine(coh_candidates *candidates, uint32_t most, uint64_t bound_ns)
{
    const coh_plan_options *o = &candidates->plan->options;
    if (candidates->plan->least.ns > 0)
        bound_ns = candidates->plan->least.light_ns;
    const uint64_t enough_ns = bound_ns + bound_ns / CLOSE_ENOUGH;
    if (o->mode != COH_PLAN_TRAIN || candidates->best.decisions.in_memory || !coh_plan_has_far(o))
        return COH_OK;
    if (candidates->best.step_ns > enough_ns)
        COH_TRY(try_light(candidates, most, bound_ns));
    if (candidates->best.step_ns > enough_ns)
        COH_TRY(try_light_elsewhere(candidates, most, bound_ns));
    return COH_OK;
}
