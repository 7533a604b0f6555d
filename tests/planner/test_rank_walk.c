/* Walks all ranks of a plan, each with its own lanes; an exchange begins once all members of its
 * group have reached it. The planner walks one rank, since all have one program: eight walked must
 * take as long, to the ns. That exchanges are met is seen where one rank is slower. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>

#include "planner/fluid.h"
#include "planner/plan.h"
#include "planner/verify.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

enum { RANKS = 8, RUNS = 6 };

/* ---- the walk ---- */

typedef struct lane_place {
    uint64_t issued; /* over all runs */
    uint32_t wait;   /* that the next instruction has to pass */
} lane_place;

typedef struct rank_walk {
    coh_fluid fluid;
    const uint64_t *service_ns;
    lane_place lanes[COH_LANE_COUNT];
    double mark[RUNS]; /* when the last instruction of a run retired */
} rank_walk;

typedef struct world_walk {
    const coh_program *program;
    const coh_profile *profile;
    const coh_mesh *mesh;
    int rank_count;
    rank_walk ranks[RANKS];
    uint32_t *order[COH_LANE_COUNT]; /* instructions of each lane */
} world_walk;

static const coh_instruction *instruction_at(const world_walk *w, int lane, uint64_t number)
{
    return &w->program->instructions[w->order[lane][number % w->program->lane_length[lane]]];
}

static int waits_hold(const world_walk *w, rank_walk *r, int lane)
{
    const uint64_t run = r->lanes[lane].issued / w->program->lane_length[lane];
    const coh_instruction *next = instruction_at(w, lane, r->lanes[lane].issued);
    for (; r->lanes[lane].wait < next->wait_count; r->lanes[lane].wait++) {
        const coh_wait *wait = &w->program->waits[next->wait_begin + r->lanes[lane].wait];
        if (wait->carry > run)
            continue;
        if (r->fluid.lanes[wait->lane].retired <
            (run - wait->carry) * w->program->lane_length[wait->lane] + wait->ordinal)
            return 0;
    }
    return 1;
}

static void issue_all(world_walk *w, rank_walk *r, int lane)
{
    const uint64_t end = (uint64_t)RUNS * w->program->lane_length[lane];
    while (r->lanes[lane].issued < end && coh_fluid_has_room(&r->fluid, lane) &&
           waits_hold(w, r, lane)) {
        const coh_instruction *next = instruction_at(w, lane, r->lanes[lane].issued);
        coh_fluid_issue(&r->fluid, lane, (double)r->service_ns[next - w->program->instructions],
                        coh_price_link(w->profile, w->program, next), next->bytes);
        r->lanes[lane] = (lane_place){ .issued = r->lanes[lane].issued + 1 };
    }
}

/* Have all members of the group reached the lane's next exchange? */
static int is_met(const world_walk *w, int32_t rank, int lane)
{
    const uint64_t number = w->ranks[rank].fluid.lanes[lane].served;
    if (w->rank_count == 1 || w->ranks[rank].fluid.lanes[lane].issued == number)
        return 1;
    const coh_instruction *next = instruction_at(w, lane, number);
    if (next->comm == 0)
        return 1;
    const coh_axis_set axes = w->program->comms[next->comm - 1].axes;
    for (int32_t i = 0; i < coh_mesh_group_size(w->mesh, axes); i++)
        if (w->ranks[coh_mesh_group_member(w->mesh, axes, rank, i)].fluid.lanes[lane].issued <=
            number)
            return 0;
    return 1;
}

/* Moves a clock on within what its lanes do. */
static void pass(coh_fluid *fluid, double until_ns)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (fluid->busy >> lane & 1)
            fluid->lanes[lane].remaining_ns -=
                (until_ns - fluid->now_ns) * fluid->speed[fluid->busy][lane];
    fluid->now_ns = until_ns;
}

static void note_ends(const world_walk *w, rank_walk *r)
{
    for (int run = 0; run < RUNS; run++) {
        int is_done = r->mark[run] == 0;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            is_done &=
                r->fluid.lanes[lane].retired >= (uint64_t)(run + 1) * w->program->lane_length[lane];
        if (is_done)
            r->mark[run] = r->fluid.now_ns;
    }
}

