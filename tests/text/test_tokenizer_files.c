/* The files of a folder that are read, the meaning of its configs, and a tokenizer's identity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/text/refused.h"

/* TOKENIZERS: the folder of folders. */

/* ---- folders ---- */

static void copy(const char *fixture, const char *file)
{
    char path[PATH_MAX];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/%s/%s", TOKENIZERS, fixture, file);
    char *text = folder_read(path, &bytes);
    folder_write(file, text, bytes);
    free(text);
}

static coh_tokenizer *open_or_fail(const char *what)
{
    coh_tokenizer *tokenizer;
    if (coh_tokenizer_open(what, &tokenizer) != COH_OK)
        fail_msg("%s: %s", what, coh_last_error());
    return tokenizer;
}

static void a_folder_is_read_from_tokenizer_json_first(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    assert_int_equal(coh_tokenizer_open(folder_path, &tokenizer), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "tokenizer.json, tokenizer.model or vocab.json"));
    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_vocabulary(tokenizer), 420);
    coh_tokenizer_close(tokenizer);
    copy("llama2", "tokenizer.model");
    tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_vocabulary(tokenizer), 520);
    assert_int_equal(coh_tokenizer_begin_of_text(tokenizer), 1);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), 2);
    coh_tokenizer_close(tokenizer);
    copy("llama3", "tokenizer.json");
    tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_vocabulary(tokenizer), 421);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), 417);
    coh_tokenizer_close(tokenizer);
}

static void write_config(const char *text)
{
    folder_write("tokenizer_config.json", text, strlen(text));
}

static void the_config_says_what_begins_and_ends_a_text(void **state)
{
    (void)state;
    const int32_t *before, *after;
    size_t before_count, after_count;
    coh_tokenizer *tokenizer = open_or_fail(TOKENIZERS "/opt");
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), 2);
    assert_int_equal(coh_tokenizer_begin_of_text(tokenizer), 2);
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    assert_int_equal(before_count, 1);
    assert_int_equal(before[0], 2);
    assert_int_equal(after_count, 0);
    uint64_t with_config = coh_tokenizer_identity(tokenizer);
    coh_tokenizer_close(tokenizer);

    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), -1);
    assert_true(coh_tokenizer_identity(tokenizer) != with_config);
    coh_tokenizer_close(tokenizer);

    static const char *const bad[][2] = {
        { "{", "tokenizer_config.json: line 1" },
        { "[]", "expected an object" },
        { "{\"eos_token\": \"nowhere\"}", "\"nowhere\", which is no token" },
        { "{\"eos_token\": 3}", "\"eos_token\" is not a token" },
        { "{\"add_eos_token\": true}", "no \"eos_token\" is named" },
        { "{\"add_eos_token\": 1, \"eos_token\": \"a\"}", "expected true or false" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_config(bad[i][0]);
        assert_refused(folder_path, bad[i][1], i);
    }
    write_config("{\"eos_token\": null, \"bos_token\": null, "
                 "\"model_max_length\": 1000000000000000019884624838656}"); /* transformers' */
    coh_tokenizer_close(open_or_fail(folder_path));

    /* With a tokenizer.json, only its post-processor defines what surrounds a text. */
    copy("gpt2", "tokenizer.json");
    write_config("{\"eos_token\": \"a\", \"add_eos_token\": true}");
    tokenizer = open_or_fail(folder_path);
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    assert_int_equal(before_count + after_count, 0);
    assert_true(coh_tokenizer_end_of_text(tokenizer) != 416);
    coh_tokenizer_close(tokenizer);
}

static void assert_ends(int32_t expected)
{
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_end_of_text(tokenizer), expected);
    coh_tokenizer_close(tokenizer);
}

static void write_text(const char *file, const char *text)
{
    folder_write(file, text, strlen(text));
}

