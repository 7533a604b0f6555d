/* Lists all objects of a plan and cuts them into chunks. The idea: parameters that are always used
 * together form a group, and its gradient and state objects have matching chunks. The file is long
 * because one builder makes the objects of all streams. The drawing is in layout.h; program.h
 * defines the tables. */
#include "planner/layout.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/refusal.h"
#include "memory/cells.h"
#include "memory/library_workspace.h"
#include "planner/comm_parts.h"
#include "planner/effort.h"
#include "planner/light.h"
#include "planner/optimizers.h"
#include "planner/pattern.h"
#include "planner/profile.h"
#include "planner/rank_axes.h"
#include "planner/row_unit.h"

/* Limit of all objects together: any sum of offsets and sizes in one tier stays far below 2^64. */
#define LAYOUT_BYTES_MOST ((uint64_t)1 << 60)

/* Chunk numbers are int32_t in places. A list of this length takes 500 MB. */
#define CHUNKS_MOST ((uint32_t)1 << 24)

typedef struct builder {
    const coh_graph *graph;
    const coh_plan_options *options;
    uint64_t chunk_bytes;
    int with_cache;
    coh_layout *layout;
    coh_object_map *map;
    size_t object_capacity, chunk_capacity, parameter_capacity, group_capacity;
    uint64_t bytes;      /* of all objects */
    int32_t *use_count;  /* by graph parameter */
    uint8_t *is_trained; /* by graph parameter: not frozen, and some use of it runs backward */
    int32_t *optimizer;  /* by graph parameter: in the layout's list; -1: not trained */
    coh_rank_axes *axes; /* by graph parameter: as the rank patterns say */
} builder;

/* ---- objects and chunks ---- */

static coh_status add_object(builder *b, coh_stream stream, int32_t owner, int survives,
                             int32_t *out_object)
{
    coh_layout *layout = b->layout;
    COH_TRY(coh_effort_check_count((uint64_t)layout->object_count + 1, COH_UNIT_OBJECTS));
    COH_TRY(COH_EXTEND(&layout->objects, &b->object_capacity, layout->object_count + 1));
    layout->objects[layout->object_count] = (coh_object){ .stream = (uint8_t)stream,
                                                          .owner = owner,
                                                          .survives = (uint8_t)survives,
                                                          .chunk_begin = layout->chunk_count };
    *out_object = (int32_t)layout->object_count++;
    return COH_OK;
}

/* `change`: what helps; COH_CHANGE_KINDS: nothing. */
static coh_status refuse_length(const builder *b, coh_refusal_unit unit, uint64_t count,
                                uint64_t most, coh_change_kind change)
{
    coh_refusal refusal = coh_refusal_length(unit, count, most);
    refusal.is_least = refusal.is_proven = 1;
    refusal.microbatch_count = b->options->microbatch_count;
    refusal.chunk_bytes = unit == COH_UNIT_CHUNKS ? b->chunk_bytes : 0;
    if (change != COH_CHANGE_KINDS)
        coh_refusal_add(&refusal, change, 0);
    return coh_refuse(&refusal);
}

/* Fails if an object of this many bytes would make the sums or the list of chunks too large. */
static coh_status check_sums(const builder *b, uint64_t bytes, uint64_t chunk_bytes)
{
    uint64_t all = 0;
    COH_TRY(coh_bytes_add(b->bytes, bytes, &all));
    if (all > LAYOUT_BYTES_MOST)
        return refuse_length(b, COH_UNIT_BYTES, all, LAYOUT_BYTES_MOST,
                             COH_CHANGE_LOWER_MICROBATCH);
    if (bytes / chunk_bytes >= CHUNKS_MOST - b->layout->chunk_count)
        return refuse_length(b, COH_UNIT_CHUNKS, b->layout->chunk_count + bytes / chunk_bytes + 1,
                             CHUNKS_MOST, COH_CHANGE_RAISE_CHUNK);
    return COH_OK;
}

/* Adds a chunk to the newest object. */
static coh_status add_chunk(builder *b, uint64_t bytes)
{
    coh_layout *layout = b->layout;
    COH_TRY(check_sums(b, bytes, bytes + 1));
    b->bytes += coh_bytes_round_page(bytes);
    COH_TRY(COH_EXTEND(&layout->chunks, &b->chunk_capacity, layout->chunk_count + 1));
    coh_object *object = &layout->objects[layout->object_count - 1];
    layout->chunks[layout->chunk_count++] =
        (coh_chunk){ .object = (int32_t)layout->object_count - 1,
                     .owner_rank = layout->rank,
                     .object_offset = object->bytes,
                     .bytes = coh_bytes_round_page(bytes) };
    object->bytes += coh_bytes_round_page(bytes);
    object->chunk_count++;
    return COH_OK;
}

