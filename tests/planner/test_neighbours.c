/* The neighbours of a set of decisions that a search tries at its end: which are listed, in a usual
 * search and in a brief one, and that each is a set that a plan can have. None is better than a set
 * of 1 ns, so nothing is tried but the lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/candidates.h"
#include "planner/neighbours.h"
#include "planner/residency.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_plan.h"

enum { LAYERS = 10, ON_HOST = 5, RECOMPUTED = 6, LATE = 9 };

/* A plan with tiers of every kind, whose search continues from `decisions`. */
static coh_plan *make_plan(coh_graph **out_graph, coh_decisions *out_decisions)
{
    const toy_options toy = { .layers = LAYERS, .width = 32, .vocabulary = 100, .rows = 16 };
    const toy_tiers tiers = {
        .microbatches = 1, .deferred = 1, .order = COH_SWEEP_MICROBATCH, .percent = 60, .disk = 1
    };
    coh_decisions decisions = { .host_updates = ON_HOST, .late = LATE, .resident = LAYERS };
    coh_plan *plan = NULL;
    assert_int_equal(toy_graph_make(&toy, out_graph), COH_OK);
    const coh_plan_options options = toy_plan_options(*out_graph, &tiers);
    if (toy_plan_make(*out_graph, &options, &decisions, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    plan->least.ns = 0; /* nothing is known to be close enough */
    decisions = plan->decisions;
    decisions.host_window = 24;
    decisions.horizon = COH_HORIZON_USUAL;
    decisions.recompute = coh_block_set_first(RECOMPUTED);
    *out_decisions = decisions;
    return plan;
}

static void refine(const coh_plan *plan, const coh_decisions *decisions, int is_brief,
                   coh_candidates *out)
{
    assert_int_equal(coh_candidates_open(out, plan, 0), COH_OK);
    out->best = (coh_candidate){ .decisions = *decisions, .step_ns = 1, .valid = 1 };
    out->is_brief = is_brief;
    assert_int_equal(coh_candidates_refine(out, 0, 0), COH_OK);
    assert_true(out->best.step_ns == 1);
}

/* The sets tried that differ from `from` by the host window alone, and have this one. */
static int count_windows(const coh_candidates *candidates, const coh_decisions *from, int window)
{
    int found = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        coh_decisions d = candidates->all[i].decisions;
        const int is_it = d.host_window == window;
        d.host_window = from->host_window;
        d.device_bytes = from->device_bytes;
        found += is_it && memcmp(&d, from, sizeof(d)) == 0;
    }
    return found;
}

static void half_of_the_window_is_tried_unless_the_search_is_brief(void **state)
{
    (void)state;
    for (int is_brief = 0; is_brief < 2; is_brief++) {
        coh_graph *graph = NULL;
        coh_decisions decisions;
        coh_plan *plan = make_plan(&graph, &decisions);
        static const int windows[] = { 0, 1, 2, 24, 25 }; /* a part of 0 would be all of it */
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
            coh_candidates candidates;
            decisions.host_window = windows[i];
            refine(plan, &decisions, is_brief, &candidates);
            assert_int_equal(count_windows(&candidates, &decisions, windows[i] / 2),
                             !is_brief && windows[i] > 1);
            coh_candidates_close(&candidates);
        }
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

/* A brief search leaves out the sets with one change: dead space, half the window and light
 * operators alone. Those with several changes stay, in the same order. */
static void a_brief_search_tries_the_sets_of_several_changes_alone(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_decisions decisions;
    coh_plan *plan = make_plan(&graph, &decisions);
    coh_candidates usual, brief;
    refine(plan, &decisions, 0, &usual);
    refine(plan, &decisions, 1, &brief);
    assert_true(brief.count > 0);
    assert_int_equal(usual.count, brief.count + 3);
    for (size_t i = 0, at = 0; i < brief.count; i++, at++) {
        while (at < usual.count && memcmp(&usual.all[at].decisions, &brief.all[i].decisions,
                                          sizeof(coh_decisions)) != 0)
            at++;
        assert_true(at < usual.count);
    }
    coh_candidates_close(&usual);
    coh_candidates_close(&brief);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_window_is_tried_unless_the_search_is_brief),
        cmocka_unit_test(a_brief_search_tries_the_sets_of_several_changes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
