/* Opens, checks and reads checkpoints. The one idea: the manifest's hash proves the table of grain
 * hashes, and the table proves every grain that is read, so damage is found at the first use of the
 * bad bytes. Next: checkpoint_files.h for the format, checkpoint_writer.c for the other
 * direction. */
#include "cohobate/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/plural.h"
#include "base/struct_bytes.h"
#include "engine/checkpoint_frozen.h"
#include "engine/checkpoint_manifest.h"
#include "engine/checkpoint_writer.h"
#include "kernels/kernels.h"

/* Read at once when everything is read: 1 MiB, or a grain if that is larger. */
enum { CHECK_BYTES = 1 << 20 };

#define TAKE_ANOTHER "take another checkpoint of the run, or a copy of this one"

struct coh_checkpoint {
    char path[PATH_MAX];
    coh_manifest manifest;
    coh_logical_hash *hashes; /* as read from hashes.bin */
    int fd[COH_FILE_COUNT];
    uint64_t *offset[COH_LOGICAL_ROWS];
    uint64_t bytes; /* of all files */
    char *scratch;  /* for CHECK_BYTES, and for any grain */
    uint64_t scratch_bytes;
    char passed_over[COH_ERROR_TEXT_BYTES];
};

/* ---- files ---- */

static coh_file_name file_name(const coh_checkpoint *checkpoint, int file)
{
    return coh_checkpoint_file_name(&checkpoint->manifest.table, file);
}

static coh_status file_open(coh_checkpoint *checkpoint, int file, uint64_t *out_bytes)
{
    char name[PATH_MAX + sizeof(coh_file_name)];
    struct stat facts;
    snprintf(name, sizeof(name), "%s/%s", checkpoint->path, file_name(checkpoint, file).text);
    /* O_NONBLOCK: opening a pipe of this name must not block. */
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return coh_fail(COH_ERR_CORRUPT, "checkpoint %s is not whole: %s is missing",
                        checkpoint->path, file_name(checkpoint, file).text);
    if (fd < 0)
        return coh_file_fail(-errno, "open", name);
    checkpoint->fd[file] = fd;
    if (fstat(fd, &facts) != 0)
        return coh_file_fail(-errno, "look at", name);
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%s is not a file", name);
    *out_bytes = (uint64_t)facts.st_size;
    checkpoint->bytes += *out_bytes;
    return COH_OK;
}

/* Reads all of [offset, offset + bytes); a shorter read means a truncated file. */
static coh_status file_read(const coh_checkpoint *checkpoint, int file, uint64_t offset,
                            uint64_t bytes, void *data)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t moved = pread(checkpoint->fd[file], to, bytes, (off_t)offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return coh_fail_prefix(coh_file_fail(-errno, "read", file_name(checkpoint, file).text),
                                   "checkpoint %s", checkpoint->path);
        if (moved == 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "checkpoint %s: %s ends at byte %" PRIu64 ", it was cut while open",
                            checkpoint->path, file_name(checkpoint, file).text, offset);
        to += moved;
        offset += (uint64_t)moved;
        bytes -= (uint64_t)moved;
    }
    return COH_OK;
}

static coh_status manifest_load(coh_checkpoint *checkpoint)
{
    uint64_t bytes = 0;
    char *text = NULL;
    coh_status status = file_open(checkpoint, COH_FILE_MANIFEST, &bytes);
    if (status != COH_OK)
        return status;
    if (bytes > COH_MANIFEST_BYTES_MOST)
        return coh_fail(COH_ERR_CORRUPT,
                        "checkpoint %s: manifest.json has %" PRIu64 " bytes, none is that large",
                        checkpoint->path, bytes);
    COH_TRY(COH_ALLOC(bytes, &text));
    COH_TRY_GOTO(status, file_read(checkpoint, COH_FILE_MANIFEST, 0, bytes, text), done);
    status = coh_manifest_parse(text, bytes, &checkpoint->manifest);
    if (status != COH_OK)
        coh_fail_prefix(status, "checkpoint %s", checkpoint->path);
done:
    coh_free(text);
    return status;
}

