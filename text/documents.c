/* Writes documents to token files, packed or in windows. The one idea: recorded calls are ids and
 * flags as bytes, so that threads can prepare documents in any order and one writes them in order.
 * Next: documents.h for the layout, token_writer.c for the files. */
#include "text/documents.h"

#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* "validate": separate from all other random streams. */
#define SPLIT_STREAM 0x65746164696c6176u

#define IDS_PER_CALL 65536u

/* Number of ids that hold a document's hash in a record. */
enum { HASH_IDS = sizeof(uint64_t) / sizeof(int32_t) };

static coh_status window_init(coh_window_ids *window, size_t tokens)
{
    COH_TRY(COH_ALLOC(tokens + 1, &window->ids));
    return COH_ALLOC(tokens + 1, &window->marks);
}

static void window_fini(coh_window_ids *window)
{
    coh_free(window->ids);
    coh_free(window->marks);
}

coh_status coh_documents_init(coh_documents *documents, size_t window)
{
    documents->window = window;
    return window == 0 ? COH_OK : window_init(&documents->now, window);
}

void coh_documents_fini(coh_documents *documents)
{
    for (int writer = 0; writer < 2; writer++)
        for (int i = 0; i < COH_OPEN_WINDOWS; i++)
            window_fini(&documents->open[writer][i]);
    window_fini(&documents->now);
    coh_free(documents->record.bytes);
}

/* ---- recording ---- */

typedef enum call_kind {
    CALL_BEGIN,
    CALL_ADD,
    CALL_ADD_MARKED, /* followed by which ids count, padded to whole ids */
    CALL_END,
} call_kind;

typedef struct call {
    uint32_t kind, count;
} call;

static size_t marks_bytes(size_t count)
{
    return (count + sizeof(int32_t) - 1) / sizeof(int32_t) * sizeof(int32_t);
}

static coh_status record(coh_documents *d, call_kind kind, const int32_t *ids,
                         const uint8_t *counts, size_t count)
{
    static const uint8_t nothing[sizeof(int32_t)];
    const call made = { (uint32_t)kind, (uint32_t)count };
    d->record.count = 0;
    COH_TRY(coh_byte_list_add(&d->record, &made, sizeof(made)));
    COH_TRY(coh_byte_list_add(&d->record, ids, count * sizeof(*ids)));
    if (counts) {
        COH_TRY(coh_byte_list_add(&d->record, counts, count));
        COH_TRY(coh_byte_list_add(&d->record, nothing, marks_bytes(count) - count));
    }
    return coh_turn_put(d->turn, d->record.bytes, d->record.count);
}

/* Splits long pieces into several calls, so that one put does not hold a whole file. */
static coh_status record_add(coh_documents *d, const int32_t *ids, const uint8_t *counts,
                             size_t count)
{
    for (size_t at = 0, some; at < count; at += some) {
        some = count - at < IDS_PER_CALL ? count - at : IDS_PER_CALL;
        COH_TRY(record(d, counts ? CALL_ADD_MARKED : CALL_ADD, ids + at,
                       counts ? counts + at : NULL, some));
    }
    return COH_OK;
}

coh_status coh_documents_replay(coh_documents *documents, const uint8_t *bytes, size_t byte_count)
{
    for (size_t at = 0; at < byte_count;) {
        call made;
        uint64_t hash;
        memcpy(&made, bytes + at, sizeof(made));
        at += sizeof(made);
        const int32_t *ids = (const int32_t *)(const void *)(bytes + at);
        at += made.count * sizeof(*ids);
        const uint8_t *counts = made.kind == CALL_ADD_MARKED ? bytes + at : NULL;
        if (counts)
            at += marks_bytes(made.count);
        switch ((call_kind)made.kind) {
        case CALL_BEGIN:
            memcpy(&hash, ids, sizeof(hash));
            COH_TRY(coh_documents_begin(documents, hash));
            break;
        case CALL_ADD:
        case CALL_ADD_MARKED:
            COH_TRY(coh_documents_add(documents, ids, counts, made.count));
            break;
        case CALL_END:
            COH_TRY(coh_documents_end(documents));
            break;
        }
    }
    return COH_OK;
}

/* ---- writing ---- */

/* For a share, depends only on the document's bytes and the seed: adding or removing data moves no
 * other document, and copies of a document stay together. */
static int is_held_out(const coh_documents *d, uint64_t number, uint64_t hash)
{
    if (!d->writers[1])
        return 0;
    if (d->is_cut)
        return number == 1;
    if (d->held_out > 1)
        return number % (uint64_t)d->held_out == (uint64_t)d->held_out - 1;
    return coh_rng_uniform(d->seed, SPLIT_STREAM, hash) < d->validation_split;
}

