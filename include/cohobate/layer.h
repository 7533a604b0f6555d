/* layer.h - the short way to a model: one macro for a usual layer, one function for a chain.
 *
 *     COH_LAYER(gate, "mine.gate", 1, 2, gate_forward, gate_backward,
 *               .parameter = { { "gate", { -1 }, COH_INIT_ONE }, { "shift", { -1 } } });
 *
 *     const coh_chain_link links[] = { COH_LINK(coh_kind_linear, wide), COH_LINK_OF(gate) };
 *     coh_graph_chain(graph, x, links, 2, &y);
 *
 * A usual layer has N inputs, one output, parameters with a name and a shape, forward and backward.
 * The macro makes a coh_op_kind (model.h) of it with the defaults that any layer may have: backward
 * reads all inputs and parameters, writes every gradient and adds to none. A layer with attributes
 * or other promises fills in a coh_op_kind itself. Two more macros take existing functions:
 *
 *     COH_LAYER_THAT_ADDS    backward only adds to gradients (dx[i] += ...), as in code that sets
 *                            them to zero at the start of a step
 *     COH_LOSS_LAYER         the output is the loss
 *
 * The macros are for C: they, and the members that they are given, are designated initialisers.
 * C++ programs set the members of coh_layer, coh_op_kind and coh_chain_link one by one, and call
 * coh_layer_infer in their infer, coh_layer_clear_grads and coh_graph_chain.
 *
 * Threads: a graph belongs to the thread that builds it; coh_layer_infer is pure, any thread;
 * coh_layer_clear_grads belongs to the call. */
#ifndef COHOBATE_LAYER_H
#define COHOBATE_LAYER_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One parameter of a layer; the other members are those of coh_parameter_facts (model.h). */
typedef struct coh_layer_parameter {
    const char *name;          /* "weight" */
    int64_t dim[COH_RANK_MAX]; /* ends with 0; -1 is the last axis of input 0, -2 the one before */
    coh_init init;             /* how it starts; 0: with zeros */
    float init_std;            /* standard deviation of NORMAL and UNIFORM */
    int32_t decays;            /* weight decay applies */
} coh_layer_parameter;

/* A usual layer. */
typedef struct coh_layer {
    uint32_t struct_bytes;                       /* sizeof(coh_layer); COH_LAYER sets it */
    int32_t input_count, parameter_count;        /* how many there are; COH_LAYER sets both */
    coh_layer_parameter parameter[COH_PORT_MAX]; /* the first parameter_count of them */
    int64_t output[COH_RANK_MAX];                /* dimensions, as above; all 0: those of input 0 */
    /* 0: inputs, output and parameters are f32. 1: they may also be bf16, all of them together */
    int32_t takes_bf16;
    /* Dimensions, as above, of f32 numbers that forward writes to call->saved and backward reads
     * there. All 0: none. */
    int64_t saved[COH_RANK_MAX];
    int64_t workspace[COH_RANK_MAX]; /* dimensions of f32 numbers of scratch, in both phases */
    /* Values of input i, which is then I32 (tokens, targets). All zero: it is no such input. */
    coh_index_range index[COH_PORT_MAX];
    int32_t is_loss;  /* 1: the output is f32 whatever the inputs are; COH_LOSS_LAYER sets it */
    int32_t reserved; /* 0 */
} coh_layer;

/* Computes the facts of a layer: the infer of a kind that COH_LAYER defines, and a start for an
 * infer of your own.
 * Fails: COH_ERR_SHAPE (another dtype than the layer takes, an axis that input 0 does not have),
 * COH_ERR_ARGUMENT. */
COH_API coh_status coh_layer_infer(const coh_layer *layer, const coh_shape *inputs,
                                   coh_op_facts *out_facts);

/* Sets each gradient of a backward call to zero that has to be written, and leaves those that have
 * to be added to. A backward that only adds calls it first; its kind sets can_add_grad (model.h).
 * Call it from a kind's backward on the host device. */
COH_API void coh_layer_clear_grads(const coh_call *call);

/* In C, defines `const coh_op_kind identifier` with these numbers of inputs and parameters. Then
 * come members of coh_layer, at least one (.parameter, or .takes_bf16 = 0). */
#define COH_LAYER(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of, ...)   \
    COH_LAYER_OF_(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of, 0, 0,  \
                  __VA_ARGS__)

