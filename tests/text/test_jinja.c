/* Templates compared with what Jinja writes, recorded by fixtures/record_jinja.py; the origins of
 * bytes; limits; broken templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/faults/alloc_faults.h"
#include "text/jinja.h"

/* JINJA: the fixture. */

enum { MESSAGES_MOST = 8 };

typedef struct conversation {
    coh_chat_turn turns[MESSAGES_MOST];
    coh_jinja_input input;
} conversation;

static coh_chat_role role_of(const char *name)
{
    return strcmp(name, "system") == 0 ? COH_CHAT_SYSTEM
           : strcmp(name, "user") == 0 ? COH_CHAT_USER
                                       : COH_CHAT_ASSISTANT;
}

static void read_conversation(const json_t *messages, int asks, conversation *out)
{
    *out = (conversation){ .input = { .messages = out->turns,
                                      .message_count = json_array_size(messages),
                                      .add_generation_prompt = asks,
                                      .bos_token = { "<s>", 3 },
                                      .eos_token = { "</s>", 4 } } };
    assert_true(out->input.message_count <= MESSAGES_MOST);
    for (size_t i = 0; i < out->input.message_count; i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        out->turns[i] = (coh_chat_turn){
            role_of(json_string_value(json_object_get(message, "role"))),
            json_string_value(content),
            json_string_length(content),
        };
    }
}

/* A conversation for templates of these tests: x and y are nowhere else. */
static const coh_chat_turn two_turns[] = {
    { COH_CHAT_USER, " xX xx\nXx ", 10 },
    { COH_CHAT_ASSISTANT, "Yy,yy;y\n", 8 },
};
static const coh_jinja_input two = { .messages = two_turns,
                                     .message_count = 2,
                                     .add_generation_prompt = 1,
                                     .bos_token = { "<s>", 3 },
                                     .eos_token = { "</s>", 4 } };

/* Opens and renders. */
static coh_status render(const char *template_text, const coh_jinja_input *input,
                         coh_jinja_text *out)
{
    coh_jinja *program;
    coh_status status = coh_jinja_open("dir/t", template_text, &program);
    if (status == COH_OK)
        status = coh_jinja_render(program, input, out);
    else
        assert_null(program);
    coh_jinja_close(program);
    return status;
}

/* A refusal is bad data, in one line that names the place. */
static void check_refusal(coh_status status)
{
    if (status != COH_ERR_CORRUPT || !strstr(coh_last_error(), "dir/t:") ||
        strchr(coh_last_error(), '\n'))
        fail_msg("status %d: %s", (int)status, coh_last_error());
}

/* ---- recorded cases ---- */

/* Returns 0 and prints the case if it differs. */
static int is_as_recorded(const char *template_text, const json_t *expected,
                          const coh_jinja_input *input, coh_jinja_text *out)
{
    const coh_status status = render(template_text, input, out);
    if (json_is_null(expected)) {
        if (status == COH_OK)
            print_error("\"%s\": \"%.*s\" and not refused\n", template_text, (int)out->count,
                        (const char *)out->bytes);
        else
            check_refusal(status);
        return status != COH_OK;
    }
    if (status != COH_OK) {
        print_error("\"%s\": %s\n", template_text, coh_last_error());
        return 0;
    }
    const size_t bytes = json_string_length(expected);
    if (out->count == bytes &&
        (bytes == 0 || memcmp(out->bytes, json_string_value(expected), bytes) == 0))
        return 1;
    print_error("\"%s\": \"%.*s\" and not \"%s\"\n", template_text, (int)out->count,
                (const char *)out->bytes, json_string_value(expected));
    return 0;
}

static json_t *load_fixture(void)
{
    json_t *fixture = json_load_file(JINJA, JSON_ALLOW_NUL, NULL);
    assert_non_null(fixture);
    return fixture;
}

static void templates_write_what_jinja_writes(void **state)
{
    (void)state;
    json_t *fixture = load_fixture(), *cases = json_object_get(fixture, "cases");
    coh_jinja_text out = { 0 };
    size_t different = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *line = json_array_get(cases, i);
        const size_t chat = (size_t)json_integer_value(json_array_get(line, 1));
        conversation c;
        read_conversation(json_array_get(json_object_get(fixture, "conversations"), chat),
                          chat != 0, &c);
        different += !is_as_recorded(json_string_value(json_array_get(line, 0)),
                                     json_array_get(line, 2), &c.input, &out);
    }
    assert_int_equal(different, 0);
    assert_true(json_array_size(cases) > 2500);
    coh_jinja_text_free(&out);
    json_decref(fixture);
}

