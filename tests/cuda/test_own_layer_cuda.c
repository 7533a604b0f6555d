/* A layer and a loss that are written outside the library, with the public headers alone, on the
 * stub driver's GPU: the bits of the host device, in memory and streamed, as graphs or launched one
 * by one. A layer that waits for its stream spoils the recording and keeps the bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/cuda.h"
#include "cohobate/layer.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"

enum { LAYERS = 8, WIDTH = 20000, ROWS = 2 };

/* ---- the kernels: plain loops, enqueued as commands of the stub's stream ---- */

typedef struct job {
    int is_loss, is_backward, adds;
    int64_t rows;
    const float *x, *gate, *factor, *dy;
    float *y, *dx, *dgate;
    float share;
} job;

static void run_gate(const job *j)
{
    for (int64_t c = 0; c < WIDTH; c++) {
        float sum = 0;
        for (int64_t at = c; at < j->rows * WIDTH; at += WIDTH) {
            if (!j->is_backward)
                j->y[at] = j->x[at] * j->gate[c];
            else if (j->dx != NULL)
                j->dx[at] = j->dy[at] * j->gate[c];
            sum += j->is_backward ? j->dy[at] * j->x[at] : 0;
        }
        if (j->is_backward)
            j->dgate[c] = sum;
    }
}

static void run_loss(const job *j)
{
    const int64_t count = j->rows * WIDTH;
    const float scale = j->share * (j->factor != NULL ? *j->factor : 1) / (float)count;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (j->is_backward)
            j->dx[i] = j->x[i] * scale;
        sum += 0.5 * j->x[i] * j->x[i];
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
    return (job){ .is_loss = is_loss,
                  .is_backward = is_backward,
                  .rows = call->input[0].shape.dim[0],
                  .x = call->input[0].data,
                  .gate = call->parameter[0].data,
                  .factor = call->loss_factor_cell,
                  .dy = call->output_grad[0].data,
                  .y = call->output[0].data,
                  .dx = call->input_grad[0].data,
                  .dgate = call->parameter_grad[0].data,
                  .share = call->loss_share };
}

/* ---- the kinds ---- */

static struct {
    int waits; /* the layer waits for its stream */
    int rehearsals, recorded, launched, refused_waits;
} seen;

static coh_status enqueue(const coh_call *call, int is_loss, int is_backward)
{
    const job j = job_of(call, is_loss, is_backward);
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    const coh_status status = coh_cuda_begin(call, 1, &on);
    if (status != COH_OK)
        return status;
    seen.rehearsals += on.is_rehearsal;
    if (!on.enqueues)
        return COH_OK;
    assert_int_equal(on.device_index, 0);
    assert_true(on.multiprocessor_count > 0);
    coh_stub_enqueue(on.stream, run_job, &j, sizeof(j));
    seen.recorded += on.is_recording;
    seen.launched += !on.is_recording;
    if (seen.waits && coh_stub_driver.cuStreamSynchronize(on.stream) != CUDA_SUCCESS) {
        seen.refused_waits++;
        return coh_kind_fail(COH_ERR_DEVICE, "the layer cannot wait for its stream");
    }
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

static coh_op_kind kind_of(const coh_op_kind *host, coh_status (*forward)(const coh_call *),
                           coh_status (*backward)(const coh_call *))
{
    coh_op_kind kind = *host;
    kind.devices[COH_DEVICE_CUDA] = (coh_kind_device){ .forward = forward, .backward = backward };
    return kind;
}

/* ---- training ---- */

static coh_graph *make_graph(void)
{
    const coh_op_kind gated = kind_of(&host_gate, gate_cuda, gate_backward_cuda);
    coh_op_kind loss = kind_of(&host_loss, half_square_cuda, half_square_backward_cuda);
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };
    coh_graph *graph = NULL;
    coh_tensor x;
    loss.is_loss = 1;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
    for (int layer = 0; layer <= LAYERS; layer++) {
        char name[16];
        snprintf(name, sizeof(name), "layer%d", layer);
        const coh_op_args args = { .name = name, .inputs = &x, .block = -1 };
        if (coh_graph_op(graph, layer < LAYERS ? &gated : &loss, &args, &x, NULL) != COH_OK)
            fail_msg("%s", coh_last_error());
    }
    assert_int_equal(coh_graph_loss(graph, x), COH_OK);
    return graph;
}