static void files_say_what_ends_a_text_in_the_order_of_transformers(void **state)
{
    (void)state;
    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    assert_ends(-1);
    write_text("config.json", "{\"eos_token_id\": [3, 2]}");
    assert_ends(3);
    write_text("config.json", "{\"eos_token_id\": 420}"); /* beyond the vocabulary */
    assert_ends(-1);
    write_text("config.json", "{\"eos_token_id\": null}");
    assert_ends(-1);
    write_text("config.json", "{\"eos_token_id\": 2}");
    assert_ends(2);
    write_config("{\"eos_token\": \"<pad>\"}");
    assert_ends(1);
    write_text("special_tokens_map.json", "{\"eos_token\": {\"content\": \"<unk>\"}}");
    assert_ends(3);
    write_config("{\"eos_token\": \"<pad>\", \"added_tokens_decoder\": {}}");
    assert_ends(1);
    write_text("special_tokens_map.json", "{");
    assert_ends(1); /* not read */
    write_config("{}");
    assert_refused(folder_path, "special_tokens_map.json: line 1", 0);
    write_text("special_tokens_map.json", "{\"bos_token\": 1}");
    assert_refused(folder_path, "special_tokens_map.json: \"bos_token\" is not a token", 1);
    remove(folder_file("special_tokens_map.json"));
    write_text("config.json", "[]");
    assert_refused(folder_path, "config.json: expected an object", 2);
    copy("llama3", "tokenizer.json"); /* defines an end itself: config.json is not used */
    assert_ends(417);
}

static void assert_before(int32_t expected)
{
    const int32_t *before, *after;
    size_t before_count, after_count;
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    assert_int_equal(after_count, 0);
    assert_int_equal(before_count, expected >= 0);
    if (expected >= 0)
        assert_int_equal(before[0], expected);
    coh_tokenizer_close(tokenizer);
}

static void llama_2_begins_texts_unless_its_config_says_no(void **state)
{
    (void)state;
    copy("llama2", "tokenizer.model");
    assert_before(1);
    write_config("{\"add_bos_token\": true}");
    assert_before(1);
    write_config("{\"bos_token\": \"<unk>\"}");
    assert_before(0);
    write_config("{\"add_bos_token\": false}");
    assert_before(-1);
    copy("llama3", "tokenizer.json"); /* its post-processor adds it and defines its id */
    assert_before(416);
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_begin_of_text(tokenizer), 416);
    coh_tokenizer_close(tokenizer);
}

/* A folder with a tokenizer.json is read from that file, whatever the flags are. */
static void fewer_spaces_than_sentencepiece_puts_are_refused(void **state)
{
    (void)state;
    static const char *const supported[] = { "{}", "{\"legacy\": null, \"add_prefix_space\": null}",
                                             "{\"legacy\": true, \"add_prefix_space\": true}" };
    static const char no_legacy[] = "{\"legacy\": false}";
    static const char listed[] = "{\"legacy\": false, \"added_tokens_decoder\": {\"520\": "
                                 "{\"content\": \"<|x|>\"}}}";
    copy("llama2", "tokenizer.model");
    write_config(no_legacy); /* there are no added tokens */
    coh_tokenizer_close(open_or_fail(folder_path));
    write_config("{\"add_prefix_space\": false}");
    assert_refused(folder_path, "\"add_prefix_space\" is false", 0);
    write_config(listed);
    assert_refused(folder_path, "such as \"<|x|>\", which is not supported", 1);
    write_text("added_tokens.json", "{\"<|y|>\": 520}");
    write_config(no_legacy);
    assert_refused(folder_path, "such as \"<|y|>\", which is not supported", 2);
    assert_non_null(strstr(coh_last_error(), folder_file("tokenizer_config.json")));
    assert_non_null(strstr(coh_last_error(), "save_pretrained"));
    write_config("{\"legacy\": false, \"pad_token\": \"<|y|>\"}"); /* no text has it */
    coh_tokenizer_close(open_or_fail(folder_path));
    write_config("{\"legacy\": false, \"pad_token\": {\"content\": \"<|y|>\"}}");
    coh_tokenizer_close(open_or_fail(folder_path));
    write_config("{\"legacy\": false, \"pad_token\": \"<|y\"}");
    assert_refused(folder_path, "such as \"<|y|>\", which is not supported", 2);
    write_config("{\"legacy\": 0}");
    assert_refused(folder_path, "expected true or false", 3);
    for (size_t i = 0; i < sizeof(supported) / sizeof(supported[0]); i++) {
        write_config(supported[i]);
        coh_tokenizer_close(open_or_fail(folder_path));
    }
    write_config("{\"legacy\": false, \"add_prefix_space\": false}");
    copy("llama2-modern", "tokenizer.json");
    coh_tokenizer_close(open_or_fail(folder_path));
}

/* ---- vocab.json and merges.txt of a class ---- */

