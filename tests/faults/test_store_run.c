/* A streamed life (init, two steps, hash, evaluation, save, load, hash) in which one operation of
 * the working store fails, for every operation: it ends with the right status and a message, or
 * with the results of the undisturbed run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/faults/fault_model.h"
#include "tests/faults/store_faults.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { RUN_SECONDS = 60 }; /* for a run that takes milliseconds */

static const char *store;
static char folder[256], path[320], partial[336], disk_folders[2][320];
static fault_model_size size;
static coh_graph *graph;
static coh_plan *plan;
static uint64_t expected_hash;
static int64_t stride;      /* 1: every operation; in short runs the thread sanitizer sees one in
                             * five */
static uint64_t host_bytes; /* 0: the disk is the only far tier */
static coh_disk disks[2] = { { .bytes = UINT64_MAX, .bytes_per_s = 2 },
                             { .bytes = UINT64_MAX, .bytes_per_s = 1 } };
static uint32_t disk_count; /* 0: the working store is in the current folder */
static int64_t operation_count;

static const store_fault_plan no_faults = {
    .seed = 1, .fail_at = -1, .short_at = -1, .flip_at = -1, .late_at = -1
};

/* The hash of the run in memory is the oracle of every streamed run. */
static int set_up(void **state)
{
    (void)state;
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan *in_memory;
    coh_engine *engine;
    fault_watchdog(RUN_SECONDS, "set-up");
    fault_make_folder(folder, sizeof(folder));
    for (uint32_t i = 0; i < disk_count; i++) {
        snprintf(disk_folders[i], sizeof(disk_folders[i]), "%s/disk-%u", folder, (unsigned)i);
        assert_int_equal(mkdir(disk_folders[i], 0700), 0);
        disks[i].folder = disk_folders[i];
    }
    snprintf(path, sizeof(path), "%s/save", folder);
    snprintf(partial, sizeof(partial), "%s.partial", path);
    assert_int_equal(fault_graph(size, &graph), COH_OK);
    fault_plan_options(0, &options);
    options.deferred_update = host_bytes == 0;
    assert_int_equal(coh_plan_create(graph, &options, &in_memory), COH_OK);
    fault_engine_options(NULL, &engine_options);
    assert_int_equal(fault_run(in_memory, &engine_options, &engine, &expected_hash), COH_OK);
    fault_destroy(engine);
    coh_plan_destroy(in_memory);
    fault_plan_options(fault_smallest_bytes(graph), &options);
    options.emulate_host = 1;
    options.host_memory_bytes = host_bytes;
    options.deferred_update = host_bytes == 0;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    (void)temporary_remove(folder);
    return 0;
}

typedef struct outcome {
    coh_status status;
    uint64_t hash;
    int was_hit;
    uint64_t operation_count;
} outcome;

static coh_status live(const coh_engine_options *options, coh_engine **out_engine,
                       uint64_t *out_hash)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = FAULT_STEPS,
                                       .json = "{}" };
    const coh_step_input input = fault_step_input(FAULT_STEPS);
    double loss;
    uint64_t hash = 0;
    coh_status status = fault_run(plan, options, out_engine, &hash);
    assert_true(status != COH_OK || hash == expected_hash);
    if (status == COH_OK)
        status = coh_engine_evaluate(*out_engine, &input, &loss);
    if (status == COH_OK)
        status = coh_engine_save(*out_engine, path, &note);
    /* A failed save leaves no checkpoint. */
    assert_int_equal(access(path, F_OK) == 0, status == COH_OK);
    assert_int_not_equal(access(partial, F_OK), 0);
    if (status == COH_OK)
        status = coh_engine_load(*out_engine, path, NULL);
    if (status == COH_OK)
        status = coh_engine_hash(*out_engine, out_hash);
    (void)temporary_remove(path);
    return status;
}

/* Runs one life under `faults`. A failed engine returns the same failure until it is destroyed, and
 * says that it is not a new one. */
static outcome run_with(const store_fault_plan *faults, const char *what, int64_t n)
{
    char name[96];
    coh_engine_options options;
    coh_engine *engine = NULL;
    outcome out;
    snprintf(name, sizeof(name), "%s store, %s at operation %" PRId64, store, what, n);
    fault_watchdog(RUN_SECONDS, name);
    fault_engine_options(NULL, &options);
    options.disks = disks;
    options.disk_count = disk_count;
    store_fault_plan_set(faults);
    out.hash = 0;
    out.status = live(&options, &engine, &out.hash);
    out.was_hit = store_fault_was_hit();
    out.operation_count = store_fault_operations();
    if (out.status != COH_OK) {
        uint64_t hash;
        char sentence[1024];
        snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
        fault_check_sentence(sentence);
        assert_true(disk_count == 0 || strstr(sentence, disk_folders[0]) != NULL ||
                    strstr(sentence, disk_folders[1]) != NULL);
        assert_non_null(engine); /* the store is first used by init */
        assert_int_equal(coh_engine_hash(engine, &hash), out.status);
        assert_non_null(strstr(coh_last_error(), "the engine failed earlier"));
        assert_non_null(strstr(coh_last_error(), sentence));
    }
    fault_destroy(engine);
    store_fault_plan_set(NULL);
    return out;
}

