/* Creates a folder atomically. The one idea: all is written under a temporary, locked name and
 * renamed at the end; the lock tells a folder that is being written from one left by a killed
 * process. Next: export.c, the caller. */
#include "models/folder_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cohobate/folder.h"

/* Names tried for the temporary folder; some may be left by processes that died. */
#define TEMPORARY_TRIES 100

coh_status coh_folder_place_fail(int error, const char *what, const char *path)
{
    if (error == -EEXIST)
        return coh_fail(COH_ERR_ARGUMENT, "%.300s exists: give another name, or remove it", path);
    return coh_fail(COH_ERR_IO, "%s %.300s failed: %s: %s", what, path, strerror(-error),
                    coh_file_remedy(error));
}

static coh_status folder_flush(coh_folder_place *place, const char *folder)
{
    const int error = coh_file_sync_folder(&place->ops, folder);
    return error ? coh_folder_place_fail(error, "flushing folder", folder) : COH_OK;
}

static coh_status paths_set(coh_folder_place *place, const char *path)
{
    struct stat facts;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length >= PATH_MAX - 64)
        return coh_fail(COH_ERR_ARGUMENT, "a path of %zu bytes cannot name a folder", length);
    snprintf(place->path, PATH_MAX, "%.*s", (int)length, path);
    if (lstat(place->path, &facts) == 0)
        return coh_folder_place_fail(-EEXIST, "", place->path);
    return COH_OK;
}

/* ---- the temporary folder ---- */

/* The next entry of `folder` except "." and ".."; NULL: no more. */
static const char *next_name(DIR *folder)
{
    struct dirent *entry;
    while ((entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    return NULL;
}

/* Opens a second listing of the same folder; NULL: it cannot be listed. */
static DIR *list(int fd)
{
    const int listed = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = listed < 0 ? NULL : fdopendir(listed);
    if (!folder && listed >= 0)
        close(listed);
    return folder;
}

/* Removes what is in the folder and, `depth` > 0, in its subfolders; a link to a folder counts as a
 * file. */
static void entries_remove(coh_file_ops *ops, int fd, const char *name, int depth)
{
    char path[PATH_MAX];
    const char *entry;
    DIR *folder = list(fd);
    while (folder && (entry = next_name(folder))) {
        if (snprintf(path, PATH_MAX, "%s/%s", name, entry) >= PATH_MAX)
            continue;
        const int below =
            depth == 0 ? -1 : openat(fd, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            entries_remove(ops, below, path, depth - 1);
            (void)coh_file_rmdir_at(ops, fd, entry, path);
            close(below);
        } else {
            (void)coh_file_unlink_at(ops, fd, entry, path);
        }
    }
    if (folder)
        closedir(folder);
}

/* Removes the folder and all that is in it. `fd` identifies it: another file of the same name is
 * left alone. */
static void temporary_remove(coh_file_ops *ops, int fd, const char *name)
{
    entries_remove(ops, fd, name, 1);
    (void)coh_file_rmdir(ops, name);
}

/* Opens and locks the folder; returns the descriptor or -errno: -EWOULDBLOCK if another process
 * holds it, -ENOENT if another process removed it, -EPERM if it is another user's. Without file
 * locks, our folder is held without one; leftovers cannot be recognised then, and stay. */
static int temporary_hold(const char *name, int is_ours)
{
    struct stat held;
    const int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
    if (error && error != -EWOULDBLOCK && is_ours)
        error = 0;
    if (error == 0 && !coh_file_is_named(fd, name))
        error = -ENOENT;
    if (error == 0 && !is_ours && (fstat(fd, &held) != 0 || held.st_uid != geteuid()))
        error = -EPERM;
    if (error == 0)
        return fd;
    close(fd);
    return error;
}

static coh_status temporary_make(coh_folder_place *place)
{
    char name[PATH_MAX + 64];
    int error = -EEXIST;
    for (int i = 0; i < TEMPORARY_TRIES && error == -EEXIST; i++) {
        snprintf(name, sizeof(name), "%s.partial-%ld-%d", place->path, (long)getpid(), i);
        if ((error = coh_file_mkdir(&place->ops, name)))
            continue;
        place->lock_fd = temporary_hold(name, 1);
        if (place->lock_fd >= 0)
            break;
        /* Another process took the folder for a leftover before it was locked, and removes it. */
        error = place->lock_fd;
        if (error == -EWOULDBLOCK || error == -ENOENT)
            error = -EEXIST;
        else
            (void)coh_file_rmdir(&place->ops, name);
    }
    if (error)
        return coh_folder_place_fail(error, "making a folder next to", place->path);
    memcpy(place->partial, name, strlen(name) + 1);
    return COH_OK;
}

/* Is `name` "<base>.partial-<number>-<number>"? */
static int is_temporary_name(const char *name, const char *base)
{
    static const char mark[] = ".partial-", digits[] = "0123456789";
    const size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 || strncmp(name + length, mark, sizeof(mark) - 1) != 0)
        return 0;
    const char *process = name + length + sizeof(mark) - 1;
    const size_t process_bytes = strspn(process, digits);
    if (process_bytes == 0 || process[process_bytes] != '-')
        return 0;
    const char *number = process + process_bytes + 1;
    return *number && number[strspn(number, digits)] == '\0';
}

/* Removes temporary folders of this path that killed processes left. A failure to remove one is
 * harmless. */
static void rests_remove(coh_folder_place *place)
{
    char parent[PATH_MAX], name[PATH_MAX];
    struct dirent *entry;
    const char *slash = strrchr(place->path, '/');
    coh_file_parent(place->path, parent);
    DIR *folder = opendir(parent);
    while (folder && (entry = readdir(folder))) {
        if (!is_temporary_name(entry->d_name, slash ? slash + 1 : place->path) ||
            snprintf(name, PATH_MAX, "%s/%s", parent, entry->d_name) >= PATH_MAX)
            continue;
        const int fd = temporary_hold(name, 0);
        if (fd < 0)
            continue;
        temporary_remove(&place->ops, fd, name);
        close(fd);
    }
    if (folder)
        closedir(folder);
}

static coh_status place_find(coh_folder_place *place, const char *path)
{
    *place = (coh_folder_place){ 0 };
    coh_file_ops_init(&place->ops);
    COH_TRY(paths_set(place, path));
    rests_remove(place);
    return COH_OK;
}

coh_status coh_folder_place_begin(coh_folder_place *place, const char *path)
{
    COH_TRY(place_find(place, path));
    return temporary_make(place);
}

coh_status coh_folder_clear(const char *path)
{
    COH_NEED_PATH(path);
    coh_folder_place place;
    return place_find(&place, path);
}

/* ---- contents ---- */

static coh_status path_of(const coh_folder_place *place, const char *name, char *out_path)
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", place->partial, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a folder's path of %zu bytes is too long",
                        strlen(place->partial));
    return COH_OK;
}

