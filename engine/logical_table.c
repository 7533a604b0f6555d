/* Checks, copies and frees tables of tensors and state streams. Next: logical_table.h. */
#include "engine/logical_table.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

enum { BLOCK_BYTES_MOST = 4096, BLOCK_ELEMENTS_MOST = 1024 };

int coh_logical_is_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length < COH_OPTIMIZER_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

const coh_state_stream *coh_logical_stream(const coh_logical_table *table, int row)
{
    static const coh_state_stream work = { "work", sizeof(float), 1, 1 };
    return row == 0 ? &work : &table->streams[row - 1];
}

int coh_logical_row(const coh_logical_tensor *tensor, int part)
{
    if (part < 0 || part > tensor->stream_count)
        return -1;
    return part == COH_PART_WORK ? 0 : 1 + tensor->streams[part - 1];
}

int coh_logical_part(const coh_logical_tensor *tensor, int row)
{
    for (int part = 0; part <= tensor->stream_count; part++)
        if (coh_logical_row(tensor, part) == row)
            return part;
    return -1;
}

/* ---- check ---- */

static coh_status stream_check(const coh_logical_table *table, int32_t index)
{
    const coh_state_stream *stream = &table->streams[index];
    const uint32_t elements = stream->elements_per_block;
    if (!stream->name || !coh_logical_is_name(stream->name))
        return coh_fail(COH_ERR_ARGUMENT,
                        "stream %" PRId32 ": its name is not 1 to %d of a-z, 0-9 and _", index,
                        COH_OPTIMIZER_NAME_BYTES - 1);
    if (stream->bytes_per_block < 1 || stream->bytes_per_block > BLOCK_BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "stream %s: blocks of %" PRIu32 " bytes, not of 1 to %d",
                        stream->name, stream->bytes_per_block, BLOCK_BYTES_MOST);
    if (elements < 1 || elements > BLOCK_ELEMENTS_MOST || (elements & (elements - 1)) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "stream %s: blocks of %" PRIu32
                        " elements, not of a power of two from 1 to %d",
                        stream->name, elements, BLOCK_ELEMENTS_MOST);
    if (stream->is_f32 && stream->bytes_per_block % sizeof(float) != 0)
        return coh_fail(COH_ERR_ARGUMENT, "stream %s: a block of %" PRIu32 " bytes is not f32",
                        stream->name, stream->bytes_per_block);
    for (int32_t i = 0; i < index; i++)
        if (strcmp(stream->name, table->streams[i].name) == 0)
            return coh_fail(COH_ERR_ARGUMENT, "stream %s is there twice", stream->name);
    return COH_OK;
}

static coh_status shape_check(const coh_logical_tensor *tensor)
{
    if (!tensor->name || tensor->shape.dtype != COH_DTYPE_F32 || tensor->shape.rank < 1 ||
        tensor->shape.rank > COH_RANK_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s: not a named f32 tensor of 1 to %d dimensions",
                        tensor->name ? tensor->name : "(none)", COH_RANK_MAX);
    uint64_t elements = 1;
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (tensor->shape.dim[i] < 1)
            return coh_fail(COH_ERR_ARGUMENT, "tensor %s: dimension %d is %" PRId64, tensor->name,
                            i, tensor->shape.dim[i]);
        COH_TRY(coh_bytes_mul(elements, (uint64_t)tensor->shape.dim[i], &elements));
    }
    if (elements != tensor->elements)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: %" PRIu64 " elements are given, its shape has %" PRIu64,
                        tensor->name, tensor->elements, elements);
    return COH_OK;
}

static coh_status part_check(const coh_logical_table *table, const coh_logical_tensor *tensor,
                             int part)
{
    const int32_t index = part == COH_PART_WORK ? -1 : tensor->streams[part - 1];
    if (part != COH_PART_WORK && (index < 0 || index >= table->stream_count))
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s: stream %" PRId32 " of %" PRId32, tensor->name,
                        index, table->stream_count);
    const int row = coh_logical_row(tensor, part);
    const coh_state_stream *stream = coh_logical_stream(table, row);
    if (coh_logical_part(tensor, row) != part)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s has stream %s twice", tensor->name,
                        stream->name);
    uint64_t bytes, blocks = tensor->elements / stream->elements_per_block +
                             (tensor->elements % stream->elements_per_block != 0);
    if (coh_bytes_mul(blocks, stream->bytes_per_block, &bytes) != COH_OK || bytes > INT64_MAX)
        return coh_fail(COH_ERR_FULL, "%s of tensor %s: larger than a file can be", stream->name,
                        tensor->name);
    return COH_OK;
}

