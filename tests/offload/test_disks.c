/* The map of a store in several folders against brute force: every byte has one home, no two share
 * one, files are as large as the shares, and each share is within one unit of what rates and limits
 * give, in every prefix of the store. */
#include <math.h>

#include "offload/store_base.h"
#include "tests/offload/store_fixture.h"

#define MOST ((uint64_t)1 << 30)

typedef struct listing {
    coh_disk of[COH_DISKS_MOST];
    uint32_t count;
    uint64_t bytes;
} listing;

/* Draws folders with rates from 1 to 100 (one in three lists has no rates), and limits. */
static listing draw(uint64_t seed)
{
    listing drawn = { .count = 1 + (uint32_t)coh_rng_below(seed, 0, 0, COH_DISKS_MOST) };
    drawn.bytes = PAGE * (1 + coh_rng_below(seed, 0, 1, MOST >> (12 + seed % 12)));
    const int is_measured = coh_rng_below(seed, 0, 2, 3) > 0;
    for (uint32_t i = 0; i < drawn.count; i++)
        drawn.of[i] = (coh_disk){
            .folder = "unused",
            .bytes = coh_rng_below(seed, 1, i, 3) > seed % 2
                         ? UINT64_MAX
                         : coh_rng_below(seed, 2, i, 2 * drawn.bytes / drawn.count + 1),
            .bytes_per_s = is_measured ? 1 + (double)coh_rng_below(seed, 3, i, 100) : 0,
        };
    return drawn;
}

/* Computes the share of each folder by filling all of them at their rates, a small step of time
 * after the other, until the store is full: another way than the one under test. */
static void fill_at_rates(const listing *l, double unit_bytes, double units, double *out_units)
{
    double left = units, rate[COH_DISKS_MOST];
    int is_measured = 1;
    for (uint32_t i = 0; i < l->count; i++)
        is_measured &= l->of[i].bytes_per_s > 0;
    for (uint32_t i = 0; i < l->count; i++) {
        rate[i] = is_measured ? l->of[i].bytes_per_s : 1;
        out_units[i] = 0;
    }
    while (left > 1e-9) {
        double sum = 0, span = INFINITY;
        for (uint32_t i = 0; i < l->count; i++) {
            const double room = floor((double)l->of[i].bytes / unit_bytes) - out_units[i];
            sum += room > 1e-9 ? rate[i] : 0;
            if (room > 1e-9 && room / rate[i] < span)
                span = room / rate[i];
        }
        assert_true(sum > 0);
        if (left / sum < span)
            span = left / sum;
        for (uint32_t i = 0; i < l->count; i++)
            if (floor((double)l->of[i].bytes / unit_bytes) - out_units[i] > 1e-9)
                out_units[i] += span * rate[i];
        left -= span * sum;
    }
}

static void check_shares(const listing *l, const coh_stripe *stripe, uint64_t unit_count)
{
    double units[COH_DISKS_MOST];
    uint64_t counts[COH_DISKS_MOST] = { 0 }, sum = 0;
    fill_at_rates(l, (double)stripe->unit_bytes, (double)unit_count, units);
    for (uint64_t n = 0; n < unit_count; n++) {
        counts[stripe->homes[n].disk]++;
        for (uint32_t i = 0; i < l->count; i++)
            assert_true(fabs((double)counts[i] - units[i] * (double)(n + 1) / (double)unit_count) <
                        1.001);
    }
    for (uint32_t i = 0; i < l->count; i++) {
        assert_true(stripe->disk_bytes[i] <= l->of[i].bytes);
        assert_true(stripe->disk_bytes[i] <= counts[i] * stripe->unit_bytes);
        assert_true(stripe->disk_bytes[i] + stripe->unit_bytes > counts[i] * stripe->unit_bytes ||
                    counts[i] == 0);
        sum += stripe->disk_bytes[i];
    }
    assert_true(sum == l->bytes);
}

/* Walks all pages: each has a home inside its folder's file, and no two have the same one. */
static void check_homes(const listing *l, const coh_stripe *stripe)
{
    uint8_t *seen[COH_DISKS_MOST] = { 0 };
    for (uint32_t i = 0; i < l->count; i++)
        assert_non_null(seen[i] = calloc(stripe->disk_bytes[i] / PAGE + 1, 1));
    for (uint64_t at = 0; at < l->bytes; at += PAGE) {
        size_t bytes = SIZE_MAX;
        uint64_t offset, next;
        const uint32_t disk = coh_stripe_find(stripe, at, &bytes, &offset);
        assert_true(disk < l->count && offset % PAGE == 0);
        assert_true(offset + PAGE <= stripe->disk_bytes[disk]);
        assert_true(seen[disk][offset / PAGE]++ == 0);
        assert_true(bytes >= PAGE); /* the next page is behind this one as long as `bytes` says */
        if (at + PAGE < l->bytes && bytes > PAGE) {
            assert_int_equal(coh_stripe_find(stripe, at + PAGE, NULL, &next), disk);
            assert_true(next == offset + PAGE);
        }
    }
    for (uint32_t i = 0; i < l->count; i++)
        free(seen[i]);
}