static coh_status data_files_open(coh_checkpoint *checkpoint)
{
    const coh_manifest *manifest = &checkpoint->manifest;
    for (int file = 0; file < COH_FILE_MANIFEST;
         file = coh_checkpoint_next_file(&manifest->table, file)) {
        uint64_t bytes = 0;
        COH_TRY(file_open(checkpoint, file, &bytes));
        if (bytes != manifest->file_bytes[file])
            return coh_fail(COH_ERR_CORRUPT,
                            "checkpoint %s: %s has %" PRIu64 " byte%s, must have %" PRIu64,
                            checkpoint->path, file_name(checkpoint, file).text, bytes,
                            COH_PLURAL_S(bytes), manifest->file_bytes[file]);
    }
    return COH_OK;
}

/* Loads the table of grain hashes, which must fold to the manifest's hash. After that it can be
 * trusted. */
static coh_status hashes_load(coh_checkpoint *checkpoint)
{
    const coh_manifest *manifest = &checkpoint->manifest;
    uint64_t bytes, total;
    COH_TRY(coh_logical_hash_create(&manifest->table, NULL, &checkpoint->hashes));
    uint64_t *rows = coh_logical_hash_rows(checkpoint->hashes, &bytes);
    COH_TRY(file_read(checkpoint, COH_FILE_HASHES, 0, bytes, rows));
    const coh_status status = coh_logical_hash_take(checkpoint->hashes);
    if (status != COH_OK)
        return coh_fail_prefix(status, "checkpoint %s: hashes.bin is damaged", checkpoint->path);
    COH_TRY(coh_logical_hash_finish(checkpoint->hashes, manifest->applied_count, &total));
    if (total != manifest->hash)
        return coh_fail(COH_ERR_CORRUPT,
                        "checkpoint %s: hashes.bin is damaged: it gives %016" PRIx64
                        ", the manifest says %016" PRIx64,
                        checkpoint->path, total, manifest->hash);
    return COH_OK;
}

/* Computes the offsets of all tensors, and makes the scratch, which the largest grain decides. */
static coh_status places_make(coh_checkpoint *checkpoint)
{
    const coh_logical_table *table = &checkpoint->manifest.table;
    uint64_t bytes;
    checkpoint->scratch_bytes = CHECK_BYTES;
    for (int row = 0; row <= table->stream_count; row++) {
        const coh_state_stream *stream = coh_logical_stream(table, row);
        COH_TRY(COH_ALLOC(table->tensor_count, &checkpoint->offset[row]));
        COH_TRY(coh_checkpoint_offsets(table, row, checkpoint->offset[row], &bytes));
        for (uint32_t i = 0; i < table->tensor_count; i++) {
            uint64_t elements = table->tensors[i].elements;
            bytes = coh_state_bytes(stream,
                                    elements < COH_GRAIN_ELEMENTS ? elements : COH_GRAIN_ELEMENTS);
            if (coh_logical_part(&table->tensors[i], row) >= 0 && bytes > checkpoint->scratch_bytes)
                checkpoint->scratch_bytes = bytes;
        }
    }
    if (table->frozen != COH_FROZEN_IN_WORK)
        COH_TRY(coh_checkpoint_offsets(table, COH_FILE_FROZEN, checkpoint->offset[COH_FILE_WORK],
                                       &bytes));
    return COH_ALLOC(checkpoint->scratch_bytes, &checkpoint->scratch);
}

/* ---- open ---- */

/* Opens one folder. *out_is_damaged is 1 for damage that another copy would repair: not for a newer
 * version, and not for a file that cannot be read. */
static coh_status open_folder(const char *path, coh_checkpoint **out_checkpoint,
                              int32_t *out_is_damaged)
{
    coh_checkpoint *checkpoint = NULL;
    coh_status status = COH_OK;
    *out_is_damaged = 0;
    COH_TRY(COH_ALLOC(1, &checkpoint));
    for (int file = 0; file < COH_FILE_COUNT; file++)
        checkpoint->fd[file] = -1;
    snprintf(checkpoint->path, sizeof(checkpoint->path), "%s", path);
    COH_TRY_GOTO(status, manifest_load(checkpoint), done);
    COH_TRY_GOTO(status, data_files_open(checkpoint), done);
    COH_TRY_GOTO(status, hashes_load(checkpoint), done);
    COH_TRY_GOTO(status, places_make(checkpoint), done);
    *out_checkpoint = checkpoint;
    checkpoint = NULL;
done:
    *out_is_damaged = status == COH_ERR_CORRUPT && !checkpoint->manifest.is_newer;
    coh_checkpoint_close(checkpoint);
    return status;
}