/* ---- refusals ---- */

static void a_refusal_names_what_and_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "a\n{% import 'b' as c %}", "dir/t:2: the statement \"import\" is not known here" },
        { "{{ [1]\n|\nbatch(2) }}", "the filter \"batch\" is not known here (dir/t:3)" },
        { "{{ 1 is\nodder }}", "the test \"odder\" is not known here (dir/t:2)" },
        { "\n{{ 'a'.zfill(3) }}", "the member \"zfill\" of a str is not known here (dir/t:2)" },
        { "{{ cycler(1) }}", "the function cycler() is not known here (dir/t:1)" },
        { "{{ '%s' % 1 }}", "formatting a string with % is not known here (dir/t:1)" },
        { "{{ f(*a) }}", "an argument by * or ** is not known here (dir/t:1)" },
        { "{{ 1 < 2 < 3 }}", "dir/t:1: chained comparisons" },
        { "{% for a in b recursive %}{% endfor %}", "recursive loops are not known here" },
        { "{% macro m() %}{{ varargs }}{% endmacro %}", "the variable \"varargs\" of macros" },
        { "{{ range }}", "printing a function is not known here (dir/t:1)" },
        { "\n\n{{ nothing.a }}", "\"nothing\" is undefined, so it has no members (dir/t:3)" },
        { "{{ tools[0].name }}", "\"an element of none\" is undefined, so it has no members" },
        { "{{ ([] | first).name }}",
          "\"an element of a list\" is undefined, so it has no members" },
        { "{{ messages[9].content }}", "\"an element of a list\" is undefined, so it has no memb" },
        { "{{ ('a' if false) + 'b' }}", "\"an if without else\" is undefined, so + cannot be" },
        { "{{ messages[0].nothing() }}", "\"nothing\" is undefined, so it cannot be called" },
        { "{{ raise_exception('No\nsuch ' ~ 'role') }}",
          "refuses the conversation: No?such role (dir/t:1)" },
        { "{% if a %}\n\n", "dir/t:1: the template ends before \"elif\"" },
        { "{{ 'a' }}\n{{ 'b }}", "dir/t:2: a string without its closing '" },
        { "{{ 9223372036854775808 }}", "dir/t:1: the number 9223372036854775808 is beyond" },
        { "{{ 9223372036854775807 + 1 }}", "an integer is beyond 64 bits (dir/t:1)" },
        { "{{ (-9223372036854775807 - 1) // -1 }}", "an integer is beyond 64 bits (dir/t:1)" },
        { "{{ -(-9223372036854775807 - 1) }}", "an integer is beyond 64 bits (dir/t:1)" },
        { "{{ '\\ud800' }}", "an escape in a string is not a valid code point" },
        { "{{ strftime_now('%U') }}", "the part %U of a date is not known here" },
        { "{{ '\xc5\x89'.upper() }}", "the upper case of U+0149 is not known here" },
        { "a\xff", "dir/t: byte 1 is not UTF-8" },
    };
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(render(cases[i].text, &two, &out), COH_ERR_CORRUPT);
        if (!strstr(coh_last_error(), cases[i].message))
            fail_msg("%s: %s", cases[i].text, coh_last_error());
    }
    coh_jinja_text_free(&out);
}

