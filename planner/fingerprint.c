/* Hashes the inputs that may change result bits (the numeric fingerprint) and the inputs that
 * determine an operator's time (its signature). The idea: fold each number and text into one 64-bit
 * hash in a fixed order. A new member changes every fingerprint; see fingerprint.h. */
#include "planner/fingerprint.h"

#include <string.h>
#include <xxhash.h>

#include "planner/optimizers.h"
#include "planner/rank_axes.h"

static uint64_t fold_bytes(uint64_t hash, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, hash);
}

static uint64_t fold_number(uint64_t hash, int64_t value)
{
    return fold_bytes(hash, &value, sizeof(value));
}

static uint64_t fold_text(uint64_t hash, const char *text)
{
    return fold_bytes(hash, text, strlen(text) + 1);
}

static uint64_t fold_shape(uint64_t hash, const coh_shape *shape)
{
    hash = fold_number(hash, (int64_t)shape->dtype);
    for (int32_t i = 0; i < shape->rank; i++)
        hash = fold_number(hash, shape->dim[i]);
    return fold_number(hash, shape->rank);
}

/* How a frozen weight is stored changes no number: an operator with one in NF4 counts as if it had
 * the dtype of its input. */
static int is_packed(const coh_graph_op_entry *op)
{
    for (int32_t i = 0; i < op->kind.parameter_count; i++)
        if (op->facts.parameter[i].shape.dtype == COH_DTYPE_NF4)
            return 1;
    return 0;
}

static coh_shape numeric_shape(const coh_graph *graph, const coh_graph_op_entry *op, int32_t port)
{
    coh_shape shape = op->facts.parameter[port].shape;
    if (shape.dtype == COH_DTYPE_NF4)
        shape.dtype = graph->tensors[op->input[0]].shape.dtype;
    return shape;
}

static uint64_t fold_op(uint64_t hash, const coh_graph *graph, const coh_graph_op_entry *op)
{
    const size_t least = op->kind.attribute_bytes;
    hash = fold_text(hash, op->kind.name);
    hash = fold_number(hash, op->kind.revision);
    hash = fold_bytes(hash, op->attributes, is_packed(op) ? least : op->attribute_bytes);
    if (op->kind.atomics)
        hash = fold_text(hash, "atomics");
    for (int32_t i = 0; i < op->kind.input_count; i++) {
        hash = fold_number(hash, op->input[i]);
        hash = fold_shape(hash, &graph->tensors[op->input[i]].shape);
    }
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        hash = fold_number(hash, op->parameter[i]);
        const coh_shape shape = numeric_shape(graph, op, i);
        hash = fold_shape(hash, &shape);
        if (op->parameter[i] >= 0)
            hash = fold_number(hash, graph->parameters[op->parameter[i]].frozen);
        if (op->kind.column_slices && op->facts.parameter[i].row_block > 0)
            hash = fold_number(hash, op->facts.parameter[i].row_block); /* sums are split there */
    }
    return hash;
}

/* Folds the optimizers that are not the default, so that fingerprints of older checkpoints hold. */
static uint64_t fold_optimizers(uint64_t hash, const coh_graph *graph,
                                const coh_plan_options *options)
{
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_optimizer *optimizer =
            graph->parameters[i].frozen ? NULL : coh_optimizer_of(graph, options, i);
        if (optimizer == NULL ||
            (strcmp(optimizer->name, "adamw") == 0 && optimizer->revision == 1))
            continue;
        hash = fold_number(hash, (int64_t)i);
        hash = fold_text(hash, optimizer->name);
        hash = fold_number(hash, optimizer->revision);
    }
    return hash;
}

int coh_order_changes_bits(const coh_graph *graph)
{
    for (size_t i = 0; i < graph->parameter_count; i++) {
        int uses = 0;
        for (size_t op = 0; op < graph->op_count; op++)
            for (int32_t port = 0; port < graph->ops[op].kind.parameter_count; port++)
                uses += graph->ops[op].parameter[port] == (int32_t)i;
        if (uses > 1 && !graph->parameters[i].frozen)
            return 1;
    }
    return 0;
}

static uint64_t fold_shape_of(uint64_t hash, const coh_fold_shape *shape)
{
    for (int32_t f = 0; f < coh_fold_factor_count(shape); f++)
        hash = fold_number(fold_text(hash, "replicas"), shape->factors[f]);
    return hash;
}

/* Adds a rank pattern, and its numbers where pairs and nodes change them: over how many ranks
 * weights and states are divided decides what is rounded on its way. */
static uint64_t fold_pattern(uint64_t hash, const coh_plan_options *options, const char *pattern)
{
    const coh_rank_levels levels = coh_rank_levels_of(options);
    const coh_rank_levels flat = { 1, levels.world, levels.world };
    coh_rank_parts parts, flat_parts;
    hash = fold_text(hash, pattern);
    if (coh_rank_parts_find(pattern, &levels, &parts) != COH_OK ||
        coh_rank_parts_find(pattern, &flat, &flat_parts) != COH_OK ||
        (parts.work == flat_parts.work && parts.state == flat_parts.state))
        return hash;
    return fold_number(fold_number(hash, parts.work), parts.state);
}

/* With wires, and with sums of NCCL, the bits depend on how many ranks there are, and on what they
 * divide. */
