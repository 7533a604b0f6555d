/* The file operations of a save: the system's table, and the calls that repeat what a signal
 * interrupts and continue short writes. Read file_ops.h first. */
#include "base/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the system's table ---- */

static int result_of(int result)
{
    return result < 0 ? -errno : result;
}

static int system_mkdir(void *state, const char *path)
{
    (void)state;
    return result_of(mkdir(path, 0777));
}

static int system_create(void *state, const char *path)
{
    (void)state;
    return result_of(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

/* Not posix_fallocate: if the file system cannot reserve (NFS before 4.2, CephFS, sshfs), the C
 * library would write every block, so each byte of a save twice. The free space is compared there,
 * if the file system knows it. */
static int system_reserve(void *state, int fd, uint64_t bytes)
{
    struct statvfs space;
    (void)state;
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    if (fstatvfs(fd, &space) != 0 || space.f_blocks == 0 || space.f_frsize == 0)
        return 0;
    return bytes / space.f_frsize > space.f_bavail ? -ENOSPC : 0;
}

static int64_t system_write(void *state, int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    (void)state;
    const ssize_t moved = pwrite(fd, data, bytes, (off_t)offset);
    return moved < 0 ? -errno : moved;
}

static int system_sync(void *state, int fd)
{
    (void)state;
    return result_of(fsync(fd));
}

static int system_sync_folder(void *state, const char *path)
{
    (void)state;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result;
    do
        result = result_of(fsync(fd));
    while (result == -EINTR);
    close(fd);
    return result == -EINVAL ? 0 : result;
}

static int system_close(void *state, int fd)
{
    (void)state;
    return result_of(close(fd));
}

/* Renames without replacing an existing target. */
static int system_rename(void *state, const char *from, const char *to)
{
    (void)state;
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

static int system_link(void *state, const char *from, const char *to)
{
    (void)state;
    return result_of(link(from, to));
}

static int system_unlink_at(void *state, int folder_fd, const char *name, const char *path)
{
    (void)state;
    (void)path;
    return result_of(unlinkat(folder_fd, name, 0));
}

static int system_rmdir_at(void *state, int folder_fd, const char *name, const char *path)
{
    (void)state;
    (void)path;
    return result_of(unlinkat(folder_fd, name, AT_REMOVEDIR));
}

const coh_file_calls coh_system_file_calls = {
    .mkdir = system_mkdir,
    .create = system_create,
    .reserve = system_reserve,
    .write = system_write,
    .sync = system_sync,
    .sync_folder = system_sync_folder,
    .close = system_close,
    .rename = system_rename,
    .link = system_link,
    .unlink_at = system_unlink_at,
    .rmdir_at = system_rmdir_at,
};

static const coh_file_calls *calls_in_use = &coh_system_file_calls;

void coh_file_calls_use(const coh_file_calls *calls)
{
    calls_in_use = calls;
}

void coh_file_ops_init(coh_file_ops *ops)
{
    ops->calls = calls_in_use;
    ops->state = ops->calls->begin != NULL ? ops->calls->begin() : NULL;
}

/* ---- the operations ---- */

int coh_file_mkdir(coh_file_ops *ops, const char *path)
{
    return ops->calls->mkdir(ops->state, path);
}

int coh_file_create(coh_file_ops *ops, const char *path)
{
    return ops->calls->create(ops->state, path);
}

int coh_file_reserve(coh_file_ops *ops, int fd, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    int result;
    do
        result = ops->calls->reserve(ops->state, fd, bytes);
    while (result == -EINTR);
    return result;
}

int coh_file_write(coh_file_ops *ops, int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        int64_t moved = ops->calls->write(ops->state, fd, from, bytes, offset);
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
    do
        result = ops->calls->sync(ops->state, fd);
    while (result == -EINTR);
    return result;
}

int coh_file_sync_folder(coh_file_ops *ops, const char *path)
{
    return ops->calls->sync_folder(ops->state, path);
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

int coh_file_is_named(int fd, const char *path)
{
    struct stat held, there;
    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

int coh_file_close(coh_file_ops *ops, int fd)
{
    return fd < 0 ? 0 : ops->calls->close(ops->state, fd);
}

int coh_file_rename(coh_file_ops *ops, const char *from, const char *to)
{
    return ops->calls->rename(ops->state, from, to);
}

int coh_file_link(coh_file_ops *ops, const char *from, const char *to)
{
    return ops->calls->link(ops->state, from, to);
}

int coh_file_unlink(coh_file_ops *ops, const char *path)
{
    return coh_file_unlink_at(ops, AT_FDCWD, path, path);
}

int coh_file_unlink_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path)
{
    return ops->calls->unlink_at(ops->state, folder_fd, name, path);
}

int coh_file_rmdir(coh_file_ops *ops, const char *path)
{
    return coh_file_rmdir_at(ops, AT_FDCWD, path, path);
}

int coh_file_rmdir_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path)
{
    return ops->calls->rmdir_at(ops->state, folder_fd, name, path);
}

const char *coh_file_open_remedy(int error, const char *otherwise)
{
    return error == -EMFILE ? "raise the limit of open files (ulimit -n)" : otherwise;
}

const char *coh_file_remedy(int error)
{
    if (error == -EFBIG)
        return "raise the limit of file sizes (ulimit -f)";
    return error == -ENOSPC || error == -EDQUOT ? "make room, or give another place"
                                                : "give a place that can be written to";
}
