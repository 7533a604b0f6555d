/* Makes documents from JSON lines: the text of one field, a prompt and its completion, or a
 * conversation. The one idea: all that a line can be at fault for is checked before its document
 * begins, so that a bad line may be left out. Next: lines.c reads the lines, conversations.c their
 * turns, chat.c encodes them, bad_lines.c names the bad ones. */
#include <inttypes.h>

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

/* Writes the names of the members that are texts, the first few, to say what the object has; "":
 * none is. */
static void name_texts(const json_t *object, char *names, size_t names_bytes)
{
    enum { NAMES_MOST = 4 };
    const char *key;
    json_t *value;
    size_t used = 0;
    int count = 0;
    names[0] = '\0';
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_string(value) || strlen(key) > 60 || count++ == NAMES_MOST)
            continue;
        const int written =
            snprintf(names + used, names_bytes - used, "%s\"%s\"", used ? ", " : ", and has ", key);
        used += written > 0 ? (size_t)written : 0;
    }
}

/* Are a prompt and its completion texts, which may also be learned without a template? */
static int holds_pair(const json_t *object)
{
    return json_is_string(json_object_get(object, "prompt")) &&
           json_is_string(json_object_get(object, "completion"));
}

/* `value`, of the field, is no text. */
static coh_status refuse_field(coh_lines *lines, const json_t *object, coh_slice field,
                               const json_t *value)
{
    char others[320];
    const int shown = field.count < 100 ? (int)field.count : 100, is_pair = holds_pair(object);
    const char *conversation = coh_conversation_name(object);
    if (conversation)
        return coh_lines_fail(
            lines,
            "%s is a conversation, and the field \"%.*s\" is %s: %s%s%sread "
            "conversations (%s), or name a field that holds a text (%s NAME)",
            conversation, shown, field.bytes, value ? coh_value_name(value) : "missing",
            is_pair ? "learn the pair as text (" : "", is_pair ? coh_term_text(COH_TERM_FIELD) : "",
            is_pair ? " prompt,completion), " : "", coh_term_text(COH_TERM_CHAT),
            coh_term_text(COH_TERM_FIELD));
    if (!value && coh_list_name(object))
        return coh_lines_fail(
            lines,
            "the object has no field \"%.*s\", and \"%.60s\" is a list of objects: "
            "if they hold the texts, give that list alone, or each on a line",
            shown, field.bytes, coh_list_name(object));
    name_texts(object, others, sizeof(others));
    if (!value)
        return coh_lines_fail(lines,
                              "the object has no field \"%.*s\"%s: name the one that holds the "
                              "text (%s NAME), or remove the object",
                              shown, field.bytes, others, coh_term_text(COH_TERM_FIELD));
    return coh_lines_fail(lines,
                          "the field \"%.*s\" is %s where a text is needed: write one, "
                          "name another field (%s NAME), or remove the object",
                          shown, field.bytes, coh_value_name(value), coh_term_text(COH_TERM_FIELD));
}

static coh_status find_text(coh_token_builder *b, coh_lines *lines, const json_t *object,
                            coh_slice field, coh_slice *out_text)
{
    const json_t *value = member_of(object, field);
    const int is_first = !b->options->field || field.bytes == b->options->field;
    b->at_fault = value ? (is_first ? COH_BAD_FIELD : COH_BAD_COMPLETION)
                        : (is_first ? COH_BAD_NO_FIELD : COH_BAD_NO_COMPLETION);
    if (!json_is_string(value))
        return refuse_field(lines, object, field, value);
    *out_text = (coh_slice){ json_string_value(value), json_string_length(value) };
    return COH_OK;
}

/* The last check of a line: behind it, a failure is not the line's. */
static coh_status check_tokens(coh_token_builder *b, coh_lines *lines)
{
    b->at_fault = COH_BAD_TOKEN;
    if (coh_token_builder_check(b, b->ids.ids, b->ids.count, 0) != COH_OK)
        return coh_lines_place(lines);
    b->at_fault = COH_BAD_NONE;
    return COH_OK;
}

