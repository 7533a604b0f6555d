/* A gate, a loss, a table and a few stiff functions, all right by themselves. The variable
 * `planted` spoils one statement of them at a time. Next: op_mistakes.h; test_op_check.c. */
#include "tests/engine/op_mistakes.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference/float_bits.h"

enum { ROWS = 7, WIDTH = 13, ITEMS = ROWS * WIDTH };

typedef enum plant {
    NOTHING,
    SIGN,
    FORGOTTEN_TERM,
    FACTOR,
    NO_BIAS_GRADIENT,
    LAST_ROW_LEFT_OUT,
    FIRST_ELEMENT,
    NO_ADD_INPUT,
    NO_ADD_PARAMETER,
    WRITE_BEHIND,
    WRITE_BEFORE,
    SAVED_TOO_SMALL,
    SCRATCH_TOO_SMALL,
    WRITE_INPUT,
    WRITE_PARAMETER,
    WRITE_OUTPUT_GRAD,
    WRITE_ATTRIBUTES,
    WRITE_CELL,
    COUNTER,
    RANDOM,
    FIRST_CALL,
    STATIC_FOR_BACKWARD,
    POINTER_FOR_BACKWARD,
    UNDECLARED_INPUT,
    UNDECLARED_PARAMETER,
    UNDECLARED_SHAPE,
    UNWRITTEN,
    SUM_WITHOUT_START,
    GRADIENT_WITHOUT_START,
    SCRATCH_UNWRITTEN,
    SAVED_UNWRITTEN,
    READ_BEHIND,
    SKIP_WRITES,
    IN_PLACE_REVERSED,
    MICROBATCH,
    NOT_FINITE,
    FAILURE,
    FAILURE_WITHOUT_REASON,
    NO_STATUS,
    CRASH,
    NO_NAME,
    ADDRESS,
    THREADS,
    LOSS_UNSCALED,
    ROWS_IGNORED,
    WIDE_AS_BF16,
    WIDE_OVERWRITES,
    NULL_GRAD_READ,
    NULL_GRAD_ENDS,
    WORDS_WITHOUT_DRAWS,
    WORDS_IN_EVALUATION,
    NOTHING_IN_EVALUATION,
    VARIES_IN_EVALUATION,
    SCRATCH_IN_EVALUATION,
    INFINITE_IN_EVALUATION,
    CRASH_IN_EVALUATION,
    CELL_WITHOUT_DRAWS
} plant;

static plant planted;

/* ---- the gate: y = x s, s = 1 / (1 + e^-(w x)) + b, per channel; saves s without b ---- */

static coh_status gate_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_shape row = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { inputs[0].dim[1] } };
    const size_t bytes = sizeof(float) * (size_t)coh_shape_elements(&inputs[0]);
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){ .name = "w", .shape = row, .init = COH_INIT_ONE };
    facts->parameter[1] =
        (coh_parameter_facts){ .name = planted == NO_NAME ? NULL : "b", .shape = row };
    facts->saved_bytes = bytes - (planted == SAVED_TOO_SMALL ? sizeof(float) : 0);
    facts->workspace_bytes[COH_PHASE_FORWARD] =
        bytes - (planted == SCRATCH_TOO_SMALL ? sizeof(float) : 0);
    return COH_OK;
}

static float kept[ITEMS];
static const float *pointer;
static float first_mean;
static int calls, has_mean;