typedef struct step_folder {
    uint64_t step;
    char name[32];
} step_folder;

/* Accepts only "step-<digits>": a save under way is called step-<n>.partial. */
static int step_folder_parse(const char *name, step_folder *out_folder)
{
    size_t length = strlen(name);
    if (length < 6 || length > 23 || strncmp(name, "step-", 5) != 0 ||
        strspn(name + 5, "0123456789") != length - 5)
        return 0;
    out_folder->step = strtoull(name + 5, NULL, 10);
    memcpy(out_folder->name, name, length + 1);
    return 1;
}

/* Newest first; the name breaks ties (step-7, step-07), so that the order is deterministic. */
static int newer_first(const void *a, const void *b)
{
    const step_folder *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->name, y->name);
}

static coh_status step_folders_list(const char *path, step_folder **out_folders, size_t *out_count)
{
    coh_status status = COH_OK;
    size_t capacity = 0, count = 0;
    step_folder *folders = NULL;
    struct dirent *entry;
    DIR *folder = opendir(path);
    if (!folder)
        return coh_file_fail(-errno, "open", path);
    while ((entry = readdir(folder))) {
        step_folder found;
        if (!step_folder_parse(entry->d_name, &found))
            continue;
        status = coh_alloc_grow((void **)&folders, &capacity, count + 1, sizeof(*folders));
        if (status != COH_OK)
            break;
        folders[count++] = found;
    }
    closedir(folder);
    if (status != COH_OK) {
        coh_free(folders);
        return status;
    }
    if (count)
        qsort(folders, count, sizeof(*folders), newer_first);
    *out_folders = folders;
    *out_count = count;
    return COH_OK;
}

static coh_status refuse_unfinished(const char *path)
{
    return coh_fail(COH_ERR_CORRUPT,
                    "%s is a save that was not finished, and no checkpoint: take a checkpoint of "
                    "the run, step-<n>; if there is none, start the run again",
                    path);
}

/* Opens the newest folder that is not damaged. *out_is_damaged: there is none. `newest_text`, of
 * COH_ERROR_TEXT_BYTES, gets why the newest is damaged. */
static coh_status open_first(const char *path, const step_folder *folders, size_t count,
                             coh_checkpoint **out_checkpoint, int32_t *out_is_damaged,
                             char *newest_text)
{
    char name[PATH_MAX + 32];
    coh_status status = COH_OK;
    *out_is_damaged = 1;
    newest_text[0] = '\0';
    for (size_t i = 0; i < count && *out_is_damaged; i++) {
        snprintf(name, sizeof(name), "%s/%s", path, folders[i].name);
        status = open_folder(name, out_checkpoint, out_is_damaged);
        if (*out_is_damaged && i == 0)
            coh_error_save(newest_text);
    }
    return status;
}

static coh_status refuse_all(const char *path, size_t count, const char *newest_text)
{
    if (count == 1)
        return coh_fail(COH_ERR_CORRUPT,
                        "the only checkpoint in %s is not whole: %s: put a copy of it there, or "
                        "start the run again",
                        path, newest_text);
    if (count == 0 && coh_checkpoint_is_partial(path))
        return refuse_unfinished(path);
    if (count == 0)
        return coh_fail(
            COH_ERR_CORRUPT,
            "%s is no checkpoint: it has neither manifest.json nor a folder step-<n>; a model's "
            "folder would have config.json, and a run that ended before its first save was whole "
            "has none: start it again",
            path);
    return coh_fail(COH_ERR_CORRUPT,
                    "of %zu checkpoint%s in %s none is whole; the newest: %s: put a copy of one "
                    "there, or start the run again",
                    count, COH_PLURAL_S(count), path, newest_text);
}

/* A run that goes on may save a step and remove the one before between the listing and the opening.
 * So the folder is listed again until its newest step is the same. */