static coh_status add_field(coh_token_builder *b, coh_lines *lines, const json_t *object)
{
    const char *field = b->options->field ? b->options->field : "text";
    coh_slice text;
    COH_TRY(find_text(b, lines, object, (coh_slice){ field, strlen(field) }, &text));
    b->ids.count = 0;
    COH_TRY(coh_tokenizer_encode_whole(b->tokenizer, text, &b->ids));
    COH_TRY(check_tokens(b, lines));
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

static coh_status find_pair(coh_token_builder *b, coh_lines *lines, const json_t *object,
                            coh_slice *out_prompt, coh_slice *out_completion)
{
    const char *field = b->options->field, *comma = strchr(field, ',');
    COH_TRY(find_text(b, lines, object, (coh_slice){ field, (size_t)(comma - field) }, out_prompt));
    return find_text(b, lines, object, (coh_slice){ comma + 1, strlen(comma + 1) }, out_completion);
}

static coh_status add_pair(coh_token_builder *b, coh_lines *lines, const json_t *object)
{
    coh_slice prompt, completion;
    coh_byte_list whole = { 0 };
    COH_TRY(find_pair(b, lines, object, &prompt, &completion));
    coh_status status = coh_byte_list_add(&whole, prompt.bytes, prompt.count);
    if (status == COH_OK)
        status = coh_byte_list_add(&whole, completion.bytes, completion.count);
    if (status == COH_OK)
        status = encode_pair(b, &whole, prompt);
    const uint64_t hash = whole.count ? XXH3_64bits(whole.bytes, whole.count) : 0;
    coh_free(whole.bytes);
    COH_TRY(status);
    COH_TRY(check_tokens(b, lines));
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
    const coh_status status = coh_conversation_read(object, c);
    b->at_fault = status == COH_OK ? COH_BAD_WRITTEN : c->fault;
    COH_TRY(status);
    *out_hash = hash_turns(c);
    return coh_chat_encode(b->chat, c->turns, c->count, c->learns, &b->ids, &b->targets);
}

static coh_status add_chat(coh_token_builder *b, coh_lines *lines, json_t *object)
{
    uint64_t hash = 0;
    const coh_status status = encode_chat(b, object, &hash);
    if (status == COH_ERR_CORRUPT)
        return coh_lines_place(lines);
    COH_TRY(status);
    COH_TRY(check_tokens(b, lines));
    COH_TRY(coh_documents_begin(&b->documents, hash));
    COH_TRY(coh_documents_add(&b->documents, b->ids.ids, b->targets.bytes, b->ids.count));
    return coh_documents_end(&b->documents);
}

/* ---- bad lines ---- */

/* Reads the object of the next line; a failure is the line's unless the reader is lost. */
static coh_status next_object(coh_token_builder *b, coh_lines *lines, json_t **out_object)
{
    COH_TRY(coh_token_builder_go_on(b));
    b->at_fault = COH_BAD_NONE;
    const coh_status status = coh_lines_next(lines, out_object);
    if (status != COH_OK && !lines->is_lost)
        b->at_fault = lines->is_value ? COH_BAD_OBJECT : COH_BAD_JSON;
    return status;
}

/* Checks an object without its ids, which take most of the time. */
static coh_status check_object(coh_token_builder *b, coh_lines *lines, json_t *object)
{
    const char *field = b->options->field ? b->options->field : "text";
    coh_slice text, other;
    if (b->chat)
        return coh_conversation_read(object, &b->conversation);
    if (coh_token_build_has_prompt(b->options))
        return find_pair(b, lines, object, &text, &other);
    return find_text(b, lines, object, (coh_slice){ field, strlen(field) }, &text);
}

/* Finds the other bad lines of a file, up to its end, or until there are many and none is good:
 * then the form is wrong, and the file may be long. */
static coh_status find_bad(coh_token_builder *b, coh_lines *lines, coh_bad_places *places)
{
    while (!coh_bad_places_are_enough(places)) {
        json_t *object = NULL;
        coh_status status = next_object(b, lines, &object);
        if (status == COH_OK && !object)
            return COH_OK;
        if (status == COH_OK)
            status = check_object(b, lines, object);
        json_decref(object);
        if (status == COH_ERR_CORRUPT && lines->is_lost)
            return COH_OK;
        if (status == COH_ERR_CORRUPT)
            coh_bad_places_add(places, lines->number);
        else
            COH_TRY(status);
        places->has_good |= status == COH_OK;
    }
    return COH_OK;
}

/* A line that is no document. `has_good`: an earlier one of the file is. Only the first part that
 * has a bad line looks for the others: behind good parts, so that the earlier lines are good. */
static coh_status take_bad(coh_token_builder *b, coh_lines *lines, int has_good)
{
    char why[COH_ERROR_TEXT_BYTES];
    if (b->options->skip_bad) {
        const int is_first = !b->bad.first[0];
        coh_bad_lines_add(&b->bad, b->at_fault, b->part);
        if (is_first && lines->is_relative) {
            b->bad.first_begin = lines->first;
            b->bad.first_number = lines->number;
        }
        return COH_OK;
    }
    coh_error_save(why);
    if (b->documents.turn)
        COH_TRY(coh_turn_wait(b->documents.turn));
    lines->limit = UINT64_MAX; /* the bad lines of the whole file are named */
    coh_bad_places places = { .has_good = has_good || lines->has_earlier };
    coh_bad_places_add(&places, lines->number);
    COH_TRY(find_bad(b, lines, &places));
    return coh_bad_places_refuse(&places, why);
}

/* ---- files ---- */

/* Adds the document of the next line; *out_is_end: there was none. */
static coh_status add_next(coh_token_builder *b, coh_lines *lines, int *out_is_end)
{
    json_t *object = NULL;
    COH_TRY(next_object(b, lines, &object));
    *out_is_end = object == NULL;
    if (!object)
        return COH_OK;
    const coh_status status = b->chat ? add_chat(b, lines, object)
                              : coh_token_build_has_prompt(b->options)
                                  ? add_pair(b, lines, object)
                                  : add_field(b, lines, object);
    json_decref(object);
    return status;
}

/* `has_good`: an earlier file has lines, none of which is bad. Of the lines that are left out, only
 * the first gets a place; in a part, once all threads are done, as that takes a pass. */
static coh_status add_lines(coh_token_builder *b, coh_lines *lines, int has_good)
{
    for (int is_end = 0; !is_end;) {
        lines->has_no_place = b->options->skip_bad && (b->bad.first[0] || lines->first > 0);
        coh_status status = add_next(b, lines, &is_end);
        if (status == COH_ERR_CORRUPT && b->at_fault != COH_BAD_NONE)
            status = take_bad(b, lines, has_good);
        else
            has_good |= status == COH_OK;
        COH_TRY(status);
    }
    return COH_OK;
}

static coh_status add_part(coh_token_builder *b, const char *path, const coh_token_part *part)
{
    coh_lines lines;
    coh_status status = coh_lines_open(path, &lines);
    coh_lines_part(&lines, part->begin, part->end);
    if (status == COH_OK)
        status = coh_token_part_check(part, lines.fd, path);
    if (status == COH_OK)
        status = add_lines(b, &lines, part->file > 0);
    b->replaced_count += lines.replaced_count;
    coh_lines_close(&lines);
    return status;
}

coh_status coh_token_build_jsonl(coh_token_builder *builder, int is_folder)
{
    const char *path = builder->options->in_path;
    char *one[] = { (char *)path };
    const coh_file_list *list = &builder->list;
    COH_TRY(coh_token_build_parts(builder, is_folder ? list->paths : one,
                                  is_folder ? list->count : 1, add_part, 1));
    if (builder->documents.count > 0)
        return COH_OK;
    if (coh_bad_lines_count(&builder->bad) > 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s holds no line that is a document: all %" PRIu64
                        " are bad; the first: %s",
                        path, coh_bad_lines_count(&builder->bad), builder->bad.first);
    if (is_folder && builder->list.count == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "folder %s holds no file *.jsonl, *.ndjson or *.jl, nor a *.json of "
                        "objects that are no configuration: give one that does, or leave %s and "
                        "%s out",
                        path, coh_term_text(COH_TERM_FIELD), coh_term_text(COH_TERM_CHAT));
    return coh_fail(COH_ERR_CORRUPT, "%s holds no line with an object: add some", path);
}
