#include "models/folder_place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/safetensors_writer.h"

/* Folders that are tried for the temporary one: one may be left of a process that died. */
#define TEMPORARY_TRIES 100

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
        return coh_safetensors_operation_fail(-EEXIST, "", place->path);
    return COH_OK;
}

coh_status coh_folder_place_begin(coh_folder_place *place, const char *path)
{
    char name[PATH_MAX + 64];
    int error = -EEXIST;
    *place = (coh_folder_place){ 0 };
    coh_file_ops_init(&place->ops);
    COH_TRY(paths_set(place, path));
    for (int i = 0; i < TEMPORARY_TRIES && error == -EEXIST; i++) {
        snprintf(name, sizeof(name), "%s.partial-%ld-%d", place->path, (long)getpid(), i);
        error = coh_file_mkdir(&place->ops, name);
    }
    if (error)
        return coh_safetensors_operation_fail(error, "making a folder beside", place->path);
    memcpy(place->partial, name, strlen(name) + 1);
    return COH_OK;
}

coh_status coh_folder_place_path(const coh_folder_place *place, const char *name, char *out_path)
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", place->partial, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a folder's path of %zu bytes is too long",
                        strlen(place->partial));
    return COH_OK;
}

coh_status coh_folder_place_create(coh_folder_place *place, const char *name, char *out_path,
                                   int *out_fd)
{
    COH_TRY(coh_folder_place_path(place, name, out_path));
    *out_fd = coh_file_create(&place->ops, out_path);
    return *out_fd < 0 ? coh_safetensors_operation_fail(*out_fd, "creating", out_path) : COH_OK;
}

coh_status coh_folder_place_close(coh_folder_place *place, int fd, int error, const char *path)
{
    if (error == 0)
        error = coh_file_sync(&place->ops, fd);
    const int close_error = coh_file_close(&place->ops, fd);
    if (error == 0)
        error = close_error;
    return error ? coh_safetensors_operation_fail(error, "writing", path) : COH_OK;
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
    COH_TRY(coh_safetensors_folder_flush(&place->ops, place->partial));
    const int error = coh_file_rename(&place->ops, place->partial, place->path);
    if (error)
        return coh_safetensors_operation_fail(error, "renaming to", place->path);
    /* What may not outlive a power cut is taken back rather than promised. */
    memcpy(place->partial, place->path, sizeof(place->path));
    coh_safetensors_folder_of(place->path, parent);
    COH_TRY(coh_safetensors_folder_flush(&place->ops, parent));
    place->partial[0] = '\0';
    return COH_OK;
}

/* All that is in the folder is ours. */
void coh_folder_place_end(coh_folder_place *place)
{
    char path[PATH_MAX];
    struct dirent *entry;
    if (!place->partial[0])
        return;
    DIR *folder = opendir(place->partial);
    while (folder && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            snprintf(path, PATH_MAX, "%s/%s", place->partial, entry->d_name) < PATH_MAX)
            (void)coh_file_unlink(&place->ops, path);
    if (folder)
        closedir(folder);
    (void)coh_file_rmdir(&place->ops, place->partial);
    place->partial[0] = '\0';
}
