/* Reads conversations from JSON objects. The one idea: the members of an object determine its form,
 * and each form adds its turns to one list. Next: conversations.h for the forms, token_jsonl.c for
 * the lines. */
#include "text/conversations.h"

#include "text/lists.h"

const char *coh_value_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "a flag",
        [JSON_FALSE] = "a flag",     [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "nothing";
}

static int has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

/* Data sets of tables have empty values for members that an object does not use. */
static int is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static coh_status add_turn(coh_conversation *c, coh_chat_role role, const json_t *text)
{
    COH_TRY(COH_GROW(&c->turns, &c->capacity, c->count + 1));
    COH_TRY(COH_GROW(&c->learns, &c->learn_capacity, c->count + 1));
    c->learns[c->count] = 1;
    c->turns[c->count++] =
        (coh_chat_turn){ role, json_string_value(text), json_string_length(text) };
    return COH_OK;
}

/* Sets a member to the text, which the object then owns. */
static coh_status set_text(json_t *object, const char *key, const coh_byte_list *text)
{
    json_t *value = json_stringn_nocheck(text->count ? (const char *)text->bytes : "", text->count);
    if (!value || json_object_set_new_nocheck(object, key, value) != 0)
        return coh_fail(COH_ERR_MEMORY, "no memory for a text of %zu bytes", text->count);
    return COH_OK;
}

/* ---- one message ---- */

/* Place of a message: its number, and " of the prompt" or the like. */
typedef struct place {
    size_t number;
    const char *of;
} place;

/* Keys of a message, and the words for its authors. */
typedef struct message_keys {
    const char *role, *content, *choices;
    int takes_sharegpt; /* also its words for authors */
} message_keys;

static const message_keys openai = { "role", "content", "system, user or assistant", 0 };
static const message_keys sharegpt = { "from", "value", "system, human or gpt", 1 };

/* Returns a text without a NUL character; NULL: the value is another. */
static const char *plain_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static int is_word(const json_t *value, const char *word)
{
    const char *text = plain_text(value);
    return text && strcmp(text, word) == 0;
}

/* Returns a text, or what the value is, for messages. */
static const char *text_or_name(const json_t *value)
{
    const char *text = plain_text(value);
    return text                    ? text
           : json_is_string(value) ? "a text with a NUL character"
                                   : coh_value_name(value);
}

static coh_status read_role(const place *at, const message_keys *keys, const json_t *value,
                            coh_chat_role *out_role)
{
    static const struct {
        const char *name;
        coh_chat_role role;
    } roles[] = { { "system", COH_CHAT_SYSTEM },
                  { "user", COH_CHAT_USER },
                  { "assistant", COH_CHAT_ASSISTANT },
                  { "human", COH_CHAT_USER },
                  { "gpt", COH_CHAT_ASSISTANT } };
    const char *quote = plain_text(value) ? "\"" : "";
    for (int i = 0; i < (keys->takes_sharegpt ? 5 : 3); i++)
        if (is_word(value, roles[i].name)) {
            *out_role = roles[i].role;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT,
                    "message %zu%s has %s%.40s%s for a role: write %s, or remove the conversation",
                    at->number, at->of, quote, text_or_name(value), quote, keys->choices);
}

/* Reads what a message adds to the loss, as OpenAI's form has it: an answer of weight 0 is not
 * learned. In a message that never counts any number changes nothing. */
static coh_status read_weight(const place *at, const json_t *message, coh_chat_role role,
                              uint8_t *out_learns)
{
    const json_t *weight = json_object_get(message, "weight");
    const double value = json_number_value(weight);
    const int is_zero = !(value < 0) && !(value > 0), is_one = !(value < 1) && !(value > 1);
    *out_learns = 1;
    if (!weight || json_is_null(weight))
        return COH_OK;
    if (json_is_number(weight) && role != COH_CHAT_ASSISTANT)
        return COH_OK;
    if (!json_is_number(weight) || !(is_zero || is_one))
        return coh_fail(COH_ERR_CORRUPT,
                        "message %zu%s has a member \"weight\" that is neither 0 (not learned) nor "
                        "1: give one of them, or leave it out",
                        at->number, at->of);
    *out_learns = (uint8_t)is_one;
    return COH_OK;
}

