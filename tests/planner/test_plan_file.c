/* Edits plan.json and seals it again: each member has a type and a value that the rebuilt plan must
 * match, and no edit makes the planner report an internal error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/json.h"
#include "planner/plan.h"
#include "tests/planner/toy_graph.h"
#include "tests/temporary.h"

typedef struct written_plan {
    char path[256];
    char *whole; /* as written */
    char *text;  /* without its seal */
    coh_graph *graph;
    coh_plan_options options;
} written_plan;

static const toy_options toy = {
    .layers = 2, .width = 64, .vocabulary = 700, .rows = 300, .is_tied = 1
};

/* Made once for all tests. */
static written_plan made;

static int make_once(void **state)
{
    (void)state;
    coh_plan *plan = NULL;
    uint64_t memory = 0;
    size_t bytes = 0;
    made = (written_plan){ .options = { .struct_bytes = sizeof(made.options),
                                        .device_memory_bytes = UINT64_MAX,
                                        .thread_count = 2,
                                        .microbatch_count = 2,
                                        .kernel_path = "toy" } };
    if (temporary_file(made.path, sizeof(made.path), "plan") != 0 ||
        toy_graph_make(&toy, &made.graph) != COH_OK ||
        coh_plan_in_memory_bytes(made.graph, &made.options, &memory) != COH_OK)
        return -1;
    made.options.device_memory_bytes = memory / 3;
    made.options.emulate_host = 1;
    made.options.host_memory_bytes = memory / 4;
    made.options.disk_bytes = (uint64_t)1 << 30;
    if (coh_plan_create(made.graph, &made.options, &plan) != COH_OK ||
        coh_plan_write(plan, made.path) != COH_OK ||
        coh_file_read_whole(made.path, 1 << 20, &made.whole, &bytes) != COH_OK ||
        coh_file_read_whole(made.path, 1 << 20, &made.text, &bytes) != COH_OK)
        return -1;
    coh_plan_destroy(plan);
    *strstr(made.text, "  \"file_hash\"") = '\0';
    return 0;
}

static int drop_it(void **state)
{
    (void)state;
    unlink(made.path);
    coh_free(made.whole);
    coh_free(made.text);
    coh_graph_destroy(made.graph);
    return 0;
}

/* Each test begins with the file as it was written. */
static int set_up(void **state)
{
    *state = &made;
    return coh_file_write_whole(made.path, made.whole, strlen(made.whole)) == COH_OK ? 0 : -1;
}

/* Reads the file with the value of its last member `key` replaced, under a correct seal. */
static coh_status read_with(const written_plan *w, const char *key, const char *value)
{
    coh_text text = { 0 };
    coh_plan *plan = NULL;
    char member[64];
    snprintf(member, sizeof(member), "\"%s\": ", key);
    const char *at = NULL;
    for (const char *next = w->text; (next = strstr(next, member)) != NULL; next++)
        at = next;
    assert_non_null(at);
    at += strlen(member);
    const char *end = *at == '"' ? strchr(at + 1, '"') + 1 : at + strcspn(at, ",}\n");
    assert_int_equal(coh_text_add(&text, "%.*s%s%s", (int)(at - w->text), w->text, value, end),
                     COH_OK);
    assert_int_equal(coh_json_seal(&text), COH_OK);
    assert_int_equal(coh_file_write_whole(w->path, text.data, text.bytes), COH_OK);
    coh_text_fini(&text);
    const coh_status status = coh_plan_read(w->graph, &w->options, w->path, &plan);
    coh_plan_destroy(plan);
    return status;
}

static void every_member_is_typed_and_held_to(void **state)
{
    static const struct {
        const char *key, *value;
    } edits[] = {
        { "bound_ns", "\"x\"" },
        { "bound_ns", "-1" },
        { "smallest_device_bytes", "1.5" },
        { "peak_host_bytes", "null" },
        { "peak_host_bytes", "4096" },
        { "disk_bytes", "4096" },
        { "lines", "null" },
        { "lines", "1" },
        { "step_ns", "1" },
        { "peak_device_bytes", "4096" },
        { "numeric_fingerprint", "\"0123456789abcdef\"" },
        { "kernel_path", "\"other\"" },
        { "kernel_path", "7" },
        { "name", "7" },
        { "name", "\"h.9\"" },
        { "activations", "\"nonsense\"" },
        { "parameters", "\"moon\"" },
        { "states", "\"moon\"" },
        { "pattern", "\"slice x999\"" },
    };
    const written_plan *w = *state;
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        const char *says = strcmp(edits[i].key, "kernel_path") == 0 && edits[i].value[0] == '"'
                               ? "numeric_fingerprint"
                               : edits[i].key;
        if (read_with(w, edits[i].key, edits[i].value) != COH_ERR_CORRUPT ||
            !strstr(coh_last_error(), says) || !strstr(coh_last_error(), w->path))
            fail_msg("%s: %s was taken, or refused by: %s", edits[i].key, edits[i].value,
                     coh_last_error());
    }
}

/* Such decisions do not fit, whatever peak the file names; the error blames the file. */
static void decisions_that_do_not_hold_are_the_files_fault(void **state)
{
    static const char *const edits[][2] = {
        { "device_bytes", "\"1073741824\"" },
        { "device_bytes", "\"18446744073709551615\"" },
        { "device_bytes", "\"0\"" },
        { "in_memory", "1" },
        { "row_passes", "1" },
        { "chunk_bytes", "1" },
        { "patterns", "\"plain=replicate,table=replicate,product=replicate\"" },
        { "patterns", "\"plain=slice,table=slice,product=slice\"" },
    };
    const written_plan *w = *state;
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        const coh_status status = read_with(w, edits[i][0], edits[i][1]);
        if ((status != COH_ERR_CORRUPT && status != COH_ERR_FULL) ||
            strstr(coh_last_error(), "please report"))
            fail_msg("%s: %s gave %d: %s", edits[i][0], edits[i][1], status, coh_last_error());
        if (status == COH_ERR_CORRUPT)
            assert_non_null(strstr(coh_last_error(), w->path));
    }
}

