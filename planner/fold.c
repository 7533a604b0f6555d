/* Decides which steps are evaluated by shorter ones, and continues the numbers of these. The idea
 * is in fold.h; candidates.c and initial.c apply it. */
#include "planner/fold.h"

int32_t coh_fold_count(const coh_plan *plan, const coh_effort *shortest)
{
    const int32_t count = plan->options.microbatch_count;
    if (plan->never_folds || plan->options.mode != COH_PLAN_TRAIN ||
        plan->options.sweep_order != COH_SWEEP_MICROBATCH ||
        coh_fold_replicas(&plan->options.replicas) != 1 || count <= COH_FOLDED ||
        shortest->instructions <= COH_FOLD_INSTRUCTIONS)
        return 0;
    return shortest->instructions / (uint64_t)count > COH_FOLD_LONG_INSTRUCTIONS ? COH_FOLDED_LONG
                                                                                 : COH_FOLDED;
}

coh_status coh_fold_effort(const coh_plan *plan, const coh_decisions *decisions,
                           coh_effort *out_effort, int *out_is_bearable)
{
    COH_TRY(coh_effort_of(plan->graph, &plan->options, decisions, out_effort));
    *out_is_bearable = coh_effort_is_bearable(out_effort);
    if (!plan->folded)
        return COH_OK;
    const coh_plan_options folded = coh_fold_options(plan, plan->folded);
    return coh_effort_of(plan->graph, &folded, decisions, out_effort);
}

/* Returns the first call of a micro-batch; the instructions of a micro-batch lie together. */
static uint32_t first_of(const coh_program *body, int32_t microbatch)
{
    uint32_t i = 0;
    while (i < body->instruction_count &&
           (body->instructions[i].call < 0 || body->instructions[i].lane != COH_LANE_COMPUTE ||
            body->calls[body->instructions[i].call].microbatch < microbatch))
        i++;
    return i;
}

void coh_fold_continue(const coh_program *body, const uint64_t *instruction_ns, int32_t folded,
                       int32_t count, coh_simulation *simulation)
{
    const uint32_t begin = first_of(body, 1), end = first_of(body, folded - 1);
    const uint64_t times = (uint64_t)(count - folded), inner = (uint64_t)folded - 2;
    const uint64_t inner_ns = instruction_ns[2 * (size_t)end] - instruction_ns[2 * (size_t)begin];
    simulation->period_ns += times * inner_ns / inner;
    for (uint32_t i = begin; i < end; i++)
        if (body->instructions[i].lane > COH_LANE_COMPUTE)
            simulation->link_bytes[body->instructions[i].lane] +=
                times * body->instructions[i].bytes / inner;
}
