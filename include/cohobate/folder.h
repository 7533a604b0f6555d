/* folder.h - the parameters of a Hugging Face folder, into an engine and out of a checkpoint.
 *
 *     FOLDER ──> coh_folder_open ──> coh_engine_init_from(..., coh_folder_numbers, folder)
 *     checkpoint ──> a coh_number_source ──> coh_folder_write ──> FOLDER
 *
 * The one idea: both ways go by ranges of one parameter in our name and our layout, so a model
 * passes through a few MiB whatever its size. What a folder calls its tensors, keeps the other way
 * round (GPT-2's linears) and stores in 16 bits is known here and nowhere else
 * (coh_model_tensor_at).
 *
 * A folder is taken as a whole or not at all: every parameter is there once, in its shape and in
 * f32, f16 or bf16, and nothing is there that the model does not have. Passed over are a tied head
 * that holds the token table once more, and constants that old files hold.
 *
 * Threads: an open folder does not change but for coh_folder_close; any thread may read it. */
#ifndef COHOBATE_FOLDER_H
#define COHOBATE_FOLDER_H

#include "cohobate/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- in ---- */

typedef struct coh_folder coh_folder;

/* Opens the tensors of model->folder and holds them to the model by their headers. Data are read of
 * a tied head alone, where it is there beside its table: 24 KiB of stack, both tensors once.
 * Fails: COH_ERR_CORRUPT naming folder, tensor and what is wrong with it (missing, twice, unknown,
 * of another shape, of another dtype, a tied head that is not its table); COH_ERR_ARGUMENT (the
 * model is of no folder); COH_ERR_IO; COH_ERR_MEMORY. */
COH_API coh_status coh_folder_open(const coh_model *model, coh_folder **out_folder);
/* Accepts NULL. Texts that the folder gave out end with it. */
COH_API void coh_folder_close(coh_folder *folder);

typedef struct coh_folder_facts {
    /* Of the tensors: where they differ, that of most numbers. It goes before what config.json
     * says, which many folders leave out. */
    coh_dtype stored;
    int32_t mixed; /* 1: they differ */
    int64_t tensor_count;
    uint64_t parameter_count; /* numbers in them */
    uint64_t bytes;           /* of their data */
    uint32_t file_count;
    int64_t passed_over_count; /* tensors of the files that are no parameters */
} coh_folder_facts;
/* From the headers: reads no data. Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_folder_facts_get(const coh_folder *folder, coh_folder_facts *out_facts);

/* Notes in `model`, which the folder was opened with, how its tensors are stored: stored, dtypes
 * and metadata, so that an export of it, or of what was trained from it, is stored alike. What
 * there is no room for is said in model->notes: several dtypes of more than 2047 tensors, metadata
 * of more than 1 KB or that its files do not share. Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_folder_describe(const coh_folder *folder, coh_model *model);

/* Where one parameter was found. Texts live as long as the folder is open. */
typedef struct coh_folder_tensor {
    coh_model_tensor tensor;
    const char *found_name; /* in the file: may lack the prefix of tensor.published */
    const char *file_name;
    coh_dtype dtype;
} coh_folder_tensor;
/* By index, as coh_model_tensor_at. Fails: COH_ERR_ARGUMENT when there is none. */
COH_API coh_status coh_folder_tensor_at(const coh_folder *folder, int64_t index,
                                        coh_folder_tensor *out_tensor);

/* A coh_parameter_source (engine.h), `folder` a coh_folder: elements [element_begin, element_begin
 * + count) of the parameter we call `name`, in our layout, as f32 (exact). Adapters
 * (coh_model_is_adapter_name) are in no folder of a model: theirs stay as they are.
 * Memory: 24 KiB of stack. A tensor kept the other way round is read by pieces of its rows, one
 * read a row: wide ranges are cheaper than narrow ones.
 * Fails: COH_ERR_CORRUPT (a name or range the model does not have), COH_ERR_IO (also: the file has
 * become shorter). */
COH_API coh_status coh_folder_numbers(void *folder, coh_parameter parameter, const char *name,
                                      uint64_t element_begin, uint64_t count, float *values);

/* ---- out ---- */

/* Gives elements [element_begin, element_begin + count) of the parameter we call `name`, in our
 * layout. Called in any order of ranges, some more than once. */
typedef coh_status (*coh_number_source)(void *context, const char *name, uint64_t element_begin,
                                        uint64_t count, float *values);

typedef struct coh_folder_write_options {
    /* of the tensors: f32, f16 or bf16; narrowing rounds to the nearest. Those that model->dtypes
     * says another of get that. */
    coh_dtype dtype;
    uint64_t shard_bytes; /* a new file where the next tensor would lift one above that; 0: one */
    /* The folder (or tokenizer file) whose tokenizer goes along, those of its files that are there;
     * NULL: none. */
    const char *files_from;
    /* The folder that the weights came from, whose terms, model card and generation_config.json go
     * along: LICENSE*, LICENCE*, NOTICE* (in any case) and README.md. NULL: no terms, and
     * generation_config.json comes from files_from. */
    const char *notices_from;
} coh_folder_write_options;

/* Writes the model into a new folder `path` that `transformers` reads: config.json, tensors as
 * safetensors, files of the tokenizer. Whole or not at all: under a temporary name beside `path`,
 * each file flushed, then renamed; an existing `path` is refused.
 * Memory: 9 MiB for numbers, and below 1 KiB a tensor for lists and headers.
 * Time: each tensor is asked for once; one kept the other way round once for every 4 MiB of it.
 * Fails: with the source's failure; COH_ERR_CORRUPT (a number that is not finite: tensor, row and
 * column are named); COH_ERR_NUMBER (a finite number that `dtype` has no room for,
 * named); COH_ERR_ARGUMENT (`path` exists, dtype); COH_ERR_FULL, COH_ERR_IO, COH_ERR_MEMORY.
 * Nothing is left behind then. */
COH_API coh_status coh_folder_write(const coh_model *model, const coh_folder_write_options *options,
                                    const char *path, coh_number_source source, void *context);

/* Before asking for room: removes what killed writes of folder `path` left beside it, of this user
 * and held by no process. Every write begins so. Fails: COH_ERR_ARGUMENT (`path` exists, or cannot
 * be a folder's). */
COH_API coh_status coh_folder_clear(const char *path);

/* Bytes of disk that such a folder takes, each file to whole pages: known before the first one.
 * Fails: COH_ERR_ARGUMENT (NULL, dtype), COH_ERR_FULL (beyond 64 bits), COH_ERR_IO (files_from
 * or notices_from cannot be read), COH_ERR_MEMORY. */
COH_API coh_status coh_folder_write_bytes(const coh_model *model,
                                          const coh_folder_write_options *options,
                                          uint64_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
