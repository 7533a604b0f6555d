/* Random changes of decisions; see perturb.h. The idea: each change is as large as those by which
 * good sets differ from each other, so most changed sets still fit and some are better. A second
 * start is in another valley, into which such changes do not lead. */
#include "planner/perturb.h"

#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "planner/lower_late.h"
#include "planner/neighbours.h"
#include "planner/residency.h"

/* Sets tried at a time: more would be changes of a set that is no longer the best. A set has one to
 * CHANGES_MOST changes. The search ends within 1/NEAR_PART of the bound. */
enum { SETS_AT_ONCE = 4, CHANGES_MOST = 4, NEAR_PART = 100 };

/* A start with light operators gets half of the changes, and of their effort, unless it is slower
 * than the best set by more than 1/START_PART. The sets among which it is found may take
 * 1/EFFORT_PART of that effort in addition. */
enum { START_PART = 64, EFFORT_PART = 4 };

/* Sets that a thorough search changes, and the number of its first changed set. */
enum { LEADERS_MOST = 8, LEADERS_FIRST_SET = 1 << 20 };

/* Steps after which longer horizons gain nothing. */
enum { HORIZON_MOST = 1024 };

/* The host tier's window, in 64ths of it: how far it moves, and up to where. */
enum { WINDOW_AWAY = 3, WINDOW_MOST = 24 };

/* Any number would do. */
enum { PERTURB_SEED = 2 };

/* The draws of a set, in order. */
typedef struct dice {
    uint64_t set, drawn;
} dice;

/* Draws a number in [0, count). */
static int32_t draw(dice *draws, int32_t count)
{
    return (int32_t)coh_rng_below(PERTURB_SEED, draws->set, draws->drawn++, (uint64_t)count);
}

/* Draws one of the elements of an array. */
#define DRAW_OF(draws, array) (array)[draw(draws, (int32_t)(sizeof(array) / sizeof((array)[0])))]

/* Draws a number at most `most_away` from `now` and not equal to it, unless [least, most] ends
 * there. */
static int32_t draw_near(dice *draws, int32_t now, int32_t most_away, int32_t least, int32_t most)
{
    const int32_t away = 1 + draw(draws, most_away);
    const int32_t next = draw(draws, 2) ? now + away : now - away;
    return next < least ? least : next > most ? most : next;
}

static int has_both_tiers(const coh_plan *plan)
{
    return plan->options.host_memory_bytes > 0 && plan->options.disk_bytes > 0;
}

/* The most blocks by which a number of blocks changes. */
static int32_t few_blocks(const coh_plan *plan)
{
    return coh_graph_block_count(plan->graph) / 12 + 1;
}

typedef void change(const coh_plan *, dice *, coh_decisions *);

static void change_recompute(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    const int32_t blocks = coh_graph_block_count(plan->graph);
    const int32_t now = coh_block_set_count(&d->recompute);
    if (plan->options.recompute == COH_RECOMPUTE_AUTO)
        coh_decide_recompute(plan->graph, draw_near(draws, now, few_blocks(plan), 0, blocks), d);
}

/* Recomputes one block more or less. */
static void change_block(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    const int32_t blocks = coh_graph_block_count(plan->graph);
    if (plan->options.recompute != COH_RECOMPUTE_AUTO || blocks == 0)
        return;
    const int32_t block = draw(draws, blocks);
    if (coh_block_set_has(&d->recompute, block))
        coh_block_set_remove(&d->recompute, block);
    else
        coh_block_set_add(&d->recompute, block);
}

static void change_host_updates(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    const int32_t most = coh_graph_block_count(plan->graph) + 1;
    if (plan->options.host_memory_bytes > 0)
        coh_decide_host_updates(draw_near(draws, d->host_updates, few_blocks(plan), 0, most), d);
}

static void change_resident(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    const int32_t most = coh_graph_block_count(plan->graph);
    if (most > 0)
        d->resident = draw_near(draws, d->resident, 2 * few_blocks(plan), 0, most);
}

