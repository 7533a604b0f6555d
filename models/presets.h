/* presets.h - lists the names of the presets for messages. */
#ifndef COH_MODELS_PRESETS_H
#define COH_MODELS_PRESETS_H

#include "cohobate/models.h"

enum { COH_PRESET_NAMES_BYTES = 512 };

/* Writes all names, separated by ", ". */
void coh_preset_names(char names[COH_PRESET_NAMES_BYTES]);

#endif
