/* alphabet.h - how GPT-2's files write bytes as printable characters ("Ġ" is the space): printable
 * bytes stand for themselves, the other 68 for U+0100 on, in order. */
#ifndef COH_TEXT_ALPHABET_H
#define COH_TEXT_ALPHABET_H

#include "text/lists.h"

#define COH_ALPHABET_END (256 + 68)

typedef struct coh_alphabet {
    int16_t byte_of[COH_ALPHABET_END]; /* -1: no character of it */
} coh_alphabet;

void coh_alphabet_fill(coh_alphabet *alphabet);

/* The bytes that `name` stands for, at most name.count of them; -1 if a character is none of the
 * alphabet. */
ptrdiff_t coh_alphabet_decode(const coh_alphabet *alphabet, coh_slice name, uint8_t *out_bytes);

#endif
