/* A save fails at each of its file operations in turn: the checkpoint is complete or absent, and
 * saving allocates nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tests/engine/checkpoint_fixture.h"
#include "tests/faults/alloc_faults.h"
#include "tests/faults/file_faults.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MALLOC 0
#else
#define COUNTS_MALLOC 1
#endif
#else
#define COUNTS_MALLOC 1
#endif

static uint64_t malloc_calls;
#if COUNTS_MALLOC
/* Replaces the C library's malloc for its internal callers, too (fopen, opendir, ...). */
extern void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes)
{
    malloc_calls++;
    return __libc_malloc(bytes);
}
#endif

static char folder[PATH_MAX];
static char old_path[PATH_MAX + 64], new_path[PATH_MAX + 64], partial[PATH_MAX + 96];
static uint64_t old_hash;

static int set_up(void **state)
{
    (void)state;
    fixture_folder(folder);
    snprintf(old_path, sizeof(old_path), "%s/step-1", folder);
    snprintf(new_path, sizeof(new_path), "%s/step-2", folder);
    snprintf(partial, sizeof(partial), "%s.partial", new_path);
    unsetenv("COH_TEST_EXIT_AT");
    unsetenv("COH_TEST_FAIL_AT");
    return fixture_save(old_path, 1, NULL, &old_hash) == COH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("COH_TEST_EXIT_AT");
    unsetenv("COH_TEST_FAIL_AT");
    fixture_folder_remove(folder);
    return 0;
}

/* Opens the newest checkpoint of the run folder, checks every byte and returns its hash. */
static uint64_t newest_hash(void)
{
    uint64_t hash = 0;
    coh_checkpoint *checkpoint;
    assert_int_equal(coh_checkpoint_open(folder, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_check(checkpoint, &hash), COH_OK);
    coh_checkpoint_close(checkpoint);
    return hash;
}

/* Saves once in a child process that dies at file operation n. Returns its exit code. */
static int save_and_die_at(int n)
{
    char text[16];
    int result;
    snprintf(text, sizeof(text), "%d", n);
    setenv("COH_TEST_EXIT_AT", text, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fixture_save(new_path, 2, NULL, NULL) == COH_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &result, 0), child);
    unsetenv("COH_TEST_EXIT_AT");
    assert_true(WIFEXITED(result));
    return WEXITSTATUS(result);
}

static void dying_at_any_operation_leaves_the_old_or_the_new_checkpoint(void **state)
{
    (void)state;
    uint64_t new_hash;
    int n, old_count = 0, new_count = 0;
    assert_int_equal(fixture_save(new_path, 2, NULL, &new_hash), COH_OK);
    assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
    for (n = 1;; n++) {
        int code = save_and_die_at(n);
        int is_there = fixture_exists(new_path);
        uint64_t found = newest_hash();
        assert_true(found == (is_there ? new_hash : old_hash));
        if (is_there)
            assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
        if (code == 0) {
            assert_true(is_there);
            break;
        }
        assert_int_equal(code, FILE_FAULTS_EXIT_CODE);
        old_count += !is_there;
        new_count += is_there;
        if (n % 5)
            continue; /* the next save finds these remains */
        /* Remains under the temporary name do not stop the next save. */
        assert_int_equal(fixture_save(new_path, 2, NULL, NULL), COH_OK);
        assert_false(fixture_exists(partial));
        assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
    }
    printf("%d operations died at: %d left the old checkpoint, %d the new one\n", n - 1, old_count,
           new_count);
    assert_true(n > 40 && new_count >= 1 && old_count > 30);
}

/* Operations of a save are identified by number only. A signal may interrupt each one that waits
 * for the disk (four reservations, writes, five flushes), and these are retried. */
static void a_signal_in_a_reservation_write_or_flush_is_no_failure(void **state)
{
    (void)state;
    int done_count = 0;
    for (int n = 1; n <= 60; n++) {
        char text[32];
        snprintf(text, sizeof(text), "%d:%d", n, EINTR);
        setenv("COH_TEST_FAIL_AT", text, 1);
        coh_status status = fixture_save(new_path, 2, NULL, NULL);
        unsetenv("COH_TEST_FAIL_AT");
        assert_false(fixture_exists(partial));
        assert_int_equal(fixture_exists(new_path), status == COH_OK);
        if (status == COH_OK)
            assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
        /* 1: the folder; then four times create and reserve. */
        if (n == 3 || n == 5 || n == 7 || n == 9)
            assert_int_equal(status, COH_OK);
        done_count += status == COH_OK;
    }
    assert_true(done_count > 20);
}