/* Adds an object of plain bytes, cut into equal chunks; none for 0 bytes. */
static coh_status add_plain(builder *b, coh_stream stream, int32_t owner, uint64_t bytes,
                            int survives, int32_t *out_object)
{
    *out_object = -1;
    if (bytes == 0)
        return COH_OK;
    COH_TRY(check_sums(b, bytes, b->chunk_bytes));
    COH_TRY(add_object(b, stream, owner, survives, out_object));
    for (uint64_t done = 0; done < bytes; done += b->chunk_bytes)
        COH_TRY(add_chunk(b, bytes - done < b->chunk_bytes ? bytes - done : b->chunk_bytes));
    return COH_OK;
}

/* Adds an object that lies at the bottom of the device arena for the whole run. */
static coh_status add_pinned(builder *b, coh_stream stream, int32_t owner, uint64_t bytes,
                             int32_t *out_object)
{
    COH_TRY(add_object(b, stream, owner, 1, out_object));
    COH_TRY(add_chunk(b, bytes));
    coh_object *object = &b->layout->objects[*out_object];
    object->pinned = 1;
    object->pinned_offset = b->layout->pinned_bytes;
    return coh_bytes_add(b->layout->pinned_bytes, object->bytes, &b->layout->pinned_bytes);
}

/* ---- parameter groups ---- */

/* Cuts [0, bytes) of a parameter at `boundary_bytes` (0: none) and at grain ends, into pieces
 * of at most `most` bytes. Small neighbours share a chunk through *pending, the bytes not yet
 * in a chunk; a divided chunk is of one parameter. */
static coh_status cut_parameter(builder *b, uint64_t bytes, uint64_t boundary_bytes, uint64_t most,
                                int is_divided, uint64_t *pending)
{
    uint64_t rounded = coh_bytes_round_page(bytes);
    if (*pending > 0 && *pending + rounded > most) {
        COH_TRY(add_chunk(b, *pending));
        *pending = 0;
    }
    for (uint64_t done = 0; done < rounded;) {
        uint64_t piece = rounded - done < most ? rounded - done : most;
        if (boundary_bytes > 0 && done / boundary_bytes != (done + piece - 1) / boundary_bytes)
            piece = boundary_bytes - done % boundary_bytes;
        done += piece;
        if (boundary_bytes == 0 && done == rounded && piece < most && !is_divided) {
            *pending += piece; /* the next parameter may share the tail's chunk */
            continue;
        }
        COH_TRY(add_chunk(b, piece));
        b->layout->chunks[b->layout->chunk_count - 1].is_divided = is_divided;
    }
    return COH_OK;
}

static coh_status add_work_object(builder *b, int32_t group_index, int32_t *out_object)
{
    const coh_group_layout *group = &b->layout->groups[group_index];
    const int is_divided = group->axes.state > 0;
    COH_TRY(add_object(b, COH_STREAM_WORK, group_index, group->axes.work == 0, out_object));
    uint64_t pending = 0;
    const uint64_t most = coh_dtype_array_bytes(
        group->dtype,
        coh_chunk_elements_most(&b->layout->mesh, group, b->chunk_bytes / sizeof(float)));
    for (uint32_t i = 0; i < group->parameter_count; i++) {
        const coh_parameter_layout *parameter = &b->layout->parameters[group->parameter_begin + i];
        int64_t unit = b->map->row_unit[parameter->parameter];
        const coh_shape *shape = &b->graph->parameters[parameter->parameter].facts.shape;
        uint64_t boundary = unit > 0 && unit < shape->dim[0]
                                ? coh_shape_bytes(shape) / (uint64_t)shape->dim[0] * (uint64_t)unit
                                : 0;
        COH_TRY(cut_parameter(b, coh_dtype_array_bytes(group->dtype, parameter->elements), boundary,
                              most, is_divided, &pending));
    }
    return pending > 0 ? add_chunk(b, pending) : COH_OK;
}

/* The stream whose rows a stream has, whole or in part. */
static coh_stream rows_of(coh_stream stream)
{
    return stream == COH_STREAM_CONTRIBUTION || stream == COH_STREAM_GRAD_PART ? COH_STREAM_GRAD
           : stream == COH_STREAM_WORK_PART || stream == COH_STREAM_WORK_COPY  ? COH_STREAM_WORK
                                                                               : stream;
}

/* Adds another object of a group, with a chunk for each chunk of its work; of a divided stream, for
 * the rank's part of it. */
