/* Lanes that slow one another: compares the fluid walk with one that takes tiny steps and knows
 * only the rules, and checks the relations between the three modes and the bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "tests/length.h"
#include "tests/planner/small_program.h"

#define STEP 0.25

/* Every lane slows every other to a factor between 0.3 and 1. Of every other profile some lanes
 * also share a memory. */
static coh_profile random_profile(uint64_t seed)
{
    coh_profile profile = unit_profile();
    uint64_t draw = 0;
    for (int i = 0; i < COH_LANE_COUNT; i++)
        for (int j = 0; j < COH_LANE_COUNT; j++)
            profile.contention[i][j] = 0.3 + 0.7 * coh_rng_uniform(seed, 5, draw++);
    for (int i = 0; seed % 2 && i < COH_LANE_COUNT; i++)
        if (coh_rng_uniform(seed, 6, draw++) < 0.7)
            profile.memory_part[i] = 1.2 * coh_rng_uniform(seed, 6, draw++);
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(100);
    profile.link[COH_LANE_WRITE].latency_ns = coh_figure_of(40);
    return profile;
}

/* ---- in tiny steps ---- */

typedef struct naive_instruction {
    double left, served_at;
    int is_issued, is_served, is_retired;
} naive_instruction;

static int is_retired(const made *m, const naive_instruction *instructions, int lane,
                      uint32_t ordinal)
{
    for (uint32_t i = 0; i < m->program.instruction_count; i++)
        if (m->instructions[i].lane == lane && m->instructions[i].ordinal == ordinal)
            return instructions[i].is_retired;
    return 0;
}

/* Returns 1 if all earlier instructions of the lane are issued and fewer than `depth` are in
 * progress. */
static int has_place(const made *m, const naive_instruction *instructions, uint32_t index,
                     uint64_t depth)
{
    uint64_t under_way = 0;
    for (uint32_t i = 0; i < index; i++) {
        if (m->instructions[i].lane != m->instructions[index].lane)
            continue;
        if (!instructions[i].is_issued)
            return 0;
        under_way += !instructions[i].is_retired;
    }
    return under_way < depth;
}

static int can_issue(const made *m, const coh_profile *profile,
                     const naive_instruction *instructions, uint32_t index)
{
    const coh_instruction *instruction = &m->instructions[index];
    uint64_t depth = profile->link[instruction->lane].bytes_per_s.p50 > 0
                         ? m->program.lane_depth[instruction->lane]
                         : 1;
    for (uint32_t k = 0; k < instruction->wait_count; k++) {
        const coh_wait *wait = &m->waits[instruction->wait_begin + k];
        if (!is_retired(m, instructions, wait->lane, wait->ordinal))
            return 0;
    }
    return has_place(m, instructions, index, depth);
}

/* Issues and retires instructions at one moment until nothing changes. */
static void settle_moment(const made *m, const coh_profile *profile,
                          naive_instruction *instructions, double now)
{
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t i = 0; i < m->program.instruction_count; i++) {
            naive_instruction *instruction = &instructions[i];
            double latency = profile->link[m->instructions[i].lane].latency_ns.p50;
            int issues = !instruction->is_issued && can_issue(m, profile, instructions, i);
            int retires = instruction->is_served && !instruction->is_retired &&
                          now >= instruction->served_at + latency - STEP / 2;
            instruction->is_issued |= issues;
            instruction->is_retired |= retires;
            changed |= issues || retires;
        }
    }
}

/* Finds the instruction each lane serves: its first that is issued and not yet served. */
static void find_served(const made *m, naive_instruction *instructions, naive_instruction **out)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        out[lane] = NULL;
    for (uint32_t i = m->program.instruction_count; i-- > 0;)
        if (instructions[i].is_issued && !instructions[i].is_served)
            out[m->instructions[i].lane] = &instructions[i];
}

static double contended(const coh_profile *profile, naive_instruction *const *served, int lane)
{
    double speed = 1;
    for (int other = 0; other < COH_LANE_COUNT; other++)
        if (other != lane && served[other])
            speed *= profile->contention[lane][other];
    return speed;
}

