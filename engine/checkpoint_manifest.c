/* Reads and writes manifest.json. The idea: one table of fields serves both directions; the reader
 * then refuses everything that the writer would not write. Next: checkpoint_manifest.h. */
#include "engine/checkpoint_manifest.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/c_locale.h"
#include "base/json.h"
#include "base/plural.h"

#define COUNT_MOST    ((double)INT64_MAX)
#define FROZEN_DTYPES "\"f32\" or \"bf16\""

/* ---- fields with a special form ---- */

static coh_status read_shape(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_logical_tensor *tensor = object;
    size_t rank;
    (void)field;
    COH_TRY(coh_json_list(at, 1, COH_RANK_MAX, &rank));
    tensor->shape = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = (int32_t)rank };
    tensor->elements = 1;
    for (size_t d = 0; d < rank; d++) {
        const coh_json_place dim = coh_json_item(at, d);
        int64_t *extent = &tensor->shape.dim[d];
        COH_TRY(coh_json_whole(&dim, 1, COUNT_MOST, extent));
        if (coh_bytes_mul(tensor->elements, (uint64_t)*extent, &tensor->elements) != COH_OK ||
            tensor->elements > INT64_MAX / sizeof(float))
            return coh_json_fail(&dim, "it makes the tensor too large");
    }
    return COH_OK;
}

static void write_shape(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_shape *shape = &((const coh_logical_tensor *)object)->shape;
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    for (int32_t d = 0; d < shape->rank; d++)
        coh_json_put(writer, NULL, "%" PRId64, shape->dim[d]);
    coh_json_end(writer);
}

/* The streams of a tensor are a list of names. */
static coh_status read_streams(const coh_json_field *field, const coh_json_place *at, void *object)
{
    const coh_logical_table *table = &((const coh_manifest *)at->source->object)->table;
    coh_logical_tensor *tensor = object;
    size_t count;
    (void)field;
    COH_TRY(coh_json_list(at, 0, COH_OPTIMIZER_STREAMS, &count));
    for (size_t i = 0; i < count; i++) {
        const coh_json_place item = coh_json_item(at, i);
        const char *name = json_string_value(item.value);
        int32_t stream = 0;
        while (name && stream < table->stream_count &&
               strcmp(table->streams[stream].name, name) != 0)
            stream++;
        if (!name || stream == table->stream_count)
            return coh_json_expected(&item, "the name of a listed stream");
        tensor->streams[tensor->stream_count++] = stream;
    }
    return COH_OK;
}

static void write_streams(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_logical_table *table = &((const coh_manifest *)writer->object)->table;
    const coh_logical_tensor *tensor = object;
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    for (int32_t s = 0; s < tensor->stream_count; s++)
        coh_json_put_text(writer, NULL, table->streams[tensor->streams[s]].name);
    coh_json_end(writer);
}

/* Version 1: true means AdamW with the streams that make_streams_1 adds. */
static coh_status read_states(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_logical_tensor *tensor = object;
    char *optimizer = NULL;
    (void)field;
    if (!json_is_boolean(at->value))
        return coh_json_expected(at, "true or false");
    if (json_is_false(at->value))
        return COH_OK;
    COH_TRY(coh_alloc_text("adamw", &optimizer));
    tensor->optimizer = optimizer;
    tensor->stream_count = 2;
    tensor->streams[1] = 1;
    return COH_OK;
}

/* The dtype of frozen.bin, by coh_frozen_form. */
static const char *const frozen_dtypes[] = { NULL, "f32", "bf16" };

static coh_status read_frozen(const coh_json_field *field, const coh_json_place *at, void *object)
{
    const char *dtype = json_string_value(at->value);
    (void)field;
    for (int form = COH_FROZEN_F32; dtype && form <= COH_FROZEN_BF16; form++)
        if (strcmp(dtype, frozen_dtypes[form]) == 0) {
            ((coh_manifest *)object)->table.frozen = (coh_frozen_form)form;
            return COH_OK;
        }
    return coh_json_expected(at, FROZEN_DTYPES);
}

static void write_frozen(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    coh_json_put_text(writer, field->name,
                      frozen_dtypes[((const coh_manifest *)object)->table.frozen]);
}

