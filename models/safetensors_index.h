/* safetensors_index.h - which files a folder's model is in.
 *
 *     {"metadata": {"total_size": 1234},
 *      "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
 *
 * "metadata" is for people; what holds is checked against the shards themselves. */
#ifndef COH_MODELS_SAFETENSORS_INDEX_H
#define COH_MODELS_SAFETENSORS_INDEX_H

#include "models/safetensors.h"

#define COH_SAFETENSORS_SINGLE "model.safetensors"
#define COH_SAFETENSORS_INDEX  "model.safetensors.index.json"

/* "<folder>/<name>" to out_path, of PATH_MAX bytes. Fails: COH_ERR_ARGUMENT when it is longer. */
coh_status coh_safetensors_path(const char *folder, const char *name, char *out_path);

typedef struct coh_safetensors_index coh_safetensors_index;

/* Reads the index at `path`. Close with coh_safetensors_index_close. Fails: COH_ERR_IO,
 * COH_ERR_CORRUPT (malformed, a name twice, a file's name that leads out of the folder),
 * COH_ERR_MEMORY. */
coh_status coh_safetensors_index_open(const char *path, coh_safetensors_index **out_index);
void coh_safetensors_index_close(coh_safetensors_index *index); /* accepts NULL */

/* The files that it names, each once, by their bytes. */
uint32_t coh_safetensors_index_file_count(const coh_safetensors_index *index);
const char *coh_safetensors_index_file(const coh_safetensors_index *index, uint32_t file);

/* Both ways: each of the index's tensors is in its file, each tensor of the files is in the index.
 * Names of `model` are unique. Fails: COH_ERR_CORRUPT. */
coh_status coh_safetensors_index_check(const coh_safetensors_index *index,
                                       const coh_safetensors *model);

#endif
