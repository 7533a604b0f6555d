/* safetensors.h - reading and writing models' tensors as Hugging Face keeps them.
 *
 *     model.safetensors
 *     | n, 8 bytes | header: n bytes of JSON, padded with blanks | data: tensor after tensor |
 *
 *     {"__metadata__": {"format": "pt"},
 *      "h.0.ln_1.weight": {"dtype": "F32", "shape": [768], "data_offsets": [0, 3072]}, ...}
 *
 *     model.safetensors.index.json: which tensor is in which of several such files (shards)
 *
 * The one idea: a file is believed only as a whole. The header says of every byte of the data which
 * tensor it belongs to; a header that leaves a byte out, or gives one away twice, is refused before
 * anything is read. So is whatever the reference reader (the Python package `safetensors`, 0.8)
 * refuses, and beyond that what it lets pass but nobody means:
 *
 *     - a name, or a key of the metadata, that stands there twice
 *     - names that are empty, longer than COH_SAFETENSORS_NAME_BYTES, or hold control characters;
 *       metadata with a NUL
 *     - blanks before the header's "{"; an entry that is an array, or has members beyond the three;
 *       metadata that is null; a dtype that is an object
 *     - more than COH_SAFETENSORS_RANK_MAX dimensions, or one of 2^63 and more
 *
 * Data are read by pread into the caller's memory, any range at any time; nothing is mapped, since
 * mapped pages count as memory. What an open model holds: its headers as they are in the files, and
 * about 150 bytes per tensor.
 *
 * Every dtype of the format is listed and can be copied as bytes (old files carry masks of BOOL and
 * counters of I64); numbers can be had of F32, F16 and BF16, others are refused by name. Everything
 * is little-endian, as are the machines this library runs on.
 *
 * Threads: an open model does not change, any thread may read; a writer belongs to one. */
#ifndef COH_MODELS_SAFETENSORS_H
#define COH_MODELS_SAFETENSORS_H

#include "cohobate/model.h"

#define COH_SAFETENSORS_HEADER_BYTES 100000000u /* the reference's limit: 10^8, not 100 MiB */
#define COH_SAFETENSORS_NAME_BYTES   1024u      /* of a tensor's name, the most */
#define COH_SAFETENSORS_RANK_MAX     8

/* A tensor: what a file says of it. A writer reads name, dtype and shape, and leaves the rest
 * alone, so a list that was read can be written as it is. */
typedef struct coh_safetensors_tensor {
    const char *name;                      /* UTF-8; of an open model: lives as long as it */
    const char *dtype;                     /* "F32", "BF16", ...; of an open model: static */
    int32_t rank;                          /* 0: a scalar, one element */
    uint32_t file;                         /* the shard it is in, 0 where there is one file */
    int64_t dim[COH_SAFETENSORS_RANK_MAX]; /* may be 0: no elements, no bytes */
    uint64_t bytes;                        /* elements * element bytes */
    uint64_t offset;                       /* from the begin of its file */
} coh_safetensors_tensor;

/* One entry of a file's metadata: free text, UTF-8. */
typedef struct coh_safetensors_pair {
    const char *key, *value;
} coh_safetensors_pair;

/* The name of a dtype that numbers can be had of: "F32", "F16", "BF16"; NULL for others. */
const char *coh_safetensors_dtype_name(coh_dtype dtype);

/* The other way round. Fails: COH_ERR_CORRUPT naming the tensor and its dtype when no numbers can
 * be had of it. */
coh_status coh_safetensors_dtype(const coh_safetensors_tensor *tensor, coh_dtype *out_dtype);

/* Elements of a tensor that was read or accepted by a writer. */
uint64_t coh_safetensors_elements(const coh_safetensors_tensor *tensor);

/* Sorts a list as the reference writes it: wide elements first (in its order of dtypes), then by
 * the bytes of the names. So every tensor begins on a multiple of its element's size. */
void coh_safetensors_sort(coh_safetensors_tensor *tensors, size_t count);

/* ---- reading ---- */

typedef struct coh_safetensors coh_safetensors;

/* Opens a file, or a folder: its model.safetensors, or else the shards that its
 * model.safetensors.index.json names. An index is checked against its shards both ways: each tensor
 * is where it says, and no shard holds one that it does not know. Shards stand in the folder itself
 * (a link to elsewhere may, as Hugging Face's cache has them); a name that leads out of it is
 * refused.
 * Close with coh_safetensors_close. Fails: COH_ERR_ARGUMENT (a folder without a model), COH_ERR_IO,
 * COH_ERR_CORRUPT with file, place and reason, COH_ERR_MEMORY. */
coh_status coh_safetensors_open(const char *path, coh_safetensors **out_model);
void coh_safetensors_close(coh_safetensors *model); /* accepts NULL */

/* All tensors as one list, shard after shard in order of the shards' names, each by offset;
 * *out_count of them. Owned by the model. */
const coh_safetensors_tensor *coh_safetensors_tensors(const coh_safetensors *model,
                                                      size_t *out_count);

/* The tensor of that name, or NULL. Time: a binary search. */
const coh_safetensors_tensor *coh_safetensors_find(const coh_safetensors *model, const char *name);

/* Files of the model, and the name of one within its folder. */
uint32_t coh_safetensors_file_count(const coh_safetensors *model);
const char *coh_safetensors_file_name(const coh_safetensors *model, uint32_t file);

