/* Stop strings compared with a search of the whole text, for every way of cutting it into
 * tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/answer.h"

enum { TEXT_MOST = 40 };

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Oracle: returns the bytes before the stop string that is complete first; of several, the
 * longest. */
static size_t end_of(const char *text, size_t count, const char *const *stops,
                     const char **out_stop)
{
    *out_stop = NULL;
    for (size_t end = 1; end <= count; end++) {
        for (int i = 0; stops[i]; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && memcmp(text + end - length, stops[i], length) == 0 &&
                (!*out_stop || length > strlen(*out_stop)))
                *out_stop = stops[i];
        }
        if (*out_stop)
            return end - strlen(*out_stop);
    }
    return count;
}

/* Feeds the text in random pieces; bytes once reported as final must stay. */
static void check_cuts(const char *text, size_t count, const char *const *stops, uint64_t *seed)
{
    const char *stop;
    const size_t end = end_of(text, count, stops, &stop);
    cli_answer answer = { .stops = stops };
    size_t shown = 0;
    for (size_t at = 0; at < count && !answer.stopped_by;) {
        size_t piece = next(seed) % 5;
        piece = piece < count - at ? piece : count - at;
        assert_int_equal(cli_answer_add(&answer, text + at, piece), COH_OK);
        at += piece;
        const size_t certain = cli_answer_certain(&answer);
        assert_true(certain >= shown && certain <= end);
        shown = certain;
        /* the bytes held back can all begin a stop string */
        size_t longest = 0;
        for (int i = 0; stops[i]; i++)
            longest = strlen(stops[i]) > longest ? strlen(stops[i]) : longest;
        assert_true(answer.stopped_by || answer.count - certain < longest || longest == 0);
    }
    assert_int_equal(answer.count, end);
    assert_memory_equal(answer.bytes, text, end);
    assert_ptr_equal(answer.stopped_by, stop);
    cli_answer_free(&answer);
}

static void a_text_ends_before_its_first_stop_string_however_it_is_cut(void **state)
{
    (void)state;
    /* overlapping ones, one within another, and a character of two bytes next to its halves */
    static const char *const stops[][4] = { { "ab" },
                                            { "aab", "ab" },
                                            { "abab", "b\xc3" },
                                            { "\xc3\xa9" },
                                            { "aba\xc3\xa9",
                                              "\xa9"
                                              "a",
                                              "bbb" },
                                            { "aaaa", "aab" },
                                            { "b" },
                                            { NULL } };
    static const char letters[] = "aab\xc3\xa9";
    uint64_t seed = 3;
    for (size_t s = 0; s < sizeof(stops) / sizeof(stops[0]); s++)
        for (int n = 0; n < 2000; n++) {
            char text[TEXT_MOST];
            const size_t count = 1 + next(&seed) % (TEXT_MOST - 1);
            for (size_t i = 0; i < count; i++)
                text[i] = letters[next(&seed) % 5];
            check_cuts(text, count, stops[s], &seed);
        }
}

static void nothing_is_held_back_without_stop_strings(void **state)
{
    (void)state;
    cli_answer answer = { 0 };
    assert_int_equal(cli_answer_add(&answer, "abc", 3), COH_OK);
    assert_int_equal(cli_answer_certain(&answer), 3);
    cli_answer_free(&answer);
}

static void one_blank_before_an_answer_is_dropped(void **state)
{
    (void)state;
    cli_answer answer = { .prefix = " " };
    for (int n = 0; n < 2; n++) {
        assert_int_equal(cli_answer_add(&answer, "", 0), COH_OK);
        assert_int_equal(cli_answer_add(&answer, "  a b", 5), COH_OK);
        assert_int_equal(answer.count, 4);
        assert_memory_equal(answer.bytes, " a b", 4);
        cli_answer_clear(&answer);
    }
    cli_answer_free(&answer);
}

/* Writes the output of cli_print_json_text to `out`. */
static size_t print(const char *bytes, size_t count, char *out, size_t room)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    cli_print_json_text(bytes, count);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    rewind(file);
    const size_t got = fread(out, 1, room - 1, file);
    out[got] = '\0';
    fclose(file);
    return got;
}

static void json_texts_are_utf8_whatever_the_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        { "a\"\\\n\x7f", "\"a\\\"\\\\\\u000a\\u007f\"" },
        { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" },
        { "\xc3", "\"\\ufffd\"" }, /* truncated */
        { "\xe2\x82"
          "a",
          "\"\\ufffda\"" },                                         /* truncated */
        { "\xa9", "\"\\ufffd\"" },                                  /* not a first byte */
        { "\xc0\xaf", "\"\\ufffd\\ufffd\"" },                       /* overlong */
        { "\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\"" },            /* overlong */
        { "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"" },            /* half a pair */
        { "\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" }, /* beyond U+10FFFF */
        { "\xff", "\"\\ufffd\"" },
        { "", "\"\"" },
    };
    char out[128];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        print(cases[i].bytes, strlen(cases[i].bytes), out, sizeof(out));
        assert_string_equal(out, cases[i].expected);
    }
    print("\0", 1, out, sizeof(out));
    assert_string_equal(out, "\"\\u0000\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_ends_before_its_first_stop_string_however_it_is_cut),
        cmocka_unit_test(nothing_is_held_back_without_stop_strings),
        cmocka_unit_test(one_blank_before_an_answer_is_dropped),
        cmocka_unit_test(json_texts_are_utf8_whatever_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