coh_status coh_documents_begin(coh_documents *documents, uint64_t hash)
{
    int32_t halves[HASH_IDS];
    memcpy(halves, &hash, sizeof(hash));
    if (documents->turn)
        return record(documents, CALL_BEGIN, halves, NULL, HASH_IDS);
    documents->writer = is_held_out(documents, documents->count++, hash);
    documents->counts[documents->writer]++;
    documents->now.filled = 0;
    documents->id_count = 0;
    return COH_OK;
}

static int has_target(const coh_window_ids *window)
{
    for (size_t i = 1; i < window->filled; i++)
        if (window->marks[i] & COH_TOKEN_COUNTS)
            return 1;
    return 0;
}

/* Writes the window, padded, and empties it. */
static coh_status write_window(coh_documents *d, coh_window_ids *window, int writer)
{
    const int counts = has_target(window);
    for (; window->filled <= d->window; window->filled++) {
        window->ids[window->filled] = d->padding;
        window->marks[window->filled] = d->is_separate ? COH_TOKEN_BEGINS : 0;
    }
    window->filled = 0;
    if (counts)
        return coh_token_writer_add(d->writers[writer], window->ids, window->marks, d->window + 1);
    d->empty_window_count++;
    return COH_OK;
}

/* ---- fitting ---- */

/* The fullest open window with room for `count` ids; NULL: there is none. */
static coh_window_ids *fullest_with_room(coh_documents *d, size_t count)
{
    coh_window_ids *best = NULL;
    for (int i = 0; i < d->open_count[d->writer]; i++) {
        coh_window_ids *window = &d->open[d->writer][i];
        if (window->filled + count <= d->window + 1 && (!best || window->filled > best->filled))
            best = window;
    }
    return best;
}

static int open_most(const coh_documents *d)
{
    const size_t bytes = (d->window + 1) * (sizeof(int32_t) + 1),
                 most = COH_OPEN_WINDOW_BYTES / bytes;
    return most >= COH_OPEN_WINDOWS ? COH_OPEN_WINDOWS : most > 1 ? (int)most : 1;
}

/* Finds an empty window: a new one, or the fullest after it is written. */
static coh_status make_room(coh_documents *d, coh_window_ids **out_window)
{
    if (d->open_count[d->writer] == open_most(d)) {
        *out_window = fullest_with_room(d, 0);
        return write_window(d, *out_window, d->writer);
    }
    *out_window = &d->open[d->writer][d->open_count[d->writer]++];
    return window_init(*out_window, d->window);
}

/* Moves the rest of the document to an open window. */
static coh_status place(coh_documents *d)
{
    const coh_window_ids *now = &d->now;
    if (!has_target(now)) {
        d->empty_window_count++;
        return COH_OK;
    }
    coh_window_ids *window = fullest_with_room(d, now->filled);
    if (!window)
        COH_TRY(make_room(d, &window));
    memcpy(window->ids + window->filled, now->ids, now->filled * sizeof(*now->ids));
    memcpy(window->marks + window->filled, now->marks, now->filled);
    window->marks[window->filled] |= d->is_separate ? COH_TOKEN_BEGINS : 0;
    window->filled += now->filled;
    return COH_OK;
}

coh_status coh_documents_finish(coh_documents *documents)
{
    coh_documents *d = documents;
    for (int writer = 0; writer < 2; writer++)
        for (int i = 0; i < d->open_count[writer]; i++)
            if (d->open[writer][i].filled > 0)
                COH_TRY(write_window(d, &d->open[writer][i], writer));
    return COH_OK;
}

/* ---- documents ---- */

coh_status coh_documents_add(coh_documents *documents, const int32_t *ids, const uint8_t *counts,
                             size_t count)
{
    coh_documents *d = documents;
    coh_window_ids *now = &d->now;
    if (d->turn)
        return record_add(d, ids, counts, count);
    d->id_count += count;
    if (d->window == 0)
        return coh_token_writer_add(d->writers[d->writer], ids, counts, count);
    for (size_t i = 0; i < count; i++) {
        if (now->filled == d->window + 1) { /* the last target is the next window's first token */
            COH_TRY(write_window(d, now, d->writer));
            now->ids[0] = now->ids[d->window];
            now->filled = 1;
        }
        now->ids[now->filled] = ids[i];
        now->marks[now->filled] = now->filled > 0 && (!counts || counts[i]) ? COH_TOKEN_COUNTS : 0;
        now->filled++;
    }
    return COH_OK;
}

coh_status coh_documents_end(coh_documents *documents)
{
    coh_documents *d = documents;
    if (d->turn)
        return record(d, CALL_END, NULL, NULL, 0);
    d->cut_count += d->most_ids > 0 && d->id_count > d->most_ids;
    d->longest = d->id_count > d->longest ? d->id_count : d->longest;
    if (d->now.filled < 2) /* packed, or no target is left */
        return COH_OK;
    return d->is_fitted ? place(d) : write_window(d, &d->now, d->writer);
}
