/* libFuzzer target: the header of a safetensors file (docs/building.md explains how to build and
 * run it). An accepted header is written and read again: the two lists must be equal, so a header
 * whose meaning differs between writer and reader is found, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "models/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

static coh_status header_read(const char *text, size_t bytes, uint64_t data_bytes,
                              coh_safetensors_header *header)
{
    char *copy;
    if (coh_alloc(bytes, 1, (void **)&copy) != COH_OK)
        abort();
    if (bytes)
        memcpy(copy, text, bytes);
    return coh_safetensors_header_read(copy, bytes, data_bytes, "fuzz", header);
}

/* Checks that the list covers [8 + header_bytes, 8 + header_bytes + data_bytes). */
static void cover_check(const coh_safetensors_header *header, uint64_t header_bytes,
                        uint64_t data_bytes)
{
    uint64_t end = 8 + header_bytes;
    for (size_t i = 0; i < header->count; i++) {
        check(header->tensors[i].offset == end);
        end += header->tensors[i].bytes;
    }
    check(end == 8 + header_bytes + data_bytes);
}

static void lists_compare(const coh_safetensors_header *left, const coh_safetensors_header *right)
{
    check(left->count == right->count && left->metadata_count == right->metadata_count);
    check(!left->metadata == !right->metadata);
    check(left->count == 0 || (left->tensors && right->tensors));
    check(left->metadata_count == 0 || (left->metadata && right->metadata));
    for (size_t i = 0; i < left->count; i++) {
        const coh_safetensors_tensor *a = &left->tensors[i], *b = &right->tensors[i];
        check(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank);
        check(memcmp(a->dim, b->dim, sizeof(a->dim)) == 0 && a->bytes == b->bytes);
    }
    for (size_t i = 0; i < left->metadata_count; i++)
        check(strcmp(left->metadata[i].key, right->metadata[i].key) == 0 &&
              strcmp(left->metadata[i].value, right->metadata[i].value) == 0);
}

/* The input: 4 bytes with the number of data bytes after the header, then the header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t data_bytes;
    if (size < sizeof(data_bytes))
        return 0;
    memcpy(&data_bytes, data, sizeof(data_bytes));
    size_t header_bytes = size - sizeof(data_bytes);
    coh_safetensors_header first, second = { 0 };
    coh_status status =
        header_read((const char *)data + sizeof(data_bytes), header_bytes, data_bytes, &first);
    check(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK) {
        coh_text text;
        uint64_t written_bytes;
        cover_check(&first, header_bytes, data_bytes);
        const coh_safetensors_list list = { first.tensors, first.count, first.metadata,
                                            first.metadata_count };
        check(coh_safetensors_header_write(&list, &text, &written_bytes) == COH_OK);
        check(written_bytes == data_bytes && text.bytes % 8 == 0);
        check(header_read(text.data + 8, text.bytes - 8, data_bytes, &second) == COH_OK);
        lists_compare(&first, &second);
        coh_text_fini(&text);
    }
    coh_safetensors_header_fini(&first);
    coh_safetensors_header_fini(&second);
    return 0;
}
