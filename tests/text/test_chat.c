/* Conversations compared with transformers' apply_chat_template, recorded by
 * fixtures/chat/make.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"
#include "text/chat.h"

/* TOKENIZERS, CHATS: folders of fixtures; TEMPLATES: a file. */

enum { MESSAGES_MOST = 8 };

typedef struct conversation {
    coh_chat_turn messages[MESSAGES_MOST];
    size_t count;
} conversation;

static coh_chat_role role_of(const char *name)
{
    return strcmp(name, "system") == 0 ? COH_CHAT_SYSTEM
           : strcmp(name, "user") == 0 ? COH_CHAT_USER
                                       : COH_CHAT_ASSISTANT;
}

static conversation conversation_of(const json_t *messages)
{
    conversation c = { .count = json_array_size(messages) };
    assert_true(c.count <= MESSAGES_MOST);
    for (size_t i = 0; i < c.count; i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        c.messages[i] = (coh_chat_turn){
            role_of(json_string_value(json_object_get(message, "role"))),
            json_string_value(content),
            json_string_length(content),
        };
    }
    return c;
}

/* ---- recorded cases ---- */

/* A folder of recorded conversations, and how its template is called by name, if it has one. */
typedef struct recorded_form {
    const char *folder;
    coh_chat_form form; /* AUTO: none */
} recorded_form;

static const recorded_form recorded_forms[] = {
    { "qwen2.5", COH_CHAT_FORM_AUTO },  { "smollm2", COH_CHAT_FORM_AUTO },
    { "chatml", COH_CHAT_FORM_CHATML }, { "llama3", COH_CHAT_FORM_LLAMA3 },
    { "llama3.1", COH_CHAT_FORM_AUTO }, { "llama2", COH_CHAT_FORM_LLAMA2 },
    { "gemma2", COH_CHAT_FORM_AUTO },   { "gemma3", COH_CHAT_FORM_GEMMA },
    { "qwen3", COH_CHAT_FORM_QWEN3 },   { "plain", COH_CHAT_FORM_PLAIN },
    { "phi3", COH_CHAT_FORM_AUTO },     { "phi4", COH_CHAT_FORM_AUTO },
    { "mistral", COH_CHAT_FORM_AUTO },  { "zephyr", COH_CHAT_FORM_AUTO },
    { "inner", COH_CHAT_FORM_AUTO },    { "once", COH_CHAT_FORM_AUTO },
};
enum { RECORDED_FORMS = sizeof(recorded_forms) / sizeof(recorded_forms[0]) };

/* Where the form comes from. */
typedef enum form_source {
    FROM_TEMPLATE, /* which marks its answers */
    FROM_UNMARKED, /* the same without marks */
    FROM_NAME,
    FORM_SOURCES
} form_source;

static void compare(const char *where, const json_t *line, const coh_id_list *ids,
                    const coh_byte_list *counts)
{
    const json_t *expected = json_object_get(line, "ids");
    const char *digits = json_string_value(json_object_get(line, "counts"));
    size_t count = json_array_size(expected);
    for (size_t i = 0; i < ids->count && i < count; i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(expected, i));
        if (ids->ids[i] != id)
            fail_msg("%s: id %d at %zu, expected %d", where, ids->ids[i], i, id);
        if (counts->bytes[i] != digits[i] - '0')
            fail_msg("%s: id %d at %zu counts %d, expected %c", where, id, i, counts->bytes[i],
                     digits[i]);
    }
    if (ids->count != count || counts->count != count)
        fail_msg("%s: %zu ids, expected %zu", where, ids->count, count);
}

typedef struct opened {
    char name[64];
    coh_tokenizer *tokenizer;
    coh_chat *chat;
} opened;

static void close_opened(opened *o)
{
    coh_chat_close(o->chat);
    coh_tokenizer_close(o->tokenizer);
    *o = (opened){ 0 };
}

/* Writes the form's template without its marks into the test's folder. */
static void write_unmarked(const char *form)
{
    static const char *const marks[] = { "{% generation %}", "{% endgeneration %}" };
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s/chat_template.jinja", CHATS, form);
    char *text = folder_read(path, NULL);
    for (int i = 0; i < 2; i++)
        for (char *at; (at = strstr(text, marks[i]));)
            memmove(at, at + strlen(marks[i]), strlen(at + strlen(marks[i])) + 1);
    folder_write("chat_template.jinja", text, strlen(text));
    free(text);
}

