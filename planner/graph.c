#include "planner/graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

/* Largest tensor: keeps every later sum and product of a few of them inside 64 bits. */
#define TENSOR_BYTES_MAX ((uint64_t)1 << 48)

coh_status coh_graph_create(coh_graph **out_graph)
{
    COH_TRY(COH_ALLOC(1, out_graph));
    (*out_graph)->loss = -1;
    return COH_OK;
}

void coh_graph_destroy(coh_graph *graph)
{
    if (graph == NULL)
        return;
    for (size_t i = 0; i < graph->tensor_count; i++)
        coh_free(graph->tensors[i].name);
    for (size_t i = 0; i < graph->parameter_count; i++)
        coh_free(graph->parameters[i].name);
    for (size_t i = 0; i < graph->op_count; i++) {
        coh_free(graph->ops[i].name);
        coh_free(graph->ops[i].attributes);
    }
    coh_free(graph->tensors);
    coh_free(graph->parameters);
    coh_free(graph->ops);
    coh_free(graph->inputs);
    coh_free(graph);
}

/* A text made of two parts, owned by the caller. */
static coh_status join(const char *first, const char *dot, const char *second, char **out_text)
{
    size_t bytes = strlen(first) + strlen(dot) + strlen(second) + 1;
    COH_TRY(coh_alloc(bytes, 1, (void **)out_text));
    snprintf(*out_text, bytes, "%s%s%s", first, dot, second);
    return COH_OK;
}

static coh_status check_shape(const coh_shape *shape, const char *what)
{
    if (shape->rank < 1 || shape->rank > COH_RANK_MAX)
        return coh_fail(COH_ERR_SHAPE, "%s: rank %d is not 1..%d", what, shape->rank, COH_RANK_MAX);
    uint64_t bytes = coh_dtype_bytes(shape->dtype);
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 1)
            return coh_fail(COH_ERR_SHAPE, "%s: dimension %d is %" PRId64 ", must be at least 1",
                            what, i, shape->dim[i]);
        COH_TRY(coh_bytes_mul(bytes, (uint64_t)shape->dim[i], &bytes));
        if (bytes > TENSOR_BYTES_MAX)
            return coh_fail(COH_ERR_SHAPE, "%s: more than 2^48 bytes", what);
    }
    return COH_OK;
}

static int same_shape(const coh_shape *a, const coh_shape *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return 0;
    return 1;
}

/* Appends a tensor; takes over `name`, also on failure. */
static coh_status add_tensor(coh_graph *graph, char *name, const coh_shape *shape, int32_t producer,
                             int32_t port, coh_tensor *out_tensor)
{
    coh_status status = COH_GROW(&graph->tensors, &graph->tensor_capacity, graph->tensor_count + 1);
    if (status != COH_OK) {
        coh_free(name);
        return status;
    }
    graph->tensors[graph->tensor_count] =
        (coh_graph_tensor){ .shape = *shape, .name = name, .producer = producer, .port = port };
    out_tensor->index = (int32_t)graph->tensor_count++;
    return COH_OK;
}

coh_status coh_graph_input(coh_graph *graph, const char *name, const coh_shape *shape,
                           coh_tensor *out_tensor)
{
    COH_TRY(check_shape(shape, name));
    if (graph->input_count == COH_PORT_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "graph input %s: a graph has at most %d inputs", name,
                        COH_PORT_MAX);
    for (size_t i = 0; i < graph->input_count; i++)
        if (strcmp(graph->tensors[graph->inputs[i]].name, name) == 0)
            return coh_fail(COH_ERR_ARGUMENT, "graph input %s: the name is taken", name);
    COH_TRY(COH_GROW(&graph->inputs, &graph->input_capacity, graph->input_count + 1));
    char *copy = NULL;
    COH_TRY(coh_alloc_text(name, &copy));
    COH_TRY(add_tensor(graph, copy, shape, -1, (int32_t)graph->input_count, out_tensor));
    graph->inputs[graph->input_count++] = out_tensor->index;
    return COH_OK;
}

