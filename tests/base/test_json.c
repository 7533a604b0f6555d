/* JSON by tables of fields: what is written is read by another parser with the same values, and
 * read again into the same struct; anything else is refused with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "tests/comma_locale.h"
#include "tests/faults/alloc_faults.h"

typedef struct part {
    int64_t whole;
    const char *text;
} part;

typedef struct thing {
    int8_t small;
    uint32_t whole;
    uint64_t limit, decimal, words[2];
    double real, rate;
    int32_t flag;
    char text[16];
    uint8_t choice;
    struct {
        uint16_t x;
    } inner;
    part *parts;
    uint32_t part_count;
    int32_t added; /* since version 2 */
} thing;

static const char *const words[] = { "", "one", "two", NULL };

static const coh_json_field part_fields[] = {
    { "whole", COH_JSON_WHOLE, COH_JSON_AT(part, whole), .least = -5, .most = 5 },
    { "text", COH_JSON_STRING, COH_JSON_AT(part, text), .is_null = 1 },
    { 0 },
};

static const coh_json_field inner_fields[] = {
    { "x", COH_JSON_WHOLE, .bytes = sizeof(uint16_t), .most = 65535 },
    { 0 },
};

static const coh_json_field thing_fields[] = {
    { "small", COH_JSON_WHOLE, COH_JSON_AT(thing, small), .least = -128, .most = 127 },
    { "whole", COH_JSON_WHOLE, COH_JSON_AT(thing, whole), .least = 1, .most = UINT32_MAX },
    { "limit", COH_JSON_LIMIT, COH_JSON_AT(thing, limit) },
    { "decimal", COH_JSON_DECIMAL, COH_JSON_AT(thing, decimal) },
    { "words", COH_JSON_HEX, COH_JSON_AT(thing, words) },
    { "real", COH_JSON_REAL, COH_JSON_AT(thing, real), .least = -1, .most = 1 },
    { "rate", COH_JSON_REAL, COH_JSON_AT(thing, rate), .most = 9, .rule = COH_JSON_UNLESS_ZERO },
    { "flag", COH_JSON_FLAG, COH_JSON_AT(thing, flag) },
    { "text", COH_JSON_TEXT, COH_JSON_AT(thing, text) },
    { "choice", COH_JSON_CHOICE, COH_JSON_AT(thing, choice), .names = words },
    { "inner", COH_JSON_OBJECT, COH_JSON_AT(thing, inner), .fields = inner_fields },
    { "parts", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(thing, parts, part_count),
      .layout = COH_JSON_LINES, .most = 3, .fields = part_fields },
    { "added", COH_JSON_WHOLE, COH_JSON_AT(thing, added), .most = 1, .since = 2 },
    { 0 },
};

static const coh_json_file things = {
    .what = "thing", .format = "a thing", .version = 2, .fields = thing_fields, .remedy = "redo it"
};

static thing make(part parts[2])
{
    parts[0] = (part){ .whole = -5, .text = "tab\t quote\" \\ \x01 \xce\xb4" };
    parts[1] = (part){ .whole = 5, .text = NULL };
    return (thing){ .small = -128,
                    .whole = UINT32_MAX,
                    .limit = UINT64_MAX,
                    .decimal = UINT64_MAX - 1,
                    .words = { 1, UINT64_C(0xfedcba9876543210) },
                    .real = 1.0 / 3.0,
                    .flag = 1,
                    .text = "a b",
                    .choice = 2,
                    .inner = { 65535 },
                    .parts = parts,
                    .part_count = 2,
                    .added = 1 };
}

static void fini(thing *t)
{
    for (uint32_t i = 0; t->parts != NULL && i < t->part_count; i++)
        coh_free((void *)(uintptr_t)t->parts[i].text);
    coh_free(t->parts);
}

