/* The file operations of a save, each counted, and failed or cut short if a test asks for it. Read
 * file_ops.h first; power_cut.c models a power cut on top of the same operations. */
#include "base/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

void coh_file_ops_init(coh_file_ops *ops)
{
    const char *rest;
    *ops = (coh_file_ops){ .fail_errno = EIO };
    ops->exit_at = number_of(getenv("COH_TEST_EXIT_AT"), &rest);
    ops->fail_at = number_of(getenv("COH_TEST_FAIL_AT"), &rest);
    if (strcmp(rest, "short") == 0)
        ops->fail_errno = 0;
    else if (*rest)
        ops->fail_errno = (int)number_of(rest, &rest);
    ops->signal_at = number_of(getenv("COH_TEST_SIGNAL_AT"), &rest);
    ops->signal_number = *rest ? (int)number_of(rest, &rest) : SIGTERM;
    uint64_t cut_at = number_of(getenv("COH_TEST_POWER_CUT_AT"), &rest);
    ops->power_cut = coh_power_cut_begin(cut_at, number_of(rest, &rest));
}

static void count_one(coh_file_ops *ops)
{
    ops->count++;
    coh_power_cut_enter(ops->power_cut);
    if (ops->count == ops->signal_at)
        (void)raise(ops->signal_number);
}

/* Counts one operation. Returns 0, or -errno if it must fail. */
static int enter(coh_file_ops *ops)
{
    count_one(ops);
    if (ops->count == ops->exit_at)
        _exit(COH_FILE_OPS_EXIT_CODE);
    return ops->count == ops->fail_at ? -ops->fail_errno : 0;
}

static int result_of(int result)
{
    return result < 0 ? -errno : result;
}

int coh_file_mkdir(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    int result = fault ? fault : result_of(mkdir(path, 0777));
    if (result == 0)
        coh_power_cut_made(ops->power_cut, path);
    return result;
}

int coh_file_create(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    if (fault)
        return fault;
    int fd = result_of(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd >= 0)
        coh_power_cut_made(ops->power_cut, path);
    return fd;
}

int coh_file_reserve(coh_file_ops *ops, int fd, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    int result;
    do {
        result = enter(ops);
        if (result)
            continue;
        coh_power_cut_write(ops->power_cut, fd, 0, 0);
        result = -posix_fallocate(fd, 0, (off_t)bytes);
    } while (result == -EINTR);
    return result;
}

/* Writes one piece. Returns the bytes moved or -errno. */
static int64_t write_piece(coh_file_ops *ops, int fd, const char *data, uint64_t bytes,
                           off_t offset)
{
    count_one(ops);
    int is_short = ops->count == ops->fail_at && ops->fail_errno == 0;
    if (ops->count == ops->exit_at) {
        ssize_t torn = pwrite(fd, data, bytes / 2, offset);
        (void)torn;
        _exit(COH_FILE_OPS_EXIT_CODE);
    }
    if (ops->count == ops->fail_at && !is_short)
        return -ops->fail_errno;
    coh_power_cut_write(ops->power_cut, fd, (uint64_t)offset, (uint64_t)offset + bytes);
    ssize_t moved = pwrite(fd, data, is_short ? (bytes + 1) / 2 : bytes, offset);
    return moved < 0 ? -errno : moved;
}

int coh_file_write(coh_file_ops *ops, int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        int64_t moved = write_piece(ops, fd, from, bytes, (off_t)offset);
        if (moved == -EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? (int)moved : -EIO;
        from += moved;
        offset += (uint64_t)moved;
        bytes -= (uint64_t)moved;
    }
    return 0;
}

void coh_file_write_back(int fd, uint64_t bytes, uint64_t offset)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

int coh_file_sync(coh_file_ops *ops, int fd)
{
    int result;
    do {
        int fault = enter(ops);
        result = fault ? fault : result_of(fsync(fd));
    } while (result == -EINTR);
    if (result == 0)
        coh_power_cut_synced(ops->power_cut, fd);
    return result;
}

int coh_file_sync_folder(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    if (fault)
        return fault;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result;
    do
        result = result_of(fsync(fd));
    while (result == -EINTR);
    close(fd);
    if (result == -EINVAL)
        result = 0;
    if (result == 0)
        coh_power_cut_synced_folder(ops->power_cut, path);
    return result;
}

void coh_file_parent(const char *path, char *out_folder)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(out_folder, PATH_MAX, ".");
    else
        snprintf(out_folder, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

int coh_file_sync_parent(coh_file_ops *ops, const char *path)
{
    char folder[PATH_MAX];
    coh_file_parent(path, folder);
    return coh_file_sync_folder(ops, folder);
}

int coh_file_close(coh_file_ops *ops, int fd)
{
    if (fd < 0)
        return 0;
    int fault = enter(ops);
    int result = result_of(close(fd));
    return fault ? fault : result;
}

/* Renames without replacing an existing target. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* File systems without RENAME_NOREPLACE (some network ones): check first. */
    struct stat facts;
    if (lstat(to, &facts) == 0)
        return -EEXIST;
    return result_of(rename(from, to));
}

int coh_file_rename(coh_file_ops *ops, const char *from, const char *to)
{
    int fault = enter(ops);
    int result = fault ? fault : rename_new(from, to);
    if (result == 0)
        coh_power_cut_renamed(ops->power_cut, from, to);
    return result;
}

int coh_file_unlink(coh_file_ops *ops, const char *path)
{
    return coh_file_unlink_at(ops, AT_FDCWD, path, path);
}

int coh_file_unlink_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path)
{
    int fault = enter(ops);
    if (fault)
        return fault;
    int kept = coh_power_cut_unlink_begin(ops->power_cut, path);
    int result = result_of(unlinkat(folder_fd, name, 0));
    coh_power_cut_unlink_end(ops->power_cut, path, kept, result == 0);
    return result;
}

int coh_file_rmdir(coh_file_ops *ops, const char *path)
{
    return coh_file_rmdir_at(ops, AT_FDCWD, path, path);
}

int coh_file_rmdir_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path)
{
    int fault = enter(ops);
    int result = fault ? fault : result_of(unlinkat(folder_fd, name, AT_REMOVEDIR));
    if (result == 0)
        coh_power_cut_removed_folder(ops->power_cut, path);
    return result;
}