/* Returns 0 at the end of all runs. */
static int walk_on(world_walk *w)
{
    double now = INFINITY;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        for (int i = 0; i < w->rank_count && w->program->lane_length[lane] > 0; i++)
            issue_all(w, &w->ranks[i], lane);
        for (int i = 0; i < w->rank_count; i++)
            if (w->program->lane_length[lane] > 0 && is_met(w, i, lane))
                coh_fluid_start(&w->ranks[i].fluid, lane);
    }
    for (int i = 0; i < w->rank_count; i++)
        now = fmin(now, coh_fluid_next(&w->ranks[i].fluid).when_ns);
    for (int i = 0; i < w->rank_count && now < INFINITY; i++) {
        const coh_fluid_event next = coh_fluid_next(&w->ranks[i].fluid);
        if (next.when_ns > now) {
            pass(&w->ranks[i].fluid, now);
            continue;
        }
        coh_fluid_happen(&w->ranks[i].fluid, &next);
        note_ends(w, &w->ranks[i]);
    }
    return now < INFINITY;
}

static void order_lanes(world_walk *w)
{
    uint32_t filled[COH_LANE_COUNT] = { 0 };
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        w->order[lane] = malloc((w->program->lane_length[lane] + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < w->program->instruction_count; i++) {
        const int lane = w->program->instructions[i].lane;
        w->order[lane][filled[lane]++] = i;
    }
}

/* Walks RUNS bodies on each of the first `rank_count` ranks, the last with `last_ns`. */
static void walk(const coh_plan *plan, int rank_count, const uint64_t *service_ns,
                 const uint64_t *last_ns, world_walk *w)
{
    *w = (world_walk){ .program = &plan->programs[COH_PROGRAM_BODY],
                       .profile = &plan->profile,
                       .mesh = &plan->layout.mesh,
                       .rank_count = rank_count };
    order_lanes(w);
    for (int i = 0; i < rank_count; i++) {
        w->ranks[i].service_ns = i == rank_count - 1 ? last_ns : service_ns;
        assert_int_equal(coh_fluid_init(&w->ranks[i].fluid, w->program, &plan->profile, 1), COH_OK);
    }
    while (walk_on(w))
        continue;
    for (int i = 0; i < rank_count; i++) {
        assert_true(w->ranks[i].mark[RUNS - 1] > 0); /* else a deadlock */
        coh_fluid_fini(&w->ranks[i].fluid);
    }
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        free(w->order[lane]);
}

/* ---- plans ---- */

typedef struct setting {
    const char *pattern, *profile;
    int percent; /* of the bytes in memory; 0: in memory */
    int32_t microbatches;
} setting;

static const setting settings[] = {
    { "replicate", "a100-40g,node-link=100GB/s,network=10GB/s", 0, 1 },
    { "zero1", "a100-40g,node-link=100GB/s,network=10GB/s", 0, 2 },
    { "zero3", "a100-40g,node-link=20GB/s,network=2GB/s", 60, 1 },
    { "levels", "a100-40g,node-link=20GB/s,network=2GB/s", 60, 2 },
    { "2/2/8", "h200,node-link=300GB/s,network=1GB/s", 80, 1 },
    { "zero2", "rtx-4090,node-link=10GB/s,network=1GB/s", 70, 2 },
    { "levels", "a100-40g,node-link=5GB/s,pair-link=50GB/s,network=1GB/s", 60, 2 },
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static coh_plan *plan_of(const coh_graph *graph, const setting *s, coh_profile **out_profile)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    uint64_t bytes = 0;
    assert_int_equal(coh_profile_read(s->profile, out_profile), COH_OK);
    coh_plan_options_init(&options);
    options.profile = *out_profile;
    options.search = COH_SEARCH_QUICK;
    options.ranks = (coh_fold_shape){ { 2, 2, 2 } };
    options.pair_ranks = 2;
    options.node_ranks = 4;
    options.microbatch_count = s->microbatches;
    snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", s->pattern);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_OK);
    options.device_memory_bytes = s->percent > 0 ? bytes / 100 * (uint64_t)s->percent : UINT64_MAX;
    options.host_memory_bytes = s->percent > 0 ? 4 * bytes : 0;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s: %s", s->pattern, coh_last_error());
    return plan;
}

static uint64_t *service_of(const coh_plan *plan, double slower)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t *ns = malloc((body->instruction_count + 1) * sizeof(*ns));
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        const double alone =
            coh_price_instruction(&plan->pricer, &plan->layout, body, instruction).p50;
        ns[i] = coh_whole_ns(instruction->lane == COH_LANE_COMPUTE ? alone * slower : alone);
    }
    return ns;
}

