/* The executor on hand-made programs: tests/engine/made_stream.h. */
#include "tests/engine/step_bench.h"
#include "tests/faults/store_faults.h"

#include <errno.h>

#include "planner/verify.h"
#include "tests/faults/alloc_faults.h"

/* ---- claims ---- */

static void hand_made_programs_satisfy_the_verifier(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        made_stream_init(&made, (made_far)far);
        coh_verify_options options = { 0 };
        for (int tier = 0; tier < COH_TIER_DISK; tier++)
            options.budget_bytes[tier] = made.plan.layout.arena_bytes[tier];
        options.budget_bytes[COH_TIER_DISK] = made.plan.layout.file_bytes;
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
            if (made.plan.programs[kind].instruction_count == 0)
                continue;
            coh_status status =
                coh_verify(&made.plan.layout, &made.plan.programs[kind], &options, NULL);
            if (status != COH_OK)
                fail_msg("far tier %d: %s", far, coh_last_error());
        }
        made_stream_fini(&made);
    }
}

static void streamed_states_equal_the_plain_loop(void **state)
{
    (void)state;
    oracle_all(&oracle);
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        bench b;
        bench_prepare(&b, (made_far)far);
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_all(&b, output), COH_OK);
        assert_memory_equal(output, oracle.output, sizeof(output));
        bench_finish(&b);
    }
}

static void random_delays_and_nan_in_released_bytes_change_nothing(void **state)
{
    (void)state;
    oracle_all(&oracle);
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
            bench b;
            bench_prepare(&b, (made_far)far);
            b.options.poison = 1;
            b.options.delay_seed = seed;
            b.options.delay_most_us = 300;
            assert_int_equal(bench_start(&b), COH_OK);
            assert_int_equal(run_all(&b, output), COH_OK);
            if (memcmp(output, oracle.output, sizeof(output)) != 0)
                fail_msg("delay seed %d, far tier %d: another result", (int)seed, far);
            bench_finish(&b);
        }
}

static void programs_follow_one_another_in_any_order(void **state)
{
    (void)state;
    bench b;
    bench_prepare(&b, MADE_FAR_DISK);
    assert_int_equal(bench_start(&b), COH_OK);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(run_init(&b), COH_OK);
        memset(&oracle, 0, sizeof(oracle));
        for (uint64_t step = 0; step < (uint64_t)round + 1; step++) {
            assert_int_equal(run_body(&b, step), COH_OK);
            stream_oracle_step(&oracle, input);
        }
        assert_memory_equal(coh_step_pinned(b.step, made.output_object), oracle.output,
                            sizeof(oracle.output));
    }
    bench_finish(&b);
}

static void a_false_predicate_still_retires_and_changes_nothing(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        bench b;
        bench_prepare(&b, (made_far)far);
        b.options.poison = 1;
        for (int i = 0; i < STREAM_COUNT; i++)
            made_stream_instruction(&made, COH_OP_FORWARD, i)->predicate_cell = COH_CELL_PENDING;
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_init(&b), COH_OK);
        float *result = coh_step_pinned(b.step, made.output_object);
        result[0] = 42;
        assert_int_equal(run_body(&b, 0), COH_OK); /* pending is 0 */
        assert_true(result[0] == 42);
        coh_step_cells(b.step)->pending = 1;
        assert_int_equal(run_body(&b, 1), COH_OK);
        memset(&oracle, 0, sizeof(oracle));
        stream_oracle_step(&oracle, input);
        assert_memory_equal(result, oracle.output, sizeof(oracle.output));
        bench_finish(&b);
    }
}

/* ---- two bodies in flight ---- */

static bench *hook_bench;
static int hook_calls;

/* The last stir of the first body waits until the second body's first state has arrived. */
static coh_status wait_for_next_body(const coh_call *call)
{
    (void)call;
    if (++hook_calls == STREAM_COUNT)
        coh_counter_wait(coh_step_retired(hook_bench->step, COH_LANE_READ), STREAM_COUNT + 1);
    return COH_OK;
}

