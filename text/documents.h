/* documents.h - writes documents one after the other to a token file, and a share of them to a
 * second file for validation.
 *
 *     begin -> add... -> end -> begin ...
 *
 * A document may be added in any number of pieces. For an aligned file only the current window is
 * in memory:
 *
 *     document of 7 ids, windows of 3 tokens (a window takes 4 ids: its tokens and the last target)
 *
 *         0 1 2 3 | 3 4 5 6        each id but the first is a target once
 *         - + + +   - + + +        the first id of a window never is
 *
 * The rest of the last window is padded with ids that do not count. A window without counted ids is
 * left out.
 *
 * For a fitted file the last window of a document, its only one if it is short, goes to an open
 * window that others share: the fullest that has room for it (best fit). If none has and no more
 * may be open, the fullest is written, and so are all at the end.
 *
 *     windows of 6 tokens         0 1 2 3 | 0 1 2     the first id of a document never is a target
 *     documents of 4 and 3 ids    - + + + | - + +
 *
 * A separate file also marks the first id of each document in its window, and every id of padding,
 * so that no token need see another document.
 *
 * Threads that process several files at a time (token_build.c) record their calls as bytes of a
 * part (turns.h). coh_documents_replay makes the calls again in order. */
#ifndef COH_TEXT_DOCUMENTS_H
#define COH_TEXT_DOCUMENTS_H

#include "text/lists.h"
#include "text/token_file.h"
#include "text/turns.h"

/* The most open windows of a file, and bytes of all of them: of long windows there are fewer. */
enum { COH_OPEN_WINDOWS = 64, COH_OPEN_WINDOW_BYTES = 32 << 20 };

/* Ids and their marks. */
typedef struct coh_window_ids {
    int32_t *ids;
    uint8_t *marks; /* COH_TOKEN_COUNTS, COH_TOKEN_BEGINS */
    size_t filled;
} coh_window_ids;

typedef struct coh_documents {
    coh_turn *turn;       /* if set, calls are recorded there and the fields below are unused */
    coh_byte_list record; /* room for one call */
    coh_token_writer *writers[2]; /* training, validation (may be NULL) */
    /* Selection of documents for validation: see coh_token_build_options. */
    int32_t held_out;
    double validation_split;
    uint64_t seed;
    int is_cut;      /* there are two documents, the parts of one text: the second is held out */
    size_t window;   /* tokens; 0: packed */
    int is_fitted;   /* with a window: documents share one */
    int is_separate; /* fitted: the file marks where documents begin */
    int32_t padding;
    uint64_t count;              /* documents begun */
    uint64_t counts[2];          /* by writer */
    uint64_t empty_window_count; /* windows left out */
    uint64_t most_ids;           /* of a document that a window holds as a whole; 0: any */
    uint64_t cut_count;          /* documents with more */
    uint64_t longest;            /* ids of the longest document */

    /* The current document. */
    int writer;
    coh_window_ids now; /* window + 1 ids */
    uint64_t id_count;  /* added so far */

    /* Fitted: by writer. */
    coh_window_ids open[2][COH_OPEN_WINDOWS];
    int open_count[2];
} coh_documents;

/* Allocates room for a window. The caller sets the rest of the struct. Fails: COH_ERR_MEMORY. */
coh_status coh_documents_init(coh_documents *documents, size_t window);
void coh_documents_fini(coh_documents *documents); /* accepts a zeroed struct */

/* Begins a document and selects its file. `hash` is of its bytes. */
coh_status coh_documents_begin(coh_documents *documents, uint64_t hash);
/* `counts`: 1 for each id that counts as a target; NULL: all count. */
coh_status coh_documents_add(coh_documents *documents, const int32_t *ids, const uint8_t *counts,
                             size_t count);
coh_status coh_documents_end(coh_documents *documents);
/* Writes the open windows of a fitted file: call it after the last document. */
coh_status coh_documents_finish(coh_documents *documents);

/* Makes recorded calls; `bytes` holds whole calls. */
coh_status coh_documents_replay(coh_documents *documents, const uint8_t *bytes, size_t byte_count);

#endif
