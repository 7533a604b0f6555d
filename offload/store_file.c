/* The unnamed files below a store, one in each folder. Three things make it more than an open:
 *   - Its blocks are written once here. Blocks that are only reserved are "unwritten" to the file
 *     system, and a first O_DIRECT write to them would wait inside the submission.
 *   - Whether O_DIRECT works is found by trying: file systems refuse it at open or at the first
 *     transfer.
 *   - A file system in RAM accepts O_DIRECT without effect; facts.direct is then 0. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "cohobate/terms.h"
#include "memory/available.h"
#include "offload/store_base.h"

/* Size of a write of the first pass; 4 MiB reaches the rate of every drive tested. */
#define FILL_BYTES ((size_t)4 << 20)

/* Not zero, because thin disks and compressing file systems do not store zeros. */
#define FILL_BYTE 0xa5

/* The file in one folder. */
typedef struct part {
    coh_store *base;
    const char *folder;
    uint64_t bytes;
    int fd;
    int direct;  /* 1: with O_DIRECT */
    int refused; /* 1: the first write was refused with it */
    uint64_t spent_ns;
    coh_status status; /* of filling it, with its text */
    char text[COH_ERROR_TEXT_BYTES];
} part;

static coh_status full(const part *p)
{
    struct statvfs space;
    uint64_t free_bytes = 0;
    if (statvfs(p->folder, &space) == 0)
        free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return coh_fail(COH_ERR_FULL,
                    "the working store needs %" PRIu64 " bytes in %s, %" PRIu64
                    " are free: free space there or name another folder with %s",
                    p->bytes, p->folder, free_bytes, coh_term_text(COH_TERM_DISK));
}

static coh_status tell(const part *p, const char *what)
{
    if (errno == EFBIG)
        return coh_fail(
            COH_ERR_FULL,
            "the working store needs a file of %" PRIu64
            " bytes in %s, which is more than a file may have: raise ulimit -f, or name "
            "another folder with %s",
            p->bytes, p->folder, coh_term_text(COH_TERM_DISK));
    if (errno == ENOSPC || errno == EDQUOT)
        return full(p);
    return coh_fail(
        COH_ERR_IO,
        "%s for the working store in %s failed: %s: name another folder with %s, on a local drive "
        "that can be written",
        what, p->folder, coh_store_error_text(errno), coh_term_text(COH_TERM_DISK));
}

/* Opens a file without a name; returns -1 with errno on failure. */
static int open_unnamed(const char *folder, int flags)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    char name[PATH_MAX];
    int length = snprintf(name, sizeof(name), "%s/cohobate-store-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof(name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC | flags);
    const int reason = errno;
    /* Some file systems make the file, then refuse O_DIRECT. */
    if (fd >= 0 || reason == EINVAL)
        (void)unlink(name);
    errno = reason;
    return fd;
}

