/* token_table.h - maps ids to tokens and tokens to ids.
 *
 *   begin:  0     1  3        6 6      ids 0..count-1, one after the other in `bytes`;
 *   bytes:  a     bc   def             an id that no token has is empty (a hole) */
#ifndef COH_TEXT_TOKEN_TABLE_H
#define COH_TEXT_TOKEN_TABLE_H

#include "text/lists.h"

/* A zeroed table is empty. */
typedef struct coh_token_table {
    uint8_t *bytes;
    size_t *begin; /* count + 1 */
    int64_t count;
    size_t byte_capacity, begin_capacity;
    int32_t *slots; /* open addressing; -1: empty; NULL: no index */
    size_t slot_mask;
} coh_token_table;

/* Copies a token, whose bytes may be NULL but not lie in the table, behind the others. */
coh_status coh_token_table_add(coh_token_table *table, coh_slice token);
/* Builds the index for coh_token_table_find, after the last token was added. Of equal tokens the
 * one with the lowest id is found. */
coh_status coh_token_table_index(coh_token_table *table);
void coh_token_table_fini(coh_token_table *table);

/* The id of a token of at least one byte; -1: none. */
int32_t coh_token_table_find(const coh_token_table *table, const void *bytes, size_t count);

/* The bytes of 0 <= id < count. */
static inline coh_slice coh_token_table_at(const coh_token_table *table, int64_t id)
{
    return (coh_slice){ .bytes = (const char *)table->bytes + table->begin[id],
                        .count = table->begin[id + 1] - table->begin[id] };
}

#endif