/* Another horizon, or half to twice as many steps. */
static void change_horizon(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    static const int32_t horizons[] = {
        0, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512
    };
    static const int32_t quarters[] = { 2, 3, 5, 6, 8 };
    (void)plan;
    if (draw(draws, 2))
        d->horizon = DRAW_OF(draws, horizons);
    else
        d->horizon = d->horizon * DRAW_OF(draws, quarters) / 4;
    d->horizon = d->horizon < HORIZON_MOST ? d->horizon : HORIZON_MOST;
}

/* Lets what compute writes wait for space that no mover used for long. */
static void change_wait(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    static const int32_t horizons[] = { 96, 128, 192, 256, 384, 512, 768 };
    (void)plan;
    d->patient = COH_PATIENT_MOVED;
    d->horizon = DRAW_OF(draws, horizons);
}

static void change_tie_break(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    (void)plan;
    d->tie_break = draw(draws, COH_TIE_COUNT);
}

static void change_patient(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    (void)plan;
    d->patient = draw(draws, COH_PATIENT_COUNT);
}

static void change_boundary(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    (void)plan;
    d->boundary = draw(draws, COH_BOUNDARY_COUNT);
}

static void change_light(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    if (plan->options.recompute == COH_RECOMPUTE_AUTO)
        d->light = draw(draws, COH_LIGHT_COUNT);
}

static void change_chunk(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    const uint64_t bytes = draw(draws, 2) ? d->chunk_bytes * 2 : d->chunk_bytes / 2;
    if (coh_may_decide_chunk(plan, d->chunk_bytes, bytes))
        d->chunk_bytes = bytes;
}

/* With a host tier and a drive: the window of the host tier; else light operators. */
static void change_window(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    if (has_both_tiers(plan))
        d->host_window = draw_near(draws, d->host_window, WINDOW_AWAY, 0, WINDOW_MOST);
    else
        change_light(plan, draws, d);
}

/* With a host tier and a drive: which fetches run early; else how many updates run late. */
static void change_order(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    if (has_both_tiers(plan))
        d->early = draw(draws, COH_EARLY_COUNT);
    else if (d->late > 0)
        d->late = draw_near(draws, d->late, COH_LATE_PARTS / 4, 0, COH_LATE_PARTS);
}

/* Recomputed blocks are drawn four times as often. */
static change *const changes[] = { change_recompute, change_recompute,    change_block,
                                   change_block,     change_host_updates, change_resident,
                                   change_horizon,   change_wait,         change_tie_break,
                                   change_patient,   change_boundary,     change_window,
                                   change_order,     change_chunk };
enum { CHANGE_COUNT = sizeof(changes) / sizeof(changes[0]) };

static void change_some(const coh_plan *plan, dice *draws, coh_decisions *d)
{
    for (int32_t left = 1 + draw(draws, CHANGES_MOST); left > 0; left--)
        changes[draw(draws, CHANGE_COUNT)](plan, draws, d);
}

/* ---- the start with light operators ---- */

/* The programme leaves out the memory in which a step works, so its numbers of recomputed blocks
 * may be too small by up to FURTHER eighths: they rise until some set fits, and as long as the best
 * of these sets gets faster. */
enum { EIGHTHS = 8, FEWER_UPDATES = 3, HORIZONS = 2, FURTHER = 4 };
enum { NEAR_STREAMED = FEWER_UPDATES * HORIZONS, NEAR_LEAST = NEAR_STREAMED + HORIZONS };

/* Streams weights: with as many host updates as the solution, an eighth and a quarter of the blocks
 * fewer, each with a short and a long horizon. */