static coh_status add_partner_object(builder *b, coh_stream stream, int32_t group_index,
                                     int32_t work, int survives, int32_t *out_object)
{
    const coh_object copy = b->layout->objects[work];
    COH_TRY(add_object(b, stream, group_index, survives, out_object));
    for (uint32_t i = copy.chunk_begin; i < copy.chunk_begin + copy.chunk_count; i++) {
        const uint64_t work_bytes = coh_part_in_bytes(b->layout, i, (uint8_t)stream);

        COH_TRY(add_chunk(b, coh_group_chunk_bytes(&b->layout->groups[group_index],
                                                   (uint8_t)rows_of(stream), work_bytes)));
        b->layout->chunks[b->layout->chunk_count - 1].is_divided = b->layout->chunks[i].is_divided;
    }
    return COH_OK;
}

/* Appends graph parameter `index` to the newest group. */
static coh_status add_to_group(builder *b, int32_t index)
{
    coh_layout *layout = b->layout;
    coh_group_layout *group = &layout->groups[layout->group_count - 1];
    const coh_graph_parameter *parameter = &b->graph->parameters[index];
    COH_TRY(COH_EXTEND(&layout->parameters, &b->parameter_capacity, layout->parameter_count + 1));
    uint64_t offset = 0;
    if (group->parameter_count > 0) {
        const coh_parameter_layout *last = &layout->parameters[layout->parameter_count - 1];
        offset = last->offset +
                 coh_bytes_round_page(coh_dtype_array_bytes(group->dtype, last->elements));
    }
    uint64_t elements = (uint64_t)coh_shape_elements(&parameter->facts.shape);
    COH_TRY(check_sums(b, coh_dtype_array_bytes(group->dtype, elements), b->chunk_bytes));
    uint64_t grains = (elements + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    if (layout->partial_count + grains > UINT32_MAX / 2)
        return refuse_length(b, COH_UNIT_GRAINS, layout->partial_count + grains, UINT32_MAX / 2,
                             COH_CHANGE_KINDS);
    layout->parameters[layout->parameter_count] =
        (coh_parameter_layout){ .parameter = index,
                                .group = (int32_t)layout->group_count - 1,
                                .offset = offset,
                                .elements = elements,
                                .partial_begin = layout->partial_count,
                                .grain_count = (uint32_t)grains,
                                .decays = parameter->facts.decays,
                                .frozen = !b->is_trained[index],
                                .init = parameter->facts.init,
                                .init_std = parameter->facts.init_std };
    layout->partial_count += (uint32_t)grains;
    b->map->group_of_parameter[index] = (int32_t)layout->group_count - 1;
    b->map->layout_of_parameter[index] = (int32_t)layout->parameter_count;
    layout->parameter_count++;
    group->parameter_count++;
    return COH_OK;
}

/* Returns 1 if the parameter's kind can be sliced. */
static int is_sliced(const builder *b, int32_t parameter)
{
    return b->graph->ops[b->graph->parameters[parameter].op].kind.column_slices;
}

static coh_device_kind device_of(const builder *b)
{
    return b->options->profile != NULL ? b->options->profile->device_kind : COH_DEVICE_HOST;
}

/* Returns the pattern of a parameter's class. */
static coh_pattern_id pattern_of(const builder *b, int32_t parameter)
{
    const coh_group_class group_class = coh_row_unit(b->graph, parameter, device_of(b)) == 0
                                            ? COH_CLASS_PLAIN
                                        : is_sliced(b, parameter) ? COH_CLASS_PRODUCT
                                                                  : COH_CLASS_TABLE;
    return (coh_pattern_id)b->map->patterns.of[group_class];
}

/* Opens a group whose first parameter will be `parameter`. All its parameters have one pattern: one
 * that is sliced is a group by itself. */
static coh_status open_group(builder *b, int32_t parameter)
{
    coh_layout *layout = b->layout;
    const coh_dtype dtype = b->graph->parameters[parameter].facts.shape.dtype;
    COH_TRY(COH_EXTEND(&layout->groups, &b->group_capacity, layout->group_count + 1));
    coh_group_layout *group = &layout->groups[layout->group_count++];
    *group =
        (coh_group_layout){ .work = -1,
                            .grad = -1,
                            .state = -1,
                            .work_part = -1,
                            .grad_part = -1,
                            .work_copy = -1,
                            .contributions = { -1, -1, -1 },
                            .parameter_begin = layout->parameter_count,
                            .dtype = dtype,
                            .f32_gradients = b->options->f32_gradients && dtype == COH_DTYPE_BF16,
                            .optimizer = b->is_trained[parameter] ? b->optimizer[parameter] : -1,
                            .axes = b->axes[parameter],
                            .pattern = (uint8_t)pattern_of(b, parameter) };
    coh_group_streams_make(group,
                           group->optimizer < 0 ? NULL : layout->optimizers[group->optimizer],
                           coh_plan_defers(b->options));
    return COH_OK;
}

/* Leaves the newest group whole if the ranks cannot divide its states: there are none, or fewer
 * grains than ranks. */
static void settle_axes(builder *b)
{
    coh_layout *layout = b->layout;
    coh_group_layout *group = &layout->groups[layout->group_count - 1];
    const int32_t ranks = coh_mesh_group_size(&layout->mesh, coh_inner_axes(group->axes.state));
    uint64_t grains = 0;
    for (uint32_t i = 0; i < group->parameter_count; i++)
        grains += layout->parameters[group->parameter_begin + i].grain_count;
    if (!coh_group_is_trained(group) || grains < (uint64_t)ranks)
        group->axes = (coh_rank_axes){ 0 };
}

/* Makes the objects of the newest group. */
static coh_status add_group_objects(builder *b)
{
    coh_layout *layout = b->layout;
    int32_t index = (int32_t)layout->group_count - 1;
    coh_group_layout *group = &layout->groups[index];
    settle_axes(b);
    COH_TRY(add_work_object(b, index, &group->work));
    if (!coh_group_is_trained(group))
        return COH_OK;
    const int is_deferred = coh_plan_defers(b->options);
    const int keeps_grad_part = group->axes.grad > 0;
    if (group->axes.work > 0)
        COH_TRY(
            add_partner_object(b, COH_STREAM_WORK_PART, index, group->work, 1, &group->work_part));
    if (group->axes.copy > 0)
        COH_TRY(
            add_partner_object(b, COH_STREAM_WORK_COPY, index, group->work, 0, &group->work_copy));
    COH_TRY(add_partner_object(b, COH_STREAM_GRAD, index, group->work,
                               is_deferred && !keeps_grad_part, &group->grad));
    if (keeps_grad_part)
        COH_TRY(add_partner_object(b, COH_STREAM_GRAD_PART, index, group->work, is_deferred,
                                   &group->grad_part));
    for (int32_t f = 0; f < coh_fold_factor_count(&layout->fold); f++)
        COH_TRY(add_partner_object(b, COH_STREAM_CONTRIBUTION, index, group->work, 0,
                                   &group->contributions[f]));
    if (coh_part_offset(group, COH_STREAM_STATE, group->stream_count, COH_PAGE_BYTES) == 0)
        return COH_OK; /* an optimizer without states */
    return add_partner_object(b, COH_STREAM_STATE, index, group->work, 1, &group->state);
}

/* Closes the newest group: makes its objects, with the owners that its pattern gives. */
static coh_status close_group(builder *b)
{
    const coh_layout *layout = b->layout;
    COH_TRY(add_group_objects(b));
    const int32_t index = (int32_t)layout->group_count - 1;
    const coh_group_layout *group = &layout->groups[index];
    const int32_t *folded = group->contributions;
    const int32_t objects[] = { group->work,      group->grad,      group->state,
                                group->work_part, group->grad_part, group->work_copy,
                                folded[0],        folded[1],        folded[2] };
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        for (uint32_t k = 0; objects[i] >= 0 && k < layout->objects[objects[i]].chunk_count; k++)
            layout->chunks[layout->objects[objects[i]].chunk_begin + k].owner_rank =
                coh_pattern_of_group(layout, index)
                    ->owner(layout, k, layout->objects[objects[i]].chunk_count);
    return COH_OK;
}

static int stands_alone(const builder *b, int32_t parameter)
{
    return b->use_count[parameter] > 1 ||
           (b->map->row_unit[parameter] > 0 && !is_sliced(b, parameter));
}

/* Is the parameter a group by itself, in the order of the operator's parameters? It is sliced, or
 * in NF4, since the parameters of a group have one dtype. */
static int is_apart(const builder *b, int32_t parameter)
{
    return !stands_alone(b, parameter) &&
           (b->map->row_unit[parameter] > 0 ||
            b->graph->parameters[parameter].facts.shape.dtype == COH_DTYPE_NF4);
}

/* Classes of parameters of an operator. */
enum { PLAIN_TRAINED, PLAIN_FROZEN, ALONE };

/* Makes a group of one parameter, if it is one by itself and of class `which`. */
static coh_status group_apart(builder *b, int32_t index, int which)
{
    if (!is_apart(b, index) || which != (b->is_trained[index] ? PLAIN_TRAINED : PLAIN_FROZEN))
        return COH_OK;
    COH_TRY(open_group(b, index));
    COH_TRY(add_to_group(b, index));
    return close_group(b);
}

/* Does the operator own the parameter of this port, and does the optimizer (-1: any) train it? */
static int is_own(const builder *b, int32_t op_index, int32_t port, int32_t optimizer)
{
    const int32_t index = b->graph->ops[op_index].parameter[port];
    return index >= 0 && b->graph->parameters[index].op == op_index &&
           b->graph->parameters[index].port == port &&
           (optimizer < 0 || b->optimizer[index] == optimizer);
}

/* Makes the groups of one operator of one class: its plain parameters together, those that an
 * optimizer trains (its index; -1: any) and others separately, each shared or row-split one alone.
 * Parameters apart come before the plain ones of their class, so that parameters have the same
 * order with and without slices: norms are summed, and checkpoints written, in this order. */
static coh_status group_parameters(builder *b, int32_t op_index, int which, int32_t optimizer)
{
    const coh_graph_op_entry *op = &b->graph->ops[op_index];
    int is_open = 0;
    for (int32_t port = 0; port < op->kind.parameter_count; port++)
        if (is_own(b, op_index, port, optimizer))
            COH_TRY(group_apart(b, op->parameter[port], which));
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        const int32_t index = op->parameter[port];
        if (!is_own(b, op_index, port, optimizer))
            continue;
        int class = stands_alone(b, index) ? ALONE
                    : b->is_trained[index] ? PLAIN_TRAINED
                                           : PLAIN_FROZEN;
        if (class != which || is_apart(b, index))
            continue;
        if (!is_open)
            COH_TRY(open_group(b, index));
        is_open = 1;
        COH_TRY(add_to_group(b, index));
        if (which == ALONE) {
            COH_TRY(close_group(b));
            is_open = 0;
        }
    }
    return is_open ? close_group(b) : COH_OK;
}

