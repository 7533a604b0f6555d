/* Writing safetensors: the output has the input's data byte for byte, and nothing else is written.
 * test_safetensors_faults.c tests failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/models/safetensors_writing.h"

static void assert_same_bytes(const char *left_path, const char *right_path)
{
    size_t left_bytes, right_bytes;
    char *left = folder_read(left_path, &left_bytes),
         *right = folder_read(right_path, &right_bytes);
    assert_int_equal(left_bytes, right_bytes);
    assert_memory_equal(left, right, left_bytes);
    free(left);
    free(right);
}

/* ---- round trips ---- */

static void what_was_written_is_read_whatever_the_pieces(void **state)
{
    (void)state;
    static const size_t pieces[] = { 1, 3, 1000, 4096 };
    assert_int_equal(write_file(folder_file("first"), 17), COH_OK);
    assert_is_fixture(folder_file("first"), 1);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        assert_int_equal(write_file(folder_file("again"), pieces[i]), COH_OK);
        assert_same_bytes(folder_file("first"), folder_file("again"));
        assert_int_equal(remove(folder_file("again")), 0);
    }
    assert_int_equal(folder_count(), 1);
}

static coh_status add_copy(void *context, coh_safetensors_writer *writer)
{
    size_t count;
    uint8_t piece[1500];
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(context, &count);
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < tensors[i].bytes; at += sizeof(piece)) {
            uint64_t left = tensors[i].bytes - at;
            size_t bytes = left < sizeof(piece) ? (size_t)left : sizeof(piece);
            COH_TRY(coh_safetensors_read(context, &tensors[i], at, bytes, piece));
            COH_TRY(coh_safetensors_writer_add(writer, piece, bytes));
        }
    return COH_OK;
}

/* Copies a file: its tensors in order, its metadata, its data through `piece`. */
static void copy_file(const char *from, const char *to)
{
    coh_safetensors *model;
    assert_int_equal(coh_safetensors_open(from, &model), COH_OK);
    whole_list all = { .data = add_copy, .context = model };
    all.list.tensors = coh_safetensors_tensors(model, &all.list.count);
    all.list.metadata = coh_safetensors_metadata(model, 0, &all.list.metadata_count);
    if (whole_write_file(&all, to) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_safetensors_close(model);
}

/* Written by the reference's save() (0.8.0): an F32 scalar "a", an F16 [2] "b", an F32 [2, 0] whose
 * name needs escapes, and metadata that need one, too. */
static const char from_reference[] =
    "\xe0\0\0\0\0\0\0\0"
    "{\"__metadata__\":{\"a\":\"\\u001f\xe2\x80\xa8\",\"b\":\"x\",\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
    "\"\xc3\xa9\\\"\\\\/\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[4,4]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}  "
    "\0\1\2\3\4\5\6\7";

static void a_file_of_the_reference_is_copied_byte_for_byte(void **state)
{
    (void)state;
    folder_write("theirs", from_reference, sizeof(from_reference) - 1);
    copy_file(folder_file("theirs"), folder_file("ours"));
    assert_same_bytes(folder_file("theirs"), folder_file("ours"));
}

static void a_copy_of_a_copy_is_the_copy(void **state)
{
    (void)state;
    assert_int_equal(write_file(folder_file("first"), 4096), COH_OK);
    copy_file(folder_file("first"), folder_file("second"));
    assert_same_bytes(folder_file("first"), folder_file("second"));
}

static void the_reference_order_is_by_width_then_name(void **state)
{
    (void)state;
    coh_safetensors_tensor shuffled[FIXTURE_TENSORS];
    static const int order[FIXTURE_TENSORS] = { 6, 3, 0, 7, 2, 5, 4, 1 };
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        shuffled[i] = list[order[i]];
    coh_safetensors_sort(shuffled, FIXTURE_TENSORS);
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        assert_string_equal(shuffled[i].name, list[i].name);
    coh_safetensors_sort(NULL, 0);
}

static coh_status add_nothing(void *context, coh_safetensors_writer *writer)
{
    (void)context;
    (void)writer;
    return COH_OK;
}

static void a_model_without_tensors_can_be_written(void **state)
{
    (void)state;
    const whole_list nothing = { .data = add_nothing };
    assert_int_equal(whole_write_file(&nothing, folder_file("none")), COH_OK);
    size_t bytes;
    char *text = folder_read(folder_file("none"), &bytes);
    assert_int_equal(bytes, 16);
    assert_memory_equal(text, "\x8\0\0\0\0\0\0\0{}      ", 16); /* as the reference writes it */
    free(text);
}

/* Some writers leave an empty object: a file that had it gets it again, others do not. */
static void metadata_without_entries_stay(void **state)
{
    (void)state;
    static const char empty[] = "\x18\0\0\0\0\0\0\0{\"__metadata__\":{}}     ";
    static const char none[] = "\x8\0\0\0\0\0\0\0{}      ";
    folder_write("empty", empty, sizeof(empty) - 1);
    folder_write("none", none, sizeof(none) - 1);
    copy_file(folder_file("empty"), folder_file("empty again"));
    copy_file(folder_file("none"), folder_file("none again"));
    assert_same_bytes(folder_file("empty"), folder_file("empty again"));
    assert_same_bytes(folder_file("none"), folder_file("none again"));
}

enum { BYTES = 900001 };
static uint8_t data[BYTES];

static coh_status add_large(void *piece_bytes, coh_safetensors_writer *writer)
{
    const size_t full = *(const size_t *)piece_bytes;
    for (size_t at = 0; at < BYTES; at += full)
        COH_TRY(
            coh_safetensors_writer_add(writer, data + at, BYTES - at < full ? BYTES - at : full));
    return COH_OK;
}

/* Pieces smaller and larger than the buffer, and a single one, of data several times its size. */
static void data_beyond_the_buffer_are_written(void **state)
{
    (void)state;
    enum { BUFFER = 256 << 10 };
    static size_t pieces[] = { 4099, BUFFER - 1, BUFFER, BUFFER + 1, BYTES };
    static uint8_t found[BYTES];
    const coh_safetensors_tensor tensor = {
        .name = "a", .dtype = "U8", .rank = 1, .dim = { BYTES }
    };
    for (size_t i = 0; i < BYTES; i++)
        data[i] = fixture_byte(0, i);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        coh_safetensors *model;
        const char *path = folder_file("large");
        const whole_list all = { { .tensors = &tensor, .count = 1 }, add_large, &pieces[i] };
        assert_int_equal(whole_write_file(&all, path), COH_OK);
        assert_int_equal(coh_safetensors_open(path, &model), COH_OK);
        assert_int_equal(
            coh_safetensors_read(model, coh_safetensors_find(model, "a"), 0, BYTES, found), COH_OK);
        assert_memory_equal(data, found, BYTES);
        coh_safetensors_close(model);
        assert_int_equal(remove(path), 0);
    }
}

