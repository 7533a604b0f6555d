/* Builds a graph: copies each operator with its kind and attributes, infers its outputs, links
 * its parameters. The idea: each number and text is checked on entry, so that the planner and
 * the engine need not, and a rejected operator leaves the graph unchanged. Every message names
 * the operator. Public interface: cohobate/model.h. */
#include "planner/graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/name_pattern.h"
#include "base/struct_bytes.h"
#include "base/utf8.h"
#include "planner/graph_check.h"

/* ---- the graph ---- */

coh_status coh_graph_create(coh_graph **out_graph)
{
    COH_NEED(out_graph);
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
    coh_name_table_free(&graph->op_names);
    coh_name_table_free(&graph->parameter_names);
    coh_free(graph->tensors);
    coh_free(graph->parameters);
    coh_free(graph->ops);
    coh_free(graph->inputs);
    coh_free(graph);
}

/* Casts the const away that a plan needs for all else: a caller's graph is never a const object. */
void coh_graph_close(const coh_graph *graph)
{
    atomic_store_explicit(&((coh_graph *)graph)->is_planned, 1, memory_order_relaxed);
}

coh_status coh_graph_check_open(const coh_graph *graph, const char *function)
{
    if (!atomic_load_explicit(&graph->is_planned, memory_order_relaxed))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s: a plan was made of this graph, so it can no longer change: build another "
                    "graph",
                    function);
}

/* Most bytes of one operator's attributes: an unset size is rejected, not allocated. */
#define ATTRIBUTES_MOST ((size_t)1 << 24)

/* Joins two texts; the caller owns the result. */
static coh_status join(const char *first, const char *dot, const char *second, char **out_text)
{
    size_t bytes = strlen(first) + strlen(dot) + strlen(second) + 1;
    COH_TRY(coh_alloc(bytes, 1, (void **)out_text));
    snprintf(*out_text, bytes, "%s%s%s", first, dot, second);
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
    COH_NEED(graph);
    COH_NEED(shape);
    COH_NEED(out_tensor);
    COH_TRY(coh_graph_check_open(graph, __func__));
    COH_TRY(coh_graph_check_name("graph input", name));
    COH_TRY(coh_graph_check_shape(shape, name, 0));
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

/* Makes the name "<operator>.<name>", which must be unique: checkpoints match parameters by name.
 * Operator "a.b" with parameter "c" has the same name as operator "a" with parameter "b.c". */
static coh_status name_parameter(const coh_graph *graph, const coh_graph_op_entry *op,
                                 const char *name, char **out_name)
{
    COH_TRY(join(op->name, ".", name, out_name));
    coh_status status = coh_graph_check_name("parameter", *out_name);
    const int32_t taken = coh_name_table_find(&graph->parameter_names, *out_name);
    if (status == COH_OK && taken >= 0)
        status = coh_fail(COH_ERR_ARGUMENT,
                          "operator %s: a parameter of operator %s is called %s already: rename an "
                          "operator",
                          op->name,
                          graph->parameters[taken].op == (int32_t)graph->op_count
                              ? op->name
                              : graph->ops[graph->parameters[taken].op].name,
                          *out_name);
    if (status != COH_OK)
        coh_free(*out_name);
    return status;
}

/* Links parameter i of an operator to that of handle `tied`, which an earlier operator has. That
 * operator decided whether it is frozen. */
static coh_status tie_parameter(const coh_graph *graph, coh_graph_op_entry *op,
                                const coh_op_args *args, int32_t i, int32_t tied)
{
    if (tied < 0 || tied >= (int32_t)graph->parameter_count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: no parameter has handle %d: tie to one that coh_graph_op "
                        "gave, or to COH_PARAMETER_NEW",
                        op->name, tied);
    for (int32_t other = 0; other < i; other++)
        if (op->parameter[other] == tied)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: parameters %d and %d are tied to one",
                            op->name, other, i);
    const coh_graph_parameter *first = &graph->parameters[tied];
    if (!same_shape(&first->facts.shape, &op->facts.parameter[i].shape))
        return coh_fail(COH_ERR_SHAPE,
                        "operator %s: parameter %d does not have the shape of %s, to which it is "
                        "tied",
                        op->name, i, first->name);
    if (((args->frozen_parameters >> i) & 1) && !first->frozen)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: it freezes parameter %d, which is tied to %s, and operator "
                        "%s trains that: freeze it there, too, or nowhere",
                        op->name, i, first->name, graph->ops[first->op].name);
    op->parameter[i] = tied;
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
        const int32_t is_new = COH_PARAMETER_NEW.index,
                      tied = args->tied != NULL ? args->tied[i].index : is_new;
        if (tied != is_new) {
            COH_TRY(tie_parameter(graph, op, args, i, tied));
        } else {
            char *name = NULL;
            const int is_packed = facts->shape.dtype == COH_DTYPE_NF4;
            const int is_frozen =
                ((args->frozen_parameters >> i) & 1) || (is_packed && graph->freezes_nf4);
            if (is_packed && !is_frozen)
                return coh_fail(COH_ERR_ARGUMENT,
                                "operator %s: parameter %d is nf4 and has no gradient: freeze it",
                                op->name, i);
            COH_TRY(COH_GROW(&graph->parameters, &graph->parameter_capacity,
                             graph->parameter_count + 1));
            COH_TRY(coh_name_table_reserve(&graph->parameter_names));
            COH_TRY(name_parameter(graph, op, facts->name, &name));
            graph->parameters[graph->parameter_count] =
                (coh_graph_parameter){ .facts = *facts,
                                       .name = name,
                                       .op = (int32_t)graph->op_count,
                                       .port = i,
                                       .frozen = is_frozen };
            coh_name_table_insert(&graph->parameter_names, name, (int32_t)graph->parameter_count);
            op->parameter[i] = (int32_t)graph->parameter_count++;
        }
        if (out_parameters != NULL)
            out_parameters[i].index = op->parameter[i];
    }
    return COH_OK;
}