/* Mistakes of forward that are not in its loop. */
static coh_status gate_forward_mistakes(const coh_call *call)
{
    float *y = call->output[0].data, *x = call->input[0].data, *scratch = call->workspace;
    const float *after = y + ITEMS, *behind = x + ITEMS;
    if (planted == WRITE_BEHIND)
        y[ITEMS] = 1.0f;
    if (planted == WRITE_INPUT)
        x[5] = 0.0f;
    if (planted == WRITE_ATTRIBUTES)
        *(char *)(uintptr_t)call->attributes += 1;
    if (planted == WRITE_CELL)
        *(float *)(uintptr_t)call->loss_factor_cell += 1.0f;
    if (planted == COUNTER)
        y[3] += 0.001f * (float)++calls;
    if (planted == RANDOM)
        y[3] += (float)(rand() % 1000);
    if (planted == FIRST_CALL && !has_mean++)
        first_mean = x[0];
    if (planted == FIRST_CALL)
        y[3] += first_mean;
    if (planted == READ_BEHIND)
        y[ITEMS - 1] += 0.0f * *behind;
    if (planted == SCRATCH_UNWRITTEN)
        y[2] += scratch[ITEMS - 1];
    if (planted == MICROBATCH)
        y[4] += (float)call->microbatch;
    if (planted == NOT_FINITE)
        y[6] = logf(-1.0f - x[6] * x[6]);
    if (planted == FAILURE)
        return coh_kind_fail(COH_ERR_NUMBER, "a failure on request");
    if (planted == FAILURE_WITHOUT_REASON)
        return COH_ERR_NUMBER;
    if (planted == NO_STATUS)
        return (coh_status)77;
    if (planted == CRASH)
        *(volatile float *)call->output_grad[0].data = 0;
    if (planted == ADDRESS)
        y[1] += (float)((uintptr_t)y % 4096);
    (void)after;
    return COH_OK;
}

static coh_status gate_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *b = call->parameter[1].data;
    float *y = call->output[0].data, *s = call->saved, *scratch = call->workspace;
    for (int i = 0; i < ITEMS; i++) {
        const int at = planted == IN_PLACE_REVERSED && i > 0 ? ITEMS - i : i;
        const float t = 1.0f / (1.0f + expf(-w[at % WIDTH] * x[at]));
        if (planted != SAVED_UNWRITTEN || i != 8)
            s[at] = t;
        if (planted != SCRATCH_UNWRITTEN)
            scratch[at] = t;
        if (planted == SUM_WITHOUT_START)
            y[at] += x[at] * (t + b[at % WIDTH]);
        else if (planted != UNWRITTEN || i != ITEMS - 1)
            y[at] = x[at] * (t + b[at % WIDTH]);
        if (planted == IN_PLACE_REVERSED && at > 1)
            y[at] += 0.0f * (x[(at + 1) % ITEMS]);
    }
    if (planted == IN_PLACE_REVERSED)
        for (int i = 1; i < ITEMS; i++)
            y[i] += 0.25f * x[0];
    if (planted == STATIC_FOR_BACKWARD)
        memcpy(kept, s, sizeof(kept));
    pointer = x;
    return gate_forward_mistakes(call);
}

static void gate_put(float *to, float value, int adds)
{
    *to = adds ? *to + value : value;
}

static void gate_inputs_back(const coh_call *call, const float *s)
{
    const float *x = planted == POINTER_FOR_BACKWARD ? pointer : call->input[0].data;
    const float *w = call->parameter[0].data, *b = call->parameter[1].data;
    const float *dy = call->output_grad[0].data;
    const int adds = planted != NO_ADD_INPUT && (call->input_grad_adds & 1u);
    float *dx = call->input_grad[0].data;
    for (int i = 0; i < ITEMS; i++) {
        const int c = i % WIDTH;
        const float slope = planted == FORGOTTEN_TERM ? 0.0f : x[i] * s[i] * (1 - s[i]) * w[c];
        float d = dy[i] * (s[i] + b[c] + slope);
        if (planted == SIGN)
            d = -d;
        if (planted == FIRST_ELEMENT && i == 0)
            d += 1.0f;
        gate_put(&dx[i], d, adds || planted == GRADIENT_WITHOUT_START);
    }
}

static void gate_parameters_back(const coh_call *call, const float *s)
{
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    float *dw = call->parameter_grad[0].data, *db = call->parameter_grad[1].data;
    const uint32_t adds = planted == NO_ADD_PARAMETER ? 0 : call->parameter_grad_adds;
    const int rows = planted == LAST_ROW_LEFT_OUT ? ROWS - 1 : ROWS;
    for (int c = 0; c < WIDTH; c++) {
        double sum = 0, sum_b = 0;
        for (int i = c; i < rows * WIDTH; i += WIDTH) {
            sum += (double)(dy[i] * x[i] * x[i] * s[i] * (1 - s[i]));
            sum_b += (double)(dy[i] * x[i]);
        }
        if (dw != NULL)
            gate_put(&dw[c], (float)sum * (planted == FACTOR ? 2.0f : 1.0f), (adds & 1u) != 0);
        if (db != NULL)
            gate_put(&db[c], planted == NO_BIAS_GRADIENT ? 0.0f : (float)sum_b, (adds & 2u) != 0);
    }
}

