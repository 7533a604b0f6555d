/* A table of file operations around the system's, in which one operation fails, is cut short, or
 * ends the process. Read file_faults.h first; power_cut.c models a power cut on top of the same
 * operations. */
#include "tests/faults/file_faults.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/power_cut.h"

/* More savers than any test makes in a process. Each keeps its faults to the process's end, because
 * a coh_file_ops has no end. */
enum { FAULTS_MOST = 1 << 16 };

/* The faults planned for one coh_file_ops. */
typedef struct faults {
    uint64_t count;     /* operations so far */
    uint64_t exit_at;   /* 0: never */
    uint64_t fail_at;   /* 0: never */
    int fail_errno;     /* 0: a short write */
    uint64_t signal_at; /* 0: never */
    int signal_number;
    struct timespec sync_time; /* that each flush takes longer */
    power_cut *cut;            /* NULL: no power cut is planned */
} faults;

/* Parses "<number>", then the end or ':'. Returns 0 if malformed. */
static uint64_t number_of(const char *text, const char **out_rest)
{
    char *end = NULL;
    *out_rest = "";
    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || (*end != '\0' && *end != ':'))
        return 0;
    *out_rest = *end == ':' ? end + 1 : end;
    return number;
}

static void *begin(void)
{
    static faults all[FAULTS_MOST];
    static int used;
    const char *rest;
    if (used == FAULTS_MOST) {
        fprintf(stderr, "file_faults.c: more than %d savers\n", FAULTS_MOST);
        abort();
    }
    faults *f = &all[used++];
    f->fail_errno = EIO;
    f->exit_at = number_of(getenv("COH_TEST_EXIT_AT"), &rest);
    f->fail_at = number_of(getenv("COH_TEST_FAIL_AT"), &rest);
    if (strcmp(rest, "short") == 0)
        f->fail_errno = 0;
    else if (*rest)
        f->fail_errno = (int)number_of(rest, &rest);
    f->signal_at = number_of(getenv("COH_TEST_SIGNAL_AT"), &rest);
    f->signal_number = *rest ? (int)number_of(rest, &rest) : SIGTERM;
    const uint64_t sync_ms = number_of(getenv("COH_TEST_SYNC_MS"), &rest);
    f->sync_time = (struct timespec){ .tv_sec = (time_t)(sync_ms / 1000),
                                      .tv_nsec = (long)(sync_ms % 1000) * 1000000 };
    uint64_t cut_at = number_of(getenv("COH_TEST_POWER_CUT_AT"), &rest);
    f->cut = power_cut_begin(cut_at, number_of(rest, &rest));
    return f;
}

static void count_one(faults *f)
{
    f->count++;
    power_cut_enter(f->cut);
    if (f->count == f->signal_at)
        (void)raise(f->signal_number);
}

/* Counts one operation. Returns 0, or -errno if it must fail. */
static int enter(faults *f)
{
    count_one(f);
    if (f->count == f->exit_at)
        _exit(FILE_FAULTS_EXIT_CODE);
    return f->count == f->fail_at ? -f->fail_errno : 0;
}

static const coh_file_calls *const real = &coh_system_file_calls;

static int faulty_mkdir(void *state, const char *path)
{
    faults *f = state;
    int fault = enter(f);
    int result = fault ? fault : real->mkdir(NULL, path);
    if (result == 0)
        power_cut_made(f->cut, path);
    return result;
}

static int faulty_create(void *state, const char *path)
{
    faults *f = state;
    int fault = enter(f);
    int fd = fault ? fault : real->create(NULL, path);
    if (fd >= 0)
        power_cut_made(f->cut, path);
    return fd;
}

static int faulty_reserve(void *state, int fd, uint64_t bytes)
{
    faults *f = state;
    int fault = enter(f);
    if (fault)
        return fault;
    power_cut_write(f->cut, fd, 0, 0);
    return real->reserve(NULL, fd, bytes);
}

static int64_t faulty_write(void *state, int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    faults *f = state;
    count_one(f);
    int is_short = f->count == f->fail_at && f->fail_errno == 0;
    if (f->count == f->exit_at) {
        (void)real->write(NULL, fd, data, bytes / 2, offset);
        _exit(FILE_FAULTS_EXIT_CODE);
    }
    if (f->count == f->fail_at && !is_short)
        return -f->fail_errno;
    power_cut_write(f->cut, fd, offset, offset + bytes);
    return real->write(NULL, fd, data, is_short ? (bytes + 1) / 2 : bytes, offset);
}

static int faulty_sync(void *state, int fd)
{
    faults *f = state;
    int fault = enter(f);
    (void)nanosleep(&f->sync_time, NULL);
    int result = fault ? fault : real->sync(NULL, fd);
    if (result == 0)
        power_cut_synced(f->cut, fd);
    return result;
}

static int faulty_sync_folder(void *state, const char *path)
{
    faults *f = state;
    int fault = enter(f);
    int result = fault ? fault : real->sync_folder(NULL, path);
    if (result == 0)
        power_cut_synced_folder(f->cut, path);
    return result;
}

static int faulty_close(void *state, int fd)
{
    int fault = enter(state);
    int result = real->close(NULL, fd);
    return fault ? fault : result;
}

static int faulty_rename(void *state, const char *from, const char *to)
{
    faults *f = state;
    int fault = enter(f);
    int result = fault ? fault : real->rename(NULL, from, to);
    if (result == 0)
        power_cut_renamed(f->cut, from, to);
    return result;
}

/* For the disk a link is a new entry, of a file that is flushed or not. */
static int faulty_link(void *state, const char *from, const char *to)
{
    faults *f = state;
    int fault = enter(f);
    int result = fault ? fault : real->link(NULL, from, to);
    if (result == 0)
        power_cut_made(f->cut, to);
    return result;
}

static int faulty_unlink_at(void *state, int folder_fd, const char *name, const char *path)
{
    faults *f = state;
    int fault = enter(f);
    if (fault)
        return fault;
    int kept = power_cut_unlink_begin(f->cut, path);
    int result = real->unlink_at(NULL, folder_fd, name, path);
    power_cut_unlink_end(f->cut, path, kept, result == 0);
    return result;
}

static int faulty_rmdir_at(void *state, int folder_fd, const char *name, const char *path)
{
    faults *f = state;
    int fault = enter(f);
    int result = fault ? fault : real->rmdir_at(NULL, folder_fd, name, path);
    if (result == 0)
        power_cut_removed_folder(f->cut, path);
    return result;
}

const coh_file_calls file_faults_calls = {
    .begin = begin,
    .mkdir = faulty_mkdir,
    .create = faulty_create,
    .reserve = faulty_reserve,
    .write = faulty_write,
    .sync = faulty_sync,
    .sync_folder = faulty_sync_folder,
    .close = faulty_close,
    .rename = faulty_rename,
    .link = faulty_link,
    .unlink_at = faulty_unlink_at,
    .rmdir_at = faulty_rmdir_at,
};

__attribute__((constructor)) static void put_in(void)
{
    coh_file_calls_use(&file_faults_calls);
}
