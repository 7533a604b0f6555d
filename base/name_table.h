/* name_table.h - finds the index of a name among many, in constant time.
 *
 *     slots   | -    | "wte" 0 | -    | "h.0.attn" 2 | "h.0.ln_1" 1 | -    |
 *
 * Open addressing with linear probing. Names are borrowed. They are removed in the opposite order
 * of their insertion only, so a removal leaves the slots as they were before. */
#ifndef COH_BASE_NAME_TABLE_H
#define COH_BASE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

typedef struct coh_name_slot {
    const char *name; /* NULL: empty */
    int32_t index;
} coh_name_slot;

/* A zeroed table is empty. */
typedef struct coh_name_table {
    coh_name_slot *slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
} coh_name_table;

/* Returns the index of a name; -1: it is not there. */
int32_t coh_name_table_find(const coh_name_table *table, const char *name);

/* Makes room for one more name, so that the next insertion cannot fail. Fails: COH_ERR_MEMORY. */
coh_status coh_name_table_reserve(coh_name_table *table);
/* Inserts a name that is not there yet; there must be room. `name` must outlive its slot. */
void coh_name_table_insert(coh_name_table *table, const char *name, int32_t index);
/* Removes the name that was inserted last. */
void coh_name_table_remove(coh_name_table *table, const char *name);

void coh_name_table_free(coh_name_table *table);

#endif
