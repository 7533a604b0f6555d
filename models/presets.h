/* presets.h - the inside of the presets: what their names are, for sentences. */
#ifndef COH_MODELS_PRESETS_H
#define COH_MODELS_PRESETS_H

#include "cohobate/models.h"

enum { COH_PRESET_NAMES_BYTES = 512 };

/* All names, with ", " between. */
void coh_preset_names(char names[COH_PRESET_NAMES_BYTES]);

#endif
