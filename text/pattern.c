/* Translates an Oniguruma pattern to PCRE2. The one idea: one pass from left to right that writes
 * each part as it is read, and refuses anything it does not know. Next: pattern_unicode.c for the
 * classes, split.c for the caller. */
#include "text/pattern.h"

#include <stdio.h>

#include "text/characters.h"

#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
/* Listed in full, since a class cannot exclude characters. */
#define NOT_SPACE                                                                                  \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"                \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"                 \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

#define GROUP_DEPTH_MAX 32
#define REPEAT_MAX      1000

typedef struct reader {
    const char *where;
    const uint8_t *begin, *at, *end;
    coh_byte_list *out;
    int group_count;
    struct group {
        int is_caseless, is_look;
    } groups[GROUP_DEPTH_MAX + 1]; /* [0] is the whole pattern */
    int has_atom;                  /* the last part can be repeated */
    uint32_t last_letter;          /* the last part, if it is a caseless letter; else 0 */
} reader;

static coh_status refuse(const reader *r, const char *what)
{
    size_t place = (size_t)(r->at - r->begin);
    return coh_fail(COH_ERR_CORRUPT,
                    "%s: the regular expression has %s at byte %zu (\"%.*s\"), which is not "
                    "supported: ids would differ",
                    r->where, what, place, (int)(r->end - r->at < 24 ? r->end - r->at : 24),
                    (const char *)r->at);
}

static coh_status put(reader *r, const char *text)
{
    return coh_byte_list_add(r->out, text, strlen(text));
}

static coh_status put_value(coh_byte_list *out, uint32_t value)
{
    char text[16];
    int bytes = snprintf(text, sizeof(text), "\\x{%x}", (unsigned)value);
    return coh_byte_list_add(out, text, (size_t)bytes);
}

/* Writes a literal character. */
static coh_status put_character(coh_byte_list *out, uint32_t value)
{
    int is_plain = (value >= '0' && value <= '9') || (value >= 'A' && value <= 'Z') ||
                   (value >= 'a' && value <= 'z');
    uint8_t bytes[4];
    return is_plain ? coh_byte_list_add(out, bytes, coh_utf8_write(value, bytes))
                    : put_value(out, value);
}

coh_status coh_pattern_quote(coh_slice literal, coh_byte_list *out)
{
    const uint8_t *text = (const uint8_t *)literal.bytes;
    for (size_t at = 0, length; at < literal.count; at += length) {
        length = coh_utf8_character(text + at, literal.count - at);
        if (length == 0)
            return coh_fail(COH_ERR_CORRUPT, "a pattern is not valid UTF-8");
        COH_TRY(put_character(out, coh_utf8_value(text + at, length)));
    }
    return COH_OK;
}

/* ---- escapes ---- */

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* \xHH, \x{H...} and \uHHHH; `at` is after the letter. */
static coh_status read_hex(reader *r, int is_long, uint32_t *out_value)
{
    int in_braces = !is_long && r->at < r->end && *r->at == '{';
    int digit_max = in_braces ? 8 : is_long ? 4 : 2, digits = 0;
    r->at += in_braces;
    *out_value = 0;
    for (; r->at < r->end && digits < digit_max && hex_digit(*r->at) >= 0; r->at++, digits++)
        *out_value = *out_value << 4 | (uint32_t)hex_digit(*r->at);
    int is_closed = !in_braces || (r->at < r->end && *r->at == '}');
    if (!is_closed || digits == 0 || (is_long && digits != 4) || *out_value > 0x10ffff ||
        (*out_value >= 0xd800 && *out_value < 0xe000) ||
        (!in_braces && !is_long && *out_value >= 0x80))
        return refuse(r, "a character's number that is none");
    r->at += in_braces;
    return COH_OK;
}

/* \p{NAME}; `at` is after the p. */
static coh_status read_category(reader *r, int is_negated, int in_class)
{
    const uint8_t *close = memchr(r->at, '}', (size_t)(r->end - r->at));
    char name[8] = "";
    if (r->at < r->end && *r->at == '{' && close && close - r->at <= (ptrdiff_t)sizeof(name))
        memcpy(name, r->at + 1, (size_t)(close - r->at - 1));
    const char *added = coh_pattern_added(name);
    if (!added)
        return refuse(r, "\\p of something else than a general category");
    if (in_class && is_negated)
        return refuse(r, "\\P inside [ ]");
    if (r->groups[r->group_count].is_caseless)
        return refuse(r, "\\p where case is ignored");
    if (!in_class)
        COH_TRY(put(r, is_negated ? "[^" : "["));
    COH_TRY(put(r, "\\p{"));
    COH_TRY(put(r, name));
    COH_TRY(put(r, "}"));
    COH_TRY(put(r, added));
    if (!in_class)
        COH_TRY(put(r, "]"));
    r->at = close + 1;
    return COH_OK;
}

