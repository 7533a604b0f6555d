/* identity.h - hashes everything that determines a tokenizer's ids, field by field, with the same
 * result on every machine. */
#ifndef COH_TEXT_IDENTITY_H
#define COH_TEXT_IDENTITY_H

#define XXH_STATIC_LINKING_ONLY /* a hash state that needs no allocation */
#include <xxhash.h>

#include "text/bpe.h"

typedef XXH3_state_t coh_identity;

/* `scheme` names the hashed fields and their order; raise its number when ids change for the same
 * file. */
static inline void coh_identity_begin(coh_identity *identity, const char *scheme)
{
    XXH3_64bits_reset(identity);
    XXH3_64bits_update(identity, scheme, strlen(scheme));
}

static inline void coh_identity_add_u32(coh_identity *identity, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24) };
    XXH3_64bits_update(identity, bytes, sizeof(bytes));
}

static inline void coh_identity_add_bytes(coh_identity *identity, const void *bytes, size_t count)
{
    coh_identity_add_u32(identity, (uint32_t)count);
    if (count)
        XXH3_64bits_update(identity, bytes, count);
}

static inline void coh_identity_add_ids(coh_identity *identity, const coh_id_list *list)
{
    coh_identity_add_u32(identity, (uint32_t)list->count);
    for (size_t i = 0; i < list->count; i++)
        coh_identity_add_u32(identity, (uint32_t)list->ids[i]);
}

static inline uint64_t coh_identity_end(const coh_identity *identity)
{
    return XXH3_64bits_digest(identity);
}

/* Adds the number of tokens, and the bytes of each. */
void coh_identity_add_tokens(coh_identity *identity, const coh_token_table *table);
/* Adds the pairs in the order of their ranks, which are 0..count-1. */
coh_status coh_identity_add_merges(coh_identity *identity, const coh_bpe *bpe);

#endif