/* Writes vocab.json and merges.txt with the vocabulary of a fixture's tokenizer.json. */
static void take_apart(const char *fixture)
{
    char path[PATH_MAX], line[512];
    FILE *merges = fopen(folder_file("merges.txt"), "wb");
    snprintf(path, sizeof(path), "%s/%s/tokenizer.json", TOKENIZERS, fixture);
    json_t *root = json_load_file(path, 0, NULL);
    json_t *model = json_object_get(root, "model"), *pair;
    size_t index;
    assert_int_equal(json_dump_file(json_object_get(model, "vocab"), folder_file("vocab.json"), 0),
                     0);
    assert_non_null(merges);
    json_array_foreach(json_object_get(model, "merges"), index, pair)
    {
        snprintf(line, sizeof(line), "%s %s\n", json_string_value(json_array_get(pair, 0)),
                 json_string_value(json_array_get(pair, 1)));
        fputs(line, merges);
    }
    fclose(merges);
    json_decref(root);
}

static void assert_same_ids(const coh_tokenizer *left, const char *left_text,
                            const coh_tokenizer *right, const char *right_text)
{
    int32_t *ids[2];
    size_t counts[2];
    assert_int_equal(coh_tokenizer_encode((coh_tokenizer *)left, left_text, strlen(left_text),
                                          &ids[0], &counts[0]),
                     COH_OK);
    assert_int_equal(coh_tokenizer_encode((coh_tokenizer *)right, right_text, strlen(right_text),
                                          &ids[1], &counts[1]),
                     COH_OK);
    if (counts[0] != counts[1] || memcmp(ids[0], ids[1], counts[0] * sizeof(int32_t)) != 0)
        fail_msg("\"%s\" has other ids", left_text);
    coh_text_free(ids[0]);
    coh_text_free(ids[1]);
}

/* Another test compares the tokenizer.json of this vocabulary with transformers. */
static void byte_pairs_are_those_of_the_class_that_a_file_names(void **state)
{
    (void)state;
    static const char *const texts[] = { "  the 1234 cats'LL e\xcc\x81 \n\n a.\nb\t\t x",
                                         "IT'S 12\r\n  (word", "the<|im_end|> of" };
    static const char added[] =
        "\"added_tokens_decoder\": {\"416\": {\"content\": \"<|endoftext|>\"}, \"417\": "
        "{\"content\": \"<|im_start|>\"}, \"418\": {\"content\": \"<|im_end|>\"}}}";
    static const struct place {
        const char *config, *model;
    } places[] = {
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\", ", "{}" },
        { "{\"tokenizer_class\": \"Qwen2TokenizerFast\", ", "{\"tokenizer_class\": \"X\"}" },
        { "{", "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"model_type\": \"gpt2\"}" },
        { "{", "{\"model_type\": \"qwen2\"}" },
    };
    coh_tokenizer *json = open_or_fail(TOKENIZERS "/qwen2");
    char config[1024];
    take_apart("qwen2");
    uint64_t qwen2 = 0;
    for (size_t p = 0; p <= sizeof(places) / sizeof(places[0]); p++) {
        int is_gpt2 = p == sizeof(places) / sizeof(places[0]);
        snprintf(config, sizeof(config), "%s%s", is_gpt2 ? "{" : places[p].config, added);
        write_config(config);
        write_text("config.json", is_gpt2 ? "{}" : places[p].model);
        coh_tokenizer *made = open_or_fail(folder_path);
        for (size_t i = 0; !is_gpt2 && i < sizeof(texts) / sizeof(texts[0]); i++)
            assert_same_ids(made, texts[i], json, texts[i]);
        if (p == 0)
            qwen2 = coh_tokenizer_identity(made);
        assert_true((coh_tokenizer_identity(made) == qwen2) == !is_gpt2);
        coh_tokenizer_close(made);
    }
    coh_tokenizer_close(json);
    write_config("{\"tokenizer_class\": \"RobertaTokenizer\"}");
    assert_refused(folder_path, "\"RobertaTokenizer\" are not supported", 0);
    write_config("{\"tokenizer_class\": \"Qwen2Tokenizer\", \"add_prefix_space\": true}");
    assert_refused(folder_path, "\"add_prefix_space\" is true", 1);
    write_config("{\"add_prefix_space\": 1}");
    assert_refused(folder_path, "expected true or false", 2);
}

