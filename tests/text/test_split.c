#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/split.h"
#include "base/utf8.h"

/* ---- UTF-8 ---- */

/* By arithmetic: the value that the bits give, which must be in range and need that many bytes. */
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

static void assert_words(coh_split *split, const char *text, const char *const *words)
{
    size_t begin = 0, end, byte_count = strlen(text);
    for (size_t i = 0; begin < byte_count; i++, begin = end) {
        assert_int_equal(coh_split_next(split, (const uint8_t *)text, byte_count, begin, &end),
                         COH_OK);
        if (!words[i] || strlen(words[i]) != end - begin ||
            memcmp(words[i], text + begin, end - begin) != 0)
            fail_msg("\"%s\" word %zu: \"%.*s\"", text, i, (int)(end - begin), text + begin);
        if (end == byte_count)
            assert_null(words[i + 1]);
    }
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
    coh_split *split;
    assert_int_equal(coh_split_create(&split), COH_OK);
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

/* Between letters, two of a kind are one word, but for white space: there the last stands alone. */
static int parts_with_itself(coh_split *split, uint32_t value)
{
    uint8_t text[10] = "a";
    size_t length = put_character(value, text + 1), end;
    memcpy(text + 1 + length, text + 1, length);
    text[1 + 2 * length] = 'b';
    assert_int_equal(coh_split_next(split, text, 2 + 2 * length, 0, &end), COH_OK);
    if (end != 1)
        return 0; /* a letter, the same word as "a" */
    assert_int_equal(coh_split_next(split, text, 2 + 2 * length, 1, &end), COH_OK);
    return end == 1 + length;
}

static void white_space_is_what_unicode_calls_so(void **state)
{
    (void)state;
    /* PropList.txt, White_Space: 25 characters, the same since Unicode 6.3. */
    static const uint32_t spaces[] = { 0x0009, 0x000a, 0x000b, 0x000c, 0x000d, 0x0020, 0x0085,
                                       0x00a0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                       0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028,
                                       0x2029, 0x202f, 0x205f, 0x3000 };
    coh_split *split;
    size_t next = 0;
    assert_int_equal(coh_split_create(&split), COH_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_those_that_their_values_allow),
        cmocka_unit_test(a_stretch_ends_before_what_is_invalid_or_cut_off),
        cmocka_unit_test(words_are_cut_as_gpt2_cuts_them),
        cmocka_unit_test(white_space_is_what_unicode_calls_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
