/* Checks and reserves disk space, flushes names, and locks a run's folder: the public functions of
 * cohobate/run.h. Folders are grouped by file system, and by the pool that several of these share,
 * because they share its free space. Next: file_system.h. */
#include "cohobate/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file_lock.h"
#include "base/file_ops.h"
#include "base/refusal.h"
#include "cohobate/machine.h"
#include "offload/file_system.h"

/* Finds the nearest existing parent folder, and its device. */
static coh_status find_existing(const char *folder, char *path, dev_t *out_device)
{
    struct stat found;
    if (folder == NULL || folder[0] == '\0')
        return coh_fail(COH_ERR_ARGUMENT, "a folder has no name");
    if (snprintf(path, PATH_MAX, "%s", folder) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "the name of a folder is longer than %d bytes: %.60s...",
                        PATH_MAX - 1, folder);
    while (stat(path, &found) != 0) {
        if (errno != ENOENT)
            return coh_fail(COH_ERR_IO, "%s cannot be looked at: %s", path, strerrordesc_np(errno));
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            snprintf(path, PATH_MAX, ".");
        else if (slash == path)
            path[1] = '\0';
        else
            *slash = '\0';
    }
    *out_device = found.st_dev;
    return COH_OK;
}

static coh_status free_at(const char *path, uint64_t *out_bytes)
{
    struct statvfs space;
    if (statvfs(path, &space) != 0)
        return coh_fail(COH_ERR_IO, "the free space of %s cannot be asked for: %s", path,
                        strerrordesc_np(errno));
    if (space.f_blocks == 0 || space.f_frsize == 0 || /* some network file systems: unknown */
        __builtin_mul_overflow((uint64_t)space.f_bavail, (uint64_t)space.f_frsize, out_bytes))
        *out_bytes = UINT64_MAX;
    return COH_OK;
}

coh_status coh_space_free_bytes(const char *folder, uint64_t *out_bytes)
{
    COH_NEED_PATH(folder);
    COH_NEED(out_bytes);
    char path[PATH_MAX];
    dev_t device;
    *out_bytes = 0;
    COH_TRY(find_existing(folder, path, &device));
    return free_at(path, out_bytes);
}

/* Returns how many more files the file system of `folder` can have; UINT64_MAX: it does not say, as
 * those that make room for a file when it is made. */
static coh_status free_files(const char *folder, uint64_t *out_files)
{
    struct statvfs space;
    char path[PATH_MAX];
    dev_t device;
    *out_files = UINT64_MAX;
    COH_TRY(find_existing(folder, path, &device));
    if (statvfs(path, &space) == 0 && space.f_files > 0)
        *out_files = space.f_favail;
    return COH_OK;
}

/* ---- groups of items ---- */

/* For each item the first item of its group. */
typedef uint32_t groups[COH_SPACE_ITEMS_MOST];

static coh_status refuse(const coh_space_item *items, const groups of, uint32_t item_count,
                         uint32_t first, uint64_t needed_bytes, uint64_t free_bytes)
{
    char list[COH_REFUSAL_TEXT_BYTES] = "", text[32];
    size_t used = 0;
    for (uint32_t i = first; i < item_count; i++)
        if (of[i] == first && used < sizeof(list)) {
            int length =
                snprintf(list + used, sizeof(list) - used, "%s%s %s", used > 0 ? " + " : "",
                         items[i].what, coh_size_format(items[i].bytes, text, sizeof(text)));
            used += length > 0 ? (size_t)length : 0;
        }
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_FREE_SPACE, -1, free_bytes, needed_bytes);
    refusal.is_proven = 1;
    snprintf(refusal.path, sizeof(refusal.path), "%s", items[first].folder);
    snprintf(refusal.items, sizeof(refusal.items), "%s", list);
    coh_refusal_add(&refusal, COH_CHANGE_FREE_SPACE, needed_bytes - free_bytes);
    return coh_refuse(&refusal);
}

