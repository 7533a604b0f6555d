/* config.h - reads and writes config.json, using the field table of the family that its model_type
 * names.
 *
 * Numbers get the fewest digits that read back as the same value; the decimal separator is a point
 * in every locale. */
#ifndef COH_MODELS_CONFIG_H
#define COH_MODELS_CONFIG_H

#include <jansson.h>

#include "base/file_text.h"
#include "cohobate/models.h"

/* The largest config.json that is read. */
#define COH_CONFIG_BYTES_MOST (1u << 20)

/* Sets everything except name, checkpoint and folder. Fails: COH_ERR_CORRUPT naming the member;
 * COH_ERR_MEMORY. */
coh_status coh_config_read(json_t *root, coh_model *out_model);

/* Writes one object on one line, extras included. coh_config_read gives the same model back.
 * Allocates nothing. */
void coh_config_write(const coh_model *model, coh_dtype stored, coh_text *text);

/* Add the fewest digits that read back as this float or double. */
void coh_config_text_add_float(coh_text *text, float value);
coh_status coh_config_text_add_double(coh_text *text, double value);

/* Appends `value`, members sorted by name. `indent` < 0: on one line; else on several lines, two
 * blanks per level, starting at level `indent`. Fails: COH_ERR_MEMORY. */
coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent);

#endif