static int has_frozen(const void *object)
{
    return ((const coh_manifest *)object)->table.frozen != COH_FROZEN_IN_WORK;
}

/* The files' sizes follow from the tensors: check_files compares them. */
static coh_status read_files(const coh_json_field *field, const coh_json_place *at, void *object)
{
    (void)field;
    (void)object;
    return json_is_object(at->value) ? COH_OK : coh_json_expected(at, "an object");
}

static void write_files(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_manifest *manifest = object;
    coh_json_begin(writer, field->name, '{', COH_JSON_INLINE);
    for (int file = 0; file < COH_FILE_MANIFEST;
         file = coh_checkpoint_next_file(&manifest->table, file))
        coh_json_put(writer, coh_checkpoint_file_name(&manifest->table, file).text, "%" PRIu64,
                     manifest->file_bytes[file]);
    coh_json_end(writer);
}

static coh_status read_note(const coh_json_field *field, const coh_json_place *at, void *object)
{
    char *copy = NULL;
    (void)field;
    if (!json_is_object(at->value))
        return coh_json_expected(at, "an object");
    const coh_c_locale locale = coh_c_locale_enter();
    char *text = json_dumps(at->value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    coh_c_locale_leave(locale);
    if (!text)
        return coh_fail(COH_ERR_MEMORY, "no memory for a checkpoint's note");
    coh_status status = coh_alloc_text(text, &copy);
    ((coh_manifest *)object)->note_json = copy;
    free(text);
    return status;
}

static void write_note(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    coh_json_put(writer, field->name, "%s", ((const coh_manifest *)object)->note_json);
}

/* ---- the table ---- */

static const coh_json_field stream_fields[] = {
    { "name", COH_JSON_STRING, COH_JSON_AT(coh_state_stream, name) },
    { "bytes_per_block", COH_JSON_WHOLE, COH_JSON_AT(coh_state_stream, bytes_per_block),
      .most = UINT32_MAX },
    { "elements_per_block", COH_JSON_WHOLE, COH_JSON_AT(coh_state_stream, elements_per_block),
      .most = UINT32_MAX },
    { "f32", COH_JSON_FLAG, COH_JSON_AT(coh_state_stream, is_f32) },
    { 0 },
};

static const coh_json_field tensor_fields[] = {
    { "name", COH_JSON_STRING, COH_JSON_AT(coh_logical_tensor, name) },
    { "shape", COH_JSON_OWN, .read = read_shape, .write = write_shape },
    { "optimizer", COH_JSON_STRING, COH_JSON_AT(coh_logical_tensor, optimizer), .is_null = 1,
      .since = 2 },
    { "streams", COH_JSON_OWN, .read = read_streams, .write = write_streams, .since = 2 },
    { "states", COH_JSON_OWN, .read = read_states, .until = 1 },
    { 0 },
};

#define IN(member) COH_JSON_AT(coh_manifest, member)

/* After "format" and "version"; the hash of the text follows. */
static const coh_json_field manifest_fields[] = {
    { "step", COH_JSON_WHOLE, IN(step), .most = COUNT_MOST },
    { "applied_count", COH_JSON_WHOLE, IN(applied_count), .most = COUNT_MOST },
    { "grad_norm", COH_JSON_REAL, IN(grad_norm), .most = DBL_MAX, .rule = COH_JSON_UNLESS_ZERO },
    { "numeric_fingerprint", COH_JSON_HEX, IN(numeric_fingerprint) },
    { "hash", COH_JSON_HEX, IN(hash) },
    { "grain_elements", COH_JSON_WHOLE, IN(grain_elements), .most = COUNT_MOST },
    { "frozen", COH_JSON_OWN, .read = read_frozen, .write = write_frozen, .is_written = has_frozen,
      .since = 3 },
    { "files", COH_JSON_OWN, .read = read_files, .write = write_files },
    { "streams", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_manifest, table.streams, table.stream_count),
      .layout = COH_JSON_LINES_IF_ANY, .most = COH_LOGICAL_STREAMS, .fields = stream_fields,
      .since = 2 },
    { "tensors", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_manifest, table.tensors, table.tensor_count),
      .layout = COH_JSON_LINES, .least = 1, .most = UINT32_MAX, .fields = tensor_fields },
    { "note", COH_JSON_OWN, .read = read_note, .write = write_note },
    { 0 },
};

