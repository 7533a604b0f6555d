/* Error messages: one may quote the message before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/check.h"
#include "cohobate/model.h"

static void a_sentence_may_quote_the_last_one(void **state)
{
    (void)state;
    (void)coh_fail(COH_ERR_IO, "the disk is gone");
    assert_int_equal(coh_fail(COH_ERR_FULL, "after %s: no room", coh_last_error()), COH_ERR_FULL);
    assert_string_equal(coh_last_error(), "after the disk is gone: no room");
    (void)coh_kind_fail(COH_ERR_SHAPE, "[%s]", coh_last_error());
    assert_string_equal(coh_last_error(), "[after the disk is gone: no room]");
    (void)coh_fail_prefix(COH_ERR_SHAPE, "operator %s", "x");
    assert_string_equal(coh_last_error(), "operator x: [after the disk is gone: no room]");
}

static void a_sentence_too_long_is_cut_and_ends(void **state)
{
    (void)state;
    char long_text[3 * COH_ERROR_TEXT_BYTES];
    memset(long_text, 'a', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    (void)coh_fail(COH_ERR_IO, "%s", long_text);
    assert_int_equal(strlen(coh_last_error()), COH_ERROR_TEXT_BYTES - 1);
    (void)coh_fail_prefix(COH_ERR_IO, "place");
    assert_int_equal(strlen(coh_last_error()), COH_ERROR_TEXT_BYTES - 1);
    assert_memory_equal(coh_last_error(), "place: aaa", 10);
}

/* Characters that a name from a user's file may contain: an escape, a newline, DEL, U+009b, a byte
 * that is not UTF-8, a character that %.3s cuts in half. */
static void a_sentence_holds_nothing_but_text(void **state)
{
    (void)state;
    (void)coh_fail(COH_ERR_CORRUPT, "a\x1b[2J\nb\x7f\xc2\x9b\xff \xc3\xa9 \xc2\xa0");
    assert_string_equal(coh_last_error(), "a?[2J?b???\? \xc3\xa9 \xc2\xa0");
    (void)coh_fail_prefix(COH_ERR_CORRUPT, "tab\t%.3s", "12\xc3\xa9");
    assert_memory_equal(coh_last_error(), "tab?12?: a?[2J", 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_may_quote_the_last_one),
        cmocka_unit_test(a_sentence_too_long_is_cut_and_ends),
        cmocka_unit_test(a_sentence_holds_nothing_but_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
