/* The check mode of an engine: a run of right kinds has the bits of a run without it, and a write
 * outside a buffer, or to one that is only read, ends the step with a sentence that names operator,
 * port and element, and changes nothing of the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cohobate/cohobate.h"
#include "tests/engine/op_mistakes.h"
#include "tests/engine/stray.h"

enum { TOKENS = 16, VOCABULARY = 41, STEPS = 3, ITEMS = STRAY_ITEMS };

static char said[1024];            /* by the last failure of a step */
static const char *optimizer = ""; /* of the next run */

static int is_of_update(const char *sentence)
{
    return strncmp(sentence, "optimizer '", 11) == 0;
}

/* Runs some steps; returns the first failure, or COH_OK and the hash. A failure changes no number
 * of the engine. */
static coh_status run(const coh_graph *graph, uint64_t memory, int checks, const void *first,
                      const void *second, uint64_t *out_hash)
{
    coh_plan_options plan_options;
    coh_engine_options options;
    coh_plan *plan;
    coh_engine *engine;
    uint64_t before;
    coh_status status = COH_OK;
    coh_plan_options_init(&plan_options);
    plan_options.device_memory_bytes = memory;
    plan_options.disk_bytes = UINT64_MAX;
    plan_options.microbatch_count = 2;
    plan_options.search = COH_SEARCH_QUICK;
    snprintf(plan_options.optimizer, sizeof(plan_options.optimizer), "%s", optimizer);
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    options.check_calls = checks;
    options.thread_count = 2;
    if (coh_plan_create(graph, &plan_options, &plan) != COH_OK ||
        coh_engine_create(plan, &options, &engine) != COH_OK ||
        coh_engine_init(engine, 1) != COH_OK || coh_engine_hash(engine, &before) != COH_OK)
        fail_msg("%s", coh_last_error());
    for (uint64_t step = 0; step < STEPS && status == COH_OK; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .learning_rate = 1e-3f,
                                       .clip = 1.0f,
                                       .inputs = { first, second } };
        status = coh_engine_step(engine, &input, &result);
    }
    snprintf(said, sizeof(said), "%s", status != COH_OK ? coh_last_error() : "");
    const coh_status hashed = coh_engine_hash(engine, out_hash);
    if (status != COH_OK && is_of_update(said)) /* some updates of the step have been made */
        assert_int_not_equal(hashed, COH_OK);
    else if (hashed != COH_OK)
        fail_msg("%s", coh_last_error());
    else if (status != COH_OK)
        assert_int_equal(*out_hash, before);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return status;
}

/* Tied weights, dropout, classifier in ranges of rows: in memory, and streamed and checked. Each
 * optimizer, f32 and bf16. */
static void checked_runs_have_the_same_bits(void **state)
{
    (void)state;
    coh_model model = { .name = "tiny",
                        .family = COH_FAMILY_GPT2,
                        .gpt2 = { .layers = 2,
                                  .heads = 2,
                                  .channels = 32,
                                  .positions = TOKENS,
                                  .vocabulary = VOCABULARY,
                                  .layernorm_epsilon = 1e-5f } };
    int32_t tokens[2 * TOKENS], targets[2 * TOKENS];
    uint64_t hash[2] = { 0 };
    coh_graph *graph;
    for (int i = 0; i < 2 * TOKENS; i++) {
        tokens[i] = i * 3 % VOCABULARY;
        targets[i] = i == 2 ? -1 : (i * 3 + 3) % VOCABULARY;
    }
    for (int32_t o = 0; o < 2 * coh_optimizer_count(); o++) {
        model.gpt2.dtype = o % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        optimizer = coh_optimizer_at(o / 2)->name;
        assert_int_equal(coh_model_train_graph(&model, 1, TOKENS, &graph), COH_OK);
        for (int i = 0; i < 2; i++)
            if (run(graph, i ? 300 << 10 : UINT64_MAX, i, tokens, targets, &hash[i]) != COH_OK)
                fail_msg("%s: %s", optimizer, coh_last_error());
        assert_int_equal(hash[1], hash[0]);
        coh_graph_destroy(graph);
    }
    optimizer = "";
}