/* The same program with other kernels has other bits, but is the same plan. */
static void other_kernels_read_it(void **state)
{
    written_plan other = **(written_plan **)state;
    assert_int_equal(read_with(&other, "format", "\"cohobate plan\""), COH_OK);
    snprintf(other.options.kernel_path, sizeof(other.options.kernel_path), "another");
    if (read_with(&other, "format", "\"cohobate plan\"") != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* Older files do not name their kernels. */
static void without_its_kernels_it_is_of_the_present_ones(void **state)
{
    written_plan old = **(written_plan **)state;
    char *text = NULL;
    size_t bytes = strlen(old.text);
    assert_int_equal(COH_ALLOC(bytes + 1, &text), COH_OK);
    const char *at = strstr(old.text, "  \"kernel_path\""), *next = strchr(at, '\n') + 1;
    memcpy(text, old.text, (size_t)(at - old.text));
    memcpy(text + (at - old.text), next, strlen(next) + 1);
    old.text = text;
    if (read_with(&old, "format", "\"cohobate plan\"") != COH_OK)
        fail_msg("%s", coh_last_error());
    snprintf(old.options.kernel_path, sizeof(old.options.kernel_path), "another");
    assert_int_equal(read_with(&old, "format", "\"cohobate plan\""), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "numeric_fingerprint"));
    coh_free(text);
}

/* Older files do not name their patterns. */
static void without_its_patterns_it_has_the_usual_ones(void **state)
{
    written_plan old = **(written_plan **)state;
    char *text = NULL;
    assert_int_equal(COH_ALLOC(strlen(old.text) + 1, &text), COH_OK);
    const char *at = strstr(old.text, ", \"patterns\""), *next = strstr(at, ", \"recompute\"");
    memcpy(text, old.text, (size_t)(at - old.text));
    memcpy(text + (at - old.text), next, strlen(next) + 1);
    old.text = text;
    if (read_with(&old, "format", "\"cohobate plan\"") != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_free(text);
}

/* A plan file states whether its graph adds by atomics; a graph of the same kinds that adds the
 * other way refuses it, in both directions. */
static void atomics_are_said_and_held_to(void **state)
{
    written_plan w = **(written_plan **)state;
    toy_options by_atomics = toy;
    coh_plan_file facts = { .struct_bytes = sizeof(facts) };
    coh_plan *plan = NULL;
    coh_graph *graph = NULL;
    size_t bytes = 0;
    by_atomics.atomics = 1;
    assert_int_equal(toy_graph_make(&by_atomics, &graph), COH_OK);
    assert_int_equal(coh_plan_file_read(w.path, &facts), COH_OK);
    assert_int_equal(facts.atomics, 0);
    assert_int_equal(coh_plan_read(graph, &w.options, w.path, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "give atomics off"));

    assert_int_equal(coh_plan_create(graph, &w.options, &plan), COH_OK);
    assert_int_equal(coh_plan_write(plan, w.path), COH_OK);
    coh_plan_destroy(plan);
    assert_int_equal(coh_plan_file_read(w.path, &facts), COH_OK);
    assert_int_equal(facts.atomics, 1);
    assert_int_equal(coh_plan_read(w.graph, &w.options, w.path, &plan), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "give atomics on"));
    assert_int_equal(coh_file_read_whole(w.path, 1 << 20, &w.text, &bytes), COH_OK);
    *strstr(w.text, "  \"file_hash\"") = '\0';
    assert_int_equal(read_with(&w, "atomics", "2"), COH_ERR_CORRUPT);
    assert_int_equal(read_with(&w, "atomics", "1"), COH_ERR_ARGUMENT);
    assert_int_equal(read_with(&w, "atomics", "0"), COH_ERR_CORRUPT); /* other numbers */
    w.graph = graph;
    assert_int_equal(read_with(&w, "atomics", "1"), COH_OK);
    assert_int_equal(read_with(&w, "atomics", "0"), COH_ERR_ARGUMENT);
    coh_free(w.text);
    coh_graph_destroy(graph);
}

/* Not even root can make a file in /proc. The name of the temporary file is not of interest. */
static void a_file_that_cannot_be_made_is_named_as_it_was_given(void **state)
{
    (void)state;
    assert_int_equal(coh_file_write_whole("/proc/plan.json", "{", 1), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "/proc/plan.json cannot be written: "));
    assert_null(strstr(coh_last_error(), ".partial"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_cannot_be_made_is_named_as_it_was_given),
        cmocka_unit_test_setup(every_member_is_typed_and_held_to, set_up),
        cmocka_unit_test_setup(decisions_that_do_not_hold_are_the_files_fault, set_up),
        cmocka_unit_test_setup(other_kernels_read_it, set_up),
        cmocka_unit_test_setup(without_its_kernels_it_is_of_the_present_ones, set_up),
        cmocka_unit_test_setup(without_its_patterns_it_has_the_usual_ones, set_up),
        cmocka_unit_test_setup(atomics_are_said_and_held_to, set_up),
    };
    return cmocka_run_group_tests(tests, make_once, drop_it);
}
