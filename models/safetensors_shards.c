/* Writes a model's folder: shard after shard, then the index. The one idea: files are renamed only
 * after all are flushed, the index last, so a folder with an index is complete. Next:
 * safetensors_write.c, which writes one shard. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "models/safetensors_header.h"
#include "models/safetensors_index.h"
#include "models/safetensors_writer.h"

struct coh_safetensors_folder_writer {
    coh_file_ops own_ops, *ops;
    char folder[PATH_MAX];
    const coh_safetensors_tensor *tensors; /* the caller's */
    size_t count, next;                    /* next: the first tensor of the next shard */
    const coh_safetensors_pair *metadata;  /* the caller's */
    size_t metadata_count;
    coh_safetensors_writer **shards;
    uint32_t shard_count, begun_count;
    int index_fd;
    char index_temporary[PATH_MAX], index_path[PATH_MAX]; /* each "" until the file exists */
    int is_kept;
};

uint32_t coh_safetensors_shard(coh_safetensors_tensor *tensors, size_t count, uint64_t shard_bytes)
{
    uint32_t file = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        (void)coh_safetensors_measure(&tensors[i], &bytes); /* the writer reports a failure */
        if (shard_bytes && used > 0 && (used > shard_bytes || bytes > shard_bytes - used)) {
            file++;
            used = 0;
        }
        used = used > UINT64_MAX - bytes ? UINT64_MAX : used + bytes;
        tensors[i].file = file;
    }
    return file + 1;
}

/* ---- paths ---- */

/* The name of one shard; SHARD_NAME_BYTES has room for two numbers of ten digits. */
#define SHARD_NAME_BYTES 64
static void shard_name(const coh_safetensors_folder_writer *writer, uint32_t file, char *name)
{
    if (writer->shard_count == 1)
        snprintf(name, SHARD_NAME_BYTES, "%s", COH_SAFETENSORS_SINGLE);
    else
        snprintf(name, SHARD_NAME_BYTES, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors",
                 file + 1, writer->shard_count);
}

/* Checks that no file to be written exists, and no file that would be read as the model instead. */
static coh_status folder_check(const coh_safetensors_folder_writer *writer)
{
    char path[PATH_MAX], name[SHARD_NAME_BYTES];
    static const char *const others[] = { COH_SAFETENSORS_SINGLE, COH_SAFETENSORS_INDEX };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        COH_TRY(coh_safetensors_path(writer->folder, others[i], path));
        if (access(path, F_OK) == 0)
            return coh_fail(COH_ERR_ARGUMENT,
                            "%.300s holds a model (%s): give another folder, or remove it",
                            writer->folder, others[i]);
    }
    for (uint32_t i = 0; i < writer->shard_count; i++) {
        shard_name(writer, i, name);
        COH_TRY(coh_safetensors_path(writer->folder, name, path));
        if (access(path, F_OK) == 0)
            return coh_safetensors_operation_fail(-EEXIST, "", path);
    }
    return COH_OK;
}

/* ---- shards ---- */

/* The index after the last tensor of the shard that begins with tensor `begin`. */
static size_t shard_end(const coh_safetensors_tensor *tensors, size_t count, size_t begin)
{
    size_t end = begin;
    while (end < count && tensors[end].file == tensors[begin].file)
        end++;
    return end;
}

static coh_status next_shard_begin(coh_safetensors_folder_writer *writer)
{
    char path[PATH_MAX], name[SHARD_NAME_BYTES];
    uint32_t file = writer->begun_count;
    size_t begin = writer->next, end = shard_end(writer->tensors, writer->count, begin);
    shard_name(writer, file, name);
    COH_TRY(coh_safetensors_path(writer->folder, name, path));
    COH_TRY(coh_safetensors_writer_begin(writer->ops, path, writer->tensors + begin, end - begin,
                                         writer->metadata, writer->metadata_count,
                                         &writer->shards[file]));
    writer->next = end;
    writer->begun_count++;
    return COH_OK;
}

/* Checks the whole list; the names of each shard are checked with its header. */
static coh_status list_check(const coh_safetensors_tensor *tensors, size_t count,
                             uint32_t *out_shard_count)
{
    uint32_t file = 0;
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].file != file && (i == 0 || tensors[i].file != file + 1))
            return coh_fail(COH_ERR_ARGUMENT,
                            "tensor %zu is to go to shard %" PRIu32 " after one of shard %" PRIu32
                            ": shards follow one another from 0",
                            i, tensors[i].file, file);
        file = tensors[i].file;
    }
    *out_shard_count = file + 1;
    return coh_safetensors_list_check(tensors, count);
}