static coh_status gate_backward(const coh_call *call)
{
    float *dx = call->input_grad[0].data;
    const float *s = planted == STATIC_FOR_BACKWARD ? kept : call->saved;
    if (planted == UNDECLARED_SHAPE && ITEMS / call->output[0].shape.dim[0] != WIDTH)
        return COH_OK;
    if (dx != NULL || planted == SKIP_WRITES)
        gate_inputs_back(call, s);
    gate_parameters_back(call, s);
    if (planted == WRITE_BEFORE && dx != NULL)
        *(dx - 1) = 0.0f;
    if (planted == WRITE_PARAMETER)
        ((float *)call->parameter[0].data)[2] += 1.0f;
    if (planted == WRITE_OUTPUT_GRAD)
        ((float *)call->output_grad[0].data)[9] = 0.0f;
    return COH_OK;
}

#define HEAD(kind_name)                                                                            \
    .struct_bytes = sizeof(coh_op_kind), .abi_version = COH_KIND_ABI, .name = kind_name,           \
    .revision = 1, .input_count = 1, .output_count = 1
#define RUNS(forward_of, backward_of)                                                              \
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_of, .backward = backward_of } }

#define GATE                                                                                       \
    HEAD("test.gate"), .parameter_count = 2, .can_add_grad = { .inputs = 1, .parameters = 3 },     \
                       .can_skip_grad = { .inputs = 1, .parameters = 3 }, .infer = gate_infer,     \
                       RUNS(gate_forward, gate_backward)

static const coh_op_kind gate = { GATE, .backward_reads = { .inputs = 1, .parameters = 3 } };
static const coh_op_kind gate_without_input = { GATE, .backward_reads = { .parameters = 3 } };
static const coh_op_kind gate_without_weight = { GATE, .backward_reads = { .inputs = 1,
                                                                           .parameters = 2 } };
static const coh_op_kind gate_in_place = { GATE, .backward_reads = { .inputs = 1, .parameters = 3 },
                                           .forward_in_place = { { 0, 0 } },
                                           .in_place_count = { 1 } };

/* ---- a loss: mean of x²/2 ---- */

static coh_status loss_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes, (void)inputs;
    facts->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    return COH_OK;
}

static coh_status loss_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    double sum = 0;
    for (int i = 0; i < ITEMS; i++)
        sum += 0.5 * (double)x[i] * (double)x[i];
    *(float *)call->output[0].data = (float)(sum / ITEMS);
    return COH_OK;
}

static coh_status loss_backward(const coh_call *call)
{
    const float *x = call->input[0].data;
    for (int i = 0; i < ITEMS; i++)
        ((float *)call->input_grad[0].data)[i] =
            x[i] / ITEMS * (planted == LOSS_UNSCALED ? 1.0f : call->loss_scale);
    return COH_OK;
}

static const coh_op_kind loss = { HEAD("test.loss"), .backward_reads = { .inputs = 1 },
                                  .is_loss = 1, .infer = loss_infer,
                                  RUNS(loss_forward, loss_backward) };

/* ---- a table in ranges of rows: y[n] = sum over rows v of w[v] sin(x[n] (v + 1)) ---- */

enum { TABLE = 12, BLOCK = 4 };

static coh_status table_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { TABLE } };
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){ .name = "w", .shape = shape, .row_block = BLOCK };
    return COH_OK;
}

static void table_range(const coh_call *call, int64_t *begin, int64_t *end)
{
    *begin = call->row_count == 0 ? 0 : call->row_begin;
    *end = call->row_count == 0 ? TABLE : call->row_end;
}

