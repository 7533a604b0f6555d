/* safetensors_index.h - reads the index that assigns a model's tensors to the files of its folder.
 *
 *     {"metadata": {"total_size": 1234},
 *      "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
 *
 * "metadata" is informative only and not used. "weight_map" is checked against the shards
 * themselves. */
#ifndef COH_MODELS_SAFETENSORS_INDEX_H
#define COH_MODELS_SAFETENSORS_INDEX_H

#include "models/safetensors.h"

#define COH_SAFETENSORS_SINGLE "model.safetensors"
#define COH_SAFETENSORS_INDEX  "model.safetensors.index.json"

/* Writes "<folder>/<name>" to out_path, of PATH_MAX bytes. Fails: COH_ERR_ARGUMENT if it is
 * longer. */
coh_status coh_safetensors_path(const char *folder, const char *name, char *out_path);

typedef struct coh_safetensors_index coh_safetensors_index;

/* Reads the index at `path`. Close with coh_safetensors_index_close. Fails: COH_ERR_IO,
 * COH_ERR_CORRUPT (malformed, a name twice, a file name that leads out of the folder),
 * COH_ERR_MEMORY. */
coh_status coh_safetensors_index_open(const char *path, coh_safetensors_index **out_index);
void coh_safetensors_index_close(coh_safetensors_index *index); /* accepts NULL */

/* The files that the index names, each once, sorted by their bytes. */
uint32_t coh_safetensors_index_file_count(const coh_safetensors_index *index);
const char *coh_safetensors_index_file(const coh_safetensors_index *index, uint32_t file);

/* Checks both ways: each tensor of the index is in its file, each tensor of the files is in the
 * index. Names of `model` must be unique. Fails: COH_ERR_CORRUPT. */
coh_status coh_safetensors_index_check(const coh_safetensors_index *index,
                                       const coh_safetensors *model);

#endif
