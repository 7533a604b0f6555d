/* The algorithms of devices in a kernel table (engine/kernel_table.h, kernels/algorithm.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/rng.h"
#include "engine/kernel_table.h"
#include "tests/faults/alloc_faults.h"
#include "tests/temporary.h"

static char folder[256], path[320];

static int make_folder(void **state)
{
    (void)state;
    if (temporary_folder(folder, sizeof(folder), "kernels") != 0)
        return -1;
    snprintf(path, sizeof(path), "%s/kernels.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    coh_algorithms_take(NULL, 0);
    return rmdir(folder);
}

enum { FORMS = 24 };

static coh_product_form made_form(int i)
{
    return (coh_product_form){ .rows = 1 + i,
                               .columns = 5,
                               .depth = 3,
                               .a_stride = i % 3 == COH_MATMUL_TN ? 40 : 3,
                               .b_stride = 8,
                               .c_stride = 5,
                               .layout = i % 3,
                               .dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                               .c_dtype = COH_DTYPE_F32,
                               .adds = i % 5 == 0,
                               .bias = i % 7 == 0,
                               .relu = i % 4 == 0,
                               .alignment = 1 << i % 9 };
}

static coh_algorithm_device made_device(int i)
{
    static const char *const names[] = { "NVIDIA H200", "NVIDIA \"A\" 100", "NVIDIA H200" };
    coh_algorithm_device device = { .multiprocessors = i == 1 ? 108 : 132,
                                    .library_version = i == 2 ? 130400 : 130100 };
    snprintf(device.name, sizeof(device.name), "%s", names[i]);
    return device;
}

/* Makes every form of each of three devices, with distinct words. */
static void make_all(coh_algorithm all[3 * FORMS])
{
    for (int i = 0; i < 3 * FORMS; i++) {
        all[i] = (coh_algorithm){ .device = made_device(i / FORMS), .form = made_form(i % FORMS) };
        for (int w = 0; w < COH_ALGORITHM_WORDS; w++)
            all[i].words[w] = coh_rng_u64(5, (uint64_t)i, (uint64_t)w);
        all[i].microseconds = 1.5 + i;
    }
}

static void a_table_of_devices_gives_each_form_the_words_it_was_written_with(void **state)
{
    (void)state;
    coh_algorithm all[3 * FORMS];
    make_all(all);
    const coh_kernel_list list = { .algorithms = all, .algorithm_count = 3 * FORMS };
    assert_int_equal(coh_kernel_table_write(&list, path), COH_OK);
    assert_int_equal(coh_kernels_use(path, NULL, 0), COH_OK);
    for (int i = 0; i < 3 * FORMS; i++) {
        const uint64_t *words = coh_algorithm_find(&all[i].device, &all[i].form);
        assert_non_null(words);
        assert_memory_equal(words, all[i].words, sizeof(all[i].words));
        coh_product_form other = all[i].form;
        other.alignment = 512;
        assert_null(coh_algorithm_find(&all[i].device, &other));
    }
    coh_algorithm_device stranger = made_device(0);
    stranger.multiprocessors = 114;
    assert_null(coh_algorithm_find(&stranger, &all[0].form));
    assert_int_equal(coh_algorithms_hash(&stranger), 0);
    const coh_algorithm_device a = made_device(0), b = made_device(2);
    assert_true(coh_algorithms_hash(&a) != 0);
    assert_true(coh_algorithms_hash(&a) != coh_algorithms_hash(&b));
}

#define HEX_32 "0123456789abcdef0123456789abcdef"

static const char whole[] =
    "{\n  \"format\": \"cohobate kernels\",\n  \"version\": 1,\n  \"machine\": \"m\",\n"
    "  \"date\": \"2026-01-31\",\n  \"threads\": 0,\n  \"products\": [\n  ],\n  \"devices\": [\n"
    "    {\"name\": \"NVIDIA H200\", \"multiprocessors\": 132, \"cublaslt\": 130100, \"products\": "
    "[\n"
    "      {\"dtype\": \"f32\", \"c_dtype\": \"f32\", \"layout\": \"nt\", \"rows\": 7, "
    "\"columns\": 5, \"depth\": 3, \"strides\": [3, 4, 5], \"adds\": false, \"bias\": true, "
    "\"relu\": false, \"alignment\": 256, \"algorithm\": "
    "\"" HEX_32 HEX_32 HEX_32 HEX_32 "\", \"microseconds\": 1.5},\n"
    "      {\"dtype\": \"bf16\", \"c_dtype\": \"f32\", \"layout\": \"tn\", \"rows\": 7, "
    "\"columns\": 5, \"depth\": 3, \"strides\": [7, 5, 5], \"adds\": true, \"bias\": false, "
    "\"relu\": false, \"alignment\": 16, \"algorithm\": "
    "\"" HEX_32 HEX_32 HEX_32 HEX_32 "\", \"microseconds\": 2}\n    ]}\n  ]\n}\n";

