/* Opens safetensors files, one or several with an index, and reads any range of them. The one idea:
 * everything is checked when the model is opened, so reads are plain pread calls. Next:
 * safetensors_header.c, which checks each file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file_text.h"
#include "base/half.h"
#include "base/json.h"
#include "base/plural.h"
#include "models/safetensors_header.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"
/* Enough for 400,000 tensors at 160 bytes each; the largest models have about 100,000. */
#define INDEX_BYTES_MAX ((uint64_t)64 << 20)

/* Elements converted at a time: 16 KiB of f32, half of the first-level cache. */
#define PIECE_ELEMENTS 4096

typedef struct shard {
    int fd;
    char *path;
    const char *name;              /* the last component of `path` */
    coh_safetensors_header header; /* its tensors move to the model's list */
} shard;

struct coh_safetensors {
    shard *files;
    uint32_t file_count;
    coh_safetensors_tensor *tensors;
    size_t count, capacity;
    const coh_safetensors_tensor **by_name;
};

/* ---- one file ---- */

/* Reads exactly `bytes` bytes. */
static coh_status bytes_read(const shard *file, uint64_t offset, uint64_t bytes, void *memory)
{
    char *to = memory;
    while (bytes > 0) {
        size_t piece = bytes < (size_t)1 << 30 ? (size_t)bytes : (size_t)1 << 30;
        ssize_t got = pread(file->fd, to, piece, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coh_fail(COH_ERR_IO, "reading %zu bytes at %" PRIu64 " of %.300s failed: %s",
                            piece, offset, file->path, strerror(errno));
        if (got == 0)
            return coh_fail(COH_ERR_IO,
                            "%.300s ends at byte %" PRIu64 ": it has become shorter since it was"
                            " opened; leave it alone while it is read",
                            file->path, offset);
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return COH_OK;
}

/* Opens the file; *out_bytes is its size. */
static coh_status file_open(shard *file, uint64_t *out_bytes)
{
    /* O_NONBLOCK: do not wait for a writer if it is a pipe. */
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %.300s: %s", file->path, strerror(errno));
    struct stat facts;
    if (fstat(file->fd, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot ask for the length of %.300s: %s", file->path,
                        strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%.300s is not a regular file: name a .safetensors file",
                        file->path);
    *out_bytes = (uint64_t)facts.st_size;
    return COH_OK;
}

/* Reads the 8 bytes before the header, and checks them against the size of the file and the
 * format's limit. */
static coh_status header_length_read(const shard *file, uint64_t file_bytes, uint64_t *out_bytes)
{
    uint8_t raw[8];
    uint64_t bytes = 0;
    if (file_bytes < sizeof(raw))
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s has %" PRIu64 " byte%s, fewer than the 8 that begin a safetensors"
                        " file: fetch or write it again",
                        file->path, file_bytes, COH_PLURAL_S(file_bytes));
    COH_TRY(bytes_read(file, 0, sizeof(raw), raw));
    for (int i = 8; i-- > 0;)
        bytes = bytes << 8 | raw[i];
    if (bytes > COH_SAFETENSORS_HEADER_BYTES)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s begins with a header's length of %" PRIu64 " bytes, the format"
                        " allows %u: it is damaged or no safetensors file",
                        file->path, bytes, COH_SAFETENSORS_HEADER_BYTES);
    if (bytes > file_bytes - sizeof(raw))
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s has %" PRIu64 " bytes, its header alone needs %" PRIu64
                        ": it was cut off, fetch or write it again",
                        file->path, file_bytes, bytes + sizeof(raw));
    *out_bytes = bytes;
    return COH_OK;
}

/* Checks that Git LFS has fetched the file: a clone without it has a short text instead. */
static coh_status check_fetched(const shard *file, uint64_t file_bytes)
{
    char head[64];
    const size_t bytes = file_bytes < sizeof(head) ? (size_t)file_bytes : sizeof(head);
    COH_TRY(bytes_read(file, 0, bytes, head));
    return coh_file_check_fetched(file->path, head, bytes);
}

