/* Parses manifest.json with jansson and refuses everything that the writer would not write. Each
 * object goes through members_check first, so later code may rely on exactly these members. Next:
 * checkpoint_manifest.h. */
#include "engine/checkpoint_manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Version 1 has no "streams". */
static const char *const members[] = {
    "format",         "version", "step",    "applied_count", "numeric_fingerprint", "hash",
    "grain_elements", "files",   "tensors", "note",          "manifest_hash",       "streams"
};
static const char *const tensor_members[] = { "name", "shape", "optimizer", "streams" };
static const char *const tensor_members_1[] = { "name", "shape", "states" };
static const char *const stream_members[] = { "name", "bytes_per_block", "elements_per_block",
                                              "f32" };

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Checks that an object has exactly these members. */
static coh_status members_check(const json_t *object, const char *what, const char *const *names,
                                size_t count)
{
    if (!json_is_object(object))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s is not an object", what);
    for (size_t i = 0; i < count; i++)
        if (!json_object_get(object, names[i]))
            return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s lacks \"%s\"", what, names[i]);
    if (json_object_size(object) != count)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s has %zu members, %zu are known", what,
                        json_object_size(object), count);
    return COH_OK;
}

static coh_status read_count(const json_t *object, const char *name, uint64_t *out_value)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"%s\" is not a count", name);
    *out_value = (uint64_t)json_integer_value(value);
    return COH_OK;
}

/* Reads 16 lower-case hex digits. */
static coh_status read_hash(const json_t *object, const char *name, uint64_t *out_value)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"%s\" is not 16 hex digits", name);
    *out_value = strtoull(text, NULL, 16);
    return COH_OK;
}

static coh_status shape_read(const json_t *value, coh_logical_tensor *tensor)
{
    size_t rank = json_array_size(value); /* 0 if it is not an array */
    if (rank < 1 || rank > COH_RANK_MAX)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s: no shape of 1 to %d dimensions",
                        tensor->name, COH_RANK_MAX);
    tensor->shape = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = (int32_t)rank };
    tensor->elements = 1;
    for (size_t d = 0; d < rank; d++) {
        const json_t *dim = json_array_get(value, d);
        int64_t extent = json_is_integer(dim) ? json_integer_value(dim) : 0;
        tensor->shape.dim[d] = extent;
        if (extent < 1 || coh_bytes_mul(tensor->elements, (uint64_t)extent, &tensor->elements) ||
            tensor->elements > INT64_MAX / sizeof(float))
            return coh_fail(COH_ERR_CORRUPT,
                            "manifest.json: tensor %s: dimension %zu is not "
                            "possible",
                            tensor->name, d);
    }
    return COH_OK;
}

static coh_status text_read(const json_t *value, const char **out_text)
{
    char *copy = NULL;
    COH_TRY(coh_alloc_text(json_string_value(value), &copy));
    *out_text = copy;
    return COH_OK;
}

/* ---- streams ---- */

static coh_status stream_read(const json_t *entry, size_t index, coh_state_stream *stream)
{
    char what[48];
    uint64_t bytes, elements;
    snprintf(what, sizeof(what), "stream %zu", index);
    COH_TRY(members_check(entry, what, stream_members, COUNT_OF(stream_members)));
    const json_t *name = json_object_get(entry, "name"), *f32 = json_object_get(entry, "f32");
    if (!json_is_string(name) || !json_is_boolean(f32))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s: name or f32 is of a wrong type", what);
    COH_TRY(read_count(entry, "bytes_per_block", &bytes));
    COH_TRY(read_count(entry, "elements_per_block", &elements));
    stream->bytes_per_block = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    stream->elements_per_block = elements < UINT32_MAX ? (uint32_t)elements : UINT32_MAX;
    stream->is_f32 = json_is_true(f32);
    return text_read(name, &stream->name);
}

static coh_status streams_make(coh_manifest *manifest, size_t count, coh_state_stream **out_streams)
{
    COH_TRY(COH_ALLOC(count, out_streams));
    manifest->table.streams = *out_streams;
    manifest->table.stream_count = (int32_t)count;
    return COH_OK;
}

