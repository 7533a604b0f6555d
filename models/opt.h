/* opt.h - internal functions of OPT's family, to which its table points. `config` is a
 * coh_opt_config. */
#ifndef COH_MODELS_OPT_H
#define COH_MODELS_OPT_H

#include "models/family.h"

/* Unused rows of the position table before the row of position 0. */
enum { COH_OPT_POSITION_OFFSET = 2 };

coh_model_size coh_opt_size(const void *config);
/* Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
coh_status coh_opt_check(const void *config);
coh_status coh_opt_body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                        coh_tensor *out_last);

#endif