static coh_status open_newest(const char *path, coh_checkpoint **out_checkpoint)
{
    enum { LOOKS_MOST = 1000 };
    char newest_text[COH_ERROR_TEXT_BYTES];
    coh_status status = COH_OK;
    int32_t is_damaged = 1;
    size_t count = 1;
    uint64_t newest = UINT64_MAX, before = 0;
    for (int i = 0; i < LOOKS_MOST && is_damaged && count > 0 && newest != before; i++) {
        step_folder *folders = NULL;
        count = 0;
        COH_TRY(step_folders_list(path, &folders, &count));
        status = open_first(path, folders, count, out_checkpoint, &is_damaged, newest_text);
        before = newest;
        newest = count > 0 ? folders[0].step : 0;
        coh_free(folders);
    }
    if (is_damaged)
        return refuse_all(path, count, newest_text);
    if (status == COH_OK)
        memcpy((*out_checkpoint)->passed_over, newest_text, COH_ERROR_TEXT_BYTES);
    return status;
}

/* Adds the remedy to the error text for a checkpoint that the user named directly. */
static coh_status with_remedy(coh_status status)
{
    return status == COH_ERR_CORRUPT ? coh_fail(status, "%s: " TAKE_ANOTHER, coh_last_error())
                                     : status;
}

static coh_status path_check(const char *path)
{
    if (strlen(path) >= PATH_MAX - 32)
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint path: %zu characters are too many",
                        strlen(path));
    return COH_OK;
}

coh_status coh_checkpoint_open(const char *path, coh_checkpoint **out_checkpoint)
{
    COH_NEED_PATH(path);
    COH_NEED(out_checkpoint);
    struct stat facts;
    int32_t is_damaged;
    *out_checkpoint = NULL;
    COH_TRY(path_check(path));
    if (stat(path, &facts) != 0)
        return coh_file_fail(-errno, "open checkpoint", path);
    if (!S_ISDIR(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT, "%s is no checkpoint: a checkpoint is a folder", path);
    const int is_there = coh_checkpoint_is_at(path);
    if (is_there < 0)
        return coh_file_fail(is_there, "look into", path);
    if (!is_there)
        return open_newest(path, out_checkpoint);
    const coh_status status = open_folder(path, out_checkpoint, &is_damaged);
    return is_damaged && coh_checkpoint_is_partial(path) ? refuse_unfinished(path)
                                                         : with_remedy(status);
}

coh_status coh_checkpoint_damage(const char *path, int32_t *out_is_damaged)
{
    COH_NEED_PATH(path);
    COH_NEED(out_is_damaged);
    coh_checkpoint *checkpoint = NULL;
    *out_is_damaged = 0;
    COH_TRY(path_check(path));
    const coh_status status = open_folder(path, &checkpoint, out_is_damaged);
    coh_checkpoint_close(checkpoint);
    return *out_is_damaged ? COH_OK : status;
}

void coh_checkpoint_close(coh_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int file = 0; file < COH_FILE_COUNT; file++)
        if (checkpoint->fd[file] >= 0)
            close(checkpoint->fd[file]);
    for (int row = 0; row < COH_LOGICAL_ROWS; row++)
        coh_free(checkpoint->offset[row]);
    coh_logical_hash_destroy(checkpoint->hashes);
    coh_manifest_fini(&checkpoint->manifest);
    coh_free(checkpoint->scratch);
    coh_free(checkpoint);
}

/* ---- another note ---- */