/* ---- folders ---- */

static void shards_are_as_large_as_asked_and_keep_the_order(void **state)
{
    (void)state;
    for (uint64_t limit = 1; limit < 90000; limit += 1 + limit / 3) {
        uint32_t count = coh_safetensors_shard(list, FIXTURE_TENSORS, limit);
        uint64_t used = 0, file = 0;
        for (int i = 0; i < FIXTURE_TENSORS; i++) {
            if (list[i].file != file) {
                /* A new shard begins only where it must. */
                assert_int_equal(list[i].file, file + 1);
                assert_true(used + list[i].bytes > limit && used > 0);
                file++;
                used = 0;
            }
            used += list[i].bytes;
            assert_true(used <= limit || used == list[i].bytes);
        }
        assert_int_equal(count, file + 1);
    }
    assert_int_equal(coh_safetensors_shard(list, FIXTURE_TENSORS, 0), 1);
    assert_int_equal(coh_safetensors_shard(list, 0, 5), 1);
}

static void a_folder_is_written_and_read_in_any_shards(void **state)
{
    (void)state;
    assert_int_equal(write_folder(folder_file("one"), 0), COH_OK);
    assert_is_fixture(folder_file("one"), 1);
    assert_is_fixture(folder_file("one/model.safetensors"), 1);
    assert_int_equal(folder_count(), 2);
    for (uint64_t limit = 1; limit < 90000; limit = limit * 5 + 1) {
        const char *path = folder_file("shards");
        uint32_t count = coh_safetensors_shard(list, FIXTURE_TENSORS, limit);
        assert_int_equal(write_folder(path, limit), COH_OK);
        assert_is_fixture(path, count);
        assert_int_equal(folder_count(), 3 + count + (count > 1));
        assert_int_equal(temporary_remove(path), 0);
    }
}

/* Equals `json.dumps(index, indent=2, sort_keys=True) + "\n"`. */
static const char index_of_fixture[] =
    "{\n  \"metadata\": {\n    \"total_size\": 83302\n  },\n  \"weight_map\": {\n"
    "    \"b\": \"model-00002-of-00003.safetensors\",\n"
    "    \"b\\\"\\\\\": \"model-00003-of-00003.safetensors\",\n"
    "    \"f16\": \"model-00003-of-00003.safetensors\",\n"
    "    \"h.0.weight\": \"model-00001-of-00003.safetensors\",\n"
    "    \"h.1.\xc3\xa9\": \"model-00001-of-00003.safetensors\",\n"
    "    \"h.2.none\": \"model-00001-of-00003.safetensors\",\n"
    "    \"mask\": \"model-00003-of-00003.safetensors\",\n"
    "    \"step\": \"model-00001-of-00003.safetensors\"\n  }\n}\n";

