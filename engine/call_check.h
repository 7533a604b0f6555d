/* call_check.h - the check mode of an engine (coh_engine_options.check_calls): every call of a kind
 * works on guarded copies, so that a write outside, or to what the call only reads, fails the step
 * with a sentence. Host device only. Next: cohobate/op_check.h for a kind alone. */
#ifndef COH_ENGINE_CALL_CHECK_H
#define COH_ENGINE_CALL_CHECK_H

#include "engine/guard.h"
#include "engine/step_state.h"

/* Memory for the largest call of a plan. */
typedef struct coh_call_check {
    coh_guarded_memory memory;
} coh_call_check;

/* `small`: a graph that fits the plan (small_graph.h), or NULL. Fails: COH_ERR_MEMORY. */
coh_status coh_call_check_init(const coh_plan *plan, const coh_graph *small,
                               coh_call_check *out_check);
void coh_call_check_fini(coh_call_check *check);

/* One call: the operator, and what its instruction binds. */
typedef struct coh_checked_call {
    const coh_graph_op_entry *op;
    coh_phase phase;
    const coh_bound_port *ports;
    uint32_t port_count;
} coh_checked_call;

/* Runs `function` on copies of the ports, attributes and cells of `call`, and copies back what the
 * phase writes.
 * Fails: as the kind; COH_ERR_ARGUMENT for a write that is not allowed. */
coh_status coh_call_check_run(coh_call_check *check, const coh_checked_call *checked,
                              coh_kind_function function, coh_call *call);

#endif
