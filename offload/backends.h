/* backends.h - coh_store_open with the list of backends, the best one first, as an argument: a test
 * can put its own backend in front. */
#ifndef COH_OFFLOAD_BACKENDS_H
#define COH_OFFLOAD_BACKENDS_H

#include "offload/store.h"

/* Opens the first of `backends` that works. A backend without functions was not built; a backend
 * that fails with COH_ERR_DEVICE is denied on this machine. Both are reported in facts.reason of
 * the backend that opens. Any other failure is final: a full disk is full on every backend. Fails:
 * COH_ERR_DEVICE if all are denied; else with that other failure. */
coh_status coh_store_open_first(const coh_store_config *config,
                                const coh_store_ops *const *backends, uint32_t backend_count,
                                const coh_store_ops **out_ops, coh_store **out_store);

#endif
