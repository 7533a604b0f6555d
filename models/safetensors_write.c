/* Writes the safetensors files of a folder in the making: shard after shard, each through one
 * buffer so that small tensors do not cause small writes, then the index. Nothing is renamed or
 * removed here, since folder_place.c does that for the folder as a whole. Next:
 * safetensors_layout.c makes the headers, export.c is the caller. */
#include "models/safetensors_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/plural.h"
#include "models/safetensors_header.h"

/* 256 KiB: larger writes to a file are no faster. */
#define BUFFER_BYTES ((size_t)256 << 10)
/* Written bytes that may be dirty in the page cache: 8 MiB, so that the final flush is short. */
#define WRITE_BACK_BYTES ((uint64_t)8 << 20)

struct coh_safetensors_writer {
    coh_folder_place *place;
    const char *base;
    coh_safetensors_list list;
    size_t next; /* the first tensor of the next shard */
    uint32_t shard_count, begun_count;

    /* The current shard. */
    int fd; /* -1: none is open */
    char path[PATH_MAX];
    uint8_t *buffer;
    size_t buffered_bytes;
    uint64_t total_bytes;   /* size of the file */
    uint64_t written_bytes; /* without what is in the buffer */
    uint64_t begun_bytes;   /* of those, writeback to disk was started */
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

/* ---- lists ---- */

/* The name of one shard; SHARD_NAME_BYTES has room for a short base and two numbers of ten
 * digits. */
#define SHARD_NAME_BYTES 80
static void shard_name(const char *base, uint32_t file, uint32_t count, char *name)
{
    if (count == 1)
        snprintf(name, SHARD_NAME_BYTES, "%s.safetensors", base);
    else
        snprintf(name, SHARD_NAME_BYTES, "%s-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", base,
                 file + 1, count);
}

/* The part of the list that goes into the shard of tensor `begin`. */
static coh_safetensors_list shard_at(const coh_safetensors_list *list, size_t begin)
{
    coh_safetensors_list shard = *list;
    size_t end = begin;
    while (end < list->count && list->tensors[end].file == list->tensors[begin].file)
        end++;
    shard.tensors = list->tensors + begin;
    shard.count = end - begin;
    return shard;
}

/* Checks the whole list; the names of each shard are checked with its header. */
static coh_status list_check(const coh_safetensors_list *list, uint32_t *out_shard_count)
{
    uint32_t file = 0;
    for (size_t i = 0; i < list->count; i++) {
        const uint32_t next = list->tensors[i].file;
        if (next != file && (i == 0 || next != file + 1))
            return coh_fail(COH_ERR_ARGUMENT,
                            "tensor %zu is to go to shard %" PRIu32 " after one of shard %" PRIu32
                            ": shards follow one another from 0",
                            i, next, file);
        file = next;
    }
    *out_shard_count = file + 1;
    return coh_safetensors_list_check(list->tensors, list->count);
}

static coh_status index_make(const coh_safetensors_list *list, const char *base,
                             uint32_t shard_count, coh_text *text)
{
    const coh_safetensors_tensor **by_name;
    const char *twice;
    char name[SHARD_NAME_BYTES];
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint64_t bytes = 0;
        (void)coh_safetensors_measure(&list->tensors[i], &bytes);
        COH_TRY(coh_bytes_add(total_bytes, bytes, &total_bytes));
    }
    COH_TRY(coh_safetensors_by_name(list->tensors, list->count, &by_name, &twice));
    coh_status status = coh_text_add(
        text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {\n",
        total_bytes);
    for (size_t i = 0; i < list->count && status == COH_OK; i++) {
        shard_name(base, by_name[i]->file, shard_count, name);
        COH_TRY_GOTO(status, coh_text_add(text, "    "), done);
        COH_TRY_GOTO(status, coh_text_add_quoted(text, by_name[i]->name), done);
        COH_TRY_GOTO(
            status, coh_text_add(text, ": \"%s\"%s\n", name, i + 1 < list->count ? "," : ""), done);
    }
    if (status == COH_OK)
        status = coh_text_add(text, "  }\n}\n");
done:
    coh_free((void *)by_name);
    return status;
}

/* ---- one shard ---- */

static coh_status reserve(coh_safetensors_writer *writer)
{
    int error = coh_file_reserve(&writer->place->ops, writer->fd, writer->total_bytes);
    if (error == -ENOSPC || error == -EDQUOT || error == -EFBIG)
        return coh_fail(COH_ERR_FULL, "%.300s needs %" PRIu64 " bytes: %s: %s", writer->path,
                        writer->total_bytes, strerror(-error), coh_file_remedy(error));
    /* Ignored if the file system cannot reserve space; a full disk is then found later. */
    if (error != 0 && error != -EOPNOTSUPP && error != -EINVAL)
        return coh_folder_place_fail(error, "reserving space for", writer->path);
    return COH_OK;
}

static coh_status buffer_flush(coh_safetensors_writer *writer)
{
    int error = coh_file_write(&writer->place->ops, writer->fd, writer->buffer,
                               writer->buffered_bytes, writer->written_bytes);
    if (error != 0)
        return coh_folder_place_fail(error, "writing", writer->path);
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

static coh_status shard_begin(coh_safetensors_writer *writer)
{
    char name[SHARD_NAME_BYTES];
    coh_text header = { 0 };
    uint64_t data_bytes;
    coh_status status;
    const coh_safetensors_list shard = shard_at(&writer->list, writer->next);
    shard_name(writer->base, writer->begun_count, writer->shard_count, name);
    COH_TRY_GOTO(status, coh_safetensors_header_write(&shard, &header, &data_bytes), done);
    COH_TRY_GOTO(status, coh_folder_place_create(writer->place, name, writer->path, &writer->fd),
                 done);
    writer->total_bytes = header.bytes + data_bytes;
    writer->written_bytes = writer->begun_bytes = 0;
    writer->next += shard.count;
    writer->begun_count++;
    COH_TRY_GOTO(status, reserve(writer), done);
    status = bytes_add(writer, header.data, header.bytes);
done:
    coh_text_fini(&header);
    return status;
}

/* Bytes of the current shard's data that are still missing. */
static uint64_t missing_bytes(const coh_safetensors_writer *writer)
{
    return writer->total_bytes - writer->written_bytes - writer->buffered_bytes;
}

static coh_status shard_finish(coh_safetensors_writer *writer)
{
    const int fd = writer->fd;
    if (missing_bytes(writer) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%.300s cannot be finished: it lacks %" PRIu64 " byte%s of data",
                        writer->path, missing_bytes(writer), COH_PLURAL_S(missing_bytes(writer)));
    COH_TRY(buffer_flush(writer));
    writer->fd = -1;
    return coh_folder_place_close(writer->place, fd, 0, writer->path);
}

/* ---- the folder's files ---- */

static coh_status prepare(coh_safetensors_writer *writer)
{
    COH_TRY(list_check(&writer->list, &writer->shard_count));
    COH_TRY(COH_ALLOC(BUFFER_BYTES, &writer->buffer));
    return shard_begin(writer);
}

coh_status coh_safetensors_writer_create(coh_folder_place *place, const char *base,
                                         const coh_safetensors_list *list,
                                         coh_safetensors_writer **out_writer)
{
    *out_writer = NULL;
    coh_safetensors_writer *writer;
    COH_TRY(COH_ALLOC(1, &writer));
    writer->place = place;
    writer->base = base;
    writer->list = *list;
    writer->fd = -1;
    coh_status status = prepare(writer);
    if (status != COH_OK)
        coh_safetensors_writer_destroy(writer);
    else
        *out_writer = writer;
    return status;
}

coh_status coh_safetensors_writer_add(coh_safetensors_writer *writer, const void *data,
                                      size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        const uint64_t missing = missing_bytes(writer);
        if (missing == 0 && writer->begun_count < writer->shard_count) {
            COH_TRY(shard_finish(writer));
            COH_TRY(shard_begin(writer));
            continue;
        }
        if (missing == 0)
            return coh_fail(COH_ERR_ARGUMENT,
                            "%.300s has room for %" PRIu64 " more bytes of data, %zu were given",
                            writer->path, missing, bytes);
        const size_t piece = missing < bytes ? (size_t)missing : bytes;
        COH_TRY(bytes_add(writer, from, piece));
        from += piece;
        bytes -= piece;
    }
    return COH_OK;
}

coh_status coh_safetensors_writer_finish(coh_safetensors_writer *writer)
{
    char name[SHARD_NAME_BYTES];
    coh_text text = { 0 };
    COH_TRY(shard_finish(writer));
    while (writer->begun_count < writer->shard_count) { /* no bytes follow, or they are missing */
        COH_TRY(shard_begin(writer));
        COH_TRY(shard_finish(writer));
    }
    if (writer->shard_count == 1)
        return COH_OK;
    snprintf(name, sizeof(name), "%s.safetensors.index.json", writer->base);
    coh_status status = index_make(&writer->list, writer->base, writer->shard_count, &text);
    if (status == COH_OK)
        status = coh_folder_place_file(writer->place, name, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

void coh_safetensors_writer_destroy(coh_safetensors_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        (void)coh_file_close(&writer->place->ops, writer->fd);
    coh_free(writer->buffer);
    coh_free(writer);
}

/* ---- size on disk ---- */

static coh_status shard_bytes_add(const coh_safetensors_list *shard, uint64_t *bytes)
{
    coh_text header = { 0 };
    uint64_t data_bytes, file_bytes;
    coh_status status = coh_safetensors_header_write(shard, &header, &data_bytes);
    if (status == COH_OK)
        status = coh_bytes_add(data_bytes, header.bytes, &file_bytes);
    if (status == COH_OK)
        status = coh_bytes_add(*bytes, coh_bytes_round_page(file_bytes), bytes);
    coh_text_fini(&header);
    return status;
}

coh_status coh_safetensors_disk_bytes(const coh_safetensors_list *list, const char *base,
                                      uint64_t *out_bytes)
{
    uint32_t shard_count;
    coh_text index = { 0 };
    *out_bytes = 0;
    COH_TRY(list_check(list, &shard_count));
    for (size_t begin = 0; begin < list->count;) {
        const coh_safetensors_list shard = shard_at(list, begin);
        COH_TRY(shard_bytes_add(&shard, out_bytes));
        begin += shard.count;
    }
    if (shard_count == 1)
        return COH_OK;
    const coh_status status = index_make(list, base, shard_count, &index);
    *out_bytes += coh_bytes_round_page(index.bytes);
    coh_text_fini(&index);
    return status;
}
