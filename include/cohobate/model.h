/* model.h - describe what is computed; say nothing of where or when.
 *
 * A model is a graph of operators. An operator is one use of a *kind*; a kind is a table of
 * functions with a declaration of what they touch. The library's own kinds (kinds.h) and yours are
 * the same struct: there is no private door.
 *
 *      tokens ──> embedding ──> norm ──> linear ──> ... ──> classifier ──> loss
 *                    │ table                                   │ table   (tied: two uses)
 *
 * The one idea: the planner moves your data while you compute, so everything a function reads or
 * writes must be declared, arrives as an argument, and is only valid during the call. Never keep a
 * pointer from one call to the next: between forward and backward the bytes may have been on disk,
 * and come back elsewhere.
 *
 * Threads: a graph belongs to the thread that builds it. Kernels are called
 * from the compute lane. */
#ifndef COHOBATE_MODEL_H
#define COHOBATE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum coh_dtype { COH_DTYPE_F32, COH_DTYPE_BF16, COH_DTYPE_F16, COH_DTYPE_I32 } coh_dtype;

#define COH_RANK_MAX 5
#define COH_PORT_MAX 8 /* inputs, outputs, parameters and states of one operator, each */

/* rank 0 stands for "not present" where a port is optional; a scalar is rank 1 with dim 1. */
typedef struct coh_shape {
    coh_dtype dtype;
    int32_t rank;
    int64_t dim[COH_RANK_MAX]; /* dim[rank - 1] is contiguous in a whole tensor */
} coh_shape;

/* A piece of a tensor, resolved: what a kernel sees. `data` is NULL for a port that was not
 * declared, or is absent. */
typedef struct coh_view {
    void *data;
    coh_shape shape;              /* of this piece */
    int64_t stride[COH_RANK_MAX]; /* elements */
    /* where the piece begins in the whole tensor: row ranges, RNG counters */
    int64_t origin[COH_RANK_MAX];
} coh_view;

/* ---- kinds ---- */

typedef enum coh_phase { COH_PHASE_FORWARD, COH_PHASE_BACKWARD, COH_PHASE_COUNT } coh_phase;

/* Normal and uniform around 0, with a standard deviation of init_std. */
typedef enum coh_init { COH_INIT_ZERO, COH_INIT_ONE, COH_INIT_NORMAL, COH_INIT_UNIFORM } coh_init;

typedef struct coh_parameter_facts {
    const char *name; /* "weight": the parameter is called "<operator>.weight"; static storage */
    coh_shape shape;  /* rank 0: this operator has no such parameter (a linear without bias) */
    coh_init init;
    float init_std;
    int32_t decays; /* weight decay applies: matrices and embeddings, not norms and biases */
    /* Only for a parameter in row_split_parameters: ranges are multiples of so many rows (but for
     * the last). Fixed by the shape alone, never by a budget: the kernel works block by block in
     * this size whatever range a call brings, so that ranges do not change a bit. 0: not split. */
    int64_t row_block;
} coh_parameter_facts;

/* The values that an integer input may hold: least <= value < end. All zero: any value. */
typedef struct coh_index_range {
    int64_t least, end;
} coh_index_range;

/* What a kind tells about one operator once the input shapes are known. Zeroed before `infer` is
 * called. */
typedef struct coh_op_facts {
    coh_shape output[COH_PORT_MAX];
    coh_parameter_facts parameter[COH_PORT_MAX];
    /* kept from one step to the next, read and written by forward, not trained: keys and values of
     * a decoder. Zero at the start. */
    coh_shape state[COH_PORT_MAX];
    /* one contiguous object from forward to backward; 0: none */
    size_t saved_bytes;
    size_t workspace_bytes[COH_PHASE_COUNT]; /* scratch, garbage on entry and after */
    /* What forward may leave for backward and backward could compute again: one more object, given
     * where the plan has room for it. 0: none. */
    size_t cache_bytes;
    double flops[COH_PHASE_COUNT];
    double bytes[COH_PHASE_COUNT]; /* memory traffic; 0: the sum of its ports */
    double cache_saves_flops;      /* of backward's flops: not done where it is given the cache */
    /* By input port: the range of an integer input (ids of a table's rows). The engine checks each
     * graph input against the ranges of all operators that read it, before a step begins. An input
     * that another operator computes is not checked: its readers have to. */
    coh_index_range index_range[COH_PORT_MAX];
} coh_op_facts;