static void every_byte_has_one_home_and_every_folder_its_share(void **state)
{
    (void)state;
    int refused = 0, striped = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const listing drawn = draw(seed);
        coh_stripe stripe;
        double allowed = 0;
        const coh_status status = coh_stripe_init(&stripe, drawn.of, drawn.count, drawn.bytes);
        for (uint32_t i = 0; i < drawn.count; i++)
            allowed += (double)drawn.of[i].bytes;
        if (status == COH_ERR_FULL) { /* each folder loses less than a unit of its limit */
            assert_true(allowed <
                        (double)drawn.bytes + (double)drawn.count * (double)COH_DISK_UNIT_BYTES);
            refused++;
            continue;
        }
        if (status != COH_OK)
            fail_msg("seed %d: %s", (int)seed, coh_last_error());
        if (drawn.count > 1) {
            check_shares(&drawn, &stripe,
                         (drawn.bytes + stripe.unit_bytes - 1) / stripe.unit_bytes);
            striped++;
        }
        check_homes(&drawn, &stripe);
        coh_stripe_fini(&stripe);
    }
    assert_true(refused > 10 && striped > 100); /* else the draw shows little */
}

/* Limits of whole units lose nothing: what fits their sum fits. */
static void limits_of_whole_units_hold_exactly_their_sum(void **state)
{
    (void)state;
    coh_disk disks[] = { { ".", 5 * COH_DISK_UNIT_BYTES, 1 }, { "..", COH_DISK_UNIT_BYTES, 9 } };
    uint64_t shares[2];
    for (uint64_t pages = 1; pages <= 6 * COH_DISK_UNIT_BYTES / PAGE; pages++) {
        assert_int_equal(coh_disks_share(disks, 2, pages * PAGE, shares), COH_OK);
        assert_true(shares[0] + shares[1] == pages * PAGE);
        assert_true(shares[0] <= disks[0].bytes && shares[1] <= disks[1].bytes);
    }
    assert_int_equal(coh_disks_share(disks, 2, 6 * COH_DISK_UNIT_BYTES + PAGE, shares),
                     COH_ERR_FULL);
    assert_non_null(strstr(coh_last_error(), "at most 12.00 MiB together"));
}

/* Only the map of several folders bounds the store: one folder has none. */
static void one_folder_takes_a_store_of_any_size(void **state)
{
    (void)state;
    const coh_disk disks[] = { { ".", UINT64_MAX, 0 }, { "..", UINT64_MAX, 0 } };
    uint64_t shares[2];
    assert_int_equal(coh_disks_share(disks, 1, (uint64_t)1 << 51, shares), COH_OK);
    assert_true(shares[0] == (uint64_t)1 << 51);
    assert_int_equal(coh_disks_share(disks, 2, (uint64_t)1 << 51, shares), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "2251799813685248 bytes in 2 folders"));
}

static void bad_lists_of_folders_are_refused(void **state)
{
    (void)state;
    coh_disk disks[COH_DISKS_MOST + 1] = { { ".", UINT64_MAX, 0 }, { "./.", UINT64_MAX, 0 } };
    uint32_t systems;
    assert_int_equal(coh_disks_check(disks, 2, &systems), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), ". and ./. are one folder"));
    disks[1].folder = "no such folder";
    assert_int_equal(coh_disks_check(disks, 2, &systems), COH_ERR_ARGUMENT);
    disks[1].folder = "/proc";
    assert_int_equal(coh_disks_check(disks, 2, &systems), COH_OK);
    assert_int_equal(systems, 2);
    disks[1].bytes_per_s = NAN;
    assert_int_equal(coh_disks_check(disks, 2, &systems), COH_ERR_ARGUMENT);
    assert_int_equal(coh_disks_check(disks, 0, &systems), COH_ERR_ARGUMENT);
    assert_int_equal(coh_disks_check(disks, COH_DISKS_MOST + 1, &systems), COH_ERR_ARGUMENT);
}

static void a_measured_folder_has_a_rate_and_is_empty_again(void **state)
{
    (void)state;
    rig made = { 0 };
    char beside[300];
    rig_layout(&made);
    snprintf(beside, sizeof(beside), "%s-2", made.folder);
    assert_int_equal(mkdir(beside, 0700), 0);
    coh_disk disks[] = { { made.folder, UINT64_MAX, 0 }, { beside, UINT64_MAX, 0 } };
    assert_int_equal(coh_disks_measure(disks, 2), COH_OK);
    assert_true(disks[0].bytes_per_s > 0 && disks[1].bytes_per_s > 0);
    disks[1].bytes = COH_DISK_WORTH_BYTES - 1; /* may not be written that far */
    assert_int_equal(coh_disks_measure(disks, 2), COH_OK);
    assert_true(disks[0].bytes_per_s == 0 && disks[1].bytes_per_s == 0);
    disks[1] = (coh_disk){ "/proc", UINT64_MAX, 0 };
    assert_int_equal(coh_disks_measure(disks, 2), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "for the working store in /proc failed"));
    assert_non_null(strstr(coh_last_error(), "name another folder with disk, "));
    assert_int_equal(rmdir(beside), 0);
    rig_close(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_has_one_home_and_every_folder_its_share),
        cmocka_unit_test(limits_of_whole_units_hold_exactly_their_sum),
        cmocka_unit_test(one_folder_takes_a_store_of_any_size),
        cmocka_unit_test(bad_lists_of_folders_are_refused),
        cmocka_unit_test(a_measured_folder_has_a_rate_and_is_empty_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
