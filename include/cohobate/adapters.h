/* adapters.h - writes trained adapters (coh_adapters, models.h) to a separate folder, reads such a
 * folder, or merges adapters into the model.
 *
 *     checkpoint ──> coh_adapters_write ──> FOLDER of the Python package PEFT ──> coh_adapters_open
 *                ──> coh_merge_numbers  ──> coh_folder_write ──> a model without adapters
 *
 * The writers read numbers through a coh_number_source, in ranges, as coh_folder_write does.
 * Threads: any; a merge is used by one thread at a time. */
#ifndef COHOBATE_ADAPTERS_H
#define COHOBATE_ADAPTERS_H

#include "cohobate/folder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of coh_adapters_write. */
typedef struct coh_adapters_write_options {
    uint32_t struct_bytes;
    coh_dtype dtype;  /* of the tensors: f32, f16 or bf16; narrowing rounds to nearest */
    const char *base; /* path or name of the base model, noted for PEFT; NULL: none */
    /* Folder or file to copy tokenizer files from, as far as they exist; NULL: copy none. */
    const char *files_from;
    /* 1: they were trained over weights in NF4 (coh_model). The metadata of the tensors' file say
     * so, which PEFT does not read: its configuration has no such member. */
    int32_t frozen_nf4;
} coh_adapters_write_options;

/* Writes the model's adapters into a new folder `path`: adapter_config.json,
 * adapter_model.safetensors and the tokenizer's files. The configuration has the model's
 * lora_dropout, with which PEFT continues to train. The folder holds no weights of the model
 * itself, except those trained in full next to the adapters: as PEFT's modules_to_save, whole, and
 * a token table that is the head, too, under the names of both. Written whole or not at all, as by
 * coh_folder_write. Memory: 6 MiB, or 10 MiB if a linear is trained in full that is published
 * transposed.
 * Fails: with the source's failure; COH_ERR_CORRUPT (a number is not finite: tensor, row and column
 * are named); COH_ERR_NUMBER (a finite number is out of the range of `dtype`); COH_ERR_ARGUMENT
 * (the model has no adapters, or `path` exists); COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_adapters_write(const coh_model *model,
                                      const coh_adapters_write_options *options, const char *path,
                                      coh_number_source source, void *context);

/* Returns the disk bytes of such a folder, as coh_folder_write_bytes does. */
COH_API coh_status coh_adapters_write_bytes(const coh_model *model,
                                            const coh_adapters_write_options *options,
                                            uint64_t *out_bytes);

/* A folder of adapters, as coh_adapters_write or PEFT writes it, open for reading. Memory: 24 bytes
 * for each parameter of the model, and the header of its file. */
typedef struct coh_adapter_folder coh_adapter_folder;

/* Opens folder `path`, and sets rank, alpha and targets of its adapters, and what is trained next
 * to them, in `model`, the base model (coh_model_adapters_set), and the model's lora_dropout. The
 * tensors alone decide which linears have an adapter, and which operators are trained in full;
 * remarks about the configuration are added to the model's notes. The base that the folder names is
 * not compared.
 * Fails: COH_ERR_CORRUPT (no LoRA, a variant of it that computes another formula, a tensor that
 * does not fit the model, a part of an operator's tensors, or an embedding and a head that differ
 * where the model has one table), COH_ERR_ARGUMENT (the model has adapters or frozen operators),
 * COH_ERR_IO, COH_ERR_MEMORY; the model is then unchanged. */
COH_API coh_status coh_adapters_open(const char *path, coh_model *model,
                                     coh_adapter_folder **out_folder);
/* Accepts NULL. */
COH_API void coh_adapters_close(coh_adapter_folder *folder);

/* Returns 1 if the folder says that its adapters were trained over weights in NF4, as those of
 * coh_adapters_write do; 0: it does not, as no folder of PEFT's, or `folder` is NULL. */
COH_API int32_t coh_adapters_frozen_nf4(const coh_adapter_folder *folder);

/* A coh_number_source of a coh_adapter_folder, `folder`, for the parameters that
 * coh_model_is_adapted accepts. Fails: COH_ERR_CORRUPT (a number is not finite), COH_ERR_IO,
 * COH_ERR_ARGUMENT (the folder has no such name or range). */
COH_API coh_status coh_adapters_numbers(void *folder, const char *name, uint64_t element_begin,
                                        uint64_t count, float *values);

/* Supplies the model's numbers with its adapters merged in: W + (alpha / rank) B A, in f32. */
typedef struct coh_merge coh_merge;

/* Opens a merge. `source` and `context` supply the numbers of model and adapters, and must live
 * until coh_merge_close. Memory: the largest adapter.
 * Fails: COH_ERR_ARGUMENT (the model has no adapters), COH_ERR_MEMORY. */
COH_API coh_status coh_merge_open(const coh_model *model, coh_number_source source, void *context,
                                  coh_merge **out_merge);
/* Accepts NULL. `source` and `context` remain the caller's. */
COH_API void coh_merge_close(coh_merge *merge);

/* A coh_number_source of a coh_merge, `merge`. Parameters without an adapter pass unchanged.
 * Fails: with the source's failure; COH_ERR_ARGUMENT (the model has no such name or range). */
COH_API coh_status coh_merge_numbers(void *merge, const char *name, uint64_t element_begin,
                                     uint64_t count, float *values);

#ifdef __cplusplus
}
#endif
#endif