static coh_status check_kind(const coh_op_kind *kind, const char *name)
{
    if (kind->abi_version != COH_KIND_ABI || kind->name == NULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: its kind has ABI version %u, this library knows %u", name,
                        kind->abi_version, COH_KIND_ABI);
    if (kind->infer == NULL || kind->forward == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s lacks infer or forward", name,
                        kind->name);
    const int32_t counts[] = { kind->input_count, kind->output_count, kind->parameter_count,
                               kind->state_count };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] < 0 || counts[i] > COH_PORT_MAX)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s has %d ports, at most %d", name,
                            kind->name, counts[i], COH_PORT_MAX);
    if (kind->output_count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s has no output", name, kind->name);
    if (kind->row_split_parameters & (kind->row_split_parameters - 1))
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s splits rows of several parameters",
                        name, kind->name);
    if (kind->column_slices && kind->row_split_parameters != 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: kind %s slices, and it is not parameter 0 that it splits",
                        name, kind->name);
    return COH_OK;
}

static coh_status check_facts(const coh_graph_op_entry *op)
{
    int32_t first = -1; /* parameter that is there */
    for (int32_t i = 0; i < op->kind.output_count; i++)
        COH_TRY(check_shape(&op->facts.output[i], "output"));
    for (int32_t i = 0; i < op->kind.state_count; i++)
        COH_TRY(check_shape(&op->facts.state[i], "state"));
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        const coh_parameter_facts *facts = &op->facts.parameter[i];
        if (facts->shape.rank == 0)
            continue;
        COH_TRY(check_shape(&facts->shape, "parameter"));
        if (facts->shape.dtype != COH_DTYPE_F32 && facts->shape.dtype != COH_DTYPE_BF16)
            return coh_fail(COH_ERR_SHAPE, "parameter %d is neither f32 nor bf16", i);
        if (first < 0)
            first = i;
        else if (facts->shape.dtype != op->facts.parameter[first].shape.dtype)
            return coh_fail(COH_ERR_SHAPE,
                            "parameters %d and %d differ in dtype; all of one operator have one",
                            first, i);
    }
    uint64_t most = (uint64_t)1 << 48;
    if (op->facts.saved_bytes > most || op->facts.cache_bytes > most ||
        op->facts.workspace_bytes[0] > most || op->facts.workspace_bytes[1] > most ||
        op->cuda_workspace_bytes[0] > most || op->cuda_workspace_bytes[1] > most)
        return coh_fail(COH_ERR_SHAPE, "saved, cache or workspace bytes above 2^48");
    if (!(op->facts.cache_saves_flops >= 0 &&
          op->facts.cache_saves_flops <= op->facts.flops[COH_PHASE_BACKWARD]))
        return coh_fail(COH_ERR_SHAPE, "a cache saves from none to all flops of backward");
    if (op->kind.is_loss && coh_shape_elements(&op->facts.output[0]) != 1)
        return coh_fail(COH_ERR_SHAPE, "a loss has one element");
    return COH_OK;
}

/* Links parameters: tied handles, or new entries named "<operator>.<name>". */
static coh_status link_parameters(coh_graph *graph, coh_graph_op_entry *op, const coh_op_args *args,
                                  coh_parameter *out_parameters)
{
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        const coh_parameter_facts *facts = &op->facts.parameter[i];
        op->parameter[i] = -1;
        if (out_parameters != NULL)
            out_parameters[i] = COH_PARAMETER_NEW;
        if (facts->shape.rank == 0)
            continue;
        int32_t tied = args->tied != NULL ? args->tied[i].index : -1;
        if (tied >= (int32_t)graph->parameter_count)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: no parameter has handle %d", op->name,
                            tied);
        for (int32_t other = 0; tied >= 0 && other < i; other++)
            if (op->parameter[other] == tied)
                return coh_fail(COH_ERR_ARGUMENT,
                                "operator %s: parameters %d and %d are tied to one", op->name,
                                other, i);
        if (tied >= 0) {
            if (!same_shape(&graph->parameters[tied].facts.shape, &facts->shape))
                return coh_fail(COH_ERR_SHAPE,
                                "operator %s: parameter %d does not have the shape "
                                "of %s, to which it is tied",
                                op->name, i, graph->parameters[tied].name);
            op->parameter[i] = tied;
        } else {
            char *name = NULL;
            COH_TRY(COH_GROW(&graph->parameters, &graph->parameter_capacity,
                             graph->parameter_count + 1));
            COH_TRY(join(op->name, ".", facts->name ? facts->name : "parameter", &name));
            graph->parameters[graph->parameter_count] =
                (coh_graph_parameter){ .facts = *facts,
                                       .name = name,
                                       .op = (int32_t)graph->op_count,
                                       .port = i,
                                       .frozen = (args->frozen_parameters >> i) & 1 };
            op->parameter[i] = (int32_t)graph->parameter_count++;
        }
        if (out_parameters != NULL)
            out_parameters[i].index = op->parameter[i];
    }
    return COH_OK;
}

