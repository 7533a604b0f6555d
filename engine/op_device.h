/* op_device.h - makes the calls of a trial on a GPU.
 *
 *     host     [ image: guards and buffers of a trial ]     filled and compared as always
 *                   | put                    ^ get
 *     device   [ the same bytes ] -- forward or backward -->
 *
 * The one idea: a trial keeps its memory on the host, and only a call is moved. The image is copied
 * to the device, guards included; the call gets the device's addresses; and everything is copied
 * back. So each stage of a check is the same on every device.
 *
 * A call is rehearsed before its first launch, as in an engine. Threads: one. */
#ifndef COH_ENGINE_OP_DEVICE_H
#define COH_ENGINE_OP_DEVICE_H

#include "engine/measure_bed.h"
#include "planner/graph.h"

typedef struct coh_op_device {
    coh_bed bed;
    uint32_t rehearsed; /* bit p: phase p was */
    float *spare;       /* on the device, for a command that changes nothing */
    int kind_failed;    /* 1: the last call failed by its kind, not by the device */
} coh_op_device;

/* The memory of one trial, and its copy on the device. */
typedef struct coh_op_image {
    char *host, *device;
    size_t bytes;
} coh_op_image;

typedef struct coh_op_device_call {
    coh_kind_function function;
    coh_phase phase;
    const coh_call *call; /* addresses of the image's host side */
    int is_recorded;      /* 1: recorded into a CUDA graph, then replayed */
} coh_op_device_call;

/* Opens a GPU with room for images of `bytes` in all. Call coh_op_device_close even after a
 * failure. Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
coh_status coh_op_device_open(const coh_engine_device *what, size_t bytes,
                              coh_op_device *out_device);
void coh_op_device_close(coh_op_device *device); /* accepts a zeroed one */

/* Gives an image its place on the device. Fails: COH_ERR_MEMORY. */
coh_status coh_op_device_place(coh_op_device *device, coh_op_image *image);

/* Copies an image to the device. Fails: COH_ERR_DEVICE. */
coh_status coh_op_device_put(const coh_op_device *device, const coh_op_image *image);

/* Makes a call and waits for its end. A recording gets one more command, because a single one is
 * not recorded; the results are those of the replay. Fails: as the kind, or as the recording of its
 * call (`kind_failed` is 1 then); COH_ERR_DEVICE. */
coh_status coh_op_device_run(coh_op_device *device, const coh_op_image *image,
                             const coh_op_device_call *call);

#endif