/* What the random numbers of a step come from. It stands in the device's memory and is written by
 * the step alone, so that no number of it is an argument. */
typedef struct coh_random_cell {
    uint64_t seed, step;
} coh_random_cell;

/* One execution of one operator on one micro-batch (or on one range of rows of a parameter). Valid
 * only during the call. */
typedef struct coh_call {
    /* the operator's own copy of what the graph was given */
    const void *attributes;
    /* forward: all. backward: those in backward_reads.inputs */
    coh_view input[COH_PORT_MAX];
    /* forward: written. backward: those in backward_reads.outputs */
    coh_view output[COH_PORT_MAX];
    coh_view parameter[COH_PORT_MAX];   /* backward: those in backward_reads.parameters */
    coh_view state[COH_PORT_MAX];       /* forward: read and written */
    coh_view output_grad[COH_PORT_MAX]; /* backward: read; NULL data for a loss */
    /* backward: written, or added to; NULL only if can_skip_grad (or integer) */
    coh_view input_grad[COH_PORT_MAX];
    coh_view parameter_grad[COH_PORT_MAX]; /* likewise, frozen parameters */
    uint32_t input_grad_adds;              /* bit i: add to input_grad[i] instead of writing it */
    uint32_t parameter_grad_adds;          /* bit i: likewise */
    /* forward: written. backward: read; kinds with row-split parameters may write it as well, and
     * find that in the next range's call */
    void *saved;
    void *workspace;
    /* Kinds with `draws`, in training: coh_random_words. NULL: this call draws nothing, and dropout
     * passes everything on (evaluation, a decoder). */
    const coh_random_cell *random_cell;
    const int64_t *count_cell; /* NULL, or how many leading rows are real (experts) */
    /* loss kinds only: 1 / micro-batches, so that the sum is the mean, times the step's
     * loss_factor. On a GPU: loss_share and loss_factor_cell, below */
    float loss_scale;
    /* Row-split parameters: this call is for rows [row_begin, row_end) of row_count. Calls come in
     * rising order and cover all rows; the one with row_begin 0 initialises outputs, saved and
     * input_grad, the one with row_end == row_count finishes them. 0, 0, 0
     * when nothing is split. */
    int64_t row_begin, row_end, row_count;
    int32_t microbatch;
    /* device queue; on the host the worker pool, see coh_parallel */
    void *queue;
    /* cache_bytes that forward wrote, or NULL: the same bits either way. Forward and backward of
     * one micro-batch are both given it, or neither; backward may overwrite what it has read. */
    void *cache;
    int32_t operator_index; /* in the graph: no two operators draw the same */
    /* What loss_scale is the product of: 1 / micro-batches, and the step's loss_factor (NULL: 1),
     * which is in the device's memory, for on a GPU no value of a step is an argument. */
    float loss_share;
    const float *loss_factor_cell;
} coh_call;

typedef struct coh_port_mask {
    uint32_t inputs, outputs, parameters; /* bit i stands for port i */
} coh_port_mask;

typedef struct coh_in_place {
    int8_t from, to; /* forward: input -> output. backward: output_grad -> input_grad */
} coh_in_place;

#define COH_KIND_ABI 2u /* raised when coh_op_facts or coh_call change but at their end */

/* Fields may be added at the end; `struct_bytes` says how many the author knew, the rest counts as
 * zero. */