static coh_status prepare(coh_safetensors_folder_writer *writer)
{
    COH_TRY(list_check(writer->tensors, writer->count, &writer->shard_count));
    COH_TRY(folder_check(writer));
    COH_TRY(COH_ALLOC(writer->shard_count, &writer->shards));
    return next_shard_begin(writer);
}

coh_status coh_safetensors_folder_writer_begin(coh_file_ops *ops, const char *folder,
                                               const coh_safetensors_tensor *tensors, size_t count,
                                               const coh_safetensors_pair *metadata,
                                               size_t metadata_count,
                                               coh_safetensors_folder_writer **out_writer)
{
    *out_writer = NULL;
    if (!folder[0] || strlen(folder) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a path of %zu bytes cannot name a folder",
                        strlen(folder));
    coh_safetensors_folder_writer *writer;
    COH_TRY(COH_ALLOC(1, &writer));
    coh_file_ops_init(&writer->own_ops);
    writer->ops = ops ? ops : &writer->own_ops;
    writer->index_fd = -1;
    writer->tensors = tensors;
    writer->count = count;
    writer->metadata = metadata;
    writer->metadata_count = metadata_count;
    snprintf(writer->folder, PATH_MAX, "%s", folder);
    coh_status status = prepare(writer);
    if (status != COH_OK)
        coh_safetensors_folder_writer_destroy(writer);
    else
        *out_writer = writer;
    return status;
}

coh_status coh_safetensors_folder_writer_create(const char *folder,
                                                const coh_safetensors_tensor *tensors, size_t count,
                                                const coh_safetensors_pair *metadata,
                                                size_t metadata_count,
                                                coh_safetensors_folder_writer **out_writer)
{
    return coh_safetensors_folder_writer_begin(NULL, folder, tensors, count, metadata,
                                               metadata_count, out_writer);
}

static coh_status shard_finish(coh_safetensors_folder_writer *writer)
{
    return coh_safetensors_writer_finish(writer->shards[writer->begun_count - 1]);
}

coh_status coh_safetensors_folder_writer_add(coh_safetensors_folder_writer *writer,
                                             const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        coh_safetensors_writer *shard = writer->shards[writer->begun_count - 1];
        uint64_t missing = coh_safetensors_writer_missing(shard);
        if (missing == 0 && writer->begun_count < writer->shard_count) {
            COH_TRY(shard_finish(writer));
            COH_TRY(next_shard_begin(writer));
            continue;
        }
        /* The last shard's writer reports excess bytes. */
        size_t piece = missing > 0 && missing < bytes ? (size_t)missing : bytes;
        COH_TRY(coh_safetensors_writer_add(shard, from, piece));
        from += piece;
        bytes -= piece;
    }
    return COH_OK;
}

/* ---- the index ---- */

static coh_status index_make(const coh_safetensors_folder_writer *writer, coh_text *text)
{
    const coh_safetensors_tensor **by_name;
    const char *twice;
    char name[SHARD_NAME_BYTES];
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < writer->count; i++) {
        uint64_t bytes = 0;
        (void)coh_safetensors_measure(&writer->tensors[i], &bytes);
        COH_TRY(coh_bytes_add(total_bytes, bytes, &total_bytes));
    }
    COH_TRY(coh_safetensors_by_name(writer->tensors, writer->count, &by_name, &twice));
    coh_status status = coh_text_add(
        text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {\n",
        total_bytes);
    for (size_t i = 0; i < writer->count && status == COH_OK; i++) {
        shard_name(writer, by_name[i]->file, name);
        COH_TRY_GOTO(status, coh_text_add(text, "    "), done);
        COH_TRY_GOTO(status, coh_text_add_quoted(text, by_name[i]->name), done);
        COH_TRY_GOTO(status,
                     coh_text_add(text, ": \"%s\"%s\n", name, i + 1 < writer->count ? "," : ""),
                     done);
    }
    if (status == COH_OK)
        status = coh_text_add(text, "  }\n}\n");
done:
    coh_free((void *)by_name);
    return status;
}

