/* Sizes in human-readable form (cohobate/machine.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "cohobate/machine.h"

static void a_size_is_read_to_the_byte(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        { "0B", 0 },
        { "64MiB", 67108864 },
        { "40GB", 40000000000 },
        { "40 GB", 40000000000 }, /* as coh_size_format writes it */
        { "1kB", 1000 },
        { "1kiB", 1024 },
        { "1.5GiB", 1610612736 },
        { "0.1KB", 100 },
        { "1.0005KB", 1000 }, /* fraction of a byte: rounded down */
        { "2TiB", 2199023255552 },
        { "0.3000000000000000000000000001TiB", 329853488332 }, /* more digits than fit in 64 bits */
        { "3TB", 3000000000000 },
        { "18446744073709551615B", UINT64_MAX },
        { "16777215.999999TiB", 18446744073708452104u }, /* floor(2^40 * that) by big integers */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 1;
        assert_int_equal(coh_size_parse(cases[i].text, &bytes), COH_OK);
        if (bytes != cases[i].bytes)
            fail_msg("%s read as %llu", cases[i].text, (unsigned long long)bytes);
    }
}

/* The text is read again, so parsing is the oracle; the bounds are those of three digits. */
static void a_size_to_be_typed_is_enough_and_hardly_more(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *up, *down;
    } cases[] = {
        { 0, "0B", "0B" },
        { 1023, "1023B", "1023B" },
        { 1024, "1KiB", "1KiB" },
        { 1025, "1.001KiB", "1KiB" },
        { 67108864, "64MiB", "64MiB" },
        { 172892999680u, "161.1GiB", "161GiB" },
        { 25206784, "24.04MiB", "24.03MiB" },
        { (uint64_t)3 << 39, "1.5TiB", "1.5TiB" },
        { UINT64_MAX, "18446744073709551615B", "16777215.9TiB" },
    };
    char up[32], down[32];
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(coh_size_round_up(cases[i].bytes, up, sizeof(up)), cases[i].up);
        assert_string_equal(coh_size_round_down(cases[i].bytes, down, sizeof(down)), cases[i].down);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t drawn = coh_rng_below(5, 0, 2 * i, UINT64_MAX) >> (i % 64);
        assert_int_equal(coh_size_parse(coh_size_round_up(drawn, up, sizeof(up)), &bytes), COH_OK);
        if (bytes < drawn || bytes - drawn > drawn / 500)
            fail_msg("%llu is written as %s", (unsigned long long)drawn, up);
        (void)coh_size_round_down(drawn, down, sizeof(down));
        assert_int_equal(coh_size_parse(down, &bytes), COH_OK);
        if (bytes > drawn || drawn - bytes > drawn / 500 + 1)
            fail_msg("%llu is written as %s", (unsigned long long)drawn, down);
    }
}

/* "161.1GiB" cut to "161.1G" is no size, and "18446744073709551615B" cut may be another one. */
static void a_size_that_does_not_fit_its_text_is_empty_and_never_cut(void **state)
{
    (void)state;
    char text[COH_SIZE_TEXT_BYTES];
    for (size_t i = 0; i <= sizeof("161.1GiB"); i++) {
        const int fits = i >= sizeof("161.1GiB");
        memset(text, 'x', sizeof(text));
        assert_string_equal(coh_size_round_up(172892999680u, text, i), fits ? "161.1GiB" : "");
        assert_int_equal(text[i], 'x');
        memset(text, 'x', sizeof(text));
        assert_string_equal(coh_size_round_down(172892999680u + (1 << 27), text, i),
                            fits ? "161.1GiB" : "");
        assert_int_equal(text[i], 'x');
    }
    assert_string_equal(coh_size_round_up(UINT64_MAX, text, sizeof(text)), "18446744073709551615B");
    assert_string_equal(coh_size_round_up(5, NULL, 0), "");
    assert_string_equal(coh_size_round_up(5, NULL, 8), "");
    assert_string_equal(coh_size_round_down(5, NULL, 8), "");
}

/* The bytes of "2.731TB/day", by the parser. */
static uint64_t daily_bytes(const char *text)
{
    char size[COH_SIZE_TEXT_BYTES];
    uint64_t bytes = 0;
    const size_t length = strcspn(text, "/");
    assert_string_equal(text + length, "/day");
    snprintf(size, sizeof(size), "%.*s", (int)length, text);
    if (coh_size_parse(size, &bytes) != COH_OK)
        fail_msg("%s cannot be typed", text);
    return bytes;
}

