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

static char said[1024]; /* by the last failure of a step */

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
    if (coh_engine_hash(engine, out_hash) != COH_OK)
        fail_msg("%s", coh_last_error());
    if (status != COH_OK)
        assert_int_equal(*out_hash, before);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return status;
}

/* Tied weights, dropout, classifier in ranges of rows: memory and streamed. */
static void checked_runs_have_the_same_bits(void **state)
{
    (void)state;
    const coh_model model = { .name = "tiny",
                              .family = COH_FAMILY_GPT2,
                              .gpt2 = { .layers = 2,
                                        .heads = 2,
                                        .channels = 32,
                                        .positions = TOKENS,
                                        .vocabulary = VOCABULARY,
                                        .layernorm_epsilon = 1e-5f } };
    int32_t tokens[2 * TOKENS], targets[2 * TOKENS];
    uint64_t hash[4] = { 0 };
    coh_graph *graph;
    for (int i = 0; i < 2 * TOKENS; i++) {
        tokens[i] = i * 3 % VOCABULARY;
        targets[i] = i == 2 ? -1 : (i * 3 + 3) % VOCABULARY;
    }
    assert_int_equal(coh_model_train_graph(&model, 1, TOKENS, &graph), COH_OK);
    for (int i = 0; i < 4; i++)
        if (run(graph, i / 2 ? 300 << 10 : UINT64_MAX, i % 2, tokens, targets, &hash[i]) != COH_OK)
            fail_msg("%s", coh_last_error());
    for (int i = 1; i < 4; i++)
        assert_int_equal(hash[i], hash[0]);
    coh_graph_destroy(graph);
}

/* One operator of the kind, named "spoilt", and a loss. */
static coh_graph *graph_of(const coh_op_kind *kind, const coh_shape *shape)
{
    static const coh_reshape_attributes flat = { { -1 }, 1, 0 };
    coh_graph *graph = NULL;
    coh_tensor x, target, y[2], loss;
    const coh_shape row = { COH_DTYPE_F32, 1, { ITEMS } };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", shape, &x), COH_OK);
    assert_int_equal(coh_graph_input(graph, "target", &row, &target), COH_OK);
    const coh_op_args args = { .name = "spoilt", .inputs = &x, .block = -1 };
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
        coh_graph *graph = graph_of(mistake->kind, &mistake->input);
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
    coh_graph *graph = graph_of(&stray_kind, &row);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked_runs_have_the_same_bits),
        cmocka_unit_test(an_undeclared_write_ends_the_step_with_its_place),
        cmocka_unit_test(a_write_of_any_length_is_the_workspaces_and_spoils_nothing),
        cmocka_unit_test(a_write_far_outside_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
