/* Rehearses plans of all placements. The oracles: bytes and instructions counted from the plan's
 * tables by plain loops, the simulator's period, and tables that are broken on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "cohobate/engine.h"
#include "planner/plan.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/planner/draws.h"
#include "tests/planner/toy_graph.h"

enum { STEPS = 5, PAGE = 4096, SHORT_SEEDS = 8 /* two of each placement */ };

typedef enum placement { IN_MEMORY, ON_HOST, ON_DISK, ON_BOTH, PLACEMENTS } placement;

/* A graph and a plan of it. */
typedef struct planned {
    coh_graph *graph;
    coh_plan *plan;
} planned;

/* Planning takes most of the time under the thread sanitizer: small graphs there. */
static void draw_graph(draws *d, coh_graph **out_graph)
{
    const toy_options toy = { .layers = draw(d, 2, 3 - test_seeks_races()),
                              .width = 1024 * draw(d, 1, 3),
                              .vocabulary = draw(d, 3000, 9000),
                              .rows = draw(d, 20, 80) * 32,
                              .is_tied = draw(d, 0, 1),
                              .overwrites = draw(d, 0, 1),
                              .freezes = draw(d, 0, 1),
                              .caches = draw(d, 0, 1),
                              .extras = draw(d, 0, 1),
                              .dtype = draw(d, 0, 1) ? COH_DTYPE_BF16 : COH_DTYPE_F32 };
    assert_int_equal(toy_graph_make(&toy, out_graph), COH_OK);
}

/* Returns 0 if the drawn budget has no plan. */
static int draw_plan(draws *d, placement where, planned *out)
{
    uint64_t memory = 0;
    coh_plan_options options;
    draw_graph(d, &out->graph);
    coh_plan_options_init(&options);
    options.search = COH_SEARCH_QUICK;
    options.microbatch_count = draw(d, 1, 3 - test_seeks_races());
    options.deferred_update = draw(d, 0, 1);
    options.sweep_order = draw(d, 0, 1) ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
    options.chunk_bytes = (uint64_t)PAGE << draw(d, 11, 13);
    options.thread_count = 2;
    assert_int_equal(coh_plan_in_memory_bytes(out->graph, &options, &memory), COH_OK);
    options.device_memory_bytes =
        where == IN_MEMORY ? UINT64_MAX : memory / 100 * (uint64_t)draw(d, 40, 80);
    options.emulate_host = where == ON_HOST || where == ON_BOTH;
    if (options.emulate_host)
        options.host_memory_bytes = where == ON_HOST ? 2 * memory : memory / 2;
    if (where == ON_DISK || where == ON_BOTH)
        options.disk_bytes = UINT64_MAX;
    const coh_status status = coh_plan_create(out->graph, &options, &out->plan);
    if (status == COH_OK)
        return 1;
    assert_int_equal(status, COH_ERR_FULL);
    coh_graph_destroy(out->graph);
    return 0;
}

static void planned_fini(planned *p)
{
    coh_plan_destroy(p->plan);
    coh_graph_destroy(p->graph);
}

static coh_status rehearse(const coh_plan *plan, coh_rehearsal *out)
{
    *out = (coh_rehearsal){ .struct_bytes = sizeof(*out) };
    return coh_engine_rehearse(plan, STEPS, out);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* ---- plans ---- */

static void compare(const coh_plan *plan, const coh_rehearsal *found)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t bytes[COH_LANE_COUNT] = { 0 }, instructions = 0;
    int32_t programs = 0;
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        const coh_operand *moved = &body->operands[instruction->operand_begin];
        if (instruction->lane != COH_LANE_COMPUTE && instruction->lane != COH_LANE_HOST)
            bytes[instruction->lane] += moved->bytes;
    }
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        programs += plan->programs[kind].instruction_count > 0;
        instructions += plan->programs[kind].instruction_count *
                        (kind == COH_PROGRAM_BODY ? (uint64_t)STEPS : 1);
    }
    assert_int_equal(found->program_count, programs);
    assert_int_equal(found->executed_count, instructions);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        assert_int_equal(found->link_bytes[lane], bytes[lane]);
        assert_int_equal(summary.link_bytes[lane], bytes[lane]);
    }
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        assert_int_equal(found->peak_bytes[tier], summary.peak_bytes[tier]);
    assert_int_equal(found->predicted_step_ns, summary.step_ns);
    assert_true(distance(found->step_ns, summary.step_ns) <= summary.step_ns / 50);
}

