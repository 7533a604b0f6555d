/* Decides on bodies that made their updates before their norm was known. The idea: the working
 * store keeps what the newest body overwrote (planner/program.h, keeps_old), so until the next body
 * is submitted it can be taken back, and run again with the factor that exact clipping gives it.
 *
 *   submit s      decide s: norm <= limit, it stays         submit s + 1
 *   submit s      decide s: taken back, run with the factor submit s + 1
 *
 * Interface: engine_state.h. Next: coh_step_undo in step.c. */
#include "engine/engine_state.h"

coh_status coh_engine_take_back(coh_engine *engine, uint64_t applied_count)
{
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    if (coh_plan_speculates(&engine->plan->options) && cells.applied_count != applied_count)
        COH_TRY(coh_step_undo(engine->step));
    return coh_engine_set_applied(engine, applied_count);
}

/* Adds the figures of a step's first run to those of its second. */
static void add_figures(coh_step_result *result, const coh_step_result *first)
{
    result->ran_twice = 1;
    result->step_ns += first->step_ns;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        result->exposed_ns[lane] += first->exposed_ns[lane];
        result->link_bytes[lane] += first->link_bytes[lane];
        result->frozen_bytes[lane] += first->frozen_bytes[lane];
    }
}

/* Waits for a run of the oldest body. A run that is broken, or in which a kind failed, leaves
 * nothing. *out_is_kept: 0 if it was taken back. */
static coh_status await_run(coh_engine *engine, int *out_is_kept)
{
    coh_verdict *verdict = &engine->verdict;
    verdict->status = coh_step_await(engine->step, engine->under_way[0], &verdict->result);
    *out_is_kept = verdict->status == COH_OK && verdict->result.finite;
    if (verdict->status != COH_OK) {
        coh_error_save(verdict->text);
        COH_TRY(coh_step_failure(engine->step));
    }
    return *out_is_kept ? COH_OK : coh_step_undo(engine->step);
}

coh_status coh_engine_decide(coh_engine *engine)
{
    coh_verdict *verdict = &engine->verdict;
    int is_kept = 0;
    if (!coh_plan_speculates(&engine->plan->options) || verdict->is_made)
        return COH_OK;
    COH_TRY(await_run(engine, &is_kept));
    const coh_step_result first = verdict->result;
    if (is_kept && coh_step_is_clipped(engine->step, engine->under_way[0], first.grad_norm)) {
        COH_TRY(coh_step_undo(engine->step));
        COH_TRY(coh_engine_set_applied(engine, first.applied_count - 1));
        COH_TRY(coh_step_repeat(engine->step, engine->under_way[0], first.grad_norm,
                                &engine->under_way[0]));
        COH_TRY(await_run(engine, &is_kept));
        add_figures(&verdict->result, &first);
    }
    verdict->is_made = 1;
    return COH_OK;
}
