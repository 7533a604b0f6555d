/* added.h - finds a tokenizer's added tokens ("<|im_start|>") in a text, before any other step cuts
 * it. Finds the leftmost match, and of those the longest.
 *
 *     a text <tok>  more      rstrip: white space behind a token goes with it; lstrip: before it
 *           |.....|           single_word: only where no letter or digit touches it
 *
 * A text may come in parts. A match that more text could change is not reported yet. */
#ifndef COH_TEXT_ADDED_H
#define COH_TEXT_ADDED_H

#include "text/lists.h"
#include "text/split.h"

typedef struct coh_added_kind {
    int32_t id;
    int is_single_word, is_left_stripped, is_right_stripped;
} coh_added_kind;

typedef struct coh_added coh_added;

/* Accepts NULL. */
void coh_added_destroy(coh_added *added);
/* Makes a second one for another thread, over the same tokens. The first must outlive it, and
 * neither may get more tokens. NULL gives NULL. */
coh_status coh_added_fork(const coh_added *added, coh_added **out_added);
/* Adds a token of at least one byte; *added NULL: the first one. Fails: COH_ERR_CORRUPT if it was
 * added before, with a message that begins with `where`. */
coh_status coh_added_add(coh_added **added, const char *where, coh_slice token,
                         coh_added_kind kind);

/* Text to search for tokens, from `begin` on. */
typedef struct coh_added_search {
    const uint8_t *text;
    size_t byte_count, begin;
    int is_open;       /* more text follows; this part ends with a whole character */
    int is_after_word; /* at begin 0: the character before `text` is a letter or digit */
} coh_added_search;

typedef struct coh_added_match {
    int is_found;
    size_t begin, end; /* including stripped white space */
    int32_t id;
    size_t settled; /* if none is found: no token begins before here, whatever follows */
} coh_added_match;

/* `added` may be NULL: nothing is found. */
coh_status coh_added_find(const coh_added *added, const coh_added_search *search,
                          coh_added_match *out_match);
/* Is the last character of text[0..byte_count) a letter or digit? Sets 0 if no token is
 * single_word. */
coh_status coh_added_ends_with_word(const coh_added *added, const uint8_t *text, size_t byte_count,
                                    int *out_is_word);

#endif
