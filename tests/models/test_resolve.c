#include "tests/models/recorded.h"

#include "tests/comma_locale.h"
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

/* A note for that model from before there were families. */
static const char old_note[] =
    "{\"family\": \"gpt2\", \"name\": \"own \", \"layers\": 3, \"heads\": 5, \"channels\": 35, "
    "\"positions\": 77, \"vocabulary\": 1009, \"layernorm_epsilon\": 1.2345678e-06, \"dtype\": "
    "\"bf16\"}";

/* Saves a complete checkpoint at `path` with note `note`. */
static void save_checkpoint(const char *path, const char *note)
{
    if (fixture_save(path, 3, note, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void every_preset_resolves_to_itself(void **state)
{
    (void)state;
    const char *name;
    coh_gpt2_config config;
    int32_t count = 0;
    for (; (name = coh_model_preset_name(count)) != NULL; count++) {
        coh_model model, expected;
        assert_int_equal(coh_model_preset(name, 257, &expected), COH_OK);
        assert_int_equal(coh_model_resolve(name, 257, &model), COH_OK);
        assert_string_equal(model.name, name);
        assert_string_equal(model.checkpoint, "");
        assert_string_equal(model.folder, "");
        assert_same_model(&expected, &model);
        assert_int_equal(coh_model_size_get(&model).vocabulary, 257);
        if (model.family == COH_FAMILY_GPT2) {
            assert_int_equal(coh_gpt2_preset(name, 257, &config), COH_OK);
            assert_memory_equal(&config, &model.gpt2, sizeof(config));
        } else {
            assert_int_equal(coh_gpt2_preset(name, 257, &config), COH_ERR_ARGUMENT);
        }
    }
    assert_int_equal(count, 40);
    assert_null(coh_model_preset_name(-1));
}

static void a_model_comes_back_from_its_json_bit_for_bit(void **state)
{
    (void)state;
    char json[1024];
    coh_model model = made_model(), back;
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    assert_int_equal(coh_model_from_json(json, &back), COH_OK);
    assert_same_model(&model, &back);
    assert_string_equal(back.checkpoint, "");
    for (size_t room = 1; room <= strlen(json); room++) {
        char *cut = malloc(room);
        assert_int_equal(coh_model_to_json(&model, cut, room), COH_ERR_ARGUMENT);
        free(cut);
    }
    assert_int_equal(coh_model_to_json(&model, json, strlen(json) + 1), COH_OK);
}

static void check_note(const json_t *one, const coh_model *model)
{
    char json[COH_MODEL_JSON_BYTES];
    (void)one;
    for (int i = 0; i < 2; i++) {
        coh_model typed = *model, back;
        coh_model_dtype_set(&typed, i ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        assert_int_equal(coh_model_to_json(&typed, json, sizeof(json)), COH_OK);
        if (coh_model_from_json(json, &back) != COH_OK)
            fail_msg("%s: %s", json, coh_last_error());
        assert_same_model(&typed, &back);
        assert_string_equal(back.notes, "");
    }
}

static void every_family_comes_back_from_its_json(void **state)
{
    (void)state;
    recorded_each(check_note);
}

static void the_longest_model_fits_its_json(void **state)
{
    (void)state;
    coh_model model, back;
    char json[COH_MODEL_JSON_BYTES], text[4000], *end = text;
    end += sprintf(end, "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 100000, "
                        "\"hidden_size\": 2147483640, \"num_attention_heads\": 4194303, "
                        "\"num_key_value_heads\": 1, "
                        "\"head_dim\": 512, \"vocab_size\": 2147483647, "
                        "\"intermediate_size\": 2147483647, \"rms_norm_eps\": 1.23456789e-38, "
                        "\"max_position_embeddings\": 2147483647, \"pad_token_id\": 2147483646, "
                        "\"initializer_range\": 1.23456789e-38, \"use_sliding_window\": true, "
                        "\"sliding_window\": 2147483647, \"rope_theta\": 1.2345678901234567e+29, "
                        "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 1.23456789e+38, "
                        "\"beta_slow\": 1.2345678e-38, \"beta_fast\": 1.23456789e+38, "
                        "\"attention_factor\": 1.23456789e-38, "
                        "\"original_max_position_embeddings\": 2147483647}, "
                        "\"prefix\": \"");
    const size_t length = sizeof(model.extras) - sizeof("\"prefix\": \"\"");
    memset(end, 'x', length);
    strcpy(end + length, "\"}");
    if (coh_model_from_config(text, &model) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(strlen(model.extras), sizeof(model.extras) - 1);
    memset(model.name, '"', sizeof(model.name) - 1);
    model.llama.layers = 170; /* 3 tensors and 12 per layer: the most whose dtypes a note can
                               * list */
    memset(model.dtypes, 'h', (size_t)coh_model_tensor_count(&model));
    assert_true(strlen(model.dtypes) > sizeof(model.dtypes) - 12);
    memset(model.metadata, 'x', sizeof(model.metadata) - 1);
    memcpy(model.metadata, "\"m\": \"", 6);
    model.metadata[sizeof(model.metadata) - 2] = '"';
    if (coh_model_to_json(&model, json, sizeof(json)) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_model_from_json(json, &back), COH_OK);
    assert_same_model(&model, &back);
}

static void notes_of_before_there_were_families_are_read(void **state)
{
    (void)state;
    coh_model model = made_model(), back;
    snprintf(model.name, sizeof(model.name), "own ");
    assert_int_equal(coh_model_from_json(old_note, &back), COH_OK);
    assert_same_model(&model, &back);
    /* and from before dtypes could be chosen */
    char older[sizeof(old_note)];
    strcpy(older, old_note);
    char *at = strstr(older, ", \"dtype\": \"bf16\"");
    assert_non_null(at);
    strcpy(at, "}");
    assert_int_equal(coh_model_from_json(older, &back), COH_OK);
    model.gpt2.dtype = COH_DTYPE_F32;
    assert_same_model(&model, &back);
}

static void the_json_does_not_depend_on_the_locale(void **state)
{
    (void)state;
    char plain[1024], other[1024];
    coh_model model = made_model(), back;
    assert_int_equal(coh_model_to_json(&model, plain, sizeof(plain)), COH_OK);
    if (!comma_locale_set())
        skip();
    coh_status written = coh_model_to_json(&model, other, sizeof(other));
    coh_status read = coh_model_from_json(other, &back);
    setlocale(LC_ALL, "C");
    assert_int_equal(written, COH_OK);
    assert_int_equal(read, COH_OK);
    assert_string_equal(plain, other);
    assert_same_model(&model, &back);
}

typedef struct changed {
    const char *find, *replacement;
} changed;

/* Each case makes one change. */
static void assert_refused(const char *json, const changed *all, size_t count)
{
    char text[2048];
    coh_model back;
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(json, all[i].find);
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - json), json, all[i].replacement,
                 at + strlen(all[i].find));
        if (coh_model_from_json(text, &back) != COH_ERR_CORRUPT)
            fail_msg("taken: %s", text);
        assert_true(coh_last_error()[0] != '\0');
    }
}

static void old_json_that_is_no_model_is_refused(void **state)
{
    (void)state;
    static const changed all[] = {
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
        { "\"gpt2\"", "\"opt\"" },
        { "\"bf16\"", "\"f16\"" },
        { "\"bf16\"", "1" },
        { "own ", "" },
        { "own ", "../" },
        { "own ", "\\u0007" },
        { "own ", "\\u0000" },
    };
    coh_model back;
    assert_refused(old_note, all, sizeof(all) / sizeof(all[0]));
    assert_int_equal(coh_model_from_json("[]", &back), COH_ERR_CORRUPT);
    assert_int_equal(coh_model_from_json("", &back), COH_ERR_CORRUPT);
    assert_int_equal(coh_model_from_json(NULL, &back), COH_ERR_ARGUMENT);
}

/* Storage of a folder's tensors: one letter for each, and pairs of text. */
static void what_was_stored_comes_back_and_nothing_else_is_taken(void **state)
{
    (void)state;
    static const changed all[] = {
        { "\"dtypes\": \"f", "\"dtypes\": \"" },
        { "\"dtypes\": \"f", "\"dtypes\": \"ff" },
        { "\"dtypes\": \"f", "\"dtypes\": \"g" },
        { "\"dtypes\": \"f", "\"dtypes\": 3, \"x\": \"f" },
        { "\"dtypes\"", "\"types\"" },
        { "\"metadata\": {", "\"metadata\": [], \"x\": {" },
        { "\"format\": \"pt\"", "\"format\": 1" },
        { "\"format\": \"pt\"", "\"format\": null" },
        { "\"stored\": {", "\"stored\": 2, \"x\": {" },
    };
    coh_model model = made_model(), back;
    char json[COH_MODEL_JSON_BYTES];
    memset(model.dtypes, 'f', (size_t)coh_model_tensor_count(&model));
    model.dtypes[1] = 'h';
    model.dtypes[2] = 'b';
    snprintf(model.metadata, sizeof(model.metadata), "\"format\": \"pt\", \"a \\\"b\": \"\\n\"");
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    if (coh_model_from_json(json, &back) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_same_model(&model, &back);
    assert_int_equal(coh_model_tensor_stored(&back, 1, COH_DTYPE_F32), COH_DTYPE_F16);
    assert_int_equal(coh_model_tensor_stored(&back, 2, COH_DTYPE_F32), COH_DTYPE_BF16);
    assert_int_equal(coh_model_tensor_stored(&back, 0, COH_DTYPE_F16), COH_DTYPE_F32);
    assert_int_equal(coh_model_tensor_stored(&back, -1, COH_DTYPE_F16), COH_DTYPE_F16);
    assert_int_equal(coh_model_tensor_stored(&back, 1000, COH_DTYPE_F16), COH_DTYPE_F16);
    assert_refused(json, all, sizeof(all) / sizeof(all[0]));
}

static void json_that_is_no_model_is_refused(void **state)
{
    (void)state;
    static const changed all[] = {
        { "{", "" },
        { "\"config\": {", "\"config\": [{" },
        { "\"config\": {", "\"config\": 3, \"x\": {" },
        { "\"name\"", "\"extra\": 1, \"name\"" },
        { "\"dtype\": \"bf16\", ", "" },
        { "\"n_layer\": 3", "\"n_layer\": 3, \"n_layer\": 3" },
        { "\"n_layer\": 3", "\"n_layer\": 0" },
        { "\"n_head\": 5", "\"n_head\": 6" },
        { "\"family\": \"gpt2\"", "\"family\": \"opt\"" },
        { "\"family\": \"gpt2\"", "\"family\": 2" },
        { "\"model_type\": \"gpt2\"", "\"model_type\": \"gpt5\"" },
        { "\"bf16\"", "\"f16\"" },
        { "own ", "" },
        { "own ", "../" },
        { "own ", "\\u0007" },
    };
    coh_model model = made_model();
    snprintf(model.name, sizeof(model.name), "own ");
    char json[1024];
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    assert_refused(json, all, sizeof(all) / sizeof(all[0]));
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
        for (int64_t vocabulary = 0; vocabulary <= 1009; vocabulary += 1009 / 2) {
            if (coh_model_resolve(paths[i], vocabulary, &found) != COH_OK)
                fail_msg("%s", coh_last_error());
            assert_same_model(&found, &model);
            assert_string_equal(found.checkpoint, checkpoint);
        }
    }
    assert_int_equal(coh_model_resolve(checkpoint, 1010, &found), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "vocabulary of 1009 tokens, and 1010 were asked for"));
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

static void write_config(const char *folder, const char *text, size_t bytes)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/config.json", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void a_folder_with_a_config_is_hugging_faces(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\": \"opt\", \"vocab_size\": 300, \"torch_dtype\": "
                               "\"float16\", \"dropout\": 0.1}";
    char folder[PATH_MAX / 2], slashed[PATH_MAX];
    coh_model found;
    snprintf(folder, sizeof(folder), "%s/my opt", (const char *)*state);
    snprintf(slashed, sizeof(slashed), "%s//", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_config(folder, text, strlen(text));
    const char *const paths[] = { folder, slashed };
    for (size_t i = 0; i < 2; i++) {
        /* A table with more rows than the tokenizer has ids is padded. */
        for (int64_t vocabulary = 0; vocabulary <= 300; vocabulary += 100) {
            if (coh_model_resolve(paths[i], vocabulary, &found) != COH_OK)
                fail_msg("%s", coh_last_error());
            assert_int_equal(found.family, COH_FAMILY_OPT);
            assert_string_equal(found.name, "my opt");
            assert_string_equal(found.folder, paths[i]);
            assert_string_equal(found.checkpoint, "");
            assert_string_equal(coh_model_type_name(&found), "opt");
            assert_int_equal(found.stored, COH_DTYPE_F16);
            assert_int_equal(found.opt.vocabulary, 300);
            assert_non_null(strstr(found.notes, "dropout 0.1"));
        }
        assert_int_equal(coh_model_resolve(paths[i], 301, &found), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "300 tokens, and 301 were asked"));
    }
    write_config(folder, "{\"model_type\": \"bert\"}", 22);
    assert_int_equal(coh_model_resolve(folder, 0, &found), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), folder));
    assert_non_null(strstr(coh_last_error(), "config.json: \"model_type\" is \"bert\""));
    write_config(folder, "{\"model_type\": \"opt\"}\0{", 23);
    assert_int_equal(coh_model_resolve(folder, 0, &found), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "zero byte"));
}

