#include "tests/reference/call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/nf4.h"

void coh_poison(void *data, size_t bytes)
{
    memset(data, 0xff, bytes); /* all ones is a NaN, and token -1 */
}

/* Allocates memory with a NaN fence on both sides, to reveal reads outside. */
static void *take(coh_case *one, size_t bytes)
{
    const size_t fence = 256;
    const size_t whole = (size_t)coh_bytes_round_page(bytes + 2 * fence);
    char *block = aligned_alloc(COH_PAGE_BYTES, whole);
    if (block == NULL || one->block_count == 64) {
        fprintf(stderr, "a test case is out of memory\n");
        exit(1);
    }
    one->block_bytes[one->block_count] = whole;
    one->blocks[one->block_count++] = block;
    coh_poison(block, whole);
    return block + fence;
}

static size_t bytes_of(const coh_shape *shape)
{
    return (size_t)coh_dtype_array_bytes(shape->dtype, (uint64_t)coh_shape_elements(shape));
}

static coh_view take_view(coh_case *one, const coh_shape *shape)
{
    coh_view view = { .shape = *shape };
    if (shape->rank == 0)
        return view;
    view.data = take(one, bytes_of(shape));
    int64_t stride = 1;
    for (int32_t axis = shape->rank - 1; axis >= 0; axis--) {
        view.stride[axis] = stride;
        stride *= shape->dim[axis];
    }
    return view;
}

static void fill_zero(coh_view *view)
{
    if (view->data != NULL)
        memset(view->data, 0, bytes_of(&view->shape));
}

static void fill_normal(coh_view *view, uint64_t seed, uint64_t stream)
{
    enum { RUN = 1024 };
    float run[RUN];
    const int64_t count = view->data != NULL ? coh_shape_elements(&view->shape) : 0;
    for (int64_t begin = 0; begin < count; begin += RUN) {
        const int64_t length = count - begin < RUN ? count - begin : RUN;
        coh_kernel_normal(run, seed, stream, (uint64_t)begin, length, 1);
        if (view->shape.dtype == COH_DTYPE_NF4) {
            coh_nf4_quantise((char *)view->data +
                                 coh_dtype_array_bytes(COH_DTYPE_NF4, (uint64_t)begin),
                             run, length);
            continue;
        }
        for (int64_t i = 0; i < length; i++) {
            uint32_t bits;
            memcpy(&bits, &run[i], sizeof(bits));
            if (view->shape.dtype == COH_DTYPE_BF16)
                ((uint16_t *)view->data)[begin + i] = (uint16_t)(bits >> 16);
            else
                ((float *)view->data)[begin + i] = run[i];
        }
    }
}

/* Both exceed 32 bits, so ignoring either half shows. */
static const coh_random_cell random_cell = { .seed = 0x243f6a8885a308d3u, .step = 0x1300000007u };

/* Uses exact factors, so their product is `loss_scale` in any order. */
void coh_case_scale_loss(coh_case *one, float loss_scale)
{
    one->call.loss_scale = loss_scale;
    one->call.loss_share = loss_scale / 4.0f;
    if (one->call.loss_factor_cell == NULL)
        one->call.loss_factor_cell = take(one, sizeof(float));
    *(float *)one->call.loss_factor_cell = 4.0f;
}

static void protect(coh_case *one, int protection)
{
    for (int i = 0; i < one->block_count; i++)
        if (mprotect(one->blocks[i], one->block_bytes[i], protection) != 0) {
            perror("mprotect");
            exit(1);
        }
}

void coh_case_lock(coh_case *one)
{
    protect(one, PROT_NONE);
}

void coh_case_unlock(coh_case *one)
{
    protect(one, PROT_READ | PROT_WRITE);
}

