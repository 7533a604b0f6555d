/* Decides which steps are evaluated by shorter ones, and continues the numbers of these. The idea
 * is in fold.h; candidates.c and initial.c apply it. */
#include "planner/fold.h"

int coh_fold_is_worth(const coh_plan *plan, const coh_effort *shortest)
{
    return !plan->never_folds && plan->options.mode == COH_PLAN_TRAIN &&
           plan->options.sweep_order == COH_SWEEP_MICROBATCH &&
           coh_fold_replicas(&plan->options.replicas) == 1 &&
           plan->options.microbatch_count > COH_FOLDED &&
           shortest->instructions > COH_FOLD_INSTRUCTIONS;
}

coh_status coh_fold_effort(const coh_plan *plan, const coh_decisions *decisions,
                           coh_effort *out_effort, int *out_is_bearable)
{
    COH_TRY(coh_effort_of(plan->graph, &plan->options, decisions, out_effort));
    *out_is_bearable = coh_effort_is_bearable(out_effort);
    if (!plan->is_folded)
        return COH_OK;
    const coh_plan_options folded = coh_fold_options(plan, COH_FOLDED);
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

void coh_fold_continue(const coh_program *body, const uint64_t *instruction_ns, int32_t count,
                       coh_simulation *simulation)
{
    const uint32_t begin = first_of(body, 1), end = first_of(body, COH_FOLDED - 1);
    const uint64_t times = (uint64_t)(count - COH_FOLDED), inner = COH_FOLDED - 2;
    const uint64_t inner_ns = instruction_ns[2 * (size_t)end] - instruction_ns[2 * (size_t)begin];
    simulation->period_ns += times * inner_ns / inner;
    for (uint32_t i = begin; i < end; i++)
        if (body->instructions[i].lane > COH_LANE_COMPUTE)
            simulation->link_bytes[body->instructions[i].lane] +=
                times * body->instructions[i].bytes / inner;
}