/* Refuses members that no form writes; they would be lost silently. */
static coh_status check_members(const place *at, const message_keys *keys, const json_t *message)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)message, key, value)
    {
        if (strcmp(key, keys->role) != 0 && strcmp(key, keys->content) != 0 &&
            strcmp(key, "weight") != 0 && !json_is_null(value))
            return coh_fail(COH_ERR_CORRUPT,
                            "message %zu%s has a member \"%.60s\", which is not written into the "
                            "conversation: leave it out, or write it into the content",
                            at->number, at->of, key);
    }
    return COH_OK;
}

static coh_status add_part(const place *at, const json_t *part, coh_byte_list *text)
{
    const json_t *type = json_object_get(part, "type"), *own = json_object_get(part, "text");
    const char *key;
    json_t *value;
    if (!is_word(type, "text"))
        return coh_fail(COH_ERR_CORRUPT,
                        "message %zu%s has a part of type \"%.40s\": only \"text\" is learned, so "
                        "remove the part or the conversation",
                        at->number, at->of, text_or_name(type));
    if (!json_is_string(own))
        return coh_fail(COH_ERR_CORRUPT,
                        "message %zu%s has a part with %s for its text: write a text, or remove "
                        "the conversation",
                        at->number, at->of, coh_value_name(own));
    json_object_foreach((json_t *)part, key, value)
    {
        if (strcmp(key, "type") != 0 && strcmp(key, "text") != 0 && !json_is_null(value))
            return coh_fail(COH_ERR_CORRUPT,
                            "message %zu%s has a part with a member \"%.60s\", which is not "
                            "written into the conversation: leave it out",
                            at->number, at->of, key);
    }
    return coh_byte_list_add(text, json_string_value(own), json_string_length(own));
}

/* Replaces a list of parts by their texts, one directly behind the other. */
static coh_status join_parts(const place *at, const char *key, json_t *message)
{
    coh_byte_list text = { 0 };
    const json_t *parts = json_object_get(message, key);
    coh_status status = COH_OK;
    for (size_t i = 0; status == COH_OK && i < json_array_size(parts); i++)
        status = add_part(at, json_array_get(parts, i), &text);
    if (status == COH_OK)
        status = set_text(message, key, &text);
    coh_free(text.bytes);
    return status;
}

static coh_status read_message(const place *at, json_t *message, coh_conversation *out)
{
    out->fault = COH_BAD_MESSAGES;
    if (!json_is_object(message))
        return coh_fail(COH_ERR_CORRUPT,
                        "message %zu%s is %s where {\"role\": ..., \"content\": ...} is needed: "
                        "write one, or remove the conversation",
                        at->number, at->of, coh_value_name(message));
    const int is_sharegpt = !has(message, "role") && has(message, "from");
    const message_keys *keys = is_sharegpt ? &sharegpt : &openai;
    coh_chat_role role;
    uint8_t learns;
    out->fault = COH_BAD_ROLE;
    COH_TRY(read_role(at, keys, json_object_get(message, keys->role), &role));
    out->fault = COH_BAD_MEMBER;
    COH_TRY(check_members(at, keys, message));
    COH_TRY(read_weight(at, message, role, &learns));
    out->fault = COH_BAD_CONTENT;
    if (json_is_array(json_object_get(message, keys->content)))
        COH_TRY(join_parts(at, keys->content, message));
    const json_t *content = json_object_get(message, keys->content);
    if (!json_is_string(content))
        return coh_fail(COH_ERR_CORRUPT,
                        "message %zu%s has %s for its content where a text is needed: write one, "
                        "or remove the conversation",
                        at->number, at->of, coh_value_name(content));
    COH_TRY(add_turn(out, role, content));
    out->learns[out->count - 1] = learns;
    return COH_OK;
}

/* ---- the forms ---- */

/* Reads a member that is a list of messages. `of`: as in a place. */
static coh_status read_list(const json_t *object, const char *key, const char *of,
                            coh_conversation *out)
{
    const json_t *all = json_object_get(object, key);
    out->fault = COH_BAD_MESSAGES;
    if (!json_is_array(all) || json_array_size(all) == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "\"%s\" is %s where an array of at least one message is needed: see "
                        "docs/data.md for the forms of a conversation",
                        key, json_is_array(all) ? "empty" : coh_value_name(all));
    for (size_t i = 0; i < json_array_size(all); i++) {
        const place at = { i + 1, of };
        COH_TRY(read_message(&at, json_array_get(all, i), out));
    }
    return COH_OK;
}

