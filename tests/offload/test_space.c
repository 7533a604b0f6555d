#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cohobate/machine.h"
#include "cohobate/run.h"
#include "tests/temporary.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "space");
}

static int remove_folder(void **state)
{
    (void)state;
    char lock[300];
    snprintf(lock, sizeof(lock), "%s/lock", folder);
    (void)unlink(lock);
    return rmdir(folder);
}

/* The flushed folder is identified by the names that cannot be flushed. */
static void a_name_is_flushed_with_the_folder_that_holds_it(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof(path), "%s/new", folder);
    assert_int_equal(coh_name_flush(path), COH_OK);
    assert_int_equal(coh_name_flush("new"), COH_OK);
    assert_int_equal(coh_name_flush("/new"), COH_OK);
    snprintf(path, sizeof(path), "%s/not/there", folder);
    assert_int_equal(coh_name_flush(path), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), path));
    snprintf(path, sizeof(path), "%s/lock", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof(path), "%s/lock/below", folder);
    assert_int_equal(coh_name_flush(path), COH_ERR_IO);
}

/* Each of the two fits alone (free space may change while the test runs, hence the wide
 * margins). */
static void folders_on_one_file_system_share_its_room(void **state)
{
    (void)state;
    uint64_t free_bytes;
    char deep[300];
    snprintf(deep, sizeof(deep), "%s/not/there/yet", folder);
    assert_int_equal(coh_space_free_bytes(folder, &free_bytes), COH_OK);
    assert_true(free_bytes > 0);
    coh_space_item items[] = { { folder, "working store", free_bytes / 4 * 3, 0 },
                               { deep, "two checkpoints", free_bytes / 4 * 3, 0 } };
    assert_int_equal(coh_space_check(items, 1), COH_OK);
    assert_int_equal(coh_space_check(items + 1, 1), COH_OK);
    assert_int_equal(coh_space_check(items, 2), COH_ERR_FULL);
    char total[32], needed[48], each[48];
    coh_size_format(items[0].bytes + items[1].bytes, total, sizeof(total));
    snprintf(needed, sizeof(needed), "%s is needed there", total);
    assert_non_null(strstr(coh_last_error(), needed));
    coh_size_format(items[0].bytes, total, sizeof(total));
    snprintf(each, sizeof(each), "working store %s", total);
    assert_non_null(strstr(coh_last_error(), each));
    assert_non_null(strstr(coh_last_error(), "two checkpoints"));
    assert_non_null(strstr(coh_last_error(), folder));
}

static void folders_on_other_file_systems_are_counted_apart(void **state)
{
    (void)state;
    struct stat here, there;
    uint64_t free_here, free_there;
    if (stat(folder, &here) != 0 || stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev) {
        print_message("skipped: no second file system at /dev/shm\n");
        skip();
    }
    assert_int_equal(coh_space_free_bytes(folder, &free_here), COH_OK);
    assert_int_equal(coh_space_free_bytes("/dev/shm", &free_there), COH_OK);
    coh_space_item items[] = { { folder, "working store", free_here / 4 * 3, 0 },
                               { "/dev/shm", "two checkpoints", free_there / 4 * 3, 0 } };
    assert_int_equal(coh_space_check(items, 2), COH_OK);
    items[1].bytes = free_there * 2;
    assert_int_equal(coh_space_check(items, 2), COH_ERR_FULL);
    assert_non_null(strstr(coh_last_error(), "/dev/shm"));
    assert_null(strstr(coh_last_error(), "working store"));
}

static void sums_that_overflow_and_nameless_folders_are_refused(void **state)
{
    (void)state;
    coh_space_item items[] = { { folder, "a", UINT64_MAX, 0 }, { folder, "b", UINT64_MAX, 0 } };
    assert_int_equal(coh_space_check(items, 2), COH_ERR_FULL);
    coh_space_item nameless = { "", "a", 1, 0 };
    assert_int_equal(coh_space_check(&nameless, 1), COH_ERR_ARGUMENT);
    assert_int_equal(coh_space_check(items, COH_SPACE_ITEMS_MOST + 1), COH_ERR_ARGUMENT);
    assert_int_equal(coh_space_check(NULL, 0), COH_OK);
}

