/* Numbers for machines have a point in every locale: files and arguments are read and written under
 * a locale with another sign as they are without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/file_text.h"
#include "base/json.h"
#include "cohobate/models.h"
#include "cohobate/profile.h"
#include "cohobate/text.h"
#include "engine/checkpoint_writer.h"
#include "planner/profile_file.h"
#include "tests/comma_locale.h"
#include "tests/text/folder.h"

/* What readers and writers make of their texts. */
typedef struct results {
    char number[COH_NUMBER_BYTES], fixed[COH_NUMBER_BYTES], profile[200], model[2048];
    double read, rate, flops, json;
    uint64_t token_count;
    int read_errno, end, profile_status, note_status, large_note_status, lines_status;
} results;

static void read_numbers(results *r)
{
    char *end;
    errno = 0;
    r->read = coh_number_read("0.1x", &end);
    r->end = *end;
    (void)coh_number_read("1.5e999", NULL);
    r->read_errno = errno;
    coh_number_print(r->number, 1.0 / 3);
    coh_number_print_fixed(r->fixed, 3, 2.5);
}

static void read_json(results *r)
{
    static const char text[] = "{\"a\": 1.5e-3}";
    json_t *root = NULL;
    if (coh_json_load(text, sizeof(text) - 1, &root) == COH_OK)
        r->json = json_real_value(json_object_get(root, "a"));
    json_decref(root);
    r->note_status = coh_checkpoint_note_check(text);
    r->large_note_status = coh_checkpoint_note_check("{\"a\": 1.5e999}");
}

static void read_profile(results *r)
{
    coh_profile *profile = NULL;
    r->profile_status =
        coh_profile_read("a100-40g,disk-read=1.5x,f32-flops=3.125e13,pcie=16.5GB/s", &profile);
    if (profile) {
        r->rate = profile->link[COH_LANE_READ].bytes_per_s.p50;
        r->flops = profile->flops_per_s[COH_ROOF_F32].p50;
        snprintf(r->profile, sizeof(r->profile), "%s", profile->name);
    }
    coh_profile_destroy(profile);
}

static void read_lines(results *r)
{
    static const char line[] = "{\"a\": 1.5e400, \"b\": 0.25, \"text\": \"one\"}\n";
    coh_token_build_options options;
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    coh_tokenizer *bytes = NULL;
    folder_write("in", line, sizeof(line) - 1);
    coh_token_build_options_init(&options);
    options.in_path = folder_file("in");
    options.out_path = folder_file("out");
    options.form = COH_DATA_JSONL;
    if (coh_tokenizer_open("bytes", &bytes) == COH_OK)
        r->lines_status = coh_token_file_make(bytes, &options, &facts);
    r->token_count = facts.token_count;
    coh_tokenizer_close(bytes);
}

static void write_model(results *r)
{
    coh_model model;
    if (coh_model_from_config("{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 19, "
                              "\"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, "
                              "\"layer_norm_epsilon\": 1.5e-06}",
                              &model) == COH_OK)
        (void)coh_model_to_json(&model, r->model, sizeof(r->model));
}

static results all_results(void)
{
    results r;
    memset(&r, 0, sizeof(r)); /* padding, too: results are compared as bytes */
    read_numbers(&r);
    read_json(&r);
    read_profile(&r);
    read_lines(&r);
    write_model(&r);
    return r;
}

static void assert_as_without(int is_set)
{
    if (!is_set)
        skip();
    const results found = all_results();
    setlocale(LC_ALL, "C");
    const results expected = all_results();
    assert_string_equal(expected.number, "0.3333333333333333");
    assert_string_equal(expected.fixed, "2.500");
    assert_true(expected.read == 0.1 && expected.end == 'x' && expected.read_errno == ERANGE);
    assert_true(expected.json == 1.5e-3 && expected.flops == 3.125e13 && expected.rate > 0);
    assert_int_equal(expected.profile_status, COH_OK);
    assert_int_equal(expected.note_status, COH_OK);
    assert_int_not_equal(expected.large_note_status, COH_OK);
    assert_int_equal(expected.lines_status, COH_OK);
    assert_int_equal(expected.token_count, 4);
    assert_non_null(strstr(expected.model, "1.5e-06"));
    assert_memory_equal(&found, &expected, sizeof(found));
}

static void numbers_do_not_depend_on_a_decimal_comma(void **state)
{
    (void)state;
    assert_as_without(comma_locale_set());
}

static void numbers_do_not_depend_on_a_sign_of_two_bytes(void **state)
{
    (void)state;
    assert_as_without(two_byte_locale_set());
}

/* The locale is the program's own again, also on other threads. */
static void the_locale_of_the_program_stays(void **state)
{
    (void)state;
    if (!comma_locale_set())
        skip();
    char text[16];
    const coh_c_locale locale = coh_c_locale_enter();
    snprintf(text, sizeof(text), "%.1f", 0.5);
    coh_c_locale_leave(locale);
    assert_string_equal(text, "0.5");
    (void)coh_number_read("0.5", NULL);
    snprintf(text, sizeof(text), "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(text, "0,5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_do_not_depend_on_a_decimal_comma, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(numbers_do_not_depend_on_a_sign_of_two_bytes, folder_create,
                                        folder_remove),
        cmocka_unit_test(the_locale_of_the_program_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