static coh_status shard_open(const char *path, shard *file)
{
    uint64_t file_bytes, header_bytes;
    char *text;
    COH_TRY(coh_alloc_text(path, &file->path));
    const char *slash = strrchr(file->path, '/');
    file->name = slash ? slash + 1 : file->path;
    COH_TRY(file_open(file, &file_bytes));
    COH_TRY(check_fetched(file, file_bytes));
    COH_TRY(header_length_read(file, file_bytes, &header_bytes));
    COH_TRY(coh_alloc((size_t)header_bytes, 1, (void **)&text));
    coh_status status = bytes_read(file, 8, header_bytes, text);
    if (status != COH_OK) {
        coh_free(text);
        return status;
    }
    return coh_safetensors_header_read(text, (size_t)header_bytes, file_bytes - 8 - header_bytes,
                                       file->path, &file->header);
}

static void shard_close(shard *file)
{
    if (file->fd >= 0)
        close(file->fd);
    coh_safetensors_header_fini(&file->header);
    coh_free(file->path);
}

/* ---- the index ---- */

/* The file of each tensor:
 *
 *     {"metadata": {"total_size": 1234},
 *      "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors", ...}}
 *
 * "metadata" is informative only and not used. The index only names files; every claim of it is
 * checked against the headers of the shards. */
typedef struct shard_index {
    const char *path;
    json_t *root, *weight_map;
    const char **files; /* each once, sorted by their bytes; point to strings of root */
    uint32_t file_count;
    coh_safetensors_may_lack may_lack; /* NULL: none may be absent */
    const void *context;
} shard_index;