static void open_for(const recorded_form *form, form_source from, const char *name, opened *o)
{
    char path[PATH_MAX];
    if (strcmp(o->name, name) == 0)
        return;
    close_opened(o);
    snprintf(o->name, sizeof(o->name), "%s", name);
    snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, name);
    if (coh_tokenizer_open(path, &o->tokenizer) != COH_OK)
        fail_msg("%s", coh_last_error());
    snprintf(path, sizeof(path), "%s/%s", CHATS, form->folder);
    if (from == FROM_UNMARKED)
        write_unmarked(form->folder);
    if (coh_chat_open(o->tokenizer, from == FROM_UNMARKED ? folder_path : path,
                      from == FROM_NAME ? form->form : COH_CHAT_FORM_AUTO, &o->chat) != COH_OK)
        fail_msg("%s, %s: %s", form->folder, name, coh_last_error());
}

static size_t compare_form(const recorded_form *form, form_source from)
{
    char path[PATH_MAX], where[PATH_MAX];
    opened o = { 0 };
    coh_id_list ids = { 0 };
    coh_byte_list counts = { 0 };
    size_t number = 0;
    snprintf(path, sizeof(path), "%s/%s/cases", CHATS, form->folder);
    char *text = folder_read(path, NULL);
    for (char *rest = text, *end; *rest && (end = strchr(rest, '\n')); rest = end + 1) {
        json_t *line = json_loadb(rest, (size_t)(end - rest), JSON_ALLOW_NUL, NULL);
        assert_non_null(line);
        open_for(form, from, json_string_value(json_object_get(line, "tokenizer")), &o);
        const conversation c = conversation_of(json_object_get(line, "messages"));
        ids.count = counts.count = 0;
        snprintf(where, sizeof(where), "%s (%d), %s, line %zu", form->folder, (int)from, o.name,
                 ++number);
        if (coh_chat_encode(o.chat, c.messages, c.count, NULL, &ids, &counts) != COH_OK)
            fail_msg("%s: %s", where, coh_last_error());
        compare(where, line, &ids, &counts);
        json_decref(line);
    }
    coh_free(ids.ids);
    coh_free(counts.bytes);
    close_opened(&o);
    free(text);
    return number;
}

static void ids_and_what_counts_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < RECORDED_FORMS; i++)
        for (int from = 0; from < FORM_SOURCES; from++)
            if (from != FROM_NAME || recorded_forms[i].form != COH_CHAT_FORM_AUTO)
                assert_true(compare_form(&recorded_forms[i], (form_source)from) > 50);
}

/* ---- prompts ---- */

static void compare_prompt(const char *where, coh_chat *chat, const json_t *line)
{
    const conversation c = conversation_of(json_object_get(line, "messages"));
    const json_t *expected = json_object_get(line, "ids");
    int32_t *ids;
    size_t count;
    if (coh_chat_prompt(chat, c.messages, c.count, &ids, &count) != COH_OK)
        fail_msg("%s: %s", where, coh_last_error());
    if (count != json_array_size(expected))
        fail_msg("%s: %zu ids, expected %zu", where, count, json_array_size(expected));
    for (size_t i = 0; i < count; i++)
        if (ids[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("%s: id %d at %zu", where, ids[i], i);
    coh_text_free(ids);
}

static void compare_prompts(const recorded_form *form, form_source from)
{
    char path[PATH_MAX];
    opened o = { 0 };
    size_t number = 0;
    snprintf(path, sizeof(path), "%s/%s/prompts", CHATS, form->folder);
    char *text = folder_read(path, NULL);
    for (char *rest = text, *end; *rest && (end = strchr(rest, '\n')); rest = end + 1) {
        json_t *line = json_loadb(rest, (size_t)(end - rest), JSON_ALLOW_NUL, NULL);
        open_for(form, from, json_string_value(json_object_get(line, "tokenizer")), &o);
        snprintf(path, sizeof(path), "%s, line %zu", form->folder, ++number);
        compare_prompt(path, o.chat, line);
        json_decref(line);
    }
    assert_true(number > 10);
    close_opened(&o);
    free(text);
}

static void prompts_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < RECORDED_FORMS; i++)
        for (int from = 0; from < FORM_SOURCES; from++)
            if (from != FROM_NAME || recorded_forms[i].form != COH_CHAT_FORM_AUTO)
                compare_prompts(&recorded_forms[i], (form_source)from);
}