/* Refuses members with text that the form does not write. */
static coh_status check_lost(const json_t *object, int writes_system)
{
    static const char *const lost[] = { "history", "tools", "system" };
    const size_t count = sizeof(lost) / sizeof(lost[0]) - (writes_system ? 1 : 0);
    for (size_t i = 0; i < count; i++)
        if (!is_empty(json_object_get(object, lost[i])))
            return coh_fail(COH_ERR_CORRUPT,
                            "the member \"%s\" is not written into the conversation: leave it out, "
                            "or write its text as a message of \"messages\"",
                            lost[i]);
    return COH_OK;
}

/* Finds a member that is a text; *out_text NULL: it is missing, null or empty. */
static coh_status find_text(const json_t *object, const char *key, const json_t **out_text)
{
    const json_t *value = json_object_get(object, key);
    *out_text = NULL;
    if (is_empty(value) && !json_is_array(value) && !json_is_object(value))
        return COH_OK;
    if (!json_is_string(value))
        return coh_fail(COH_ERR_CORRUPT,
                        "\"%s\" is %s where a text is needed: write one, or remove the "
                        "conversation",
                        key, coh_value_name(value));
    *out_text = value;
    return COH_OK;
}

static coh_status add_system(const json_t *object, coh_conversation *out)
{
    const json_t *system;
    out->fault = COH_BAD_CONTENT;
    COH_TRY(find_text(object, "system", &system));
    return system ? add_turn(out, COH_CHAT_SYSTEM, system) : COH_OK;
}

static coh_status read_openai(json_t *object, coh_conversation *out)
{
    return read_list(object, "messages", "", out);
}

static coh_status read_sharegpt(json_t *object, coh_conversation *out)
{
    COH_TRY(add_system(object, out));
    const size_t first = out->count;
    COH_TRY(read_list(object, "conversations", "", out));
    out->fault = COH_BAD_MEMBER;
    if (first > 0 && out->turns[first].role == COH_CHAT_SYSTEM)
        return coh_fail(COH_ERR_CORRUPT, "message 1 is a system prompt, and so is the member "
                                         "\"system\": keep one of them");
    return COH_OK;
}

static coh_status read_pair(json_t *object, coh_conversation *out)
{
    const json_t *prompt = json_object_get(object, "prompt");
    const json_t *completion = json_object_get(object, "completion");
    if (json_is_string(prompt) && json_is_string(completion)) {
        COH_TRY(add_turn(out, COH_CHAT_USER, prompt));
        return add_turn(out, COH_CHAT_ASSISTANT, completion);
    }
    out->fault = COH_BAD_CONTENT;
    if (!json_is_array(prompt) || !json_is_array(completion))
        return coh_fail(COH_ERR_CORRUPT,
                        "\"prompt\" is %s and \"completion\" %s: write two texts or two lists of "
                        "messages, or remove the conversation",
                        coh_value_name(prompt), coh_value_name(completion));
    COH_TRY(read_list(object, "prompt", " of the prompt", out));
    out->prompt_count = out->count;
    memset(out->learns, 0, out->count);
    return read_list(object, "completion", " of the completion", out);
}

/* The user's text is instruction and input on lines of their own, as LLaMA-Factory has them. */
static coh_status read_alpaca(json_t *object, coh_conversation *out)
{
    const json_t *instruction, *input, *output = json_object_get(object, "output");
    COH_TRY(add_system(object, out));
    COH_TRY(find_text(object, "instruction", &instruction));
    COH_TRY(find_text(object, "input", &input));
    if (!json_is_string(output))
        return coh_fail(COH_ERR_CORRUPT,
                        "\"output\" is %s where a text is needed: write one, or remove the "
                        "conversation",
                        coh_value_name(output));
    out->fault = COH_BAD_EMPTY;
    if (instruction && input) {
        coh_byte_list text = { 0 };
        coh_status status = coh_byte_list_add(&text, json_string_value(instruction),
                                              json_string_length(instruction));
        if (status == COH_OK)
            status = coh_byte_list_add(&text, "\n", 1);
        if (status == COH_OK)
            status = coh_byte_list_add(&text, json_string_value(input), json_string_length(input));
        if (status == COH_OK)
            status = set_text(object, "instruction", &text);
        coh_free(text.bytes);
        COH_TRY(status);
    } else if (!instruction && !input) {
        return coh_fail(COH_ERR_CORRUPT, "\"instruction\" and \"input\" are empty: write a text, "
                                         "or remove the conversation");
    }
    COH_TRY(
        add_turn(out, COH_CHAT_USER, instruction ? json_object_get(object, "instruction") : input));
    return add_turn(out, COH_CHAT_ASSISTANT, output);
}