/* Of a day, the text and the number of bytes that it stands for are made apart, and agree. */
static void a_daily_size_is_typed_as_the_bytes_that_are_enough(void **state)
{
    (void)state;
    static const uint64_t edges[] = { 0,
                                      1,
                                      999999,
                                      1000000,
                                      99999000001,
                                      100000000000,
                                      100000000001,
                                      999999999999,
                                      18446744072000000000u,
                                      18446744073000000000u,
                                      18446744073000000001u,
                                      UINT64_MAX };
    const size_t edge_count = sizeof(edges) / sizeof(edges[0]);
    char text[COH_SIZE_TEXT_BYTES];
    for (uint64_t i = 0; i < 20000 + edge_count; i++) {
        const uint64_t bytes =
            i < edge_count ? edges[i] : coh_rng_below(7, 0, 2 * i, UINT64_MAX) >> (i % 64);
        const uint64_t typed = daily_bytes(coh_daily_round_up(bytes, text, sizeof(text)));
        const uint64_t step = bytes < 100000000000u ? 1000000 : 1000000000;
        if (typed != coh_daily_enough(bytes) || typed < bytes || typed - bytes >= step)
            fail_msg("%llu is written as %s", (unsigned long long)bytes, text);
    }
    for (size_t i = 0; i <= sizeof("2.731TB/day"); i++) {
        memset(text, 'x', sizeof(text));
        assert_string_equal(coh_daily_round_up(2730000000001, text, i),
                            i >= sizeof("2.731TB/day") ? "2.731TB/day" : "");
        assert_int_equal(text[i], 'x');
    }
    assert_string_equal(coh_daily_round_up(5, NULL, 0), "");
    assert_string_equal(coh_daily_round_up(5, NULL, 8), "");
}

static void what_is_no_size_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const char *const cases[] = {
        NULL,
        "",
        "64",
        "1.5",
        "MiB",
        "-1MiB",
        "+1MiB",
        " 1MiB",
        "1 ",
        "1  MiB",
        "1MiB ",
        "1Mi",
        "1M",
        "1mb",
        "1e9B",
        "0x10B",
        "1.MiB",
        ".5MiB",
        "1,5MiB",
        "1PB",
        "1.2.3MB",
        "nan",
        "infMiB",
        "1MiBs",
        "1Kib" /* a lower-case b is a bit */,
        "18446744073709551616B",
        "16777216TiB",
        "99999999999999999999999GB",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 1;
        if (coh_size_parse(cases[i], &bytes) != COH_ERR_ARGUMENT)
            fail_msg("'%s' was taken", cases[i]);
        assert_int_equal(bytes, 0);
        assert_true(strlen(coh_last_error()) > 20);
    }
    /* The advice repeats the number. */
    uint64_t bytes = 0;
    assert_int_equal(coh_size_parse("64", &bytes), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "64MiB"));
}

static void a_size_is_written_with_its_unit(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { 1536 << 20, "1.50 GiB" },
        { 1048575, "1.00 MiB" }, /* 1023.999 KiB rounds into the next unit */
        { UINT64_MAX, "16.00 EiB" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[16];
        assert_ptr_equal(coh_size_format(cases[i].bytes, text, sizeof(text)), text);
        assert_string_equal(text, cases[i].text);
    }
    char small[4] = "xyz";
    coh_size_format(1024, small, sizeof(small));
    assert_string_equal(small, "1.0"); /* truncated and terminated */
    coh_size_format(1024, small, 0);
    assert_string_equal(small, "1.0");
}

static void what_is_written_reads_back_within_half_a_hundredth(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        /* Below 2^49: from 1 PiB on, sizes are written in units that the reader does not accept. */
        uint64_t bytes = coh_rng_u64(2, 0, i) >> (15 + coh_rng_below(2, 1, i, 49));
        char text[24];
        uint64_t back = 0;
        coh_size_format(bytes, text, sizeof(text));
        assert_int_equal(coh_size_parse(text, &back), COH_OK);
        double error = (double)back - (double)bytes;
        /* Half of 0.01 units, where the number of units is at least 1; rounding loses one byte. */
        if (!(error <= 0.005 * (double)bytes + 1 && -error <= 0.005 * (double)bytes + 1))
            fail_msg("seed 2, draw %llu: %llu written as %s, read as %llu", (unsigned long long)i,
                     (unsigned long long)bytes, text, (unsigned long long)back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_is_read_to_the_byte),
        cmocka_unit_test(a_size_to_be_typed_is_enough_and_hardly_more),
        cmocka_unit_test(a_size_that_does_not_fit_its_text_is_empty_and_never_cut),
        cmocka_unit_test(a_daily_size_is_typed_as_the_bytes_that_are_enough),
        cmocka_unit_test(what_is_no_size_is_refused_with_a_sentence),
        cmocka_unit_test(a_size_is_written_with_its_unit),
        cmocka_unit_test(what_is_written_reads_back_within_half_a_hundredth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
