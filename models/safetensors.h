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
 * Writing: safetensors_write.h. Threads: an open model is immutable, so any thread may read it. */
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

/* The contents of a file, or of all files of a model. */
typedef struct coh_safetensors_list {
    const coh_safetensors_tensor *tensors; /* in the order of their data */
    size_t count;
    const coh_safetensors_pair *metadata; /* NULL: no "__metadata__" */
    size_t metadata_count;
} coh_safetensors_list;

/* How the numeric dtypes are called: in files of tensors, in config.json, in our notes, and there
 * for a single tensor (stored.h). */
enum { COH_STORED_DTYPES = COH_DTYPE_F16 + 1 };
typedef struct coh_dtype_names {
    const char *file, *config, *note;
    char letter;
} coh_dtype_names;
extern const coh_dtype_names coh_stored_dtypes[COH_STORED_DTYPES];

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

/* May a shard lack a tensor that the index puts into it? `model` has the tensors that exist. */
typedef int (*coh_safetensors_may_lack)(const void *context, const coh_safetensors *model,
                                        const char *name);

/* Likewise, but an index may name tensors that do not exist if `may_lack` returns 1 for them: the
 * conversion of .bin files on the Hub drops one of two tied tensors and keeps it in the index.
 * `may_lack` NULL: none. */
coh_status coh_safetensors_open_lacking(const char *path, coh_safetensors_may_lack may_lack,
                                        const void *context, coh_safetensors **out_model);
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

/* Reads elements [first, first + count) of the transpose of a matrix, as f32. Column c of the
 * transpose is row c of the file, so each row of the file gives one number to each row of the
 * range. Extra memory: 24 KiB of stack. The range lies in the tensor. Fails: as
 * coh_safetensors_read_numbers. */
coh_status coh_safetensors_read_turned(const coh_safetensors *model,
                                       const coh_safetensors_tensor *tensor, uint64_t first,
                                       uint64_t count, float *values);

#endif
