/* One table of properties, each checked for the three stores. */
#include <dirent.h>

#include "tests/faults/alloc_faults.h"
#include "tests/offload/store_fixture.h"

static const coh_store_ops *store_of(void **state)
{
    return *state;
}

static void what_was_written_is_what_is_read(void **state)
{
    rig made = { 0 };
    coh_status statuses[CHUNKS];
    uint32_t order[CHUNKS];
    rig_layout(&made);
    rig_open(&made, store_of(state));
    for (uint64_t generation = 1; generation <= 3; generation++) {
        rig_all(&made, COH_STORE_WRITES, generation, statuses, order);
        for (uint32_t i = 0; i < CHUNKS; i++)
            assert_int_equal(statuses[i], COH_OK);
        rig_all(&made, COH_STORE_READS, generation, statuses, order);
        for (uint32_t i = 0; i < CHUNKS; i++)
            assert_int_equal(statuses[i], COH_OK);
    }
    rig_close(&made);
}

static void every_request_completes_exactly_once(void **state)
{
    rig made = { 0 };
    coh_status statuses[CHUNKS];
    uint32_t order[CHUNKS], seen[CHUNKS] = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    rig_all(&made, COH_STORE_WRITES, 1, statuses, order);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_int_equal(seen[order[i]]++, 0);
    rig_close(&made);
}

static void reaping_with_nothing_in_flight_returns_at_once(void **state)
{
    rig made = { 0 };
    coh_store_completion completion;
    uint32_t count = 7;
    rig_layout(&made);
    rig_open(&made, store_of(state));
    for (uint32_t least = 0; least < 2; least++)
        for (int port = 0; port < COH_STORE_PORT_COUNT; port++) {
            assert_int_equal(
                made.ops->reap(made.store, (coh_store_port)port, &completion, least, 1, &count),
                COH_OK);
            assert_int_equal(count, 0);
        }
    rig_close(&made);
}

static void polling_finds_every_completion_in_the_end(void **state)
{
    rig made = { 0 };
    coh_store_completion completion;
    uint32_t count, done = 0;
    rig_layout(&made);
    rig_open(&made, store_of(state));
    for (uint32_t i = 0; i < DEPTH; i++) {
        coh_store_request request = rig_request(&made, i, 1);
        rig_fill(&request);
        assert_int_equal(made.ops->submit(made.store, COH_STORE_WRITES, &request), COH_OK);
    }
    while (done < DEPTH) {
        assert_int_equal(made.ops->reap(made.store, COH_STORE_WRITES, &completion, 0, 1, &count),
                         COH_OK);
        done += count;
    }
    rig_close(&made);
}

static void a_chunk_never_written_is_not_read(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(rig_read(&made, 3, 1), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "chunk 3"));
    assert_non_null(strstr(coh_last_error(), "never written"));
    rig_close(&made);
}

static void another_generation_than_the_expected_is_refused(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(rig_write(&made, 2, 5), COH_OK);
    assert_int_equal(rig_read(&made, 2, 6), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "stale: generation 6 expected, the store holds 5"));
    assert_int_equal(rig_read(&made, 2, 4), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "too new"));
    assert_int_equal(rig_read(&made, 2, 5), COH_OK);
    rig_close(&made);
}

/* Chunks 0 and 5 have the same size. Chunk 5 is written to chunk 0's place. */
static void a_chunk_in_anothers_place_is_found(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(rig_write(&made, 0, 1), COH_OK);
    coh_store_request wrong = rig_request(&made, 5, 1);
    rig_fill(&wrong);
    wrong.file_offset = made.file_offset[0];
    assert_int_equal(rig_one(&made, COH_STORE_WRITES, &wrong), COH_OK);
    assert_int_equal(rig_read(&made, 0, 1), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "chunk 0 at file offset 0"));
    assert_non_null(strstr(coh_last_error(), "misplaced: the bytes read are those of chunk 5"));
    assert_int_equal(rig_read(&made, 5, 1), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "misplaced: read at"));
    rig_close(&made);
}

/* The disk still has generation 1 although 2 was written: put there under another chunk's name. */
static void a_lost_write_is_found_and_called_stale(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(rig_write(&made, 0, 1), COH_OK);
    assert_int_equal(rig_write(&made, 0, 2), COH_OK);
    coh_store_request old = rig_request(&made, 0, 1);
    rig_fill(&old);
    old.id = (coh_chunk_id){ .chunk = 5, .generation = 1 };
    assert_int_equal(rig_one(&made, COH_STORE_WRITES, &old), COH_OK);
    assert_int_equal(rig_read(&made, 0, 2), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "stale"));
    assert_non_null(strstr(coh_last_error(), "lost write"));
    rig_close(&made);
}