/* Each %s of a template and a message is one of the names. */
static void parts_of_jinja_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message, *names; /* separated by blanks */
    } cases[] = {
        { "{{ messages|%s }}", "the filter \"%s\" is not known here",
          "abs batch dictsorted e escape filesizeformat float forceescape format groupby indent "
          "items "
          "max min pprint random reject reverse round safe select slice sort striptags sum "
          "title tojson truncate unique urlencode wordcount wordwrap xmlattr" },
        { "{{ 5 is %s }}", "the test \"%s\" is not known here",
          "callable divisibleby escaped even filter float ge gt le lower lt odd sameas test "
          "upper" },
        { "{{ 'a'.%s() }}", "the member \"%s\" of a str is not known here",
          "casefold center count encode expandtabs find format format_map index isalnum isalpha "
          "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
          "isupper join ljust maketrans partition removeprefix removesuffix rfind rindex rjust "
          "rpartition rsplit splitlines swapcase translate zfill" },
        { "{{ {'a': 1}['%s'] is defined }}", "the member \"%s\" of a dict is not known here",
          "copy fromkeys items keys values" },
        { "{{ {'items': 1, 'keys': 2}.%s }}", "the member \"%s\" of a dict is not known here",
          "items keys" },
        { "{{ [1].%s(1) }}", "the member \"%s\" of a list is not known here", "copy count index" },
        { "{%% for a in [1] %%}{{ loop.%s }}{%% endfor %%}",
          "the member \"%s\" of a loop is not known here", "changed cycle depth depth0" },
        { "{{ %s(1) }}", "the function %s() is not known here", "cycler dict joiner lipsum" },
        { "{%% %s a %%}", "the statement \"%s\" is not known here",
          "autoescape block do extends from import include raw trans with" },
        { "{{ 1 %s 2 }}", "the operator %s is not known here", "/ **" },
        { "{{ %s }}", "\"%s\" is not known here, only decimal integers", "0x 1.5 1e 0b 0o 1_ 00" },
        { "{{ '\\%s' }}", "the escape \\%s in a string is not known here", "N 0 1 7 \xc3\xa9" },
        { "{{ [1] %s [1] }}", "comparing values of the type list is not known here", "== !=" },
        { "{{ [1] %s [1] }}", "the types list and list have no order here", "< > <= >=" },
        { "{{ 'a'[%s] }}", "the step of a slice is not known here", "::-1 ::2 0:1:2" },
        { "{{ [1][%s] }}", "the step of a slice is not known here", "::2 1::-1 :1:-1 ::-2" },
        { "{{ %s|string }}", "printing a list is not known here", "[1] (1,) range(1)" },
        { "{{ %s ~ 1 }}", "printing a dict is not known here", "{} {1:2}" },
        { "{{ '%s'|int }}", "the filter \"int\" of \"%s\" is not known here", "1.5 0x1f 1e3 1_0" },
        { "{{ messages|selectattr(%s) }}", "is known here only by the names of an attribute",
          "'a.b' '0' 1 attribute='role'" },
        { "{{ messages|map(%s) }}", "is known here only by the name of an attribute",
          "'upper' attribute='a.b' attribute=0 attribute='role',default=1" },
        { "{{ %s }}", "* of values of the types", "'a'*3 3*'a' [1]*2" },
    };
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (const char *at = cases[i].names; *at; at += strspn(at, " ")) {
            char name[32], text[128], message[128];
            const size_t bytes = strcspn(at, " ");
            snprintf(name, sizeof(name), "%.*s", (int)bytes, at);
            snprintf(text, sizeof(text), cases[i].text, name);
            snprintf(message, sizeof(message), cases[i].message, name);
            check_refusal(render(text, &two, &out));
            if (!strstr(coh_last_error(), message))
                fail_msg("%s: %s", text, coh_last_error());
            at += bytes;
        }
    coh_jinja_text_free(&out);
}

