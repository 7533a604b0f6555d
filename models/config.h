/* config.h - what every way of getting a configuration checks before a graph is built from it. */
#ifndef COH_MODELS_CONFIG_H
#define COH_MODELS_CONFIG_H

#include "cohobate/models.h"

/* Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
coh_status coh_gpt2_config_check(const coh_gpt2_config *config);

#endif
