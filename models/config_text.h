/* config_text.h - writes numbers as config.json has them, and values that were read from one.
 *
 * Numbers get the fewest digits that read back as the same value; the decimal separator is a point
 * in every locale. */
#ifndef COH_MODELS_CONFIG_TEXT_H
#define COH_MODELS_CONFIG_TEXT_H

#include <jansson.h>

#include "base/check.h"
#include "base/file_text.h"

/* Add the fewest digits that read back as this float or double. */
void coh_config_text_add_float(coh_text *text, float value);
void coh_config_text_add_double(coh_text *text, double value);

/* Appends `value`, members sorted by name. `indent` < 0: on one line; else on several lines, two
 * blanks per level, starting at level `indent`. Fails: COH_ERR_MEMORY. */
coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent);

#endif
