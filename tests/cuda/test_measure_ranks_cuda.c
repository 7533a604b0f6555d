/* Ranks measure the GPUs of the stub driver together, and the exchanges between them, which NCCL's
 * double carries: the profile has the links that a run's exchanges use, and nothing is left over,
 * whichever call fails. No test asserts how long anything takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/world.h"
#include "engine/comm_rounds.h"
#include "engine/measure.h"
#include "memory/device_cuda.h"
#include "tests/cuda/fake_nccl.h"
#include "tests/cuda/host_twins.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { RANKS = 2 };
#define GPU_BYTES ((uint64_t)4 << 30)
/* What test_measure_cuda.c takes at least, and the messages. */
#define LEAST (((uint64_t)624 << 20) + coh_level_rounds_bytes())

typedef struct one {
    pthread_t thread;
    coh_world *world;
    coh_profile *profile;
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
} one;

static void *measure(void *argument)
{
    one *self = argument;
    const coh_engine_device gpu = { .ops = &coh_device_cuda,
                                    .kernels = &host_twins,
                                    .driver = &coh_stub_driver,
                                    .nccl = &fake_nccl,
                                    .index = coh_world_rank(self->world) };
    coh_measure_options options;
    coh_measure_options_init(&options);
    options.device_bytes = LEAST;
    options.thread_count = 1;
    options.quick = 1;
    options.world = self->world;
    self->status = coh_profile_measure_on(&options, &gpu, NULL, &self->profile);
    if (self->status != COH_OK)
        coh_error_save(self->sentence);
    coh_world_close(self->world);
    return NULL;
}

static void measure_on_all(int32_t pair_ranks, one ends[RANKS])
{
    const coh_world_options options = { .struct_bytes = sizeof(options),
                                        .rank_count = RANKS,
                                        .pair_ranks = pair_ranks };
    coh_world *worlds[RANKS];
    coh_stub_reset((size_t)GPU_BYTES);
    coh_stub_set_gpu_count(RANKS);
    coh_stub_start(3);
    assert_int_equal(coh_world_open_threads(&options, worlds), COH_OK);
    for (int i = 0; i < RANKS; i++) {
        ends[i] = (one){ .world = worlds[i] };
        assert_int_equal(pthread_create(&ends[i].thread, NULL, measure, &ends[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(ends[i].thread, NULL), 0);
    coh_stub_stop();
    assert_int_equal(fake_nccl_live_count(), 0);
    assert_int_equal(coh_stub_live_count(), 0);
}

/* The world is a pair, so the links of the pair and of the node are measured. */
static void exchanges_go_by_nccl(void **state)
{
    (void)state;
    one ends[RANKS];
    fake_nccl_reset();
    measure_on_all(RANKS, ends);
    assert_true(fake_nccl_count(FAKE_NCCL_SEND) > 0);
    for (int i = 0; i < RANKS; i++) {
        if (ends[i].status != COH_OK)
            fail_msg("%s", ends[i].sentence);
        const coh_profile *profile = ends[i].profile;
        assert_true(profile->link[COH_LANE_COMM0].bytes_per_s.p50 > 0);
        assert_true(profile->link[COH_LANE_COMM0].latency_ns.p50 > 0);
        assert_true(profile->link[COH_LANE_COMM1].bytes_per_s.p50 == 0);
        assert_true(profile->link[COH_LINK_PAIR].bytes_per_s.p50 > 0);
        assert_int_equal(profile->pair_ranks, RANKS);
        coh_profile_destroy(ends[i].profile);
    }
}

static void a_failing_call_ends_all_ranks(void **state)
{
    (void)state;
    static const fake_nccl_call calls[] = { FAKE_NCCL_SEND, FAKE_NCCL_INIT };
    for (size_t i = 0; i < (test_is_short() ? 1 : sizeof(calls) / sizeof(calls[0])); i++) {
        one ends[RANKS];
        fake_nccl_reset();
        fake_nccl_fail_nth(calls[i], 3);
        measure_on_all(0, ends);
        assert_true(fake_nccl_fault_was_hit());
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(ends[rank].status, COH_ERR_DEVICE);
            assert_non_null(strstr(ends[rank].sentence, "NCCL"));
            assert_null(ends[rank].profile);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_go_by_nccl),
        cmocka_unit_test(a_failing_call_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
