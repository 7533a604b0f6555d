/* Conversations in the forms of data sets, and arrays of objects. The expected ids are those of the
 * same conversation as "messages" on a line, which test_documents.c checks against ids by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/text.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/byte_tokenizer.h"
#include "tests/text/folder.h"
#include "text/lines.h"

static coh_status make(const char *text, coh_data_form form, coh_token_build_facts *out_facts)
{
    coh_token_build_options options;
    folder_write("in", text, strlen(text));
    coh_token_build_options_init(&options);
    options.in_path = folder_file("in");
    options.out_path = folder_file("out");
    options.form = form;
    return coh_token_file_make(byte_tokenizer, &options, out_facts);
}

/* The hash of the ids of a text, and of which of them count. */
static uint64_t hash_of(const char *text, coh_data_form form)
{
    coh_token_file *file = NULL;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    if (make(text, form, NULL) != COH_OK ||
        coh_token_file_open(folder_file("out"), &file) != COH_OK)
        fail_msg("%s: %s", text, coh_last_error());
    assert_int_equal(coh_token_file_check(file), COH_OK);
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    coh_token_file_close(file);
    return facts.hash;
}

#define MESSAGE(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define FROM(role, content)    "{\"from\": \"" role "\", \"value\": \"" content "\"}"
#define CHAT(messages)         "{\"messages\": [" messages "]}"
#define Q                      MESSAGE("user", "q")
#define A                      MESSAGE("assistant", "a")
#define S                      MESSAGE("system", "s")

/* ---- forms ---- */

typedef struct same {
    const char *object, *messages;
} same;

static const same forms[] = {
    { "{\"conversations\": [" FROM("human", "q") ", " FROM("gpt", "a") "]}", CHAT(Q "," A) },
    { "{\"conversations\": [" FROM("system", "s") ", " FROM("user", "q") ", " FROM(
          "assistant", "a") "], \"system\": null}",
      CHAT(S "," Q "," A) },
    { "{\"conversations\": [" FROM("human", "q") ", " FROM(
          "gpt", "a") "], \"system\": \"s\", \"tools\": \"\", \"id\": \"x\"}",
      CHAT(S "," Q "," A) },
    { "{\"conversations\": [" Q ", " A "]}", CHAT(Q "," A) },
    { "{\"messages\": [" FROM("human", "q") ", " FROM("gpt", "a") "]}", CHAT(Q "," A) },
    { "{\"prompt\": \"q\", \"completion\": \"a\"}", CHAT(Q "," A) },
    { "{\"prompt\": \"q\", \"completion\": \"a\", \"system\": \"\", \"tools\": []}",
      CHAT(Q "," A) },
    { "{\"messages\": [" Q "," A "], \"system\": null, \"tools\": {}}", CHAT(Q "," A) },
    { "{\"prompt\": [" S ", " Q "], \"completion\": [" A "]}", CHAT(S "," Q "," A) },
    { "{\"instruction\": \"q\", \"input\": \"\", \"output\": \"a\"}", CHAT(Q "," A) },
    { "{\"instruction\": \"q\", \"output\": \"a\", \"history\": [], \"text\": \"other\"}",
      CHAT(Q "," A) },
    { "{\"instruction\": \"\", \"input\": \"q\", \"output\": \"a\", \"system\": \"\"}",
      CHAT(Q "," A) },
    { "{\"instruction\": \"q\", \"input\": \"1\\u00002\", \"output\": \"a\", \"system\": \"s\"}",
      CHAT(S "," MESSAGE("user", "q\\n1\\u00002") "," A) },
    /* Members of another form that are null, or do not make it whole, are none of a conversation:
     * tables have them in every row, and data sets repeat the first question as "prompt". */
    { "{\"messages\": [" Q ", " A "], \"prompt\": \"q\", \"output\": \"a\", \"completion\": null}",
      CHAT(Q "," A) },
    { "{\"messages\": null, \"instruction\": \"q\", \"output\": \"a\"}", CHAT(Q "," A) },
    /* contents of several parts */
    { CHAT("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"q\"}]}," A),
      CHAT(Q "," A) },
    { CHAT(Q ",{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a \"}, "
             "{\"text\": \"\", \"type\": \"text\"}, "
             "{\"type\": \"text\", \"text\": \"\\u0000b\", \"image\": null}]}"),
      CHAT(Q "," MESSAGE("assistant", "a \\u0000b")) },
    { CHAT(Q "," A ",{\"role\": \"user\", \"content\": []}," A),
      CHAT(Q "," A "," MESSAGE("user", "") "," A) },
    /* weights that change nothing */
    { CHAT("{\"role\": \"user\", \"content\": \"q\", \"weight\": 0},"
           "{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 1}"),
      CHAT(Q "," A) },
};

