/* epochs.h - --epochs: a run that is as long as so many passes through its data.
 *
 *     steps = windows of the data x epochs / sequences of a step, rounded up
 *
 * How many windows there are is known when the data is open: train tokenizes text first, plan takes
 * what is tokenized already. From then on the run is one of so many steps, as with --steps. */
#ifndef COH_CLI_EPOCHS_H
#define COH_CLI_EPOCHS_H

#include "cli/data.h"
#include "cli/job.h"

/* The recipe's steps and schedule, where --epochs is given, and a note of what they come from.
 * `data` is open and holds a window at least. Fails: COH_ERR_ARGUMENT (a schedule that the flags
 * contradict, more steps than a run has). */
coh_status cli_epochs_take(cli_job *job, const cli_data *data);

/* The same of --data, which is opened for it alone. Fails: COH_ERR_ARGUMENT, also where there is
 * none or it is text; as cli_data_open does. */
coh_status cli_epochs_take_named(cli_job *job);

#endif