static double naive_time(const made *m, const coh_profile *profile)
{
    static naive_instruction instructions[INSTRUCTIONS_MOST];
    double now = 0;
    memset(instructions, 0, sizeof(instructions));
    for (uint32_t i = 0; i < m->program.instruction_count; i++)
        instructions[i].left = (double)m->instructions[i].bytes + m->instructions[i].flops;
    for (;; now += STEP) {
        naive_instruction *served[COH_LANE_COUNT];
        uint32_t retired = 0;
        settle_moment(m, profile, instructions, now);
        for (uint32_t i = 0; i < m->program.instruction_count; i++)
            retired += (uint32_t)instructions[i].is_retired;
        if (retired == m->program.instruction_count)
            return now;
        find_served(m, instructions, served);
        double wanted = 0; /* of the shared memory's rate, by lanes that slow one another */
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            if (served[lane])
                wanted += profile->memory_part[lane] * contended(profile, served, lane);
        for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
            double speed = contended(profile, served, lane);
            if (profile->memory_part[lane] > 0 && wanted > 1)
                speed /= wanted;
            if (served[lane])
                served[lane]->left -= speed * STEP;
        }
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            if (served[lane] && served[lane]->left <= 1e-9) {
                served[lane]->is_served = 1;
                served[lane]->served_at = now + STEP;
            }
    }
}

/* Each instruction may end up to a step late; the worst case is a chain of all instructions. */
static void the_fluid_walk_is_the_limit_of_tiny_steps(void **state)
{
    (void)state;
    made m;
    for (uint64_t seed = 0; seed < test_cases(20); seed++) {
        coh_profile profile = random_profile(seed);
        make_random(&m, seed, COH_PROGRAM_EVALUATE);
        double fluid = (double)run(&m, &profile, NULL).period_ns;
        double naive = naive_time(&m, &profile), most = 1 + STEP * m.program.instruction_count;
        if (fluid > naive + most || fluid < naive - most)
            fail_msg("seed %" PRIu64 ": fluid %.0f, in steps %.3f", seed, fluid, naive);
    }
}

/* ---- between the modes ---- */

/* In a fixed program a longer instruction never shortens the total. No instruction is shorter
 * than alone, or longer than with all other lanes busy. */
static void fluid_lies_between_none_and_all(void **state)
{
    (void)state;
    made m;
    for (uint64_t seed = 0; seed < test_cases(300); seed++) {
        coh_profile profile = random_profile(seed);
        make_random(&m, seed, COH_PROGRAM_EVALUATE);
        uint64_t none = run_as(&m, &profile, COH_CONTENTION_NONE, NULL).period_ns;
        uint64_t fluid = run_as(&m, &profile, COH_CONTENTION_FLUID, NULL).period_ns;
        uint64_t all = run_as(&m, &profile, COH_CONTENTION_ALL, NULL).period_ns;
        if (none > fluid + 1 || fluid > all + m.program.instruction_count)
            fail_msg("seed %" PRIu64 ": %" PRIu64 ", %" PRIu64 ", %" PRIu64, seed, none, fluid,
                     all);
    }
}

/* ---- bounds ---- */

static void nothing_is_faster_than_the_bound(void **state)
{
    (void)state;
    made m;
    const int cases = (int)test_cases(400);
    int joint = 0;
    for (int number = 0; number < cases; number++) {
        const uint64_t seed = (uint64_t)number;
        coh_profile profile = random_profile(seed);
        make_random(&m, seed, COH_PROGRAM_EVALUATE);
        const lower_bound bound = bound_of(&m, &profile);
        coh_simulation s = run(&m, &profile, NULL);
        joint += bound.beside != COH_LANE_COUNT;
        if (s.period_ns + 1 < bound.ns)
            fail_msg("seed %" PRIu64 ": %" PRIu64 " under the bound of %" PRIu64, seed, s.period_ns,
                     bound.ns);
    }
    assert_true(joint > cases / 4);
}

