/* calibration.h (internal) - factors of earlier runs as text and back, and how runs are joined. */
#ifndef COH_PLANNER_CALIBRATION_H
#define COH_PLANNER_CALIBRATION_H

#include "base/file_text.h"
#include "planner/profile.h"

#define COH_CALIBRATION_FORMAT  "cohobate calibration"
#define COH_CALIBRATION_VERSION 1
#define COH_CALIBRATION_BYTES   ((uint64_t)1 << 16)

/* Bounds of a factor: what lies beyond is no drift but something else. */
#define COH_CALIBRATION_LEAST 0.2
#define COH_CALIBRATION_MOST  5.0

typedef struct coh_calibrations {
    uint64_t profile_hash; /* of the profile without any */
    uint32_t runs;
    coh_calibration opcodes[COH_OP_COUNT];
} coh_calibrations;

/* Appends the file's text, sealed. Fails: COH_ERR_MEMORY. */
coh_status coh_calibrations_add_text(const coh_calibrations *calibrations, coh_text *text);
/* `text` ends with a NUL beyond `bytes`. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status coh_calibrations_parse(const char *text, size_t bytes, coh_calibrations *out);

/* The whole file; one that is not there has no runs. Fails: COH_ERR_CORRUPT naming the file,
 * COH_ERR_IO, COH_ERR_MEMORY; *out then has no runs. */
coh_status coh_calibrations_read(const char *path, coh_calibrations *out);
coh_status coh_calibrations_write(const coh_calibrations *calibrations, const char *path);

/* One more run found that factor: the mean over all runs, from the eighth on one that forgets. */
void coh_calibration_join(coh_calibration *calibration, double factor);

/* The opcode by whose factor lines of `opcode` are priced: a recomputed block runs the kernels of
 * forward; COH_OP_COUNT: they are not calibrated. */
coh_opcode coh_calibration_of(coh_opcode opcode);

#endif
