/* The disk part of `cohobate doctor`: lockable memory, io_uring, O_DIRECT and the file system. Each
 * is tried on a scratch file rather than guessed from versions. Next: machine_findings.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/small_file.h"
#include "coh_config.h"
#include "cohobate/run.h"
#include "cohobate/terms.h"
#include "engine/machine_findings.h"

#ifdef COH_HAVE_URING
#include <liburing.h>
#endif

/* Does CAP_IPC_LOCK lift the limit of locked memory? */
static int may_lock_any(void)
{
    char text[4096];
    if (!coh_small_file_read("", "/proc/self/status", "", text, sizeof(text)))
        return 0;
    const char *line = strstr(text, "CapEff:");
    return line != NULL && (strtoull(line + strlen("CapEff:"), NULL, 16) >> 14 & 1);
}

void coh_examine_memlock(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "memlock");
    struct rlimit limit;
    char text[32];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        limit.rlim_cur = 0;
    if (limit.rlim_cur == RLIM_INFINITY) {
        COH_FINDING_SAY(finding->found, "no limit on locked memory");
        return;
    }
    coh_size_format(limit.rlim_cur, text, sizeof(text));
    if (may_lock_any()) {
        COH_FINDING_SAY(finding->found, "limit of %s, which does not bind this user (CAP_IPC_LOCK)",
                        text);
        return;
    }
    finding->level = COH_FINDING_NOTE;
    COH_FINDING_SAY(finding->found, "at most %s of locked memory", text);
    COH_FINDING_SAY(finding->cost, "arenas beyond it cannot be registered with io_uring: each "
                                   "transfer maps its pages again");
    COH_FINDING_SAY(finding->remedy,
                    "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit");
}

#ifdef COH_HAVE_URING
/* Makes a small ring and registers one page with it. Returns 0 or -errno. */
static int uring_probe(int *out_registered)
{
    struct io_uring ring;
    int code = io_uring_queue_init(4, &ring, 0);
    *out_registered = 0;
    if (code < 0)
        return code;
    void *page = NULL;
    if (posix_memalign(&page, COH_PAGE_BYTES, COH_PAGE_BYTES) == 0) {
        struct iovec piece = { .iov_base = page, .iov_len = COH_PAGE_BYTES };
        *out_registered = io_uring_register_buffers(&ring, &piece, 1) == 0;
    }
    io_uring_queue_exit(&ring);
    free(page);
    return 0;
}
#endif

void coh_examine_uring(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "io_uring");
    static const char slower[] = "transfers run on posix threads with pread and pwrite: more "
                                 "processor time for the same bytes";
#ifdef COH_HAVE_URING
    int registered;
    int code = uring_probe(&registered);
    if (code == 0 && registered) {
        COH_FINDING_SAY(finding->found, "works, with registered buffers");
    } else if (code == 0) {
        finding->level = COH_FINDING_NOTE;
        COH_FINDING_SAY(finding->found, "works, but registering a buffer was denied");
        COH_FINDING_SAY(finding->cost, "each transfer maps its pages again");
        COH_FINDING_SAY(finding->remedy, "ulimit -l unlimited");
    } else {
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->found, "denied: %s", strerror(-code));
        COH_FINDING_SAY(finding->cost, "%s", slower);
        COH_FINDING_SAY(finding->remedy, "%s",
                        code == -ENOSYS
                            ? "a kernel of 5.6 or newer"
                            : "sysctl kernel.io_uring_disabled=0; in a container: allow "
                              "io_uring_setup in its seccomp profile");
    }
#else
    finding->level = COH_FINDING_NOTE;
    COH_FINDING_SAY(finding->found, "not in this build");
    COH_FINDING_SAY(finding->cost, "%s", slower);
    COH_FINDING_SAY(finding->remedy, "install liburing-dev and build again");
#endif
}

/* Opens an unnamed file in `folder`, or a named one, unlinked at once, if the file system has no
 * O_TMPFILE. Returns a descriptor or -errno. */
static int scratch_open(const char *folder, int flags)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0)
        return fd;
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s/.cohobate-probe-%ld", folder, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
    int code = fd < 0 ? -errno : fd;
    if (code != -EEXIST) /* some file systems create the file, then refuse O_DIRECT */
        unlink(path);
    return code;
}