static void free_bytes_are_what_this_user_may_write(void **state)
{
    (void)state;
    struct statvfs facts;
    uint64_t bytes = 0;
    assert_int_equal(coh_space_free_bytes(folder, &bytes), COH_OK);
    assert_int_equal(statvfs(folder, &facts), 0);
    double expected = (double)facts.f_bavail * (double)facts.f_frsize;
    double moved = expected - (double)bytes; /* other processes write meanwhile */
    assert_true(moved < 0.05 * expected + 1e9 && moved > -0.05 * expected - 1e9);
}

static uint64_t blocks_of(const coh_space_hold *hold)
{
    struct stat facts;
    assert_int_equal(fstat(hold->fd, &facts), 0);
    return (uint64_t)facts.st_blocks * 512;
}

/* tear_down's rmdir shows that no name is left. */
static void held_room_has_blocks_and_is_given_back_piece_by_piece(void **state)
{
    (void)state;
    coh_space_hold hold;
    assert_int_equal(coh_space_hold_take(folder, 3 << 20, &hold), COH_OK);
    if (hold.fd < 0) {
        print_message("skipped: this file system cannot reserve\n");
        skip();
    }
    assert_true(hold.bytes == 3 << 20 && blocks_of(&hold) >= 3 << 20);
    coh_space_hold_keep(&hold, 5 << 20);
    assert_true(hold.bytes == 3 << 20);
    coh_space_hold_keep(&hold, 1 << 20);
    assert_true(hold.bytes == 1 << 20);
    assert_in_range(blocks_of(&hold), 1 << 20, 2 << 20);
    coh_space_hold_keep(&hold, 0);
    assert_int_equal(hold.fd, -1);
    coh_space_hold_release(&hold);
}

static void room_that_is_not_there_is_not_held(void **state)
{
    (void)state;
    uint64_t free_bytes;
    char left[300];
    coh_space_hold hold;
    assert_int_equal(coh_space_free_bytes(folder, &free_bytes), COH_OK);
    coh_status status = coh_space_hold_take(folder, free_bytes + ((uint64_t)1 << 40), &hold);
    assert_true(status == COH_ERR_FULL || (status == COH_OK && hold.bytes == 0));
    assert_int_equal(hold.fd, -1);
    assert_int_equal(coh_space_hold_take(folder, 0, &hold), COH_OK);
    assert_int_equal(hold.fd, -1);
    snprintf(left, sizeof(left), "%s/missing", folder);
    assert_int_equal(coh_space_hold_take(left, 4096, &hold), COH_ERR_IO);
    /* Remains of a killed process do not disturb. */
    snprintf(left, sizeof(left), "%s/reserve.partial", folder);
    int fd = open(left, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(coh_space_hold_take(folder, 4096, &hold), COH_OK);
    coh_space_hold_release(&hold);
}

static void a_locked_folder_is_refused_with_its_holder(void **state)
{
    (void)state;
    coh_run_lock first, second;
    char holder[32];
    assert_int_equal(coh_run_lock_take(folder, &first), COH_OK);
    assert_int_equal(coh_run_lock_take(folder, &second), COH_ERR_ARGUMENT);
    assert_int_equal(second.fd, -1);
    snprintf(holder, sizeof(holder), "process %ld", (long)getpid());
    assert_non_null(strstr(coh_last_error(), holder));
    assert_non_null(strstr(coh_last_error(), folder));
    coh_run_lock_release(&second);
    coh_run_lock_release(&first);
    coh_run_lock_release(&first);
    assert_int_equal(coh_run_lock_take(folder, &second), COH_OK);
    coh_run_lock_release(&second);
}

static void put_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_lock_that_no_run_wrote_is_refused_and_left_as_it_is(void **state)
{
    (void)state;
    static const char *const foreign[] = { "my own lock\n", "1\n2 is no lock\n", "\n",
                                           "1                                       \n" };
    char path[300], other[300], read_back[64];
    coh_run_lock lock;
    struct stat facts;
    snprintf(path, sizeof(path), "%s/lock", folder);
    snprintf(other, sizeof(other), "%s/other", folder);
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        put_text(path, foreign[i]);
        assert_int_equal(coh_run_lock_take(folder, &lock), COH_ERR_CORRUPT);
        assert_int_equal(lock.fd, -1);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        read_back[fread(read_back, 1, sizeof(read_back) - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(read_back, foreign[i]);
    }
    assert_int_equal(unlink(path), 0);
    put_text(other, "");
    assert_int_equal(symlink("other", path), 0);
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_ERR_CORRUPT);
    assert_true(stat(other, &facts) == 0 && facts.st_size == 0);
    assert_true(unlink(path) == 0 && unlink(other) == 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_ERR_CORRUPT);
    assert_int_equal(unlink(path), 0);
    put_text(path, "123456789\n"); /* a run's, of a longer number than this process has */
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_OK);
    assert_true(stat(path, &facts) == 0 && facts.st_size < 10);
    coh_run_lock_release(&lock);
}

