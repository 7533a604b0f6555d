/* model.h - describes what is computed, independent of where and when.
 *
 * A model is a graph of operators. An operator is one use of a *kind*: a table of functions
 * together with a declaration of what they read and write. The library's own kinds (kinds.h) and
 * yours are the same struct, with the same rights.
 *
 *      tokens ──> embedding ──> norm ──> linear ──> ... ──> classifier ──> loss
 *                    │ table                                   │ table   (tied: two uses)
 *
 * The one idea: the planner moves data while you compute. So everything that a function reads or
 * writes must be declared, arrives as an argument, and is valid only during the call. Never keep a
 * pointer from one call to the next: between forward and backward the bytes may go to disk and come
 * back at another address.
 *
 * A graph does not change once a plan was made of it: calls that would change it then fail with
 * COH_ERR_ARGUMENT.
 * Threads: a graph belongs to the thread that builds it, kinds' calls to the compute lane. */
#ifndef COHOBATE_MODEL_H
#define COHOBATE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements: F32, BF16 (the upper half of f32), F16 (IEEE half), I32 (signed integer). NF4:
 * 4 bits each, COH_NF4_BLOCK of them in COH_NF4_BLOCK_BYTES; only frozen parameters of linears have
 * it (coh_linear_attributes). */
typedef enum coh_dtype {
    COH_DTYPE_F32,
    COH_DTYPE_BF16,
    COH_DTYPE_F16,
    COH_DTYPE_I32,
    COH_DTYPE_NF4
} coh_dtype;

/* Elements that share a scale in COH_DTYPE_NF4. */
#define COH_NF4_BLOCK 64
/* Bytes of such a block: a scale in bf16, then 4 bits for each element. */
#define COH_NF4_BLOCK_BYTES 34
/* Rows of a parameter in NF4 have a multiple of so many elements. */
#define COH_NF4_ROW_UNIT 128

/* most dimensions of a tensor */
#define COH_RANK_MAX 5
/* limit of inputs, of outputs, of parameters and of states of one operator */
#define COH_PORT_MAX 8

/* Longest pattern of parameter or operator names, with its end: shell globs separated by commas. */
#define COH_PATTERN_BYTES 256

/* Dtype and dimensions. rank 0 means "not present" for an optional port; a scalar has rank 1, dim
 * 1. `dtype` is that of the elements. */
typedef struct coh_shape {
    coh_dtype dtype;
    int32_t rank;
    int64_t dim[COH_RANK_MAX]; /* dim[rank - 1] is contiguous in a whole tensor */
} coh_shape;

/* A resolved piece of a tensor, as a kernel sees it. `data` is NULL if the port was not declared or
 * is absent. */
typedef struct coh_view {
    void *data;
    coh_shape shape;              /* of this piece */
    int64_t stride[COH_RANK_MAX]; /* elements */
    /* first element of the piece in the whole tensor: for row ranges and RNG counters */
    int64_t origin[COH_RANK_MAX];
} coh_view;

/* ---- kinds ---- */

/* Phases of a step: FORWARD, BACKWARD. Indices of arrays by phase. */
typedef enum coh_phase { COH_PHASE_FORWARD, COH_PHASE_BACKWARD, COH_PHASE_COUNT } coh_phase;

/* Rules for initial values: ZERO, ONE, NORMAL, UNIFORM. The last two have mean
 * 0 and standard deviation init_std. */
typedef enum coh_init { COH_INIT_ZERO, COH_INIT_ONE, COH_INIT_NORMAL, COH_INIT_UNIFORM } coh_init;

/* A GPU has memory for larger parts of a weight than a small budget on the host, and narrow
 * products, whose sums over the blocks go through memory, keep it below its rate. */
#define COH_GPU_ROW_BLOCKS 32
/* Likewise for the tables of the library's embedding and classifier. */
#define COH_GPU_TABLE_BLOCKS 8

