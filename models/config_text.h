/* config_text.h - JSON written: without allocation into room that the caller has (notes of
 * checkpoints), or grown and indented (config.json).
 *
 * Numbers get the fewest digits that bring them back; the decimal sign is a point in every
 * locale. */
#ifndef COH_MODELS_CONFIG_TEXT_H
#define COH_MODELS_CONFIG_TEXT_H

#include <jansson.h>

#include "base/check.h"
#include "base/file_text.h"

/* A text of at most `room` bytes, its terminating zero included; `bytes` counts what did not fit,
 * too. */
typedef struct coh_config_text {
    char *data;
    size_t room, bytes;
} coh_config_text;

void coh_config_text_add(coh_config_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* In quotes; control characters, quotes and backslashes escaped. */
void coh_config_text_add_string(coh_config_text *text, const char *string);
/* The fewest digits that give this float, or this double, when read as one. */
void coh_config_text_add_float(coh_config_text *text, float value);
void coh_config_text_add_double(coh_config_text *text, double value);

/* Appends `value`; `indent` < 0: on one line, else over lines, two blanks a level, from that level
 * on, members by name. Fails: COH_ERR_MEMORY. */
coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent);

#endif
