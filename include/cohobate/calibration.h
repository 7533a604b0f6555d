/* calibration.h - corrects a profile's prices by the times that earlier runs on this machine took.
 *
 *     profile ──> coh_profile_calibrate ──> plan ──> engine: steps ──> coh_engine_calibrate
 *                        ^                                                     │
 *                        └────────── calibration-<machine>-<profile>.json <────┘
 *
 * A calibration holds one factor per opcode: measured time over the profile's time. It belongs to
 * one profile, identified by its hash; a profile that is measured again starts without a
 * calibration. Calibration changes prices, and so which plan is chosen. It never changes the bits
 * of a run: choices that affect bits are made without it (coh_plan_options.uncalibrated).
 * docs/planning.md describes the file.
 * Threads: one at a time per profile; a call with an engine: the engine's. */
#ifndef COHOBATE_CALIBRATION_H
#define COHOBATE_CALIBRATION_H

#include "cohobate/engine.h"
#include "cohobate/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a calibration's path, with its end. */
enum { COH_CALIBRATION_PATH_BYTES = 4096 };

/* Returns the path of the profile's calibration file on this machine: in $XDG_CACHE_HOME/cohobate
 * or $HOME/.cache/cohobate, which is created if missing. Call it before coh_profile_calibrate.
 * Fails: COH_ERR_ARGUMENT (neither variable is set), COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_calibration_path(const coh_profile *profile,
                                        char out_path[COH_CALIBRATION_PATH_BYTES]);

/* Applies the factors in file `path` to the profile. *out_runs is the number of runs they come
 * from; 0: there is no such file, or it belongs to another profile. Call it once per profile.
 * Fails: COH_ERR_CORRUPT, COH_ERR_IO: the profile is unchanged, and coh_engine_calibrate will
 * overwrite the file; COH_ERR_MEMORY. */
COH_API coh_status coh_profile_calibrate(coh_profile *profile, const char *path,
                                         uint32_t *out_runs);

/* Creates the built-in profile for `thread_count` threads as an object, so that it can be
 * calibrated.
 * Owns: the caller destroys it. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_profile_builtin_create(int32_t thread_count, coh_profile **out_profile);

/* Measured against predicted time of one opcode in this run. */
typedef struct coh_calibration_class {
    const char *opcode;
    double part;   /* share of the compute lane's time in a step; 1 for an opcode of a link */
    double factor; /* measured time over the time predicted without calibration */
    double error;  /* predicted time (with the calibration in use) over measured time, minus 1 */
} coh_calibration_class;
/* Most classes of instructions in a calibration. */
enum { COH_CALIBRATION_CLASSES_MOST = 16 };

/* Compares measured with predicted times and adds this run's factors to the file `path`. Call it
 * after steps, while none is running. The file keeps the mean over runs; from the eighth run on,
 * older runs fade. With fewer than three counted steps nothing is written and *out_count is 0.
 * Kinds of yours that the profile has not measured have no part in a factor: what they declare
 * prices them. The plan must have been made with a profile that went through
 * coh_profile_calibrate. The file is written whole or not at all.
 * Fails: COH_ERR_ARGUMENT, COH_ERR_IO, COH_ERR_MEMORY; the engine's failure. */
COH_API coh_status coh_engine_calibrate(
    coh_engine *engine, const char *path,
    coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST], uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
