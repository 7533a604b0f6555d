/* safetensors_writing.h - writes the fixture, as a file or a folder of shards, and checks it
 * afterwards. Include after cmocka.h. */
#ifndef COH_TESTS_MODELS_SAFETENSORS_WRITING_H
#define COH_TESTS_MODELS_SAFETENSORS_WRITING_H

#include "tests/models/safetensors_fixture.h"
#include "tests/models/safetensors_whole.h"
#include "tests/text/folder.h"

static coh_safetensors_tensor list[FIXTURE_TENSORS];

/* Makes an empty folder for each test. */
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

/* Adds all data, in pieces of *piece_bytes, at most 4096. */
static inline coh_status add_all(void *piece_bytes, coh_safetensors_writer *writer)
{
    uint8_t piece[4096];
    const size_t full = *(const size_t *)piece_bytes;
    assert_true(full <= sizeof(piece));
    size_t filled = 0;
    for (uint64_t i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t at = 0; at < list[i].bytes; at++) {
            piece[filled++] = fixture_byte(i, at);
            if (filled == full) {
                COH_TRY(coh_safetensors_writer_add(writer, piece, filled));
                filled = 0;
            }
        }
    return coh_safetensors_writer_add(writer, piece, filled);
}

static inline whole_list fixture_whole(size_t *piece_bytes)
{
    return (whole_list){ { list, FIXTURE_TENSORS, fixture_metadata, FIXTURE_PAIRS },
                         add_all,
                         piece_bytes };
}

static inline coh_status write_file(const char *path, size_t piece_bytes)
{
    const whole_list all = fixture_whole(&piece_bytes);
    return whole_write_file(&all, path);
}

/* The fixture needs three shards of 16 KiB. */
enum { SHARD_BYTES = 16 << 10, SHARDS = 3 };

static inline coh_status write_folder(const char *path, uint64_t shard_bytes)
{
    size_t piece_bytes = 1000;
    const whole_list all = fixture_whole(&piece_bytes);
    (void)coh_safetensors_shard(list, FIXTURE_TENSORS, shard_bytes);
    return whole_write_folder(&all, path);
}

/* Checks that `path` holds exactly the fixture, in `file_count` files. */
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
