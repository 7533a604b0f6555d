/* Writes a checkpoint into <path>.partial and publishes it by a rename. Everything is allocated and
 * sized at create, so that a save during training allocates nothing. Next: checkpoint_writer.h,
 * then base/file_ops.h for the file operations. */
#include "engine/checkpoint_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "engine/checkpoint_frozen.h"
#include "engine/checkpoint_manifest.h"
#include "kernels/kernels.h"

/* Elements of a frozen tensor that are rounded and written at once: 512 KiB of bf16. */
enum { FROZEN_PIECE = 1 << 18 };

struct coh_checkpoint_writer {
    coh_logical_hash *hash;
    const coh_logical_table *table;
    coh_file_ops ops;
    uint64_t *offset[COH_LOGICAL_ROWS]; /* of each tensor in the row's file */
    uint64_t file_bytes[COH_FILE_MANIFEST];
    int fd[COH_FILE_COUNT];
    int under_way;
    int lock_fd; /* of the folder `partial`, locked while the save is under way; -1: not */
    char path[PATH_MAX], parent[PATH_MAX], partial[PATH_MAX];
    char name[PATH_MAX + sizeof(coh_file_name)]; /* scratch: one file's path */
    char *note;
    coh_text manifest; /* fixed */

    /* The file of frozen tensors whose grains `hash` has, if its folder is not "": that of the
     * checkpoint saved or taken last. */
    coh_frozen_file frozen;
    coh_frozen_file sealed; /* that of the checkpoint under way */
    int is_linked;          /* 1: the checkpoint under way has `frozen` */
    int link_error;         /* see coh_checkpoint_writer_link_error */
    uint16_t *piece;        /* FROZEN_PIECE; NULL: frozen tensors are stored as f32 */
};

static coh_status manifest_write(coh_checkpoint_writer *writer, const coh_checkpoint_seal *seal,
                                 uint64_t hash)
{
    coh_manifest manifest = { .step = seal->step,
                              .applied_count = seal->applied_count,
                              .grain_elements = COH_GRAIN_ELEMENTS,
                              .numeric_fingerprint = seal->numeric_fingerprint,
                              .grad_norm = seal->grad_norm,
                              .hash = hash,
                              .table = *writer->table,
                              .note_json = writer->note };
    memcpy(manifest.file_bytes, writer->file_bytes, sizeof(manifest.file_bytes));
    writer->manifest.bytes = 0;
    return coh_manifest_add_text(&manifest, &writer->manifest) == COH_OK
               ? COH_OK
               : coh_fail_prefix(COH_ERR_INTERNAL, "manifest.json");
}

/* ---- create and destroy ---- */

