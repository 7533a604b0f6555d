/* lacks.h - what else a refused run lacks. A refusal names one budget; if others are too small as
 * well, whoever raises the first is refused again. */
#ifndef COH_CLI_LACKS_H
#define COH_CLI_LACKS_H

#include "cli/job.h"

/* After a refusal of this batch: adds frozen weights in 4 bits to its changes if a plan with them
 * fits within the same budgets. If flags limit more than one budget, follows the remedies, plan by
 * plan, until one fits, and adds its budgets to the sentence unless it names the only one. If the
 * refusal is about the limit of disk writes, also names each change that keeps to the limit by
 * itself, as found by quick plans: 8-bit moments, adapters, the memory with which no drive is
 * needed. The data of coh_last_refusal is then gone, so JSON keeps the refusal as it was. Returns
 * `status`. */
coh_status cli_lacks_name(const cli_job *job, const coh_batch *batch, coh_status status);

#endif
