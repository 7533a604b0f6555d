/* split.h - cuts valid UTF-8 into pieces; merges never cross their boundaries.
 *
 * A pattern divides a text into matches and gaps between them; the behaviour turns these into
 * pieces ("the-final--countdown" at "-", from the documentation of tokenizers):
 *
 *   removed          the  final  countdown
 *   isolated         the  -  final  -  -  countdown
 *   with previous    the-  final-  -  countdown
 *   with next        the  -final  -  -countdown
 *   contiguous       the  -  final  --  countdown
 *
 * A text may come in parts: while it is open, only a piece that no further character can change is
 * returned (PCRE2 reports where it reached the end). */
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

/* GPT-2's pattern (Radford et al. 2019) in Oniguruma's spelling: contractions; letters, digits or
 * other signs, each with at most one space before; white space. */
extern const char coh_split_gpt2[];

typedef struct coh_split coh_split;

/* `pattern` is PCRE2's (pattern.h), `pattern_bytes` long. `is_inverted`: gaps count as matches and
 * matches as gaps. Fails: COH_ERR_CORRUPT (invalid, or matches the empty text), with a message that
 * begins with `where`. */
coh_status coh_split_create(const char *where, const char *pattern, size_t pattern_bytes,
                            coh_split_behavior behavior, int is_inverted, coh_split **out_split);
void coh_split_destroy(coh_split *split); /* accepts NULL */
/* Makes a second one for another thread. They share the compiled pattern, so the first must outlive
 * it. */
coh_status coh_split_fork(const coh_split *split, coh_split **out_split);

/* Position of cutting in a text. For each text, zero it and set `at` to the start. */
typedef struct coh_split_cursor {
    size_t at;                     /* the end of the last piece */
    size_t match_begin, match_end; /* a match found after `at` and not used yet; equal: none */
    int has_no_more;               /* no match follows `at`: the rest is a gap */
} coh_split_cursor;

typedef struct coh_piece {
    size_t begin, end;
    int is_removed;
} coh_piece;

/* The next piece of text[0..byte_count) from the cursor on. *out_found is 0 at the end, or if an
 * open text does not determine the piece yet. A piece has at least one character. */
coh_status coh_split_next(coh_split *split, const uint8_t *text, size_t byte_count, int is_open,
                          coh_split_cursor *cursor, coh_piece *out_piece, int *out_found);

/* Is the whole text one match? */
coh_status coh_split_is_match(coh_split *split, const uint8_t *text, size_t byte_count,
                              int *out_is_match);

#endif
