/* fingerprint.h - the identity of a numeric plan: everything that may change bits, nothing else. */
#ifndef COH_PLANNER_FINGERPRINT_H
#define COH_PLANNER_FINGERPRINT_H

#include "cohobate/plan.h"
#include "planner/graph.h"

/* Kinds with their revisions, attributes, shapes and links, micro-batches, clipping mode, state
 * format and kernel path. Forward-only plans of one graph have one, too. */
uint64_t coh_numeric_fingerprint(const coh_graph *graph, const coh_plan_options *options);

#endif
