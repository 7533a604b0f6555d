/* Defaults of a plan's options. They are set here, because some depend on the machine and its
 * kernels, which planner/ does not know. Next: cohobate/plan.h. */
#include <stdio.h>

#include "base/struct_bytes.h"
#include "cohobate/engine.h"
#include "cohobate/machine.h"
#include "cohobate/plan.h"

void coh_plan_options_init_sized(coh_plan_options *out_options, size_t bytes)
{
    coh_plan_options defaults = { .mode = COH_PLAN_TRAIN,
                                  .device_memory_bytes = UINT64_MAX,
                                  .thread_count = 1,
                                  .microbatch_count = 1,
                                  .deferred_update = 1,
                                  .bf16_is_fast = coh_machine_bf16_is_fast() };
    snprintf(defaults.kernel_path, sizeof(defaults.kernel_path), "%s", coh_kernel_path());
    coh_struct_init(&defaults, sizeof(defaults), out_options, bytes);
}
