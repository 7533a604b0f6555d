/* The check of a kind on the stub driver's GPU: mistakes that are planted into a layer's functions
 * for CUDA are found with the right fault, port and cause; the layer without mistakes and the
 * library's kinds, with the host's kernels enqueued on streams, pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cohobate/cuda.h"
#include "cohobate/layer.h"
#include "engine/op_check.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"
#include "tests/engine/op_shapes.h"
#include "tests/length.h"

enum { ROWS = 7, WIDTH = 13 };

/* ---- the layer: y = x gate by column, and a loss ---- */

typedef enum plant {
    NOTHING,
    WRITE_BEHIND,
    NO_ADD,
    UNDECLARED_READ,
    WRONG_SIGN,
    STATIC_STATE,
    FAILURE,
    FAILURE_IF_RECORDED,
    WAIT,
    WAIT_UNNOTICED,
    QUERY,
    OTHER_STREAM,
    STEP_VALUE /* uses loss_scale */
} plant;

static plant planted;

typedef struct job {
    int is_loss, is_backward, adds;
    const float *x, *gate, *dy, *factor, *hidden;
    float *y, *dx, *dgate;
    float share;
    plant planted;
} job;

static void run_gate(const job *j)
{
    static float kept;
    for (int64_t c = 0; c < WIDTH; c++) {
        float sum = 0;
        for (int64_t at = c; at < ROWS * WIDTH; at += WIDTH) {
            if (!j->is_backward) {
                j->y[at] = j->x[at] * j->gate[c];
                continue;
            }
            const float dx =
                j->planted == WRONG_SIGN ? -j->dy[at] * j->gate[c] : j->dy[at] * j->gate[c];
            j->dx[at] = j->adds && j->planted != NO_ADD ? j->dx[at] + dx : dx;
            sum += j->dy[at] * j->x[at];
        }
        if (j->is_backward)
            j->dgate[c] = sum + (j->planted == UNDECLARED_READ ? 0.0f * j->hidden[c] : 0.0f);
    }
    if (j->planted == WRITE_BEHIND && !j->is_backward)
        j->y[ROWS * WIDTH] = 1.0f;
    if (j->planted == STATIC_STATE && !j->is_backward)
        j->y[0] += kept++;
}

static void run_loss(const job *j)
{
    const int64_t count = ROWS * WIDTH;
    const float scale = j->share * (j->factor != NULL ? *j->factor : 1.0f) / (float)count;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (j->is_backward)
            j->dx[i] = j->x[i] * scale;
        sum += 0.5 * (double)j->x[i] * (double)j->x[i];
    }
    if (!j->is_backward)
        j->y[0] = (float)(sum / (double)count);
}

static void run_job(const void *arguments)
{
    const job *j = arguments;
    (j->is_loss ? run_loss : run_gate)(j);
}

static job job_of(const coh_call *call, int is_loss, int is_backward)
{
    const int uses_step = planted == STEP_VALUE;
    return (job){ .is_loss = is_loss,
                  .is_backward = is_backward,
                  .adds = (call->input_grad_adds & 1u) != 0,
                  .x = call->input[0].data,
                  .gate = call->parameter[0].data,
                  .dy = call->output_grad[0].data,
                  .factor = uses_step ? NULL : call->loss_factor_cell,
                  .hidden = call->output[0].data,
                  .y = call->output[0].data,
                  .dx = call->input_grad[0].data,
                  .dgate = call->parameter_grad[0].data,
                  .share = uses_step ? call->loss_scale : call->loss_share,
                  .planted = planted };
}

/* ---- its functions for CUDA ---- */

