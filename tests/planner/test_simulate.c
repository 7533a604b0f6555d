/* The simulator's clock, on programs small enough to time by hand, and compared with a walk that
 * knows only the rules. The rates are such that a flop or a byte lasts 1 ns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/faults/alloc_faults.h"
#include "tests/planner/small_program.h"

static void a_chain_over_lanes_lasts_the_sum_and_is_exposed(void **state)
{
    (void)state;
    made m;
    uint64_t times[6];
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 100);
    add(&m, COH_LANE_COMPUTE, 50);
    wait_for(&m, COH_LANE_READ, 1, 0);
    add(&m, COH_LANE_WRITE, 30);
    wait_for(&m, COH_LANE_COMPUTE, 1, 0);
    coh_simulation s = run(&m, &profile, times);
    assert_int_equal(s.period_ns, 180);
    assert_int_equal(s.first_ns, 180);
    assert_int_equal(s.exposed_ns[COH_LANE_READ], 100);
    assert_int_equal(s.busy_ns[COH_LANE_COMPUTE], 50);
    assert_int_equal(s.link_bytes[COH_LANE_READ], 100);
    assert_int_equal(s.link_bytes[COH_LANE_WRITE], 30);
    assert_int_equal(bound_of(&m, &profile).ns, 100);
    assert_int_equal(bound_of(&m, &profile).lane, COH_LANE_READ);
    const uint64_t expected[] = { 0, 100, 100, 150, 150, 180 };
    assert_memory_equal(times, expected, sizeof(times));
}

static void instructions_of_other_lanes_overlap(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 40);
    add(&m, COH_LANE_COMPUTE, 70);
    add(&m, COH_LANE_READ, 40);
    add(&m, COH_LANE_COMPUTE, 5);
    wait_for(&m, COH_LANE_READ, 2, 0);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 85); /* reads 0-80, compute 0-70 and 80-85 */
    assert_int_equal(s.exposed_ns[COH_LANE_READ], 10);
}

/* Four reads of 1000 bytes, latency 500, four in flight: the link serves them one by one, so the
 * last arrives at 500 + 4000. If each took latency + bytes / rate in parallel, it would arrive at
 * 1500: a drive four times too fast. */
static void depth_hides_latency_but_not_bytes(void **state)
{
    (void)state;
    made m;
    uint64_t times[8];
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(500);
    make(&m, COH_PROGRAM_EVALUATE);
    for (int i = 0; i < 4; i++)
        add(&m, COH_LANE_READ, 1000);
    m.program.lane_depth[COH_LANE_READ] = 4;
    coh_simulation s = run(&m, &profile, times);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(times[2 * i], 0);
        assert_int_equal(times[2 * i + 1], 500 + 1000 * (i + 1));
    }
    assert_int_equal(s.period_ns, 4500);
    assert_int_equal(bound_of(&m, &profile).ns, 4000);
    /* one at a time: each pays its latency */
    m.program.lane_depth[COH_LANE_READ] = 1;
    s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 6000);
    assert_int_equal(bound_of(&m, &profile).ns, 6000);
    /* two at a time: pairs share a latency; the second pair begins as slots become free */
    m.program.lane_depth[COH_LANE_READ] = 2;
    s = run(&m, &profile, times);
    assert_int_equal(times[4], 1500);
    assert_int_equal(times[6], 2500);
    assert_int_equal(s.period_ns, 4500);
}

/* A waiting instruction blocks the later instructions of its lane, even those that are ready. */
static void a_lane_issues_in_order(void **state)
{
    (void)state;
    made m;
    uint64_t times[8];
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_EVALUATE);
    m.program.lane_depth[COH_LANE_READ] = 8;
    add(&m, COH_LANE_COMPUTE, 100);
    add(&m, COH_LANE_READ, 10);
    wait_for(&m, COH_LANE_COMPUTE, 1, 0);
    add(&m, COH_LANE_READ, 10);
    add(&m, COH_LANE_COMPUTE, 1);
    wait_for(&m, COH_LANE_READ, 2, 0);
    coh_simulation s = run(&m, &profile, times);
    assert_int_equal(times[4], 100);
    assert_int_equal(s.period_ns, 121);
}

