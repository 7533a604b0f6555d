/* The instructions of the compute lane that are issued as one. Oracles: programs small enough to
 * read, and the header's rules checked instruction by instruction on all programs of real plans. */
#include "base/alloc.h"
#include "engine/step_state.h"
#include "tests/engine/engine_bench.h"

/* ---- programs by hand ---- */

enum { INSTRUCTIONS_MOST = 16 };

typedef struct made {
    coh_program program;
    coh_instruction instructions[INSTRUCTIONS_MOST];
    coh_wait waits[INSTRUCTIONS_MOST];
} made;

/* Adds an instruction that waits for instruction `ordinal` of lane `other`; 0: no wait. */
static void add(made *m, coh_opcode opcode, coh_lane lane, coh_lane other, uint32_t ordinal,
                int carry)
{
    coh_program *p = &m->program;
    coh_instruction *instruction = &m->instructions[p->instruction_count++];
    *instruction = (coh_instruction){ .opcode = (uint8_t)opcode,
                                      .lane = (uint8_t)lane,
                                      .ordinal = ++p->lane_length[lane],
                                      .wait_begin = p->wait_count,
                                      .wait_count = ordinal > 0 };
    if (ordinal > 0)
        m->waits[p->wait_count++] =
            (coh_wait){ .ordinal = ordinal, .lane = (uint8_t)other, .carry = (uint8_t)carry };
    p->instructions = m->instructions;
    p->waits = m->waits;
}

static void add_compute(made *m, coh_opcode opcode)
{
    add(m, opcode, COH_LANE_COMPUTE, COH_LANE_COMPUTE, 0, 0);
}

/* `expected`: first, count, first, count, ..., 0 */
static void check_runs(const made *m, const uint32_t *expected)
{
    coh_instruction_run *runs;
    uint32_t count;
    assert_int_equal(coh_instruction_runs_find(&m->program, &runs, &count), COH_OK);
    uint32_t r = 0;
    for (; expected[2 * r] > 0; r++) {
        assert_true(r < count);
        assert_int_equal(runs[r].first, expected[2 * r]);
        assert_int_equal(runs[r].count, expected[2 * r + 1]);
    }
    assert_int_equal(count, r);
    coh_free(runs);
}

static void what_has_no_wait_is_one_run(void **state)
{
    (void)state;
    made m = { 0 };
    add_compute(&m, COH_OP_FEED);
    add_compute(&m, COH_OP_UPDATE);
    add_compute(&m, COH_OP_FORWARD);
    add_compute(&m, COH_OP_RECOMPUTE);
    add_compute(&m, COH_OP_BACKWARD);
    add_compute(&m, COH_OP_ADD);
    add_compute(&m, COH_OP_NORM);
    add_compute(&m, COH_OP_CLIP);
    add_compute(&m, COH_OP_SETTLE);
    check_runs(&m, (const uint32_t[]){ 2, 6, 9, 1, 0 });
}

static void a_wait_begins_a_run_and_an_awaited_instruction_ends_one(void **state)
{
    (void)state;
    made m = { 0 };
    add(&m, COH_OP_LOAD, COH_LANE_H2D, COH_LANE_COMPUTE, 7, 1); /* in the previous run */
    add_compute(&m, COH_OP_FORWARD);
    add_compute(&m, COH_OP_FORWARD);
    add(&m, COH_OP_FORWARD, COH_LANE_COMPUTE, COH_LANE_H2D, 1, 0);
    add(&m, COH_OP_FORWARD, COH_LANE_COMPUTE, COH_LANE_COMPUTE, 1, 0); /* its own lane: no wait */
    add(&m, COH_OP_STORE, COH_LANE_D2H, COH_LANE_COMPUTE, 4, 0);
    add_compute(&m, COH_OP_FORWARD);
    add(&m, COH_OP_LOAD, COH_LANE_H2D, COH_LANE_D2H, 1, 0); /* between instructions; no wait */
    add_compute(&m, COH_OP_FORWARD);
    add_compute(&m, COH_OP_FORWARD);
    add(&m, COH_OP_FORWARD, COH_LANE_COMPUTE, COH_LANE_READ, 3, 1);
    check_runs(&m, (const uint32_t[]){ 1, 2, 3, 2, 5, 3, 8, 1, 0 });
}