/* The forms are those of test_conversations.c. */
static void a_prompt_of_json_leaves_out_the_answers_at_its_end(void **state)
{
    (void)state;
    static const char asked[] = "[{\"from\": \"human\", \"value\": \"u\"}]",
                      answered[] = "{\"prompt\": \"u\", \"completion\": \"a\"}",
                      own[] = "[{\"role\": \"system\", \"content\": \"o\"}, {\"role\": \"user\", "
                              "\"content\": \"u\"}]",
                      none[] = "[{\"role\": \"assistant\", \"content\": \"a\"}]",
                      text[] = "system: s\nuser: u\nassistant:";
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    int32_t *ids;
    size_t count, left_out;
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_AUTO, &chat), COH_OK);
    for (int i = 0; i < 2; i++) {
        const char *json = i ? answered : asked;
        assert_int_equal(coh_chat_prompt_json(chat, json, "s", &ids, &count, &left_out), COH_OK);
        assert_int_equal(left_out, i);
        assert_int_equal(count, sizeof(text) - 1);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(ids[k], text[k]);
        coh_text_free(ids);
    }
    assert_int_equal(coh_chat_prompt_json(chat, own, NULL, &ids, &count, &left_out), COH_OK);
    coh_text_free(ids);
    assert_int_equal(coh_chat_prompt_json(chat, own, "s", &ids, &count, &left_out),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "its own system prompt"));
    static const char *const wrong[] = { none, "[]", "{", "3", "{\"a\": 1}", "[1]" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(coh_chat_prompt_json(chat, wrong[i], NULL, &ids, &count, &left_out),
                         COH_ERR_CORRUPT);
        assert_null(ids);
    }
    coh_chat_close(chat);
    coh_tokenizer_close(tokenizer);
}

static void a_prompt_ends_with_the_users_turn(void **state)
{
    (void)state;
    const coh_chat_turn said[] = { { COH_CHAT_SYSTEM, "s", 1 },
                                   { COH_CHAT_USER, "u", 1 },
                                   { COH_CHAT_ASSISTANT, "a", 1 } },
                        odd[] = { { (coh_chat_role)7, "u", 1 }, { COH_CHAT_USER, "u", 1 } },
                        empty[] = { { COH_CHAT_USER, NULL, 0 } };
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    int32_t *ids;
    size_t count;
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_AUTO, &chat), COH_OK);
    assert_int_equal(coh_chat_prompt(chat, said, 0, &ids, &count), COH_ERR_CORRUPT);
    assert_int_equal(coh_chat_prompt(chat, said, 1, &ids, &count), COH_ERR_CORRUPT);
    assert_int_equal(coh_chat_prompt(chat, said, 3, &ids, &count), COH_ERR_CORRUPT);
    assert_null(ids);
    assert_int_equal(coh_chat_prompt(chat, odd, 2, &ids, &count), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(chat, empty, 1, &ids, &count), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(NULL, said, 2, &ids, &count), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(chat, NULL, 2, &ids, &count), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(chat, said, 2, NULL, &count), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(chat, said, 2, &ids, NULL), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_prompt(chat, said, 2, &ids, &count), COH_OK);
    static const char text[] = "system: s\nuser: u\nassistant:";
    assert_int_equal(count, sizeof(text) - 1);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids[i], text[i]);
    assert_int_equal(coh_chat_end_of_turn(chat), 256);
    assert_string_equal(coh_chat_answer_prefix(chat), " ");
    assert_int_equal(coh_chat_end_of_turn(NULL), -1);
    coh_text_free(ids);
    coh_chat_close(chat);
    assert_int_equal(coh_chat_open(NULL, NULL, COH_CHAT_FORM_AUTO, &chat), COH_ERR_ARGUMENT);
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_AUTO, NULL), COH_ERR_ARGUMENT);
    coh_tokenizer_close(tokenizer);
}

/* ---- forms ---- */

static void write_text(const char *name, const char *text)
{
    folder_write(name, text, strlen(text));
}

