/* Guarded memory and calls of one operator: fills every buffer before a phase, builds the call as
 * an engine would, and compares what the phase may not write. Next: op_trial.h. */
#include "engine/op_trial.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/nf4.h"
#include "planner/row_unit.h"

enum { ALIGN = COH_GUARD_ALIGN, UNKNOWN = -1 };
#define BYTES_MOST ((size_t)256 << 20)

/* ---- elements ---- */

/* Is it looked at by bytes? Elements in NF4 have none of their own. */
static int is_bytes(const coh_trial_buffer *buffer)
{
    return buffer->shape.rank == 0 || buffer->shape.dtype == COH_DTYPE_NF4;
}

int64_t coh_trial_count(const coh_trial_buffer *buffer)
{
    return is_bytes(buffer) ? (int64_t)buffer->bytes : coh_shape_elements(&buffer->shape);
}

static size_t element_bytes(const coh_trial_buffer *buffer)
{
    return is_bytes(buffer) ? 1 : coh_dtype_bytes(buffer->shape.dtype);
}

double coh_trial_number(const coh_trial_buffer *buffer, const char *data, int64_t element)
{
    const char *at = data + element * (int64_t)element_bytes(buffer);
    uint32_t bits = 0;
    int32_t integer;
    float value;
    if (is_bytes(buffer))
        return (double)(unsigned char)*at;
    if (buffer->shape.dtype == COH_DTYPE_I32) {
        memcpy(&integer, at, sizeof(integer));
        return (double)integer;
    }
    if (buffer->shape.dtype == COH_DTYPE_F32) {
        memcpy(&value, at, sizeof(value));
        return (double)value;
    }
    memcpy((char *)&bits + 2, at, 2); /* bf16 is the upper half of an f32 */
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* Multiples of 2^-13, so that a step by a power of two from 2^-10 on is exact. */
static float normal(uint64_t seed, uint64_t stream, int64_t i)
{
    return (float)(rint(coh_rng_normal(seed, stream, (uint64_t)i) * 0x1p13) * 0x1p-13);
}

static void put_float(const coh_trial_buffer *buffer, int64_t i, float value)
{
    uint32_t bits;
    if (buffer->shape.dtype == COH_DTYPE_F32) {
        ((float *)(void *)buffer->values)[i] = value;
        return;
    }
    memcpy(&bits, &value, sizeof(bits));
    ((uint16_t *)(void *)buffer->values)[i] = (uint16_t)(bits >> 16);
}

static void fill_normal(const coh_trial_buffer *buffer, uint64_t seed, uint64_t stream, float mean,
                        float deviation)
{
    for (int64_t i = 0; buffer->data != NULL && i < coh_trial_count(buffer); i++)
        put_float(buffer, i, mean + deviation * normal(seed, stream, i));
}

/* A weight in NF4, which is frozen. */
static void fill_packed(const coh_trial_buffer *buffer, uint64_t seed, uint64_t stream)
{
    float block[COH_NF4_BLOCK];
    char *at = buffer->values;
    for (int64_t i = 0; i < coh_shape_elements(&buffer->shape); i += COH_NF4_BLOCK) {
        for (int k = 0; k < COH_NF4_BLOCK; k++)
            block[k] = 0.5f * normal(seed, stream, i + k);
        coh_nf4_quantise(at, block, COH_NF4_BLOCK);
        at += COH_NF4_BLOCK_BYTES;
    }
}

static void fill_integers(const coh_trial_buffer *buffer, coh_index_range range, uint64_t seed,
                          uint64_t stream)
{
    int32_t *values = (int32_t *)(void *)buffer->values;
    for (int64_t i = 0; i < coh_trial_count(buffer); i++)
        values[i] = range.end > range.least
                        ? (int32_t)(range.least +
                                    (int64_t)coh_rng_below(seed, stream, (uint64_t)i,
                                                           (uint64_t)(range.end - range.least)))
                        : 0;
}

/* Counts the tokens of documents along the last axis, each of four on average. */
static void fill_counting(const coh_trial_buffer *buffer, uint64_t seed, uint64_t stream)
{
    const int64_t row = buffer->shape.dim[buffer->shape.rank - 1];
    int32_t *values = (int32_t *)(void *)buffer->values;
    for (int64_t i = 0; i < coh_trial_count(buffer); i++)
        values[i] = i % row == 0 || coh_rng_below(seed, stream, (uint64_t)i, 4) == 0
                        ? 0
                        : values[i - 1] + 1;
}

/* ---- memory ---- */

static void describe(coh_trial_buffer *buffer, const coh_shape *shape)
{
    if (shape->rank == 0)
        return;
    buffer->shape = *shape;
    buffer->bytes =
        (size_t)coh_dtype_array_bytes(shape->dtype, (uint64_t)coh_shape_elements(shape));
}

static void describe_all(coh_trial *trial, const coh_graph *graph, uint32_t widens)
{
    const coh_graph_op_entry *op = trial->op;
    coh_trial_buffer(*b)[COH_PORT_MAX] = trial->buffer;
    const int trains = op->kind.devices[trial->on].backward != NULL;
    for (int32_t i = 0; i < op->kind.input_count; i++) {
        const coh_shape *shape = &graph->tensors[op->input[i]].shape;
        describe(&b[COH_TRIAL_INPUT][i], shape);
        if (trains && shape->dtype != COH_DTYPE_I32)
            describe(&b[COH_TRIAL_INPUT_GRAD][i], shape);
    }
    for (int32_t i = 0; i < op->kind.output_count; i++) {
        describe(&b[COH_TRIAL_OUTPUT][i], &op->facts.output[i]);
        if (trains && !op->kind.is_loss && op->facts.output[i].dtype != COH_DTYPE_I32)
            describe(&b[COH_TRIAL_OUTPUT_GRAD][i], &op->facts.output[i]);
    }
    for (int32_t i = 0; i < op->kind.parameter_count; i++) {
        coh_shape gradient = op->facts.parameter[i].shape;
        describe(&b[COH_TRIAL_PARAMETER][i], &gradient);
        if (gradient.dtype == COH_DTYPE_NF4) /* has none */
            continue;
        if (widens >> i & 1u)
            gradient.dtype = COH_DTYPE_F32;
        if (trains)
            describe(&b[COH_TRIAL_PARAMETER_GRAD][i], &gradient);
    }
    for (int32_t i = 0; i < op->kind.state_count; i++)
        describe(&b[COH_TRIAL_STATE][i], &op->facts.state[i]);
    const uint64_t *scratch = op->workspace_bytes[trial->on];
    b[COH_TRIAL_SAVED][0].bytes = op->facts.saved_bytes;
    b[COH_TRIAL_CACHE][0].bytes = op->facts.cache_bytes;
    b[COH_TRIAL_RANDOM_CELL][0].bytes = sizeof(coh_random_cell);
    b[COH_TRIAL_LOSS_FACTOR_CELL][0].bytes = sizeof(float);
    b[COH_TRIAL_ATTRIBUTES][0].bytes = op->attribute_bytes + COH_ATTRIBUTES_GROWTH;
    /* one buffer for each phase, so that each has its own end */
    b[COH_TRIAL_WORKSPACE][COH_PHASE_FORWARD].bytes = scratch[COH_PHASE_FORWARD];
    b[COH_TRIAL_WORKSPACE][COH_PHASE_BACKWARD].bytes = scratch[COH_PHASE_BACKWARD];
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Places a buffer at `at`; returns the end of its room. */
static char *place(coh_trial *trial, int role, int port, char **values, char *at)
{
    coh_trial_buffer *b = &trial->buffer[role][port];
    const size_t i = trial->guarded_count;
    if (b->bytes == 0)
        return at;
    at = coh_guard_place(at, b->bytes, UNKNOWN, &trial->guarded[i]);
    trial->guarded_of[i].role = (coh_trial_role)role;
    trial->guarded_of[i].port = port;
    trial->guarded_count++;
    b->data = trial->guarded[i].data;
    b->values = *values;
    *values += rounded(b->bytes);
    return at;
}

static void place_all(coh_trial *trial, int shift)
{
    char *at = trial->memory.data + COH_GUARD_MARGIN + (size_t)shift * ALIGN;
    char *values = trial->values;
    at = place(trial, COH_TRIAL_ATTRIBUTES, 0, &values, at);
    trial->image.host = at;
    trial->image.bytes = (size_t)(trial->memory.data + trial->memory.bytes - at);
    for (int role = 0; role < COH_TRIAL_ATTRIBUTES; role++)
        for (int port = 0; port < COH_PORT_MAX; port++)
            at = place(trial, role, port, &values, at);
    coh_guard_add_margins(trial->guarded, trial->guarded_count);
}

static void fill_constants(coh_trial *trial)
{
    const coh_random_cell random = { .seed = 0x243f6a8885a308d3u, .step = 0x1300000007u };
    const float loss_factor = 2.0f;
    memcpy(trial->buffer[COH_TRIAL_RANDOM_CELL][0].values, &random, sizeof(random));
    memcpy(trial->buffer[COH_TRIAL_LOSS_FACTOR_CELL][0].values, &loss_factor, sizeof(loss_factor));
    memcpy(trial->buffer[COH_TRIAL_ATTRIBUTES][0].values, trial->op->attributes,
           trial->buffer[COH_TRIAL_ATTRIBUTES][0].bytes);
}

static void fill_values(coh_trial *trial, uint64_t seed)
{
    const coh_graph_op_entry *op = trial->op;
    for (int port = 0; port < COH_PORT_MAX; port++) {
        const coh_trial_buffer *input = &trial->buffer[COH_TRIAL_INPUT][port];
        const coh_trial_buffer *parameter = &trial->buffer[COH_TRIAL_PARAMETER][port];
        const uint64_t stream = (uint64_t)port;
        const coh_init init = op->facts.parameter[port].init;
        if (input->data != NULL && (op->facts.counting_inputs >> port & 1u) != 0)
            fill_counting(input, seed, stream);
        else if (input->data != NULL && input->shape.dtype == COH_DTYPE_I32)
            fill_integers(input, op->facts.index_range[port], seed, stream);
        else
            fill_normal(input, seed, stream, 0.0f, 1.0f);
        if (parameter->data != NULL && parameter->shape.dtype == COH_DTYPE_NF4)
            fill_packed(parameter, seed, 100 + stream);
        else
            fill_normal(parameter, seed, 100 + stream, init == COH_INIT_ONE ? 1.0f : 0.0f, 0.5f);
        fill_normal(&trial->buffer[COH_TRIAL_OUTPUT_GRAD][port], seed, 200 + stream, 0.0f, 1.0f);
        fill_normal(&trial->buffer[COH_TRIAL_INPUT_GRAD][port], seed, 300 + stream, 0.0f, 1.0f);
        fill_normal(&trial->buffer[COH_TRIAL_PARAMETER_GRAD][port], seed, 400 + stream, 0.0f, 1.0f);
    }
    fill_constants(trial);
}

coh_status coh_trial_create(const coh_graph *graph, coh_device_kind on, coh_trial_form form,
                            coh_trial *out_trial)
{
    coh_trial *trial = out_trial;
    size_t room = (size_t)form.shift * ALIGN, value_bytes = ALIGN;
    *trial = (coh_trial){ .op = &graph->ops[graph->op_count - 1], .on = on };
    describe_all(trial, graph, form.widens);
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            const size_t own = trial->buffer[role][port].bytes;
            if (own > BYTES_MOST || value_bytes > BYTES_MOST)
                return coh_fail(
                    COH_ERR_ARGUMENT,
                    "an operator of more than %zu MiB is too large for a check: smaller "
                    "shapes find the same mistakes",
                    BYTES_MOST >> 20);
            room += own > 0 ? coh_guard_room(own) : 0;
            value_bytes += rounded(own);
        }
    COH_TRY(coh_guarded_memory_init(coh_guard_room_all(room), &trial->memory));
    const coh_status status = coh_alloc(value_bytes, 1, (void **)&trial->values);
    if (status != COH_OK) {
        coh_trial_destroy(trial);
        return status;
    }
    place_all(trial, form.shift);
    fill_values(trial, form.seed);
    return COH_OK;
}

coh_status coh_trial_attach(coh_trial *trial, coh_op_device *device)
{
    trial->device = device;
    return coh_op_device_place(device, &trial->image);
}

void coh_trial_destroy(coh_trial *trial)
{
    coh_guarded_memory_fini(&trial->memory);
    coh_free(trial->values);
    trial->values = NULL;
}

/* ---- contents before a phase ---- */

static int guard_byte(const coh_trial_way *way, int role, int port)
{
    const int is_named = way->guard_role == role && way->guard_port == port;
    return way->guard_role == COH_TRIAL_EVERY || is_named ? COH_TRIAL_NAN_BYTE
                                                          : COH_TRIAL_SMALL_BYTE;
}

/* Fills those guards that do not hold their byte yet. They keep it, unless a write outside is
 * found. */
static void set_guards(coh_trial *trial, const coh_trial_way *way)
{
    for (size_t i = 0; i < trial->guarded_count; i++) {
        coh_guarded *guarded = &trial->guarded[i];
        const int byte = guard_byte(way, (int)trial->guarded_of[i].role, trial->guarded_of[i].port);
        if (guarded->byte == byte)
            continue;
        guarded->byte = byte;
        coh_guard_fill(guarded);
    }
}

static void fill_role(coh_trial *trial, const coh_trial_way *way, coh_trial_role role, int port)
{
    coh_trial_buffer *b = &trial->buffer[role][port];
    if (b->data != NULL)
        memset(b->data, way->fill_role == (int)role ? way->fill_byte : 0, b->bytes);
}

static void load(coh_trial *trial, coh_trial_role role)
{
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *b = &trial->buffer[role][port];
        if (b->data != NULL)
            memcpy(b->data, b->values, b->bytes);
    }
}

