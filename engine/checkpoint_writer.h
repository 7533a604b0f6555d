/* checkpoint_writer.h - streams a checkpoint to disk by chunks; it appears whole or not at all.
 *
 *   begin ──> put, put, put ... (any order) ──> finish ──> <path>
 *     │                                            │
 *     └── <path>.partial: files reserved           └── hashes, fsync, manifest, fsync, rename
 *
 * The one idea: incomplete files live under a name that no reader opens, until a rename of the
 * folder makes all of them appear at once. A process that dies before the rename leaves a
 * `.partial`, which the next begin of the same path removes.
 *
 * Files and manifest: docs/checkpoint.md. Puts may come in any order, because each element has a
 * fixed place in its file. The file of frozen tensors is linked from the checkpoint saved before
 * where that is possible (checkpoint_frozen.h); then only the others are put.
 *
 * After create nothing is allocated, and no stdio or directory stream is used: begin, put, finish
 * and abort may run in a training step's process, which must not allocate.
 *
 * Each file operation is a call through a table (base/file_ops.h), taken at create, so that a test
 * can make it fail.
 *
 * Threads: one at a time. */
#ifndef COH_ENGINE_CHECKPOINT_WRITER_H
#define COH_ENGINE_CHECKPOINT_WRITER_H

#include "cohobate/checkpoint.h"
#include "engine/logical_hash.h"

typedef struct coh_checkpoint_writer coh_checkpoint_writer;

#define COH_CHECKPOINT_NOTE_BYTES 65536u /* the longest note, with its terminating zero */

/* Checks that a text is one JSON object that our strict reader will accept. The caller's note is
 * copied into the manifest unchanged, and a note that the reader refuses would make a whole
 * checkpoint unreadable. The reader's library allocates, which a save must not, so a save calls
 * this small checker first (checkpoint_note.c). It follows RFC 8259 and is stricter where our
 * reader is: no duplicate keys, no escapes in keys, no \u0000, valid UTF-8, integers below 2^63,
 * finite reals, at most 32 levels. Compares the members of an object pairwise, in quadratic
 * time. Fails: COH_ERR_ARGUMENT with the byte offset of the first error. */
coh_status coh_checkpoint_note_check(const char *json);

/* The table must outlive the writer, as `pool` (NULL: none) must, which hashes the data of each
 * put. Fails: COH_ERR_MEMORY; COH_ERR_ARGUMENT, COH_ERR_FULL as coh_logical_table_check. */
coh_status coh_checkpoint_writer_create(const coh_logical_table *table, coh_pool *pool,
                                        coh_checkpoint_writer **out_writer);
void coh_checkpoint_writer_destroy(coh_checkpoint_writer *writer); /* accepts NULL; aborts */

/* Returns an upper bound of the bytes that one checkpoint takes on disk, for the preflight. */
uint64_t coh_checkpoint_writer_bytes(const coh_checkpoint_writer *writer);
/* Returns how many of them are those of the file of frozen tensors, which a linked one lacks. */
uint64_t coh_checkpoint_writer_frozen_bytes(const coh_checkpoint_writer *writer);

/* Says that the frozen tensors have other values than in the checkpoint saved or taken last, so the
 * next save writes them. */
void coh_checkpoint_writer_forget_frozen(coh_checkpoint_writer *writer);
/* Says that the frozen tensors have the values of an open checkpoint, whose file of them the next
 * save links. Returns 1; 0 if it has no file that could be linked, and then the next save writes
 * them. No save may be under way. */
int coh_checkpoint_writer_take_frozen(coh_checkpoint_writer *writer,
                                      const coh_checkpoint *checkpoint);

/* Makes <path>.partial and reserves the files' space in it. Removes what an earlier, interrupted
 * save of this path left. The folder that holds `path` must exist. `note_json` is the caller's
 * object, NULL for "{}"; it is checked and copied before the call returns. Fails: COH_ERR_ARGUMENT
 * (path exists or is too long; note is not one JSON object, or has a duplicate key, or is too
 * long), COH_ERR_IO (also a full disk: the text names the bytes needed). A failed call leaves no
 * files behind. */
coh_status coh_checkpoint_writer_begin(coh_checkpoint_writer *writer, const char *path,
                                       const char *note_json);
/* After begin: 1 if the frozen tensors were linked, and are not to be put. */
int coh_checkpoint_writer_has_frozen(const coh_checkpoint_writer *writer);
/* After begin: -errno if a known file of frozen tensors could not be linked (-ESTALE: another file
 * has its name), and they are written instead; else 0. */
int coh_checkpoint_writer_link_error(const coh_checkpoint_writer *writer);

/* Writes elements [element_begin, element_begin + count) of one part of a tensor: whole grains (the
 * tensor's last may be short), as coh_logical_hash_put describes. All data must come from the state
 * after one and the same step. Fails: COH_ERR_NUMBER naming tensor and element when a value of f32
 * is not finite; COH_ERR_IO; COH_ERR_INTERNAL. After a failure the caller calls abort. */
coh_status coh_checkpoint_writer_put(coh_checkpoint_writer *writer, int part, uint32_t tensor,
                                     uint64_t element_begin, uint64_t count, const void *data);

typedef struct coh_checkpoint_seal {
    uint64_t step, applied_count; /* counters, each below 2^63 */
    uint64_t numeric_fingerprint;
    double grad_norm; /* finite; 0: no step needs it */
} coh_checkpoint_seal;

/* Checks that every grain of every tensor was put once, makes all files durable, and renames the
 * folder to its path. `out_hash` (may be NULL) receives the logical hash, as coh_engine_hash gives
 * it. Fails: COH_ERR_INTERNAL (a grain is missing), COH_ERR_IO, COH_ERR_ARGUMENT (`path` exists by
 * now). A failed call leaves no files behind and needs no abort. */
coh_status coh_checkpoint_writer_finish(coh_checkpoint_writer *writer,
                                        const coh_checkpoint_seal *seal, uint64_t *out_hash);

/* Removes the partial folder if a save is under way. Keeps the thread's error text. */
void coh_checkpoint_writer_abort(coh_checkpoint_writer *writer);

#endif