/* Facts about one parameter of an operator. `init` and `init_std` give its initial values. */
typedef struct coh_parameter_facts {
    /* "weight": the parameter is named "<operator>.weight"; static storage, not NULL */
    const char *name;
    coh_shape shape; /* rank 0: this operator has no such parameter (a linear without bias) */
    coh_init init;
    float init_std;
    int32_t decays; /* weight decay applies: matrices and embeddings, not norms and biases */
    /* Only for a parameter in row_split_parameters: ranges are multiples of this many rows (except
     * the last). Depends on the shape alone, never on a budget: the kernel works in blocks of this
     * size whatever range a call covers, so ranges do not change bits. 0: not split. On a GPU the
     * blocks of a kind with column_slices are COH_GPU_ROW_BLOCKS times as large, those of other
     * kinds gpu_row_blocks times. */
    int64_t row_block;
} coh_parameter_facts;

/* Valid values of an integer input: least <= value < end. All zero: any value. */
typedef struct coh_index_range {
    int64_t least, end;
} coh_index_range;

/* Facts about one operator, which its kind derives from the input shapes. Zeroed before `infer` is
 * called. Ports from the kind's counts on stay zero. */
typedef struct coh_op_facts {
    coh_shape output[COH_PORT_MAX];              /* by output port */
    coh_parameter_facts parameter[COH_PORT_MAX]; /* by parameter port */
    /* Kept from step to step, read and written by forward, not trained: keys and values of a
     * decoder. Zero at the start. COH_PLAN_INFER only: a plan that trains refuses a kind with
     * states, since its forward may run twice, and checkpoints hold none. */
    coh_shape state[COH_PORT_MAX];
    /* one contiguous object that forward passes to backward; 0: none */
    size_t saved_bytes;
    /* scratch; contents undefined before and after a call */
    size_t workspace_bytes[COH_PHASE_COUNT];
    /* A second object from forward to backward, which backward can also compute itself. Given only
     * if the plan has room for it. 0: none. */
    size_t cache_bytes;
    double flops[COH_PHASE_COUNT]; /* operations of a call, by phase */
    double bytes[COH_PHASE_COUNT]; /* memory traffic; 0: the sum of its ports */
    double cache_saves_flops;      /* flops that backward saves when it has the cache */
    /* By input port: range of an integer input (row ids of a table). Before a step the engine
     * checks each graph input against the ranges of all operators that read it. An input that
     * another operator computes is not checked; its readers have to. */
    coh_index_range index_range[COH_PORT_MAX];
    /* By input port, a bit each: an integer input that counts tokens of documents along its last
     * axis. Each value is 0 or one more than the value before it, and the first of a row is 0.
     * Checked as ranges are. */
    uint32_t counting_inputs;
} coh_op_facts;

/* Seed of a step's random numbers. It is in the device's memory and only the step writes it,
 * because no value of a step may be a kernel argument. `seed` and `step` are the step's. */
typedef struct coh_random_cell {
    uint64_t seed, step;
} coh_random_cell;

/* One execution of one operator, on one micro-batch or on a range of a parameter's rows. Valid only
 * during the call.
 * Alignment: the data of every view, saved, workspace and cache begin at a multiple of 64 bytes, in
 * coh_op_check, too. Exception: the graph inputs of all micro-batches lie one after the other, so
 * from the second one on their alignment may be that of one element. */