static coh_status add_groups(builder *b)
{
    for (size_t i = 0; i < b->graph->op_count; i++)
        for (int32_t port = 0; port < b->graph->ops[i].kind.parameter_count; port++) {
            int32_t index = b->graph->ops[i].parameter[port];
            if (index < 0)
                continue;
            b->use_count[index]++;
            if (b->map->runs_backward[i] && !b->graph->parameters[index].frozen)
                b->is_trained[index] = 1;
        }
    for (size_t i = 0; i < b->graph->parameter_count; i++)
        if (pattern_of(b, (int32_t)i) == COH_PATTERN_SLICE)
            b->map->row_unit[i] = coh_row_unit(b->graph, (int32_t)i, device_of(b));
    COH_TRY(coh_optimizers_of(b->graph, b->options, b->is_trained, b->layout, b->optimizer));
    for (int32_t i = 0; i < (int32_t)b->graph->op_count; i++) {
        for (int32_t optimizer = 0; optimizer < b->layout->optimizer_count; optimizer++)
            COH_TRY(group_parameters(b, i, PLAIN_TRAINED, optimizer));
        COH_TRY(group_parameters(b, i, PLAIN_FROZEN, -1));
        COH_TRY(group_parameters(b, i, ALONE, -1));
    }
    return COH_OK;
}

