/* Writes token files atomically: to a temporary file next to the final path, flushed, then renamed.
 * Next: token_file.h for the format, token_file.c for reading. */
#include "text/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* a hash state that needs no allocation */
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file_lock.h"
#include "base/file_ops.h"

#define BUFFER_BYTES (1u << 20)

coh_status coh_token_output_check(const char *path, const char *in_path, const struct stat *in)
{
    static const char magic[8] = "COHTOKEN";
    char head[sizeof(magic)] = { 0 };
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0)
        return COH_OK; /* writing it reports other errors */
    if (facts.st_dev == in->st_dev && facts.st_ino == in->st_ino)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is the input %s, which the token file would replace: give another name",
                        path, in_path);
    FILE *file = fopen(path, "rbe");
    const size_t got = file ? fread(head, 1, sizeof(head), file) : 0;
    if (file)
        fclose(file);
    if (got == sizeof(head) && memcmp(head, magic, sizeof(head)) == 0)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s is there already and is no token file: give another name, or remove it",
                    path);
}

struct coh_token_writer {
    XXH3_state_t *hash;
    void *hash_memory; /* not aligned; `hash` points into it */
    coh_token_header header;
    coh_file_ops ops;
    int fd, is_published;
    char *path;
    char temporary[PATH_MAX];
    uint8_t *buffer;
    size_t buffered_bytes;
    uint64_t written_bytes; /* including the header */
    uint64_t target_count;
};

static coh_status write_bytes(coh_token_writer *writer, uint64_t offset, const uint8_t *bytes,
                              size_t byte_count)
{
    const int error = coh_file_write(&writer->ops, writer->fd, bytes, byte_count, offset);
    if (error)
        return coh_fail(COH_ERR_IO, "writing %zu bytes at %" PRIu64 " of %s failed: %s: %s",
                        byte_count, offset, writer->temporary, strerror(-error),
                        coh_file_remedy(error));
    return COH_OK;
}

static coh_status flush_buffer(coh_token_writer *writer)
{
    XXH3_64bits_update(writer->hash, writer->buffer, writer->buffered_bytes);
    COH_TRY(write_bytes(writer, writer->written_bytes, writer->buffer, writer->buffered_bytes));
    writer->written_bytes += writer->buffered_bytes;
    writer->buffered_bytes = 0;
    return COH_OK;
}

static coh_status prepare(coh_token_writer *writer, const char *path)
{
    COH_TRY(coh_alloc_text(path, &writer->path));
    COH_TRY(coh_alloc(BUFFER_BYTES, 1, (void **)&writer->buffer));
    COH_TRY(coh_alloc(sizeof(XXH3_state_t) + 64, 1, &writer->hash_memory));
    writer->hash = (XXH3_state_t *)(((uintptr_t)writer->hash_memory + 63) & ~(uintptr_t)63);
    XXH3_64bits_reset(writer->hash);
    writer->fd = coh_file_lock_partial(path, writer->temporary, sizeof(writer->temporary));
    if (writer->fd == -ENAMETOOLONG)
        return coh_fail(COH_ERR_ARGUMENT, "a token file's path of %zu bytes is too long",
                        strlen(path));
    if (writer->fd < 0)
        return coh_fail(COH_ERR_IO,
                        "%s cannot be written: no file can be made in its folder: %s: give another",
                        path, strerror(-writer->fd));
    writer->written_bytes = COH_TOKEN_HEADER_BYTES;
    return COH_OK;
}

coh_status coh_token_writer_create(const char *path, int64_t vocabulary, uint64_t identity,
                                   coh_token_writer **out_writer)
{
    *out_writer = NULL;
    coh_token_writer *writer;
    COH_TRY(COH_ALLOC(1, &writer));
    writer->fd = -1;
    writer->ops.calls = &coh_system_file_calls;
    writer->header = (coh_token_header){ .id_bytes = coh_token_id_bytes(vocabulary, 0),
                                         .vocabulary = (uint64_t)vocabulary,
                                         .identity = identity };
    coh_status status = prepare(writer, path);
    if (status != COH_OK)
        coh_token_writer_destroy(writer);
    else
        *out_writer = writer;
    return status;
}

