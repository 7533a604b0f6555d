/* The device itself on a GPU: the bench's pipeline (device_bench.h) with a project kernel, launched
 * and replayed as a CUDA graph; streams that wait for the host; times by the GPU's clock; host
 * memory pinned in two pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/kernels.h"
#include "memory/device_cuda_state.h"
#include "tests/cuda/device_bench.h"
#include "tests/cuda/gpu_check.h"

enum { SEEDS = 16, ROUNDS = BENCH_ROUNDS_MOST };

static const coh_device_ops *const ops = &coh_device_cuda;

/* The kernel copies numbers unchanged: a number identifies its round. */
static uint32_t turned(uint32_t x)
{
    return x;
}

static void turn(coh_queue *queue, uint32_t *to, const uint32_t *from, int count)
{
    coh_kernel_pass(queue, COH_DTYPE_F32, to, from, count, 0);
}

const bench_machine bench_here = { .kernels = &coh_cuda_device_kernels,
                                   .turn = turn,
                                   .turned = turned };

static void open_bench(bench *b)
{
    if (bench_open(b, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void check_finish(bench *b)
{
    int is_right;
    if (bench_finish(b, ROUNDS, &is_right) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(is_right);
}

static void run_seeds(bench *b)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        bench_enqueue(b, ROUNDS, seed);
        check_finish(b);
    }
}

static void lanes_hand_on_what_they_computed(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    run_seeds(&b);
    bench_close(&b);
}

static void a_recorded_kernel_is_replayed_in_its_turn(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    run_seeds(&b);
    if (bench_record(&b) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_non_null(b.recording);
    run_seeds(&b);
    bench_close(&b);
}

/* All work is enqueued before the host writes the first lane's input and signals that. */
static void a_lane_waits_for_the_host(void **state)
{
    (void)state;
    bench b;
    open_bench(&b);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        ops->wait_host(b.queues[COH_LANE_H2D], &b.host_counter, seed + 1, NULL);
        bench_enqueue(&b, ROUNDS, seed);
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < BENCH_NUMBERS; i++)
                b.host->in[round][i] ^= 0x15555555u;
        coh_counter_raise(&b.host_counter, seed + 1);
        check_finish(&b);
    }
    bench_close(&b);
}

static void copy_there_and_back(coh_device *device, char *near, char *across, size_t bytes)
{
    coh_queue *queue;
    static char kept[3 * 4096];
    for (size_t i = 0; i < bytes; i++)
        kept[i] = across[i] = (char)(i * 7 + i / 256);
    if (ops->queue_create(device, COH_LANE_H2D, &queue) != COH_OK)
        fail_msg("%s", coh_last_error());
    ops->copy(queue, near, across, bytes);
    ops->finish(queue);
    for (size_t i = 0; i < bytes; i++)
        across[i] = 0;
    ops->copy(queue, across, near, bytes);
    ops->finish(queue);
    if (ops->failure(device) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_memory_equal(across, kept, bytes);
    ops->queue_destroy(queue);
}

static void host_memory_is_pinned_in_pieces_and_copied_across_them(void **state)
{
    (void)state;
    enum { BYTES = 3 * 4096 };
    const coh_device_config config = { .thread_count = 1 };
    coh_arena_facts facts;
    coh_device *device;
    void *near, *far;
    assert_int_equal(ops->create(&config, &device), COH_OK);
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, BYTES, &near), COH_OK);
    if (ops->arena_create(device, COH_TIER_HOST, COH_CUDA_PIN_BYTES + BYTES, &far) != COH_OK)
        fail_msg("%s", coh_last_error());
    ops->arena_facts(device, COH_TIER_HOST, &facts);
    print_message("%.1f ms to pin %.0f MiB\n", (double)facts.pin_ns * 1e-6,
                  (double)(COH_CUDA_PIN_BYTES + BYTES) / (1 << 20));
    copy_there_and_back(device, near, (char *)far + COH_CUDA_PIN_BYTES - 4096, BYTES);
    ops->arena_destroy(device, COH_TIER_HOST);
    ops->arena_destroy(device, COH_TIER_DEVICE);
    ops->destroy(device);
}

/* ---- the GPU's clock ---- */

enum { PLACES = 200 };
typedef struct places {
    uint64_t at_ns[2 * PLACES];
    int count;
} places;

static void pass(void *context, uint64_t number, uint32_t index)
{
    (void)context;
    (void)number;
    (void)index;
}

static void take_time(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    (void)number;
    (void)index;
    places *p = context;
    p->at_ns[p->count++] = at_ns;
}

/* Enqueues copies, and waits for them; their times go to `p`. */
static void time_copies(bench *b, places *p)
{
    coh_queue *queue = b->queues[COH_LANE_H2D];
    for (int i = 0; i < PLACES; i++) {
        ops->notify(queue, pass, take_time, p, 0, 0);
        ops->copy(queue, b->slot, b->host->in[0], sizeof(b->host->in[0]));
        ops->notify(queue, pass, take_time, p, 0, 0);
        ops->signal(queue, &b->counters[COH_LANE_H2D], ++b->signalled[COH_LANE_H2D]);
    }
    if (!coh_counter_wait(&b->counters[COH_LANE_H2D], b->signalled[COH_LANE_H2D]))
        fail_msg("%s", coh_last_error());
}

/* Places lie between the host's times before they are enqueued and after they are done. Some
 * are taken before and some after the newest pair of the clocks. */
static void times_of_the_gpu_are_the_hosts(void **state)
{
    (void)state;
    const coh_device_config config = { .times_exactly = 1 };
    bench b;
    if (bench_open(&b, &config) != COH_OK)
        fail_msg("%s", coh_last_error());
    for (int turn = 0; turn < 3; turn++) {
        places p = { .count = 0 };
        const uint64_t begin_ns = coh_clock_ns();
        time_copies(&b, &p);
        const uint64_t end_ns = coh_clock_ns();
        ops->take_times(b.queues[COH_LANE_H2D]);
        if (ops->failure(b.device) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_int_equal(p.count, 2 * PLACES);
        const coh_clock_map *map = &b.device->clock.map;
        const coh_clock_pair *newest = coh_clock_map_newest(map);
        const double since_ns = end_ns > newest->host_ns ? (double)(end_ns - newest->host_ns) : 0;
        const uint64_t error_ns = coh_clock_map_error_ns(map, newest->device_ns);
        const uint64_t most_ns = coh_clock_map_error_ns(map, newest->device_ns + since_ns);
        print_message("clocks of GPU and host are read together to within %.1f us\n",
                      (double)error_ns * 1e-3);
        assert_true(p.at_ns[0] + most_ns >= begin_ns);
        assert_true(p.at_ns[2 * PLACES - 1] <= end_ns + most_ns);
        for (int i = 1; i < 2 * PLACES; i++)
            assert_true(p.at_ns[i] >= p.at_ns[i - 1]);
        assert_true(p.at_ns[2 * PLACES - 1] > p.at_ns[0]);
    }
    bench_close(&b);
}

int gpu_check_device(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_hand_on_what_they_computed),
        cmocka_unit_test(a_recorded_kernel_is_replayed_in_its_turn),
        cmocka_unit_test(a_lane_waits_for_the_host),
        cmocka_unit_test(times_of_the_gpu_are_the_hosts),
        cmocka_unit_test(host_memory_is_pinned_in_pieces_and_copied_across_them),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
