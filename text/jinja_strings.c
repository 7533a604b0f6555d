/* What Python's methods of strings do, on UTF-8: characters are code points, and parts of a string
 * keep the origins of their bytes. An invalid byte is a character of its own. */
#include <errno.h>
#include <stdlib.h>

#include <utf8proc.h>

#include "base/c_locale.h"
#include "text/characters.h"
#include "text/jinja_values.h"

typedef coh_jinja_value value;

/* ---- characters ---- */

size_t coh_jinja_character(const value *string, size_t at)
{
    const size_t bytes = coh_utf8_character(string->bytes + at, string->count - at);
    return bytes ? bytes : 1;
}

size_t coh_jinja_character_count(const value *string)
{
    size_t count = 0, at = 0;
    while (at < string->count) {
        uint64_t eight;
        if (string->count - at >= sizeof(eight)) {
            memcpy(&eight, string->bytes + at, sizeof(eight));
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof(eight);
                count += sizeof(eight);
                continue;
            }
        }
        at += coh_jinja_character(string, at);
        count++;
    }
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

/* Bytes of the line end at `at`, as str.splitlines sees it; 0: none. */
static size_t line_end(const value *string, size_t at)
{
    const size_t bytes = coh_jinja_character(string, at);
    const uint8_t *text = string->bytes + at;
    if (bytes == 1)
        return text[0] == '\r' && at + 1 < string->count && text[1] == '\n'
                   ? 2
                   : (text[0] >= '\n' && text[0] <= '\r') || (text[0] >= 0x1c && text[0] <= 0x1e);
    const uint32_t code = coh_utf8_value(text, bytes);
    return code == 0x85 || code == 0x2028 || code == 0x2029 ? bytes : 0;
}

/* The end of the line that begins at `at`, without its line end. */
static size_t end_of_line(const value *string, size_t at)
{
    while (at < string->count && !line_end(string, at))
        at += coh_jinja_character(string, at);
    return at;
}

coh_status coh_jinja_split_lines(coh_jinja_run *run, const value *string, int keeps_ends,
                                 value *out)
{
    size_t count = 0;
    COH_TRY(coh_jinja_spend_bytes(run, string->count));
    for (size_t at = 0; at < string->count; count++) {
        at = end_of_line(string, at);
        at += at < string->count ? line_end(string, at) : 0;
    }
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_A_LIST, count, out));
    for (size_t at = 0, i = 0; i < count; i++) {
        const size_t end = end_of_line(string, at);
        const size_t next = end + (end < string->count ? line_end(string, end) : 0);
        out->list->items[i] = coh_jinja_part(string, at, keeps_ends ? next : end);
        at = next;
    }
    return COH_OK;
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

/* Writes text in the place of the character at..at+bytes, with its origin. */
static coh_status put_instead(coh_jinja_run *run, const value *string, size_t at, const void *text,
                              size_t bytes)
{
    const uint16_t origin = string->origins ? string->origins[at] : string->origin;
    const value changed = coh_jinja_bytes(text, bytes, origin);
    return coh_jinja_put(run, &changed);
}

static coh_status put_lower(coh_jinja_run *run, const value *string, size_t at, size_t bytes,
                            int is_after_letter)
{
    uint8_t changed[4];
    uint32_t code = code_at(string, at);
    const int ends =
        at + bytes == string->count || !is_letter_with_case(code_at(string, at + bytes));
    if (code == DOTTED_CAPITAL_I)
        return put_instead(run, string, at, "i\xcc\x87", 3);
    if (code == CAPITAL_SIGMA && is_after_letter && ends)
        code = FINAL_SIGMA;
    else
        code = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    return put_instead(run, string, at, changed, coh_utf8_write(code, changed));
}

static coh_status put_upper(coh_jinja_run *run, const value *string, size_t at, int is_title)
{
    uint8_t changed[4];
    const uint32_t code = code_at(string, at);
    if (grows_in_upper_case(code))
        return coh_jinja_fail(run, "the upper case of U+%04X is not known here", (unsigned)code);
    if (code == SHARP_S)
        return put_instead(run, string, at, is_title ? "Ss" : "SS", 2);
    const utf8proc_int32_t upper = is_title ? utf8proc_totitle((utf8proc_int32_t)code)
                                            : utf8proc_toupper((utf8proc_int32_t)code);
    return put_instead(run, string, at, changed, coh_utf8_write((uint32_t)upper, changed));
}

/* Behind these, Jinja's filter title begins a word. */
static int begins_word(const value *string, size_t at, size_t bytes)
{
    return coh_jinja_space(string->bytes + at, bytes) != 0 ||
           (bytes == 1 && string->bytes[at] && strchr("-({[<", string->bytes[at]));
}

