/* normalize.h - what a tokenizer does to the characters of a text before it looks at words:
 * composition (nfc.h), something put before a segment, characters replaced by others. A segment is
 * the text between two added tokens; it may come in parts. */
#ifndef COH_TEXT_NORMALIZE_H
#define COH_TEXT_NORMALIZE_H

#include "text/nfc.h"

/* `from` empty: `to` is put before a segment that is not empty. Else each `from`, one character,
 * becomes `to`. */
typedef struct coh_normalize_step {
    coh_byte_list from, to;
} coh_normalize_step;

/* Zeroed, it changes nothing. */
typedef struct coh_normalizer {
    coh_nfc *nfc; /* NULL: none; else the first step */
    coh_normalize_step *steps;
    size_t step_count, step_capacity;
    int is_fork; /* the steps are another's */

    coh_byte_list tail;       /* what composition may still change */
    coh_byte_list scratch[2]; /* between steps */
    int is_begun;             /* the segment has begun */
} coh_normalizer;

void coh_normalizer_fini(coh_normalizer *normalizer);
/* A second one for another thread, in zeroed memory: the first must outlive it, and no steps are
 * added to either. On failure the second is to be finished too. */
coh_status coh_normalizer_fork(const coh_normalizer *normalizer, coh_normalizer *out_fork);
coh_status coh_normalizer_add_step(coh_normalizer *normalizer, coh_slice from, coh_slice to);
/* Forgets the segment at hand. */
void coh_normalizer_restart(coh_normalizer *normalizer);
/* Appends the normalized form of the next part of a segment to `out`; the last part if it is not
 * open. `text` holds whole characters. */
coh_status coh_normalizer_append(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                                 int is_open, coh_byte_list *out);
/* The normalized form of a whole text; no segment may be at hand. */
coh_status coh_normalizer_apply(coh_normalizer *normalizer, coh_slice text, coh_byte_list *out);

#endif
