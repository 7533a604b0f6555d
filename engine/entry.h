/* entry.h - the door of an engine: public calls enter one at a time.
 *
 *     COH_TRY(coh_engine_enter(engine, __func__));
 *     return coh_engine_leave(engine, drain(engine));
 *
 * The one idea: an engine has one executor. A second call, from another thread or from a callback,
 * would corrupt it or wait for itself, so it is refused at once. Entering is one atomic exchange,
 * without a lock. Between the two lines nothing may call a public function of the same engine.
 * Threads: any. */
#ifndef COH_ENGINE_ENTRY_H
#define COH_ENGINE_ENTRY_H

#include "engine/engine_state.h"

/* Fails: COH_ERR_ARGUMENT in a child of the process that created the engine. */
coh_status coh_engine_check_process(const coh_engine *engine, const char *call);
/* Begins the public call named `call`, a literal. Fails: COH_ERR_ARGUMENT while another call is
 * under way, inside a function of an operator kind that the engine runs, or after a fork. */
coh_status coh_engine_enter(coh_engine *engine, const char *call);
/* Ends it and returns `status`. */
coh_status coh_engine_leave(coh_engine *engine, coh_status status);

#endif
