/* Parts made by many threads are output in order (text/turns.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/faults/alloc_faults.h"
#include "text/lists.h"
#include "text/turns.h"

#define THREADS_MOST 5
#define MOST_BYTES   4096u

/* Part i consists of coh_rng_below(seed, 1, i, ..) puts of a few bytes, all equal to i. */
typedef struct sequence {
    uint64_t seed;
    size_t failing_make; /* this part and all later ones fail; SIZE_MAX: none */
    size_t failing_take; /* part that fails; SIZE_MAX: none */
    coh_byte_list out;   /* written only by `take` */
    size_t end_count;
    int is_taking;
    _Atomic int is_busy[THREADS_MOST]; /* a thread makes one part at a time */
    _Atomic int has_failed;            /* a part at or after failing_make */
    _Atomic size_t made_bytes, taken_bytes, most_waiting;
} sequence;

static size_t put_count(const sequence *s, size_t index)
{
    return coh_rng_below(s->seed, 1, index, 8) ? coh_rng_below(s->seed, 2, index, 5)
                                               : coh_rng_below(s->seed, 3, index, 300);
}

static size_t put_bytes(const sequence *s, size_t index, size_t put)
{
    return coh_rng_below(s->seed, 4 + put, index, 40);
}

static uint8_t byte_of(size_t index, size_t put)
{
    return (uint8_t)(index * 31 + put);
}

static coh_status make(void *context, int thread, size_t index, coh_turn *turn)
{
    sequence *s = context;
    assert(thread >= 0 && thread < THREADS_MOST);
    if (atomic_exchange(&s->is_busy[thread], 1))
        return coh_fail(COH_ERR_INTERNAL, "thread %d makes two parts", thread);
    for (size_t put = 0; put < put_count(s, index); put++) {
        uint8_t bytes[40];
        size_t count = put_bytes(s, index, put);
        memset(bytes, byte_of(index, put), sizeof(bytes));
        size_t waiting = atomic_fetch_add(&s->made_bytes, count) + count;
        size_t taken = atomic_load(&s->taken_bytes);
        waiting = waiting > taken ? waiting - taken : 0;
        for (size_t most = atomic_load(&s->most_waiting);
             waiting > most && !atomic_compare_exchange_weak(&s->most_waiting, &most, waiting);)
            ;
        COH_TRY(coh_turn_put(turn, bytes, count));
    }
    /* Lets later parts fail first, if there are threads for them. On a busy machine each call may
     * take as long as another program's turn. */
    for (int i = 0; index == s->failing_make && i < 50 && !atomic_load(&s->has_failed); i++)
        sched_yield();
    if (index >= s->failing_make) {
        atomic_store(&s->has_failed, 1);
        return coh_fail(COH_ERR_CORRUPT, "part %zu fails", index);
    }
    atomic_store(&s->is_busy[thread], 0);
    return COH_OK;
}

static coh_status take(void *context, size_t index, const void *bytes, size_t byte_count,
                       int is_end)
{
    sequence *s = context;
    if (s->is_taking++)
        return coh_fail(COH_ERR_INTERNAL, "two take at a time");
    if (s->end_count != index)
        return coh_fail(COH_ERR_INTERNAL, "part %zu comes after %zu", index, s->end_count);
    s->end_count += is_end != 0;
    COH_TRY(coh_byte_list_add(&s->out, bytes, byte_count));
    atomic_fetch_add(&s->taken_bytes, byte_count);
    s->is_taking--;
    return index == s->failing_take ? coh_fail(COH_ERR_IO, "taking %zu fails", index) : COH_OK;
}

/* Checks that the output is parts [0, count) in order. */
static void assert_out(const sequence *s, size_t count)
{
    size_t at = 0;
    for (size_t index = 0; index < count; index++) {
        for (size_t put = 0; put < put_count(s, index); put++) {
            for (size_t i = 0; i < put_bytes(s, index, put); i++, at++) {
                assert_true(at < s->out.count);
                assert_int_equal(s->out.bytes[at], byte_of(index, put));
            }
        }
    }
    assert_int_equal(s->out.count, at);
    assert_int_equal(s->end_count, count);
}

static coh_status run(sequence *s, size_t part_count, int thread_count, size_t most_bytes)
{
    const coh_turns_job job = { .context = s,
                                .part_count = part_count,
                                .make = make,
                                .take = take,
                                .thread_count = thread_count,
                                .most_bytes = most_bytes };
    return coh_turns_run(&job);
}

static void parts_come_out_whole_and_in_order(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 3, 40, 400 };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int threads = 1; threads <= THREADS_MOST; threads++) {
            for (uint64_t seed = 0; seed < 5; seed++) {
                sequence s = { .seed = seed, .failing_make = SIZE_MAX, .failing_take = SIZE_MAX };
                assert_int_equal(run(&s, counts[i], threads, seed * 1000), COH_OK);
                assert_out(&s, counts[i]);
                coh_free(s.out.bytes);
            }
        }
    }
}

static void what_waits_is_bounded(void **state)
{
    (void)state;
    sequence s = { .seed = 7, .failing_make = SIZE_MAX, .failing_take = SIZE_MAX };
    assert_int_equal(run(&s, 3000, THREADS_MOST, MOST_BYTES), COH_OK);
    /* At most this much waits: one put per thread is not counted as waiting yet, one per thread may
     * exceed the bound, and what is being taken no longer waits. */
    assert_true(atomic_load(&s.most_waiting) <= 2 * MOST_BYTES + 3 * THREADS_MOST * 40);
    coh_free(s.out.bytes);
}

static void the_first_failure_in_order_is_what_comes_back(void **state)
{
    (void)state;
    for (size_t failing = 0; failing < 60; failing += 7) {
        for (int threads = 1; threads <= THREADS_MOST; threads++) {
            sequence s = { .seed = failing, .failing_make = failing, .failing_take = SIZE_MAX };
            assert_int_equal(run(&s, 60, threads, 100), COH_ERR_CORRUPT);
            char text[40];
            snprintf(text, sizeof(text), "part %zu fails", failing);
            assert_string_equal(coh_last_error(), text);
            assert_int_equal(s.end_count, failing);
            coh_free(s.out.bytes);
            s = (sequence){ .seed = failing, .failing_make = SIZE_MAX, .failing_take = failing };
            assert_int_equal(run(&s, 60, threads, 100), COH_ERR_IO);
            assert_true(s.end_count <= failing + 1);
            coh_free(s.out.bytes);
        }
    }
}

static void every_failing_allocation_ends_it(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        sequence s = { .seed = 3, .failing_make = SIZE_MAX, .failing_take = SIZE_MAX };
        alloc_fail_nth(n);
        coh_status status = run(&s, 50, 3, 100);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit)
            assert_out(&s, 50);
        coh_free(s.out.bytes);
        if (!was_hit)
            break;
        assert_true(n < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_out_whole_and_in_order),
        cmocka_unit_test(what_waits_is_bounded),
        cmocka_unit_test(the_first_failure_in_order_is_what_comes_back),
        cmocka_unit_test(every_failing_allocation_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
