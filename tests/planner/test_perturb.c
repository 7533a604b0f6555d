/* Random changes at the end of a search: each changed set is one that a plan can have and differs
 * from the best within the documented limits, the same sets are tried whatever the threads, a worse
 * set is never taken, and nothing is tried where little can be gained. Sets near the solutions of
 * the linear programme come first, and lead to changes if one of them is fast enough. And a plan
 * that is searched, changed and finished is no slower than without the change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/candidates.h"
#include "planner/lower_late.h"
#include "planner/neighbours.h"
#include "planner/perturb.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "planner/search.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_plan.h"

enum { LAYERS = 13, ON_HOST = 5, RECOMPUTED = 6, LATE = 9, TRIED = 120, CHANGED_MOST = 5 };

/* A plan with a host tier and, with `disk`, a drive. */
static coh_plan *make_plan(int disk, coh_graph **out_graph)
{
    const toy_options toy = { .layers = LAYERS, .width = 32, .vocabulary = 100, .rows = 16 };
    const toy_tiers tiers = {
        .microbatches = 1, .deferred = 1, .order = COH_SWEEP_MICROBATCH, .percent = 60, .disk = disk
    };
    const coh_decisions decisions = { .host_updates = ON_HOST, .late = LATE, .resident = 3 };
    coh_plan *plan = NULL;
    assert_int_equal(toy_graph_make(&toy, out_graph), COH_OK);
    const coh_plan_options options = toy_plan_options(*out_graph, &tiers);
    if (toy_plan_make(*out_graph, &options, &decisions, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    plan->decisions.recompute = coh_block_set_first(RECOMPUTED);
    for (int light = COH_LIGHT_ELEMENTS; light < COH_LIGHT_COUNT; light++)
        plan->least.light[light].recompute = -1; /* none known: there are random sets only */
    return plan;
}

/* Tries changes of a set that takes `step_ns`: none is better than one of 1 ns. */
static void perturb(const coh_plan *plan, uint64_t step_ns, uint64_t bound_ns, uint32_t most,
                    coh_candidates *out)
{
    assert_int_equal(coh_candidates_open(out, plan, 0), COH_OK);
    out->best = (coh_candidate){ .decisions = plan->decisions, .step_ns = step_ns, .valid = 1 };
    if (coh_candidates_perturb(out, most, bound_ns) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static int32_t away(int32_t a, int32_t b)
{
    return a < b ? b - a : a - b;
}

/* A number of blocks moves by at most four times two, since a twelfth of 13 blocks is one. */
static void check_set(const coh_plan *plan, const coh_decisions *d)
{
    const coh_decisions *from = &plan->decisions;
    const int32_t blocks = coh_graph_block_count(plan->graph);
    const int32_t recompute = coh_block_set_count(&d->recompute);
    const coh_block_set all = coh_block_set_first(blocks);
    const int has_disk = plan->options.disk_bytes > 0;
    assert_in_range(recompute, 0, blocks);
    assert_in_range(away(recompute, RECOMPUTED), 0, 8);
    for (int word = 0; word < COH_BLOCK_SET_WORDS; word++)
        assert_true((d->recompute.bits[word] & ~all.bits[word]) == 0);
    assert_in_range(d->host_updates, 0, blocks + 1);
    assert_in_range(away(d->host_updates, from->host_updates), 0, 8);
    assert_in_range(d->resident, 0, blocks);
    assert_in_range(away(d->resident, from->resident), 0, 16);
    assert_in_range(d->horizon, 0, 1024);
    assert_in_range(d->tie_break, 0, COH_TIE_COUNT - 1);
    assert_in_range(d->patient, 0, COH_PATIENT_COUNT - 1);
    assert_in_range(d->boundary, 0, COH_BOUNDARY_COUNT - 1);
    assert_in_range(d->light, 0, has_disk ? COH_LIGHT_NONE : COH_LIGHT_COUNT - 1);
    assert_in_range(d->host_window, 0, has_disk ? 24 : 0);
    assert_in_range(d->early, 0, has_disk ? COH_EARLY_COUNT - 1 : 0);
    assert_in_range(d->late, 0, COH_LATE_PARTS);
    assert_true(d->host_updates > 0 || d->late == 0);
    if (has_disk && d->host_updates > 0)
        assert_int_equal(d->late, from->late);
    assert_int_equal(d->device_bytes, from->device_bytes);
    assert_true(coh_may_decide_chunk(plan, from->chunk_bytes, d->chunk_bytes) ||
                d->chunk_bytes == from->chunk_bytes);
    assert_int_equal(d->cache, from->cache);
    assert_int_equal(d->row_passes, from->row_passes);
    assert_int_equal(d->in_memory, 0);
}

/* Counts the decisions in which two sets differ. One of at most four changes may change two of
 * them, how long windows wait and for what. */
static int differences(const coh_decisions *a, const coh_decisions *b)
{
    return (memcmp(&a->recompute, &b->recompute, sizeof(a->recompute)) != 0) +
           (a->host_updates != b->host_updates) + (a->resident != b->resident) +
           (a->horizon != b->horizon) + (a->tie_break != b->tie_break) +
           (a->patient != b->patient) + (a->boundary != b->boundary) + (a->light != b->light) +
           (a->host_window != b->host_window) + (a->early != b->early) +
           (a->chunk_bytes != b->chunk_bytes) +
           (a->late != b->late && a->host_updates == b->host_updates);
}

static void changed_sets_are_sets_of_a_plan(void **state)
{
    (void)state;
    for (int disk = 0; disk < 2; disk++) {
        coh_graph *graph = NULL;
        coh_plan *plan = make_plan(disk, &graph);
        coh_candidates candidates;
        int some[CHANGED_MOST + 1] = { 0 };
        perturb(plan, 1, 0, TRIED, &candidates);
        assert_in_range(candidates.count, TRIED / 2, TRIED);
        for (size_t i = 0; i < candidates.count; i++) {
            const coh_decisions *d = &candidates.all[i].decisions;
            const int changed = differences(d, &plan->decisions);
            check_set(plan, d);
            assert_in_range(changed, 0, CHANGED_MOST);
            some[changed]++;
        }
        for (int changed = 1; changed <= 4; changed++)
            assert_true(some[changed] > 0);
        assert_true(candidates.best.step_ns == 1);
        assert_memory_equal(&candidates.best.decisions, &plan->decisions, sizeof(coh_decisions));
        coh_candidates_close(&candidates);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

/* Gives the linear programme a solution with light operators. */
static void know_solution(coh_plan *plan, int light, int32_t recompute)
{
    plan->least.light[light] =
        (coh_least_set){ .recompute = recompute, .host_updates = 7, .late = 5 };
}

static void threads_change_nothing(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(1, &graph);
    coh_candidates one, other;
    know_solution(plan, COH_LIGHT_CHEAP, 6);
    plan->options.thread_count = 1;
    perturb(plan, UINT64_MAX / 2, 0, TRIED, &one);
    plan->options.thread_count = 3;
    perturb(plan, UINT64_MAX / 2, 0, TRIED, &other);
    assert_int_equal(one.count, other.count);
    for (size_t i = 0; i < one.count; i++)
        assert_memory_equal(&one.all[i].decisions, &other.all[i].decisions, sizeof(coh_decisions));
    assert_true(one.best.step_ns == other.best.step_ns);
    assert_memory_equal(&one.best.decisions, &other.best.decisions, sizeof(coh_decisions));
    coh_candidates_close(&one);
    coh_candidates_close(&other);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The best is the fastest of those tried that fit. */
static void the_best_is_the_fastest_tried(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(0, &graph);
    coh_candidates candidates;
    uint64_t fastest = UINT64_MAX;
    size_t gains = 0;
    perturb(plan, UINT64_MAX / 2, 0, TRIED, &candidates);
    for (size_t i = 0; i < candidates.count; i++)
        if (candidates.all[i].valid && candidates.all[i].step_ns < fastest) {
            fastest = candidates.all[i].step_ns;
            gains++;
        }
    assert_true(gains > 1);
    assert_true(candidates.best.step_ns == fastest);
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* A set near a solution with 7 updates on the host that streams its weights. */
static void check_streamed(const coh_decisions *d, int32_t recompute, int *updates, int *horizons)
{
    const coh_block_set blocks = coh_block_set_spread(recompute, 13);
    assert_memory_equal(&d->recompute, &blocks, sizeof(blocks));
    assert_int_equal(d->resident, 1);
    assert_int_equal(d->patient, COH_PATIENT_ALL);
    assert_int_equal(d->boundary, COH_BOUNDARY_LATE);
    assert_true(d->horizon == 32 || d->horizon == 96);
    assert_in_range(d->host_updates, 0, 7);
    updates[d->host_updates]++;
    horizons[d->horizon == 96]++;
}

/* A set near it that holds all weights. */
static void check_held(const coh_decisions *d, int32_t recompute, int32_t horizon)
{
    const coh_block_set blocks = coh_block_set_first(recompute);
    assert_memory_equal(&d->recompute, &blocks, sizeof(blocks));
    assert_int_equal(d->resident, 13);
    assert_int_equal(d->patient, COH_PATIENT_FETCHES);
    assert_int_equal(d->boundary, COH_BOUNDARY_FREE);
    assert_int_equal(d->host_updates, 7);
    assert_int_equal(d->horizon, horizon);
}

/* Around a solution come 3 numbers of host updates and 2 horizons, and 2 horizons with all weights
 * in the device; until some set fits, and as long as the best one gets faster, with an eighth of
 * the 13 blocks more recomputed each time. */
static void check_near(const coh_candidates *candidates, int light, int32_t recompute)
{
    uint64_t best_ns = UINT64_MAX, before_ns = 0;
    size_t at = 0;
    for (int further = 0; further <= 4 && (best_ns == UINT64_MAX || best_ns < before_ns);
         further++) {
        const int32_t more = recompute + 13 * further / 8, count = more < 13 ? more : 13;
        int updates[8] = { 0 }, horizons[2] = { 0 };
        before_ns = best_ns;
        for (size_t begin = at; at < begin + 8; at++) {
            const coh_candidate *tried = &candidates->all[at];
            assert_true(at < candidates->count);
            assert_int_equal(tried->decisions.light, light);
            assert_int_equal(tried->decisions.late, 5);
            if (at < begin + 6)
                check_streamed(&tried->decisions, count, updates, horizons);
            else
                check_held(&tried->decisions, count, at == begin + 6 ? 192 : 256);
            if (tried->valid && tried->step_ns < best_ns)
                best_ns = tried->step_ns;
        }
        assert_true(updates[7] == 2 && updates[6] == 2 && updates[4] == 2);
        assert_true(horizons[0] == 3 && horizons[1] == 3);
    }
    assert_int_equal(candidates->count, at);
}

static void sets_near_the_solution_come_first(void **state)
{
    (void)state;
    int waited = 0;
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(0, &graph);
    const uint64_t host_bytes = plan->options.host_memory_bytes;
    know_solution(plan, COH_LIGHT_CHEAP, 4);
    static const uint64_t parts[] = { 128, 13, 12, 11 }; /* the last one is too little */
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        coh_candidates candidates;
        plan->options.host_memory_bytes = host_bytes / 128 * parts[i] & ~(uint64_t)4095;
        perturb(plan, 1, 0, 0, &candidates);
        check_near(&candidates, COH_LIGHT_CHEAP, 4);
        int first = 0, later = 0;
        for (size_t k = 0; k < candidates.count; k++)
            *(k < 8 ? &first : &later) += candidates.all[k].valid;
        waited |= first == 0 && later > 0;
        coh_candidates_close(&candidates);
    }
    assert_true(waited); /* in some memory the first sets do not fit, and later ones do */
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* With a quarter of the effort there is room for five sets like the best; both kinds of light
 * operators take turns. Where the number of recomputed blocks is given, none is tried. */
static void sets_near_the_solution_have_a_quarter_of_the_effort(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(0, &graph);
    coh_candidates candidates;
    know_solution(plan, COH_LIGHT_ELEMENTS, 6);
    know_solution(plan, COH_LIGHT_CHEAP, 6);
    for (int given = 0; given < 2; given++) {
        plan->options.recompute = given ? COH_RECOMPUTE_NONE : COH_RECOMPUTE_AUTO;
        assert_int_equal(coh_candidates_open(&candidates, plan, 0), COH_OK);
        candidates.best = (coh_candidate){
            .decisions = plan->decisions, .step_ns = 1, .valid = 1, .effort = UINT64_MAX / 20
        };
        candidates.effort_most = UINT64_MAX;
        assert_int_equal(coh_candidates_perturb(&candidates, 0, 0), COH_OK);
        assert_int_equal(candidates.count, given ? 0 : 5);
        for (size_t i = 0; i < candidates.count; i++)
            assert_int_equal(candidates.all[i].decisions.light,
                             i % 2 ? COH_LIGHT_CHEAP : COH_LIGHT_ELEMENTS);
        assert_true(candidates.effort == 0 && candidates.effort_most == UINT64_MAX);
        coh_candidates_close(&candidates);
    }
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Returns how many of the last `count` sets tried have light operators. The plan's own set has
 * none, and with a drive no change gives it some. */
static int count_light(const coh_candidates *candidates, int count)
{
    int found = 0;
    for (size_t i = candidates->count - (size_t)count; i < candidates->count; i++)
        found += candidates->all[i].decisions.light != COH_LIGHT_NONE;
    return found;
}

/* A 64th slower than the best, the start near the solution gets half of the changes; a
 * nanosecond more, none. */
static void a_start_that_is_much_slower_is_left(void **state)
{
    (void)state;
    enum { CHANGES = 16 };
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(1, &graph); /* changes then leave light operators as they are */
    coh_candidates candidates;
    uint64_t start_ns = UINT64_MAX;
    know_solution(plan, COH_LIGHT_ELEMENTS, 6);
    perturb(plan, 1, 0, 0, &candidates);
    for (size_t i = 0; i < candidates.count; i++)
        if (candidates.all[i].valid && candidates.all[i].step_ns < start_ns)
            start_ns = candidates.all[i].step_ns;
    const size_t near = candidates.count;
    coh_candidates_close(&candidates);
    uint64_t best_ns = start_ns / 65 * 64;
    while (best_ns + best_ns / 64 < start_ns)
        best_ns++;
    perturb(plan, best_ns, 0, CHANGES, &candidates);
    assert_in_range(candidates.count, near + 2, near + CHANGES);
    assert_in_range(count_light(&candidates, (int)(candidates.count - near)), 1, CHANGES);
    coh_candidates_close(&candidates);
    perturb(plan, best_ns - 1, 0, CHANGES, &candidates);
    assert_in_range(candidates.count, near + 2, near + CHANGES);
    assert_int_equal(count_light(&candidates, (int)(candidates.count - near)), 0);
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Within a hundredth of the bound nothing is tried; above that something is. */
static void nothing_is_tried_near_the_bound(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(1, &graph);
    coh_candidates candidates;
    perturb(plan, 1010, 1000, TRIED, &candidates);
    assert_int_equal(candidates.count, 0);
    coh_candidates_close(&candidates);
    perturb(plan, 1011, 1000, 8, &candidates);
    assert_in_range(candidates.count, 1, 8);
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Searches a step of `microbatches` and changes it at random. Returns 1 if that made it faster;
 * *out_ns: its time then. */
static int change_searched(int microbatches, int percent, coh_search search, uint64_t *out_ns)
{
    const toy_options toy = { .layers = LAYERS, .width = 32, .vocabulary = 100, .rows = 16 };
    const toy_tiers tiers = { .microbatches = microbatches,
                              .deferred = 1,
                              .order = COH_SWEEP_MICROBATCH,
                              .percent = percent,
                              .disk = 1 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_candidate before, after;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    coh_plan_options options = toy_plan_options(graph, &tiers);
    options.search = search;
    assert_int_equal(coh_plan_open(graph, &options, &plan), COH_OK);
    assert_int_equal(coh_plan_search(plan), COH_OK);
    const int folded = plan->folded;
    const coh_decisions found = plan->decisions;
    int is_changed = -1;
    assert_int_equal(coh_plan_perturb(plan, &is_changed), COH_OK);
    assert_int_equal(plan->folded, folded);
    plan->folded = 0;
    assert_int_equal(coh_candidate_make(plan, &found, &before), COH_OK);
    assert_int_equal(coh_candidate_make(plan, &plan->decisions, &after), COH_OK);
    plan->folded = folded;
    assert_int_equal(is_changed, memcmp(&found, &plan->decisions, sizeof(found)) != 0);
    assert_true(after.valid && (!is_changed || coh_candidate_is_better(&after, &before)));
    assert_true(!is_changed || plan->step_ns == after.step_ns);
    if (coh_plan_finish(plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(plan->simulations[COH_PROGRAM_BODY].period_ns == after.step_ns);
    *out_ns = after.step_ns;
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return is_changed;
}

static void a_changed_plan_is_faster(void **state)
{
    (void)state;
    static const int microbatches[] = { 1, 3, 40 }; /* 40: a folded search */
    uint64_t usual_ns, ns;
    int changed = 0;
    for (size_t i = test_is_brief() ? 2 : 0; i < sizeof(microbatches) / sizeof(microbatches[0]);
         i++)
        for (int percent = 50; percent <= (test_is_short() ? 50 : 70); percent += 20) {
            changed += change_searched(microbatches[i], percent, COH_SEARCH_USUAL, &usual_ns);
            if (test_is_brief() || microbatches[i] != (test_is_short() ? 3 : 40))
                continue;
            (void)change_searched(microbatches[i], percent, COH_SEARCH_THOROUGH, &ns);
            assert_true(ns <= usual_ns);
        }
    assert_true(changed > 0);
    assert_false(change_searched(1, 50, COH_SEARCH_COMPARE, &ns));
    assert_false(change_searched(1, 50, COH_SEARCH_QUICK, &ns));
}

/* A thorough search tries the sets of a usual one, and others after them, whatever the threads. */
static void a_thorough_search_goes_on(void **state)
{
    (void)state;
    enum { FEW = 12 };
    coh_graph *graph = NULL;
    coh_plan *plan = make_plan(1, &graph);
    coh_candidates usual, thorough, again;
    know_solution(plan, COH_LIGHT_CHEAP, 6);
    perturb(plan, UINT64_MAX / 2, 0, FEW, &usual);
    plan->options.thread_count = 1;
    perturb(plan, UINT64_MAX / 2, 0, FEW, &thorough);
    assert_int_equal(coh_candidates_perturb_leaders(&thorough, 10 * FEW, 0), COH_OK);
    plan->options.thread_count = 3;
    perturb(plan, UINT64_MAX / 2, 0, FEW, &again);
    assert_int_equal(coh_candidates_perturb_leaders(&again, 10 * FEW, 0), COH_OK);
    assert_in_range(thorough.count, usual.count + FEW, usual.count + (size_t)10 * FEW);
    assert_int_equal(again.count, thorough.count);
    for (size_t i = 0; i < thorough.count; i++) {
        const coh_decisions *d = &thorough.all[i].decisions;
        if (i < usual.count)
            assert_memory_equal(d, &usual.all[i].decisions, sizeof(*d));
        assert_memory_equal(d, &again.all[i].decisions, sizeof(*d));
        assert_true(!thorough.all[i].valid || thorough.all[i].step_ns >= thorough.best.step_ns);
    }
    assert_true(thorough.best.step_ns < usual.best.step_ns);
    coh_candidates_close(&usual);
    coh_candidates_close(&thorough);
    coh_candidates_close(&again);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_sets_are_sets_of_a_plan),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(the_best_is_the_fastest_tried),
        cmocka_unit_test(sets_near_the_solution_come_first),
        cmocka_unit_test(sets_near_the_solution_have_a_quarter_of_the_effort),
        cmocka_unit_test(a_start_that_is_much_slower_is_left),
        cmocka_unit_test(nothing_is_tried_near_the_bound),
        cmocka_unit_test(a_thorough_search_goes_on),
        cmocka_unit_test(a_changed_plan_is_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