/* ---- activations, scratch, pinned ---- */

/* A plan for a GPU may use kinds without kernels there: the engine rejects those. */
static coh_status check_has_backward(const builder *b, const coh_graph_op_entry *op)
{
    if (op->kind.devices[COH_DEVICE_HOST].backward != NULL ||
        op->kind.devices[device_of(b)].backward != NULL)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "operator %s is of kind %s, which has no backward, and it lies between a "
                    "trained parameter and the loss: use a kind with backward, freeze the "
                    "parameters before it, or plan with COH_PLAN_INFER",
                    op->name, op->kind.name);
}

/* The backward of a loss reads no gradient, so what is computed from a loss cannot train. */
static coh_status check_ends_in_loss(const builder *b, const coh_graph_op_entry *op)
{
    if (!op->kind.is_loss || op->output[0] == b->graph->loss)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "operator %s is of kind %s, a loss, and the graph's loss is computed from it: "
                    "use one kind that computes the sum, or mark this loss with coh_graph_output "
                    "as a metric",
                    op->name, op->kind.name);
}

/* A recomputed forward would change states twice, an evaluation changes them between steps, and
 * neither a checkpoint nor a hash has them. */
static coh_status check_has_no_states(const coh_graph_op_entry *op)
{
    if (op->kind.state_count == 0)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "operator %s is of kind %s, which keeps states from step to step, and only a "
                    "plan of COH_PLAN_INFER has them: to train, pass such data as an input and "
                    "mark the next values with coh_graph_output",
                    op->name, op->kind.name);
}