static void what_is_neither_preset_nor_folder_is_said_with_the_choices(void **state)
{
    (void)state;
    coh_model found;
    const char *const wrong[] = { "bloom", "/nowhere/at/all", "/dev/null" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(coh_model_resolve(wrong[i], 0, &found), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), wrong[i]));
        for (int32_t p = 0; coh_model_preset_name(p); p++)
            assert_non_null(strstr(coh_last_error(), coh_model_preset_name(p)));
    }
    assert_int_equal(coh_model_resolve("opt-13", 0, &found), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), ": is opt-13b meant?"));
    assert_null(strstr(coh_last_error(), "gpt2-pico")); /* without the list */
    assert_int_equal(coh_model_preset("facebook/opt-30", 0, &found), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), ": is opt-30b meant?"));
    assert_int_equal(coh_model_preset("bert", 0, &found), COH_ERR_ARGUMENT);
    assert_null(strstr(coh_last_error(), "meant?"));
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
        cmocka_unit_test(every_family_comes_back_from_its_json),
        cmocka_unit_test(the_longest_model_fits_its_json),
        cmocka_unit_test(notes_of_before_there_were_families_are_read),
        cmocka_unit_test(the_json_does_not_depend_on_the_locale),
        cmocka_unit_test(old_json_that_is_no_model_is_refused),
        cmocka_unit_test(what_was_stored_comes_back_and_nothing_else_is_taken),
        cmocka_unit_test(json_that_is_no_model_is_refused),
        cmocka_unit_test(names_that_cannot_be_a_folders_are_not_written),
        cmocka_unit_test_setup_teardown(checkpoints_and_run_folders_say_their_model, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(folders_that_hold_no_model_are_refused, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(a_folder_with_a_config_is_hugging_faces, folder_create,
                                        folder_remove),
        cmocka_unit_test(what_is_neither_preset_nor_folder_is_said_with_the_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
