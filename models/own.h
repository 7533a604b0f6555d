/* own.h - the list of the models of extensions (cohobate/extension.h): found by name. The family
 * that builds their graphs is in own.c. */
#ifndef COH_MODELS_OWN_H
#define COH_MODELS_OWN_H

#include "cohobate/models.h"

/* Makes a registered model, as coh_model_preset does. Returns 0 if there is none of this name. */
int coh_own_find(const char *name, int64_t vocabulary, coh_model *out_model);

/* Returns the name of a registered model, which lives as long as the process; NULL beyond the
 * last. */
const char *coh_own_name(int32_t index);

/* Returns the elements of the model's parameters that its build does not freeze; 0 if its graph
 * cannot be built. */
uint64_t coh_own_trained_count(const coh_model *model);

#endif