static coh_status refuse_files(const coh_space_item *items, const groups of, uint32_t item_count,
                               uint32_t first, uint64_t needed, uint64_t most)
{
    char list[COH_REFUSAL_TEXT_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = first; i < item_count; i++)
        if (of[i] == first && items[i].files > 0 && used < sizeof(list)) {
            const int length = snprintf(list + used, sizeof(list) - used, "%s%s %" PRIu64,
                                        used > 0 ? " + " : "", items[i].what, items[i].files);
            used += length > 0 ? (size_t)length : 0;
        }
    return coh_fail(COH_ERR_FULL,
                    "%.300s has room for %" PRIu64 " more files, and up to %" PRIu64
                    " are needed there (%s): remove files there (df -i counts them), or name "
                    "another drive",
                    items[first].folder, most, needed, list);
}

/* Some file systems are made for a number of files. Its last one may be needed hours from now. */
static coh_status check_files(const coh_space_item *items, const groups of, uint32_t item_count)
{
    for (uint32_t i = 0; i < item_count; i++) {
        uint64_t needed = 0, most;
        for (uint32_t j = i; j < item_count && of[i] == i; j++)
            needed += of[j] == i ? items[j].files : 0;
        if (needed == 0)
            continue;
        COH_TRY(free_files(items[i].folder, &most));
        if (needed > most)
            return refuse_files(items, of, item_count, i, needed, most);
    }
    return COH_OK;
}

/* Checks each group by itself. Datasets of one pool have limits of their own, and may reserve a
 * part of it, so the free bytes of a group are the most that one of its folders has. */
static coh_status check_groups(const coh_space_item *items, const groups of, uint32_t item_count)
{
    for (uint32_t i = 0; i < item_count; i++) {
        uint64_t needed_bytes = 0, free_bytes = 0, bytes;
        for (uint32_t j = i; j < item_count && of[i] == i; j++) {
            if (of[j] != i)
                continue;
            COH_TRY(coh_bytes_add(needed_bytes, items[j].bytes, &needed_bytes));
            COH_TRY(coh_space_free_bytes(items[j].folder, &bytes));
            free_bytes = bytes > free_bytes ? bytes : free_bytes;
        }
        if (needed_bytes > free_bytes)
            return refuse(items, of, item_count, i, needed_bytes, free_bytes);
    }
    return COH_OK;
}

/* Groups the items by device, and by what shares its free space. */
static coh_status find_groups(const coh_space_item *items, uint32_t item_count, groups out_devices,
                              groups out_pools)
{
    char path[PATH_MAX], other[PATH_MAX];
    dev_t devices[COH_SPACE_ITEMS_MOST];
    for (uint32_t i = 0; i < item_count; i++) {
        out_devices[i] = out_pools[i] = i;
        COH_TRY(find_existing(items[i].folder, path, &devices[i]));
        for (uint32_t j = 0; j < i; j++) {
            if (out_devices[i] == i && devices[j] == devices[i])
                out_devices[i] = out_devices[j];
            if (out_pools[i] != i || out_pools[j] != j)
                continue;
            COH_TRY(find_existing(items[j].folder, other, &devices[j]));
            if (devices[j] == devices[i] || coh_space_is_shared(other, path))
                out_pools[i] = j;
        }
    }
    return COH_OK;
}

coh_status coh_space_check(const coh_space_item *items, uint32_t item_count)
{
    groups devices, pools;
    if (item_count > 0)
        COH_NEED(items);
    if (item_count > COH_SPACE_ITEMS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRIu32 " folders to check, at most %d", item_count,
                        COH_SPACE_ITEMS_MOST);
    COH_TRY(find_groups(items, item_count, devices, pools));
    COH_TRY(check_groups(items, devices, item_count));
    COH_TRY(check_files(items, devices, item_count));
    return check_groups(items, pools, item_count);
}

/* ---- reserved space ---- */

/* Reserves blocks. Not with posix_fallocate: if the file system cannot reserve, the C library would
 * write every block for hours. Checks the free space first, because a file system that is about to
 * fail may take all that is left from every other process. */
static int take_blocks(int fd, uint64_t bytes)
{
    struct statvfs space;
    int result;
    if (fstatvfs(fd, &space) == 0 && space.f_blocks > 0 && space.f_frsize > 0 &&
        bytes / space.f_frsize > space.f_bavail) {
        errno = ENOSPC;
        return -1;
    }
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result;
}