/* ---- which form ---- */

/* An object has a form if both members are there; `second` NULL: `first` suffices. */
typedef struct form {
    const char *first, *second, *name;
    int writes_system; /* the member "system" */
    coh_status (*read)(json_t *object, coh_conversation *out);
} form;

static const form forms[] = {
    { "messages", NULL, "\"messages\"", 0, read_openai },
    { "conversations", NULL, "\"conversations\"", 1, read_sharegpt },
    { "prompt", "completion", "\"prompt\" with \"completion\"", 0, read_pair },
    { "instruction", "output", "\"instruction\" with \"output\"", 1, read_alpaca },
};

/* Returns the first form from number `from` on that the object has; NULL: none. */
static const form *find_form(const json_t *object, size_t from)
{
    for (size_t i = from; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (has(object, forms[i].first) && (!forms[i].second || has(object, forms[i].second)))
            return &forms[i];
    return NULL;
}

const char *coh_conversation_name(const json_t *object)
{
    const form *found = find_form(object, 0);
    if (!found || (!found->second && !json_is_array(json_object_get(object, found->first))))
        return NULL;
    return found->name;
}

const char *coh_list_name(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_array(value) && json_is_object(json_array_get(value, 0)))
            return key;
    }
    return NULL;
}

static coh_status refuse_formless(const json_t *object)
{
    const char *list = coh_list_name(object);
    if (list)
        return coh_fail(COH_ERR_CORRUPT,
                        "\"messages\" is missing, and \"%.60s\" is a list of objects: if they are "
                        "the conversations, give that list alone, or each on a line",
                        list);
    return coh_fail(COH_ERR_CORRUPT,
                    "\"messages\" is missing, and so are %s, %s and %s: see docs/data.md for "
                    "the forms of a conversation",
                    forms[1].name, forms[2].name, forms[3].name);
}

/* Checks that something in the conversation counts. */
static coh_status check_learns(const coh_conversation *c)
{
    int has_answer = 0;
    for (size_t i = c->prompt_count; i < c->count; i++) {
        const int is_answer = c->turns[i].role == COH_CHAT_ASSISTANT;
        if (is_answer && c->learns[i])
            return COH_OK;
        has_answer |= is_answer;
    }
    if (has_answer)
        return coh_fail(COH_ERR_CORRUPT,
                        "each message of the assistant%s has the weight 0, so nothing is learned "
                        "from the conversation: remove it",
                        c->prompt_count ? " in the completion" : "");
    return coh_fail(COH_ERR_CORRUPT,
                    "no message%s is the assistant's, so nothing is learned from the "
                    "conversation: remove it",
                    c->prompt_count ? " of the completion" : "");
}

coh_status coh_conversation_read_turns(json_t *object, coh_conversation *out_conversation)
{
    coh_conversation *c = out_conversation;
    const form *found = find_form(object, 0);
    c->count = c->prompt_count = 0;
    c->fault = found ? COH_BAD_TWO_CONVERSATIONS : COH_BAD_NO_CONVERSATION;
    if (!found)
        return refuse_formless(object);
    const form *other = find_form(object, (size_t)(found - forms) + 1);
    if (other)
        return coh_fail(COH_ERR_CORRUPT,
                        "the object has %s and %s, and either is a conversation: leave one out",
                        found->name, other->name);
    c->fault = COH_BAD_MEMBER;
    COH_TRY(check_lost(object, found->writes_system));
    return found->read(object, c);
}

coh_status coh_conversation_read(json_t *object, coh_conversation *out_conversation)
{
    coh_conversation *c = out_conversation;
    COH_TRY(coh_conversation_read_turns(object, c));
    c->fault = COH_BAD_ANSWER;
    return check_learns(c);
}

void coh_conversation_fini(coh_conversation *conversation)
{
    coh_free(conversation->turns);
    coh_free(conversation->learns);
    *conversation = (coh_conversation){ 0 };
}
