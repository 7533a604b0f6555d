/* Pieces run on several threads: all of them run, and the first failure by index is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cohobate/status.h"
#include "planner/at_once.h"

typedef struct pieces {
    int runs[COH_AT_ONCE_MOST];
    int fails_from; /* first failing index; the piece two after it succeeds */
} pieces;

static coh_status run(void *argument, int index)
{
    pieces *p = argument;
    p->runs[index]++;
    if (index < p->fails_from || index == p->fails_from + 2)
        return COH_OK;
    return coh_fail(index == p->fails_from ? COH_ERR_FULL : COH_ERR_MEMORY, "piece %d", index);
}

static void check(int thread_count)
{
    coh_pool *pool = NULL;
    if (thread_count > 0)
        assert_int_equal(coh_pool_create(thread_count, &pool), COH_OK);
    for (int count = 0; count <= COH_AT_ONCE_MOST; count++)
        for (int from = 0; from <= count; from++) {
            pieces p = { .fails_from = from };
            char sentence[16];
            snprintf(sentence, sizeof(sentence), "piece %d", from);
            const coh_status status = coh_at_once(pool, count, run, &p);
            assert_int_equal(status, from < count ? COH_ERR_FULL : COH_OK);
            if (from < count)
                assert_string_equal(coh_last_error(), sentence);
            for (int i = 0; i < COH_AT_ONCE_MOST; i++)
                assert_int_equal(p.runs[i], i < count);
        }
    coh_pool_destroy(pool);
}

static void the_first_failure_speaks(void **state)
{
    (void)state;
    check(0);
    check(1);
    check(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_first_failure_speaks) };
    return cmocka_run_group_tests_name("at_once", tests, NULL, NULL);
}
