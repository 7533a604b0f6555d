/* Encodes conversations in the forms of chat.h. The one idea: text between special tokens is
 * collected as a run and encoded at once, so that its ids are those of the whole text; the
 * assistant's ids are marked by comparison with the run without the answer. Next: chat_template.c
 * finds the form of a chat template; token_jsonl.c is a caller. */
#include "text/chat.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "cohobate/terms.h"
#include "text/characters.h"
#include "text/chat_template.h"
#include "text/json_fields.h"

#define TEMPLATE_BYTES_MAX (4u << 20)

struct coh_chat {
    coh_tokenizer *tokenizer;
    coh_chat_form form;
    /* Special tokens; -1: none. open and close are around a role (Llama 3), or open is before
     * it. */
    int32_t begin_of_text, open, close, end_of_turn;
    char *default_system; /* NULL: none */
    int has_date;         /* Llama 3.1 */
    int refuses_system;   /* Gemma 2 */
    const char *description;

    /* The current conversation: text since the last special token; from `answer_begin` on it is the
     * assistant's (SIZE_MAX: none is). It is encoded after the spelling of that token, so that its
     * first word is cut as in the whole text. */
    coh_byte_list run;
    size_t answer_begin;
    int32_t after;
    coh_id_list run_ids, header_ids;
    coh_id_list *ids;
    coh_byte_list *counts;
};

/* ---- runs ---- */

static coh_status put(coh_chat *chat, const int32_t *ids, size_t count, int counts)
{
    if (count == 0)
        return COH_OK;
    COH_TRY(coh_id_list_add_all(chat->ids, ids, count));
    COH_TRY(COH_GROW(&chat->counts->bytes, &chat->counts->capacity, chat->counts->count + count));
    memset(chat->counts->bytes + chat->counts->count, counts, count);
    chat->counts->count += count;
    return COH_OK;
}

static coh_status encode_text(coh_chat *chat, const uint8_t *text, size_t count, coh_id_list *ids)
{
    ids->count = 0;
    return coh_tokenizer_encode_whole(chat->tokenizer, (coh_slice){ (const char *)text, count },
                                      ids);
}

/* Appends the ids of spelling + text[0..count) without those of the spelling. If the tokenizer does
 * not find its special tokens in a text (SentencePiece), encodes the text alone. */
static coh_status encode_behind(coh_chat *chat, coh_slice spelling, size_t count, coh_id_list *ids)
{
    coh_byte_list whole = { 0 };
    coh_status status = coh_byte_list_add(&whole, spelling.bytes, spelling.count);
    if (status == COH_OK)
        status = coh_byte_list_add(&whole, chat->run.bytes, count);
    if (status == COH_OK)
        status = encode_text(chat, whole.bytes, whole.count, ids);
    if (status == COH_OK && spelling.count > 0) {
        if (ids->count > 0 && ids->ids[0] == chat->after) {
            ids->count--;
            memmove(ids->ids, ids->ids + 1, ids->count * sizeof(*ids->ids));
        } else {
            status = encode_text(chat, chat->run.bytes, count, ids);
        }
    }
    coh_free(whole.bytes);
    return status;
}

/* Encodes the run. The assistant's ids are those after the common prefix with the ids of the text
 * before the answer: a token across the border is the assistant's. */
static coh_status flush(coh_chat *chat)
{
    coh_slice spelling = { NULL, 0 };
    size_t header_count = 0;
    if (chat->run.count == 0)
        return COH_OK;
    if (chat->after >= 0)
        COH_TRY(
            coh_tokenizer_piece(chat->tokenizer, chat->after, &spelling.bytes, &spelling.count));
    COH_TRY(encode_behind(chat, spelling, chat->run.count, &chat->run_ids));
    if (chat->answer_begin < chat->run.count) {
        COH_TRY(encode_behind(chat, spelling, chat->answer_begin, &chat->header_ids));
        while (header_count < chat->header_ids.count && header_count < chat->run_ids.count &&
               chat->header_ids.ids[header_count] == chat->run_ids.ids[header_count])
            header_count++;
    } else {
        header_count = chat->run_ids.count;
    }
    COH_TRY(put(chat, chat->run_ids.ids, header_count, 0));
    COH_TRY(put(chat, chat->run_ids.ids + header_count, chat->run_ids.count - header_count, 1));
    chat->run.count = 0;
    chat->answer_begin = SIZE_MAX;
    return COH_OK;
}