static void a_space_goes_before_where_the_config_asks_for_it(void **state)
{
    (void)state;
    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    coh_tokenizer *plain = open_or_fail(folder_path);
    write_config("{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": true}");
    coh_tokenizer *prefixed = open_or_fail(folder_path);
    assert_same_ids(prefixed, "the cat", plain, " the cat");
    assert_same_ids(prefixed, " the cat", plain, " the cat");
    assert_true(coh_tokenizer_identity(plain) != coh_tokenizer_identity(prefixed));
    coh_tokenizer_close(prefixed);
    write_config("{\"tokenizer_class\": \"GPT2TokenizerFast\", \"add_prefix_space\": false}");
    prefixed = open_or_fail(folder_path);
    assert_same_ids(prefixed, "the cat", plain, "the cat");
    assert_true(coh_tokenizer_identity(plain) == coh_tokenizer_identity(prefixed));
    coh_tokenizer_close(prefixed);
    coh_tokenizer_close(plain);
}

/* With these flags transformers 4.46 gives [], [1] + [2] and so on, 5.23 always [1]. */
static void flags_against_llama_s_post_processor_are_refused(void **state)
{
    (void)state;
    static const struct {
        int is_refused;
        const char *config;
    } all[] = {
        { 0, "{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": true}" },
        { 0, "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_eos_token\": false}" },
        { 0, "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": null}" },
        { 0, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"add_bos_token\": false}" },
        { 1, "{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false}" },
        { 1, "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_eos_token\": true}" },
    };
    copy("llama2-json", "tokenizer.json");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        write_config(all[i].config);
        if (all[i].is_refused)
            assert_refused(folder_path, "does otherwise", i);
        else
            coh_tokenizer_close(open_or_fail(folder_path));
    }
}

/* "the<|im_end|> of" is "the", the token, " of"; new ids follow the vocabulary's. */
static void assert_added(int32_t id, const char *name)
{
    char text[200];
    int32_t *whole, *left, *right;
    size_t count, left_count, right_count;
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    assert_int_equal(coh_tokenizer_token_id(tokenizer, name), id);
    int text_bytes = snprintf(text, sizeof(text), "the%s of", name);
    assert_int_equal(coh_tokenizer_encode(tokenizer, text, (size_t)text_bytes, &whole, &count),
                     COH_OK);
    assert_int_equal(coh_tokenizer_encode(tokenizer, "the", 3, &left, &left_count), COH_OK);
    assert_int_equal(coh_tokenizer_encode(tokenizer, " of", 3, &right, &right_count), COH_OK);
    assert_int_equal(count, left_count + 1 + right_count);
    assert_memory_equal(whole, left, left_count * sizeof(*whole));
    assert_int_equal(whole[left_count], id);
    assert_memory_equal(whole + left_count + 1, right, right_count * sizeof(*whole));
    char *decoded;
    size_t decoded_bytes;
    assert_int_equal(coh_tokenizer_decode(tokenizer, whole, count, &decoded, &decoded_bytes),
                     COH_OK);
    assert_string_equal(decoded, text);
    coh_text_free(decoded);
    coh_text_free(right);
    coh_text_free(left);
    coh_text_free(whole);
    coh_tokenizer_close(tokenizer);
}