static void keep(coh_trial *trial, coh_trial_role role)
{
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *b = &trial->buffer[role][port];
        if (b->data != NULL)
            memcpy(b->values, b->data, b->bytes);
    }
}

/* ---- the call ---- */

static coh_view view_of(const coh_trial_buffer *b)
{
    coh_view view = { .data = b->data, .shape = b->shape };
    int64_t stride = 1;
    for (int32_t axis = b->shape.rank - 1; axis >= 0; axis--) {
        view.stride[axis] = stride;
        stride *= b->shape.dim[axis];
    }
    return view;
}

static void set_views(const coh_trial *trial, coh_trial_role role, coh_view views[COH_PORT_MAX])
{
    for (int port = 0; port < COH_PORT_MAX; port++)
        views[port] = view_of(&trial->buffer[role][port]);
}

static coh_call plain_call(coh_trial *trial, const coh_trial_way *way, coh_phase phase)
{
    const coh_graph_op_entry *op = trial->op;
    const void *loss_factor_cell = trial->buffer[COH_TRIAL_LOSS_FACTOR_CELL][0].data;
    const void *random_cell = trial->buffer[COH_TRIAL_RANDOM_CELL][0].data;
    const int has_cell = way->has_cell || (op->kind.draws && !way->is_evaluation);
    coh_call call = { .attributes = trial->buffer[COH_TRIAL_ATTRIBUTES][0].data,
                      .queue = way->queue,
                      .microbatch = way->microbatch,
                      .operator_index = way->words != 0 ? way->words : way->microbatch,
                      .random_cell = has_cell ? random_cell : NULL,
                      .saved = trial->buffer[COH_TRIAL_SAVED][0].data,
                      .workspace = trial->buffer[COH_TRIAL_WORKSPACE][phase].data,
                      .cache = way->has_cache ? trial->buffer[COH_TRIAL_CACHE][0].data : NULL,
                      .loss_scale = way->loss_scale,
                      .loss_share = way->loss_scale / 2.0f,
                      .loss_factor_cell = loss_factor_cell };
    load(trial, COH_TRIAL_RANDOM_CELL);
    load(trial, COH_TRIAL_LOSS_FACTOR_CELL);
    load(trial, COH_TRIAL_ATTRIBUTES);
    set_views(trial, COH_TRIAL_INPUT, call.input);
    set_views(trial, COH_TRIAL_OUTPUT, call.output);
    set_views(trial, COH_TRIAL_PARAMETER, call.parameter);
    set_views(trial, COH_TRIAL_STATE, call.state);
    return call;
}

