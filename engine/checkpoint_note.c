/* A recursive-descent checker of JSON that allocates nothing: each function scans one construct.
 * Next: checkpoint_note.h, which says where it is stricter than RFC 8259. */
#include "engine/checkpoint_note.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS_MOST = 32 };

/* Each scan function takes the place where something must begin. It returns the place after it, or
 * NULL with the place of the error in `scan->at`. */
typedef struct scan {
    const char *at;
    const char *reason;
} scan;

static const char *wrong(scan *state, const char *at, const char *reason)
{
    state->at = at;
    state->reason = reason;
    return NULL;
}

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* Returns the value of four hex digits, or -1. */
static int hex4(const char *at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static const char *scan_escape(scan *state, const char *at)
{
    if (at[1] && strchr("\"\\/bfnrt", at[1]))
        return at + 2;
    if (at[1] != 'u')
        return wrong(state, at, "unknown escape");
    int unit = hex4(at + 2);
    if (unit < 0)
        return wrong(state, at, "four hex digits must follow \\u");
    if (unit == 0)
        return wrong(state, at, "a string cannot hold \\u0000");
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return wrong(state, at, "half of a surrogate pair");
    if (unit < 0xd800 || unit > 0xdbff)
        return at + 6;
    int low = at[6] == '\\' && at[7] == 'u' ? hex4(at + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return wrong(state, at, "half of a surrogate pair");
    return at + 12;
}

/* Scans one UTF-8 character of two to four bytes: shortest form, no surrogates, up to U+10FFFF. */
static const char *scan_utf8(scan *state, const char *at)
{
    unsigned lead = (unsigned char)at[0];
    int more = lead >= 0xc2 && lead <= 0xdf   ? 1
               : lead >= 0xe0 && lead <= 0xef ? 2
               : lead >= 0xf0 && lead <= 0xf4 ? 3
                                              : 0;
    unsigned long code = more == 1 ? lead & 0x1f : more == 2 ? lead & 0x0f : lead & 0x07;
    for (int i = 1; i <= more; i++) {
        if (((unsigned char)at[i] & 0xc0) != 0x80)
            return wrong(state, at, "not UTF-8");
        code = code << 6 | ((unsigned char)at[i] & 0x3f);
    }
    if (more == 0 || (more == 2 && code < 0x800) || (more == 3 && code < 0x10000) ||
        code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return wrong(state, at, "not UTF-8");
    return at + more + 1;
}

static const char *scan_string(scan *state, const char *at, int is_key)
{
    if (*at != '"')
        return wrong(state, at, "a string must begin here");
    at++;
    while (at && *at != '"') {
        unsigned char c = (unsigned char)*at;
        if (c < 0x20)
            return wrong(state, at, c ? "control character in a string" : "string without end");
        if (c == '\\' && is_key)
            return wrong(state, at, "keys may not hold escapes");
        at = c == '\\' ? scan_escape(state, at) : c < 0x80 ? at + 1 : scan_utf8(state, at);
    }
    return at ? at + 1 : NULL;
}

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

static const char *scan_number(scan *state, const char *at)
{
    const char *begin = at;
    at += *at == '-';
    const char *digits = at;
    at = skip_digits(at);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return wrong(state, begin, "a value must begin here");
    int is_real = *at == '.' || *at == 'e' || *at == 'E';
    if (*at == '.') {
        const char *fraction = ++at;
        at = skip_digits(at);
        if (at == fraction)
            return wrong(state, at, "a digit must follow the point");
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        const char *exponent = at;
        at = skip_digits(at);
        if (at == exponent)
            return wrong(state, at, "the exponent has no digit");
    }
    errno = 0;
    if (is_real ? !isfinite(strtod(begin, NULL)) : (strtoll(begin, NULL, 10), errno == ERANGE))
        return wrong(state, begin, "the number is too large");
    return at;
}

static const char *scan_value(scan *state, const char *at, int level);

/* Is the key [key, key_end) a duplicate of a member from `first` on? Those members are
 * well-formed. */
static int key_is_taken(const char *first, const char *key, const char *key_end)
{
    scan unused = { 0 };
    for (const char *at = first; at < key;) {
        const char *end = scan_string(&unused, at, 1);
        if (end - at == key_end - key && memcmp(at, key, (size_t)(key_end - key)) == 0)
            return 1;
        at = scan_value(&unused, skip_space(skip_space(end) + 1), 0); /* ':' */
        at = skip_space(skip_space(at) + 1);                          /* ',' */
    }
    return 0;
}

static const char *scan_object(scan *state, const char *at, int level)
{
    const char *first = skip_space(at + 1);
    at = first;
    if (*at == '}')
        return at + 1;
    for (;;) {
        const char *key = at;
        if (!(at = scan_string(state, key, 1)))
            return NULL;
        if (key_is_taken(first, key, at))
            return wrong(state, key, "duplicate key");
        at = skip_space(at);
        if (*at != ':')
            return wrong(state, at, "':' must follow a key");
        if (!(at = scan_value(state, skip_space(at + 1), level)))
            return NULL;
        at = skip_space(at);
        if (*at == '}')
            return at + 1;
        if (*at != ',')
            return wrong(state, at, "',' or '}' must follow a member");
        at = skip_space(at + 1);
    }
}

static const char *scan_array(scan *state, const char *at, int level)
{
    at = skip_space(at + 1);
    if (*at == ']')
        return at + 1;
    for (;;) {
        if (!(at = scan_value(state, at, level)))
            return NULL;
        at = skip_space(at);
        if (*at == ']')
            return at + 1;
        if (*at != ',')
            return wrong(state, at, "',' or ']' must follow an element");
        at = skip_space(at + 1);
    }
}

static const char *scan_value(scan *state, const char *at, int level)
{
    if (level >= LEVELS_MOST)
        return wrong(state, at, "nested too deeply");
    switch (*at) {
    case '{':
        return scan_object(state, at, level + 1);
    case '[':
        return scan_array(state, at, level + 1);
    case '"':
        return scan_string(state, at, 0);
    case 't':
        return strncmp(at, "true", 4) == 0 ? at + 4 : wrong(state, at, "a value must begin here");
    case 'f':
        return strncmp(at, "false", 5) == 0 ? at + 5 : wrong(state, at, "a value must begin here");
    case 'n':
        return strncmp(at, "null", 4) == 0 ? at + 4 : wrong(state, at, "a value must begin here");
    default: /* digits and '-', and any other character */
        return scan_number(state, at);
    }
}

coh_status coh_checkpoint_note_check(const char *json)
{
    scan state = { json, "an object must begin here" };
    const char *at = skip_space(json);
    state.at = at;
    at = *at == '{' ? scan_object(&state, at, 1) : NULL;
    if (at) {
        at = skip_space(at);
        state = (scan){ at, "text after the object" };
        if (*at == '\0')
            return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT, "the checkpoint's note is not one JSON object: byte %td: %s",
                    state.at - json, state.reason);
}