/* Checks that names survive the reader's library unchanged. */
static coh_status names_check(coh_checkpoint_writer *writer)
{
    for (uint32_t i = 0; i < writer->table->tensor_count; i++) {
        const char *name = writer->table->tensors[i].name;
        coh_json_writer json = { .text = &writer->manifest };
        writer->manifest.bytes = 0;
        coh_json_begin(&json, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(&json, "name", name);
        coh_json_end(&json);
        if (coh_checkpoint_note_check(writer->manifest.data) != COH_OK)
            return coh_fail(COH_ERR_ARGUMENT,
                            "tensor %" PRIu32 ": its name is not UTF-8: rename it", i);
    }
    return COH_OK;
}

static coh_status writer_fill(coh_checkpoint_writer *writer)
{
    const coh_logical_table *table = writer->table;
    for (int row = 0; row <= table->stream_count; row++) {
        COH_TRY(COH_ALLOC(table->tensor_count, &writer->offset[row]));
        COH_TRY(coh_checkpoint_offsets(table, row, writer->offset[row], &writer->file_bytes[row]));
    }
    if (table->frozen != COH_FROZEN_IN_WORK)
        COH_TRY(coh_checkpoint_offsets(table, COH_FILE_FROZEN, writer->offset[COH_FILE_WORK],
                                       &writer->file_bytes[COH_FILE_FROZEN]));
    if (table->frozen == COH_FROZEN_BF16)
        COH_TRY(COH_ALLOC(FROZEN_PIECE, &writer->piece));
    coh_logical_hash_rows(writer->hash, &writer->file_bytes[COH_FILE_HASHES]);
    /* 224: a tensor's line without names of tensor and streams: five dimensions of 20 characters,
     * an optimizer of 15, words and commas. A character of a tensor's name may become six (\u001f).
     * 20: a stream's name of 15 characters with quotes and comma. 160: a stream's line and file.
     * 1024: all other text. */
    writer->manifest.capacity =
        1024 + COH_CHECKPOINT_NOTE_BYTES + 160 * (size_t)table->stream_count;
    for (uint32_t i = 0; i < table->tensor_count; i++)
        writer->manifest.capacity +=
            224 + 6 * strlen(table->tensors[i].name) + 20 * (size_t)table->tensors[i].stream_count;
    writer->manifest.is_fixed = 1;
    COH_TRY(COH_ALLOC(writer->manifest.capacity, &writer->manifest.data));
    COH_TRY(COH_ALLOC(COH_CHECKPOINT_NOTE_BYTES, &writer->note));
    return names_check(writer);
}

coh_status coh_checkpoint_writer_create(const coh_logical_table *table, coh_pool *pool,
                                        coh_checkpoint_writer **out_writer)
{
    coh_status status = COH_OK;
    coh_checkpoint_writer *writer = NULL;
    *out_writer = NULL;
    COH_TRY(COH_ALLOC(1, &writer));
    for (int file = 0; file < COH_FILE_COUNT; file++)
        writer->fd[file] = -1;
    writer->lock_fd = -1;
    coh_file_ops_init(&writer->ops);
    writer->table = table;
    if (table->tensor_count == 0)
        COH_TRY_GOTO(status, coh_fail(COH_ERR_ARGUMENT, "a checkpoint of no tensors"), done);
    COH_TRY_GOTO(status, coh_logical_hash_create(table, pool, &writer->hash), done);
    COH_TRY_GOTO(status, writer_fill(writer), done);
    *out_writer = writer;
    writer = NULL;
done:
    coh_checkpoint_writer_destroy(writer);
    return status;
}

void coh_checkpoint_writer_destroy(coh_checkpoint_writer *writer)
{
    if (!writer)
        return;
    coh_checkpoint_writer_abort(writer);
    coh_logical_hash_destroy(writer->hash);
    for (int row = 0; row < COH_LOGICAL_ROWS; row++)
        coh_free(writer->offset[row]);
    coh_free(writer->note);
    coh_free(writer->manifest.data);
    coh_free(writer->piece);
    coh_free(writer);
}

uint64_t coh_checkpoint_writer_bytes(const coh_checkpoint_writer *writer)
{
    uint64_t total = coh_bytes_round_page(writer->manifest.capacity) + COH_PAGE_BYTES; /* folder */
    for (int file = 0; file < COH_FILE_MANIFEST; file++)
        total += coh_bytes_round_page(writer->file_bytes[file]);
    return total;
}

uint64_t coh_checkpoint_writer_frozen_bytes(const coh_checkpoint_writer *writer)
{
    return coh_bytes_round_page(writer->file_bytes[COH_FILE_FROZEN]);
}

/* ---- frozen tensors ---- */

void coh_checkpoint_writer_forget_frozen(coh_checkpoint_writer *writer)
{
    writer->frozen.folder[0] = '\0';
}

int coh_checkpoint_writer_take_frozen(coh_checkpoint_writer *writer,
                                      const coh_checkpoint *checkpoint)
{
    return coh_checkpoint_frozen_get(checkpoint, writer->table, writer->hash, &writer->frozen);
}

int coh_checkpoint_writer_has_frozen(const coh_checkpoint_writer *writer)
{
    return writer->is_linked;
}

int coh_checkpoint_writer_link_error(const coh_checkpoint_writer *writer)
{
    return writer->link_error;
}

/* ---- a save ---- */

static const char *file_path(coh_checkpoint_writer *writer, int file)
{
    snprintf(writer->name, sizeof(writer->name), "%s/%s", writer->partial,
             coh_checkpoint_file_name(writer->table, file).text);
    return writer->name;
}

static coh_status paths_set(coh_checkpoint_writer *writer, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length + sizeof(".partial") > sizeof(writer->path))
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint path: %zu characters, must be 1 to %zu",
                        length, sizeof(writer->path) - sizeof(".partial"));
    memcpy(writer->path, path, length);
    writer->path[length] = '\0';
    memcpy(writer->partial, writer->path, length);
    strcpy(writer->partial + length, ".partial");
    coh_file_parent(writer->path, writer->parent);
    struct stat facts;
    if (lstat(writer->path, &facts) == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "checkpoint %s exists already: remove it or save under another name",
                        writer->path);
    return COH_OK;
}

