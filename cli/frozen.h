/* frozen.h - finds whether bf16 would round frozen parameters. */
#ifndef COH_CLI_FROZEN_H
#define COH_CLI_FROZEN_H

#include "cli/weights.h"

/* Would bf16 change a number of a frozen parameter? Frozen parameters have no optimizer states, and
 * so no stored low half: the rounding would be permanent. For a folder the dtypes of the frozen
 * tensors decide (from its files if they are open, else from config.json). A checkpoint's numbers
 * are read until one is not representable in bf16. Tensors that the checkpoint's run held in bf16,
 * known from its dtype `trained` and its frozen parameters `before`, are not read. Fails: as
 * reading does. */
coh_status cli_frozen_is_rounded(const coh_model *model, cli_weights *weights, coh_dtype trained,
                                 const coh_adapters *before, int *out_is_rounded);

#endif