/* Opens a chat for the fixture's tokenizer, or checks the status and two parts of the message. */
static void assert_opened(const char *tokenizer_name, const char *folder, coh_chat_form form,
                          coh_status expected, const char *says, const char *and_says)
{
    char path[PATH_MAX];
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, tokenizer_name);
    assert_int_equal(coh_tokenizer_open(path, &tokenizer), COH_OK);
    const coh_status status = coh_chat_open(tokenizer, folder, form, &chat);
    const char *text = status == COH_OK ? coh_chat_description(chat) : coh_last_error();
    if (status != expected || !strstr(text, says) || !strstr(text, and_says))
        fail_msg("%s: status %d, %s; expected %d, %s %s", tokenizer_name, (int)status, text,
                 (int)expected, says, and_says);
    assert_int_equal(chat != NULL, status == COH_OK);
    coh_chat_close(chat);
    coh_tokenizer_close(tokenizer);
}

static void assert_form(const char *tokenizer_name, const char *folder, const char *description)
{
    assert_opened(tokenizer_name, folder, COH_CHAT_FORM_AUTO, COH_OK, description, "");
}

static void the_form_follows_from_the_template_and_else_from_special_tokens(void **state)
{
    (void)state;
    static const char own[] = "the tokenizer's chat template (";
    assert_form("qwen2", NULL, "ChatML (<|im_start|>)");
    assert_form("smollm", folder_path, "ChatML");
    assert_form("llama3", NULL, "Llama 3 (");
    assert_form("llama2-json", NULL, "Llama 2");
    assert_form("llama2", NULL, "Llama 2"); /* tokenizer.model */
    assert_form("gemma", NULL, "Gemma (");
    assert_form("qwen3", NULL, "ChatML"); /* no template that keeps reasoning */
    assert_form("gpt2", NULL, "plain");
    assert_form("opt", NULL, "plain");
    /* a template given with the tokenizer: in its own file, or in the configuration */
    write_text("tokenizer_config.json",
               "{\"chat_template\": \"{% for m in messages %}{{ m.content }}{% endfor %}\"}");
    assert_form("llama3", folder_path, own);
    assert_form("llama3", folder_path, "(tokenizer_config.json); no token ends an answer");
    assert_form("llama3", folder_file("tokenizer.json"), "Llama 3 ("); /* the path does not exist */
    write_text("tokenizer.json", "{}");
    assert_form("llama3", folder_file("tokenizer.json"), own);
    write_text("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"{{\"},"
               " {\"name\": \"default\", \"template\": \"{{ messages | map(attribute='content') | "
               "join('<|im_end|>') }}\"}]}");
    assert_form("qwen2", folder_path, own);
    write_text(
        "tokenizer_config.json",
        "{\"chat_template\": {\"tool_use\": \"{{\", \"default\": \"{% for m in messages %}{{ "
        "m.content }}{% endfor %}\"}}");
    assert_form("qwen2", folder_path, own);
    write_text("tokenizer_config.json", "{\"chat_template\": null}");
    assert_form("qwen2", folder_path, "ChatML");
    write_text("chat_template.jinja", "{{ messages[-1].content }}"); /* has precedence */
    assert_form("qwen2", folder_path, "(chat_template.jinja)");
}

/* The template of the plain form for a tokenizer; "": it has none. */
static void assert_plain_template(const char *tokenizer_name, const char *expected)
{
    char path[PATH_MAX];
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    snprintf(path, sizeof(path), "%s/%s", TOKENIZERS, tokenizer_name);
    assert_int_equal(coh_tokenizer_open(path, &tokenizer), COH_OK);
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_PLAIN, &chat), COH_OK);
    const char *text = coh_chat_template_text(chat);
    if (text ? strncmp(text, expected, strlen(expected)) != 0 : expected[0] != '\0')
        fail_msg("%s: %s, not %s", tokenizer_name, text ? text : "none", expected);
    coh_chat_close(chat);
    coh_tokenizer_close(tokenizer);
}

static void a_plain_template_writes_the_token_before_each_text_if_it_can(void **state)
{
    (void)state;
    assert_plain_template("gpt2", "{% for m in messages %}");
    assert_plain_template("opt", "{{ bos_token }}{% for m in messages %}");
    assert_plain_template("llama3", "{{ bos_token }}{% for m in messages %}");
    /* a blank is put before a text, and not behind <s> (legacy: false) */
    assert_plain_template("llama2-modern", "");
}