static void the_index_is_laid_out_as_transformers_does(void **state)
{
    (void)state;
    assert_int_equal(write_folder(folder_file("shards"), SHARD_BYTES), COH_OK);
    char *text = folder_read(folder_file("shards/model.safetensors.index.json"), NULL);
    assert_string_equal(text, index_of_fixture);
    free(text);
    assert_is_fixture(folder_file("shards"), SHARDS);
}

static coh_status add_one_too_many(void *context, coh_safetensors_writer *writer)
{
    (void)context;
    assert_int_equal(coh_safetensors_writer_add(writer, "1234", 4), COH_OK);
    assert_int_equal(coh_safetensors_writer_add(writer, "5", 1), COH_ERR_ARGUMENT);
    return COH_OK;
}

/* Shards that only hold tensors without elements, also at the end. */
static void shards_without_bytes_are_written(void **state)
{
    (void)state;
    coh_safetensors_tensor tensors[4];
    for (int i = 0; i < 4; i++) {
        tensors[i] = (coh_safetensors_tensor){ .dtype = "F32", .rank = 1, .dim = { i == 1 } };
        tensors[i].name = &"a\0b\0c\0d"[2 * i];
        tensors[i].file = (uint32_t)i;
    }
    const whole_list all = { { .tensors = tensors, .count = 4 }, add_one_too_many, NULL };
    assert_int_equal(whole_write_folder(&all, folder_file("shards")), COH_OK);
    coh_safetensors *model;
    assert_int_equal(coh_safetensors_open(folder_file("shards"), &model), COH_OK);
    assert_int_equal(coh_safetensors_file_count(model), 4);
    coh_safetensors_close(model);
}

/* ---- refusals ---- */

static void assert_create_refused(const coh_safetensors_tensor *tensors, size_t count,
                                  const coh_safetensors_pair *pairs, size_t pair_count,
                                  coh_status expected, const char *part)
{
    const whole_list all = { { tensors, count, pairs, pair_count }, add_nothing, NULL };
    coh_status status = whole_write_folder(&all, folder_file("refused"));
    if (status != expected || !strstr(coh_last_error(), part))
        fail_msg("status %d, not %d: \"%s\" does not say \"%s\"", status, expected,
                 coh_last_error(), part);
    assert_int_equal(folder_count(), 0);
}