static coh_status enqueue_elsewhere(const job *j)
{
    CUstream stream;
    if (coh_stub_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return coh_kind_fail(COH_ERR_DEVICE, "no stream");
    coh_stub_enqueue(stream, run_job, j, sizeof(*j));
    (void)coh_stub_driver.cuStreamSynchronize(stream);
    (void)coh_stub_driver.cuStreamDestroy(stream);
    return COH_OK;
}

/* Launches, and those before which nothing was copied from the GPU since the last one. */
static struct {
    uint64_t fetched_bytes;
    int count, wasted;
} launches;

static void note_launch(void)
{
    const uint64_t fetched_bytes = coh_stub_fetched_bytes();
    launches.wasted += launches.count++ > 0 && fetched_bytes == launches.fetched_bytes;
    launches.fetched_bytes = fetched_bytes;
}

static coh_status enqueue(const coh_call *call, int is_loss, int is_backward)
{
    const job j = job_of(call, is_loss, is_backward);
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    const coh_status status = coh_cuda_begin(call, 1, &on);
    if (status != COH_OK || !on.enqueues)
        return status;
    if (planted == FAILURE)
        return coh_kind_fail(COH_ERR_DEVICE, "a failure on request");
    if (planted == FAILURE_IF_RECORDED && on.is_recording)
        return coh_kind_fail(COH_ERR_ARGUMENT, "this layer has no graph");
    if (planted == OTHER_STREAM)
        return enqueue_elsewhere(&j);
    note_launch();
    coh_stub_enqueue(on.stream, run_job, &j, sizeof(j));
    if (planted == QUERY)
        (void)coh_stub_driver.cuStreamQuery(on.stream);
    if ((planted == WAIT || planted == WAIT_UNNOTICED) &&
        coh_stub_driver.cuStreamSynchronize(on.stream) != CUDA_SUCCESS && planted == WAIT)
        return coh_kind_fail(COH_ERR_DEVICE, "the layer cannot wait for its stream");
    return COH_OK;
}

#define ON_BOTH(name, is_loss, is_backward)                                                        \
    static coh_status name(const coh_call *call)                                                   \
    {                                                                                              \
        const job j = job_of(call, is_loss, is_backward);                                          \
        run_job(&j);                                                                               \
        return COH_OK;                                                                             \
    }                                                                                              \
    static coh_status name##_cuda(const coh_call *call)                                            \
    {                                                                                              \
        return enqueue(call, is_loss, is_backward);                                                \
    }
ON_BOTH(gate, 0, 0)
ON_BOTH(gate_backward, 0, 1)
ON_BOTH(half_square, 1, 0)
ON_BOTH(half_square_backward, 1, 1)

COH_LAYER(host_gate, "test.gate", 1, 1, gate, gate_backward,
          .parameter = { { "gate", { -1 }, COH_INIT_ONE } });
COH_LAYER(host_loss, "test.half_square", 1, 0, half_square, half_square_backward, .output = { 1 });

static coh_op_kind gate_kind(void)
{
    coh_op_kind kind = host_gate;
    kind.devices[COH_DEVICE_CUDA] =
        (coh_kind_device){ .forward = gate_cuda, .backward = gate_backward_cuda };
    kind.can_add_grad.inputs = 1;
    kind.backward_reads = (coh_port_mask){ .inputs = 1, .parameters = 1 };
    return kind;
}

static coh_op_kind loss_kind(void)
{
    coh_op_kind kind = host_loss;
    kind.devices[COH_DEVICE_CUDA] =
        (coh_kind_device){ .forward = half_square_cuda, .backward = half_square_backward_cuda };
    kind.is_loss = 1;
    return kind;
}

/* ---- a layer with a state: y = x + count, then count += 1 ---- */

typedef struct count_job {
    const float *x;
    float *y, *count;
} count_job;

static void run_count(const void *arguments)
{
    const count_job *j = arguments;
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        j->y[i] = j->x[i] + j->count[0];
    j->count[0] += 1.0f;
}

static count_job count_job_of(const coh_call *call)
{
    return (count_job){ .x = call->input[0].data,
                        .y = call->output[0].data,
                        .count = call->state[0].data };
}

static coh_status count_forward(const coh_call *call)
{
    const count_job j = count_job_of(call);
    run_count(&j);
    return COH_OK;
}

static coh_status count_forward_cuda(const coh_call *call)
{
    const count_job j = count_job_of(call);
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    const coh_status status = coh_cuda_begin(call, 1, &on);
    if (status == COH_OK && on.enqueues)
        coh_stub_enqueue(on.stream, run_count, &j, sizeof(j));
    return status;
}

static coh_status count_infer(const void *attributes, const coh_shape *inputs,
                              coh_op_facts *out_facts)
{
    (void)attributes;
    out_facts->output[0] = inputs[0];
    out_facts->state[0] = (coh_shape){ COH_DTYPE_F32, 1, { 1 } };
    return COH_OK;
}

static const coh_op_kind count_kind = {
    .struct_bytes = sizeof(count_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.count",
    .input_count = 1,
    .output_count = 1,
    .state_count = 1,
    .infer = count_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = count_forward },
                 [COH_DEVICE_CUDA] = { .forward = count_forward_cuda } },
};

/* ---- checking ---- */

