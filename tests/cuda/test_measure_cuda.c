/* Measures the stub driver's GPU, with the host's kernels on its streams. The profile plans for
 * a GPU, every instruction of such a plan has a sample, and any failing driver call ends in a
 * message with nothing left over. No test asserts how long anything takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_text.h"
#include "cohobate/cohobate.h"
#include "engine/kernel_table.h"
#include "engine/measure.h"
#include "memory/device_cuda.h"
#include "planner/fingerprint.h"
#include "planner/plan.h"
#include "planner/price.h"
#include "tests/cuda/host_twins.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { THREADS = 2, SEQUENCES = 2, TOKENS = 16 };
#define GPU_BYTES ((uint64_t)2 << 30)
#define LEAST     ((uint64_t)624 << 20) /* two passes, copies, the cold data, and the kept data */

static const coh_engine_device gpu = { .ops = &coh_device_cuda,
                                       .kernels = &host_twins,
                                       .driver = &coh_stub_driver };

static coh_graph *make_graph(int64_t sequences, coh_dtype dtype)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 32,
                                     .positions = TOKENS,
                                     .vocabulary = 65,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = dtype };
    coh_graph *graph;
    assert_int_equal(coh_gpt2_train_graph(&config, sequences, TOKENS, &graph), COH_OK);
    return graph;
}

typedef struct heard {
    uint32_t total, count, wrong;
    int sizes, pinning, kept, lost, full; /* messages of each kind */
} heard;

static void hear(void *context, uint32_t done, uint32_t total, const char *what)
{
    heard *h = context;
    h->wrong += what[0] == '\0' || done != h->count || done >= total;
    h->total = total;
    h->count++;
}

static void listen(void *context, const char *sentence)
{
    heard *h = context;
    h->sizes += strstr(sentence, "at once") != NULL;
    h->pinning += strstr(sentence, "to pin it") != NULL;
    h->kept += strstr(sentence, "(1) are in ") != NULL;
    h->lost += strstr(sentence, "(1) are lost: ") != NULL;
    h->full += strstr(sentence, "is full with its 4096 algorithms") != NULL;
}

/* Takes the least of the GPU's memory: the driver fills it, and passes read all of it. */
static coh_measure_options options_for(const coh_graph *const *graphs, uint32_t count)
{
    coh_measure_options options;
    coh_measure_options_init(&options);
    options.device_bytes = LEAST;
    options.graphs = graphs;
    options.graph_count = count;
    options.thread_count = THREADS;
    options.quick = 1;
    return options;
}

static coh_profile *measure(const coh_measure_options *options, const coh_profile *known)
{
    coh_profile *profile;
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_start(3);
    coh_status status = coh_profile_measure_on(options, &gpu, known, &profile);
    coh_stub_stop();
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_stub_live_count(), 0);
    return profile;
}

/* The profile to start from: none, or in short runs the played GPU's without a drive, measured once
 * for all tests. Memory is taken, and probes and operators are measured in any case. */
static const coh_profile *begin_with(void)
{
    static coh_profile *here;
    const coh_measure_options options = options_for(NULL, 0);
    if (test_is_short() && here == NULL)
        here = measure(&options, NULL);
    return here;
}

/* ---- figures ---- */

static void check_figure(const coh_figure *figure)
{
    assert_true(figure->samples >= 3);
    assert_true(figure->p10 > 0 && isfinite(figure->p90));
    assert_true(figure->p10 <= figure->p50 && figure->p50 <= figure->p90);
}

static void check_rates(const coh_profile *profile)
{
    check_figure(&profile->flops_per_s[COH_ROOF_F32]);
    check_figure(&profile->flops_per_s[COH_ROOF_BF16]);
    check_figure(&profile->memory_bytes_per_s);
    check_figure(&profile->instruction_ns);
    check_figure(&profile->host_memory_bytes_per_s);
    check_figure(&profile->host_update_bytes_per_s);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++) {
        check_figure(&profile->link[lane].bytes_per_s);
        check_figure(&profile->link[lane].latency_ns);
        assert_true(profile->link[lane].depth >= 1);
        assert_true(profile->link[lane].interference_ns == 0 &&
                    profile->link[lane].interference_ns_per_byte == 0);
    }
    for (int i = 0; i < COH_LANE_COUNT; i++)
        for (int j = 0; j < COH_LANE_COUNT; j++)
            assert_true(profile->contention[i][j] > 0 && profile->contention[i][j] <= 1);
}

