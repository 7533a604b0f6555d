/* libFuzzer target: a checkpoint's manifest.json. A manifest ends with the hash of its text, which
 * a fuzzer cannot find: an input is read as it is, then with the correct end. An accepted manifest
 * must agree with sizes that are computed again here in 128 bits. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "engine/checkpoint_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__extension__ typedef unsigned __int128 wide;

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

/* Counts elements by shape, and their grains in *grains. */
static wide elements_of(const coh_logical_tensor *tensor, wide *grains)
{
    wide elements = 1;
    check(tensor->shape.rank >= 1 && tensor->shape.rank <= COH_RANK_MAX);
    for (int32_t d = 0; d < tensor->shape.rank; d++) {
        check(tensor->shape.dim[d] >= 1);
        elements *= (wide)tensor->shape.dim[d];
        check(elements <= INT64_MAX);
    }
    *grains += (elements + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    check(elements == tensor->elements);
    return elements;
}

/* Returns the bytes of a tensor's part: whole blocks. */
static wide bytes_of(const coh_state_stream *stream, wide elements)
{
    const wide per_block = stream->elements_per_block;
    check(per_block >= 1 && per_block <= 1024 && (per_block & (per_block - 1)) == 0);
    check(stream->bytes_per_block >= 1 && stream->bytes_per_block <= 4096);
    return (elements + per_block - 1) / per_block * stream->bytes_per_block;
}

static void streams_check(const coh_logical_table *table)
{
    check(table->stream_count >= 0 && table->stream_count <= COH_LOGICAL_STREAMS);
    for (int32_t s = 0; s < table->stream_count; s++) {
        const char *name = table->streams[s].name;
        check(coh_logical_is_name(name) && strcmp(name, "work") != 0 &&
              strcmp(name, "hashes") != 0 && strcmp(name, "manifest") != 0);
        for (int32_t k = 0; k < s; k++)
            check(strcmp(name, table->streams[k].name) != 0);
    }
}

static void sizes_check(const coh_manifest *manifest)
{
    const coh_logical_table *table = &manifest->table;
    wide all = 0, grains = 0, file_bytes[COH_FILE_HASHES] = { 0 };
    streams_check(table);
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const coh_logical_tensor *tensor = &table->tensors[i];
        const wide elements = elements_of(tensor, &grains);
        all += elements;
        if (tensor->optimizer == NULL && table->frozen != COH_FROZEN_IN_WORK)
            file_bytes[COH_FILE_FROZEN] += elements * (table->frozen == COH_FROZEN_BF16 ? 2 : 4);
        else
            file_bytes[COH_FILE_WORK] += elements * sizeof(float);
        check(tensor->optimizer ? coh_logical_is_name(tensor->optimizer)
                                : tensor->stream_count == 0);
        check(tensor->stream_count >= 0 && tensor->stream_count <= COH_OPTIMIZER_STREAMS);
        for (int32_t s = 0; s < tensor->stream_count; s++) {
            const int32_t stream = tensor->streams[s];
            check(stream >= 0 && stream < table->stream_count);
            for (int32_t k = 0; k < s; k++)
                check(tensor->streams[k] != stream);
            file_bytes[1 + stream] += bytes_of(&table->streams[stream], elements);
        }
        for (uint32_t k = 0; k < i; k++)
            check(strcmp(tensor->name, table->tensors[k].name) != 0);
    }
    check(manifest->parameter_count == all);
    for (int row = 0; row <= table->stream_count; row++)
        check((file_bytes[row] > 0 || (row == 0 && file_bytes[COH_FILE_FROZEN] > 0)) &&
              manifest->file_bytes[row] == file_bytes[row]);
    check((file_bytes[COH_FILE_FROZEN] > 0) == (table->frozen != COH_FROZEN_IN_WORK));
    check(manifest->file_bytes[COH_FILE_FROZEN] == file_bytes[COH_FILE_FROZEN]);
    check(manifest->file_bytes[COH_FILE_HASHES] ==
          grains * (1 + (wide)table->stream_count) * sizeof(uint64_t));
}

static void note_check(const char *text)
{
    json_t *note = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    check(json_is_object(note));
    json_decref(note);
}

static void parse(const char *text, size_t bytes)
{
    coh_manifest manifest;
    const coh_status status = coh_manifest_parse(text, bytes, &manifest);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK) {
        sizes_check(&manifest);
        note_check(manifest.note_json);
    } else {
        check(strstr(coh_last_error(), "manifest.json") != NULL);
    }
    coh_manifest_fini(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    const size_t room = size + COH_MANIFEST_SEAL_BYTES + 1;
    if (coh_alloc(room, 1, (void **)&text) != COH_OK)
        abort();
    if (size)
        memcpy(text, data, size);
    parse(text, size);
    snprintf(text + size, room - size, COH_MANIFEST_SEAL, coh_manifest_hash(text, size));
    parse(text, room - 1);
    coh_free(text);
    return 0;
}
