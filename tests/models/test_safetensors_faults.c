/* A folder of safetensors files is complete or absent, whatever fails during writing: each file
 * operation, each allocation, the process, the power. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/wait.h>

#include "tests/faults/alloc_faults.h"
#include "tests/faults/file_faults.h"
#include "tests/models/safetensors_writing.h"

#define MODEL folder_file("model")

/* Makes operation `n` of writing a folder of shards (or of one file) fail in way `how`. Returns 0
 * if there is no such operation, so nothing failed. */
static int play_failure(int n, const char *how, int is_sharded, int may_succeed)
{
    char value[32];
    snprintf(value, sizeof(value), "%d%s", n, how);
    setenv("COH_TEST_FAIL_AT", value, 1);
    coh_status status = write_folder(MODEL, is_sharded ? SHARD_BYTES : 0);
    unsetenv("COH_TEST_FAIL_AT");
    if (status == COH_OK) {
        assert_is_fixture(MODEL, is_sharded ? SHARDS : 1);
        assert_int_equal(folder_count(), 1 + (is_sharded ? SHARDS + 1 : 1));
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(mkdir(folder_path, 0700), 0);
        return may_succeed ? n < 80 : 0;
    }
    assert_true(status == COH_ERR_IO || status == COH_ERR_FULL);
    assert_non_null(strstr(coh_last_error(), folder_path));
    assert_int_equal(folder_count(), 0);
    return 1;
}

static void every_failed_operation_leaves_nothing(void **state)
{
    (void)state;
    static const char *const hows[] = { "", ":28", ":122" }; /* EIO, ENOSPC, EDQUOT */
    for (int is_sharded = 0; is_sharded < 2; is_sharded++)
        for (int i = 0; i < 3; i++) {
            int n = 1;
            while (play_failure(n, hows[i], is_sharded, 0))
                n++;
            /* A shard: create, reserve, write, sync, close; the index likewise, without a
             * reserve; the folder: make, flush, rename, flush its parent. */
            assert_true(n - 1 >= (is_sharded ? 5 * SHARDS + 8 : 9));
        }
}

static void short_and_interrupted_operations_leave_all_or_nothing(void **state)
{
    (void)state;
    for (int n = 1; play_failure(n, ":short", 1, 1);)
        n++;
    for (int n = 1; play_failure(n, ":4", 1, 1);) /* EINTR */
        n++;
}

/* The process ends in place of operation n, for every n. */
static void death_leaves_a_whole_model_or_none(void **state)
{
    (void)state;
    int whole = 0, none = 0;
    for (int n = 1;; n++) {
        char value[32];
        int result;
        snprintf(value, sizeof(value), "%d", n);
        setenv("COH_TEST_EXIT_AT", value, 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(write_folder(MODEL, SHARD_BYTES) == COH_OK ? 0 : 1);
        unsetenv("COH_TEST_EXIT_AT");
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        const int is_there = access(MODEL, F_OK) == 0;
        whole += is_there;
        none += !is_there;
        if (is_there)
            assert_is_fixture(MODEL, SHARDS);
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(mkdir(folder_path, 0700), 0);
        if (WEXITSTATUS(result) == 0)
            break;
        assert_int_equal(WEXITSTATUS(result), FILE_FAULTS_EXIT_CODE);
    }
    assert_true(whole >= 2 && none >= 20);
}

/* A dead process left its temporary folder; another process with the same id writes again. A file
 * of such a name is nobody's leftover, and stays. */
static void what_a_dead_process_left_does_not_stand_in_the_way(void **state)
{
    (void)state;
    char name[64];
    snprintf(name, sizeof(name), "model.partial-%ld-1", (long)getpid());
    folder_write(name, "left", 4);
    snprintf(name, sizeof(name), "model.partial-%ld-0", (long)getpid());
    assert_int_equal(mkdir(folder_file(name), 0700), 0);
    snprintf(name, sizeof(name), "model.partial-%ld-0/model.safetensors", (long)getpid());
    folder_write(name, "left", 4);
    assert_int_equal(write_folder(MODEL, 0), COH_OK);
    assert_is_fixture(MODEL, 1);
    assert_int_equal(folder_count(), 3);
}

static void a_power_cut_leaves_a_whole_model_or_none(void **state)
{
    (void)state;
    enum { SEEDS = 6 };
    for (int n = 1, is_over = 0; !is_over; n++)
        for (int seed = 0; seed < SEEDS; seed++) {
            char value[32];
            int result;
            snprintf(value, sizeof(value), "%d:%d", n, seed);
            setenv("COH_TEST_POWER_CUT_AT", value, 1);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0)
                _exit(write_folder(MODEL, SHARD_BYTES) == COH_OK ? 0 : 1);
            unsetenv("COH_TEST_POWER_CUT_AT");
            assert_int_equal(waitpid(child, &result, 0), child);
            assert_true(WIFEXITED(result));
            is_over = WEXITSTATUS(result) == 0;
            assert_true(is_over || WEXITSTATUS(result) == FILE_FAULTS_EXIT_CODE);
            if (is_over || access(MODEL, F_OK) == 0)
                assert_is_fixture(MODEL, SHARDS);
            assert_int_equal(folder_remove(NULL), 0);
            assert_int_equal(mkdir(folder_path, 0700), 0);
        }
}

static void writing_survives_every_failed_allocation(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status = write_folder(MODEL, SHARD_BYTES);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(folder_count(), 0);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    temporary_in_memory();
    const struct CMUnitTest tests[] = {
        CASE(every_failed_operation_leaves_nothing),
        CASE(short_and_interrupted_operations_leave_all_or_nothing),
        CASE(death_leaves_a_whole_model_or_none),
        CASE(what_a_dead_process_left_does_not_stand_in_the_way),
        CASE(a_power_cut_leaves_a_whole_model_or_none),
        CASE(writing_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("safetensors_faults", tests, NULL, NULL);
}
