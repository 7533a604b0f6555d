/* Makes documents from JSON lines: the text of one field, a prompt and its completion, or a
 * conversation. Next: lines.c reads the lines, conversations.c their turns, chat.c encodes them. */
#include <xxhash.h>

#include "cohobate/terms.h"
#include "text/lines.h"
#include "text/token_build.h"

/* ---- a field ---- */

/* Returns the member whose name has these bytes; NULL: none. */
static const json_t *member_of(const json_t *object, coh_slice name)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (strlen(key) == name.count && memcmp(key, name.bytes, name.count) == 0)
            return value;
    }
    return NULL;
}

static coh_status find_text(const coh_lines *lines, const json_t *object, coh_slice field,
                            coh_slice *out_text)
{
    const json_t *value = member_of(object, field);
    const int shown = field.count < 100 ? (int)field.count : 100;
    const char *conversation = json_is_string(value) ? NULL : coh_conversation_name(object);
    if (conversation)
        return coh_lines_fail(lines,
                              "%s is a conversation, and the field \"%.*s\" is %s: read "
                              "conversations (%s), or name a field that holds a text (%s NAME)",
                              conversation, shown, field.bytes,
                              value ? coh_value_name(value) : "missing",
                              coh_term_text(COH_TERM_CHAT), coh_term_text(COH_TERM_FIELD));
    if (!value && coh_list_name(object))
        return coh_lines_fail(
            lines,
            "the object has no field \"%.*s\", and \"%.60s\" is a list of objects: "
            "if they hold the texts, give that list alone, or each on a line",
            shown, field.bytes, coh_list_name(object));
    if (!value)
        return coh_lines_fail(lines,
                              "the object has no field \"%.*s\": name the one that holds the "
                              "text (%s NAME), or remove the object",
                              shown, field.bytes, coh_term_text(COH_TERM_FIELD));
    if (!json_is_string(value))
        return coh_lines_fail(lines,
                              "the field \"%.*s\" is %s where a text is needed: write one, "
                              "name another field (%s NAME), or remove the object",
                              shown, field.bytes, coh_value_name(value),
                              coh_term_text(COH_TERM_FIELD));
    *out_text = (coh_slice){ json_string_value(value), json_string_length(value) };
    return COH_OK;
}

static coh_status add_field(coh_token_builder *b, const coh_lines *lines, const json_t *object)
{
    const char *field = b->options->field ? b->options->field : "text";
    coh_slice text;
    COH_TRY(find_text(lines, object, (coh_slice){ field, strlen(field) }, &text));
    b->ids.count = 0;
    COH_TRY(coh_tokenizer_encode_whole(b->tokenizer, text, &b->ids));
    if (coh_token_builder_check(b, b->ids.ids, b->ids.count, 0) != COH_OK)
        return coh_lines_place(lines);
    COH_TRY(coh_token_builder_begin(b, XXH3_64bits(text.bytes, text.count), 1));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, NULL, b->ids.count));
    return coh_token_builder_end(b);
}

/* ---- a prompt and its completion ---- */

int coh_token_build_has_prompt(const coh_token_build_options *options)
{
    return options->form == COH_DATA_JSONL && options->field && strchr(options->field, ',');
}

/* Encodes both as one text. The ids behind those that the prompt alone begins with count: a token
 * across the border is the completion's. */
static coh_status encode_pair(coh_token_builder *b, const coh_byte_list *whole, coh_slice prompt)
{
    coh_id_list alone = { 0 };
    size_t same = 0;
    b->ids.count = b->targets.count = 0;
    COH_TRY(coh_tokenizer_encode_whole(
        b->tokenizer, (coh_slice){ (const char *)whole->bytes, whole->count }, &b->ids));
    COH_TRY(COH_GROW(&b->targets.bytes, &b->targets.capacity, b->ids.count + 1));
    memset(b->targets.bytes, 1, b->ids.count);
    b->targets.count = b->ids.count;
    const coh_status status = coh_tokenizer_encode_whole(b->tokenizer, prompt, &alone);
    while (status == COH_OK && same < alone.count && same < b->ids.count &&
           alone.ids[same] == b->ids.ids[same])
        b->targets.bytes[same++] = 0;
    coh_free(alone.ids);
    return status;
}

static coh_status add_pair(coh_token_builder *b, const coh_lines *lines, const json_t *object)
{
    const char *field = b->options->field, *comma = strchr(field, ',');
    coh_slice prompt, completion;
    coh_byte_list whole = { 0 };
    COH_TRY(find_text(lines, object, (coh_slice){ field, (size_t)(comma - field) }, &prompt));
    COH_TRY(find_text(lines, object, (coh_slice){ comma + 1, strlen(comma + 1) }, &completion));
    coh_status status = coh_byte_list_add(&whole, prompt.bytes, prompt.count);
    if (status == COH_OK)
        status = coh_byte_list_add(&whole, completion.bytes, completion.count);
    if (status == COH_OK)
        status = encode_pair(b, &whole, prompt);
    const uint64_t hash = whole.count ? XXH3_64bits(whole.bytes, whole.count) : 0;
    coh_free(whole.bytes);
    COH_TRY(status);
    if (coh_token_builder_check(b, b->ids.ids, b->ids.count, 0) != COH_OK)
        return coh_lines_place(lines);
    COH_TRY(coh_token_builder_begin(b, hash, 0));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, b->targets.bytes, b->ids.count));
    return coh_token_builder_end(b);
}

/* ---- a conversation ---- */

static uint64_t hash_turns(const coh_conversation *c)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < c->count; i++)
        hash = XXH3_64bits_withSeed(c->turns[i].text, c->turns[i].text_bytes,
                                    hash + (uint64_t)c->turns[i].role);
    return hash;
}

static coh_status encode_chat(coh_token_builder *b, json_t *object, uint64_t *out_hash)
{
    coh_conversation *c = &b->conversation;
    b->ids.count = b->targets.count = 0;
    COH_TRY(coh_conversation_read(object, c));
    *out_hash = hash_turns(c);
    COH_TRY(coh_chat_encode(b->chat, c->turns, c->count, c->learns, &b->ids, &b->targets));
    return coh_token_builder_check(b, b->ids.ids, b->ids.count, 0);
}

static coh_status add_chat(coh_token_builder *b, const coh_lines *lines, json_t *object)
{
    uint64_t hash = 0;
    const coh_status status = encode_chat(b, object, &hash);
    if (status == COH_ERR_CORRUPT)
        return coh_lines_place(lines);
    COH_TRY(status);
    COH_TRY(coh_documents_begin(&b->documents, hash));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, b->targets.bytes, b->ids.count));
    return coh_documents_end(&b->documents);
}

/* ---- files ---- */

static coh_status add_lines(coh_token_builder *b, coh_lines *lines)
{
    const int has_prompt = coh_token_build_has_prompt(b->options);
    for (;;) {
        json_t *object;
        COH_TRY(coh_token_builder_go_on(b));
        COH_TRY(coh_lines_next(lines, &object));
        if (!object)
            return COH_OK;
        coh_status status = b->chat      ? add_chat(b, lines, object)
                            : has_prompt ? add_pair(b, lines, object)
                                         : add_field(b, lines, object);
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
        return coh_fail(
            COH_ERR_CORRUPT,
            "folder %s holds no file *.jsonl or *.ndjson, nor a *.json that is an array "
            "of objects: give one that does, or leave %s and %s out",
            path, coh_term_text(COH_TERM_FIELD), coh_term_text(COH_TERM_CHAT));
    return coh_fail(COH_ERR_CORRUPT, "%s holds no line with an object: add some", path);
}
