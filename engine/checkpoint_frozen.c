/* Links the file of frozen tensors into another checkpoint, if it is still the file that was seen.
 * Read checkpoint_frozen.h first; checkpoint_writer.c is the caller. */
#include "engine/checkpoint_frozen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void coh_frozen_file_see(int fd, const char *folder, coh_frozen_file *out_file)
{
    struct stat facts;
    out_file->folder[0] = '\0';
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        snprintf(out_file->folder, sizeof(out_file->folder), "%s", folder) >=
            (int)sizeof(out_file->folder)) {
        out_file->folder[0] = '\0';
        return;
    }
    out_file->device = facts.st_dev;
    out_file->number = facts.st_ino;
    out_file->bytes = facts.st_size;
    out_file->written = facts.st_mtim;
}

static int is_same(const coh_frozen_file *a, const coh_frozen_file *b)
{
    return b->folder[0] != '\0' && a->device == b->device && a->number == b->number &&
           a->bytes == b->bytes && a->written.tv_sec == b->written.tv_sec &&
           a->written.tv_nsec == b->written.tv_nsec;
}

int coh_frozen_file_link(const coh_frozen_file *file, coh_file_ops *ops, const char *path)
{
    char from[PATH_MAX + sizeof(coh_file_name)];
    coh_frozen_file found;
    if (file->folder[0] == '\0')
        return -ENOENT;
    snprintf(from, sizeof(from), "%s/frozen.bin", file->folder);
    const int error = coh_file_link(ops, from, path);
    if (error != 0)
        return error;
    /* O_NONBLOCK: a pipe may have the name by now. */
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        coh_frozen_file_see(fd, file->folder, &found);
    if (fd >= 0 && is_same(file, &found))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    const int removed = coh_file_unlink(ops, path);
    return removed != 0 ? removed : -ESTALE;
}

int coh_frozen_is_bf16(const float *values, uint64_t count)
{
    uint32_t low = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        low |= bits;
    }
    return (low & 0xffff) == 0;
}
