/* rope.h - the rotary embeddings of a config.json: read, checked and written for every family that
 * has them.
 *
 * They have two spellings: "rope_theta" and "rope_scaling" up to transformers 4, and one object
 * "rope_parameters" since. Both are read; the former is written. */
#ifndef COH_MODELS_ROPE_H
#define COH_MODELS_ROPE_H

#include <jansson.h>

#include "base/file_text.h"
#include "cohobate/models.h"

/* Checks the parameters at every position of the model. Fails: COH_ERR_ARGUMENT. */
coh_status coh_rope_config_check(const coh_llama_rope *rope, int64_t positions);

/* Reads the members of the root object over the defaults in `rope`. `scales` 0: the model type
 * reads no scaling but longrope, which is refused. Fails: COH_ERR_CORRUPT naming the member. */
coh_status coh_rope_config_read(const json_t *root, int64_t positions, int scales,
                                coh_llama_rope *rope);

/* Adds the members "rope_theta" and "rope_scaling". */
void coh_rope_config_write(const coh_llama_rope *rope, coh_text *text);

#endif