/* Marks the tensors that get a gradient, and the operators that run backward. */
static coh_status mark_backward(builder *b)
{
    const coh_graph *graph = b->graph;
    if (b->options->mode != COH_PLAN_TRAIN)
        return COH_OK;
    b->map->reaches_loss[graph->loss] = 1;
    for (size_t i = graph->op_count; i-- > 0;) {
        const coh_graph_op_entry *op = &graph->ops[i];
        int32_t wanted = 0;
        COH_TRY(check_has_no_states(op));
        for (int32_t port = 0; port < op->kind.output_count; port++)
            wanted |= b->map->reaches_loss[op->output[port]] &&
                      graph->tensors[op->output[port]].needs_grad;
        if (wanted) {
            COH_TRY(check_has_backward(b, op));
            COH_TRY(check_ends_in_loss(b, op));
        }
        b->map->runs_backward[i] = wanted;
        for (int32_t port = 0; wanted && port < op->kind.input_count; port++)
            if (graph->tensors[op->input[port]].needs_grad)
                b->map->reaches_loss[op->input[port]] = 1;
    }
    return COH_OK;
}

/* Adds an object that each micro-batch of a sweep by layers has separately. */
static coh_status add_copy(builder *b, coh_stream stream, int32_t owner, uint64_t bytes,
                           size_t copy, int32_t *out_object)
{
    COH_TRY(add_plain(b, stream, owner, bytes, 0, out_object));
    if (*out_object >= 0)
        b->layout->objects[*out_object].microbatch = (int32_t)copy;
    return COH_OK;
}

static coh_status add_tensor(builder *b, int32_t index, size_t copy)
{
    const coh_graph_tensor *tensor = &b->graph->tensors[index];
    uint64_t bytes = coh_shape_bytes(&tensor->shape);
    size_t place = coh_tensor_index(b->map, index, (int32_t)copy);
    b->map->activation[place] = b->map->gradient[place] = -1;
    if (tensor->producer < 0)
        return COH_OK;
    const int is_loss = index == b->graph->loss;
    if (tensor->is_output && b->map->copies > 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s is an output: a sweep by layers keeps no outputs but the loss",
                        tensor->name);
    if (tensor->is_output)
        COH_TRY(add_pinned(b, COH_STREAM_OUTPUT, index, bytes, &b->map->activation[place]));
    else if (!is_loss)
        COH_TRY(add_copy(b, COH_STREAM_ACTIVATION, index, bytes, copy, &b->map->activation[place]));
    if (!b->map->reaches_loss[index] || is_loss)
        return COH_OK;
    return add_copy(b, COH_STREAM_ACTIVATION_GRAD, index, bytes, copy, &b->map->gradient[place]);
}

static coh_status add_tensors(builder *b)
{
    for (size_t copy = 0; copy < b->map->copies; copy++)
        for (size_t i = 0; i < b->graph->tensor_count; i++)
            COH_TRY(add_tensor(b, (int32_t)i, copy));
    return COH_OK;
}

/* Adds the objects that an operator keeps from its forward to its backward. */
static coh_status add_kept_forward(builder *b, int32_t op_index, size_t copy)
{
    const coh_op_facts *facts = &b->graph->ops[op_index].facts;
    size_t place = coh_op_index(b->map, op_index, (int32_t)copy);
    b->map->cache[place] = -1;
    COH_TRY(
        add_copy(b, COH_STREAM_SAVED, op_index, facts->saved_bytes, copy, &b->map->saved[place]));
    if (!b->map->runs_backward[op_index] || !b->with_cache)
        return COH_OK;
    return add_copy(b, COH_STREAM_CACHE, op_index, facts->cache_bytes, copy, &b->map->cache[place]);
}

static const coh_group_layout *group_of(const builder *b, int32_t parameter)
{
    return &b->layout->groups[b->map->group_of_parameter[parameter]];
}

/* Adds scratch gradients where an operator's backward must write an unused result, or cannot
 * add. */
static coh_status add_scratch_gradients(builder *b, int32_t op_index)
{
    const coh_graph_op_entry *op = &b->graph->ops[op_index];
    for (int32_t port = 0; port < op->kind.input_count; port++) {
        const coh_graph_tensor *tensor = &b->graph->tensors[op->input[port]];
        int wanted = b->map->reaches_loss[op->input[port]] && tensor->needs_grad;
        int adds = (op->kind.can_add_grad.inputs >> port) & 1;
        int skips = (op->kind.can_skip_grad.inputs >> port) & 1;
        for (int32_t other = 0; other < port; other++)
            if (op->input[other] == op->input[port])
                adds = 0; /* one kernel call cannot write and add to the same bytes */
        if (tensor->shape.dtype == COH_DTYPE_I32 || (wanted ? adds : skips))
            continue;
        COH_TRY(add_plain(b, COH_STREAM_SCRATCH, op_index, coh_shape_bytes(&tensor->shape), 0,
                          &b->map->input_scratch[coh_port_index(op_index, port)]));
    }
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        if (op->parameter[port] < 0)
            continue;
        int frozen = b->graph->parameters[op->parameter[port]].frozen;
        int adds = (op->kind.can_add_grad.parameters >> port) & 1;
        int skips = (op->kind.can_skip_grad.parameters >> port) & 1;
        int needs_adding =
            b->use_count[op->parameter[port]] > 1 || coh_replica_microbatches(b->options) > 1;
        int widens = !group_of(b, op->parameter[port])->f32_gradients ||
                     (op->kind.can_widen_grad >> port) & 1;
        if (frozen ? skips : widens && (adds || !needs_adding))
            continue;
        COH_TRY(add_plain(b, COH_STREAM_SCRATCH, op_index,
                          coh_shape_bytes(&op->facts.parameter[port].shape), 0,
                          &b->map->parameter_scratch[coh_port_index(op_index, port)]));
    }
    return COH_OK;
}

