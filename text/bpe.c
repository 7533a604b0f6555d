/* Encoding with byte pairs. A word of n bytes takes O(n log n): neighbours that can merge wait in a
 * heap; an entry whose symbols have changed since is told by its rank and dropped. */
#include "text/bpe.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/utf8.h"

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const coh_bpe_merge *coh_bpe_find(const coh_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right);
    size_t mask = bpe->merge_slots - 1;
    /* Fibonacci hashing: ids are dense, so the product's high half spreads them well enough. */
    size_t slot = (size_t)((pair ^ (pair >> 29)) * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (bpe->merges[slot].id >= 0 && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & mask;
    return &bpe->merges[slot];
}

/* ---- one word ---- */

static void heap_push(coh_bpe *bpe, uint64_t entry)
{
    size_t at = bpe->heap_count++;
    for (size_t parent; at > 0 && bpe->heap[parent = (at - 1) / 2] > entry; at = parent)
        bpe->heap[at] = bpe->heap[parent];
    bpe->heap[at] = entry;
}

static uint64_t heap_pop(coh_bpe *bpe)
{
    uint64_t first = bpe->heap[0];
    uint64_t last = bpe->heap[--bpe->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < bpe->heap_count; at = child) {
        if (child + 1 < bpe->heap_count && bpe->heap[child + 1] < bpe->heap[child])
            child++;
        if (bpe->heap[child] >= last)
            break;
        bpe->heap[at] = bpe->heap[child];
    }
    bpe->heap[at] = last;
    return first;
}

/* Puts the pair that begins at symbol `left` on the heap, if it merges. */
static void offer_pair(coh_bpe *bpe, int32_t left)
{
    int32_t right = bpe->next[left];
    if (right < 0)
        return;
    const coh_bpe_merge *merge = coh_bpe_find(bpe, bpe->symbol[left], bpe->symbol[right]);
    if (merge->id >= 0)
        heap_push(bpe, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)left);
}

/* Merges the neighbours of one heap entry unless they are no longer what they were. */
static void merge_pair(coh_bpe *bpe, uint64_t entry)
{
    int32_t left = (int32_t)(entry & 0xffffffffu);
    if (bpe->symbol[left] < 0 || bpe->next[left] < 0)
        return;
    int32_t right = bpe->next[left];
    const coh_bpe_merge *merge = coh_bpe_find(bpe, bpe->symbol[left], bpe->symbol[right]);
    if (merge->id < 0 || (uint64_t)(uint32_t)merge->rank != entry >> 32)
        return;
    bpe->symbol[left] = merge->id;
    bpe->symbol[right] = -1;
    bpe->next[left] = bpe->next[right];
    if (bpe->next[left] >= 0)
        bpe->previous[bpe->next[left]] = left;
    offer_pair(bpe, left);
    if (bpe->previous[left] >= 0)
        offer_pair(bpe, bpe->previous[left]);
}

/* Room for a word: every pair once, and two more for each of at most byte_count - 1 merges. */
static coh_status reserve_word(coh_bpe *bpe, size_t byte_count)
{
    if (byte_count > INT32_MAX / 4)
        return coh_fail(COH_ERR_FULL,
                        "a word of %zu bytes without white space is longer than the %d that one "
                        "may have: break it up",
                        byte_count, INT32_MAX / 4);
    COH_TRY(COH_GROW(&bpe->symbol, &bpe->symbol_capacity, byte_count));
    COH_TRY(COH_GROW(&bpe->next, &bpe->next_capacity, byte_count));
    COH_TRY(COH_GROW(&bpe->previous, &bpe->previous_capacity, byte_count));
    return COH_GROW(&bpe->heap, &bpe->heap_capacity, 3 * byte_count);
}

static coh_status merge_word(coh_bpe *bpe, const uint8_t *bytes, size_t byte_count,
                             coh_id_list *list)
{
    COH_TRY(reserve_word(bpe, byte_count));
    int32_t count = (int32_t)byte_count;
    for (int32_t i = 0; i < count; i++) {
        bpe->symbol[i] = bpe->byte_id[bytes[i]];
        bpe->next[i] = i + 1 < count ? i + 1 : -1;
        bpe->previous[i] = i - 1;
    }
    bpe->heap_count = 0;
    for (int32_t i = 0; i < count; i++)
        offer_pair(bpe, i);
    while (bpe->heap_count > 0)
        merge_pair(bpe, heap_pop(bpe));
    for (int32_t i = 0; i >= 0; i = bpe->next[i])
        COH_TRY(coh_id_list_add(list, bpe->symbol[i]));
    return COH_OK;
}