static coh_status add_special(coh_chat *chat, int32_t id, int counts)
{
    COH_TRY(flush(chat));
    if (id < 0)
        return COH_OK;
    chat->after = id;
    return put(chat, &id, 1, counts);
}

static coh_status add_text(coh_chat *chat, const char *text)
{
    if (chat->answer_begin != SIZE_MAX) {
        COH_TRY(flush(chat));
        chat->after = -1;
    }
    return coh_byte_list_add(&chat->run, text, strlen(text));
}

static coh_slice text_of(const coh_chat_turn *message)
{
    return (coh_slice){ message->text, message->text_bytes };
}

static coh_status add_slice(coh_chat *chat, coh_slice text)
{
    return coh_byte_list_add(&chat->run, text.bytes, text.count);
}

/* Marks text up to the next special token as the assistant's. */
static void begin_answer(coh_chat *chat)
{
    chat->answer_begin = chat->run.count;
}

/* ---- forms ---- */

/* As Python's str.isspace: Unicode's white space and four separators of ASCII. */
static int is_space(const uint8_t *text, size_t length)
{
    const uint32_t value = length ? coh_utf8_value(text, length) : 0;
    return coh_is_white_space(value) || (value >= 0x1c && value <= 0x1f);
}

coh_slice coh_chat_strip(coh_slice text)
{
    const uint8_t *bytes = (const uint8_t *)text.bytes;
    size_t begin = 0, end = text.count;
    for (size_t length; begin < end; begin += length) {
        length = coh_utf8_character(bytes + begin, end - begin);
        if (!is_space(bytes + begin, length))
            break;
    }
    for (size_t last; end > begin; end = last) {
        last = coh_utf8_previous(bytes, end);
        if (!is_space(bytes + last, coh_utf8_character(bytes + last, end - last)))
            break;
    }
    return (coh_slice){ text.bytes + begin, end - begin };
}

static const char *const role_names[] = { "system", "user", "assistant" };

/* Writes a turn whose text is in `count` parts. `role`: as the form names it. */
static coh_status add_turn(coh_chat *chat, const char *role, int counts, const coh_slice *parts,
                           size_t count)
{
    COH_TRY(add_special(chat, chat->open, 0));
    COH_TRY(add_text(chat, role));
    COH_TRY(add_text(chat, "\n"));
    if (counts)
        begin_answer(chat);
    for (size_t i = 0; i < count; i++)
        COH_TRY(add_slice(chat, parts[i]));
    COH_TRY(add_special(chat, chat->end_of_turn, counts));
    return add_text(chat, "\n");
}

static coh_status add_chatml(coh_chat *chat, const coh_chat_turn *message)
{
    const coh_slice text = text_of(message);
    return add_turn(chat, role_names[message->role], message->role == COH_CHAT_ASSISTANT, &text, 1);
}

static coh_status encode_chatml(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    COH_TRY(add_special(chat, chat->begin_of_text, 0));
    if (chat->default_system && messages[0].role != COH_CHAT_SYSTEM) {
        const coh_chat_turn system = { COH_CHAT_SYSTEM, chat->default_system,
                                       strlen(chat->default_system) };
        COH_TRY(add_chatml(chat, &system));
    }
    for (size_t i = 0; i < count; i++)
        COH_TRY(add_chatml(chat, &messages[i]));
    return COH_OK;
}

/* ---- Qwen3 ---- */

static coh_slice slice(const char *text)
{
    return (coh_slice){ text, strlen(text) };
}

static int begins_with(coh_slice text, coh_slice with)
{
    return text.count >= with.count && memcmp(text.bytes, with.bytes, with.count) == 0;
}

static int ends_with(coh_slice text, coh_slice with)
{
    return text.count >= with.count &&
           memcmp(text.bytes + text.count - with.count, with.bytes, with.count) == 0;
}

/* Returns the text without line ends before it and, with `both`, behind it. */
static coh_slice strip_lines(coh_slice text, int both)
{
    for (; text.count > 0 && text.bytes[0] == '\n'; text.count--)
        text.bytes++;
    while (both && text.count > 0 && text.bytes[text.count - 1] == '\n')
        text.count--;
    return text;
}