static int has_kind(const coh_profile *profile, const char *kind, coh_dtype dtype, coh_lane lane)
{
    for (uint32_t i = 0; i < profile->operator_count; i++)
        if (strcmp(profile->operators[i].kind, kind) == 0 && profile->operators[i].dtype == dtype &&
            profile->operators[i].lane == lane)
            return 1;
    return 0;
}

/* ---- plans ---- */

/* Finds the sample of exactly this work at the profile's roofs. */
static const coh_operator_sample *find_sample(const coh_profile *profile, uint64_t signature,
                                              int phase, const coh_instruction *instruction)
{
    for (uint32_t i = 0; i < profile->operator_count; i++) {
        const coh_operator_times *times = &profile->operators[i];
        const int is_bf16 = times->dtype == COH_DTYPE_BF16;
        const double work =
            coh_profile_work(profile, is_bf16, instruction->flops, (double)instruction->bytes);
        for (uint32_t s = 0; s < times->sample_count; s++)
            if (times->signature == signature && times->phase == phase &&
                coh_profile_work(profile, is_bf16, times->samples[s].flops,
                                 times->samples[s].bytes) == work)
                return &times->samples[s];
    }
    return NULL;
}

/* Checks that every call of an in-memory plan has a sample of its exact work. `gradients` 1: they
 * are f32, over two micro-batches. */
static void check_plan(const coh_profile *profile, const coh_graph *graph, int gradients)
{
    coh_plan_options options;
    coh_plan *plan;
    int count = 0;
    coh_plan_options_init(&options);
    options.profile = profile;
    options.f32_gradients = gradients;
    options.microbatch_count = 1 + gradients;
    options.device_memory_bytes = profile->memory_bytes[COH_TIER_DEVICE];
    options.host_memory_bytes = (uint64_t)256 << 20;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("no plan: %s", coh_last_error());
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_FORWARD && instruction->opcode != COH_OP_BACKWARD)
            continue;
        const int phase =
            instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
        const coh_instruction_call *call = &body->calls[instruction->call];
        const uint64_t signature = coh_operator_signature(graph, (size_t)call->operator_index);
        const coh_operator_sample *sample = find_sample(
            profile, coh_backward_signature(signature, coh_grad_form(call, body->bindings)), phase,
            instruction);
        assert_non_null(sample);
        check_figure(&sample->seconds);
        count++;
    }
    assert_true(count > 0);
    coh_plan_destroy(plan);
}

/* ---- claims ---- */

