/* adapters.h - what was trained beside a model (coh_adapters, models.h): into a folder of its own,
 * or into the model's.
 *
 *     checkpoint ──> coh_adapters_write ──> FOLDER that the Python package PEFT reads
 *                ──> coh_merge_numbers  ──> coh_folder_write ──> a model without adapters
 *
 * Both take numbers from a coh_number_source, by ranges, as coh_folder_write does. */
#ifndef COHOBATE_ADAPTERS_H
#define COHOBATE_ADAPTERS_H

#include "cohobate/folder.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_adapters_write_options {
    coh_dtype dtype;  /* of the tensors: f32, f16 or bf16; narrowing rounds to the nearest */
    const char *base; /* path or name of the model they belong to, noted for PEFT; NULL: none */
    /* The folder (or file) whose tokenizer goes along, those of its files that are there; NULL:
     * none. */
    const char *files_from;
} coh_adapters_write_options;

/* Writes the model's adapters into a new folder `path`: adapter_config.json and
 * adapter_model.safetensors, which hold nothing of the model itself, and the tokenizer's files.
 * Whole or not at all, as coh_folder_write. Memory: 6 MiB.
 * Fails: with the source's failure; COH_ERR_CORRUPT (a number that is not finite: tensor, row and
 * column are named); COH_ERR_NUMBER (a finite number that `dtype` has no room for);
 * COH_ERR_ARGUMENT (the model has no adapters; `path` exists); COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_adapters_write(const coh_model *model,
                                      const coh_adapters_write_options *options, const char *path,
                                      coh_number_source source, void *context);

/* Bytes of disk that such a folder takes, as coh_folder_write_bytes. */
COH_API coh_status coh_adapters_write_bytes(const coh_model *model,
                                            const coh_adapters_write_options *options,
                                            uint64_t *out_bytes);

/* The model's numbers with its adapters merged into them: W + (alpha / rank) B A, in f32. */
typedef struct coh_merge coh_merge;

/* `source` and `context` give the numbers of model and adapters, and must live until
 * coh_merge_close. Memory: the largest adapter. Fails: COH_ERR_ARGUMENT (the model has no
 * adapters), COH_ERR_MEMORY. */
COH_API coh_status coh_merge_open(const coh_model *model, coh_number_source source, void *context,
                                  coh_merge **out_merge);
/* Accepts NULL; `source` and `context` are the caller's still. */
COH_API void coh_merge_close(coh_merge *merge);

/* A coh_number_source, `merge` a coh_merge: what has no adapter goes through as it is. */
COH_API coh_status coh_merge_numbers(void *merge, const char *name, uint64_t element_begin,
                                     uint64_t count, float *values);

#ifdef __cplusplus
}
#endif
#endif