/* Returns the text behind the last `mark`, or all of it. */
static coh_slice behind_last(coh_slice text, coh_slice mark)
{
    const char *end = text.bytes + text.count, *found;
    while ((found = memmem(text.bytes, text.count, mark.bytes, mark.count)) != NULL) {
        text.bytes = found + mark.count;
        text.count = (size_t)(end - text.bytes);
    }
    return text;
}

/* Splits an answer at the end of its reasoning, which is empty if there is none. */
static void split_reasoning(coh_slice *answer, coh_slice *out_reasoning)
{
    const coh_slice begin = slice("<think>"), end = slice("</think>");
    const char *first = memmem(answer->bytes, answer->count, end.bytes, end.count);
    *out_reasoning = slice("");
    if (!first)
        return;
    const coh_slice before = { answer->bytes, (size_t)(first - answer->bytes) };
    *out_reasoning = strip_lines(behind_last(before, begin), 1);
    *answer = strip_lines(behind_last(*answer, end), 0);
}

/* The last message of the user that no tool answered; without one the last message. */
static size_t last_question(const coh_chat_turn *messages, size_t count)
{
    for (size_t i = count; i-- > 0;)
        if (messages[i].role == COH_CHAT_USER &&
            !(begins_with(text_of(&messages[i]), slice("<tool_response>")) &&
              ends_with(text_of(&messages[i]), slice("</tool_response>"))))
            return i;
    return count - 1;
}

/* ChatML, but the reasoning of an answer is kept only behind the last question, and the last answer
 * has a block for it also if it is empty. */
static coh_status encode_qwen3(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    const size_t question = last_question(messages, count);
    for (size_t i = 0; i < count; i++) {
        coh_slice answer = text_of(&messages[i]), reasoning;
        if (messages[i].role != COH_CHAT_ASSISTANT) {
            COH_TRY(add_chatml(chat, &messages[i]));
            continue;
        }
        split_reasoning(&answer, &reasoning);
        const int thinks = i > question && (i + 1 == count || reasoning.count > 0);
        const coh_slice parts[] = { slice("<think>\n"), reasoning, slice("\n</think>\n\n"),
                                    strip_lines(answer, 0) };
        COH_TRY(thinks ? add_turn(chat, "assistant", 1, parts, sizeof(parts) / sizeof(parts[0]))
                       : add_turn(chat, "assistant", 1, &answer, 1));
    }
    return COH_OK;
}

/* ---- forms in which user and assistant take turns ---- */

/* Checks the roles from message `first` on. */
static coh_status check_turns(const coh_chat_turn *messages, size_t first, size_t count,
                              const char *form)
{
    for (size_t i = first; i < count; i++) {
        const coh_chat_role expected = (i - first) % 2 ? COH_CHAT_ASSISTANT : COH_CHAT_USER;
        if (messages[i].role != expected)
            return coh_fail(COH_ERR_CORRUPT,
                            "message %zu is of role \"%s\" where %s's form has \"%s\": after "
                            "an optional system prompt, user and assistant take turns",
                            i + 1, role_names[messages[i].role], form, role_names[expected]);
    }
    return COH_OK;
}

/* The text of each turn is stripped. A system prompt begins the first user's turn as it is. */
static coh_status encode_gemma(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    const size_t first = messages[0].role == COH_CHAT_SYSTEM;
    if (first && chat->refuses_system)
        return coh_fail(COH_ERR_CORRUPT, "message 1 is of role \"system\", which the tokenizer's "
                                         "chat template refuses: put its text into the first "
                                         "message of the user");
    COH_TRY(check_turns(messages, first, count, "Gemma"));
    COH_TRY(add_special(chat, chat->begin_of_text, 0));
    for (size_t i = first; i < count; i++) {
        const int counts = messages[i].role == COH_CHAT_ASSISTANT;
        const int has_system = first && i == first;
        const coh_slice parts[] = { has_system ? text_of(&messages[0]) : slice(""),
                                    slice(has_system ? "\n\n" : ""),
                                    coh_chat_strip(text_of(&messages[i])) };
        COH_TRY(add_turn(chat, counts ? "model" : "user", counts, parts,
                         sizeof(parts) / sizeof(parts[0])));
    }
    return COH_OK;
}

