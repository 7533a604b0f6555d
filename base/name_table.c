#include "base/name_table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"

enum { LEAST_SLOTS = 64 };

/* The slot of a name, or the empty one where it would be. There is one: at most half are used. */
static size_t slot_of(const coh_name_slot *slots, size_t slot_count, const char *name)
{
    size_t at = (size_t)XXH3_64bits(name, strlen(name)) & (slot_count - 1);
    while (slots[at].name != NULL && strcmp(slots[at].name, name) != 0)
        at = (at + 1) & (slot_count - 1);
    return at;
}

int32_t coh_name_table_find(const coh_name_table *table, const char *name)
{
    if (table->slot_count == 0)
        return -1;
    const coh_name_slot *slot = &table->slots[slot_of(table->slots, table->slot_count, name)];
    return slot->name != NULL ? slot->index : -1;
}

static int by_index(const void *a, const void *b)
{
    const int32_t x = ((const coh_name_slot *)a)->index, y = ((const coh_name_slot *)b)->index;
    return (x > y) - (x < y);
}

/* Names are moved in the order of their insertion, which is that of their indices: see above. */
coh_status coh_name_table_reserve(coh_name_table *table)
{
    coh_name_slot *slots = NULL, *moved = table->slots;
    const size_t slot_count = table->slot_count > 0 ? 2 * table->slot_count : LEAST_SLOTS;
    size_t used = 0;
    if (2 * (table->count + 1) <= table->slot_count)
        return COH_OK;
    COH_TRY(COH_ALLOC(slot_count, &slots));
    for (size_t i = 0; i < table->slot_count; i++)
        if (moved[i].name != NULL)
            moved[used++] = moved[i];
    if (used > 0)
        qsort(moved, used, sizeof(*moved), by_index);
    for (size_t i = 0; i < used; i++)
        slots[slot_of(slots, slot_count, moved[i].name)] = moved[i];
    coh_free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    return COH_OK;
}

void coh_name_table_insert(coh_name_table *table, const char *name, int32_t index)
{
    table->slots[slot_of(table->slots, table->slot_count, name)] =
        (coh_name_slot){ .name = name, .index = index };
    table->count++;
}

void coh_name_table_remove(coh_name_table *table, const char *name)
{
    const size_t at = slot_of(table->slots, table->slot_count, name);
    if (table->slots[at].name == NULL)
        return;
    table->slots[at] = (coh_name_slot){ 0 };
    table->count--;
}

void coh_name_table_free(coh_name_table *table)
{
    coh_free(table->slots);
    *table = (coh_name_table){ 0 };
}
