/* Writes one file: the header, then data through a buffer, so that small tensors do not cause small
 * writes. Next: safetensors_layout.c makes the header, safetensors_shards.c writes a folder. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "models/safetensors_header.h"
#include "models/safetensors_writer.h"

/* 256 KiB: larger writes to a file are no faster. */
#define BUFFER_BYTES ((size_t)256 << 10)
/* Written bytes that may be dirty in the page cache: 8 MiB, so that the final flush is short. */
#define WRITE_BACK_BYTES ((uint64_t)8 << 20)
/* Names tried for the temporary file; some may be left by processes that died. */
#define TEMPORARY_TRIES 100

enum stage { STAGE_WRITING, STAGE_FINISHED, STAGE_NAMED, STAGE_KEPT };

struct coh_safetensors_writer {
    coh_file_ops own_ops, *ops;
    enum stage stage;
    int fd;
    char path[PATH_MAX], temporary[PATH_MAX]; /* temporary: "" until the file exists */
    uint8_t *buffer;
    size_t buffered_bytes;
    uint64_t total_bytes;   /* size of the file */
    uint64_t written_bytes; /* without what is in the buffer */
    uint64_t begun_bytes;   /* of those, writeback to disk was started */
};

coh_status coh_safetensors_operation_fail(int error, const char *what, const char *path)
{
    if (error == -EEXIST)
        return coh_fail(COH_ERR_ARGUMENT, "%.300s exists: give another name, or remove it", path);
    const char *remedy = error == -ENOSPC || error == -EDQUOT
                             ? "make room, or give another place"
                             : "give a place that can be written to";
    return coh_fail(COH_ERR_IO, "%s %.300s failed: %s: %s", what, path, strerror(-error), remedy);
}

coh_status coh_safetensors_folder_flush(coh_file_ops *ops, const char *folder)
{
    int error = coh_file_sync_folder(ops, folder);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "flushing folder", folder);
    return COH_OK;
}

/* ---- creation ---- */

coh_status coh_safetensors_temporary_create(coh_file_ops *ops, const char *path, char *out_name,
                                            int *out_fd)
{
    int fd = -EEXIST;
    for (int i = 0; i < TEMPORARY_TRIES && fd == -EEXIST; i++) {
        int length = snprintf(out_name, PATH_MAX, "%s.partial-%ld-%d", path, (long)getpid(), i);
        if (length >= PATH_MAX) {
            out_name[0] = '\0';
            return coh_fail(COH_ERR_ARGUMENT, "a model's path of %zu bytes is too long",
                            strlen(path));
        }
        fd = coh_file_create(ops, out_name);
    }
    if (fd < 0) {
        out_name[0] = '\0';
        return coh_safetensors_operation_fail(fd, "creating a file next to", path);
    }
    *out_fd = fd;
    return COH_OK;
}

static coh_status reserve(coh_safetensors_writer *writer)
{
    int error = coh_file_reserve(writer->ops, writer->fd, writer->total_bytes);
    if (error == -ENOSPC || error == -EDQUOT || error == -EFBIG)
        return coh_fail(COH_ERR_FULL,
                        "%.300s needs %" PRIu64 " bytes: %s: make room, or give another place",
                        writer->path, writer->total_bytes, strerror(-error));
    /* Ignored if the file system cannot reserve space; a full disk is then found later. */
    if (error != 0 && error != -EOPNOTSUPP && error != -EINVAL)
        return coh_safetensors_operation_fail(error, "reserving space for", writer->path);
    return COH_OK;
}

static coh_status buffer_flush(coh_safetensors_writer *writer)
{
    int error = coh_file_write(writer->ops, writer->fd, writer->buffer, writer->buffered_bytes,
                               writer->written_bytes);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "writing", writer->temporary);
    writer->written_bytes += writer->buffered_bytes;
    writer->buffered_bytes = 0;
    if (writer->written_bytes - writer->begun_bytes >= WRITE_BACK_BYTES) {
        coh_file_write_back(writer->fd, writer->written_bytes - writer->begun_bytes,
                            writer->begun_bytes);
        writer->begun_bytes = writer->written_bytes;
    }
    return COH_OK;
}

/* Writes header or data bytes through the buffer, in pieces that fill it. */
static coh_status bytes_add(coh_safetensors_writer *writer, const void *bytes, size_t byte_count)
{
    const uint8_t *from = bytes;
    while (byte_count > 0) {
        size_t room = BUFFER_BYTES - writer->buffered_bytes;
        size_t piece = byte_count < room ? byte_count : room;
        memcpy(writer->buffer + writer->buffered_bytes, from, piece);
        writer->buffered_bytes += piece;
        from += piece;
        byte_count -= piece;
        if (writer->buffered_bytes == BUFFER_BYTES)
            COH_TRY(buffer_flush(writer));
    }
    return COH_OK;
}

