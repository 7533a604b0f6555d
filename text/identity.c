/* Hashes tokens and merges for a tokenizer's identity. The one idea: they are hashed in the order
 * of ids and ranks, so that the formatting of a file does not matter. Next: tokenizer_json.c and
 * merges_read.c, the callers. */
#include "text/identity.h"

void coh_identity_add_tokens(coh_identity *identity, const coh_token_table *table)
{
    coh_identity_add_u32(identity, (uint32_t)table->count);
    for (int64_t id = 0; id < table->count; id++) {
        coh_slice token = coh_token_table_at(table, id);
        coh_identity_add_bytes(identity, token.bytes, token.count);
    }
}

coh_status coh_identity_add_merges(coh_identity *identity, const coh_bpe *bpe)
{
    uint64_t *by_rank;
    COH_TRY(COH_ALLOC(bpe->merge_count, &by_rank));
    for (size_t i = 0; i < bpe->merge_slots; i++) {
        if (bpe->merges[i].id >= 0)
            by_rank[bpe->merges[i].rank] = bpe->merges[i].pair;
    }
    for (size_t i = 0; i < bpe->merge_count; i++) {
        coh_identity_add_u32(identity, (uint32_t)(by_rank[i] >> 32));
        coh_identity_add_u32(identity, (uint32_t)by_rank[i]);
    }
    coh_free(by_rank);
    return COH_OK;
}
