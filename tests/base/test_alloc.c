/* Tables of base/alloc.h keep their elements when they grow and when they are fitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"

enum { COUNT = 300000, FEW = 100 };

static void fill(uint64_t **table, size_t *capacity, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(COH_GROW(table, capacity, i + 1), COH_OK);
        (*table)[i] = i * i;
    }
}

static void a_fitted_table_keeps_its_elements_and_no_room_beyond_them(void **state)
{
    (void)state;
    uint64_t *table = NULL;
    size_t capacity = 0;
    fill(&table, &capacity, COUNT);
    assert_true(capacity > COUNT);
    COH_FIT(&table, &capacity, COUNT);
    assert_int_equal(capacity, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(table[i], i * i);
    assert_int_equal(COH_GROW(&table, &capacity, COUNT + 1), COH_OK);
    assert_int_equal(table[COUNT], 0);
    coh_free(table);
}

/* Whatever its new bytes are, an extended table keeps its elements; what coh_alloc_grow adds to it
 * is zero. */
static void an_extended_table_keeps_its_elements(void **state)
{
    (void)state;
    uint64_t *table = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(COH_EXTEND(&table, &capacity, i + 1), COH_OK);
        table[i] = i * i;
    }
    const size_t before = capacity;
    assert_int_equal(COH_GROW(&table, &capacity, before + 1), COH_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(table[i], i * i);
    for (size_t i = before; i < capacity; i++)
        assert_int_equal(table[i], 0);
    coh_free(table);
}

/* A call for less than a MiB costs more than it gives back. */
static void a_short_table_is_not_fitted(void **state)
{
    (void)state;
    uint64_t *table = NULL;
    size_t capacity = 0;
    fill(&table, &capacity, FEW);
    const size_t before = capacity;
    COH_FIT(&table, &capacity, FEW);
    assert_int_equal(capacity, before);
    coh_free(table);
    table = NULL;
    capacity = 0;
    COH_FIT(&table, &capacity, 0);
    assert_null(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fitted_table_keeps_its_elements_and_no_room_beyond_them),
        cmocka_unit_test(an_extended_table_keeps_its_elements),
        cmocka_unit_test(a_short_table_is_not_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