/* Half of a chunk is new, half is old: its tail is overwritten under another chunk's name. */
static void a_torn_chunk_is_found(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(rig_write(&made, 4, 1), COH_OK);
    coh_store_request tail = rig_request(&made, 0, 9);
    rig_fill(&tail);
    tail.file_offset = made.file_offset[4] + made.bytes[4] - PAGE;
    assert_int_equal(rig_one(&made, COH_STORE_WRITES, &tail), COH_OK);
    assert_int_equal(rig_read(&made, 4, 1), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "chunk 4"));
    assert_non_null(strstr(coh_last_error(), "torn or damaged"));
    rig_close(&made);
}

static void a_request_that_leaves_the_store_is_refused(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    coh_store_request good = rig_request(&made, 1, 1), bad = good;
    bad.file_offset = made.file_bytes - good.bytes + PAGE;
    assert_int_equal(made.ops->submit(made.store, COH_STORE_READS, &bad), COH_ERR_INTERNAL);
    bad = good;
    bad.file_offset = UINT64_MAX - PAGE + 1;
    assert_int_equal(made.ops->submit(made.store, COH_STORE_READS, &bad), COH_ERR_INTERNAL);
    bad = good;
    bad.bytes -= 1;
    assert_int_equal(made.ops->submit(made.store, COH_STORE_READS, &bad), COH_ERR_INTERNAL);
    bad = good;
    bad.memory = made.arena + 8;
    assert_int_equal(made.ops->submit(made.store, COH_STORE_WRITES, &bad), COH_ERR_INTERNAL);
    bad = good;
    bad.id.chunk = CHUNKS;
    assert_int_equal(made.ops->submit(made.store, COH_STORE_WRITES, &bad), COH_ERR_INTERNAL);
    rig_close(&made);
}

static void one_request_more_than_the_depth_is_refused(void **state)
{
    rig made = { 0 };
    coh_store_completion completions[DEPTH];
    uint32_t count;
    rig_layout(&made);
    rig_open(&made, store_of(state));
    for (uint32_t i = 0; i <= DEPTH; i++) {
        coh_store_request request = rig_request(&made, i, 1);
        assert_int_equal(made.ops->submit(made.store, COH_STORE_WRITES, &request),
                         i < DEPTH ? COH_OK : COH_ERR_INTERNAL);
    }
    assert_int_equal(
        made.ops->reap(made.store, COH_STORE_WRITES, completions, DEPTH, DEPTH, &count), COH_OK);
    assert_int_equal(count, DEPTH);
    rig_close(&made);
}

static void closing_with_requests_in_flight_waits_for_them(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    for (uint32_t i = 0; i < DEPTH; i++) {
        coh_store_request request = rig_request(&made, i, 1);
        assert_int_equal(made.ops->submit(made.store, COH_STORE_WRITES, &request), COH_OK);
        request = rig_request(&made, DEPTH + i, 1);
        assert_int_equal(made.ops->submit(made.store, COH_STORE_READS, &request), COH_OK);
    }
    rig_close(&made);
}

static void memory_outside_the_registered_arena_is_served_too(void **state)
{
    rig made = { 0 };
    void *outside;
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(posix_memalign(&outside, PAGE, made.bytes[4]), 0);
    coh_store_request request = rig_request(&made, 4, 1);
    request.memory = outside;
    rig_fill(&request);
    assert_int_equal(rig_one(&made, COH_STORE_WRITES, &request), COH_OK);
    assert_int_equal(rig_read(&made, 4, 1), COH_OK);
    rig_close(&made);
    free(outside);
}

static void two_arenas_can_be_registered(void **state)
{
    rig made = { 0 };
    void *second;
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(posix_memalign(&second, PAGE, 4 << 20), 0);
    assert_int_equal(made.ops->register_arena(made.store, second, 4 << 20), COH_OK);
    coh_store_request request = rig_request(&made, 9, 1);
    request.memory = (unsigned char *)second + PAGE;
    rig_fill(&request);
    assert_int_equal(rig_one(&made, COH_STORE_WRITES, &request), COH_OK);
    assert_int_equal(rig_read(&made, 9, 1), COH_OK);
    rig_close(&made);
    free(second);
}

static void nothing_is_allocated_after_open(void **state)
{
    rig made = { 0 };
    coh_status statuses[CHUNKS];
    uint32_t order[CHUNKS];
    rig_layout(&made);
    rig_open(&made, store_of(state));
    uint64_t before = alloc_count();
    rig_all(&made, COH_STORE_WRITES, 1, statuses, order);
    rig_all(&made, COH_STORE_READS, 1, statuses, order);
    (void)rig_read(&made, 1, 2);
    assert_int_equal(alloc_count(), before);
    rig_close(&made);
}

