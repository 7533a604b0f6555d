/* calibration.h - what runs on this machine found: the plans of train and plan use it, and train
 * adds to it. --calibration, or the environment's COH_CALIBRATION. */
#ifndef COH_CLI_CALIBRATION_H
#define COH_CLI_CALIBRATION_H

#include "cli/options.h"

typedef struct cli_calibration {
    char path[COH_CALIBRATION_PATH_BYTES]; /* "": none is used or kept */
    uint32_t runs;                         /* that the plan is calibrated by */
} cli_calibration;

/* Before anything is planned. *profile NULL becomes the built-in one, which can be calibrated, too.
 * What-ifs, datasheets and other machines' profiles are not. A damaged file is left out, and said;
 * so is a cache that has no place. Fails: COH_ERR_MEMORY. */
coh_status cli_calibration_open(const cli_options *options, coh_profile **profile,
                                cli_calibration *out_calibration);

/* After the last step: this run's lines go into the file, and what differs from the profile by more
 * than 5 % is said. Never fails a run. *out_count classes, 0: none were compared. */
void cli_calibration_keep(const cli_options *options, const cli_calibration *calibration,
                          coh_engine *engine,
                          coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST],
                          uint32_t *out_count);

/* ", \"lines\": [...]" of a result. */
void cli_calibration_add_json(const coh_calibration_class *classes, uint32_t count, cli_line *line);

#endif