/* ---- Llama ---- */

static coh_status open_llama3(coh_chat *chat, coh_chat_role role)
{
    COH_TRY(add_special(chat, chat->open, 0));
    COH_TRY(add_text(chat, role_names[role]));
    COH_TRY(add_special(chat, chat->close, 0));
    return add_text(chat, "\n\n");
}

static coh_status encode_llama3(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    COH_TRY(add_special(chat, chat->begin_of_text, 0));
    for (size_t i = 0; i < count; i++) {
        if (i == 0 && chat->has_date) {
            COH_TRY(open_llama3(chat, COH_CHAT_SYSTEM));
            COH_TRY(add_text(chat, "Cutting Knowledge Date: December 2023\n"
                                   "Today Date: 26 Jul 2024\n\n"));
            if (messages[0].role == COH_CHAT_SYSTEM)
                COH_TRY(add_slice(chat, coh_chat_strip(text_of(&messages[0]))));
            COH_TRY(add_special(chat, chat->end_of_turn, 0));
            if (messages[0].role == COH_CHAT_SYSTEM)
                continue;
        }
        int counts = messages[i].role == COH_CHAT_ASSISTANT;
        COH_TRY(open_llama3(chat, messages[i].role));
        if (counts)
            begin_answer(chat);
        COH_TRY(add_slice(chat, coh_chat_strip(text_of(&messages[i]))));
        COH_TRY(add_special(chat, chat->end_of_turn, counts));
    }
    return COH_OK;
}

/* "[INST] <<SYS>>\n...\n<</SYS>>\n\nquestion [/INST]", with the inside stripped as a whole. */
static coh_status add_question(coh_chat *chat, const coh_chat_turn *system,
                               const coh_chat_turn *user)
{
    static const char opening[] = "<<SYS>>\n", closing[] = "\n<</SYS>>\n\n";
    coh_byte_list text = { 0 };
    coh_status status = COH_OK;
    if (system) {
        COH_TRY_GOTO(status, coh_byte_list_add(&text, opening, strlen(opening)), done);
        COH_TRY_GOTO(status, coh_byte_list_add(&text, system->text, system->text_bytes), done);
        COH_TRY_GOTO(status, coh_byte_list_add(&text, closing, strlen(closing)), done);
    }
    COH_TRY_GOTO(status, coh_byte_list_add(&text, user->text, user->text_bytes), done);
    coh_slice whole = { text.count ? (const char *)text.bytes : "", text.count };
    COH_TRY_GOTO(status, add_special(chat, chat->begin_of_text, 0), done);
    COH_TRY_GOTO(status, add_text(chat, "[INST] "), done);
    COH_TRY_GOTO(status, add_slice(chat, coh_chat_strip(whole)), done);
    COH_TRY_GOTO(status, add_text(chat, " [/INST]"), done);
done:
    coh_free(text.bytes);
    return status;
}

static coh_status encode_llama2(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    const coh_chat_turn *system = messages[0].role == COH_CHAT_SYSTEM ? &messages[0] : NULL;
    size_t first = system != NULL;
    COH_TRY(check_turns(messages, first, count, "Llama 2"));
    for (size_t i = first; i < count; i++) {
        if (messages[i].role == COH_CHAT_USER) {
            COH_TRY(add_question(chat, i == first ? system : NULL, &messages[i]));
            continue;
        }
        begin_answer(chat);
        COH_TRY(coh_byte_list_add(&chat->run, " ", 1));
        COH_TRY(add_slice(chat, coh_chat_strip(text_of(&messages[i]))));
        COH_TRY(coh_byte_list_add(&chat->run, " ", 1));
        COH_TRY(add_special(chat, chat->end_of_turn, 1));
    }
    return COH_OK;
}