/* As COH_LAYER, for a backward that adds to every gradient and writes none. The sums have the bits
 * of a loop that adds up operators and micro-batches in the same order. */
#define COH_LAYER_THAT_ADDS(identifier, kind_name, inputs_of, parameters_of, forward_of,           \
                            backward_of, ...)                                                      \
    static coh_status identifier##_clear_and_add(const coh_call *call)                             \
    {                                                                                              \
        coh_layer_clear_grads(call);                                                               \
        return backward_of(call);                                                                  \
    }                                                                                              \
    COH_LAYER_OF_(identifier, kind_name, inputs_of, parameters_of, forward_of,                     \
                  identifier##_clear_and_add, 1, 0, __VA_ARGS__)

/* As COH_LAYER, for a loss (coh_op_kind.is_loss); .output is { 1 }. The loss is f32, also where
 * .takes_bf16 is 1 and the inputs are bf16. */
#define COH_LOSS_LAYER(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of,   \
                       ...)                                                                        \
    COH_LAYER_OF_(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of, 0, 1,  \
                  __VA_ARGS__)

/* For the macros above. */
#define COH_LAYER_OF_(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of,    \
                      adds, is_loss_of, ...)                                                       \
    static coh_status identifier##_infer(const void *attributes, const coh_shape *shapes,          \
                                         coh_op_facts *out_facts)                                  \
    {                                                                                              \
        static const coh_layer layer = { .struct_bytes = sizeof(coh_layer),                        \
                                         .input_count = (inputs_of),                               \
                                         .parameter_count = (parameters_of),                       \
                                         .is_loss = (is_loss_of),                                  \
                                         __VA_ARGS__ };                                            \
        (void)attributes;                                                                          \
        return coh_layer_infer(&layer, shapes, out_facts);                                         \
    }                                                                                              \
    COH_API const coh_op_kind identifier = {                                                       \
        .struct_bytes = sizeof(coh_op_kind),                                                       \
        .abi_version = COH_KIND_ABI,                                                               \
        .name = (kind_name),                                                                       \
        .revision = 1,                                                                             \
        .input_count = (inputs_of),                                                                \
        .output_count = 1,                                                                         \
        .parameter_count = (parameters_of),                                                        \
        .backward_reads = { .inputs = (1u << (inputs_of)) - 1u,                                    \
                            .parameters = (1u << (parameters_of)) - 1u },                          \
        .can_add_grad = { .inputs = (adds) ? (1u << (inputs_of)) - 1u : 0,                         \
                          .parameters = (adds) ? (1u << (parameters_of)) - 1u : 0 },               \
        .is_loss = (is_loss_of),                                                                   \
        .infer = identifier##_infer,                                                               \
        .devices = { [COH_DEVICE_HOST] = { .forward = (forward_of), .backward = (backward_of) } }  \
    }

/* One operator of a chain. All links of an array have the same struct_bytes. */
typedef struct coh_chain_link {
    uint32_t struct_bytes;
    const coh_op_kind *kind; /* with one input and one output */
    const void *attributes;  /* copied; NULL: none */
    size_t attribute_bytes;  /* their size */
    /* As coh_op_args.name. NULL: the number of the operator in its graph and the last part of the
     * kind's name, such as "0.linear". */
    const char *name;
} coh_chain_link;

/* A link of a kind, and of a struct with its attributes; in C. */
#define COH_LINK(of_kind, of_attributes)                                                           \
    {                                                                                              \
        .struct_bytes = sizeof(coh_chain_link), .kind = &(of_kind),                                \
        .attributes = &(of_attributes), .attribute_bytes = sizeof(of_attributes)                   \
    }
/* Without attributes. */
#define COH_LINK_OF(of_kind)                                                                       \
    {                                                                                              \
        .struct_bytes = sizeof(coh_chain_link), .kind = &(of_kind)                                 \
    }

/* Adds the operators of a chain, each with the output of the one before as its input.
 * Fails: as coh_graph_op; COH_ERR_ARGUMENT (no link, a kind with other ports). Then the graph is
 * unchanged. */
COH_API coh_status coh_graph_chain(coh_graph *graph, coh_tensor input, const coh_chain_link *links,
                                   int32_t link_count, coh_tensor *out_output);

#ifdef __cplusplus
}
#endif
#endif
