/* fingerprint.h - the identity of a numeric plan: everything that may change bits, nothing else;
 * and the identity of an operator for a clock. */
#ifndef COH_PLANNER_FINGERPRINT_H
#define COH_PLANNER_FINGERPRINT_H

#include "cohobate/plan.h"
#include "planner/graph.h"
#include "planner/program.h"

/* Kinds with their revisions, attributes, shapes and links, micro-batches, clipping mode, state
 * format and kernel path. Forward-only plans of one graph have one, too. */
uint64_t coh_numeric_fingerprint(const coh_graph *graph, const coh_plan_options *options);

/* Operators of one signature take the same time for the same work: kind, revision, attributes,
 * shapes without batch and tokens, what is frozen, dtype. Never 0. */
uint64_t coh_operator_signature(const coh_graph *graph, size_t op);

/* How a backward gives the gradients of its parameters: kernels of another form, with times of
 * their own. */
enum {
    COH_GRADS_ADD = 1,  /* to what is there */
    COH_GRADS_WIDE = 2, /* in f32, of parameters in bf16 */
    COH_GRAD_FORMS = 4
};

/* Those of a call; 0 of a forward. `bindings`: those that its binding_begin counts in. */
unsigned coh_grad_form(const coh_line_call *call, const coh_binding *bindings);

/* What the times of a backward of that form stand under in a profile; of form 0 it is the
 * operator's signature. */
uint64_t coh_backward_signature(uint64_t signature, unsigned form);

/* BF16 where some of its tensors are, else F32. */
coh_dtype coh_operator_dtype(const coh_graph *graph, size_t op);

#endif