void coh_case_create(coh_case *out_case, const coh_op_kind *kind, const void *attributes,
                     const coh_shape *inputs, uint64_t seed)
{
    coh_case *one = out_case;
    *one = (coh_case){ .kind = kind, .attributes = attributes, .seed = seed };
    coh_status status = kind->infer(attributes, inputs, &one->facts);
    if (status != COH_OK) {
        fprintf(stderr, "%s: %s\n", kind->name, coh_last_error());
        exit(1);
    }
    coh_call *call = &one->call;
    call->attributes = attributes;
    coh_case_scale_loss(one, 1.0f);
    call->operator_index = 7;
    call->microbatch = 3;
    if (kind->draws) {
        coh_random_cell *cell = take(one, sizeof(random_cell));
        *cell = random_cell;
        call->random_cell = cell;
    }
    for (int i = 0; i < kind->input_count; i++) {
        call->input[i] = take_view(one, &inputs[i]);
        if (inputs[i].dtype == COH_DTYPE_I32) {
            fill_zero(&call->input[i]);
        } else {
            fill_normal(&call->input[i], seed, (uint64_t)i);
            call->input_grad[i] = take_view(one, &inputs[i]);
        }
    }
    for (int i = 0; i < kind->output_count; i++) {
        call->output[i] = take_view(one, &one->facts.output[i]);
        if (!kind->is_loss) {
            call->output_grad[i] = take_view(one, &one->facts.output[i]);
            fill_normal(&call->output_grad[i], seed, 100 + (uint64_t)i);
        }
    }
    for (int i = 0; i < kind->parameter_count; i++) {
        call->parameter[i] = take_view(one, &one->facts.parameter[i].shape);
        fill_normal(&call->parameter[i], seed, 200 + (uint64_t)i);
        if (call->parameter[i].shape.dtype != COH_DTYPE_NF4)
            call->parameter_grad[i] = take_view(one, &one->facts.parameter[i].shape);
    }
    for (int i = 0; i < kind->state_count; i++) {
        call->state[i] = take_view(one, &one->facts.state[i]);
        fill_zero(&call->state[i]);
    }
    if (one->facts.saved_bytes > 0)
        call->saved = take(one, one->facts.saved_bytes);
    size_t workspace_bytes = one->facts.workspace_bytes[COH_PHASE_FORWARD];
    if (workspace_bytes < one->facts.workspace_bytes[COH_PHASE_BACKWARD])
        workspace_bytes = one->facts.workspace_bytes[COH_PHASE_BACKWARD];
    if (workspace_bytes > 0)
        call->workspace = take(one, workspace_bytes);
    if (one->facts.cache_bytes > 0)
        one->cache = take(one, one->facts.cache_bytes);
}

int coh_case_widen(coh_case *one)
{
    int count = 0;
    for (int i = 0; i < one->kind->parameter_count; i++) {
        coh_shape shape = one->call.parameter_grad[i].shape;
        if (one->call.parameter_grad[i].data == NULL || shape.dtype != COH_DTYPE_BF16 ||
            (one->kind->can_widen_grad >> i & 1u) == 0)
            continue;
        shape.dtype = COH_DTYPE_F32;
        one->call.parameter_grad[i] = take_view(one, &shape);
        count++;
    }
    return count;
}

void coh_case_destroy(coh_case *one)
{
    for (int i = 0; i < one->block_count; i++)
        free(one->blocks[i]);
    one->block_count = 0;
}

void coh_case_ids(coh_case *one, int input, int32_t bound, uint64_t seed)
{
    int32_t *ids = one->call.input[input].data;
    const coh_shape *shape = &one->call.input[input].shape;
    const int64_t row = shape->dim[shape->rank - 1];
    const int counts = (one->facts.counting_inputs >> input & 1u) != 0;
    for (int64_t i = 0; i < coh_shape_elements(shape); i++) {
        const int32_t id =
            (int32_t)coh_rng_below(seed, 300 + (uint64_t)input, (uint64_t)i, (uint64_t)bound);
        ids[i] = !counts ? id : i % row == 0 || id == 0 ? 0 : ids[i - 1] + 1;
    }
}

static void poison_view(coh_view *view)
{
    if (view->data != NULL)
        coh_poison(view->data, bytes_of(&view->shape));
}

static void keep_named(coh_view *views, int count, uint32_t mask)
{
    for (int i = 0; i < count; i++)
        if ((mask >> i & 1u) == 0)
            views[i] = (coh_view){ 0 };
}

/* Returns 1 if no parameter gets a gradient. */
static int is_frozen(const coh_case *one)
{
    for (int i = 0; i < one->kind->parameter_count; i++)
        if (one->call.parameter_grad[i].data != NULL)
            return 0;
    return 1;
}

/* Makes a call with what the phase may see, and poison in its outputs. */
static coh_call prepare(coh_case *one, coh_phase phase, void *queue)
{
    coh_call call = one->call;
    const coh_op_kind *kind = one->kind;
    call.queue = queue;
    if (one->facts.workspace_bytes[phase] > 0)
        coh_poison(call.workspace, one->facts.workspace_bytes[phase]);
    else
        call.workspace = NULL;
    if (phase == COH_PHASE_FORWARD) {
        for (int i = 0; i < kind->output_count; i++)
            poison_view(&call.output[i]);
        if (one->facts.saved_bytes > 0)
            coh_poison(call.saved, one->facts.saved_bytes);
        if (call.cache != NULL)
            coh_poison(call.cache, one->facts.cache_bytes);
        memset(call.output_grad, 0, sizeof(call.output_grad));
        memset(call.input_grad, 0, sizeof(call.input_grad));
        memset(call.parameter_grad, 0, sizeof(call.parameter_grad));
        return call;
    }
    coh_port_mask left_out = { 0 };
    if (is_frozen(one))
        left_out = kind->reads_for_parameters;
    keep_named(call.input, kind->input_count, kind->backward_reads.inputs & ~left_out.inputs);
    keep_named(call.output, kind->output_count, kind->backward_reads.outputs & ~left_out.outputs);
    keep_named(call.parameter, kind->parameter_count, kind->backward_reads.parameters);
    for (int i = 0; i < kind->output_count; i++)
        if (kind->overwrites_output_grads >> i & 1u)
            fill_normal(&call.output_grad[i], one->seed, 100 + (uint64_t)i);
    for (int i = 0; i < kind->input_count; i++)
        if ((call.input_grad_adds >> i & 1u) == 0)
            poison_view(&call.input_grad[i]);
    for (int i = 0; i < kind->parameter_count; i++)
        if ((call.parameter_grad_adds >> i & 1u) == 0)
            poison_view(&call.parameter_grad[i]);
    return call;
}