enum { FORM_COUNT = sizeof(forms) / sizeof(forms[0]) };

static void each_form_has_the_ids_and_targets_of_its_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++)
        if (hash_of(forms[i].object, COH_DATA_CHAT) != hash_of(forms[i].messages, COH_DATA_CHAT))
            fail_msg("%s differs from %s", forms[i].object, forms[i].messages);
}

static void lines_of_all_forms_may_be_mixed(void **state)
{
    (void)state;
    char objects[8192] = "", messages[8192] = "";
    for (size_t i = 0; i < FORM_COUNT; i++) {
        strcat(strcat(objects, forms[i].object), "\n");
        strcat(strcat(messages, forms[i].messages), "\n");
    }
    assert_int_equal(hash_of(objects, COH_DATA_CHAT), hash_of(messages, COH_DATA_CHAT));
}

static uint64_t target_count_of(const coh_token_file *file)
{
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_token_file_facts_get(file, &facts), COH_OK);
    return facts.target_count;
}

/* `text`: the ids of the conversation, '$' the end of a text; `mark`: '+' for each that counts. */
static void assert_marks(const char *object, const char *text, const char *mark)
{
    enum { MOST = 200 };
    const int64_t count = (int64_t)strlen(text);
    int32_t tokens[MOST], targets[MOST];
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    coh_token_file *file;
    uint64_t learned = 0;
    assert_true(count < MOST && strlen(mark) == strlen(text));
    if (make(object, COH_DATA_CHAT, &facts) != COH_OK)
        fail_msg("%s: %s", object, coh_last_error());
    assert_int_equal(coh_token_file_open(folder_file("out"), &file), COH_OK);
    assert_int_equal(coh_token_file_window_count(file, count - 1), 1);
    assert_int_equal(coh_token_file_window(file, 1, 0, count - 1, tokens, targets), COH_OK);
    for (int64_t i = 0; i + 1 < count; i++) {
        const int32_t next = text[i + 1] == '$' ? 256 : text[i + 1];
        assert_int_equal(tokens[i], text[i] == '$' ? 256 : text[i]);
        assert_int_equal(targets[i], mark[i + 1] == '+' ? next : -1);
        learned += mark[i + 1] == '+';
    }
    assert_int_equal(facts.target_count, learned);
    assert_int_equal(target_count_of(file), 0);
    assert_int_equal(coh_token_file_check(file), COH_OK);
    assert_int_equal(target_count_of(file), learned);
    coh_token_file_close(file);
}

static void an_answer_of_the_prompt_does_not_count(void **state)
{
    (void)state;
    assert_marks("{\"prompt\": [" Q ", " A ", " Q "], \"completion\": [" A "]}",
                 "user: q\nassistant: a$user: q\nassistant: a$",
                 "---------------------------------------+++");
}

#define WEIGHED(weight) "{\"role\": \"assistant\", \"content\": \"a\", \"weight\": " weight "}"

static void an_answer_of_weight_0_is_written_and_does_not_count(void **state)
{
    (void)state;
    static const char text[] = "user: q\nassistant: a$user: q\nassistant: a$";
    assert_marks(CHAT(Q "," WEIGHED("0") "," Q "," A), text,
                 "---------------------------------------+++");
    assert_marks(CHAT(Q "," WEIGHED("1.0") "," Q "," WEIGHED("0.0")), text,
                 "------------------+++---------------------");
    assert_marks("{\"prompt\": [" Q "," WEIGHED("1") "," Q
                                                     "], \"completion\": [" WEIGHED("null") "]}",
                 text, "---------------------------------------+++");
}

typedef struct bad {
    const char *object, *says;
} bad;

