/* safetensors.h - reads and writes models' tensors in Hugging Face's format.
 *
 *     model.safetensors
 *     | n, 8 bytes | header: n bytes of JSON, padded with blanks | data: tensor after tensor |
 *
 *     {"__metadata__": {"format": "pt"},
 *      "h.0.ln_1.weight": {"dtype": "F32", "shape": [768], "data_offsets": [0, 3072]}, ...}
 *
 *     model.safetensors.index.json: which tensor is in which of several such files (shards)
 *
 * The one idea: a file is validated as a whole. The header assigns every byte of the data to a
 * tensor; a header that omits a byte, or assigns one twice, is refused before any data is read.
 * Everything that the reference reader (the Python package `safetensors`, 0.8) refuses is refused,
 * too, and in addition:
 *
 *     - a name, or a key of the metadata, that occurs twice
 *     - names that are empty, longer than COH_SAFETENSORS_NAME_BYTES, or hold control characters;
 *       metadata with a NUL
 *     - blanks before the header's "{"; an entry that is an array, or has members beyond the three;
 *       metadata that is null; a dtype that is an object
 *     - more than COH_SAFETENSORS_RANK_MAX dimensions, or one of 2^63 and more
 *
 * pread reads any range of data at any time into the caller's memory. Nothing is mapped, since
 * mapped pages count as memory. An open model holds its headers as in the files, and about 150
 * bytes per tensor.
 *
 * Every dtype of the format is listed and can be copied as bytes (old files carry masks of BOOL and
 * counters of I64). F32, F16 and BF16 can be read as numbers; other dtypes are refused by name.
 * Everything is little-endian, as are the machines this library runs on.
 *
 * Threads: an open model is immutable, so any thread may read it; a writer belongs to one
 * thread. */
#ifndef COH_MODELS_SAFETENSORS_H
#define COH_MODELS_SAFETENSORS_H

#include "cohobate/model.h"

#define COH_SAFETENSORS_HEADER_BYTES 100000000u /* the reference's limit: 10^8, not 100 MiB */
#define COH_SAFETENSORS_NAME_BYTES   1024u      /* maximum length of a tensor's name */
#define COH_SAFETENSORS_RANK_MAX     8

/* A tensor as described in a file. A writer uses name, dtype and shape and ignores the rest, so a
 * list that was read can be written unchanged. */
typedef struct coh_safetensors_tensor {
    const char *name;                      /* UTF-8; in an open model: valid until it is closed */
    const char *dtype;                     /* "F32", "BF16", ...; in an open model: static */
    int32_t rank;                          /* 0: a scalar, one element */
    uint32_t file;                         /* its shard; 0 if there is one file */
    int64_t dim[COH_SAFETENSORS_RANK_MAX]; /* may be 0: no elements, no bytes */
    uint64_t bytes;                        /* elements * element bytes */
    uint64_t offset;                       /* from the start of its file */
} coh_safetensors_tensor;

/* One entry of a file's metadata: free text, UTF-8. */
typedef struct coh_safetensors_pair {
    const char *key, *value;
} coh_safetensors_pair;

/* The name of a numeric dtype: "F32", "F16", "BF16"; NULL for others. */
const char *coh_safetensors_dtype_name(coh_dtype dtype);

/* The reverse. Fails: COH_ERR_CORRUPT naming the tensor and its dtype if it is not numeric. */
coh_status coh_safetensors_dtype(const coh_safetensors_tensor *tensor, coh_dtype *out_dtype);

/* Elements of a tensor that was read, or that a writer accepted. */
uint64_t coh_safetensors_elements(const coh_safetensors_tensor *tensor);

/* Sorts a list as the reference does: wide elements first (in its order of dtypes), then by the
 * bytes of the names. Each tensor then starts at a multiple of its element size. */
void coh_safetensors_sort(coh_safetensors_tensor *tensors, size_t count);

/* ---- reading ---- */

typedef struct coh_safetensors coh_safetensors;

/* Opens a file, or a folder: its model.safetensors, or else the shards that its
 * model.safetensors.index.json names. An index is checked against its shards both ways: each listed
 * tensor is in its shard, and each tensor of a shard is listed. Shards are in the folder itself, or
 * links in it (as in Hugging Face's cache); a name that leads out of the folder is refused. Close
 * with coh_safetensors_close. Fails: COH_ERR_ARGUMENT (a folder without a model), COH_ERR_IO,
 * COH_ERR_CORRUPT with file, place and reason, COH_ERR_MEMORY. */
coh_status coh_safetensors_open(const char *path, coh_safetensors **out_model);
void coh_safetensors_close(coh_safetensors *model); /* accepts NULL */

/* All tensors as one list, shard after shard in order of the shards' names, each by offset;
 * *out_count of them. Owned by the model. */
const coh_safetensors_tensor *coh_safetensors_tensors(const coh_safetensors *model,
                                                      size_t *out_count);

/* The tensor of that name, or NULL; by binary search. */
const coh_safetensors_tensor *coh_safetensors_find(const coh_safetensors *model, const char *name);

/* Number of files of the model, and the name of one within its folder. */
uint32_t coh_safetensors_file_count(const coh_safetensors *model);
const char *coh_safetensors_file_name(const coh_safetensors *model, uint32_t file);

/* The metadata of one file, in the file's order; *out_count pairs, owned by the model. NULL if the
 * file has no "__metadata__", which differs from an empty one: a writer given this result writes
 * the same header. */
