/* The rules of the format: which tensors a file may hold, in which order, and the header as text.
 * The one idea: reader and writer use the same checks. Next: safetensors_header.c parses headers,
 * safetensors_write.c writes files. */
#include "models/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/utf8.h"

/* ---- dtypes ---- */

/* All dtypes of the format, in the reference's order. Files are sorted by dtype in the reverse of
 * this order. */
static const struct dtype_facts {
    char name[12];
    uint8_t bits;
} dtypes[] = {
    { "BOOL", 8 },    { "F4", 4 },          { "F6_E2M3", 6 },     { "F6_E3M2", 6 },
    { "U8", 8 },      { "I8", 8 },          { "F8_E5M2", 8 },     { "F8_E4M3", 8 },
    { "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
    { "U16", 16 },    { "F16", 16 },        { "BF16", 16 },       { "I32", 32 },
    { "U32", 32 },    { "F32", 32 },        { "C64", 64 },        { "F64", 64 },
    { "I64", 64 },    { "U64", 64 },
};
enum { DTYPE_COUNT = sizeof(dtypes) / sizeof(dtypes[0]) };

/* DTYPE_COUNT if the format has no such dtype. */
static size_t dtype_index(const char *name)
{
    size_t i = 0;
    while (i < DTYPE_COUNT && strcmp(dtypes[i].name, name) != 0)
        i++;
    return i;
}

const char *coh_safetensors_dtype_known(const char *name)
{
    size_t index = dtype_index(name);
    return index < DTYPE_COUNT ? dtypes[index].name : NULL;
}

const coh_dtype_names coh_stored_dtypes[COH_STORED_DTYPES] = {
    [COH_DTYPE_F32] = { "F32", "float32", "f32", 'f' },
    [COH_DTYPE_BF16] = { "BF16", "bfloat16", "bf16", 'b' },
    [COH_DTYPE_F16] = { "F16", "float16", "f16", 'h' },
};

const char *coh_safetensors_dtype_name(coh_dtype dtype)
{
    return (unsigned)dtype < COH_STORED_DTYPES ? coh_stored_dtypes[dtype].file : NULL;
}

coh_status coh_safetensors_dtype(const coh_safetensors_tensor *tensor, coh_dtype *out_dtype)
{
    for (int dtype = 0; dtype < COH_STORED_DTYPES; dtype++)
        if (strcmp(tensor->dtype, coh_stored_dtypes[dtype].file) == 0) {
            *out_dtype = (coh_dtype)dtype;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT,
                    "tensor %.200s is of dtype %s: numbers can be read of F32, F16 and BF16 only; "
                    "convert it first",
                    tensor->name, tensor->dtype);
}

/* ---- one tensor ---- */

#define STRING(x)  STRING_(x)
#define STRING_(x) #x

const char *coh_safetensors_measure(const coh_safetensors_tensor *tensor, uint64_t *out_bytes)
{
    *out_bytes = 0;
    size_t dtype = tensor->dtype ? dtype_index(tensor->dtype) : DTYPE_COUNT;
    if (dtype == DTYPE_COUNT)
        return "has a dtype that the format does not know";
    if (tensor->rank < 0 || tensor->rank > COH_SAFETENSORS_RANK_MAX)
        return "has more than " STRING(COH_SAFETENSORS_RANK_MAX) " dimensions";
    /* Multiplies left to right, as the reference does: [0, 2^40, 2^40] is empty, [2^40, 2^40, 0] is
     * too large. */
    uint64_t bits = 1;
    int is_too_large = 0;
    for (int32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dim[d] < 0)
            return "has a negative dimension";
        is_too_large |= __builtin_mul_overflow(bits, (uint64_t)tensor->dim[d], &bits);
    }
    if (is_too_large || __builtin_mul_overflow(bits, dtypes[dtype].bits, &bits))
        return "has more elements than 64 bits can count";
    if (bits % 8 != 0)
        return "does not fill its last byte";
    *out_bytes = bits / 8;
    return NULL;
}

uint64_t coh_safetensors_elements(const coh_safetensors_tensor *tensor)
{
    uint64_t elements = 1;
    for (int32_t d = 0; d < tensor->rank; d++)
        elements *= (uint64_t)tensor->dim[d];
    return elements;
}

const char *coh_safetensors_name_refused(const char *name)
{
    size_t length = strlen(name);
    if (length == 0)
        return "is empty";
    if (length > COH_SAFETENSORS_NAME_BYTES)
        return "is too long";
    for (const char *at = name; *at; at++)
        if (coh_utf8_control(at))
            return "holds a control character";
    return NULL;
}

/* ---- lists ---- */

static int compare_for_file(const void *left, const void *right)
{
    const coh_safetensors_tensor *a = left, *b = right;
    size_t dtype_a = dtype_index(a->dtype), dtype_b = dtype_index(b->dtype);
    if (dtype_a != dtype_b)
        return dtype_a > dtype_b ? -1 : 1;
    return strcmp(a->name, b->name);
}

void coh_safetensors_sort(coh_safetensors_tensor *tensors, size_t count)
{
    if (count > 1)
        qsort(tensors, count, sizeof(*tensors), compare_for_file);
}

