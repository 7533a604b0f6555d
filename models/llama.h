/* llama.h - internal functions of Llama's family, to which its table points. `config` is a
 * coh_llama_config. */
#ifndef COH_MODELS_LLAMA_H
#define COH_MODELS_LLAMA_H

#include "models/family.h"

coh_model_size coh_llama_size(const void *config);
/* Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
coh_status coh_llama_check(const void *config);
coh_status coh_llama_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                          coh_tensor *out_last);

#endif