static int is_in_memory(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 &&
           (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

static coh_status check_room(const part *p)
{
    struct statvfs space;
    if (fstatvfs(p->fd, &space) == 0 && space.f_blocks > 0 && space.f_frsize > 0 &&
        (uint64_t)space.f_bavail * space.f_frsize < p->bytes)
        return full(p);
    const uint64_t left = is_in_memory(p->fd) ? coh_memory_of_files_bytes() : UINT64_MAX;
    if (left < p->bytes)
        return coh_fail(COH_ERR_FULL,
                        "the working store needs %" PRIu64 " bytes, %s is a file system in memory "
                        "and %" PRIu64 " are available: name a folder on a disk with %s",
                        p->bytes, p->folder, left, coh_term_text(COH_TERM_DISK));
    return COH_OK;
}

static coh_status leave_direct(part *p)
{
    p->direct = 0;
    return fcntl(p->fd, F_SETFL, fcntl(p->fd, F_GETFL) & ~O_DIRECT) == 0
               ? COH_OK
               : tell(p, "leaving O_DIRECT");
}

/* Writes every block once. If the first write with O_DIRECT is refused, continues without it. */
static coh_status write_all(part *p, const void *buffer, size_t buffer_bytes)
{
    const coh_store_config *config = &p->base->config;
    for (uint64_t at = 0; at < p->bytes;) {
        if (config->go_on != NULL)
            COH_TRY(config->go_on(config->go_on_context));
        uint64_t left = p->bytes - at;
        size_t bytes = left < buffer_bytes ? (size_t)left : buffer_bytes;
        ssize_t written = pwrite(p->fd, buffer, bytes, (off_t)at);
        if (written < 0 && errno == EINVAL && p->direct && at == 0) {
            p->refused = 1;
            COH_TRY(leave_direct(p));
        } else if (written < 0 && errno != EINTR && errno != EAGAIN)
            return tell(p, "writing every block once");
        else if (written == 0)
            return full(p);
        else if (written > 0)
            at += (uint64_t)written - (uint64_t)written % COH_PAGE_BYTES;
    }
    return COH_OK;
}

static void *fill(void *argument)
{
    part *p = argument;
    size_t buffer_bytes = p->bytes < FILL_BYTES ? (size_t)p->bytes : FILL_BYTES;
    void *buffer =
        mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) {
        p->status = coh_fail(COH_ERR_MEMORY, "no %zu bytes to prepare the working store with",
                             buffer_bytes);
    } else {
        memset(buffer, FILL_BYTE, buffer_bytes);
        const uint64_t begin_ns = coh_clock_ns();
        p->status = write_all(p, buffer, buffer_bytes);
        p->spent_ns = coh_clock_ns() - begin_ns;
        (void)munmap(buffer, buffer_bytes);
    }
    if (p->status != COH_OK)
        coh_error_save(p->text);
    return NULL;
}

/* Opens the file and reserves its blocks. */
static coh_status open_part(part *p)
{
    p->fd = open_unnamed(p->folder, O_DIRECT);
    p->direct = p->fd >= 0;
    if (p->fd < 0 && errno == EINVAL) {
        p->fd = open_unnamed(p->folder, 0);
        coh_store_base_say(p->base,
                           "%s refuses O_DIRECT: the store goes through the page cache, "
                           "memory outside the budget",
                           p->folder);
    }
    if (p->fd < 0)
        return tell(p, "making the file");
    if (p->direct && is_in_memory(p->fd)) {
        coh_store_base_say(p->base,
                           "%s is a file system in memory: O_DIRECT means nothing there and "
                           "the store is memory outside the budget",
                           p->folder);
        COH_TRY(leave_direct(p));
    }
    COH_TRY(check_room(p));
    /* If the file system cannot reserve, the writes allocate. */
    if (fallocate(p->fd, 0, 0, (off_t)p->bytes) != 0 && errno != EOPNOTSUPP && errno != EINTR)
        return tell(p, "reserving space");
    return COH_OK;
}

/* Fills all files at once, the last one on this thread. */
static void fill_parts(part *parts, uint32_t part_count)
{
    pthread_t threads[COH_DISKS_MOST];
    int is_started[COH_DISKS_MOST] = { 0 };
    for (uint32_t i = 0; i < part_count; i++) {
        if (i + 1 < part_count)
            is_started[i] = coh_thread_start(&threads[i], fill, &parts[i]) == 0;
        if (!is_started[i])
            (void)fill(&parts[i]);
    }
    for (uint32_t i = 0; i < part_count; i++)
        if (is_started[i])
            (void)pthread_join(threads[i], NULL);
}

coh_status coh_store_files_open(coh_store *base)
{
    const coh_store_config *config = &base->config;
    part parts[COH_DISKS_MOST];
    uint32_t part_count = 0;
    uint64_t spent_ns = 0;
    if (config->disk_count == 0 || config->disks[0].folder == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "the working store has no folder: give %s",
                        coh_term_text(COH_TERM_A_DISK));
    for (uint32_t i = 0; i < config->disk_count; i++) {
        part *p = &parts[part_count];
        if (base->stripe.disk_bytes[i] == 0)
            continue;
        *p = (part){ .base = base,
                     .folder = config->disks[i].folder,
                     .bytes = base->stripe.disk_bytes[i] };
        const coh_status status = open_part(p);
        base->fds[i] = p->fd; /* from here on the store closes it */
        COH_TRY(status);
        part_count++;
    }
    fill_parts(parts, part_count);
    base->facts.direct = 1;
    for (uint32_t i = 0; i < part_count; i++) {
        const part *p = &parts[i];
        if (p->status != COH_OK) {
            coh_error_restore(p->text);
            return p->status;
        }
        if (p->refused)
            coh_store_base_say(base,
                               "%s refuses direct transfers: the store goes through the page "
                               "cache, memory outside the budget",
                               p->folder);
        base->facts.direct &= p->direct;
        spent_ns = p->spent_ns > spent_ns ? p->spent_ns : spent_ns;
    }
    if (spent_ns > 0)
        base->facts.write_bytes_per_s = (uint64_t)((double)config->bytes * 1e9 / (double)spent_ns);
    return COH_OK;
}