/* ---- ranges of rows ---- */

static void narrow(coh_view *view, int64_t begin, int64_t end)
{
    if (view->data == NULL)
        return;
    view->data = (char *)view->data +
                 coh_dtype_array_bytes(view->shape.dtype, (uint64_t)(begin * view->stride[0]));
    view->shape.dim[0] = end - begin;
    view->origin[0] = begin;
}

/* Calls the kind's function of the trial's device. */
static coh_status invoke(coh_trial *trial, const coh_trial_way *way, coh_phase phase,
                         const coh_call *call)
{
    const coh_kind_function function = coh_kind_function_of(&trial->op->kind, trial->on, phase);
    const coh_op_device_call there = { function, phase, call, way->is_recorded };
    if (trial->device != NULL)
        return coh_op_device_run(trial->device, &trial->image, &there);
    coh_error_clear();
    return coh_check_status(function(call), "its function");
}

static coh_status run_ranges(coh_trial *trial, const coh_trial_way *way, coh_phase phase)
{
    const coh_op_kind *kind = &trial->op->kind;
    const int split = __builtin_ctz(kind->row_split_parameters);
    const coh_parameter_facts *facts = &trial->op->facts.parameter[split];
    const int64_t rows = facts->shape.dim[0], block = coh_row_block(kind, facts, trial->on);
    for (int64_t begin = 0; begin < rows; begin += block) {
        coh_call call = trial->call;
        call.row_begin = begin;
        call.row_end = begin + block < rows ? begin + block : rows;
        call.row_count = rows;
        narrow(&call.parameter[split], call.row_begin, call.row_end);
        narrow(&call.parameter_grad[split], call.row_begin, call.row_end);
        for (int i = 0; kind->column_slices && begin > 0 && i < kind->parameter_count; i++)
            if (i != split)
                call.parameter_grad[i].data = NULL; /* the first range has written it */
        if (begin > 0 && !(kind->column_slices && phase == COH_PHASE_BACKWARD) && call.workspace)
            memset(call.workspace, 0, trial->buffer[COH_TRIAL_WORKSPACE][phase].bytes);
        COH_TRY(invoke(trial, way, phase, &call));
    }
    return COH_OK;
}

