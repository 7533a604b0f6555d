/* alphabet.h - decodes the printable characters with which GPT-2's files write bytes ("Ġ" is the
 * space): printable bytes are written as themselves, the other 68 as U+0100 and following, in
 * order. */
#ifndef COH_TEXT_ALPHABET_H
#define COH_TEXT_ALPHABET_H

#include "text/lists.h"

#define COH_ALPHABET_END (256 + 68)

typedef struct coh_alphabet {
    int16_t byte_of[COH_ALPHABET_END]; /* -1: not in the alphabet */
} coh_alphabet;

void coh_alphabet_fill(coh_alphabet *alphabet);

/* Decodes `name` to at most name.count bytes; -1 if a character is not in the alphabet. */
ptrdiff_t coh_alphabet_decode(const coh_alphabet *alphabet, coh_slice name, uint8_t *out_bytes);

#endif