static uint64_t fold_exchanges(uint64_t hash, const coh_plan_options *options)
{
    const int has_wires =
        options->wires.weights != COH_WIRE_STORED || options->wires.gradients != COH_WIRE_STORED;
    if (!has_wires && options->reduce == COH_REDUCE_EXACT)
        return hash;
    if (has_wires) {
        hash = fold_text(fold_text(hash, "weights"), coh_wire_name(options->wires.weights));
        hash = fold_text(fold_text(hash, "gradients"), coh_wire_name(options->wires.gradients));
    }
    if (options->reduce == COH_REDUCE_LIBRARY)
        hash = fold_text(hash, "reduce library");
    hash = fold_number(hash, coh_fold_replicas(&options->ranks));
    hash = fold_pattern(hash, options, options->rank_pattern);
    for (int32_t i = 0; i < options->pin_count; i++)
        if (options->pins[i].place == COH_PIN_PATTERN)
            hash = fold_pattern(fold_text(hash, options->pins[i].target), options,
                                options->pins[i].pattern);
    return hash;
}

/* Raise the number in the text if sums outside any kind (the norm's) are added in another order. */
static uint64_t fingerprint_of(const coh_graph *graph, const coh_plan_options *options,
                               int names_layers)
{
    uint64_t hash = fold_text(0, "cohobate numeric plan 3, state f32");
    hash = fold_number(hash, options->mode);
    hash =
        fold_number(hash, (int64_t)options->microbatch_count * coh_fold_replicas(&options->ranks));
    hash = fold_number(hash, options->deferred_update);
    hash = fold_text(hash, options->kernel_path);
    if (names_layers)
        hash = fold_text(hash, "layer by layer");
    if (options->f32_gradients)
        hash = fold_text(hash, "gradients f32");
    hash = fold_shape_of(hash, &options->replicas);
    hash = fold_shape_of(hash, &options->ranks); /* the same bits as on one rank */
    hash = fold_exchanges(hash, options);
    for (size_t i = 0; i < graph->op_count; i++)
        hash = fold_op(hash, graph, &graph->ops[i]);
    if (options->mode == COH_PLAN_TRAIN)
        hash = fold_optimizers(hash, graph, options);
    return fold_number(hash, graph->loss);
}

uint64_t coh_numeric_fingerprint(const coh_graph *graph, const coh_plan_options *options)
{
    return fingerprint_of(graph, options,
                          options->sweep_order == COH_SWEEP_LAYER && coh_order_changes_bits(graph));
}

int coh_numeric_fingerprint_is(const coh_graph *graph, const coh_plan_options *options,
                               uint64_t stored)
{
    return stored == coh_numeric_fingerprint(graph, options) ||
           (!coh_order_changes_bits(graph) && stored == fingerprint_of(graph, options, 1));
}

coh_dtype coh_operator_dtype(const coh_graph *graph, size_t op)
{
    const coh_graph_op_entry *entry = &graph->ops[op];
    int is_bf16 = 0;
    for (int32_t i = 0; i < entry->kind.input_count; i++)
        is_bf16 |= graph->tensors[entry->input[i]].shape.dtype == COH_DTYPE_BF16;
    for (int32_t i = 0; i < entry->kind.output_count; i++)
        is_bf16 |= entry->facts.output[i].dtype == COH_DTYPE_BF16;
    for (int32_t i = 0; i < entry->kind.parameter_count; i++)
        is_bf16 |=
            entry->parameter[i] >= 0 && entry->facts.parameter[i].shape.dtype == COH_DTYPE_BF16;
    return is_bf16 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
}

/* `is_plain`: as if no weight were in NF4. */
static uint64_t signature_of(const coh_graph *graph, size_t op, int is_plain)
{
    const coh_graph_op_entry *entry = &graph->ops[op];
    const int is_changed = is_plain && is_packed(entry);
    uint64_t hash = fold_text(0, "cohobate operator 1");
    hash = fold_text(hash, entry->kind.name);
    hash = fold_number(hash, entry->kind.revision);
    hash = fold_bytes(hash, entry->attributes,
                      is_changed ? entry->kind.attribute_bytes : entry->attribute_bytes);
    for (int32_t i = 0; i < entry->kind.input_count; i++) {
        coh_shape shape = graph->tensors[entry->input[i]].shape;
        int32_t channels = shape.dtype == COH_DTYPE_I32 ? 0 : 1; /* ids have none */
        for (int32_t dim = 0; dim < 2 && dim + channels < shape.rank; dim++)
            shape.dim[dim] = 0; /* batch and tokens */
        hash = fold_shape(hash, &shape);
    }
    for (int32_t i = 0; i < entry->kind.parameter_count; i++) {
        const coh_shape shape =
            is_changed ? numeric_shape(graph, entry, i) : entry->facts.parameter[i].shape;
        hash = fold_shape(hash, &shape);
        if (entry->parameter[i] >= 0)
            hash = fold_number(hash, graph->parameters[entry->parameter[i]].frozen);
    }
    hash = fold_number(hash, (int64_t)coh_operator_dtype(graph, op));
    return hash ? hash : 1; /* 0 means no operator */
}

uint64_t coh_operator_signature(const coh_graph *graph, size_t op)
{
    return signature_of(graph, op, 0);
}

uint64_t coh_operator_plain_signature(const coh_graph *graph, size_t op)
{
    return signature_of(graph, op, 1);
}

unsigned coh_grad_form(const coh_instruction_call *call, const coh_binding *bindings)
{
    int f32_grads = 0, some_bf16 = 0;
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &bindings[call->binding_begin + i];
        f32_grads |=
            binding->role == COH_ROLE_PARAMETER_GRAD && binding->shape.dtype == COH_DTYPE_F32;
        some_bf16 |= binding->shape.dtype == COH_DTYPE_BF16;
    }
    return (call->parameter_grad_adds != 0 ? COH_GRADS_ADD : 0u) |
           (f32_grads && some_bf16 ? COH_GRADS_WIDE : 0u);
}

uint64_t coh_backward_signature(uint64_t signature, unsigned form)
{
    const uint64_t hash = form == 0 ? signature : fold_number(signature, form);
    return hash ? hash : 1;
}