static coh_status run(coh_trial *trial, const coh_trial_way *way, coh_phase phase)
{
    return way->in_ranges ? run_ranges(trial, way, phase) : invoke(trial, way, phase, &trial->call);
}

/* ---- phases ---- */

/* Returns the pair of ports that shares memory in the present phase; NULL: none. */
static const coh_in_place *pair_of(const coh_trial *trial, const coh_trial_way *way)
{
    const coh_op_kind *kind = &trial->op->kind;
    const coh_in_place *pairs =
        trial->phase == COH_PHASE_FORWARD ? kind->forward_in_place : kind->backward_in_place;
    return way->in_place > 0 && way->in_place <= kind->in_place_count[trial->phase]
               ? &pairs[way->in_place - 1]
               : NULL;
}

coh_status coh_trial_forward(coh_trial *trial, const coh_trial_way *way)
{
    trial->phase = COH_PHASE_FORWARD;
    set_guards(trial, way);
    load(trial, COH_TRIAL_INPUT);
    load(trial, COH_TRIAL_PARAMETER);
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *state = &trial->buffer[COH_TRIAL_STATE][port];
        if (state->data != NULL)
            memset(state->data, 0, state->bytes);
        fill_role(trial, way, COH_TRIAL_OUTPUT, port);
    }
    fill_role(trial, way, COH_TRIAL_SAVED, 0);
    fill_role(trial, way, COH_TRIAL_CACHE, 0);
    fill_role(trial, way, COH_TRIAL_WORKSPACE, COH_PHASE_FORWARD);
    trial->call = plain_call(trial, way, COH_PHASE_FORWARD);
    const coh_in_place *pair = pair_of(trial, way);
    if (pair != NULL)
        trial->call.output[pair->to].data = trial->call.input[pair->from].data;
    COH_TRY(run(trial, way, COH_PHASE_FORWARD));
    if (pair != NULL) {
        const coh_trial_buffer *to = &trial->buffer[COH_TRIAL_OUTPUT][pair->to];
        memcpy(to->data, trial->call.output[pair->to].data, to->bytes);
        load(trial, COH_TRIAL_INPUT); /* backward of this trial finds them again */
    }
    keep(trial, COH_TRIAL_OUTPUT);
    keep(trial, COH_TRIAL_SAVED);
    keep(trial, COH_TRIAL_STATE);
    return COH_OK;
}

