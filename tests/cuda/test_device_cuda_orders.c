/* Results are the same in every order of a GPU's streams that events and words allow, and each wait
 * is needed for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { DEPTH_MOST = 64, SEED_COUNT = 500, ROUNDS = 2, WAITS = 6 };

/* The choice at each step of one order, and the number of alternatives. Counting them up like
 * digits, the last one fastest, enumerates every order. */
typedef struct orders {
    int choice[DEPTH_MOST], ways[DEPTH_MOST];
    int depth;
} orders;

static int next_order(orders *o)
{
    while (o->depth > 0 && o->choice[o->depth - 1] + 1 >= o->ways[o->depth - 1])
        o->depth--;
    if (o->depth == 0)
        return 0;
    o->choice[o->depth - 1]++;
    return 1;
}

/* Runs what is pending in the order that `o` gives; past its end, runs the first ready stream. */
static void run_in_order(orders *o)
{
    int said = o->depth;
    for (o->depth = 0; coh_stub_pending_count() > 0; o->depth++) {
        int ready[BENCH_LANES + 1];
        int count = (int)coh_stub_ready(ready, BENCH_LANES + 1);
        assert_true(count > 0 && o->depth < DEPTH_MOST); /* else deadlock */
        if (o->depth >= said)
            o->choice[o->depth] = 0;
        o->ways[o->depth] = count;
        coh_stub_run(ready[o->choice[o->depth]]);
    }
}

/* Opens the pipeline, launched or recorded. */
static void open_pipeline(bench *b, int records, int skipped_wait)
{
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(bench_open(b, NULL), COH_OK);
    if (records)
        assert_int_equal(bench_record(b), COH_OK);
    assert_int_equal(b->recording != NULL, records);
    b->skipped_wait = skipped_wait;
}

/* Tries every order of two rounds: the second load may overtake the first store. Returns their
 * number; *out_wrong: how many give other results. */
static int try_every_order(int records, int skipped_wait, int *out_wrong)
{
    bench b;
    orders o = { .depth = 0 };
    int order_count = 0;
    *out_wrong = 0;
    open_pipeline(&b, records, skipped_wait);
    do {
        int is_right;
        bench_enqueue(&b, ROUNDS, (uint32_t)order_count);
        run_in_order(&o);
        assert_int_equal(bench_finish(&b, ROUNDS, &is_right), COH_OK);
        *out_wrong += !is_right;
        order_count++;
    } while (next_order(&o));
    assert_int_equal(b.wait_count, WAITS);
    bench_close(&b);
    assert_int_equal(coh_stub_live_count(), 0);
    return order_count;
}

static void every_order_of_two_rounds_gives_the_same(void **state)
{
    (void)state;
    for (int records = 0; records < 2; records++) {
        int wrong;
        int count = try_every_order(records, -1, &wrong);
        assert_true(count > 10);
        assert_int_equal(wrong, 0);
    }
}

static void try_without_each_wait(int records)
{
    int with_all, wrong;
    with_all = try_every_order(records, -1, &wrong);
    for (int skipped = 0; skipped < WAITS; skipped++) {
        int count = try_every_order(records, skipped, &wrong);
        assert_true(count > with_all);
        assert_true(wrong > 0 && wrong < count);
    }
}

static void without_a_wait_some_order_of_two_rounds_gives_something_else(void **state)
{
    (void)state;
    if (test_seeks_races()) /* every order runs on one thread, recorded or not */
        skip();
    try_without_each_wait(0);
    try_without_each_wait(1);
}

static void run_by_seed(uint64_t seed)
{
    for (uint64_t i = 0; coh_stub_pending_count() > 0; i++) {
        int ready[BENCH_LANES + 1];
        size_t count = coh_stub_ready(ready, BENCH_LANES + 1);
        assert_true(count > 0);
        coh_stub_run(ready[coh_rng_below(seed, 1, i, count)]);
    }
}

