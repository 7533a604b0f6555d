/* calibration.h - what earlier runs on this machine found: how long lines took, by opcode, as a
 * part of what the profile said.
 *
 *     profile ──> coh_profile_calibrate ──> plan ──> engine: steps ──> coh_engine_calibrate
 *                        ^                                                     │
 *                        └────────── calibration-<machine>-<profile>.json <────┘
 *
 * A calibration is of one profile, and says so by its hash: a profile that is measured anew starts
 * without. It changes prices, and with them which plan is chosen; never a bit of what a run
 * computes: what bits depend on is chosen without (coh_plan_options' `uncalibrated`).
 * docs/planning.md says what stands in the file. */
#ifndef COHOBATE_CALIBRATION_H
#define COHOBATE_CALIBRATION_H

#include "cohobate/engine.h"
#include "cohobate/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COH_CALIBRATION_PATH_BYTES = 4096 };

/* Where the calibration of a profile stands on this machine: in $XDG_CACHE_HOME/cohobate, or
 * $HOME/.cache/cohobate, which is made where it is not there. The profile is not calibrated yet.
 * Fails: COH_ERR_ARGUMENT (neither variable is set), COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_calibration_path(const coh_profile *profile,
                                        char out_path[COH_CALIBRATION_PATH_BYTES]);

/* The factors of the file become the profile's own. *out_runs: how many runs they are from; 0:
 * there is no such file, or it is of another profile. May be called once.
 * Fails: COH_ERR_CORRUPT, COH_ERR_IO: the profile is then as before, and coh_engine_calibrate will
 * write the file anew; COH_ERR_MEMORY. */
COH_API coh_status coh_profile_calibrate(coh_profile *profile, const char *path,
                                         uint32_t *out_runs);

/* The profile that is built in, for so many threads, as an object: to be calibrated. Owns: the
 * caller destroys it. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_profile_builtin_create(int32_t thread_count, coh_profile **out_profile);

/* What one opcode's lines took in this run. */
typedef struct coh_calibration_class {
    const char *opcode;
    double part;   /* of the time of the compute lane in a step, or of a link's lane alone */
    double factor; /* measured over what the profile said without calibration */
    double error;  /* predicted, calibrated as it was, over measured, less 1 */
} coh_calibration_class;
enum { COH_CALIBRATION_CLASSES_MOST = 16 };

/* After steps, with none under way: compares and folds what is found into the file: the mean over
 * runs, of which the last eight count most. Where fewer than three steps count, nothing is written
 * and *out_count is 0. The plan was made with a profile that coh_profile_calibrate had seen.
 * Whole or not at all. Fails: COH_ERR_ARGUMENT, COH_ERR_IO, COH_ERR_MEMORY; the engine's
 * failure. */
COH_API coh_status coh_engine_calibrate(
    coh_engine *engine, const char *path,
    coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST], uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
