/* Chooses a run's dtype and explains the choice. The one idea: without --dtype a new run uses the
 * fastest dtype of the machine, a resumed one keeps its own. Next: job.c, which also considers
 * frozen parameters. */
#include "cli/dtype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/engine.h"

const char *cli_dtype_name(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? "bf16" : dtype == COH_DTYPE_F16 ? "f16" : "f32";
}

const char *cli_dtype_frozen(uint64_t frozen_nf4)
{
    return frozen_nf4 ? "nf4" : NULL;
}

/* The flag's choices have the order of the enum. */
coh_dtype cli_dtype_keep(const cli_options *options, coh_dtype trained)
{
    return cli_given(options, CLI_FLAG_DTYPE) ? (coh_dtype)options->dtype : trained;
}

coh_dtype cli_dtype_choose(const cli_options *options)
{
    return cli_dtype_keep(options, coh_machine_bf16_is_fast() ? COH_DTYPE_BF16 : COH_DTYPE_F32);
}

void cli_dtype_describe(const cli_options *options, coh_dtype dtype, int has_checkpoint,
                        cli_line *line)
{
    int fast = coh_machine_bf16_is_fast(), bf16 = dtype == COH_DTYPE_BF16;
    const int is_limited = getenv("COH_ISA") != NULL;
    const char *why;
    if (has_checkpoint && !cli_given(options, CLI_FLAG_DTYPE))
        why = cli_given(options, CLI_FLAG_RESUME) ? "as the run began"
                                                  : "as the model was trained; --dtype changes it";
    else if (bf16 && fast && strstr(coh_kernel_path(), "bf16-pretended") != NULL)
        why = "COH_ISA takes this CPU for one that multiplies it in hardware";
    else if (bf16 && fast)
        why = "this CPU multiplies it in hardware; --dtype f32 for full precision";
    else if (bf16)
        why = is_limited
                  ? "COH_ISA bars its products in hardware: --dtype f32 is faster and more precise"
                  : "this CPU does not multiply it in hardware: --dtype f32 is faster and more "
                    "precise";
    else if (fast)
        why = "full precision; --dtype bf16 is faster on this CPU";
    else
        why = is_limited ? "full precision; with this COH_ISA bf16 is not multiplied in hardware"
                         : "full precision; this CPU does not multiply bf16 in hardware";
    cli_line_add(line, "dtype:  %s (%s)\n", cli_dtype_name(dtype), why);
}

/* From here on a contribution is a few per cent of the sum, whose last place is 0.4 % of it. */
enum { SUMS_NAMED = 16, MORE_BYTES = 2 };

void cli_dtype_describe_gradients(const cli_options *options, int are_f32, int64_t sum_count,
                                  uint64_t trained_count, cli_line *line)
{
    if (are_f32)
        cli_line_add(line, "        gradients of weights in f32\n");
    else if (sum_count >= SUMS_NAMED && !cli_given(options, CLI_FLAG_GRADIENTS))
        cli_line_add(line,
                     "        gradients of weights in bf16, rounded as each of %" PRId64
                     " micro-batches adds to them: --gradients f32 does not, for %s more\n",
                     sum_count, cli_size(MORE_BYTES * trained_count).at);
}