static void what_the_reader_would_refuse_is_not_written(void **state)
{
    (void)state;
    static char long_name[COH_SAFETENSORS_NAME_BYTES + 2];
    memset(long_name, 'n', sizeof(long_name) - 1);
    const struct {
        coh_safetensors_tensor tensor;
        const char *part;
    } wrong[] = {
        { { .name = "", .dtype = "F32" }, "is empty" },
        { { .name = "a\nb", .dtype = "F32" }, "control character" },
        { { .name = long_name, .dtype = "F32" }, "too long" },
        { { .name = "\xff", .dtype = "F32" }, "not UTF-8" },
        { { .name = NULL, .dtype = "F32" }, "not UTF-8" },
        { { .name = "__metadata__", .dtype = "F32" }, "format's own" },
        { { .name = "a", .dtype = "f32" }, "dtype" },
        { { .name = "a", .dtype = NULL }, "dtype" },
        { { .name = "a", .dtype = "F32", .rank = 9 }, "8 dimensions" },
        { { .name = "a", .dtype = "F32", .rank = -1 }, "8 dimensions" },
        { { .name = "a", .dtype = "F32", .rank = 1, .dim = { -1 } }, "negative" },
        { { .name = "a", .dtype = "F32", .rank = 2, .dim = { INT64_MAX, 3 } }, "64 bits" },
        { { .name = "a", .dtype = "F4", .rank = 1, .dim = { 3 } }, "last byte" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_create_refused(&wrong[i].tensor, 1, NULL, 0, COH_ERR_ARGUMENT, wrong[i].part);
    list[5].name = list[1].name;
    assert_create_refused(list, FIXTURE_TENSORS, NULL, 0, COH_ERR_ARGUMENT,
                          "two tensors are named h.0.weight");
    const coh_safetensors_pair twice[] = { { "k", "1" }, { "l", "2" }, { "k", "3" } };
    assert_create_refused(NULL, 0, twice, 3, COH_ERR_ARGUMENT, "\"k\" twice");
    const coh_safetensors_pair foreign = { "k", "\xc3" };
    assert_create_refused(NULL, 0, &foreign, 1, COH_ERR_ARGUMENT, "not UTF-8");
}

/* Each of 2^60 bytes fits; 9 of them exceed a file's 2^63, 17 exceed 64 bits. */
static void sums_of_sizes_do_not_wrap_around(void **state)
{
    (void)state;
    enum { COUNT = 17 };
    coh_safetensors_tensor huge[COUNT];
    static char names[COUNT][2];
    for (int i = 0; i < COUNT; i++) {
        names[i][0] = (char)('a' + i);
        huge[i] = (coh_safetensors_tensor){
            .name = names[i], .dtype = "F64", .rank = 2, .dim = { 1 << 29, 1 << 28 }
        };
    }
    assert_create_refused(huge, COUNT, NULL, 0, COH_ERR_FULL, "overflows 64 bits");
    assert_create_refused(huge, 9, NULL, 0, COH_ERR_FULL, "do not fit in one file");
    /* Each gets its own shard, and the count does not overflow, either. */
    assert_int_equal(coh_safetensors_shard(huge, COUNT, UINT64_MAX), 2);
    assert_int_equal(coh_safetensors_shard(huge, COUNT, 1), COUNT);
}

static coh_status add_too_few(void *context, coh_safetensors_writer *writer)
{
    (void)context;
    assert_int_equal(coh_safetensors_writer_add(writer, "1234567", 7), COH_OK);
    assert_int_equal(coh_safetensors_writer_finish(writer), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "it lacks 1 byte of data"));
    return coh_safetensors_writer_add(writer, "89", 2);
}

static void too_few_and_too_many_bytes_are_refused(void **state)
{
    (void)state;
    coh_safetensors_tensor tensor = { .name = "a", .dtype = "F32", .rank = 1, .dim = { 2 } };
    const whole_list all = { { .tensors = &tensor, .count = 1 }, add_too_few, NULL };
    assert_int_equal(whole_write_folder(&all, folder_file("few")), COH_ERR_ARGUMENT);
    assert_int_equal(folder_count(), 0);
    coh_safetensors_writer_destroy(NULL);
}

static void shards_out_of_order_are_refused(void **state)
{
    (void)state;
    const whole_list all = { { .tensors = list, .count = 2 }, add_nothing, NULL };
    static const uint32_t wrong[][2] = { { 1, 1 }, { 0, 2 }, { 1, 0 } };
    for (int i = 0; i < 3; i++) {
        list[0].file = wrong[i][0];
        list[1].file = wrong[i][1];
        assert_int_equal(whole_write_folder(&all, folder_file("wrong")), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "shards follow one another"));
    }
    /* A name that two shards have is found before anything is written. */
    list[0].file = 0;
    list[1] = list[0];
    list[1].file = 1;
    assert_int_equal(whole_write_folder(&all, folder_file("wrong")), COH_ERR_ARGUMENT);
    assert_int_equal(folder_count(), 0);
}

/* A file appears during writing, before the folder is renamed. */
static coh_status add_late(void *context, coh_safetensors_writer *writer)
{
    (void)context;
    (void)writer;
    folder_write("late", "precious", 8);
    return COH_OK;
}

static void nothing_that_exists_is_written_over(void **state)
{
    (void)state;
    folder_write("early", "precious", 8);
    assert_int_equal(mkdir(folder_file("empty"), 0700), 0);
    assert_int_equal(write_folder(folder_file("early"), SHARD_BYTES), COH_ERR_ARGUMENT);
    assert_int_equal(write_folder(folder_file("empty"), SHARD_BYTES), COH_ERR_ARGUMENT);
    assert_int_equal(folder_count(), 2);
    const whole_list late = { .data = add_late };
    assert_int_equal(whole_write_folder(&late, folder_file("late")), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "exists"));
    static const char *const names[] = { "early", "late" };
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *text = folder_read(folder_file(names[i]), &bytes);
        assert_int_equal(bytes, 8);
        assert_memory_equal(text, "precious", 8);
        free(text);
    }
    assert_int_equal(folder_count(), 3);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    temporary_in_memory();
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_is_read_whatever_the_pieces),
        CASE(a_file_of_the_reference_is_copied_byte_for_byte),
        CASE(a_copy_of_a_copy_is_the_copy),
        CASE(the_reference_order_is_by_width_then_name),
        CASE(a_model_without_tensors_can_be_written),
        CASE(metadata_without_entries_stay),
        CASE(data_beyond_the_buffer_are_written),
        CASE(shards_are_as_large_as_asked_and_keep_the_order),
        CASE(a_folder_is_written_and_read_in_any_shards),
        CASE(the_index_is_laid_out_as_transformers_does),
        CASE(shards_without_bytes_are_written),
        CASE(what_the_reader_would_refuse_is_not_written),
        CASE(sums_of_sizes_do_not_wrap_around),
        CASE(too_few_and_too_many_bytes_are_refused),
        CASE(shards_out_of_order_are_refused),
        CASE(nothing_that_exists_is_written_over),
    };
    return cmocka_run_group_tests_name("safetensors_write", tests, NULL, NULL);
}