static void a_gpu_has_a_profile_that_plans_for_it(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(SEQUENCES, COH_DTYPE_F32);
    coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    heard h = { 0 };
    options.device_bytes = UINT64_MAX;
    options.disk_folder = ".";
    options.progress = hear;
    options.log = listen;
    options.context = &h;
    coh_profile *profile = measure(&options, NULL);
    assert_true(h.wrong == 0 && h.total == h.count && h.sizes >= 2 && h.pinning == 1);
    assert_int_equal(profile->device_kind, COH_DEVICE_CUDA);
    assert_int_equal(profile->source, COH_PROFILE_MEASURED);
    assert_int_equal(profile->threads, THREADS);
    assert_non_null(strstr(profile->machine, "stub; "));
    assert_int_equal(profile->memory_bytes[COH_TIER_DEVICE], GPU_BYTES - COH_CUDA_RESERVE_BYTES);
    assert_true(profile->memory_bytes[COH_TIER_HOST] > 0);
    check_rates(profile);
    assert_true(has_kind(profile, "update", COH_DTYPE_F32, COH_LANE_COMPUTE));
    assert_true(has_kind(profile, "update", COH_DTYPE_F32, COH_LANE_HOST));
    assert_true(has_kind(profile, "norm", COH_DTYPE_F32, COH_LANE_COMPUTE));
    check_plan(profile, graph, 0);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

static void what_was_measured_is_written_read_and_added_to(void **state)
{
    (void)state;
    coh_graph *graphs[] = { make_graph(1, COH_DTYPE_BF16), make_graph(SEQUENCES, COH_DTYPE_BF16) };
    coh_measure_options options = options_for((const coh_graph *const *)graphs, 1);
    coh_profile *first = measure(&options, begin_with()), *again;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "profile"), 0);
    assert_int_equal(coh_profile_write(first, path), COH_OK);
    if (coh_profile_read(path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    (void)unlink(path);
    assert_true(again->device_kind == COH_DEVICE_CUDA && coh_profile_is_of_here(again));
    options.graph_count = 2;
    options.f32_gradients = options.accumulates = 1;
    coh_profile *both = measure(&options, again);
    check_plan(both, graphs[0], 1);
    check_plan(both, graphs[1], 1);
    assert_memory_equal(both->flops_per_s, again->flops_per_s, sizeof(both->flops_per_s));
    assert_memory_equal(both->link, again->link, sizeof(both->link));
    assert_memory_equal(both->contention, again->contention, sizeof(both->contention));
    coh_profile_destroy(both);
    coh_profile_destroy(again);
    coh_profile_destroy(first);
    coh_graph_destroy(graphs[0]);
    coh_graph_destroy(graphs[1]);
}

static void refuse(const coh_measure_options *options, const coh_engine_device *device,
                   const coh_profile *known, coh_status status, const char *says)
{
    coh_profile *profile;
    assert_int_equal(coh_profile_measure_on(options, device, known, &profile), status);
    assert_null(profile);
    if (strstr(coh_last_error(), says) == NULL)
        fail_msg("'%s' says nothing of '%s'", coh_last_error(), says);
    assert_int_equal(coh_stub_live_count(), 0);
}

static void what_does_not_fit_is_refused_in_a_sentence(void **state)
{
    (void)state;
    static const coh_engine_device host = { .ops = &coh_device_host };
    coh_measure_options options = options_for(NULL, 0);
    coh_profile *known = measure(&options, begin_with()), *profile;
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_start(4);
    refuse(&options, &host, known, COH_ERR_ARGUMENT, "was measured of a GPU");
    /* the same host with another GPU */
    memcpy(known->machine, "slab", 4);
    refuse(&options, &gpu, known, COH_ERR_ARGUMENT, "was not measured on this machine");
    known->fingerprint = coh_machine_fingerprint_of(known);
    refuse(&options, &gpu, known, COH_ERR_ARGUMENT, "it was measured on slab");
    coh_stub_stop();
    options.device = "tpu:0";
    assert_int_equal(coh_profile_measure(&options, NULL, &profile), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "tpu:0"));
    coh_profile_destroy(known);
}

/* ---- memory ---- */

static size_t most_asked;

/* Records the largest request, and refuses large ones. */
static CUresult note_memory(CUdeviceptr *memory, size_t bytes)
{
    most_asked = bytes > most_asked ? bytes : most_asked;
    return bytes > (size_t)64 << 20 ? CUDA_ERROR_OUT_OF_MEMORY
                                    : coh_stub_driver.cuMemAlloc(memory, bytes);
}

static void refuse_noting(const coh_measure_options *options, size_t gpu_bytes, coh_status status,
                          const char *says)
{
    coh_cuda_driver noting = coh_stub_driver;
    noting.cuMemAlloc = note_memory;
    coh_engine_device noted = gpu;
    noted.driver = &noting;
    coh_stub_reset(gpu_bytes);
    coh_stub_start(7);
    most_asked = 0;
    refuse(options, &noted, NULL, status, says);
    coh_stub_stop();
}

