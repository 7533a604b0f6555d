/* The unnamed file below a store. Three things make it more than an open:
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "cohobate/terms.h"
#include "memory/available.h"
#include "offload/store_base.h"

/* Size of a write of the first pass; 4 MiB reaches the rate of every drive tested. */
#define FILL_BYTES ((size_t)4 << 20)

/* Not zero, because thin disks and compressing file systems do not store zeros. */
#define FILL_BYTE 0xa5

static coh_status full(const coh_store_config *config)
{
    struct statvfs space;
    uint64_t free_bytes = 0;
    if (statvfs(config->folder, &space) == 0)
        free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return coh_fail(COH_ERR_FULL,
                    "the working store needs %" PRIu64 " bytes in %s, %" PRIu64
                    " are free: free space there or name another folder with %s",
                    config->bytes, config->folder, free_bytes, coh_term_text(COH_TERM_DISK));
}

static coh_status tell(const coh_store_config *config, const char *what)
{
    if (errno == EFBIG)
        return coh_fail(
            COH_ERR_FULL,
            "the working store needs a file of %" PRIu64
            " bytes in %s, which is more than a file may have: raise ulimit -f, or name "
            "another folder with %s",
            config->bytes, config->folder, coh_term_text(COH_TERM_DISK));
    if (errno == ENOSPC || errno == EDQUOT)
        return full(config);
    return coh_fail(
        COH_ERR_IO,
        "%s for the working store in %s failed: %s: name a folder on a local drive that "
        "can be written",
        what, config->folder, coh_store_error_text(errno));
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
    if (fd >= 0)
        (void)unlink(name);
    return fd;
}

static int is_in_memory(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 &&
           (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

static coh_status check_room(const coh_store_config *config, int fd)
{
    struct statvfs space;
    if (fstatvfs(fd, &space) == 0 && space.f_blocks > 0 &&
        (uint64_t)space.f_bavail * space.f_frsize < config->bytes)
        return full(config);
    if (is_in_memory(fd) && coh_memory_available_bytes(NULL) < config->bytes)
        return coh_fail(COH_ERR_FULL,
                        "the working store needs %" PRIu64 " bytes, %s is a file system in memory "
                        "and %" PRIu64 " are available: name a folder on a disk with %s",
                        config->bytes, config->folder, coh_memory_available_bytes(NULL),
                        coh_term_text(COH_TERM_DISK));
    return COH_OK;
}

/* Writes every block once. If the first write with O_DIRECT is refused, goes on without it
 * (base->facts.direct). */
static coh_status fill(coh_store *base, int fd)
{
    const coh_store_config *config = &base->config;
    coh_status status = COH_OK;
    size_t buffer_bytes = config->bytes < FILL_BYTES ? (size_t)config->bytes : FILL_BYTES;
    void *buffer =
        mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY, "no %zu bytes to prepare the working store with",
                        buffer_bytes);
    memset(buffer, FILL_BYTE, buffer_bytes);
    uint64_t begin_ns = coh_clock_ns();
    for (uint64_t at = 0; at < config->bytes && status == COH_OK;) {
        uint64_t left = config->bytes - at;
        size_t bytes = left < buffer_bytes ? (size_t)left : buffer_bytes;
        ssize_t written = pwrite(fd, buffer, bytes, (off_t)at);
        if (written < 0 && errno == EINVAL && base->facts.direct && at == 0) {
            base->facts.direct = 0;
            coh_store_base_say(base,
                               "%s refuses direct transfers: the store goes through the page "
                               "cache, memory outside the budget",
                               config->folder);
            if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) != 0)
                status = tell(config, "leaving O_DIRECT");
        } else if (written < 0 && errno != EINTR && errno != EAGAIN)
            status = tell(config, "writing every block once");
        else if (written == 0)
            status = full(config);
        else if (written > 0)
            at += (uint64_t)written - (uint64_t)written % COH_PAGE_BYTES;
    }
    uint64_t spent_ns = coh_clock_ns() - begin_ns;
    if (status == COH_OK && spent_ns > 0)
        base->facts.write_bytes_per_s = (uint64_t)((double)config->bytes * 1e9 / (double)spent_ns);
    (void)munmap(buffer, buffer_bytes);
    return status;
}

coh_status coh_store_file_open(coh_store *base, int *out_fd)
{
    const coh_store_config *config = &base->config;
    coh_status status = COH_OK;
    *out_fd = -1;
    if (config->folder == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "the working store has no folder: give %s",
                        coh_term_text(COH_TERM_A_DISK));
    int fd = open_unnamed(config->folder, O_DIRECT);
    base->facts.direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) {
        fd = open_unnamed(config->folder, 0);
        coh_store_base_say(base,
                           "%s refuses O_DIRECT: the store goes through the page cache, "
                           "memory outside the budget",
                           config->folder);
    }
    if (fd < 0)
        return tell(config, "making the file");
    if (base->facts.direct && is_in_memory(fd)) {
        base->facts.direct = 0;
        coh_store_base_say(base,
                           "%s is a file system in memory: O_DIRECT means nothing there and "
                           "the store is memory outside the budget",
                           config->folder);
        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) != 0)
            COH_TRY_GOTO(status, tell(config, "leaving O_DIRECT"), failed);
    }
    COH_TRY_GOTO(status, check_room(config, fd), failed);
    /* If the file system cannot reserve, the writes allocate. */
    if (fallocate(fd, 0, 0, (off_t)config->bytes) != 0 && errno != EOPNOTSUPP && errno != EINTR)
        COH_TRY_GOTO(status, tell(config, "reserving space"), failed);
    COH_TRY_GOTO(status, fill(base, fd), failed);
    *out_fd = fd;
    return COH_OK;
failed:
    (void)close(fd);
    return status;
}