coh_status coh_jinja_change_case(coh_jinja_run *run, const value *string, coh_jinja_case change,
                                 value *out)
{
    const size_t begin = run->out->count;
    int is_first = 1, is_letter = 0;
    for (size_t at = 0, bytes; at < string->count; at += bytes) {
        const value part = { .kind = COH_JINJA_STRING,
                             .bytes = string->bytes + at,
                             .count = coh_jinja_character(string, at),
                             .origin = string->origins ? string->origins[at] : string->origin };
        bytes = part.count;
        if (!coh_utf8_character(part.bytes, bytes)) /* invalid */
            COH_TRY(coh_jinja_put(run, &part));
        else if (change == COH_JINJA_UPPER || (change != COH_JINJA_LOWER && is_first))
            COH_TRY(
                put_upper(run, string, at, change != COH_JINJA_UPPER && change != COH_JINJA_WORDS));
        else
            COH_TRY(put_lower(run, string, at, bytes, is_letter));
        is_letter = is_letter_with_case(code_at(string, at));
        is_first = change == COH_JINJA_TITLE   ? !is_letter
                   : change == COH_JINJA_WORDS ? begins_word(string, at, bytes)
                                               : 0;
    }
    COH_TRY(coh_jinja_spend_bytes(run, 16 * string->count));
    return coh_jinja_cut(run, begin, out);
}

/* ---- numbers ---- */

/* Copies without white space around it, and without single underscores between digits. Returns 0
 * if it is too long or not ASCII. */
static int clean_number(const value *string, char *text, size_t capacity)
{
    const value inner = coh_jinja_strip(string, NULL, 1, 1);
    size_t bytes = 0;
    for (size_t i = 0; i < inner.count; i++) {
        const uint8_t sign = inner.bytes[i];
        const int is_low = sign == '_';
        if (is_low && (i == 0 || i + 1 == inner.count || coh_hex_digit(inner.bytes[i + 1]) < 0))
            return 0;
        if (sign == 0 || sign >= 0x80 || bytes + 1 == capacity)
            return 0;
        if (!is_low)
            text[bytes++] = (char)sign;
    }
    text[bytes] = '\0';
    return bytes > 0 && !strchr(" \t\n\v\f\r", text[0]);
}

/* Base 0: as a literal. */
int coh_jinja_read_whole(const value *string, int base, int64_t *out_whole)
{
    char text[80], *digits = text, *end;
    if (!clean_number(string, text, sizeof(text)))
        return 0;
    const int is_negative = *digits == '-';
    digits += *digits == '-' || *digits == '+';
    const char letter = digits[0] == '0' ? (char)(digits[1] | 0x20) : 0;
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix && (base == 0 || base == prefix)) {
        digits += 2;
        base = prefix;
    }
    const int first = coh_hex_digit((uint8_t)*digits);
    if (base == 0)
        base = 10;
    if (first < 0 || first >= base)
        return 0;
    errno = 0;
    end = digits; /* a wrong base moves nothing */
    const long long whole = strtoll(digits, &end, base);
    *out_whole = is_negative ? -whole : whole;
    return *end == '\0' && errno == 0;
}

int coh_jinja_read_real(const value *string, double *out_real)
{
    char text[400], *end;
    if (!clean_number(string, text, sizeof(text)) || strpbrk(text, "xXpP("))
        return 0;
    *out_real = coh_number_read(text, &end);
    return *end == '\0' && end != text;
}

/* ---- HTML ---- */

coh_status coh_jinja_escape(coh_jinja_run *run, const value *string, value *out)
{
    static const char signs[] = "<>&\"'";
    static const char *const escapes[] = { "&lt;", "&gt;", "&amp;", "&#34;", "&#39;" };
    const size_t begin = run->out->count;
    size_t done = 0;
    for (size_t at = 0; at < string->count; at++) {
        const char *found = string->bytes[at] ? strchr(signs, string->bytes[at]) : NULL;
        if (!found)
            continue;
        const value before = coh_jinja_part(string, done, at);
        const char *escape = escapes[found - signs];
        COH_TRY(coh_jinja_put(run, &before));
        COH_TRY(coh_jinja_put_own(run, escape, strlen(escape)));
        done = at + 1;
    }
    const value rest = coh_jinja_part(string, done, string->count);
    COH_TRY(coh_jinja_put(run, &rest));
    COH_TRY(coh_jinja_cut(run, begin, out));
    out->flavour = 1;
    return COH_OK;
}
