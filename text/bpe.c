/* Encodes with byte pairs. A word of n bytes takes O(n log n): pairs that can merge are in a heap;
 * an entry whose symbols have changed since is recognised by its rank and dropped. Next: bpe.h for
 * the rules, pipeline.c for the caller. */
#include "text/bpe.h"

#include <limits.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "text/characters.h"

coh_bpe_entry *coh_bpe_find(const coh_bpe_map *map, uint64_t key)
{
    size_t mask = map->slots - 1;
    /* Fibonacci hashing: ids are dense, so the product's high half spreads them well enough. */
    size_t slot = (size_t)((key ^ (key >> 29)) * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (map->entries[slot].id >= 0 && map->entries[slot].key != key)
        slot = (slot + 1) & mask;
    return &map->entries[slot];
}

/* ---- creation ---- */

static coh_status grow(coh_bpe_map *map)
{
    coh_bpe_map larger = { .slots = map->slots ? 2 * map->slots : 16, .count = map->count };
    COH_TRY(COH_ALLOC(larger.slots, &larger.entries));
    for (size_t i = 0; i < larger.slots; i++)
        larger.entries[i].id = -1;
    for (size_t i = 0; i < map->slots; i++)
        if (map->entries[i].id >= 0)
            *coh_bpe_find(&larger, map->entries[i].key) = map->entries[i];
    coh_free(map->entries);
    *map = larger;
    return COH_OK;
}

coh_status coh_bpe_create(coh_bpe **out_bpe)
{
    COH_TRY(COH_ALLOC(1, out_bpe));
    COH_TRY(grow(&(*out_bpe)->merges));
    return grow(&(*out_bpe)->characters);
}

coh_status coh_bpe_add(coh_bpe_map *map, uint64_t key, int32_t rank, int32_t id)
{
    if (map->count + 1 > map->slots / 2)
        COH_TRY(grow(map));
    coh_bpe_entry *entry = coh_bpe_find(map, key);
    if (entry->id >= 0)
        return COH_OK;
    *entry = (coh_bpe_entry){ .key = key, .rank = rank, .id = id };
    map->count++;
    return COH_OK;
}

/* U+2581, the mark for a space. */
static int is_space_at(const uint8_t *text)
{
    return text[0] == 0xe2 && text[1] == 0x96 && text[2] == 0x81;
}

/* The position of the first space mark after another character; byte_count: none. */
static size_t find_cut(const uint8_t *text, size_t byte_count)
{
    size_t at = 0;
    while (at + 3 <= byte_count && is_space_at(text + at))
        at += 3;
    while (at + 3 <= byte_count) {
        const uint8_t *mark = memchr(text + at, 0xe2, byte_count - 2 - at);
        if (!mark)
            return byte_count;
        at = (size_t)(mark - text);
        if (is_space_at(mark))
            return at;
        at++;
    }
    return byte_count;
}

void coh_bpe_find_cuts(coh_bpe *bpe, const coh_token_table *tokens)
{
    bpe->is_cut_at_spaces = !bpe->is_byte_level && !bpe->whole_words.slots;
    for (size_t i = 0; i < bpe->merges.slots && bpe->is_cut_at_spaces; i++) {
        if (bpe->merges.entries[i].id < 0)
            continue;
        coh_slice token = coh_token_table_at(tokens, bpe->merges.entries[i].id);
        bpe->is_cut_at_spaces = find_cut((const uint8_t *)token.bytes, token.count) == token.count;
    }
}

coh_status coh_bpe_finish(coh_bpe *bpe)
{
    return COH_ALLOC(COH_BPE_CACHE_SLOTS, &bpe->cache);
}

void coh_bpe_destroy(coh_bpe *bpe)
{
    if (!bpe)
        return;
    coh_free(bpe->word.ids);
    coh_free(bpe->heap);
    coh_free(bpe->previous);
    coh_free(bpe->next);
    coh_free(bpe->symbol);
    coh_free(bpe->cache);
    if (!bpe->is_fork) {
        coh_free(bpe->unnamed);
        coh_token_table_fini(&bpe->whole_words);
        coh_free(bpe->characters.entries);
        coh_free(bpe->merges.entries);
    }
    coh_free(bpe);
}

coh_status coh_bpe_fork(const coh_bpe *bpe, coh_bpe **out_bpe)
{
    *out_bpe = NULL;
    coh_bpe *fork;
    COH_TRY(COH_ALLOC(1, &fork));
    *fork = *bpe;
    fork->is_fork = 1;
    fork->symbol = fork->next = fork->previous = NULL;
    fork->heap = NULL;
    fork->symbol_capacity = fork->next_capacity = fork->previous_capacity = 0;
    fork->heap_capacity = fork->heap_count = 0;
    fork->word = (coh_id_list){ 0 };
    fork->cache = NULL;
    coh_status status = coh_bpe_finish(fork);
    if (status != COH_OK)
        coh_bpe_destroy(fork);
    else
        *out_bpe = fork;
    return status;
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

/* Pushes the pair that begins at symbol `left` onto the heap, if it has a merge. */
static void offer_pair(coh_bpe *bpe, int32_t left)
{
    int32_t right = bpe->next[left];
    if (right < 0)
        return;
    const coh_bpe_entry *merge =
        coh_bpe_find(&bpe->merges, coh_bpe_pair(bpe->symbol[left], bpe->symbol[right]));
    if (merge->id >= 0)
        heap_push(bpe, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)left);
}

/* Merges the pair of one heap entry unless its symbols have changed. A different pair of the same
 * rank may be there by then (SentencePiece scores may tie); it is merged, since it has the same
 * priority. */
static void merge_pair(coh_bpe *bpe, uint64_t entry)
{
    int32_t left = (int32_t)(entry & 0xffffffffu);
    if (bpe->symbol[left] < 0 || bpe->next[left] < 0)
        return;
    int32_t right = bpe->next[left];
    const coh_bpe_entry *merge =
        coh_bpe_find(&bpe->merges, coh_bpe_pair(bpe->symbol[left], bpe->symbol[right]));
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

/* Reserves memory for a word: each pair once, and two more for each of at most byte_count - 1
 * merges. */
static coh_status reserve_word(coh_bpe *bpe, size_t byte_count)
{
    if (byte_count > INT32_MAX / 4)
        return coh_fail(COH_ERR_FULL,
                        "a word of %zu bytes is longer than the %d that one may have: break it up",
                        byte_count, INT32_MAX / 4);
    COH_TRY(COH_GROW(&bpe->symbol, &bpe->symbol_capacity, byte_count));
    COH_TRY(COH_GROW(&bpe->next, &bpe->next_capacity, byte_count));
    COH_TRY(COH_GROW(&bpe->previous, &bpe->previous_capacity, byte_count));
    return COH_GROW(&bpe->heap, &bpe->heap_capacity, 3 * byte_count);
}

/* Fills in the initial symbols of a word and returns their number. */
static int32_t first_symbols(coh_bpe *bpe, const uint8_t *bytes, size_t byte_count)
{
    int32_t count = 0;
    if (bpe->is_byte_level) {
        for (size_t i = 0; i < byte_count; i++)
            bpe->symbol[count++] = bpe->byte_id[bytes[i]];
        return count;
    }
    for (size_t at = 0, length; at < byte_count; at += length) {
        length = coh_utf8_character(bytes + at, byte_count - at);
        int32_t id = -1;
        if (length)
            id = coh_bpe_find(&bpe->characters, coh_utf8_value(bytes + at, length))->id;
        length += !length;
        if (id >= 0)
            bpe->symbol[count++] = id;
        for (size_t i = 0; id < 0 && i < length; i++)
            bpe->symbol[count++] = bpe->byte_id[bytes[at + i]];
    }
    return count;
}

/* Appends a symbol's id; a symbol that is not a token becomes the bytes of its character. */
static coh_status add_symbol(const coh_bpe *bpe, int32_t symbol, coh_id_list *list)
{
    if (!bpe->unnamed_count || symbol < bpe->first_unnamed)
        return coh_id_list_add(list, symbol);
    uint8_t bytes[4];
    size_t count = coh_utf8_write(bpe->unnamed[symbol - bpe->first_unnamed], bytes);
    for (size_t i = 0; i < count; i++)
        COH_TRY(coh_id_list_add(list, bpe->byte_id[bytes[i]]));
    return COH_OK;
}

static coh_status merge_word(coh_bpe *bpe, const uint8_t *bytes, size_t byte_count,
                             coh_id_list *list)
{
    int32_t whole = -1;
    if (bpe->whole_words.slots)
        whole = coh_token_table_find(&bpe->whole_words, bytes, byte_count);
    if (whole >= 0)
        return coh_id_list_add(list, whole);
    COH_TRY(reserve_word(bpe, byte_count));
    int32_t count = first_symbols(bpe, bytes, byte_count);
    for (int32_t i = 0; i < count; i++) {
        bpe->next[i] = i + 1 < count ? i + 1 : -1;
        bpe->previous[i] = i - 1;
    }
    bpe->heap_count = 0;
    for (int32_t i = 0; i < count; i++)
        offer_pair(bpe, i);
    while (bpe->heap_count > 0)
        merge_pair(bpe, heap_pop(bpe));
    for (int32_t i = 0; i >= 0 && count > 0; i = bpe->next[i])
        COH_TRY(add_symbol(bpe, bpe->symbol[i], list));
    return COH_OK;
}

static coh_status encode_word(coh_bpe *bpe, const uint8_t *bytes, size_t byte_count,
                              coh_id_list *list)
{
    if (byte_count == 1 && bpe->is_byte_level)
        return coh_id_list_add(list, bpe->byte_id[bytes[0]]);
    if (byte_count > COH_BPE_CACHED_BYTES)
        return merge_word(bpe, bytes, byte_count, list);

    uint64_t slot = XXH3_64bits(bytes, byte_count) % COH_BPE_CACHE_SLOTS;
    coh_bpe_cached *cached = &bpe->cache[slot];
    if (cached->byte_count == byte_count && memcmp(cached->bytes, bytes, byte_count) == 0)
        return coh_id_list_add_all(list, cached->ids, cached->id_count);
    bpe->word.count = 0;
    COH_TRY(merge_word(bpe, bytes, byte_count, &bpe->word));
    if (bpe->word.count <= COH_BPE_CACHED_IDS) {
        cached->byte_count = (uint8_t)byte_count;
        cached->id_count = (uint8_t)bpe->word.count;
        memcpy(cached->bytes, bytes, byte_count);
        memcpy(cached->ids, bpe->word.ids, bpe->word.count * sizeof(int32_t));
    }
    return coh_id_list_add_all(list, bpe->word.ids, bpe->word.count);
}

coh_status coh_bpe_encode(coh_bpe *bpe, const uint8_t *text, size_t byte_count, int is_open,
                          coh_id_list *list, size_t *out_consumed)
{
    *out_consumed = 0;
    if (!bpe->is_cut_at_spaces) {
        if (is_open || byte_count == 0)
            return COH_OK;
        *out_consumed = byte_count;
        return encode_word(bpe, text, byte_count, list);
    }
    while (*out_consumed < byte_count) {
        const uint8_t *word = text + *out_consumed;
        size_t rest = byte_count - *out_consumed;
        size_t word_bytes = find_cut(word, rest);
        if (word_bytes == rest && is_open)
            break;
        COH_TRY(encode_word(bpe, word, word_bytes, list));
        *out_consumed += word_bytes;
    }
    return COH_OK;
}
