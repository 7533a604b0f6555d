/* Every operation of the posix and the mem store fails once, is short, late or flips a bit. */
#include <errno.h>

#include "offload/store_base.h"
#include "tests/faults/store_faults.h"
#include "tests/length.h"
#include "tests/offload/store_fixture.h"

#define OPERATIONS (2 * (int64_t)CHUNKS) /* CHUNKS writes, then CHUNKS reads */

static const store_fault_plan no_faults = {
    .fail_at = -1, .short_at = -1, .flip_at = -1, .late_at = -1
};

/* Distance of two failing operations. In short runs the thread sanitizer sees one in three, from
 * both ports. */
static int64_t stride(void)
{
    return test_seeks_races() ? 3 : 1;
}

typedef struct outcome {
    coh_status writes[CHUNKS], reads[CHUNKS];
    uint32_t write_order[CHUNKS], read_order[CHUNKS];
    int hit;
    uint64_t operations;
} outcome;

/* Writes all chunks, then reads them all. For reads with COH_OK, the rig compares the data. */
static void play(const coh_store_ops *ops, const store_fault_plan *plan, outcome *out)
{
    rig made = { 0 };
    rig_layout(&made);
    store_fault_plan_set(plan);
    rig_open(&made, ops);
    rig_all(&made, COH_STORE_WRITES, 1, out->writes, out->write_order);
    rig_all(&made, COH_STORE_READS, 1, out->reads, out->read_order);
    out->hit = store_fault_was_hit();
    out->operations = store_fault_operations();
    store_fault_plan_set(NULL);
    rig_close(&made);
}

static void every_failing_operation_fails_its_own_request_only(void **state)
{
    static const int errors[] = { EIO, ENOSPC };
    for (size_t e = test_seeks_races() ? 1 : 0; e < 2; e++)
        for (int64_t n = 0;; n++) {
            store_fault_plan plan = no_faults;
            outcome out;
            plan.fail_at = n;
            plan.fail_errno = errors[e];
            play(*state, &plan, &out);
            assert_int_equal(out.operations, OPERATIONS);
            if (!out.hit) {
                assert_int_equal(n, OPERATIONS);
                break;
            }
            for (int64_t i = 0; i < (int64_t)CHUNKS; i++) {
                assert_int_equal(out.writes[i], i == n ? COH_ERR_IO : COH_OK);
                /* Remains of a failed write must never be accepted. */
                coh_status expected = i == n                     ? COH_ERR_CORRUPT
                                      : i + (int64_t)CHUNKS == n ? COH_ERR_IO
                                                                 : COH_OK;
                assert_int_equal(out.reads[i], expected);
            }
            assert_true(coh_last_error()[0] != '\0');
        }
}

static void the_sentence_of_a_failed_transfer_names_chunk_place_and_reason(void **state)
{
    rig made = { 0 };
    store_fault_plan plan = no_faults;
    plan.fail_at = 0;
    plan.fail_errno = ENOSPC;
    rig_layout(&made);
    store_fault_plan_set(&plan);
    rig_open(&made, *state);
    assert_int_equal(rig_write(&made, 3, 1), COH_ERR_IO);
    char place[64];
    snprintf(place, sizeof(place), "file offset %llu", (unsigned long long)made.file_offset[3]);
    assert_non_null(strstr(coh_last_error(), "writing chunk 3"));
    assert_non_null(strstr(coh_last_error(), place));
    assert_non_null(strstr(coh_last_error(), "No space left on device"));
    store_fault_plan_set(NULL);
    rig_close(&made);
}

/* A failed transfer names the folder of its part, wrong bytes those of the whole chunk. */
static void the_sentence_of_a_failure_names_the_folders_concerned(void **state)
{
    uint32_t named[COH_DISKS_MOST] = { 0 };
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        rig made = { 0 };
        char first[300];
        uint64_t offset;
        store_fault_plan plan = no_faults;
        plan.fail_at = 0;
        plan.flip_at = 1;
        rig_layout(&made);
        store_fault_plan_set(&plan);
        rig_open(&made, *state);
        const coh_stripe *stripe = &((coh_store *)made.store)->stripe;
        const uint32_t disk = coh_stripe_find(stripe, made.file_offset[chunk], NULL, &offset);
        named[disk]++;
        snprintf(first, sizeof(first), "in %s failed", made.disks[disk].folder);
        assert_int_equal(rig_write(&made, chunk, 1), COH_ERR_IO);
        assert_non_null(strstr(coh_last_error(), first));
        assert_int_equal(rig_write(&made, chunk, 2), COH_OK);
        assert_int_equal(rig_read(&made, chunk, 2), COH_ERR_CORRUPT);
        const char *text = coh_last_error();
        for (uint32_t i = 0; i < rig_disk_count; i++) {
            int holds = 0;
            for (uint64_t at = 0; at < made.bytes[chunk]; at += PAGE)
                holds |= coh_stripe_find(stripe, made.file_offset[chunk] + at, NULL, &offset) == i;
            snprintf(first, sizeof(first), "%s%s", made.disks[i].folder, i == 0 ? ":" : "");
            if (i > 0 || rig_disk_count == 1) /* the first folder's name begins the others' */
                assert_int_equal(strstr(text, first) != NULL, holds);
        }
        store_fault_plan_set(NULL);
        rig_close(&made);
    }
    for (uint32_t i = 0; i < rig_disk_count; i++)
        assert_true(named[i] > 0); /* else the test shows little */
}