typedef struct coh_call {
    /* the operator's own copy of its attributes */
    const void *attributes;
    /* forward: all. backward: those in backward_reads.inputs */
    coh_view input[COH_PORT_MAX];
    /* forward: written. backward: those in backward_reads.outputs */
    coh_view output[COH_PORT_MAX];
    coh_view parameter[COH_PORT_MAX]; /* backward: those in backward_reads.parameters */
    coh_view state[COH_PORT_MAX];     /* forward: read and written */
    /* backward: read, or overwritten too (overwrites_output_grads). NULL data: a loss, integers, or
     * one of several outputs on which the graph's loss does not depend: its gradient is zero. */
    coh_view output_grad[COH_PORT_MAX];
    /* backward: written, or added to; NULL only if can_skip_grad allows it, or for an integer */
    coh_view input_grad[COH_PORT_MAX];
    coh_view parameter_grad[COH_PORT_MAX]; /* likewise, for frozen parameters */
    uint32_t input_grad_adds;              /* bit i: add to input_grad[i] instead of writing it */
    uint32_t parameter_grad_adds;          /* bit i: likewise */
    /* forward: written. backward: read; a kind with row-split parameters may also write it, and
     * finds that in the call of the next range */
    void *saved;
    void *workspace; /* scratch of workspace_bytes of the phase */
    /* For kinds with `draws`, in training: see coh_random_words. NULL: this call draws nothing, and
     * dropout passes everything (evaluation, a decoder). */
    const coh_random_cell *random_cell;
    const int64_t *count_cell; /* number of leading rows that are real (experts); NULL: all */
    /* Loss kinds only: 1 / micro-batches, so that the sum is the mean, times the step's
     * loss_factor. On a GPU use loss_share and loss_factor_cell, below. */
    float loss_scale;
    /* Row-split parameters: this call covers rows [row_begin, row_end) of row_count. Calls come in
     * ascending order and cover all rows. The call with row_begin 0 initialises outputs, saved and
     * input_grad; the call with row_end == row_count finishes them. 0, 0, 0: nothing is split.
     * parameter[i] and parameter_grad[i] of the split one are the range alone: element 0 is in row
     * row_begin, and shape.dim[0] is row_end - row_begin. All other ports are whole in every call:
     * the column or row of an output that belongs to row r of the parameter is r, from row_begin
     * on. */
    int64_t row_begin, row_end, row_count;
    int32_t microbatch; /* number in the step, from 0 */
    /* on the host, the worker pool for coh_parallel; on a GPU, for coh_cuda_begin (cuda.h) */
    void *queue;
    /* The cache_bytes that forward wrote, or NULL; results are the same bits either way. Forward
     * and backward of one micro-batch both get it, or neither; backward may overwrite what it has
     * read. If rows are split, every call of a phase gets the whole, as the one before left it. */
    void *cache;
    int32_t operator_index; /* in the graph; gives each operator its own random numbers */
    float loss_share;       /* factor of loss_scale: 1 / micro-batches */
    /* The other factor, the step's loss_factor; NULL: 1. It is in device memory, because on a GPU
     * no value of a step may be an argument. */
    const float *loss_factor_cell;
} coh_call;

/* A set of ports: one bit for each of the inputs, outputs and parameters. */
typedef struct coh_port_mask {
    uint32_t inputs, outputs, parameters; /* bit i is port i */
} coh_port_mask;

/* A pair of ports that may share memory. */
typedef struct coh_in_place {
    int8_t from, to; /* forward: input -> output. backward: output_grad -> input_grad */
} coh_in_place;

/* ---- what a kind does on each kind of device ---- */

/* Kinds of devices: HOST, CUDA. KINDS is their number. */
typedef enum coh_device_kind { COH_DEVICE_HOST, COH_DEVICE_CUDA, COH_DEVICE_KINDS } coh_device_kind;

/* An operator kind on one kind of device. workspace and accepts are called with shapes
 * that infer accepts.
 *
 * COH_DEVICE_HOST: forward and backward compute before they return. They allocate nothing, wait for
 * nothing, and give equal bits for equal bytes, whatever the number of threads (except by atomics).
 * They are called in the default floating-point mode (to nearest, with subnormal numbers), on
 * whatever thread and in whatever mode the program calls the library. A function may set another
 * one: it is set back afterwards. Pieces of coh_parallel on other threads begin in the default.
 *
 * COH_DEVICE_CUDA: they enqueue the same on the stream of the call (cuda.h) and return. The call's
 * pointers are device memory and must not be read or written here. The enqueued work may be
 * recorded and replayed in every step without another call. So it may depend only on the call, must
 * not use loss_scale, and must not wait for the stream. */
typedef struct coh_kind_device {
    /* NULL: the kind does not run there. Every kind runs on the host. */
    coh_status (*forward)(const coh_call *call);
    /* A training plan refuses an operator between a trained parameter and the loss if its kind has
     * no backward. */
    coh_status (*backward)(const coh_call *call);
    /* Returns the scratch bytes of a call, in place of infer's workspace_bytes. Pure like infer.
     * NULL: as infer says. */
    size_t (*workspace)(const void *attributes, const coh_shape *inputs, coh_phase phase);
    /* Tells a program that chooses between kinds whether the device does for such an operator what
     * the kind is for. If not, the kind still runs, as a simpler kind would. Pure like infer.
     * NULL: it always does.
     * Fails: COH_ERR_SHAPE with a text that names the limit (coh_kind_fail). */
    coh_status (*accepts)(const void *attributes, const coh_shape *inputs);
} coh_kind_device;