/* Writes a page and reads it back. Returns 0 or -errno; -EIO if the page differs. */
static int page_round_trip(int fd)
{
    void *page = NULL;
    if (posix_memalign(&page, COH_PAGE_BYTES, COH_PAGE_BYTES) != 0)
        return -ENOMEM;
    int code = -EIO;
    memset(page, 0x5a, COH_PAGE_BYTES);
    if (pwrite(fd, page, COH_PAGE_BYTES, 0) != (ssize_t)COH_PAGE_BYTES) {
        code = errno != 0 ? -errno : -EIO;
    } else {
        memset(page, 0, COH_PAGE_BYTES);
        if (pread(fd, page, COH_PAGE_BYTES, 0) == (ssize_t)COH_PAGE_BYTES &&
            ((unsigned char *)page)[COH_PAGE_BYTES - 1] == 0x5a)
            code = 0;
    }
    free(page);
    return code;
}

void coh_examine_direct(coh_finding_list *list, const char *folder)
{
    coh_finding *finding = coh_finding_next(list, "O_DIRECT");
    int fd = scratch_open(folder, O_DIRECT);
    int code = fd < 0 ? fd : page_round_trip(fd);
    if (fd >= 0)
        close(fd);
    if (code == 0) {
        COH_FINDING_SAY(finding->found, "works in %.200s", folder);
        return;
    }
    int plain = scratch_open(folder, 0);
    if (plain >= 0)
        close(plain);
    finding->level = COH_FINDING_WARN;
    if (plain < 0) {
        COH_FINDING_SAY(finding->found, "no file can be made in %.150s: %s", folder,
                        strerror(-plain));
        COH_FINDING_SAY(finding->cost, "it cannot be the disk tier");
        COH_FINDING_SAY(finding->remedy, "choose another folder with %s",
                        coh_term_text(COH_TERM_DISK));
        return;
    }
    COH_FINDING_SAY(finding->found, "refused in %.150s: %s", folder, strerror(-code));
    COH_FINDING_SAY(finding->cost, "the disk tier goes through the page cache, which is memory "
                                   "outside the budget");
    COH_FINDING_SAY(finding->remedy, "%s on a local ext4, xfs or btrfs file system",
                    coh_term_text(COH_TERM_DISK));
}

const char *coh_file_system_name(long magic)
{
    switch (magic) {
    case 0xef53:
        return "ext4";
    case 0x58465342:
        return "xfs";
    case 0x9123683e:
        return "btrfs";
    case 0x01021994:
        return "tmpfs";
    case 0x794c7630:
        return "overlay";
    case 0x6969:
        return "nfs";
    case 0x2fc12fc1:
        return "zfs";
    case 0xf2f52010:
        return "f2fs";
    default:
        return "a file system";
    }
}

void coh_examine_disk(coh_finding_list *list, const char *folder)
{
    coh_finding *finding = coh_finding_next(list, "disk");
    struct statfs facts;
    uint64_t free_bytes;
    char text[32];
    if (statfs(folder, &facts) != 0 || coh_space_free_bytes(folder, &free_bytes) != COH_OK) {
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->found, "the file system of %.200s cannot be looked at", folder);
        COH_FINDING_SAY(finding->remedy, "name a folder that exists");
        return;
    }
    const char *name = coh_file_system_name((long)facts.f_type);
    COH_FINDING_SAY(finding->found, "%s free on %s of %.150s",
                    coh_size_format(free_bytes, text, sizeof(text)), name, folder);
    if (strcmp(name, "tmpfs") == 0) {
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->cost, "its files are in memory: nothing is gained by moving "
                                       "there");
        COH_FINDING_SAY(finding->remedy, "%s on a real disk", coh_term_text(COH_TERM_DISK));
    } else if (strcmp(name, "nfs") == 0 || strcmp(name, "overlay") == 0) {
        finding->level = COH_FINDING_NOTE;
        COH_FINDING_SAY(finding->cost, "%s",
                        strcmp(name, "nfs") == 0 ? "every transfer crosses the network"
                                                 : "an overlay adds a layer to every transfer");
        COH_FINDING_SAY(finding->remedy, "%s on a local disk or a mounted volume",
                        coh_term_text(COH_TERM_DISK));
    }
}