static coh_status tensor_check(const coh_logical_table *table, const coh_logical_tensor *tensor)
{
    COH_TRY(shape_check(tensor));
    if (tensor->optimizer && !coh_logical_is_name(tensor->optimizer))
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: the name of its optimizer is not 1 to %d of a-z, 0-9 and _",
                        tensor->name, COH_OPTIMIZER_NAME_BYTES - 1);
    const int32_t most = tensor->optimizer ? COH_OPTIMIZER_STREAMS : 0;
    if (tensor->stream_count < 0 || tensor->stream_count > most)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: %" PRId32 " streams, at most %" PRId32 " with %s", tensor->name,
                        tensor->stream_count, most,
                        tensor->optimizer ? "an optimizer" : "no optimizer");
    for (int part = 0; part <= tensor->stream_count; part++)
        COH_TRY(part_check(table, tensor, part));
    return COH_OK;
}

coh_status coh_logical_table_check(const coh_logical_table *table)
{
    if (table->stream_count < 0 || table->stream_count > COH_LOGICAL_STREAMS)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRId32 " streams, not 0 to %d", table->stream_count,
                        COH_LOGICAL_STREAMS);
    for (int32_t i = 0; i < table->stream_count; i++)
        COH_TRY(stream_check(table, i));
    for (uint32_t i = 0; i < table->tensor_count; i++)
        COH_TRY(tensor_check(table, &table->tensors[i]));
    return COH_OK;
}

/* ---- copy and free ---- */

static coh_status text_copy(const char *text, const char **out_copy)
{
    char *copy = NULL;
    *out_copy = NULL;
    if (text)
        COH_TRY(coh_alloc_text(text, &copy));
    *out_copy = copy;
    return COH_OK;
}

static int is_used(const coh_logical_table *table, int32_t stream)
{
    for (uint32_t i = 0; i < table->tensor_count; i++)
        if (coh_logical_part(&table->tensors[i], 1 + stream) >= 0)
            return 1;
    return 0;
}

/* Copies the streams in use. `places` receives the index of each in the copy. */
static coh_status streams_copy(const coh_logical_table *table, int32_t *places,
                               coh_logical_table *copy)
{
    coh_state_stream *streams = NULL;
    COH_TRY(COH_ALLOC(table->stream_count, &streams));
    copy->streams = streams;
    for (int32_t i = 0; i < table->stream_count; i++) {
        if (!is_used(table, i))
            continue;
        places[i] = copy->stream_count++;
        streams[places[i]] = table->streams[i];
        COH_TRY(text_copy(table->streams[i].name, &streams[places[i]].name));
    }
    return COH_OK;
}

static coh_status tensors_copy(const coh_logical_table *table, const int32_t *places,
                               coh_logical_table *copy)
{
    coh_logical_tensor *tensors = NULL;
    COH_TRY(COH_ALLOC(table->tensor_count, &tensors));
    copy->tensors = tensors;
    copy->tensor_count = table->tensor_count;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const coh_logical_tensor *from = &table->tensors[i];
        tensors[i] = *from;
        tensors[i].optimizer = NULL;
        COH_TRY(text_copy(from->name, &tensors[i].name));
        COH_TRY(text_copy(from->optimizer, &tensors[i].optimizer));
        for (int32_t s = 0; s < from->stream_count; s++)
            tensors[i].streams[s] = places[from->streams[s]];
    }
    return COH_OK;
}

coh_status coh_logical_table_copy(const coh_logical_table *table, coh_logical_table *out_copy)
{
    int32_t places[COH_LOGICAL_STREAMS] = { 0 };
    *out_copy = (coh_logical_table){ 0 };
    COH_TRY(coh_logical_table_check(table));
    coh_status status = streams_copy(table, places, out_copy);
    if (status == COH_OK)
        status = tensors_copy(table, places, out_copy);
    if (status != COH_OK)
        coh_logical_table_free(out_copy);
    return status;
}

static void free_ours(const void *memory)
{
    coh_free((void *)(uintptr_t)memory);
}

void coh_logical_table_free(coh_logical_table *table)
{
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        free_ours(table->tensors[i].name);
        free_ours(table->tensors[i].optimizer);
    }
    for (int32_t i = 0; i < table->stream_count; i++)
        free_ours(table->streams[i].name);
    free_ours(table->tensors);
    free_ours(table->streams);
    *table = (coh_logical_table){ 0 };
}