static coh_status streams_read(const json_t *array, coh_manifest *manifest)
{
    coh_state_stream *streams;
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > COH_LOGICAL_STREAMS)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"streams\" is not a list of at most %d",
                        COH_LOGICAL_STREAMS);
    COH_TRY(streams_make(manifest, count, &streams));
    for (size_t i = 0; i < count; i++)
        COH_TRY(stream_read(json_array_get(array, i), i, &streams[i]));
    return COH_OK;
}

/* Makes the streams of AdamW if a tensor of version 1 has states. */
static coh_status streams_make_1(const json_t *tensors, coh_manifest *manifest)
{
    static const char *const names[] = { "m", "v" };
    coh_state_stream *streams;
    int has_states = 0;
    for (size_t i = 0; i < json_array_size(tensors); i++)
        has_states |= json_is_true(json_object_get(json_array_get(tensors, i), "states"));
    COH_TRY(streams_make(manifest, has_states ? COUNT_OF(names) : 0, &streams));
    for (int32_t i = 0; i < manifest->table.stream_count; i++) {
        char *name = NULL;
        COH_TRY(coh_alloc_text(names[i], &name));
        streams[i] = (coh_state_stream){ name, sizeof(float), 1, 1 };
    }
    return COH_OK;
}

/* ---- tensors ---- */

/* Reads which streams a tensor has. */
static coh_status tensor_streams_read(const json_t *array, const coh_logical_table *table,
                                      coh_logical_tensor *tensor)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > COH_OPTIMIZER_STREAMS)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: tensor %s: \"streams\" is not a list of at most %d",
                        tensor->name, COH_OPTIMIZER_STREAMS);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        int32_t stream = 0;
        while (name && stream < table->stream_count &&
               strcmp(table->streams[stream].name, name) != 0)
            stream++;
        if (!name || stream == table->stream_count)
            return coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s: stream %s is not listed",
                            tensor->name, name ? name : "(no name)");
        tensor->streams[tensor->stream_count++] = stream;
    }
    return COH_OK;
}

static coh_status optimizer_read(const json_t *entry, const coh_logical_table *table,
                                 coh_logical_tensor *tensor)
{
    const json_t *optimizer = json_object_get(entry, "optimizer");
    if (json_is_string(optimizer))
        COH_TRY(text_read(optimizer, &tensor->optimizer));
    else if (!json_is_null(optimizer))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s: optimizer is of a wrong type",
                        tensor->name);
    return tensor_streams_read(json_object_get(entry, "streams"), table, tensor);
}

static coh_status states_read_1(const json_t *entry, coh_logical_tensor *tensor)
{
    const json_t *states = json_object_get(entry, "states");
    char *optimizer = NULL;
    if (!json_is_boolean(states))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s: states is of a wrong type",
                        tensor->name);
    if (json_is_false(states))
        return COH_OK;
    COH_TRY(coh_alloc_text("adamw", &optimizer));
    tensor->optimizer = optimizer;
    tensor->stream_count = 2;
    tensor->streams[1] = 1;
    return COH_OK;
}

