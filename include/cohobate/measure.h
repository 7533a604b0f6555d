/* measure.h - measures how fast this machine is, as a profile (profile.h) that prices plans.
 *
 *     graphs, a disk folder ──> coh_profile_measure ──> coh_profile ──> coh_profile_write
 *
 * It measures matrix products, memory and an empty instruction; every operator of the graphs,
 * forward and backward, with the code that a step calls and with memory as cold as in a step;
 * norms, updates and additions; copies to and from the emulated far tier; the drive behind the disk
 * folder, through the working store; and how much lanes slow one another. Each figure is a median
 * with its spread. Other programs disturb the figures, so the machine should be otherwise idle.
 *
 * For a GPU it measures the same things: kernels on the lane that a step uses, many enqueued
 * between two readings of the clock; copies to and from pinned memory. It also measures the host's
 * memory and the updates that the host makes. Such a profile prices plans for that GPU only.
 * Threads: one measurement at a time; it starts other threads. */
#ifndef COHOBATE_MEASURE_H
#define COHOBATE_MEASURE_H

#include "cohobate/disk.h"
#include "cohobate/model.h"
#include "cohobate/profile.h"
#include "cohobate/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of coh_profile_measure; `struct_bytes` is sizeof(coh_measure_options), which
 * coh_measure_options_init sets. `graph_count` and `disk_count` are the lengths of the arrays
 * before them. */
typedef struct coh_measure_options {
    uint32_t struct_bytes;
    /* One model in several micro-batch sizes, several models, or both. An operator that occurs in
     * several graphs is measured at each of its sizes. There may be no graph. */
    const coh_graph *const *graphs;
    uint32_t graph_count;
    int32_t thread_count;    /* >= 1 */
    const char *disk_folder; /* NULL: the drive is not measured */
    uint64_t disk_bytes;     /* limit of the scratch file there; UINT64_MAX: no limit */
    /* As the plans of these graphs will be made. f32_gradients, 1: gradients of bf16 parameters are
     * f32 (coh_plan_options). accumulates, 1: a step has several micro-batches, so backward
     * functions that add to existing gradients are measured, too. */
    int32_t f32_gradients, accumulates;
    int32_t quick; /* 1: seconds instead of minutes, and only fresh writes of a drive */
    /* 1: measures operators and chunks of these graphs even if `known` has them; the figures then
     * combine all measurements. Useful on a shared machine, where one measurement says little. */
    int32_t again;
    /* Called on another thread while coh_profile_measure waits; may be NULL. `what` is measured
     * next, number `done` of `total` things. */
    void (*progress)(void *context, uint32_t done, uint32_t total, const char *what);
    /* Receives sentences for people: what could not be measured, and why. May be NULL. */
    void (*log)(void *context, const char *sentence);
    void *context; /* passed to progress and log */
    /* NULL or "host", or the GPU to measure, together with this host: "cuda:0", "cuda:1", ... The
     * GPU should be idle and have 3 GiB of free memory. */
    const char *device;
    /* Limit of GPU memory used while measuring; UINT64_MAX: as much as is useful. It does not
     * change the profile's capacity, which is the GPU's: a profile describes a machine. */
    uint64_t device_bytes;
    /* For a GPU: kernel table (cohobate/kernels.h) whose algorithms multiply while measuring.
     * Products that it lacks are timed and added; the table is written at the end. NULL: no
     * algorithm is timed. */
    const char *kernel_table;
    /* The folders of a working store, in place of disk_folder: their drives are measured one by
     * one, then as one store (disk.h). disk_bytes limits the scratch file in all of them. NULL, 0:
     * disk_folder alone. */
    const coh_disk *disks;
    uint32_t disk_count;
    /* All ranks of this world call coh_profile_measure together, with the same options, so each
     * measures while the others of its machine do, as they compute in a step; then they measure
     * their links. A rank's profile has its own figures. NULL: one rank. A failure stops
     * the world, and no engine can use it afterwards. */
    coh_world *world;
} coh_measure_options;

/* As coh_measure_options_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_measure_options_init_sized(coh_measure_options *out_options, size_t bytes);
/* Sets the defaults: no graph, gradients in their parameters' dtype, one thread, no drive, not
 * quick, any amount of GPU memory, no kernel table. */
static inline void coh_measure_options_init(coh_measure_options *out_options)
{
    coh_measure_options_init_sized(out_options, sizeof(*out_options));
}

/* Measures what `known` (may be NULL) lacks and returns both together; `known` is unchanged.
 * Owns: the caller destroys the profile.
 * Time: minutes; seconds for a small model with `quick`. Writes up to disk_bytes to an unnamed
 * scratch file, so nothing of it stays.
 * Fails: COH_ERR_ARGUMENT (no such folder or device; `known` was measured on another machine or
 * device, by another build or for other threads, or has overridden entries), COH_ERR_FULL (no room
 * for the scratch file, or device_bytes is too small), COH_ERR_MEMORY, COH_ERR_DEVICE,
 * COH_ERR_IO. */
COH_API coh_status coh_profile_measure(const coh_measure_options *options, const coh_profile *known,
                                       coh_profile **out_profile);

/* Returns 1 if the profile's drives are those that hold the folders, or if the profile names no
 * drive. */
COH_API int coh_profile_is_of_drives(const coh_profile *profile, const coh_disk *disks,
                                     uint32_t disk_count);

/* Returns 1 if the profile was measured on this machine by this build; 0 also for one that was not
 * measured. For a GPU's profile, additionally a GPU of that name must be here, under a driver for
 * the same CUDA version. The driver is queried once per process. */
COH_API int coh_profile_is_of_here(const coh_profile *profile);

#ifdef __cplusplus
}
#endif
#endif