static void assert_refused(const char *text, coh_data_form form, const char *place,
                           const char *says)
{
    char begin[PATH_MAX + 32];
    const coh_status status = make(text, form, NULL);
    snprintf(begin, sizeof(begin), "%s%s", folder_file("in"), place);
    if (status != COH_ERR_CORRUPT || strncmp(coh_last_error(), begin, strlen(begin)) != 0 ||
        !strstr(coh_last_error(), says) || strchr(coh_last_error(), '\n'))
        fail_msg("%s: %s: %s", text, coh_status_name(status), coh_last_error());
}

static void what_would_lose_text_or_has_two_forms_is_refused(void **state)
{
    (void)state;
    static const bad all[] = {
        { "{\"messages\": [" Q "," A "], \"conversations\": [" Q "," A "]}",
          "the object has \"messages\" and \"conversations\"" },
        { "{\"messages\": [" Q "," A "], \"prompt\": \"q\", \"completion\": \"a\"}",
          "the object has \"messages\" and \"prompt\" with \"completion\"" },
        { "{\"prompt\": \"q\", \"completion\": \"a\", \"instruction\": \"q\", \"output\": \"a\"}",
          "\"prompt\" with \"completion\" and \"instruction\" with \"output\"" },
        { "{\"prompt\": \"q\"}", "\"messages\" is missing, and so are " },
        { "{\"version\": 1, \"data\": [" CHAT(Q "," A) "]}", "and \"data\" is a list of objects" },
        { "{\"data\": [\"q\"]}", "\"messages\" is missing, and so are " },
        { "{\"prompt\": \"q\", \"completion\": [" A "]}", "\"prompt\" is a text and \"compl" },
        { "{\"prompt\": [], \"completion\": [" A "]}", "\"prompt\" is empty" },
        { "{\"prompt\": [" Q "," A "], \"completion\": [" Q "]}",
          "no message of the completion is the assistant's" },
        { "{\"prompt\": [" Q ", 1], \"completion\": [" A "]}", "message 2 of the prompt is a num" },
        { "{\"prompt\": [" Q "], \"completion\": [{\"role\": \"tool\", \"content\": \"\"}]}",
          "message 1 of the completion has \"tool\" for a role" },
        { "{\"conversations\": [" FROM("human", "q") "," FROM("observation", "a") "]}",
          "message 2 has \"observation\" for a role: write system, human or gpt" },
        { CHAT(MESSAGE("human", "q")), "message 1 has \"human\" for a role: write system, user" },
        { "{\"conversations\": [" FROM("system", "s") "," FROM("gpt", "a") "], \"system\": \"s\"}",
          "message 1 is a system prompt, and so is" },
        { "{\"conversations\": [" FROM("gpt", "a") "], \"tools\": \"[]\"}", "member \"tools\"" },
        { "{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\", \"name\": \"x\"}]}",
          "message 1 has a member \"name\"" },
        { "{\"conversations\": [{\"from\": \"gpt\", \"content\": \"a\"}]}",
          "message 1 has a member \"content\"" },
        { CHAT("{\"role\": \"assistant\", \"content\": [{\"type\": \"image_url\"}]}"),
          "message 1 has a part of type \"image_url\"" },
        { CHAT("{\"role\": \"assistant\", \"content\": [\"a\"]}"), "a part of type \"nothing\"" },
        { CHAT("{\"role\": \"assistant\", \"content\": [{\"type\": \"text\"}]}"),
          "message 1 has a part with nothing for its text" },
        { CHAT("{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\", "
               "\"index\": 1}]}"),
          "message 1 has a part with a member \"index\"" },
        { "{\"instruction\": \"q\", \"output\": [\"a\"]}", "\"output\" is an array" },
        { "{\"instruction\": 1, \"output\": \"a\"}", "\"instruction\" is a number" },
        { "{\"instruction\": \"\", \"input\": \"\", \"output\": \"a\"}", "are empty" },
        { "{\"messages\": [" Q "," A "], \"tools\": [{}]}", "the member \"tools\" is not written" },
        { "{\"messages\": [" Q "," A "], \"system\": \"s\"}", "the member \"system\" is not wr" },
        { "{\"messages\": [" Q "," A "], \"history\": [[]]}", "the member \"history\" is not wr" },
        { "{\"prompt\": \"q\", \"completion\": \"a\", \"system\": \"s\"}", "member \"system\"" },
        { "{\"prompt\": [" Q "], \"completion\": [" A "], \"tools\": \"t\"}", "member \"tools\"" },
        { "{\"instruction\": \"q\", \"output\": \"a\", \"history\": [[\"q\", \"a\"]]}",
          "member \"history\"" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text), "%s\n%s\n", CHAT(Q "," A), all[i].object);
        assert_refused(text, COH_DATA_CHAT, ":2: ", all[i].says);
    }
}

