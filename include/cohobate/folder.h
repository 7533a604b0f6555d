/* folder.h - reads parameters from a Hugging Face folder into an engine, and writes them from a
 * checkpoint into a folder.
 *
 *     FOLDER ──> coh_folder_open ──> coh_engine_init_from(..., coh_folder_numbers, folder)
 *     checkpoint ──> a coh_number_source ──> coh_folder_write ──> FOLDER
 *
 * The one idea: both directions move ranges of one parameter, in our name and our layout, so a
 * model of any size passes through a few MiB. A folder's tensor names, its transposed tensors
 * (GPT-2's linears) and its 16-bit storage are handled here and nowhere else (coh_model_tensor_at).
 *
 * A folder must match its model exactly: every parameter appears once, in its shape, as f32, f16 or
 * bf16, and there is no tensor that the model does not have. Two things are skipped: a tied head
 * that repeats the token table, and constants that old files hold.
 * Threads: an open folder changes only in coh_folder_close; any thread may read it. */
#ifndef COHOBATE_FOLDER_H
#define COHOBATE_FOLDER_H

#include "cohobate/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- in ---- */

/* The tensors of an open folder. */
typedef struct coh_folder coh_folder;

/* Opens the tensors of model->folder and checks their headers against the model. Reads data only if
 * a tied head is stored next to its table: then both tensors once, with 24 KiB of stack.
 * Fails: COH_ERR_CORRUPT naming folder, tensor and problem (missing, twice, unknown, wrong shape,
 * wrong dtype, a tied head that differs from its table); COH_ERR_ARGUMENT (the model comes from no
 * folder); COH_ERR_IO; COH_ERR_MEMORY. */
COH_API coh_status coh_folder_open(const coh_model *model, coh_folder **out_folder);
/* Accepts NULL. Frees the texts that the folder returned. */
COH_API void coh_folder_close(coh_folder *folder);

/* Facts about the files of a folder. `tensor_count` counts the model's parameters, `file_count` the
 * safetensors files. */
typedef struct coh_folder_facts {
    uint32_t struct_bytes;
    /* dtype of the tensors; if they differ, the dtype that most numbers have. Takes precedence over
     * config.json, where many folders omit it. */
    coh_dtype stored;
    int32_t mixed; /* 1: the dtypes differ */
    int64_t tensor_count;
    uint64_t parameter_count; /* numbers in them */
    uint64_t bytes;           /* of their data */
    uint32_t file_count;
    int64_t passed_over_count; /* tensors in the files that are not parameters */
} coh_folder_facts;
/* Reads the facts from the headers; reads no data. Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_folder_facts_get(const coh_folder *folder, coh_folder_facts *out_facts);

/* Records in `model`, with which the folder was opened, how its tensors are stored: stored, dtypes
 * and metadata. An export of the model, or of what was trained from it, is then stored alike. Facts
 * that do not fit are reported in model->notes: different dtypes among more than 2047 tensors,
 * metadata of more than 1 KB, or metadata that differs between files.
 * Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_folder_describe(const coh_folder *folder, coh_model *model);

/* Location of one parameter in the files. Texts live as long as the folder is open. `tensor`
 * describes the parameter, `file_name` is the file that holds it, in `dtype`. */
typedef struct coh_folder_tensor {
    coh_model_tensor tensor;
    const char *found_name; /* in the file; may lack the prefix of tensor.published */
    const char *file_name;
    coh_dtype dtype;
} coh_folder_tensor;
/* Reads entry `index`, numbered as in coh_model_tensor_at. Fails: COH_ERR_ARGUMENT if there is
 * none. */
COH_API coh_status coh_folder_tensor_at(const coh_folder *folder, int64_t index,
                                        coh_folder_tensor *out_tensor);

/* A coh_parameter_source (engine.h) whose context `folder` is a coh_folder: gives elements
 * [element_begin, element_begin + count) of the parameter we call `name`, in our layout, as f32
 * (exact). A model's folder holds no adapters (coh_model_is_adapter_name); their values are left
 * unchanged. Memory: 24 KiB of stack. A transposed tensor is read row by row, one read per row, so
 * wide ranges are cheaper than narrow ones.
 * Fails: COH_ERR_CORRUPT (the model has no such name or range), COH_ERR_IO (also if the file has
 * become shorter). */