/* Increased when coh_op_facts, coh_call or coh_op_kind change, except at their end, and when
 * coh_kind_device or COH_DEVICE_KINDS change. */
#define COH_KIND_ABI 4u

/* An operator kind. Fields may be added at the end: `struct_bytes` is the size that the author
 * compiled with, and later fields count as zero. `input_count`, `output_count`, `parameter_count`
 * and `state_count` count its ports, each at most COH_PORT_MAX. `in_place_count` is the number of
 * pairs of forward_in_place and backward_in_place in use. */
typedef struct coh_op_kind {
    uint32_t struct_bytes;
    uint32_t abi_version; /* COH_KIND_ABI */
    /* "yours.gated_norm"; part of the numeric plan's fingerprint, with `revision` */
    const char *name;
    uint32_t revision; /* increase it when the numbers change */
    int32_t input_count, output_count, parameter_count, state_count;

    /* Ports that backward reads. Others are not held in memory for it: a small mask saves bytes,
     * but a forgotten bit gives NULL data. A linear layer names its input and its weight, and saves
     * nothing. */
    coh_port_mask backward_reads;

    /* Gradients that `backward` can add to. For the others the planner passes a scratch tensor and
     * adds it afterwards, so a wrapped layer that only overwrites needs no change (cost: one more
     * pass over that gradient). */
    coh_port_mask can_add_grad; /* .outputs is unused */
    /* Gradients that `backward` skips if their data is NULL (a frozen parameter, or an input that
     * needs none). The others always get memory to write to, scratch if necessary. */
    coh_port_mask can_skip_grad;

    /* Pairs that may share memory. A plan has one of them do so if nothing reads the first port
     * afterwards, both have equal sizes, the second is written (not added to), and rows are not
     * split. */
    coh_in_place forward_in_place[2], backward_in_place[2];
    int32_t in_place_count[COH_PHASE_COUNT];

    /* Bit i: parameter i may arrive in ranges of its rows (dim 0), one per call. A huge embedding
     * can then be streamed through less memory than it has. At most one bit. With several
     * micro-batches only if can_add_grad has the bit, too: ranges add their gradients. */
    uint32_t row_split_parameters;
    /* 1: output 0 is the loss, a scalar f32: the sum over this micro-batch's items / items,
     * unscaled. backward scales by loss_scale and reads no output_grad. */
    int32_t is_loss;

    /* Computes the facts. Pure: equal arguments give equal facts; called while planning.
     * Fails: COH_ERR_SHAPE with a text (coh_kind_fail). */
    coh_status (*infer)(const void *attributes, const coh_shape *inputs, coh_op_facts *out_facts);
    /* By coh_device_kind. A kind of your own may fill in the host's only:
     * .devices = { [COH_DEVICE_HOST] = { .forward = ..., .backward = ... } } */
    coh_kind_device devices[COH_DEVICE_KINDS];

    /* The part of backward_reads that is needed only for gradients of parameters (a linear layer's
     * input). If all parameters are frozen, it is neither kept nor passed. `.parameters` is
     * unused. */
    coh_port_mask reads_for_parameters;
    /* 1: forward and backward draw random numbers and get a random_cell for it, in training. In
     * evaluation forward gets none, and must compute all outputs without random numbers. 0: no
     * call gets one, so a kind that looks at random_cell computes in training as in evaluation. */
    int32_t draws;
    /* 1: the row-split parameter is parameter 0, and its rows are columns of output 0; ranges
     * (slices) are used only if the whole does not fit. Between the ranges of one backward the
     * workspace is kept, and only the range with row_begin 0 gets gradients of other parameters. */
    int32_t column_slices;
    /* Bit i: backward can write, or add to, the gradient of a bf16 parameter i in f32, too; the
     * dtype of parameter_grad[i]'s shape tells which. For other parameters, a plan with
     * f32_gradients passes a whole scratch tensor in the parameter's dtype and adds it
     * afterwards. */
    uint32_t can_widen_grad;
    /* 1: backward on a GPU may add by atomics, in varying order, so its bits vary from run to run.
     * Plans of graphs with such a kind record it (coh_plan_file). */
    int32_t atomics;
    /* Size of the struct that `attributes` points to. coh_graph_op refuses a smaller one, so that
     * no function reads past its end. 0: the kind has no attributes, or checks them itself.
     * Built-in kinds whose struct grew still have its first size here: new members are then 0. */
    uint32_t attribute_bytes;
    /* Without column_slices: the blocks of rows that its kernels for a GPU take at once, so that
     * ranges are multiples of as many there. 0: 1. */
    int32_t gpu_row_blocks;
    /* Bit i: backward may write to output_grad[i], which nothing reads afterwards. It can hold what
     * backward computes from that gradient, in place of as much workspace. If rows are split, only
     * the call with row_begin 0 writes, and later calls find what it wrote. */
    uint32_t overwrites_output_grads;
} coh_op_kind;