static void a_lock_is_seen_with_its_holder_and_left_as_it_is(void **state)
{
    (void)state;
    coh_run_lock lock;
    int32_t is_held;
    int64_t process;
    assert_int_equal(coh_run_lock_holder(folder, &is_held, &process), COH_OK);
    assert_int_equal(is_held, 0); /* no lock was ever taken */
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_OK);
    assert_int_equal(coh_run_lock_holder(folder, &is_held, &process), COH_OK);
    assert_int_equal(is_held, 1);
    assert_int_equal(process, getpid());
    coh_run_lock_release(&lock);
    assert_int_equal(coh_run_lock_holder(folder, &is_held, &process), COH_OK);
    assert_int_equal(is_held, 0);
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_OK);
    coh_run_lock_release(&lock);
}

static void a_run_is_not_refused_because_somebody_looks_at_the_lock(void **state)
{
    (void)state;
    coh_run_lock lock;
    const pid_t pid = fork();
    if (pid == 0)
        for (int32_t is_held;;) {
            int64_t process;
            (void)coh_run_lock_holder(folder, &is_held, &process);
        }
    int refused = 0;
    for (int i = 0; i < 2000; i++) {
        refused += coh_run_lock_take(folder, &lock) != COH_OK;
        coh_run_lock_release(&lock);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(refused, 0);
}

static void a_lock_dies_with_its_process(void **state)
{
    (void)state;
    coh_run_lock lock;
    int ended;
    pid_t pid = fork();
    if (pid == 0)
        _exit(coh_run_lock_take(folder, &lock) == COH_OK ? 0 : 1);
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(ended, 0);
    assert_int_equal(coh_run_lock_take(folder, &lock), COH_OK);
    coh_run_lock_release(&lock);
}

static void a_folder_that_is_not_there_cannot_be_locked(void **state)
{
    (void)state;
    coh_run_lock lock;
    char missing[300];
    snprintf(missing, sizeof(missing), "%s/missing", folder);
    assert_int_equal(coh_run_lock_take(missing, &lock), COH_ERR_IO);
    assert_int_equal(lock.fd, -1);
}

/* ---- a flock in place of the system's ---- */

static int lock_error;    /* 0: the file system has locks */
static int removal_count; /* as often, another run removes the lock when this one has opened it */
static int makes_another; /* and a third one makes a new one */

static void remove_lock(void)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/lock", folder);
    assert_int_equal(unlink(path), 0);
    if (makes_another)
        put_text(path, "");
}

int flock(int fd, int operation)
{
    if (removal_count > 0) {
        removal_count--;
        remove_lock();
    }
    if (lock_error == 0)
        return (int)syscall(SYS_flock, fd, operation);
    errno = lock_error;
    return -1;
}

static void a_lock_that_lost_its_name_before_it_was_locked_is_taken_again(void **state)
{
    (void)state;
    coh_run_lock first, second;
    char path[300];
    struct stat held, there;
    snprintf(path, sizeof(path), "%s/lock", folder);
    for (makes_another = 0; makes_another < 2; makes_another++) {
        removal_count = 3;
        assert_int_equal(coh_run_lock_take(folder, &first), COH_OK);
        assert_int_equal(removal_count, 0);
        assert_int_equal(fstat(first.fd, &held), 0);
        assert_int_equal(lstat(path, &there), 0);
        assert_true(held.st_dev == there.st_dev && held.st_ino == there.st_ino);
        assert_int_equal(coh_run_lock_take(folder, &second), COH_ERR_ARGUMENT);
        coh_run_lock_release(&first);
    }
    makes_another = 0;
    removal_count = 1 << 20; /* more often than it is tried */
    assert_int_equal(coh_run_lock_take(folder, &first), COH_ERR_ARGUMENT);
    assert_int_equal(first.fd, -1);
    assert_non_null(strstr(coh_last_error(), "in use by other runs"));
    removal_count = 0;
}

