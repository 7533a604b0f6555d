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
 * reads all inputs and parameters, writes every gradient and adds to none. A layer with attributes,
 * saved bytes or other promises fills in a coh_op_kind itself.
 *
 * Threads: a graph belongs to the thread that builds it; coh_layer_infer is pure, any thread. */
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
    int32_t takes_bf16;                          /* 0: inputs, output and parameters are f32 */
} coh_layer;

/* Computes the facts of a layer: the infer of a kind that COH_LAYER defines, and a start for an
 * infer of your own.
 * Fails: COH_ERR_SHAPE (another dtype than the layer takes, an axis that input 0 does not have),
 * COH_ERR_ARGUMENT. */
COH_API coh_status coh_layer_infer(const coh_layer *layer, const coh_shape *inputs,
                                   coh_op_facts *out_facts);

/* Defines `const coh_op_kind identifier` with these numbers of inputs and parameters. Then
 * come members of coh_layer, at least one (.parameter, or .takes_bf16 = 0). */
#define COH_LAYER(identifier, kind_name, inputs_of, parameters_of, forward_of, backward_of, ...)   \
    static coh_status identifier##_infer(const void *attributes, const coh_shape *shapes,          \
                                         coh_op_facts *out_facts)                                  \
    {                                                                                              \
        static const coh_layer layer = { .struct_bytes = sizeof(coh_layer),                        \
                                         .input_count = (inputs_of),                               \
                                         .parameter_count = (parameters_of),                       \
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
        .infer = identifier##_infer,                                                               \
        .devices = { [COH_DEVICE_HOST] = { .forward = (forward_of), .backward = (backward_of) } }  \
    }

/* One operator of a chain. All links of an array have the same struct_bytes. */
typedef struct coh_chain_link {
    uint32_t struct_bytes;   /* sizeof(coh_chain_link) */
    const coh_op_kind *kind; /* with one input and one output */
    const void *attributes;  /* copied; NULL: none */
    size_t attribute_bytes;  /* their size */
    /* As coh_op_args.name. NULL: the number of the operator in its graph and the last part of the
     * kind's name, such as "0.linear". */
    const char *name;
} coh_chain_link;

/* A link of a kind, and of a struct with its attributes. */
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
 * Fails: as coh_graph_op; COH_ERR_ARGUMENT (no link, a kind with other ports). The graph is
 * unchanged then. */
COH_API coh_status coh_graph_chain(coh_graph *graph, coh_tensor input, const coh_chain_link *links,
                                   int32_t link_count, coh_tensor *out_output);

#ifdef __cplusplus
}
#endif
#endif
