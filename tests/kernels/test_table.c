/* Who computes is asked of the queue: a table that a queue begins with is given every call of a
 * kind, and nobody else. The table here counts, and has the host do the work in the caller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/table.h"
#include "tests/kernels/shapes.h"

static int call_count;

#define TWIN(name, parameters, arguments)                                                          \
    static void twin_##name parameters                                                             \
    {                                                                                              \
        queue = NULL;                                                                              \
        call_count++;                                                                              \
        coh_cpu_##name arguments;                                                                  \
    }
COH_KERNEL_LIST(TWIN)

#define TWIN_FIELD(name, parameters, arguments) .name = twin_##name,
static const coh_kernel_table twins = { COH_KERNEL_LIST(TWIN_FIELD) };

typedef struct device_queue {
    coh_queue_head head;
    char rest[64]; /* a device's own */
} device_queue;

typedef struct results {
    const void *data[8];
    size_t bytes[8];
    int count;
} results;

static void keep_result(void *context, const char *name, const void *data, size_t bytes)
{
    results *all = context;
    (void)name;
    assert_true(all->count < 8);
    all->data[all->count] = data;
    all->bytes[all->count++] = bytes;
}

/* Runs a case on `queue`. Returns how often the table was called. */
static int run(coh_case *one, void *queue, results *out_results)
{
    call_count = 0;
    *out_results = (results){ 0 };
    assert_int_equal(coh_case_forward(one, queue), COH_OK);
    assert_int_equal(coh_case_backward(one, queue), COH_OK);
    coh_case_results(one, keep_result, out_results);
    return call_count;
}

static void a_kind_computes_where_its_queue_says(void **state)
{
    (void)state;
    device_queue queue = { .head = { &twins } };
    for (int index = 0; index < SHAPE_CASES; index++) {
        coh_case here, there;
        results expected, got;
        shape_case_create(&here, index, 21);
        shape_case_create(&there, index, 21);
        assert_int_equal(run(&here, NULL, &expected), 0);
        assert_in_range(run(&there, &queue, &got), 2, 1000);
        assert_int_equal(got.count, expected.count);
        for (int i = 0; i < got.count; i++)
            assert_memory_equal(got.data[i], expected.data[i], got.bytes[i]);
        coh_case_destroy(&there);
        coh_case_destroy(&here);
    }
}

static void a_pool_is_the_hosts(void **state)
{
    (void)state;
    coh_pool *pool;
    coh_case one;
    results ignored;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    shape_case_create(&one, 0, 21);
    assert_int_equal(run(&one, pool, &ignored), 0);
    coh_case_destroy(&one);
    coh_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_computes_where_its_queue_says),
        cmocka_unit_test(a_pool_is_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