static coh_status tensor_read(const json_t *entry, size_t index, int version,
                              const coh_logical_table *table, coh_logical_tensor *tensor)
{
    char what[48];
    snprintf(what, sizeof(what), "tensor %zu", index);
    COH_TRY(version == 1 ? members_check(entry, what, tensor_members_1, COUNT_OF(tensor_members_1))
                         : members_check(entry, what, tensor_members, COUNT_OF(tensor_members)));
    const json_t *name = json_object_get(entry, "name");
    if (!json_is_string(name))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s: name is of a wrong type", what);
    COH_TRY(text_read(name, &tensor->name));
    COH_TRY(shape_read(json_object_get(entry, "shape"), tensor));
    return version == 1 ? states_read_1(entry, tensor) : optimizer_read(entry, table, tensor);
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors are matched by name when loaded, so each name must be unique. */
static coh_status names_check(const coh_logical_table *table)
{
    coh_status status = COH_OK;
    const char **names = NULL;
    COH_TRY(COH_ALLOC(table->tensor_count, &names));
    for (uint32_t i = 0; i < table->tensor_count; i++)
        names[i] = table->tensors[i].name;
    qsort(names, table->tensor_count, sizeof(*names), name_order);
    for (uint32_t i = 1; i < table->tensor_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s is there twice", names[i]);
    coh_free(names);
    return status;
}

static coh_status usage_check(const coh_logical_table *table)
{
    for (int row = 1; row <= table->stream_count; row++) {
        uint32_t i = 0;
        while (i < table->tensor_count && coh_logical_part(&table->tensors[i], row) < 0)
            i++;
        if (i == table->tensor_count)
            return coh_fail(COH_ERR_CORRUPT, "manifest.json: no tensor has stream %s",
                            coh_logical_stream(table, row)->name);
    }
    return COH_OK;
}

/* Checks what the writer checks of its table. */
static coh_status table_check(const coh_logical_table *table)
{
    coh_status status = coh_logical_table_check(table);
    if (status == COH_OK)
        status = coh_checkpoint_names_check(table);
    if (status != COH_OK)
        return coh_fail_prefix(COH_ERR_CORRUPT, "manifest.json");
    COH_TRY(usage_check(table));
    return names_check(table);
}

static coh_status tensors_read(const json_t *array, int version, coh_manifest *manifest)
{
    coh_logical_table *table = &manifest->table;
    coh_logical_tensor *tensors;
    size_t count = json_array_size(array);
    if (count == 0 || count > UINT32_MAX)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"tensors\" holds none");
    COH_TRY(COH_ALLOC(count, &tensors));
    table->tensors = tensors;
    table->tensor_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        COH_TRY(tensor_read(json_array_get(array, i), i, version, table, &tensors[i]));
        manifest->parameter_count += tensors[i].elements;
        if (manifest->parameter_count > INT64_MAX / sizeof(float))
            return coh_fail(COH_ERR_CORRUPT, "manifest.json: the tensors' sizes overflow");
    }
    return table_check(table);
}

/* Computes the file sizes that follow from the table. */
static coh_status files_size(coh_manifest *manifest)
{
    const coh_logical_table *table = &manifest->table;
    uint64_t grain_count = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++)
        grain_count += (table->tensors[i].elements + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    manifest->file_bytes[COH_FILE_HASHES] =
        grain_count * (1 + (uint64_t)table->stream_count) * sizeof(uint64_t);
    for (int row = 0; row <= table->stream_count; row++)
        if (coh_checkpoint_offsets(table, row, NULL, &manifest->file_bytes[row]) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "manifest.json");
    return COH_OK;
}

/* Reads the file sizes, which must equal the computed ones. */
static coh_status files_read(const json_t *object, coh_manifest *manifest)
{
    coh_file_name texts[COH_FILE_MANIFEST];
    const char *names[COH_FILE_MANIFEST];
    size_t count = 0;
    const coh_logical_table *table = &manifest->table;
    COH_TRY(files_size(manifest));
    for (int file = 0; file < COH_FILE_MANIFEST; file = coh_checkpoint_next_file(table, file)) {
        texts[count] = coh_checkpoint_file_name(table, file);
        names[count] = texts[count].text;
        count++;
    }
    COH_TRY(members_check(object, "\"files\"", names, count));
    for (int file = 0; file < COH_FILE_MANIFEST; file = coh_checkpoint_next_file(table, file)) {
        uint64_t stated;
        const coh_file_name name = coh_checkpoint_file_name(table, file);
        COH_TRY(read_count(object, name.text, &stated));
        if (stated != manifest->file_bytes[file])
            return coh_fail(COH_ERR_CORRUPT,
                            "manifest.json: %s is said to have %" PRIu64
                            " bytes, the tensors need %" PRIu64,
                            name.text, stated, manifest->file_bytes[file]);
    }
    return COH_OK;
}

