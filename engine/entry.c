/* Admits one public call at a time to an engine, and remembers whether a caller has learned that
 * the engine failed. Interface: entry.h; the failure itself: coh_step_failure. */
#include "engine/entry.h"

#include <unistd.h>

#include "base/float_mode.h"

coh_status coh_engine_check_process(const coh_engine *engine, const char *call)
{
    if (engine->process == getpid())
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s was called in a forked process, which has neither the threads nor the "
                    "memory of an engine of process %d: make an engine after the fork",
                    call, (int)engine->process);
}

coh_status coh_engine_enter(coh_engine *engine, const char *call)
{
    const char *other = NULL;
    COH_TRY(coh_engine_check_process(engine, call));
    if (coh_step_is_in_kind(engine->step))
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s was called inside a function of an operator kind that this engine "
                        "runs, so it would wait for itself: call it after the step has ended",
                        call);
    if (atomic_compare_exchange_strong_explicit(&engine->call_under_way, &other, call,
                                                memory_order_acquire, memory_order_relaxed)) {
        coh_float_mode_begin(&engine->callers_mode);
        return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s was called while %s runs on the same engine, in another thread or around "
                    "this callback: an engine takes one call at a time, so make this one after "
                    "that has returned",
                    call, other);
}

coh_status coh_engine_leave(coh_engine *engine, coh_status status)
{
    if (status != COH_OK && coh_step_has_failed(engine->step))
        engine->failure_is_told = 1;
    coh_float_mode_end(&engine->callers_mode);
    atomic_store_explicit(&engine->call_under_way, NULL, memory_order_release);
    return status;
}

coh_status coh_engine_check_alive(const coh_engine *engine)
{
    char text[COH_ERROR_TEXT_BYTES];
    const coh_status status = coh_step_failure(engine->step);
    if (status == COH_OK || !engine->failure_is_told)
        return status;
    coh_error_save(text);
    return coh_fail(status,
                    "the engine failed earlier and cannot go on (destroy it, and load the last "
                    "checkpoint into a new one): %s",
                    text);
}
