/* Programs with a mistake, run in poison mode: the mistake must change the results. Separate from
 * test_step.c because such a program has races, which a thread sanitizer would report. */
#include "tests/engine/step_bench.h"

#include <math.h>

static void poison_shows_a_use_that_was_not_counted(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        bench b;
        bench_prepare(&b, (made_far)far);
        b.options.poison = 1;
        const coh_program *body = &made.plan.programs[COH_PROGRAM_BODY];
        const coh_instruction *out =
            made_stream_instruction(&made, far == MADE_FAR_DISK ? COH_OP_WRITE : COH_OP_STORE, 2);
        uint32_t extent = body->touches[body->operands[out->operand_begin].touch_begin].extent;
        assert_int_equal(body->extents[extent].use_count, 3); /* in, stir, out */
        body->extents[extent].use_count = 2;
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_all(&b, output), COH_OK);
        assert_true(isnan(output[0]));
        /* The ledger noticed it, too: the chunk was entered again and never left. */
        coh_step_destroy(b.step);
        b.step = NULL;
        uint64_t live, peak;
        coh_ledger_read_stream(b.ledger, COH_TIER_DEVICE, COH_STREAM_KEPT, &live, &peak);
        assert_int_equal(live, STREAM_ELEMENTS * sizeof(float));
        coh_ledger_leave(b.ledger, COH_TIER_DEVICE, COH_STREAM_KEPT, 0, live);
        bench_finish(&b);
    }
}

static void poison_shows_a_dropped_wait_under_some_delay(void **state)
{
    (void)state;
    oracle_all(&oracle);
    int shown = 0;
    for (uint64_t seed = 1; seed <= 20 && !shown; seed++) {
        bench b;
        bench_prepare(&b, MADE_FAR_HOST);
        b.options.poison = 1;
        b.options.delay_seed = seed;
        b.options.delay_most_us = 2000;
        made_stream_instruction(&made, COH_OP_FORWARD, 3)->wait_count =
            0; /* no wait for its LOAD */
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_all(&b, output), COH_OK);
        shown = memcmp(output, oracle.output, sizeof(output)) != 0;
        bench_finish(&b);
    }
    assert_true(shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poison_shows_a_use_that_was_not_counted),
        cmocka_unit_test(poison_shows_a_dropped_wait_under_some_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
