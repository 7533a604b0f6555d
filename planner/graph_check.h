/* graph_check.h - checks of what enters a graph. Every message names the place and what is
 * possible. Pure. Threads: any. */
#ifndef COH_PLANNER_GRAPH_CHECK_H
#define COH_PLANNER_GRAPH_CHECK_H

#include "planner/graph.h"

/* Checks a name: not NULL, not empty, at most COH_NAME_BYTES_MOST bytes of UTF-8 without control
 * characters, so that messages and checkpoints can hold it. `what` is "operator", ... */
coh_status coh_graph_check_name(const char *what, const char *name);

/* Checks a shape: 1..COH_RANK_MAX dimensions of at least 1, at most 2^48 bytes. Only parameters are
 * nf4. `what` is "output", ... Fails: COH_ERR_SHAPE. */
coh_status coh_graph_check_shape(const coh_shape *shape, const char *what, int is_parameter);

/* The bits of ports that the kind does not have. */
static inline uint32_t coh_ports_beyond(uint32_t mask, int32_t port_count)
{
    return mask >> port_count;
}

/* Checks the version of a kind's struct. Fails: COH_ERR_ARGUMENT. */
coh_status coh_graph_check_abi(uint32_t abi_version, const char *name);

/* Checks a kind: its version, counts and masks. `name` is the operator's. Fails:
 * COH_ERR_ARGUMENT. */
coh_status coh_graph_check_kind(const coh_op_kind *kind, const char *name);

/* Checks what infer reported about op->kind for these inputs. Fails: COH_ERR_SHAPE. */
coh_status coh_graph_check_facts(const coh_graph_op_entry *op, const coh_shape *inputs);

#endif
