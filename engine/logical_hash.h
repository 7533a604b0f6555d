/* logical_hash.h - one number for all parameters and optimizer states, whatever their placement.
 *
 *   tensor 0: work grains, m grains, v grains | tensor 1: ... | applied_count  ──fold──> hash
 *
 * The one idea: hash grain by grain in any order, then fold in tensor order. A grain's hash is the
 * XXH3-64 of its bytes. The fold seeds each XXH3 with the result of the one before, over name,
 * shape and the row of grain hashes of each part. So the hash does not depend on chunks, tiers,
 * threads or order of arrival.
 *
 * A tensor without states (frozen, or a plan that does not train) has work grains only.
 *
 * Threads: one at a time; grains are hashed on the pool given at create, if any. Nothing is
 * allocated after create. */
#ifndef COH_ENGINE_LOGICAL_HASH_H
#define COH_ENGINE_LOGICAL_HASH_H

#include "base/pool.h"
#include "cohobate/model.h"
#include "engine/segments.h"

/* One tensor of a checkpoint or hash. Tables of these are in the order of layout->parameters, so
 * that coh_segment.parameter is the index of the tensor. */
typedef struct coh_logical_tensor {
    const char *name;
    coh_shape shape; /* f32 */
    uint64_t elements;
    int32_t has_states; /* m and v exist: this plan trains the tensor */
} coh_logical_tensor;

typedef struct coh_logical_hash coh_logical_hash;

/* Copies the table, names included. `pool` (NULL: none) hashes the data of each put and must
 * outlive the hash. Fails: COH_ERR_MEMORY; COH_ERR_ARGUMENT if element count and shape disagree. */
coh_status coh_logical_hash_create(const coh_logical_tensor *tensors, uint32_t tensor_count,
                                   coh_pool *pool, coh_logical_hash **out_hash);
void coh_logical_hash_destroy(coh_logical_hash *hash); /* accepts NULL */

/* Forgets all grains. Call before the first put of a round. */
void coh_logical_hash_begin(coh_logical_hash *hash);

/* Hashes the grains of elements [element_begin, element_begin + count) of one part of a tensor.
 * element_begin is the start of a grain; the end is the end of a grain or of the tensor.
 * `out_broken` (may be NULL) receives the index, from element_begin, of the first NaN or infinite
 * element, or `count` if there is none. Each grain is checked right after it was hashed, while it
 * is in cache. Fails: COH_ERR_INTERNAL when a grain comes twice or the range is not as
 * described. */
coh_status coh_logical_hash_put(coh_logical_hash *hash, coh_part part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, const float *data,
                                uint64_t *out_broken);

/* Computes the total hash. Fails: COH_ERR_INTERNAL naming the tensor with a missing grain. */
coh_status coh_logical_hash_finish(const coh_logical_hash *hash, uint64_t applied_count,
                                   uint64_t *out_total);

/* ---- for the checkpoint's writer and reader ---- */

uint32_t coh_logical_hash_tensor_count(const coh_logical_hash *hash);
const coh_logical_tensor *coh_logical_hash_tensor(const coh_logical_hash *hash, uint32_t tensor);
int coh_logical_hash_has_states(const coh_logical_hash *hash); /* of any tensor */

/* Returns the table of grain hashes as stored in hashes.bin: a row per part (1 or 3 rows), each
 * with the grains of all tensors one after the other; zero where a tensor has no states. */
const uint64_t *coh_logical_hash_table(const coh_logical_hash *hash, uint64_t *out_bytes);

/* Uses a table read from a file instead of puts. `table` has the size that coh_logical_hash_table
 * reports. Fails: COH_ERR_CORRUPT if a tensor without states has entries in the rows of m or v. */
coh_status coh_logical_hash_take(coh_logical_hash *hash, const uint64_t *table);

/* Returns the hash of one grain, from a put or a taken table. */
uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, coh_part part, uint32_t tensor,
                                uint64_t grain);
/* Returns the XXH3-64 of `count` floats. */
uint64_t coh_grain_hash(const float *data, uint64_t count);

#endif
