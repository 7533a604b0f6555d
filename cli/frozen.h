/* frozen.h - what bf16 would do to parameters that a run leaves as they are. */
#ifndef COH_CLI_FROZEN_H
#define COH_CLI_FROZEN_H

#include "cli/weights.h"

/* What is frozen has no low half beside states of its own, so bf16 rounds it for good: would any
 * number of it change? Of a folder the dtypes of the frozen tensors say so, from its files where
 * they are open, else from its config.json; of a checkpoint its numbers, which are read until one
 * is found that bf16 has not. What `trained`, the dtype of the checkpoint's run, and `before`, what
 * that had frozen, show to stand in bf16 is not read.
 * Fails: as reading does. */
coh_status cli_frozen_is_rounded(const coh_model *model, cli_weights *weights, coh_dtype trained,
                                 const coh_adapters *before, int *out_is_rounded);

#endif
