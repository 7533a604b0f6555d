/* rope.h - the rotary embeddings of a config.json: read, checked and written for every family that
 * has them.
 *
 * They have two spellings: "rope_theta" and "rope_scaling" up to transformers 4, and one object
 * "rope_parameters" since. Both are read; the former is written. */
#ifndef COH_MODELS_ROPE_H
#define COH_MODELS_ROPE_H

#include <jansson.h>

#include "base/file_text.h"
#include "models/family.h"

/* Checks the parameters at every position of the model. Fails: COH_ERR_ARGUMENT. */
coh_status coh_rope_config_check(const coh_rope_attributes *rope, const char *theta_name,
                                 int64_t positions);

/* Where a config.json has them. */
typedef struct coh_rope_source {
    const char *theta_name;             /* member of the root object */
    const json_t *scaling, *parameters; /* the object in both spellings; NULL: absent */
    int scales;                         /* 0: a scaling is refused */
} coh_rope_source;

/* Reads the members over the defaults in `rope`, and notes members that nothing is computed with.
 * Fails: COH_ERR_CORRUPT naming the member. */
coh_status coh_rope_config_read(coh_config_reader *reader, const coh_rope_source *source,
                                int64_t positions, coh_rope_attributes *rope);

/* Adds the members "rope_theta" and "rope_scaling", which names its type `type_name`. */
void coh_rope_config_write(const coh_rope_attributes *rope, const char *type_name, coh_text *text);

#endif