static void tokens_beyond_the_vocabulary_come_from_the_folders_other_files(void **state)
{
    (void)state;
    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    write_text("added_tokens.json", "{\"<|im_end|>\": 421, \"<s>\": 0, \"<|x|>\": 420}");
    assert_added(421, "<|im_end|>");
    assert_added(420, "<|x|>");
    write_config("{\"eos_token\": \"<|im_end|>\"}");
    assert_ends(421);
    write_config(
        "{\"added_tokens_decoder\": {\"420\": {\"content\": \"<|y|>\", \"special\": true}}}");
    assert_added(420, "<|y|>");
    write_config("{}");
    static const char *const bad[][2] = {
        { "{\"<|x|>\": 421}", "no token has id 420" },
        { "{\"<|x|>\": 420, \"<|y|>\": 420}", "no token has id 421" },
        { "{\"<|x|>\": 4}", "nor one behind" },
        { "{\"<s>\": 420}", "nor one behind" },
        { "{\"<|x|>\": -1}", "no integer" },
        { "{\"<|x|>\": \"420\"}", "no integer" },
        { "{\"\": 420}", "no characters" },
        { "[]", "expected an object" },
        { "{", "added_tokens.json: line 1" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_text("added_tokens.json", bad[i][0]);
        assert_refused(folder_path, bad[i][1], i);
    }
    static const char *const bad_decoders[][2] = {
        { "{\"added_tokens_decoder\": []}", "is not an object" },
        { "{\"added_tokens_decoder\": {\"x\": {\"content\": \"a b\"}}}", "no integer" },
        { "{\"added_tokens_decoder\": {\"42x\": {\"content\": \"a b\"}}}", "no integer" },
        { "{\"added_tokens_decoder\": {\"420\": {}}}",
          "entry content: expected a text, found nothing" },
        { "{\"added_tokens_decoder\": {\"420\": {\"content\": \"a b\", \"lstrip\": 1}}}",
          "expected true or false" },
    };
    for (size_t i = 0; i < sizeof(bad_decoders) / sizeof(bad_decoders[0]); i++) {
        write_config(bad_decoders[i][0]);
        assert_refused(folder_path, bad_decoders[i][1], i);
    }
}

/* Writes the opt fixture's vocabulary, followed by the names in `more`. */
static void write_vocabulary(const json_t *more)
{
    size_t index;
    json_t *name, *names = json_load_file(TOKENIZERS "/opt/vocab.json", 0, NULL);
    json_array_foreach(more, index, name) json_object_set_new(
        names, json_string_value(name), json_integer((json_int_t)json_object_size(names)));
    assert_int_equal(json_dump_file(names, folder_file("vocab.json"), 0), 0);
    json_decref(names);
}

static void assert_recorded_ids(const json_t *expected, size_t number)
{
    const char *text;
    json_t *recorded, *id;
    size_t count, index;
    int32_t *ids;
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    json_object_foreach((json_t *)expected, text, recorded)
    {
        assert_int_equal(coh_tokenizer_encode(tokenizer, text, strlen(text), &ids, &count), COH_OK);
        int is_same = count == json_array_size(recorded);
        json_array_foreach(recorded, index, id) is_same =
            is_same && ids[index] == json_integer_value(id);
        if (!is_same)
            fail_msg("case %zu: \"%s\" has other ids", number, text);
        coh_text_free(ids);
    }
    coh_tokenizer_close(tokenizer);
}

/* SPECIAL: transformers' results for such folders. */
static void a_text_spells_those_special_tokens_of_a_vocabulary_that_transformers_takes(void **state)
{
    (void)state;
    json_t *cases = json_load_file(SPECIAL, 0, NULL), *one, *content;
    const char *name;
    size_t number;
    assert_true(json_array_size(cases) > 15);
    copy("opt", "merges.txt");
    json_array_foreach(cases, number, one)
    {
        json_t *files = json_object_get(one, "files");
        write_vocabulary(json_object_get(one, "more"));
        json_object_foreach(files, name, content)
            assert_int_equal(json_dump_file(content, folder_file(name), 0), 0);
        assert_recorded_ids(json_object_get(one, "ids"), number);
        json_object_foreach(files, name, content) remove(folder_file(name));
    }
    json_decref(cases);
}

/* Other ids for a text mean another tokenizer, and a token's spelling in a text determines ids. */
static void special_tokens_are_part_of_the_identity(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{}",
        "{\"pad_token\": \"<pad>\"}",
        "{\"pad_token\": {\"content\": \"<pad>\", \"lstrip\": true}}",
        "{\"pad_token\": \"<unk>\"}",
        "{\"pad_token\": \"<unk>\", \"mask_token\": \"<pad>\"}",
    };
    enum { CONFIGS = sizeof(configs) / sizeof(configs[0]) };
    uint64_t identities[CONFIGS];
    copy("opt", "vocab.json");
    copy("opt", "merges.txt");
    for (size_t i = 0; i < CONFIGS; i++) {
        write_config(configs[i]);
        coh_tokenizer *tokenizer = open_or_fail(folder_path);
        identities[i] = coh_tokenizer_identity(tokenizer);
        coh_tokenizer_close(tokenizer);
        for (size_t k = 0; k < i; k++)
            assert_true(identities[i] != identities[k]);
    }
}

