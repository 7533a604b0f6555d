/* device_find.h - translates a device's name into the device that an engine runs on. */
#ifndef COH_ENGINE_DEVICE_FIND_H
#define COH_ENGINE_DEVICE_FIND_H

#include "engine/engine_state.h"

/* `name` is NULL, "host", "cuda" (the first GPU), "cuda:0", "cuda:1", ... Opens nothing. Fails:
 * COH_ERR_ARGUMENT if no device has this name; COH_ERR_DEVICE in a build without CUDA. */
coh_status coh_device_find(const char *name, coh_engine_device *out_device);

#endif