/* The metadata of one file, in the file's order; *out_count pairs, owned by the model. NULL where
 * the file has none, which is not the same as none in it: a writer that is given what stands here
 * writes what stood there. */
const coh_safetensors_pair *coh_safetensors_metadata(const coh_safetensors *model, uint32_t file,
                                                     size_t *out_count);

/* Bytes [offset, offset + bytes) of the tensor's data to `memory`, as they are in the file. Any
 * dtype. Fails: COH_ERR_ARGUMENT (beyond the tensor), COH_ERR_IO (also: the file has become shorter
 * since it was opened). */
coh_status coh_safetensors_read(const coh_safetensors *model, const coh_safetensors_tensor *tensor,
                                uint64_t offset, uint64_t bytes, void *memory);

/* Elements [first, first + count) as numbers of `dtype`, F32, F16 or BF16: exact where it is as
 * wide or wider, else rounded (base/half.h). Equal dtypes give equal bits. Extra memory: 16 KiB of
 * stack. Fails: as coh_safetensors_read, and COH_ERR_CORRUPT where the file's dtype has no numbers
 * for us. */
coh_status coh_safetensors_read_numbers(const coh_safetensors *model,
                                        const coh_safetensors_tensor *tensor, uint64_t first,
                                        uint64_t count, coh_dtype dtype, void *memory);

/* ---- writing one file ---- */

/* A file that is there whole or not at all:
 *
 *     create -> add... -> finish (flush to disk) -> publish (rename, flush the folder) -> destroy
 *
 * Until publish, all is under a temporary name beside `path`; destroy removes what is not published
 * to the end. An existing file is never written over. Memory: 256 KiB, and the header while it is
 * being made. Every file operation can be made to fail (base/file_ops.h). */
typedef struct coh_safetensors_writer coh_safetensors_writer;

/* Writes the header: the metadata (NULL: no "__metadata__"), then the tensors in this order, which
 * is also the order of their data. As the reference writes it, byte for byte: no blanks but those
 * that pad it to a multiple of 8. The lists are not needed afterwards; equal lists give equal
 * bytes. Fails: COH_ERR_ARGUMENT (`path` exists; a name, dtype or shape that the reader would
 * refuse), COH_ERR_FULL (no room, or sizes beyond 64 bits), COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_safetensors_writer_create(const char *path, const coh_safetensors_tensor *tensors,
                                         size_t count, const coh_safetensors_pair *metadata,
                                         size_t metadata_count,
                                         coh_safetensors_writer **out_writer);

/* The next bytes of the data, in pieces of any size. Fails: COH_ERR_ARGUMENT (more than the header
 * has room for), COH_ERR_IO. After a failure only destroy makes sense. */
coh_status coh_safetensors_writer_add(coh_safetensors_writer *writer, const void *data,
                                      size_t bytes);

/* Fails: COH_ERR_ARGUMENT (data are missing), COH_ERR_IO. */
coh_status coh_safetensors_writer_finish(coh_safetensors_writer *writer);

/* Fails: COH_ERR_ARGUMENT (`path` has come to exist), COH_ERR_IO. */
coh_status coh_safetensors_writer_publish(coh_safetensors_writer *writer);

void coh_safetensors_writer_destroy(coh_safetensors_writer *writer); /* accepts NULL */

/* ---- writing a folder ---- */

/* Which shard each tensor goes to, in order: a new one begins where the next tensor would lift the
 * data above shard_bytes, so only a tensor that is larger by itself makes a larger shard. 0: all in
 * one. Sets `file` of each tensor and returns how many shards there are, at least 1. */
uint32_t coh_safetensors_shard(coh_safetensors_tensor *tensors, size_t count, uint64_t shard_bytes);

/* A model in an existing folder: model.safetensors where all tensors are in file 0, else
 * model-00001-of-0000N.safetensors and so on, and model.safetensors.index.json, laid out as
 * `transformers` writes it.
 *
 *     create -> add... -> publish -> destroy
 *
 * Shards are written one after the other under temporary names, each flushed when it is full;
 * publish renames them all and, once that is durable, the index: a folder with an index is whole.
 * When anything fails, destroy leaves no file of ours behind. */
typedef struct coh_safetensors_folder_writer coh_safetensors_folder_writer;

/* `tensors` in order of their `file`, which begins at 0 and leaves out none
 * (coh_safetensors_shard); each file has `metadata`. Both lists must live until destroy. Fails: as
 * coh_safetensors_writer_create; also COH_ERR_ARGUMENT where the folder already holds a model. */
coh_status coh_safetensors_folder_writer_create(const char *folder,
                                                const coh_safetensors_tensor *tensors, size_t count,
                                                const coh_safetensors_pair *metadata,
                                                size_t metadata_count,
                                                coh_safetensors_folder_writer **out_writer);

/* The next bytes of the data, across shards too. Fails: as coh_safetensors_writer_add, and as
 * coh_safetensors_writer_create where a shard begins. */
coh_status coh_safetensors_folder_writer_add(coh_safetensors_folder_writer *writer,
                                             const void *data, size_t bytes);

/* Fails: COH_ERR_ARGUMENT (data are missing; a name is taken now), COH_ERR_IO, COH_ERR_FULL. */
coh_status coh_safetensors_folder_writer_publish(coh_safetensors_folder_writer *writer);

void coh_safetensors_folder_writer_destroy(
    coh_safetensors_folder_writer *writer); /* NULL: nothing */

#endif