/* ---- writing ---- */

coh_status coh_manifest_add_text(const coh_manifest *manifest, coh_text *text)
{
    coh_json_writer writer = { .text = text, .object = manifest };
    coh_json_begin(&writer, NULL, '{', COH_JSON_LINES);
    coh_json_put_text(&writer, "format", COH_CHECKPOINT_FORMAT);
    coh_json_put(&writer, "version", "%d",
                 has_frozen(manifest) ? COH_CHECKPOINT_VERSION : COH_CHECKPOINT_PLAIN);
    coh_json_write(manifest_fields, &writer, manifest);
    COH_TRY(writer.status);
    return coh_text_add(text, COH_MANIFEST_SEAL, coh_manifest_hash(text->data, text->bytes));
}

/* ---- checking what was read ---- */

/* Makes the streams of AdamW if a tensor of version 1 has states. */
static coh_status make_streams_1(coh_manifest *manifest)
{
    static const char *const names[] = { "m", "v" };
    coh_logical_table *table = &manifest->table;
    coh_state_stream *streams;
    int has_states = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++)
        has_states |= table->tensors[i].stream_count > 0;
    COH_TRY(COH_ALLOC(2, &streams));
    table->streams = streams;
    table->stream_count = has_states ? 2 : 0;
    for (int32_t i = 0; i < table->stream_count; i++) {
        char *name = NULL;
        COH_TRY(coh_alloc_text(names[i], &name));
        streams[i] = (coh_state_stream){ name, sizeof(float), 1, 1 };
    }
    return COH_OK;
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
            status = coh_fail(COH_ERR_CORRUPT, "tensor %s is there twice", names[i]);
    coh_free(names);
    return status;
}

/* Checks what the writer checks of its table. */
static coh_status table_check(const coh_logical_table *table)
{
    return coh_logical_table_check(table) == COH_OK ? names_check(table)
                                                    : COH_ERR_CORRUPT; /* with that text */
}

/* Adds up the parameters, and checks the table as a whole. */
static coh_status check_tensors(coh_manifest *manifest)
{
    const coh_logical_table *table = &manifest->table;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        manifest->parameter_count += table->tensors[i].elements;
        if (manifest->parameter_count > INT64_MAX / sizeof(float))
            return coh_fail(COH_ERR_CORRUPT, "the tensors' sizes overflow");
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
    for (int file = 0; file < COH_FILE_HASHES; file = coh_checkpoint_next_file(table, file))
        if (coh_checkpoint_offsets(table, file, NULL, &manifest->file_bytes[file]) != COH_OK)
            return COH_ERR_CORRUPT; /* with that text */
    return COH_OK;
}

/* Checks that the file lists exactly the files that follow from the table, with their sizes. */
static coh_status check_files(const coh_json_place *files, coh_manifest *manifest)
{
    const coh_logical_table *table = &manifest->table;
    size_t count = 0;
    COH_TRY(files_size(manifest));
    for (int file = 0; file < COH_FILE_MANIFEST; file = coh_checkpoint_next_file(table, file)) {
        const coh_file_name name = coh_checkpoint_file_name(table, file);
        const coh_json_place bytes = coh_json_member(files, name.text);
        int64_t stated;
        COH_TRY(coh_json_whole(&bytes, 0, COUNT_MOST, &stated));
        if ((uint64_t)stated != manifest->file_bytes[file])
            return coh_json_fail(&bytes, "%" PRId64 " byte%s, and the tensors need %" PRIu64,
                                 stated, COH_PLURAL_S(stated), manifest->file_bytes[file]);
        count++;
    }
    return json_object_size(files->value) == count
               ? COH_OK
               : coh_json_fail(files, "%zu file%s, and the tensors have %zu",
                               json_object_size(files->value),
                               COH_PLURAL_S(json_object_size(files->value)), count);
}

