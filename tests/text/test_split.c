#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "text/pattern.h"
#include "text/split.h"

/* ---- UTF-8 ---- */

/* Decodes by arithmetic: the value of the bits must be in range and need exactly that many
 * bytes. */
static size_t character_by_value(const uint8_t *text, size_t byte_count)
{
    if (byte_count > 0 && text[0] < 0x80)
        return 1;
    for (size_t length = 2; length <= 4 && length <= byte_count; length++) {
        unsigned marker = (0xf00u >> length) & 0xff; /* 110, 1110, 11110 ... */
        unsigned mask = (0xf80u >> length) & 0xff;   /* and one bit below it */
        static const uint32_t first[] = { 0, 0, 0x80, 0x800, 0x10000 };
        if ((text[0] & mask) != marker)
            continue;
        uint32_t value = text[0] & ~mask;
        for (size_t i = 1; i < length; i++) {
            if (text[i] >> 6 != 2)
                return 0;
            value = value << 6 | (text[i] & 0x3f);
        }
        if (value < first[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return 0;
        return length;
    }
    return 0;
}

static void characters_are_those_that_their_values_allow(void **state)
{
    (void)state;
    const uint8_t ends[] = { 0x00, 0x7f, 0x80, 0x8f, 0x90, 0xbf, 0xc0, 0xff };
    uint8_t text[4];
    for (unsigned lead = 0; lead < 0x10000; lead++) {
        text[0] = (uint8_t)(lead >> 8);
        text[1] = (uint8_t)lead;
        for (unsigned i = 0; i < 64; i++) {
            text[2] = ends[i / 8];
            text[3] = ends[i % 8];
            for (size_t count = 0; count <= 4; count++) {
                if (coh_utf8_character(text, count) != character_by_value(text, count))
                    fail_msg("%02x %02x %02x %02x cut to %zu", text[0], text[1], text[2], text[3],
                             count);
            }
        }
    }
}

static void a_stretch_ends_before_what_is_invalid_or_cut_off(void **state)
{
    (void)state;
    const uint8_t text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xffy";
    const size_t expected[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11 };
    for (size_t count = 0; count < sizeof(expected) / sizeof(expected[0]); count++)
        assert_int_equal(coh_utf8_stretch(text, count), expected[count]);
}

/* ---- words ---- */

static coh_split *split_of(const char *pattern, coh_split_behavior behavior, int is_inverted)
{
    coh_byte_list translated = { 0 };
    coh_split *split = NULL;
    const coh_slice slice = { pattern, strlen(pattern) };
    if (coh_pattern_translate("the test", slice, &translated) != COH_OK ||
        coh_split_create("the test", (const char *)translated.bytes, translated.count, behavior,
                         is_inverted, &split) != COH_OK)
        fail_msg("%s: %s", pattern, coh_last_error());
    coh_free(translated.bytes);
    return split;
}

static void assert_words(coh_split *split, const char *text, const char *const *words)
{
    size_t byte_count = strlen(text), i = 0;
    coh_split_cursor cursor = { 0 };
    coh_piece piece;
    for (int is_found = 1;; i++) {
        assert_int_equal(
            coh_split_next(split, (const uint8_t *)text, byte_count, 0, &cursor, &piece, &is_found),
            COH_OK);
        if (!is_found)
            break;
        if (piece.is_removed) {
            i--;
            continue;
        }
        if (!words[i] || strlen(words[i]) != piece.end - piece.begin ||
            memcmp(words[i], text + piece.begin, piece.end - piece.begin) != 0)
            fail_msg("\"%s\" word %zu: \"%.*s\"", text, i, (int)(piece.end - piece.begin),
                     text + piece.begin);
    }
    assert_null(words[i]);
    assert_int_equal(cursor.at, byte_count);
}

/* Returns the end of the first piece after `begin`. */
static size_t piece_end(coh_split *split, const uint8_t *text, size_t byte_count, size_t begin)
{
    coh_split_cursor cursor = { .at = begin };
    coh_piece piece;
    int is_found;
    assert_int_equal(coh_split_next(split, text, byte_count, 0, &cursor, &piece, &is_found),
                     COH_OK);
    assert_true(is_found);
    return piece.end;
}

static void words_are_cut_as_gpt2_cuts_them(void **state)
{
    (void)state;
    static const struct sentence {
        const char *text, *words[12];
    } all[] = {
        { "I'll say it's ours", { "I", "'ll", " say", " it", "'s", " ours" } },
        { "they're, we'd 'RE", { "they", "'re", ",", " we", "'d", " '", "RE" } },
        { "in 1999ad(42)", { "in", " 1999", "ad", "(", "42", ")" } },
        { "a  b   ", { "a", " ", " b", "   " } },
        { "a \n\n b", { "a", " \n\n", " b" } },
        { "a\t\tb\n", { "a", "\t", "\t", "b", "\n" } },
        { "if (x) {\n    y", { "if", " (", "x", ")", " {", "\n   ", " y" } },
        { " caf\xc3\xa9\xe2\x82\xac 5\xc2\xbd", { " caf\xc3\xa9", "\xe2\x82\xac", " 5\xc2\xbd" } },
    };
    coh_split *split = split_of(coh_split_gpt2, COH_SPLIT_ISOLATED, 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_words(split, all[i].text, all[i].words);
    coh_split_destroy(split);
    coh_split_destroy(NULL);
}

static size_t put_character(uint32_t value, uint8_t *text)
{
    if (value < 0x80)
        return text[0] = (uint8_t)value, 1;
    size_t length = value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; value >>= 6)
        text[i] = 0x80 | (value & 0x3f);
    text[0] = (uint8_t)(value | (0xf00u >> length));
    return length;
}

/* Returns 1 if a character is split from its double. Between letters, two of a kind are one word,
 * except white space, whose last character is separate. */
static int parts_with_itself(coh_split *split, uint32_t value)
{
    uint8_t text[10] = "a";
    size_t length = put_character(value, text + 1);
    memcpy(text + 1 + length, text + 1, length);
    text[1 + 2 * length] = 'b';
    if (piece_end(split, text, 2 + 2 * length, 0) != 1)
        return 0; /* a letter, the same word as "a" */
    return piece_end(split, text, 2 + 2 * length, 1) == 1 + length;
}

static void white_space_is_what_unicode_calls_so(void **state)
{
    (void)state;
    /* PropList.txt, White_Space: 25 characters, unchanged since Unicode 6.3. */
    static const uint32_t spaces[] = { 0x0009, 0x000a, 0x000b, 0x000c, 0x000d, 0x0020, 0x0085,
                                       0x00a0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                       0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028,
                                       0x2029, 0x202f, 0x205f, 0x3000 };
    coh_split *split = split_of(coh_split_gpt2, COH_SPLIT_ISOLATED, 0);
    size_t next = 0;
    for (uint32_t value = 0; value < 0x110000; value++) {
        if (value == 0xd800)
            value = 0xe000;
        int expected = next < 25 && value == spaces[next];
        next += (size_t)expected;
        if (parts_with_itself(split, value) != expected)
            fail_msg("U+%04X", (unsigned)value);
    }
    assert_int_equal(next, 25);
    coh_split_destroy(split);
}

/* ---- behaviours ---- */

static void what_matches_is_cut_as_the_behaviour_says(void **state)
{
    (void)state;
    static const struct sentence {
        const char *pattern;
        coh_split_behavior behavior;
        int is_inverted;
        const char *text, *words[12];
    } all[] = {
        /* The example of tokenizers' documentation. */
        { "-", COH_SPLIT_REMOVED, 0, "the-final--countdown", { "the", "final", "countdown" } },
        { "-",
          COH_SPLIT_ISOLATED,
          0,
          "the-final--countdown",
          { "the", "-", "final", "-", "-", "countdown" } },
        { "-",
          COH_SPLIT_WITH_PREVIOUS,
          0,
          "the-final--countdown",
          { "the-", "final-", "-", "countdown" } },
        { "-",
          COH_SPLIT_WITH_NEXT,
          0,
          "the-final--countdown",
          { "the", "-final", "-", "-countdown" } },
        { "-",
          COH_SPLIT_CONTIGUOUS,
          0,
          "the-final--countdown",
          { "the", "-", "final", "--", "countdown" } },
        { "-", COH_SPLIT_WITH_PREVIOUS, 0, "--a-", { "-", "-", "a-" } },
        { "-", COH_SPLIT_WITH_NEXT, 0, "--a-", { "-", "-a", "-" } },
        { "-", COH_SPLIT_CONTIGUOUS, 0, "--a-", { "--", "a", "-" } },
        { "-", COH_SPLIT_REMOVED, 0, "--", { NULL } },
        { "-", COH_SPLIT_ISOLATED, 0, "abc", { "abc" } },
        /* Inverted: what does not match counts as matching. */
        { "\\d+", COH_SPLIT_REMOVED, 1, "a12b3", { "12", "3" } },
        { "\\d+", COH_SPLIT_WITH_PREVIOUS, 1, "a12b3", { "a", "12b", "3" } },
        { "\\d", COH_SPLIT_CONTIGUOUS, 1, "a12b3", { "a", "12", "b", "3" } },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_split *split = split_of(all[i].pattern, all[i].behavior, all[i].is_inverted);
        assert_words(split, all[i].text, all[i].words);
        coh_split_destroy(split);
    }
}

/* Pieces found in an open text are pieces of the whole text, whatever follows it. */
static void an_open_text_gives_only_pieces_that_stand(void **state)
{
    (void)state;
    static const char *const patterns[] = { coh_split_gpt2, "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|\\S+?",
                                            "b", "ab?|c+", "(?i:ab)+(?=c)" };
    static const char letters[] = "ab c\n";
    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
        for (int behavior = COH_SPLIT_REMOVED; behavior <= COH_SPLIT_CONTIGUOUS; behavior++) {
            coh_split *split = split_of(patterns[p], (coh_split_behavior)behavior, 0);
            for (unsigned word = 0; word < 15625; word += 7) { /* six letters from a set of five */
                uint8_t text[6];
                for (unsigned i = 0, rest = word; i < 6; i++, rest /= 5)
                    text[i] = (uint8_t)letters[rest % 5];
                for (size_t open_bytes = 1; open_bytes < 6; open_bytes++) {
                    coh_split_cursor open = { 0 }, whole = { 0 };
                    coh_piece piece, expected;
                    int is_found = 1, is_expected;
                    while (is_found) {
                        assert_int_equal(
                            coh_split_next(split, text, open_bytes, 1, &open, &piece, &is_found),
                            COH_OK);
                        assert_int_equal(
                            coh_split_next(split, text, 6, 0, &whole, &expected, &is_expected),
                            COH_OK);
                        if (is_found &&
                            (piece.begin != expected.begin || piece.end != expected.end ||
                             piece.is_removed != expected.is_removed))
                            fail_msg("%s, behaviour %d: \"%.6s\" open at %zu", patterns[p],
                                     behavior, (const char *)text, open_bytes);
                    }
                }
            }
            coh_split_destroy(split);
        }
    }
}

/* ---- patterns ---- */

static void patterns_that_libraries_read_differently_are_refused(void **state)
{
    (void)state;
    static const char *const all[] = {
        "^a",        "a$",          "\\Ga",
        "\\ba",      "\\Aa",        "a\\z",
        "(?<=a)b",   "(?<!a)b",     "(a)\\1",
        "(?<n>a)",   "(?i)a",       "(?s:a)",
        "[a[b]]",    "[[:alpha:]]", "[a&&b]",
        "[]a]",      "[a",          "[^]",
        "[b-a]",     "[\\s-a]",     "\\w",
        "\\W",       "\\h",         "\\p{Han}",
        "\\p{^L}",   "\\pL",        "\\p{L",
        "[\\P{L}]",  "(?i:\\p{L})", "(?i:\xc3\xa9)",
        "(?i:ss)",   "(?i:aFI)",    "(?i:[a-\xc3\xa9])",
        "a**",       "*a",          "a{2}?",
        "a{2}+",     "a{,2}",       "a{",
        "a{1001}",   "a{3,2}",      "(?=a)*",
        "(a",        "a)",          "\\",
        "a\\",       "\\xff",       "\\x{110000}",
        "\\x{d800}", "\\u12",       "\\k<a>",
        "(?#c)",     "\\R",         "\\X",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_byte_list out = { 0 };
        const coh_slice pattern = { all[i], strlen(all[i]) };
        if (coh_pattern_translate("the test", pattern, &out) != COH_ERR_CORRUPT)
            fail_msg("%s became %.*s", all[i], (int)out.count, (const char *)out.bytes);
        assert_non_null(strstr(coh_last_error(), "the test: "));
        coh_free(out.bytes);
    }
}

static const struct match {
    const char *pattern, *text;
    int is_match;
} matches[] = {
    { ".", "\n", 0 },
    { ".", "\r", 1 },
    { "\\s", "\xc2\xa0", 1 },
    { "\\s", "\xe1\xa0\x8e", 0 },
    { "\\S", "\xc2\x85", 0 },
    { "[\\S]", "\xe3\x80\x80", 0 },
    { "[^\\S\\n]", " ", 1 },
    { "[^\\S\\n]", "\n", 0 },
    { "[^\\s]", "a", 1 },
    { "\\v", "\v", 1 },
    { "\\v", "\n", 0 },
    { "\\d", "\xd9\xa3", 1 },
    { "\\d", "\xc2\xbd", 0 },
    { "\\p{N}", "\xc2\xbd", 1 },
    { "\\P{N}", "\xc2\xbd", 0 },
    { "[a\\-c]", "-", 1 },
    { "[a-]", "-", 1 },
    { "[-a]", "-", 1 },
    { "[a\\]]", "]", 1 },
    { "\\]", "]", 1 },
    { "]", "]", 1 },
    { "}", "}", 1 },
    { "a.c", "a|c", 1 },
    { "\\.", ".", 1 },
    { "\\.", "a", 0 },
    { "#", "#", 1 },
    { "(?i:'s)", "'\xc5\xbf", 1 },
    { "(?i:k)", "\xe2\x84\xaa", 1 },
    { "k", "K", 0 },
    { "(?i:[sdmt]|ll)", "LL", 1 },
    { "(?i:a(?:b))c", "ABc", 1 },
    { "(?i:a)b", "AB", 0 },
    { "\\x41\\x{42}\\u0043", "ABC", 1 },
    { "a{2,3}", "aaa", 1 },
    { "a{2,}", "aaaaa", 1 },
    { "(?:ab)+", "ababab", 1 },
    { "(ab|c)*d", "abcd", 1 },
    { "a++b", "aab", 1 },
    { "(?>a|ab)c", "abc", 0 },
    { "\\p{L}", "\xf0\x93\x91\xa0", 1 }, /* U+13460: Unicode 16 */
    { "\\p{Lu}", "\xe1\xb2\x89", 1 },
    { "\\p{L}", "\xf0\xb1\x8d\x90", 1 }, /* 1C89, 31350 */
    { "[^\\p{L}]", "\xf0\x93\x91\xa0", 0 },
    { "\\P{L}", "\xf0\x93\x91\xa0", 0 },
};

static void what_translated_patterns_match_is_what_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(matches) / sizeof(matches[0]); i++) {
        coh_split *split = split_of(matches[i].pattern, COH_SPLIT_ISOLATED, 0);
        int is_match;
        assert_int_equal(coh_split_is_match(split, (const uint8_t *)matches[i].text,
                                            strlen(matches[i].text), &is_match),
                         COH_OK);
        if (is_match != matches[i].is_match)
            fail_msg("%s and \"%s\"", matches[i].pattern, matches[i].text);
        coh_split_destroy(split);
    }
}

