/* Ranks that train together on the GPUs of the stub driver, with the host's kernels on its streams
 * and NCCL's double, against the twin: one rank on the host that makes the same replicas. Losses,
 * norms and hashes are the twin's, bit for bit, in memory, from host memory and from a drive, with
 * gradients, states and weights divided; and every failure ends all ranks with one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
        for (int step = 0; step < STEPS; step++)
            assert_true(gpu[rank].results[step].loss == host[0].results[step].loss);
    }
}

/* ---- failures ---- */

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
    setting s = on_gpus(settings[0]);
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
    static const fake_nccl_call calls[] = { FAKE_NCCL_ID, FAKE_NCCL_INIT, FAKE_NCCL_GROUP_END,
                                            FAKE_NCCL_SEND };
    const setting s = on_gpus(settings[0]);
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
        for (uint64_t n = 1;; n = (test_seeks_races() ? 9 : 3) * n + 1) {
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

/* A rank that cannot create its lanes after ranks are connected: the others do not wait for it. */
static void each_stream_that_cannot_be_made_ends_all_ranks(void **state)
{
    (void)state;
    const setting s = on_gpus(settings[0]);
    for (uint64_t n = 1;; n++) {
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
        cmocka_unit_test(a_rank_that_is_given_other_numbers_is_refused),
        cmocka_unit_test(a_rank_that_hangs_ends_the_others),
        cmocka_unit_test(each_call_of_nccl_that_fails_ends_all_ranks),
        cmocka_unit_test(each_stream_that_cannot_be_made_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, begin, end_all);
}