static coh_status table_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    float *y = call->output[0].data;
    int64_t begin, end;
    table_range(call, &begin, &end);
    for (int64_t v = begin; v < end; v++)
        for (int n = 0; n < ITEMS; n++) {
            const int64_t row = planted == ROWS_IGNORED ? v - begin : v;
            y[n] = (v == 0 ? 0.0f : y[n]) + w[v - begin] * sinf(x[n] * (float)(row + 1));
        }
    return COH_OK;
}

static coh_status table_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dw = call->parameter_grad[0].data;
    int64_t begin, end;
    table_range(call, &begin, &end);
    for (int64_t v = begin; v < end; v++) {
        float sum = 0;
        for (int n = 0; n < ITEMS; n++) {
            const float angle = x[n] * (float)(v + 1), turn = w[v - begin] * (float)(v + 1);
            dx[n] = (v == 0 ? 0.0f : dx[n]) + dy[n] * turn * cosf(angle);
            sum += dy[n] * sinf(angle);
        }
        dw[v - begin] = sum;
    }
    return COH_OK;
}

static const coh_op_kind table = { HEAD("test.table"),
                                   .parameter_count = 1,
                                   .backward_reads = { .inputs = 1, .parameters = 1 },
                                   .row_split_parameters = 1,
                                   .infer = table_infer,
                                   RUNS(table_forward, table_backward) };

/* ---- functions of rows: stiff ones, one with a kink, and one on threads ---- */

static coh_status same_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    return COH_OK;
}

static coh_status column_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->output[0].dim[1] = 1;
    return COH_OK;
}

/* Log-sum-exp of 20 x: only the largest elements of a row count. */
static float largest(const float *x)
{
    float most = x[0];
    for (int c = 1; c < WIDTH; c++)
        most = fmaxf(most, x[c]);
    return most;
}

static coh_status lse_forward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++) {
        const float *x = (const float *)call->input[0].data + r * WIDTH, most = largest(x);
        double sum = 0;
        for (int c = 0; c < WIDTH; c++)
            sum += exp(20.0 * (double)(x[c] - most));
        ((float *)call->output[0].data)[r] = (float)(20.0 * (double)most + log(sum));
    }
    return COH_OK;
}

static coh_status lse_backward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++) {
        const float *x = (const float *)call->input[0].data + r * WIDTH, most = largest(x);
        const float dy = ((const float *)call->output_grad[0].data)[r];
        float *dx = (float *)call->input_grad[0].data + r * WIDTH;
        double sum = 0;
        for (int c = 0; c < WIDTH; c++)
            sum += exp(20.0 * (double)(x[c] - most));
        for (int c = 0; c < WIDTH; c++)
            dx[c] = (float)(20.0 * (double)dy * exp(20.0 * (double)(x[c] - most)) / sum);
    }
    return COH_OK;
}

static const coh_op_kind lse = { HEAD("test.lse"), .backward_reads = { .inputs = 1 },
                                 .infer = column_infer, RUNS(lse_forward, lse_backward) };

/* |x| and tanh(10 x), by columns. */
static coh_status bent_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    float *y = call->output[0].data;
    for (int i = 0; i < ITEMS; i++)
        y[i] = i % 2 ? fabsf(x[i]) : tanhf(10.0f * x[i]);
    return COH_OK;
}

static coh_status bent_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data;
    for (int i = 0; i < ITEMS; i++) {
        const float t = tanhf(10.0f * x[i]);
        dx[i] = dy[i] * (i % 2 ? (x[i] < 0 ? -1.0f : 1.0f) : 10.0f * (1.0f - t * t));
    }
    return COH_OK;
}

static const coh_op_kind bent = { HEAD("test.bent"), .backward_reads = { .inputs = 1 },
                                  .infer = same_infer, RUNS(bent_forward, bent_backward) };

/* A norm of nearly equal numbers: y = z / |z|, z = x/100 - the row's mean of it. */
static void norm_row(const float *x, double z[WIDTH], double *length)
{
    double mean = 0, squares = 0;
    for (int c = 0; c < WIDTH; c++)
        mean += 0.01 * (double)x[c] / WIDTH;
    for (int c = 0; c < WIDTH; c++) {
        z[c] = 0.01 * (double)x[c] - mean;
        squares += z[c] * z[c];
    }
    *length = sqrt(squares);
}