/* Does some trained parameter lie upstream of this operator's outputs? */
static int32_t output_needs_grad(const coh_graph *graph, const coh_graph_op_entry *op)
{
    for (int32_t i = 0; i < op->kind.parameter_count; i++)
        if (op->parameter[i] >= 0 && !graph->parameters[op->parameter[i]].frozen)
            return 1;
    for (int32_t i = 0; i < op->kind.input_count; i++)
        if (graph->tensors[op->input[i]].needs_grad)
            return 1;
    return 0;
}

static coh_status fill_op(coh_graph *graph, coh_graph_op_entry *op, const coh_op_args *args)
{
    COH_TRY(coh_alloc_text(args->name, &op->name));
    COH_TRY(coh_alloc(args->attribute_bytes, 1, &op->attributes));
    if (args->attribute_bytes > 0)
        memcpy(op->attributes, args->attributes, args->attribute_bytes);
    op->attribute_bytes = args->attribute_bytes;
    op->block = args->block;
    if (graph->op_count > 0) {
        const coh_graph_op_entry *previous = &graph->ops[graph->op_count - 1];
        op->blocks_before =
            previous->blocks_before + (previous->block >= 0 && previous->block != op->block);
    }
    coh_shape inputs[COH_PORT_MAX] = { { 0 } };
    for (int32_t i = 0; i < op->kind.input_count; i++) {
        int32_t tensor = args->inputs[i].index;
        if (tensor < 0 || tensor >= (int32_t)graph->tensor_count)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: input %d is not a tensor of this graph",
                            args->name, i);
        op->input[i] = tensor;
        inputs[i] = graph->tensors[tensor].shape;
    }
    coh_status status = op->kind.infer(op->attributes, inputs, &op->facts);
    for (int phase = 0; status == COH_OK && phase < COH_PHASE_COUNT; phase++)
        op->cuda_workspace_bytes[phase] =
            op->kind.workspace_cuda != NULL
                ? op->kind.workspace_cuda(op->attributes, inputs, (coh_phase)phase)
                : op->facts.workspace_bytes[phase];
    if (status == COH_OK)
        status = check_facts(op);
    if (status != COH_OK)
        return coh_fail_prefix(status, "operator %s", args->name);
    return COH_OK;
}