static void stream_weights(const coh_least_set *least, int32_t recompute, int32_t blocks, int index,
                           coh_decisions *d)
{
    static const int32_t horizons[HORIZONS] = { COH_HORIZON_USUAL * 2, COH_HORIZON_USUAL * 6 };
    const int32_t fewer = blocks * (index % FEWER_UPDATES) / EIGHTHS;
    d->recompute = coh_block_set_spread(recompute, blocks);
    coh_decide_host_updates(least->host_updates > fewer ? least->host_updates - fewer : 0, d);
    d->resident = blocks / EIGHTHS;
    d->horizon = horizons[index / FEWER_UPDATES];
    d->patient = COH_PATIENT_ALL;
    d->boundary = COH_BOUNDARY_LATE;
}

/* Holds the weights of all blocks in the device, so that only states and activations cross the
 * link. Both lie unused for most of a step, so long horizons leave them time to return. */
static void hold_weights(const coh_least_set *least, int32_t recompute, int32_t blocks, int index,
                         coh_decisions *d)
{
    static const int32_t horizons[HORIZONS] = { COH_HORIZON_USUAL * 12, COH_HORIZON_USUAL * 16 };
    d->recompute = coh_block_set_first(recompute);
    coh_decide_host_updates(least->host_updates, d);
    d->resident = blocks;
    d->horizon = horizons[index];
    d->patient = COH_PATIENT_FETCHES;
    d->boundary = COH_BOUNDARY_FREE;
}

/* Set `index` near the solution with the light operators of one kind. */
static coh_decisions near_least(const coh_candidates *candidates, int light, int further, int index)
{
    const coh_plan *plan = candidates->plan;
    const coh_least_set *least = &plan->least.light[light];
    const int32_t blocks = coh_graph_block_count(plan->graph);
    const int32_t more = least->recompute + further * blocks / EIGHTHS;
    const int32_t recompute = more < blocks ? more : blocks;
    coh_decisions d = candidates->best.decisions;
    d.device_bytes = coh_bytes_whole_pages(plan->options.device_memory_bytes);
    d.light = light;
    d.late = least->late;
    if (index < NEAR_STREAMED)
        stream_weights(least, recompute, blocks, index, &d);
    else
        hold_weights(least, recompute, blocks, index - NEAR_STREAMED, &d);
    return d;
}

/* Lists the sets near all solutions, at most `most`. Returns their number. */
static int list_near(const coh_candidates *candidates, int further, uint64_t most,
                     coh_decisions *list)
{
    int count = 0;
    for (int i = 0; i < NEAR_LEAST; i++)
        for (int light = COH_LIGHT_ELEMENTS; light < COH_LIGHT_COUNT; light++)
            if (candidates->plan->least.light[light].recompute >= 0 && (uint64_t)count < most)
                list[count++] = near_least(candidates, light, further, i);
    return count;
}

/* Tries sets near the solutions of the linear programme with light operators: the search meets
 * these only if its best set is near them. *out_start: the best one; not valid if none fits. */
static coh_status try_near_least(coh_candidates *candidates, coh_candidate *out_start)
{
    const uint64_t effort = candidates->best.effort > 0 ? candidates->best.effort : 1;
    uint64_t most = candidates->effort_most / EFFORT_PART / effort;
    int goes_on = 1;
    *out_start = (coh_candidate){ 0 };
    for (int further = 0; further <= FURTHER && goes_on; further++) {
        const coh_candidate before = *out_start;
        coh_decisions list[COH_LIGHT_COUNT * NEAR_LEAST];
        const size_t first = candidates->count;
        const int count = list_near(candidates, further, most, list);
        most -= (uint64_t)count;
        candidates->evaluations_most = candidates->evaluations + (uint32_t)count;
        COH_TRY(coh_candidates_try(candidates, list, count));
        for (size_t i = first; i < candidates->count; i++)
            if (coh_candidate_is_better(&candidates->all[i], out_start))
                *out_start = candidates->all[i];
        goes_on = !before.valid || coh_candidate_is_better(out_start, &before);
    }
    candidates->effort = 0;
    return COH_OK;
}

/* ---- around one set ---- */