/* Writes the manifest again, with another note. */
static coh_status manifest_replace(const coh_checkpoint *checkpoint, const char *note_json)
{
    char name[PATH_MAX + sizeof(coh_file_name)];
    coh_manifest manifest = checkpoint->manifest; /* borrows what that owns */
    coh_text text = { 0 };
    manifest.note_json = note_json;
    snprintf(name, sizeof(name), "%s/%s", checkpoint->path,
             file_name(checkpoint, COH_FILE_MANIFEST).text);
    coh_status status = coh_manifest_add_text(&manifest, &text);
    if (status == COH_OK)
        status = coh_file_write_whole(name, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

coh_status coh_checkpoint_note_set(const char *path, const char *note_json)
{
    COH_NEED_PATH(path);
    COH_NEED(note_json);
    coh_checkpoint *checkpoint = NULL;
    int32_t is_damaged;
    COH_TRY(path_check(path));
    if (strlen(note_json) >= COH_CHECKPOINT_NOTE_BYTES)
        return coh_fail(COH_ERR_ARGUMENT, "a note of %zu bytes is too long: at most %u",
                        strlen(note_json), COH_CHECKPOINT_NOTE_BYTES - 1);
    COH_TRY(coh_checkpoint_note_check(note_json));
    COH_TRY(with_remedy(open_folder(path, &checkpoint, &is_damaged)));
    const coh_status status = manifest_replace(checkpoint, note_json);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* ---- look ---- */

coh_status coh_checkpoint_facts_get(const coh_checkpoint *checkpoint,
                                    coh_checkpoint_facts *out_facts)
{
    COH_NEED(checkpoint);
    COH_NEED_STRUCT(coh_checkpoint_facts, out_facts);
    const coh_manifest *manifest = &checkpoint->manifest;
    coh_checkpoint_facts facts = {
        .path = checkpoint->path,
        .step = manifest->step,
        .applied_count = manifest->applied_count,
        .numeric_fingerprint = manifest->numeric_fingerprint,
        .hash = manifest->hash,
        .tensor_count = (int32_t)manifest->table.tensor_count,
        .parameter_count = manifest->parameter_count,
        .bytes = checkpoint->bytes,
        .stream_count = manifest->table.stream_count,
        .note_json = manifest->note_json,
        .passed_over = checkpoint->passed_over,
        .grad_norm = manifest->grad_norm,
        .frozen_bytes = manifest->file_bytes[COH_FILE_FROZEN],
    };
    for (uint32_t i = 0; i < manifest->table.tensor_count; i++)
        facts.is_trained |= manifest->table.tensors[i].optimizer != NULL;
    COH_STRUCT_FILL(facts, out_facts);
    return COH_OK;
}

coh_status coh_checkpoint_tensor_at(const coh_checkpoint *checkpoint, int32_t index,
                                    coh_checkpoint_tensor *out_tensor)
{
    COH_NEED(checkpoint);
    COH_NEED(out_tensor);
    const coh_logical_table *table = &checkpoint->manifest.table;
    if (index < 0 || (uint32_t)index >= table->tensor_count)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %" PRId32 " of a checkpoint of %" PRIu32, index,
                        table->tensor_count);
    const coh_logical_tensor *tensor = &table->tensors[index];
    *out_tensor = (coh_checkpoint_tensor){ .name = tensor->name,
                                           .shape = tensor->shape,
                                           .optimizer = tensor->optimizer,
                                           .stream_count = tensor->stream_count };
    for (int32_t s = 0; s < tensor->stream_count; s++)
        out_tensor->streams[s] = coh_logical_row(tensor, 1 + s);
    return COH_OK;
}

coh_status coh_checkpoint_stream_at(const coh_checkpoint *checkpoint, int32_t stream,
                                    coh_state_stream *out_stream)
{
    COH_NEED(checkpoint);
    COH_NEED(out_stream);
    const coh_logical_table *table = &checkpoint->manifest.table;
    if (stream < 0 || stream > table->stream_count)
        return coh_fail(COH_ERR_ARGUMENT, "stream %" PRId32 " of a checkpoint of 0 to %" PRId32,
                        stream, table->stream_count);
    *out_stream = *coh_logical_stream(table, stream);
    return COH_OK;
}

/* ---- read ---- */

/* Widens bf16 numbers, which lie at the end of `data`, to `count` f32 that fill it. A block is read
 * before its f32 are written, and these never cover a later block. */
static void widen(char *data, uint64_t count)
{
    enum { BLOCK = 1024 };
    uint16_t block[BLOCK];
    float wide[BLOCK];
    const char *from = data + count * sizeof(block[0]);
    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t some = count - at < BLOCK ? count - at : BLOCK;
        memcpy(block, from + at * sizeof(block[0]), some * sizeof(block[0]));
        coh_kernel_join(wide, block, NULL, (int64_t)some);
        memcpy(data + at * sizeof(wide[0]), wide, some * sizeof(wide[0]));
    }
}

/* Reads elements [begin, end) of a row, from the start of a block on, as its stream has them. */
static coh_status elements_read(const coh_checkpoint *checkpoint, uint32_t index, int row,
                                uint64_t begin, uint64_t end, char *data)
{
    const coh_logical_table *table = &checkpoint->manifest.table;
    const int file = coh_checkpoint_file_of(table, index, row);
    const uint64_t bytes = coh_checkpoint_file_bytes(table, file, end - begin);
    const uint64_t wide = coh_state_bytes(coh_logical_stream(table, row), end - begin);
    COH_TRY(
        file_read(checkpoint, file,
                  checkpoint->offset[row][index] + coh_checkpoint_file_bytes(table, file, begin),
                  bytes, data + (wide - bytes)));
    if (bytes < wide)
        widen(data, end - begin);
    return COH_OK;
}

/* Reads whole grains [begin, end) of a row and compares each with its hash. */
static coh_status grains_read(coh_checkpoint *checkpoint, uint32_t index, int row, uint64_t begin,
                              uint64_t end, char *data)
{
    const coh_logical_tensor *tensor = &checkpoint->manifest.table.tensors[index];
    const coh_state_stream *stream = coh_logical_stream(&checkpoint->manifest.table, row);
    const int file = coh_checkpoint_file_of(&checkpoint->manifest.table, index, row);
    COH_TRY(elements_read(checkpoint, index, row, begin, end, data));
    for (uint64_t at = begin; at < end; at += COH_GRAIN_ELEMENTS) {
        uint64_t count = end - at < COH_GRAIN_ELEMENTS ? end - at : COH_GRAIN_ELEMENTS;
        uint64_t grain = at / COH_GRAIN_ELEMENTS;
        uint64_t found = coh_grain_hash(data + coh_state_bytes(stream, at - begin),
                                        coh_state_bytes(stream, count));
        uint64_t expected = coh_logical_hash_grain(checkpoint->hashes, row, index, grain);
        if (found != expected)
            return coh_fail(COH_ERR_CORRUPT,
                            "checkpoint %s: %s, tensor %s, grain %" PRIu64 " (elements %" PRIu64
                            " to %" PRIu64 ") is damaged: hash %016" PRIx64
                            ", saved was %016" PRIx64 ": " TAKE_ANOTHER,
                            checkpoint->path, file_name(checkpoint, file).text, tensor->name, grain,
                            at, at + count - 1, found, expected);
    }
    return COH_OK;
}

/* Checks that [begin, end) are whole blocks of a tensor's stream. */
static coh_status range_check(const coh_checkpoint *checkpoint, int32_t index, int32_t row,
                              uint64_t begin, uint64_t end)
{
    const coh_logical_table *table = &checkpoint->manifest.table;
    if (index < 0 || (uint32_t)index >= table->tensor_count || row < 0 || row > table->stream_count)
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint: no tensor %" PRId32 ", stream %" PRId32,
                        index, row);
    const coh_logical_tensor *tensor = &table->tensors[index];
    const coh_state_stream *stream = coh_logical_stream(table, row);
    if (coh_logical_part(tensor, row) < 0)
        return coh_fail(COH_ERR_ARGUMENT, "checkpoint %s holds no %s of tensor %s",
                        checkpoint->path, stream->name, tensor->name);
    if (end < begin || end > tensor->elements)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s has %" PRIu64 " elements: [%" PRIu64 ", %" PRIu64
                        ") is not among them",
                        tensor->name, tensor->elements, begin, end);
    if (begin % stream->elements_per_block != 0 ||
        (end % stream->elements_per_block != 0 && end != tensor->elements))
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s of tensor %s is stored in blocks of %" PRIu32 " elements: [%" PRIu64
                        ", %" PRIu64 ") cuts one",
                        stream->name, tensor->name, stream->elements_per_block, begin, end);
    return COH_OK;
}