static void a_template_that_cannot_be_run_is_refused_unless_a_form_is_named(void **state)
{
    (void)state;
    static const char *const tokenizers[] = { "gpt2", "qwen2", "llama3", "llama2-json" };
    static const char *const templates[] = {
        "{{ 'one' }}", /* it loses the answer */
        "", "{{ messages", "{% for m in messages %}{{ m.content | colour }}{% endfor %}",
        "{{ raise_exception('No.') }}"
    };
    for (size_t t = 0; t < sizeof(templates) / sizeof(templates[0]); t++) {
        write_text("chat_template.jinja", templates[t]);
        for (size_t i = 0; i < sizeof(tokenizers) / sizeof(tokenizers[0]); i++)
            assert_opened(tokenizers[i], folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT,
                          folder_file("chat_template.jinja"), "with chat form chatml|llama3");
    }
    /* Some of the tokenizers put a token before each text. */
    assert_opened("qwen2", folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT, "apply_chat_template",
                  "and give the texts with field");
    assert_null(strstr(coh_last_error(), "without"));
    assert_opened("llama3", folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT, "with field",
                  ", without the \"<|begin_of_text|>\" that is put before each");
    assert_opened("llama2", folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT, "with field",
                  ", without the \"<s>\" that is put before each");
    assert_opened("qwen2", folder_path, COH_CHAT_FORM_CHATML, COH_OK, "ChatML", "");
    assert_opened("llama3", folder_path, COH_CHAT_FORM_LLAMA3, COH_OK, "Llama 3 (", "");
    assert_opened("llama2-json", folder_path, COH_CHAT_FORM_LLAMA2, COH_OK, "Llama 2", "");
    assert_opened("qwen2", folder_path, COH_CHAT_FORM_PLAIN, COH_OK, "plain", "");
    remove(folder_file("chat_template.jinja"));
    /* none of several has the name that conversations are written with, as for transformers */
    static const char *const nameless[] = { "[]", "{}", "3",
                                            "[{\"name\": \"tool_use\", \"template\": \"x\"}]",
                                            "{\"tool_use\": \"x\"}" };
    for (size_t i = 0; i < sizeof(nameless) / sizeof(nameless[0]); i++) {
        char config[128];
        snprintf(config, sizeof(config), "{\"chat_template\": %s}", nameless[i]);
        write_text("tokenizer_config.json", config);
        assert_opened("qwen2", folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT, "\"default\"",
                      "with chat form chatml|llama3");
    }
    write_text("tokenizer_config.json", "{\"chat_template\": \"{{ messages[9].content }}\"}");
    assert_opened("gpt2", folder_path, COH_CHAT_FORM_AUTO, COH_ERR_CORRUPT,
                  folder_file("tokenizer_config.json"), "apply_chat_template");
}

static void a_form_that_the_vocabulary_cannot_write_is_refused(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    assert_opened("gpt2", NULL, COH_CHAT_FORM_CHATML, COH_ERR_ARGUMENT, "<|im_start|>", "choose");
    assert_opened("qwen2", NULL, COH_CHAT_FORM_LLAMA3, COH_ERR_ARGUMENT, "<|start_header_id|>",
                  "choose");
    assert_opened("qwen2", NULL, COH_CHAT_FORM_QWEN3, COH_ERR_ARGUMENT, "<think>", "choose");
    assert_opened("llama3", NULL, COH_CHAT_FORM_GEMMA, COH_ERR_ARGUMENT, "<start_of_turn>",
                  "choose");
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    tokenizer->end_of_text = -1;
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_LLAMA2, &chat), COH_ERR_ARGUMENT);
    assert_null(chat);
    assert_int_equal(coh_chat_open(tokenizer, NULL, (coh_chat_form)9, &chat), COH_ERR_ARGUMENT);
    assert_null(chat);
    coh_tokenizer_close(tokenizer);
}