static coh_status add_operator_objects(builder *b)
{
    const coh_device_kind device = device_of(b);
    for (size_t i = 0; i < b->graph->op_count; i++) {
        const coh_graph_op_entry *op = &b->graph->ops[i];
        for (size_t port = coh_port_index((int32_t)i, 0); port < coh_port_index((int32_t)i + 1, 0);
             port++)
            b->map->input_scratch[port] = b->map->parameter_scratch[port] = b->map->kept[port] = -1;
        for (size_t copy = 0; copy < b->map->copies; copy++)
            COH_TRY(add_kept_forward(b, (int32_t)i, copy));
        COH_TRY(add_plain(b, COH_STREAM_SCRATCH, (int32_t)i,
                          op->workspace_bytes[device][COH_PHASE_FORWARD], 0,
                          &b->map->workspace[COH_PHASE_FORWARD][i]));
        b->map->workspace[COH_PHASE_BACKWARD][i] = -1;
        for (int32_t port = 0; port < op->kind.state_count; port++)
            COH_TRY(add_plain(b, COH_STREAM_KEPT, (int32_t)i,
                              coh_shape_bytes(&op->facts.state[port]), 1,
                              &b->map->kept[coh_port_index((int32_t)i, port)]));
        if (!b->map->runs_backward[i])
            continue;
        COH_TRY(add_plain(b, COH_STREAM_SCRATCH, (int32_t)i,
                          op->workspace_bytes[device][COH_PHASE_BACKWARD], 0,
                          &b->map->workspace[COH_PHASE_BACKWARD][i]));
        COH_TRY(add_scratch_gradients(b, (int32_t)i));
    }
    return COH_OK;
}

/* Adds an object of one chunk that belongs to no group, if it has bytes. */
static coh_status add_room(builder *b, coh_stream stream, uint64_t bytes, int32_t *out_object)
{
    *out_object = -1;
    if (bytes == 0)
        return COH_OK;
    COH_TRY(add_object(b, stream, -1, 0, out_object));
    return add_chunk(b, bytes);
}

/* Adds the objects that receive what other ranks send. */
static coh_status add_received(builder *b)
{
    const coh_received_room room = coh_received_room_of(b->layout);
    COH_TRY(add_room(b, COH_STREAM_WIRE, room.wire_bytes, &b->layout->wire));
    return add_room(b, COH_STREAM_GATHERED, room.gathered_bytes, &b->layout->gathered);
}

static coh_status add_pinned_objects(builder *b)
{
    coh_layout *layout = b->layout;
    const uint64_t microbatches = layout->microbatch_count;
    COH_TRY(add_pinned(b, COH_STREAM_CELLS, 0, sizeof(coh_cells), &layout->cells));
    layout->partials = -1;
    if (b->options->mode == COH_PLAN_TRAIN)
        COH_TRY(add_pinned(b, COH_STREAM_PARTIALS, 0,
                           (uint64_t)layout->partial_count * sizeof(double), &layout->partials));
    layout->losses = -1;
    if (b->graph->loss >= 0)
        COH_TRY(add_pinned(b, COH_STREAM_LOSS, b->graph->loss,
                           coh_layout_all_microbatches(layout) * COH_LOSS_STRIDE_BYTES,
                           &layout->losses));
    for (size_t i = 0; i < b->graph->input_count; i++) {
        uint64_t bytes = 0;
        int32_t tensor = b->graph->inputs[i];
        COH_TRY(
            coh_bytes_mul(coh_shape_bytes(&b->graph->tensors[tensor].shape), microbatches, &bytes));
        COH_TRY(add_pinned(b, COH_STREAM_INPUT, tensor, bytes, &layout->input_objects[i]));
        b->map->activation[tensor] = layout->input_objects[i];
    }
    layout->input_count = (uint32_t)b->graph->input_count;
    layout->libraries = -1;
    return device_of(b) == COH_DEVICE_CUDA
               ? add_pinned(b, COH_STREAM_SCRATCH, -1, COH_CUDA_LIBRARY_BYTES, &layout->libraries)
               : COH_OK;
}