static void weights_other_than_0_and_1_are_refused_and_0_for_all(void **state)
{
    (void)state;
    static const bad all[] = {
        { CHAT(Q "," WEIGHED("0")), "each message of the assistant has the weight 0, so " },
        { "{\"prompt\": [" Q "," A "], \"completion\": [" WEIGHED("0") "]}",
          "each message of the assistant in the completion has the weight 0" },
        { CHAT(WEIGHED("true")), "message 1 has a member \"weight\" that is neither 0" },
        { CHAT(WEIGHED("0.5")), "message 1 has a member \"weight\" that is neither 0" },
        { CHAT(WEIGHED("\"0\"")), "message 1 has a member \"weight\" that is neither 0" },
        { CHAT("{\"role\": \"user\", \"content\": \"q\", \"weight\": \"0\"}," A),
          "message 1 has a member \"weight\" that is neither 0" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_refused(all[i].object, COH_DATA_CHAT, ":1: ", all[i].says);
}

static void a_word_with_a_nul_character_is_another_word(void **state)
{
    (void)state;
    static const bad all[] = {
        { CHAT(MESSAGE("user\\u0000x", "q") "," A),
          "message 1 has a text with a NUL character for a role: write system, user" },
        { CHAT("{\"role\": \"assistant\", \"content\": [{\"type\": \"text\\u0000\"}]}"),
          "message 1 has a part of type \"a text with a NUL character\"" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_refused(all[i].object, COH_DATA_CHAT, ":1: ", all[i].says);
}

/* ---- arrays ---- */

static void an_array_gives_what_its_elements_give_as_lines(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"text\": \"a\"}\n{\"text\": \"]}\\\\\\\"{\"}\n{\"text\": \"\"}\n";
    static const char *const arrays[] = {
        "[{\"text\": \"a\"},{\"text\": \"]}\\\\\\\"{\"},{\"text\": \"\"}]",
        "\xef\xbb\xbf \r\n[ {\"text\":\n\"a\", \"more\": [{}, [1]]}\n,\n\t{\"text\": "
        "\"]}\\\\\\\"{\", \"n\": NaN}, {\"text\": \"\"}\n]\n\n",
    };
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        assert_int_equal(hash_of(arrays[i], COH_DATA_JSONL), hash_of(lines, COH_DATA_JSONL));
}

static void an_element_longer_than_a_block_is_read_whole(void **state)
{
    (void)state;
    enum { LONG = 3 << 20 };
    char *text = malloc(LONG + 64);
    coh_token_build_facts facts = { .struct_bytes = sizeof(facts) };
    assert_non_null(text);
    size_t count = (size_t)sprintf(text, "[{\"text\": \"");
    memset(text + count, 'a', LONG);
    strcpy(text + count + LONG, "\"}, {\"text\": \"b\"}]");
    assert_int_equal(make(text, COH_DATA_JSONL, &facts), COH_OK);
    free(text);
    assert_int_equal(facts.token_count, LONG + 3);
    assert_int_equal(facts.document_count, 2);
}

static void an_element_beyond_all_bounds_is_refused(void **state)
{
    (void)state;
    coh_lines lines;
    json_t *object;
    static const char text[] = "[{},\n{\"a\": \"0123456789012345678901234567890123456789\"}]";
    folder_write("in", text, sizeof(text) - 1);
    assert_int_equal(coh_lines_open(folder_file("in"), &lines), COH_OK);
    lines.most_bytes = 40;
    assert_int_equal(coh_lines_next(&lines, &object), COH_OK);
    json_decref(object);
    assert_int_equal(coh_lines_next(&lines, &object), COH_ERR_CORRUPT);
    assert_null(object);
    assert_non_null(strstr(coh_last_error(), ":2: the object has more than"));
    coh_lines_close(&lines);
}

static void malformed_arrays_are_refused_by_file_and_line(void **state)
{
    (void)state;
    static const struct bad_array {
        const char *text, *place, *says;
    } all[] = {
        { "[", ":1: ", "the array does not end" },
        { "\n[\n", ":3: ", "the array does not end" },
        { "[{\"text\": \"a\"}", ":1: ", "the array does not end" },
        { "[{\"text\": \"a\"},", ":1: ", "the array does not end" },
        { "[{\"text\": \"a\\", ":1: ", "the object does not end" },
        { "[{\"text\": \"a]\\\"}]", ":1: ", "the object does not end" },
        { "[{\"text\": \"a\"}\n{\"text\": \"b\"}]", ":2: ", "no comma before element 2" },
        { "[,{\"text\": \"a\"}]", ":1: ", "element 1 of the array is not a JSON object" },
        { "[{\"text\": \"a\"},\n\n]", ":3: ", "element 2 of the array is not a JSON object" },
        { "[{\"text\": \"a\"},, {}]", ":1: ", "element 2 of the array is not a JSON object" },
        { "[[{\"text\": \"a\"}]]", ":1: ", "element 1 of the array is not a JSON object" },
        { "[{\"text\": \"a\"}]\n]", ":2: ", "more text is behind it" },
        { "[{\"text\": \"a\",\n\"text\": \"b\"}]", ":1: ", "no JSON" },
        { "[{\"text\":\n\n\"a\"},{\"text\": [}]}]", ":3: ", "no JSON" },
        { "[{\"text\": 1}]", ":1: ", "is a number" },
        { "[]", "", "holds no line with an object" },
        { "[{\"text\": \"a\"}, \"b", ":1: ", "element 2 of the array is not a JSON object" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_refused(all[i].text, COH_DATA_JSONL, all[i].place, all[i].says);
}

/* ---- failures ---- */

static void a_failed_allocation_of_a_pair_leaves_nothing(void **state)
{
    (void)state;
    static const char text[] = "{\"p\": \"q\", \"c\": \"a\"}\n";
    coh_token_build_options options;
    folder_write("in", text, sizeof(text) - 1);
    coh_token_build_options_init(&options);
    options.in_path = folder_file("in");
    options.out_path = folder_file("out");
    options.form = COH_DATA_JSONL;
    options.field = "p,c";
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = coh_token_file_make(byte_tokenizer, &options, NULL);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(folder_count(), 1);
    }
}

static void a_failed_allocation_is_reported_and_nothing_is_left(void **state)
{
    (void)state;
    char text[8192] = "";
    strcat(text, "{\"prompt\": [" Q ", " A ", " Q "], \"completion\": [" A "]}\n");
    for (size_t i = 0; i < FORM_COUNT; i++)
        strcat(strcat(text, forms[i].object), "\n");
    folder_write("in", text, strlen(text));
    const int entry_count = folder_count();
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = make(text, COH_DATA_CHAT, NULL);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 12);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_int_equal(folder_count(), entry_count);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_form_has_the_ids_and_targets_of_its_messages),
        IN_FOLDER(lines_of_all_forms_may_be_mixed),
        IN_FOLDER(an_answer_of_the_prompt_does_not_count),
        IN_FOLDER(an_answer_of_weight_0_is_written_and_does_not_count),
        IN_FOLDER(what_would_lose_text_or_has_two_forms_is_refused),
        IN_FOLDER(weights_other_than_0_and_1_are_refused_and_0_for_all),
        IN_FOLDER(a_word_with_a_nul_character_is_another_word),
        IN_FOLDER(an_array_gives_what_its_elements_give_as_lines),
        IN_FOLDER(an_element_longer_than_a_block_is_read_whole),
        IN_FOLDER(an_element_beyond_all_bounds_is_refused),
        IN_FOLDER(malformed_arrays_are_refused_by_file_and_line),
        IN_FOLDER(a_failed_allocation_of_a_pair_leaves_nothing),
        IN_FOLDER(a_failed_allocation_is_reported_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, open_bytes, close_bytes);
}
