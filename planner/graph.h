/* graph.h - the tables inside a coh_graph, which the planner lowers and the engine binds. */
#ifndef COH_PLANNER_GRAPH_H
#define COH_PLANNER_GRAPH_H

#include "base/name_table.h"
#include "cohobate/model.h"

/* Zeros behind an operator's attributes: more than any built-in kind's struct has grown by. */
#define COH_ATTRIBUTES_GROWTH 64

typedef struct coh_graph_tensor {
    coh_shape shape;
    char *name;       /* "<operator>.<port>" or the input's name */
    int32_t producer; /* operator, or -1: graph input */
    int32_t port;     /* output of the producer, or number of the graph input */
    int32_t is_output;
    int32_t needs_grad; /* some parameter upstream is not frozen */
} coh_graph_tensor;

typedef struct coh_graph_parameter {
    coh_parameter_facts facts; /* of the operator that introduced it */
    char *name;
    int32_t op, port; /* that operator */
    int32_t frozen;
} coh_graph_parameter;

typedef struct coh_graph_op {
    coh_op_kind kind; /* a copy; fields that the author did not know are zero */
    char *name;
    void *attributes; /* a copy, with COH_ATTRIBUTES_GROWTH bytes of zeros behind it */
    size_t attribute_bytes;
    int32_t input[COH_PORT_MAX], output[COH_PORT_MAX]; /* tensors */
    int32_t parameter[COH_PORT_MAX];                   /* graph parameters; -1: absent */
    coh_op_facts facts;
    uint64_t workspace_bytes[COH_DEVICE_KINDS][COH_PHASE_COUNT]; /* of one call */
    int32_t block;                   /* the operators of a block are consecutive; -1: in none */
    int32_t block_least, block_most; /* numbers of blocks so far; INT32_MAX, -1: none */
    /* blocks that ended before this operator's block, or before the operator */
    int32_t blocks_before;
} coh_graph_op_entry;

typedef coh_status (*coh_kind_function)(const coh_call *call);

/* Returns the function that computes a phase on a kind of device, or NULL if there is none. */
static inline coh_kind_function coh_kind_function_of(const coh_op_kind *kind,
                                                     coh_device_kind device, coh_phase phase)
{
    const coh_kind_device *on = &kind->devices[device];
    return phase == COH_PHASE_FORWARD ? on->forward : on->backward;
}

struct coh_graph {
    coh_graph_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    coh_graph_parameter *parameters;
    size_t parameter_count, parameter_capacity;
    coh_graph_op_entry *ops;
    size_t op_count, op_capacity;
    int32_t *inputs;
    size_t input_count, input_capacity; /* tensors */
    int32_t loss;                       /* tensor, or -1 */
    int32_t freezes_nf4; /* 1: parameters in NF4 are frozen by themselves, not refused */
    coh_name_table op_names, parameter_names;
    _Atomic int32_t is_planned; /* 1: plans point to it, so it does not change any more */
};

/* Records that a plan, or an engine, was made of the graph. Any thread. */
void coh_graph_close(const coh_graph *graph);

/* Refuses a change of such a graph by `function`. Fails: COH_ERR_ARGUMENT. */
coh_status coh_graph_check_open(const coh_graph *graph, const char *function);

/* The ports that backward of this operator reads again; fewer if all its parameters are frozen. */
coh_port_mask coh_graph_backward_reads(const coh_graph *graph, const coh_graph_op_entry *op);

/* How much a graph has. coh_graph_cut removes what was added since. */
typedef struct coh_graph_mark {
    size_t op_count, parameter_count, tensor_count;
} coh_graph_mark;
coh_graph_mark coh_graph_mark_of(const coh_graph *graph);
void coh_graph_cut(coh_graph *graph, coh_graph_mark mark);

/* Returns the number of blocks. */
int32_t coh_graph_block_count(const coh_graph *graph);

/* Returns 1 if one of the globs in `pattern` (base/name_pattern.h) matches the parameter's name, or
 * the name of its operator. */
int coh_graph_parameter_matches(const coh_graph *graph, const char *pattern,
                                const coh_graph_parameter *parameter);

/* Returns 1 if some bf16 parameter is not frozen. */
int coh_graph_trains_bf16(const coh_graph *graph);

/* Returns 1 if some operator's kind may add by atomics on a GPU. */
int coh_graph_has_atomics(const coh_graph *graph);

#endif
