/* Tests the meter of a GPU against a played library: what it reads, how often it asks, and what is
 * known without a library or a GPU. Called with an argument, it finds no played library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "memory/nvml.h"

#define HERE "0000:01:00.0"

static void a_meter_reads_clock_and_power(void **state)
{
    (void)state;
    coh_nvml *nvml;
    coh_device_meter first, soon, later;
    assert_int_equal(coh_nvml_open(HERE, &nvml), COH_OK);
    coh_nvml_read(nvml, 5, &first);
    coh_nvml_read(nvml, 4 + COH_NVML_PAUSE_NS, &soon);
    coh_nvml_read(nvml, 5 + COH_NVML_PAUSE_NS, &later);
    assert_true(first.clock_hz == 1980000000);
    assert_true(soon.power_mw == first.power_mw);
    assert_true(later.power_mw == first.power_mw + 1000);
    coh_nvml_close(nvml);
}

static void an_unknown_gpu_has_no_meter(void **state)
{
    (void)state;
    coh_nvml *nvml;
    assert_int_equal(coh_nvml_open("0000:0a:00.0", &nvml), COH_ERR_DEVICE);
    assert_null(nvml);
    assert_non_null(strstr(coh_last_error(), "0000:0a:00.0"));
    coh_nvml_close(nvml);
}

static void what_the_library_does_not_know_is_unknown(void **state)
{
    (void)state;
    coh_nvml *nvml;
    coh_device_meter meter;
    assert_int_equal(coh_nvml_open(HERE, &nvml), COH_OK);
    setenv("COH_PLAYED_NVML", "silent", 1);
    coh_nvml_read(nvml, 5, &meter);
    unsetenv("COH_PLAYED_NVML");
    assert_true(meter.clock_hz == UINT64_MAX);
    assert_true(meter.power_mw == UINT64_MAX);
    coh_nvml_close(nvml);
}

static void free_memory_is_known_if_the_library_knows_it(void **state)
{
    (void)state;
    coh_nvml *nvml;
    assert_int_equal(coh_nvml_open(HERE, &nvml), COH_OK);
    assert_true(coh_nvml_free_bytes(nvml) == UINT64_MAX);
    setenv("COH_PLAYED_FREE", "12345", 1);
    assert_true(coh_nvml_free_bytes(nvml) == 12345);
    unsetenv("COH_PLAYED_FREE");
    coh_nvml_close(nvml);
}

/* A link to a switch counts, one that is off does not, and one whose other end is not known is a
 * link to no GPU. */
static void active_links_are_listed_by_their_other_end(void **state)
{
    (void)state;
    coh_nvml *nvml;
    coh_nvml_links links;
    assert_int_equal(coh_nvml_open(HERE, &nvml), COH_OK);
    coh_nvml_list_links(nvml, &links);
    assert_int_equal(links.count, 0);
    setenv("COH_PLAYED_LINKS", "2-3,1-3,1-0,199-1,1-3", 1);
    coh_nvml_list_links(nvml, &links);
    assert_int_equal(links.count, 3);
    assert_string_equal(links.at[0], "0000:03:00.0");
    assert_string_equal(links.at[1], "0000:c7:00.0");
    assert_string_equal(links.at[2], "0000:03:00.0");
    setenv("COH_PLAYED_NVML", "silent", 1);
    coh_nvml_list_links(nvml, &links);
    unsetenv("COH_PLAYED_NVML");
    unsetenv("COH_PLAYED_LINKS");
    assert_int_equal(links.count, 3);
    assert_string_equal(links.at[0], "ffff:ff:ff.0");
    coh_nvml_close(nvml);
}

static void without_the_library_there_is_no_meter(void **state)
{
    (void)state;
    coh_nvml *nvml;
    /* An address that no GPU has, should this machine have the library. */
    assert_int_equal(coh_nvml_open("ffff:1f:1f.7", &nvml), COH_ERR_DEVICE);
    assert_null(nvml);
    coh_nvml_close(nvml);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest without[] = { cmocka_unit_test(without_the_library_there_is_no_meter) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_meter_reads_clock_and_power),
        cmocka_unit_test(an_unknown_gpu_has_no_meter),
        cmocka_unit_test(what_the_library_does_not_know_is_unknown),
        cmocka_unit_test(free_memory_is_known_if_the_library_knows_it),
        cmocka_unit_test(active_links_are_listed_by_their_other_end),
    };
    if (argc > 1)
        return cmocka_run_group_tests_name("without", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
