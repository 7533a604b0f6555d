/* checkpoint_files.h - names, order and sizes of a checkpoint's files.
 *
 *   work.bin        f32 values, tensors one after the other, without padding
 *   frozen.bin      those of frozen tensors, if the table says so: then they are not in work.bin
 *   <stream>.bin    one for each state stream: the blocks of the tensors that have it, likewise
 *   hashes.bin      coh_logical_hash_rows
 *   manifest.json   text; its last member is the XXH3-64 of all bytes before it
 *
 * Files are numbered as the rows of the table (logical_hash.h), then frozen, hashes and manifest.
 *
 * docs/checkpoint.md describes the format for people. */
#ifndef COH_ENGINE_CHECKPOINT_FILES_H
#define COH_ENGINE_CHECKPOINT_FILES_H

#include "base/file_ops.h"
#include "engine/logical_hash.h"

#define COH_CHECKPOINT_FORMAT  "cohobate checkpoint"
#define COH_CHECKPOINT_VERSION 3 /* with a file of frozen tensors */
#define COH_CHECKPOINT_PLAIN   2 /* without */

enum {
    COH_FILE_WORK = 0, /* 1 + s: stream s of the table */
    COH_FILE_FROZEN = COH_LOGICAL_ROWS,
    COH_FILE_HASHES,
    COH_FILE_MANIFEST,
    COH_FILE_COUNT
};

typedef struct coh_file_name {
    char text[COH_OPTIMIZER_NAME_BYTES + sizeof(".json")];
} coh_file_name;

coh_file_name coh_checkpoint_file_name(const coh_logical_table *table, int file);

/* Returns the number of the data file (hashes included) after `file`; COH_FILE_MANIFEST after the
 * last one. The first is COH_FILE_WORK. */
static inline int coh_checkpoint_next_file(const coh_logical_table *table, int file)
{
    if (file == table->stream_count)
        return table->frozen != COH_FROZEN_IN_WORK ? COH_FILE_FROZEN : COH_FILE_HASHES;
    return file + 1;
}

/* Returns the file that holds row `row` of a tensor, which has it. */
int coh_checkpoint_file_of(const coh_logical_table *table, uint32_t tensor, int row);
/* Returns the bytes that `elements` elements, from the start of a block on, take in `file`. */
uint64_t coh_checkpoint_file_bytes(const coh_logical_table *table, int file, uint64_t elements);

/* The manifest ends with exactly this text; %016 is the hash as 16 hex digits. */
#define COH_MANIFEST_SEAL       ",\n  \"manifest_hash\": \"%016" PRIx64 "\"\n}\n"
#define COH_MANIFEST_SEAL_BYTES (sizeof(",\n  \"manifest_hash\": \"\"\n}\n") - 1 + 16)

/* XXH3-64 of the manifest's text before the seal. */
uint64_t coh_manifest_hash(const char *text, size_t bytes);

/* Longest manifest that a reader accepts (a guard against foreign files). */
#define COH_MANIFEST_BYTES_MOST (256u << 20)

/* Computes the byte offset of each tensor in `file`, a row's or that of frozen tensors, and the
 * file's size. `offsets` may be NULL; those of tensors that the file lacks are left as they are.
 * Fails: COH_ERR_FULL when sizes overflow. */
coh_status coh_checkpoint_offsets(const coh_logical_table *table, int file, uint64_t *offsets,
                                  uint64_t *out_bytes);

/* Is there a file in folder `path` that every checkpoint has: work.bin, hashes.bin or
 * manifest.json? Returns 1, 0, or -errno. */
int coh_checkpoint_is_at(const char *path);

/* Does the path end in .partial, as that of a save that is not finished? A slash at its end does
 * not count. */
int coh_checkpoint_is_partial(const char *path);

/* Unlinks a checkpoint's files from folder `path`, then removes the folder. Allocates nothing.
 *
 * The streams of a partial checkpoint are not known, so its files are found by name: the files of
 * coh_checkpoint_is_at, frozen.bin, m.bin, v.bin, and <stream>.state for every name of a stream.
 * The manifest is unlinked first, so that a crash leaves no folder that looks whole. work.bin is
 * unlinked last, so that the rest can still be recognised: streams and frozen.bin are left alone in
 * a folder without any file of coh_checkpoint_is_at, unless its name ends in .partial, which only a
 * save makes. Other checkpoints that share frozen.bin keep it.
 *
 * A missing folder or file is not an error. Returns 0 or -errno: -ENOTEMPTY when the folder holds
 * anything else, which stays. */
int coh_checkpoint_unlink(coh_file_ops *ops, const char *path);

/* Returns COH_ERR_IO and sets the error text "<what> <path>: <reason of -errno>". A full disk is
 * also COH_ERR_IO. */
coh_status coh_file_fail(int error, const char *what, const char *path);

#endif