/* Returns 1 if some trained parameter lies upstream of this operator's outputs. */
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

/* Copies the attributes. A built-in kind's struct may grow: callers of its first version get zeros
 * in the new members, and operators that use none keep their fingerprint, because trailing zeros
 * behind the first version do not count. */
static coh_status copy_attributes(coh_graph_op_entry *op, const coh_op_args *args)
{
    const size_t least = op->kind.attribute_bytes;
    const uint8_t *bytes = args->attributes;
    size_t count = args->attribute_bytes;
    COH_TRY(coh_alloc(count + COH_ATTRIBUTES_GROWTH, 1, &op->attributes));
    if (count > 0)
        memcpy(op->attributes, bytes, count);
    while (least > 0 && count > least && bytes[count - 1] == 0)
        count--;
    op->attribute_bytes = count;
    return COH_OK;
}

/* Computes the scratch for every kind of device, because a graph may be planned for any of them. */
static void size_workspaces(coh_graph_op_entry *op, const coh_shape *inputs)
{
    for (int device = 0; device < COH_DEVICE_KINDS; device++) {
        const coh_kind_device *on = &op->kind.devices[device];
        for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
            op->workspace_bytes[device][phase] =
                on->workspace != NULL ? on->workspace(op->attributes, inputs, (coh_phase)phase)
                                      : op->facts.workspace_bytes[phase];
    }
}

/* Runs infer. A kind that fails without a text must not show that of an earlier failure. */
static coh_status run_infer(coh_graph_op_entry *op, const coh_shape *inputs)
{
    char earlier[COH_ERROR_TEXT_BYTES];
    coh_error_save(earlier);
    coh_error_clear();
    const coh_status status =
        coh_check_status(op->kind.infer(op->attributes, inputs, &op->facts), "infer of its kind");
    if (status == COH_OK)
        coh_error_restore(earlier);
    return status;
}