static void what_is_written_has_the_values_for_another_parser(void **state)
{
    (void)state;
    part parts[2];
    const thing t = make(parts);
    coh_text text = { 0 };
    int small, flag, x, whole[2], added;
    const char *decimal, *hex, *letters, *choice, *part_text;
    double real;
    assert_int_equal(coh_json_file_add(&things, &t, &text), COH_OK);
    json_t *root = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, NULL), *limit, *none;
    assert_non_null(root);
    assert_int_equal(json_unpack(root,
                                 "{s:i, s:o, s:s, s:s, s:f, s:b, s:s, s:s, s:{s:i}, "
                                 "s:[{s:i, s:s}, {s:i, s:o}], s:i}",
                                 "small", &small, "limit", &limit, "decimal", &decimal, "words",
                                 &hex, "real", &real, "flag", &flag, "text", &letters, "choice",
                                 &choice, "inner", "x", &x, "parts", "whole", &whole[0], "text",
                                 &part_text, "whole", &whole[1], "text", &none, "added", &added),
                     0);
    assert_true(small == -128 && json_is_null(limit) && flag == 1 && x == 65535 && added == 1);
    assert_true(json_integer_value(json_object_get(root, "whole")) == UINT32_MAX);
    assert_true(real == 1.0 / 3.0 && whole[0] == -5 && whole[1] == 5 && json_is_null(none));
    assert_string_equal(decimal, "18446744073709551614");
    assert_string_equal(hex, "0000000000000001fedcba9876543210");
    assert_string_equal(letters, "a b");
    assert_string_equal(choice, "two");
    assert_string_equal(part_text, parts[0].text);
    assert_null(json_object_get(root, "rate")); /* 0 */
    json_decref(root);
    coh_text_fini(&text);
}

static void what_is_written_is_read_and_written_as_the_same_bytes(void **state)
{
    (void)state;
    part parts[2];
    const thing t = make(parts);
    thing again = { 0 };
    coh_text first = { 0 }, second = { 0 };
    assert_int_equal(coh_json_file_add(&things, &t, &first), COH_OK);
    if (coh_json_file_parse(&things, first.data, first.bytes, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(again.small == -128 && again.whole == UINT32_MAX && again.limit == UINT64_MAX);
    assert_true(again.decimal == t.decimal && again.words[1] == t.words[1] && again.choice == 2);
    assert_true(again.real == t.real && again.inner.x == 65535 && again.parts[1].text == NULL);
    assert_int_equal(coh_json_file_add(&things, &again, &second), COH_OK);
    assert_string_equal(first.data, second.data);
    fini(&again);
    coh_text_fini(&first);
    coh_text_fini(&second);
}

/* A text that is found, its replacement, and the message. */
static const char *const refused[][3] = {
    { "\"a thing\"", "\"another\"", "not a thing: \"format\" is not \"a thing\"" },
    { "\"version\": 2", "\"version\": 3", "thing format version 3, this program reads 2" },
    { "\"small\": -128", "\"small\": -129",
      "entry small: expected a whole number -128..127, found -129" },
    { "\"small\": -128", "\"smell\": -128", "entry smell: it is not known here" },
    { "\"small\": -128,", "", "entry small: expected a whole number -128..127, found nothing" },
    { "4294967295", "4294967296", "entry whole: expected a whole number 1..4294967295" },
    { "\"limit\": null", "\"limit\": -1", "entry limit: expected a whole number from 0 on" },
    { "18446744073709551614", "18446744073709551616", "entry decimal: expected a number that 64" },
    { "18446744073709551614", "0x1", "entry decimal: expected a whole number in quotes" },
    { "fedcba9876543210", "FEDCBA9876543210", "entry words: expected 32 hexadecimal digits" },
    { "0.33", "1.33", "entry real: expected a number from -1 to 1, found 1.33" },
    { "true", "1", "entry flag: expected true or false, found 1" },
    { "\"a b\"", "\"sixteen letters.\"", "entry text: expected a text of at most 15 bytes" },
    { "\"a b\"", "\"a\\nb\"", "entry text: it holds a control character" },
    { "\"two\"", "\"three\"", "entry choice: expected one of \"one\", \"two\", found \"three\"" },
    { "\"two\"", "\"\"", "entry choice: expected one of" },
    { "{\"x\": 65535}", "[]", "entry inner: expected an object, found a list" },
    { "{\"x\": 65535}", "{\"x\": 65536}", "entry inner.x: expected a whole number 0..65535" },
    { "\"whole\": 5", "\"whole\": 6", "entry parts[1].whole: expected a whole number -5..5" },
    { "\"text\": null", "\"text\": false",
      "entry parts[1].text: expected a text or null, found false" },
    { "\"text\": null}", "\"text\": null}, 1, 2",
      "entry parts: expected a list of 0 to 3 entries" },
    { "\"whole\": 5", "\"whole\": 5, \"whole\": 5", "is not JSON: duplicate object key" },
};

static void numbers_have_a_point_in_every_locale(void **state)
{
    (void)state;
    static const coh_json_field fields[] = {
        { "real", COH_JSON_REAL, COH_JSON_AT(thing, real), .most = 1 },
        { "rate", COH_JSON_REAL, COH_JSON_AT(thing, rate), .most = 9, .decimals = 3 },
        { 0 },
    };
    static const coh_json_file file = {
        .what = "thing", .format = "a thing", .version = 1, .fields = fields, .remedy = "redo it"
    };
    const thing t = { .real = 0.25, .rate = 1.0 / 3.0 };
    coh_text text = { 0 };
    if (!comma_locale_set())
        skip();
    const coh_status status = coh_json_file_add(&file, &t, &text);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, COH_OK);
    assert_non_null(strstr(text.data, "\"real\": 0.25,"));
    assert_non_null(strstr(text.data, "\"rate\": 0.333"));
    coh_text_fini(&text);
}

static void everything_else_is_refused_with_its_place(void **state)
{
    (void)state;
    part parts[2];
    const thing t = make(parts);
    coh_text whole = { 0 };
    assert_int_equal(coh_json_file_add(&things, &t, &whole), COH_OK);
    *strstr(whole.data, "  \"file_hash\"") = '\0';
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        coh_text text = { 0 };
        thing read = { 0 };
        const char *at = strstr(whole.data, refused[i][0]);
        assert_non_null(at);
        assert_int_equal(coh_text_add(&text, "%.*s%s%s", (int)(at - whole.data), whole.data,
                                      refused[i][1], at + strlen(refused[i][0])),
                         COH_OK);
        assert_int_equal(coh_json_seal(&text), COH_OK);
        if (coh_json_file_parse(&things, text.data, text.bytes, &read) != COH_ERR_CORRUPT ||
            strstr(coh_last_error(), refused[i][2]) == NULL)
            fail_msg("'%s', not '%s'", coh_last_error(), refused[i][2]);
        fini(&read);
        coh_text_fini(&text);
    }
    coh_text_fini(&whole);
}

