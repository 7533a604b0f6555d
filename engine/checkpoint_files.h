/* checkpoint_files.h - names, order and sizes of a checkpoint's files.
 *
 *   work.bin m.bin v.bin   tensors one after the other, without padding; m and v only of tensors
 *                          that have states; if none has, m.bin and v.bin do not exist
 *   hashes.bin             coh_logical_hash_table
 *   manifest.json          text; its last member is the XXH3-64 of all bytes before it
 *
 * docs/checkpoint.md describes the format for people. */
#ifndef COH_ENGINE_CHECKPOINT_FILES_H
#define COH_ENGINE_CHECKPOINT_FILES_H

#include "base/file_ops.h"
#include "engine/logical_hash.h"

#define COH_CHECKPOINT_FORMAT  "cohobate checkpoint"
#define COH_CHECKPOINT_VERSION 1

typedef enum coh_checkpoint_file {
    COH_FILE_WORK, /* = COH_PART_WORK, and so on */
    COH_FILE_M,
    COH_FILE_V,
    COH_FILE_HASHES,
    COH_FILE_MANIFEST,
    COH_FILE_COUNT
} coh_checkpoint_file;

const char *coh_checkpoint_file_name(coh_checkpoint_file file);

/* The manifest ends with exactly this text; %016 is the hash as 16 hex digits. */
#define COH_MANIFEST_SEAL       ",\n  \"manifest_hash\": \"%016" PRIx64 "\"\n}\n"
#define COH_MANIFEST_SEAL_BYTES (sizeof(",\n  \"manifest_hash\": \"\"\n}\n") - 1 + 16)

/* XXH3-64 of the manifest's text before the seal. */
uint64_t coh_manifest_hash(const char *text, size_t bytes);

/* Longest manifest that a reader accepts (a guard against foreign files). */
#define COH_MANIFEST_BYTES_MOST (256u << 20)

/* Computes the byte offset of each tensor in the part's file, and the file's size. `offsets` may be
 * NULL. Fails: COH_ERR_FULL when sizes overflow. */
coh_status coh_checkpoint_offsets(const coh_logical_tensor *tensors, uint32_t tensor_count,
                                  coh_part part, uint64_t *offsets, uint64_t *out_bytes);

/* Unlinks a checkpoint's files from folder `path`, the manifest first, then removes the folder. A
 * missing file is not an error. Returns 0 or -errno: -ENOTEMPTY when the folder holds anything
 * else. */
int coh_checkpoint_unlink(coh_file_ops *ops, const char *path);

/* Returns COH_ERR_IO and sets the error text "<what> <path>: <reason of -errno>". A full disk is
 * also COH_ERR_IO. */
coh_status coh_file_fail(int error, const char *what, const char *path);

#endif