coh_status coh_graph_op(coh_graph *graph, const coh_op_kind *kind, const coh_op_args *args,
                        coh_tensor *out_outputs, coh_parameter *out_parameters)
{
    COH_TRY(check_kind(kind, args->name));
    for (size_t i = 0; i < graph->op_count; i++)
        if (strcmp(graph->ops[i].name, args->name) == 0)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: the name is taken", args->name);
    if (graph->loss >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: the graph has ended with its loss",
                        args->name);
    COH_TRY(COH_GROW(&graph->ops, &graph->op_capacity, graph->op_count + 1));
    coh_graph_op_entry op = { 0 };
    size_t known = kind->struct_bytes < sizeof(op.kind) ? kind->struct_bytes : sizeof(op.kind);
    memcpy(&op.kind, kind, known);
    coh_status status = fill_op(graph, &op, args);
    if (status == COH_OK)
        status = link_parameters(graph, &op, args, out_parameters);
    int32_t needs_grad = status == COH_OK ? output_needs_grad(graph, &op) : 0;
    for (int32_t i = 0; status == COH_OK && i < op.kind.output_count; i++) {
        char port[16], *name = NULL;
        snprintf(port, sizeof(port), "%d", i);
        status = join(args->name, ":", port, &name);
        if (status == COH_OK)
            status = add_tensor(graph, name, &op.facts.output[i], (int32_t)graph->op_count, i,
                                &out_outputs[i]);
        if (status == COH_OK) {
            op.output[i] = out_outputs[i].index;
            graph->tensors[op.output[i]].needs_grad =
                needs_grad && op.facts.output[i].dtype != COH_DTYPE_I32;
        }
    }
    if (status != COH_OK) {
        coh_free(op.name);
        coh_free(op.attributes);
        return status;
    }
    graph->ops[graph->op_count++] = op;
    return COH_OK;
}

coh_port_mask coh_graph_backward_reads(const coh_graph *graph, const coh_graph_op_entry *op)
{
    coh_port_mask reads = op->kind.backward_reads;
    for (int32_t i = 0; i < op->kind.parameter_count; i++)
        if (op->parameter[i] >= 0 && !graph->parameters[op->parameter[i]].frozen)
            return reads;
    reads.inputs &= ~op->kind.reads_for_parameters.inputs;
    reads.outputs &= ~op->kind.reads_for_parameters.outputs;
    return reads;
}

int32_t coh_graph_blocks_before(const coh_graph *graph, size_t op)
{
    return graph->ops[op].blocks_before;
}

int32_t coh_graph_block_count(const coh_graph *graph)
{
    size_t last = graph->op_count - 1;
    return coh_graph_blocks_before(graph, last) + (graph->ops[last].block >= 0);
}

int32_t coh_graph_operator_count(const coh_graph *graph)
{
    return graph ? (int32_t)graph->op_count : 0;
}

coh_status coh_graph_operator_at(const coh_graph *graph, int32_t index,
                                 coh_graph_operator *out_operator)
{
    if (!out_operator || index < 0 || index >= coh_graph_operator_count(graph))
        return coh_fail(COH_ERR_ARGUMENT, "the graph has no operator %d", index);
    const coh_graph_op_entry *op = &graph->ops[index];
    *out_operator = (coh_graph_operator){
        .name = op->name, .kind = op->kind.name, .block = op->block, .output = op->facts.output[0]
    };
    return COH_OK;
}

coh_status coh_graph_loss(coh_graph *graph, coh_tensor loss)
{
    if (graph->loss >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "the graph has a loss already");
    if (loss.index < 0 || loss.index >= (int32_t)graph->tensor_count)
        return coh_fail(COH_ERR_ARGUMENT, "the loss is not a tensor of this graph");
    const coh_graph_tensor *tensor = &graph->tensors[loss.index];
    if (tensor->producer < 0 || !graph->ops[tensor->producer].kind.is_loss || tensor->port != 0)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s is not output 0 of a loss kind (is_loss)",
                        tensor->name);
    graph->loss = loss.index;
    return COH_OK;
}

coh_status coh_graph_output(coh_graph *graph, coh_tensor tensor)
{
    if (tensor.index < 0 || tensor.index >= (int32_t)graph->tensor_count ||
        graph->tensors[tensor.index].producer < 0)
        return coh_fail(COH_ERR_ARGUMENT, "an output of the graph is an operator's tensor");
    graph->tensors[tensor.index].is_output = 1;
    return COH_OK;
}

int coh_graph_trains_bf16(const coh_graph *graph)
{
    for (size_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i].frozen &&
            graph->parameters[i].facts.shape.dtype == COH_DTYPE_BF16)
            return 1;
    return 0;
}

int coh_graph_has_atomics(const coh_graph *graph)
{
    for (size_t i = 0; i < graph->op_count; i++)
        if (graph->ops[i].kind.atomics)
            return 1;
    return 0;
}