/* Half of the chunk may have been overwritten. */
static void after_a_failed_write_the_older_bytes_are_not_believed_either(void **state)
{
    rig made = { 0 };
    store_fault_plan plan = no_faults;
    plan.fail_at = 1;
    rig_layout(&made);
    store_fault_plan_set(&plan);
    rig_open(&made, *state);
    assert_int_equal(rig_write(&made, 4, 1), COH_OK);
    assert_int_equal(rig_write(&made, 4, 2), COH_ERR_IO);
    assert_int_equal(rig_read(&made, 4, 1), COH_ERR_CORRUPT);
    assert_int_equal(rig_write(&made, 4, 3), COH_OK);
    assert_int_equal(rig_read(&made, 4, 3), COH_OK);
    store_fault_plan_set(NULL);
    rig_close(&made);
}

static void a_short_transfer_at_any_operation_is_continued(void **state)
{
    for (int64_t n = 0; n < OPERATIONS; n += stride()) {
        store_fault_plan plan = no_faults;
        outcome out;
        plan.short_at = n;
        play(*state, &plan, &out);
        assert_true(out.hit);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(out.writes[i], COH_OK);
            assert_int_equal(out.reads[i], COH_OK);
        }
    }
}

/* The next read finds a flip while writing; a flip while reading is found at once. */
static void a_flipped_bit_in_any_chunk_is_found(void **state)
{
    for (uint64_t seed = 1; seed <= 2; seed++)
        for (int64_t n = 0; n < OPERATIONS; n += stride()) {
            store_fault_plan plan = no_faults;
            outcome out;
            plan.seed = seed;
            plan.flip_at = n;
            play(*state, &plan, &out);
            assert_true(out.hit);
            for (int64_t i = 0; i < (int64_t)CHUNKS; i++) {
                assert_int_equal(out.writes[i], COH_OK);
                assert_int_equal(out.reads[i], i == n % (int64_t)CHUNKS ? COH_ERR_CORRUPT : COH_OK);
            }
        }
}

static void a_late_operation_comes_after_all_others_in_flight(void **state)
{
    for (int64_t n = 0; n < OPERATIONS; n += stride()) {
        store_fault_plan plan = no_faults;
        outcome out;
        plan.late_at = n;
        play(*state, &plan, &out);
        assert_true(out.hit);
        for (uint32_t i = 0; i < CHUNKS; i++)
            assert_true(out.writes[i] == COH_OK && out.reads[i] == COH_OK);
        const uint32_t *order = n < (int64_t)CHUNKS ? out.write_order : out.read_order;
        uint32_t late = (uint32_t)(n % (int64_t)CHUNKS);
        uint32_t window_end = (late / DEPTH + 1) * DEPTH; /* requests are issued DEPTH at a time */
        if (window_end > CHUNKS)
            window_end = CHUNKS;
        assert_int_equal(order[window_end - 1], late);
    }
}

static void any_delay_and_any_order_give_the_same_bytes(void **state)
{
    int out_of_order = 0;
    for (uint64_t seed = 1; seed <= (test_seeks_races() ? 5 : 20); seed++) {
        store_fault_plan plan = no_faults;
        outcome out;
        plan.seed = seed;
        plan.delay_most_us = 300;
        plan.reorder = 1;
        play(*state, &plan, &out);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(out.writes[i], COH_OK);
            assert_int_equal(out.reads[i], COH_OK);
            out_of_order |= out.read_order[i] != i;
        }
    }
    assert_true(out_of_order); /* else the plan has no effect */
}

static void the_first_of_two_failures_writes_the_sentence(void **state)
{
    rig made = { 0 };
    coh_store_completion completions[DEPTH];
    uint32_t count;
    rig_layout(&made);
    rig_open(&made, *state);
    for (uint32_t i = 1; i <= 2; i++) { /* both never written */
        coh_store_request request = rig_request(&made, i, 1);
        assert_int_equal(made.ops->submit(made.store, COH_STORE_READS, &request), COH_OK);
    }
    assert_int_equal(made.ops->reap(made.store, COH_STORE_READS, completions, 2, DEPTH, &count),
                     COH_OK);
    assert_int_equal(count, 2);
    char first[32];
    snprintf(first, sizeof(first), "chunk %u ", (unsigned)(completions[0].number - 1000));
    assert_non_null(strstr(coh_last_error(), first));
    rig_close(&made);
}

#define CASE(claim)                                                                                \
    {                                                                                              \
#claim, claim, NULL, NULL, NULL                                                            \
    }

static const struct CMUnitTest cases[] = {
    CASE(every_failing_operation_fails_its_own_request_only),
    CASE(the_sentence_of_a_failed_transfer_names_chunk_place_and_reason),
    CASE(the_sentence_of_a_failure_names_the_folders_concerned),
    CASE(after_a_failed_write_the_older_bytes_are_not_believed_either),
    CASE(a_short_transfer_at_any_operation_is_continued),
    CASE(a_flipped_bit_in_any_chunk_is_found),
    CASE(a_late_operation_comes_after_all_others_in_flight),
    CASE(any_delay_and_any_order_give_the_same_bytes),
    CASE(the_first_of_two_failures_writes_the_sentence),
};
#define CASE_COUNT (sizeof(cases) / sizeof(cases[0]))

/* test_store_faults STORE [FOLDERS] */
int main(int argument_count, char **arguments)
{
    struct CMUnitTest tests[CASE_COUNT];
    int posix = argument_count > 1 && strcmp(arguments[1], "posix") == 0;
    if (argument_count > 2)
        rig_disk_count = (uint32_t)strtoul(arguments[2], NULL, 10);
    const coh_store_ops *chosen = posix ? &store_faulty_posix : &store_faulty_mem;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        tests[i] = cases[i];
        tests[i].initial_state = (void *)(uintptr_t)chosen;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