/* Runs piece(argument, i) for 0 <= i < piece_count on the pool behind `queue`; returns when all are
 * done. Pieces must not depend on the number of threads: split by shape, and add partial sums in
 * index order. A call from a piece runs its own pieces one after the other, on the piece's
 * thread. */
COH_API void coh_parallel(void *queue, int64_t piece_count,
                          void (*piece)(void *argument, int64_t index), void *argument);

/* Fills words[i] with random word number `first` + i of this call, uniform in 0..2^32 - 1. A pure
 * function of seed, step, operator, micro-batch and number, from a counter-based generator (Philox
 * 4x32-10, Salmon et al. 2011): forward, recompute and backward of one micro-batch get the same
 * word for the same number, and nothing is stored for it. The kind chooses the numbering; number a
 * tensor's elements by their index in the whole tensor (view.origin), so that a piece draws the
 * same as the whole. Any thread. If call->random_cell is NULL, no word is written, and `words`
 * keeps what it held: look at random_cell first. It is NULL outside training and for kinds without
 * `draws`; coh_op_check finds a kind that uses such words. */
COH_API void coh_random_words(const coh_call *call, uint64_t first, int64_t count, uint32_t *words);

/* Sets the error text of a failure inside a kind and returns `status`. printf-like.
 * Fails: always, with `status`. */