static void hide(coh_trial *trial, const coh_trial_way *way, coh_trial_role role, uint32_t reads,
                 coh_view views[COH_PORT_MAX])
{
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *b = &trial->buffer[role][port];
        if (b->data == NULL || (reads >> port & 1u))
            continue;
        const int is_nan = way->hidden == COH_TRIAL_HIDDEN_NAN && way->hidden_role == (int)role &&
                           way->hidden_port == port;
        memset(b->data, is_nan ? COH_TRIAL_NAN_BYTE : 0, b->bytes);
        if (way->hidden == COH_TRIAL_HIDDEN_ABSENT)
            views[port] = (coh_view){ 0 };
    }
}

static uint32_t read_inputs(const coh_op_kind *kind, const coh_trial_way *way)
{
    return kind->backward_reads.inputs & ~(way->is_frozen ? kind->reads_for_parameters.inputs : 0u);
}

static uint32_t read_outputs(const coh_op_kind *kind, const coh_trial_way *way)
{
    return kind->backward_reads.outputs &
           ~(way->is_frozen ? kind->reads_for_parameters.outputs : 0u);
}

/* As the engine gives them: an output that nothing uses has none. */
static void set_output_gradients(coh_trial *trial, const coh_trial_way *way,
                                 coh_view views[COH_PORT_MAX])
{
    load(trial, COH_TRIAL_OUTPUT_GRAD);
    set_views(trial, COH_TRIAL_OUTPUT_GRAD, views);
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *b = &trial->buffer[COH_TRIAL_OUTPUT_GRAD][port];
        if (b->data != NULL && (way->zero_output_grads >> port & 1u))
            memset(b->data, 0, b->bytes);
        if (way->absent_output_grads >> port & 1u)
            views[port] = (coh_view){ 0 };
    }
}

