/* characters.h - UTF-8 characters and their code points, on top of base/utf8.h. */
#ifndef COH_TEXT_CHARACTERS_H
#define COH_TEXT_CHARACTERS_H

#include <string.h>

#include "base/utf8.h"

/* coh_utf8_stretch, eight bytes of ASCII at a time. */
static inline size_t coh_valid_stretch(const uint8_t *text, size_t byte_count)
{
    size_t end = 0;
    for (;;) {
        for (uint64_t eight; end + sizeof(eight) <= byte_count; end += sizeof(eight)) {
            memcpy(&eight, text + end, sizeof(eight));
            if (eight & UINT64_C(0x8080808080808080))
                break;
        }
        size_t length = coh_utf8_character(text + end, byte_count - end);
        if (length == 0)
            return end;
        end += length;
    }
}

/* The code point of a valid character of `length` bytes. */
static inline uint32_t coh_utf8_value(const uint8_t *text, size_t length)
{
    if (length == 1)
        return text[0];
    uint32_t value = text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        value = value << 6 | (text[i] & 0x3f);
    return value;
}

/* Writes a code point; returns its bytes, 1..4. */
static inline size_t coh_utf8_write(uint32_t value, uint8_t text[4])
{
    if (value < 0x80) {
        text[0] = (uint8_t)value;
        return 1;
    }
    size_t length = value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; value >>= 6)
        text[i] = (uint8_t)(0x80 | (value & 0x3f));
    text[0] = (uint8_t)(value | (0xf00u >> length));
    return length;
}

/* Number of bytes before a possibly incomplete last character: all except the last 0 to 3. */
static inline size_t coh_utf8_complete(const uint8_t *text, size_t byte_count)
{
    for (size_t back = 1; back <= 3 && back <= byte_count; back++) {
        uint8_t byte = text[byte_count - back];
        if (byte < 0x80)
            break;
        if (byte >= 0xc0) {
            size_t length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
            return length > back ? byte_count - back : byte_count;
        }
    }
    return byte_count;
}

/* The start of the character that ends at `end` > 0; end - 1 if no valid character ends there. */
static inline size_t coh_utf8_previous(const uint8_t *text, size_t end)
{
    for (size_t back = 1; back <= 4 && back <= end; back++) {
        if ((text[end - back] & 0xc0) != 0x80)
            return coh_utf8_character(text + end - back, back) == back ? end - back : end - 1;
    }
    return end - 1;
}

/* The value of a hexadecimal digit; -1: none. */
static inline int coh_hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Is the code point Unicode White_Space? The set of 25 is unchanged since Unicode 6.3. */
static inline int coh_is_white_space(uint32_t value)
{
    if (value < 0x80)
        return value == ' ' || (value >= 9 && value <= 13);
    return value == 0x85 || value == 0xa0 || value == 0x1680 ||
           (value >= 0x2000 && value <= 0x200a) || value == 0x2028 || value == 0x2029 ||
           value == 0x202f || value == 0x205f || value == 0x3000;
}

#endif