typedef struct coh_op_kind {
    uint32_t struct_bytes; /* sizeof(coh_op_kind) */
    uint32_t abi_version;  /* COH_KIND_ABI */
    /* "yours.gated_norm"; part of the numeric plan's fingerprint, with `revision` */
    const char *name;
    uint32_t revision; /* raise it when the numbers change */
    int32_t input_count, output_count, parameter_count, state_count;

    /* What backward reads again. A port not named here is not held in memory for it, so an honest
     * small mask saves bytes and a forgotten bit gives NULL data. A linear layer names its input
     * and its weight, saves nothing. */
    coh_port_mask backward_reads;

    /* Gradients that `backward` can add to. For the others the planner gives a scratch tensor and
     * adds afterwards: wrapped layers that only overwrite need not be changed (cost: one more pass
     * over that gradient). */
    coh_port_mask can_add_grad; /* .outputs is unused */
    /* Gradients that `backward` leaves out when their data is NULL (frozen, or an input that needs
     * none). The others always get somewhere to write, scratch if need be. */
    coh_port_mask can_skip_grad;

    /* Pairs that may share bytes; the planner decides whether they do. */
    coh_in_place forward_in_place[2], backward_in_place[2];
    int32_t in_place_count[COH_PHASE_COUNT];

    /* Axes of input 0 along which a call may be cut without changing a bit of the result, as
     * bits. */
    uint32_t split_axes;
    /* Bit i: parameter i may arrive as a range of its rows (dim 0), several calls giving the whole:
     * lets a huge embedding be streamed through less memory than itself. At most one bit. */
    uint32_t row_split_parameters;
    /* 1: output 0 is the loss, a scalar f32: sum over this micro-batch's items / items, unscaled;
     * backward scales by loss_scale and reads no output_grad. */
    int32_t is_loss;

    /* Pure: same arguments, same facts; called while planning. Fails: COH_ERR_SHAPE with a
     * sentence (coh_kind_fail). */
    coh_status (*infer)(const void *attributes, const coh_shape *inputs, coh_op_facts *out_facts);
    /* Allocate nothing, wait for nothing. The same bits for the same bytes, whatever the number of
     * threads (but see atomics). A plan that trains refuses an operator between a trained parameter
     * and the loss whose backward is NULL. */
    coh_status (*forward)(const coh_call *call);
    coh_status (*backward)(const coh_call *call);
    /* The same on a GPU: they enqueue on call->queue and return. What the pointers of a call name
     * is the device's memory, not to be read or written here. What they enqueue may be recorded and
     * repeated in every step without another call, so nothing in it may come from elsewhere than
     * the call, nor from loss_scale, nor wait for the queue. NULL: the operator runs on the host
     * device only. */
    coh_status (*forward_cuda)(const coh_call *call);
    coh_status (*backward_cuda)(const coh_call *call);

    /* Of backward_reads, what serves the gradients of parameters alone: where all parameters are
     * frozen it is neither kept nor given (a linear layer's input). `.parameters` is unused. */
    coh_port_mask reads_for_parameters;
    /* 1: forward and backward draw random numbers, and get a random_cell to draw them from. */
    int32_t draws;
    /* 1: the row-split parameter is parameter 0, its rows are columns of output 0, and ranges are
     * taken only where the whole does not fit (a slice). Between the ranges of one backward its
     * workspace is kept, and only the range with row_begin 0 is given gradients of other
     * parameters. */
    int32_t column_slices;
    /* Scratch of forward_cuda and backward_cuda, instead of infer's workspace_bytes; pure like
     * infer. NULL: as infer says. */
    size_t (*workspace_cuda)(const void *attributes, const coh_shape *inputs, coh_phase phase);
    /* Bit i: backward writes, or adds to, the gradient of parameter i in f32 as well where the
     * parameter is bf16: the dtype of parameter_grad[i]'s shape says in which. For the others a
     * plan with f32_gradients gives a scratch tensor in the parameter's dtype, whole, and adds
     * afterwards. */
    uint32_t can_widen_grad;
    /* 1: backward_cuda may add by atomics, in another order and so to other bits each time it runs.
     * Plans of graphs with such a kind say so (coh_plan_file). */
    int32_t atomics;
    /* Bytes of the struct that `attributes` points to. coh_graph_op refuses fewer, so that no
     * function reads past them. 0: the kind has none, or checks them itself. */
    uint32_t attribute_bytes;
} coh_op_kind;

/* Run piece(argument, i) for 0 <= i < piece_count on the pool behind `queue`; returns when all are
 * done. The pieces must not depend on the number of threads: cut by shape, fold partial sums in
 * index order. */
COH_API void coh_parallel(void *queue, int64_t piece_count,
                          void (*piece)(void *argument, int64_t index), void *argument);

/* words[i] = random word number `first` + i of this call, uniform in 0..2^32 - 1. A pure function
 * of seed, step, operator, micro-batch and number, made by a counter-based generator (Philox
 * 4x32-10, Salmon et al. 2011): forward, recompute and backward of one micro-batch find the same
 * word under the same number, and nothing is kept for it. What is numbered is the kind's affair; a
 * tensor's elements are best counted in the whole tensor (view.origin), so that a piece draws what
 * the whole would. Any thread; call->random_cell must not be NULL. */
