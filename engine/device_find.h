/* device_find.h - from a device's name to what an engine runs on. */
#ifndef COH_ENGINE_DEVICE_FIND_H
#define COH_ENGINE_DEVICE_FIND_H

#include "engine/engine_state.h"

/* NULL or "host"; "cuda" (the first one), "cuda:0", "cuda:1", ... Nothing is opened.
 * Fails: COH_ERR_ARGUMENT where no device is called so; COH_ERR_DEVICE in a build without CUDA. */
coh_status coh_device_find(const char *name, coh_engine_device *out_device);

#endif
