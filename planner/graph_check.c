/* Checks of what enters a graph: shapes, kinds, and the facts that infer gives. Next: graph.c. */
#include "planner/graph_check.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

coh_status coh_graph_check_name(const char *what, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return coh_fail(COH_ERR_ARGUMENT, "the name of this %s is %s: give it a name", what,
                        name == NULL ? "NULL" : "empty");
    const size_t bytes = strnlen(name, COH_NAME_BYTES_MOST + 1);
    if (bytes > COH_NAME_BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%s %.60s...: its name has more than %d bytes", what,
                        name, COH_NAME_BYTES_MOST);
    int is_plain = coh_utf8_stretch((const uint8_t *)name, bytes) == bytes;
    for (size_t i = 0; is_plain && i < bytes; i++)
        is_plain = !coh_utf8_control(name + i);
    if (!is_plain)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s %.60s: its name is not UTF-8 without control characters, so no "
                        "checkpoint could hold it",
                        what, name);
    return COH_OK;
}

/* Largest tensor: keeps every later sum and product of a few of them inside 64 bits. */
#define TENSOR_BYTES_MAX ((uint64_t)1 << 48)

/* Checks a shape: 1..COH_RANK_MAX dimensions of at least 1, at most 2^48 bytes. Only parameters are
 * nf4. */
coh_status coh_graph_check_shape(const coh_shape *shape, const char *what, int is_parameter)
{
    uint64_t bytes = coh_dtype_array_bytes(shape->dtype, 1);
    if (shape->dtype == COH_DTYPE_NF4 && !is_parameter)
        return coh_fail(COH_ERR_SHAPE, "%s: only parameters are nf4", what);
    if (bytes == 0)
        return coh_fail(COH_ERR_SHAPE, "%s: %d is not a dtype", what, (int)shape->dtype);
    if (shape->rank < 1 || shape->rank > COH_RANK_MAX)
        return coh_fail(COH_ERR_SHAPE, "%s: rank %d is not 1..%d", what, shape->rank, COH_RANK_MAX);
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 1)
            return coh_fail(COH_ERR_SHAPE, "%s: dimension %d is %" PRId64 ", must be at least 1",
                            what, i, shape->dim[i]);
        if (__builtin_mul_overflow(bytes, (uint64_t)shape->dim[i], &bytes) ||
            bytes > TENSOR_BYTES_MAX)
            return coh_fail(COH_ERR_SHAPE, "%s: more than 2^48 bytes", what);
    }
    return COH_OK;
}

/* ---- kinds ---- */

enum {
    PAIRS_MOST = sizeof((coh_op_kind){ 0 }.forward_in_place) / sizeof(coh_in_place) /* of a phase */
};

static coh_status check_counts(const coh_op_kind *kind, const char *name)
{
    const int32_t counts[] = { kind->input_count, kind->output_count, kind->parameter_count,
                               kind->state_count };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i] < 0 || counts[i] > COH_PORT_MAX)
            return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s has %d ports, at most %d", name,
                            kind->name, counts[i], COH_PORT_MAX);
    if (kind->output_count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s has no output", name, kind->name);
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
        if (kind->in_place_count[phase] < 0 || kind->in_place_count[phase] > PAIRS_MOST)
            return coh_fail(COH_ERR_ARGUMENT,
                            "operator %s: in_place_count[%d] of kind %s is %d: give the number of "
                            "pairs, 0 to %d",
                            name, phase, kind->name, kind->in_place_count[phase], PAIRS_MOST);
    return COH_OK;
}

static int masks_are_within(const coh_op_kind *kind)
{
    const coh_port_mask masks[] = { kind->backward_reads, kind->can_add_grad, kind->can_skip_grad,
                                    kind->reads_for_parameters };
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
        if (coh_ports_beyond(masks[i].inputs, kind->input_count) ||
            coh_ports_beyond(masks[i].outputs, kind->output_count) ||
            coh_ports_beyond(masks[i].parameters, kind->parameter_count))
            return 0;
    return !coh_ports_beyond(kind->row_split_parameters, kind->parameter_count) &&
           !coh_ports_beyond(kind->can_widen_grad, kind->parameter_count) &&
           !coh_ports_beyond(kind->overwrites_output_grads, kind->output_count);
}

/* reads_for_parameters is a part of backward_reads, since it says which of them may be left out. */
static int left_out_reads_are_reads(const coh_op_kind *kind)
{
    const coh_port_mask part = kind->reads_for_parameters, whole = kind->backward_reads;
    return (part.inputs & ~whole.inputs) == 0 && (part.outputs & ~whole.outputs) == 0;
}

