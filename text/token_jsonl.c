/* Makes documents from JSON lines: the text of one field, or a conversation. Next: lines.c reads
 * the lines, chat.c encodes conversations. */
#include <xxhash.h>

#include "cohobate/terms.h"
#include "text/lines.h"
#include "text/token_build.h"

static const char *value_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "a flag",
        [JSON_FALSE] = "a flag",     [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "nothing";
}

/* ---- a field ---- */

static coh_status add_field(coh_token_builder *b, const coh_lines *lines, const json_t *object)
{
    const char *field = b->options->field ? b->options->field : "text";
    const json_t *value = json_object_get(object, field);
    if (!value)
        return coh_lines_fail(lines,
                              "the object has no field \"%.100s\": name the one that holds the "
                              "text (%s NAME), or remove the line",
                              field, coh_term_text(COH_TERM_FIELD));
    if (!json_is_string(value))
        return coh_lines_fail(lines,
                              "the field \"%.100s\" is %s where a text is needed: write one, "
                              "name another field (%s NAME), or remove the line",
                              field, value_name(value), coh_term_text(COH_TERM_FIELD));
    const coh_slice text = { json_string_value(value), json_string_length(value) };
    b->ids.count = 0;
    COH_TRY(coh_tokenizer_encode_whole(b->tokenizer, text, &b->ids));
    if (coh_token_builder_check(b, b->ids.ids, b->ids.count, 0) != COH_OK)
        return coh_lines_place(lines);
    COH_TRY(coh_token_builder_begin(b, XXH3_64bits(text.bytes, text.count)));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, NULL, b->ids.count));
    return coh_token_builder_end(b);
}

/* ---- a conversation ---- */

static coh_status read_role(const coh_lines *lines, size_t number, const json_t *value,
                            coh_chat_role *out_role)
{
    static const char *const names[] = { "system", "user", "assistant" };
    const char *name = json_string_value(value);
    for (int role = 0; name && role < 3; role++)
        if (strcmp(name, names[role]) == 0) {
            *out_role = (coh_chat_role)role;
            return COH_OK;
        }
    return coh_lines_fail(lines,
                          "message %zu has %s%.40s%s for a role: write system, user or "
                          "assistant, or remove the line",
                          number, name ? "\"" : "", name ? name : value_name(value),
                          name ? "\"" : "");
}

/* Refuses members that no form writes; they would be lost silently. */
static coh_status check_members(const coh_lines *lines, size_t number, const json_t *message)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)message, key, value)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && !json_is_null(value))
            return coh_lines_fail(lines,
                                  "message %zu has a member \"%.60s\", which is not written into "
                                  "the conversation: leave it out, or write it into the content",
                                  number, key);
    }
    return COH_OK;
}

static coh_status read_message(const coh_lines *lines, size_t number, const json_t *message,
                               coh_chat_turn *out_message)
{
    if (!json_is_object(message))
        return coh_lines_fail(lines,
                              "message %zu is %s where {\"role\": ..., \"content\": ...} is "
                              "needed: write one, or remove the line",
                              number, value_name(message));
    COH_TRY(read_role(lines, number, json_object_get(message, "role"), &out_message->role));
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(content))
        return coh_lines_fail(lines,
                              "message %zu has %s for its content where a text is needed: "
                              "write one, or remove the line",
                              number, value_name(content));
    out_message->text = json_string_value(content);
    out_message->text_bytes = json_string_length(content);
    return check_members(lines, number, message);
}

static coh_status read_messages(const coh_lines *lines, const json_t *object,
                                coh_chat_turn **messages, size_t *capacity, size_t *out_count)
{
    const json_t *all = json_object_get(object, "messages");
    int has_answer = 0;
    if (!json_is_array(all) || json_array_size(all) == 0)
        return coh_lines_fail(lines,
                              "\"messages\" is %s where an array of at least one message is "
                              "needed: see docs/data.md for the form of a conversation",
                              !all                 ? "missing"
                              : json_is_array(all) ? "empty"
                                                   : value_name(all));
    *out_count = json_array_size(all);
    COH_TRY(COH_GROW(messages, capacity, *out_count));
    for (size_t i = 0; i < *out_count; i++) {
        COH_TRY(read_message(lines, i + 1, json_array_get(all, i), &(*messages)[i]));
        has_answer |= (*messages)[i].role == COH_CHAT_ASSISTANT;
    }
    if (!has_answer)
        return coh_lines_fail(lines, "no message is the assistant's, so nothing is learned from "
                                     "the conversation: remove the line");
    return COH_OK;
}

static uint64_t hash_messages(const coh_chat_turn *messages, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        hash = XXH3_64bits_withSeed(messages[i].text, messages[i].text_bytes,
                                    hash + (uint64_t)messages[i].role);
    return hash;
}

static coh_status add_chat(coh_token_builder *b, const coh_lines *lines, const json_t *object)
{
    coh_chat_turn *messages = NULL;
    size_t capacity = 0, count = 0;
    uint64_t hash = 0;
    b->ids.count = b->targets.count = 0;
    coh_status status = read_messages(lines, object, &messages, &capacity, &count);
    if (status == COH_OK) {
        hash = hash_messages(messages, count);
        status = coh_chat_encode(b->chat, messages, count, &b->ids, &b->targets);
        if (status == COH_OK)
            status = coh_token_builder_check(b, b->ids.ids, b->ids.count, 0);
        if (status == COH_ERR_CORRUPT)
            status = coh_lines_place(lines);
    }
    coh_free(messages);
    COH_TRY(status);
    COH_TRY(coh_documents_begin(&b->documents, hash));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, b->targets.bytes, b->ids.count));
    return coh_documents_end(&b->documents);
}

/* ---- files ---- */

static coh_status add_lines(coh_token_builder *b, coh_lines *lines)
{
    for (;;) {
        json_t *object;
        COH_TRY(coh_token_builder_go_on(b));
        COH_TRY(coh_lines_next(lines, &object));
        if (!object)
            return COH_OK;
        coh_status status = b->chat ? add_chat(b, lines, object) : add_field(b, lines, object);
        json_decref(object);
        COH_TRY(status);
    }
}

static coh_status add_file(coh_token_builder *b, const char *path)
{
    coh_lines lines;
    coh_status status = coh_lines_open(path, &lines);
    if (status == COH_OK)
        status = add_lines(b, &lines);
    b->replaced_count += lines.replaced_count;
    coh_lines_close(&lines);
    return status;
}

coh_status coh_token_build_jsonl(coh_token_builder *builder, int is_folder)
{
    const char *path = builder->options->in_path;
    if (!is_folder)
        COH_TRY(add_file(builder, path));
    COH_TRY(coh_token_build_folder(builder, add_file));
    if (builder->documents.count > 0)
        return COH_OK;
    if (is_folder && builder->list.count == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "folder %s holds no file *.jsonl or *.ndjson: give one that does, or leave "
                        "%s and %s out",
                        path, coh_term_text(COH_TERM_FIELD), coh_term_text(COH_TERM_CHAT));
    return coh_fail(COH_ERR_CORRUPT, "%s holds no line with an object: add some", path);
}