static void number_block(const coh_graph *graph, coh_graph_op_entry *op, int32_t block)
{
    op->block = block;
    op->block_least = INT32_MAX;
    op->block_most = -1;
    if (graph->op_count > 0) {
        const coh_graph_op_entry *previous = &graph->ops[graph->op_count - 1];
        op->blocks_before =
            previous->blocks_before + (previous->block >= 0 && previous->block != block);
        op->block_least = previous->block_least;
        op->block_most = previous->block_most;
    }
    if (block >= 0 && block < op->block_least)
        op->block_least = block;
    if (block > op->block_most)
        op->block_most = block;
}

static coh_status fill_op(coh_graph *graph, coh_graph_op_entry *op, const coh_op_args *args)
{
    COH_TRY(coh_alloc_text(args->name, &op->name));
    COH_TRY(copy_attributes(op, args));
    number_block(graph, op, args->block);
    coh_shape inputs[COH_PORT_MAX] = { { 0 } };
    for (int32_t i = 0; i < op->kind.input_count; i++) {
        int32_t tensor = args->inputs[i].index;
        if (tensor < 0 || tensor >= (int32_t)graph->tensor_count)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: input %d is not a tensor of this graph",
                            args->name, i);
        op->input[i] = tensor;
        inputs[i] = graph->tensors[tensor].shape;
    }
    coh_status status = run_infer(op, inputs);
    if (status == COH_OK)
        size_workspaces(op, inputs);
    if (status == COH_OK)
        status = coh_graph_check_facts(op, inputs);
    if (status != COH_OK)
        return coh_fail_prefix(status, "operator %s", args->name);
    return COH_OK;
}

/* The members of the first library with this ABI. Later members follow them. */
#define KIND_BYTES_LEAST (offsetof(coh_op_kind, attribute_bytes) + sizeof(uint32_t))

/* Copies the kind; fields that its author did not know are zero. The ABI is checked first, because
 * it determines where the members are. */
static coh_status copy_kind(const coh_op_kind *kind, const char *name, coh_op_kind *out_kind)
{
    if (kind->struct_bytes >= offsetof(coh_op_kind, name))
        COH_TRY(coh_graph_check_abi(kind->abi_version, name));
    coh_status status = coh_struct_check("coh_op_kind", kind, sizeof(*kind), _Alignof(coh_op_kind));
    if (status == COH_OK && kind->struct_bytes < KIND_BYTES_LEAST)
        status = coh_fail(COH_ERR_ARGUMENT,
                          "its kind has a struct_bytes of %u, the least is %zu: set it to "
                          "sizeof(coh_op_kind)",
                          kind->struct_bytes, KIND_BYTES_LEAST);
    if (status != COH_OK)
        return coh_fail_prefix(status, "operator %s", name);
    *out_kind = (coh_op_kind){ 0 };
    coh_struct_read(kind, out_kind, sizeof(*out_kind));
    return coh_graph_check_kind(out_kind, name);
}

/* Refuses an operator of a block that has ended. Numbers that ascend or descend are not compared
 * with each operator before. */
static coh_status check_block(const coh_graph *graph, const char *name, int32_t block)
{
    const coh_graph_op_entry *last = graph->op_count > 0 ? &graph->ops[graph->op_count - 1] : NULL;
    if (block < -1)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: block %d is neither -1 (none) nor a number",
                        name, block);
    if (last == NULL || block == -1 || block == last->block || block > last->block_most ||
        block < last->block_least)
        return COH_OK;
    for (size_t i = graph->op_count; i-- > 0;)
        if (graph->ops[i].block == block)
            return coh_fail(COH_ERR_ARGUMENT,
                            "operator %s: block %d has ended with operator %s: add the operators "
                            "of a block one after the other, or give another number",
                            name, block, graph->ops[i].name);
    return COH_OK;
}