/* Begins like a text, since the model's prompts do, too. */
static coh_status encode_plain(coh_chat *chat, const coh_chat_turn *messages, size_t count)
{
    COH_TRY(put(chat, chat->tokenizer->before.ids, chat->tokenizer->before.count, 0));
    for (size_t i = 0; i < count; i++) {
        int counts = messages[i].role == COH_CHAT_ASSISTANT;
        COH_TRY(add_text(chat, role_names[messages[i].role]));
        COH_TRY(add_text(chat, ": "));
        if (counts)
            begin_answer(chat);
        COH_TRY(add_slice(chat, text_of(&messages[i])));
        if (counts && chat->end_of_turn >= 0)
            COH_TRY(add_special(chat, chat->end_of_turn, 1));
        else
            COH_TRY(coh_byte_list_add(&chat->run, "\n", 1));
    }
    return COH_OK;
}

/* Leaves the text since the last special token in chat->run. */
static coh_status encode_all(coh_chat *chat, const coh_chat_turn *messages, size_t count,
                             coh_id_list *ids, coh_byte_list *counts)
{
    if (count == 0)
        return coh_fail(COH_ERR_CORRUPT, "the conversation has no message: give it one");
    chat->ids = ids;
    chat->counts = counts;
    chat->run.count = 0;
    chat->answer_begin = SIZE_MAX;
    chat->after = -1;
    switch (chat->form) {
    case COH_CHAT_FORM_CHATML:
        return encode_chatml(chat, messages, count);
    case COH_CHAT_FORM_LLAMA3:
        return encode_llama3(chat, messages, count);
    case COH_CHAT_FORM_LLAMA2:
        return encode_llama2(chat, messages, count);
    case COH_CHAT_FORM_GEMMA:
        return encode_gemma(chat, messages, count);
    case COH_CHAT_FORM_QWEN3:
        return encode_qwen3(chat, messages, count);
    case COH_CHAT_FORM_AUTO: /* resolved to another form earlier */
    case COH_CHAT_FORM_PLAIN:
        break;
    }
    return encode_plain(chat, messages, count);
}

coh_status coh_chat_encode(coh_chat *chat, const coh_chat_turn *messages, size_t count,
                           coh_id_list *ids, coh_byte_list *counts)
{
    COH_TRY(encode_all(chat, messages, count, ids, counts));
    return flush(chat);
}

/* ---- prompts ---- */

/* Writes the header of the assistant's turn. The blank before an answer is left to the model:
 * tokenizers join it with the first word. */
static coh_status open_answer(coh_chat *chat)
{
    switch (chat->form) {
    case COH_CHAT_FORM_CHATML:
    case COH_CHAT_FORM_QWEN3:
    case COH_CHAT_FORM_GEMMA:
        COH_TRY(add_special(chat, chat->open, 0));
        COH_TRY(add_text(chat, chat->form == COH_CHAT_FORM_GEMMA ? "model\n" : "assistant\n"));
        break;
    case COH_CHAT_FORM_LLAMA3:
        COH_TRY(open_llama3(chat, COH_CHAT_ASSISTANT));
        break;
    case COH_CHAT_FORM_LLAMA2: /* the question already ends with "[/INST]" */
        break;
    case COH_CHAT_FORM_AUTO:
    case COH_CHAT_FORM_PLAIN:
        COH_TRY(add_text(chat, "assistant:"));
        break;
    }
    return flush(chat);
}

coh_status coh_chat_prompt(coh_chat *chat, const coh_chat_turn *turns, size_t count,
                           int32_t **out_ids, size_t *out_count)
{
    coh_id_list ids = { 0 };
    coh_byte_list counts = { 0 };
    if (!chat || !turns || !out_ids || !out_count)
        return coh_fail(COH_ERR_ARGUMENT, "a prompt needs a chat, turns and a place for its ids");
    *out_ids = NULL;
    *out_count = 0;
    if (count == 0 || turns[count - 1].role != COH_CHAT_USER)
        return coh_fail(COH_ERR_CORRUPT, "the conversation does not end with a user's message, "
                                         "which the assistant could answer: add one");
    for (size_t i = 0; i < count; i++)
        if (turns[i].role < COH_CHAT_SYSTEM || turns[i].role > COH_CHAT_ASSISTANT || !turns[i].text)
            return coh_fail(COH_ERR_ARGUMENT, "turn %zu has no text, or role %d, which is none",
                            i + 1, (int)turns[i].role);
    coh_status status = encode_all(chat, turns, count, &ids, &counts);
    if (status == COH_OK)
        status = open_answer(chat);
    coh_free(counts.bytes);
    if (status != COH_OK) {
        coh_free(ids.ids);
        return status;
    }
    *out_ids = ids.ids;
    *out_count = ids.count;
    return COH_OK;
}