/* ---- tests ---- */

static void eight_ranks_take_as_long_as_one(void **state)
{
    (void)state;
    static world_walk one, all;
    const toy_options toy = { .layers = 4, .width = 512, .vocabulary = 2048, .rows = 256 };
    uint64_t exchanges = 0;
    int plans = 0;
    coh_graph *graph;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    /* short with a sanitizer: no division, all divided, levels of two and of three links */
    for (int s = 0; s < SETTINGS; s += test_is_brief() ? 2 : 1) {
        coh_profile *profile;
        coh_plan *plan = plan_of(graph, &settings[s], &profile);
        const coh_simulation *simulated = &plan->simulations[COH_PROGRAM_BODY];
        uint64_t *ns = service_of(plan, 1);
        walk(plan, 1, ns, ns, &one);
        walk(plan, RANKS, ns, ns, &all);
        for (int rank = 0; rank < RANKS; rank++)
            assert_memory_equal(all.ranks[rank].mark, one.ranks[0].mark, sizeof(one.ranks[0].mark));
        const double *mark = one.ranks[0].mark;
        const double period = mark[RUNS - 1] - mark[RUNS - 2];
        assert_int_equal(coh_whole_ns(mark[0]), simulated->first_ns);
        assert_true(fabs(period - (double)simulated->period_ns) <= 1 + 1e-7 * period);
        exchanges += plan->programs[COH_PROGRAM_BODY].comm_count;
        plans++;
        free(ns);
        coh_plan_destroy(plan);
        coh_profile_destroy(profile);
    }
    coh_graph_destroy(graph);
    printf("%d plans of %d ranks, %" PRIu64 " exchanges a step: one rank walked takes as long as "
           "all, to the ns\n",
           plans, RANKS, exchanges);
}

/* All ranks then take the time of a world in which all are slower. */
static void a_slower_rank_holds_up_all_others(void **state)
{
    (void)state;
    static world_walk alike, mixed, slow;
    const toy_options toy = { .layers = 3, .width = 512, .vocabulary = 2048, .rows = 4096 };
    coh_graph *graph;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    for (int s = 0; s < SETTINGS; s += test_is_brief() ? SETTINGS - 1 : 1) {
        coh_profile *profile;
        coh_plan *plan = plan_of(graph, &settings[s], &profile);
        uint64_t *ns = service_of(plan, 1), *slower_ns = service_of(plan, 1.5);
        walk(plan, RANKS, ns, ns, &alike);
        walk(plan, RANKS, ns, slower_ns, &mixed);
        walk(plan, RANKS, slower_ns, slower_ns, &slow);
        for (int rank = 0; rank < RANKS; rank++) {
            const double end = mixed.ranks[rank].mark[RUNS - 1];
            const double most = slow.ranks[0].mark[RUNS - 1];
            assert_true(end > alike.ranks[0].mark[RUNS - 1]);
            assert_true(end <= most + 1 + 1e-9 * most);
            assert_true(end > 0.8 * most); /* the last step's end may come before the slowest's */
        }
        free(ns);
        free(slower_ns);
        coh_plan_destroy(plan);
        coh_profile_destroy(profile);
    }
    coh_graph_destroy(graph);
}

/* ---- levels ---- */

enum { LEVELS = COH_LEVEL_COUNT };