static int entry_count(const char *folder)
{
    int count = 0;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    while (readdir(listing) != NULL)
        count++;
    closedir(listing);
    return count - 2; /* . and .. */
}

static void the_file_has_no_name_while_the_store_is_open(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    rig_open(&made, store_of(state));
    assert_int_equal(entry_count(made.folder), 0);
    rig_close(&made);
}

static void every_failing_allocation_of_open_leaves_nothing_behind(void **state)
{
    for (uint64_t n = 1;; n++) {
        rig made = { 0 };
        rig_layout(&made);
        coh_store_config config = rig_config(&made);
        alloc_fail_nth(n);
        coh_status status = coh_store_open(&config, store_of(state), &made.ops, &made.store);
        int hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (hit) {
            assert_int_equal(status, COH_ERR_MEMORY);
            assert_null(made.store);
            assert_null(made.ops);
        }
        rig_close(&made);
        if (!hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 3);
            return;
        }
    }
}

static void a_config_that_makes_no_sense_is_refused(void **state)
{
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    config.bytes = 0;
    assert_int_equal(coh_store_open(&config, store_of(state), &made.ops, &made.store),
                     COH_ERR_ARGUMENT);
    config.bytes = PAGE + 1;
    assert_int_equal(coh_store_open(&config, store_of(state), &made.ops, &made.store),
                     COH_ERR_ARGUMENT);
    config = rig_config(&made);
    config.port_depth = 0;
    assert_int_equal(coh_store_open(&config, store_of(state), &made.ops, &made.store),
                     COH_ERR_ARGUMENT);
    rig_close(&made);
}

/* The least, the largest and odd depths between give the same bytes. */
static void any_queue_depth_gives_the_same_bytes(void **state)
{
    static const uint32_t depths[] = { 1, 3, 64, 1000 };
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        rig made = { 0 };
        coh_status statuses[CHUNKS];
        uint32_t order[CHUNKS];
        rig_layout(&made);
        coh_store_config config = rig_config(&made);
        config.queue_depth = depths[i];
        assert_int_equal(coh_store_open(&config, store_of(state), &made.ops, &made.store), COH_OK);
        rig_all(&made, COH_STORE_WRITES, 1, statuses, order);
        rig_all(&made, COH_STORE_READS, 1, statuses, order);
        for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
            assert_int_equal(statuses[chunk], COH_OK);
        rig_close(&made);
    }
}

#define CASE(claim)                                                                                \
    {                                                                                              \
#claim, claim, NULL, NULL, NULL                                                            \
    }

static const struct CMUnitTest cases[] = {
    CASE(what_was_written_is_what_is_read),
    CASE(every_request_completes_exactly_once),
    CASE(reaping_with_nothing_in_flight_returns_at_once),
    CASE(polling_finds_every_completion_in_the_end),
    CASE(a_chunk_never_written_is_not_read),
    CASE(another_generation_than_the_expected_is_refused),
    CASE(a_chunk_in_anothers_place_is_found),
    CASE(a_lost_write_is_found_and_called_stale),
    CASE(a_torn_chunk_is_found),
    CASE(a_request_that_leaves_the_store_is_refused),
    CASE(one_request_more_than_the_depth_is_refused),
    CASE(closing_with_requests_in_flight_waits_for_them),
    CASE(memory_outside_the_registered_arena_is_served_too),
    CASE(two_arenas_can_be_registered),
    CASE(nothing_is_allocated_after_open),
    CASE(the_file_has_no_name_while_the_store_is_open),
    CASE(every_failing_allocation_of_open_leaves_nothing_behind),
    CASE(a_config_that_makes_no_sense_is_refused),
    CASE(any_queue_depth_gives_the_same_bytes),
};
#define CASE_COUNT (sizeof(cases) / sizeof(cases[0]))

/* test_store STORE [FOLDERS]. The argument selects one store per process: the build lists one test
 * for each, so that a machine without io_uring reports a skip. */
int main(int argument_count, char **arguments)
{
    const coh_store_ops *stores[] = { &coh_store_uring, &coh_store_posix, &coh_store_mem };
    const coh_store_ops *chosen = NULL;
    struct CMUnitTest tests[CASE_COUNT];
    for (size_t i = 0; i < 3; i++)
        if (argument_count > 1 && strcmp(arguments[1], stores[i]->name) == 0)
            chosen = stores[i];
    if (chosen == NULL)
        return 2;
    if (argument_count > 2)
        rig_disk_count = (uint32_t)strtoul(arguments[2], NULL, 10);
    if (!rig_can(chosen)) {
        printf("skipped: %s\n", coh_last_error());
        return 77;
    }
    for (size_t i = 0; i < CASE_COUNT; i++) {
        tests[i] = cases[i];
        tests[i].initial_state = (void *)(uintptr_t)chosen;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