static void encode_hello(coh_tokenizer *tokenizer, const char *folder, coh_id_list *ids,
                         coh_byte_list *counts)
{
    const coh_chat_turn messages[] = { { COH_CHAT_USER, "Hi", 2 },
                                       { COH_CHAT_ASSISTANT, "Hello", 5 } };
    coh_chat *chat;
    assert_int_equal(coh_chat_open(tokenizer, folder, COH_CHAT_FORM_AUTO, &chat), COH_OK);
    assert_int_equal(coh_chat_encode(chat, messages, 2, NULL, ids, counts), COH_OK);
    coh_chat_close(chat);
}

/* Compares ids and counts of a conversation with those after `first`, whose target does not
 * count. */
static void assert_begun(coh_tokenizer *tokenizer, const char *folder, int32_t first,
                         coh_id_list *ids, coh_byte_list *counts)
{
    size_t count = ids->count;
    assert_true(count > 4);
    encode_hello(tokenizer, folder, ids, counts);
    assert_int_equal(ids->count, 2 * count + 1);
    assert_int_equal(counts->count, ids->count);
    assert_int_equal(ids->ids[count], first);
    assert_int_equal(counts->bytes[count], 0);
    assert_memory_equal(ids->ids + count + 1, ids->ids, count * sizeof(*ids->ids));
    assert_memory_equal(counts->bytes + count + 1, counts->bytes, count);
    coh_free(ids->ids);
    coh_free(counts->bytes);
    coh_tokenizer_close(tokenizer);
}

static void conversations_begin_as_the_template_or_a_text_does(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    coh_id_list ids = { 0 };
    coh_byte_list counts = { 0 };
    assert_int_equal(coh_tokenizer_open(TOKENIZERS "/qwen2", &tokenizer), COH_OK);
    tokenizer->begin_of_text = 416;
#define TURNS "{% for m in messages %}{{'<|im_start|>' + m.role + m.content}}<|im_end|>{% endfor %}"
    write_text("chat_template.jinja", TURNS);
    encode_hello(tokenizer, folder_path, &ids, &counts);
    write_text("chat_template.jinja", "{{ bos_token }}" TURNS);
    assert_begun(tokenizer, folder_path, 416, &ids, &counts);

    ids = (coh_id_list){ 0 };
    counts = (coh_byte_list){ 0 };
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    encode_hello(tokenizer, NULL, &ids, &counts);
    assert_int_equal(coh_id_list_add(&tokenizer->before, 'b'), COH_OK);
    assert_begun(tokenizer, NULL, 'b', &ids, &counts);
}

static void a_broken_configuration_is_refused(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    static const char *const broken[] = { "{", "[]", "\"x\"" };
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        write_text("tokenizer_config.json", broken[i]);
        assert_int_equal(coh_chat_open(tokenizer, folder_path, COH_CHAT_FORM_AUTO, &chat),
                         COH_ERR_CORRUPT);
        assert_null(chat);
        assert_non_null(strstr(coh_last_error(), "tokenizer_config.json"));
    }
    coh_tokenizer_close(tokenizer);
}

/* ---- what Jinja writes ---- */

static void assert_ids_of(const char *where, coh_tokenizer *tokenizer, const json_t *text,
                          const int32_t *ids, size_t count)
{
    coh_id_list expected = { 0 };
    const coh_slice whole = { json_string_value(text), json_string_length(text) };
    assert_int_equal(coh_tokenizer_encode_whole(tokenizer, whole, &expected), COH_OK);
    if (count != expected.count || memcmp(ids, expected.ids, count * sizeof(*ids)) != 0)
        fail_msg("%s: %zu ids, not the %zu of %s", where, count, expected.count, whole.bytes);
    coh_free(expected.ids);
}

static void compare_with_jinja(const char *where, coh_tokenizer *tokenizer, coh_chat *chat,
                               const json_t *conversations, const json_t *one)
{
    size_t i, count;
    const json_t *messages;
    int32_t *prompt;
    json_array_foreach(conversations, i, messages)
    {
        const conversation c = conversation_of(messages);
        coh_id_list ids = { 0 };
        coh_byte_list counts = { 0 };
        if (json_is_null(json_array_get(json_object_get(one, "texts"), i))) {
            assert_int_equal(coh_chat_encode(chat, c.messages, c.count, NULL, &ids, &counts),
                             COH_ERR_CORRUPT);
            assert_int_equal(coh_chat_prompt(chat, c.messages, c.count, &prompt, &count),
                             COH_ERR_CORRUPT);
            continue;
        }
        assert_int_equal(coh_chat_encode(chat, c.messages, c.count, NULL, &ids, &counts), COH_OK);
        assert_ids_of(where, tokenizer, json_array_get(json_object_get(one, "texts"), i), ids.ids,
                      ids.count);
        assert_int_equal(coh_chat_prompt(chat, c.messages, c.count, &prompt, &count), COH_OK);
        assert_ids_of(where, tokenizer, json_array_get(json_object_get(one, "prompts"), i), prompt,
                      count);
        coh_text_free(prompt);
        coh_free(ids.ids);
        coh_free(counts.bytes);
    }
}