/* Counts by level the exchanges of a plan, and checks their prices and links. */
static void check_levels(const coh_plan *plan, const double rates[LEVELS],
                         const double latencies_ns[LEVELS], int counts[LEVELS])
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->comm == 0)
            continue;
        const coh_link_level level =
            coh_mesh_group_level(&plan->layout.mesh, body->comms[instruction->comm - 1].axes);
        const double expected = (double)instruction->bytes / rates[level] * 1e9;
        const coh_price price =
            coh_price_instruction(&plan->pricer, &plan->layout, body, instruction);
        assert_true(fabs(price.p50 - expected) <= 1e-9 * expected);
        assert_true(coh_price_link(&plan->profile, body, instruction)->latency_ns.p50 ==
                    latencies_ns[level]);
        counts[level]++;
    }
}

/* The level is derived from the mesh: rule FORM holds it to it. */
static void refuse_another_level(coh_plan *plan)
{
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const coh_verify_options options = { .budget_bytes = { UINT64_MAX } };
    coh_verify_result result;
    assert_int_equal(coh_verify(&plan->layout, body, &options, &result), COH_OK);
    body->comms[0].level = body->comms[0].level == COH_LEVEL_PAIR ? COH_LEVEL_NODE : COH_LEVEL_PAIR;
    assert_int_equal(coh_verify(&plan->layout, body, &options, &result), COH_ERR_CORRUPT);
    assert_int_equal(result.rule, COH_RULE_FORM);
}

/* Within a pair, within a node, between nodes; without a link of its own a pair has the node's. */
static void an_exchange_is_priced_by_the_link_of_its_level(void **state)
{
    (void)state;
    static const setting both = { "levels",
                                  "a100-40g,node-link=5GB/s,pair-link=50GB/s,network=1GB/s", 0, 2 },
                         node = { "levels", "a100-40g,node-link=5GB/s,network=1GB/s", 0, 2 };
    const toy_options toy = { .layers = 4, .width = 512, .vocabulary = 2048, .rows = 256 };
    coh_graph *graph;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    for (int has_pair = 0; has_pair < 2; has_pair++) {
        coh_profile *profile;
        int counts[LEVELS] = { 0 };
        coh_plan *plan = plan_of(graph, has_pair ? &both : &node, &profile);
        check_levels(plan, (const double[LEVELS]){ 0, has_pair ? 50e9 : 5e9, 5e9, 1e9 },
                     (const double[LEVELS]){ 0, 10e3, 10e3, 10e3 }, counts);
        assert_true(counts[COH_LEVEL_PAIR] > 0 && counts[COH_LEVEL_NODE] > 0 &&
                    counts[COH_LEVEL_WORLD] > 0);
        refuse_another_level(plan);
        coh_plan_destroy(plan);
        coh_profile_destroy(profile);
    }
    coh_graph_destroy(graph);
}

/* Pieces of work of one lane may cross links of other latencies. */
static void work_retires_after_the_latency_of_its_link(void **state)
{
    (void)state;
    static coh_fluid fluid;
    const coh_link_profile pair = { .latency_ns = coh_figure_of(7) },
                           node = { .latency_ns = coh_figure_of(100) };
    const coh_link_profile *const links[] = { &pair, &node, NULL, &pair };
    static const double ends_ns[] = { 1007, 2107, 3107, 4114 };
    const coh_program program = { .lane_length = { [COH_LANE_COMM0] = 4 } };
    coh_profile profile;
    coh_profile_init(&profile);
    assert_int_equal(coh_fluid_init(&fluid, &program, &profile, 1), COH_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(coh_fluid_has_room(&fluid, COH_LANE_COMM0));
        coh_fluid_issue(&fluid, COH_LANE_COMM0, 1000, links[i], 1);
        while (fluid.lanes[COH_LANE_COMM0].retired == (uint64_t)i) {
            coh_fluid_start(&fluid, COH_LANE_COMM0);
            const coh_fluid_event next = coh_fluid_next(&fluid);
            assert_int_equal(next.lane, COH_LANE_COMM0);
            coh_fluid_happen(&fluid, &next);
        }
        assert_true(fluid.now_ns == ends_ns[i]);
    }
    coh_fluid_fini(&fluid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_ranks_take_as_long_as_one),
        cmocka_unit_test(a_slower_rank_holds_up_all_others),
        cmocka_unit_test(an_exchange_is_priced_by_the_link_of_its_level),
        cmocka_unit_test(work_retires_after_the_latency_of_its_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
