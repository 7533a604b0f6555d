/* config.h - reads and writes config.json, using the field table of the family that its model_type
 * names. */
#ifndef COH_MODELS_CONFIG_H
#define COH_MODELS_CONFIG_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/config_text.h"

/* The largest config.json that is read. */
#define COH_CONFIG_BYTES_MOST (1u << 20)

/* Sets everything except name, checkpoint and folder. Fails: COH_ERR_CORRUPT naming the member;
 * COH_ERR_MEMORY. */
coh_status coh_config_read(json_t *root, coh_model *out_model);

/* Writes one object on one line, extras included. coh_config_read gives the same model back.
 * Allocates nothing. */
void coh_config_write(const coh_model *model, coh_dtype stored, coh_text *text);

#endif
