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

coh_status coh_documents_init(coh_documents *documents, size_t window)
{
    documents->window = window;
    if (window == 0)
        return COH_OK;
    COH_TRY(COH_ALLOC(window + 1, &documents->ids));
    return COH_ALLOC(window + 1, &documents->is_target);
}

void coh_documents_fini(coh_documents *documents)
{
    coh_free(documents->ids);
    coh_free(documents->is_target);
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
    documents->filled = 0;
    return COH_OK;
}

static coh_status write_window(coh_documents *d)
{
    int counts = 0;
    for (size_t i = 1; i <= d->window; i++)
        counts |= d->is_target[i];
    if (!counts) {
        d->empty_window_count++;
        return COH_OK;
    }
    return coh_token_writer_add(d->writers[d->writer], d->ids, d->is_target, d->window + 1);
}

coh_status coh_documents_add(coh_documents *documents, const int32_t *ids, const uint8_t *counts,
                             size_t count)
{
    coh_documents *d = documents;
    if (d->turn)
        return record_add(d, ids, counts, count);
    if (d->window == 0)
        return coh_token_writer_add(d->writers[d->writer], ids, counts, count);
    for (size_t i = 0; i < count; i++) {
        if (d->filled == d->window + 1) { /* the last target is the next window's first token */
            COH_TRY(write_window(d));
            d->ids[0] = d->ids[d->window];
            d->filled = 1;
        }
        d->ids[d->filled] = ids[i];
        d->is_target[d->filled] = d->filled > 0 && (!counts || counts[i]);
        d->filled++;
    }
    return COH_OK;
}

coh_status coh_documents_end(coh_documents *documents)
{
    coh_documents *d = documents;
    if (d->turn)
        return record(d, CALL_END, NULL, NULL, 0);
    if (d->filled < 2) /* packed, or no target is left */
        return COH_OK;
    for (; d->filled <= d->window; d->filled++) {
        d->ids[d->filled] = d->padding;
        d->is_target[d->filled] = 0;
    }
    return write_window(d);
}
