/* The reservation of space on file systems that can reserve and on those that cannot: a fallocate
 * that fails, by a filter of system calls in a child process, is such a file system. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file_ops.h"
#include "tests/denied_calls.h"
#include "tests/temporary.h"

enum { SOME_BYTES = 3 << 20 };

static char folder[256], path[300];

static int make_folder(void **state)
{
    (void)state;
    const int made = temporary_folder(folder, sizeof(folder), "file-ops");
    snprintf(path, sizeof(path), "%s/file", folder);
    return made;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

enum { AS_EXPECTED, CANNOT_DENY, NOT_RESERVED, WROTE, TOO_MUCH_TAKEN };

/* Reserves where every fallocate fails with `error`. Runs in the child: returns instead of
 * asserting. */
static int reserve_without(int error)
{
    coh_file_ops ops;
    struct stat facts;
    struct statvfs space;
    coh_file_ops_init(&ops);
    const int fd = coh_file_create(&ops, path);
    if (fd < 0 || fstatvfs(fd, &space) != 0)
        return NOT_RESERVED;
    if (!deny_call(SYS_fallocate, (uint32_t)error))
        return CANNOT_DENY;
    if (coh_file_reserve(&ops, fd, SOME_BYTES) != 0)
        return NOT_RESERVED;
    if (fstat(fd, &facts) != 0 || facts.st_size != 0 || facts.st_blocks != 0)
        return WROTE;
    /* more than the file system has, free or not */
    const uint64_t bytes = (uint64_t)space.f_frsize * ((uint64_t)space.f_blocks + 1);
    return coh_file_reserve(&ops, fd, bytes) == -ENOSPC ? AS_EXPECTED : TOO_MUCH_TAKEN;
}

static void reserve_in_child(int error)
{
    int ended;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(reserve_without(error));
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_true(WIFEXITED(ended));
    if (WEXITSTATUS(ended) == CANNOT_DENY) {
        print_message("skipped: system calls cannot be filtered here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(ended), AS_EXPECTED);
}

static void a_file_system_that_cannot_reserve_gets_no_byte_written(void **state)
{
    (void)state;
    reserve_in_child(EOPNOTSUPP);
}

static void a_kernel_without_the_call_gets_no_byte_written(void **state)
{
    (void)state;
    reserve_in_child(ENOSYS);
}

static void another_failure_of_a_reservation_is_returned(void **state)
{
    (void)state;
    coh_file_ops ops;
    coh_file_ops_init(&ops);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(coh_file_reserve(&ops, fd, SOME_BYTES), -EBADF); /* not open for writing */
    assert_int_equal(coh_file_reserve(&ops, fd, 0), 0);
    assert_int_equal(close(fd), 0);
}

/* ---- interrupted by signals ---- */

static int reserve_count;

static int interrupted_reserve(void *state, int fd, uint64_t bytes)
{
    (void)state;
    return ++reserve_count < 4 ? -EINTR : coh_system_file_calls.reserve(NULL, fd, bytes);
}

static void an_interrupted_reservation_is_repeated(void **state)
{
    (void)state;
    struct stat facts;
    coh_file_calls calls = coh_system_file_calls;
    coh_file_ops ops = { .calls = &calls };
    calls.reserve = interrupted_reserve;
    const int fd = coh_file_create(&ops, path);
    assert_true(fd >= 0);
    assert_int_equal(coh_file_reserve(&ops, fd, SOME_BYTES), 0);
    assert_int_equal(reserve_count, 4);
    assert_int_equal(fstat(fd, &facts), 0);
    assert_true(facts.st_size == 0 || facts.st_blocks * 512 >= SOME_BYTES);
    assert_int_equal(coh_file_close(&ops, fd), 0);
}

#define WITH_FOLDER(claim) cmocka_unit_test_setup_teardown(claim, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(a_file_system_that_cannot_reserve_gets_no_byte_written),
        WITH_FOLDER(a_kernel_without_the_call_gets_no_byte_written),
        WITH_FOLDER(another_failure_of_a_reservation_is_returned),
        WITH_FOLDER(an_interrupted_reservation_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