static int compare_names(const void *left, const void *right)
{
    const coh_safetensors_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

coh_status coh_safetensors_by_name(const coh_safetensors_tensor *tensors, size_t count,
                                   const coh_safetensors_tensor ***out_by_name,
                                   const char **out_twice)
{
    const coh_safetensors_tensor **by_name;
    *out_by_name = NULL;
    *out_twice = NULL;
    COH_TRY(COH_ALLOC(count, &by_name));
    for (size_t i = 0; i < count; i++)
        by_name[i] = &tensors[i];
    if (count > 1)
        qsort(by_name, count, sizeof(*by_name), compare_names);
    for (size_t i = 1; i < count && !*out_twice; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            *out_twice = by_name[i]->name;
    *out_by_name = by_name;
    return COH_OK;
}

/* ---- the header as text ---- */

static int is_utf8(const char *text)
{
    size_t length = strlen(text);
    return coh_utf8_stretch((const uint8_t *)text, length) == length;
}

static coh_status metadata_write(coh_text *text, const coh_safetensors_pair *metadata, size_t count)
{
    COH_TRY(coh_text_add(text, "\"__metadata__\":{"));
    for (size_t i = 0; i < count; i++) {
        if (!metadata[i].key || !metadata[i].value || !is_utf8(metadata[i].key) ||
            !is_utf8(metadata[i].value))
            return coh_fail(COH_ERR_ARGUMENT, "entry %zu of a file's metadata is not UTF-8 text",
                            i);
        /* Linear search: there are few entries. */
        for (size_t k = 0; k < i; k++)
            if (strcmp(metadata[k].key, metadata[i].key) == 0)
                return coh_fail(COH_ERR_ARGUMENT, "a file's metadata has \"%.200s\" twice",
                                metadata[i].key);
        if (i)
            COH_TRY(coh_text_add(text, ","));
        COH_TRY(coh_text_add_quoted(text, metadata[i].key));
        COH_TRY(coh_text_add(text, ":"));
        COH_TRY(coh_text_add_quoted(text, metadata[i].value));
    }
    return coh_text_add(text, "}");
}

/* `begin`: the start of its data, counted from the start of all data. */
static coh_status tensor_write(coh_text *text, const coh_safetensors_tensor *tensor, uint64_t begin,
                               uint64_t end)
{
    COH_TRY(coh_text_add_quoted(text, tensor->name));
    COH_TRY(coh_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype));
    for (int32_t d = 0; d < tensor->rank; d++)
        COH_TRY(coh_text_add(text, "%s%" PRId64, d ? "," : "", tensor->dim[d]));
    return coh_text_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

coh_status coh_safetensors_list_check(const coh_safetensors_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!tensors[i].name || !is_utf8(tensors[i].name))
            return coh_fail(COH_ERR_ARGUMENT, "the name of tensor %zu is not UTF-8 text", i);
        const char *reason = coh_safetensors_name_refused(tensors[i].name);
        if (!reason && strcmp(tensors[i].name, "__metadata__") == 0)
            reason = "is the format's own";
        if (reason)
            return coh_fail(COH_ERR_ARGUMENT, "the name \"%.200s\" of tensor %zu %s",
                            tensors[i].name, i, reason);
        uint64_t bytes;
        reason = coh_safetensors_measure(&tensors[i], &bytes);
        if (reason)
            return coh_fail(COH_ERR_ARGUMENT, "tensor %.200s %s", tensors[i].name, reason);
    }
    const coh_safetensors_tensor **by_name;
    const char *twice;
    COH_TRY(coh_safetensors_by_name(tensors, count, &by_name, &twice));
    coh_free(by_name);
    if (twice)
        return coh_fail(COH_ERR_ARGUMENT, "two tensors are named %.200s", twice);
    return COH_OK;
}

/* Pads with blanks so that the data start at a multiple of 8, then fills in the length. */
static coh_status header_close(coh_text *text)
{
    COH_TRY(coh_text_add(text, "}"));
    COH_TRY(coh_text_add(text, "%*s", (int)((8 - text->bytes % 8) % 8), ""));
    uint64_t bytes = text->bytes - 8;
    if (bytes > COH_SAFETENSORS_HEADER_BYTES)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the names of the tensors make a header of %" PRIu64
                        " bytes, the format allows %u: use more shards",
                        bytes, COH_SAFETENSORS_HEADER_BYTES);
    for (int i = 0; i < 8; i++)
        text->data[i] = (char)(bytes >> (8 * i));
    return COH_OK;
}

coh_status coh_safetensors_header_write(const coh_safetensors_list *list, coh_text *out_text,
                                        uint64_t *out_data_bytes)
{
    const int has_metadata = list->metadata != NULL;
    *out_text = (coh_text){ 0 };
    *out_data_bytes = 0;
    COH_TRY(coh_safetensors_list_check(list->tensors, list->count));
    COH_TRY(coh_text_add(out_text, "%8s{", ""));
    if (has_metadata)
        COH_TRY(metadata_write(out_text, list->metadata, list->metadata_count));
    uint64_t end = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint64_t begin = end, bytes = 0;
        (void)coh_safetensors_measure(&list->tensors[i], &bytes);
        COH_TRY(coh_bytes_add(begin, bytes, &end));
        if (i || has_metadata)
            COH_TRY(coh_text_add(out_text, ","));
        COH_TRY(tensor_write(out_text, &list->tensors[i], begin, end));
    }
    COH_TRY(header_close(out_text));
    /* File offsets are signed. */
    if (end > (uint64_t)INT64_MAX - out_text->bytes)
        return coh_fail(COH_ERR_FULL,
                        "%zu tensors of %" PRIu64 " bytes do not fit in one file: use"
                        " more shards",
                        list->count, end);
    *out_data_bytes = end;
    return COH_OK;
}