static void parts_of_jinja_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "{{ '\xd9\xa3'|int }}",
          "the filter \"int\" of \"\xd9\xa3\" is not known here (dir/t:1)" },
        { "{{ \xc3\xa9 }}", "dir/t:1: an unexpected character \"\xc3\xa9\"" },
        { "\n{% for a in [] %}{% else %}{% endfor %}", "dir/t:2: \"else\" of a loop is not known" },
        { "{% macro m() %}{% endmacro %}\n{% call(a, b=1) m(1) %}a{{ a }}{% endcall %}",
          "the statement \"call\" is not known here (dir/t:2)" },
        { "a\n{#", "dir/t:2: a comment \"{#\" without \"#}\"" },
        { "{% macro m(caller=1) %}{% endmacro %}", "the parameter \"caller\" of a macro" },
        { "{% macro m() %}{{ caller }}{% endmacro %}{{ m(caller=5) }}",
          "the macro \"m\" gets an argument that it does not have (dir/t:1)" },
        { "{% for i in [1] %}{% set x %}{% break %}{% endset %}{% endfor %}",
          "dir/t:1: \"break\" outside of a loop" },
        { "{{ 1 is divisibleby 1 }}", "dir/t:1: \"1\" where \"}}\" is expected" },
        { "{{ {'a': 1} == {'a': 1} }}", "comparing values of the type dict is not known" },
        { "{{ [1] in [[1]] }}", "comparing values of the type list is not known here" },
        { "{{ namespace() == namespace() }}", "comparing values of the type namespace is not" },
        { "{{ 1 in {[1]: 1} }}", "a list as a key is not known here (dir/t:1)" },
        { "{{ 'a'.startswith(('a', 'b')) }}", "startswith() gets a list as argument 1" },
        { "{{ namespace({'a': 1}).a }}", "namespace() of an argument without a name is not known" },
        { "{{ [1]|join(attribute='a') }}", "join() with an argument by name is not known here" },
        { "{{ 1|default(2, boolean=true) }}", "default() with an argument by name is not known" },
        { "{{ 121|replace(1, 3) }}", "replace() gets a int as argument 1 (dir/t:1)" },
        { "{{ {'a': 1}|dictsort(true) }}", "dictsort() takes from 0 to 0 arguments, not 1" },
        { "{% filter length %}a{% endfilter %}", "a filter block writes a int (dir/t:1)" },
    };
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_refusal(render(cases[i].text, &two, &out));
        if (!strstr(coh_last_error(), cases[i].message))
            fail_msg("%s: %s", cases[i].text, coh_last_error());
    }
    coh_jinja_text_free(&out);
}

static void what_is_not_reached_is_not_refused(void **state)
{
    (void)state;
    coh_jinja_text out = { 0 };
    assert_int_equal(render("{% macro m() %}{{ caller('b') }}{% endmacro %}"
                            "{% if tools %}{{ tools|batch(2) is odder }}{{ tools|tojson / 2 ** 3 }}"
                            "{% call(b) m() %}{{ b }}{% endcall %}{% endif %}a",
                            &two, &out),
                     COH_OK);
    assert_int_equal(out.count, 1);
    coh_jinja_text_free(&out);
}

/* ---- origins ---- */

/* The bytes x, y and of other letters have known origins, wherever a template puts them. */
static void check_origins(const char *template_text, const coh_jinja_text *out)
{
    for (size_t i = 0; i < out->count; i++) {
        const uint8_t letter = out->bytes[i] | 0x20;
        const uint16_t origin = out->origins[i] & (COH_JINJA_ANSWER - 1);
        const int marked = (out->origins[i] & COH_JINJA_ANSWER) != 0;
        const int expected = letter == 'x' ? 1 : letter == 'y' ? 2 : COH_JINJA_OWN;
        if (letter >= 'a' && letter <= 'z' && origin != expected)
            fail_msg("%s: byte %zu of \"%.*s\" has origin %d", template_text, i, (int)out->count,
                     (const char *)out->bytes, origin);
        if ((letter == 'g' && !marked) || (letter == 'o' && marked))
            fail_msg("%s: byte %zu of \"%.*s\" is%s the assistant's", template_text, i,
                     (int)out->count, (const char *)out->bytes, marked ? "" : " not");
    }
}

#define A "messages[0].content"
#define B "messages[1].content"

/* g: written in {% generation %}, o: outside of it. Each has x or y in its result. */
static const char *const origin_templates[] = {
    "o{{ " A " }}o{{ " B " }}",
    "{{ 'o' + " A " + 'o' + " B " }}",
    "{{ 'o' ~ " A " ~ 1 ~ " B " }}",
    "{{ " A ".strip() + " B "|trim }}",
    "{{ " A "[1:4] + " B "[2:] + " A "[-3:] + " B "[0] + " B "|last }}",
    "{{ " A ".split() | join('o') }}{{ " B ".split(',')[1] }}{{ " B ".split('o')[0] }}",
    "{{ " A ".replace('X', " B ") }}{{ " B "|replace(',', " A ") }}{{ 'o.o'.replace('.', " A ") }}",
    "{{ " A ".upper() }}{{ " B "|lower }}{{ (" A " + 'o').title() }}{{ " B ".capitalize() }}",
    "{% macro m(v) %}o{{ v }}{% endmacro %}{{ m(" A ") }}{{ m(m(" B "))[1:] }}",
    "{% set v %}o{{ " A " }}{% endset %}{{ v }}{{ v[:3] + " B " }}",
    "{% set v | upper %}o{{ " A " }}{% endset %}{{ v }}",
    "{% filter lower %}o{{ " A " }}{% endfilter %}",
    "{{ (messages|selectattr('role', 'eq', 'user')|list)[::-1][0].content }}",
    "{{ (" A " ~ 'o' ~ " B ")|capitalize }}{{ " A "|list|join }}{{ " A "|first ~ " A "[1]|first }}",
    "{{ {'k': " A "}['k'] }}{{ [" B "]|last }}{{ {1: " A "}.get(1) }}",
    "{% for c in " A " %}{{ c }}o{% endfor %}{% for c in " A ".split('o') %}{{ c }}{% endfor %}",
    "{% set n = namespace(v='o') %}{% for m in messages %}{% set n.v = n.v + m.content %}"
    "{% endfor %}{{ n.v }}",
    "{{ (" A " if true else 'o') or " B " }}{{ nothing|default(" B ") }}{{ " A "|string }}",
    "o{% generation %}g{{ " A " }}{{ 'g' }}{% endgeneration %}o{{ " A " }}",
    "{% macro m(v) %}{{ v }}{% endmacro %}{% generation %}{{ m('g') }}{% endgeneration %}{{ m('o') "
    "}}x"
    "{{ " A "[1:2] }}",
};