COH_API coh_status coh_folder_numbers(void *folder, coh_parameter parameter, const char *name,
                                      uint64_t element_begin, uint64_t count, float *values);

/* ---- out ---- */

/* Supplies elements [element_begin, element_begin + count) of the parameter we call `name`, in our
 * layout. Called with ranges in any order, some more than once. */
typedef coh_status (*coh_number_source)(void *context, const char *name, uint64_t element_begin,
                                        uint64_t count, float *values);

/* Ids by which a tokenizer begins and ends texts. */
typedef struct coh_text_ids {
    int32_t begin; /* coh_tokenizer_begin_of_text; -1: none */
    int32_t end;   /* coh_tokenizer_end_of_text; -1: none */
} coh_text_ids;

/* Options of coh_folder_write. */
typedef struct coh_folder_write_options {
    uint32_t struct_bytes;
    /* of the tensors: f32, f16 or bf16; narrowing rounds to nearest. model->dtypes overrides it for
     * the tensors that it lists. */
    coh_dtype dtype;
    uint64_t shard_bytes; /* begin a new file if the next tensor would exceed this; 0: one file */
    /* Folder or tokenizer file to copy tokenizer files from, as far as they exist; NULL: none. */
    const char *files_from;
    /* Folder that the weights came from. Its licence terms, model card and generation_config.json
     * are copied: LICENSE*, LICENCE*, NOTICE* (in upper or lower case) and README.md. NULL: no
     * terms, and generation_config.json comes from files_from. */
    const char *notices_from;
    /* For a model that was trained on conversations (coh_chat_template_text, coh_chat_end_of_turn):
     * a chat template to write as chat_template.jinja instead of that of files_from, and an id to
     * add to those that end a text (eos_token_id of generation_config.json). NULL: neither. */
    const char *chat_template;
    const int32_t *end_of_turn; /* of one id */
    /* For a tokenizer other than that of the folder that the weights came from: its ids replace
     * bos_token_id and eos_token_id of config.json and generation_config.json, and other members
     * with ids of the former tokenizer are left out. NULL: all stay. */
    const coh_text_ids *text_ids;
} coh_folder_write_options;

/* Writes the model into a new folder `path` that `transformers` reads: config.json, the tensors as
 * safetensors, and the tokenizer's files. Writes under a temporary name next to `path`, flushes
 * each file, then renames; an existing `path` is refused.
 * Memory: 9 MiB for numbers, and less than 1 KiB per tensor for lists and headers.
 * Time: asks for each tensor once; for a transposed one, once per 4 MiB of it.
 * Fails: with the source's failure; COH_ERR_CORRUPT (a number is not finite: tensor, row and column
 * are named); COH_ERR_NUMBER (a finite number is out of the range of `dtype`, named);
 * COH_ERR_ARGUMENT (`path` exists, dtype); COH_ERR_FULL, COH_ERR_IO, COH_ERR_MEMORY. Nothing is
 * left behind then. */
COH_API coh_status coh_folder_write(const coh_model *model, const coh_folder_write_options *options,
                                    const char *path, coh_number_source source, void *context);

/* Removes temporary folders that killed writes of folder `path` left next to it, if they belong to
 * this user and no process holds them. Every write begins with it. Call it before checking disk
 * space. Fails: COH_ERR_ARGUMENT (`path` exists, or cannot name a folder). */
COH_API coh_status coh_folder_clear(const char *path);

/* Returns the disk bytes of such a folder, each file rounded up to whole pages, before anything is
 * written.
 * Fails: COH_ERR_ARGUMENT (NULL, dtype), COH_ERR_FULL (beyond 64 bits), COH_ERR_IO (files_from or
 * notices_from cannot be read), COH_ERR_MEMORY. */
COH_API coh_status coh_folder_write_bytes(const coh_model *model,
                                          const coh_folder_write_options *options,
                                          uint64_t *out_bytes);

/* Writes a new folder `path` with the files of a tokenizer that coh_tokenizer_open reads from the
 * folder or file `from`, and those of chat templates, licences and notices, config.json and
 * generation_config.json next to it. Written whole or not at all, as by coh_folder_write.
 * Fails: COH_ERR_ARGUMENT (NULL, `path` exists), COH_ERR_CORRUPT (`from` has none of these files),
 * COH_ERR_IO. */
COH_API coh_status coh_folder_write_tokenizer(const char *from, const char *path);

#ifdef __cplusplus
}
#endif
#endif