static void without_file_locks_a_run_is_refused_with_a_remedy(void **state)
{
    (void)state;
    static const int errors[] = { ENOLCK, ENOSYS, EOPNOTSUPP, EIO };
    coh_run_lock lock;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        lock_error = errors[i];
        assert_int_equal(coh_run_lock_take(folder, &lock), COH_ERR_IO);
        assert_int_equal(lock.fd, -1);
        assert_non_null(strstr(coh_last_error(), "use a folder on another file system"));
        assert_int_equal(strstr(coh_last_error(), "-o flock") != NULL, errors[i] != EIO);
    }
    lock_error = 0;
}

/* ---- a file system that does not report its size, in place of the system's ---- */

static int block_count, block_bytes; /* 0: not reported */
static int hides_size;

static int answer(int result, struct statvfs *out_space)
{
    if (!hides_size)
        return result;
    out_space->f_blocks = (fsblkcnt_t)block_count;
    out_space->f_bavail = out_space->f_bfree = 0;
    out_space->f_frsize = (unsigned long)block_bytes;
    return result;
}

int fstatvfs(int fd, struct statvfs *out_space)
{
    int (*system_call)(int, struct statvfs *) = NULL;
    void *found = dlsym(RTLD_NEXT, "fstatvfs");
    memcpy(&system_call, &found, sizeof(found));
    return answer(system_call(fd, out_space), out_space);
}

int statvfs(const char *path, struct statvfs *out_space)
{
    int (*system_call)(const char *, struct statvfs *) = NULL;
    void *found = dlsym(RTLD_NEXT, "statvfs");
    memcpy(&system_call, &found, sizeof(found));
    return answer(system_call(path, out_space), out_space);
}

static void a_file_system_that_does_not_report_its_size_is_not_full(void **state)
{
    (void)state;
    static const struct {
        int count, bytes;
    } unknown[] = { { 0, 4096 }, { 0, 0 }, { 7, 0 } };
    const coh_space_item item = { folder, "working store", 1 << 20, 0 };
    hides_size = 1;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        coh_space_hold hold;
        uint64_t free_bytes = 0;
        block_count = unknown[i].count;
        block_bytes = unknown[i].bytes;
        assert_int_equal(coh_space_free_bytes(folder, &free_bytes), COH_OK);
        assert_true(free_bytes == UINT64_MAX);
        assert_int_equal(coh_space_check(&item, 1), COH_OK);
        assert_int_equal(coh_space_hold_take(folder, 4096, &hold), COH_OK);
        coh_space_hold_release(&hold);
    }
    block_count = 7; /* one that reports is full */
    block_bytes = 4096;
    assert_int_equal(coh_space_check(&item, 1), COH_ERR_FULL);
    hides_size = 0;
}

#define WITH_FOLDER(claim) cmocka_unit_test_setup_teardown(claim, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_name_is_flushed_with_the_folder_that_holds_it),
        WITH_FOLDER(folders_on_one_file_system_share_its_room),
        WITH_FOLDER(folders_on_other_file_systems_are_counted_apart),
        WITH_FOLDER(sums_that_overflow_and_nameless_folders_are_refused),
        WITH_FOLDER(free_bytes_are_what_this_user_may_write),
        WITH_FOLDER(held_room_has_blocks_and_is_given_back_piece_by_piece),
        WITH_FOLDER(room_that_is_not_there_is_not_held),
        WITH_FOLDER(a_locked_folder_is_refused_with_its_holder),
        WITH_FOLDER(a_lock_that_no_run_wrote_is_refused_and_left_as_it_is),
        WITH_FOLDER(a_lock_is_seen_with_its_holder_and_left_as_it_is),
        WITH_FOLDER(a_run_is_not_refused_because_somebody_looks_at_the_lock),
        WITH_FOLDER(a_lock_dies_with_its_process),
        WITH_FOLDER(a_folder_that_is_not_there_cannot_be_locked),
        WITH_FOLDER(a_lock_that_lost_its_name_before_it_was_locked_is_taken_again),
        WITH_FOLDER(without_file_locks_a_run_is_refused_with_a_remedy),
        WITH_FOLDER(a_file_system_that_does_not_report_its_size_is_not_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