/* A pass over only 96 MiB would be too short to measure, and its products too narrow. */
static void passes_are_long_where_there_is_memory(void **state)
{
    (void)state;
    coh_measure_options options = options_for(NULL, 0);
    options.device_bytes = UINT64_MAX;
    for (options.quick = 0; options.quick < 2; options.quick++)
        for (size_t gib = 2; gib <= 8; gib *= 4) {
            refuse_noting(&options, gib << 30, COH_ERR_MEMORY, "");
            assert_int_equal(most_asked > (size_t)1 << 30, gib == 8);
        }
}

/* The limit holds on a GPU with more free memory; below the smallest useful size, measuring is
 * refused. */
static void no_more_is_taken_than_may_be(void **state)
{
    (void)state;
    coh_measure_options options = options_for(NULL, 0);
    options.device_bytes = UINT64_MAX;
    refuse_noting(&options, COH_CUDA_RESERVE_BYTES + ((size_t)512 << 20), COH_ERR_MEMORY,
                  "512.00 MiB are free");
    options.device_bytes = (uint64_t)1 << 30;
    refuse_noting(&options, (size_t)8 << 30, COH_ERR_MEMORY, "");
    assert_true(most_asked > (size_t)64 << 20 && most_asked < (size_t)1 << 30);
    options.device_bytes = LEAST - 1;
    refuse_noting(&options, (size_t)8 << 30, COH_ERR_FULL, "raise device memory to 624MiB");
    assert_int_equal(most_asked, 0);
    options.device_bytes = LEAST;
    coh_profile *profile = measure(&options, begin_with());
    assert_int_equal(profile->memory_bytes[COH_TIER_DEVICE], GPU_BYTES - COH_CUDA_RESERVE_BYTES);
    coh_profile_destroy(profile);
}

/* ---- algorithms of products ---- */

static int64_t rows_found;        /* of the product with a measured algorithm */
static int opened, fails_to_open; /* number of queues opened; the one that fails, 0: none */

static coh_algorithm made_instruction(int64_t rows)
{
    return (
        coh_algorithm){ .device = { .name = "stub", .multiprocessors = 132, .library_version = 7 },
                        .form = { .rows = rows,
                                  .columns = 2,
                                  .depth = 3,
                                  .a_stride = 3,
                                  .b_stride = 3,
                                  .c_stride = 2,
                                  .alignment = 256 },
                        .words = { (uint64_t)rows },
                        .microseconds = 1.5 };
}

/* Adds an algorithm, as products by cuBLASLt do when they make a plan. */
static coh_status open_and_find(void *queue)
{
    const coh_algorithm instruction = made_instruction(rows_found);
    if (coh_algorithms_are_measured() && rows_found > 0 &&
        coh_algorithm_find(&instruction.device, &instruction.form) ==
            NULL) /* each queue makes its own plans */
        COH_TRY(coh_algorithms_add(&instruction));
    if (++opened == fails_to_open)
        return coh_fail(COH_ERR_DEVICE, "the queue is gone");
    return host_twins.open != NULL ? host_twins.open(queue) : COH_OK;
}

static void check_table(const char *path, int32_t count)
{
    coh_kernel_list list;
    assert_int_equal(coh_kernel_table_read(path, &list), COH_OK);
    assert_int_equal(list.algorithm_count, count);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(list.algorithms[i].words[0], i + 1);
    coh_kernel_list_fini(&list);
    assert_false(coh_algorithms_are_measured());
}