int32_t coh_chat_end_of_turn(const coh_chat *chat)
{
    return chat ? chat->end_of_turn : -1;
}

const char *coh_chat_answer_prefix(const coh_chat *chat)
{
    return chat && (chat->form == COH_CHAT_FORM_LLAMA2 || chat->form == COH_CHAT_FORM_PLAIN) ? " "
                                                                                             : "";
}

/* ---- the template's text ---- */

static coh_status template_of_config(const char *path, const json_t *root, char **out_template)
{
    if (!json_is_object(root))
        return coh_fail(COH_ERR_CORRUPT, "%s: expected an object", path);
    const json_t *value = json_object_get(root, "chat_template");
    if (json_is_array(value)) { /* several templates, by name */
        size_t index;
        json_t *entry;
        const json_t *all = value;
        value = NULL;
        json_array_foreach((json_t *)all, index, entry)
        {
            const char *name = json_string_value(json_object_get(entry, "name"));
            if (name && strcmp(name, "default") == 0)
                value = json_object_get(entry, "template");
        }
    }
    if (!json_is_string(value))
        return COH_OK;
    return coh_alloc_text(json_string_value(value), out_template);
}

static coh_status read_config(const char *path, char **out_template)
{
    json_t *root;
    coh_status status = coh_json_read_text(path, TEMPLATE_BYTES_MAX, &root);
    if (status == COH_OK)
        status = template_of_config(path, root, out_template);
    json_decref(root);
    return status;
}

/* Reads a folder's chat template; out_path (PATH_MAX bytes) is the file it was in. NULL: the folder
 * has none. Release with coh_free. */
static coh_status template_read(const char *folder, char *out_path, char **out_template)
{
    struct stat facts;
    size_t folder_bytes = strlen(folder), text_bytes;
    *out_template = NULL;
    if (stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode)) { /* a file: use its folder */
        const char *slash = strrchr(folder, '/');
        folder_bytes = slash ? (size_t)(slash - folder) : 1;
        folder = slash ? folder : ".";
    }
    if (snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder) >=
        PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer's path of %zu bytes is too long",
                        folder_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/chat_template.jinja", (int)folder_bytes, folder);
    if (access(out_path, F_OK) == 0)
        return coh_file_read_whole(out_path, TEMPLATE_BYTES_MAX, out_template, &text_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder);
    return access(out_path, F_OK) == 0 ? read_config(out_path, out_template) : COH_OK;
}

/* ---- which form ---- */

enum { FORM_TOKENS = 4 };
/* The special tokens that each form requires. */
static const char *const form_tokens[][FORM_TOKENS] = {
    [COH_CHAT_FORM_CHATML] = { "<|im_start|>", "<|im_end|>" },
    [COH_CHAT_FORM_LLAMA3] = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },
    [COH_CHAT_FORM_GEMMA] = { "<start_of_turn>", "<end_of_turn>" },
    [COH_CHAT_FORM_QWEN3] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>" },
};

/* The first required token that the vocabulary lacks, or NULL. */
static const char *lacking(const coh_tokenizer *tokenizer, coh_chat_form form)
{
    const size_t count = sizeof(form_tokens) / sizeof(form_tokens[0]);
    for (int i = 0; (size_t)form < count && i < FORM_TOKENS && form_tokens[form][i]; i++)
        if (coh_tokenizer_token_id(tokenizer, form_tokens[form][i]) < 0)
            return form_tokens[form][i];
    return NULL;
}

static int is_llama2(const coh_tokenizer *tokenizer, const char *template_text)
{
    if (template_text)
        return strstr(template_text, "<<SYS>>") != NULL;
    return coh_tokenizer_token_id(tokenizer, "<s>") >= 0 &&
           coh_tokenizer_token_id(tokenizer, "</s>") >= 0 &&
           coh_tokenizer_token_id(tokenizer, "<0x0A>") >= 0;
}

