/* Ranks that train together on the GPUs of the stub driver, with the host's kernels on its streams
 * and NCCL's double, against the twin: one rank on the host that makes the same replicas. Losses,
 * norms and hashes are the twin's, bit for bit, in memory, from host memory and from a drive, with
 * gradients, states and weights divided; and every failure ends all ranks with one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "cohobate/profile.h"
#include "memory/device_cuda.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/fake_nccl.h"
#include "tests/cuda/host_twins.h"
#include "tests/cuda/stub_driver.h"
#include "tests/engine/ranks_bench.h"

#define GPU_BYTES ((size_t)16 << 30)

static const coh_engine_device gpus = {
    .ops = &coh_device_cuda, .kernels = &host_twins, .driver = &coh_stub_driver, .nccl = &fake_nccl
};

static coh_profile *profile;

static int begin(void **state)
{
    (void)draw_inputs(state);
    return coh_profile_read("a100-40g", &profile) != COH_OK;
}

static int end_all(void **state)
{
    (void)state;
    coh_profile_destroy(profile);
    return 0;
}

static setting on_gpus(setting s)
{
    s.gpu = profile;
    s.device = &gpus;
    return s;
}

static void start_gpus(uint64_t seed)
{
    coh_stub_reset(GPU_BYTES);
    coh_stub_set_gpu_count(RANKS_MOST);
    fake_nccl_reset();
    coh_stub_start(seed);
}

static void stop_gpus(void)
{
    coh_stub_stop();
    assert_int_equal(fake_nccl_live_count(), 0);
    assert_int_equal(coh_stub_live_count(), 0);
}

/* ---- bits ---- */

static const setting settings[] = {
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 2, 0, IN_MEMORY, 0, -1 },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = "zero3" },
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 1, -1,
      .pattern = "zero1" },
    { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 2, 1, HOST, 0, -1, .pattern = "zero2" },
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, HOST, 0, -1 },
    { "3", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 3, 0, IN_MEMORY, 0, -1, .pattern = "zero3" },
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 0, -1,
      .pattern = "1/2/4" },
    /* only in full runs: 32 threads, and test_rank_parts has the same levels of 8 ranks */
    { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, IN_MEMORY, 0, -1,
      .pattern = "2/4/8" },
};

static void no_number_of_gpus_changes_a_bit_of_the_twin(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        /* of the thread sanitizer two ranks: four are in the next test */
        if (test_seeks_races() ? i != 3 : test_is_brief() && i > 3)
            continue;
        if (test_is_short() && settings[i].ranks == RANKS_MOST)
            continue;
        const end twin = twin_of(settings[i]);
        const setting s = on_gpus(settings[i]);
        start_gpus(i + 1);
        expect_twin(&s, &twin);
        stop_gpus();
    }
}

/* On a wire results depend on the number of ranks: they are those of as many ranks on the host. */
static void wires_have_the_bits_of_ranks_on_the_host(void **state)
{
    (void)state;
    setting s = settings[1];
    end host[RANKS_MOST], gpu[RANKS_MOST];
    s.where = IN_MEMORY;
    s.steps = test_seeks_races() ? 1 : STEPS;
    s.wires = (coh_wires){ COH_WIRE_INT8, COH_WIRE_INT4 };
    run_setting(&s, host);
    s = on_gpus(s);
    start_gpus(3);
    run_setting(&s, gpu);
    stop_gpus();
    for (int rank = 0; rank < s.ranks; rank++) {
        must(host[rank].status, host[rank].sentence);
        must(gpu[rank].status, gpu[rank].sentence);
        assert_true(gpu[rank].hash == host[0].hash);
        for (int step = 0; step < s.steps; step++)
            assert_true(gpu[rank].results[step].loss == host[0].results[step].loss);
    }
}

/* ---- sums of NCCL ---- */

static const setting of_library = {
    "4", 1,  COH_DTYPE_F32,      COH_SWEEP_MICROBATCH,        1, 0.5f, 4, 0, IN_MEMORY,
    0,   -1, .pattern = "zero3", .reduce = COH_REDUCE_LIBRARY
};

/* Runs ranks on GPUs, and checks that all end with one hash. Returns rank 0's end. */
static end run_on_gpus(setting s)
{
    end ends[RANKS_MOST];
    s = on_gpus(s);
    start_gpus(7);
    run_setting(&s, ends);
    for (int rank = 0; rank < s.ranks; rank++) {
        must(ends[rank].status, ends[rank].sentence);
        assert_true(ends[rank].hash == ends[0].hash);
    }
    return ends[0];
}

