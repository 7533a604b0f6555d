/* gpt2.h - internal functions of GPT-2's family, to which its table points. `config` is a
 * coh_gpt2_config. */
#ifndef COH_MODELS_GPT2_H
#define COH_MODELS_GPT2_H

#include "models/family.h"

coh_model_size coh_gpt2_size(const void *config);
/* Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
coh_status coh_gpt2_check(const void *config);
coh_status coh_gpt2_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                         coh_tensor *out_last);
/* Width between the two linears of a layer. */
int64_t coh_gpt2_inner(const coh_gpt2_config *config);

#endif