/* Compute 60; then a write of 30, for which the next run's read of 50 waits, for which compute
 * waits: the cycle is 140 long, and all exposed time is due to the read. */
static void a_body_has_the_period_of_its_carried_cycle(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_BODY);
    add(&m, COH_LANE_READ, 50);
    wait_for(&m, COH_LANE_WRITE, 1, 1);
    add(&m, COH_LANE_COMPUTE, 60);
    wait_for(&m, COH_LANE_READ, 1, 0);
    add(&m, COH_LANE_WRITE, 30);
    wait_for(&m, COH_LANE_COMPUTE, 1, 0);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 140);
    assert_int_equal(s.exposed_ns[COH_LANE_READ], 80);
    assert_int_equal(bound_of(&m, &profile).ns, 60);
}

/* Without the carried wait, reads run ahead and are hidden: the period is that of the longest
 * lane. */
static void a_body_without_a_cycle_has_the_period_of_its_busiest_lane(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_BODY);
    add(&m, COH_LANE_READ, 50);
    wait_for(&m, COH_LANE_COMPUTE, 1, 1); /* the slot is free when the previous run has computed */
    add(&m, COH_LANE_READ, 50);
    add(&m, COH_LANE_COMPUTE, 60);
    wait_for(&m, COH_LANE_READ, 1, 0);
    add(&m, COH_LANE_COMPUTE, 60);
    wait_for(&m, COH_LANE_READ, 2, 0);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(s.first_ns, 170); /* read 50, compute 60, 60 */
    assert_int_equal(s.period_ns, 120);
    assert_int_equal(s.exposed_ns[COH_LANE_READ], 0);
    assert_int_equal(bound_of(&m, &profile).ns, 120);
    assert_int_equal(bound_of(&m, &profile).lane, COH_LANE_COMPUTE);
}

static void waiting_is_charged_to_the_lane_that_came_last(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 20);
    add(&m, COH_LANE_H2D, 35);
    add(&m, COH_LANE_COMPUTE, 10);
    wait_for(&m, COH_LANE_READ, 1, 0);
    wait_for(&m, COH_LANE_H2D, 1, 0);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(s.exposed_ns[COH_LANE_H2D], 35);
    assert_int_equal(s.exposed_ns[COH_LANE_READ], 0);
}

/* Two cores both compute for 1000; a concurrent copy of 500 takes one of them: the work of two
 * cores takes 1000 + 250. */
static void a_copy_takes_its_core_from_computing(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    profile.contention[COH_LANE_COMPUTE][COH_LANE_H2D] = 2.0 / 3;
    profile.contention[COH_LANE_H2D][COH_LANE_COMPUTE] = 2.0 / 3;
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_H2D, 500);
    add(&m, COH_LANE_COMPUTE, 1000);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(bound_of(&m, &profile).ns, 1250);
    assert_int_equal(bound_of(&m, &profile).lane, COH_LANE_H2D);
    assert_int_equal(bound_of(&m, &profile).beside, COH_LANE_COMPUTE);
    assert_int_equal(s.period_ns, 1250);
    assert_int_equal(s.busy_ns[COH_LANE_COMPUTE], 1250);
    /* with a spare core nothing is slower */
    profile.contention[COH_LANE_COMPUTE][COH_LANE_H2D] = 1;
    profile.contention[COH_LANE_H2D][COH_LANE_COMPUTE] = 1;
    assert_int_equal(run(&m, &profile, NULL).period_ns, 1000);
}

/* The drive gives 1 byte per ns in total. Read 1000 and write 500 at once: each has half the rate
 * until the write ends at 1000, then the read alone ends at 1500. The simulator is right to first
 * order. One after the other, each has the whole drive. */