static coh_status norm_forward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++) {
        double z[WIDTH], length;
        norm_row((const float *)call->input[0].data + r * WIDTH, z, &length);
        for (int c = 0; c < WIDTH; c++)
            ((float *)call->output[0].data)[r * WIDTH + c] = (float)(z[c] / length);
    }
    return COH_OK;
}

static coh_status norm_backward(const coh_call *call)
{
    for (int r = 0; r < ROWS; r++) {
        const float *dy = (const float *)call->output_grad[0].data + r * WIDTH;
        double z[WIDTH], length, dot = 0, mean = 0;
        norm_row((const float *)call->input[0].data + r * WIDTH, z, &length);
        for (int c = 0; c < WIDTH; c++) {
            dot += (double)dy[c] * z[c] / length;
            mean += (double)dy[c] / WIDTH;
        }
        for (int c = 0; c < WIDTH; c++)
            ((float *)call->input_grad[0].data)[r * WIDTH + c] =
                (float)(0.01 * ((double)dy[c] - mean - dot * z[c] / length) / length);
    }
    return COH_OK;
}

static const coh_op_kind norm = { HEAD("test.norm"), .backward_reads = { .inputs = 1 },
                                  .infer = same_infer, RUNS(norm_forward, norm_backward) };

/* Squares, one piece a row. The mistake: a piece knows its thread. So that it shows under any load,
 * the caller lets a worker take a piece first. */
static pthread_t caller;
static _Atomic int begun_by_workers;

static void square_piece(void *argument, int64_t r)
{
    const coh_call *call = argument;
    const float *x = call->input[0].data;
    const int is_worker = !pthread_equal(caller, pthread_self());
    begun_by_workers += is_worker;
    while (planted == THREADS && call->queue != NULL && begun_by_workers == 0)
        sched_yield();
    for (int i = (int)r * WIDTH; i < ((int)r + 1) * WIDTH; i++)
        ((float *)call->output[0].data)[i] =
            x[i] * x[i] + (planted == THREADS && is_worker ? 0.5f : 0.0f);
}

static coh_status square_forward(const coh_call *call)
{
    caller = pthread_self();
    begun_by_workers = 0;
    coh_parallel(call->queue, ROWS, square_piece, (void *)call);
    return COH_OK;
}

static coh_status square_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    for (int i = 0; i < ITEMS; i++)
        ((float *)call->input_grad[0].data)[i] = 2.0f * x[i] * dy[i];
    return COH_OK;
}

static const coh_op_kind square = { HEAD("test.square"), .backward_reads = { .inputs = 1 },
                                    .infer = same_infer, RUNS(square_forward, square_backward) };

/* ---- a gain in bf16, per channel, whose gradient may be f32 ---- */

static coh_status gain_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){
        .name = "g",
        .shape = { .dtype = COH_DTYPE_BF16, .rank = 1, .dim = { inputs[0].dim[1] } },
        .init = COH_INIT_ONE
    };
    return COH_OK;
}

static float gain_at(const coh_call *call, int channel)
{
    return float_of((uint32_t)((const uint16_t *)call->parameter[0].data)[channel] << 16);
}

static coh_status gain_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    for (int i = 0; i < ITEMS; i++)
        ((float *)call->output[0].data)[i] = gain_at(call, i % WIDTH) * x[i];
    return COH_OK;
}

static coh_status gain_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    const int is_wide =
        planted != WIDE_AS_BF16 && call->parameter_grad[0].shape.dtype == COH_DTYPE_F32;
    const int adds = (call->parameter_grad_adds & 1u) != 0;
    float *wide = call->parameter_grad[0].data;
    uint16_t *narrow = call->parameter_grad[0].data;
    for (int i = 0; i < ITEMS; i++)
        ((float *)call->input_grad[0].data)[i] = gain_at(call, i % WIDTH) * dy[i];
    for (int c = 0; c < WIDTH; c++) {
        float sum = 0;
        for (int i = c; i < ITEMS; i += WIDTH)
            sum += dy[i] * x[i];
        if (is_wide) {
            gate_put(&wide[c], sum, adds && planted != WIDE_OVERWRITES);
            continue;
        }
        sum += adds ? float_of((uint32_t)narrow[c] << 16) : 0.0f;
        narrow[c] = (uint16_t)((bits_of(sum) + 0x7fffu + (bits_of(sum) >> 16 & 1u)) >> 16);
    }
    return COH_OK;
}

