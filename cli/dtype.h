/* dtype.h - in which numbers a model is computed: --dtype, or what fits best.
 *
 *     a new run          --dtype, else bf16 where the processor multiplies it in hardware, else f32
 *     a checkpoint       --dtype, else what it was trained in: to go on, to be measured, or as the
 *                        weights that a new run begins with
 *
 * Checkpoints hold f32 either way, so a run may go on in the other dtype; it rounds otherwise
 * then. */
#ifndef COH_CLI_DTYPE_H
#define COH_CLI_DTYPE_H

#include "cli/options.h"

const char *cli_dtype_name(coh_dtype dtype); /* "f32", "bf16" or "f16" */

/* The dtype of a run that begins, with weights of its own. */
coh_dtype cli_dtype_choose(const cli_options *options);

/* The dtype of one that begins with a checkpoint of dtype `trained`. */
coh_dtype cli_dtype_keep(const cli_options *options, coh_dtype trained);

/* One line: which, why, and what else could be had. `has_checkpoint`: the weights are from one. */
void cli_dtype_describe(const cli_options *options, coh_dtype dtype, int has_checkpoint,
                        cli_line *line);

#endif