/* Tries seeded orders of several rounds, in which slots are reused. */
static int try_seeds(int records, int rounds, int skipped_wait, int *out_wait_count)
{
    bench b;
    int wrong = 0;
    open_pipeline(&b, records, skipped_wait);
    for (uint64_t seed = 0; seed < test_cases(SEED_COUNT); seed++) {
        int is_right;
        bench_enqueue(&b, rounds, (uint32_t)seed);
        run_by_seed(seed);
        assert_int_equal(bench_finish(&b, rounds, &is_right), COH_OK);
        wrong += !is_right;
    }
    *out_wait_count = b.wait_count;
    bench_close(&b);
    assert_int_equal(coh_stub_live_count(), 0);
    return wrong;
}

static void orders_by_seed_give_the_same(void **state)
{
    (void)state;
    int wait_count;
    assert_int_equal(try_seeds(0, 4, -1, &wait_count), 0);
    assert_int_equal(try_seeds(1, 4, -1, &wait_count), 0);
}

static void without_any_one_wait_some_seed_gives_something_else(void **state)
{
    (void)state;
    int wait_count = 1;
    for (int skipped = 0; skipped < wait_count; skipped++) {
        int wrong = try_seeds(skipped % 2, 3, skipped, &wait_count);
        if (wrong == 0)
            print_error("wait %d of %d can be left out\n", skipped, wait_count);
        assert_true(wrong > 0);
    }
    assert_int_equal(wait_count, 2 + 4 + 4);
}

/* ---- the stub itself: it must behave as a driver does ---- */

typedef struct two_streams {
    CUstream first, second;
    CUevent event;
} two_streams;

static void open_streams(two_streams *s)
{
    coh_stub_reset(BENCH_GPU_BYTES);
    CUcontext context;
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRetain(&context, 100), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPushCurrent(context), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamCreate(&s->first, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(coh_stub_driver.cuStreamCreate(&s->second, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(coh_stub_driver.cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING), 0);
}

static void close_streams(two_streams *s)
{
    CUcontext context;
    assert_int_equal(coh_stub_driver.cuEventDestroy(s->event), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamDestroy(s->second), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamDestroy(s->first), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPopCurrent(&context), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRelease(100), CUDA_SUCCESS);
}

static void do_nothing(const void *arguments)
{
    (void)arguments;
}

static void in_the_stub_a_wait_before_its_record_is_no_wait(void **state)
{
    (void)state;
    two_streams s;
    int ready[2];
    open_streams(&s);
    coh_stub_enqueue(s.first, do_nothing, "", 1);
    assert_int_equal(coh_stub_driver.cuStreamWaitEvent(s.second, s.event, 0), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuEventRecord(s.event, s.first), CUDA_SUCCESS);
    assert_int_equal(coh_stub_ready(ready, 2), 2);
    close_streams(&s);
}

/* After the first record executes, the stream that waited for it may run; the wait enqueued after
 * the second record still blocks. */
static void in_the_stub_a_wait_is_for_the_record_before_it(void **state)
{
    (void)state;
    two_streams s;
    int ready[2];
    open_streams(&s);
    assert_int_equal(coh_stub_driver.cuEventRecord(s.event, s.first), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamWaitEvent(s.second, s.event, 0), CUDA_SUCCESS);
    coh_stub_enqueue(s.first, do_nothing, "", 1);
    assert_int_equal(coh_stub_driver.cuEventRecord(s.event, s.first), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamWaitEvent(s.second, s.event, 0), CUDA_SUCCESS);
    assert_int_equal(coh_stub_ready(ready, 2), 1);
    coh_stub_run(ready[0]); /* the first record */
    assert_int_equal(coh_stub_ready(ready, 2), 2);
    coh_stub_run(1);
    assert_int_equal(coh_stub_ready(ready, 2), 1);
    assert_int_equal(ready[0], 0);
    close_streams(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_stub_a_wait_before_its_record_is_no_wait),
        cmocka_unit_test(in_the_stub_a_wait_is_for_the_record_before_it),
        cmocka_unit_test(every_order_of_two_rounds_gives_the_same),
        cmocka_unit_test(without_a_wait_some_order_of_two_rounds_gives_something_else),
        cmocka_unit_test(orders_by_seed_give_the_same),
        cmocka_unit_test(without_any_one_wait_some_seed_gives_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