static void instructions_of_the_host_are_in_no_run(void **state)
{
    (void)state;
    made m = { 0 };
    add_compute(&m, COH_OP_INIT);
    add_compute(&m, COH_OP_IMPORT);
    add_compute(&m, COH_OP_HASH);
    add_compute(&m, COH_OP_SAVE);
    add(&m, COH_OP_UPDATE, COH_LANE_HOST, COH_LANE_COMPUTE, 1, 0);
    check_runs(&m, (const uint32_t[]){ 0 });
    made none = { 0 };
    check_runs(&none, (const uint32_t[]){ 0 });
}

/* ---- programs of plans ---- */

static int waits_elsewhere(const coh_program *p, const coh_instruction *instruction)
{
    int count = 0;
    for (uint32_t w = 0; w < instruction->wait_count; w++)
        count += p->waits[instruction->wait_begin + w].lane != instruction->lane;
    return count > 0;
}

static int is_awaited(const coh_program *p, uint32_t ordinal)
{
    int count = 0;
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (uint32_t w = 0; w < p->instructions[i].wait_count; w++) {
            const coh_wait *wait = &p->waits[p->instructions[i].wait_begin + w];
            count += p->instructions[i].lane != COH_LANE_COMPUTE &&
                     wait->lane == COH_LANE_COMPUTE && wait->ordinal == ordinal;
        }
    return count > 0;
}

static const coh_instruction *instruction_at(const coh_program *p, uint32_t ordinal)
{
    for (uint32_t i = 0; i < p->instruction_count; i++)
        if (p->instructions[i].lane == COH_LANE_COMPUTE && p->instructions[i].ordinal == ordinal)
            return &p->instructions[i];
    fail_msg("no instruction %u", (unsigned)ordinal);
    return NULL;
}

static int is_the_steps_own(const coh_instruction *instruction)
{
    return instruction->opcode == COH_OP_FEED || instruction->opcode == COH_OP_CLIP ||
           (instruction->opcode >= COH_OP_INIT && instruction->opcode <= COH_OP_SAVE) ||
           instruction->opcode == COH_OP_EDIT;
}

/* Checks that a run begins exactly where one of the rules demands it. */
static uint32_t check_program(const coh_program *p)
{
    coh_instruction_run *runs;
    uint32_t count, at = 0, longest = 0;
    assert_int_equal(coh_instruction_runs_find(p, &runs, &count), COH_OK);
    for (uint32_t n = 1; n <= p->lane_length[COH_LANE_COMPUTE]; n++) {
        const coh_instruction *instruction = instruction_at(p, n);
        if (is_the_steps_own(instruction)) {
            assert_true(at == count || runs[at].first > n);
            continue;
        }
        assert_true(at < count && n >= runs[at].first);
        const int begins = n == runs[at].first, ends = n == runs[at].first + runs[at].count - 1;
        const int is_first = n == 1 || is_the_steps_own(instruction_at(p, n - 1));
        assert_int_equal(begins,
                         is_first || waits_elsewhere(p, instruction) || is_awaited(p, n - 1));
        longest = runs[at].count > longest ? runs[at].count : longest;
        at += (uint32_t)ends;
    }
    assert_int_equal(at, count);
    coh_free(runs);
    return longest;
}

static void runs_of_plans_are_as_long_as_waits_let_them(void **state)
{
    (void)state;
    for (int i = 0; i < PLACEMENT_COUNT; i++)
        for (int deferred = 0; deferred < 2; deferred++) {
            coh_plan *plan;
            assert_int_equal(plan_for(&placements[i], deferred, &plan), COH_OK);
            for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
                const coh_program *p = &plan->programs[kind];
                const uint32_t longest = p->instruction_count > 0 ? check_program(p) : 0;
                /* in memory no instruction waits: one run of all except FEED and CLIP */
                if (i == 0 && kind == COH_PROGRAM_BODY)
                    assert_int_equal(longest, p->lane_length[COH_LANE_COMPUTE] - 2);
            }
            coh_plan_destroy(plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_no_wait_is_one_run),
        cmocka_unit_test(a_wait_begins_a_run_and_an_awaited_instruction_ends_one),
        cmocka_unit_test(instructions_of_the_host_are_in_no_run),
        cmocka_unit_test(runs_of_plans_are_as_long_as_waits_let_them),
    };
    return run_in_each_dtype(tests);
}
