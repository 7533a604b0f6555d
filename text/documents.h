/* documents.h - documents, one after the other, into a token file and, some of them, into a second
 * one for validation.
 *
 *     begin -> add... -> end -> begin ...
 *
 * A document may come in as many pieces as it likes; of an aligned file only the window under way
 * is in memory:
 *
 *     document of 7 ids, windows of 3 tokens (a window takes 4 ids: its tokens and the last target)
 *
 *         0 1 2 3 | 3 4 5 6        each id but the first is a target once
 *         - + + +   - + + +        the first id of a window never is
 *
 * What is left of the last window is padded with ids that do not count. A window in which nothing
 * counts is left out.
 *
 * Threads that make documents of several files at a time (token_folder.c) each record theirs: the
 * calls become bytes of a part (turns.h), and are made again, in order, by coh_documents_replay. */
#ifndef COH_TEXT_DOCUMENTS_H
#define COH_TEXT_DOCUMENTS_H

#include "text/lists.h"
#include "text/token_file.h"
#include "text/turns.h"

typedef struct coh_documents {
    coh_turn *turn;       /* documents are recorded there, and nothing below is used; NULL: not */
    coh_byte_list record; /* room for one call */
    coh_token_writer *writers[2]; /* for training, for validation (may be NULL) */
    /* Which documents are for validation: coh_token_build_options. */
    int32_t held_out;
    double validation_split;
    uint64_t seed;
    size_t window; /* tokens; 0: packed */
    int32_t padding;
    uint64_t count;              /* documents begun */
    uint64_t counts[2];          /* by writer */
    uint64_t empty_window_count; /* left out */

    /* The document under way. */
    int writer;
    int32_t *ids;       /* window + 1 */
    uint8_t *is_target; /* of each */
    size_t filled;
} coh_documents;

/* Takes room for a window. The rest of the struct is the caller's to set. Fails: COH_ERR_MEMORY. */
coh_status coh_documents_init(coh_documents *documents, size_t window);
void coh_documents_fini(coh_documents *documents); /* accepts a zeroed struct */

/* Decides which file the next document is for. `hash`: of its bytes. */
coh_status coh_documents_begin(coh_documents *documents, uint64_t hash);
/* `counts`: 1 for each id that counts as a target; NULL: all do. */
coh_status coh_documents_add(coh_documents *documents, const int32_t *ids, const uint8_t *counts,
                             size_t count);
coh_status coh_documents_end(coh_documents *documents);

/* Makes recorded calls, whole ones. */
coh_status coh_documents_replay(coh_documents *documents, const uint8_t *bytes, size_t byte_count);

#endif
