/* bad_lines.h - lines of JSON that are no documents. They are named in one refusal, or left out and
 * counted by reason:
 *
 *     data.jsonl:2: no JSON at byte 7 (...): mend the line, or remove it; 3 lines of the file are
 *     bad, also 5, 9 (skip_bad leaves them out)
 *
 * If no line is good, the form is at fault rather than the lines: then nothing offers to leave them
 * out, and a long file is not read to its end.
 *
 * Threads that read files, or parts of one, count for themselves; joined in any order the counts
 * and the first line are the same. */
#ifndef COH_TEXT_BAD_LINES_H
#define COH_TEXT_BAD_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* What a line lacks. */
typedef enum coh_bad_line {
    COH_BAD_NONE,
    COH_BAD_JSON,
    COH_BAD_OBJECT,
    COH_BAD_NO_FIELD, /* of a prompt and its completion, the prompt's */
    COH_BAD_NO_COMPLETION,
    COH_BAD_FIELD, /* it is no text */
    COH_BAD_COMPLETION,
    COH_BAD_NO_CONVERSATION,
    COH_BAD_TWO_CONVERSATIONS,
    COH_BAD_MESSAGES, /* they are no list of messages */
    COH_BAD_ROLE,
    COH_BAD_CONTENT, /* it is no text */
    COH_BAD_EMPTY,   /* it is, or all parts of it are */
    COH_BAD_MEMBER,  /* text that no form writes */
    COH_BAD_ANSWER,  /* there is none that is learned */
    COH_BAD_WRITTEN, /* the template or the form refuses it */
    COH_BAD_TOKEN,   /* a row of the model for a token */
    COH_BAD_KINDS
} coh_bad_line;

/* Lines that were left out, of parts in the order of their index. */
typedef struct coh_bad_lines {
    uint64_t counts[COH_BAD_KINDS];
    size_t first_part;
    char first[COH_ERROR_TEXT_BYTES]; /* why the first one is bad; "": there is none */
    /* If `first` has no place yet: its number among the lines from this byte of its file on. */
    uint64_t first_begin, first_number;
} coh_bad_lines;

/* Adds a line of part `part`, for the reason in the current error message. Lines of a part, and
 * parts, come in their order. */
void coh_bad_lines_add(coh_bad_lines *bad, coh_bad_line why, size_t part);
void coh_bad_lines_join(coh_bad_lines *bad, const coh_bad_lines *other);
uint64_t coh_bad_lines_count(const coh_bad_lines *bad);
/* Writes '3 not JSON, 2 without the field "text"'; reasons that do not fit become ", ...".
 * `field`: the name that is asked for, or two with a comma between them; NULL: "text". */
void coh_bad_lines_describe(const coh_bad_lines *bad, const char *field, char *out_text,
                            size_t text_bytes);

/* The bad lines of one file: the numbers of the first ones. LOOKED: so many are looked for where
 * none is good. */
enum { COH_BAD_LINES_NAMED = 10, COH_BAD_LINES_LOOKED = 1000 };
typedef struct coh_bad_places {
    uint64_t count, numbers[COH_BAD_LINES_NAMED];
    int has_good; /* a line of this file or of an earlier one is good */
} coh_bad_places;

void coh_bad_places_add(coh_bad_places *places, uint64_t number);
/* Are they so many without a good one that no more are looked for? */
int coh_bad_places_are_enough(const coh_bad_places *places);
/* Fails with COH_ERR_CORRUPT: `why` of the first line, and the other places. */
coh_status coh_bad_places_refuse(const coh_bad_places *places, const char *why);

#endif
