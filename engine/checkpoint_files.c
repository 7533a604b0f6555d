/* Names, offsets and removal of a checkpoint's files, for its writer and its reader. Next:
 * checkpoint_files.h. */
#include "engine/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "cohobate/checkpoint.h"

/* The end of the names of streams' files, which no other program's data has: a folder's files are
 * removed by name. m and v have the names of version 1. */
#define STATE_END ".state"

static int has_fixed_file(const char *stream)
{
    return strcmp(stream, "m") == 0 || strcmp(stream, "v") == 0;
}

coh_file_name coh_checkpoint_file_name(const coh_logical_table *table, int file)
{
    coh_file_name name;
    if (file == COH_FILE_MANIFEST) {
        snprintf(name.text, sizeof(name.text), "manifest.json");
        return name;
    }
    const char *stream = file == COH_FILE_HASHES   ? "hashes"
                         : file == COH_FILE_FROZEN ? "frozen"
                                                   : coh_logical_stream(table, file)->name;
    const int is_fixed = file >= COH_FILE_FROZEN || file == COH_PART_WORK || has_fixed_file(stream);
    snprintf(name.text, sizeof(name.text), "%.*s%s", COH_OPTIMIZER_NAME_BYTES - 1, stream,
             is_fixed ? ".bin" : STATE_END);
    return name;
}

uint64_t coh_manifest_hash(const char *text, size_t bytes)
{
    return XXH3_64bits(text, bytes);
}

int coh_checkpoint_file_of(const coh_logical_table *table, uint32_t tensor, int row)
{
    const int is_shared =
        table->frozen != COH_FROZEN_IN_WORK && table->tensors[tensor].optimizer == NULL;
    return is_shared ? COH_FILE_FROZEN : row;
}

uint64_t coh_checkpoint_file_bytes(const coh_logical_table *table, int file, uint64_t elements)
{
    if (file == COH_FILE_FROZEN)
        return elements * (table->frozen == COH_FROZEN_BF16 ? sizeof(uint16_t) : sizeof(float));
    return coh_state_bytes(coh_logical_stream(table, file), elements);
}

coh_status coh_checkpoint_offsets(const coh_logical_table *table, int file, uint64_t *offsets,
                                  uint64_t *out_bytes)
{
    const int row = file == COH_FILE_FROZEN ? COH_FILE_WORK : file;
    uint64_t total = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const coh_logical_tensor *tensor = &table->tensors[i];
        if (coh_logical_part(tensor, row) < 0 || coh_checkpoint_file_of(table, i, row) != file)
            continue;
        if (offsets)
            offsets[i] = total;
        COH_TRY(
            coh_bytes_add(total, coh_checkpoint_file_bytes(table, file, tensor->elements), &total));
    }
    if (total > INT64_MAX)
        return coh_fail(COH_ERR_FULL, "a checkpoint's %s would be larger than a file can be",
                        coh_checkpoint_file_name(table, file).text);
    *out_bytes = total;
    return COH_OK;
}

/* ---- find and remove ---- */

int coh_checkpoint_is_at(const char *path)
{
    static const char *const names[] = { "manifest.json", "hashes.bin", "work.bin" };
    char name[PATH_MAX];
    struct stat facts;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int length = snprintf(name, sizeof(name), "%s/%s", path, names[i]);
        if (length < 0 || (size_t)length >= sizeof(name))
            return -ENAMETOOLONG;
        if (lstat(name, &facts) == 0)
            return 1;
        if (errno != ENOENT)
            return -errno;
    }
    return 0;
}

int coh_checkpoint_is_partial(const char *path)
{
    static const char end[] = ".partial";
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/')
        length--;
    return length >= sizeof(end) &&
           strncmp(path + length - (sizeof(end) - 1), end, sizeof(end) - 1) == 0;
}

/* Is this the name of a stream's file, of that of frozen tensors, or of a manifest that a killed
 * coh_checkpoint_note_set left? */
static int is_stream_file(const char *name)
{
    char stream[COH_OPTIMIZER_NAME_BYTES];
    const size_t length = strlen(name), end = sizeof(STATE_END) - 1;
    if (strcmp(name, "m.bin") == 0 || strcmp(name, "v.bin") == 0 ||
        strcmp(name, "frozen.bin") == 0 || strcmp(name, "manifest.json.partial") == 0)
        return 1;
    if (length <= end || length - end >= sizeof(stream) ||
        strcmp(name + length - end, STATE_END) != 0)
        return 0;
    memcpy(stream, name, length - end);
    stream[length - end] = '\0';
    return coh_logical_is_name(stream);
}

