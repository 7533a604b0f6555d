/* The simulated power cut loses exactly what was not flushed. Each case does a few operations in a
 * child whose power fails at the next one, then checks what is left, with many seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_ops.h"
#include "tests/faults/fault_model.h"
#include "tests/faults/file_faults.h"
#include "tests/temporary.h"

enum { SEEDS = 40, BYTES = 5 * 4096 + 100 };

static char folder[256];
static char content[BYTES];

static const char *in_folder(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/run/%s", folder, name);
    return path;
}

static const char *run_folder(void)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/run", folder);
    return path;
}

/* Operations of a child. */
typedef void (*deed)(coh_file_ops *ops);

static void play(deed what, int at, int seed)
{
    char value[32];
    int result;
    (void)temporary_remove(run_folder());
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    snprintf(value, sizeof(value), "%d:%d", at, seed);
    setenv("COH_TEST_POWER_CUT_AT", value, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        coh_file_ops ops;
        coh_file_ops_init(&ops);
        what(&ops);
        _exit(0);
    }
    unsetenv("COH_TEST_POWER_CUT_AT");
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), FILE_FAULTS_EXIT_CODE);
}

static int exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns the bytes of `path` equal to the content; *out_length is its length. */
static int64_t count_right(const char *path, int64_t *out_length)
{
    static char found[BYTES + 1];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    *out_length = read(fd, found, sizeof(found));
    close(fd);
    int64_t right = 0;
    for (int64_t i = 0; i < *out_length; i++)
        right += found[i] == content[i];
    return right;
}

static void flushed_in_a_flushed_folder(coh_file_ops *ops)
{
    int fd = coh_file_create(ops, in_folder("file"));
    coh_file_write(ops, fd, content, BYTES, 0);
    coh_file_sync(ops, fd);
    coh_file_sync_folder(ops, run_folder());
    coh_file_close(ops, fd); /* operation 5 */
}

static void what_was_flushed_stays(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t length;
        play(flushed_in_a_flushed_folder, 5, seed);
        assert_int_equal(count_right(in_folder("file"), &length), BYTES);
        assert_int_equal(length, BYTES);
    }
}

static void flushed_file_only(coh_file_ops *ops)
{
    int fd = coh_file_create(ops, in_folder("file"));
    coh_file_reserve(ops, fd, BYTES);
    coh_file_write(ops, fd, content, 4096 + 7, 0);
    coh_file_write(ops, fd, content + 4096 + 7, BYTES - 4096 - 7, 4096 + 7);
    coh_file_sync(ops, fd);
    coh_file_close(ops, fd); /* operation 6 */
}

static void without_its_folders_flush_a_file_may_be_gone_but_is_never_torn(void **state)
{
    (void)state;
    int gone = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t length;
        play(flushed_file_only, 6, seed);
        if (exists(in_folder("file")))
            assert_int_equal(count_right(in_folder("file"), &length), BYTES);
        else
            gone++;
    }
    assert_true(gone > SEEDS / 4 && gone < SEEDS * 3 / 4);
}

static void flushed_folder_only(coh_file_ops *ops)
{
    int fd = coh_file_create(ops, in_folder("file"));
    coh_file_sync_folder(ops, run_folder());
    coh_file_reserve(ops, fd, BYTES);
    coh_file_write(ops, fd, content, BYTES, 0);
    coh_file_close(ops, fd);
}

static void bytes_that_were_not_flushed_are_dropped_cut_off_or_torn(void **state)
{
    (void)state;
    int empty = 0, cut = 0, torn = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t length;
        play(flushed_folder_only, 5, seed);
        int64_t right = count_right(in_folder("file"), &length);
        empty += length == 0;
        cut += length > 0 && length < BYTES && right == length;
        torn += length == BYTES && right < BYTES;
        if (seed == 0)
            assert_int_equal(length, 0);
    }
    assert_true(empty > 5 && cut > 5 && torn > 5);
}

static void renamed(coh_file_ops *ops)
{
    coh_file_mkdir(ops, in_folder("new"));
    int fd = coh_file_create(ops, in_folder("new/file"));
    coh_file_write(ops, fd, content, BYTES, 0);
    coh_file_sync(ops, fd);
    coh_file_close(ops, fd);
    coh_file_sync_folder(ops, in_folder("new"));
    coh_file_rename(ops, in_folder("new"), in_folder("whole"));
    coh_file_sync_folder(ops, run_folder());
    coh_file_rmdir(ops, in_folder("nothing"));
}

static void a_rename_is_there_or_not_and_after_the_flush_it_is(void **state)
{
    (void)state;
    int there = 0, before = 0, neither = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t length;
        play(renamed, 8, seed); /* in place of the flush of the folder */
        there += exists(in_folder("whole"));
        before += exists(in_folder("new"));
        neither += !exists(in_folder("whole")) && !exists(in_folder("new"));
        if (exists(in_folder("whole")))
            assert_int_equal(count_right(in_folder("whole/file"), &length), BYTES);
        play(renamed, 9, seed);
        assert_false(exists(in_folder("new")));
        assert_int_equal(count_right(in_folder("whole/file"), &length), BYTES);
    }
    assert_int_equal(there + before + neither, SEEDS);
    assert_true(there > 5 && before > 3 && neither > 3);
}

static void removed(coh_file_ops *ops)
{
    coh_file_mkdir(ops, in_folder("old"));
    coh_file_sync_folder(ops, run_folder());
    int fd = coh_file_create(ops, in_folder("old/file"));
    coh_file_write(ops, fd, content, BYTES, 0);
    coh_file_sync(ops, fd);
    coh_file_close(ops, fd);
    coh_file_sync_folder(ops, in_folder("old"));
    coh_file_unlink(ops, in_folder("old/file"));
    coh_file_rmdir(ops, in_folder("old"));
    coh_file_sync_folder(ops, run_folder()); /* operation 10 */
    coh_file_rmdir(ops, in_folder("nothing"));
}

static void what_was_removed_may_come_back_until_it_is_flushed(void **state)
{
    (void)state;
    int back = 0, empty = 0, gone = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t length;
        play(removed, 10, seed);
        if (exists(in_folder("old/file"))) {
            assert_int_equal(count_right(in_folder("old/file"), &length), BYTES);
            back++;
        } else if (exists(in_folder("old")))
            empty++;
        else
            gone++;
        play(removed, 11, seed);
        assert_false(exists(in_folder("old")));
    }
    assert_true(back > 3 && empty > 3 && gone > 5);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++)
        content[i] = (char)(1 + i % 251);
    fault_make_folder(folder, sizeof(folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)temporary_remove(folder);
    return 0;
}

int main(void)
{
    fault_watchdog(120, "power cuts of single files");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_flushed_stays),
        cmocka_unit_test(without_its_folders_flush_a_file_may_be_gone_but_is_never_torn),
        cmocka_unit_test(bytes_that_were_not_flushed_are_dropped_cut_off_or_torn),
        cmocka_unit_test(a_rename_is_there_or_not_and_after_the_flush_it_is),
        cmocka_unit_test(what_was_removed_may_come_back_until_it_is_flushed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