static int pairs_are_within(const coh_op_kind *kind)
{
    const coh_in_place *const pairs[COH_PHASE_COUNT] = { kind->forward_in_place,
                                                         kind->backward_in_place };
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const int32_t from_count =
            phase == COH_PHASE_FORWARD ? kind->input_count : kind->output_count;
        const int32_t to_count =
            phase == COH_PHASE_FORWARD ? kind->output_count : kind->input_count;
        for (int32_t i = 0; i < kind->in_place_count[phase]; i++) {
            const coh_in_place pair = pairs[phase][i];
            if (pair.from < 0 || pair.from >= from_count || pair.to < 0 || pair.to >= to_count)
                return 0;
        }
    }
    return 1;
}

/* Checks the ABI that the kind of operator `name` was compiled for. No other member may be read
 * before. */
coh_status coh_graph_check_abi(uint32_t abi_version, const char *name)
{
    if (abi_version == COH_KIND_ABI)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "operator %s: its kind was compiled for ABI version %u of kinds, and this "
                    "library has version %u: %s",
                    name, abi_version, COH_KIND_ABI,
                    abi_version > COH_KIND_ABI
                        ? "use a newer library"
                        : "compile it again; its functions belong in coh_op_kind.devices");
}

/* Checks functions and port numbers of the kind of operator `name`. */
coh_status coh_graph_check_kind(const coh_op_kind *kind, const char *name)
{
    COH_TRY(coh_graph_check_name("kind", kind->name));
    if (kind->infer == NULL || kind->devices[COH_DEVICE_HOST].forward == NULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: kind %s lacks infer, or forward of the host device", name,
                        kind->name);
    COH_TRY(check_counts(kind, name));
    if (!masks_are_within(kind) || !pairs_are_within(kind))
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: kind %s names a port that it does not have (in a mask of "
                        "ports, or in a pair that shares bytes)",
                        name, kind->name);
    if (!left_out_reads_are_reads(kind))
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: kind %s names a port in reads_for_parameters that "
                        "backward_reads does not name: name it in both",
                        name, kind->name);
    if (kind->row_split_parameters & (kind->row_split_parameters - 1))
        return coh_fail(COH_ERR_ARGUMENT, "operator %s: kind %s splits rows of several parameters",
                        name, kind->name);
    if (kind->column_slices && kind->row_split_parameters != 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "operator %s: kind %s slices, and it is not parameter 0 that it splits",
                        name, kind->name);
    return COH_OK;
}

/* ---- facts ---- */

/* Checks that infer describes no port from `count` on, and no such port has a name. */
static coh_status check_beyond(const char *what, const coh_shape *shape, size_t stride,
                               int32_t count)
{
    for (int32_t i = count; i < COH_PORT_MAX; i++) {
        const coh_shape *at =
            (const coh_shape *)(const void *)((const char *)shape + (size_t)i * stride);
        if (at->rank != 0)
            return coh_fail(COH_ERR_SHAPE,
                            "infer describes %s %d, and the kind counts %d: raise %s_count", what,
                            i, count, what);
    }
    return COH_OK;
}

static coh_status check_ports_beyond(const coh_graph_op_entry *op)
{
    const coh_op_facts *facts = &op->facts;
    COH_TRY(check_beyond("output", facts->output, sizeof(facts->output[0]), op->kind.output_count));
    COH_TRY(check_beyond("parameter", &facts->parameter[0].shape, sizeof(facts->parameter[0]),
                         op->kind.parameter_count));
    return check_beyond("state", facts->state, sizeof(facts->state[0]), op->kind.state_count);
}

static coh_status check_ranges(const coh_graph_op_entry *op, const coh_shape *inputs)
{
    for (int32_t i = 0; i < COH_PORT_MAX; i++) {
        const coh_index_range range = op->facts.index_range[i];
        const int counts = (op->facts.counting_inputs >> i & 1u) != 0;
        if (counts && (i >= op->kind.input_count || inputs[i].dtype != COH_DTYPE_I32))
            return coh_fail(COH_ERR_SHAPE,
                            "input %d counts tokens of documents, and is no integer input of the "
                            "kind",
                            i);
        if (range.least == 0 && range.end == 0)
            continue;
        if (range.least > range.end)
            return coh_fail(COH_ERR_SHAPE, "the range of input %d ends before it begins", i);
        if (i >= op->kind.input_count || inputs[i].dtype != COH_DTYPE_I32)
            return coh_fail(COH_ERR_SHAPE,
                            "input %d has a range of indices, and is no integer input of the kind",
                            i);
    }
    return COH_OK;
}