COH_API coh_status coh_kind_fail(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the number of elements; 0 for rank 0. Shapes that a graph accepted never overflow. */
COH_API int64_t coh_shape_elements(const coh_shape *shape);

/* Returns the bytes of one element; 0 for NF4, whose elements have no bytes of their own. */
COH_API size_t coh_dtype_bytes(coh_dtype dtype);

/* Returns the bytes of `count` elements in a row, of NF4 in whole blocks. */
COH_API uint64_t coh_dtype_array_bytes(coh_dtype dtype, uint64_t count);

/* ---- graphs ---- */

/* Longest name of an input, operator, kind or parameter, without the terminator. */
#define COH_NAME_BYTES_MOST 1023

/* Operators and their tensors, in the order of forward. */
typedef struct coh_graph coh_graph;
/* A tensor of a graph, valid as long as the graph. `index` counts the graph's tensors from 0. */
typedef struct coh_tensor {
    int32_t index;
} coh_tensor;
/* A parameter of a graph; `index` as in coh_graph_parameter_at. COH_PARAMETER_NEW stands for a new
 * one (coh_op_args.tied). */
typedef struct coh_parameter {
    int32_t index;
} coh_parameter;
#ifdef __cplusplus
/* for coh_op_args.tied: a parameter that no other operator has */
#define COH_PARAMETER_NEW (coh_parameter{ -1 })
#else
/* for coh_op_args.tied: a parameter that no other operator has */
#define COH_PARAMETER_NEW ((coh_parameter){ -1 })
#endif

/* Creates an empty graph. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_graph_create(coh_graph **out_graph);
/* Call it after destroying every plan made from the graph. Accepts NULL. */
COH_API void coh_graph_destroy(coh_graph *graph);

/* Adds an input, which the caller supplies for every micro-batch; dim[0] is the number of sequences
 * in a micro-batch. Integer inputs get no gradient.
 * Fails: COH_ERR_ARGUMENT (name taken), COH_ERR_SHAPE. */
COH_API coh_status coh_graph_input(coh_graph *graph, const char *name, const coh_shape *shape,
                                   coh_tensor *out_tensor);

/* Arguments of coh_graph_op. */
typedef struct coh_op_args {
    /* Unique, not empty, UTF-8 without control characters, at most COH_NAME_BYTES_MOST. Parameters
     * are named "<name>.<parameter name>" unless tied; these names must be unique, too. */
    const char *name;
    /* Copied. The bytes, without zeros behind kind->attribute_bytes, are part of the numeric plan's
     * fingerprint, so use a struct without padding or zero it first. */
    const void *attributes;
    size_t attribute_bytes; /* sizeof the struct that `attributes` points to */
    /* kind->input_count tensors, made before: the order of calls is the order of forward */
    const coh_tensor *inputs;
    /* NULL, or parameter_count handles; COH_PARAMETER_NEW makes a new one, and any other negative
     * handle is refused. Shapes must match. */
    const coh_parameter *tied;
    /* bit i: parameter i is frozen: no gradient, no states, no update. UINT32_MAX: all. The first
     * operator of a parameter decides for all its uses: a tied use may repeat the bit, but not
     * freeze a parameter that is trained. */
    uint32_t frozen_parameters;
    /* Operators of one block are kept, recomputed or moved together; -1: none. A block's operators
     * are consecutive: a number that has been left is refused. */
    int32_t block;
} coh_op_args;

/* Adds one operator. `out_outputs` receives output_count handles, `out_parameters` (may be NULL)
 * parameter_count.
 * Owns: the graph copies `kind`; the functions that it points to must outlive the graph.
 * Fails: COH_ERR_ARGUMENT (abi, counts, a name that is taken or invalid), COH_ERR_SHAPE (infer's
 * text, with the operator's name). The graph is unchanged then. */
COH_API coh_status coh_graph_op(coh_graph *graph, const coh_op_kind *kind, const coh_op_args *args,
                                coh_tensor *out_outputs, coh_parameter *out_parameters);

/* Facts about one operator. Texts live as long as the graph. */
typedef struct coh_graph_operator {
    const char *name, *kind; /* names of the operator and of its kind */
    int32_t block;           /* -1: none */
    coh_shape output;        /* of output 0 */
} coh_graph_operator;
/* Returns the number of operators; indices follow the order of forward. */
COH_API int32_t coh_graph_operator_count(const coh_graph *graph);
/* Reads operator `index`. Fails: COH_ERR_ARGUMENT if there is none. */
COH_API coh_status coh_graph_operator_at(const coh_graph *graph, int32_t index,
                                         coh_graph_operator *out_operator);

/* Facts about one parameter. The name lives as long as the graph. */
typedef struct coh_graph_parameter_facts {
    const char *name;  /* "<operator>.weight", as in checkpoints */
    coh_shape shape;   /* and dtype, of its work stream */
    int32_t is_frozen; /* 1: it has no gradient, no states and no update */
} coh_graph_parameter_facts;
/* Returns the number of parameters. A tied parameter counts once. */
COH_API int32_t coh_graph_parameter_count(const coh_graph *graph);
/* Reads the parameter whose handle is { index }, from 0. Fails: COH_ERR_ARGUMENT if there is
 * none. */
COH_API coh_status coh_graph_parameter_at(const coh_graph *graph, int32_t index,
                                          coh_graph_parameter_facts *out_facts);
/* Finds the handle of a parameter by its name, for coh_engine_fetch.
 * Fails: COH_ERR_ARGUMENT, with out_parameter unchanged: there is none of this name. */
COH_API coh_status coh_graph_parameter_find(const coh_graph *graph, const char *name,
                                            coh_parameter *out_parameter);

/* Reads the shape of a tensor. Fails: COH_ERR_ARGUMENT, with out_shape unchanged: there is none. */
COH_API coh_status coh_graph_tensor_shape(const coh_graph *graph, coh_tensor tensor,
                                          coh_shape *out_shape);

/* Sets the scalar to minimise: output 0 of a kind with is_loss. Once per graph, as its last
 * call. Other losses of the graph are metrics.
 * Fails: COH_ERR_ARGUMENT (a second loss, a tensor that is none, or one marked as an output). */
COH_API coh_status coh_graph_loss(coh_graph *graph, coh_tensor loss);

/* Marks a tensor that the caller reads after each run (logits of a decoder; in training a metric,
 * such as another loss): it stays in place. Training does not depend on it. Call it before the plan
 * is made.
 * Fails: COH_ERR_ARGUMENT (no such tensor, the graph's loss, or the graph has a plan). */
COH_API coh_status coh_graph_output(coh_graph *graph, coh_tensor tensor);

#ifdef __cplusplus
}
#endif
#endif