/* Recorded by fixtures/record_templates.py. */
static void a_template_writes_what_jinja_writes(void **state)
{
    (void)state;
    size_t i;
    json_t *one, *root = json_load_file(TEMPLATES, 0, NULL);
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        char path[PATH_MAX];
        coh_tokenizer *tokenizer;
        coh_chat *chat;
        snprintf(path, sizeof(path), "%s/%s", TOKENIZERS,
                 json_string_value(json_object_get(one, "tokenizer")));
        write_text("chat_template.jinja", json_string_value(json_object_get(one, "template")));
        assert_int_equal(coh_tokenizer_open(path, &tokenizer), COH_OK);
        if (coh_chat_open(tokenizer, folder_path, COH_CHAT_FORM_AUTO, &chat) != COH_OK)
            fail_msg("%s: %s", name, coh_last_error());
        compare_with_jinja(name, tokenizer, chat, json_object_get(root, "conversations"), one);
        coh_chat_close(chat);
        coh_tokenizer_close(tokenizer);
    }
    assert_true(i > 45);
    json_decref(root);
}

/* ---- prompts that are part of a conversation ---- */

/* Also an answer without a text, whose end would count. */
static void answers_that_are_not_to_be_learned_do_not_count(void **state)
{
    (void)state;
    static const recorded_form chatml = { "chatml", COH_CHAT_FORM_CHATML };
    const coh_chat_turn messages[] = { { COH_CHAT_USER, "a", 1 },
                                       { COH_CHAT_ASSISTANT, "", 0 },
                                       { COH_CHAT_USER, "b", 1 },
                                       { COH_CHAT_ASSISTANT, "Yes", 3 } };
    static const uint8_t last[] = { 0, 0, 0, 1 };
    for (int from = 0; from < FORM_SOURCES; from++) {
        size_t counted[2] = { 0 };
        opened o = { 0 };
        open_for(&chatml, (form_source)from, "qwen2", &o);
        for (size_t prompt = 0; prompt < 2; prompt++) {
            coh_id_list ids = { 0 };
            coh_byte_list counts = { 0 };
            assert_int_equal(
                coh_chat_encode(o.chat, messages, 4, prompt ? last : NULL, &ids, &counts), COH_OK);
            for (size_t i = 0; i < counts.count; i++)
                counted[prompt] += counts.bytes[i];
            assert_int_equal(counts.bytes[counts.count - 2], 1); /* before the last line end */
            coh_free(ids.ids);
            coh_free(counts.bytes);
        }
        assert_true(counted[1] > 1);
        assert_int_equal(counted[0], counted[1] + 1);
        close_opened(&o);
    }
}

/* ---- orders ---- */

static void llama_2_asks_for_turns(void **state)
{
    (void)state;
    static const char *const refused[] = { "a", "uu", "uaa", "sa", "su s", "us", "usa", "ssua" };
    char path[PATH_MAX];
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    coh_id_list ids = { 0 };
    coh_byte_list counts = { 0 };
    snprintf(path, sizeof(path), "%s/llama2-json", TOKENIZERS);
    assert_int_equal(coh_tokenizer_open(path, &tokenizer), COH_OK);
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_AUTO, &chat), COH_OK);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        coh_chat_turn messages[MESSAGES_MOST];
        size_t count = 0;
        for (const char *at = refused[i]; *at; at++)
            if (*at != ' ')
                messages[count++] = (coh_chat_turn){ *at == 's'   ? COH_CHAT_SYSTEM
                                                     : *at == 'u' ? COH_CHAT_USER
                                                                  : COH_CHAT_ASSISTANT,
                                                     "x", 1 };
        if (coh_chat_encode(chat, messages, count, NULL, &ids, &counts) != COH_ERR_CORRUPT)
            fail_msg("%s was taken", refused[i]);
        assert_non_null(strstr(coh_last_error(), "take turns"));
    }
    assert_int_equal(coh_chat_encode(chat, NULL, 0, NULL, &ids, &counts), COH_ERR_CORRUPT);
    coh_free(ids.ids);
    coh_free(counts.bytes);
    coh_chat_close(chat);
    coh_tokenizer_close(tokenizer);
}