/* Creates a file and reserves its space. */
static coh_status file_create(coh_checkpoint_writer *writer, int file)
{
    const char *name = file_path(writer, file);
    int fd = coh_file_create(&writer->ops, name);
    if (fd < 0)
        return coh_file_fail(fd, "create", name);
    writer->fd[file] = fd;
    const int error = coh_file_reserve(&writer->ops, fd, writer->file_bytes[file]);
    if (error == 0)
        return COH_OK;
    const uint64_t linked = writer->is_linked ? coh_checkpoint_writer_frozen_bytes(writer) : 0;
    return coh_fail_prefix(coh_file_fail(error, "reserve space for", name),
                           "the checkpoint needs %" PRIu64 " bytes",
                           coh_checkpoint_writer_bytes(writer) - linked);
}

/* Links the known file of frozen tensors into the folder, and keeps the hashes of its grains. If
 * that fails, it is forgotten. */
static void frozen_link(coh_checkpoint_writer *writer)
{
    if (writer->frozen.folder[0] == '\0')
        return;
    const int fd =
        coh_frozen_file_link(&writer->frozen, &writer->ops, file_path(writer, COH_FILE_FROZEN));
    if (fd < 0) {
        writer->link_error = fd;
        coh_checkpoint_writer_forget_frozen(writer);
        return;
    }
    writer->fd[COH_FILE_FROZEN] = fd;
    writer->is_linked = 1;
}

/* ---- the folder under way ---- */

/* Opens and locks the folder `partial`; *out_is_held: another save has it. *out_fd is -1 if there
 * is no such folder, and without a lock where the file system has none. */
static void folder_lock(const coh_checkpoint_writer *writer, int *out_fd, int *out_is_held)
{
    struct stat opened, named;
    const int fd = open(writer->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *out_fd = fd;
    *out_is_held = 0;
    if (fd < 0)
        return;
    *out_is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    /* its name may have gone to another folder between the two calls */
    if (!*out_is_held && (fstat(fd, &opened) != 0 || lstat(writer->partial, &named) != 0 ||
                          opened.st_dev != named.st_dev || opened.st_ino != named.st_ino))
        *out_is_held = 1;
    if (*out_is_held) {
        close(fd);
        *out_fd = -1;
    }
}

static void folder_unlock(int fd)
{
    if (fd < 0)
        return;
    (void)flock(fd, LOCK_UN); /* a forked child may have it, too */
    close(fd);
}

static coh_status refuse_second(const coh_checkpoint_writer *writer)
{
    return coh_fail(
        COH_ERR_ARGUMENT,
        "another save to %s is under way, of this process or of another one: save under "
        "another name, or wait for it",
        writer->path);
}

/* Makes the folder `partial` for this save alone. One that nobody has locked is the rest of a save
 * that was killed. */
static coh_status folder_take(coh_checkpoint_writer *writer)
{
    int rest, is_held;
    struct stat facts;
    folder_lock(writer, &rest, &is_held);
    if (is_held)
        return refuse_second(writer);
    int error = coh_checkpoint_unlink(&writer->ops, writer->partial);
    folder_unlock(rest);
    if (error)
        return coh_file_fail(error, "remove the rest of an earlier save,", writer->partial);
    error = coh_file_mkdir(&writer->ops, writer->partial);
    if (error == -EEXIST)
        return refuse_second(writer);
    if (error)
        return coh_file_fail(error, "make folder", writer->partial);
    folder_lock(writer, &writer->lock_fd, &is_held);
    if (is_held)
        return refuse_second(writer);
    writer->under_way = 1;
    if (lstat(writer->path, &facts) == 0) /* by a save that ended meanwhile */
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint %s has come to exist meanwhile",
                        writer->path);
    return COH_OK;
}

static coh_status files_create(coh_checkpoint_writer *writer)
{
    COH_TRY(folder_take(writer));
    COH_TRY(file_create(writer, COH_FILE_WORK)); /* first: it marks the folder as a checkpoint's */
    frozen_link(writer);
    for (int file = coh_checkpoint_next_file(writer->table, COH_FILE_WORK);
         file < COH_FILE_MANIFEST; file = coh_checkpoint_next_file(writer->table, file))
        if (writer->fd[file] < 0)
            COH_TRY(file_create(writer, file));
    if (writer->is_linked)
        coh_logical_hash_begin_trained(writer->hash);
    else
        coh_logical_hash_begin(writer->hash);
    return COH_OK;
}

