/* fingerprint.h - the identity of a numeric plan: everything that may change bits, nothing else;
 * and the identity of an operator for a clock. */
#ifndef COH_PLANNER_FINGERPRINT_H
#define COH_PLANNER_FINGERPRINT_H

#include "cohobate/plan.h"
#include "planner/graph.h"

/* Kinds with their revisions, attributes, shapes and links, micro-batches, clipping mode, state
 * format and kernel path. Forward-only plans of one graph have one, too. */
uint64_t coh_numeric_fingerprint(const coh_graph *graph, const coh_plan_options *options);

/* Operators of one signature take the same time for the same work: kind, revision, attributes,
 * shapes without batch and tokens, what is frozen, dtype. Never 0. */
uint64_t coh_operator_signature(const coh_graph *graph, size_t op);

/* BF16 where some of its tensors are, else F32. */
coh_dtype coh_operator_dtype(const coh_graph *graph, size_t op);

#endif