static coh_status prepare(coh_safetensors_writer *writer, const coh_text *header,
                          uint64_t data_bytes)
{
    if (access(writer->path, F_OK) == 0)
        return coh_safetensors_operation_fail(-EEXIST, "", writer->path);
    COH_TRY(COH_ALLOC(BUFFER_BYTES, &writer->buffer));
    writer->total_bytes = header->bytes + data_bytes;
    COH_TRY(coh_safetensors_temporary_create(writer->ops, writer->path, writer->temporary,
                                             &writer->fd));
    COH_TRY(reserve(writer));
    return bytes_add(writer, header->data, header->bytes);
}

coh_status coh_safetensors_writer_begin(coh_file_ops *ops, const char *path,
                                        const coh_safetensors_tensor *tensors, size_t count,
                                        const coh_safetensors_pair *metadata, size_t metadata_count,
                                        coh_safetensors_writer **out_writer)
{
    *out_writer = NULL;
    if (!path[0] || strlen(path) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a path of %zu bytes cannot name a file", strlen(path));
    coh_safetensors_writer *writer;
    COH_TRY(COH_ALLOC(1, &writer));
    writer->ops = ops;
    writer->fd = -1;
    snprintf(writer->path, PATH_MAX, "%s", path);
    coh_text header = { 0 };
    uint64_t data_bytes;
    coh_status status = coh_safetensors_header_write(tensors, count, metadata, metadata_count,
                                                     &header, &data_bytes);
    if (status == COH_OK)
        status = prepare(writer, &header, data_bytes);
    coh_text_fini(&header);
    if (status != COH_OK)
        coh_safetensors_writer_destroy(writer);
    else
        *out_writer = writer;
    return status;
}

coh_status coh_safetensors_writer_create(const char *path, const coh_safetensors_tensor *tensors,
                                         size_t count, const coh_safetensors_pair *metadata,
                                         size_t metadata_count, coh_safetensors_writer **out_writer)
{
    coh_file_ops ops;
    coh_file_ops_init(&ops);
    COH_TRY(coh_safetensors_writer_begin(&ops, path, tensors, count, metadata, metadata_count,
                                         out_writer));
    (*out_writer)->own_ops = ops;
    (*out_writer)->ops = &(*out_writer)->own_ops;
    return COH_OK;
}

/* ---- data ---- */

uint64_t coh_safetensors_writer_missing(const coh_safetensors_writer *writer)
{
    return writer->total_bytes - writer->written_bytes - writer->buffered_bytes;
}

coh_status coh_safetensors_writer_add(coh_safetensors_writer *writer, const void *data,
                                      size_t bytes)
{
    uint64_t missing = coh_safetensors_writer_missing(writer);
    if (writer->stage != STAGE_WRITING || bytes > missing)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%.300s has room for %" PRIu64 " more bytes of data, %zu were given",
                        writer->path, missing, bytes);
    return bytes_add(writer, data, bytes);
}

/* ---- end ---- */

coh_status coh_safetensors_writer_finish(coh_safetensors_writer *writer)
{
    uint64_t missing = coh_safetensors_writer_missing(writer);
    if (writer->stage != STAGE_WRITING || missing != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%.300s cannot be finished: %" PRIu64 " bytes of data are missing",
                        writer->path, missing);
    COH_TRY(buffer_flush(writer));
    int error = coh_file_sync(writer->ops, writer->fd);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "flushing", writer->temporary);
    int fd = writer->fd;
    writer->fd = -1;
    error = coh_file_close(writer->ops, fd);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "closing", writer->temporary);
    coh_free(writer->buffer);
    writer->buffer = NULL;
    writer->stage = STAGE_FINISHED;
    return COH_OK;
}

coh_status coh_safetensors_writer_rename(coh_safetensors_writer *writer)
{
    if (writer->stage != STAGE_FINISHED)
        return coh_fail(COH_ERR_ARGUMENT, "%.300s cannot be published: it is not finished",
                        writer->path);
    int error = coh_file_rename(writer->ops, writer->temporary, writer->path);
    if (error != 0)
        return coh_safetensors_operation_fail(error, "renaming to", writer->path);
    writer->stage = STAGE_NAMED;
    return COH_OK;
}

void coh_safetensors_writer_keep(coh_safetensors_writer *writer)
{
    writer->stage = STAGE_KEPT;
}

coh_status coh_safetensors_writer_publish(coh_safetensors_writer *writer)
{
    char folder[PATH_MAX];
    COH_TRY(coh_safetensors_writer_rename(writer));
    coh_file_parent(writer->path, folder);
    COH_TRY(coh_safetensors_folder_flush(writer->ops, folder));
    coh_safetensors_writer_keep(writer);
    return COH_OK;
}

void coh_safetensors_writer_destroy(coh_safetensors_writer *writer)
{
    if (!writer)
        return;
    (void)coh_file_close(writer->ops, writer->fd);
    if (writer->stage == STAGE_NAMED)
        (void)coh_file_unlink(writer->ops, writer->path);
    else if (writer->stage != STAGE_KEPT && writer->temporary[0])
        (void)coh_file_unlink(writer->ops, writer->temporary);
    coh_free(writer->buffer);
    coh_free(writer);
}