coh_status coh_checkpoint_read(coh_checkpoint *checkpoint, int32_t index, int32_t stream,
                               uint64_t begin, uint64_t count, void *data)
{
    COH_NEED(checkpoint);
    COH_NEED(data);
    uint64_t end = begin + count;
    char *to = data;
    COH_TRY(range_check(checkpoint, index, stream, begin, end));
    const coh_state_stream *form = coh_logical_stream(&checkpoint->manifest.table, stream);
    const uint64_t elements = checkpoint->manifest.table.tensors[index].elements;
    while (begin < end) {
        uint64_t grain_begin = begin - begin % COH_GRAIN_ELEMENTS;
        uint64_t grain_end = grain_begin + COH_GRAIN_ELEMENTS;
        uint64_t whole_end = end == elements ? end : end - end % COH_GRAIN_ELEMENTS;
        if (grain_end > elements)
            grain_end = elements;
        if (begin == grain_begin && whole_end > begin) {
            COH_TRY(grains_read(checkpoint, (uint32_t)index, stream, begin, whole_end, to));
            grain_end = whole_end;
        } else { /* part of a grain: the hash needs the whole */
            COH_TRY(grains_read(checkpoint, (uint32_t)index, stream, grain_begin, grain_end,
                                checkpoint->scratch));
            if (grain_end > end)
                grain_end = end;
            memcpy(to, checkpoint->scratch + coh_state_bytes(form, begin - grain_begin),
                   coh_state_bytes(form, grain_end - begin));
        }
        to += coh_state_bytes(form, grain_end - begin);
        begin = grain_end;
    }
    return COH_OK;
}

