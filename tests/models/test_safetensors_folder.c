/* A folder of shards is accepted if its index agrees with its shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/models/safetensors_whole.h"
#include "tests/text/folder.h"

#define ONE "one.safetensors"
#define TWO "two.safetensors"

/* Each byte of a tensor is the first letter of its name. */
static coh_status add_letters(void *context, coh_safetensors_writer *writer)
{
    const coh_safetensors_list *list = context;
    for (size_t i = 0; i < list->count; i++) {
        char data[4];
        memset(data, list->tensors[i].name[0], sizeof(data));
        COH_TRY(coh_safetensors_writer_add(writer, data, sizeof(data)));
    }
    return COH_OK;
}

/* Writes a file of F32 scalars with these names. */
static void write_shard(const char *file, const char *const *names, size_t count)
{
    coh_safetensors_tensor tensors[8];
    for (size_t i = 0; i < count; i++)
        tensors[i] = (coh_safetensors_tensor){ .name = names[i], .dtype = "F32" };
    whole_list all = { { .tensors = tensors, .count = count }, add_letters, &all.list };
    if (whole_write_file(&all, folder_file(file)) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void write_index(const char *text)
{
    folder_write("model.safetensors.index.json", text, strlen(text));
}

/* Puts a and b into the first shard, c into the second. */
static int set_up(void **state)
{
    static const char *const first[] = { "a", "b" }, *const second[] = { "c" };
    if (folder_create(state) != 0)
        return -1;
    write_shard(ONE, first, 2);
    write_shard(TWO, second, 1);
    return 0;
}

#define MAP(entries)   "{\"metadata\":{\"total_size\":12},\"weight_map\":{" entries "}}"
#define IN(name, file) "\"" name "\":\"" file "\""

static void shards_make_one_list(void **state)
{
    (void)state;
    size_t count;
    coh_safetensors *model;
    write_index(MAP(IN("c", TWO) "," IN("a", ONE) "," IN("b", ONE)));
    if (coh_safetensors_open(folder_path, &model) != COH_OK)
        fail_msg("%s", coh_last_error());
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(model, &count);
    assert_int_equal(count, 3);
    assert_int_equal(coh_safetensors_file_count(model), 2);
    assert_string_equal(coh_safetensors_file_name(model, 0), ONE);
    assert_string_equal(coh_safetensors_file_name(model, 1), TWO);
    for (int i = 0; i < 3; i++) {
        char data[4];
        assert_int_equal(tensors[i].name[0], 'a' + i);
        assert_int_equal(tensors[i].file, i == 2);
        assert_ptr_equal(coh_safetensors_find(model, tensors[i].name), &tensors[i]);
        assert_int_equal(coh_safetensors_read(model, &tensors[i], 0, 4, data), COH_OK);
        assert_true(data[0] == 'a' + i && data[3] == 'a' + i);
    }
    coh_safetensors_close(model);
}

static void a_single_file_goes_before_an_index(void **state)
{
    (void)state;
    static const char *const names[] = { "z" };
    coh_safetensors *model;
    write_index("not even JSON");
    write_shard("model.safetensors", names, 1);
    assert_int_equal(coh_safetensors_open(folder_path, &model), COH_OK);
    assert_non_null(coh_safetensors_find(model, "z"));
    coh_safetensors_close(model);
}

/* Hugging Face's cache stores the bytes elsewhere; bad names are refused, links are not. */
static void a_shard_may_be_a_link_to_elsewhere(void **state)
{
    (void)state;
    coh_safetensors *model;
    assert_int_equal(mkdir(folder_file("snapshot"), 0700), 0);
    assert_int_equal(symlink("../" ONE, folder_file("snapshot/" ONE)), 0);
    static const char index[] = MAP(IN("a", ONE) "," IN("b", ONE));
    folder_write("snapshot/model.safetensors.index.json", index, sizeof(index) - 1);
    assert_int_equal(coh_safetensors_open(folder_file("snapshot"), &model), COH_OK);
    coh_safetensors_close(model);
}

#define REST IN("b", ONE) "," IN("c", TWO)

static const struct wrong_index {
    const char *text, *part;
} wrong_indexes[] = {
    { "", "line 1" },
    { "{", "line 1" },
    { "[]", "weight_map" },
    { "{}", "weight_map" },
    { "null", "line 1" },
    { "{\"weight_map\":[]}", "weight_map" },
    { "{\"weight_map\":{}}", "names no tensors" },
    { MAP(IN("a", ONE) "," REST) "x", "line 1" },
    { MAP(IN("a", ONE) "," REST ","), "line 1" },
    { MAP(IN("a", ONE) "," IN("a", ONE) "," REST), "duplicate" },
    { "{\"weight_map\":{},\"weight_map\":{}}", "duplicate" },
    { MAP("\"a\":1," REST), "is no string" },
    { MAP("\"a\":null," REST), "is no string" },
    { MAP("\"a\":[\"" ONE "\"]," REST), "is no string" },
    { MAP("\"a\\u0000\":\"" ONE "\"," REST), "line 1" },
    { MAP("\"\xff\":\"" ONE "\"," REST), "line 1" },
    /* Names that lead out of the folder, or are invalid. */
    { MAP(IN("a", "../" ONE) "," REST), "not the name" },
    { MAP(IN("a", "/etc/" ONE) "," REST), "not the name" },
    { MAP(IN("a", "x/../../" ONE) "," REST), "not the name" },
    { MAP(IN("a", "./" ONE) "," REST), "not the name" },
    { MAP(IN("a", "..") "," REST), "not the name" },
    { MAP(IN("a", ".") "," REST), "not the name" },
    { MAP(IN("a", "") "," REST), "not the name" },
    { MAP(IN("a", ".safetensors") "," REST), "not the name" },
    { MAP(IN("a", "..safetensors") "," REST), "not the name" },
    { MAP(IN("a", "model.bin") "," REST), "not the name" },
    { MAP(IN("a", "one\\n.safetensors") "," REST), "not the name" },
    /* Index and shards disagree. */
    { MAP(IN("a", "three.safetensors") "," REST), "three.safetensors is missing" },
    { MAP(IN("a", TWO) "," REST), "puts tensor a into " TWO ", but it is in " ONE },
    { MAP(REST), "does not name tensor a, which is in " ONE },
    { MAP(IN("a", ONE) "," IN("d", ONE) "," REST),
      "puts tensor d into " ONE ", which has no such" },
    { MAP(IN("a", ONE) "," IN("", TWO) "," REST), TWO ", which has no such" },
};

static void assert_refused(coh_status expected, const char *part)
{
    coh_safetensors *model = (coh_safetensors *)1;
    coh_status status = coh_safetensors_open(folder_path, &model);
    const char *sentence = coh_last_error();
    assert_null(model);
    if (status != expected || !strstr(sentence, part) || !strstr(sentence, folder_path))
        fail_msg("status %d, not %d: \"%s\" does not say \"%s\" of %s", status, expected, sentence,
                 part, folder_path);
    for (const char *at = sentence; *at; at++)
        assert_false((unsigned char)*at < 0x20 || *at == 0x7f);
}

static void a_wrong_index_is_refused_with_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong_indexes) / sizeof(wrong_indexes[0]); i++) {
        write_index(wrong_indexes[i].text);
        assert_refused(COH_ERR_CORRUPT, wrong_indexes[i].part);
    }
}

