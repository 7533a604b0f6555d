/* Maps ids to tokens and tokens to ids. The one idea: all tokens are in one array of bytes; the
 * index over them is a hash table of ids. Next: bpe.c and pipeline.c, which use it. */
#include "text/token_table.h"

#include <limits.h>
#include <xxhash.h>

coh_status coh_token_table_add(coh_token_table *table, coh_slice token)
{
    const size_t index = (size_t)table->count;
    COH_TRY(COH_GROW(&table->begin, &table->begin_capacity, index + 2));
    const size_t end = table->begin[index];
    COH_TRY(COH_GROW(&table->bytes, &table->byte_capacity, end + token.count + 1));
    if (token.count)
        memcpy(table->bytes + end, token.bytes, token.count);
    table->begin[index + 1] = end + token.count;
    table->count++;
    return COH_OK;
}

/* The slot of a token, or the empty slot in which it belongs. */
static size_t find_slot(const coh_token_table *table, const void *bytes, size_t count)
{
    size_t slot = (size_t)XXH3_64bits(bytes, count) & table->slot_mask;
    for (; table->slots[slot] >= 0; slot = (slot + 1) & table->slot_mask) {
        coh_slice token = coh_token_table_at(table, table->slots[slot]);
        if (token.count == count && memcmp(token.bytes, bytes, count) == 0)
            break;
    }
    return slot;
}

coh_status coh_token_table_index(coh_token_table *table)
{
    size_t slot_count = 16;
    while (slot_count < 2 * (size_t)table->count) /* at most half full */
        slot_count *= 2;
    coh_free(table->slots);
    COH_TRY(COH_ALLOC(slot_count, &table->slots));
    memset(table->slots, -1, slot_count * sizeof(*table->slots));
    table->slot_mask = slot_count - 1;
    for (int32_t id = 0; id < table->count; id++) {
        coh_slice token = coh_token_table_at(table, id);
        if (token.count == 0)
            continue;
        size_t slot = find_slot(table, token.bytes, token.count);
        if (table->slots[slot] < 0)
            table->slots[slot] = id;
    }
    return COH_OK;
}

int32_t coh_token_table_find(const coh_token_table *table, const void *bytes, size_t count)
{
    return count ? table->slots[find_slot(table, bytes, count)] : -1;
}

void coh_token_table_fini(coh_token_table *table)
{
    coh_free(table->bytes);
    coh_free(table->begin);
    coh_free(table->slots);
    *table = (coh_token_table){ 0 };
}