static coh_status allocate_map(builder *b)
{
    const coh_graph *graph = b->graph;
    coh_object_map *map = b->map;
    size_t ports = graph->op_count * COH_PORT_MAX;
    int by_layers =
        b->options->mode == COH_PLAN_TRAIN && b->options->sweep_order == COH_SWEEP_LAYER;
    map->tensor_count = graph->tensor_count;
    map->op_count = graph->op_count;
    map->device = device_of(b);
    map->copies = by_layers ? (size_t)coh_replica_microbatches(b->options) : 1;
    COH_TRY(COH_ALLOC(map->copies * graph->tensor_count, &map->activation));
    COH_TRY(COH_ALLOC(map->copies * graph->tensor_count, &map->gradient));
    COH_TRY(COH_ALLOC(map->copies * graph->op_count, &map->saved));
    COH_TRY(COH_ALLOC(map->copies * graph->op_count, &map->cache));
    COH_TRY(COH_ALLOC(graph->op_count, &map->workspace[COH_PHASE_FORWARD]));
    COH_TRY(COH_ALLOC(graph->op_count, &map->workspace[COH_PHASE_BACKWARD]));
    COH_TRY(COH_ALLOC(ports, &map->input_scratch));
    COH_TRY(COH_ALLOC(ports, &map->parameter_scratch));
    COH_TRY(COH_ALLOC(ports, &map->kept));
    COH_TRY(COH_ALLOC(graph->parameter_count, &map->group_of_parameter));
    COH_TRY(COH_ALLOC(graph->parameter_count, &map->layout_of_parameter));
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->reaches_loss));
    COH_TRY(COH_ALLOC(graph->op_count, &map->runs_backward));
    COH_TRY(COH_ALLOC(graph->parameter_count, &map->row_unit));
    COH_TRY(COH_ALLOC(graph->input_count, &b->layout->input_objects));
    COH_TRY(COH_ALLOC(graph->parameter_count, &b->is_trained));
    COH_TRY(COH_ALLOC(graph->parameter_count, &b->optimizer));
    COH_TRY(COH_ALLOC(graph->parameter_count, &b->axes));
    return COH_ALLOC(graph->parameter_count, &b->use_count);
}

static coh_status build_all(builder *b)
{
    COH_TRY(allocate_map(b));
    COH_TRY(coh_rank_axes_of_parameters(b->graph, b->options, b->axes));
    b->layout->microbatch_count = (uint32_t)b->options->microbatch_count;
    b->layout->fold = b->options->replicas;
    b->layout->wires = b->options->wires;
    COH_TRY(coh_plan_mesh(b->options, &b->layout->mesh));
    COH_TRY(mark_backward(b));
    COH_TRY(add_groups(b));
    COH_TRY(add_received(b));
    COH_TRY(coh_object_map_uses(b->graph, b->layout->group_count, b->map));
    COH_TRY(add_tensors(b));
    COH_TRY(add_operator_objects(b));
    return add_pinned_objects(b);
}

coh_status coh_layout_build(const coh_graph *graph, const coh_plan_options *options,
                            const coh_decisions *decisions, coh_layout *out_layout,
                            coh_object_map *out_map)
{
    *out_layout = (coh_layout){ 0 };
    *out_map = (coh_object_map){ .patterns = decisions->patterns,
                                 .slices = decisions->slices,
                                 .row_passes = decisions->row_passes };
    if (options->mode == COH_PLAN_TRAIN && graph->loss < 0)
        return coh_fail(COH_ERR_ARGUMENT, "a graph to train needs a loss: call coh_graph_loss");
    if (graph->op_count == 0)
        return coh_fail(COH_ERR_ARGUMENT, "the graph has no operator");
    builder b = { .graph = graph,
                  .options = options,
                  .chunk_bytes = coh_layout_chunk_bytes(decisions->chunk_bytes),
                  .with_cache = decisions->cache,
                  .layout = out_layout,
                  .map = out_map };
    coh_status status = build_all(&b);
    if (status == COH_OK && decisions->light)
        status = coh_light_find(graph, options, decisions->light, out_map);
    coh_free(b.use_count);
    coh_free(b.is_trained);
    coh_free(b.optimizer);
    coh_free(b.axes);
    if (status != COH_OK) {
        coh_layout_fini(out_layout);
        coh_object_map_fini(out_map);
    }
    return status;
}