typedef struct findings {
    int count;
    coh_op_fault fault; /* of the first */
    char port[64], sentence[1024];
} findings;

static void take(void *context, const coh_op_finding *finding)
{
    findings *all = context;
    if (all->count++ > 0)
        return;
    all->fault = finding->fault;
    snprintf(all->port, sizeof(all->port), "%s", finding->port);
    snprintf(all->sentence, sizeof(all->sentence), "%s", finding->sentence);
}

/* A call of the driver that fails: the nth of a function; 0: none. */
typedef struct fault {
    coh_stub_call call;
    uint64_t nth;
    CUresult result;
} fault;

/* Checks a kind on a new GPU, and that nothing is left on it. */
static coh_status check_with(const fault *fails, const coh_op_kind *kind,
                             coh_op_check_options *options, coh_op_report *out_report,
                             findings *all)
{
    *all = (findings){ 0 };
    *out_report = (coh_op_report){ .struct_bytes = sizeof(*out_report) };
    memset(&launches, 0, sizeof(launches));
    options->struct_bytes = sizeof(*options);
    options->found = take;
    options->context = all;
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_fail_nth(fails->call, fails->nth, fails->result);
    coh_stub_start(3);
    const coh_status status = coh_op_check_on(kind, options, &trial_gpu, out_report);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
    assert_int_equal(out_report->finding_count, all->count);
    return status;
}

static coh_op_report check(const coh_op_kind *kind, coh_op_check_options *options, findings *all)
{
    coh_op_report report;
    if (check_with(&(fault){ 0 }, kind, options, &report, all) != COH_OK)
        fail_msg("%s: %s", kind->name, coh_last_error());
    return report;
}

static const coh_shape input = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };

static const struct {
    plant plant;
    coh_op_fault fault;
    const char *port, *says;
} mistakes[] = {
    { WRITE_BEHIND, COH_OP_FAULT_WRITES_OUTSIDE, "output 0", "element 91:" },
    { NO_ADD, COH_OP_FAULT_ADDS, "input_grad 0", "use +=" },
    { UNDECLARED_READ, COH_OP_FAULT_READS_UNDECLARED, "output 0", "backward_reads" },
    { WRONG_SIGN, COH_OP_FAULT_GRADIENT, "input_grad 0", "the sign" },
    { STATIC_STATE, COH_OP_FAULT_VARIES, "output 0", "static variable" },
    { FAILURE, COH_OP_FAULT_FAILED, "", "a failure on request" },
    { FAILURE_IF_RECORDED, COH_OP_FAULT_RECORDING, "", "this layer has no graph" },
    { WAIT, COH_OP_FAULT_RECORDING, "", "waits for its stream" },
    { WAIT_UNNOTICED, COH_OP_FAULT_RECORDING, "", "waits for its stream" },
    { QUERY, COH_OP_FAULT_RECORDING, "", "queries it" },
    { OTHER_STREAM, COH_OP_FAULT_RECORDING, "output 0", "another stream" },
    { STEP_VALUE, COH_OP_FAULT_LOSS_SCALE, "input_grad 0", "loss_factor_cell" },
};

static void mistakes_of_functions_for_cuda_are_found_with_their_cause(void **state)
{
    (void)state;
    int missed = 0;
    const coh_op_kind gated = gate_kind(), loss = loss_kind();
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        coh_op_check_options options = { .inputs = &input, .seed = 1 };
        findings all;
        planted = mistakes[i].plant;
        check(planted == STEP_VALUE ? &loss : &gated, &options, &all);
        planted = NOTHING;
        const int is_right = all.count > 0 && all.fault == mistakes[i].fault &&
                             strcmp(all.port, mistakes[i].port) == 0 &&
                             strstr(all.sentence, mistakes[i].says) != NULL;
        printf("%s %d: %s\n", is_right ? "found " : "MISSED", (int)mistakes[i].plant,
               all.count > 0 ? all.sentence : "nothing");
        missed += !is_right;
    }
    assert_int_equal(missed, 0);
}

static void right_layers_pass(void **state)
{
    (void)state;
    const coh_op_kind gated = gate_kind(), loss = loss_kind();
    for (uint64_t seed = 0; seed < 10; seed++) {
        coh_op_check_options options = { .inputs = &input, .seed = seed };
        findings all;
        const coh_op_report report = check(seed % 2 ? &gated : &loss, &options, &all);
        if (all.count > 0)
            fail_msg("seed %d: %s", (int)seed, all.sentence);
        assert_int_equal(report.gradient_count, seed % 2 ? 2 : 1);
    }
}

