/* normalize.h - normalizes a text before it is cut into words: NFC (nfc.h), a prefix for each
 * segment, replacement of characters. A segment is the text between two added tokens; it may come
 * in parts. */
#ifndef COH_TEXT_NORMALIZE_H
#define COH_TEXT_NORMALIZE_H

#include "text/nfc.h"

/* `from` empty: `to` is put before each non-empty segment. Else each occurrence of `from`, one
 * character, becomes `to`. */
typedef struct coh_normalize_step {
    coh_byte_list from, to;
} coh_normalize_step;

/* A zeroed normalizer changes nothing. */
typedef struct coh_normalizer {
    coh_nfc *nfc; /* runs before the steps; NULL: none */
    coh_normalize_step *steps;
    size_t step_count, step_capacity;
    int is_fork; /* the steps belong to another normalizer */

    coh_byte_list tail;       /* text that composition may still change */
    coh_byte_list scratch[2]; /* between steps */
    int is_begun;             /* the segment has begun */
} coh_normalizer;

void coh_normalizer_fini(coh_normalizer *normalizer);
/* Makes a second one for another thread, in zeroed memory. The first must outlive it, and neither
 * may get more steps. Call fini on the second one even after a failure. */
coh_status coh_normalizer_fork(const coh_normalizer *normalizer, coh_normalizer *out_fork);
coh_status coh_normalizer_add_step(coh_normalizer *normalizer, coh_slice from, coh_slice to);
/* Drops the current segment. */
void coh_normalizer_restart(coh_normalizer *normalizer);
/* Appends the normalized form of the next part of a segment to `out`; the last part if `is_open` is
 * 0. `text` holds whole characters. */
coh_status coh_normalizer_append(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                                 int is_open, coh_byte_list *out);
/* Normalizes a whole text; no segment may be in progress. */
coh_status coh_normalizer_apply(coh_normalizer *normalizer, coh_slice text, coh_byte_list *out);

#endif