static void fail_each_operation(const char *how, coh_status expected)
{
    for (int n = 1;; n++) {
        char text[32];
        coh_checkpoint_writer *writer;
        coh_checkpoint_seal seal = { .step = 2, .applied_count = 2 };
        snprintf(text, sizeof(text), "%d%s", n, how);
        setenv("COH_TEST_FAIL_AT", text, 1);
        assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
        unsetenv("COH_TEST_FAIL_AT");
        coh_status status = coh_checkpoint_writer_begin(writer, new_path, NULL);
        if (status == COH_OK && (status = fixture_put_all(writer, 2)) != COH_OK)
            coh_checkpoint_writer_abort(writer);
        if (status == COH_OK)
            status = coh_checkpoint_writer_finish(writer, &seal, NULL);
        if (status == COH_OK && n > 40) {
            coh_checkpoint_writer_destroy(writer);
            break;
        }
        assert_int_equal(status, expected);
        if (expected != COH_OK) {
            assert_true(strlen(coh_last_error()) > 10);
            assert_false(fixture_exists(new_path));
            assert_false(fixture_exists(partial));
            assert_true(newest_hash() == old_hash);
            if (n % 5) { /* each save waits for the disk */
                coh_checkpoint_writer_destroy(writer);
                continue;
            }
            /* the same writer can try again */
            assert_int_equal(coh_checkpoint_writer_begin(writer, new_path, NULL), COH_OK);
            assert_int_equal(fixture_put_all(writer, 2), COH_OK);
            assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, NULL), COH_OK);
        }
        coh_checkpoint_writer_destroy(writer);
        newest_hash();
        assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
    }
}

static void failing_any_operation_gives_a_sentence_and_leaves_nothing(void **state)
{
    (void)state;
    fail_each_operation("", COH_ERR_IO);
}

static void a_disk_that_fills_at_any_operation_is_an_io_failure(void **state)
{
    (void)state;
    fail_each_operation(":28", COH_ERR_IO); /* ENOSPC */
    assert_non_null(strstr(coh_last_error(), "No space left on device"));
}

static void short_writes_are_carried_on(void **state)
{
    (void)state;
    fail_each_operation(":short", COH_OK);
}

static void a_reservation_that_fails_says_how_much_is_needed(void **state)
{
    (void)state;
    char text[64];
    coh_checkpoint_writer *writer;
    int found = 0;
    for (int n = 1; n < 20; n++) {
        snprintf(text, sizeof(text), "%d:28", n);
        setenv("COH_TEST_FAIL_AT", text, 1);
        assert_int_equal(coh_checkpoint_writer_create(&fixture_table, NULL, &writer), COH_OK);
        unsetenv("COH_TEST_FAIL_AT");
        snprintf(text, sizeof(text), "%" PRIu64 " bytes", coh_checkpoint_writer_bytes(writer));
        if (coh_checkpoint_writer_begin(writer, new_path, NULL) == COH_ERR_IO)
            found += strstr(coh_last_error(), text) != NULL;
        coh_checkpoint_writer_destroy(writer);
    }
    assert_int_equal(found, 4); /* one for each data file */
}

/* Saves to `path`, and removes the checkpoint if `removes`. */
static void save_without_allocations(coh_checkpoint_writer *writer, const char *path, int removes)
{
    const coh_checkpoint_seal seal = { .step = 2, .applied_count = 2 };
    uint64_t ours = alloc_count(), all = malloc_calls;
    coh_status status = coh_checkpoint_writer_begin(writer, path, "{\"x\": 1.5}");
    if (status == COH_OK)
        status = fixture_put_all(writer, 2);
    if (status == COH_OK)
        status = coh_checkpoint_writer_finish(writer, &seal, NULL);
    if (status == COH_OK && removes)
        status = coh_checkpoint_remove(path);
    ours = alloc_count() - ours;
    all = malloc_calls - all;
    assert_int_equal(status, COH_OK);
    assert_int_equal(ours, 0);
    assert_int_equal(all, 0);
}

static void a_save_allocates_nothing(void **state)
{
    (void)state;
    coh_checkpoint_writer *writer;
    char next_path[PATH_MAX + 64];
    snprintf(next_path, sizeof(next_path), "%s/step-3", folder);
    for (int form = COH_FROZEN_IN_WORK; form <= COH_FROZEN_F32; form++) {
        coh_logical_table table = fixture_table;
        table.frozen = (coh_frozen_form)form;
        assert_int_equal(coh_checkpoint_writer_create(&table, NULL, &writer), COH_OK);
        save_without_allocations(writer, new_path, 1);
        save_without_allocations(writer, new_path, 0); /* no file to link */
        save_without_allocations(writer, next_path, 1);
        assert_int_equal(coh_checkpoint_writer_has_frozen(writer), form == COH_FROZEN_F32);
        coh_checkpoint_writer_destroy(writer);
        assert_int_equal(coh_checkpoint_remove(new_path), COH_OK);
    }
    if (COUNTS_MALLOC)
        assert_true(malloc_calls > 0); /* the counter works */
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        coh_checkpoint_writer *writer = NULL;
        coh_checkpoint *checkpoint = NULL;
        alloc_fail_nth(n);
        coh_status status = coh_checkpoint_writer_create(&fixture_table, NULL, &writer);
        if (status == COH_OK)
            status = coh_checkpoint_open(folder, &checkpoint);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        coh_checkpoint_writer_destroy(writer);
        coh_checkpoint_close(checkpoint);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 20);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dying_at_any_operation_leaves_the_old_or_the_new_checkpoint,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(failing_any_operation_gives_a_sentence_and_leaves_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_fills_at_any_operation_is_an_io_failure, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(short_writes_are_carried_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_signal_in_a_reservation_write_or_flush_is_no_failure,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reservation_that_fails_says_how_much_is_needed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_save_allocates_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