coh_status coh_checkpoint_writer_begin(coh_checkpoint_writer *writer, const char *path,
                                       const char *note_json)
{
    if (writer->under_way)
        return coh_fail(COH_ERR_INTERNAL, "a save to %s is under way already", writer->path);
    const char *note = note_json ? note_json : "{}";
    if (strlen(note) >= COH_CHECKPOINT_NOTE_BYTES)
        return coh_fail(COH_ERR_ARGUMENT, "the checkpoint's note has %zu bytes, the most is %u",
                        strlen(note), COH_CHECKPOINT_NOTE_BYTES - 1);
    COH_TRY(coh_checkpoint_note_check(note));
    strcpy(writer->note, note);
    COH_TRY(paths_set(writer, path));
    writer->is_linked = writer->link_error = 0;
    coh_status status = files_create(writer);
    if (status != COH_OK)
        coh_checkpoint_writer_abort(writer);
    return status;
}

/* Says why the block that begins with element `element` of `data` is not saved. */
static coh_status broken_fail(const coh_checkpoint_writer *writer, int row, uint32_t tensor,
                              uint64_t element_begin, uint64_t element, const void *data)
{
    const coh_state_stream *stream = coh_logical_stream(writer->table, row);
    const float *value =
        (const void *)((const char *)data + coh_state_bytes(stream, element)); /* of the block */
    while (*value - *value == 0)
        value++;
    return coh_fail(COH_ERR_NUMBER, "%s of tensor %s, element %" PRIu64 " is %s: not saved",
                    row == 0 ? "value" : stream->name, writer->table->tensors[tensor].name,
                    element_begin + element, *value != *value ? "NaN" : "infinite");
}

static coh_status bytes_write(coh_checkpoint_writer *writer, int file, const void *data,
                              uint64_t bytes, uint64_t offset)
{
    int error = coh_file_write(&writer->ops, writer->fd[file], data, bytes, offset);
    if (error)
        return coh_file_fail(error, "write", file_path(writer, file));
    coh_file_write_back(writer->fd[file], bytes, offset);
    return COH_OK;
}

/* Writes f32 values as bf16, which have the same value. */
static coh_status halves_write(coh_checkpoint_writer *writer, const float *values, uint64_t count,
                               uint64_t offset)
{
    for (uint64_t at = 0; at < count; at += FROZEN_PIECE) {
        const uint64_t some = count - at < FROZEN_PIECE ? count - at : FROZEN_PIECE;
        if (!coh_frozen_is_bf16(values + at, some))
            return coh_fail(COH_ERR_INTERNAL, "a frozen value is not exact in bf16");
        coh_kernel_split(writer->piece, NULL, values + at, (int64_t)some);
        COH_TRY(bytes_write(writer, COH_FILE_FROZEN, writer->piece, some * sizeof(*writer->piece),
                            offset + at * sizeof(*writer->piece)));
    }
    return COH_OK;
}

coh_status coh_checkpoint_writer_put(coh_checkpoint_writer *writer, int part, uint32_t tensor,
                                     uint64_t element_begin, uint64_t count, const void *data)
{
    if (!writer->under_way)
        return coh_fail(COH_ERR_INTERNAL, "checkpoint: put without begin");
    uint64_t broken;
    COH_TRY(coh_logical_hash_put(writer->hash, part, tensor, element_begin, count, data, &broken));
    const int row = coh_logical_row(&writer->table->tensors[tensor], part);
    if (broken < count)
        return broken_fail(writer, row, tensor, element_begin, broken, data);
    const int file = coh_checkpoint_file_of(writer->table, tensor, row);
    const uint64_t offset =
        writer->offset[row][tensor] + coh_checkpoint_file_bytes(writer->table, file, element_begin);
    if (file == COH_FILE_FROZEN && writer->piece != NULL)
        return halves_write(writer, data, count, offset);
    return bytes_write(writer, file, data, coh_checkpoint_file_bytes(writer->table, file, count),
                       offset);
}

/* Flushes and closes a file, also a linked one: its link is durable with the folder, its bytes may
 * be a copy that was never flushed. The system reports a lost page at one flush and no later one,
 * so after a failure the file is not linked again: the next save writes another one. */