static const coh_op_kind gain = { HEAD("test.gain"),
                                  .parameter_count = 1,
                                  .backward_reads = { .inputs = 1, .parameters = 1 },
                                  .can_add_grad = { .parameters = 1 },
                                  .can_widen_grad = 1,
                                  .infer = gain_infer,
                                  RUNS(gain_forward, gain_backward) };

/* ---- two outputs, of which one may have no gradient: 2 x and x squared ---- */

static coh_status pair_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = facts->output[1] = inputs[0];
    return COH_OK;
}

static coh_status pair_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    for (int i = 0; i < ITEMS; i++) {
        ((float *)call->output[0].data)[i] = 2.0f * x[i];
        ((float *)call->output[1].data)[i] = x[i] * x[i];
    }
    return COH_OK;
}

static coh_status pair_backward(const coh_call *call)
{
    const float *x = call->input[0].data;
    const float *twice = call->output_grad[0].data, *square_of = call->output_grad[1].data;
    float *dx = call->input_grad[0].data;
    const int ends = planted == NULL_GRAD_ENDS && (twice == NULL || square_of == NULL);
    for (int i = 0; i < ITEMS; i++) {
        dx[i] = 0;
        if (twice != NULL && !ends)
            dx[i] += 2.0f * twice[i];
        if ((square_of != NULL && !ends) || planted == NULL_GRAD_READ)
            dx[i] += 2.0f * x[i] * square_of[i];
    }
    return COH_OK;
}

static const coh_op_kind pair = { .struct_bytes = sizeof(coh_op_kind),
                                  .abi_version = COH_KIND_ABI,
                                  .name = "test.pair",
                                  .revision = 1,
                                  .input_count = 1,
                                  .output_count = 2,
                                  .backward_reads = { .inputs = 1 },
                                  .infer = pair_infer,
                                  RUNS(pair_forward, pair_backward) };

/* ---- dropout of a half: y = 2 x if bit 31 of the word is 1, else 0; without words y = x ---- */

static coh_status drop_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    facts->workspace_bytes[COH_PHASE_FORWARD] = sizeof(uint32_t) * ITEMS;
    return same_infer(attributes, inputs, facts);
}

/* Mistakes of forward without words. */
static void drop_evaluation_mistakes(const coh_call *call)
{
    const float *x = call->input[0].data;
    float *y = call->output[0].data;
    if (planted == VARIES_IN_EVALUATION)
        y[0] = x[0] * (float)++calls;
    if (planted == SCRATCH_IN_EVALUATION)
        y[0] = x[0] + ((const float *)call->workspace)[1];
    if (planted == INFINITE_IN_EVALUATION)
        y[0] = x[0] / ((float)call->microbatch * x[0]);
    if (planted == CRASH_IN_EVALUATION)
        y[0] = (float)*(volatile const uint64_t *)&call->random_cell->seed;
}

static coh_status drop_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    float *y = call->output[0].data;
    uint32_t *words = call->workspace;
    const int draws = call->random_cell != NULL || planted == WORDS_IN_EVALUATION;
    if (draws)
        coh_random_words(call, 0, ITEMS, words);
    else
        memcpy(y + 1, x + 1, sizeof(float) * (ITEMS - 1));
    for (int i = 0; draws && i < ITEMS; i++)
        y[i] = words[i] >> 31 ? 2.0f * x[i] : 0.0f;
    if (draws)
        return COH_OK;
    y[0] = planted == NOTHING_IN_EVALUATION ? y[0] : x[0];
    drop_evaluation_mistakes(call);
    return COH_OK;
}

static coh_status drop_backward(const coh_call *call)
{
    const float *dy = call->output_grad[0].data;
    for (int i = 0; i < ITEMS; i++) {
        uint32_t word;
        float factor = 1.0f;
        if (call->random_cell != NULL || planted != CELL_WITHOUT_DRAWS) {
            coh_random_words(call, (uint64_t)i, 1, &word);
            factor = word >> 31 ? 2.0f : 0.0f;
        }
        ((float *)call->input_grad[0].data)[i] = factor * dy[i];
    }
    return COH_OK;
}