static void an_index_cut_off_anywhere_is_refused(void **state)
{
    (void)state;
    static const char whole[] = MAP(IN("a", ONE) "," REST);
    for (size_t i = 0; i < sizeof(whole) - 1; i++) {
        folder_write("model.safetensors.index.json", whole, i);
        assert_refused(COH_ERR_CORRUPT, "model.safetensors.index.json");
    }
}

static void wrong_shards_are_refused(void **state)
{
    (void)state;
    static const char *const both[] = { "c", "a" };
    write_index(MAP(IN("a", ONE) "," REST));
    write_shard(TWO, both, 2);
    assert_refused(COH_ERR_CORRUPT, "tensor a is in both " ONE " and");
    folder_write(TWO, "\2\0\0\0\0\0\0\0{}", 10);
    assert_refused(COH_ERR_CORRUPT, "puts tensor c into " TWO ", which has no such");
    folder_write(TWO, "\2\0\0\0\0\0\0\0{]", 10);
    assert_refused(COH_ERR_CORRUPT, TWO);
    assert_int_equal(remove(folder_file(TWO)), 0);
    assert_refused(COH_ERR_CORRUPT, TWO " is missing");
    assert_int_equal(remove(folder_file("model.safetensors.index.json")), 0);
    assert_refused(COH_ERR_ARGUMENT, "holds neither");
    write_shard("model-00001-of-00002.safetensors", both, 2);
    assert_refused(COH_ERR_CORRUPT, "holds model-00001-of-00002.safetensors, and model.safetensors."
                                    "index.json, which names the files of all tensors, is missing");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, folder_remove)

int main(void)
{
    temporary_in_memory();
    const struct CMUnitTest tests[] = {
        CASE(shards_make_one_list),
        CASE(a_single_file_goes_before_an_index),
        CASE(a_shard_may_be_a_link_to_elsewhere),
        CASE(a_wrong_index_is_refused_with_its_reason),
        CASE(an_index_cut_off_anywhere_is_refused),
        CASE(wrong_shards_are_refused),
    };
    return cmocka_run_group_tests_name("safetensors_folder", tests, NULL, NULL);
}
