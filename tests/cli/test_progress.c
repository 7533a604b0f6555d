/* Lines about what takes its time: when they come, and what they say. No test waits for a time: the
 * first line is due at once, or never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/progress.h"

static int usual_error; /* the descriptor of standard error, while a pipe is in its place */

static int catch_error(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    usual_error = dup(STDERR_FILENO);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

/* Reads all until the end of the pipe. */
static void release_error(int from, char text[512])
{
    size_t used = 0;
    dup2(usual_error, STDERR_FILENO);
    close(usual_error);
    for (ssize_t got; (got = read(from, text + used, 511 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    close(from);
}

static void a_line_comes_and_then_none_for_long(void **state)
{
    (void)state;
    char first[512], rest[512];
    const int from = catch_error();
    cli_progress_begin("planning", "opt-30b", 0);
    const ssize_t got = read(from, first, sizeof(first) - 1); /* waits for it */
    cli_progress_end();
    release_error(from, rest);
    assert_true(got > 0);
    first[got] = '\0';
    assert_memory_equal(first, "planning opt-30b: ", 18);
    assert_string_equal(first + got - 8, " so far\n");
    assert_string_equal(rest, "");
}

static void what_is_over_before_prints_nothing(void **state)
{
    (void)state;
    char text[512];
    const int from = catch_error();
    for (int i = 0; i < 3; i++) {
        cli_progress_begin("planning", "gpt2", 1e6);
        cli_progress_end();
    }
    cli_progress_end(); /* without a begin */
    release_error(from, text);
    assert_string_equal(text, "");
}

static void lines_become_rare(void **state)
{
    (void)state;
    const double expected[] = { 20, 60, 180, 540, 1140, 1740 };
    double at = 20;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_true(at == expected[i]);
        at = cli_progress_next(at);
    }
}

/* Elsewhere than on a terminal: a line every ten seconds of a clock that the test moves. */
static void windows_are_counted_in_a_line_every_ten_seconds(void **state)
{
    (void)state;
    char text[512];
    const int from = catch_error();
    cli_scoring scoring;
    cli_scoring_begin("eval", &scoring);
    for (uint64_t done = 1; done <= 30; done++) /* a window of 256 tokens a second */
        cli_scoring_show(&scoring, scoring.begun + (double)done, done, 30, 256 * (int64_t)done,
                         3.0 + (double)done / 100);
    cli_scoring_end(&scoring);
    release_error(from, text);
    assert_string_equal(text, "eval, window 10/30  loss 3.1000  256 tokens/s  20.0 s left\n"
                              "eval, window 20/30  loss 3.2000  256 tokens/s  10.0 s left\n"
                              "eval, window 30/30  loss 3.3000  256 tokens/s\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_comes_and_then_none_for_long),
        cmocka_unit_test(what_is_over_before_prints_nothing),
        cmocka_unit_test(lines_become_rare),
        cmocka_unit_test(windows_are_counted_in_a_line_every_ten_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
