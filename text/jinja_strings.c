/* Strings: how they are written at the end of the output and cut off from there, and what Python's
 * methods do with them, on UTF-8. Characters are code points; parts of a string keep the origins of
 * their bytes. An invalid byte is a character of its own. */
#include <stdio.h>

#include <utf8proc.h>

#include "text/characters.h"
#include "text/jinja_values.h"

typedef coh_jinja_value value;

/* ---- output ---- */

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
        for (size_t i = 0; i < string->count; i++)
            out->origins[out->count + i] = string->origin;
    out->count += string->count;
    return COH_OK;
}

coh_status coh_jinja_put_own(coh_jinja_run *run, const char *text, size_t bytes)
{
    const value string = coh_jinja_bytes(text, bytes, COH_JINJA_OWN);
    return coh_jinja_put(run, &string);
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

coh_status coh_jinja_put_str(coh_jinja_run *run, const value *v)
{
    char text[32];
    if (v->kind == COH_JINJA_MISSING || v->kind == COH_JINJA_UNDEFINED)
        return COH_OK;
    if (v->kind == COH_JINJA_STRING)
        return coh_jinja_put(run, v);
    if (v->kind > COH_JINJA_STRING)
        return coh_jinja_fail(run, "printing a %s is not known here", coh_jinja_type(v));
    if (v->kind == COH_JINJA_WHOLE)
        snprintf(text, sizeof(text), "%lld", (long long)v->whole);
    else
        snprintf(text, sizeof(text),
                 v->kind == COH_JINJA_NONE ? "None"
                 : v->whole                ? "True"
                                           : "False");
    return coh_jinja_put_own(run, text, strlen(text));
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

/* ---- characters ---- */

size_t coh_jinja_character(const value *string, size_t at)
{
    const size_t bytes = coh_utf8_character(string->bytes + at, string->count - at);
    return bytes ? bytes : 1;
}

size_t coh_jinja_character_count(const value *string)
{
    size_t count = 0, at = 0;
    for (; at < string->count; count++)
        at += coh_jinja_character(string, at);
    return count;
}

size_t coh_jinja_space(const uint8_t *text, size_t bytes)
{
    const size_t length = coh_utf8_character(text, bytes);
    const uint32_t code = length ? coh_utf8_value(text, length) : 0;
    return coh_is_white_space(code) || (code >= 0x1c && code <= 0x1f) ? length : 0;
}

/* Is the character at..at+bytes of `string` one of `set`? */
static int is_in_set(const value *string, size_t at, size_t bytes, const value *set)
{
    const uint8_t first = string->bytes[at];
    if (!set || set->kind != COH_JINJA_STRING)
        return coh_jinja_space(string->bytes + at, bytes) != 0;
    if (first < 0x80)
        return set->count > 0 && memchr(set->bytes, first, set->count) != NULL;
    for (size_t i = 0, length; i < set->count; i += length) {
        length = coh_jinja_character(set, i);
        if (length == bytes && memcmp(set->bytes + i, string->bytes + at, bytes) == 0)
            return 1;
    }
    return 0;
}

value coh_jinja_strip(const value *string, const value *set, int at_begin, int at_end)
{
    size_t begin = 0, end = string->count;
    for (size_t bytes; at_begin && begin < end; begin += bytes) {
        bytes = coh_jinja_character(string, begin);
        if (!is_in_set(string, begin, bytes, set))
            break;
    }
    for (size_t last; at_end && end > begin; end = last) {
        last = coh_utf8_previous(string->bytes, end);
        if (!is_in_set(string, last, end - last, set))
            break;
    }
    return coh_jinja_part(string, begin, end);
}

size_t coh_jinja_find(const value *string, const value *part, size_t from)
{
    if (from > string->count)
        return SIZE_MAX;
    if (part->count == 0)
        return from;
    const uint8_t *found =
        memmem(string->bytes + from, string->count - from, part->bytes, part->count);
    return found ? (size_t)(found - string->bytes) : SIZE_MAX;
}

coh_status coh_jinja_replace(coh_jinja_run *run, const value *string, const value *from,
                             const value *to, int64_t most, value *out)
{
    const size_t begin = run->out->count;
    size_t done = 0;
    for (size_t at = 0; most != 0 && (at = coh_jinja_find(string, from, at)) != SIZE_MAX; most--) {
        const value before = coh_jinja_part(string, done, at);
        COH_TRY(coh_jinja_spend(run, 1));
        COH_TRY(coh_jinja_put(run, &before));
        COH_TRY(coh_jinja_put(run, to));
        done = at + from->count;
        /* Nothing is found before each character, and at the end. */
        at = from->count          ? done
             : at < string->count ? at + coh_jinja_character(string, at)
                                  : SIZE_MAX;
    }
    if (done == 0 && run->out->count == begin) {
        *out = *string;
        return COH_OK;
    }
    const value rest = coh_jinja_part(string, done, string->count);
    COH_TRY(coh_jinja_put(run, &rest));
    return coh_jinja_cut(run, begin, out);
}

/* ---- case ---- */

enum { SHARP_S = 0xdf, CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2, DOTTED_CAPITAL_I = 0x130 };

/* Has the letter more than one letter in upper case? SHARP_S has, too. */
static int grows_in_upper_case(uint32_t code)
{
    return code == 0x149 || code == 0x1f0 || code == 0x390 || code == 0x3b0 || code == 0x587 ||
           (code >= 0x1e96 && code <= 0x1e9a) || (code >= 0x1f50 && code <= 0x1f57) ||
           (code >= 0x1f80 && code <= 0x1fff) || (code >= 0xfb00 && code <= 0xfb17);
}

/* The code point of the character at `at`; 0 for an invalid one. */
static uint32_t code_at(const value *string, size_t at)
{
    const size_t bytes = coh_utf8_character(string->bytes + at, string->count - at);
    return bytes ? coh_utf8_value(string->bytes + at, bytes) : 0;
}

static int is_letter_with_case(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* The lower case of the letter at..at+bytes. */
static uint32_t lower_of(const value *string, size_t at, size_t bytes, int is_after_letter)
{
    const uint32_t code = code_at(string, at);
    const int ends =
        at + bytes == string->count || !is_letter_with_case(code_at(string, at + bytes));
    return code == CAPITAL_SIGMA && is_after_letter && ends
               ? FINAL_SIGMA
               : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

static uint32_t upper_of(uint32_t code, int is_title)
{
    return (uint32_t)(is_title ? utf8proc_totitle((utf8proc_int32_t)code)
                               : utf8proc_toupper((utf8proc_int32_t)code));
}

coh_status coh_jinja_change_case(coh_jinja_run *run, const value *string, coh_jinja_case change,
                                 value *out)
{
    const size_t begin = run->out->count;
    int is_first = 1, is_letter = 0;
    for (size_t at = 0, bytes; at < string->count; at += bytes) {
        uint8_t text[4];
        const uint32_t code = code_at(string, at);
        const int is_upper = change == COH_JINJA_UPPER || (change != COH_JINJA_LOWER && is_first);
        bytes = coh_jinja_character(string, at);
        value part = coh_jinja_part(string, at, at + bytes);
        if (is_upper && grows_in_upper_case(code))
            return coh_jinja_fail(run, "the upper case of U+%04X is not known here", code);
        const uint32_t changed = is_upper ? upper_of(code, change != COH_JINJA_UPPER)
                                          : lower_of(string, at, bytes, is_letter);
        part.origin = string->origins ? string->origins[at] : string->origin;
        part.origins = NULL; /* the new letter may have more bytes */
        if (code == SHARP_S && is_upper)
            part = coh_jinja_bytes(change == COH_JINJA_UPPER ? "SS" : "Ss", 2, part.origin);
        else if (code == DOTTED_CAPITAL_I && !is_upper)
            part = coh_jinja_bytes("i\xcc\x87", 3, part.origin);
        else if (code) /* valid */
            part = coh_jinja_bytes(text, coh_utf8_write(changed, text), part.origin);
        COH_TRY(coh_jinja_put(run, &part));
        is_letter = is_letter_with_case(code);
        is_first = change == COH_JINJA_TITLE && !is_letter;
    }
    COH_TRY(coh_jinja_spend_bytes(run, 16 * string->count));
    return coh_jinja_cut(run, begin, out);
}

/* ---- numbers ---- */

int coh_jinja_read_whole(const value *string, int64_t *out_whole)
{
    const int has_sign = string->count && (string->bytes[0] == '-' || string->bytes[0] == '+');
    const int64_t sign = has_sign && string->bytes[0] == '-' ? -1 : 1;
    *out_whole = 0;
    for (size_t i = (size_t)has_sign; i < string->count; i++) {
        const uint8_t digit = string->bytes[i];
        if (digit < '0' || digit > '9' || __builtin_mul_overflow(*out_whole, 10, out_whole) ||
            __builtin_add_overflow(*out_whole, sign * (digit - '0'), out_whole))
            return 0;
    }
    return string->count > (size_t)has_sign;
}
