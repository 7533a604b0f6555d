/* Files that are written as a whole, by several processes at the same time too: a reader finds one
 * of the texts, no writer fails, and what a killed writer left is gone after the next one. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "base/file_text.h"
#include "tests/temporary.h"

#define SECOND_NS UINT64_C(1000000000)

enum { WRITERS = 3, WRITES = 150, TEXT_BYTES = 30000 };

static char folder[256], path[300], partial[320], second[320];

static int make_folder(void **state)
{
    (void)state;
    temporary_in_memory();
    const int made = temporary_folder(folder, sizeof(folder), "file-text");
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(partial, sizeof(partial), "%s.partial", path);
    snprintf(second, sizeof(second), "%s.partial-1", path);
    return made;
}

static int remove_folder(void **state)
{
    (void)state;
    return temporary_remove(folder);
}

/* Takes the place of the C library's: the next so many flushes are interrupted. */
static int interruptions;

int fsync(int fd)
{
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static void make(const char *name, const char *text)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void is_text(const char *name, const char *expected)
{
    char *data;
    size_t bytes;
    assert_int_equal(coh_file_read_whole(name, 1 << 20, &data, &bytes), COH_OK);
    assert_string_equal(data, expected);
    coh_free(data);
}

static int is_there(const char *name)
{
    struct stat facts;
    return lstat(name, &facts) == 0;
}

/* ---- several writers ---- */

/* Writes a text of its own letter and length again and again; returns 0, or what is wrong. */
static int write_often(int writer)
{
    char text[TEXT_BYTES];
    memset(text, 'a' + writer, sizeof(text));
    for (int i = 0; i < WRITES; i++)
        if (coh_file_write_whole(path, text, sizeof(text) - (size_t)writer) != COH_OK) {
            fprintf(stderr, "writer %d: %s\n", writer, coh_last_error());
            return 1;
        }
    return 0;
}

static int is_of_a_writer(const char *text, size_t bytes)
{
    const int writer = bytes > 0 ? text[0] - 'a' : -1;
    if (writer < 0 || writer >= WRITERS || bytes != (size_t)(TEXT_BYTES - writer))
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if (text[i] != text[0])
            return 0;
    return 1;
}

static int has_ended(const pid_t *writers, int *codes)
{
    int left = 0;
    for (int i = 0; i < WRITERS; i++) {
        if (codes[i] < 0 && waitpid(writers[i], &codes[i], WNOHANG) != writers[i])
            codes[i] = -1;
        left += codes[i] < 0;
    }
    return left == 0;
}

static void writers_at_the_same_time_leave_one_of_their_texts(void **state)
{
    (void)state;
    pid_t writers[WRITERS];
    int codes[WRITERS], reads = 0;
    assert_int_equal(write_often(0), 0);
    for (int i = 0; i < WRITERS; i++) {
        codes[i] = -1;
        writers[i] = fork();
        if (writers[i] == 0)
            _exit(write_often(i));
        assert_true(writers[i] > 0);
    }
    for (int is_last = 0; !is_last; reads++) {
        char *text;
        size_t bytes;
        is_last = has_ended(writers, codes);
        assert_int_equal(coh_file_read_whole(path, 1 << 20, &text, &bytes), COH_OK);
        if (!is_of_a_writer(text, bytes))
            fail_msg("read %d: %zu bytes of no writer", reads, bytes);
        coh_free(text);
    }
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(codes[i], 0);
    assert_false(is_there(partial));
    assert_false(is_there(second));
}

static void a_name_that_another_writer_holds_is_left_alone(void **state)
{
    (void)state;
    const int held = coh_file_lock_fresh(partial);
    assert_true(held >= 0);
    assert_int_equal(write(held, "half", 4), 4);
    assert_int_equal(coh_file_write_whole(path, "whole", 5), COH_OK);
    is_text(path, "whole");
    is_text(partial, "half");
    assert_false(is_there(second));
    assert_int_equal(rename(partial, path), 0);
    close(held);
    is_text(path, "half");
}

/* ---- leftovers ---- */

static void what_a_killed_writer_left_is_gone_after_the_next_write(void **state)
{
    (void)state;
    make(partial, "a longer text of a process that was killed");
    assert_int_equal(coh_file_write_whole(path, "whole", 5), COH_OK);
    is_text(path, "whole");
    assert_false(is_there(partial));
}

/* Nothing but a file without a lock is a leftover. */
static void other_things_of_that_name_stay(void **state)
{
    (void)state;
    make(second, "theirs");
    assert_int_equal(symlink(second, partial), 0);
    assert_int_equal(coh_file_write_whole(path, "one", 3), COH_OK);
    is_text(path, "one");
    assert_true(is_there(partial));
    assert_false(is_there(second)); /* it is a leftover, but the link is none */
    assert_int_equal(unlink(partial), 0);
    assert_int_equal(mkdir(partial, 0777), 0);
    assert_int_equal(mkfifo(second, 0666), 0);
    assert_int_equal(coh_file_write_whole(path, "two", 3), COH_OK);
    is_text(path, "two");
    assert_true(is_there(partial));
    assert_true(is_there(second));
}

/* ---- failures ---- */

static void a_file_that_cannot_be_replaced_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(coh_file_write_whole(path, "whole", 5), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), path));
    assert_false(is_there(partial));
}

