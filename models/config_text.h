/* config_text.h - writes JSON: into the caller's buffer without allocation (notes of checkpoints),
 * or into a growing, indented text (config.json).
 *
 * Numbers get the fewest digits that read back as the same value; the decimal separator is a point
 * in every locale. */
#ifndef COH_MODELS_CONFIG_TEXT_H
#define COH_MODELS_CONFIG_TEXT_H

#include <jansson.h>

#include "base/check.h"
#include "base/file_text.h"

/* A text of at most `room` bytes with its terminating zero; `bytes` also counts what did not
 * fit. */
typedef struct coh_config_text {
    char *data;
    size_t room, bytes;
} coh_config_text;

void coh_config_text_add(coh_config_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds the string in quotes; escapes control characters, quotes and backslashes. */
void coh_config_text_add_string(coh_config_text *text, const char *string);
/* Add the fewest digits that read back as this float or double. */
void coh_config_text_add_float(coh_config_text *text, float value);
void coh_config_text_add_double(coh_config_text *text, double value);

/* Appends `value`, members sorted by name. `indent` < 0: on one line; else on several lines, two
 * blanks per level, starting at level `indent`. Fails: COH_ERR_MEMORY. */
coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent);

#endif
