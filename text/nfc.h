/* nfc.h - Unicode's canonical composition (UAX 15), with the tables of Unicode 9.0 as Hugging
 * Face's tokenizers has it.
 *
 * Text falls into runs: a character that nothing before it can change, then those that may combine
 * with it ("e" and an accent). A run of one character stays as it is, which is nearly all text;
 * only longer ones are decomposed, sorted and composed. Bytes that are no character are left alone
 * and begin a run. */
#ifndef COH_TEXT_NFC_H
#define COH_TEXT_NFC_H

#include "text/lists.h"

typedef struct coh_nfc coh_nfc;

coh_status coh_nfc_create(coh_nfc **out_nfc);
/* A second one for another thread, on its own. */
coh_status coh_nfc_copy(const coh_nfc *nfc, coh_nfc **out_nfc);
void coh_nfc_destroy(coh_nfc *nfc); /* accepts NULL */

/* Appends the composed form of text[0..*out_consumed) to `out`: of all of it, or, if it is open,
 * of all runs but the last. */
coh_status coh_nfc_append(coh_nfc *nfc, const uint8_t *text, size_t byte_count, int is_open,
                          coh_byte_list *out, size_t *out_consumed);

#endif