/* The root of the sum of squares of the differences. */
static double distance(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* After 20 steps NCCL's sums are about as far from ours as ours in another shape are. */
static void sums_of_nccl_train_as_ours_do(void **state)
{
    (void)state;
    enum { VALUES = VOCABULARY * CHANNELS_OF_4_PARTS };
    static float exact[VALUES], other[VALUES], library[VALUES];
    static const char *const patterns[] = { "zero3", "replicate" };
    const size_t pattern_count = test_is_short() ? 1 : 2;
    setting s = of_library;
    s.steps = test_is_brief() ? STEPS : STEPS_MOST;
    s.values = exact;
    const end ours = twin_of(s);
    s.shape = "2x2";
    s.values = other;
    (void)twin_of(s);
    const double usual = distance(exact, other, VALUES);
    s.shape = "4";
    s.values = library;
    assert_true(usual > 0);
    for (size_t i = 0; i < pattern_count; i++) {
        s.pattern = patterns[i];
        const end found = run_on_gpus(s);
        assert_true(fake_nccl_count(FAKE_NCCL_REDUCE_SCATTER) > 0);
        assert_true(fake_nccl_count(FAKE_NCCL_ALL_GATHER) > 0);
        if (i == 0) /* some windows have parts that differ */
            assert_true(fake_nccl_count(FAKE_NCCL_SEND) > 0);
        stop_gpus();
        assert_true(found.hash != ours.hash);
        const double apart = distance(exact, library, VALUES);
        if (!(apart > 0 && apart <= 16 * usual))
            fail_msg("%s: the embedding is %g from ours, which by 2x2 is %g", patterns[i], apart,
                     usual);
    }
}

/* Two ranks of a factor have one sum in any order, and a gather has none: NCCL's calls then give
 * the twin's bits. */
static void nccl_gives_the_twins_bits_to_factors_of_two(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        setting s = settings[i];
        if (test_seeks_races() && i > 0)
            break;
        s.pattern = s.pattern != NULL ? s.pattern : "replicate";
        const end twin = twin_of(s);
        s = on_gpus(s);
        s.reduce = COH_REDUCE_LIBRARY;
        start_gpus(i + 1);
        expect_twin(&s, &twin);
        assert_true(fake_nccl_count(FAKE_NCCL_ALL_GATHER) > 0);
        stop_gpus();
    }
}

static void what_is_packed_on_its_way_is_not_added_by_nccl(void **state)
{
    (void)state;
    setting s = of_library;
    uint64_t counts[2];
    if (test_seeks_races()) /* what counts are does not depend on threads */
        return;
    for (int i = 0; i < 2; i++) {
        s.wires = (coh_wires){ COH_WIRE_STORED, i == 0 ? COH_WIRE_STORED : COH_WIRE_INT8 };
        (void)run_on_gpus(s);
        counts[i] = fake_nccl_count(FAKE_NCCL_REDUCE_SCATTER);
        stop_gpus();
    }
    assert_true(counts[1] < counts[0]);
}

static void a_plan_without_gpus_or_ranks_has_no_sums_of_nccl(void **state)
{
    (void)state;
    const struct {
        int ranks;
        const coh_profile *gpu;
        const char *pattern, *sentence;
    } rows[] = {
        { 4, NULL, "zero3", "NCCL adds between GPUs, and these ranks compute on the host" },
        { 1, profile, "", "NCCL adds the gradients of several ranks, and there is one" },
        { 4, profile, "auto", "results depend on what ranks divide" },
        { 4, profile, "zero3", NULL },
    };
    coh_graph *graph = make_graph(&of_library);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setting s = of_library;
        coh_pin pin;
        coh_plan *plan = NULL;
        s.ranks = rows[i].ranks;
        s.pattern = rows[i].pattern;
        coh_plan_options options = options_of(&s, &pin);
        options.profile = rows[i].gpu;
        options.reduce = COH_REDUCE_LIBRARY;
        options.device_memory_bytes = (uint64_t)1 << 30;
        const coh_status status = coh_plan_create(graph, &options, &plan);
        assert_int_equal(status, rows[i].sentence == NULL ? COH_OK : COH_ERR_ARGUMENT);
        if (status != COH_OK)
            assert_non_null(strstr(coh_last_error(), rows[i].sentence));
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

static void a_plan_file_keeps_how_ranks_add(void **state)
{
    (void)state;
    setting s = of_library;
    coh_pin pin;
    coh_plan *plan = NULL, *again = NULL;
    coh_plan_file facts = { .struct_bytes = sizeof(facts) };
    char path[256];
    coh_graph *graph = make_graph(&s);
    coh_plan_options options = options_of(&s, &pin);
    options.profile = profile;
    options.device_memory_bytes = (uint64_t)1 << 30;
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    must(coh_plan_create(graph, &options, &plan), "plan");
    must(coh_plan_write(plan, path), "write");
    must(coh_plan_file_read(path, &facts), "facts");
    assert_int_equal(facts.reduce, COH_REDUCE_LIBRARY);
    must(coh_plan_read(graph, &options, path, &again), "read");
    assert_true(again->program_hash == plan->program_hash);
    coh_plan_destroy(again);
    options.reduce = COH_REDUCE_EXACT;
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "is for reduce library: give the same"));
    coh_plan *exact = NULL; /* whose program is the same */
    must(coh_plan_create(graph, &options, &exact), "exact plan");
    assert_true(exact->program_hash == plan->program_hash);
    assert_true(exact->numeric_fingerprint != plan->numeric_fingerprint);
    unlink(path);
    coh_plan_destroy(exact);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* ---- failures ---- */

