/* Finds out which folders share their free space. The one idea: a few types of file systems share a
 * pool; each is known by its f_type and compared in its own way. Read file_system.h first. */
#include "offload/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Not in linux/magic.h. */
#define ZFS_MAGIC UINT64_C(0x2fc12fc1)

/* Free numbers of an overlay change while they are compared. */
enum { TRIES = 3 };

/* ---- mountinfo ---- */

/* A line with its end cut off: the list of an overlay's layers, behind the source, may be long. */
enum { LINE_BYTES = 2048 };

typedef struct reader {
    int fd;
    size_t at, count;
    char bytes[1024];
} reader;

/* Returns the next byte, or -1. */
static int next_byte(reader *r)
{
    if (r->at == r->count) {
        const ssize_t got = read(r->fd, r->bytes, sizeof(r->bytes));
        r->at = 0;
        r->count = got > 0 ? (size_t)got : 0;
    }
    return r->at < r->count ? (unsigned char)r->bytes[r->at++] : -1;
}

/* Reads a line without its end. Returns 0 at the end of the file. */
static int next_line(reader *r, char line[LINE_BYTES])
{
    size_t used = 0;
    int byte = next_byte(r);
    if (byte < 0)
        return 0;
    for (; byte >= 0 && byte != '\n'; byte = next_byte(r))
        if (used < LINE_BYTES - 1)
            line[used++] = (char)byte;
    line[used] = '\0';
    return 1;
}

/* Copies the source: "... - btrfs /dev/nvme0n1p2 rw,..." has it behind the type. */
static void copy_source(const char *line, char *out_source, uint32_t source_bytes)
{
    const char *dash = strstr(line, " - ");
    const char *source = dash ? strchr(dash + 3, ' ') : NULL;
    if (source == NULL)
        return;
    size_t bytes = strcspn(source + 1, " ");
    bytes = bytes < source_bytes ? bytes : source_bytes - 1;
    memcpy(out_source, source + 1, bytes);
    out_source[bytes] = '\0';
}

void coh_mount_source(const char *mountinfo, uint64_t id, char *out_source, uint32_t source_bytes)
{
    reader r = { .fd = open(mountinfo, O_RDONLY | O_CLOEXEC) };
    char line[LINE_BYTES];
    out_source[0] = '\0';
    if (r.fd < 0)
        return;
    while (next_line(&r, line)) {
        char *end;
        if (strtoull(line, &end, 10) != id || end == line || *end != ' ')
            continue;
        copy_source(line, out_source, source_bytes);
        break;
    }
    (void)close(r.fd);
}

/* ---- a path ---- */

static void find_source(const char *path, coh_file_system *system)
{
#ifdef STATX_MNT_ID
    struct statx facts;
    if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &facts) == 0 && (facts.stx_mask & STATX_MNT_ID))
        coh_mount_source("/proc/self/mountinfo", facts.stx_mnt_id, system->source,
                         sizeof(system->source));
#else
    (void)path;
    (void)system;
#endif
}

int coh_file_system_find(const char *path, coh_file_system *out_system)
{
    struct stat there;
    struct statfs space;
    *out_system = (coh_file_system){ 0 };
    if (stat(path, &there) != 0 || statfs(path, &space) != 0)
        return errno;
    const uint64_t block_bytes = (uint64_t)(space.f_frsize > 0 ? space.f_frsize : space.f_bsize);
    out_system->device = there.st_dev;
    out_system->type = (uint64_t)space.f_type;
    out_system->total_bytes = space.f_blocks * block_bytes;
    out_system->free_bytes = space.f_bfree * block_bytes;
    out_system->file_count = space.f_files;
    out_system->free_file_count = space.f_ffree;
    if (out_system->type == BTRFS_SUPER_MAGIC || out_system->type == ZFS_MAGIC)
        find_source(path, out_system);
    return 0;
}

/* ---- two of them ---- */

/* Compares the sources up to `end`, if it is in them. */
static int is_same_source(const coh_file_system *a, const coh_file_system *b, const char *end)
{
    const size_t bytes = strcspn(a->source, end);
    return bytes > 0 && bytes == strcspn(b->source, end) &&
           memcmp(a->source, b->source, bytes) == 0;
}

/* An overlay reports the numbers of the file system of its upper folder. */
static int has_same_numbers(const coh_file_system *a, const coh_file_system *b)
{
    return a->total_bytes > 0 && a->total_bytes == b->total_bytes &&
           a->free_bytes == b->free_bytes && a->file_count == b->file_count &&
           a->free_file_count == b->free_file_count;
}

int coh_file_system_is_shared(const coh_file_system *a, const coh_file_system *b)
{
    if (a->device == b->device)
        return 1;
    if (a->type == OVERLAYFS_SUPER_MAGIC || b->type == OVERLAYFS_SUPER_MAGIC)
        return has_same_numbers(a, b);
    if (a->type != b->type)
        return 0;
    return (a->type == BTRFS_SUPER_MAGIC && is_same_source(a, b, "")) ||
           (a->type == ZFS_MAGIC && is_same_source(a, b, "/"));
}

int coh_space_is_shared(const char *path, const char *other)
{
    coh_file_system a, b;
    for (int i = 0; i < TRIES; i++) {
        if (coh_file_system_find(path, &a) != 0 || coh_file_system_find(other, &b) != 0)
            return 0;
        if (coh_file_system_is_shared(&a, &b))
            return 1;
    }
    return 0;
}
