/* fingerprint.h - the identity of a numeric plan: everything that may change result bits, nothing
 * else; and the identity of an operator for timing. */
#ifndef COH_PLANNER_FINGERPRINT_H
#define COH_PLANNER_FINGERPRINT_H

#include "cohobate/plan.h"
#include "planner/graph.h"
#include "planner/program.h"

/* Covers kinds with their revisions, attributes, shapes and links, micro-batches, clipping mode,
 * state format and kernel path. Forward-only plans of a graph have a fingerprint, too. */
uint64_t coh_numeric_fingerprint(const coh_graph *graph, const coh_plan_options *options);

/* Returns 1 if `stored` is the fingerprint, or the one that earlier versions gave to a sweep by
 * layers of a graph whose results do not depend on the order. */
int coh_numeric_fingerprint_is(const coh_graph *graph, const coh_plan_options *options,
                               uint64_t stored);

/* Returns 1 if the sweep order changes result bits: several operators use a parameter that is
 * trained, so its gradient is summed in that order. */
int coh_order_changes_bits(const coh_graph *graph);

/* Operators with the same signature take the same time for the same work: kind, revision,
 * attributes, shapes without batch and tokens, frozen parameters, dtype. Never 0. */
uint64_t coh_operator_signature(const coh_graph *graph, size_t op);

/* Returns the signature of the operator if its weights in NF4 were plain ones, of its dtype. */
uint64_t coh_operator_plain_signature(const coh_graph *graph, size_t op);

/* How a backward delivers the gradients of its parameters: the forms use different kernels, with
 * different times. */
enum {
    COH_GRADS_ADD = 1,  /* adds to the existing gradient */
    COH_GRADS_WIDE = 2, /* in f32, for parameters in bf16 */
    COH_GRAD_FORMS = 4
};

/* The form flags of a call; 0 for a forward. `bindings`: the table that its binding_begin
 * indexes. */
unsigned coh_grad_form(const coh_instruction_call *call, const coh_binding *bindings);

/* The profile key of the times of a backward in that form; for form 0 it is the operator's
 * signature. */
uint64_t coh_backward_signature(uint64_t signature, unsigned form);

/* BF16 if any of the operator's tensors is, else F32. */
coh_dtype coh_operator_dtype(const coh_graph *graph, size_t op);

#endif
