/* The checker of notes and the strict reader accept the same notes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/checkpoint_writer.h"

static int reader_takes(const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    int taken = json_is_object(root);
    json_decref(root);
    return taken;
}

static const char *const good[] = {
    "{}",
    " {\"a\": [1, -2, 0.5, 1e3, -1.25E-7, true, false, null], \"b\": {\"a\": \"\"}}\n",
    "{\"s\": \"tab \\t, quote \\\", slash \\/, \\u00e9, pair \\ud83d\\ude00\"}",
    "{\"s\": \"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}",
    "{\"n\": 9223372036854775807, \"m\": -9223372036854775808}",
};

static const char *const bad[] = {
    "",
    "[]",
    "1",
    "{",
    "{}}",
    "{} x",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":.5}",
    "{\"a\":1e}",
    "{\"a\":+1}",
    "{\"a\":nul}",
    "{\"a\":NaN}",
    "{\"a\":1e999}",
    "{\"a\":9223372036854775808}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":{\"b\":1,\"c\":[{}],\"b\":2}}",
    "{\"a\":\"\\u0000\"}",
    "{\"a\":\"\\ud800\"}",
    "{\"a\":\"\\ude00\"}",
    "{\"a\":\"\\ud800\\u0041\"}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\n\"}",
    "{\"a\":\"unended}",
    "{\"a\":\"\xc0\xaf\"}",
    "{\"a\":\"\xed\xa0\x80\"}",
    "{\"a\":\"\xf5\x80\x80\x80\"}",
    "{\"a\":\"\xe2\x82\"}",
    "{\"a\":\"\x80\"}",
    "{\"a\":[1 2]}",
    "{\"a\":[1,]}",
};

static void what_is_json_is_taken_and_what_is_not_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(reader_takes(good[i]));
        if (coh_checkpoint_note_check(good[i]) != COH_OK)
            fail_msg("%s: %s", good[i], coh_last_error());
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(reader_takes(bad[i]));
        if (coh_checkpoint_note_check(bad[i]) != COH_ERR_ARGUMENT)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(coh_last_error(), "byte "));
    }
}

static void nesting_has_an_end(void **state)
{
    (void)state;
    static char text[200000];
    memset(text, '[', sizeof(text) - 1);
    memcpy(text, "{\"a\":", 5);
    assert_int_equal(coh_checkpoint_note_check(text), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "deep"));
}

/* Random edits of good notes: the reader must accept whatever the checker accepts, or a whole
 * checkpoint would be unreadable. (The reader may accept more: escapes in keys.) */
static void whatever_the_checker_takes_the_reader_takes(void **state)
{
    (void)state;
    static const char letters[] = "{}[]\",:\\u0123456789abcdefE+-. tn\xc3\xa9\xe2";
    int taken = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        char text[256];
        uint64_t draw = 0;
        strcpy(text, good[coh_rng_below(3, 0, i, sizeof(good) / sizeof(good[0]))]);
        for (uint64_t edits = 1 + coh_rng_below(3, 1, i, 3); edits > 0; edits--) {
            size_t at = (size_t)coh_rng_below(i, 2, draw++, strlen(text));
            text[at] = letters[coh_rng_below(i, 3, draw++, sizeof(letters) - 1)];
        }
        if (coh_checkpoint_note_check(text) != COH_OK)
            continue;
        taken++;
        if (!reader_takes(text))
            fail_msg("seed %lu: %s", (unsigned long)i, text);
    }
    assert_true(taken > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_json_is_taken_and_what_is_not_is_refused),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(whatever_the_checker_takes_the_reader_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