static coh_status tell_hold(const char *folder, uint64_t bytes)
{
    char text[32];
    int error = errno;
    int is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return coh_fail(is_full ? COH_ERR_FULL : COH_ERR_IO,
                    "cannot hold %s for the checkpoints in %s: %s%s",
                    coh_size_format(bytes, text, sizeof(text)), folder, strerrordesc_np(error),
                    error == EFBIG ? ": raise ulimit -f" : "");
}

coh_status coh_space_hold_take(const char *folder, uint64_t bytes, coh_space_hold *out_hold)
{
    COH_NEED_PATH(folder);
    COH_NEED(out_hold);
    char path[PATH_MAX];
    *out_hold = (coh_space_hold){ .fd = -1 };
    if (bytes == 0)
        return COH_OK;
    int length = snprintf(path, sizeof(path), "%s/reserve.partial", folder);
    if (length < 0 || (size_t)length >= sizeof(path) || bytes > INT64_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRIu64 " bytes cannot be held in %.60s...", bytes,
                        folder);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return tell_hold(folder, bytes);
    (void)unlink(path);
    if (take_blocks(fd, bytes) == 0) {
        *out_hold = (coh_space_hold){ .fd = fd, .bytes = bytes };
        return COH_OK;
    }
    coh_status status = errno == EOPNOTSUPP || errno == ENOSYS ? COH_OK : tell_hold(folder, bytes);
    (void)close(fd);
    return status;
}

void coh_space_hold_keep(coh_space_hold *hold, uint64_t bytes)
{
    if (hold == NULL)
        return;
    if (hold->fd < 0 || bytes >= hold->bytes)
        return;
    if (bytes > 0 && ftruncate(hold->fd, (off_t)bytes) == 0)
        hold->bytes = bytes;
    else
        coh_space_hold_release(hold);
}

void coh_space_hold_release(coh_space_hold *hold)
{
    if (hold == NULL)
        return;
    if (hold->fd >= 0)
        (void)close(hold->fd);
    *hold = (coh_space_hold){ .fd = -1 };
}

coh_status coh_name_flush(const char *path)
{
    COH_NEED_PATH(path);
    coh_file_ops ops = { .calls = &coh_system_file_calls };
    const int error = coh_file_sync_parent(&ops, path);
    if (error == 0 || error == -EACCES)
        return COH_OK;
    return coh_fail(COH_ERR_IO,
                    "the folder that holds %.300s cannot be flushed: %s: give another folder", path,
                    strerrordesc_np(-error));
}

coh_status coh_partial_open(const char *path, char *out_name, uint32_t name_bytes, int32_t *out_fd)
{
    COH_NEED_PATH(path);
    COH_NEED(out_name);
    COH_NEED(out_fd);
    const int fd = coh_file_lock_partial(path, out_name, name_bytes);
    *out_fd = fd < 0 ? -1 : fd;
    if (fd < 0)
        return coh_fail(COH_ERR_IO,
                        "%.300s cannot be written: no file can be made in its folder: %s: give "
                        "another",
                        path, strerrordesc_np(-fd));
    return COH_OK;
}

/* ---- one run per folder ---- */

static coh_status tell_holder(int fd, const char *folder)
{
    char text[32] = "";
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    long holder = got > 0 ? strtol(text, NULL, 10) : 0;
    if (holder > 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is in use by process %ld: wait for it, stop it, or name another folder",
                        folder, holder);
    return coh_fail(COH_ERR_ARGUMENT, "%s is in use by another run: name another folder", folder);
}

static coh_status lock_path(const char *folder, char out_path[PATH_MAX])
{
    const int length = snprintf(out_path, PATH_MAX, "%s/lock", folder);
    if (length < 0 || length >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "the name of a folder is longer than %d bytes: %.60s...",
                        PATH_MAX - 1, folder);
    return COH_OK;
}

/* A run's lock holds a number, or nothing yet. */
static int is_run_lock(int fd)
{
    struct stat facts;
    char text[32] = "";
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return 0;
    const ssize_t got = pread(fd, text, sizeof(text), 0);
    if (got <= 0 || got == sizeof(text))
        return got == 0;
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits + strspn(text + digits, " \n") == (size_t)got;
}

/* How often a lock is taken: until no reader holds it, until its file still has its name. */
enum { READER_TRIES = 1000000, NAME_TRIES = 100 };

/* Locks as flock does. If a shared lock can be had, no run holds the exclusive one, only
 * coh_run_lock_holder a shared one for a moment: that is not a reason to refuse a run. */