/* COH_CHAT_FORM_AUTO: there is a template, but of no known form. */
static coh_chat_form find_form(const coh_tokenizer *tokenizer, const char *template_text)
{
    int has_begin, refuses_system;
    if (template_text && !lacking(tokenizer, COH_CHAT_FORM_QWEN3) &&
        coh_chat_template_is_qwen3(template_text))
        return COH_CHAT_FORM_QWEN3;
    if (!lacking(tokenizer, COH_CHAT_FORM_GEMMA) &&
        (!template_text || coh_chat_template_is_gemma(template_text, &refuses_system)))
        return COH_CHAT_FORM_GEMMA;
    if (!lacking(tokenizer, COH_CHAT_FORM_CHATML) &&
        (!template_text || coh_chat_template_is_chatml(template_text, &has_begin)))
        return COH_CHAT_FORM_CHATML;
    if (!lacking(tokenizer, COH_CHAT_FORM_LLAMA3) &&
        (!template_text || coh_chat_template_is_llama3(template_text)))
        return COH_CHAT_FORM_LLAMA3;
    if (is_llama2(tokenizer, template_text))
        return COH_CHAT_FORM_LLAMA2;
    return template_text ? COH_CHAT_FORM_AUTO : COH_CHAT_FORM_PLAIN;
}

static int32_t first_of(int32_t id, int32_t other)
{
    return id >= 0 ? id : other;
}

static coh_status open_chatml(coh_chat *chat, const char *template_text)
{
    int has_begin = 0;
    if (template_text) {
        (void)coh_chat_template_is_chatml(template_text, &has_begin);
        COH_TRY(coh_chat_default_system(template_text, &chat->default_system));
    }
    if (has_begin)
        chat->begin_of_text = coh_tokenizer_begin_of_text(chat->tokenizer);
    chat->open = coh_tokenizer_token_id(chat->tokenizer, "<|im_start|>");
    chat->end_of_turn = coh_tokenizer_token_id(chat->tokenizer, "<|im_end|>");
    chat->description = chat->default_system
                            ? "ChatML (<|im_start|>), with the tokenizer's default system prompt "
                              "where there is none"
                            : "ChatML (<|im_start|>)";
    return COH_OK;
}

static coh_status open_form(coh_chat *chat, const char *template_text)
{
    const coh_tokenizer *tokenizer = chat->tokenizer;
    const int32_t begin = coh_tokenizer_begin_of_text(tokenizer);
    const int32_t end = coh_tokenizer_end_of_text(tokenizer);
    const char *lacks = lacking(tokenizer, chat->form);
    if (lacks)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the tokenizer has no token \"%s\", which the form that was asked for "
                        "is written with: choose another form",
                        lacks);
    switch (chat->form) {
    case COH_CHAT_FORM_CHATML:
        return open_chatml(chat, template_text);
    case COH_CHAT_FORM_LLAMA3:
        chat->begin_of_text =
            first_of(begin, coh_tokenizer_token_id(tokenizer, "<|begin_of_text|>"));
        chat->open = coh_tokenizer_token_id(tokenizer, "<|start_header_id|>");
        chat->close = coh_tokenizer_token_id(tokenizer, "<|end_header_id|>");
        chat->end_of_turn = coh_tokenizer_token_id(tokenizer, "<|eot_id|>");
        chat->has_date = template_text && coh_chat_template_has_date(template_text);
        chat->description = chat->has_date ? "Llama 3.1 (<|start_header_id|>, today is 26 Jul 2024)"
                                           : "Llama 3 (<|start_header_id|>)";
        return COH_OK;
    case COH_CHAT_FORM_LLAMA2:
        chat->begin_of_text = first_of(begin, coh_tokenizer_token_id(tokenizer, "<s>"));
        chat->end_of_turn = first_of(end, coh_tokenizer_token_id(tokenizer, "</s>"));
        chat->description = "Llama 2 ([INST])";
        if (chat->end_of_turn >= 0)
            return COH_OK;
        return coh_fail(COH_ERR_ARGUMENT,
                        "the tokenizer has no end of text, with which Llama 2's form "
                        "ends an answer: name one in its tokenizer_config.json, or "
                        "choose another form");
    case COH_CHAT_FORM_GEMMA:
        chat->begin_of_text = first_of(begin, coh_tokenizer_token_id(tokenizer, "<bos>"));
        chat->open = coh_tokenizer_token_id(tokenizer, "<start_of_turn>");
        chat->end_of_turn = coh_tokenizer_token_id(tokenizer, "<end_of_turn>");
        if (template_text)
            (void)coh_chat_template_is_gemma(template_text, &chat->refuses_system);
        chat->description = "Gemma (<start_of_turn>)";
        return COH_OK;
    case COH_CHAT_FORM_QWEN3:
        chat->open = coh_tokenizer_token_id(tokenizer, "<|im_start|>");
        chat->end_of_turn = coh_tokenizer_token_id(tokenizer, "<|im_end|>");
        chat->description = "Qwen3 (<|im_start|>, and <think> in the last answer)";
        return COH_OK;
    case COH_CHAT_FORM_PLAIN:
        chat->end_of_turn = end;
        chat->description = "plain (\"user: \", \"assistant: \")";
        return COH_OK;
    case COH_CHAT_FORM_AUTO:
        break;
    }
    return coh_fail(COH_ERR_ARGUMENT, "there is no form of conversations of number %d",
                    (int)chat->form);
}