/* Changes the best set at random, `most` times. */
static coh_status change_best(coh_candidates *candidates, uint32_t most, uint64_t bound_ns,
                              uint64_t *set)
{
    const coh_candidate *best = &candidates->best;
    candidates->evaluations_most = candidates->evaluations + most;
    for (uint32_t tried = 0; tried < most && coh_perturb_may_gain(best->step_ns, bound_ns);
         tried += SETS_AT_ONCE) {
        coh_decisions list[SETS_AT_ONCE];
        for (int i = 0; i < SETS_AT_ONCE; i++) {
            dice draws = { .set = (*set)++ };
            list[i] = best->decisions;
            change_some(candidates->plan, &draws, &list[i]);
        }
        COH_TRY(coh_candidates_try(candidates, list, SETS_AT_ONCE));
    }
    return COH_OK;
}

int coh_perturb_may_gain(uint64_t step_ns, uint64_t bound_ns)
{
    return step_ns > bound_ns + bound_ns / NEAR_PART;
}

coh_status coh_candidates_perturb(coh_candidates *candidates, uint32_t most, uint64_t bound_ns)
{
    const uint64_t effort_most = candidates->effort_most;
    const coh_candidate best = candidates->best;
    coh_candidate start = { 0 };
    uint64_t set = 0;
    if (coh_perturb_may_gain(best.step_ns, bound_ns) &&
        candidates->plan->options.recompute == COH_RECOMPUTE_AUTO)
        COH_TRY(try_near_least(candidates, &start));
    if (start.valid && start.step_ns <= best.step_ns + best.step_ns / START_PART) {
        candidates->best = start;
        candidates->effort_most = effort_most / 2;
        COH_TRY(change_best(candidates, most / 2, bound_ns, &set));
        candidates->effort_most = effort_most;
        if (!coh_candidate_is_better(&candidates->best, &best))
            candidates->best = best;
        most -= most / 2;
    }
    return change_best(candidates, most, bound_ns, &set);
}

/* ---- a thorough search ---- */

/* The fastest sets tried so far, the fastest first, each with another step. Changes of several find
 * valleys between which all sets are worse. */
typedef struct leaders {
    coh_candidate sets[LEADERS_MOST];
    int32_t count;
} leaders;

static void join(leaders *l, const coh_candidate *set)
{
    int at = l->count;
    while (at > 0 && coh_candidate_is_better(set, &l->sets[at - 1]))
        at--;
    if (!set->valid || at == LEADERS_MOST || (at > 0 && l->sets[at - 1].step_ns == set->step_ns) ||
        (at < l->count && l->sets[at].step_ns == set->step_ns))
        return;
    if (l->count < LEADERS_MOST)
        l->count++;
    memmove(&l->sets[at + 1], &l->sets[at], (size_t)(l->count - 1 - at) * sizeof(*set));
    l->sets[at] = *set;
}

coh_status coh_candidates_perturb_leaders(coh_candidates *candidates, uint32_t most,
                                          uint64_t bound_ns)
{
    uint64_t set = LEADERS_FIRST_SET;
    leaders l = { .count = 0 };
    join(&l, &candidates->best);
    for (size_t i = 0; i < candidates->count; i++)
        join(&l, &candidates->all[i]);
    candidates->evaluations_most = candidates->evaluations + most;
    for (uint32_t tried = 0;
         tried < most && coh_perturb_may_gain(candidates->best.step_ns, bound_ns);
         tried += SETS_AT_ONCE) {
        coh_decisions list[SETS_AT_ONCE];
        const size_t first = candidates->count;
        for (int i = 0; i < SETS_AT_ONCE; i++) {
            dice draws = { .set = set++ };
            const int32_t few = 1 + draw(&draws, l.count);
            list[i] = l.sets[draw(&draws, few)].decisions;
            change_some(candidates->plan, &draws, &list[i]);
        }
        COH_TRY(coh_candidates_try(candidates, list, SETS_AT_ONCE));
        for (size_t i = first; i < candidates->count; i++)
            join(&l, &candidates->all[i]);
    }
    return COH_OK;
}