static uint32_t control_value(uint8_t letter)
{
    static const char letters[] = "nrtfvae";
    static const uint8_t values[] = { '\n', '\r', '\t', '\f', '\v', '\a', 0x1b };
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? values[found - letters] : 0;
}

/* Reads what follows a backslash: a class, which is written (*out_is_class), or one character. */
static coh_status read_escape(reader *r, int in_class, int *out_is_class, uint32_t *out_value)
{
    *out_is_class = 0;
    if (r->at == r->end)
        return refuse(r, "a backslash and nothing");
    uint8_t letter = *r->at++;
    if (letter == 'x' || letter == 'u')
        return read_hex(r, letter == 'u', out_value);
    *out_value = control_value(letter);
    if (*out_value)
        return COH_OK;
    int is_word = letter >= 0x80 || (letter >= '0' && letter <= '9') ||
                  ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z');
    if (!is_word) {
        *out_value = letter;
        return COH_OK;
    }
    *out_is_class = 1;
    switch (letter) {
    case 's':
        return put(r, in_class ? SPACE : "[" SPACE "]");
    case 'S':
        return put(r, in_class ? NOT_SPACE : "[^" SPACE "]");
    case 'd':
        COH_TRY(put(r, in_class ? "\\p{Nd}" : "[\\p{Nd}"));
        COH_TRY(put(r, coh_pattern_added("Nd")));
        return in_class ? COH_OK : put(r, "]");
    case 'p':
    case 'P':
        return read_category(r, letter == 'P', in_class);
    default:
        r->at -= 2;
        return refuse(r, "this escape");
    }
}

/* ---- classes ---- */

static coh_status read_plain(reader *r, uint32_t *out_value)
{
    size_t length = coh_utf8_character(r->at, (size_t)(r->end - r->at));
    if (length == 0)
        return refuse(r, "bytes that are no UTF-8");
    *out_value = coh_utf8_value(r->at, length);
    r->at += length;
    return COH_OK;
}

/* Reads one member, or one end of a range. */
static coh_status read_member(reader *r, int *out_is_class, uint32_t *out_value)
{
    *out_is_class = 0;
    if (*r->at == '[')
        return refuse(r, "[ inside [ ]");
    if (*r->at == '&' && r->at + 1 < r->end && r->at[1] == '&')
        return refuse(r, "&& inside [ ]");
    if (*r->at == '\\') {
        r->at++;
        return read_escape(r, 1, out_is_class, out_value);
    }
    return read_plain(r, out_value);
}

/* [...]; `at` is after the bracket. */
static coh_status read_class(reader *r)
{
    int is_caseless = r->groups[r->group_count].is_caseless, member_count = 0;
    COH_TRY(put(r, "["));
    if (r->at < r->end && *r->at == '^') {
        COH_TRY(put(r, "^"));
        r->at++;
    }
    for (; r->at < r->end && *r->at != ']'; member_count++) {
        int is_class, is_last_class;
        uint32_t value = 0, last = 0;
        COH_TRY(read_member(r, &is_class, &value));
        int is_range = r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']';
        if (is_class && is_range)
            return refuse(r, "a range from a class");
        if (is_class)
            continue;
        if (is_caseless && value >= 0x80)
            return refuse(r, "a letter beyond ASCII where case is ignored");
        COH_TRY(put_value(r->out, value));
        if (!is_range)
            continue;
        r->at++;
        COH_TRY(read_member(r, &is_last_class, &last));
        if (is_last_class || last < value || (is_caseless && last >= 0x80))
            return refuse(r, "a range that is none");
        COH_TRY(put(r, "-"));
        COH_TRY(put_value(r->out, last));
    }
    if (r->at == r->end || member_count == 0)
        return refuse(r, "[ ] that is empty or not closed");
    r->at++;
    return put(r, "]");
}

/* ---- groups and repeats ---- */

static coh_status open_group(reader *r)
{
    static const struct kind {
        const char *spelled, *written;
        int is_caseless, is_look;
    } kinds[] = {
        { "(?:", "(?:", 0, 0 }, { "(?i:", "(?i:", 1, 0 }, { "(?=", "(?=", 0, 1 },
        { "(?!", "(?!", 0, 1 }, { "(?>", "(?>", 0, 0 },
    };
    const struct kind *kind = NULL;
    size_t rest = (size_t)(r->end - r->at);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t length = strlen(kinds[i].spelled);
        if (rest >= length && memcmp(r->at, kinds[i].spelled, length) == 0)
            kind = &kinds[i];
    }
    if (!kind && rest > 1 && r->at[1] == '?')
        return refuse(r, "a group of this kind");
    if (r->group_count == GROUP_DEPTH_MAX)
        return refuse(r, "a group in too many groups");
    struct group inner = { .is_caseless = r->groups[r->group_count].is_caseless };
    if (kind) {
        inner.is_caseless |= kind->is_caseless;
        inner.is_look = kind->is_look;
    }
    r->groups[++r->group_count] = inner;
    r->at += kind ? strlen(kind->spelled) : 1;
    r->has_atom = 0;
    return put(r, kind ? kind->written : "(?:"); /* nothing refers to groups */
}