/* The caller's words say whether the texts are data or prompts. Templates write the token that
 * begins a text themselves, and a tokenizer that adds one would repeat it. */
static coh_status refuse_template(const coh_tokenizer *tokenizer, const char *path)
{
    const int begins = tokenizer->before.count > 0;
    const coh_slice begin =
        begins ? coh_token_table_at(&tokenizer->pipeline->names, tokenizer->before.ids[0])
               : (coh_slice){ "", 0 };
    return coh_fail(
        COH_ERR_CORRUPT,
        "%.300s: the chat template is none of the forms that are known here (ChatML, Llama 3, "
        "Llama 2, Gemma, Qwen3), which give other ids: choose one all the same with %s "
        "chatml|llama3|llama2|plain|gemma|qwen3, or write conversations out with "
        "apply_chat_template and give the texts with %s%s%.*s%s",
        path, coh_term_text(COH_TERM_CHAT_FORM), coh_term_text(COH_TERM_CHAT_TEXT),
        begins ? ", without the \"" : "", begin.count < 100 ? (int)begin.count : 100, begin.bytes,
        begins ? "\" that is put before each" : "");
}

static coh_status choose_form(coh_chat *chat, const char *path, const char *template_text)
{
    if (chat->form == COH_CHAT_FORM_AUTO)
        chat->form = find_form(chat->tokenizer, template_text);
    return chat->form != COH_CHAT_FORM_AUTO ? open_form(chat, template_text)
                                            : refuse_template(chat->tokenizer, path);
}

coh_status coh_chat_open(coh_tokenizer *tokenizer, const char *folder, coh_chat_form form,
                         coh_chat **out_chat)
{
    coh_chat *chat;
    char *template_text = NULL, path[PATH_MAX] = "";
    if (!out_chat)
        return coh_fail(COH_ERR_ARGUMENT, "opening a chat needs a place for it");
    *out_chat = NULL;
    if (!tokenizer)
        return coh_fail(COH_ERR_ARGUMENT, "a chat needs a tokenizer");
    COH_TRY(COH_ALLOC(1, &chat));
    chat->tokenizer = tokenizer;
    chat->form = form;
    chat->begin_of_text = chat->open = chat->close = chat->end_of_turn = -1;
    coh_status status = folder ? template_read(folder, path, &template_text) : COH_OK;
    if (status == COH_OK)
        status = choose_form(chat, path, template_text);
    coh_free(template_text);
    if (status != COH_OK)
        coh_chat_close(chat);
    else
        *out_chat = chat;
    return status;
}

void coh_chat_close(coh_chat *chat)
{
    if (!chat)
        return;
    coh_free(chat->run.bytes);
    coh_free(chat->run_ids.ids);
    coh_free(chat->header_ids.ids);
    coh_free(chat->default_system);
    coh_free(chat);
}

int coh_chat_writes(const coh_chat *chat, int32_t id)
{
    return id >= 0 && (id == chat->begin_of_text || id == chat->open || id == chat->close ||
                       id == chat->end_of_turn);
}

const char *coh_chat_description(const coh_chat *chat)
{
    return chat ? chat->description : "";
}
