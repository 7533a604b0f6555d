/* logical_hash.h - one number for all parameters and optimizer states, whatever their placement.
 *
 *   tensor 0: work grains, m grains, v grains | tensor 1: ... | applied_count  ──fold──> hash
 *
 * The one idea: hash grain by grain in any order, then fold in tensor order. A grain's hash is the
 * XXH3-64 of its bytes. The fold seeds each XXH3 with the result of the one before, over name,
 * shape and the row of grain hashes of each part. So the hash does not depend on chunks, tiers,
 * threads or order of arrival.
 *
 * States are data, too: a table lists the tensors of a checkpoint or hash and their state streams
 * (coh_state_stream); each tensor names its optimizer and which of the streams it has. A *part* is
 * counted per tensor, a *row* per table:
 *
 *   table:    streams 0 m, 1 v, 2 velocity        rows 0 work, 1 m, 2 v, 3 velocity
 *   tensor a: adamw, streams { 0, 1 }             parts 0, 1, 2 in rows 0, 1, 2
 *   tensor b: another, streams { 2 }              parts 0, 1    in rows 0, 3
 *   tensor c: not trained, no streams             part  0       in row  0
 *
 * Row 0 is work: f32 values. The visitors of chunks use parts; files and rows of grain hashes use
 * rows.
 *
 * Threads: one at a time; grains are hashed on the pool given at create, if any. Nothing is
 * allocated after create. */
#ifndef COH_ENGINE_LOGICAL_HASH_H
#define COH_ENGINE_LOGICAL_HASH_H

#include "base/pool.h"
#include "cohobate/optimizer.h"
#include "engine/segments.h"

/* ---- tables ---- */

enum {
    COH_PART_WORK = 0,
    COH_LOGICAL_STREAMS = 64, /* of one table: all that the optimizers of a plan can have */
    COH_LOGICAL_ROWS = 1 + COH_LOGICAL_STREAMS
};

typedef struct coh_logical_tensor {
    const char *name;
    coh_shape shape; /* f32 */
    uint64_t elements;
    const char *optimizer;                  /* its name; NULL: not trained, no streams */
    int32_t stream_count;                   /* may be 0 with an optimizer */
    int32_t streams[COH_OPTIMIZER_STREAMS]; /* indices of the table's streams, each once */
} coh_logical_tensor;

/* The file that holds the work of frozen tensors: those without an optimizer. */
typedef enum coh_frozen_form {
    COH_FROZEN_IN_WORK, /* work.bin, next to the others, as in versions 1 and 2 */
    COH_FROZEN_F32,     /* frozen.bin, which checkpoints share (checkpoint_frozen.h) */
    COH_FROZEN_BF16     /* likewise; all values are exact in bf16 */
} coh_frozen_form;

/* Tensors are in the order of layout->parameters, so that coh_segment.parameter is the index of the
 * tensor. */
typedef struct coh_logical_table {
    const coh_logical_tensor *tensors;
    uint32_t tensor_count;
    const coh_state_stream *streams; /* distinct names; at most COH_LOGICAL_STREAMS */
    int32_t stream_count;
    coh_frozen_form frozen; /* of its checkpoints; hashes do not depend on it */
} coh_logical_table;

/* Checks that names, numbers and indices are allowed, that each stream is of some tensor, and that
 * no tensor overflows a file. A stream may have the name of no other file of a checkpoint: work,
 * hashes, manifest. Fails: COH_ERR_ARGUMENT, COH_ERR_FULL. */
coh_status coh_logical_table_check(const coh_logical_table *table);

/* May an optimizer or stream have this name: a-z, 0-9 and _, below COH_OPTIMIZER_NAME_BYTES? */
int coh_logical_is_name(const char *name);

/* Returns the form of a row; row 0 is { "work", 4, 1, 1 }. */
const coh_state_stream *coh_logical_stream(const coh_logical_table *table, int row);
/* Returns the row of a tensor's part; -1: the tensor has no such part. */
int coh_logical_row(const coh_logical_tensor *tensor, int part);
/* Returns the tensor's part that is in a row; -1: the tensor lacks this stream. */
int coh_logical_part(const coh_logical_tensor *tensor, int row);

/* ---- hashes ---- */

typedef struct coh_logical_hash coh_logical_hash;

/* The table must outlive the hash, as `pool` (NULL: none) must, which hashes the data of each put.
 * Fails: COH_ERR_MEMORY; as coh_logical_table_check. */
coh_status coh_logical_hash_create(const coh_logical_table *table, coh_pool *pool,
                                   coh_logical_hash **out_hash);
void coh_logical_hash_destroy(coh_logical_hash *hash); /* accepts NULL */

/* Forgets all grains. Call before the first put of a round. */
void coh_logical_hash_begin(coh_logical_hash *hash);
/* Likewise, but keeps the grains of frozen tensors, which are then not put. */
void coh_logical_hash_begin_trained(coh_logical_hash *hash);
/* Takes the grains of a tensor's work from another hash, whose tensor `source_tensor` has as many
 * elements. */
void coh_logical_hash_copy_work(coh_logical_hash *hash, uint32_t tensor,
                                const coh_logical_hash *source, uint32_t source_tensor);

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

/* Returns the grain hashes as stored in hashes.bin: the rows one after the other, each with the
 * grains of all tensors; zero where a tensor lacks the stream. */
uint64_t *coh_logical_hash_rows(coh_logical_hash *hash, uint64_t *out_bytes);

/* Uses the rows, after they were filled from a file, instead of puts. Fails: COH_ERR_CORRUPT if
 * there are entries where a tensor lacks the stream. */
coh_status coh_logical_hash_take(coh_logical_hash *hash);

/* Returns the hash of one grain, from a put or taken rows. */
uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, int row, uint32_t tensor,
                                uint64_t grain);
/* Returns the XXH3-64 of a grain's bytes. */
uint64_t coh_grain_hash(const void *data, uint64_t bytes);

#endif