static void reads_and_writes_share_a_drive(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    share_drive(&profile);
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 1000);
    add(&m, COH_LANE_WRITE, 1000);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 2000);
    assert_int_equal(bound_of(&m, &profile).ns, 2000);
    assert_int_equal(s.busy_ns[COH_LANE_READ], 2000);
    make(&m, COH_PROGRAM_EVALUATE);
    add(&m, COH_LANE_READ, 1000);
    add(&m, COH_LANE_WRITE, 500);
    s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 1500);
    assert_int_equal(bound_of(&m, &profile).ns, 1500);
    wait_for(&m, COH_LANE_READ, 1, 0);
    s = run(&m, &profile, NULL);
    assert_int_equal(s.period_ns, 1500);
    assert_int_equal(s.busy_ns[COH_LANE_READ], 1000);
}

/* A body first reads, then computes; during the read it writes the result of the previous run. Both
 * share the drive although they are instructions of different runs. */
static void sharing_goes_on_from_run_to_run(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    make(&m, COH_PROGRAM_BODY);
    add(&m, COH_LANE_READ, 600);
    wait_for(&m, COH_LANE_COMPUTE, 1, 1);
    add(&m, COH_LANE_COMPUTE, 100);
    wait_for(&m, COH_LANE_READ, 1, 0);
    add(&m, COH_LANE_WRITE, 600);
    wait_for(&m, COH_LANE_COMPUTE, 1, 0);
    assert_int_equal(run(&m, &profile, NULL).period_ns, 700);
    share_drive(&profile);
    coh_simulation s = run(&m, &profile, NULL);
    assert_int_equal(bound_of(&m, &profile).ns, 1200);
    assert_in_range(s.period_ns, 1250, 1300); /* 100 of computing while the drive is idle */
}

/* ---- compared with the rules alone ---- */

/* Raises *value to `least`; returns 1 if that changed it. */
static int raise(uint64_t *value, uint64_t least)
{
    if (*value >= least)
        return 0;
    *value = least;
    return 1;
}

/* States the rules as inequalities over all pairs of instructions and raises times until all
 * hold: the earliest times at which the program can run. Assumes no order except within each
 * lane. */
static uint64_t least_time(const made *m, const coh_profile *profile)
{
    static uint64_t start[INSTRUCTIONS_MOST], served[INSTRUCTIONS_MOST], retired[INSTRUCTIONS_MOST];
    uint32_t n = m->program.instruction_count;
    memset(start, 0, sizeof(start));
    memset(served, 0, sizeof(served));
    memset(retired, 0, sizeof(retired));
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t i = n; i-- > 0;) {
            const coh_instruction *instruction = &m->instructions[i];
            const coh_link_profile *link = &profile->link[instruction->lane];
            int is_link = link->bytes_per_s.p50 > 0;
            uint64_t work = is_link ? instruction->bytes : (uint64_t)instruction->flops;
            uint64_t depth = is_link ? m->program.lane_depth[instruction->lane] : 1;
            changed |= raise(&served[i], start[i] + work);
            changed |= raise(&retired[i], served[i] + (uint64_t)link->latency_ns.p50);
            for (uint32_t j = 0; j < n; j++) {
                const coh_instruction *other = &m->instructions[j];
                for (uint32_t k = 0; k < instruction->wait_count; k++) {
                    const coh_wait *wait = &m->waits[instruction->wait_begin + k];
                    if (other->lane == wait->lane && other->ordinal == wait->ordinal)
                        changed |= raise(&start[i], retired[j]);
                }
                if (other->lane != instruction->lane || other->ordinal >= instruction->ordinal)
                    continue;
                changed |= raise(&start[i], start[j]);
                changed |= raise(&retired[i], retired[j]);
                changed |= raise(&served[i], served[j] + work);
                if (instruction->ordinal - other->ordinal >= depth)
                    changed |= raise(&start[i], retired[j]);
            }
        }
    }
    uint64_t last = 0;
    for (uint32_t i = 0; i < n; i++)
        raise(&last, retired[i]);
    return last;
}

