/* Names in a table: against a list that is searched from end to end, over random insertions and
 * removals in the opposite order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/name_table.h"
#include "base/rng.h"

enum { NAMES = 2000, ROUNDS = 20000, NAME_BYTES = 16 };

static char names[NAMES][NAME_BYTES];

static int32_t in_list(int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void every_name_is_found_until_it_is_removed(void **state)
{
    (void)state;
    coh_name_table table = { 0 };
    int32_t count = 0;
    assert_int_equal(coh_name_table_find(&table, "none"), -1);
    for (int round = 0; round < ROUNDS; round++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "h.%u",
                 (unsigned)coh_rng_below(7, 0, (uint64_t)round, 2 * NAMES));
        assert_int_equal(coh_name_table_find(&table, name), in_list(count, name));
        if (count > 0 && coh_rng_below(7, 1, (uint64_t)round, 3) == 0) {
            coh_name_table_remove(&table, names[--count]);
        } else if (count < NAMES && in_list(count, name) < 0) {
            memcpy(names[count], name, sizeof(name));
            assert_int_equal(coh_name_table_reserve(&table), COH_OK);
            coh_name_table_insert(&table, names[count], count);
            count++;
        }
        assert_int_equal(table.count, count);
    }
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(coh_name_table_find(&table, names[i]), i);
    while (count > 0)
        coh_name_table_remove(&table, names[--count]);
    coh_name_table_remove(&table, "none");
    assert_int_equal(table.count, 0);
    for (size_t i = 0; i < table.slot_count; i++)
        assert_null(table.slots[i].name);
    coh_name_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_found_until_it_is_removed),
    };
    return cmocka_run_group_tests_name("name_table", tests, NULL, NULL);
}
