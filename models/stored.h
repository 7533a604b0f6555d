/* stored.h - remembers how a folder stored its tensors, so that an export without dtype options
 * writes them the same way: the dtype of each tensor if they differ, and the free text
 * ("__metadata__") of its files. In the note of a checkpoint:
 *
 *     "stored": {"dtypes": "fhhhf...", "metadata": {"format": "pt", ...}}
 *
 * Each letter is the dtype of a tensor, by coh_model_tensor_at's index: f32 'f', bf16 'b', f16
 * 'h'. */
#ifndef COH_MODELS_STORED_H
#define COH_MODELS_STORED_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/config.h"
#include "models/safetensors.h"

/* Appends `, "stored": {...}`, or nothing if there is nothing to remember. */
void coh_stored_to_text(const coh_model *model, coh_text *text);
/* Reads it back into a model whose configuration is known; `value` NULL: nothing was remembered.
 * Fails: COH_ERR_CORRUPT naming what is wrong. */
coh_status coh_stored_from_json(json_t *value, coh_model *model);

/* Stores in model->metadata the metadata pairs that all files of `files` share. *out_left_out: 1 if
 * some were left out. */
void coh_stored_metadata_take(const coh_safetensors *files, coh_model *model, int *out_left_out);

/* The metadata pairs of an export's files: the remembered ones, and the "format" that
 * `transformers` needs if they have none. */
typedef struct coh_stored_metadata {
    coh_safetensors_pair *pairs;
    size_t count;
    json_t *root; /* owns the strings of the pairs */
} coh_stored_metadata;
/* Fails: COH_ERR_ARGUMENT (model->metadata is not a list of members), COH_ERR_MEMORY; call `fini`
 * also after a failure. `fini` accepts a zeroed struct. */
coh_status coh_stored_metadata_init(const coh_model *model, coh_stored_metadata *out_metadata);
void coh_stored_metadata_fini(coh_stored_metadata *metadata);

#endif
