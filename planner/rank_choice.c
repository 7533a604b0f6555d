/* Chooses the rank pattern of a plan. The idea: patterns trade memory for exchanges, and no bound
 * tells which is worth it, so the plans of all of them are compared. Quick plans decide which
 * patterns are worth a usual search. Next: plan.c calls it, rank_pattern.c has the list. */
#include "planner/rank_choice.h"

#include <string.h>

#include "base/check.h"
#include "cohobate/rank_pattern.h"
#include "cohobate/terms.h"
#include "planner/attempt.h"
#include "planner/rank_axes.h"

/* A quick plan's step is often a tenth longer than a usual one's: patterns within an eighth of the
 * best are searched as usual, at most this many. */
enum { ABOUT = 8, SEARCHED_MOST = 3 };

/* Steps within this part of each other are alike: prices are no more exact, and an earlier pattern
 * moves fewer bytes. */
enum { ALIKE = 200 };

int coh_rank_pattern_is_auto(const coh_plan_options *options)
{
    return strcmp(options->rank_pattern, COH_RANK_PATTERN_AUTO) == 0;
}

int coh_rank_choices(const coh_plan_options *options, const char *names[COH_RANK_PATTERNS_MOST])
{
    coh_rank_axes known[COH_RANK_PATTERNS_MOST];
    const int32_t listed = coh_rank_pattern_count();
    int count = 0;
    names[0] = coh_rank_pattern_is_auto(options) ? "" : options->rank_pattern;
    if (!coh_rank_pattern_is_auto(options) || coh_fold_replicas(&options->ranks) == 1)
        return 1;
    for (int32_t i = 0; i < listed && count < COH_RANK_PATTERNS_MOST; i++) {
        int same = 0;
        names[count] = coh_rank_pattern_at(i)->name;
        if (coh_rank_axes_find(options, names[count], &known[count]) != COH_OK)
            continue;
        while (same < count && memcmp(&known[same], &known[count], sizeof(known[0])) != 0)
            same++;
        count += same == count;
    }
    return count;
}

/* `name` may be options->rank_pattern itself. */
static void set_pattern(coh_plan_options *options, const char *name)
{
    memmove(options->rank_pattern, name, strlen(name) + 1);
}

typedef struct choice {
    const coh_graph *graph;
    const coh_plan_options *options;
    coh_plan_maker *make;
    coh_plan_depth depth;
    const char *names[COH_RANK_PATTERNS_MOST];
    uint64_t quick_ns[COH_RANK_PATTERNS_MOST]; /* UINT64_MAX: it does not fit */
    int count;
    coh_plan *best;
    int best_index;
    coh_attempt refused; /* the one that lacks least; status COH_OK: none so far */
} choice;

/* Keeps the refusal that lacks fewer bytes; one of bytes before others. */
static void keep_refusal(choice *c, const coh_attempt *attempt)
{
    const uint64_t now = c->refused.refusal.short_bytes, new = attempt->refusal.short_bytes;
    if (c->refused.status == COH_OK || (new > 0 && (now == 0 || new < now)))
        c->refused = *attempt;
}

/* Returns 1 if the plan is better than the best: of steps as long, the earlier pattern is. */
static int is_better(const choice *c, const coh_plan *plan, int index)
{
    const uint64_t ns = coh_plan_period_ns(plan), best_ns = coh_plan_period_ns(c->best);
    if (c->best == NULL || index == c->best_index)
        return c->best == NULL || ns < best_ns;
    return index < c->best_index ? ns <= best_ns + best_ns / ALIKE : ns + ns / ALIKE < best_ns;
}

/* Plans a pattern, and keeps the plan if it is the best so far. Fails for another reason than its
 * size. */
