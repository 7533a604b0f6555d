/* epochs.h - --epochs: sets the length of a run to a number of passes through its data.
 *
 *     steps = windows of the data x epochs / sequences of a step, rounded up
 *
 * The number of windows is known when the data is open: train tokenizes text first, plan accepts
 * only tokenized data. From then on the run is the same as with --steps. */
#ifndef COH_CLI_EPOCHS_H
#define COH_CLI_EPOCHS_H

#include "cli/data.h"
#include "cli/job.h"

/* Sets the recipe's steps and schedule from --epochs, if given, and prints their origin. `data` is
 * open and holds at least one window. Fails: COH_ERR_ARGUMENT (flags that contradict the schedule,
 * more steps than a run may have). */
coh_status cli_epochs_take(cli_job *job, const cli_data *data);

/* As cli_epochs_take; opens --data only for counting. Fails: COH_ERR_ARGUMENT, also if there is no
 * data or it is text; as cli_data_open does. */
coh_status cli_epochs_take_named(cli_job *job);

#endif
