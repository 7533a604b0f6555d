#include "tests/planner/toy_graph.h"

#include <stdio.h>

typedef struct toy_attributes {
    int64_t vocabulary, width, dtype, caches, slices;
} toy_attributes;

static coh_status run_nothing(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static coh_shape matrix(coh_dtype dtype, int64_t rows, int64_t columns)
{
    return (coh_shape){ .dtype = dtype, .rank = 2, .dim = { rows, columns } };
}

static void table_facts(const toy_attributes *a, coh_parameter_facts *facts)
{
    *facts = (coh_parameter_facts){ .name = "weight",
                                    .shape = matrix((coh_dtype)a->dtype, a->vocabulary, a->width),
                                    .init = COH_INIT_NORMAL,
                                    .init_std = 0.02f,
                                    .decays = 1,
                                    .row_block = 64 };
}

static coh_status infer_embed(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    const toy_attributes *a = attributes;
    table_facts(a, &out->parameter[0]);
    out->output[0] = matrix((coh_dtype)a->dtype, inputs[0].dim[0], a->width);
    return COH_OK;
}

static coh_status infer_mix(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    const toy_attributes *a = attributes;
    int64_t width = inputs[0].dim[1];
    out->output[0] = inputs[0];
    out->parameter[0] = (coh_parameter_facts){ .name = "weight",
                                               .shape = matrix(inputs[0].dtype, width, width),
                                               .init = COH_INIT_NORMAL,
                                               .init_std = 0.02f,
                                               .decays = 1,
                                               .row_block = a->slices ? 64 : 0 };
    out->parameter[1] =
        (coh_parameter_facts){ .name = "bias",
                               .shape = { .dtype = inputs[0].dtype, .rank = 1, .dim = { width } } };
    out->saved_bytes = (size_t)inputs[0].dim[0] * sizeof(float);
    out->workspace_bytes[COH_PHASE_FORWARD] = 5000;
    out->workspace_bytes[COH_PHASE_BACKWARD] = 70000;
    out->flops[0] = 2.0 * (double)(inputs[0].dim[0] * width * width);
    out->flops[1] = 2 * out->flops[0];
    out->cache_bytes = a->caches ? (size_t)(inputs[0].dim[0] * width) : 0;
    out->cache_saves_flops = a->caches ? out->flops[0] : 0;
    return COH_OK;
}

static coh_status infer_join(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    (void)attributes;
    out->output[0] = inputs[0];
    return COH_OK;
}

static coh_status infer_three(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    static const char *const names[] = { "first", "shared", "last" };
    (void)attributes;
    out->output[0] = inputs[0];
    for (int i = 0; i < 3; i++)
        out->parameter[i] =
            (coh_parameter_facts){ .name = names[i],
                                   .shape = matrix(inputs[0].dtype, 9, inputs[0].dim[1]) };
    return COH_OK;
}

static coh_status infer_loss(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    (void)inputs;
    const toy_attributes *a = attributes;
    table_facts(a, &out->parameter[0]);
    out->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    out->saved_bytes = (size_t)inputs[0].dim[0] * 3 * sizeof(float);
    out->flops[0] = 2.0 * (double)(inputs[0].dim[0] * a->vocabulary * a->width);
    out->flops[1] = 3 * out->flops[0];
    out->cache_bytes = a->caches ? (size_t)(inputs[0].dim[0] * a->vocabulary) * 2 : 0;
    out->cache_saves_flops = a->caches ? out->flops[0] : 0;
    return COH_OK;
}

#define KIND_HEAD(kind_name)                                                                       \
    .struct_bytes = sizeof(coh_op_kind), .abi_version = COH_KIND_ABI, .name = kind_name,           \
    .revision = 1,                                                                                 \
    .devices = { [COH_DEVICE_HOST] = { .forward = run_nothing, .backward = run_nothing } }

static const coh_op_kind embed_kind = { KIND_HEAD("toy.embed"),
                                        .input_count = 1,
                                        .output_count = 1,
                                        .parameter_count = 1,
                                        .backward_reads = { .inputs = 1 },
                                        .can_add_grad = { .parameters = 1 },
                                        .can_widen_grad = 1,
                                        .row_split_parameters = 1,
                                        .infer = infer_embed };
static const coh_op_kind mix_kind = { KIND_HEAD("toy.mix"),
                                      .input_count = 1,
                                      .output_count = 1,
                                      .parameter_count = 2,
                                      .backward_reads = { .inputs = 1, .parameters = 1 },
                                      .can_add_grad = { .inputs = 1, .parameters = 3 },
                                      .can_widen_grad = 3,
                                      .overwrites_output_grads = 1,
                                      .infer = infer_mix };
static const coh_op_kind mix_sliced_kind = { KIND_HEAD("toy.mix_sliced"),
                                             .input_count = 1,
                                             .output_count = 1,
                                             .parameter_count = 2,
                                             .backward_reads = { .inputs = 1, .parameters = 1 },
                                             .can_add_grad = { .inputs = 1, .parameters = 3 },
                                             .row_split_parameters = 1,
                                             .column_slices = 1,
                                             .overwrites_output_grads = 1,
                                             .infer = infer_mix };
static const coh_op_kind mix_overwriting_kind = {
    KIND_HEAD("toy.mix_overwriting"),
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 2,
    .backward_reads = { .inputs = 1, .outputs = 1, .parameters = 1 },
    .infer = infer_mix
};
static const coh_op_kind three_kind = { KIND_HEAD("toy.three"),
                                        .input_count = 1,
                                        .output_count = 1,
                                        .parameter_count = 3,
                                        .backward_reads = { .parameters = 7 },
                                        .can_add_grad = { .inputs = 1, .parameters = 7 },
                                        .infer = infer_three };
static const coh_op_kind join_kind = { KIND_HEAD("toy.join"),
                                       .input_count = 2,
                                       .output_count = 1,
                                       .can_add_grad = { .inputs = 3 },
                                       .forward_in_place = { { 1, 0 } },
                                       .backward_in_place = { { 0, 1 }, { 0, 0 } },
                                       .infer = infer_join };
static const coh_op_kind join_holding_kind = { KIND_HEAD("toy.join_holding"),
                                               .input_count = 2,
                                               .output_count = 1,
                                               .backward_reads = { .inputs = 3 },
                                               .can_add_grad = { .inputs = 3 },
                                               .infer = infer_join };
static const coh_op_kind loss_kind = { KIND_HEAD("toy.loss"),
                                       .input_count = 2,
                                       .output_count = 1,
                                       .parameter_count = 1,
                                       .is_loss = 1,
                                       .backward_reads = { .inputs = 3, .parameters = 1 },
                                       .can_add_grad = { .inputs = 1, .parameters = 1 },
                                       .can_widen_grad = 1,
                                       .row_split_parameters = 1,
                                       .infer = infer_loss };

/* y = x + mix(join(x, x)), as one block. */
static coh_status add_layer(coh_graph *graph, const toy_options *options,
                            const toy_attributes *attributes, int layer, coh_tensor *x)
{
    char name[32];
    coh_tensor doubled, mixed, both[2] = { *x, *x };
    coh_op_args args = { .name = name, .inputs = both, .block = layer };
    snprintf(name, sizeof(name), "double%d", layer);
    coh_status status = coh_graph_op(graph, options->holds ? &join_holding_kind : &join_kind, &args,
                                     &doubled, NULL);
    if (status != COH_OK)
        return status;
    snprintf(name, sizeof(name), "mix%d", layer);
    args.inputs = &doubled;
    args.attributes = attributes;
    args.attribute_bytes = sizeof(*attributes);
    args.frozen_parameters = options->freezes && layer == 0 ? 1 : 0;
    coh_op_kind kind = options->overwrites ? mix_overwriting_kind
                       : options->slices   ? mix_sliced_kind
                                           : mix_kind;
    kind.atomics = options->atomics;
    status = coh_graph_op(graph, &kind, &args, &mixed, NULL);
    if (status != COH_OK)
        return status;
    snprintf(name, sizeof(name), "join%d", layer);
    args.frozen_parameters = 0;
    both[1] = mixed;
    args.inputs = both;
    kind = join_kind;
    for (int phase = 0; options->in_place && phase < COH_PHASE_COUNT; phase++)
        kind.in_place_count[phase] = phase == COH_PHASE_FORWARD ? 1 : 2;
    return coh_graph_op(graph, &kind, &args, x, NULL);
}

/* Adds two operators that share the middle one of their three parameters, and a branch without a
 * loss. */
static coh_status add_extras(coh_graph *graph, coh_tensor *x)
{
    coh_parameter first[3], tied[3] = { COH_PARAMETER_NEW, COH_PARAMETER_NEW, COH_PARAMETER_NEW };
    coh_tensor y, nowhere;
    coh_op_args args = { .name = "three0", .inputs = x, .block = -1 };
    coh_status status = coh_graph_op(graph, &three_kind, &args, &y, first);
    args.name = "nowhere";
    if (status == COH_OK)
        status = coh_graph_op(graph, &three_kind, &args, &nowhere, NULL);
    args.name = "three1";
    args.inputs = &y;
    args.tied = tied;
    tied[1] = first[1];
    return status == COH_OK ? coh_graph_op(graph, &three_kind, &args, x, NULL) : status;
}

coh_status toy_graph_make(const toy_options *options, coh_graph **out_graph)
{
    coh_graph *graph = NULL;
    toy_attributes attributes = { options->vocabulary, options->width, options->dtype,
                                  options->caches, options->slices };
    coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { options->rows } };
    coh_tensor tokens, targets, x, loss;
    coh_parameter table = COH_PARAMETER_NEW;
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = coh_graph_input(graph, "tokens", &ids, &tokens);
    if (status == COH_OK)
        status = coh_graph_input(graph, "targets", &ids, &targets);
    coh_op_args args = { .name = "embed",
                         .inputs = &tokens,
                         .attributes = &attributes,
                         .attribute_bytes = sizeof(attributes),
                         .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(graph, &embed_kind, &args, &x, &table);
    if (status == COH_OK && options->extras)
        status = add_extras(graph, &x);
    for (int layer = 0; status == COH_OK && layer < options->layers; layer++)
        status = add_layer(graph, options, &attributes, layer, &x);
    coh_tensor inputs[2] = { x, targets };
    args.name = "loss";
    args.inputs = inputs;
    args.tied = options->is_tied ? &table : NULL;
    if (status == COH_OK)
        status = coh_graph_op(graph, &loss_kind, &args, &loss, NULL);
    if (status == COH_OK)
        status = coh_graph_loss(graph, loss);
    if (status != COH_OK) {
        coh_graph_destroy(graph);
        graph = NULL;
    }
    *out_graph = graph;
    return status;
}