static coh_status check_args(const coh_graph *graph, const coh_op_kind *kind,
                             const coh_op_args *args)
{
    const size_t most =
        kind->attribute_bytes > 0 ? kind->attribute_bytes + COH_ATTRIBUTES_GROWTH : ATTRIBUTES_MOST;
    if (args->attribute_bytes > 0 && args->attributes == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: %zu bytes of attributes at NULL",
                        args->name, args->attribute_bytes);
    if (args->attribute_bytes < kind->attribute_bytes || args->attribute_bytes > most)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: %zu bytes of attributes, and kind %s takes %u", args->name,
                        args->attribute_bytes, kind->name, kind->attribute_bytes);
    if (args->frozen_parameters != UINT32_MAX &&
        coh_ports_beyond(args->frozen_parameters, kind->parameter_count))
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: frozen_parameters %#x names a parameter from %d on, and "
                        "kind %s has %d",
                        args->name, args->frozen_parameters, kind->parameter_count, kind->name,
                        kind->parameter_count);
    if (kind->input_count > 0 && args->inputs == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: its inputs are NULL, and kind %s has %d",
                        args->name, kind->name, kind->input_count);
    COH_TRY(check_block(graph, args->name, args->block));
    if (coh_name_table_find(&graph->op_names, args->name) >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: the name is taken", args->name);
    if (graph->loss >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: the graph has ended with its loss",
                        args->name);
    return COH_OK;
}

static coh_status add_outputs(coh_graph *graph, coh_graph_op_entry *op, coh_tensor *out_outputs)
{
    const int32_t needs_grad = output_needs_grad(graph, op);
    for (int32_t i = 0; i < op->kind.output_count; i++) {
        char port[16], *name = NULL;
        snprintf(port, sizeof(port), "%d", i);
        COH_TRY(join(op->name, ":", port, &name));
        COH_TRY(add_tensor(graph, name, &op->facts.output[i], (int32_t)graph->op_count, i,
                           &out_outputs[i]));
        op->output[i] = out_outputs[i].index;
        graph->tensors[op->output[i]].needs_grad =
            needs_grad && op->facts.output[i].dtype != COH_DTYPE_I32;
    }
    return COH_OK;
}

coh_graph_mark coh_graph_mark_of(const coh_graph *graph)
{
    return (coh_graph_mark){ graph->op_count, graph->parameter_count, graph->tensor_count };
}

static void free_op(coh_graph_op_entry *op)
{
    coh_free(op->name);
    coh_free(op->attributes);
}

void coh_graph_cut(coh_graph *graph, coh_graph_mark mark)
{
    while (graph->op_count > mark.op_count) {
        graph->op_count--;
        coh_name_table_remove(&graph->op_names, graph->ops[graph->op_count].name);
        free_op(&graph->ops[graph->op_count]);
    }
    while (graph->parameter_count > mark.parameter_count) {
        char *name = graph->parameters[--graph->parameter_count].name;
        coh_name_table_remove(&graph->parameter_names, name);
        coh_free(name);
    }
    while (graph->tensor_count > mark.tensor_count)
        coh_free(graph->tensors[--graph->tensor_count].name);
}