/* Two lanes without waits, one long instruction each. The fluid walk starts both at once, which
 * is optimal if together they do more than one alone: the bound is met exactly. */
static void the_joint_bound_of_two_lanes_is_sharp(void **state)
{
    (void)state;
    made m;
    for (uint64_t seed = 0; seed < test_cases(100); seed++) {
        coh_profile profile = unit_profile();
        double a = 0.5 + 0.5 * coh_rng_uniform(seed, 6, 0);
        double b = 0.5 + 0.5 * coh_rng_uniform(seed, 6, 1);
        profile.contention[COH_LANE_READ][COH_LANE_WRITE] = a;
        profile.contention[COH_LANE_WRITE][COH_LANE_READ] = b;
        make(&m, COH_PROGRAM_EVALUATE);
        add(&m, COH_LANE_READ, 1 + coh_rng_below(seed, 6, 2, 1000000));
        add(&m, COH_LANE_WRITE, 1 + coh_rng_below(seed, 6, 3, 1000000));
        coh_simulation s = run(&m, &profile, NULL);
        if (s.period_ns > bound_of(&m, &profile).ns + 2)
            fail_msg("seed %" PRIu64 ": %" PRIu64 ", bound %" PRIu64, seed, s.period_ns,
                     bound_of(&m, &profile).ns);
    }
}

/* If together they do less than one alone, running one after the other is optimal. */
static void lanes_better_one_after_the_other_are_bound_by_their_sum(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    profile.contention[COH_LANE_READ][COH_LANE_WRITE] = 0.3;
    profile.contention[COH_LANE_WRITE][COH_LANE_READ] = 0.4;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 700);
    add(&m, COH_LANE_WRITE, 300);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(bound_of(&m, &profile).ns, 1000);
    assert_true(s.period_ns > 1000);
    wait_for(&m, COH_LANE_READ, 1, 0);
    assert_int_equal(run(&m, &profile, NULL).period_ns, 1000);
}

/* Read, write and compute at once: the factors multiply. */
static void three_at_once_multiply(void **state)
{
    (void)state;
    made m;
    uint64_t times[6];
    coh_profile profile = unit_profile();
    profile.contention[COH_LANE_COMPUTE][COH_LANE_READ] = 0.5;
    profile.contention[COH_LANE_COMPUTE][COH_LANE_WRITE] = 0.8;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_COMPUTE, 1000);
    add(&m, COH_LANE_READ, 500);
    add(&m, COH_LANE_WRITE, 1000);
    coh_simulation s = run(&m, &profile, times);
    /* 500 at 0.4 are 200, 500 at 0.8 are 400, 400 alone */
    assert_int_equal(times[1], 1400);
    assert_int_equal(s.busy_ns[COH_LANE_COMPUTE], 1400);
    s = run_as(&m, &profile, COH_CONTENTION_ALL, times);
    assert_int_equal(times[1], 2500);
}

/* A computation that runs while a transfer begins is lengthened by the transfer's interference;
 * an instruction that waits loses nothing. */
static void a_transfer_lengthens_the_computation_beside_it(void **state)
{
    (void)state;
    made m;
    uint64_t times[4];
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].interference_ns = 100;
    profile.link[COH_LANE_READ].interference_ns_per_byte = 0.2;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_COMPUTE, 1000);
    add(&m, COH_LANE_READ, 500);
    assert_int_equal(run(&m, &profile, times).period_ns, 1200);
    assert_int_equal(times[3], 500);
    assert_int_equal(run_as(&m, &profile, COH_CONTENTION_ALL, times).period_ns, 1200);
    assert_int_equal(run_as(&m, &profile, COH_CONTENTION_NONE, times).period_ns, 1000);
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 500);
    add(&m, COH_LANE_COMPUTE, 1000);
    wait_for(&m, COH_LANE_READ, 1, 0);
    assert_int_equal(run(&m, &profile, times).period_ns, 1500);
}

