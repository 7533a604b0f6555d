/* nfc.h - normalizes text to NFC (UAX 15) of Unicode 9.0, like Hugging Face's tokenizers.
 * Characters of later versions are unchanged.
 *
 * Text is a sequence of runs: a character that nothing before it can change, then characters that
 * may combine with it ("e" and an accent). A run of one character is unchanged, and nearly all runs
 * are. Only longer runs are decomposed, sorted and composed. Invalid bytes are unchanged and begin
 * a run. */
#ifndef COH_TEXT_NFC_H
#define COH_TEXT_NFC_H

#include "text/lists.h"

typedef struct coh_nfc coh_nfc;

coh_status coh_nfc_create(coh_nfc **out_nfc);
/* Makes an independent copy for another thread. */
coh_status coh_nfc_copy(const coh_nfc *nfc, coh_nfc **out_nfc);
void coh_nfc_destroy(coh_nfc *nfc); /* accepts NULL */

/* Appends the NFC form of text[0..*out_consumed) to `out`: of all of it, or, if it is open, of all
 * runs except the last. */
coh_status coh_nfc_append(coh_nfc *nfc, const uint8_t *text, size_t byte_count, int is_open,
                          coh_byte_list *out, size_t *out_consumed);

#endif