static coh_status file_seal(coh_checkpoint_writer *writer, int file)
{
    int error = coh_file_sync(&writer->ops, writer->fd[file]);
    if (error && file == COH_FILE_FROZEN)
        coh_checkpoint_writer_forget_frozen(writer);
    if (error)
        return coh_file_fail(error, "flush", file_path(writer, file));
    if (file == COH_FILE_FROZEN)
        coh_frozen_file_see(writer->fd[file], writer->path, &writer->sealed);
    error = coh_file_close(&writer->ops, writer->fd[file]);
    writer->fd[file] = -1;
    return error ? coh_file_fail(error, "close", file_path(writer, file)) : COH_OK;
}

static coh_status data_seal(coh_checkpoint_writer *writer)
{
    uint64_t bytes;
    const uint64_t *rows = coh_logical_hash_rows(writer->hash, &bytes);
    int error = coh_file_write(&writer->ops, writer->fd[COH_FILE_HASHES], rows, bytes, 0);
    if (error)
        return coh_file_fail(error, "write", file_path(writer, COH_FILE_HASHES));
    for (int file = 0; file < COH_FILE_MANIFEST; file++)
        if (writer->fd[file] >= 0)
            COH_TRY(file_seal(writer, file));
    return COH_OK;
}

static coh_status manifest_seal(coh_checkpoint_writer *writer)
{
    const char *name = file_path(writer, COH_FILE_MANIFEST);
    int fd = coh_file_create(&writer->ops, name);
    if (fd < 0)
        return coh_file_fail(fd, "create", name);
    writer->fd[COH_FILE_MANIFEST] = fd;
    int error = coh_file_write(&writer->ops, fd, writer->manifest.data, writer->manifest.bytes, 0);
    if (error)
        return coh_file_fail(error, "write", name);
    return file_seal(writer, COH_FILE_MANIFEST);
}

/* Renames the folder: from then on the checkpoint exists. */
static coh_status publish(coh_checkpoint_writer *writer)
{
    int error = coh_file_sync_folder(&writer->ops, writer->partial);
    if (error)
        return coh_file_fail(error, "flush folder", writer->partial);
    error = coh_file_rename(&writer->ops, writer->partial, writer->path);
    if (error == -EEXIST)
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint %s has come to exist meanwhile",
                        writer->path);
    if (error)
        return coh_file_fail(error, "rename to", writer->path);
    error = coh_file_sync_folder(&writer->ops, writer->parent);
    if (error) {
        /* The rename may not survive a power failure: remove the checkpoint rather than promise
         * it. */
        coh_checkpoint_unlink(&writer->ops, writer->path);
        return coh_file_fail(error, "flush folder", writer->parent);
    }
    writer->under_way = 0;
    folder_unlock(writer->lock_fd);
    writer->lock_fd = -1;
    return COH_OK;
}

coh_status coh_checkpoint_writer_finish(coh_checkpoint_writer *writer,
                                        const coh_checkpoint_seal *seal, uint64_t *out_hash)
{
    uint64_t hash = 0;
    coh_status status = COH_OK;
    if (!writer->under_way)
        return coh_fail(COH_ERR_INTERNAL, "checkpoint: finish without begin");
    if (seal->step > INT64_MAX || seal->applied_count > INT64_MAX)
        status = coh_fail(COH_ERR_INTERNAL, "checkpoint: a counter is above 2^63");
    if (status == COH_OK)
        status = coh_logical_hash_finish(writer->hash, seal->applied_count, &hash);
    if (status == COH_OK)
        status = data_seal(writer);
    if (status == COH_OK)
        status = manifest_write(writer, seal, hash);
    if (status == COH_OK)
        status = manifest_seal(writer);
    if (status == COH_OK)
        status = publish(writer);
    if (status != COH_OK) {
        coh_checkpoint_writer_abort(writer);
        return status;
    }
    if (writer->table->frozen != COH_FROZEN_IN_WORK)
        writer->frozen = writer->sealed; /* what later saves link */
    if (out_hash)
        *out_hash = hash;
    return COH_OK;
}

void coh_checkpoint_writer_abort(coh_checkpoint_writer *writer)
{
    for (int file = 0; file < COH_FILE_COUNT; file++) {
        coh_file_close(&writer->ops, writer->fd[file]);
        writer->fd[file] = -1;
    }
    if (writer->under_way)
        coh_checkpoint_unlink(&writer->ops, writer->partial);
    writer->under_way = 0;
    folder_unlock(writer->lock_fd);
    writer->lock_fd = -1;
}
