/* checkpoint.h - reads and checks a checkpoint without running anything.
 *
 * A checkpoint is a folder:
 *
 *     work.bin        weights: the tensors in order, plain little-endian f32
 *     frozen.bin      weights of the tensors that are not trained, f32 or bf16; then work.bin lacks
 *                     them. The checkpoints of a run share one file, by hard links
 *     <stream>.state  optimizer states: one file per stream (m and v: m.bin, v.bin), the blocks of
 *                     the tensors that have it, as the optimizer stores them
 *     hashes.bin      one XXH3 hash per grain and stream
 *     manifest.json   format version, streams, tensor table, counters, numeric fingerprint and the
 *                     caller's note; written last, so a folder without it is not whole
 *
 * Streams have numbers: stream 0 is work, stream i >= 1 is the checkpoint's state stream i - 1.
 * Each tensor lists the numbers of its state streams, in the order of its optimizer's table.
 *
 * It does not depend on plans, chunks, tiers or ranks. engine.h writes and loads checkpoints.
 * Threads: an open checkpoint is used by one thread at a time. */
#ifndef COHOBATE_CHECKPOINT_H
#define COHOBATE_CHECKPOINT_H

#include "cohobate/model.h"
#include "cohobate/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open checkpoint. */
typedef struct coh_checkpoint coh_checkpoint;

/* Opens a checkpoint: reads and checks the manifest and the sizes of all files, but not the data.
 * If `path` is a run folder (with step-<n> folders in it), opens the newest whole checkpoint in it.
 * Skips damaged ones, but not one that cannot be read or that a newer release wrote.
 * Fails: COH_ERR_CORRUPT (truncated, foreign, newer version), COH_ERR_IO. */
COH_API coh_status coh_checkpoint_open(const char *path, coh_checkpoint **out_checkpoint);
/* Accepts NULL. Frees the texts that the checkpoint returned. */
COH_API void coh_checkpoint_close(coh_checkpoint *checkpoint);

/* Reports whether opening checkpoint folder `path` can never succeed: a file is missing or has
 * another size than the manifest says, or the manifest or hashes.bin was altered. Does not read the
 * data, so 0 does not prove that weights and states are as they were saved: coh_checkpoint_check
 * reads them all, and loading checks what it reads.
 * Fails: if it is not damaged but cannot be opened either, as opening does (COH_ERR_IO;
 * COH_ERR_CORRUPT for a newer version); *out_is_damaged is 0 then. */
COH_API coh_status coh_checkpoint_damage(const char *path, int32_t *out_is_damaged);

/* Facts in a manifest. `step` and `applied_count` count the steps done and the updates applied;
 * `numeric_fingerprint` is that of the plan that ran (coh_plan_summary); `tensor_count` and
 * `parameter_count` count tensors and their elements; `bytes` is the size of all files. */
typedef struct coh_checkpoint_facts {
    uint32_t struct_bytes;
    const char *path; /* the folder that was opened */
    uint64_t step, applied_count;
    uint64_t numeric_fingerprint;
    uint64_t hash; /* as saved; equals coh_engine_hash */
    int32_t tensor_count;
    uint64_t parameter_count;
    uint64_t bytes;
    int32_t is_trained;    /* 1: some tensor has an optimizer, and with it its states */
    int32_t stream_count;  /* state streams; 0: none, as with weights only */
    const char *note_json; /* the caller's note */
    /* Why the newest checkpoint of the run folder was skipped. "": this one is the newest, or
     * `path` named it directly. */
    const char *passed_over;
    double grad_norm;      /* of the last step, which the next one clips by; 0: none is needed */
    uint64_t frozen_bytes; /* of them in frozen.bin, which checkpoints may share; 0: none */
} coh_checkpoint_facts;
/* Reads the facts. Their texts belong to the checkpoint. Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_checkpoint_facts_get(const coh_checkpoint *checkpoint,
                                            coh_checkpoint_facts *out_facts);

/* A row of the tensor table: `name` and `shape` of the parameter, and how many of `streams` are
 * used (`stream_count`). */
typedef struct coh_checkpoint_tensor {
    const char *name;
    coh_shape shape;
    const char *optimizer; /* that trains it; NULL: not trained */
    int32_t stream_count;
    int32_t streams[COH_OPTIMIZER_STREAMS]; /* numbers of its state streams, each >= 1 */
} coh_checkpoint_tensor;
/* Reads the table entry of tensor `index`, in tensor order; its texts live until it is closed.
 * Fails: COH_ERR_ARGUMENT if there is no such tensor. */
COH_API coh_status coh_checkpoint_tensor_at(const coh_checkpoint *checkpoint, int32_t index,
                                            coh_checkpoint_tensor *out_tensor);

/* Reads the name and form of stream `stream`: 0 is { "work", 4, 1, 1 }, and 1 to stream_count are
 * state streams. The name lives until the checkpoint is closed.
 * Fails: COH_ERR_ARGUMENT if there is no such stream. */
COH_API coh_status coh_checkpoint_stream_at(const coh_checkpoint *checkpoint, int32_t stream,
                                            coh_state_stream *out_stream);

/* Reads every byte, compares every grain's hash and the total hash, as `cohobate check` does.
 * `out_hash` may be NULL.
 * Fails: COH_ERR_CORRUPT naming file, tensor and grain. */
COH_API coh_status coh_checkpoint_check(coh_checkpoint *checkpoint, uint64_t *out_hash);

/* Reads elements [begin, begin + count) of stream `stream` of tensor `index` into `data`, which has
 * coh_state_bytes(stream, count) bytes. `begin` is the start of a block; the end is the end of a
 * block or of the tensor. Compares the grains' hashes.
 * Fails: COH_ERR_ARGUMENT if the tensor has no such stream or elements, or if a block is cut;
 * COH_ERR_CORRUPT naming file, tensor and grain; COH_ERR_IO. */
COH_API coh_status coh_checkpoint_read(coh_checkpoint *checkpoint, int32_t index, int32_t stream,
                                       uint64_t begin, uint64_t count, void *data);

/* Replaces the note of checkpoint folder `path` by `note_json`, an object as coh_engine_save takes
 * it. A crash leaves the old note or the new one; the checkpoint must not be open. Everything else
 * stays, the hash too.
 * Fails: COH_ERR_ARGUMENT (no JSON object, or too long a one); as opening does; COH_ERR_IO. */
COH_API coh_status coh_checkpoint_note_set(const char *path, const char *note_json);

/* Deletes checkpoint folder `path`, the manifest first, so that a crash halfway never leaves a
 * folder that looks whole. Touches only files with the names of a checkpoint's files:
 * manifest.json, work.bin, hashes.bin, frozen.bin, m.bin, v.bin, and next to one of these
 * <stream>.state (a-z, 0-9 and _, at most 15). Other checkpoints that share frozen.bin keep it.
 * Allocates nothing, so training can use it to keep the newest N. A folder whose manifest.json is
 * another program's, without hashes.bin next to it, is left as it is.
 * Fails: COH_ERR_ARGUMENT (such a folder); COH_ERR_IO, also if the folder holds other files (those
 * stay). */
COH_API coh_status coh_checkpoint_remove(const char *path);

#ifdef __cplusplus
}
#endif
#endif
