/* Training on the stub driver's GPU, with the host's kernels on its streams, compared with the host
 * device: the same losses, norms, parameters and states, bit for bit, in any order of the streams,
 * with lines issued as graphs or one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cohobate/kinds.h"
#include "cohobate/layer.h"
#include "cohobate/trace.h"
#include "kernels/cuda/device_kernels.h"
#include "memory/device_cuda.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

/* Commands that the driver holds when it is to be full nearly always: fewer than a line has. */
#define SHALLOW 10

/* The GPU's clock gains 1 ms in 10: without the mapping, times of a step would leave it at once.
 * The bound is far above the error of a mapped time on a busy machine. A clock that is three times
 * as fast is mapped with large errors between two readings; the order must hold with it, too. */
#define GPU_RATE      1.1
#define WILD_RATE     3.0
#define MOST_WRONG_NS 1000000000u

static const trial_placement placements[] = {
    { "in memory", 0, 0, 0, 1 },
    { "streamed", 45, 0, 0, 1 },
    { "streamed, poison", 45, 0, 1, 1 },
    { "streamed, updates in backward", 45, 0, 0, 0 },
    { "streamed, disk", 45, TRIAL_MANY, 0, 1 },
    { "streamed, survivors in both tiers", 60, 0, 0, 1, .host_percent = 55 },
};
enum { PLACEMENT_COUNT = sizeof(placements) / sizeof(placements[0]) };

static coh_graph *make_graph(coh_dtype dtype)
{
    return trial_graph(dtype, 3);
}

static void use_graphs(int uses)
{
    assert_int_equal(uses ? unsetenv("COH_CUDA_GRAPHS") : setenv("COH_CUDA_GRAPHS", "none", 1), 0);
}

/* Returns the peak of the programs that a trial runs up to its last step. */
static uint64_t highest_peak(const coh_plan *plan, int tier)
{
    const uint64_t init = plan->programs[COH_PROGRAM_INIT].peak_bytes[tier];
    const uint64_t body = plan->programs[COH_PROGRAM_BODY].peak_bytes[tier];
    return init > body ? init : body;
}

static uint64_t largest_chunk(const coh_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->layout.chunk_count; i++)
        if (plan->layout.chunks[i].bytes > bytes)
            bytes = plan->layout.chunks[i].bytes;
    return bytes;
}