static void a_pattern_that_can_match_nothing_cuts_nowhere_and_is_refused(void **state)
{
    (void)state;
    static const char *const all[] = { "", "a*", "a|", "(?=a)", "b?(?:)" };
    coh_split *split;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_int_equal(
            coh_split_create("the test", all[i], strlen(all[i]), COH_SPLIT_ISOLATED, 0, &split),
            COH_ERR_CORRUPT);
        assert_null(split);
    }
    assert_int_equal(coh_split_create("the test", "a(", 2, COH_SPLIT_ISOLATED, 0, &split),
                     COH_ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_those_that_their_values_allow),
        cmocka_unit_test(a_stretch_ends_before_what_is_invalid_or_cut_off),
        cmocka_unit_test(words_are_cut_as_gpt2_cuts_them),
        cmocka_unit_test(white_space_is_what_unicode_calls_so),
        cmocka_unit_test(what_matches_is_cut_as_the_behaviour_says),
        cmocka_unit_test(an_open_text_gives_only_pieces_that_stand),
        cmocka_unit_test(patterns_that_libraries_read_differently_are_refused),
        cmocka_unit_test(what_translated_patterns_match_is_what_they_say),
        cmocka_unit_test(a_pattern_that_can_match_nothing_cuts_nowhere_and_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
