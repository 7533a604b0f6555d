/* split.h - cuts valid UTF-8 into the pieces that GPT-2's merges stay within.
 *
 * The pattern is that of Radford et al. 2019: contractions, then letters, digits or other signs,
 * each with one space before it, then white space. White space here is Unicode's White_Space
 * written out, since what \s stands for differs between regular expression libraries. */
#ifndef COH_TEXT_SPLIT_H
#define COH_TEXT_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

/* A piece depends on its own bytes and two characters after it at most: "'" before "re", and a run
 * of white space, whose last one goes to the word that follows. */
#define COH_SPLIT_LOOKAHEAD_CHARACTERS 2

typedef struct coh_split coh_split;

coh_status coh_split_create(coh_split **out_split);
void coh_split_destroy(coh_split *split); /* accepts NULL */

/* The end of the piece that begins at `begin` < byte_count; `text` is valid UTF-8. Every piece has
 * at least one character. */
coh_status coh_split_next(coh_split *split, const uint8_t *text, size_t byte_count, size_t begin,
                          size_t *out_end);

#endif