static void without_an_end_of_text_the_line_end_ends_a_turn(void **state)
{
    (void)state;
    coh_tokenizer *tokenizer;
    coh_chat *chat;
    coh_id_list ids = { 0 };
    coh_byte_list counts = { 0 };
    const coh_chat_turn messages[] = { { COH_CHAT_USER, "q", 1 },
                                       { COH_CHAT_ASSISTANT, "ab", 2 },
                                       { COH_CHAT_USER, "r", 1 } };
    static const char text[] = "user: q\nassistant: ab\nuser: r\n";
    assert_int_equal(coh_tokenizer_open("bytes", &tokenizer), COH_OK);
    tokenizer->end_of_text = -1;
    assert_int_equal(coh_chat_open(tokenizer, NULL, COH_CHAT_FORM_AUTO, &chat), COH_OK);
    assert_int_equal(coh_chat_encode(chat, messages, 3, NULL, &ids, &counts), COH_OK);
    assert_int_equal(ids.count, sizeof(text) - 1);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ids.ids[i], text[i]);
        assert_int_equal(counts.bytes[i], i >= 18 && i < 22); /* " ab\n" */
    }
    coh_free(ids.ids);
    coh_free(counts.bytes);
    coh_chat_close(chat);
    coh_tokenizer_close(tokenizer);
}

static void every_failing_allocation_is_said(void **state)
{
    (void)state;
    char path[PATH_MAX], folder[PATH_MAX];
    coh_tokenizer *tokenizer;
    const coh_chat_turn messages[] = { { COH_CHAT_USER, "Hello", 5 },
                                       { COH_CHAT_ASSISTANT, "\nworld", 6 } };
    snprintf(path, sizeof(path), "%s/qwen2", TOKENIZERS);
    snprintf(folder, sizeof(folder), "%s/qwen2.5", CHATS);
    assert_int_equal(coh_tokenizer_open(path, &tokenizer), COH_OK);
    for (uint64_t n = 1;; n++) {
        coh_chat *chat = NULL;
        coh_id_list ids = { 0 };
        coh_byte_list counts = { 0 };
        alloc_fail_nth(n);
        coh_status status = coh_chat_open(tokenizer, folder, COH_CHAT_FORM_AUTO, &chat);
        if (status == COH_OK)
            status = coh_chat_encode(chat, messages, 2, NULL, &ids, &counts);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        coh_free(ids.ids);
        coh_free(counts.bytes);
        coh_chat_close(chat);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit) {
            assert_true(n > 5);
            break;
        }
    }
    coh_tokenizer_close(tokenizer);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(ids_and_what_counts_are_those_of_transformers),
        IN_FOLDER(prompts_are_those_of_transformers),
        cmocka_unit_test(a_prompt_ends_with_the_users_turn),
        cmocka_unit_test(a_plain_template_writes_the_token_before_each_text_if_it_can),
        cmocka_unit_test(a_prompt_of_json_leaves_out_the_answers_at_its_end),
        IN_FOLDER(the_form_follows_from_the_template_and_else_from_special_tokens),
        IN_FOLDER(a_template_that_cannot_be_run_is_refused_unless_a_form_is_named),
        cmocka_unit_test(a_form_that_the_vocabulary_cannot_write_is_refused),
        IN_FOLDER(a_broken_configuration_is_refused),
        IN_FOLDER(conversations_begin_as_the_template_or_a_text_does),
        IN_FOLDER(a_template_writes_what_jinja_writes),
        IN_FOLDER(answers_that_are_not_to_be_learned_do_not_count),
        cmocka_unit_test(llama_2_asks_for_turns),
        cmocka_unit_test(without_an_end_of_text_the_line_end_ends_a_turn),
        cmocka_unit_test(every_failing_allocation_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