static void the_second_body_reads_before_the_first_has_ended(void **state)
{
    (void)state;
    bench b;
    bench_prepare(&b, MADE_FAR_DISK);
    assert_int_equal(bench_start(&b), COH_OK);
    assert_int_equal(run_init(&b), COH_OK);
    hook_bench = &b;
    hook_calls = 0;
    made_stream_hook = wait_for_next_body;
    uint64_t first, second;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    assert_int_equal(submit_body(&b, 0, &first), COH_OK);
    assert_int_equal(submit_body(&b, 1, &second), COH_OK);
    assert_int_equal(coh_step_await(b.step, first, &result), COH_OK);
    assert_int_equal(coh_step_await(b.step, second, &result), COH_OK);
    bench_finish(&b);
}

/* ---- failures ---- */

static void check_failed(bench *b, coh_status status)
{
    assert_int_not_equal(status, COH_OK);
    assert_true(coh_last_error()[0] != '\0');
    char text[COH_ERROR_TEXT_BYTES];
    coh_error_save(text);
    assert_int_equal(submit_body(b, 0, NULL), status);
    assert_string_equal(coh_last_error(), text);
    assert_int_equal(coh_step_quiet(b->step), status);
}

static void every_failing_store_operation_ends_the_run_with_a_sentence(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        const store_fault_plan faults = { .seed = 1,
                                          .fail_at = n,
                                          .short_at = -1,
                                          .flip_at = -1,
                                          .late_at = -1,
                                          .fail_errno = n % 2 ? EIO : ENOSPC };
        bench b;
        bench_prepare(&b, MADE_FAR_DISK);
        b.store_ops = &store_faulty_mem;
        store_fault_plan_set(&faults);
        coh_status status = bench_start(&b);
        if (status == COH_OK)
            status = run_all(&b, output);
        int was_hit = store_fault_was_hit();
        store_fault_plan_set(NULL);
        if (was_hit && b.step != NULL)
            check_failed(&b, status);
        if (!was_hit)
            assert_int_equal(status, COH_OK);
        bench_finish(&b);
        if (!was_hit)
            break;
    }
}

static void a_flipped_bit_is_found_and_not_computed_with(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 18; n++) {
        const store_fault_plan faults = {
            .seed = 3, .fail_at = -1, .short_at = -1, .flip_at = n, .late_at = -1
        };
        bench b;
        bench_prepare(&b, MADE_FAR_DISK);
        b.store_ops = &store_faulty_mem;
        store_fault_plan_set(&faults);
        assert_int_equal(bench_start(&b), COH_OK);
        coh_status status = run_all(&b, output);
        store_fault_plan_set(NULL);
        assert_int_equal(status, COH_ERR_IO); /* the device failed: no user data is to blame */
        check_failed(&b, status);
        bench_finish(&b);
    }
}

static int fail_at_call;

static coh_status fail_once(const coh_call *call)
{
    (void)call;
    if (hook_calls++ == fail_at_call)
        return coh_kind_fail(COH_ERR_NUMBER, "call %d says no", fail_at_call);
    return COH_OK;
}

/* The hand-made programs change no parameter, so a failing operator ends only its own step. */
static void a_failing_operator_is_named_and_ends_its_step_alone(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++)
        for (fail_at_call = 0; fail_at_call < 2 * STREAM_COUNT; fail_at_call++) {
            bench b;
            bench_prepare(&b, (made_far)far);
            assert_int_equal(bench_start(&b), COH_OK);
            assert_int_equal(run_init(&b), COH_OK);
            hook_calls = 0;
            made_stream_hook = fail_once;
            char name[] = "stir0";
            name[4] = (char)('0' + fail_at_call % STREAM_COUNT);
            int failed = 0;
            for (uint64_t step = 0; step < STEPS; step++) {
                uint64_t ticket;
                coh_step_result result = { .struct_bytes = sizeof(result) };
                assert_int_equal(submit_body(&b, step, &ticket), COH_OK);
                if (coh_step_await(b.step, ticket, &result) == COH_OK)
                    continue;
                failed++;
                assert_non_null(strstr(coh_last_error(), name));
                assert_non_null(strstr(coh_last_error(), "says no"));
            }
            made_stream_hook = NULL;
            assert_int_equal(failed, 1);
            assert_int_equal(coh_step_quiet(b.step), COH_OK);
            bench_finish(&b);
        }
}