static void any_program_takes_the_least_time_the_rules_allow(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(300);
    profile.link[COH_LANE_WRITE].latency_ns = coh_figure_of(40);
    for (uint64_t seed = 0; seed < 300; seed++) {
        make_random(&m, seed, COH_PROGRAM_EVALUATE);
        coh_simulation s = run(&m, &profile, NULL);
        uint64_t least = least_time(&m, &profile);
        if (s.period_ns != least || bound_of(&m, &profile).ns > least)
            fail_msg("seed %" PRIu64 ": %" PRIu64 ", least %" PRIu64 ", bound %" PRIu64, seed,
                     s.period_ns, least, bound_of(&m, &profile).ns);
    }
}

static void a_shorter_instruction_never_lengthens_the_whole(void **state)
{
    (void)state;
    made m;
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(300);
    for (uint64_t seed = 0; seed < 300; seed++) {
        make_random(&m, seed, COH_PROGRAM_EVALUATE);
        coh_simulation s = run(&m, &profile, NULL);
        coh_instruction *instruction =
            &m.instructions[coh_rng_below(seed, 9, 0, m.program.instruction_count)];
        instruction->bytes /= 2;
        instruction->flops /= 2;
        coh_simulation shorter = run(&m, &profile, NULL);
        if (shorter.period_ns > s.period_ns)
            fail_msg("seed %" PRIu64, seed);
    }
}

/* Writes `runs` runs of the body as one program: carried waits become plain ones. */
static void unroll(const made *body, uint32_t runs, made *out)
{
    make(out, COH_PROGRAM_EVALUATE);
    memcpy(out->program.lane_depth, body->program.lane_depth, sizeof(body->program.lane_depth));
    for (uint32_t r = 0; r < runs; r++)
        for (uint32_t i = 0; i < body->program.instruction_count; i++) {
            const coh_instruction *instruction = &body->instructions[i];
            add(out, (coh_lane)instruction->lane,
                instruction->bytes + (uint64_t)instruction->flops);
            for (uint32_t k = 0; k < instruction->wait_count; k++) {
                const coh_wait *wait = &body->waits[instruction->wait_begin + k];
                if (r >= wait->carry)
                    wait_for(out, (coh_lane)wait->lane,
                             wait->ordinal +
                                 (r - wait->carry) * body->program.lane_length[wait->lane],
                             0);
            }
        }
}

/* The period is the delay per additional run in the long run: 24 runs against 12. If the pattern
 * repeats only after several runs, or not by the sixth, the simulator reports an average. */
static void a_period_is_the_slope_of_the_body_run_many_times(void **state)
{
    (void)state;
    static made body, long_run, longer_run;
    int exact = 0;
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(300);
    for (uint64_t seed = 0; seed < 200; seed++) {
        make_random_body(&body, seed);
        unroll(&body, 12, &long_run);
        unroll(&body, 24, &longer_run);
        coh_simulation s = run(&body, &profile, NULL);
        coh_simulation again = run(&body, &profile, NULL);
        assert_memory_equal(&s, &again, sizeof(s));
        double slope = (double)(run(&longer_run, &profile, NULL).period_ns -
                                run(&long_run, &profile, NULL).period_ns) /
                       12;
        exact += (double)s.period_ns == slope;
        if (!((double)s.period_ns >= 0.9 * slope && (double)s.period_ns <= 1.1 * slope))
            fail_msg("seed %" PRIu64 ": period %" PRIu64 ", slope %.1f", seed, s.period_ns, slope);
        if (s.period_ns < bound_of(&body, &profile).ns || s.period_ns > s.first_ns)
            fail_msg("seed %" PRIu64 ": bound %" PRIu64 " period %" PRIu64 " first %" PRIu64, seed,
                     bound_of(&body, &profile).ns, s.period_ns, s.first_ns);
    }
    printf("%d of 200 bodies have exactly their slope\n", exact);
    assert_true(exact >= 180);
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    made m;
    coh_simulation s;
    coh_profile profile = unit_profile();
    uint64_t service_ns[INSTRUCTIONS_MOST], times[2 * INSTRUCTIONS_MOST];
    make_random(&m, 1, COH_PROGRAM_BODY);
    instruction_times(&m, service_ns);
    share_drive(&profile);
    for (int mode = COH_CONTENTION_NONE; mode <= COH_CONTENTION_ALL; mode++)
        for (uint64_t n = 1;; n++) {
            alloc_fail_nth(n);
            coh_status status =
                coh_simulate(&m.program, &profile, service_ns, (coh_contention)mode, &s, times);
            int was_hit = alloc_fault_was_hit();
            alloc_fail_nth(0);
            assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
            if (!was_hit)
                break;
        }
}