static coh_status close_group(reader *r)
{
    if (r->group_count == 0)
        return refuse(r, ") without (");
    r->has_atom = !r->groups[r->group_count--].is_look;
    r->at++;
    return put(r, ")");
}

static int read_number(reader *r, long *out_number)
{
    const uint8_t *begin = r->at;
    *out_number = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && *out_number <= REPEAT_MAX; r->at++)
        *out_number = *out_number * 10 + (*r->at - '0');
    return r->at > begin;
}

/* Reads {n}, {n,} and {n,m}; the last may be lazy. */
static coh_status read_count(reader *r)
{
    const uint8_t *begin = r->at++;
    long least = 0, most = 0;
    int has_comma = 0, is_whole = read_number(r, &least);
    if (r->at < r->end && *r->at == ',') {
        has_comma = 1;
        r->at++;
        if (!read_number(r, &most))
            most = REPEAT_MAX;
    }
    is_whole = is_whole && r->at < r->end && *r->at == '}';
    if (!is_whole || least > REPEAT_MAX || most > REPEAT_MAX || (has_comma && most < least)) {
        r->at = begin;
        return refuse(r, "{ that is no count from 0 to 1000");
    }
    r->at++;
    int is_lazy = r->at < r->end && *r->at == '?';
    if ((is_lazy && !has_comma) || (r->at < r->end && *r->at == '+'))
        return refuse(r, "a sign after { } that libraries read differently");
    r->at += is_lazy;
    return coh_byte_list_add(r->out, begin, (size_t)(r->at - begin));
}

static coh_status read_repeat(reader *r)
{
    if (!r->has_atom)
        return refuse(r, "a repeat of nothing");
    r->has_atom = 0;
    if (*r->at == '{')
        return read_count(r);
    size_t bytes = 1;
    if (r->end - r->at > 1 && (r->at[1] == '?' || r->at[1] == '+'))
        bytes = 2;
    r->at += bytes;
    return coh_byte_list_add(r->out, r->at - bytes, bytes);
}

/* ---- whole pattern ---- */

/* Oniguruma treats some pairs of letters as one letter if case is ignored ("ss" and U+00DF). */
static int is_folded_pair(uint32_t first, uint32_t second)
{
    first |= 0x20;
    second |= 0x20;
    return (first == 's' && (second == 's' || second == 't')) ||
           (first == 'f' && (second == 'f' || second == 'i' || second == 'l'));
}

static coh_status put_literal(reader *r, uint32_t value, uint32_t before)
{
    if (r->groups[r->group_count].is_caseless) {
        if (value >= 0x80)
            return refuse(r, "a letter beyond ASCII where case is ignored");
        if (is_folded_pair(before, value))
            return refuse(r, "a pair of letters that has a ligature where case is ignored");
        r->last_letter = value;
    }
    return put_character(r->out, value);
}

static coh_status read_part(reader *r)
{
    uint32_t value = 0, before = r->last_letter;
    int is_class = 0;
    r->last_letter = 0;
    switch (*r->at) {
    case '|':
        r->has_atom = 0;
        r->at++;
        return put(r, "|");
    case '(':
        return open_group(r);
    case ')':
        return close_group(r);
    case '*':
    case '+':
    case '?':
    case '{':
        return read_repeat(r);
    case '^':
    case '$':
        return refuse(r, "an anchor");
    default:
        break;
    }
    r->has_atom = 1;
    if (*r->at == '[') {
        r->at++;
        return read_class(r);
    }
    if (*r->at == '.') {
        r->at++;
        return put(r, "[^\\x{0a}]");
    }
    if (*r->at == '\\') {
        r->at++;
        COH_TRY(read_escape(r, 0, &is_class, &value));
    } else {
        COH_TRY(read_plain(r, &value));
    }
    return is_class ? COH_OK : put_literal(r, value, before);
}

coh_status coh_pattern_translate(const char *where, coh_slice pattern, coh_byte_list *out)
{
    const uint8_t *text = (const uint8_t *)pattern.bytes;
    reader r = {
        .where = where, .begin = text, .at = text, .end = text + pattern.count, .out = out
    };
    while (r.at < r.end)
        COH_TRY(read_part(&r));
    if (r.group_count)
        return refuse(&r, "( without )");
    return COH_OK;
}
