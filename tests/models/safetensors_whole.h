/* safetensors_whole.h - writes a list of tensors completely, as one file or as a folder of shards;
 * a function provides the data, in pieces of its choice. */
#ifndef COH_TESTS_MODELS_SAFETENSORS_WHOLE_H
#define COH_TESTS_MODELS_SAFETENSORS_WHOLE_H

#include "base/check.h"
#include "models/safetensors.h"

typedef coh_status (*whole_add)(void *writer, const void *data, size_t bytes);

typedef struct whole_list {
    const coh_safetensors_tensor *tensors; /* for a folder: with `file` set */
    size_t count;
    const coh_safetensors_pair *metadata;
    size_t pairs;
    /* Passes all data to `add`, in the order of the tensors. */
    coh_status (*data)(void *context, whole_add add, void *writer);
    void *context;
} whole_list;

static inline coh_status whole_add_to_file(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_writer_add(writer, data, bytes);
}

static inline coh_status whole_add_to_folder(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_folder_writer_add(writer, data, bytes);
}

static inline coh_status whole_write_file(const whole_list *all, const char *path)
{
    coh_safetensors_writer *writer;
    coh_status status = coh_safetensors_writer_create(path, all->tensors, all->count, all->metadata,
                                                      all->pairs, &writer);
    if (status == COH_OK)
        status = all->data(all->context, whole_add_to_file, writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_finish(writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_publish(writer);
    coh_safetensors_writer_destroy(writer);
    return status;
}

static inline coh_status whole_write_folder(const whole_list *all, const char *path)
{
    coh_safetensors_folder_writer *writer;
    coh_status status = coh_safetensors_folder_writer_create(path, all->tensors, all->count,
                                                             all->metadata, all->pairs, &writer);
    if (status == COH_OK)
        status = all->data(all->context, whole_add_to_folder, writer);
    if (status == COH_OK)
        status = coh_safetensors_folder_writer_publish(writer);
    coh_safetensors_folder_writer_destroy(writer);
    return status;
}

#endif
