/* rungs.h - the ladder of coh_store_open, with the rungs as an argument so that a test can put a
 * rung of its own in front. */
#ifndef COH_OFFLOAD_RUNGS_H
#define COH_OFFLOAD_RUNGS_H

#include "offload/store.h"

/* Takes the first of `rungs` that opens. A rung without functions was not built; one that fails
 * with COH_ERR_DEVICE is denied here: both are told in the reason of the one that serves. Any other
 * failure is the answer: a full disk is full on every rung. Fails: COH_ERR_DEVICE
 * when all are denied. */
coh_status coh_store_open_first(const coh_store_config *config, const coh_store_ops *const *rungs,
                                uint32_t rung_count, const coh_store_ops **out_ops,
                                coh_store **out_store);

#endif