COH_API void coh_random_words(const coh_call *call, uint64_t first, int64_t count, uint32_t *words);

/* Set the sentence of a failure from inside a kind and return `status`. printf-like. */
COH_API coh_status coh_kind_fail(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Elements of a shape; 0 for rank 0. Shapes that a graph accepted never overflow. */
COH_API int64_t coh_shape_elements(const coh_shape *shape);

/* Bytes of one element. */
COH_API size_t coh_dtype_bytes(coh_dtype dtype);

/* ---- graphs ---- */

/* Longest name of an input, an operator, a kind or a parameter, without the terminator. */
#define COH_NAME_BYTES_MOST 1023

typedef struct coh_graph coh_graph;
typedef struct coh_tensor {
    int32_t index;
} coh_tensor;
typedef struct coh_parameter {
    int32_t index;
} coh_parameter;
#ifdef __cplusplus
#define COH_PARAMETER_NEW (coh_parameter{ -1 })
#else
#define COH_PARAMETER_NEW ((coh_parameter){ -1 })
#endif

/* An empty graph. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_graph_create(coh_graph **out_graph);
/* After every plan made from it. Accepts NULL. */
COH_API void coh_graph_destroy(coh_graph *graph);

/* Fed anew for every micro-batch; dim[0] is the micro-batch's sequences. Integer inputs get no
 * gradient. Fails: COH_ERR_ARGUMENT (name taken), COH_ERR_SHAPE. */
COH_API coh_status coh_graph_input(coh_graph *graph, const char *name, const coh_shape *shape,
                                   coh_tensor *out_tensor);

typedef struct coh_op_args {
    /* Unique, not empty, UTF-8 without control characters, at most COH_NAME_BYTES_MOST. Parameters
     * are named "<name>.<parameter name>" unless tied; these names are unique, too. */
    const char *name;
    /* Copied. Their bytes are part of the numeric plan's fingerprint: let the struct have no
     * padding, or begin from a zeroed one. */
    const void *attributes;
    size_t attribute_bytes;
    /* kind->input_count of them, each made before: the order of calls is the order of forward */
    const coh_tensor *inputs;
    /* NULL, or parameter_count handles, COH_PARAMETER_NEW where new. Shapes must agree. */
    const coh_parameter *tied;
    /* bit i: parameter i is frozen: no gradient, no states, no update */
    uint32_t frozen_parameters;
    /* operators of one block are kept, recomputed or moved together; -1: none. The operators of a
     * block follow one another. */
    int32_t block;
} coh_op_args;

/* Add one operator. `out_outputs` takes output_count handles, `out_parameters` (may be NULL)
 * parameter_count.
 * Owns: keeps a copy of `kind`; the functions it points to must outlive the graph.
 * Fails: COH_ERR_ARGUMENT (abi, counts, a name that is taken or is no name), COH_ERR_SHAPE (infer's
 * sentence, with the operator's name). The graph is then as before. */
COH_API coh_status coh_graph_op(coh_graph *graph, const coh_op_kind *kind, const coh_op_args *args,
                                coh_tensor *out_outputs, coh_parameter *out_parameters);

/* What one operator is. Texts live as long as the graph. */
typedef struct coh_graph_operator {
    const char *name, *kind;
    int32_t block;    /* -1: none */
    coh_shape output; /* the first */
} coh_graph_operator;
/* In the order of forward. */
COH_API int32_t coh_graph_operator_count(const coh_graph *graph);
/* Fails: COH_ERR_ARGUMENT when there is no such operator. */
COH_API coh_status coh_graph_operator_at(const coh_graph *graph, int32_t index,
                                         coh_graph_operator *out_operator);

/* The scalar to minimise: output 0 of a kind with is_loss. Once per graph; it ends the graph. */
COH_API coh_status coh_graph_loss(coh_graph *graph, coh_tensor loss);

/* A tensor that the caller reads after each run (logits of a decoder): kept in place, never
 * moved. */
COH_API coh_status coh_graph_output(coh_graph *graph, coh_tensor tensor);

#ifdef __cplusplus
}
#endif
#endif
