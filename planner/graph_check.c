/* Checks each number and text that enters a graph, so that the planner and the engine need not.
 * Interface: graph_check.h; the caller is graph.c. */
#include "planner/graph_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/utf8.h"

/* Largest tensor: keeps every later sum and product of a few of them inside 64 bits. */
#define TENSOR_BYTES_MAX ((uint64_t)1 << 48)

coh_status coh_check_name(const char *what, const char *name)
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

coh_status coh_check_shape(const coh_shape *shape, const char *what)
{
    uint64_t bytes = coh_dtype_bytes(shape->dtype);
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
    return COH_OK;
}

/* The bits of ports that the kind does not have. */
static uint32_t beyond(uint32_t mask, int32_t port_count)
{
    return mask >> port_count;
}

static int masks_are_within(const coh_op_kind *kind)
{
    const coh_port_mask masks[] = { kind->backward_reads, kind->can_add_grad, kind->can_skip_grad,
                                    kind->reads_for_parameters };
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
        if (beyond(masks[i].inputs, kind->input_count) ||
            beyond(masks[i].outputs, kind->output_count) ||
            beyond(masks[i].parameters, kind->parameter_count))
            return 0;
    return !beyond(kind->row_split_parameters, kind->parameter_count) &&
           !beyond(kind->can_widen_grad, kind->parameter_count);
}

static int pairs_are_within(const coh_op_kind *kind)
{
    const coh_in_place *const pairs[COH_PHASE_COUNT] = { kind->forward_in_place,
                                                         kind->backward_in_place };
    const int most = (int)(sizeof(kind->forward_in_place) / sizeof(kind->forward_in_place[0]));
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const int32_t from_count =
            phase == COH_PHASE_FORWARD ? kind->input_count : kind->output_count;
        const int32_t to_count =
            phase == COH_PHASE_FORWARD ? kind->output_count : kind->input_count;
        if (kind->in_place_count[phase] < 0 || kind->in_place_count[phase] > most)
            return 0;
        for (int32_t i = 0; i < kind->in_place_count[phase]; i++) {
            const coh_in_place pair = pairs[phase][i];
            if (pair.from < 0 || pair.from >= from_count || pair.to < 0 || pair.to >= to_count)
                return 0;
        }
    }
    return 1;
}

coh_status coh_check_kind_abi(uint32_t abi_version, const char *name)
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

coh_status coh_check_kind(const coh_op_kind *kind, const char *name)
{
    COH_TRY(coh_check_name("kind", kind->name));
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

static coh_status check_parameter_facts(const coh_parameter_facts *facts, int32_t port)
{
    COH_TRY(coh_check_shape(&facts->shape, "parameter"));
    if (facts->shape.dtype != COH_DTYPE_F32 && facts->shape.dtype != COH_DTYPE_BF16)
        return coh_fail(COH_ERR_SHAPE, "parameter %d is neither f32 nor bf16", port);
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

coh_status coh_check_facts(const coh_graph_op_entry *op)
{
    int32_t first = -1; /* first parameter present */
    for (int32_t i = 0; i < op->kind.output_count; i++)
        COH_TRY(coh_check_shape(&op->facts.output[i], "output"));
    for (int32_t i = 0; i < op->kind.state_count; i++)
        COH_TRY(coh_check_shape(&op->facts.state[i], "state"));
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        const coh_parameter_facts *facts = &op->facts.parameter[i];
        if (facts->shape.rank == 0)
            continue;
        COH_TRY(check_parameter_facts(facts, i));
        if (first < 0)
            first = i;
        else if (facts->shape.dtype != op->facts.parameter[first].shape.dtype)
            return coh_fail(COH_ERR_SHAPE,
                            "parameters %d and %d differ in dtype; all of one operator have one",
                            first, i);
    }
    COH_TRY(check_amounts(op));
    for (int32_t i = 0; i < op->kind.input_count; i++)
        if (op->facts.index_range[i].least > op->facts.index_range[i].end)
            return coh_fail(COH_ERR_SHAPE, "the range of input %d ends before it begins", i);
    if (op->kind.is_loss && (coh_shape_elements(&op->facts.output[0]) != 1 ||
                             op->facts.output[0].dtype != COH_DTYPE_F32))
        return coh_fail(COH_ERR_SHAPE, "a loss has one element, in f32");
    return COH_OK;
}