static void algorithms_that_were_found_are_a_kernel_table(void **state)
{
    (void)state;
    static const char path[] = "measured-kernels.json";
    static const char of_processor[] =
        "{\"format\": \"cohobate kernels\", \"version\": 1, \"machine\": \"m\", \"date\": "
        "\"2026-01-31\", \"threads\": 1, \"products\": [{\"dtype\": \"f32\", \"layout\": \"nt\", "
        "\"rows\": 1, \"columns\": 1, \"depth\": 1, \"product\": \"panels\", \"microseconds\": "
        "{}}]}";
    static const coh_engine_device host = { .ops = &coh_device_host };
    coh_device_kernels kernels = host_twins;
    kernels.open = open_and_find;
    coh_engine_device finding = gpu;
    finding.kernels = &kernels;
    coh_measure_options options = options_for(NULL, 0);
    coh_profile *profile;
    options.kernel_table = path;
    (void)unlink(path);
    const coh_profile *known = begin_with();
    for (rows_found = 0; rows_found <= 2; rows_found++) { /* none, one, then another */
        coh_algorithms_take(NULL, 0);
        coh_stub_reset((size_t)GPU_BYTES);
        coh_stub_start(5);
        assert_int_equal(coh_profile_measure_on(&options, &finding, known, &profile), COH_OK);
        coh_stub_stop();
        coh_profile_destroy(profile);
        if (rows_found == 0)
            assert_int_not_equal(access(path, F_OK), 0);
        else
            check_table(path, (int32_t)rows_found);
    }
    refuse(&options, &host, NULL, COH_ERR_ARGUMENT, "algorithms of products are those of a GPU");
    assert_int_equal(coh_file_write_whole(path, of_processor, strlen(of_processor)), COH_OK);
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_start(6);
    refuse(&options, &finding, NULL, COH_ERR_ARGUMENT, "names products of a processor");
    coh_stub_stop();
    check_table(path, 0);
    (void)unlink(path);
    coh_algorithms_take(NULL, 0);
}

/* Measures while the last of `queues` queues fails to open. */
static heard fail_late(const char *path, int queues)
{
    heard h = { 0 };
    coh_device_kernels kernels = host_twins;
    kernels.open = open_and_find;
    coh_engine_device finding = gpu;
    finding.kernels = &kernels;
    coh_measure_options options = options_for(NULL, 0);
    coh_profile *profile;
    options.kernel_table = path;
    options.log = listen;
    options.context = &h;
    const coh_profile *known = begin_with();
    opened = 0;
    fails_to_open = queues;
    coh_algorithms_take(NULL, 0);
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_start(7);
    coh_status status = coh_profile_measure_on(&options, &finding, known, &profile);
    coh_stub_stop();
    if (queues == 0) {
        assert_int_equal(status, COH_OK);
        coh_profile_destroy(profile);
        return h;
    }
    assert_int_equal(status, COH_ERR_DEVICE);
    assert_non_null(strstr(coh_last_error(), "the queue is gone"));
    assert_int_equal(coh_stub_live_count(), 0);
    return h;
}

static void what_was_timed_is_kept_though_the_measurement_fails(void **state)
{
    (void)state;
    static const char path[] = "rescued-kernels.json";
    (void)unlink(path);
    rows_found = 1;
    heard h = fail_late(path, 0);
    const int queues = opened;
    assert_int_equal(h.kept + h.lost + h.full, 0);
    assert_int_equal(unlink(path), 0);
    h = fail_late(path, queues);
    assert_int_equal(h.kept, 1);
    check_table(path, 1);
    assert_int_equal(fail_late(path, queues).kept, 0); /* nothing new */
    check_table(path, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fail_late("no-such-folder/kernels.json", queues).lost, 1);
    rows_found = 0;
    assert_int_equal(fail_late(path, queues).kept, 0);
    assert_int_not_equal(access(path, F_OK), 0);
    coh_algorithms_take(NULL, 0);
    fails_to_open = 0;
}

static void a_table_that_is_full_is_told(void **state)
{
    (void)state;
    static const char path[] = "full-kernels.json";
    static coh_algorithm instructions[COH_ALGORITHMS_MAX];
    const coh_kernel_list list = { .algorithms = instructions,
                                   .algorithm_count = COH_ALGORITHMS_MAX };
    for (int i = 0; i < COH_ALGORITHMS_MAX; i++)
        instructions[i] = made_instruction(i + 1);
    rows_found = 0;
    assert_int_equal(coh_algorithms_sort(instructions, COH_ALGORITHMS_MAX), COH_OK);
    assert_int_equal(coh_kernel_table_write(&list, path), COH_OK);
    assert_int_equal(fail_late(path, 0).full, 1);
    coh_kernel_list found;
    assert_int_equal(coh_kernel_table_read(path, &found), COH_OK);
    assert_int_equal(found.algorithm_count, COH_ALGORITHMS_MAX);
    coh_kernel_list_fini(&found);
    assert_int_equal(unlink(path), 0);
    coh_algorithms_take(NULL, 0);
}

