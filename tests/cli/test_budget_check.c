/* The check of a plan's arenas against main memory, on a machine whose memory the test sets: what a
 * GPU's process keeps without a GPU at hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/budget.h"

#define MIB (UINT64_C(1) << 20)

/* ---- in place of budget.c ---- */

static uint64_t available_bytes;

uint64_t cli_budget_most_bytes(const cli_options *options, int is_pinned)
{
    (void)options;
    const uint64_t kept = (is_pinned ? 2048 : 128) * MIB;
    return available_bytes > kept ? available_bytes - kept : 0;
}

uint64_t cli_budget_stage_bytes(uint64_t chunk_bytes)
{
    return 3 * chunk_bytes;
}

/* ---- tests ---- */

static coh_plan_summary summary_of(uint64_t device, uint64_t host, uint64_t chunk)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    summary.peak_bytes[COH_TIER_DEVICE] = device;
    summary.peak_bytes[COH_TIER_HOST] = host;
    summary.chunk_bytes = chunk;
    summary.parameter_count = 1 << 30;
    return summary;
}

static coh_status check(uint64_t available, int on_gpu, coh_plan_summary summary)
{
    static cli_options options;
    available_bytes = available;
    return cli_budget_check_memory(&options, on_gpu, &summary);
}

static void a_gpu_alone_needs_room_for_its_staging_buffers_only(void **state)
{
    (void)state;
    const coh_plan_summary alone = summary_of(4096 * MIB, 0, 64 * MIB);
    assert_int_equal(check((128 + 192) * MIB, 1, alone), COH_OK);
    assert_int_equal(check((128 + 192) * MIB - 1, 1, alone), COH_ERR_FULL);
    assert_non_null(strstr(coh_last_error(), ": 1 byte short"));
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_LOWER_CHUNK);
}

static void a_pinned_tier_keeps_room_for_the_driver(void **state)
{
    (void)state;
    const coh_plan_summary pinned = summary_of(4096 * MIB, 512 * MIB, 64 * MIB);
    const uint64_t needed = (2048 + 192 + 512) * MIB;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_int_equal(check(needed, 1, pinned), COH_OK);
    assert_int_equal(check(needed - 4096, 1, pinned), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_LOWER);
    assert_int_equal(refusal.changes[0].tier, COH_TIER_HOST);
    assert_int_equal(refusal.changes[0].bytes, 512 * MIB - 4096);
}

/* No size helps where the staging buffers and the driver leave nothing. */
static void where_no_pinned_tier_fits_none_is_the_remedy(void **state)
{
    (void)state;
    assert_int_equal(check(1024 * MIB, 1, summary_of(4096 * MIB, 4096, 64 * MIB)), COH_ERR_FULL);
    assert_non_null(strstr(coh_last_error(), "; set host memory to none"));
    assert_int_equal(check(1024 * MIB, 1, summary_of(4096 * MIB, 0, 64 * MIB)), COH_OK);
}

static void on_the_host_both_tiers_are_main_memory(void **state)
{
    (void)state;
    const coh_plan_summary both = summary_of(300 * MIB, 100 * MIB, 64 * MIB);
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_int_equal(check((128 + 400) * MIB, 0, both), COH_OK);
    assert_int_equal(check((128 + 400) * MIB - 4096, 0, both), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.changes[0].tier, COH_TIER_DEVICE);
    assert_int_equal(refusal.changes[0].bytes, 300 * MIB - 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_alone_needs_room_for_its_staging_buffers_only),
        cmocka_unit_test(a_pinned_tier_keeps_room_for_the_driver),
        cmocka_unit_test(where_no_pinned_tier_fits_none_is_the_remedy),
        cmocka_unit_test(on_the_host_both_tiers_are_main_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