static void a_layer_that_changes_its_state_passes(void **state)
{
    (void)state;
    coh_op_check_options options = { .inputs = &input, .seed = 1 };
    findings all;
    check(&count_kind, &options, &all);
    if (all.count > 0)
        fail_msg("%s", all.sentence);
}

/* A kind that is not yet checked runs no more often than its results are compared. */
static void the_result_of_every_launch_is_fetched(void **state)
{
    (void)state;
    const coh_op_kind gated = gate_kind();
    coh_op_check_options options = { .inputs = &input, .seed = 1 };
    findings all;
    check(&gated, &options, &all);
    printf("%d launches, %d without a look at the result\n", launches.count, launches.wasted);
    assert_true(launches.count > 20);
    assert_int_equal(launches.wasted, 0);
}

static void a_graph_that_the_driver_refuses_is_reported_with_its_reason(void **state)
{
    (void)state;
    const coh_op_kind gated = gate_kind();
    coh_op_check_options options = { .inputs = &input, .seed = 1 };
    coh_op_report report;
    findings all;
    const fault fails = { COH_STUB_cuGraphInstantiateWithFlags, 1, CUDA_ERROR_OUT_OF_MEMORY };
    assert_int_equal(check_with(&fails, &gated, &options, &report, &all), COH_OK);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.fault, COH_OP_FAULT_RECORDING);
    if (strstr(all.sentence, "cuGraphInstantiateWithFlags") == NULL)
        fail_msg("%s", all.sentence);
}

/* Whichever copy fails, between the calls or around them. */
static void a_failing_copy_is_a_failure_and_no_finding(void **state)
{
    (void)state;
    const coh_op_kind gated = gate_kind();
    coh_op_check_options options = { .inputs = &input, .seed = 1 };
    uint64_t copies = 0;
    for (int is_done = 0; !is_done;) {
        coh_op_report report;
        findings all;
        const fault fails = { COH_STUB_cuMemcpyAsync, ++copies, CUDA_ERROR_ILLEGAL_ADDRESS };
        const coh_status status = check_with(&fails, &gated, &options, &report, &all);
        is_done = !coh_stub_fault_was_hit();
        if (status != (is_done ? COH_OK : COH_ERR_DEVICE) || all.count > 0)
            fail_msg("copy %d: %s", (int)copies, all.count > 0 ? all.sentence : "no failure");
    }
    printf("%d copies failed\n", (int)copies - 1);
    assert_true(copies > 20);
}

static void kinds_of_the_library_pass(void **state)
{
    (void)state;
    int compared = 0, cases = 0;
    for (int index = 0; index < SHAPE_CASES; index += test_seeks_races() ? 61
                                                      : test_is_short()  ? 7
                                                                         : 1) {
        const shape_case *from = shape_case_at(index);
        if (from->is_large || from->kind->devices[COH_DEVICE_CUDA].forward == NULL)
            continue;
        coh_case one;
        coh_shape inputs[4];
        coh_op_check_options options = { 0 };
        findings all;
        op_shape_create(&one, index, inputs, &options);
        compared += check(from->kind, &options, &all).gradient_count > 0;
        if (all.count > 0)
            fail_msg("%s: %s", from->why, all.sentence);
        coh_case_destroy(&one);
        cases++;
    }
    printf("kinds of the library: %d shapes, %d with gradients\n", cases, compared);
    assert_true(compared >= cases / 3);
}

static void what_cannot_be_checked_on_a_gpu_is_refused(void **state)
{
    (void)state;
    coh_op_check_options options = { .struct_bytes = sizeof(options), .inputs = &input };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    assert_int_equal(coh_op_check_on(&host_gate, &options, &trial_gpu, &report), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "'test.gate' has no functions for a GPU"));
    options.device = "gpu";
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "no device is called 'gpu'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_of_functions_for_cuda_are_found_with_their_cause),
        cmocka_unit_test(right_layers_pass),
        cmocka_unit_test(a_layer_that_changes_its_state_passes),
        cmocka_unit_test(the_result_of_every_launch_is_fetched),
        cmocka_unit_test(a_graph_that_the_driver_refuses_is_reported_with_its_reason),
        cmocka_unit_test(a_failing_copy_is_a_failure_and_no_finding),
        cmocka_unit_test(kinds_of_the_library_pass),
        cmocka_unit_test(what_cannot_be_checked_on_a_gpu_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