static void a_rehearsal_does_what_the_plan_says(void **state)
{
    (void)state;
    int made[PLACEMENTS] = { 0 };
    const uint64_t seeds = test_is_short() ? SHORT_SEEDS : 6 + test_cases(18);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        draws d = { .stream = 81, .seed = seed };
        const placement where = (placement)(seed % PLACEMENTS);
        planned p;
        coh_rehearsal found;
        if ((test_seeks_races() && made[where] > 0) || !draw_plan(&d, where, &p))
            continue;
        if (rehearse(p.plan, &found) != COH_OK)
            fail_msg("seed %" PRIu64 ": %s", seed, coh_last_error());
        compare(p.plan, &found);
        made[where]++;
        planned_fini(&p);
    }
    for (int where = 0; where < PLACEMENTS; where++)
        assert_true(made[where] > 0);
}

/* Threads run in another order each time. */
static void a_rehearsal_is_the_same_each_time(void **state)
{
    (void)state;
    draws d = { .stream = 82 };
    planned p;
    coh_rehearsal first, again;
    while (!draw_plan(&d, ON_BOTH, &p))
        d.seed++;
    assert_int_equal(rehearse(p.plan, &first), COH_OK);
    for (int i = 0; i < (test_seeks_races() ? 1 : test_is_brief() ? 2 : 4); i++) {
        assert_int_equal(rehearse(p.plan, &again), COH_OK);
        assert_memory_equal(&again, &first, sizeof(first));
    }
    planned_fini(&p);
}

/* ---- broken plans ---- */

static void expect(const coh_plan *plan, const char *words)
{
    coh_rehearsal found;
    assert_int_equal(rehearse(plan, &found), COH_ERR_INTERNAL);
    if (strstr(coh_last_error(), words) == NULL)
        fail_msg("'%s' is not in: %s", words, coh_last_error());
}

static coh_instruction *first_of(coh_program *program, coh_lane lane)
{
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].lane == lane)
            return &program->instructions[i];
    fail_msg("no instruction on lane %s", coh_lane_name(lane));
    return NULL;
}

static void a_difference_is_named(void **state)
{
    (void)state;
    if (test_seeks_races()) /* one thread's comparisons */
        return;
    draws d = { .stream = 83 };
    planned p;
    while (!draw_plan(&d, ON_BOTH, &p))
        d.seed++;
    coh_program *body = &p.plan->programs[COH_PROGRAM_BODY];

    coh_instruction *load = first_of(body, COH_LANE_H2D);
    load->bytes += PAGE; /* the table of bytes and the operands disagree */
    p.plan->simulations[COH_PROGRAM_BODY].link_bytes[COH_LANE_H2D] += PAGE;
    expect(p.plan, "bytes on lane h2d");
    load->bytes -= PAGE;
    p.plan->simulations[COH_PROGRAM_BODY].link_bytes[COH_LANE_H2D] -= PAGE;

    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        p.plan->layout.arena_bytes[tier] += PAGE;
        expect(p.plan,
               tier == COH_TIER_DEVICE ? "bytes of the device tier" : "bytes of the host tier");
        p.plan->layout.arena_bytes[tier] -= PAGE;
    }

    uint64_t *period_ns = &p.plan->simulations[COH_PROGRAM_BODY].period_ns;
    *period_ns += *period_ns / 40;
    expect(p.plan, "the work takes");
    *period_ns -= *period_ns / 41;

    coh_touch *touch = &body->touches[body->operands[load->operand_begin].touch_begin];
    touch->version += 1000;
    expect(p.plan, "reads version");
    touch->version -= 1000;

    coh_program *init = &p.plan->programs[COH_PROGRAM_INIT];
    coh_instruction *waiting = first_of(init, COH_LANE_D2H);
    assert_true(waiting->wait_count > 0);
    coh_wait *wait = &init->waits[waiting->wait_begin];
    const coh_wait needed = *wait; /* the last instruction needs room that this one makes */
    *wait = (coh_wait){ .lane = COH_LANE_COMPUTE, .ordinal = init->lane_length[COH_LANE_COMPUTE] };
    expect(p.plan, "every lane waits for another one");
    *wait = needed;

    coh_rehearsal found;
    assert_int_equal(rehearse(p.plan, &found), COH_OK);
    planned_fini(&p);
}

