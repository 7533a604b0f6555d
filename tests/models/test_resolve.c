#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>

#include "cohobate/models.h"
#include "tests/engine/checkpoint_fixture.h"

static coh_model made_model(void)
{
    return (coh_model){ .name = "own \"model\" \\ 1",
                        .gpt2 = { .layers = 3,
                                  .heads = 5,
                                  .channels = 35,
                                  .positions = 77,
                                  .vocabulary = 1009,
                                  .layernorm_epsilon = 1.2345678e-6f,
                                  .dtype = COH_DTYPE_BF16 } };
}

static void assert_same(const coh_model *left, const coh_model *right)
{
    assert_string_equal(left->name, right->name);
    assert_int_equal(left->gpt2.layers, right->gpt2.layers);
    assert_int_equal(left->gpt2.heads, right->gpt2.heads);
    assert_int_equal(left->gpt2.channels, right->gpt2.channels);
    assert_int_equal(left->gpt2.positions, right->gpt2.positions);
    assert_int_equal(left->gpt2.vocabulary, right->gpt2.vocabulary);
    assert_true(left->gpt2.layernorm_epsilon == right->gpt2.layernorm_epsilon);
    assert_int_equal(left->gpt2.dtype, right->gpt2.dtype);
}

/* A whole checkpoint at `path` whose note is `note`. */
static void save_checkpoint(const char *path, const char *note)
{
    if (fixture_save(path, 3, note, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void every_preset_resolves_to_itself(void **state)
{
    (void)state;
    const char *const names[] = { "gpt2-nano", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        coh_model model;
        coh_gpt2_config config;
        assert_int_equal(coh_gpt2_preset(names[i], 257, &config), COH_OK);
        assert_int_equal(coh_model_resolve(names[i], 257, &model), COH_OK);
        assert_string_equal(model.name, names[i]);
        assert_string_equal(model.checkpoint, "");
        coh_model expected = model;
        expected.gpt2 = config;
        assert_same(&expected, &model);
        assert_int_equal(model.gpt2.vocabulary, 257);
    }
}

static void a_model_comes_back_from_its_json_bit_for_bit(void **state)
{
    (void)state;
    char json[1024];
    coh_model model = made_model(), back;
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    assert_int_equal(coh_model_from_json(json, &back), COH_OK);
    assert_same(&model, &back);
    assert_string_equal(back.checkpoint, "");
    for (size_t room = 1; room <= strlen(json); room++) {
        char *cut = malloc(room);
        assert_int_equal(coh_model_to_json(&model, cut, room), COH_ERR_ARGUMENT);
        free(cut);
    }
    assert_int_equal(coh_model_to_json(&model, json, strlen(json) + 1), COH_OK);
}

/* Notes of before there was a choice. */
static void a_model_that_names_no_dtype_is_f32(void **state)
{
    (void)state;
    coh_model model = made_model(), back;
    char json[1024];
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    char *at = strstr(json, ", \"dtype\": \"bf16\"");
    assert_non_null(at);
    strcpy(at, "}");
    assert_int_equal(coh_model_from_json(json, &back), COH_OK);
    model.gpt2.dtype = COH_DTYPE_F32;
    assert_same(&model, &back);
}

static void the_json_does_not_depend_on_the_locale(void **state)
{
    (void)state;
    char plain[1024], other[1024];
    coh_model model = made_model(), back;
    assert_int_equal(coh_model_to_json(&model, plain, sizeof(plain)), COH_OK);
    const char *const locales[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR" };
    size_t i = 0;
    while (i < 4 && !setlocale(LC_ALL, locales[i]))
        i++;
    if (i == 4) {
        print_message("no locale with a decimal comma on this machine\n");
        skip();
    }
    coh_status written = coh_model_to_json(&model, other, sizeof(other));
    coh_status read = coh_model_from_json(other, &back);
    setlocale(LC_ALL, "C");
    assert_int_equal(written, COH_OK);
    assert_int_equal(read, COH_OK);
    assert_string_equal(plain, other);
    assert_same(&model, &back);
}

static void json_that_is_no_model_is_refused(void **state)
{
    (void)state;
    static const struct changed {
        const char *find, *replacement;
    } all[] = {
        { "{", "" },
        { "}", "} x" },
        { "}", ", \"extra\": 1}" },
        { "\"layers\": 3, ", "" },
        { "\"layers\": 3", "\"layers\": 3, \"layers\": 3" },
        { "\"layers\": 3", "\"layers\": \"3\"" },
        { "\"layers\": 3", "\"layers\": 3.0" },
        { "\"layers\": 3", "\"layers\": 0" },
        { "\"layers\": 3", "\"layers\": 100000000000000000000" },
        { "\"heads\": 5", "\"heads\": 6" },
        { "\"vocabulary\": 1009", "\"vocabulary\": -1" },
        { "\"positions\": 77", "\"positions\": null" },
        { "\"layernorm_epsilon\": 1.2", "\"layernorm_epsilon\": -1.2" },
        { "\"layernorm_epsilon\": 1.2", "\"layernorm_epsilon\": 1e-300, \"x\": 1.2" },
        { "\"gpt2\"", "\"gpt5\"" },
        { "\"bf16\"", "\"f16\"" },
        { "\"bf16\"", "1" },
        { "own ", "" },
        { "own ", "../" },
        { "own ", "\\u0007" },
        { "own ", "\\u0000" },
    };
    coh_model model = made_model(), back;
    snprintf(model.name, sizeof(model.name), "own ");
    char json[1024], changed[2048];
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const char *at = strstr(json, all[i].find);
        assert_non_null(at);
        snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - json), json, all[i].replacement,
                 at + strlen(all[i].find));
        if (coh_model_from_json(changed, &back) != COH_ERR_CORRUPT)
            fail_msg("taken: %s", changed);
        assert_true(coh_last_error()[0] != '\0');
    }
    assert_int_equal(coh_model_from_json("[]", &back), COH_ERR_CORRUPT);
    assert_int_equal(coh_model_from_json("", &back), COH_ERR_CORRUPT);
    assert_int_equal(coh_model_from_json(NULL, &back), COH_ERR_ARGUMENT);
}

static void names_that_cannot_be_a_folders_are_not_written(void **state)
{
    (void)state;
    const char *const names[] = { "", ".", "..", "a/b", "a\nb", "\x7f" };
    char json[1024];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        coh_model model = made_model();
        snprintf(model.name, sizeof(model.name), "%s", names[i]);
        assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_ERR_ARGUMENT);
    }
}

