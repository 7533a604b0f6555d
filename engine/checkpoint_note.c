/* A recursive-descent checker of JSON that allocates nothing: each function scans one construct.
 * Next: checkpoint_writer.h, which says where it is stricter than RFC 8259. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/utf8.h"
#include "engine/checkpoint_writer.h"

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
    return at + strspn(at, " \t\n\r");
}

static const char *skip_digits(const char *at)
{
    return at + strspn(at, "0123456789");
}

/* Returns the value of four hex digits, or -1. */
static int hex4(const char *at)
{
    char digits[5] = "";
    strncat(digits, at, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int)strtol(digits, NULL, 16) : -1;
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
        const size_t bytes = coh_utf8_character((const uint8_t *)at, strnlen(at, 4));
        if (bytes == 0)
            return wrong(state, at, "not UTF-8");
        at = c == '\\' ? scan_escape(state, at) : at + bytes;
    }
    return at ? at + 1 : NULL;
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
    if (is_real ? !isfinite(coh_number_read(begin, NULL))
                : (strtoll(begin, NULL, 10), errno == ERANGE))
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

/* Scans the key at `key` of an object whose members begin at `first`, and its colon. */
static const char *scan_key(scan *state, const char *first, const char *key)
{
    const char *end = scan_string(state, key, 1);
    if (!end)
        return NULL;
    if (key_is_taken(first, key, end))
        return wrong(state, key, "duplicate key");
    end = skip_space(end);
    return *end == ':' ? skip_space(end + 1) : wrong(state, end, "':' must follow a key");
}

/* Scans an object or an array, which begins at `at`. */
static const char *scan_items(scan *state, const char *at, int level)
{
    const int is_object = *at == '{';
    const char end = is_object ? '}' : ']', *const first = skip_space(at + 1);
    at = first;
    if (*at == end)
        return at + 1;
    for (;;) {
        if (is_object && !(at = scan_key(state, first, at)))
            return NULL;
        if (!(at = scan_value(state, at, level)))
            return NULL;
        at = skip_space(at);
        if (*at == end)
            return at + 1;
        if (*at != ',')
            return wrong(state, at,
                         is_object ? "',' or '}' must follow a member"
                                   : "',' or ']' must follow an element");
        at = skip_space(at + 1);
    }
}

static const char *scan_value(scan *state, const char *at, int level)
{
    static const char *const words[] = { "true", "false", "null" };
    if (level >= LEVELS_MOST)
        return wrong(state, at, "nested too deeply");
    if (*at == '{' || *at == '[')
        return scan_items(state, at, level + 1);
    if (*at == '"')
        return scan_string(state, at, 0);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    return scan_number(state, at);
}

coh_status coh_checkpoint_note_check(const char *json)
{
    const char *at = skip_space(json);
    scan state = { at, "an object must begin here" };
    at = *at == '{' ? scan_items(&state, at, 1) : NULL;
    if (at) {
        at = skip_space(at);
        state = (scan){ at, "text after the object" };
        if (*at == '\0')
            return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT, "the checkpoint's note is not one JSON object: byte %td: %s",
                    state.at - json, state.reason);
}
