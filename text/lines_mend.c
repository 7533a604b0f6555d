/* Turns JSON as Python's json writes it into valid JSON. NaN and Infinity become null, numbers
 * beyond a double become 0 (numbers are not used), and the escape of half a character becomes that
 * of U+FFFD. Next: lines.c, the caller. */
#include <math.h>
#include <stdlib.h>

#include "text/lines.h"

/* The value of a surrogate if text[0..count) begins with its escape; else 0. */
static unsigned surrogate_at(const char *text, size_t count)
{
    char digits[5] = { 0 };
    if (count < 6 || text[0] != '\\' || text[1] != 'u')
        return 0;
    memcpy(digits, text + 2, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return 0;
    unsigned value = (unsigned)strtoul(digits, NULL, 16);
    return value >= 0xd800 && value <= 0xdfff ? value : 0;
}

/* Copies or mends an escape inside a string; *out_used is its length. */
static coh_status mend_escape(const char *text, size_t count, coh_byte_list *out, size_t *out_used,
                              uint64_t *replaced_count)
{
    unsigned value = surrogate_at(text, count);
    *out_used = count < 2 ? count : 2;
    if (value == 0)
        return coh_byte_list_add(out, text, *out_used);
    unsigned next = surrogate_at(text + 6, count - 6);
    *out_used = 6;
    if (value < 0xdc00 && next >= 0xdc00) {
        *out_used = 12;
        return coh_byte_list_add(out, text, 12);
    }
    (*replaced_count)++;
    return coh_byte_list_add(out, "\\ufffd", 6);
}

/* Copies or mends a word of letters, digits and signs outside of strings. */
static coh_status mend_word(const char *text, size_t count, coh_byte_list *out)
{
    char word[64], *end;
    if ((count == 3 && memcmp(text, "NaN", 3) == 0) ||
        (count == 8 && memcmp(text, "Infinity", 8) == 0) ||
        (count == 9 && memcmp(text, "-Infinity", 9) == 0))
        return coh_byte_list_add(out, "null", 4);
    if (count < sizeof(word)) { /* a longer word is copied */
        memcpy(word, text, count);
        word[count] = '\0';
        if (strspn(word, "0123456789+-.eE") == count && isinf(strtod(word, &end)) && !*end)
            return coh_byte_list_add(out, "0", 1);
    }
    return coh_byte_list_add(out, text, count);
}

static int is_word(char sign)
{
    return (sign >= '0' && sign <= '9') || (sign >= 'a' && sign <= 'z') ||
           (sign >= 'A' && sign <= 'Z') || sign == '+' || sign == '-' || sign == '.';
}

coh_status coh_lines_mend(coh_slice line, coh_byte_list *out, uint64_t *replaced_count)
{
    int is_string = 0;
    uint64_t replaced = 0;
    out->count = 0;
    for (size_t at = 0, used; at < line.count; at += used) {
        const char *text = line.bytes + at;
        size_t rest = line.count - at;
        used = 1;
        if (is_string && *text == '\\') {
            COH_TRY(mend_escape(text, rest, out, &used, &replaced));
            continue;
        }
        if (!is_string && is_word(*text)) {
            while (used < rest && is_word(text[used]))
                used++;
            COH_TRY(mend_word(text, used, out));
            continue;
        }
        is_string ^= *text == '"';
        COH_TRY(coh_byte_list_add(out, text, 1));
    }
    *replaced_count += replaced;
    return COH_OK;
}
