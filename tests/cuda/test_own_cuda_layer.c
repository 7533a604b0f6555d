/* examples/own_cuda_layer on the stub driver's GPU: its model, its training and its kernels, which
 * are compiled as C++ (played_runtime/). In memory and streamed, as graphs or launched one by one,
 * it ends with the bits of the host device. The check of its kind passes. */
int own_cuda_layer_main(int count, char **arguments);
#define main own_cuda_layer_main
#include "examples/own_cuda_layer/own_cuda_layer.c"
#undef main

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "engine/op_check.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

extern int played_load_count;
int played_load_count;

static outcome train_on(const coh_graph *graph, const coh_profile *profile,
                        const trial_placement *p)
{
    outcome found = { 0 };
    coh_engine_options options;
    coh_engine *engine;
    coh_plan *plan = trial_plan(graph, profile, p);
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    if (coh_engine_create_on(plan, &options, profile ? &trial_gpu : &trial_host, &engine) != COH_OK)
        fail_msg("%s: no engine: %s", p->name, coh_last_error());
    if (train(engine, &found) != COH_OK)
        fail_msg("%s: %s", p->name, coh_last_error());
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return found;
}

static void check(const coh_graph *graph, const coh_profile *profile, const trial_placement *p,
                  const char *graphs, const outcome *expected)
{
    assert_int_equal(graphs ? setenv("COH_CUDA_GRAPHS", graphs, 1) : unsetenv("COH_CUDA_GRAPHS"),
                     0);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_start(5);
    played_load_count = 0;
    const outcome found = train_on(graph, profile, p);
    coh_stub_stop();
    assert_int_equal(unsetenv("COH_CUDA_GRAPHS"), 0);
    assert_true(played_load_count > 0);
    assert_int_equal(found.hash, expected->hash);
    assert_true(found.first_loss == expected->first_loss);
    assert_true(found.last_loss == expected->last_loss);
    assert_int_equal(found.moved_bytes > 0, p->device_percent > 0);
}

static void the_example_has_the_bits_of_the_host_on_a_gpu(void **state)
{
    (void)state;
    static const trial_placement host = { .name = "host", .microbatches = 1, .deferred = 1 },
                                 memory = { .name = "in memory", .microbatches = 1, .deferred = 1 },
                                 streamed = { .name = "streamed",
                                              .device_percent = 60,
                                              .microbatches = 1,
                                              .deferred = 1 };
    coh_graph *graph;
    coh_profile *profile;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(build(graph), COH_OK);
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    const outcome expected = train_on(graph, NULL, &host);
    assert_true(expected.last_loss < expected.first_loss);
    check(graph, profile, &streamed, NULL, &expected);
    check(graph, profile, &memory, "none", &expected);
    if (!test_is_brief()) {
        check(graph, profile, &memory, NULL, &expected);
        check(graph, profile, &streamed, "none", &expected);
    }
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* Prints a finding. */
static void print_finding(void *context, const coh_op_finding *finding)
{
    (void)context;
    printf("%s\n", finding->sentence);
}

static void the_check_of_its_kind_finds_nothing_on_a_gpu(void **state)
{
    (void)state;
    const coh_op_kind gate = gate_kind();
    const coh_shape x = { COH_DTYPE_F32, 3, { 4, 6, 17 } };
    const coh_op_check_options options = {
        .struct_bytes = sizeof(options), .inputs = &x, .seed = 2, .found = print_finding
    };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_start(5);
    assert_int_equal(coh_op_check_on(&gate, &options, &trial_gpu, &report), COH_OK);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.gradient_count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_has_the_bits_of_the_host_on_a_gpu),
        cmocka_unit_test(the_check_of_its_kind_finds_nothing_on_a_gpu),
    };
    return cmocka_run_group_tests_name("own_cuda_layer", tests, NULL, NULL);
}
