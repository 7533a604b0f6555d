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

static void sizes_check(const coh_manifest *manifest)
{
    wide all = 0, with_states = 0, grains = 0;
    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        const coh_logical_tensor *tensor = &manifest->tensors[i];
        const wide elements = elements_of(tensor, &grains);
        all += elements;
        with_states += tensor->has_states ? elements : 0;
        for (uint32_t k = 0; k < i; k++)
            check(strcmp(tensor->name, manifest->tensors[k].name) != 0);
    }
    const int has_states = with_states > 0;
    check(manifest->part_count == (has_states ? COH_PART_COUNT : 1));
    check(manifest->parameter_count == all);
    check(manifest->file_bytes[COH_FILE_WORK] == all * sizeof(float));
    if (has_states)
        check(manifest->file_bytes[COH_FILE_M] == with_states * sizeof(float) &&
              manifest->file_bytes[COH_FILE_V] == with_states * sizeof(float));
    check(manifest->file_bytes[COH_FILE_HASHES] ==
          grains * (wide)manifest->part_count * sizeof(uint64_t));
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
