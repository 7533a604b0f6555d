/* calibration.h (internal) - calibration factors of earlier runs: their file format, and how
 * several runs are averaged. */
#ifndef COH_PLANNER_CALIBRATION_H
#define COH_PLANNER_CALIBRATION_H

#include "base/file_text.h"
#include "planner/profile.h"

#define COH_CALIBRATION_FORMAT  "cohobate calibration"
#define COH_CALIBRATION_VERSION 1
#define COH_CALIBRATION_BYTES   ((uint64_t)1 << 16)

/* Bounds of a factor: a value beyond them has another cause than drift. */
#define COH_CALIBRATION_LEAST 0.2
#define COH_CALIBRATION_MOST  5.0

typedef struct coh_calibrations {
    uint64_t profile_hash; /* of the profile without calibration */
    uint32_t runs;
    coh_calibration opcodes[COH_OP_COUNT];
} coh_calibrations;

/* Appends the text of the file, with its checksum. Fails: COH_ERR_MEMORY. */
coh_status coh_calibrations_add_text(const coh_calibrations *calibrations, coh_text *text);
/* `text` ends with a NUL beyond `bytes`. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status coh_calibrations_parse(const char *text, size_t bytes, coh_calibrations *out);

/* Reads the whole file; a missing file gives zero runs. Fails: COH_ERR_CORRUPT naming the file,
 * COH_ERR_IO, COH_ERR_MEMORY; *out then has zero runs. */
coh_status coh_calibrations_read(const char *path, coh_calibrations *out);
coh_status coh_calibrations_write(const coh_calibrations *calibrations, const char *path);

/* Joins the factors of one more run to the file: by opcode, 0: not measured. Runs that end together
 * do so one after the other (`<path>.lock`), except on a file system without file locks. A file
 * that is missing, damaged or of another profile begins again.
 * Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_calibrations_add_run(const char *path, uint64_t profile_hash,
                                    const double factors[COH_OP_COUNT]);

/* Is the coh_calibration of any run? */
int coh_calibration_is_set(const void *calibration);

/* Adds the factor of one more run: the mean over all runs, from the eighth run on an exponential
 * moving average. */
void coh_calibration_join(coh_calibration *calibration, double factor);

/* Returns by how much the factor of a further run is expected to differ from the present one, as a
 * part of it: with n runs of equal weight and normal errors the deviation of the runs times
 * sqrt((n + 1) / (n - 1)), since their mean is uncertain, too. 0: fewer than two runs. */
double coh_calibration_uncertainty(const coh_calibration *calibration);

/* The opcode whose factor applies to instructions of `opcode`: a recomputed block runs the
 * kernels of forward. COH_OP_COUNT: not calibrated. */
coh_opcode coh_calibration_of(coh_opcode opcode);

#endif