static void destroy_stops_bodies_under_way(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        bench b;
        bench_prepare(&b, (made_far)far);
        b.options.delay_seed = 5;
        b.options.delay_most_us = 2000;
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_init(&b), COH_OK);
        assert_int_equal(submit_body(&b, 0, NULL), COH_OK);
        assert_int_equal(submit_body(&b, 1, NULL), COH_OK);
        bench_finish(&b);
    }
}

static void every_failing_allocation_of_create_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        bench b;
        bench_prepare(&b, MADE_FAR_DISK);
        alloc_fail_nth(n);
        coh_status status = bench_start(&b);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        assert_true(was_hit == (b.step == NULL));
        bench_finish(&b);
        if (!was_hit)
            break;
    }
}

/* ---- figures ---- */

static void peak_and_link_bytes_are_those_of_the_program(void **state)
{
    (void)state;
    for (int far = MADE_FAR_DISK; far <= MADE_FAR_HOST; far++) {
        bench b;
        bench_prepare(&b, (made_far)far);
        assert_int_equal(bench_start(&b), COH_OK);
        assert_int_equal(run_init(&b), COH_OK);
        coh_step_result result = { .struct_bytes = sizeof(result) };
        uint64_t ticket;
        for (uint64_t step = 0; step < 2; step++) {
            assert_int_equal(submit_body(&b, step, &ticket), COH_OK);
            assert_int_equal(coh_step_await(b.step, ticket, &result), COH_OK);
        }
        uint64_t moved = (uint64_t)STREAM_COUNT * STREAM_ELEMENTS * sizeof(float);
        assert_int_equal(result.link_bytes[far == MADE_FAR_DISK ? COH_LANE_READ : COH_LANE_H2D],
                         moved);
        assert_int_equal(result.link_bytes[far == MADE_FAR_DISK ? COH_LANE_WRITE : COH_LANE_D2H],
                         moved);
        for (int tier = 0; tier < COH_TIER_DISK; tier++)
            assert_int_equal(result.peak_bytes[tier], made.plan.layout.arena_bytes[tier]);
        bench_finish(&b);
    }
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    bench b;
    bench_prepare(&b, MADE_FAR_DISK);
    assert_int_equal(bench_start(&b), COH_OK);
    assert_int_equal(run_init(&b), COH_OK);
    assert_int_equal(run_body(&b, 0), COH_OK);
    uint64_t before = alloc_count();
    for (uint64_t step = 1; step < STEPS; step++)
        assert_int_equal(run_body(&b, step), COH_OK);
    assert_int_equal(alloc_count(), before);
    bench_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_made_programs_satisfy_the_verifier),
        cmocka_unit_test(streamed_states_equal_the_plain_loop),
        cmocka_unit_test(random_delays_and_nan_in_released_bytes_change_nothing),
        cmocka_unit_test(programs_follow_one_another_in_any_order),
        cmocka_unit_test(a_false_predicate_still_retires_and_changes_nothing),
        cmocka_unit_test(the_second_body_reads_before_the_first_has_ended),
        cmocka_unit_test(every_failing_store_operation_ends_the_run_with_a_sentence),
        cmocka_unit_test(a_flipped_bit_is_found_and_not_computed_with),
        cmocka_unit_test(a_failing_operator_is_named_and_ends_its_step_alone),
        cmocka_unit_test(destroy_stops_bodies_under_way),
        cmocka_unit_test(every_failing_allocation_of_create_leaves_nothing),
        cmocka_unit_test(peak_and_link_bytes_are_those_of_the_program),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