/* Gradients that are added to begin with their buffer's values. */
static void set_gradients(coh_trial *trial, const coh_trial_way *way, coh_trial_role role,
                          uint32_t adds, uint32_t skips, coh_view views[COH_PORT_MAX])
{
    set_views(trial, role, views);
    for (int port = 0; port < COH_PORT_MAX; port++) {
        coh_trial_buffer *b = &trial->buffer[role][port];
        if (b->data == NULL)
            continue;
        if (adds >> port & 1u)
            memcpy(b->data, b->values, b->bytes);
        else
            fill_role(trial, way, role, port);
        if (skips >> port & 1u)
            views[port] = (coh_view){ 0 };
    }
}

coh_status coh_trial_backward(coh_trial *trial, const coh_trial_way *way)
{
    const coh_op_kind *kind = &trial->op->kind;
    coh_call *call = &trial->call;
    const uint32_t frozen = way->is_frozen ? (1u << kind->parameter_count) - 1u : 0u;
    trial->phase = COH_PHASE_BACKWARD;
    set_guards(trial, way);
    *call = plain_call(trial, way, COH_PHASE_BACKWARD);
    hide(trial, way, COH_TRIAL_INPUT, read_inputs(kind, way), call->input);
    hide(trial, way, COH_TRIAL_OUTPUT, read_outputs(kind, way), call->output);
    hide(trial, way, COH_TRIAL_PARAMETER, kind->backward_reads.parameters, call->parameter);
    fill_role(trial, way, COH_TRIAL_WORKSPACE, COH_PHASE_BACKWARD);
    set_output_gradients(trial, way, call->output_grad);
    memset(call->state, 0, sizeof(call->state));
    set_gradients(trial, way, COH_TRIAL_INPUT_GRAD, way->adds.inputs, way->skips.inputs,
                  call->input_grad);
    set_gradients(trial, way, COH_TRIAL_PARAMETER_GRAD, way->adds.parameters,
                  way->skips.parameters | frozen, call->parameter_grad);
    call->input_grad_adds = way->adds.inputs;
    call->parameter_grad_adds = way->adds.parameters;
    const coh_in_place *pair = pair_of(trial, way);
    if (pair != NULL)
        call->input_grad[pair->to].data = call->output_grad[pair->from].data;
    COH_TRY(run(trial, way, COH_PHASE_BACKWARD));
    if (pair != NULL) {
        const coh_trial_buffer *b = &trial->buffer[COH_TRIAL_INPUT_GRAD][pair->to];
        memcpy(b->data, call->input_grad[pair->to].data, b->bytes);
    }
    return COH_OK;
}

