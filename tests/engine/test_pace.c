/* What is measured in a slow spell of the machine is measured again, and the fastest moment counts:
 * loads here are as fast as a table says, look by look. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/measure.h"

enum { THINGS = 4, LOOKS = 32 };

typedef struct machine {
    int slow_from, slow_end; /* looks by number */
    int looks;
    int tried[THINGS], kept[THINGS];
    int left_out; /* that thing; -1: none */
    int attempts, fails_at;
} machine;

/* One turn lasts a look; its work is what a machine of that speed does meanwhile. */
static coh_status work(void *context, double *done)
{
    machine *m = context;
    const int is_slow = m->looks >= m->slow_from && m->looks < m->slow_end;
    const uint64_t begin = coh_clock_ns();
    while (coh_clock_ns() - begin < 11000000)
        ;
    *done += (is_slow ? 0.5 : 1) * (double)(coh_clock_ns() - begin);
    m->looks++;
    return COH_OK;
}

/* The second load is steady: the slower of both counts. */
static coh_status steady(void *context, double *done)
{
    (void)context;
    const uint64_t begin = coh_clock_ns();
    while (coh_clock_ns() - begin < 11000000)
        ;
    *done += (double)(coh_clock_ns() - begin);
    return COH_OK;
}

static coh_status attempt(void *context, uint32_t index, int *out_is_left_out)
{
    machine *m = context;
    m->tried[index]++;
    *out_is_left_out = (int)index == m->left_out;
    return ++m->attempts == m->fails_at ? COH_ERR_DEVICE : COH_OK;
}

static void keep(void *context, uint32_t index)
{
    machine *m = context;
    m->kept[index] = m->tried[index];
}

static coh_status turns(machine *m, int count, uint32_t *out_unsteady)
{
    coh_pacer pacer = { .loads = { { .turn = work, .context = m }, { .turn = steady } } };
    const coh_paced paced = { .count = THINGS, .attempt = attempt, .keep = keep, .context = m };
    return coh_pacer_turns(&pacer, &paced, count, out_unsteady);
}

static void check(const int *got, int a, int b, int c, int d)
{
    const int expected[THINGS] = { a, b, c, d };
    for (int i = 0; i < THINGS; i++)
        assert_int_equal(got[i], expected[i]);
}

/* Thing i has the looks 2 i and 2 i + 1. */
static void what_falls_into_a_slow_spell_is_measured_again(void **state)
{
    (void)state;
    machine m = { .slow_from = 3, .slow_end = 5, .left_out = -1 };
    uint32_t unsteady;
    assert_int_equal(turns(&m, 3, &unsteady), COH_OK);
    check(m.tried, 1, 2, 2, 1);
    check(m.kept, 1, 2, 2, 1);
    assert_int_equal(unsteady, 0);
}

/* What came first is slow only beside what comes later. */
static void a_spell_at_the_beginning_is_found_later(void **state)
{
    (void)state;
    machine m = { .slow_from = 0, .slow_end = 4, .left_out = -1 };
    uint32_t unsteady;
    assert_int_equal(turns(&m, 3, &unsteady), COH_OK);
    check(m.tried, 2, 2, 1, 1);
    check(m.kept, 2, 2, 1, 1);
    assert_int_equal(unsteady, 0);
}

static void one_that_never_settles_keeps_what_it_has_and_is_counted(void **state)
{
    (void)state;
    machine m = { .slow_from = 6, .slow_end = LOOKS, .left_out = -1 };
    uint32_t unsteady;
    assert_int_equal(turns(&m, 3, &unsteady), COH_OK);
    check(m.tried, 1, 1, 1, 3);
    assert_true(m.kept[3] >= 1);
    assert_int_equal(unsteady, 1);
    m = (machine){ .slow_from = 6, .slow_end = LOOKS, .left_out = -1 };
    assert_int_equal(turns(&m, 1, &unsteady), COH_OK); /* quick: one turn, and it is said */
    check(m.tried, 1, 1, 1, 1);
    assert_int_equal(unsteady, 1);
}

static void what_cannot_be_measured_is_asked_once_and_a_failure_ends_all(void **state)
{
    (void)state;
    machine m = { .slow_from = 0, .slow_end = 0, .left_out = 2 };
    uint32_t unsteady;
    assert_int_equal(turns(&m, 3, &unsteady), COH_OK);
    check(m.tried, 1, 1, 1, 1);
    check(m.kept, 1, 1, 0, 1);
    assert_int_equal(unsteady, 0);
    m = (machine){ .left_out = -1, .fails_at = 2 };
    assert_int_equal(turns(&m, 3, &unsteady), COH_ERR_DEVICE);
    check(m.tried, 1, 1, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_falls_into_a_slow_spell_is_measured_again),
        cmocka_unit_test(a_spell_at_the_beginning_is_found_later),
        cmocka_unit_test(one_that_never_settles_keeps_what_it_has_and_is_counted),
        cmocka_unit_test(what_cannot_be_measured_is_asked_once_and_a_failure_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
