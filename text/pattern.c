/* Translates an Oniguruma pattern to PCRE2. The one idea: one pass from left to right that writes
 * each part as it is read, and refuses anything it does not know. Next: split.c, the caller. */
#include "text/pattern.h"

#include <stdio.h>

#include "text/characters.h"

/* ---- characters ---- */

/* Corrections to PCRE2's character tables, so that classes match those of tokenizers 0.23: general
 * categories as in Unicode 16 (its Oniguruma), numeric characters as in Unicode 17 (Rust's), and
 * punctuation as in Unicode 8 (a separate table). PCRE2 10.40 to 10.42 have Unicode 14, 10.45 has
 * Unicode 16: listing a character that PCRE2 already has is harmless. tests/text/live_tokenizers.py
 * compares every character if tokenizers is installed. */
#define ADDED_LU "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"
#define ADDED_LL "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"
#define ADDED_LM                                                                                   \
    "\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}"          \
    "\\x{1e4eb}"
#define ADDED_LO                                                                                   \
    "\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}"                    \
    "\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}"          \
    "\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}"           \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}"                    \
    "\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}\\x{1b132}\\x{1b155}"                     \
    "\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}"          \
    "\\x{31350}-\\x{323af}"
#define ADDED_L ADDED_LU ADDED_LL ADDED_LM ADDED_LO
#define ADDED_M                                                                                    \
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}"                 \
    "\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}"          \
    "\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}"          \
    "\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}"          \
    "\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"
#define ADDED_ND                                                                                   \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}"         \
    "\\x{1e5f1}-\\x{1e5fa}"
#define ADDED_NO "\\x{1d2c0}-\\x{1d2d3}"
#define ADDED_P                                                                                    \
    "\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}"             \
    "\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"
#define ADDED_S                                                                                    \
    "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}"      \
    "\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}"                    \
    "\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}"                    \
    "\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"                    \
    "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"          \
    "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"

/* Characters that Unicode 15, 15.1 and 16 added to a general category, as the inside of a PCRE2
 * class; NULL: no such category. */
static const char *added_to(const char *category)
{
    static const struct row {
        const char *name, *added;
    } rows[] = {
        { "L", ADDED_L },   { "Lu", ADDED_LU }, { "Ll", ADDED_LL }, { "Lt", "" },
        { "Lm", ADDED_LM }, { "Lo", ADDED_LO }, { "M", ADDED_M },   { "N", ADDED_ND ADDED_NO },
        { "Nd", ADDED_ND }, { "Nl", "" },       { "No", ADDED_NO }, { "P", ADDED_P },
        { "S", ADDED_S },   { "Z", "" },        { "Zs", "" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, category) == 0)
            return rows[i].added;
    }
    return NULL;
}

const char coh_pattern_numeric[] =
    "[\\p{N}" ADDED_ND ADDED_NO "\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

/* The negated class is \p{P} without the additions after Unicode 8. */
const char coh_pattern_punctuation[] =
    "(?:[!-/:-@\\[-`{-~\\x{166d}\\x{111c9}]|[^\\P{P}\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}"
    "\\x{1b4e}-\\x{1b4f}\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e4f}\\x{2e52}-\\x{2e5d}\\x{10d6e}"
    "\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}\\x{113d4}-\\x{113d5}"
    "\\x{113d7}-\\x{113d8}\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}"
    "\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}\\x{11944}-\\x{11946}\\x{119e2}"
    "\\x{11a3f}-\\x{11a46}\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}"
    "\\x{11be1}\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}"
    "\\x{11f43}-\\x{11f4f}\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16d6d}-\\x{16d6f}"
    "\\x{16e97}-\\x{16e9a}\\x{16fe2}\\x{1e5ff}\\x{1e95e}-\\x{1e95f}])";

const char coh_pattern_word_character[] =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" ADDED_L ADDED_M ADDED_ND "]";

#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
/* Listed in full, since a class cannot exclude characters. */
#define NOT_SPACE                                                                                  \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"                \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"                 \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

/* ---- the reader ---- */

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

/* \xHH, \x{H...} and \uHHHH; `at` is after the letter. */
static coh_status read_hex(reader *r, int is_long, uint32_t *out_value)
{
    int in_braces = !is_long && r->at < r->end && *r->at == '{';
    int digit_max = in_braces ? 8 : is_long ? 4 : 2, digits = 0;
    r->at += in_braces;
    *out_value = 0;
    for (; r->at < r->end && digits < digit_max && coh_hex_digit(*r->at) >= 0; r->at++, digits++)
        *out_value = *out_value << 4 | (uint32_t)coh_hex_digit(*r->at);
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
    const char *added = added_to(name);
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
        COH_TRY(put(r, added_to("Nd")));
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
