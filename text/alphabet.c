/* Decodes GPT-2's printable characters for bytes. The one idea: the 68 unprintable bytes are
 * numbered in order, so the table is computed. Next: alphabet.h. */
#include "text/alphabet.h"

static int is_printable(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void coh_alphabet_fill(coh_alphabet *alphabet)
{
    int next = 256;
    memset(alphabet->byte_of, -1, sizeof(alphabet->byte_of));
    for (int byte = 0; byte < 256; byte++)
        alphabet->byte_of[is_printable(byte) ? byte : next++] = (int16_t)byte;
}

ptrdiff_t coh_alphabet_decode(const coh_alphabet *alphabet, coh_slice name, uint8_t *out_bytes)
{
    const uint8_t *text = (const uint8_t *)name.bytes;
    ptrdiff_t count = 0;
    for (size_t at = 0; at < name.count;) {
        int character = text[at++];
        if (character >= 0x80) { /* characters below U+0800 have two bytes */
            if (character >= 0xe0 || at == name.count || (text[at] & 0xc0) != 0x80)
                return -1;
            character = (character & 0x1f) << 6 | (text[at++] & 0x3f);
        }
        if (character >= COH_ALPHABET_END || alphabet->byte_of[character] < 0)
            return -1;
        out_bytes[count++] = (uint8_t)alphabet->byte_of[character];
    }
    return count;
}
