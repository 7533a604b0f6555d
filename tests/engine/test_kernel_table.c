#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/file_text.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
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
    (void)coh_kernels_choose(NULL, 0);
    return rmdir(folder);
}

static coh_graph *made_graph(int64_t sequences, int64_t tokens)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 16,
                                     .positions = 700,
                                     .vocabulary = 2100,
                                     .layernorm_epsilon = 1e-5f };
    coh_graph *graph;
    assert_int_equal(coh_gpt2_train_graph(&config, sequences, tokens, &graph), COH_OK);
    return graph;
}

/* Each weight is used in three products, each with two operations per row of x: 6 N (12 L C² + V C)
 * operations in total, whatever the tiles are (Kaplan et al. 2020, section 2.1, without
 * attention). */
static void the_shapes_hold_every_operation_of_the_weights(void **state)
{
    (void)state;
    const int64_t N = 2 * 600, C = 16, L = 2, V = 2100;
    coh_graph *graph = made_graph(2, 600);
    coh_kernel_shapes list = { 0 };
    assert_int_equal(coh_kernel_shapes_of(graph, &list), COH_OK);
    int64_t operations = 0;
    for (size_t i = 0; i < list.count; i++) {
        const coh_kernel_timing *s = &list.shapes[i];
        assert_int_equal(s->dtype, COH_DTYPE_F32);
        operations += 2 * s->use_count * s->rows * s->columns * s->depth;
        for (size_t j = 0; j < i; j++) {
            const coh_kernel_timing *t = &list.shapes[j];
            assert_true(strcmp(s->layout, t->layout) != 0 || s->rows != t->rows ||
                        s->columns != t->columns || s->depth != t->depth);
        }
    }
    assert_int_equal(operations, 6 * N * (12 * L * C * C + V * C));
    coh_kernel_shapes_fini(&list);
    coh_graph_destroy(graph);
}

static void count_report(void *context, const coh_kernel_timing *timing)
{
    *(int *)context += 1;
    assert_true(timing->seconds[timing->standard] > 0);
    assert_true(timing->seconds[timing->chosen] <= timing->seconds[timing->standard]);
}

static void a_table_that_was_written_is_used_and_named_in_the_kernel_path(void **state)
{
    (void)state;
    coh_graph *graph = made_graph(1, 8);
    char before[128], machine[COH_KERNEL_MACHINE_BYTES] = "?";
    int reported = 0;
    snprintf(before, sizeof(before), "%s", coh_kernel_path());
    assert_int_equal(coh_kernels_tune(graph, 2, path, count_report, &reported), COH_OK);
    assert_true(reported >= 12);
    assert_string_equal(coh_kernel_path(), before); /* measuring chooses nothing */
    assert_int_equal(coh_kernels_use(path, machine, sizeof(machine)), COH_OK);
    assert_string_equal(machine, ""); /* measured here */
    assert_non_null(strstr(coh_kernel_path(), "+table-"));
    coh_kernel_list list;
    assert_int_equal(coh_kernel_table_read(path, &list), COH_OK);
    assert_int_equal(list.choice_count, reported);
    coh_kernel_list_fini(&list);
    coh_graph_destroy(graph);
}

static void *tune_here(void *graph)
{
    return (void *)(intptr_t)coh_kernels_tune(graph, 1, path, NULL, NULL);
}

/* Tiles are packed on the stack and need more than all of this one. */
static void measuring_needs_no_stack_of_its_caller(void **state)
{
    (void)state;
    pthread_attr_t small;
    pthread_t thread;
    void *status = NULL;
    coh_graph *graph = made_graph(1, 8);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (size_t)256 << 10);
    assert_int_equal(pthread_create(&thread, &small, tune_here, graph), 0);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, COH_OK);
    pthread_attr_destroy(&small);
    coh_graph_destroy(graph);
}

static const char whole[] =
    "{\n  \"format\": \"cohobate kernels\",\n  \"version\": 1,\n  \"machine\": \"another one\",\n"
    "  \"date\": \"2025-01-31\",\n  \"threads\": 2,\n  \"products\": [\n"
    "    {\"dtype\": \"f32\", \"layout\": \"nt\", \"rows\": 7, \"columns\": 5, \"depth\": 3, "
    "\"product\": \"panels\", \"microseconds\": {\"panels\": 1.5, \"openblas\": 2.0}},\n"
    "    {\"dtype\": \"f32\", \"layout\": \"tn\", \"rows\": 7, \"columns\": 5, \"depth\": 3, "
    "\"product\": \"panels\", \"microseconds\": {}}\n  ]\n}\n";

enum { TEXT_BYTES = 2 * sizeof(whole) };

/* Writes `text` with the first `find` replaced to `out` (TEXT_BYTES). */
static void change(const char *text, const char *find, const char *replacement, char *out)
{
    const char *at = strstr(text, find);
    assert_non_null(at);
    snprintf(out, TEXT_BYTES, "%.*s%s%s", (int)(at - text), text, replacement, at + strlen(find));
}

static coh_status use_text(const char *text)
{
    char machine[COH_KERNEL_MACHINE_BYTES];
    assert_int_equal(coh_file_write_whole(path, text, strlen(text)), COH_OK);
    return coh_kernels_use(path, machine, sizeof(machine));
}