static void an_interrupted_flush_is_repeated(void **state)
{
    (void)state;
    interruptions = 3;
    assert_int_equal(coh_file_write_whole(path, "whole", 5), COH_OK);
    assert_int_equal(interruptions, 0);
    is_text(path, "whole");
}

/* ---- waiting ---- */

static void one_process_after_the_other_holds_a_file(void **state)
{
    (void)state;
    pid_t others[WRITERS];
    make(path, "");
    for (int i = 0; i < WRITERS; i++) {
        others[i] = fork();
        if (others[i] > 0)
            continue;
        for (int n = 0; n < WRITES; n++) {
            const int held = coh_file_lock_wait(partial, 60 * SECOND_NS);
            const int alone = open(second, O_WRONLY | O_CREAT | O_EXCL, 0600);
            if (held < 0 || alone < 0 || unlink(second) != 0)
                _exit(1);
            close(alone);
            coh_file_lock_end(held, partial);
        }
        _exit(0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int how = -1;
        assert_int_equal(waitpid(others[i], &how, 0), others[i]);
        assert_int_equal(how, 0);
    }
    assert_false(is_there(partial));
}

static void a_file_that_stays_held_is_waited_for_a_while(void **state)
{
    (void)state;
    const int held = coh_file_lock_wait(partial, 0);
    assert_true(held >= 0);
    const uint64_t begin_ns = coh_clock_ns();
    assert_int_equal(coh_file_lock_wait(partial, SECOND_NS / 20), -ETIMEDOUT);
    assert_true(coh_clock_ns() - begin_ns >= SECOND_NS / 20);
    assert_true(is_there(partial));
    coh_file_lock_end(held, partial);
    const int next = coh_file_lock_wait(partial, 0);
    assert_true(next >= 0);
    coh_file_lock_end(next, partial);
    assert_false(is_there(partial));
}

#define IN_FOLDER(claim) cmocka_unit_test_setup_teardown(claim, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(writers_at_the_same_time_leave_one_of_their_texts),
        IN_FOLDER(a_name_that_another_writer_holds_is_left_alone),
        IN_FOLDER(what_a_killed_writer_left_is_gone_after_the_next_write),
        IN_FOLDER(other_things_of_that_name_stay),
        IN_FOLDER(a_file_that_cannot_be_replaced_leaves_nothing),
        IN_FOLDER(an_interrupted_flush_is_repeated),
        IN_FOLDER(one_process_after_the_other_holds_a_file),
        IN_FOLDER(a_file_that_stays_held_is_waited_for_a_while),
    };
    return cmocka_run_group_tests_name("file_text", tests, NULL, NULL);
}