/* Reads `whole` with the n-th `find` replaced (n from 0). */
static coh_status use_changed(const char *find, int n, const char *replacement)
{
    char text[2 * sizeof(whole)];
    const char *at = strstr(whole, find);
    for (; n > 0 && at != NULL; n--)
        at = strstr(at + 1, find);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, replacement,
             at + strlen(find));
    assert_int_equal(coh_file_write_whole(path, text, strlen(text)), COH_OK);
    return coh_kernels_use(path, NULL, 0);
}

static void what_is_no_algorithm_is_refused_with_its_place_and_changes_nothing(void **state)
{
    (void)state;
    static const struct changed {
        const char *find;
        int n;
        const char *replacement, *says;
    } all[] = {
        { "\"devices\": [", 0, "\"devices\": 3, \"x\": [", "entry x: it is not known" },
        { "132", 0, "0", "entry devices[0].multiprocessors: expected a whole number" },
        { "132", 0, "132, \"more\": 1", "entry devices[0].more: it is not known" },
        { "130100", 0, "\"13\"", "entry devices[0].cublaslt: expected a whole number" },
        { "NVIDIA", 0, "A name of more than the sixty-three bytes that a device can have, all",
          "entry devices[0].name: expected a text of at most 63 bytes" },
        { "\"f32\"", 0, "\"f64\"",
          "entry devices[0].products[0].dtype: expected one of \"f32\", \"bf16\", found \"f64\"" },
        { "\"f32\"", 1, "\"f16\"", "products[0].c_dtype: expected one of" },
        { "\"f32\"", 2, "\"f16\"", "products[1].c_dtype: expected one of" },
        { "\"tn\"", 0, "\"tt\"", "products[1].layout: expected one of" },
        { "\"rows\": 7", 1, "\"rows\": 0",
          "products[1].rows: expected a whole number from 1 on, found 0" },
        { "[3, 4, 5]", 0, "[2, 4, 5]", "products[0]: a stride" },
        { "[3, 4, 5]", 0, "[3, 2, 5]", "products[0]: a stride" },
        { "[3, 4, 5]", 0, "[3, 4, 4]", "products[0]: a stride" },
        { "[7, 5, 5]", 0, "[6, 5, 5]", "products[1]: a stride" },
        { "[7, 5, 5]", 0, "[7, 5]", "products[1].strides: expected a list of 3" },
        { "256", 0, "512", "products[0].alignment: expected a whole number 1..256, found 512" },
        { "256", 0, "24", "products[0].alignment: expected a power of two, found 24" },
        { "256", 0, "4294967552", "products[0].alignment: expected" },
        { HEX_32 "\"", 0, "0123456789abcdef0123456789abcde\"",
          "products[0].algorithm: expected 128 hexadecimal digits" },
        { HEX_32 "\"", 1, "0123456789abcdef0123456789ABCDEF\"", "products[1].algorithm: expected" },
        { "1.5", 0, "0", "products[0].microseconds: expected a number" },
        { "\"bias\": true", 0, "\"bias\": 1", "products[0].bias: expected true or false, found 1" },
    };
    const coh_algorithm_device device = made_device(0);
    assert_int_equal(use_changed("130100", 0, "130100"), COH_OK);
    const uint64_t before = coh_algorithms_hash(&device);
    assert_true(before != 0);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_int_equal(use_changed(all[i].find, all[i].n, all[i].replacement), COH_ERR_CORRUPT);
        if (!strstr(coh_last_error(), all[i].says) || !strstr(coh_last_error(), path))
            fail_msg("\"%s\" does not say \"%s\"", coh_last_error(), all[i].says);
        assert_true(coh_algorithms_hash(&device) == before);
    }
}

/* With two instructions for one form, it would be ambiguous which is used. */
static void one_form_twice_is_refused(void **state)
{
    (void)state;
    coh_algorithm all[3 * FORMS];
    make_all(all);
    all[FORMS - 1].form = all[2].form;
    coh_kernel_list list = { .algorithms = all, .algorithm_count = 3 * FORMS };
    assert_int_equal(coh_kernel_table_write(&list, path), COH_OK);
    assert_int_equal(coh_kernels_use(path, NULL, 0), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "the product 3 x 5 x 3 twice"));
}

