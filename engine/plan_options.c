/* Defaults of a plan's options. They are set here, because some depend on the machine and its
 * kernels, which planner/ does not know. Next: cohobate/plan.h. */
#include <stdio.h>

#include "cohobate/engine.h"
#include "cohobate/machine.h"
#include "cohobate/plan.h"

void coh_plan_options_init(coh_plan_options *out_options)
{
    if (out_options == NULL)
        return;
    *out_options = (coh_plan_options){ .struct_bytes = sizeof(coh_plan_options),
                                       .mode = COH_PLAN_TRAIN,
                                       .device_memory_bytes = UINT64_MAX,
                                       .thread_count = 1,
                                       .microbatch_count = 1,
                                       .deferred_update = 1,
                                       .bf16_is_fast = coh_machine_bf16_is_fast() };
    snprintf(out_options->kernel_path, sizeof(out_options->kernel_path), "%s", coh_kernel_path());
}
