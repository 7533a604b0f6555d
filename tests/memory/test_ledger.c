#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "memory/ledger.h"
#include "tests/faults/alloc_faults.h"

static void equal_keys_share_an_entry_and_keep_its_peak(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_ledger_sums sums;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "tokens", "data", 100), COH_OK);
    assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "tokens", "data", 50), COH_OK);
    assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "tokens", "other", 7), COH_OK);
    coh_ledger_remove(ledger, COH_TIER_HOST, "tokens", "data", 120);
    coh_ledger_read(ledger, COH_TIER_HOST, &sums);
    assert_int_equal(sums.reserved_bytes, 37);
    assert_int_equal(sums.reserved_peak_bytes, 157);
    coh_ledger_read(ledger, COH_TIER_DEVICE, &sums);
    assert_int_equal(sums.reserved_peak_bytes, 0);
    assert_int_equal(coh_ledger_total_bytes(ledger), 37);
    coh_ledger_remove(ledger, COH_TIER_HOST, "tokens", "data", 30);
    coh_ledger_remove(ledger, COH_TIER_HOST, "tokens", "other", 7);
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_destroy(ledger);
    coh_ledger_destroy(NULL);
}

static void a_full_ledger_refuses_a_new_key_and_counts_nothing(void **state)
{
    (void)state;
    coh_ledger *ledger;
    char owner[COH_LEDGER_NAME_BYTES];
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    for (int i = 0; i < COH_LEDGER_ENTRY_COUNT; i++) {
        snprintf(owner, sizeof(owner), "owner %d", i);
        assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "table", owner, 1), COH_OK);
    }
    assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "table", "one more", 1), COH_ERR_FULL);
    assert_int_equal(coh_ledger_total_bytes(ledger), COH_LEDGER_ENTRY_COUNT);
    for (int i = 0; i < COH_LEDGER_ENTRY_COUNT; i++) {
        snprintf(owner, sizeof(owner), "owner %d", i);
        coh_ledger_remove(ledger, COH_TIER_HOST, "table", owner, 1);
    }
    coh_ledger_destroy(ledger);
}

/* The picture in ledger.h: holes count for the end, but not for the live bytes. */
static void the_end_counts_padding_and_holes_and_live_bytes_do_not(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_ledger_sums sums;
    uint64_t live, peak;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 0, 0, 10);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 1, 10, 4);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 1, 20, 4);
    coh_ledger_read(ledger, COH_TIER_DEVICE, &sums);
    assert_int_equal(sums.live_bytes, 18);
    assert_int_equal(sums.end_peak_bytes, 24);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 1, 20, 4);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 0, 0, 10);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 0, 0, 6);
    coh_ledger_read(ledger, COH_TIER_DEVICE, &sums);
    assert_int_equal(sums.live_bytes, 10);
    assert_int_equal(sums.live_peak_bytes, 18);
    assert_int_equal(sums.end_peak_bytes, 24);
    coh_ledger_read_stream(ledger, COH_TIER_DEVICE, 1, &live, &peak);
    assert_int_equal(live, 4);
    assert_int_equal(peak, 8);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 0, 0, 6);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 1, 10, 4);
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_enter(NULL, COH_TIER_DEVICE, 0, 0, 1);
    coh_ledger_leave(NULL, COH_TIER_DEVICE, 0, 0, 1);
    coh_ledger_destroy(ledger);
}

enum { LANES = 4, ROUNDS = 20000, SLOT = 64 };

typedef struct lane {
    coh_ledger *ledger;
    uint64_t index;
} lane;

/* Lane i owns [1000 i, 1000 i + SLOT) and enters and leaves a random part of it, one extent at a
 * time. */
static void *run_lane(void *argument)
{
    lane *self = argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t bytes = 1 + coh_rng_below(7, self->index, i, SLOT);
        uint64_t offset = 1000 * self->index;
        coh_ledger_enter(self->ledger, COH_TIER_DEVICE, (uint32_t)self->index, offset, bytes);
        coh_ledger_leave(self->ledger, COH_TIER_DEVICE, (uint32_t)self->index, offset, bytes);
    }
    return NULL;
}