static void a_token_is_found_by_how_its_file_spells_it(void **state)
{
    (void)state;
    static const struct {
        const char *what, *token;
        int32_t id;
    } all[] = {
        { TOKENIZERS "/qwen2", "<|im_start|>", 417 },
        { TOKENIZERS "/qwen2", "</tool_call>", 420 },
        { TOKENIZERS "/qwen2", "<|im_start", -1 },
        { TOKENIZERS "/qwen2", "", -1 },
        { TOKENIZERS "/qwen2", "!", 0 },
        { TOKENIZERS "/llama2", "<s>", 1 },
        { TOKENIZERS "/llama2", "<0x00>", 3 },
        { TOKENIZERS "/opt", "</s>", 2 },
        { "bytes", "A", 65 },
        { "bytes", "AB", -1 },
        { "bytes", "\xff", 255 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_tokenizer *tokenizer = open_or_fail(all[i].what);
        assert_int_equal(coh_tokenizer_token_id(tokenizer, all[i].token), all[i].id);
        assert_int_equal(coh_tokenizer_token_id(tokenizer, NULL), -1);
        coh_tokenizer_close(tokenizer);
    }
}

/* ---- identity ---- */

static uint64_t identity_of_changed(const char *fixture, const char *find, const char *replacement)
{
    char path[PATH_MAX];
    size_t bytes, changed_bytes;
    snprintf(path, sizeof(path), "%s/%s/tokenizer.json", TOKENIZERS, fixture);
    char *text = folder_read(path, &bytes);
    char *other = changed(text, bytes, find, replacement, &changed_bytes);
    folder_write("tokenizer.json", other, changed_bytes);
    free(other);
    free(text);
    coh_tokenizer *tokenizer = open_or_fail(folder_path);
    uint64_t identity = coh_tokenizer_identity(tokenizer);
    coh_tokenizer_close(tokenizer);
    return identity;
}

static void identity_follows_what_decides_ids_and_not_the_layout(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        { "{\"version\"", "{\n  \"version\"" },
        { "\"version\":\"1.0\",\"truncation\":null", "\"truncation\":null,\"version\":\"1.0\"" },
        { "\"fuse_unk\":false", "\"fuse_unk\":true" }, /* no token is unknown */
        { "[\"a\",\"a\"]", "\"a a\"" },
        { "\"truncation\":null", "\"truncation\":{\"max_length\":5}" },
        { "\"padding\":null", "\"padding\":{\"length\":5}" },
    };
    static const char *const different[][2] = {
        { "[\"a\",\"a\"],", "" },
        { "\"!\":0,\"\\\"\":1", "\"!\":1,\"\\\"\":0" },
        { "\"lstrip\":false", "\"lstrip\":true" },
        { "{\"type\":\"NFC\"}", "null" },
        { "\\\\p{N}|", "\\\\p{N}{1,3}|" },
        { "\"ignore_merges\":false", "\"ignore_merges\":true" },
    };
    uint64_t original = identity_of_changed("qwen2", "{", "{");
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        if (identity_of_changed("qwen2", same[i][0], same[i][1]) != original)
            fail_msg("%s changed it", same[i][1]);
    }
    for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++) {
        if (identity_of_changed("qwen2", different[i][0], different[i][1]) == original)
            fail_msg("%s did not change it", different[i][1]);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_folder_is_read_from_tokenizer_json_first),
        IN_FOLDER(the_config_says_what_begins_and_ends_a_text),
        IN_FOLDER(files_say_what_ends_a_text_in_the_order_of_transformers),
        IN_FOLDER(byte_pairs_are_those_of_the_class_that_a_file_names),
        IN_FOLDER(a_space_goes_before_where_the_config_asks_for_it),
        IN_FOLDER(flags_against_llama_s_post_processor_are_refused),
        IN_FOLDER(tokens_beyond_the_vocabulary_come_from_the_folders_other_files),
        IN_FOLDER(llama_2_begins_texts_unless_its_config_says_no),
        IN_FOLDER(fewer_spaces_than_sentencepiece_puts_are_refused),
        cmocka_unit_test_setup_teardown(
            a_text_spells_those_special_tokens_of_a_vocabulary_that_transformers_takes,
            folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(special_tokens_are_part_of_the_identity, folder_create,
                                        folder_remove),
        cmocka_unit_test(a_token_is_found_by_how_its_file_spells_it),
        IN_FOLDER(identity_follows_what_decides_ids_and_not_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
