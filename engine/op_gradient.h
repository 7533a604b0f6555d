/* op_gradient.h - compares the gradient of one port with differences of forward. Next:
 * op_check.c. */
#ifndef COH_ENGINE_OP_GRADIENT_H
#define COH_ENGINE_OP_GRADIENT_H

#include "engine/op_trial.h"

typedef struct coh_op_slope {
    int32_t is_compared; /* 0: forward is not smooth enough anywhere */
    int32_t is_wrong;
    coh_trial_place place; /* of the element that is most wrong */
    const char *cause;     /* likely; static storage */
} coh_op_slope;

/* Compares the gradient of input or parameter `port` (f32) along random directions. `seed` chooses
 * them. Fails: COH_ERR_MEMORY, or as the kind. */
coh_status coh_op_gradient_check(coh_trial *trial, const coh_trial_way *way, coh_trial_role role,
                                 int port, uint64_t seed, coh_op_slope *out_slope);

#endif