/* Returns the bytes of parameters that the host lane updates. */
static uint64_t compare(coh_dtype dtype, const trial_placement *p, uint64_t seed, int uses)
{
    coh_graph *graph = make_graph(dtype);
    coh_profile *profile;
    trial_outcome expected, found;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *host_plan = trial_plan(graph, NULL, p), *gpu_plan = trial_plan(graph, profile, p);
    trial_run(host_plan, p, &trial_host, &expected);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_set_depth(seed % 2 == 1 ? SHALLOW : 0);
    use_graphs(uses);
    coh_stub_start(seed);
    trial_run(gpu_plan, p, &trial_gpu, &found);
    coh_stub_stop();
    use_graphs(1);
    assert_int_equal(coh_stub_live_count(), 0);
    /* Of a workspace, the largest chunk, the host has no copy. */
    assert_true(coh_stub_most_host_bytes() < largest_chunk(gpu_plan));
    assert_int_equal(coh_stub_call_count(COH_STUB_cuGraphLaunch) > 0, uses && !p->poison);
    trial_check_equal(p, &found, &expected);
    if (p->host_percent > 0)
        assert_true(gpu_plan->survivor_bytes > gpu_plan->options.host_memory_bytes);
    for (int tier = 0; tier < 2; tier++)
        assert_int_equal(found.steps[TRIAL_STEPS - 1].peak_bytes[tier],
                         highest_peak(gpu_plan, tier));
    assert_int_equal(found.live_after, found.live_before);
    assert_true(found.live_peak <= gpu_plan->layout.arena_bytes[0]);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_plan_summarize(gpu_plan, &summary);
    coh_plan_destroy(gpu_plan);
    coh_plan_destroy(host_plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
    return summary.host_update_bytes;
}

/* In short runs a sanitizer sees every placement in one dtype, and some of them in every other
 * variant. */
static int stride(void)
{
    return test_is_brief() ? 2 : 1;
}

static void f32_has_the_bits_of_the_host(void **state)
{
    uint64_t host_updates = 0;
    (void)state;
    for (int i = 0; i < PLACEMENT_COUNT; i += stride())
        host_updates += compare(COH_DTYPE_F32, &placements[i], (uint64_t)i + 1, 1);
    assert_true(host_updates > 0);
}

static void bf16_has_the_bits_of_the_host(void **state)
{
    (void)state;
    for (int i = test_is_brief() ? 1 : 0; i < PLACEMENT_COUNT; i += stride())
        (void)compare(COH_DTYPE_BF16, &placements[i], (uint64_t)i + 11, 1);
}

static void with_f32_gradients_as_well(void **state)
{
    uint64_t host_updates = 0;
    (void)state;
    if (test_seeks_races()) /* the lanes are those of the two before */
        return;
    for (int i = test_is_brief() ? 2 : 1; i < PLACEMENT_COUNT; i += stride()) {
        trial_placement p = placements[i];
        p.host_percent = 0; /* these gradients need more */
        p.f32_gradients = 1;
        host_updates += compare(COH_DTYPE_BF16, &p, (uint64_t)i + 31, 1);
    }
    assert_true(host_updates > 0);
}

static void without_graphs_the_bits_are_the_same(void **state)
{
    (void)state;
    for (int i = test_seeks_races() ? 4
                 : test_is_brief()  ? 1
                                    : 0;
         i < PLACEMENT_COUNT; i += test_is_brief() ? 3 : 1)
        (void)compare(i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32, &placements[i], (uint64_t)i + 21, 0);
}

enum { SENTENCE_BYTES = 256 };

/* The large learning rate breaks the parameters, and the next step detects it. */
static void scan_on(const coh_plan *plan, const coh_engine_device *device, char *sentence)
{
    static const int32_t ids[TRIAL_IDS];
    coh_step_input input = { .struct_bytes = sizeof(input),
                             .learning_rate = FLT_MAX,
                             .inputs = { ids, ids } };
    coh_engine_options options;
    coh_engine *engine;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_engine_options_init(&options);
    assert_int_equal(coh_engine_create_on(plan, &options, device, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
    assert_true(result.finite);
    input.step = 1;
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
    assert_false(result.finite);
    assert_int_equal(coh_engine_scan(engine, &input, result.applied_count, sentence), COH_OK);
    coh_engine_destroy(engine);
}

/* A scan checks results after each line: recorded lines are then launched one by one. */
static void a_scan_finds_what_it_finds_on_the_host(void **state)
{
    (void)state;
    char expected[SENTENCE_BYTES], found[SENTENCE_BYTES];
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_profile *profile;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *host_plan = trial_plan(graph, NULL, &placements[0]);
    coh_plan *gpu_plan = trial_plan(graph, profile, &placements[0]);
    scan_on(host_plan, &trial_host, expected);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_start(3);
    scan_on(gpu_plan, &trial_gpu, found);
    coh_stub_stop();
    assert_true(coh_stub_call_count(COH_STUB_cuGraphLaunch) > 0);
    assert_non_null(strstr(expected, "operator '"));
    assert_string_equal(found, expected);
    coh_plan_destroy(gpu_plan);
    coh_plan_destroy(host_plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* ---- failing ---- */

typedef struct told {
    int count;
    char text[COH_ERROR_TEXT_BYTES];
} told;

static void tell(void *context, const char *sentence)
{
    told *t = context;
    t->count++;
    snprintf(t->text, sizeof(t->text), "%s", sentence);
}

/* A graph that cannot be made is logged once, and changes no bit. */
static void what_cannot_be_recorded_is_launched(void **state)
{
    static const coh_stub_call calls[] = { COH_STUB_cuStreamBeginCapture,
                                           COH_STUB_cuStreamEndCapture,
                                           COH_STUB_cuGraphInstantiateWithFlags };
    (void)state;
    const trial_placement *p = &placements[1];
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_profile *profile;
    trial_outcome expected, found;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *host_plan = trial_plan(graph, NULL, p), *gpu_plan = trial_plan(graph, profile, p);
    trial_run(host_plan, p, &trial_host, &expected);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        coh_engine_options options;
        coh_engine *engine;
        told t = { 0 };
        coh_engine_options_init(&options);
        options.log = tell;
        options.log_context = &t;
        coh_stub_reset((size_t)TRIAL_GPU_BYTES);
        coh_stub_start(i);
        coh_stub_fail_nth(calls[i], 12, CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(coh_engine_create_on(gpu_plan, &options, &trial_gpu, &engine), COH_OK);
        assert_int_equal(t.count, 1);
        assert_non_null(strstr(t.text, "launched one by one"));
        assert_non_null(strstr(t.text, coh_stub_call_name(calls[i])));
        assert_int_equal(coh_engine_init(engine, 42), COH_OK);
        trial_run_steps(engine, &found);
        coh_engine_destroy(engine);
        coh_stub_stop();
        assert_true(coh_stub_call_count(COH_STUB_cuGraphLaunch) > 0); /* by the first runs */
        assert_int_equal(coh_stub_live_count(), 0);
        trial_check_equal(p, &found, &expected);
    }
    coh_plan_destroy(gpu_plan);
    coh_plan_destroy(host_plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

static void a_plan_of_another_device_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_plan *plan = trial_plan(graph, NULL, &placements[0]);
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    assert_int_equal(coh_engine_create_on(plan, &options, &trial_gpu, &engine), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "plan with a profile of the device"));
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void an_operator_without_kernels_for_a_gpu_is_refused_by_name(void **state)
{
    (void)state;
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 4, 8 } };
    const coh_linear_attributes wide = { 8, 1, 0.1f };
    coh_op_kind on_host = coh_kind_softmax;
    on_host.devices[COH_DEVICE_CUDA] = (coh_kind_device){ 0 };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, wide), COH_LINK_OF(on_host) };
    coh_graph *graph;
    coh_profile *profile;
    coh_tensor x, compared[2], loss;
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    coh_engine_options options;
    coh_engine *engine;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
    assert_int_equal(coh_graph_input(graph, "target", &shape, &compared[1]), COH_OK);
    assert_int_equal(coh_graph_chain(graph, x, links, 2, &compared[0]), COH_OK);
    assert_int_equal(coh_graph_op(graph, &coh_kind_mean_squared_error, &args, &loss, NULL), COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *plan = trial_plan(graph, profile, &placements[0]);
    coh_engine_options_init(&options);
    assert_int_equal(coh_engine_create_on(plan, &options, &trial_gpu, &engine), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "operator '1.softmax'"));
    assert_non_null(strstr(coh_last_error(), "no kernels for a GPU"));
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* It is unknown which of a graph's lines failed, so the message names none of them. */
static void a_graph_that_fails_does_not_blame_a_line(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_F32);
    coh_profile *profile;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    coh_plan *plan = trial_plan(graph, profile, &placements[0]);
    static const int32_t ids[TRIAL_IDS];
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .learning_rate = 1e-2f,
                                   .inputs = { ids, ids } };
    coh_engine_options options;
    coh_engine *engine;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    char expected[64];
    coh_engine_options_init(&options);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_start(5);
    assert_int_equal(coh_engine_create_on(plan, &options, &trial_gpu, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    coh_stub_fail_nth(COH_STUB_cuGraphLaunch, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_ERR_DEVICE);
    snprintf(expected, sizeof(expected), "one of %u instructions of a CUDA graph",
             plan->programs[COH_PROGRAM_BODY].lane_length[COH_LANE_COMPUTE] - 2);
    assert_non_null(strstr(coh_last_error(), expected));
    coh_engine_destroy(engine);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* ---- recorded steps ---- */

enum { RECORDED = 3 };

/* Lanes are in order and each instruction begins after those that it waits for, although the GPU's
 * clock is another one. */
static void check_order(const coh_trace *trace, const coh_trace_step *step)
{
    uint64_t lane_ns[COH_LANE_COUNT] = { 0 };
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        const coh_trace_instruction *instruction = &trace->instructions[i];
        const coh_trace_span *span = &step->spans[i];
        assert_true(span->begin_ns <= span->end_ns);
        assert_true(span->end_ns >= lane_ns[instruction->lane]);
        lane_ns[instruction->lane] = span->end_ns;
        for (uint32_t w = 0; w < instruction->wait_count; w++) {
            const coh_trace_wait *wait = &trace->waits[instruction->wait_begin + w];
            if (!wait->carry)
                assert_true(span->begin_ns >= step->spans[wait->instruction].end_ns);
        }
    }
}

/* Each instruction of a step lies within the step's own submission and end. */
static void check_bounds(const coh_trace *trace, const coh_trace_step *step, uint64_t submitted_ns)
{
    const uint64_t now_ns = coh_clock_ns();
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        assert_true(step->begin_ns + step->spans[i].begin_ns + MOST_WRONG_NS >= submitted_ns);
        assert_true(step->begin_ns + step->spans[i].end_ns <= now_ns + MOST_WRONG_NS);
    }
}

/* Returns the losses' sum; `records` 0: nothing is recorded. */
static double train_recorded(const coh_plan *plan, uint64_t records, double rate)
{
    coh_engine_options options;
    coh_engine *engine;
    coh_trace *trace = NULL;
    coh_trace_step step;
    trial_ids ids;
    double losses = 0;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    options.record_steps = records;
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_set_clock(rate, 987654321098765);
    coh_stub_start(7);
    assert_int_equal(coh_engine_create_on(plan, &options, &trial_gpu, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    assert_int_equal(coh_engine_trace(engine, &trace), COH_OK);
    const uint64_t events = coh_stub_call_count(COH_STUB_cuEventCreate);
    for (uint64_t i = 0; i < RECORDED; i++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = trial_input(plan, i, &ids);
        const uint64_t submitted_ns = coh_clock_ns();
        if (coh_engine_step(engine, &input, &result) != COH_OK)
            fail_msg("step %d: %s", (int)i, coh_last_error());
        losses += result.loss;
        if (rate == GPU_RATE)
            assert_true(result.step_ns <= coh_clock_ns() - submitted_ns + MOST_WRONG_NS);
        assert_int_equal(coh_engine_recorded(engine, i, &step),
                         records ? COH_OK : COH_ERR_ARGUMENT);
        if (records)
            check_order(trace, &step);
        if (records && rate == GPU_RATE)
            check_bounds(trace, &step, submitted_ns);
    }
    assert_int_equal(coh_stub_call_count(COH_STUB_cuEventCreate), events);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuEventElapsedTime) > 0, records > 0);
    coh_trace_free(trace);
    coh_engine_destroy(engine);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
    return losses;
}

/* Without a record no event is timed, and recording changes no bit. */
static void recorded_steps_have_the_hosts_times(void **state)
{
    (void)state;
    coh_graph *graph = trial_graph(COH_DTYPE_F32, 2);
    coh_profile *profile;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    for (int i = 0; i < (test_is_brief() ? 1 : 2); i++) {
        coh_plan *plan = trial_plan(graph, profile, &placements[i == 0 ? 1 : 0]);
        const double losses = train_recorded(plan, 0, GPU_RATE);
        assert_true(train_recorded(plan, RECORDED, GPU_RATE) == losses);
        assert_true(train_recorded(plan, RECORDED, WILD_RATE) == losses);
        coh_plan_destroy(plan);
    }
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* ---- what graphs save ---- */

/* The kernels of products, which do nothing here: only their launches are counted. */
static size_t one_byte(const char *symbol)
{
    (void)symbol;
    return 1;
}

static void run_nothing(const coh_stub_launch *launch)
{
    (void)launch;
}

static const coh_stub_kernels no_kernels = { .argument_bytes = one_byte, .run = run_nothing };
static const coh_engine_device gpu_of_launches = { .ops = &coh_device_cuda,
                                                   .kernels = &coh_cuda_device_kernels,
                                                   .driver = &coh_stub_driver };

/* Counts the driver calls that enqueue. */
static uint64_t calls_so_far(void)
{
    static const coh_stub_call calls[] = { COH_STUB_cuMemcpyAsync,        COH_STUB_cuMemsetD8Async,
                                           COH_STUB_cuStreamWaitEvent,    COH_STUB_cuEventRecord,
                                           COH_STUB_cuStreamWaitValue64,  COH_STUB_cuLaunchKernel,
                                           COH_STUB_cuStreamWriteValue64, COH_STUB_cuGraphLaunch };
    uint64_t count = 0;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        count += coh_stub_call_count(calls[i]);
    return count;
}

/* Counts the calls in the third step of a plan. */
static uint64_t calls_of_a_step(const coh_plan *plan, int uses)
{
    static const int32_t ids[TRIAL_IDS];
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .learning_rate = 1e-2f,
                                   .inputs = { ids, ids } };
    coh_engine_options options;
    coh_engine *engine;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint64_t before = 0;
    coh_engine_options_init(&options);
    coh_stub_reset((size_t)TRIAL_GPU_BYTES);
    coh_stub_set_kernels(&no_kernels);
    use_graphs(uses);
    coh_stub_start(5);
    if (coh_engine_create_on(plan, &options, &gpu_of_launches, &engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
    assert_int_equal(coh_engine_init(engine, 42), COH_OK);
    for (int step = 0; step < 3; step++) {
        before = calls_so_far();
        if (coh_engine_step(engine, &input, &result) != COH_OK)
            fail_msg("step %d: %s", step, coh_last_error());
    }
    const uint64_t count = calls_so_far() - before;
    coh_engine_destroy(engine);
    coh_stub_stop();
    coh_stub_set_kernels(NULL);
    use_graphs(1);
    return count;
}

static void graphs_take_few_calls_of_the_driver(void **state)
{
    (void)state;
    coh_graph *graph = trial_graph(COH_DTYPE_BF16, 12);
    coh_profile *profile;
    assert_int_equal(setenv("COH_CUDA_LIBRARIES", "none", 1), 0);
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    for (int i = 0; i < (test_is_brief() ? 1 : 2); i++) {
        coh_plan *plan = trial_plan(graph, profile, &placements[i]);
        const uint64_t by_line = calls_of_a_step(plan, 0), by_graph = calls_of_a_step(plan, 1);
        print_message("a step of GPT-2, 12 layers, %d micro-batches, %s: %llu calls that "
                      "enqueue, with graphs %llu\n",
                      TRIAL_MICROBATCHES, placements[i].name, (unsigned long long)by_line,
                      (unsigned long long)by_graph);
        assert_true(by_graph < (i == 0 ? by_line / 100 : by_line * 3 / 4));
        coh_plan_destroy(plan);
    }
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
    assert_int_equal(unsetenv("COH_CUDA_LIBRARIES"), 0);
}

/* ---- a decoder with a small graph ---- */

enum { CHUNK = 5, WINDOW = 13, IDS = 50 };

/* Reads prompts of all lengths by chunks and a last token; `logits` [WINDOW][IDS] are those after
 * each of them. */
static void read_prompts(const coh_plan *plan, const coh_engine_device *device,
                         const coh_graph *small, coh_tensor logits, float *out_logits)
{
    static const int32_t ids[WINDOW + CHUNK] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9 };
    coh_engine *engine;
    coh_engine_options options;
    coh_engine_options_init(&options);
    options.small_graph = small;
    options.disk_folder = "/";
    options.store = "mem";
    assert_int_equal(coh_engine_create_on(plan, &options, device, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 7), COH_OK);
    for (int32_t count = 0; count < WINDOW; count++)
        for (int32_t at = 0; at <= count; at += at == count          ? 1
                                                : count - at < CHUNK ? count - at
                                                                     : CHUNK) {
            const coh_step_input input = { .struct_bytes = sizeof(input),
                                           .inputs = { &ids[at], &at },
                                           .graph = at == count ? small : NULL };
            const void *data;
            size_t bytes;
            assert_int_equal(coh_engine_evaluate(engine, &input, NULL), COH_OK);
            assert_int_equal(coh_engine_output(engine, logits, &data, &bytes), COH_OK);
            assert_int_equal(bytes, IDS * sizeof(float));
            memcpy(out_logits + count * IDS, data, bytes);
        }
    coh_engine_destroy(engine);
}

static coh_plan *decoder_plan(const coh_graph *graph, const coh_profile *profile)
{
    coh_plan_options options;
    coh_plan *plan;
    coh_plan_options_init(&options);
    options.mode = COH_PLAN_INFER;
    options.deferred_update = 0;
    options.profile = profile;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    return plan;
}

static void a_decoders_chunks_and_single_tokens_have_the_bits_of_the_host(void **state)
{
    const coh_model model = { .family = COH_FAMILY_GPT2,
                              .gpt2 = { .layers = 2,
                                        .heads = 2,
                                        .channels = 32,
                                        .positions = WINDOW,
                                        .vocabulary = IDS,
                                        .layernorm_epsilon = 1e-5f } };
    static float expected[WINDOW * IDS], found[WINDOW * IDS];
    coh_graph *graph, *small;
    coh_tensor logits;
    coh_profile *profile;
    (void)state;
    assert_int_equal(coh_profile_read("a100-40g", &profile), COH_OK);
    assert_int_equal(coh_model_prefill_graph(&model, WINDOW, CHUNK, &graph, &logits), COH_OK);
    assert_int_equal(coh_model_prefill_graph(&model, WINDOW, 1, &small, &logits), COH_OK);
    coh_plan *host_plan = decoder_plan(graph, NULL), *gpu_plan = decoder_plan(graph, profile);
    read_prompts(host_plan, &trial_host, small, logits, expected);
    for (int uses = 0; uses < 2; uses++) {
        coh_stub_reset((size_t)TRIAL_GPU_BYTES);
        use_graphs(uses);
        coh_stub_start((uint64_t)uses + 5);
        read_prompts(gpu_plan, &trial_gpu, small, logits, found);
        coh_stub_stop();
        use_graphs(1);
        assert_int_equal(coh_stub_live_count(), 0);
        /* both graphs are recorded */
        const int64_t steps = WINDOW + WINDOW * (WINDOW - 1) / 2 / CHUNK;
        assert_true(uses ? coh_stub_call_count(COH_STUB_cuGraphLaunch) >= steps
                         : coh_stub_call_count(COH_STUB_cuGraphLaunch) == 0);
        assert_memory_equal(found, expected, sizeof(found));
        memset(found, 0, sizeof(found));
    }
    coh_plan_destroy(gpu_plan);
    coh_plan_destroy(host_plan);
    coh_graph_destroy(small);
    coh_graph_destroy(graph);
    coh_profile_destroy(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_has_the_bits_of_the_host),
        cmocka_unit_test(bf16_has_the_bits_of_the_host),
        cmocka_unit_test(with_f32_gradients_as_well),
        cmocka_unit_test(without_graphs_the_bits_are_the_same),
        cmocka_unit_test(a_scan_finds_what_it_finds_on_the_host),
        cmocka_unit_test(what_cannot_be_recorded_is_launched),
        cmocka_unit_test(a_graph_that_fails_does_not_blame_a_line),
        cmocka_unit_test(recorded_steps_have_the_hosts_times),
        cmocka_unit_test(graphs_take_few_calls_of_the_driver),
        cmocka_unit_test(a_decoders_chunks_and_single_tokens_have_the_bits_of_the_host),
        cmocka_unit_test(a_plan_of_another_device_is_refused),
        cmocka_unit_test(an_operator_without_kernels_for_a_gpu_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