static coh_status try_pattern(choice *c, int index, coh_search search, uint64_t *out_ns)
{
    coh_plan_options each = *c->options;
    coh_attempt attempt = { 0 };
    each.search = search;
    set_pattern(&each, c->names[index]);
    coh_attempt_end(&attempt, c->make(c->graph, &each, c->depth, &attempt.plan));
    *out_ns = coh_plan_period_ns(attempt.plan);
    if (coh_attempt_is_fault(&attempt))
        return coh_attempt_fail(&attempt);
    if (attempt.plan == NULL) {
        keep_refusal(c, &attempt);
        return COH_OK;
    }
    const int takes = is_better(c, attempt.plan, index);
    coh_plan_destroy(takes ? c->best : attempt.plan);
    if (takes) {
        c->best = attempt.plan;
        c->best_index = index;
    }
    return COH_OK;
}

/* Returns the pattern of the fastest quick plan that is not searched yet; -1: none is about as fast
 * as `best_ns`. */
static int next_to_search(const choice *c, uint64_t best_ns, const int *is_searched)
{
    int next = -1;
    for (int i = 0; i < c->count; i++)
        if (!is_searched[i] && c->quick_ns[i] <= best_ns + best_ns / ABOUT &&
            (next < 0 || c->quick_ns[i] < c->quick_ns[next]))
            next = i;
    return next;
}

/* Searches the patterns with the fastest quick plans as usual. In memory without recomputation
 * there is nothing to search. */
static coh_status search_best(choice *c)
{
    const uint64_t best_ns = coh_plan_period_ns(c->best);
    int is_searched[COH_RANK_PATTERNS_MOST] = { 0 };
    uint64_t unused;
    if (c->best->decisions.in_memory && coh_block_set_count(&c->best->decisions.recompute) == 0)
        return COH_OK;
    for (int searched = 0; searched < SEARCHED_MOST; searched++) {
        const int next = next_to_search(c, best_ns, is_searched);
        if (next < 0)
            break;
        is_searched[next] = 1;
        COH_TRY(try_pattern(c, next, c->options->search, &unused));
    }
    return COH_OK;
}

static coh_status choose(choice *c)
{
    const coh_search search = c->options->search;
    const int improves = coh_search_is_whole(search) || search == COH_SEARCH_COMPARE;
    const coh_search first = improves ? COH_SEARCH_QUICK : search;
    for (int i = 0; i < c->count && !(c->depth == COH_PLAN_FITS && c->best != NULL); i++)
        COH_TRY(try_pattern(c, i, first, &c->quick_ns[i]));
    if (c->best == NULL)
        return coh_attempt_fail(&c->refused);
    return c->depth != COH_PLAN_FITS && improves ? search_best(c) : COH_OK;
}

coh_status coh_rank_choice_plan(const coh_graph *graph, const coh_plan_options *options,
                                coh_plan_depth depth, coh_plan_maker *make, coh_plan **out_plan)
{
    choice c = { .graph = graph, .options = options, .make = make, .depth = depth };
    coh_plan_options one = *options;
    *out_plan = NULL;
    c.count = coh_rank_choices(options, c.names);
    if (c.count == 1) {
        set_pattern(&one, c.names[0]);
        return make(graph, &one, depth, out_plan);
    }
    const int has_wires =
        options->wires.weights != COH_WIRE_STORED || options->wires.gradients != COH_WIRE_STORED;
    if (has_wires || options->reduce == COH_REDUCE_LIBRARY)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s: results depend on what ranks divide, so name the rank pattern, as "
                        "zero3",
                        coh_term_text(has_wires ? COH_TERM_WIRE : COH_TERM_REDUCE));
    const coh_status status = choose(&c);
    if (status == COH_OK)
        *out_plan = c.best;
    else
        coh_plan_destroy(c.best);
    return status;
}

coh_status coh_rank_choice_least(const coh_graph *graph, const coh_plan_options *options,
                                 coh_plan_number *number, uint64_t enough, uint64_t *out_least)
{
    const char *names[COH_RANK_PATTERNS_MOST];
    const int count = coh_rank_choices(options, names);
    *out_least = 0;
    for (int i = 0; i < count && (*out_least == 0 || *out_least >= enough); i++) {
        coh_plan_options each = *options;
        uint64_t now = 0;
        set_pattern(&each, names[i]);
        COH_TRY(number(graph, &each, enough, &now));
        if (now > 0 && (*out_least == 0 || now < *out_least))
            *out_least = now;
    }
    return COH_OK;
}