/* One operator of the kind and a loss. */
static coh_graph *graph_of(const coh_op_kind *kind, const char *name, const coh_shape *shape)
{
    static const coh_reshape_attributes flat = { { -1 }, 1, 0 };
    coh_graph *graph = NULL;
    coh_tensor x, target, y[2], loss;
    const coh_shape row = { COH_DTYPE_F32, 1, { ITEMS } };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", shape, &x), COH_OK);
    assert_int_equal(coh_graph_input(graph, "target", &row, &target), COH_OK);
    const coh_op_args args = { .name = name, .inputs = &x, .block = -1 };
    const coh_op_args reshaping = { .name = "flat",
                                    .attributes = &flat,
                                    .attribute_bytes = sizeof(flat),
                                    .inputs = y,
                                    .block = -1 };
    const coh_op_args losing = { .name = "loss", .inputs = y, .block = -1 };
    assert_int_equal(coh_graph_op(graph, kind, &args, &y[0], NULL), COH_OK);
    assert_int_equal(coh_graph_op(graph, &coh_kind_reshape, &reshaping, &y[0], NULL), COH_OK);
    y[1] = target;
    assert_int_equal(coh_graph_op(graph, &coh_kind_mean_squared_error, &losing, &loss, NULL),
                     COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    return graph;
}

static void an_undeclared_write_ends_the_step_with_its_place(void **state)
{
    (void)state;
    static float x[2 * ITEMS], target[2 * ITEMS];
    int found = 0;
    const op_mistake *mistake;
    for (int i = 0; i < 2 * ITEMS; i++)
        x[i] = (float)(i % 13) / 7.0f - 1.0f;
    for (int i = 0; (mistake = op_mistake_at(i)) != NULL; i++) {
        if (mistake->fault != COH_OP_FAULT_WRITES_OUTSIDE &&
            mistake->fault != COH_OP_FAULT_WRITES_INPUT)
            continue;
        if (strcmp(mistake->port, "input_grad 0") == 0)
            continue; /* the gradient of a graph's input is left out */
        coh_graph *graph = graph_of(mistake->kind, "spoilt", &mistake->input);
        uint64_t hash;
        assert_int_equal(run(graph, UINT64_MAX, 1, x, target, &hash), COH_ERR_ARGUMENT);
        if (strstr(said, "operator 'spoilt'") == NULL || strstr(said, mistake->port) == NULL ||
            strstr(said, coh_op_fault_name(mistake->fault)) == NULL)
            fail_msg("%s: %s", mistake->what, said);
        coh_graph_destroy(graph);
        found++;
    }
    assert_int_equal(found, 8);
}

/* ---- writes of any length at any distance ---- */

/* Steps of the copy in a checked engine. */
static coh_status run_stray(void)
{
    static float x[2 * ITEMS], target[2 * ITEMS];
    const coh_shape row = { COH_DTYPE_F32, 1, { ITEMS } };
    coh_graph *graph = graph_of(&stray_kind, "spoilt", &row);
    uint64_t hash;
    const coh_status status = run(graph, UINT64_MAX, 1, x, target, &hash);
    coh_graph_destroy(graph);
    return status;
}

/* Up to 1 MiB, that is beyond all buffers of the call, contents of some included. */
static void a_write_of_any_length_is_the_workspaces_and_spoils_nothing(void **state)
{
    (void)state;
    static const struct {
        int64_t from, bytes, element; /* from: of the end of the workspace, or of its begin */
    } cases[] = { { STRAY_SCRATCH, 4, 64 },
                  { STRAY_SCRATCH, 4096, 64 },
                  { STRAY_SCRATCH, 128 << 10, 64 },
                  { STRAY_SCRATCH, 1 << 20, 64 },
                  { STRAY_SCRATCH + 256, 4, 320 },
                  { STRAY_SCRATCH + 65536, 4, 65600 },
                  { 0, 128 << 10, 64 },
                  { -4, 4, -1 },
                  { -4096, 4096, -1 },
                  { -4096 - 16, 4, -4096 - 13 } };
    stray.bytes = 0;
    assert_int_equal(run_stray(), COH_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char place[96];
        stray.from = cases[i].from;
        stray.bytes = cases[i].bytes;
        snprintf(place, sizeof(place),
                 "writes outside its buffers: workspace, element %" PRId64 ":", cases[i].element);
        assert_int_equal(run_stray(), COH_ERR_ARGUMENT);
        if (strstr(said, place) == NULL || strstr(said, "workspace_bytes of infer") == NULL)
            fail_msg("%" PRId64 " bytes at %" PRId64 ": %s", stray.bytes, stray.from, said);
    }
}

/* A write that passes the margin must not reach memory of the engine. */
static void a_write_far_outside_ends_the_process(void **state)
{
    (void)state;
    static const int64_t far[] = { (int64_t)64 << 20, -((int64_t)64 << 20) };
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const struct rlimit no_core = { 0 };
            signal(SIGSEGV, SIG_DFL);
            (void)setrlimit(RLIMIT_CORE, &no_core);
            stray.from = far[i];
            stray.bytes = 4;
            (void)run_stray();
            _exit(0);
        }
        int ended = 0;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
    }
}

