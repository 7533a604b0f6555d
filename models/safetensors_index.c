/* Reads model.safetensors.index.json. The one idea: the index only names files; every claim of it
 * is checked against the headers of the shards. Next: safetensors_read.c, which opens the
 * shards. */
#include "models/safetensors_index.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/json.h"
#include "models/safetensors_header.h"

/* Enough for 400,000 tensors at 160 bytes each; the largest models have about 100,000. */
#define INDEX_BYTES_MAX ((uint64_t)64 << 20)

struct coh_safetensors_index {
    char *path;
    json_t *root, *weight_map;
    const char **files; /* point to strings of root */
    uint32_t file_count;
};

coh_status coh_safetensors_path(const char *folder, const char *name, char *out_path)
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a model's path of %zu bytes is too long",
                        strlen(folder) + 1 + strlen(name));
    return COH_OK;
}

static coh_status refuse(const coh_safetensors_index *index, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fails with the index, the reason and a remedy; all refusals come here. */
static coh_status refuse(const coh_safetensors_index *index, const char *format, ...)
{
    char reason[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return coh_fail(COH_ERR_CORRUPT, "%.300s %s: fetch the model's folder again", index->path,
                    reason);
}

static int has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

/* Is `name` one path component without a leading dot? Then it cannot lead out of the folder. */
static int is_shard_name(const char *name)
{
    return name[0] != '.' && strlen(name) <= 255 && !strchr(name, '/') &&
           !coh_safetensors_name_refused(name) && has_suffix(name, ".safetensors");
}

static int compare_files(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Collects each tensor's file, sorts them and removes duplicates. */
static coh_status files_collect(coh_safetensors_index *index)
{
    size_t count = 0;
    COH_TRY(COH_ALLOC(json_object_size(index->weight_map), &index->files));
    const char *name;
    json_t *value;
    json_object_foreach(index->weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file)
            return refuse(index, "has a file for tensor %.200s that is no string", name);
        if (!is_shard_name(file))
            return refuse(index,
                          "puts tensor %.200s into \"%.100s\", which is not the name of a"
                          " .safetensors file in this folder",
                          name, file);
        index->files[count++] = file;
    }
    if (count > 1)
        qsort(index->files, count, sizeof(*index->files), compare_files);
    size_t unique = 0;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(index->files[i], index->files[unique - 1]) != 0)
            index->files[unique++] = index->files[i];
    index->file_count = (uint32_t)unique;
    return COH_OK;
}

static coh_status index_read(coh_safetensors_index *index, const char *text, size_t bytes)
{
    coh_status status = coh_json_load(text, bytes, &index->root);
    if (status != COH_OK)
        return coh_fail_prefix(status, "%.300s", index->path);
    index->weight_map = json_object_get(index->root, "weight_map");
    if (!json_is_object(index->weight_map))
        return refuse(index, "has no object \"weight_map\", which would say where tensors are");
    if (json_object_size(index->weight_map) == 0)
        return refuse(index, "names no tensors");
    return files_collect(index);
}

coh_status coh_safetensors_index_open(const char *path, coh_safetensors_index **out_index)
{
    *out_index = NULL;
    char *text = NULL;
    size_t bytes;
    coh_safetensors_index *index;
    COH_TRY(COH_ALLOC(1, &index));
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_alloc_text(path, &index->path), done);
    COH_TRY_GOTO(status, coh_file_read_whole(path, INDEX_BYTES_MAX, &text, &bytes), done);
    COH_TRY_GOTO(status, index_read(index, text, bytes), done);
    *out_index = index;
    index = NULL;
done:
    coh_free(text);
    coh_safetensors_index_close(index);
    return status;
}

void coh_safetensors_index_close(coh_safetensors_index *index)
{
    if (!index)
        return;
    coh_free((void *)index->files);
    json_decref(index->root);
    coh_free(index->path);
    coh_free(index);
}

uint32_t coh_safetensors_index_file_count(const coh_safetensors_index *index)
{
    return index->file_count;
}

const char *coh_safetensors_index_file(const coh_safetensors_index *index, uint32_t file)
{
    return index->files[file];
}

coh_status coh_safetensors_index_check(const coh_safetensors_index *index,
                                       const coh_safetensors *model)
{
    const char *name;
    json_t *value;
    json_object_foreach(index->weight_map, name, value)
    {
        const char *file = json_string_value(value);
        const coh_safetensors_tensor *tensor = coh_safetensors_find(model, name);
        if (!tensor)
            return refuse(index, "puts tensor %.200s into %.100s, which has no such tensor", name,
                          file);
        if (strcmp(coh_safetensors_file_name(model, tensor->file), file) != 0)
            return refuse(index, "puts tensor %.200s into %.100s, but it is in %.100s", name, file,
                          coh_safetensors_file_name(model, tensor->file));
    }
    size_t count;
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(model, &count);
    for (size_t i = 0; i < count; i++)
        if (!json_object_get(index->weight_map, tensors[i].name))
            return refuse(index, "does not name tensor %.200s, which is in %.100s", tensors[i].name,
                          coh_safetensors_file_name(model, tensors[i].file));
    return COH_OK;
}
