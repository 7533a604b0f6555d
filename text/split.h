/* split.h - cuts valid UTF-8 into the pieces that merges stay within.
 *
 * A pattern divides a text into matches and the gaps between them; the behaviour makes pieces of
 * them ("the-final--countdown" at "-", as tokenizers' documentation has it):
 *
 *   removed          the  final  countdown
 *   isolated         the  -  final  -  -  countdown
 *   with previous    the-  final-  -  countdown
 *   with next        the  -final  -  -countdown
 *   contiguous       the  -  final  --  countdown
 *
 * A text may come in parts: while it is open, only what no further character can change is a
 * piece (PCRE2 tells where it looked beyond the end). */
#ifndef COH_TEXT_SPLIT_H
#define COH_TEXT_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

typedef enum coh_split_behavior {
    COH_SPLIT_REMOVED,
    COH_SPLIT_ISOLATED,
    COH_SPLIT_WITH_PREVIOUS,
    COH_SPLIT_WITH_NEXT,
    COH_SPLIT_CONTIGUOUS,
} coh_split_behavior;

/* GPT-2's pattern (Radford et al. 2019) in Oniguruma's spelling: contractions, then letters, digits
 * or other signs, each with one space before it, then white space. */
extern const char coh_split_gpt2[];

typedef struct coh_split coh_split;

/* `pattern` is PCRE2's (pattern.h), `pattern_bytes` long. `is_inverted`: gaps are the matches.
 * Fails: COH_ERR_CORRUPT (no pattern, or one that matches nothing at all), beginning with
 * `where`. */
coh_status coh_split_create(const char *where, const char *pattern, size_t pattern_bytes,
                            coh_split_behavior behavior, int is_inverted, coh_split **out_split);
void coh_split_destroy(coh_split *split); /* accepts NULL */
/* A second one for another thread: it shares the compiled pattern, so the first must outlive it. */
coh_status coh_split_fork(const coh_split *split, coh_split **out_split);

/* Where cutting stands: zero it, with `at` at the begin, for each text. */
typedef struct coh_split_cursor {
    size_t at;                     /* the end of the last piece */
    size_t match_begin, match_end; /* a match found behind it and not used up; equal: none */
    int has_no_more;               /* no match lies behind `at`: the rest is a gap */
} coh_split_cursor;

typedef struct coh_piece {
    size_t begin, end;
    int is_removed;
} coh_piece;

/* The next piece of text[0..byte_count), from the cursor on. *out_found is 0 at the end, or where
 * an open text does not settle it. A piece has at least one character. */
coh_status coh_split_next(coh_split *split, const uint8_t *text, size_t byte_count, int is_open,
                          coh_split_cursor *cursor, coh_piece *out_piece, int *out_found);

/* Whether the whole text is one match. */
coh_status coh_split_is_match(coh_split *split, const uint8_t *text, size_t byte_count,
                              int *out_is_match);

#endif