/* Measured entries are added one by one, in any order: the file equals the one written at once, and
 * rewriting it after reading gives the same bytes. */
static void a_table_that_grew_is_written_as_one_that_was_whole(void **state)
{
    (void)state;
    coh_algorithm all[3 * FORMS];
    char *first, *second;
    size_t first_bytes, second_bytes;
    int32_t count;
    make_all(all);
    coh_algorithms_take(NULL, 0);
    for (int i = 0; i < 3 * FORMS; i++)
        assert_int_equal(coh_algorithms_add(&all[i * 29 % (3 * FORMS)]), COH_OK);
    assert_int_equal(coh_algorithms_add(&all[5]), COH_ERR_ARGUMENT);
    const coh_algorithm *grown = coh_algorithms_all(&count);
    assert_int_equal(count, 3 * FORMS);
    for (int i = 0; i < 3 * FORMS; i++)
        assert_memory_equal(coh_algorithm_find(&all[i].device, &all[i].form), all[i].words,
                            sizeof(all[i].words));
    coh_kernel_list list = { .algorithms = (coh_algorithm *)(uintptr_t)grown,
                             .algorithm_count = count };
    assert_int_equal(coh_kernel_table_write(&list, path), COH_OK);
    assert_int_equal(coh_file_read_whole(path, 1 << 20, &first, &first_bytes), COH_OK);
    assert_int_equal(coh_kernel_table_read(path, &list), COH_OK);
    assert_int_equal(list.algorithm_count, 3 * FORMS);
    assert_int_equal(coh_kernel_table_write(&list, path), COH_OK);
    assert_int_equal(coh_file_read_whole(path, 1 << 20, &second, &second_bytes), COH_OK);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    coh_kernel_list_fini(&list);
    coh_free(first);
    coh_free(second);
}

static void every_failing_allocation_keeps_the_table_in_use(void **state)
{
    (void)state;
    const coh_algorithm_device device = made_device(0);
    assert_int_equal(use_changed("130100", 0, "130100"), COH_OK);
    const uint64_t before = coh_algorithms_hash(&device);
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = coh_kernels_use(path, NULL, 0);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_true(coh_algorithms_hash(&device) == before);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
    }
}

/* A form has the epilogues that the product itself performs, and the common alignment of all
 * addresses. */
static void a_form_holds_what_decides_and_nothing_else(void **state)
{
    (void)state;
    char *const base = (char *)(uintptr_t)0x10000;
    coh_matmul m = { .layout = COH_MATMUL_NT,
                     .dtype = COH_DTYPE_BF16,
                     .c_dtype = COH_DTYPE_BF16,
                     .rows = 7,
                     .columns = 5,
                     .depth = 3,
                     .a = base,
                     .b = base + 512,
                     .c = base + 768,
                     .a_stride = 3,
                     .b_stride = 3,
                     .c_stride = 5 };
    coh_product_form f = coh_product_form_of(&m);
    assert_int_equal(f.alignment, 256);
    assert_false(f.adds || f.bias || f.relu || f.mixed);
    m.b = base + 1024; /* another address with the same alignment: the same form */
    const coh_product_form same = coh_product_form_of(&m);
    assert_memory_equal(&f, &same, sizeof(f));
    m.residual = base + 32;
    m.bias = base + 2;
    f = coh_product_form_of(&m);
    assert_true(f.adds && f.bias && !f.mixed);
    assert_int_equal(f.alignment, 2);
    m.c_dtype = COH_DTYPE_F32;
    assert_true(coh_product_form_of(&m).mixed);
    m.adds = 1; /* adds to c's contents; neither residual nor bias */
    f = coh_product_form_of(&m);
    assert_true(f.adds && !f.bias && !f.mixed);
    assert_int_equal(f.alignment, 256);
    m.activated = m.c;
    m.activation = COH_ACTIVATION_GELU;
    assert_false(coh_product_form_of(&m).relu);
    m.activation = COH_ACTIVATION_RELU;
    assert_true(coh_product_form_of(&m).relu);
    m.activated = base; /* c is written in addition to it */
    assert_false(coh_product_form_of(&m).relu);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_table_of_devices_gives_each_form_the_words_it_was_written_with),
        IN_FOLDER(what_is_no_algorithm_is_refused_with_its_place_and_changes_nothing),
        IN_FOLDER(one_form_twice_is_refused),
        IN_FOLDER(a_table_that_grew_is_written_as_one_that_was_whole),
        IN_FOLDER(every_failing_allocation_keeps_the_table_in_use),
        cmocka_unit_test(a_form_holds_what_decides_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