/* A removal under way. */
typedef struct removal {
    coh_file_ops *ops;
    const char *path;
    int unlinked; /* files */
    int error;    /* the first one, or 0 */
} removal;

static void file_remove(removal *r, const char *file)
{
    char name[PATH_MAX];
    int length = snprintf(name, sizeof(name), "%s/%s", r->path, file);
    int error = length < 0 || (size_t)length >= sizeof(name) ? -ENAMETOOLONG
                                                             : coh_file_unlink(r->ops, name);
    r->unlinked += error == 0;
    if (error == -EISDIR) /* a folder of this name is not ours: rmdir refuses */
        error = 0;
    if (error && error != -ENOENT && !r->error)
        r->error = error;
}

/* Unlinks the streams' files that one reading of the folder finds. opendir would allocate. */
static void streams_remove_once(removal *r, int fd)
{
    _Alignas(struct dirent64) char entries[4096];
    ssize_t bytes;
    while ((bytes = getdents64(fd, entries, sizeof(entries))) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            at += entry->d_reclen;
            if (is_stream_file(entry->d_name))
                file_remove(r, entry->d_name);
        }
    if (bytes < 0 && !r->error)
        r->error = -errno;
}

/* Reads the folder again after a removal, since a file system may skip entries meanwhile. */
static void streams_remove(removal *r)
{
    int fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        r->error = r->error ? r->error : -errno;
        return;
    }
    do {
        r->unlinked = 0;
        streams_remove_once(r, fd);
    } while (r->unlinked > 0 && lseek(fd, 0, SEEK_SET) == 0);
    close(fd);
}

int coh_checkpoint_unlink(coh_file_ops *ops, const char *path)
{
    removal r = { .ops = ops, .path = path };
    struct stat facts;
    if (stat(path, &facts) != 0)
        return errno == ENOENT ? 0 : -errno;
    int is_ours = coh_checkpoint_is_at(path);
    if (is_ours < 0)
        return is_ours;
    if (is_ours)
        file_remove(&r, "manifest.json");
    if (is_ours || coh_checkpoint_is_partial(path))
        streams_remove(&r);
    if (is_ours) {
        file_remove(&r, "hashes.bin");
        file_remove(&r, "work.bin");
    }
    int error = coh_file_rmdir(ops, path);
    if (r.error)
        return r.error;
    return error == -ENOENT ? 0 : error == -EEXIST ? -ENOTEMPTY : error;
}

coh_status coh_file_fail(int error, const char *what, const char *path)
{
    const char *reason = strerrordesc_np(-error); /* strerror may allocate */
    const char *remedy = coh_file_open_remedy(error, "");
    return coh_fail(COH_ERR_IO, "cannot %s %s: %s%s%s", what, path,
                    reason ? reason : "unknown error", remedy[0] ? ": " : "", remedy);
}

/* Is the folder's manifest.json another program's? One without hashes.bin next to it has to have
 * the text of ours: a damaged checkpoint has hashes.bin, and the removal of one takes the manifest
 * first. */
static int is_foreign(const char *path)
{
    static const char ours[] = "cohobate checkpoint";
    char name[PATH_MAX], head[128];
    if (coh_checkpoint_is_partial(path) ||
        snprintf(name, sizeof(name), "%s/hashes.bin", path) >= (int)sizeof(name) ||
        access(name, F_OK) == 0)
        return 0;
    snprintf(name, sizeof(name), "%s/manifest.json", path);
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno != ENOENT && errno != ENOTDIR;
    const ssize_t bytes = read(fd, head, sizeof(head));
    close(fd);
    return bytes < 0 || !memmem(head, (size_t)bytes, ours, sizeof(ours) - 1);
}

coh_status coh_checkpoint_remove(const char *path)
{
    COH_NEED_PATH(path);
    coh_file_ops ops;
    coh_file_ops_init(&ops);
    if (is_foreign(path))
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is no checkpoint: its manifest.json is of another program, so nothing "
                        "was removed",
                        path);
    int error = coh_checkpoint_unlink(&ops, path);
    return error ? coh_file_fail(error, "remove checkpoint", path) : COH_OK;
}
