/* graph_check.h - reject invalid input to a graph: names, shapes, kinds, and the facts that a
 * kind's infer reports. Every message names the operator or is prefixed with it (graph.c). */
#ifndef COH_PLANNER_GRAPH_CHECK_H
#define COH_PLANNER_GRAPH_CHECK_H

#include "planner/graph.h"

/* Checks a name: not NULL, not empty, at most COH_NAME_BYTES_MOST bytes of UTF-8 without
 * control characters, so that messages and checkpoints can hold it. `what` is "operator",
 * "parameter", ... */
coh_status coh_check_name(const char *what, const char *name);

/* Checks a shape: 1..COH_RANK_MAX dimensions of at least 1, at most 2^48 bytes. */
coh_status coh_check_shape(const coh_shape *shape, const char *what);

/* Checks the ABI that the kind of operator `name` was compiled for. No other member may be read
 * before. */
coh_status coh_check_kind_abi(uint32_t abi_version, const char *name);

/* Checks functions and port numbers of the kind of operator `name`. */
coh_status coh_check_kind(const coh_op_kind *kind, const char *name);

/* Checks what infer reported about op->kind. */
coh_status coh_check_facts(const coh_graph_op_entry *op);

#endif
