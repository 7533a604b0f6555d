/* Prints values at the end of the output: strings with the origins of their bytes, other values as
 * Python's str(), repr() and json.dumps(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/c_locale.h"
#include "base/file_text.h"
#include "text/characters.h"
#include "text/jinja_values.h"

typedef coh_jinja_value value;

/* ---- bytes ---- */

/* Both arrays of the text grow together. */
static coh_status reserve(const coh_jinja_run *run, size_t more)
{
    coh_jinja_text *out = run->out;
    size_t bytes = out->capacity, origins = out->capacity;
    if (more <= out->capacity - out->count)
        return COH_OK;
    if (more > COH_JINJA_BYTES_MAX - out->count)
        return coh_jinja_fail(run, "the chat template writes more than %d MiB",
                              COH_JINJA_BYTES_MAX >> 20);
    COH_TRY(COH_EXTEND(&out->bytes, &bytes, out->count + more));
    COH_TRY(COH_EXTEND(&out->origins, &origins, out->count + more));
    out->capacity = bytes;
    return COH_OK;
}

static void fill(uint16_t *origins, uint16_t origin, size_t count)
{
    for (size_t i = 0; i < count; i++)
        origins[i] = origin;
}

coh_status coh_jinja_put(coh_jinja_run *run, const value *string)
{
    coh_jinja_text *out = run->out;
    if (string->count == 0)
        return COH_OK;
    COH_TRY(coh_jinja_spend_bytes(run, string->count));
    COH_TRY(reserve(run, string->count));
    memcpy(out->bytes + out->count, string->bytes, string->count);
    if (string->origins)
        memcpy(out->origins + out->count, string->origins, string->count * sizeof(uint16_t));
    else
        fill(out->origins + out->count, string->origin, string->count);
    out->count += string->count;
    return COH_OK;
}

coh_status coh_jinja_put_own(coh_jinja_run *run, const char *text, size_t bytes)
{
    const value string = coh_jinja_bytes(text, bytes, COH_JINJA_OWN);
    return coh_jinja_put(run, &string);
}

static coh_status put_text(coh_jinja_run *run, const char *text)
{
    return coh_jinja_put_own(run, text, strlen(text));
}

coh_status coh_jinja_cut(coh_jinja_run *run, size_t begin, value *out)
{
    const size_t count = run->out->count - begin;
    const uint16_t *from = run->out->origins ? run->out->origins + begin : NULL;
    void *bytes, *origins;
    size_t same = 0;
    *out = coh_jinja_text_value("");
    if (count == 0)
        return COH_OK;
    COH_TRY(coh_jinja_take(run, count, 1, &bytes));
    memcpy(bytes, run->out->bytes + begin, count);
    *out = coh_jinja_bytes(bytes, count, from[0]);
    while (same < count && from[same] == from[0])
        same++;
    if (same < count) {
        COH_TRY(coh_jinja_take(run, count, sizeof(uint16_t), &origins));
        memcpy(origins, from, count * sizeof(uint16_t));
        out->origins = origins;
    }
    run->out->count = begin;
    return COH_OK;
}

/* ---- numbers ---- */