typedef struct outcome {
    double loss[TRIAL_STEPS];
    uint64_t hash, moved;
} outcome;

static outcome train(const coh_graph *graph, const coh_profile *profile, const trial_placement *p)
{
    static float x[TRIAL_MICROBATCHES * ROWS * WIDTH];
    outcome all = { 0 };
    coh_engine_options options;
    coh_engine *engine;
    coh_plan *plan = trial_plan(graph, profile, p);
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    if (coh_engine_create_on(plan, &options, profile ? &trial_gpu : &trial_host, &engine) != COH_OK)
        fail_msg("%s: no engine: %s", p->name, coh_last_error());
    assert_int_equal(coh_engine_init(engine, 3), COH_OK);
    for (uint64_t step = 0; step < TRIAL_STEPS; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        for (int i = 0; i < TRIAL_MICROBATCHES * ROWS * WIDTH; i++)
            x[i] = sinf((float)(i * 37 % 101) + (float)step);
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .seed = 1,
                                       .learning_rate = 1e-2f,
                                       .inputs = { x } };
        if (coh_engine_step(engine, &input, &result) != COH_OK)
            fail_msg("%s, step %d: %s", p->name, (int)step, coh_last_error());
        all.loss[step] = result.loss;
        all.moved += result.link_bytes[COH_LANE_H2D];
    }
    assert_int_equal(coh_engine_hash(engine, &all.hash), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return all;
}

static void compare(const trial_placement *p, int uses_graphs)
{
    coh_graph *graph = make_graph();
    coh_profile *profile;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    const outcome expected = train(graph, NULL, &(trial_placement){ "host", .deferred = 1 });
    assert_int_equal(
        uses_graphs ? unsetenv("COH_CUDA_GRAPHS") : setenv("COH_CUDA_GRAPHS", "none", 1), 0);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_start(5);
    const outcome found = train(graph, profile, p);
    coh_stub_stop();
    assert_int_equal(unsetenv("COH_CUDA_GRAPHS"), 0);
    assert_true(expected.loss[TRIAL_STEPS - 1] < expected.loss[0] * 0.99);
    for (int step = 0; step < TRIAL_STEPS; step++)
        assert_true(found.loss[step] == expected.loss[step]);
    assert_int_equal(found.hash, expected.hash);
    assert_int_equal(found.moved > 0, p->device_percent > 0);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

static const trial_placement in_memory = { "in memory", .deferred = 1 };
static const trial_placement streamed = { "streamed", 60, .deferred = 1 };

static void a_layer_has_the_bits_of_the_host_in_memory_and_streamed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        memset(&seen, 0, sizeof(seen));
        compare(i % 2 ? &streamed : &in_memory, i < 2);
        assert_true(seen.rehearsals > 0);
        assert_int_equal(seen.recorded > 0, i < 2);
        assert_true(seen.launched > 0 || i < 2);
    }
}

static void a_layer_that_waits_is_not_recorded(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    seen.waits = 1;
    compare(&in_memory, 1);
    assert_true(seen.refused_waits > 0);
    assert_true(seen.launched >= 2 * LAYERS * TRIAL_MICROBATCHES * TRIAL_STEPS);
}

static void a_call_on_the_host_has_no_stream(void **state)
{
    (void)state;
    const coh_call call = { .queue = NULL };
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    assert_int_equal(coh_cuda_begin(&call, 1, &on), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "computes on the host"));
    assert_int_equal(coh_cuda_begin(&call, 0, &on), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "1 or more"));
    assert_int_equal(coh_cuda_begin(NULL, 1, &on), COH_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_the_bits_of_the_host_in_memory_and_streamed),
        cmocka_unit_test(a_layer_that_waits_is_not_recorded),
        cmocka_unit_test(a_call_on_the_host_has_no_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