static void bytes_keep_their_origins(void **state)
{
    (void)state;
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(origin_templates) / sizeof(origin_templates[0]); i++) {
        /* the last one has an x of its own, to see the check fail */
        const int is_wrong = i + 1 == sizeof(origin_templates) / sizeof(origin_templates[0]);
        if (render(origin_templates[i], &two, &out) != COH_OK)
            fail_msg("%s: %s", origin_templates[i], coh_last_error());
        if (is_wrong) {
            uint8_t *own = memchr(out.bytes, 'x', out.count);
            assert_int_equal(out.origins[own - out.bytes], COH_JINJA_OWN);
            *own = '.';
        }
        check_origins(origin_templates[i], &out);
        assert_true(memchr(out.bytes, 'x', out.count) || memchr(out.bytes, 'X', out.count) ||
                    memchr(out.bytes, 'y', out.count));
    }
    coh_jinja_text_free(&out);
}

static void a_template_knows_whether_it_marks_answers(void **state)
{
    (void)state;
    coh_jinja *program;
    assert_int_equal(coh_jinja_open("t", "{% generation %}{% endgeneration %}", &program), COH_OK);
    assert_true(coh_jinja_marks_answers(program));
    coh_jinja_close(program);
    assert_int_equal(coh_jinja_open("t", "{# generation #}", &program), COH_OK);
    assert_false(coh_jinja_marks_answers(program));
    coh_jinja_close(program);
}

static void a_template_runs_again_and_again(void **state)
{
    (void)state;
    coh_jinja *program;
    coh_jinja_text out = { 0 };
    assert_int_equal(
        coh_jinja_open(
            "t",
            "{% set n = namespace(a=a) %}{% set a = 'b' %}{{ n.a }}"
            "{% for i in range(99) %}{% for m in messages %}{{ m.content }}{% endfor %}{% endfor %}"
            "{% if not add_generation_prompt %}{{ a.b.c }}{% endif %}",
            &program),
        COH_OK);
    for (int i = 0; i < 4; i++) {
        coh_jinja_input input = two;
        input.add_generation_prompt = i != 1;
        assert_int_equal(coh_jinja_render(program, &input, &out),
                         i == 1 ? COH_ERR_CORRUPT : COH_OK);
        assert_int_equal(out.count, 99 * 18);
    }
    coh_jinja_close(program);
    coh_jinja_text_free(&out);
}

static void variables_that_are_not_given_are_undefined(void **state)
{
    (void)state;
    const coh_jinja_input none = { 0 };
    coh_jinja_text out = { 0 };
    assert_int_equal(
        render("{{ bos_token is defined }}{{ pad_token }}{{ messages|length }}{{ tools }}"
               "{{ add_generation_prompt }}",
               &none, &out),
        COH_OK);
    assert_int_equal(out.count, strlen("False0NoneFalse"));
    assert_memory_equal(out.bytes, "False0NoneFalse", out.count);
    coh_jinja_text_free(&out);
}

/* ---- limits ---- */