coh_status coh_trial_move(coh_trial *from, coh_trial *to)
{
    static const coh_trial_role moved[] = { COH_TRIAL_OUTPUT, COH_TRIAL_STATE, COH_TRIAL_SAVED };
    for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            coh_trial_buffer *b = &to->buffer[moved[i]][port];
            if (b->data == NULL)
                continue;
            memcpy(b->data, from->buffer[moved[i]][port].data, b->bytes);
            memcpy(b->values, b->data, b->bytes);
        }
    set_guards(to, &COH_TRIAL_PLAIN);
    load(to, COH_TRIAL_INPUT);
    load(to, COH_TRIAL_PARAMETER);
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX; port++)
            if (from->buffer[role][port].data != NULL)
                memset(from->buffer[role][port].data, COH_TRIAL_NAN_BYTE,
                       from->buffer[role][port].bytes);
    return from->device != NULL ? coh_op_device_put(from->device, &from->image) : COH_OK;
}

/* ---- what a phase may not write ---- */

/* The element that holds the byte at `offset` from a buffer's begin. */
static int64_t element_at(const coh_trial_buffer *b, int64_t offset)
{
    const int64_t bytes = (int64_t)element_bytes(b);
    return offset >= 0 ? offset / bytes : -((-offset + bytes - 1) / bytes);
}

int coh_trial_outside(coh_trial *trial, coh_trial_place *out_place)
{
    char before[16];
    size_t i;
    int64_t offset;
    if (!coh_guard_find(trial->guarded, trial->guarded_count, &i, &offset))
        return 0;
    const coh_trial_role role = trial->guarded_of[i].role;
    const coh_trial_buffer *b = &trial->buffer[role][trial->guarded_of[i].port];
    const int64_t element = element_at(b, offset);
    memset(before, trial->guarded[i].byte, sizeof(before));
    *out_place = (coh_trial_place){ .phase = trial->phase,
                                    .role = role,
                                    .port = trial->guarded_of[i].port,
                                    .element = element,
                                    .expected = coh_trial_number(b, before, 0),
                                    .got = coh_trial_number(b, b->data, element) };
    for (i = 0; i < trial->guarded_count; i++)
        trial->guarded[i].byte = UNKNOWN;
    return 1;
}

static int spoilt(const coh_trial *trial, coh_trial_role role, uint32_t ports,
                  coh_trial_place *out_place)
{
    for (int port = 0; port < COH_PORT_MAX; port++) {
        const coh_trial_buffer *b = &trial->buffer[role][port];
        if (b->data == NULL || (ports >> port & 1u) == 0 ||
            memcmp(b->data, b->values, b->bytes) == 0)
            continue;
        const int64_t bytes = (int64_t)element_bytes(b);
        int64_t i = 0;
        while (memcmp(b->data + i * bytes, b->values + i * bytes, (size_t)bytes) == 0)
            i++;
        *out_place = (coh_trial_place){ .phase = trial->phase,
                                        .role = role,
                                        .port = port,
                                        .element = i,
                                        .expected = coh_trial_number(b, b->values, i),
                                        .got = coh_trial_number(b, b->data, i) };
        return 1;
    }
    return 0;
}