#define DROP HEAD("test.drop"), .infer = drop_infer, RUNS(drop_forward, drop_backward)

static const coh_op_kind drop = { DROP, .draws = 1 };
static const coh_op_kind drop_without_draws = { DROP };

/* ---- the list ---- */

#define INPUT                                                                                      \
    {                                                                                              \
        .dtype = COH_DTYPE_F32, .rank = 2, .dim = { ROWS, WIDTH }                                  \
    }
#define MISTAKE(plant, fault, port, says, kind)                                                    \
    {                                                                                              \
        plant,                                                                                     \
        {                                                                                          \
#plant, COH_OP_FAULT_##fault, port, says, &kind, INPUT                                 \
        }                                                                                          \
    }

static const struct {
    plant plant;
    op_mistake mistake;
} mistakes[] = {
    MISTAKE(SIGN, GRADIENT, "input_grad 0", "the sign", gate),
    MISTAKE(FORGOTTEN_TERM, GRADIENT, "input_grad 0", "a term of the derivative", gate),
    MISTAKE(FACTOR, GRADIENT, "parameter_grad 0", "a factor 2", gate),
    MISTAKE(NO_BIAS_GRADIENT, GRADIENT, "parameter_grad 1", "zero everywhere", gate),
    MISTAKE(LAST_ROW_LEFT_OUT, GRADIENT, "parameter_grad 0", "a term of the derivative", gate),
    MISTAKE(FIRST_ELEMENT, GRADIENT, "input_grad 0", "element 0:", gate),
    MISTAKE(NO_ADD_INPUT, ADDS, "input_grad 0", "use +=", gate),
    MISTAKE(NO_ADD_PARAMETER, ADDS, "parameter_grad 0", "use +=", gate),
    MISTAKE(WRITE_BEHIND, WRITES_OUTSIDE, "output 0", "element 91:", gate),
    MISTAKE(WRITE_BEFORE, WRITES_OUTSIDE, "input_grad 0", "element -1:", gate),
    MISTAKE(SAVED_TOO_SMALL, WRITES_OUTSIDE, "saved", "saved_bytes", gate),
    MISTAKE(SCRATCH_TOO_SMALL, WRITES_OUTSIDE, "workspace", "workspace_bytes", gate),
    MISTAKE(WRITE_INPUT, WRITES_INPUT, "input 0", "element 5:", gate),
    MISTAKE(WRITE_PARAMETER, WRITES_INPUT, "parameter 0", "element 2:", gate),
    MISTAKE(WRITE_OUTPUT_GRAD, WRITES_INPUT, "output_grad 0", "element 9:", gate),
    MISTAKE(WRITE_ATTRIBUTES, WRITES_INPUT, "attributes", "same for every call", gate),
    MISTAKE(WRITE_CELL, WRITES_INPUT, "loss_factor_cell", "same for every call", gate),
    MISTAKE(COUNTER, VARIES, "output 0", "static variable", gate),
    MISTAKE(RANDOM, VARIES, "output 0", "random number", gate),
    MISTAKE(FIRST_CALL, KEEPS_STATE, "output 0", "first call", gate),
    MISTAKE(STATIC_FOR_BACKWARD, KEEPS_STATE, NULL, "use saved", gate),
    MISTAKE(POINTER_FOR_BACKWARD, KEEPS_STATE, NULL, NULL, gate),
    MISTAKE(UNDECLARED_INPUT, READS_UNDECLARED, "input 0", "backward_reads", gate_without_input),
    MISTAKE(UNDECLARED_PARAMETER, READS_UNDECLARED, "parameter 0", "backward_reads",
            gate_without_weight),
    MISTAKE(UNDECLARED_SHAPE, READS_UNDECLARED, NULL, "backward_reads", gate),
    MISTAKE(UNWRITTEN, NOT_WRITTEN, "output 0", "element 90:", gate),
    MISTAKE(SUM_WITHOUT_START, READS_UNWRITTEN, "output 0", "begin with zero", gate),
    MISTAKE(GRADIENT_WITHOUT_START, READS_UNWRITTEN, "input_grad 0", "write the first term", gate),
    MISTAKE(SCRATCH_UNWRITTEN, READS_UNWRITTEN, "workspace", "write it first", gate),
    MISTAKE(SAVED_UNWRITTEN, READS_UNWRITTEN, "saved", "forward did not write", gate),
    MISTAKE(READ_BEHIND, READS_OUTSIDE, "input 0", "runs too far", gate),
    MISTAKE(SKIP_WRITES, SKIPS, NULL, "can_skip_grad", gate),
    MISTAKE(IN_PLACE_REVERSED, IN_PLACE, "output 0", "overwritten", gate_in_place),
    MISTAKE(MICROBATCH, MICROBATCH, "output 0", "number 5", gate),
    MISTAKE(NOT_FINITE, NOT_FINITE, "output 0", "element 6", gate),
    MISTAKE(FAILURE, FAILED, NULL, "a failure on request", gate),
    MISTAKE(FAILURE_WITHOUT_REASON, FAILED, NULL, "gives no reason (coh_kind_fail)", gate),
    MISTAKE(NO_STATUS, FAILED, NULL, "returned 77, which is no status", gate),
    MISTAKE(CRASH, CRASHED, NULL, "NULL", gate),
    MISTAKE(NO_NAME, DECLARATION, NULL, "name of parameter 1", gate),
    MISTAKE(ADDRESS, ADDRESSES, "output 0", "pointer", gate),
    MISTAKE(THREADS, THREADS, "output 0", "coh_parallel", square),
    MISTAKE(LOSS_UNSCALED, LOSS_SCALE, "input_grad 0", "loss_scale", loss),
    MISTAKE(ROWS_IGNORED, ROWS, "output 0", "row_begin", table),
    MISTAKE(WIDE_AS_BF16, WIDENS, "parameter_grad 0", "dtype of parameter_grad", gain),
    MISTAKE(WIDE_OVERWRITES, WIDENS, "parameter_grad 0", "element 0:", gain),
    MISTAKE(NULL_GRAD_READ, UNUSED_OUTPUT, NULL, "data of each output_grad", pair),
    MISTAKE(NULL_GRAD_ENDS, UNUSED_OUTPUT, "input_grad 0", "with NULL 0", pair),
    MISTAKE(WORDS_WITHOUT_DRAWS, RANDOM_WORDS, "input_grad 0", "does not set draws",
            drop_without_draws),
    MISTAKE(CELL_WITHOUT_DRAWS, DRAWS, "output 0", "set .draws = 1", drop_without_draws),
    MISTAKE(WORDS_IN_EVALUATION, RANDOM_WORDS, "output 0", "outside training", drop),
    MISTAKE(NOTHING_IN_EVALUATION, NOT_WRITTEN, "output 0", "random_cell is NULL", drop),
    MISTAKE(VARIES_IN_EVALUATION, VARIES, "output 0", "random_cell is NULL", drop),
    MISTAKE(SCRATCH_IN_EVALUATION, READS_UNWRITTEN, "workspace", "random_cell is NULL", drop),
    MISTAKE(INFINITE_IN_EVALUATION, NOT_FINITE, "output 0", "random_cell is NULL", drop),
    MISTAKE(CRASH_IN_EVALUATION, CRASHED, NULL, "random_cell is NULL", drop),
};

const op_mistake *op_mistake_at(int index)
{
    if (index >= (int)(sizeof(mistakes) / sizeof(mistakes[0])))
        return NULL;
    planted = mistakes[index].plant;
    calls = has_mean = 0;
    return &mistakes[index].mistake;
}

const coh_op_kind *op_right_kind_at(int index, coh_shape *out_input)
{
    static const coh_op_kind *const right[] = { &gate, &loss,   &table, &lse,  &bent,
                                                &norm, &square, &gain,  &pair, &drop };
    if (index >= (int)(sizeof(right) / sizeof(right[0])))
        return NULL;
    planted = NOTHING;
    *out_input = (coh_shape)INPUT;
    return right[index];
}