static coh_status use_changed(const char *find, const char *replacement)
{
    char text[TEXT_BYTES];
    change(whole, find, replacement, text);
    return use_text(text);
}

static void what_is_no_table_is_refused_with_its_name_and_changes_nothing(void **state)
{
    (void)state;
    static const struct changed {
        const char *find, *replacement;
    } all[] = {
        { "{", "" },
        { "cohobate kernels", "cohobate plan" },
        { "\"version\": 1", "\"version\": 2" },
        { "\"version\": 1", "\"version\": 1, \"version\": 1" },
        { "\"threads\": 2", "\"threads\": 2, \"more\": 1" },
        { "\"threads\": 2,", "" },
        { "\"products\": [", "\"products\": 3, \"x\": [" },
        { "\"f32\"", "\"f64\"" },
        { "\"nt\"", "\"tt\"" },
        { "\"rows\": 7", "\"rows\": 0" },
        { "\"rows\": 7", "\"rows\": 7.0" },
        { "\"product\": \"panels\"", "\"product\": \"default\"" },
        { "\"product\": \"panels\"", "\"product\": \"fastest\"" },
        { "\"panels\": 1.5", "\"panels\": -1.5" },
        { "\"panels\": 1.5", "\"magic\": 1.5" },
        { "{\"panels\": 1.5, \"openblas\": 2.0}", "2" },
        { "]\n}\n", "]\n" },
        { "\"tn\"", "\"nt\"" }, /* the same shape twice */
    };
    assert_int_equal(use_changed("\"tn\"", "\"nn\""), COH_OK);
    char before[128];
    snprintf(before, sizeof(before), "%s", coh_kernel_path());
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (use_changed(all[i].find, all[i].replacement) != COH_ERR_CORRUPT)
            fail_msg("'%s' for '%s' was not refused as damaged", all[i].replacement, all[i].find);
        assert_non_null(strstr(coh_last_error(), path));
        assert_string_equal(coh_kernel_path(), before);
    }
    assert_int_equal(coh_kernels_use("/nowhere/kernels.json", NULL, 0), COH_ERR_IO);
    assert_string_equal(coh_kernel_path(), before);
}

static void what_is_wrong_with_a_product_is_said_with_its_place(void **state)
{
    (void)state;
    static const struct changed {
        const char *find, *replacement, *says;
    } all[] = {
        { "\"f32\"", "\"f64\"",
          "entry products[0].dtype: expected one of \"f32\", \"bf16\", found \"f64\"" },
        { "\"tn\"", "\"tt\"", "entry products[1].layout: expected one of" },
        { "\"tn\"", "\"nt\"", "entry products[1]: its shape 7 x 5 x 3 is that of products[0]" },
        { "another one", "]\\\"}, [{", NULL }, /* a valid name like any other */
        { "\"products\": [\n    {", "\"products\": [\n\n 5, {", "entry products[0]: expected an" },
        { "},\n", "},\n\n 5,\n", "entry products[1]: expected an object, found 5" },
        { "another one\",", "]\\\"}, [{\",\n\n\"x\": 1,", "entry x: it is not known" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_status status = use_changed(all[i].find, all[i].replacement);
        assert_int_equal(status, all[i].says ? COH_ERR_CORRUPT : COH_OK);
        if (all[i].says && !strstr(coh_last_error(), all[i].says))
            fail_msg("\"%s\" does not say \"%s\"", coh_last_error(), all[i].says);
    }
}

static void the_path_depends_on_the_choices_and_nothing_else(void **state)
{
    (void)state;
    char first[128], machine[COH_KERNEL_MACHINE_BYTES];
    assert_int_equal(use_changed("\"tn\"", "\"tn\""), COH_OK);
    snprintf(first, sizeof(first), "%s", coh_kernel_path());
    assert_int_equal(use_changed("\"panels\": 1.5", "\"panels\": 7.25"), COH_OK);
    assert_string_equal(coh_kernel_path(), first);
    assert_int_equal(use_changed("another one", "a third"), COH_OK);
    assert_string_equal(coh_kernel_path(), first);
    assert_int_equal(coh_kernels_use(path, machine, sizeof(machine)), COH_OK);
    assert_string_equal(machine, "a third"); /* measured on another machine, which callers can
                                              * report */
    assert_int_equal(use_changed("\"depth\": 3", "\"depth\": 4"), COH_OK);
    assert_string_not_equal(coh_kernel_path(), first);
}

static void every_failing_allocation_leaves_no_table(void **state)
{
    (void)state;
    coh_graph *graph = made_graph(1, 1);
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status = coh_kernels_tune(graph, 1, path, NULL, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_not_equal(access(path, F_OK), 0);
        n += n > 8 ? 40 : 0; /* all operands of a shape fail in the same way */
    }
    coh_graph_destroy(graph);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shapes_hold_every_operation_of_the_weights),
        IN_FOLDER(a_table_that_was_written_is_used_and_named_in_the_kernel_path),
        IN_FOLDER(measuring_needs_no_stack_of_its_caller),
        IN_FOLDER(what_is_no_table_is_refused_with_its_name_and_changes_nothing),
        IN_FOLDER(what_is_wrong_with_a_product_is_said_with_its_place),
        IN_FOLDER(the_path_depends_on_the_choices_and_nothing_else),
        IN_FOLDER(every_failing_allocation_leaves_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
