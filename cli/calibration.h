/* calibration.h - corrections of predicted times, measured by runs on this machine. train and plan
 * use them for plans; train adds to them. File: --calibration, or COH_CALIBRATION of the
 * environment. */
#ifndef COH_CLI_CALIBRATION_H
#define COH_CLI_CALIBRATION_H

#include "cli/options.h"

typedef struct cli_calibration {
    char path[COH_CALIBRATION_PATH_BYTES]; /* "": no file is used or kept */
    uint32_t runs;                         /* number of runs that calibrate the plan */
} cli_calibration;

/* Is calibration switched off, by --calibration none or the environment? */
int cli_calibration_is_off(const cli_options *options);

/* Applies calibration to *profile; call it before planning. *profile NULL becomes the built-in
 * profile, which can be calibrated, too. Calibration leaves out what-ifs, datasheets and
 * other machines' profiles. A damaged file, or a missing place for the file, is ignored with a
 * note. Fails: COH_ERR_MEMORY. */
coh_status cli_calibration_open(const cli_options *options, coh_profile **profile,
                                cli_calibration *out_calibration);

/* Call it after the last step: adds this run's instruction times to the file and prints differences
 * from the profile above 5 %. Never fails a run. *out_count classes; 0: none were compared. */
void cli_calibration_keep(const cli_options *options, const cli_calibration *calibration,
                          coh_engine *engine,
                          coh_calibration_class out_classes[COH_CALIBRATION_CLASSES_MOST],
                          uint32_t *out_count);

/* Adds "instructions": [...] to a result. */
void cli_calibration_add_json(const coh_calibration_class *classes, uint32_t count, cli_line *line);

#endif