static void checkpoints_and_run_folders_say_their_model(void **state)
{
    (void)state;
    char json[1024], note[1100], checkpoint[PATH_MAX];
    coh_model model = made_model(), found;
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    snprintf(note, sizeof(note), "{\"data\": [1, 2], \"model\": %s}", json);
    snprintf(checkpoint, sizeof(checkpoint), "%s/step-3", (const char *)*state);
    save_checkpoint(checkpoint, note);
    const char *const paths[] = { checkpoint, *state };
    for (size_t i = 0; i < 2; i++) {
        for (int64_t vocabulary = 0; vocabulary <= 1009; vocabulary += 1009) {
            if (coh_model_resolve(paths[i], vocabulary, &found) != COH_OK)
                fail_msg("%s", coh_last_error());
            assert_same(&found, &model);
            assert_string_equal(found.checkpoint, checkpoint);
        }
    }
    assert_int_equal(coh_model_resolve(checkpoint, 257, &found), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "vocabulary of 1009, the tokenizer has 257"));
}

static void folders_that_hold_no_model_are_refused(void **state)
{
    (void)state;
    char path[PATH_MAX];
    coh_model found;
    assert_int_equal(coh_model_resolve(*state, 0, &found), COH_ERR_CORRUPT);
    const char *const notes[] = { "{}", "{\"model\": 3}", "{\"model\": {\"family\": \"gpt2\"}}" };
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        snprintf(path, sizeof(path), "%s/step-%zu", (const char *)*state, i + 1);
        save_checkpoint(path, notes[i]);
        assert_int_equal(coh_model_resolve(path, 0, &found), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), path));
    }
}

static void what_is_neither_preset_nor_folder_is_said_with_the_choices(void **state)
{
    (void)state;
    coh_model found;
    const char *const wrong[] = { "gpt2-huge", "/nowhere/at/all", "/dev/null" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(coh_model_resolve(wrong[i], 0, &found), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), wrong[i]));
        assert_non_null(strstr(coh_last_error(), "gpt2-nano"));
    }
    assert_int_equal(coh_model_resolve("gpt2", -5, &found), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "-5"));
    assert_int_equal(coh_model_resolve("", 0, &found), COH_ERR_ARGUMENT);
    assert_int_equal(coh_model_resolve(NULL, 0, &found), COH_ERR_ARGUMENT);
}

static int folder_create(void **state)
{
    static char path[PATH_MAX];
    fixture_folder(path);
    *state = path;
    return 0;
}

static int folder_remove(void **state)
{
    fixture_folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_resolves_to_itself),
        cmocka_unit_test(a_model_comes_back_from_its_json_bit_for_bit),
        cmocka_unit_test(a_model_that_names_no_dtype_is_f32),
        cmocka_unit_test(the_json_does_not_depend_on_the_locale),
        cmocka_unit_test(json_that_is_no_model_is_refused),
        cmocka_unit_test(names_that_cannot_be_a_folders_are_not_written),
        cmocka_unit_test_setup_teardown(checkpoints_and_run_folders_say_their_model, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(folders_that_hold_no_model_are_refused, folder_create,
                                        folder_remove),
        cmocka_unit_test(what_is_neither_preset_nor_folder_is_said_with_the_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