coh_status coh_case_forward(coh_case *one, void *queue)
{
    coh_call call = prepare(one, COH_PHASE_FORWARD, queue);
    return one->kind->devices[COH_DEVICE_HOST].forward(&call);
}

coh_status coh_case_backward(coh_case *one, void *queue)
{
    coh_call call = prepare(one, COH_PHASE_BACKWARD, queue);
    return one->kind->devices[COH_DEVICE_HOST].backward(&call);
}

/* Narrows a view to rows [begin, end), as if they were the whole tensor. */
static void narrow(coh_view *view, int64_t begin, int64_t end)
{
    if (view->data == NULL)
        return;
    view->data = (char *)view->data +
                 coh_dtype_array_bytes(view->shape.dtype, (uint64_t)(begin * view->stride[0]));
    view->shape.dim[0] = end - begin;
    view->origin[0] = begin;
}

static coh_status run_ranges(coh_case *one, coh_phase phase, void *queue, int64_t blocks_per_call)
{
    const coh_kind_device *host = &one->kind->devices[COH_DEVICE_HOST];
    const coh_call whole = prepare(one, phase, queue);
    const int split = __builtin_ctz(one->kind->row_split_parameters);
    const coh_parameter_facts *facts = &one->facts.parameter[split];
    const int64_t row_count = facts->shape.dim[0], step = blocks_per_call * facts->row_block;
    for (int64_t begin = 0; begin < row_count; begin += step) {
        coh_call call = whole;
        call.row_begin = begin;
        call.row_end = begin + step < row_count ? begin + step : row_count;
        call.row_count = row_count;
        narrow(&call.parameter[split], call.row_begin, call.row_end);
        narrow(&call.parameter_grad[split], call.row_begin, call.row_end);
        for (int i = 0; i < one->kind->parameter_count && one->kind->column_slices; i++)
            if (i != split && begin > 0)
                call.parameter_grad[i].data = NULL; /* was written with the first range */
        const int keeps = phase == COH_PHASE_BACKWARD && one->kind->column_slices && begin > 0;
        if (one->wait != NULL)
            one->wait();
        if (one->facts.workspace_bytes[phase] > 0 && !keeps)
            coh_poison(call.workspace, one->facts.workspace_bytes[phase]);
        coh_status status =
            phase == COH_PHASE_FORWARD ? host->forward(&call) : host->backward(&call);
        if (status != COH_OK)
            return status;
    }
    return COH_OK;
}

coh_status coh_case_forward_ranges(coh_case *one, void *queue, int64_t blocks_per_call)
{
    return run_ranges(one, COH_PHASE_FORWARD, queue, blocks_per_call);
}

coh_status coh_case_backward_ranges(coh_case *one, void *queue, int64_t blocks_per_call)
{
    return run_ranges(one, COH_PHASE_BACKWARD, queue, blocks_per_call);
}

void coh_case_results(coh_case *one,
                      void (*visit)(void *context, const char *name, const void *data,
                                    size_t bytes),
                      void *context)
{
    static const char *const inputs[COH_PORT_MAX] = { "dinput 0", "dinput 1", "dinput 2" };
    static const char *const parameters[COH_PORT_MAX] = { "dparameter 0", "dparameter 1",
                                                          "dparameter 2" };
    const int has_backward = one->kind->devices[COH_DEVICE_HOST].backward != NULL;
    coh_call *call = &one->call;
    visit(context, "output", call->output[0].data, bytes_of(&call->output[0].shape));
    for (int i = 0; i < one->kind->input_count && has_backward; i++)
        if (call->input_grad[i].data != NULL)
            visit(context, inputs[i], call->input_grad[i].data,
                  bytes_of(&call->input_grad[i].shape));
    for (int i = 0; i < one->kind->parameter_count && has_backward; i++)
        if (call->parameter_grad[i].data != NULL)
            visit(context, parameters[i], call->parameter_grad[i].data,
                  bytes_of(&call->parameter_grad[i].shape));
}