void coh_token_writer_mark(coh_token_writer *writer, uint32_t window)
{
    writer->header.has_mask = 1;
    writer->header.window = window;
    writer->header.id_bytes = coh_token_id_bytes((int64_t)writer->header.vocabulary, 1);
}

void coh_token_writer_mark_documents(coh_token_writer *writer)
{
    writer->header.has_documents = 1;
    writer->header.id_bytes = coh_token_id_bytes((int64_t)writer->header.vocabulary, 2);
}

coh_status coh_token_writer_add(coh_token_writer *writer, const int32_t *ids, const uint8_t *marks,
                                size_t count)
{
    size_t id_bytes = writer->header.id_bytes;
    const uint32_t mark = UINT32_C(1) << (8 * id_bytes - 1);
    for (size_t i = 0; i < count; i++) {
        if (writer->buffered_bytes + id_bytes > BUFFER_BYTES)
            COH_TRY(flush_buffer(writer));
        uint8_t *bytes = writer->buffer + writer->buffered_bytes;
        const int is_target = !marks || (marks[i] & COH_TOKEN_COUNTS) != 0;
        const int begins = marks && (marks[i] & COH_TOKEN_BEGINS) != 0;
        uint32_t stored = (uint32_t)ids[i] | (is_target ? 0 : mark) | (begins ? mark >> 1 : 0);
        writer->target_count += (uint64_t)is_target;
        for (size_t k = 0; k < id_bytes; k++)
            bytes[k] = (uint8_t)(stored >> (8 * k));
        writer->buffered_bytes += id_bytes;
    }
    writer->header.count += count;
    return COH_OK;
}

coh_status coh_token_writer_finish(coh_token_writer *writer)
{
    uint8_t tail[8];
    COH_TRY(flush_buffer(writer));
    XXH3_64bits_update(writer->hash, tail, coh_token_header_tail(&writer->header, tail));
    writer->header.hash = XXH3_64bits_digest(writer->hash);
    uint8_t bytes[COH_TOKEN_HEADER_BYTES];
    coh_token_header_write(&writer->header, bytes);
    COH_TRY(write_bytes(writer, 0, bytes, sizeof(bytes)));
    if (fsync(writer->fd) != 0)
        return coh_fail(COH_ERR_IO, "flushing %s failed: %s: %s", writer->temporary,
                        strerror(errno), coh_file_remedy(-errno));
    const int error = coh_file_lock_close_copy(writer->fd);
    if (error)
        return coh_fail(COH_ERR_IO, "closing %s failed: %s", writer->temporary, strerror(-error));
    return COH_OK;
}

coh_status coh_token_writer_publish(coh_token_writer *writer)
{
    if (rename(writer->temporary, writer->path) != 0)
        return coh_fail(COH_ERR_IO, "%s cannot be replaced by the finished file: %s: give another",
                        writer->path, strerror(errno));
    writer->is_published = 1;
    const int error = coh_file_sync_parent(&writer->ops, writer->path);
    if (error)
        return coh_fail(COH_ERR_IO, "flushing the folder of %s failed: %s", writer->path,
                        strerror(-error));
    return COH_OK;
}

uint64_t coh_token_writer_count(const coh_token_writer *writer)
{
    return writer->header.count;
}

uint64_t coh_token_writer_target_count(const coh_token_writer *writer)
{
    return writer->target_count;
}

void coh_token_writer_destroy(coh_token_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0 && !writer->is_published)
        unlink(writer->temporary); /* while its lock keeps other writers off the name */
    if (writer->fd >= 0)
        close(writer->fd);
    coh_free(writer->hash_memory);
    coh_free(writer->buffer);
    coh_free(writer->path);
    coh_free(writer);
}