/* Nanoseconds that overflowed 64 bits would look like a fast program. */
static void times_that_no_clock_holds_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        double part;
        coh_contention contention;
        coh_status status;
    } cases[] = {
        { (uint64_t)1 << 58, 1, COH_CONTENTION_NONE, COH_OK },
        { (uint64_t)1 << 61, 1, COH_CONTENTION_NONE, COH_ERR_ARGUMENT },
        { COH_NS_MOST, 1, COH_CONTENTION_FLUID, COH_ERR_ARGUMENT },
        { (uint64_t)1 << 55, 0.01, COH_CONTENTION_FLUID, COH_OK },
        { (uint64_t)1 << 55, 0.01, COH_CONTENTION_ALL, COH_ERR_ARGUMENT },
    };
    made m;
    make(&m, COH_PROGRAM_BODY);
    add(&m, COH_LANE_READ, 1);
    add(&m, COH_LANE_COMPUTE, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint64_t service_ns[] = { cases[i].ns, cases[i].ns };
        coh_profile profile = unit_profile();
        coh_simulation s;
        profile.contention[COH_LANE_READ][COH_LANE_COMPUTE] = cases[i].part;
        assert_int_equal(
            coh_simulate(&m.program, &profile, service_ns, cases[i].contention, &s, NULL),
            cases[i].status);
        if (cases[i].status == COH_OK)
            assert_true(s.period_ns >= cases[i].ns);
        else
            assert_non_null(strstr(coh_last_error(), "years"));
    }
    /* latencies count, too */
    const uint64_t none[] = { 0, 0 };
    coh_profile profile = unit_profile();
    coh_simulation s;
    profile.link[COH_LANE_READ].latency_ns = coh_figure_of(1e300);
    assert_int_equal(coh_simulate(&m.program, &profile, none, COH_CONTENTION_FLUID, &s, NULL),
                     COH_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_over_lanes_lasts_the_sum_and_is_exposed),
        cmocka_unit_test(instructions_of_other_lanes_overlap),
        cmocka_unit_test(depth_hides_latency_but_not_bytes),
        cmocka_unit_test(a_lane_issues_in_order),
        cmocka_unit_test(a_body_has_the_period_of_its_carried_cycle),
        cmocka_unit_test(a_body_without_a_cycle_has_the_period_of_its_busiest_lane),
        cmocka_unit_test(waiting_is_charged_to_the_lane_that_came_last),
        cmocka_unit_test(reads_and_writes_share_a_drive),
        cmocka_unit_test(sharing_goes_on_from_run_to_run),
        cmocka_unit_test(a_copy_takes_its_core_from_computing),
        cmocka_unit_test(any_program_takes_the_least_time_the_rules_allow),
        cmocka_unit_test(a_shorter_instruction_never_lengthens_the_whole),
        cmocka_unit_test(a_period_is_the_slope_of_the_body_run_many_times),
        cmocka_unit_test(times_that_no_clock_holds_are_refused),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