/* Writes and flushes the whole index under its temporary name. */
static coh_status index_write(coh_safetensors_folder_writer *writer)
{
    char path[PATH_MAX];
    coh_text text = { 0 };
    coh_status status = COH_OK;
    int error;
    COH_TRY_GOTO(status, coh_safetensors_path(writer->folder, COH_SAFETENSORS_INDEX, path), done);
    COH_TRY_GOTO(status, index_make(writer, &text), done);
    COH_TRY_GOTO(status,
                 coh_safetensors_temporary_create(writer->ops, path, writer->index_temporary,
                                                  &writer->index_fd),
                 done);
    error = coh_file_write(writer->ops, writer->index_fd, text.data, text.bytes, 0);
    if (error == 0)
        error = coh_file_sync(writer->ops, writer->index_fd);
    if (error == 0) {
        error = coh_file_close(writer->ops, writer->index_fd);
        writer->index_fd = -1;
    }
    if (error != 0)
        status = coh_safetensors_operation_fail(error, "writing", writer->index_temporary);
done:
    coh_text_fini(&text);
    return status;
}

static coh_status index_publish(coh_safetensors_folder_writer *writer)
{
    char path[PATH_MAX];
    COH_TRY(coh_safetensors_path(writer->folder, COH_SAFETENSORS_INDEX, path));
    int error = coh_file_rename(writer->ops, writer->index_temporary, path);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "renaming to", path);
    writer->index_temporary[0] = '\0';
    memcpy(writer->index_path, path, sizeof(path));
    return coh_safetensors_folder_flush(writer->ops, writer->folder);
}

/* ---- size on disk ---- */

static coh_status shard_bytes_add(const coh_safetensors_tensor *tensors, size_t count,
                                  const coh_safetensors_pair *metadata, size_t metadata_count,
                                  uint64_t *bytes)
{
    coh_text header = { 0 };
    uint64_t data_bytes, file_bytes;
    coh_status status = coh_safetensors_header_write(tensors, count, metadata, metadata_count,
                                                     &header, &data_bytes);
    if (status == COH_OK)
        status = coh_bytes_add(data_bytes, header.bytes, &file_bytes);
    if (status == COH_OK)
        status = coh_bytes_add(*bytes, coh_bytes_round_page(file_bytes), bytes);
    coh_text_fini(&header);
    return status;
}

coh_status coh_safetensors_folder_bytes(const coh_safetensors_tensor *tensors, size_t count,
                                        const coh_safetensors_pair *metadata, size_t metadata_count,
                                        uint64_t *out_bytes)
{
    coh_safetensors_folder_writer list = { .tensors = tensors, .count = count };
    coh_text index = { 0 };
    *out_bytes = 0;
    COH_TRY(list_check(tensors, count, &list.shard_count));
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = shard_end(tensors, count, begin);
        COH_TRY(shard_bytes_add(tensors + begin, end - begin, metadata, metadata_count, out_bytes));
    }
    if (list.shard_count == 1)
        return COH_OK;
    const coh_status status = index_make(&list, &index);
    *out_bytes += coh_bytes_round_page(index.bytes);
    coh_text_fini(&index);
    return status;
}

/* ---- end ---- */

coh_status coh_safetensors_folder_writer_publish(coh_safetensors_folder_writer *writer)
{
    COH_TRY(shard_finish(writer));
    while (writer->begun_count <
           writer->shard_count) { /* all following tensors have no bytes, or are missing */
        COH_TRY(next_shard_begin(writer));
        COH_TRY(shard_finish(writer));
    }
    if (writer->shard_count > 1)
        COH_TRY(index_write(writer));
    for (uint32_t i = 0; i < writer->shard_count; i++)
        COH_TRY(coh_safetensors_writer_rename(writer->shards[i]));
    /* The shards' names must be durable before the index refers to them. */
    COH_TRY(coh_safetensors_folder_flush(writer->ops, writer->folder));
    if (writer->shard_count > 1)
        COH_TRY(index_publish(writer));
    for (uint32_t i = 0; i < writer->shard_count; i++)
        coh_safetensors_writer_keep(writer->shards[i]);
    writer->is_kept = 1;
    return COH_OK;
}

void coh_safetensors_folder_writer_destroy(coh_safetensors_folder_writer *writer)
{
    if (!writer)
        return;
    (void)coh_file_close(writer->ops, writer->index_fd);
    if (writer->index_path[0] && !writer->is_kept)
        (void)coh_file_unlink(writer->ops, writer->index_path);
    if (writer->index_temporary[0])
        (void)coh_file_unlink(writer->ops, writer->index_temporary);
    for (uint32_t i = 0; i < writer->begun_count; i++)
        coh_safetensors_writer_destroy(writer->shards[i]);
    coh_free((void *)writer->shards);
    coh_free(writer);
}