/* Writes `first`, `count` times `again`, and `last`. */
static char *repeated(const char *first, const char *again, size_t count, const char *last)
{
    char *text = malloc(strlen(first) + count * strlen(again) + strlen(last) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, first);
    while (count-- > 0)
        at = stpcpy(at, again);
    strcpy(at, last);
    return text;
}

/* A million bytes. */
#define DOUBLED                                                                                    \
    "{% set n = namespace(s='a') %}{% for i in range(20) %}{% set n.s = n.s + n.s %}{% endfor %}"

static void a_run_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "steps" },
        { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels" },
        { "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% "
          "endfor %}",
          "MiB" },
        { DOUBLED "{% for i in range(999) %}{{ n.s }}{% endfor %}", "MiB" },
        { "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% "
          "endfor %}",
          "MiB" },
        { "{{ range(9999999999) }}", "range" },
        { DOUBLED "{{ n.s.strip('b' + n.s[:99999]) }}", "steps" },
        { DOUBLED "{{ n.s.split('b' + n.s[:99999]) }}", "steps" },
    };
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_refusal(render(cases[i].text, &two, &out));
        if (!strstr(coh_last_error(), cases[i].message))
            fail_msg("%s: %s", cases[i].text, coh_last_error());
    }
    coh_jinja_text_free(&out);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *first, *again, *last;
    } cases[] = {
        { "{{ ", "(", "" },
        { "{{ ", "[", "" },
        { "{{ ", "not ", "1 }}" },
        { "{{ ", "- ", "1 }}" },
        { "{{ 1", " - 1", " }}" },
        { "{{ a", ".b", " }}" },
        { "{{ a", "|trim", " }}" },
        { "", "{% if 1 %}", "" },
        { "{{ a", "()", " }}" },
        { "{{ 1", " if 1 else 1", " }}" },
        { "{{ a", "[1]", " }}" },
        { "{{ a", " or a", " }}" },
        { "{{ a", "[a", " }}" },
        { "{{ ", "f(", " }}" },
        { "{% set a", "|trim", " %}{% endset %}" },
    };
    coh_jinja_text out = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t count = 100; count <= 100000; count *= 10) {
            char *text = repeated(cases[i].first, cases[i].again, count, cases[i].last);
            const coh_status status = render(text, &two, &out);
            if (status != COH_OK || count > 1000)
                check_refusal(status);
            free(text);
        }
    coh_jinja_text_free(&out);
}

static void too_many_messages_or_names_are_refused(void **state)
{
    (void)state;
    const size_t count = COH_JINJA_MESSAGES_MAX + 1;
    coh_chat_turn *turns = calloc(count, sizeof(*turns));
    coh_jinja_text out = { 0 };
    coh_jinja_input input = { .messages = turns, .message_count = count };
    check_refusal(render("{{ messages|length }}", &input, &out));
    input.message_count--;
    assert_int_equal(render("{{ messages|length }}", &input, &out), COH_OK);
    assert_int_equal(out.count, 5);
    free(turns);
    char *text = malloc(5000 * 16), *at = text;
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, "{{ a%d }}", i);
    assert_int_equal(render(text, &two, &out), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "names of variables"));
    free(text);
    coh_jinja_text_free(&out);
}

/* ---- faults ---- */

static const char everything[] =
    "{% macro m(a, b=[1, 2]) %}{{ a }}{% for i in b %}{{ i }}{% endfor %}{% endmacro %}"
    "{% set n = namespace(t='', l=[]) %}"
    "{% for k, v in {'b': 1, 'a': 2}|dictsort if v %}{{ loop.index ~ k ~ v }}{% endfor %}"
    "{% for m in messages %}"
    "{% set n.t = n.t + m.content|replace('x', 'zz')|trim %}{% set n.l = n.l + [m.role] %}"
    "{% generation %}{{ m.content.split(' ')|join('-') }}{{ m.content[1:] }}{% endgeneration %}"
    "{% endfor %}"
    "{% set block | upper %}{{ m('a', b=['q']) }}{% endset %}{{ block }}"
    "{% filter trim %} {{ n.l[::-1]|join(', ') }} {% endfilter %}"
    "{{ messages|selectattr('role', 'eq', 'user')|list|length }}{{ strftime_now('%d') }}"
    "{{ 'aB'.title().replace('A', 'x') }}{{ '7'|int + 1 }}{{ messages[0].get('role', 'b') }}";

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    /* Contents that do not fit into the first blocks. */
    char *long_text = repeated("", "x ", 20000, "");
    const coh_chat_turn turns[] = { { COH_CHAT_USER, long_text, strlen(long_text) }, two_turns[1] };
    coh_jinja_input input = two;
    input.messages = turns;
    for (uint64_t n = 1;; n++) {
        coh_jinja_text out = { 0 };
        alloc_fail_nth(n);
        const coh_status status = render(everything, &input, &out);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        coh_jinja_text_free(&out);
        if (status != (was_hit ? COH_ERR_MEMORY : COH_OK))
            fail_msg("allocation %d: %s", (int)n, coh_last_error());
        if (!was_hit) {
            assert_true(n > 20);
            break;
        }
    }
    free(long_text);
}

