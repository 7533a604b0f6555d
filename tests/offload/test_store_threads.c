/* Two lanes on one store, as in a run: the write lane fills and writes chunks, the read lane reads
 * written ones, each in its own half of the arena. Only a counter orders them. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/offload/store_fixture.h"

#define ROUNDS 30u

typedef struct lanes {
    rig made;
    _Atomic uint32_t written; /* requests retired: the write lane adds (release), the other reads
                               * it */
    _Atomic uint32_t read_back;
    int failed;
} lanes;

static void wait_for(const _Atomic uint32_t *counter, uint32_t least)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < least)
        sched_yield();
}

/* Request n writes chunk n % CHUNKS in generation 1 + n / CHUNKS. A chunk is overwritten only after
 * its last generation was read. */
static void *write_lane(void *argument)
{
    lanes *both = argument;
    const rig *made = &both->made;
    for (uint32_t n = 0; n < ROUNDS * CHUNKS; n++) {
        coh_store_completion completion;
        uint32_t count;
        coh_store_request request = rig_request(made, n % CHUNKS, 1 + n / CHUNKS);
        if (n >= CHUNKS)
            wait_for(&both->read_back, n - CHUNKS + 1);
        rig_fill(&request);
        if (made->ops->submit(made->store, COH_STORE_WRITES, &request) != COH_OK ||
            made->ops->reap(made->store, COH_STORE_WRITES, &completion, 1, 1, &count) != COH_OK ||
            count != 1 || completion.status != COH_OK)
            both->failed = 1;
        atomic_fetch_add_explicit(&both->written, 1, memory_order_release);
    }
    return NULL;
}

/* Keeps DEPTH reads in flight, retires them in order. */
static void read_lane(lanes *both, unsigned char *memory)
{
    const rig *made = &both->made;
    uint32_t submitted = 0, done[ROUNDS * CHUNKS] = { 0 }, retired = 0;
    while (retired < ROUNDS * CHUNKS) {
        coh_store_completion completions[DEPTH];
        uint32_t count;
        while (submitted < ROUNDS * CHUNKS && submitted < retired + DEPTH &&
               atomic_load_explicit(&both->written, memory_order_acquire) > submitted) {
            coh_store_request request =
                rig_request(made, submitted % CHUNKS, 1 + submitted / CHUNKS);
            request.memory = memory + made->memory_offset[submitted % CHUNKS];
            request.number = submitted++;
            assert_int_equal(made->ops->submit(made->store, COH_STORE_READS, &request), COH_OK);
        }
        assert_int_equal(
            made->ops->reap(made->store, COH_STORE_READS, completions, 0, DEPTH, &count), COH_OK);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(completions[i].status, COH_OK);
            done[completions[i].number] = 1;
        }
        while (retired < submitted && done[retired]) {
            coh_store_request request = rig_request(made, retired % CHUNKS, 1 + retired / CHUNKS);
            request.memory = memory + made->memory_offset[retired % CHUNKS];
            rig_expect(&request);
            retired++;
            atomic_store_explicit(&both->read_back, retired, memory_order_release);
        }
        if (count == 0)
            sched_yield();
    }
}

static void two_lanes_on_one_store_read_what_was_written(void **state)
{
    static lanes both;
    pthread_t writer;
    void *memory;
    memset(&both, 0, sizeof(both));
    rig_layout(&both.made);
    assert_int_equal(posix_memalign(&memory, PAGE, ARENA_BYTES), 0);
    memset(memory, 0, ARENA_BYTES);
    rig_open(&both.made, *state);
    assert_int_equal(both.made.ops->register_arena(both.made.store, memory, ARENA_BYTES), COH_OK);
    assert_int_equal(pthread_create(&writer, NULL, write_lane, &both), 0);
    read_lane(&both, memory);
    pthread_join(writer, NULL);
    assert_int_equal(both.failed, 0);
    rig_close(&both.made);
    free(memory);
}

int main(int argument_count, char **arguments)
{
    const coh_store_ops *stores[] = { &coh_store_uring, &coh_store_posix, &coh_store_mem };
    for (size_t i = 0; i < 3; i++) {
        if (argument_count != 2 || strcmp(arguments[1], stores[i]->name) != 0)
            continue;
        if (!rig_can(stores[i])) {
            printf("skipped: %s\n", coh_last_error());
            return 77;
        }
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(two_lanes_on_one_store_read_what_was_written,
                                      (void *)(uintptr_t)stores[i]),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    return 2;
}