static coh_status add_ids(coh_id_list *list, const int32_t *ids, size_t count)
{
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + count));
    memcpy(list->ids + list->count, ids, count * sizeof(*ids));
    list->count += count;
    return COH_OK;
}

static coh_status encode_word(coh_bpe *bpe, const uint8_t *bytes, size_t byte_count,
                              coh_id_list *list)
{
    if (byte_count == 1)
        return coh_id_list_add(list, bpe->byte_id[bytes[0]]);
    if (byte_count > COH_BPE_CACHED_BYTES)
        return merge_word(bpe, bytes, byte_count, list);

    uint64_t slot = XXH3_64bits(bytes, byte_count) % COH_BPE_CACHE_SLOTS;
    coh_bpe_cached *cached = &bpe->cache[slot];
    if (cached->byte_count == byte_count && memcmp(cached->bytes, bytes, byte_count) == 0)
        return add_ids(list, cached->ids, cached->id_count);
    bpe->word.count = 0;
    COH_TRY(merge_word(bpe, bytes, byte_count, &bpe->word));
    if (bpe->word.count <= COH_BPE_CACHED_IDS) {
        cached->byte_count = (uint8_t)byte_count;
        cached->id_count = (uint8_t)bpe->word.count;
        memcpy(cached->bytes, bytes, byte_count);
        memcpy(cached->ids, bpe->word.ids, bpe->word.count * sizeof(int32_t));
    }
    return add_ids(list, bpe->word.ids, bpe->word.count);
}

/* ---- a block of text ---- */

/* How many bytes before the end of what is there may still change their word: a word hangs on
 * COH_SPLIT_LOOKAHEAD_CHARACTERS after it, a character on at most 4 bytes, and the end of a valid
 * stretch on the 4 bytes there. */
#define UNSETTLED_BYTES (4 * (COH_SPLIT_LOOKAHEAD_CHARACTERS + 1))

static coh_status bpe_encode(void *state, const uint8_t *text, size_t byte_count, int is_last,
                             coh_id_list *list, size_t *out_consumed)
{
    coh_bpe *bpe = state;
    size_t settled = byte_count;
    if (!is_last)
        settled = byte_count > UNSETTLED_BYTES ? byte_count - UNSETTLED_BYTES : 0;
    size_t at = 0;
    while (at < settled) {
        const uint8_t *stretch = text + at;
        size_t stretch_bytes = coh_utf8_stretch(stretch, byte_count - at);
        if (stretch_bytes == 0) {
            COH_TRY(coh_id_list_add(list, bpe->byte_id[text[at++]]));
            continue;
        }
        size_t begin = 0, end = 0;
        while (begin < stretch_bytes) {
            COH_TRY(coh_split_next(bpe->split, stretch, stretch_bytes, begin, &end));
            if (at + end > settled)
                break;
            COH_TRY(encode_word(bpe, stretch + begin, end - begin, list));
            begin = end;
        }
        at += begin;
        if (begin < stretch_bytes)
            break;
    }
    *out_consumed = at;
    return COH_OK;
}

static const uint8_t *bpe_token(const void *state, int32_t id, size_t *out_bytes)
{
    const coh_bpe *bpe = state;
    *out_bytes = bpe->token_begin[id + 1] - bpe->token_begin[id];
    return bpe->token_bytes + bpe->token_begin[id];
}

static void bpe_destroy(void *state)
{
    coh_bpe *bpe = state;
    if (!bpe)
        return;
    coh_split_destroy(bpe->split);
    coh_free(bpe->word.ids);
    coh_free(bpe->heap);
    coh_free(bpe->previous);
    coh_free(bpe->next);
    coh_free(bpe->symbol);
    coh_free(bpe->cache);
    coh_free(bpe->merges);
    coh_free(bpe->token_begin);
    coh_free(bpe->token_bytes);
    coh_free(bpe);
}

static const coh_tokenizer_ops bpe_ops = { bpe_encode, bpe_token, bpe_destroy };

coh_status coh_bpe_open(const char *folder, coh_tokenizer *tokenizer)
{
    coh_bpe *bpe;
    coh_status status;
    COH_TRY(COH_ALLOC(1, &bpe));
    COH_TRY_GOTO(status, coh_bpe_read(folder, bpe), done);
    COH_TRY_GOTO(status, COH_ALLOC(COH_BPE_CACHE_SLOTS, &bpe->cache), done);
    COH_TRY_GOTO(status, coh_split_create(&bpe->split), done);
    *tokenizer = (coh_tokenizer){ .ops = &bpe_ops,
                                  .state = bpe,
                                  .vocabulary = bpe->vocabulary,
                                  .end_of_text = bpe->end_of_text,
                                  .identity = bpe->identity };
done:
    if (status != COH_OK)
        bpe_destroy(bpe);
    return status;
}