int coh_trial_spoilt(const coh_trial *trial, const coh_trial_way *way, coh_trial_place *out_place)
{
    const coh_op_kind *kind = &trial->op->kind;
    const uint32_t all = UINT32_MAX;
    if (spoilt(trial, COH_TRIAL_RANDOM_CELL, all, out_place) ||
        spoilt(trial, COH_TRIAL_LOSS_FACTOR_CELL, all, out_place) ||
        spoilt(trial, COH_TRIAL_ATTRIBUTES, all, out_place))
        return 1;
    if (trial->phase == COH_PHASE_FORWARD)
        return spoilt(trial, COH_TRIAL_INPUT, all, out_place) ||
               spoilt(trial, COH_TRIAL_PARAMETER, all, out_place);
    const uint32_t saved = kind->row_split_parameters ? 0 : 1; /* passed on between ranges */
    const uint32_t unwritten = ~(kind->overwrites_output_grads | way->zero_output_grads);
    return spoilt(trial, COH_TRIAL_INPUT, read_inputs(kind, way), out_place) ||
           spoilt(trial, COH_TRIAL_PARAMETER, kind->backward_reads.parameters, out_place) ||
           spoilt(trial, COH_TRIAL_OUTPUT, read_outputs(kind, way), out_place) ||
           spoilt(trial, COH_TRIAL_OUTPUT_GRAD, unwritten, out_place) ||
           spoilt(trial, COH_TRIAL_SAVED, saved, out_place);
}

/* ---- results ---- */

int coh_trial_is_result(coh_trial_role role)
{
    return role == COH_TRIAL_OUTPUT || role == COH_TRIAL_STATE || role == COH_TRIAL_INPUT_GRAD ||
           role == COH_TRIAL_PARAMETER_GRAD;
}

/* Outputs and states are taken from the copies made after forward. */
static const char *result_of(const coh_trial_buffer *b, coh_trial_role role)
{
    return role == COH_TRIAL_OUTPUT || role == COH_TRIAL_STATE ? b->values : b->data;
}

size_t coh_trial_result_bytes(const coh_trial *trial)
{
    size_t bytes = 0;
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX && coh_trial_is_result((coh_trial_role)role); port++)
            bytes += trial->buffer[role][port].bytes;
    return bytes;
}

void coh_trial_results(const coh_trial *trial, char *out_results)
{
    for (int role = 0; role < COH_TRIAL_ROLES; role++)
        for (int port = 0; port < COH_PORT_MAX && coh_trial_is_result((coh_trial_role)role);
             port++) {
            const coh_trial_buffer *b = &trial->buffer[role][port];
            if (b->bytes > 0)
                memcpy(out_results, result_of(b, (coh_trial_role)role), b->bytes);
            out_results += b->bytes;
        }
}

static int is_skipped(coh_trial_role role, int port, coh_port_mask skips)
{
    return (role == COH_TRIAL_INPUT_GRAD && (skips.inputs >> port & 1u)) ||
           (role == COH_TRIAL_PARAMETER_GRAD && (skips.parameters >> port & 1u));
}

int coh_trial_differ(const coh_trial *trial, const char *expected, const char *got,
                     coh_port_mask skips, coh_trial_place *out_place)
{
    for (int r = 0; r < COH_TRIAL_ROLES; r++)
        for (int port = 0; port < COH_PORT_MAX; port++) {
            const coh_trial_role role = (coh_trial_role)r;
            const coh_trial_buffer *b = &trial->buffer[role][port];
            if (!coh_trial_is_result(role) || b->bytes == 0)
                continue;
            const int64_t bytes = (int64_t)element_bytes(b), count = coh_trial_count(b);
            int64_t i = 0;
            while (i < count && memcmp(expected + i * bytes, got + i * bytes, (size_t)bytes) == 0)
                i++;
            if (i < count && !is_skipped(role, port, skips)) {
                *out_place = (coh_trial_place){
                    .phase = role == COH_TRIAL_OUTPUT || role == COH_TRIAL_STATE
                                 ? COH_PHASE_FORWARD
                                 : COH_PHASE_BACKWARD,
                    .role = role,
                    .port = port,
                    .element = i,
                    .expected = coh_trial_number(b, expected, i),
                    .got = coh_trial_number(b, got, i),
                };
                return 1;
            }
            expected += b->bytes;
            got += b->bytes;
        }
    return 0;
}
