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

static const char *const members[] = {
    "format",         "version", "step",    "applied_count", "numeric_fingerprint", "hash",
    "grain_elements", "files",   "tensors", "note",          "manifest_hash"
};
static const char *const tensor_members[] = { "name", "shape", "states" };

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

static coh_status tensor_read(const json_t *entry, size_t index, coh_logical_tensor *tensor)
{
    char what[48];
    snprintf(what, sizeof(what), "tensor %zu", index);
    COH_TRY(members_check(entry, what, tensor_members, COUNT_OF(tensor_members)));
    const json_t *name = json_object_get(entry, "name");
    const json_t *states = json_object_get(entry, "states");
    if (!json_is_string(name) || !json_is_boolean(states))
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: %s: name or states is of a wrong type",
                        what);
    char *copy = NULL;
    COH_TRY(coh_alloc_text(json_string_value(name), &copy));
    tensor->name = copy;
    tensor->has_states = json_is_true(states);
    return shape_read(json_object_get(entry, "shape"), tensor);
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors are matched by name when loaded, so each name must be unique. */
static coh_status names_check(const coh_manifest *manifest)
{
    coh_status status = COH_OK;
    const char **names = NULL;
    COH_TRY(COH_ALLOC(manifest->tensor_count, &names));
    for (uint32_t i = 0; i < manifest->tensor_count; i++)
        names[i] = manifest->tensors[i].name;
    qsort(names, manifest->tensor_count, sizeof(*names), name_order);
    for (uint32_t i = 1; i < manifest->tensor_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = coh_fail(COH_ERR_CORRUPT, "manifest.json: tensor %s is there twice", names[i]);
    coh_free(names);
    return status;
}

static coh_status tensors_read(const json_t *array, coh_manifest *manifest)
{
    size_t count = json_array_size(array);
    if (count == 0 || count > UINT32_MAX)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: \"tensors\" holds none");
    COH_TRY(COH_ALLOC(count, &manifest->tensors));
    manifest->tensor_count = (uint32_t)count;
    manifest->part_count = 1;
    for (size_t i = 0; i < count; i++) {
        COH_TRY(tensor_read(json_array_get(array, i), i, &manifest->tensors[i]));
        manifest->parameter_count += manifest->tensors[i].elements;
        if (manifest->parameter_count > INT64_MAX / sizeof(float))
            return coh_fail(COH_ERR_CORRUPT, "manifest.json: the tensors' sizes overflow");
        if (manifest->tensors[i].has_states)
            manifest->part_count = COH_PART_COUNT;
    }
    return names_check(manifest);
}

/* Reads the file sizes, which must equal the sizes that follow from the shapes. */
static coh_status files_read(const json_t *object, coh_manifest *manifest)
{
    const char *names[COH_FILE_MANIFEST];
    size_t count = 0;
    uint64_t grain_count = 0;
    for (uint32_t i = 0; i < manifest->tensor_count; i++)
        grain_count +=
            (manifest->tensors[i].elements + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    manifest->file_bytes[COH_FILE_HASHES] =
        grain_count * (uint64_t)manifest->part_count * sizeof(uint64_t);
    for (int part = 0; part < manifest->part_count; part++)
        COH_TRY(coh_checkpoint_offsets(manifest->tensors, manifest->tensor_count, (coh_part)part,
                                       NULL, &manifest->file_bytes[part]));
    for (int file = 0; file < COH_FILE_MANIFEST; file++)
        if (file == COH_FILE_HASHES || file < manifest->part_count)
            names[count++] = coh_checkpoint_file_name((coh_checkpoint_file)file);
    COH_TRY(members_check(object, "\"files\"", names, count));
    for (int file = 0; file < COH_FILE_MANIFEST; file++) {
        uint64_t stated;
        const char *name = coh_checkpoint_file_name((coh_checkpoint_file)file);
        if (file != COH_FILE_HASHES && file >= manifest->part_count)
            continue;
        COH_TRY(read_count(object, name, &stated));
        if (stated != manifest->file_bytes[file])
            return coh_fail(COH_ERR_CORRUPT,
                            "manifest.json: %s is said to have %" PRIu64
                            " bytes, the tensors need %" PRIu64,
                            name, stated, manifest->file_bytes[file]);
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
static coh_status version_check(const json_t *root, int *out_is_newer)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *version = json_object_get(root, "version");
    if (!json_is_string(format) || strcmp(json_string_value(format), COH_CHECKPOINT_FORMAT) != 0 ||
        !json_is_integer(version) || json_integer_value(version) < 1)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: not of a checkpoint (no format \"%s\" with a version)",
                        COH_CHECKPOINT_FORMAT);
    *out_is_newer = json_integer_value(version) > COH_CHECKPOINT_VERSION;
    if (*out_is_newer)
        return coh_fail(COH_ERR_CORRUPT,
                        "manifest.json: checkpoint version %lld, this release reads up to %d: use "
                        "a newer release",
                        (long long)json_integer_value(version), COH_CHECKPOINT_VERSION);
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

static coh_status root_read(const json_t *root, coh_manifest *manifest)
{
    uint64_t grain_elements;
    COH_TRY(members_check(root, "the manifest", members, COUNT_OF(members)));
    COH_TRY(read_count(root, "step", &manifest->step));
    COH_TRY(read_count(root, "applied_count", &manifest->applied_count));
    COH_TRY(read_count(root, "grain_elements", &grain_elements));
    if (grain_elements != COH_GRAIN_ELEMENTS)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: grains of %" PRIu64 " elements, not %u",
                        grain_elements, COH_GRAIN_ELEMENTS);
    COH_TRY(read_hash(root, "numeric_fingerprint", &manifest->numeric_fingerprint));
    COH_TRY(read_hash(root, "hash", &manifest->hash));
    COH_TRY(tensors_read(json_object_get(root, "tensors"), manifest));
    COH_TRY(files_read(json_object_get(root, "files"), manifest));
    return note_read(json_object_get(root, "note"), manifest);
}

coh_status coh_manifest_parse(const char *text, size_t bytes, coh_manifest *out_manifest)
{
    json_error_t error;
    coh_status status = COH_OK;
    int is_newer = 0;
    *out_manifest = (coh_manifest){ 0 };
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return coh_fail(COH_ERR_CORRUPT, "manifest.json: line %d: %s", error.line, error.text);
    COH_TRY_GOTO(status, version_check(root, &is_newer), done);
    COH_TRY_GOTO(status, seal_check(text, bytes), done);
    COH_TRY_GOTO(status, root_read(root, out_manifest), done);
done:
    json_decref(root);
    if (status != COH_OK)
        coh_manifest_fini(out_manifest);
    out_manifest->is_newer = is_newer;
    return status;
}

void coh_manifest_fini(coh_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->tensor_count; i++)
        coh_free((char *)(uintptr_t)manifest->tensors[i].name); /* our own copy */
    coh_free(manifest->tensors);
    coh_free(manifest->note_json);
    *manifest = (coh_manifest){ 0 };
}
