/* safetensors_writing.h - writing the fixture, as a file or a folder of shards, and finding it
 * again. Include after cmocka.h. */
#ifndef COH_TESTS_MODELS_SAFETENSORS_WRITING_H
#define COH_TESTS_MODELS_SAFETENSORS_WRITING_H

#include "base/check.h"
#include "tests/models/safetensors_fixture.h"
#include "tests/text/folder.h"

static coh_safetensors_tensor list[FIXTURE_TENSORS];

/* An empty folder for each test. */
static inline int set_up(void **state)
{
    unsetenv("COH_TEST_FAIL_AT");
    unsetenv("COH_TEST_EXIT_AT");
    unsetenv("COH_TEST_POWER_CUT_AT");
    fixture_list(list);
    return folder_create(state);
}

static inline int tear_down(void **state)
{
    return folder_remove(state);
}

/* ---- writing the fixture ---- */

/* All data, in pieces of this many bytes, at most 4096. */
static inline coh_status add_all(coh_status (*add)(void *writer, const void *data, size_t bytes),
                                 void *writer, size_t piece_bytes)
{
    uint8_t piece[4096];
    assert_true(piece_bytes <= sizeof(piece));
    size_t filled = 0;
    for (uint64_t i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t at = 0; at < list[i].bytes; at++) {
            piece[filled++] = fixture_byte(i, at);
            if (filled == piece_bytes) {
                COH_TRY(add(writer, piece, filled));
                filled = 0;
            }
        }
    return add(writer, piece, filled);
}

static inline coh_status add_to_file(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_writer_add(writer, data, bytes);
}

static inline coh_status add_to_folder(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_folder_writer_add(writer, data, bytes);
}

static inline coh_status write_file(const char *path, size_t piece_bytes)
{
    coh_safetensors_writer *writer;
    coh_status status = coh_safetensors_writer_create(path, list, FIXTURE_TENSORS, fixture_metadata,
                                                      FIXTURE_PAIRS, &writer);
    if (status == COH_OK)
        status = add_all(add_to_file, writer, piece_bytes);
    if (status == COH_OK)
        status = coh_safetensors_writer_finish(writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_publish(writer);
    coh_safetensors_writer_destroy(writer);
    return status;
}

/* Shards of 16 KiB make 3 of the fixture. */
enum { SHARD_BYTES = 16 << 10, SHARDS = 3 };

static inline coh_status write_folder(const char *path, uint64_t shard_bytes)
{
    coh_safetensors_folder_writer *writer;
    (void)coh_safetensors_shard(list, FIXTURE_TENSORS, shard_bytes);
    coh_status status = coh_safetensors_folder_writer_create(
        path, list, FIXTURE_TENSORS, fixture_metadata, FIXTURE_PAIRS, &writer);
    if (status == COH_OK)
        status = add_all(add_to_folder, writer, 1000);
    if (status == COH_OK)
        status = coh_safetensors_folder_writer_publish(writer);
    coh_safetensors_folder_writer_destroy(writer);
    return status;
}

/* What is at `path` is the fixture, all of it, in `file_count` files. */
static inline void assert_is_fixture(const char *path, uint32_t file_count)
{
    coh_safetensors *model;
    if (coh_safetensors_open(path, &model) != COH_OK)
        fail_msg("%s", coh_last_error());
    size_t count, pairs;
    assert_int_equal(coh_safetensors_file_count(model), file_count);
    (void)coh_safetensors_tensors(model, &count);
    assert_int_equal(count, FIXTURE_TENSORS);
    for (uint64_t i = 0; i < FIXTURE_TENSORS; i++) {
        const coh_safetensors_tensor *found = coh_safetensors_find(model, list[i].name);
        assert_non_null(found);
        assert_string_equal(found->dtype, list[i].dtype);
        assert_int_equal(found->rank, list[i].rank);
        assert_memory_equal(found->dim, list[i].dim, sizeof(found->dim));
        assert_int_equal(found->bytes, list[i].bytes);
        uint8_t *data = malloc(found->bytes + 1);
        assert_non_null(data);
        assert_int_equal(coh_safetensors_read(model, found, 0, found->bytes, data), COH_OK);
        for (uint64_t at = 0; at < found->bytes; at++)
            assert_int_equal(data[at], fixture_byte(i, at));
        free(data);
    }
    for (uint32_t file = 0; file < file_count; file++) {
        const coh_safetensors_pair *metadata = coh_safetensors_metadata(model, file, &pairs);
        assert_int_equal(pairs, FIXTURE_PAIRS);
        for (int i = 0; i < FIXTURE_PAIRS; i++) {
            assert_string_equal(metadata[i].key, fixture_metadata[i].key);
            assert_string_equal(metadata[i].value, fixture_metadata[i].value);
        }
    }
    coh_safetensors_close(model);
}

#endif