static coh_status check_parameter_facts(const coh_parameter_facts *facts, int32_t port)
{
    if (facts->name == NULL || facts->name[0] == '\0')
        return coh_fail(COH_ERR_SHAPE,
                        "the name of parameter %d is %s: a checkpoint needs one, as \"weight\"",
                        port, facts->name == NULL ? "NULL" : "empty");
    COH_TRY(coh_graph_check_shape(&facts->shape, "parameter", 1));
    if (facts->shape.dtype == COH_DTYPE_NF4) {
        if (facts->shape.dim[facts->shape.rank - 1] % COH_NF4_ROW_UNIT != 0)
            return coh_fail(COH_ERR_SHAPE,
                            "parameter %d is nf4 with rows of %" PRId64
                            " elements: a multiple of %d is needed",
                            port, facts->shape.dim[facts->shape.rank - 1], COH_NF4_ROW_UNIT);
    } else if (facts->shape.dtype != COH_DTYPE_F32 && facts->shape.dtype != COH_DTYPE_BF16) {
        return coh_fail(COH_ERR_SHAPE, "parameter %d is neither f32 nor bf16", port);
    }
    if (!(facts->init_std >= 0) || isinf(facts->init_std))
        return coh_fail(COH_ERR_SHAPE,
                        "parameter %d: init_std is %g: 0 or a positive number is "
                        "possible",
                        port, (double)facts->init_std);
    if (facts->init < COH_INIT_ZERO || facts->init > COH_INIT_UNIFORM)
        return coh_fail(COH_ERR_SHAPE, "parameter %d: %d is not a coh_init", port,
                        (int)facts->init);
    if (facts->row_block < 0)
        return coh_fail(COH_ERR_SHAPE,
                        "parameter %d: its row_block is %" PRId64 ": 0 or more rows "
                        "are possible",
                        port, facts->row_block);
    return COH_OK;
}

static int is_amount(double value)
{
    return value >= 0 && !isinf(value);
}

static coh_status check_amounts(const coh_graph_op_entry *op)
{
    const coh_op_facts *facts = &op->facts;
    const uint64_t most = TENSOR_BYTES_MAX;
    if (facts->saved_bytes > most || facts->cache_bytes > most)
        return coh_fail(COH_ERR_SHAPE, "saved, cache or workspace bytes above 2^48");
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        for (int device = 0; device < COH_DEVICE_KINDS; device++)
            if (op->workspace_bytes[device][phase] > most)
                return coh_fail(COH_ERR_SHAPE, "saved, cache or workspace bytes above 2^48");
        if (!is_amount(facts->flops[phase]) || !is_amount(facts->bytes[phase]))
            return coh_fail(COH_ERR_SHAPE,
                            "%g flops and %g bytes of traffic: finite numbers from "
                            "0 on are possible",
                            facts->flops[phase], facts->bytes[phase]);
    }
    if (!(facts->cache_saves_flops >= 0 &&
          facts->cache_saves_flops <= facts->flops[COH_PHASE_BACKWARD]))
        return coh_fail(COH_ERR_SHAPE, "a cache saves from none to all flops of backward");
    return COH_OK;
}

/* Checks what infer reported about op->kind for these inputs. */
coh_status coh_graph_check_facts(const coh_graph_op_entry *op, const coh_shape *inputs)
{
    int32_t first = -1; /* first parameter present */
    COH_TRY(check_ports_beyond(op));
    for (int32_t i = 0; i < op->kind.output_count; i++)
        COH_TRY(coh_graph_check_shape(&op->facts.output[i], "output", 0));
    for (int32_t i = 0; i < op->kind.state_count; i++)
        COH_TRY(coh_graph_check_shape(&op->facts.state[i], "state", 0));
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        const coh_parameter_facts *facts = &op->facts.parameter[i];
        if (facts->shape.rank == 0)
            continue;
        COH_TRY(check_parameter_facts(facts, i));
        if (facts->shape.dtype == COH_DTYPE_NF4)
            continue;
        if (first < 0)
            first = i;
        else if (facts->shape.dtype != op->facts.parameter[first].shape.dtype)
            return coh_fail(COH_ERR_SHAPE,
                            "parameters %d and %d differ in dtype; all of one operator have one",
                            first, i);
    }
    COH_TRY(check_amounts(op));
    COH_TRY(check_ranges(op, inputs));
    if (op->kind.is_loss && (coh_shape_elements(&op->facts.output[0]) != 1 ||
                             op->facts.output[0].dtype != COH_DTYPE_F32))
        return coh_fail(COH_ERR_SHAPE, "a loss has one element, in f32");
    return COH_OK;
}