static int lock_alone(int fd)
{
    for (int i = 0; i < READER_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK || flock(fd, LOCK_SH | LOCK_NB) != 0)
            return -1;
        (void)sched_yield();
    }
    errno = EWOULDBLOCK;
    return -1;
}

coh_status coh_run_lock_holder(const char *folder, int32_t *out_is_held, int64_t *out_process)
{
    COH_NEED_PATH(folder);
    COH_NEED(out_is_held);
    COH_NEED(out_process);
    char text[PATH_MAX];
    *out_is_held = 0;
    *out_process = 0;
    COH_TRY(lock_path(folder, text));
    const int fd = open(text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return COH_OK;
    if (fd < 0)
        return coh_fail(COH_ERR_IO,
                        "%s cannot be opened: %s: see to its rights, or use another folder", text,
                        strerrordesc_np(errno));
    const int error = flock(fd, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
    char number[32] = "";
    const ssize_t got = pread(fd, number, sizeof(number) - 1, 0);
    (void)close(fd);
    if (error != 0 && error != EWOULDBLOCK)
        return coh_fail(COH_ERR_IO, "the lock of %s cannot be examined: %s", text,
                        strerrordesc_np(error));
    *out_is_held = error == EWOULDBLOCK;
    *out_process = *out_is_held && got > 0 ? strtoll(number, NULL, 10) : 0;
    return COH_OK;
}

/* Going on without a lock is not an option: two runs would write the same files. */
static coh_status tell_no_lock(const char *path, int error)
{
    const int has_none = error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP;
    return coh_fail(COH_ERR_IO, "%s cannot be locked: %s: use a folder on another file system%s",
                    path, strerrordesc_np(error),
                    has_none ? ", or mount this one with file locks (NFS: its lock service; "
                               "Lustre: -o flock)"
                             : "");
}

/* Opens the lock, makes it if it is not there, and locks it. */
static coh_status lock_open(const char *folder, const char *path, int *out_fd)
{
    *out_fd = -1;
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0 && errno != ELOOP && errno != EISDIR)
        return coh_fail(COH_ERR_IO,
                        "%s cannot be opened: %s: see to its rights, or use another folder", path,
                        strerrordesc_np(errno));
    if (fd < 0 || !is_run_lock(fd)) {
        if (fd >= 0)
            (void)close(fd);
        return coh_fail(COH_ERR_CORRUPT, "%s is no lock of a run: move it, or use another folder",
                        path);
    }
    if (lock_alone(fd) != 0) {
        const coh_status status =
            errno == EWOULDBLOCK ? tell_holder(fd, folder) : tell_no_lock(path, errno);
        (void)close(fd);
        return status;
    }
    *out_fd = fd;
    return COH_OK;
}

/* A run that ends before its first step removes its lock. Another one that has opened the file
 * before then locks a file without a name, while a third makes and locks a new one: so the name is
 * looked up again under the lock. */
static coh_status lock_named(const char *folder, const char *path, int *out_fd)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        COH_TRY(lock_open(folder, path, out_fd));
        if (coh_file_is_named(*out_fd, path))
            return COH_OK;
        (void)close(*out_fd);
    }
    return coh_fail(COH_ERR_ARGUMENT, "%s is in use by other runs: name another folder", folder);
}

coh_status coh_run_lock_take(const char *folder, coh_run_lock *out_lock)
{
    COH_NEED_PATH(folder);
    COH_NEED(out_lock);
    char text[PATH_MAX];
    int fd;
    out_lock->fd = -1;
    COH_TRY(lock_path(folder, text));
    COH_TRY(lock_named(folder, text, &fd));
    /* The number only informs a run that is refused, so failing to write it is not an error. A kill
     * leaves a number there, since an empty lock does not show that the folder is a run's. */
    const int length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (pwrite(fd, text, (size_t)length, 0) != length || ftruncate(fd, length) != 0)
        (void)ftruncate(fd, 0);
    out_lock->fd = fd;
    return COH_OK;
}

void coh_run_lock_release(coh_run_lock *lock)
{
    if (lock == NULL)
        return;
    if (lock->fd < 0)
        return;
    (void)close(lock->fd);
    lock->fd = -1;
}