coh_status coh_graph_op(coh_graph *graph, const coh_op_kind *kind, const coh_op_args *args,
                        coh_tensor *out_outputs, coh_parameter *out_parameters)
{
    COH_NEED(graph);
    COH_NEED(kind);
    COH_NEED(args);
    COH_NEED(out_outputs);
    coh_graph_op_entry op = { 0 };
    COH_TRY(coh_graph_check_open(graph, __func__));
    COH_TRY(coh_graph_check_name("operator", args->name));
    COH_TRY(copy_kind(kind, args->name, &op.kind));
    COH_TRY(check_args(graph, &op.kind, args));
    COH_TRY(COH_GROW(&graph->ops, &graph->op_capacity, graph->op_count + 1));
    COH_TRY(coh_name_table_reserve(&graph->op_names));
    const coh_graph_mark before = coh_graph_mark_of(graph);
    coh_status status = fill_op(graph, &op, args);
    if (status == COH_OK)
        status = link_parameters(graph, &op, args, out_parameters);
    if (status == COH_OK)
        status = add_outputs(graph, &op, out_outputs);
    if (status != COH_OK) {
        coh_graph_cut(graph, before);
        free_op(&op);
        return status;
    }
    coh_name_table_insert(&graph->op_names, op.name, (int32_t)graph->op_count);
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

int32_t coh_graph_block_count(const coh_graph *graph)
{
    const coh_graph_op_entry *last = &graph->ops[graph->op_count - 1];
    return last->blocks_before + (last->block >= 0);
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
    *out_operator = (coh_graph_operator){ op->name, op->kind.name, op->block, op->facts.output[0] };
    return COH_OK;
}

int32_t coh_graph_parameter_count(const coh_graph *graph)
{
    return graph ? (int32_t)graph->parameter_count : 0;
}

coh_status coh_graph_parameter_at(const coh_graph *graph, int32_t index,
                                  coh_graph_parameter_facts *out_facts)
{
    if (!out_facts || index < 0 || index >= coh_graph_parameter_count(graph))
        return coh_fail(COH_ERR_ARGUMENT, "the graph has no parameter %d", index);
    const coh_graph_parameter *of = &graph->parameters[index];
    *out_facts = (coh_graph_parameter_facts){ of->name, of->facts.shape, of->frozen };
    return COH_OK;
}

coh_status coh_graph_parameter_find(const coh_graph *graph, const char *name,
                                    coh_parameter *out_parameter)
{
    COH_NEED(graph);
    COH_NEED(name);
    COH_NEED(out_parameter);
    const int32_t index = coh_name_table_find(&graph->parameter_names, name);
    if (index < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the graph has no parameter '%.200s': coh_graph_parameter_at lists them",
                        name);
    out_parameter->index = index;
    return COH_OK;
}

coh_status coh_graph_tensor_shape(const coh_graph *graph, coh_tensor tensor, coh_shape *out_shape)
{
    if (!graph || !out_shape || tensor.index < 0 || tensor.index >= (int32_t)graph->tensor_count)
        return coh_fail(COH_ERR_ARGUMENT, "the graph has no tensor %d", tensor.index);
    *out_shape = graph->tensors[tensor.index].shape;
    return COH_OK;
}

static coh_status refuse_loss_as_output(const coh_graph *graph, coh_tensor loss)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "tensor %s is the loss, which each result has as a number: mark only other "
                    "tensors with coh_graph_output",
                    graph->tensors[loss.index].name);
}

coh_status coh_graph_loss(coh_graph *graph, coh_tensor loss)
{
    COH_NEED(graph);
    COH_TRY(coh_graph_check_open(graph, __func__));
    if (graph->loss >= 0)
        return coh_fail(COH_ERR_ARGUMENT, "the graph has a loss already");
    if (loss.index < 0 || loss.index >= (int32_t)graph->tensor_count)
        return coh_fail(COH_ERR_ARGUMENT, "the loss is not a tensor of this graph");
    const coh_graph_tensor *tensor = &graph->tensors[loss.index];
    if (tensor->producer < 0 || !graph->ops[tensor->producer].kind.is_loss || tensor->port != 0)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s is not output 0 of a loss kind (is_loss)",
                        tensor->name);
    if (tensor->is_output)
        return refuse_loss_as_output(graph, loss);
    graph->loss = loss.index;
    return COH_OK;
}

coh_status coh_graph_output(coh_graph *graph, coh_tensor tensor)
{
    COH_NEED(graph);
    COH_TRY(coh_graph_check_open(graph, __func__));
    if (tensor.index < 0 || tensor.index >= (int32_t)graph->tensor_count ||
        graph->tensors[tensor.index].producer < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %d is no operator's output: give one that coh_graph_op returned",
                        tensor.index);
    if (tensor.index == graph->loss)
        return refuse_loss_as_output(graph, tensor);
    graph->tensors[tensor.index].is_output = 1;
    return COH_OK;
}

int coh_graph_parameter_matches(const coh_graph *graph, const char *pattern,
                                const coh_graph_parameter *parameter)
{
    return coh_pattern_matches(pattern, parameter->name) ||
           coh_pattern_matches(pattern, graph->ops[parameter->op].name);
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
