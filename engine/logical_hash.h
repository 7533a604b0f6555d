/* logical_hash.h - one number for all parameters and optimizer states, whatever their placement.
 *
 *   tensor 0: work grains, m grains, v grains | tensor 1: ... | applied_count  ──fold──> hash
 *
 * The one idea: hash grain by grain in any order, then fold in tensor order. A grain's hash is the
 * XXH3-64 of its bytes. The fold seeds each XXH3 with the result of the one before, over name,
 * shape and the row of grain hashes of each part. So the hash does not depend on chunks, tiers,
 * threads or order of arrival.
 *
 * Part 0 of a tensor is its work; part 1 + s is its stream s (logical_table.h).
 *
 * Threads: one at a time; grains are hashed on the pool given at create, if any. Nothing is
 * allocated after create. */
#ifndef COH_ENGINE_LOGICAL_HASH_H
#define COH_ENGINE_LOGICAL_HASH_H

#include "base/pool.h"
#include "engine/logical_table.h"
#include "engine/segments.h"

typedef struct coh_logical_hash coh_logical_hash;

/* Copies the table, names included. A stream that no tensor has is left out of the copy. `pool`
 * (NULL: none) hashes the data of each put and must outlive the hash. Fails: COH_ERR_MEMORY; as
 * coh_logical_table_copy. */
coh_status coh_logical_hash_create(const coh_logical_table *table, coh_pool *pool,
                                   coh_logical_hash **out_hash);
void coh_logical_hash_destroy(coh_logical_hash *hash); /* accepts NULL */

/* Forgets all grains. Call before the first put of a round. */
void coh_logical_hash_begin(coh_logical_hash *hash);

/* Hashes the grains of elements [element_begin, element_begin + count) of one part of a tensor.
 * `data`: f32 values for work, else the blocks of the part's stream, coh_state_bytes(stream, count)
 * bytes. element_begin is the start of a grain; the end is the end of a grain or of the tensor.
 * `out_broken` (may be NULL) receives the index, from element_begin, of the first element whose
 * block has a NaN or infinite number, or `count` if there is none; streams without is_f32 have
 * none. Each grain is checked right after it was hashed, while it is in cache. Fails:
 * COH_ERR_INTERNAL when a grain comes twice or the range is not as described. */
coh_status coh_logical_hash_put(coh_logical_hash *hash, int part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, const void *data,
                                uint64_t *out_broken);

/* Computes the total hash. Fails: COH_ERR_INTERNAL naming the tensor with a missing grain. */
coh_status coh_logical_hash_finish(const coh_logical_hash *hash, uint64_t applied_count,
                                   uint64_t *out_total);

/* ---- for the checkpoint's writer and reader ---- */

/* Returns the hash's own copy of its table. */
const coh_logical_table *coh_logical_hash_table(const coh_logical_hash *hash);

/* Returns the grain hashes as stored in hashes.bin: the rows one after the other, each with the
 * grains of all tensors; zero where a tensor lacks the stream. */
const uint64_t *coh_logical_hash_rows(const coh_logical_hash *hash, uint64_t *out_bytes);

/* Uses rows read from a file instead of puts. `rows` has the size that coh_logical_hash_rows
 * reports. Fails: COH_ERR_CORRUPT if there are entries where a tensor lacks the stream. */
coh_status coh_logical_hash_take(coh_logical_hash *hash, const uint64_t *rows);

/* Returns the hash of one grain, from a put or taken rows. */
uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, int part, uint32_t tensor,
                                uint64_t grain);
/* Returns the XXH3-64 of a grain's bytes. */
uint64_t coh_grain_hash(const void *data, uint64_t bytes);

#endif