/* Cuts, swaps, doubles and changes bytes of a text of `bytes` bytes with room for as many again. */
static void mutate(char *text, uint64_t seed, uint64_t number)
{
    static const char *const pieces[] = { "{%",         "%}", "{{",     "}}",       "-",      "'",
                                          "(",          "]",  " if ",   "|",        " else ", "\\",
                                          "{#",         "\n", ".",      ",",        " is ",   "[::",
                                          "9999999999", "*",  "endfor", "\xc3\xa9", "\xf0" };
    const uint64_t bytes = strlen(text);
    const uint64_t at = coh_rng_below(seed, 1, number, bytes + 1);
    const uint64_t most = bytes - at < 20 ? bytes - at : 20;
    const uint64_t count = coh_rng_below(seed, 2, number, most + 1);
    const char *piece = pieces[coh_rng_below(seed, 3, number, sizeof(pieces) / sizeof(pieces[0]))];
    const uint64_t other = coh_rng_below(seed, 4, number, bytes + 1);
    switch (coh_rng_below(seed, 5, number, 5)) {
    case 0: /* cut */
        memmove(text + at, text + at + count, bytes - at - count + 1);
        break;
    case 1: /* double */
        memmove(text + at + count, text + at, bytes - at + 1);
        break;
    case 2: /* swap */
        if (bytes > 0 && at < bytes && other < bytes) {
            const char byte = text[at];
            text[at] = text[other];
            text[other] = byte;
        }
        break;
    case 3: /* put in */
        memmove(text + at + strlen(piece), text + at, bytes - at + 1);
        memcpy(text + at, piece, strlen(piece));
        break;
    default: /* end */
        text[at] = '\0';
        break;
    }
}

static void broken_templates_are_refused_or_run(void **state)
{
    (void)state;
    enum { RUNS = 20000, ROOM = 200 };
    const uint64_t seed = 11;
    json_t *fixture = load_fixture(), *cases = json_object_get(fixture, "cases");
    coh_jinja_text out = { 0 };
    size_t refused = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        const size_t pick = coh_rng_below(seed, 0, run, json_array_size(cases));
        const char *from = run % 4 == 0
                               ? everything
                               : json_string_value(json_array_get(json_array_get(cases, pick), 0));
        char *text = malloc(strlen(from) + ROOM);
        strcpy(text, from);
        for (uint64_t i = 0; i <= run % 3; i++)
            mutate(text, seed, 3 * run + i);
        const coh_status status = render(text, &two, &out);
        if (status != COH_OK) {
            refused++;
            if (status != COH_ERR_CORRUPT || strchr(coh_last_error(), '\n'))
                fail_msg("seed %d, run %d: %s", (int)seed, (int)run, coh_last_error());
        }
        free(text);
    }
    assert_true(refused > RUNS / 10 && refused < RUNS);
    coh_jinja_text_free(&out);
    json_decref(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_write_what_jinja_writes),
        cmocka_unit_test(a_refusal_names_what_and_where),
        cmocka_unit_test(parts_of_jinja_are_refused_by_name),
        cmocka_unit_test(parts_of_jinja_are_refused_with_their_line),
        cmocka_unit_test(what_is_not_reached_is_not_refused),
        cmocka_unit_test(bytes_keep_their_origins),
        cmocka_unit_test(a_template_knows_whether_it_marks_answers),
        cmocka_unit_test(a_template_runs_again_and_again),
        cmocka_unit_test(variables_that_are_not_given_are_undefined),
        cmocka_unit_test(a_run_is_bounded),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(too_many_messages_or_names_are_refused),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(broken_templates_are_refused_or_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
