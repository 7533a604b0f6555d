/* The memory beside a GPU as a resource: what a datasheet says of it, what entries change, and that
 * no plan moves more bytes through it than its rate allows. The clock itself is in
 * test_contention.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cohobate/cohobate.h"
#include "planner/plan.h"
#include "planner/profile_file.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

static void check(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, expected %.12g", found, expected);
}

static coh_profile *read_ok(const char *what)
{
    coh_profile *p = NULL;
    if (coh_profile_read(what, &p) != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
    return p;
}

/* An eighth of a DGX has 128 GiB: who takes 512 GiB has four eighths of its rates, and nobody more
 * than the machine has, nor its ranks together. Rates that are given stay, and a desktop's modules
 * have two channels. */
static void more_of_a_shared_host_has_its_rates(void **state)
{
    (void)state;
    static const struct {
        const char *entries;
        double memory, update; /* times the share's */
    } cases[] = { { "a100-40g", 1, 1 },
                  { "a100-40g,host-memory=64GiB", 1, 1 },
                  { "a100-40g,host-memory=512GiB", 4, 4 },
                  { "a100-40g,host-memory=256GiB,host-memory=2x", 4, 4 },
                  { "a100-40g,host-memory=512GiB,host-memory=64GiB", 1, 1 },
                  { "a100-40g,host-memory=64GiB,host-memory=256GiB", 2, 2 },
                  { "a100-40g,host-memory=4TiB", 8, 8 },
                  { "a100-40g,host-memory=4TiB,host-memory=0.125x", 4, 4 },
                  { "a100-40g,host-memory-rate=0.5x,host-memory=512GiB", 2, 4 },
                  { "a100-40g,host-memory-rate=102.4GB/s,host-memory=512GiB", 2, 4 },
                  { "a100-40g,host-memory=512GiB,update-rate=102.4GB/s", 4, 2 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_profile *p = read_ok(cases[i].entries);
        check(p->host_memory_bytes_per_s.p50, cases[i].memory * 51.2e9);
        check(p->host_update_bytes_per_s.p50, cases[i].update * 51.2e9);
        coh_profile_destroy(p);
    }
    coh_profile *ranks = read_ok("a100-40g,host-memory=512GiB"); /* four shares of eight */
    coh_profile_limit_shares(ranks, 2);
    check(ranks->host_memory_bytes_per_s.p50, 4 * 51.2e9);
    coh_profile_limit_shares(ranks, 8);
    check(ranks->host_memory_bytes_per_s.p50, 51.2e9);
    check(ranks->host_update_bytes_per_s.p50, 51.2e9);
    coh_profile_destroy(ranks);
    coh_profile *desktop = read_ok("rtx-4090"), *larger = read_ok("rtx-4090,host-memory=256GB");
    assert_true(desktop->host_memory_bytes_per_s.p50 == larger->host_memory_bytes_per_s.p50);
    coh_profile_destroy(desktop);
    coh_profile_destroy(larger);
}

/* Of an a100-40g the link asks for 31.5 of 51.2 GB/s, an update for all of it or for the part in
 * which it moves bytes. What is measured has contention instead. */
static void the_lanes_of_a_datasheet_share_its_host_memory(void **state)
{
    (void)state;
    coh_profile *p = read_ok("a100-40g"), measured;
    double speed[COH_LANE_COUNT];
    measured = *p;
    coh_profile_share_memory(p, 0.5);
    const double link = p->link[COH_LANE_H2D].bytes_per_s.p50 / 51.2e9;
    check(p->memory_part[COH_LANE_D2H], link);
    check(p->memory_part[COH_LANE_HOST], 0.5);
    assert_true(p->memory_part[COH_LANE_COMPUTE] == 0);
    coh_profile_speeds(p, 1u << COH_LANE_H2D | 1u << COH_LANE_D2H | 1u << COH_LANE_HOST, speed);
    check(speed[COH_LANE_H2D], 1 / (2 * link + 0.5));
    assert_true(speed[COH_LANE_COMPUTE] == 1);
    measured.source = COH_PROFILE_MEASURED;
    coh_profile_share_memory(&measured, 1);
    assert_true(measured.memory_part[COH_LANE_H2D] == 0);
    measured.source = COH_PROFILE_DATASHEET;
    measured.contention[COH_LANE_H2D][COH_LANE_HOST] = 0.5;
    coh_profile_share_memory(&measured, 1);
    assert_true(measured.memory_part[COH_LANE_H2D] == 0);
    coh_profile_destroy(p);
}

/* The time of the bytes that a body moves over the links, to and from the drive, and of its host
 * updates, at the memory's rate. */
static double memory_ns(const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    double bytes = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->lane == COH_LANE_HOST || instruction->lane == COH_LANE_H2D ||
            instruction->lane == COH_LANE_D2H || instruction->lane == COH_LANE_READ ||
            instruction->lane == COH_LANE_WRITE)
            bytes += (double)instruction->bytes;
    }
    return bytes / plan->profile.host_memory_bytes_per_s.p50 * 1e9;
}

/* A step takes no less time than its bytes through host memory; with a slow one hardly more. */
static void no_step_outruns_the_host_memory(void **state)
{
    (void)state;
    static const struct {
        const char *rate, *more;
        uint64_t host_bytes, disk_bytes;
    } cases[] = { { "1TB/s", "", 1 << 30, 0 },
                  { "20GB/s", "", 1 << 30, 0 },
                  { "2GB/s", "", 1 << 30, 0 },
                  { "20GB/s", ",drives=8", 8 << 20, 1 << 30 } };
    const toy_options toy = { .layers = test_is_brief() ? 12 : 24,
                              .width = 256,
                              .vocabulary = 300,
                              .rows = 64,
                              .dtype = COH_DTYPE_F32 };
    double nearest = INFINITY;
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char what[128];
        coh_plan_options options;
        coh_plan *plan = NULL;
        snprintf(what, sizeof(what), "rtx-4090,host-memory-rate=%s,update-rate=%s%s", cases[i].rate,
                 cases[i].rate, cases[i].more);
        coh_profile *profile = read_ok(what);
        coh_plan_options_init(&options);
        options.profile = profile;
        options.device_memory_bytes = 40 << 20;
        options.host_memory_bytes = cases[i].host_bytes;
        options.disk_bytes = cases[i].disk_bytes;
        if (coh_plan_create(graph, &options, &plan) != COH_OK)
            fail_msg("%s", coh_last_error());
        const double step_ns = (double)plan->simulations[COH_PROGRAM_BODY].period_ns;
        const double least_ns = memory_ns(plan);
        if (step_ns * (1 + 1e-6) < least_ns)
            fail_msg("%s: a step of %.0f ns, its bytes take %.0f", cases[i].rate, step_ns,
                     least_ns);
        nearest = step_ns / least_ns < nearest ? step_ns / least_ns : nearest;
        coh_plan_destroy(plan);
        coh_profile_destroy(profile);
    }
    assert_true(nearest < 1.1);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_of_a_shared_host_has_its_rates),
        cmocka_unit_test(the_lanes_of_a_datasheet_share_its_host_memory),
        cmocka_unit_test(no_step_outruns_the_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