coh_status coh_folder_place_create(coh_folder_place *place, const char *name, char *out_path,
                                   int *out_fd)
{
    COH_TRY(path_of(place, name, out_path));
    *out_fd = coh_file_create(&place->ops, out_path);
    return *out_fd < 0 ? coh_folder_place_fail(*out_fd, "creating", out_path) : COH_OK;
}

coh_status coh_folder_place_below(coh_folder_place *place, const char *name)
{
    char path[PATH_MAX];
    COH_TRY(path_of(place, name, path));
    const int error = coh_file_mkdir(&place->ops, path);
    return error ? coh_folder_place_fail(error, "creating", path) : COH_OK;
}

coh_status coh_folder_place_flush(coh_folder_place *place, const char *name)
{
    char path[PATH_MAX];
    COH_TRY(path_of(place, name, path));
    return folder_flush(place, path);
}

coh_status coh_folder_place_close(coh_folder_place *place, int fd, int error, const char *path)
{
    if (error == 0)
        error = coh_file_sync(&place->ops, fd);
    const int close_error = coh_file_close(&place->ops, fd);
    if (error == 0)
        error = close_error;
    return error ? coh_folder_place_fail(error, "writing", path) : COH_OK;
}

coh_status coh_folder_place_file(coh_folder_place *place, const char *name, const char *data,
                                 size_t bytes)
{
    char path[PATH_MAX];
    int fd;
    COH_TRY(coh_folder_place_create(place, name, path, &fd));
    const int error = coh_file_write(&place->ops, fd, data, bytes, 0);
    return coh_folder_place_close(place, fd, error, path);
}

coh_status coh_folder_place_publish(coh_folder_place *place)
{
    char parent[PATH_MAX];
    COH_TRY(folder_flush(place, place->partial));
    const int error = coh_file_rename(&place->ops, place->partial, place->path);
    if (error)
        return coh_folder_place_fail(error, "renaming to", place->path);
    /* Until the rename is flushed, end must remove the renamed folder. */
    memcpy(place->partial, place->path, sizeof(place->path));
    coh_file_parent(place->path, parent);
    COH_TRY(folder_flush(place, parent));
    place->partial[0] = '\0';
    close(place->lock_fd);
    return COH_OK;
}

void coh_folder_place_end(coh_folder_place *place)
{
    if (!place->partial[0])
        return;
    temporary_remove(&place->ops, place->lock_fd, place->partial);
    place->partial[0] = '\0';
    close(place->lock_fd);
}