/* Returns 1 if the message names the call, or the operation during which a stream was queried or
 * awaited. */
static int is_told(coh_stub_call call)
{
    const char *sentence = coh_last_error();
    return strstr(sentence, coh_stub_call_name(call)) != NULL ||
           (call == COH_STUB_cuStreamQuery && strstr(sentence, "broke off") != NULL) ||
           (call == COH_STUB_cuStreamSynchronize && strstr(sentence, "at its end") != NULL);
}

/* Returns 1 if the n-th call of that function made the measurement fail. */
static int fails_at(const coh_measure_options *options, coh_stub_call call, uint64_t n)
{
    const coh_profile *known = begin_with();
    coh_profile *profile;
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_start((uint64_t)call + n);
    coh_stub_fail_nth(call, n, CUDA_ERROR_ILLEGAL_ADDRESS);
    coh_status status = coh_profile_measure_on(options, &gpu, known, &profile);
    const int was_hit = coh_stub_fault_was_hit();
    coh_stub_stop();
    if (coh_stub_live_count() != 0)
        fail_msg("%s leaves something", coh_stub_call_name(call));
    if (status == COH_OK) {
        coh_profile_destroy(profile);
        return 0;
    }
    assert_true(was_hit);
    assert_null(profile);
    if (!is_told(call))
        fail_msg("%s is not in: %s", coh_stub_call_name(call), coh_last_error());
    return 1;
}

/* Calls whose failure changes nothing: they free something, or there is an alternative. */
static int may_fail(coh_stub_call call)
{
    switch (call) {
    case COH_STUB_cuCtxPopCurrent:
    case COH_STUB_cuDevicePrimaryCtxRelease:
    case COH_STUB_cuEventDestroy:
    case COH_STUB_cuMemFree:
    case COH_STUB_cuMemFreeHost:
    case COH_STUB_cuMemHostUnregister:
    case COH_STUB_cuStreamDestroy:
    case COH_STUB_cuStreamBeginCapture: /* instructions are launched one by one */
    case COH_STUB_cuStreamEndCapture:
    case COH_STUB_cuGraphGetNodes:
    case COH_STUB_cuGraphDestroy:
        return 1;
    default:
        return 0;
    }
}

/* Fails the first call of each function, and one in the middle, in short runs of every second
 * function. */
static void whatever_call_fails_is_told_and_nothing_is_left(void **state)
{
    (void)state;
    uint64_t counts[COH_STUB_CALL_COUNT];
    coh_graph *graph = make_graph(1, COH_DTYPE_F32);
    const coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    int function_count = 0;
    coh_profile_destroy(measure(&options, begin_with()));
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++)
        counts[call] = coh_stub_call_count((coh_stub_call)call);
    for (int i = 0; i < COH_STUB_CALL_COUNT; i++) {
        const coh_stub_call call = (coh_stub_call)i;
        if (counts[i] == 0)
            continue;
        const int fails = fails_at(&options, call, 1);
        if (call == COH_STUB_cuStreamQuery) /* depends on timing: may never be called */
            continue;
        if (fails == may_fail(call))
            fail_msg("%s fails at its first call: %d", coh_stub_call_name(call), fails);
        if (fails && counts[i] > 2 && (!test_is_short() || function_count % 2 == 0))
            (void)fails_at(&options, call, counts[i] / 2);
        function_count += fails;
    }
    assert_true(function_count >= 15);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_has_a_profile_that_plans_for_it),
        cmocka_unit_test(what_was_measured_is_written_read_and_added_to),
        cmocka_unit_test(what_does_not_fit_is_refused_in_a_sentence),
        cmocka_unit_test(passes_are_long_where_there_is_memory),
        cmocka_unit_test(no_more_is_taken_than_may_be),
        cmocka_unit_test(algorithms_that_were_found_are_a_kernel_table),
        cmocka_unit_test(what_was_timed_is_kept_though_the_measurement_fails),
        cmocka_unit_test(a_table_that_is_full_is_told),
        cmocka_unit_test(whatever_call_fails_is_told_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
