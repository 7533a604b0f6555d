/* settle.h - settles options that need the model and the device, in the recipe and the model. */
#ifndef COH_CLI_SETTLE_H
#define COH_CLI_SETTLE_H

#include "cli/job.h"

/* Refuses --atomics if no kind of the run can use atomics; a resumed run continues without them. */
coh_status cli_settle_atomics(cli_job *job);

/* --frozen-dtype: without the flag a resumed run goes on as it was. From nf4 on the numbers stay
 * the same. Fails: COH_ERR_ARGUMENT if no weight can be stored so. */
coh_status cli_settle_frozen_dtype(cli_job *job);

#endif
