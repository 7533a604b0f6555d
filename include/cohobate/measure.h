/* measure.h - how fast this machine is, as a profile (profile.h) that prices plans.
 *
 *     graphs, a disk folder ──> coh_profile_measure ──> coh_profile ──> coh_profile_write
 *
 * Measured are products, memory and an empty line; every operator of the graphs, forward and
 * backward, by the code that a step calls and on memory as cold as a step leaves it; norms, updates
 * and additions; copies to and from the emulated far tier; the drive behind the disk folder,
 * through the working store; and how much lanes slow one another. Each figure is a median with its
 * spread. What runs beside it is measured along: let the machine do nothing else.
 *
 * Of a GPU it is the same: kernels by the lane that a step gives them to, many enqueued between two
 * looks at the clock; copies to and from pinned memory. Beside it the host's memory and the updates
 * that the host makes. Such a profile plans for that GPU alone. */
#ifndef COHOBATE_MEASURE_H
#define COHOBATE_MEASURE_H

#include "cohobate/model.h"
#include "cohobate/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_measure_options {
    uint32_t struct_bytes;
    /* One model in several micro-batches, several models, or both: an operator that is in more than
     * one is measured at each of its sizes. May be none. */
    const coh_graph *const *graphs;
    uint32_t graph_count;
    int32_t thread_count;    /* >= 1 */
    const char *disk_folder; /* NULL: the drive is not measured */
    uint64_t disk_bytes;     /* most the scratch file there may take; UINT64_MAX: as it likes */
    /* As plans of these graphs will have them: 1: gradients of bf16 parameters are f32
     * (coh_plan_options); 1: a step has several micro-batches, so that backwards that add to
     * gradients which are there are measured, too. */
    int32_t f32_gradients, accumulates;
    int32_t quick; /* 1: seconds instead of minutes, and a drive's fresh writes only */
    /* 1: the operators and chunks of these graphs are measured though `known` has them, and figures
     * are of all measurements: of a machine that others use, too, one says little. */
    int32_t again;
    /* Called on another thread while coh_profile_measure waits; may be NULL. `what` is measured
     * next, the done-th of total things. */
    void (*progress)(void *context, uint32_t done, uint32_t total, const char *what);
    /* Gets sentences for people: what could not be measured, and why; may be NULL. */
    void (*log)(void *context, const char *sentence);
    void *context; /* of both */
    /* NULL or "host"; "cuda:0", "cuda:1", ...: what is measured is that GPU, with this host beside
     * it. It should do nothing else, and have 3 GiB of its memory free. */
    const char *device;
    /* Of a GPU: most bytes of its memory that measuring takes; UINT64_MAX: what is worth it. The
     * profile's capacity is the GPU's all the same: a profile says what a machine is. */
    uint64_t device_bytes;
    /* Of a GPU: the kernel table (cohobate/kernels.h) whose algorithms multiply meanwhile. Those of
     * products that it does not name are timed and added; it is written when all is measured. NULL:
     * none is timed. */
    const char *kernel_table;
} coh_measure_options;

/* Defaults: no graph, gradients as parameters are, one thread, no drive, not quick, any of a GPU's
 * memory, no kernel table. */
COH_API void coh_measure_options_init(coh_measure_options *out_options);

/* Measures what `known` (NULL: nothing is known) does not say and gives both together; `known`
 * stays as it is. Owns: the caller destroys the profile.
 * Time: minutes; seconds for a small model when quick. Writes up to disk_bytes of a scratch file
 * that has no name, so that nothing of it stays.
 * Fails: COH_ERR_ARGUMENT (no such folder or device; `known` was measured on another machine or
 * device, by another build or for other threads, or has entries replaced), COH_ERR_FULL (no room
 * for the scratch file, or device_bytes is too little to measure in), COH_ERR_MEMORY,
 * COH_ERR_DEVICE, COH_ERR_IO. */
COH_API coh_status coh_profile_measure(const coh_measure_options *options, const coh_profile *known,
                                       coh_profile **out_profile);

/* Is the drive that it measured the one that `folder` is on? 1 where it names none. */
COH_API int coh_profile_is_of_drive(const coh_profile *profile, const char *folder);

/* Was it measured on this machine, by this build? 0 for what was not measured. Of a GPU: and is one
 * so called here, under a driver for the same CUDA? The driver is asked once in a process. */
COH_API int coh_profile_is_of_here(const coh_profile *profile);

#ifdef __cplusplus
}
#endif
#endif
