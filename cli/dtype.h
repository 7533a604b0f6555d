/* dtype.h - chooses the dtype in which a model is computed: --dtype, or a default.
 *
 *     a new run          --dtype, else bf16 where the processor multiplies it in hardware, else f32
 *     a checkpoint       --dtype, else what it was trained in: to go on, to be measured, or as the
 *                        weights that a new run begins with
 *
 * Checkpoints hold f32 in either case, so a run may continue in the other dtype, with other
 * rounding. */
#ifndef COH_CLI_DTYPE_H
#define COH_CLI_DTYPE_H

#include "cli/options.h"

const char *cli_dtype_name(coh_dtype dtype); /* "f32", "bf16" or "f16" */

/* Returns "nf4" if frozen weights of linears are stored so, else NULL, which is null in JSON: they
 * have the model's dtype, or there are none. */
const char *cli_dtype_frozen(uint64_t frozen_nf4);

/* The dtype of a new run without given weights. */
coh_dtype cli_dtype_choose(const cli_options *options);

/* The dtype of a run that begins with a checkpoint of dtype `trained`. */
coh_dtype cli_dtype_keep(const cli_options *options, coh_dtype trained);

/* Adds one line: the dtype, the reason, and the alternative. `has_checkpoint`: the weights are from
 * a checkpoint. */
void cli_dtype_describe(const cli_options *options, coh_dtype dtype, int has_checkpoint,
                        cli_line *line);

/* Adds a line on the gradients of bf16 weights that `sum_count` micro-batches add to: if they are
 * f32, or if they are bf16 and so many roundings may lose what one contributes
 * (docs/numerics.md). */
void cli_dtype_describe_gradients(const cli_options *options, int are_f32, int64_t sum_count,
                                  uint64_t trained_count, cli_line *line);

#endif