/* ---- optimizers ---- */

/* One f32 per element in a stream that has one per two elements. */
static void update_too_much(const coh_update_call *call)
{
    const float *grad = call->grad;
    float *work = call->work, *m = call->states[0];
    for (int64_t i = 0; i < call->count; i++) {
        m[i] = 0.9f * m[i] + call->scale * grad[i];
        work[i] -= call->rate * m[i];
    }
}

static void update_before(const coh_update_call *call)
{
    ((float *)call->work)[-1] = 1;
}

static void update_grad(const coh_update_call *call)
{
    ((float *)(uintptr_t)call->grad)[3] = 7;
}

/* The step of each element depends on the other elements of the range. */
static void update_by_range(const coh_update_call *call)
{
    float *work = call->work;
    for (int64_t i = 0; i < call->count; i++)
        work[i] -= call->rate * (float)(call->count + i);
}

static const struct {
    coh_optimizer optimizer;
    const char *sentence;
} wrong[] = {
    { { .struct_bytes = sizeof(coh_optimizer),
        .name = "too_much",
        .revision = 1,
        .stream_count = 1,
        .streams = { { "ov", 4, 2, 1 } },
        .update = update_too_much },
      "optimizer 'too_much', update of 128 elements of 'wide.w': writes outside its buffers: "
      "stream 'ov', byte 256, where it has 256 bytes" },
    { { .struct_bytes = sizeof(coh_optimizer),
        .name = "before",
        .revision = 1,
        .update = update_before },
      "optimizer 'before', update of 128 elements of 'wide.w': writes outside its buffers: work, "
      "byte -" },
    { { .struct_bytes = sizeof(coh_optimizer),
        .name = "of_grad",
        .revision = 1,
        .update = update_grad },
      "optimizer 'of_grad', update of 128 elements of 'wide.w': writes to grad, byte 12" },
    { { .struct_bytes = sizeof(coh_optimizer),
        .name = "by_range",
        .revision = 1,
        .update = update_by_range },
      "optimizer 'by_range', update of 128 elements of 'wide.w': work, byte 0, has other bits" },
};

static coh_status wide_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){ .name = "w",
                                                 .shape = { COH_DTYPE_F32, 1, { 128 } },
                                                 .init = COH_INIT_ONE };
    return COH_OK;
}

static coh_status wide_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    for (int i = 0; i < ITEMS; i++)
        ((float *)call->output[0].data)[i] = x[i] * w[i];
    return COH_OK;
}

static coh_status wide_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    for (int i = 0; i < 128; i++)
        ((float *)call->parameter_grad[0].data)[i] = i < ITEMS ? dy[i] * x[i] : 0;
    return COH_OK;
}

static const coh_op_kind wide_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.wide",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .backward_reads = { .inputs = 1 },
    .can_skip_grad = { .inputs = 1 },
    .infer = wide_infer,
    .devices = { { .forward = wide_forward, .backward = wide_backward } },
};

static void a_wrong_update_ends_the_step_with_its_optimizer_and_parameter(void **state)
{
    (void)state;
    static float x[2 * ITEMS], target[2 * ITEMS];
    const coh_shape row = { COH_DTYPE_F32, 1, { ITEMS } };
    coh_graph *graph = graph_of(&wide_kind, "wide", &row);
    for (int i = 0; i < 2 * ITEMS; i++)
        x[i] = (float)(i % 13) / 7.0f - 1.0f;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint64_t hash;
        optimizer = wrong[i].optimizer.name;
        assert_int_equal(coh_optimizer_register(&wrong[i].optimizer), COH_OK);
        assert_int_equal(run(graph, UINT64_MAX, 1, x, target, &hash), COH_ERR_ARGUMENT);
        if (strncmp(said, wrong[i].sentence, strlen(wrong[i].sentence)) != 0)
            fail_msg("%s", said);
    }
    optimizer = "";
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked_runs_have_the_same_bits),
        cmocka_unit_test(an_undeclared_write_ends_the_step_with_its_place),
        cmocka_unit_test(a_write_of_any_length_is_the_workspaces_and_spoils_nothing),
        cmocka_unit_test(a_write_far_outside_ends_the_process),
        cmocka_unit_test(a_wrong_update_ends_the_step_with_its_optimizer_and_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