static void lanes_counting_at_once_lose_no_byte(void **state)
{
    (void)state;
    coh_ledger *ledger;
    coh_ledger_sums sums;
    pthread_t threads[LANES];
    lane lanes[LANES];
    uint64_t allocations;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    allocations = alloc_count();
    for (uint64_t i = 0; i < LANES; i++) {
        lanes[i] = (lane){ ledger, i };
        assert_int_equal(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
    }
    for (int i = 0; i < LANES; i++)
        pthread_join(threads[i], NULL);
    coh_ledger_read(ledger, COH_TIER_DEVICE, &sums);
    assert_int_equal(sums.live_bytes, 0);
    /* 20000 draws of 1..64: the largest is almost certainly drawn (1 - (63/64)^20000). */
    assert_int_equal(sums.end_peak_bytes, 1000 * (LANES - 1) + SLOT);
    assert_true(sums.live_peak_bytes >= SLOT && sums.live_peak_bytes <= LANES * SLOT);
    assert_int_equal(alloc_count(), allocations);
    coh_ledger_destroy(ledger);
}

static void the_text_names_every_holder_and_is_cut_to_the_buffer(void **state)
{
    (void)state;
    coh_ledger *ledger;
    static const char *const names[] = { "work", "grad" };
    char text[4096], cut[40];
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    assert_int_equal(coh_ledger_add(ledger, COH_TIER_HOST, "token window", "data", 12345), COH_OK);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 1, 4096, 8192);
    coh_ledger_enter(ledger, COH_TIER_DEVICE, 5, 0, 77);
    size_t needed = coh_ledger_print(ledger, names, 2, text, sizeof(text));
    assert_int_equal(needed, strlen(text) + 1);
    assert_non_null(strstr(text, "token window"));
    assert_non_null(strstr(text, "12345"));
    assert_non_null(strstr(text, "grad"));
    assert_non_null(strstr(text, "8192"));
    assert_non_null(strstr(text, "stream 5"));
    assert_non_null(strstr(text, "12288")); /* highest end */
    assert_null(strstr(text, "work"));      /* never used */
    assert_int_equal(coh_ledger_print(ledger, names, 2, cut, sizeof(cut)), needed);
    assert_int_equal(strlen(cut), sizeof(cut) - 1);
    assert_memory_equal(cut, text, sizeof(cut) - 1);
    assert_int_equal(coh_ledger_print(ledger, names, 2, NULL, 0), needed);
    coh_ledger_row row;
    static const struct {
        coh_tier tier;
        const char *purpose, *owner;
        uint64_t bytes, peak_bytes;
    } rows[] = { { COH_TIER_HOST, "token window", "data", 12345, 12345 },
                 { COH_TIER_DEVICE, "grad", "extents", 8192, 8192 },
                 { COH_TIER_DEVICE, "stream 5", "extents", 77, 77 },
                 { COH_TIER_DEVICE, "highest end", "extents", 0, 12288 } };
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(coh_ledger_row_at(ledger, names, 2, i, &row), 1);
        assert_int_equal(row.tier, rows[i].tier);
        assert_string_equal(row.purpose, rows[i].purpose);
        assert_string_equal(row.owner, rows[i].owner);
        assert_true(row.bytes == rows[i].bytes && row.peak_bytes == rows[i].peak_bytes);
    }
    assert_int_equal(coh_ledger_row_at(ledger, names, 2, 4, &row), 0);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 1, 4096, 8192);
    coh_ledger_leave(ledger, COH_TIER_DEVICE, 5, 0, 77);
    coh_ledger_remove(ledger, COH_TIER_HOST, "token window", "data", 12345);
    coh_ledger_destroy(ledger);
}

static void a_failed_allocation_leaves_no_ledger(void **state)
{
    (void)state;
    coh_ledger *ledger = (coh_ledger *)(uintptr_t)1;
    alloc_fail_nth(1);
    assert_int_equal(coh_ledger_create(&ledger), COH_ERR_MEMORY);
    alloc_fail_nth(0);
    assert_null(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_keys_share_an_entry_and_keep_its_peak),
        cmocka_unit_test(a_full_ledger_refuses_a_new_key_and_counts_nothing),
        cmocka_unit_test(the_end_counts_padding_and_holes_and_live_bytes_do_not),
        cmocka_unit_test(lanes_counting_at_once_lose_no_byte),
        cmocka_unit_test(the_text_names_every_holder_and_is_cut_to_the_buffer),
        cmocka_unit_test(a_failed_allocation_leaves_no_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