static coh_status refuse(const shard_index *index, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fails with the index, the reason and a remedy; all refusals come here. */
static coh_status refuse(const shard_index *index, const char *format, ...)
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
static coh_status files_collect(shard_index *index)
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

static coh_status index_read(shard_index *index, const char *text, size_t bytes)
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

/* ---- a model ---- */

static coh_status files_create(coh_safetensors *model, uint32_t count)
{
    COH_TRY(COH_ALLOC(count, &model->files));
    model->file_count = count;
    for (uint32_t i = 0; i < count; i++)
        model->files[i].fd = -1;
    return COH_OK;
}

/* Moves the tensors of one file to the end of the model's list. */
static coh_status tensors_take(coh_safetensors *model, uint32_t file)
{
    coh_safetensors_header *header = &model->files[file].header;
    COH_TRY(COH_GROW(&model->tensors, &model->capacity, model->count + header->count));
    for (size_t i = 0; i < header->count; i++) {
        header->tensors[i].file = file;
        model->tensors[model->count++] = header->tensors[i];
    }
    coh_free(header->tensors);
    header->tensors = NULL;
    header->count = header->capacity = 0;
    return COH_OK;
}

static coh_status names_index(coh_safetensors *model)
{
    const char *twice;
    COH_TRY(coh_safetensors_by_name(model->tensors, model->count, &model->by_name, &twice));
    if (!twice)
        return COH_OK;
    uint32_t first = UINT32_MAX, last = 0;
    for (size_t i = 0; i < model->count; i++)
        if (strcmp(model->tensors[i].name, twice) == 0) {
            last = model->tensors[i].file;
            first = first == UINT32_MAX ? last : first;
        }
    return coh_fail(COH_ERR_CORRUPT,
                    "tensor %.200s is in both %.100s and %.300s: fetch the model's folder again",
                    twice, model->files[first].name, model->files[last].path);
}

static coh_status single_open(const char *path, coh_safetensors *model)
{
    COH_TRY(files_create(model, 1));
    COH_TRY(shard_open(path, &model->files[0]));
    COH_TRY(tensors_take(model, 0));
    return names_index(model);
}

/* Checks both ways: each tensor of the index is in its file, or may be absent; each tensor of the
 * files is in the index. */
static coh_status index_check(const shard_index *index, const coh_safetensors *model)
{
    const char *name;
    json_t *value;
    json_object_foreach(index->weight_map, name, value)
    {
        const char *file = json_string_value(value);
        const coh_safetensors_tensor *tensor = coh_safetensors_find(model, name);
        if (!tensor && index->may_lack && index->may_lack(index->context, model, name))
            continue;
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

static coh_status path_of(const char *folder, const char *name, char *out_path)
{
    if (snprintf(out_path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a model's path of %zu bytes is too long",
                        strlen(folder) + 1 + strlen(name));
    return COH_OK;
}

static coh_status shards_open(const char *folder, shard_index *index, coh_safetensors *model)
{
    char path[PATH_MAX];
    char *text;
    size_t bytes;
    COH_TRY(coh_file_read_whole(index->path, INDEX_BYTES_MAX, &text, &bytes));
    coh_status status = index_read(index, text, bytes);
    coh_free(text);
    COH_TRY(status);
    COH_TRY(files_create(model, index->file_count));
    for (uint32_t i = 0; i < model->file_count; i++) {
        COH_TRY(path_of(folder, index->files[i], path));
        if (access(path, F_OK) != 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "%.300s is missing, though the folder's index names it: fetch the"
                            " model's folder again",
                            path);
        COH_TRY(shard_open(path, &model->files[i]));
        COH_TRY(tensors_take(model, i));
    }
    COH_TRY(names_index(model));
    return index_check(index, model);
}

/* Finds a file of the folder that is one of several, "model-00001-of-00002.safetensors". */
static int find_shard(const char *folder, char name[256])
{
    const struct dirent *entry;
    unsigned number, count;
    int end = 0, is_found = 0;
    DIR *listing = opendir(folder);
    while (listing && !is_found && (entry = readdir(listing))) {
        end = 0;
        is_found =
            sscanf(entry->d_name, "model-%5u-of-%5u.safetensors%n", &number, &count, &end) == 2 &&
            end > 0 && entry->d_name[end] == '\0';
        snprintf(name, 256, "%s", entry->d_name);
    }
    if (listing)
        closedir(listing);
    return is_found;
}

static coh_status folder_open(const char *folder, coh_safetensors_may_lack may_lack,
                              const void *context, coh_safetensors *model)
{
    char path[PATH_MAX], shard_name[256];
    COH_TRY(path_of(folder, SINGLE, path));
    if (access(path, F_OK) == 0)
        return single_open(path, model);
    COH_TRY(path_of(folder, INDEX, path));
    if (access(path, F_OK) != 0 && find_shard(folder, shard_name))
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s holds %.255s, and " INDEX ", which names the files of all tensors, "
                        "is missing: fetch it from where the others are",
                        folder, shard_name);
    if (access(path, F_OK) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%.300s holds neither " SINGLE " nor " INDEX
                        ": name a model's folder; one of other weights (.bin) becomes one by the "
                        "line of Python in docs/models.md",
                        folder);
    shard_index index = { .path = path, .may_lack = may_lack, .context = context };
    coh_status status = shards_open(folder, &index, model);
    coh_free((void *)index.files);
    json_decref(index.root);
    return status;
}

coh_status coh_safetensors_open_lacking(const char *path, coh_safetensors_may_lack may_lack,
                                        const void *context, coh_safetensors **out_model)
{
    if (!path || !path[0] || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "opening a model needs its folder or file, and a place"
                                          " for it");
    *out_model = NULL;
    struct stat facts;
    if (stat(path, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot open %.300s: %s", path, strerror(errno));
    coh_safetensors *model;
    COH_TRY(COH_ALLOC(1, &model));
    coh_status status = S_ISDIR(facts.st_mode) ? folder_open(path, may_lack, context, model)
                                               : single_open(path, model);
    if (status != COH_OK)
        coh_safetensors_close(model);
    else
        *out_model = model;
    return status;
}

coh_status coh_safetensors_open(const char *path, coh_safetensors **out_model)
{
    return coh_safetensors_open_lacking(path, NULL, NULL, out_model);
}

void coh_safetensors_close(coh_safetensors *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->file_count; i++)
        shard_close(&model->files[i]);
    coh_free(model->files);
    coh_free(model->tensors);
    coh_free((void *)model->by_name);
    coh_free(model);
}

/* ---- access to lists ---- */

const coh_safetensors_tensor *coh_safetensors_tensors(const coh_safetensors *model,
                                                      size_t *out_count)
{
    *out_count = model->count;
    return model->tensors;
}

static int compare_to_name(const void *name, const void *entry)
{
    return strcmp(name, (*(const coh_safetensors_tensor *const *)entry)->name);
}

const coh_safetensors_tensor *coh_safetensors_find(const coh_safetensors *model, const char *name)
{
    if (!model->count)
        return NULL;
    const coh_safetensors_tensor *const *found =
        bsearch(name, model->by_name, model->count, sizeof(*model->by_name), compare_to_name);
    return found ? *found : NULL;
}

uint32_t coh_safetensors_file_count(const coh_safetensors *model)
{
    return model->file_count;
}

const char *coh_safetensors_file_name(const coh_safetensors *model, uint32_t file)
{
    return model->files[file].name;
}

const coh_safetensors_pair *coh_safetensors_metadata(const coh_safetensors *model, uint32_t file,
                                                     size_t *out_count)
{
    *out_count = model->files[file].header.metadata_count;
    return model->files[file].header.metadata;
}

/* ---- data ---- */

coh_status coh_safetensors_read(const coh_safetensors *model, const coh_safetensors_tensor *tensor,
                                uint64_t offset, uint64_t bytes, void *memory)
{
    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRIu64 " bytes at %" PRIu64 " are beyond tensor %.200s, which has"
                        " %" PRIu64,
                        bytes, offset, tensor->name, tensor->bytes);
    return bytes_read(&model->files[tensor->file], tensor->offset + offset, bytes, memory);
}

coh_status coh_safetensors_read_numbers(const coh_safetensors *model,
                                        const coh_safetensors_tensor *tensor, uint64_t first,
                                        uint64_t count, coh_dtype dtype, void *memory)
{
    coh_dtype stored;
    if (!coh_safetensors_dtype_name(dtype))
        return coh_fail(COH_ERR_ARGUMENT, "numbers are read as f32, f16 or bf16");
    COH_TRY(coh_safetensors_dtype(tensor, &stored));
    uint64_t elements = coh_safetensors_elements(tensor);
    if (first > elements || count > elements - first)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRIu64 " elements at %" PRIu64 " are beyond tensor %.200s, which has"
                        " %" PRIu64,
                        count, first, tensor->name, elements);
    size_t width = coh_dtype_bytes(stored);
    if (stored == dtype)
        return coh_safetensors_read(model, tensor, first * width, count * width, memory);
    union piece {
        float f32[PIECE_ELEMENTS];
        uint16_t half[PIECE_ELEMENTS];
    } piece;
    char *to = memory;
    while (count > 0) {
        uint64_t now = count < PIECE_ELEMENTS ? count : PIECE_ELEMENTS;
        COH_TRY(coh_safetensors_read(model, tensor, first * width, now * width, &piece));
        coh_half_convert(stored, &piece, dtype, to, (size_t)now);
        to += now * coh_dtype_bytes(dtype);
        first += now;
        count -= now;
    }
    return COH_OK;
}

coh_status coh_safetensors_read_turned(const coh_safetensors *model,
                                       const coh_safetensors_tensor *tensor, uint64_t first,
                                       uint64_t count, float *values)
{
    enum { PIECE = 2048 };
    float piece[PIECE];
    const uint64_t rows = (uint64_t)tensor->dim[1], columns = (uint64_t)tensor->dim[0];
    const uint64_t end = first + count;
    if (count == 0)
        return COH_OK;
    const uint64_t first_row = first / columns, last_row = (end - 1) / columns;
    for (uint64_t c = 0; c < columns; c++) {
        uint64_t row = first_row + (c < first % columns);
        const uint64_t row_end = last_row + (c <= (end - 1) % columns);
        while (row < row_end) {
            const uint64_t now = row_end - row < PIECE ? row_end - row : PIECE;
            COH_TRY(coh_safetensors_read_numbers(model, tensor, c * rows + row, now, COH_DTYPE_F32,
                                                 piece));
            for (uint64_t i = 0; i < now; i++)
                values[(row + i) * columns + c - first] = piece[i];
            row += now;
        }
    }
    return COH_OK;
}
