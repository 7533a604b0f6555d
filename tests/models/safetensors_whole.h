/* safetensors_whole.h - writes a list of tensors completely, as one file or as a folder of shards;
 * a function provides the data, in pieces of its choice. */
#ifndef COH_TESTS_MODELS_SAFETENSORS_WHOLE_H
#define COH_TESTS_MODELS_SAFETENSORS_WHOLE_H

#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "models/safetensors_write.h"

typedef struct whole_list {
    coh_safetensors_list list; /* `file` of its tensors is set */
    /* Adds all data, in the order of the tensors. */
    coh_status (*data)(void *context, coh_safetensors_writer *writer);
    void *context;
} whole_list;

/* Writes a new folder `path`. */
static inline coh_status whole_write_folder(const whole_list *all, const char *path)
{
    coh_folder_place place;
    coh_safetensors_writer *writer = NULL;
    coh_status status = coh_folder_place_begin(&place, path);
    if (status == COH_OK)
        status = coh_safetensors_writer_create(&place, "model", &all->list, &writer);
    if (status == COH_OK)
        status = all->data(all->context, writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_finish(writer);
    if (status == COH_OK)
        status = coh_folder_place_publish(&place);
    coh_safetensors_writer_destroy(writer);
    coh_folder_place_end(&place);
    return status;
}

/* Writes one file: that of a folder, which is moved to `path`. */
static inline coh_status whole_write_file(const whole_list *all, const char *path)
{
    char folder[PATH_MAX - 32], file[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s.folder", path);
    snprintf(file, sizeof(file), "%s/model.safetensors", folder);
    COH_TRY(whole_write_folder(all, folder));
    return rename(file, path) == 0 && rmdir(folder) == 0
               ? COH_OK
               : coh_fail(COH_ERR_IO, "%s could not be moved", file);
}

#endif
