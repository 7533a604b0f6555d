#include "engine/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "<number>", then end or ':'. 0 when malformed. */
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
}

/* Counts one operation. Returns 0, or the -errno that it fails with. */
static int enter(coh_file_ops *ops)
{
    ops->count++;
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
    return fault ? fault : result_of(mkdir(path, 0777));
}

int coh_file_create(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    return fault ? fault : result_of(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

int coh_file_reserve(coh_file_ops *ops, int fd, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    int fault = enter(ops);
    return fault ? fault : -posix_fallocate(fd, 0, (off_t)bytes);
}

/* One piece of a write. Returns bytes moved or -errno. */
static int64_t write_piece(coh_file_ops *ops, int fd, const char *data, uint64_t bytes,
                           off_t offset)
{
    ops->count++;
    int is_short = ops->count == ops->fail_at && ops->fail_errno == 0;
    if (ops->count == ops->exit_at) {
        ssize_t torn = pwrite(fd, data, bytes / 2, offset);
        (void)torn;
        _exit(COH_FILE_OPS_EXIT_CODE);
    }
    if (ops->count == ops->fail_at && !is_short)
        return -ops->fail_errno;
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

int coh_file_sync(coh_file_ops *ops, int fd)
{
    int fault = enter(ops);
    return fault ? fault : result_of(fsync(fd));
}

int coh_file_sync_folder(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    if (fault)
        return fault;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = result_of(fsync(fd));
    close(fd);
    return result;
}

int coh_file_close(coh_file_ops *ops, int fd)
{
    if (fd < 0)
        return 0;
    int fault = enter(ops);
    int result = result_of(close(fd));
    return fault ? fault : result;
}

int coh_file_rename(coh_file_ops *ops, const char *from, const char *to)
{
    int fault = enter(ops);
    if (fault)
        return fault;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* A file system without RENAME_NOREPLACE (some network ones): ask first. */
    struct stat facts;
    if (lstat(to, &facts) == 0)
        return -EEXIST;
    return result_of(rename(from, to));
}

int coh_file_unlink(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    return fault ? fault : result_of(unlink(path));
}

int coh_file_rmdir(coh_file_ops *ops, const char *path)
{
    int fault = enter(ops);
    return fault ? fault : result_of(rmdir(path));
}