const coh_safetensors_pair *coh_safetensors_metadata(const coh_safetensors *model, uint32_t file,
                                                     size_t *out_count);

/* Reads bytes [offset, offset + bytes) of the tensor's data into `memory`, unconverted. Any dtype.
 * Fails: COH_ERR_ARGUMENT (beyond the tensor), COH_ERR_IO (also: the file was truncated after
 * opening). */
coh_status coh_safetensors_read(const coh_safetensors *model, const coh_safetensors_tensor *tensor,
                                uint64_t offset, uint64_t bytes, void *memory);

/* Reads elements [first, first + count) as numbers of `dtype`, F32, F16 or BF16: exact if `dtype`
 * is at least as wide, else rounded (base/half.h). Equal dtypes give equal bits. Extra memory: 16
 * KiB of stack. Fails: as coh_safetensors_read, and COH_ERR_CORRUPT if the file's dtype is not
 * numeric. */
coh_status coh_safetensors_read_numbers(const coh_safetensors *model,
                                        const coh_safetensors_tensor *tensor, uint64_t first,
                                        uint64_t count, coh_dtype dtype, void *memory);

/* ---- writing one file ---- */

/* Writes a file atomically: it exists completely or not at all.
 *
 *     create -> add... -> finish (flush to disk) -> publish (rename, flush the folder) -> destroy
 *
 * Until publish, everything is in a temporary file next to `path`; destroy removes it unless
 * publish succeeded. An existing file is never overwritten. Memory: 256 KiB, and the header while
 * it is built. A test can make every file operation fail
 * (base/file_ops.h). */
typedef struct coh_safetensors_writer coh_safetensors_writer;

/* Writes the header: the metadata (NULL: no "__metadata__"), then the tensors in this order, which
 * is also the order of their data. Byte for byte as the reference writes it: the only blanks pad it
 * to a multiple of 8. The lists are not needed afterwards; equal lists give equal bytes. Fails:
 * COH_ERR_ARGUMENT (`path` exists; a name, dtype or shape that the reader would refuse),
 * COH_ERR_FULL (no room, or sizes beyond 64 bits), COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_safetensors_writer_create(const char *path, const coh_safetensors_tensor *tensors,
                                         size_t count, const coh_safetensors_pair *metadata,
                                         size_t metadata_count,
                                         coh_safetensors_writer **out_writer);

/* Appends the next bytes of the data, in pieces of any size. Fails: COH_ERR_ARGUMENT (more than the
 * header declares), COH_ERR_IO. After a failure only destroy may be called. */
coh_status coh_safetensors_writer_add(coh_safetensors_writer *writer, const void *data,
                                      size_t bytes);

/* Writes and flushes the rest. Fails: COH_ERR_ARGUMENT (data are missing), COH_ERR_IO. */
coh_status coh_safetensors_writer_finish(coh_safetensors_writer *writer);

/* Renames the file to `path`. Fails: COH_ERR_ARGUMENT (`path` exists now), COH_ERR_IO. */
coh_status coh_safetensors_writer_publish(coh_safetensors_writer *writer);

void coh_safetensors_writer_destroy(coh_safetensors_writer *writer); /* accepts NULL */

/* ---- writing a folder ---- */

/* Assigns tensors to shards in order: a new shard begins if the next tensor would raise the data
 * above shard_bytes, so only a single tensor larger than that makes a larger shard. 0: all in one.
 * Sets `file` of each tensor and returns the number of shards, at least 1. */
uint32_t coh_safetensors_shard(coh_safetensors_tensor *tensors, size_t count, uint64_t shard_bytes);

/* Writes a model into an existing folder: model.safetensors if all tensors are in file 0, else
 * model-00001-of-0000N.safetensors and so on, and model.safetensors.index.json, laid out as
 * `transformers` writes it.
 *
 *     create -> add... -> publish -> destroy
 *
 * Shards are written one after the other under temporary names, each flushed when it is full.
 * publish renames them all and, once that is durable, the index: a folder with an index is
 * complete. If anything fails, destroy removes all files of this writer. */
typedef struct coh_safetensors_folder_writer coh_safetensors_folder_writer;

/* `tensors` are sorted by `file`, which counts from 0 without gaps (coh_safetensors_shard); each
 * file gets `metadata`. Both lists must live until destroy. Fails: as
 * coh_safetensors_writer_create; also COH_ERR_ARGUMENT if the folder already holds a model. */
coh_status coh_safetensors_folder_writer_create(const char *folder,
                                                const coh_safetensors_tensor *tensors, size_t count,
                                                const coh_safetensors_pair *metadata,
                                                size_t metadata_count,
                                                coh_safetensors_folder_writer **out_writer);

/* Appends the next bytes of the data, also across shards. Fails: as coh_safetensors_writer_add, and
 * as coh_safetensors_writer_create if a shard begins. */
coh_status coh_safetensors_folder_writer_add(coh_safetensors_folder_writer *writer,
                                             const void *data, size_t bytes);

/* Completes and renames all files. Fails: COH_ERR_ARGUMENT (data are missing; a name is taken now),
 * COH_ERR_IO, COH_ERR_FULL. */
coh_status coh_safetensors_folder_writer_publish(coh_safetensors_folder_writer *writer);

void coh_safetensors_folder_writer_destroy(
    coh_safetensors_folder_writer *writer); /* accepts NULL */

#endif
