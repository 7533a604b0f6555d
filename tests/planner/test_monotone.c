/* More memory and faster links never make a step slower. Plans small graphs over a grid of budgets
 * and link rates; each plan is given its neighbours with less as candidates and is compared with
 * them. Without contention it may not be slower by a nanosecond; with contention by at most 2 %,
 * since a faster lane disturbs others more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "planner/plan.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

enum { BUDGETS = 7, RATES = 4 };

/* Default: three seeds on every third budget and rate, in the time of one seed on the full grid.
 * Under a sanitizer: one seed on the first and the last budget, since every plan is made by the
 * same code. */
static uint64_t seed_count = TEST_IS_SANITIZED ? 1 : 3;
static int stride = TEST_IS_SANITIZED ? BUDGETS - 1 : 3;

/* ---- random machines ---- */

static void make_profile(uint64_t seed, int meet, double rate_factor, coh_profile *out)
{
    coh_profile_init(out);
    snprintf(out->name, sizeof(out->name), "made");
    for (int roof = 0; roof < COH_ROOF_COUNT; roof++)
        out->flops_per_s[roof] = coh_figure_of(2e9 * (double)(1 + coh_rng_below(5, seed, 0, 20)));
    out->memory_bytes_per_s = coh_figure_of(20e9);
    out->instruction_ns = coh_figure_of(500);
    double rate = 1e8 * (double)(1 + coh_rng_below(5, seed, 1, 30)) * rate_factor;
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        out->link[lane] = (coh_link_profile){ .latency_ns = coh_figure_of(3000),
                                              .bytes_per_s = coh_figure_of(rate),
                                              .depth = lane <= COH_LANE_D2H ? 4 : 8 };
    for (int a = 0; meet && a <= COH_LANE_WRITE; a++)
        for (int b = 0; b <= COH_LANE_WRITE; b++)
            out->contention[a][b] = a == b ? 1 : 0.8;
}

static void make_toy(uint64_t seed, toy_options *toy)
{
    *toy = (toy_options){ .layers = 2 + (int)coh_rng_below(6, seed, 0, 4),
                          .width = 64 * (1 + (int64_t)coh_rng_below(6, seed, 1, 5)),
                          .vocabulary = 500 + (int64_t)coh_rng_below(6, seed, 2, 2000),
                          .rows = 16 + (int64_t)coh_rng_below(6, seed, 3, 300),
                          .is_tied = seed % 2 == 0,
                          .caches = seed % 3 == 0,
                          .dtype = seed % 4 == 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32 };
}

/* ---- the grid ---- */

/* Returns NULL if the plan does not fit. */
static coh_plan *make_plan(const coh_graph *graph, coh_plan_options *options, const coh_plan *less,
                           const coh_plan *slower)
{
    const coh_plan *earlier[2];
    coh_plan *plan = NULL;
    options->earlier = earlier;
    options->earlier_count = 0;
    if (less)
        earlier[options->earlier_count++] = less;
    if (slower)
        earlier[options->earlier_count++] = slower;
    coh_status status = coh_plan_create(graph, options, &plan);
    if (status != COH_OK && status != COH_ERR_FULL)
        fail_msg("%s", coh_last_error());
    return plan;
}

typedef struct tally {
    int pairs, slower;
    double most;
} tally;

static void compare(tally *t, uint64_t seed, const coh_plan *with_less, const coh_plan *with_more,
                    double tolerance, const char *of)
{
    if (with_less == NULL)
        return;
    assert_non_null(with_more);
    uint64_t less = with_less->simulations[COH_PROGRAM_BODY].period_ns;
    uint64_t more = with_more->simulations[COH_PROGRAM_BODY].period_ns;
    t->pairs++;
    double excess = (double)more / (double)less - 1;
    t->slower += more > less;
    t->most = excess > t->most ? excess : t->most;
    if (excess > tolerance)
        print_message("seed %llu: more %s, %llu ns after %llu (%+.2f %%)\n",
                      (unsigned long long)seed, of, (unsigned long long)more,
                      (unsigned long long)less, excess * 100);
}

/* Plans each budget and rate in increasing order; each plan is given its two smaller neighbours. */
static void fill_grid(uint64_t seed, int meet, const coh_graph *graph, coh_plan_options *options,
                      coh_profile *profiles, coh_plan *plans[RATES][BUDGETS])
{
    uint64_t memory = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, options, &memory), COH_OK);
    options->disk_bytes = seed % 3 == 1 ? UINT64_MAX : 0;
    options->emulate_host = 1;
    options->host_memory_bytes = seed % 3 == 1 ? 0 : 8 * memory;
    for (int rate = 0; rate < RATES; rate += stride) {
        make_profile(seed, meet, (double)(1u << rate), &profiles[rate]);
        options->profile = &profiles[rate];
        for (int budget = 0; budget < BUDGETS; budget += stride) {
            options->device_memory_bytes = memory * (uint64_t)(budget + 2) / 9;
            plans[rate][budget] =
                make_plan(graph, options, budget > 0 ? plans[rate][budget - stride] : NULL,
                          rate > 0 ? plans[rate - stride][budget] : NULL);
        }
    }
}

static void check_grid(uint64_t seed, int meet, tally *t)
{
    toy_options toy;
    coh_graph *graph = NULL;
    coh_plan_options options;
    coh_profile profiles[RATES];
    coh_plan *plans[RATES][BUDGETS];
    const double tolerance = meet ? 0.02 : 0;
    make_toy(seed, &toy);
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    coh_plan_options_init(&options);
    options.microbatch_count = 1 + (int32_t)(seed % 3);
    options.deferred_update = seed % 2 == 0;
    if (TEST_IS_SANITIZED) /* the usual search runs sanitized in other tests */
        options.search = COH_SEARCH_QUICK;
    fill_grid(seed, meet, graph, &options, profiles, plans);
    for (int rate = 0; rate < RATES; rate += stride)
        for (int budget = 0; budget < BUDGETS; budget += stride) {
            if (budget > 0)
                compare(t, seed, plans[rate][budget - stride], plans[rate][budget], tolerance,
                        "memory");
            if (rate > 0)
                compare(t, seed, plans[rate - stride][budget], plans[rate][budget], tolerance,
                        "link");
        }
    for (int rate = 0; rate < RATES; rate += stride) {
        for (int budget = 0; budget < BUDGETS; budget += stride)
            coh_plan_destroy(plans[rate][budget]);
        coh_profile_fini(&profiles[rate]);
    }
    coh_graph_destroy(graph);
}

static void check_all(int meet, double tolerance)
{
    tally t = { 0 };
    for (uint64_t seed = 0; seed < seed_count; seed++)
        check_grid(seed, meet, &t);
    print_message("%d pairs, %d slower, the most by %.2f %%\n", t.pairs, t.slower, 100 * t.most);
    assert_true(t.pairs > 0 && t.most <= tolerance);
}

static void more_is_never_slower_without_contention(void **state)
{
    (void)state;
    check_all(0, 0);
}

static void more_is_hardly_slower_with_contention(void **state)
{
    (void)state;
    check_all(1, 0.02);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        seed_count = strtoull(argv[1], NULL, 10);
        stride = 1;
    } else if (test_is_short() && !TEST_IS_SANITIZED) {
        seed_count = 2; /* the third seed has the first one's tiers, with more micro-batches */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_is_never_slower_without_contention),
        cmocka_unit_test(more_is_hardly_slower_with_contention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