/* Checks all grains of one row of a tensor. */
static coh_status row_check(coh_checkpoint *checkpoint, uint32_t index, int row)
{
    const coh_logical_table *table = &checkpoint->manifest.table;
    const uint64_t elements = table->tensors[index].elements;
    const uint64_t grain_bytes =
        coh_state_bytes(coh_logical_stream(table, row), COH_GRAIN_ELEMENTS);
    uint64_t run = checkpoint->scratch_bytes / grain_bytes * COH_GRAIN_ELEMENTS;
    if (run == 0) /* a tensor shorter than a grain */
        run = COH_GRAIN_ELEMENTS;
    for (uint64_t at = 0; at < elements; at += run)
        COH_TRY(grains_read(checkpoint, index, row, at, elements - at < run ? elements : at + run,
                            checkpoint->scratch));
    return COH_OK;
}

coh_status coh_checkpoint_check(coh_checkpoint *checkpoint, uint64_t *out_hash)
{
    COH_NEED(checkpoint);
    const coh_manifest *manifest = &checkpoint->manifest;
    for (uint32_t i = 0; i < manifest->table.tensor_count; i++) {
        const coh_logical_tensor *tensor = &manifest->table.tensors[i];
        for (int part = 0; part <= tensor->stream_count; part++)
            COH_TRY(row_check(checkpoint, i, coh_logical_row(tensor, part)));
    }
    if (out_hash) /* open checked that the table, which every grain now matches, folds to it */
        *out_hash = manifest->hash;
    return COH_OK;
}

/* ---- the file of frozen tensors ---- */

/* Finds the next frozen tensor from *index on; 0: there is none. */
static int find_frozen(const coh_logical_table *table, uint32_t *index)
{
    while (*index < table->tensor_count && table->tensors[*index].optimizer != NULL)
        ++*index;
    return *index < table->tensor_count;
}

int coh_checkpoint_frozen_get(const coh_checkpoint *checkpoint, const coh_logical_table *table,
                              coh_logical_hash *hash, coh_frozen_file *out_file)
{
    const coh_logical_table *own = &checkpoint->manifest.table;
    uint32_t theirs = 0, ours = 0;
    out_file->folder[0] = '\0';
    if (own->frozen == COH_FROZEN_IN_WORK || own->frozen != table->frozen)
        return 0;
    for (;; theirs++, ours++) {
        const int is_one = find_frozen(table, &theirs);
        if (is_one != find_frozen(own, &ours))
            return 0;
        if (!is_one)
            break;
        if (strcmp(table->tensors[theirs].name, own->tensors[ours].name) != 0 ||
            table->tensors[theirs].elements != own->tensors[ours].elements)
            return 0;
        coh_logical_hash_copy_work(hash, theirs, checkpoint->hashes, ours);
    }
    coh_frozen_file_see(checkpoint->fd[COH_FILE_FROZEN], checkpoint->path, out_file);
    return out_file->folder[0] != '\0';
}
