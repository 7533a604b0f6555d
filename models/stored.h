/* stored.h - how a folder's tensors were stored, kept with the model, so that one which nothing was
 * asked of comes out as it went in: the dtype of each where they differ, and the free text
 * ("__metadata__") of its files. In the note of a checkpoint:
 *
 *     "stored": {"dtypes": "fhhhf...", "metadata": {"format": "pt", ...}}
 *
 * One letter stands for each tensor, by coh_model_tensor_at's index: f32 'f', bf16 'b', f16 'h'. */
#ifndef COH_MODELS_STORED_H
#define COH_MODELS_STORED_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/config_text.h"
#include "models/safetensors.h"

/* The letter of a dtype that tensors are stored in. */
char coh_stored_letter(coh_dtype dtype);

/* Appends `, "stored": {...}`, or nothing where there is nothing to keep. */
void coh_stored_to_text(const coh_model *model, coh_config_text *text);
/* And back, into a model whose configuration is known; `value` NULL: nothing was kept. Fails:
 * COH_ERR_CORRUPT naming what is wrong. */
coh_status coh_stored_from_json(json_t *value, coh_model *model);

/* What the files of `files` say about themselves, into model->metadata: pairs that all of them
 * share. *out_left_out: 1 where there was more. */
void coh_stored_metadata_take(const coh_safetensors *files, coh_model *model, int *out_left_out);

/* The pairs that an export's files begin with: those kept, and the "format" that `transformers`
 * asks for where they have none. */
typedef struct coh_stored_metadata {
    coh_safetensors_pair *pairs;
    size_t count;
    json_t *root; /* the texts of the pairs */
} coh_stored_metadata;
/* Fails: COH_ERR_ARGUMENT (model->metadata is no list of members), COH_ERR_MEMORY; `fini` is called
 * all the same, and on a zeroed one does nothing. */
coh_status coh_stored_metadata_init(const coh_model *model, coh_stored_metadata *out_metadata);
void coh_stored_metadata_fini(coh_stored_metadata *metadata);

#endif