static void a_changed_byte_breaks_the_seal(void **state)
{
    (void)state;
    part parts[2];
    const thing t = make(parts);
    thing read = { 0 };
    coh_text text = { 0 };
    assert_int_equal(coh_json_file_add(&things, &t, &text), COH_OK);
    *strstr(text.data, "a b") = 'c';
    assert_int_equal(coh_json_file_parse(&things, text.data, text.bytes, &read), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "by a tool that sorts or indents; redo it"));
    fini(&read);
    coh_text_fini(&text);
}

static void a_field_belongs_to_its_versions(void **state)
{
    (void)state;
    static const char old[] = "{\"small\": 1}";
    static const coh_json_field fields[] = {
        { "small", COH_JSON_WHOLE, COH_JSON_AT(thing, small), .most = 9, .until = 1 },
        { "added", COH_JSON_WHOLE, COH_JSON_AT(thing, added), .most = 9, .since = 2 },
        { 0 },
    };
    for (int version = 1; version <= 2; version++) {
        thing read = { 0 };
        const coh_json_source source = { .version = version, .object = &read };
        coh_json_place at = { .source = &source };
        assert_int_equal(coh_json_load(old, strlen(old), &at.value), COH_OK);
        const coh_status status = coh_json_read(fields, &at, &read);
        assert_int_equal(status, version == 1 ? COH_OK : COH_ERR_CORRUPT);
        json_decref(at.value);
    }
}

static void a_fixed_text_is_never_left(void **state)
{
    (void)state;
    part parts[2];
    const thing t = make(parts);
    coh_text whole = { 0 };
    char room[2048];
    assert_int_equal(coh_json_file_add(&things, &t, &whole), COH_OK);
    for (size_t capacity = 1; capacity <= whole.bytes + 1; capacity++) {
        coh_text text = { .data = room, .capacity = capacity, .is_fixed = 1 };
        const uint64_t before = alloc_count();
        memset(room, '#', sizeof(room));
        const coh_status status = coh_json_file_add(&things, &t, &text);
        assert_int_equal(status, capacity > whole.bytes ? COH_OK : COH_ERR_FULL);
        assert_true(room[capacity] == '#' && alloc_count() == before);
    }
    assert_string_equal(room, whole.data);
    coh_text_fini(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_has_the_values_for_another_parser),
        cmocka_unit_test(what_is_written_is_read_and_written_as_the_same_bytes),
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
        cmocka_unit_test(everything_else_is_refused_with_its_place),
        cmocka_unit_test(a_changed_byte_breaks_the_seal),
        cmocka_unit_test(a_field_belongs_to_its_versions),
        cmocka_unit_test(a_fixed_text_is_never_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