/* Version 3 has a file of frozen tensors, and there are some. */
static coh_status check_frozen(const coh_json_place *at, const coh_manifest *manifest)
{
    const coh_json_place frozen = coh_json_member(at, "frozen");
    const coh_logical_table *table = &manifest->table;
    if (at->source->version < COH_CHECKPOINT_VERSION)
        return COH_OK;
    if (!has_frozen(manifest))
        return coh_json_expected(&frozen, FROZEN_DTYPES);
    for (uint32_t i = 0; i < table->tensor_count; i++)
        if (table->tensors[i].optimizer == NULL)
            return COH_OK;
    return coh_json_fail(&frozen, "every tensor has an optimizer");
}

/* Format and version are checked before all else, so that a newer file is reported as newer and not
 * as broken. */
static coh_status version_check(json_t *root, int *out_version)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (!format || strcmp(format, COH_CHECKPOINT_FORMAT) != 0 || version < 1)
        return coh_fail(COH_ERR_CORRUPT, "not of a checkpoint (no format \"%s\" with a version)",
                        COH_CHECKPOINT_FORMAT);
    *out_version = COH_CHECKPOINT_VERSION + 1;
    if (version > COH_CHECKPOINT_VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "checkpoint version %lld, this release reads up to %d: use a newer release",
                        (long long)version, COH_CHECKPOINT_VERSION);
    *out_version = (int)version;
    json_object_del(root, "format");
    json_object_del(root, "version");
    return COH_OK;
}

static coh_status seal_check(const char *text, size_t bytes)
{
    char seal[COH_MANIFEST_SEAL_BYTES + 1];
    if (bytes < COH_MANIFEST_SEAL_BYTES)
        return coh_fail(COH_ERR_CORRUPT, "%zu byte%s too few", bytes, bytes == 1 ? " is" : "s are");
    size_t body_bytes = bytes - COH_MANIFEST_SEAL_BYTES;
    snprintf(seal, sizeof(seal), COH_MANIFEST_SEAL, coh_manifest_hash(text, body_bytes));
    if (memcmp(text + body_bytes, seal, COH_MANIFEST_SEAL_BYTES) != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "its text does not have the hash it ends with: damaged, or "
                        "edited by hand");
    return COH_OK;
}

static coh_status root_read(json_t *root, int version, coh_manifest *manifest)
{
    const coh_json_source source = { .version = version, .object = manifest };
    const coh_json_place at = { .source = &source, .value = root };
    const coh_json_place files = coh_json_member(&at, "files");
    json_object_del(root, "manifest_hash"); /* seal_check compared it with the text */
    COH_TRY(coh_json_read(manifest_fields, &at, manifest));
    if (manifest->grain_elements != COH_GRAIN_ELEMENTS)
        return coh_fail(COH_ERR_CORRUPT, "grains of %" PRIu64 " elements, not %u",
                        manifest->grain_elements, COH_GRAIN_ELEMENTS);
    if (version == 1)
        COH_TRY(make_streams_1(manifest));
    COH_TRY(check_tensors(manifest));
    COH_TRY(check_frozen(&at, manifest));
    return check_files(&files, manifest);
}

coh_status coh_manifest_parse(const char *text, size_t bytes, coh_manifest *out_manifest)
{
    json_t *root = NULL;
    int version = 0;
    *out_manifest = (coh_manifest){ 0 };
    coh_status status = coh_json_load(text, bytes, &root);
    if (status == COH_OK)
        status = version_check(root, &version);
    if (status == COH_OK)
        status = seal_check(text, bytes);
    if (status == COH_OK)
        status = root_read(root, version, out_manifest);
    json_decref(root);
    if (status != COH_OK) {
        coh_manifest_fini(out_manifest);
        status = coh_fail_prefix(status, "manifest.json");
    }
    out_manifest->is_newer = version > COH_CHECKPOINT_VERSION;
    return status;
}

static void free_ours(const void *memory)
{
    coh_free((void *)(uintptr_t)memory);
}

void coh_manifest_fini(coh_manifest *manifest)
{
    const coh_logical_table *table = &manifest->table;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        free_ours(table->tensors[i].name);
        free_ours(table->tensors[i].optimizer);
    }
    for (int32_t i = 0; i < table->stream_count; i++)
        free_ours(table->streams[i].name);
    free_ours(table->tensors);
    free_ours(table->streams);
    free_ours(manifest->note_json);
    *manifest = (coh_manifest){ 0 };
}