/* Prints as Python's repr: the fewest digits, an exponent below 1e-4 and from 1e16 on. */
static void print_real(char text[COH_NUMBER_BYTES], double real)
{
    char digits[COH_NUMBER_BYTES];
    if (!isfinite(real)) {
        snprintf(text, COH_NUMBER_BYTES, isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    const coh_c_locale locale = coh_c_locale_enter();
    int count = 0;
    do
        snprintf(digits, sizeof(digits), "%.*e", count, real);
    while (strtod(digits, NULL) != real && ++count < 17);
    const int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, COH_NUMBER_BYTES, "%.*f", count > exponent ? count - exponent : 1, real);
    else
        snprintf(text, COH_NUMBER_BYTES, "%s", digits);
    coh_c_locale_leave(locale);
}

static coh_status put_number(coh_jinja_run *run, const value *v)
{
    char text[COH_NUMBER_BYTES];
    if (v->kind == COH_JINJA_REAL)
        print_real(text, v->real);
    else
        snprintf(text, sizeof(text), "%lld", (long long)v->whole);
    return put_text(run, text);
}

/* ---- str and repr ---- */

/* Does repr() write the code point as it is? Unassigned code points are taken for printable. */
static int is_printable(uint32_t code)
{
    return !(code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad ||
             (code != ' ' && coh_is_white_space(code)) || (code >= 0x200b && code <= 0x200f) ||
             (code >= 0x202a && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
             code == 0xfeff || (code >= 0xe000 && code <= 0xf8ff) || code >= 0xe0000);
}

/* The escape that repr() writes for the character; the empty text: none. */
static void escape_repr(const uint8_t *at, size_t bytes, char quote, char escape[16])
{
    static const char letters[] = "\\\n\r\t", escapes[] = "\\nrt";
    const char *found = *at ? strchr(letters, (char)*at) : NULL;
    const uint32_t code = coh_utf8_character(at, bytes) ? coh_utf8_value(at, bytes) : *at;
    escape[0] = '\0';
    if (found || *at == (uint8_t)quote)
        snprintf(escape, 16, "\\%c", found ? escapes[found - letters] : quote);
    else if (!is_printable(code))
        snprintf(escape, 16,
                 code < 0x100     ? "\\x%02x"
                 : code < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 (unsigned)code);
}

/* Escapes of a form of strings; the text is empty if a character needs none. */
typedef void (*escaper)(const uint8_t *at, size_t bytes, char option, char escape[16]);

/* An escape is the template's own; the other bytes keep their origins. */
static coh_status put_escaped(coh_jinja_run *run, const value *v, escaper escape, char option)
{
    char text[16];
    size_t done = 0;
    for (size_t at = 0, bytes; at < v->count; at += bytes) {
        bytes = coh_jinja_character(v, at);
        escape(v->bytes + at, bytes, option, text);
        if (!text[0])
            continue;
        const value before = coh_jinja_part(v, done, at);
        COH_TRY(coh_jinja_spend(run, 1));
        COH_TRY(coh_jinja_put(run, &before));
        COH_TRY(put_text(run, text));
        done = at + bytes;
    }
    const value rest = coh_jinja_part(v, done, v->count);
    return coh_jinja_put(run, &rest);
}

static coh_status put_string_repr(coh_jinja_run *run, const value *v)
{
    const int has_quote = v->count && memchr(v->bytes, '\'', v->count) != NULL;
    const char quote = has_quote && !memchr(v->bytes, '"', v->count) ? '"' : '\'';
    COH_TRY(coh_jinja_put_own(run, &quote, 1));
    COH_TRY(put_escaped(run, v, escape_repr, quote));
    return coh_jinja_put_own(run, &quote, 1);
}

static coh_status put_list_repr(coh_jinja_run *run, const value *v)
{
    const int is_tuple = v->flavour == COH_JINJA_A_TUPLE;
    const coh_jinja_list *list = v->list;
    COH_TRY(put_text(run, is_tuple ? "(" : "["));
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            COH_TRY(put_text(run, ", "));
        COH_TRY(coh_jinja_put_repr(run, &list->items[i]));
    }
    return put_text(run, !is_tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static coh_status put_dict_repr(coh_jinja_run *run, const coh_jinja_dict *dict)
{
    COH_TRY(put_text(run, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            COH_TRY(put_text(run, ", "));
        COH_TRY(coh_jinja_put_repr(run, &dict->pairs[i].key));
        COH_TRY(put_text(run, ": "));
        COH_TRY(coh_jinja_put_repr(run, &dict->pairs[i].value));
    }
    return put_text(run, "}");
}

coh_status coh_jinja_put_repr(coh_jinja_run *run, const value *v)
{
    if (v->kind == COH_JINJA_STRING)
        return put_string_repr(run, v);
    if (v->kind == COH_JINJA_UNDEFINED)
        return put_text(run, "Undefined");
    return coh_jinja_put_str(run, v);
}

coh_status coh_jinja_put_str(coh_jinja_run *run, const value *v)
{
    switch ((coh_jinja_kind)v->kind) {
    case COH_JINJA_MISSING:
    case COH_JINJA_UNDEFINED:
        return COH_OK;
    case COH_JINJA_NONE:
        return put_text(run, "None");
    case COH_JINJA_BOOL:
        return put_text(run, v->whole ? "True" : "False");
    case COH_JINJA_WHOLE:
    case COH_JINJA_REAL:
        return put_number(run, v);
    case COH_JINJA_STRING:
        return coh_jinja_put(run, v);
    case COH_JINJA_LIST:
        if (v->flavour > COH_JINJA_A_TUPLE)
            break;
        COH_TRY(coh_jinja_nest(run));
        COH_TRY(put_list_repr(run, v));
        run->nested--;
        return COH_OK;
    case COH_JINJA_DICT:
        COH_TRY(coh_jinja_nest(run));
        COH_TRY(put_dict_repr(run, v->dict));
        run->nested--;
        return COH_OK;
    case COH_JINJA_NAMESPACE:
    case COH_JINJA_FUNCTION:
    case COH_JINJA_METHOD:
    case COH_JINJA_MACRO:
    case COH_JINJA_LOOP:
        break;
    }
    return coh_jinja_fail(run, "a %s cannot be printed", coh_jinja_type(v));
}

coh_status coh_jinja_str(coh_jinja_run *run, const value *v, value *out)
{
    const size_t begin = run->out->count;
    if (v->kind == COH_JINJA_STRING) {
        *out = *v;
        return COH_OK;
    }
    COH_TRY(coh_jinja_put_str(run, v));
    return coh_jinja_cut(run, begin, out);
}

/* ---- JSON ---- */

static void escape_json(const uint8_t *at, size_t bytes, char is_ascii, char escape[16])
{
    static const char letters[] = "\\\"\b\f\n\r\t", escapes[] = "\\\"bfnrt";
    const char *found = *at ? strchr(letters, (char)*at) : NULL;
    uint32_t code = coh_utf8_character(at, bytes) ? coh_utf8_value(at, bytes) : *at;
    escape[0] = '\0';
    if (found)
        snprintf(escape, 16, "\\%c", escapes[found - letters]);
    else if (code >= 0x10000 && is_ascii)
        snprintf(escape, 16, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + (code & 0x3ff));
    else if (code < 0x20 || (code >= 0x7f && is_ascii))
        snprintf(escape, 16, "\\u%04x", (unsigned)code);
}

static coh_status put_json_string(coh_jinja_run *run, const coh_jinja_json *form, const value *v)
{
    COH_TRY(put_text(run, "\""));
    COH_TRY(put_escaped(run, v, escape_json, (char)form->is_ascii));
    return put_text(run, "\"");
}

static coh_status put_json_line(coh_jinja_run *run, const coh_jinja_json *form, int level)
{
    if (!form->has_indent)
        return COH_OK;
    COH_TRY(put_text(run, "\n"));
    for (int i = 0; i < level; i++)
        COH_TRY(coh_jinja_put(run, &form->indent));
    return COH_OK;
}

static coh_status put_json_list(coh_jinja_run *run, const coh_jinja_json *form,
                                const coh_jinja_list *list, int level)
{
    if (list->count == 0)
        return put_text(run, "[]");
    COH_TRY(put_text(run, "["));
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            COH_TRY(coh_jinja_put(run, &form->between));
        COH_TRY(put_json_line(run, form, level + 1));
        COH_TRY(coh_jinja_put_json(run, form, &list->items[i], level + 1));
    }
    COH_TRY(put_json_line(run, form, level));
    return put_text(run, "]");
}

/* A key that is no string is written as one. */
static coh_status put_json_key(coh_jinja_run *run, const coh_jinja_json *form, const value *key)
{
    if (key->kind == COH_JINJA_STRING)
        return put_json_string(run, form, key);
    if (key->kind != COH_JINJA_NONE && !coh_jinja_is_number(key))
        return coh_jinja_fail(run, "a key of the type %s has no form in JSON", coh_jinja_type(key));
    COH_TRY(put_text(run, "\""));
    COH_TRY(coh_jinja_put_json(run, form, key, 0));
    return put_text(run, "\"");
}

/* The pairs in the order of their keys. */
static coh_status sort_pairs(coh_jinja_run *run, const coh_jinja_dict *dict, coh_jinja_dict *out)
{
    void *pairs;
    COH_TRY(coh_jinja_take(run, dict->count, sizeof(coh_jinja_pair), &pairs));
    *out = (coh_jinja_dict){ dict->count, dict->count, pairs };
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        for (int order; at > 0; at--) {
            COH_TRY(coh_jinja_spend(run, 1));
            COH_TRY(coh_jinja_order(run, &out->pairs[at - 1].key, &dict->pairs[i].key, &order));
            if (order != 1)
                break;
            out->pairs[at] = out->pairs[at - 1];
        }
        out->pairs[at] = dict->pairs[i];
    }
    return COH_OK;
}

static coh_status put_json_dict(coh_jinja_run *run, const coh_jinja_json *form,
                                const coh_jinja_dict *dict, int level)
{
    coh_jinja_dict sorted = *dict;
    if (dict->count == 0)
        return put_text(run, "{}");
    if (form->is_sorted)
        COH_TRY(sort_pairs(run, dict, &sorted));
    COH_TRY(put_text(run, "{"));
    for (size_t i = 0; i < sorted.count; i++) {
        if (i)
            COH_TRY(coh_jinja_put(run, &form->between));
        COH_TRY(put_json_line(run, form, level + 1));
        COH_TRY(put_json_key(run, form, &sorted.pairs[i].key));
        COH_TRY(coh_jinja_put(run, &form->behind_key));
        COH_TRY(coh_jinja_put_json(run, form, &sorted.pairs[i].value, level + 1));
    }
    COH_TRY(put_json_line(run, form, level));
    return put_text(run, "}");
}

static coh_status put_json_number(coh_jinja_run *run, const value *v)
{
    if (v->kind == COH_JINJA_REAL && !isfinite(v->real))
        return put_text(run, isnan(v->real) ? "NaN" : v->real > 0 ? "Infinity" : "-Infinity");
    return put_number(run, v);
}

coh_status coh_jinja_put_json(coh_jinja_run *run, const coh_jinja_json *form, const value *v,
                              int level)
{
    COH_TRY(coh_jinja_nest(run));
    if (v->kind == COH_JINJA_NONE)
        COH_TRY(put_text(run, "null"));
    else if (v->kind == COH_JINJA_BOOL)
        COH_TRY(put_text(run, v->whole ? "true" : "false"));
    else if (coh_jinja_is_number(v))
        COH_TRY(put_json_number(run, v));
    else if (v->kind == COH_JINJA_STRING)
        COH_TRY(put_json_string(run, form, v));
    else if (v->kind == COH_JINJA_DICT)
        COH_TRY(put_json_dict(run, form, v->dict, level));
    else if (v->kind == COH_JINJA_LIST && v->flavour <= COH_JINJA_A_TUPLE)
        COH_TRY(put_json_list(run, form, v->list, level));
    else
        return coh_jinja_fail(run, "a value of the type %s has no form in JSON", coh_jinja_type(v));
    run->nested--;
    return COH_OK;
}
