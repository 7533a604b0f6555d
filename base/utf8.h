/* utf8.h - checks UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above
 * U+10FFFF). */
#ifndef COH_BASE_UTF8_H
#define COH_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of the character at text[0], 1..4; 0 if it is invalid. Reads at most 4
 * bytes. */
static inline size_t coh_utf8_character(const uint8_t *text, size_t byte_count)
{
    if (byte_count == 0)
        return 0;
    uint8_t lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || byte_count < length)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* The second byte alone shows overlong forms, surrogates and code points above U+10FFFF. */
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
        (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

/* Returns the bytes of the control character (Unicode's Cc) at text[0]; 0: none. The text is UTF-8
 * and ends with a NUL. Some are above U+007f: a terminal takes U+009b for ESC and "[". */
static inline size_t coh_utf8_control(const char *text)
{
    const uint8_t first = (uint8_t)text[0], second = first == 0xc2 ? (uint8_t)text[1] : 0;
    if (second >= 0x80 && second < 0xa0)
        return 2;
    return (first > 0 && first < 0x20) || first == 0x7f;
}

/* Returns the bytes of the longest valid beginning of text. */
static inline size_t coh_utf8_stretch(const uint8_t *text, size_t byte_count)
{
    size_t end = 0;
    for (size_t length; (length = coh_utf8_character(text + end, byte_count - end)) != 0;)
        end += length;
    return end;
}

#endif