static coh_status note_read(const json_t *note, coh_manifest *manifest)
{
    if (!json_is_object(note))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"note\" is not an object");
    char *text = json_dumps(note, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return coh_fail(COH_ERR_MEMORY, "no memory for a checkpoint's note");
    coh_status status = coh_alloc_text(text, &manifest->note_json);
    free(text);
    return status;
}

/* Format and version are checked before all else, so that a newer file is reported as newer and not
 * as broken. */
static coh_status version_check(const json_t *root, int *out_version)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *version = json_object_get(root, "version");
    if (!json_is_string(format) || strcmp(json_string_value(format), COH_CHECKPOINT_FORMAT) != 0 ||
        !json_is_integer(version) || json_integer_value(version) < 1)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: not of a checkpoint (no format \"%s\" with a version)",
                        COH_CHECKPOINT_FORMAT);
    *out_version = COH_CHECKPOINT_VERSION + 1;
    if (json_integer_value(version) > COH_CHECKPOINT_VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: checkpoint version %lld, this release reads up to %d: use "
                        "a newer release",
                        (long long)json_integer_value(version), COH_CHECKPOINT_VERSION);
    *out_version = (int)json_integer_value(version);
    return COH_OK;
}

static coh_status seal_check(const char *text, size_t bytes)
{
    char seal[COH_MANIFEST_SEAL_BYTES + 1];
    if (bytes < COH_MANIFEST_SEAL_BYTES)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %zu bytes are too few", bytes);
    size_t body_bytes = bytes - COH_MANIFEST_SEAL_BYTES;
    snprintf(seal, sizeof(seal), COH_MANIFEST_SEAL, coh_manifest_hash(text, body_bytes));
    if (memcmp(text + body_bytes, seal, COH_MANIFEST_SEAL_BYTES) != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: its text does not have the hash it ends with: damaged, or "
                        "edited by hand");
    return COH_OK;
}

static coh_status root_read(const json_t *root, int version, coh_manifest *manifest)
{
    uint64_t grain_elements;
    const json_t *tensors = json_object_get(root, "tensors");
    COH_TRY(members_check(root, "the manifest", members, COUNT_OF(members) - (version == 1)));
    COH_TRY(read_count(root, "step", &manifest->step));
    COH_TRY(read_count(root, "applied_count", &manifest->applied_count));
    COH_TRY(read_count(root, "grain_elements", &grain_elements));
    if (grain_elements != COH_GRAIN_ELEMENTS)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: grains of %" PRIu64 " elements, not %u",
                        grain_elements, COH_GRAIN_ELEMENTS);
    COH_TRY(read_hash(root, "numeric_fingerprint", &manifest->numeric_fingerprint));
    COH_TRY(read_hash(root, "hash", &manifest->hash));
    COH_TRY(version == 1 ? streams_make_1(tensors, manifest)
                         : streams_read(json_object_get(root, "streams"), manifest));
    COH_TRY(tensors_read(tensors, version, manifest));
    COH_TRY(files_read(json_object_get(root, "files"), manifest));
    return note_read(json_object_get(root, "note"), manifest);
}

coh_status coh_manifest_parse(const char *text, size_t bytes, coh_manifest *out_manifest)
{
    json_error_t error;
    coh_status status = COH_OK;
    int version = 0;
    *out_manifest = (coh_manifest){ 0 };
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: line %d: %s", error.line, error.text);
    COH_TRY_GOTO(status, version_check(root, &version), done);
    COH_TRY_GOTO(status, seal_check(text, bytes), done);
    COH_TRY_GOTO(status, root_read(root, version, out_manifest), done);
done:
    json_decref(root);
    if (status != COH_OK)
        coh_manifest_fini(out_manifest);
    out_manifest->is_newer = version > COH_CHECKPOINT_VERSION;
    return status;
}

void coh_manifest_fini(coh_manifest *manifest)
{
    coh_logical_table_free(&manifest->table);
    coh_free(manifest->note_json);
    *manifest = (coh_manifest){ 0 };
}