/* The thread sanitizer gets one micro-batch a rank. */
static setting that_fails(void)
{
    setting s = on_gpus(settings[0]);
    if (test_seeks_races())
        s.shape = "2";
    return s;
}

static void expect_one_sentence(const setting *s, const end *ends, const char *part)
{
    for (int i = 0; i < s->ranks; i++)
        if (ends[i].status == COH_OK || strcmp(ends[i].sentence, ends[0].sentence) != 0 ||
            strstr(ends[i].sentence, part) == NULL)
            fail_msg("rank %d: %s '%s', rank 0 '%s', expected '%s'", i,
                     coh_status_name(ends[i].status), ends[i].sentence, ends[0].sentence, part);
}

static void a_rank_that_is_given_other_numbers_is_refused(void **state)
{
    (void)state;
    setting s = on_gpus(settings[0]);
    end ends[RANKS_MOST];
    s.differs = 2;
    start_gpus(1);
    run_setting(&s, ends);
    stop_gpus();
    expect_one_sentence(&s, ends, "trains step 2 and rank 0 step 1");
}

static void a_rank_that_hangs_ends_the_others(void **state)
{
    (void)state;
    setting s = that_fails();
    end ends[RANKS_MOST];
    s.hangs = 2;
    start_gpus(1);
    run_setting(&s, ends);
    stop_gpus();
    expect_one_sentence(&s, ends, "it has waited 0.1 s for the other rank");
}

static void each_call_of_nccl_that_fails_ends_all_ranks(void **state)
{
    (void)state;
    static const fake_nccl_call calls[] = { FAKE_NCCL_ID,         FAKE_NCCL_INIT,
                                            FAKE_NCCL_GROUP_END,  FAKE_NCCL_SEND,
                                            FAKE_NCCL_ALL_GATHER, FAKE_NCCL_REDUCE_SCATTER };
    setting s = that_fails();
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        const int is_collective = c > 3;
        if (test_seeks_races() && c % 2 == 0) /* others fail on the same threads */
            continue;
        s.reduce = is_collective ? COH_REDUCE_LIBRARY : COH_REDUCE_EXACT;
        s.pattern = is_collective ? "zero1" : NULL;
        /* of the thread sanitizer one failure at the start and one in a step */
        for (uint64_t n = 1; !test_seeks_races() || n < 20;
             n = test_seeks_races() ? 13 * n : (test_is_short() ? 7 : 3) * n + 1) {
            end ends[RANKS_MOST];
            start_gpus(n);
            fake_nccl_fail_nth(calls[c], n);
            run_setting(&s, ends);
            const int was_hit = fake_nccl_fault_was_hit();
            stop_gpus();
            if (!was_hit) {
                must(ends[0].status, ends[0].sentence);
                break;
            }
            expect_one_sentence(&s, ends, "made to fail");
        }
    }
}

/* A rank that cannot create its lanes after ranks are connected: the others do not wait for it. */
static void each_stream_that_cannot_be_made_ends_all_ranks(void **state)
{
    (void)state;
    const setting s = that_fails();
    for (uint64_t n = 1;; n += test_seeks_races() ? 3 : 1) {
        end ends[RANKS_MOST];
        start_gpus(n);
        coh_stub_fail_nth(COH_STUB_cuStreamCreate, n, CUDA_ERROR_OUT_OF_MEMORY);
        run_setting(&s, ends);
        const int was_hit = coh_stub_fault_was_hit();
        stop_gpus();
        if (!was_hit) {
            must(ends[0].status, ends[0].sentence);
            break;
        }
        expect_one_sentence(&s, ends, "cuStreamCreate");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_number_of_gpus_changes_a_bit_of_the_twin),
        cmocka_unit_test(wires_have_the_bits_of_ranks_on_the_host),
        cmocka_unit_test(sums_of_nccl_train_as_ours_do),
        cmocka_unit_test(nccl_gives_the_twins_bits_to_factors_of_two),
        cmocka_unit_test(what_is_packed_on_its_way_is_not_added_by_nccl),
        cmocka_unit_test(a_plan_without_gpus_or_ranks_has_no_sums_of_nccl),
        cmocka_unit_test(a_plan_file_keeps_how_ranks_add),
        cmocka_unit_test(a_rank_that_is_given_other_numbers_is_refused),
        cmocka_unit_test(a_rank_that_hangs_ends_the_others),
        cmocka_unit_test(each_call_of_nccl_that_fails_ends_all_ranks),
        cmocka_unit_test(each_stream_that_cannot_be_made_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, begin, end_all);
}
