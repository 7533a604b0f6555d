/* settle.h - settles options that need the model and the device, in the recipe and the model. */
#ifndef COH_CLI_SETTLE_H
#define COH_CLI_SETTLE_H

#include "cli/job.h"

/* Refuses --atomics if no kind of the run can use atomics; a resumed run continues without them. */
coh_status cli_settle_atomics(cli_job *job);

/* --frozen-dtype: without the flag a resumed run goes on as it was. From nf4 on the numbers stay
 * the same. Fails: COH_ERR_ARGUMENT if no weight can be stored so. */
coh_status cli_settle_frozen_dtype(cli_job *job);

/* Takes separate documents into the model: of --documents separate, of a checkpoint's note, or of a
 * token file that marks them. Fails: COH_ERR_ARGUMENT for a model of an extension, whose graph
 * takes no positions, and for a token file and --documents that contradict one another. */
coh_status cli_settle_documents(cli_job *job);

/* Takes dropout into the model. Without --lora-dropout a run that begins with --adapter has the
 * number of its folder. Fails: COH_ERR_ARGUMENT: the flag is given, and there are no adapters. */
coh_status cli_settle_dropout(cli_job *job);

/* Adds the screen's lines about dropout, if there is any. */
void cli_describe_dropout(const cli_recipe *recipe, cli_line *line);

/* Returns 1 if --frozen-dtype nf4 would store weights of a new run in fewer bits. */
int cli_may_pack_frozen(const cli_job *job);

/* Adds the screen's line about weights in nf4, if there are any. */
void cli_describe_frozen_dtype(const coh_model *model, cli_line *line);

#endif