static void an_undisturbed_streamed_run_has_the_hash_of_the_run_in_memory(void **state)
{
    (void)state;
    outcome out = run_with(&no_faults, "nothing", -1);
    assert_int_equal(out.status, COH_OK);
    assert_true(out.hash == expected_hash);
    assert_true(out.operation_count > 50); /* else the tests below show little */
    operation_count = (int64_t)out.operation_count;
}

static void every_failing_operation_ends_the_run(int error, const char *what)
{
    for (int64_t n = 0; n < operation_count; n += stride) {
        store_fault_plan faults = no_faults;
        faults.fail_at = n;
        faults.fail_errno = error;
        outcome out = run_with(&faults, what, n);
        assert_true(out.was_hit);
        if (out.status != COH_ERR_IO)
            fail_msg("%s at %d: %s", what, (int)n, coh_status_name(out.status));
    }
    assert_int_equal(coh_status_exit_code(COH_ERR_IO), 5);
}

static void every_operation_that_fails_with_eio_ends_the_run(void **state)
{
    (void)state;
    every_failing_operation_ends_the_run(EIO, "EIO");
}

static void every_operation_that_fails_with_enospc_ends_the_run(void **state)
{
    (void)state;
    every_failing_operation_ends_the_run(ENOSPC, "ENOSPC");
}

static void every_short_operation_changes_no_bit(void **state)
{
    (void)state;
    for (int64_t n = 0; n < operation_count; n += stride) {
        store_fault_plan faults = no_faults;
        faults.short_at = n;
        outcome out = run_with(&faults, "short", n);
        assert_true(out.was_hit);
        assert_int_equal(out.status, COH_OK);
        assert_true(out.hash == expected_hash);
    }
}

static void every_late_operation_changes_no_bit(void **state)
{
    (void)state;
    for (int64_t n = 0; n < operation_count; n += stride) {
        store_fault_plan faults = no_faults;
        faults.late_at = n;
        faults.delay_most_us = 50; /* so that others overtake it */
        faults.seed = (uint64_t)n;
        outcome out = run_with(&faults, "late", n);
        assert_true(out.was_hit);
        assert_int_equal(out.status, COH_OK);
        assert_true(out.hash == expected_hash);
    }
}

/* A flip in written data is found when they are read back. If a chunk is overwritten first or never
 * read again, the hash is right. */
static void a_flipped_bit_in_any_chunk_is_found_and_never_a_number(void **state)
{
    (void)state;
    int64_t found_count = 0, unread_count = 0;
    for (int64_t n = 0; n < operation_count; n += stride) {
        store_fault_plan faults = no_faults;
        faults.flip_at = n;
        faults.seed = (uint64_t)n;
        outcome out = run_with(&faults, "flip", n);
        assert_true(out.was_hit);
        if (out.status == COH_OK)
            assert_true(out.hash == expected_hash);
        else if (out.status != COH_ERR_IO)
            fail_msg("flip at %d: %s", (int)n, coh_status_name(out.status));
        found_count += out.status == COH_ERR_IO;
        unread_count += out.status == COH_OK;
    }
    assert_int_equal(coh_status_exit_code(COH_ERR_IO), 5);
    printf("figure: %s store, %" PRId64 " operations in a run, 1 in %" PRId64
           " broken in 5 ways; flips: %" PRId64 " found, %" PRId64 " never read again\n",
           store, operation_count, stride, found_count, unread_count);
    assert_true(found_count > 9 * unread_count);
}

/* test_store_run STORE [STRIDE [HOST-KIB [FOLDERS]]]: the store; with STRIDE the larger model,
 * every STRIDEth operation; with HOST-KIB above 0 an emulated host tier between device and disk,
 * and updates in backward; with FOLDERS 2 the store is striped over two. */
int main(int argument_count, char **arguments)
{
    store = argument_count > 1 ? arguments[1] : "mem";
    size = argument_count > 2 ? FAULT_TINY_GPT : FAULT_TWO_OPERATORS;
    stride = argument_count > 2 ? strtol(arguments[2], NULL, 10) : test_seeks_races() ? 5 : 1;
    host_bytes = argument_count > 3 ? strtoull(arguments[3], NULL, 10) << 10 : 0;
    disk_count = argument_count > 4 ? (uint32_t)strtoul(arguments[4], NULL, 10) : 0;
    fault_set_clip(host_bytes == 0 ? 1.0f : 0);
    fault_set_store(strcmp(store, "mem") == 0 ? &store_faulty_mem : &store_faulty_posix);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_undisturbed_streamed_run_has_the_hash_of_the_run_in_memory),
        cmocka_unit_test(every_operation_that_fails_with_eio_ends_the_run),
        cmocka_unit_test(every_operation_that_fails_with_enospc_ends_the_run),
        cmocka_unit_test(every_short_operation_changes_no_bit),
        cmocka_unit_test(every_late_operation_changes_no_bit),
        cmocka_unit_test(a_flipped_bit_in_any_chunk_is_found_and_never_a_number),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