/* By hand: three lanes of which each could use 0.8 of a memory have a third of it, so they run at
 * 1 / 2.4 of their speed; then two at 1 / 1.6; then one alone. A lane that does not use the memory
 * is not slowed. 100, 200 and 300 bytes: 240 ns, 160 ns and 100 ns. */
static void lanes_share_a_memory_in_proportion(void **state)
{
    (void)state;
    made m;
    uint64_t times[8];
    coh_profile profile = unit_profile();
    profile.memory_part[COH_LANE_READ] = profile.memory_part[COH_LANE_WRITE] = 0.8;
    profile.memory_part[COH_LANE_HOST] = 0.8;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 100);
    add(&m, COH_LANE_WRITE, 200);
    add(&m, COH_LANE_HOST, 300);
    add(&m, COH_LANE_COMPUTE, 450);
    assert_int_equal(run(&m, &profile, times).period_ns, 500);
    const uint64_t expected[] = { 0, 240, 0, 400, 0, 500, 0, 450 };
    assert_memory_equal(times, expected, sizeof(times));
    profile.memory_part[COH_LANE_READ] = 0.1;
    profile.memory_part[COH_LANE_WRITE] = 0.1;
    assert_int_equal(run(&m, &profile, times).period_ns, 450); /* together exactly the memory */
    profile.memory_part[COH_LANE_HOST] = 2;                    /* alone faster than its memory */
    assert_in_range(run(&m, &profile, times).period_ns, 600, 660);
}

/* By hand: a drive that only reads takes its 0.8 of a memory, and the host lane 0.6, so both run at
 * 1 / 1.4. With writes of the same drive each of its ways takes 0.4: with the host lane 1.4 as
 * before. Then 210 bytes take 294 ns; after it the host lane is alone. A drive whose ways leave
 * each other 0.3 takes less when it does both: a read is slowest during a write, 0.3 / 1.08, the
 * host lane during a read alone, 1 / 1.4. */
static void a_drive_that_only_reads_takes_all_of_its_part_of_the_memory(void **state)
{
    (void)state;
    made m;
    uint64_t times[6];
    coh_profile profile = unit_profile();
    profile.contention[COH_LANE_READ][COH_LANE_WRITE] = 0.5;
    profile.contention[COH_LANE_WRITE][COH_LANE_READ] = 0.5;
    profile.memory_part[COH_LANE_READ] = profile.memory_part[COH_LANE_WRITE] = 0.8;
    profile.memory_part[COH_LANE_HOST] = 0.6;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 210);
    add(&m, COH_LANE_HOST, 300);
    run(&m, &profile, times);
    const uint64_t reading[] = { 0, 294, 0, 384 };
    assert_memory_equal(times, reading, sizeof(reading));
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 105);
    add(&m, COH_LANE_WRITE, 105);
    add(&m, COH_LANE_HOST, 300);
    run(&m, &profile, times);
    const uint64_t both[] = { 0, 294, 0, 294, 0, 384 };
    assert_memory_equal(times, both, sizeof(both));
    profile.contention[COH_LANE_READ][COH_LANE_WRITE] = 0.3;
    profile.contention[COH_LANE_WRITE][COH_LANE_READ] = 0.3;
    run_as(&m, &profile, COH_CONTENTION_ALL, times);
    const uint64_t slowest[] = { 0, 378, 0, 378, 0, 420 };
    assert_memory_equal(times, slowest, sizeof(slowest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fluid_walk_is_the_limit_of_tiny_steps),
        cmocka_unit_test(fluid_lies_between_none_and_all),
        cmocka_unit_test(nothing_is_faster_than_the_bound),
        cmocka_unit_test(the_joint_bound_of_two_lanes_is_sharp),
        cmocka_unit_test(lanes_better_one_after_the_other_are_bound_by_their_sum),
        cmocka_unit_test(three_at_once_multiply),
        cmocka_unit_test(lanes_share_a_memory_in_proportion),
        cmocka_unit_test(a_drive_that_only_reads_takes_all_of_its_part_of_the_memory),
        cmocka_unit_test(a_transfer_lengthens_the_computation_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
