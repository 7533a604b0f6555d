/* checkpoint.h - look at a checkpoint without running anything.
 *
 * A checkpoint is a folder: one file per stream (work.bin, m.bin, v.bin), tensors in order, plain
 * little-endian f32; hashes.bin with one XXH3 per grain and stream; manifest.json, written last,
 * with format version, tensor table, counters, numeric fingerprint and the caller's note. Nothing
 * in it speaks of plans, chunks, tiers or ranks. */
#ifndef COHOBATE_CHECKPOINT_H
#define COHOBATE_CHECKPOINT_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_checkpoint coh_checkpoint;

/* Reads and checks the manifest and the sizes of all files; not the data. If `path` is a run folder
 * (holding step-<n> folders) the newest whole checkpoint in it is opened: damaged ones are passed
 * over, not one that cannot be read or that a newer release wrote.
 * Fails: COH_ERR_CORRUPT (truncated, foreign, newer version), COH_ERR_IO. */
COH_API coh_status coh_checkpoint_open(const char *path, coh_checkpoint **out_checkpoint);
/* Accepts NULL. Texts that the checkpoint gave out end with it. */
COH_API void coh_checkpoint_close(coh_checkpoint *checkpoint);

/* Is checkpoint folder `path` damaged, so that opening it can never succeed (a file is missing, cut
 * or altered)? Fails: as opening does where it is not, but cannot be opened either (COH_ERR_IO;
 * COH_ERR_CORRUPT: of a newer version); *out_is_damaged is 0 then. */
COH_API coh_status coh_checkpoint_damage(const char *path, int32_t *out_is_damaged);

typedef struct coh_checkpoint_facts {
    const char *path; /* the folder opened */
    uint64_t step, applied_count;
    uint64_t numeric_fingerprint;
    uint64_t hash; /* as saved: that of coh_engine_hash */
    int32_t tensor_count;
    uint64_t parameter_count;
    uint64_t bytes;
    int32_t has_states;
    const char *note_json; /* the caller's note */
    /* Of a run folder whose newest checkpoint is not whole, why; "": this one is the newest, or was
     * named itself. */
    const char *passed_over;
} coh_checkpoint_facts;
/* Texts in *out_facts belong to the checkpoint. */
COH_API coh_status coh_checkpoint_facts_get(const coh_checkpoint *checkpoint,
                                            coh_checkpoint_facts *out_facts);

typedef struct coh_checkpoint_tensor {
    const char *name;
    coh_shape shape;
} coh_checkpoint_tensor;
/* By index in tensor order; the name lives as long as the checkpoint is open. Fails:
 * COH_ERR_ARGUMENT when there is no such tensor. */
COH_API coh_status coh_checkpoint_tensor_at(const coh_checkpoint *checkpoint, int32_t index,
                                            coh_checkpoint_tensor *out_tensor);

/* Reads every byte, compares every grain's hash, recomputes the total. `out_hash` may be NULL.
 * Fails: COH_ERR_CORRUPT naming file, tensor and grain. */
COH_API coh_status coh_checkpoint_check(coh_checkpoint *checkpoint, uint64_t *out_hash);

/* Reads elements [begin, begin + count) of tensor `index`, stream 0 work, 1 m, 2 v. */
COH_API coh_status coh_checkpoint_read(coh_checkpoint *checkpoint, int32_t index, int stream,
                                       uint64_t begin, uint64_t count, float *data);

/* Removes checkpoint folder `path`: the manifest first, so that what a crash leaves is never taken
 * for whole. Touches only files of a checkpoint; allocates nothing (for keeping the
 * newest N while training).
 * Fails: COH_ERR_IO, also when the folder holds anything else (that stays). */
COH_API coh_status coh_checkpoint_remove(const char *path);

#ifdef __cplusplus
}
#endif
#endif
