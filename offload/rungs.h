/* rungs.h - coh_store_open's list of fallbacks ("rungs", the best one first), as an argument, so
 * that a test can put its own rung in front. */
#ifndef COH_OFFLOAD_RUNGS_H
#define COH_OFFLOAD_RUNGS_H

#include "offload/store.h"

/* Opens the first of `rungs` that works. A rung without functions was not built; a rung that fails
 * with COH_ERR_DEVICE is denied on this machine. Both are reported in facts.reason of the rung that
 * opens. Any other failure is final: a full disk is full on every rung.
 * Fails: COH_ERR_DEVICE if all are denied; else with that other failure. */
coh_status coh_store_open_first(const coh_store_config *config, const coh_store_ops *const *rungs,
                                uint32_t rung_count, const coh_store_ops **out_ops,
                                coh_store **out_store);

#endif