/* Without a wait an instruction may begin too early: its bytes are of another version, or the step
 * has another time. Not every wait is needed at the predicted times. */
static void removed_waits_are_noticed(void **state)
{
    (void)state;
    uint32_t removed = 0, noticed = 0, named = 0;
    for (uint64_t seed = 0; seed < (test_is_short() ? 1 : 2); seed++) {
        draws d = { .stream = 84, .seed = seed };
        planned p;
        coh_rehearsal whole, without;
        if (!draw_plan(&d, seed % 2 ? ON_BOTH : ON_HOST, &p))
            continue;
        assert_int_equal(rehearse(p.plan, &whole), COH_OK);
        coh_program *body = &p.plan->programs[COH_PROGRAM_BODY];
        for (uint32_t i = 0; i < body->wait_count; i += 1 + body->wait_count / 10) {
            const coh_wait wait = body->waits[i];
            body->waits[i] = (coh_wait){ .lane = wait.lane, .carry = 1 }; /* long since true */
            const coh_status status = rehearse(p.plan, &without);
            assert_true(status == COH_OK || status == COH_ERR_INTERNAL);
            named += status != COH_OK;
            noticed += status != COH_OK || without.step_ns != whole.step_ns;
            removed++;
            body->waits[i] = wait;
        }
        planned_fini(&p);
    }
    print_message("%u waits removed: %u named, %u more with another time\n", removed, named,
                  noticed - named);
    assert_true(named > 0);
}

static void no_memory_is_one_sentence(void **state)
{
    (void)state;
    draws d = { .stream = 86 };
    planned p;
    coh_rehearsal found;
    while (!draw_plan(&d, ON_BOTH, &p))
        d.seed++;
    for (uint64_t n = 1;; n += test_seeks_races() ? 1 + n : test_is_brief() ? 1 + n / 4 : 1) {
        alloc_fail_nth(n);
        const coh_status status = rehearse(p.plan, &found);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit)
            break;
        assert_true(coh_last_error()[0] != '\0');
    }
    planned_fini(&p);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    draws d = { .stream = 85 };
    planned p;
    coh_rehearsal found = { .struct_bytes = sizeof(found) };
    assert_true(draw_plan(&d, IN_MEMORY, &p));
    assert_int_equal(coh_engine_rehearse(NULL, STEPS, &found), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_rehearse(p.plan, STEPS, NULL), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_rehearse(p.plan, COH_REHEARSAL_STEPS_LEAST - 1, &found),
                     COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_rehearse(p.plan, COH_REHEARSAL_STEPS_MOST + 1, &found),
                     COH_ERR_ARGUMENT);
    planned_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rehearsal_does_what_the_plan_says),
        cmocka_unit_test(a_rehearsal_is_the_same_each_time),
        cmocka_unit_test(a_difference_is_named),
        cmocka_unit_test(removed_waits_are_noticed),
        cmocka_unit_test(no_memory_is_one_sentence),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
