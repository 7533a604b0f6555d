/* Reads prompts from flags and files and encodes them. The one idea: every source adds to one list,
 * and all are encoded before anything is computed. Next: text/chat.c encodes conversations,
 * cmd_generate.c uses the list. */
#include "cli/prompts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MOST = 64 << 20, PLACE_BYTES = CLI_PATH_BYTES + 64, REFUSED_NAMED = 10 };

/* ---- ids ---- */

/* Refuses an added token without a row in the model. The first `before_count` ids are the
 * tokenizer's. */
static coh_status refuse_token(const cli_prompts *prompts, const char *place, int32_t id, size_t at,
                               size_t before_count)
{
    const char *text;
    size_t bytes;
    const int64_t rows = coh_model_size_get(&prompts->inference->model).vocabulary;
    CLI_TRY(coh_tokenizer_piece(prompts->inference->tokenizer, id, &text, &bytes));
    const int shown = bytes < 100 ? (int)bytes : 100;
    if (at < before_count)
        return cli_fail(COH_ERR_CORRUPT,
                        "the tokenizer begins each text with \"%.*s\" (id %" PRId32
                        "), and the model has a vocabulary of %" PRId64
                        ": give the --tokenizer that it was trained with",
                        shown, text, id, rows);
    return cli_fail(COH_ERR_CORRUPT,
                    "%s: token %zu is \"%.*s\" (id %" PRId32
                    "), and the model has a vocabulary of %" PRId64 ": leave it out",
                    place, at - before_count + 1, shown, text, id, rows);
}

static coh_status check_ids(const cli_prompts *prompts, const char *place, const cli_prompt *prompt,
                            size_t before_count)
{
    const coh_model_size size = coh_model_size_get(&prompts->inference->model);
    for (size_t i = 0; i < prompt->count; i++)
        if (prompt->ids[i] >= size.vocabulary)
            return refuse_token(prompts, place, prompt->ids[i], i, before_count);
    if (prompt->count < (uint64_t)size.positions)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s has %zu tokens, and the model's window is %" PRId64
                    " with room for one more: shorten it",
                    place, prompt->count, size.positions);
}

/* Encodes the text after the ids that the tokenizer puts before every text; the model never saw a
 * text without them. */
static coh_status encode_plain(const cli_prompts *prompts, cli_prompt *prompt,
                               size_t *out_before_count)
{
    coh_tokenizer *tokenizer = prompts->inference->tokenizer;
    const int32_t *before, *after;
    size_t after_count, count;
    int32_t *ids;
    coh_tokenizer_around(tokenizer, &before, out_before_count, &after, &after_count);
    CLI_TRY(coh_tokenizer_encode(tokenizer, prompt->text, prompt->text_bytes, &ids, &count));
    prompt->count = *out_before_count + count;
    prompt->ids = malloc((prompt->count + 1) * sizeof(*ids));
    for (size_t i = 0; prompt->ids && i < prompt->count; i++)
        prompt->ids[i] = i < *out_before_count ? before[i] : ids[i - *out_before_count];
    coh_text_free(ids);
    return prompt->ids
               ? COH_OK
               : cli_fail(COH_ERR_MEMORY, "no memory for a prompt of %zu tokens", prompt->count);
}

/* Adds an empty prompt to the list; NULL: no memory, with the error message set. */
static cli_prompt *add_prompt(cli_prompts *prompts)
{
    if (prompts->count == prompts->capacity) {
        const size_t capacity = 2 * prompts->capacity + 4;
        cli_prompt *list = realloc(prompts->list, capacity * sizeof(*list));
        if (!list) {
            (void)cli_fail(COH_ERR_MEMORY, "no memory for %zu prompts", capacity);
            return NULL;
        }
        prompts->list = list;
        prompts->capacity = capacity;
    }
    prompts->list[prompts->count] = (cli_prompt){ 0 };
    return &prompts->list[prompts->count++];
}

/* ---- conversations ---- */

/* Keeps ids that the chat has made, and frees them. `status`: of making them. */
static coh_status keep_ids(cli_prompts *prompts, const char *place, cli_prompt *prompt,
                           int32_t *ids, coh_status status)
{
    if (status != COH_OK)
        return cli_blame(status, "%s", place);
    prompt->ids = malloc((prompt->count + 1) * sizeof(*ids));
    if (prompt->ids)
        memcpy(prompt->ids, ids, prompt->count * sizeof(*ids));
    coh_text_free(ids);
    if (!prompt->ids)
        return cli_fail(COH_ERR_MEMORY, "no memory for a prompt of %zu tokens", prompt->count);
    return check_ids(prompts, place, prompt, 0);
}

static coh_chat_turn turn_of(coh_chat_role role, const char *text, size_t bytes)
{
    return (coh_chat_turn){ .role = role, .text = text, .text_bytes = bytes };
}

/* Adds a user's message, after --system. */
static coh_status add_question(cli_prompts *prompts, const char *place, const char *text,
                               size_t bytes)
{
    const char *system = prompts->inference->options->system;
    const coh_chat_turn turns[2] = {
        turn_of(COH_CHAT_SYSTEM, system ? system : "", system ? strlen(system) : 0),
        turn_of(COH_CHAT_USER, text, bytes),
    };
    int32_t *ids = NULL;
    cli_prompt *prompt = add_prompt(prompts);
    if (!prompt)
        return COH_ERR_MEMORY;
    const coh_status status = coh_chat_prompt(prompts->chat, system ? turns : turns + 1,
                                              system ? 2 : 1, &ids, &prompt->count);
    return keep_ids(prompts, place, prompt, ids, status);
}

/* Adds the conversation of a JSON text. */
static coh_status add_json(cli_prompts *prompts, const char *place, const char *json)
{
    const char *system = prompts->inference->options->system;
    size_t left_out = 0;
    int32_t *ids = NULL;
    cli_prompt *prompt = add_prompt(prompts);
    if (!prompt)
        return COH_ERR_MEMORY;
    const coh_status status =
        coh_chat_prompt_json(prompts->chat, json, system, &ids, &prompt->count, &left_out);
    if (status == COH_ERR_ARGUMENT && system)
        return cli_fail(status, "%s has its own system prompt: leave --system out", place);
    prompts->answered_count += left_out > 0;
    return keep_ids(prompts, place, prompt, ids, status);
}

/* Adds one conversation: a list of messages, or an object in a form of the data's. */
static coh_status add_messages(cli_prompts *prompts, const char *place, const json_t *value)
{
    if (!json_is_array(value) && !json_is_object(value))
        return cli_fail(COH_ERR_CORRUPT,
                        "%s holds no conversation: write [{\"role\": ..., \"content\": ...}, ...] "
                        "or {\"messages\": [...]}",
                        place);
    char *json = json_dumps(value, JSON_COMPACT);
    if (!json)
        return cli_fail(COH_ERR_MEMORY, "no memory for the messages of %s", place);
    const coh_status status = add_json(prompts, place, json);
    free(json);
    return status;
}

/* ---- texts ---- */

static coh_status add_text(cli_prompts *prompts, const char *place, const char *text, size_t bytes)
{
    size_t before_count;
    if (bytes == 0)
        return cli_fail(COH_ERR_ARGUMENT, "%s is empty: give at least one character", place);
    if (prompts->chat)
        return add_question(prompts, place, text, bytes);
    cli_prompt *prompt = add_prompt(prompts);
    if (!prompt)
        return COH_ERR_MEMORY;
    prompt->text = malloc(bytes + 1);
    if (!prompt->text)
        return cli_fail(COH_ERR_MEMORY, "no memory for a prompt of %zu bytes", bytes);
    memcpy(prompt->text, text, bytes);
    prompt->text_bytes = bytes;
    CLI_TRY(encode_plain(prompts, prompt, &before_count));
    return check_ids(prompts, place, prompt, before_count);
}

static coh_status add_flags(cli_prompts *prompts)
{
    const char *const *texts = prompts->inference->options->prompt;
    char place[32] = "--prompt";
    for (int i = 0; texts[i]; i++) {
        if (texts[1])
            snprintf(place, sizeof(place), "--prompt number %d", i + 1);
        CLI_TRY(add_text(prompts, place, texts[i], strlen(texts[i])));
    }
    return COH_OK;
}

/* ---- files ---- */

static coh_status read_all(const char *flag, const char *path, int descriptor, char **bytes,
                           size_t *count)
{
    size_t capacity = 0;
    for (;;) {
        if (*count == capacity) {
            capacity = 2 * capacity + 4096;
            char *larger = capacity <= FILE_BYTES_MOST ? realloc(*bytes, capacity) : NULL;
            if (!larger && capacity <= FILE_BYTES_MOST)
                return cli_fail(COH_ERR_MEMORY, "no memory for the %zu bytes of %s", *count, path);
            if (!larger)
                return cli_fail(COH_ERR_CORRUPT,
                                "%s %s is longer than any model's window: give less", flag, path);
            *bytes = larger;
        }
        const ssize_t got = read(descriptor, *bytes + *count, capacity - *count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EISDIR)
            return cli_fail(COH_ERR_CORRUPT, "%s %s is a folder: give a file", flag, path);
        if (got < 0)
            return cli_fail(COH_ERR_IO,
                            "%s %s cannot be read: %s: see to its rights, or give another", flag,
                            path, strerror(errno));
        if (got == 0)
            return COH_OK;
        *count += (size_t)got;
    }
}

/* Reads the whole file, or standard input for "-"; release with free, also after a failure. */
static coh_status read_file(const char *flag, const char *path, char **out_bytes, size_t *out_count)
{
    *out_bytes = NULL;
    *out_count = 0;
    const int is_input = strcmp(path, "-") == 0;
    const int descriptor = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return cli_fail(COH_ERR_IO, "%s %s cannot be read: %s: %s", flag, path, strerror(errno),
                        cli_open_remedy(errno));
    const coh_status status =
        read_all(flag, is_input ? "(standard input)" : path, descriptor, out_bytes, out_count);
    if (!is_input)
        close(descriptor);
    return status;
}

/* The length without one final line end. */
static size_t without_line_end(const char *bytes, size_t count)
{
    count -= count > 0 && bytes[count - 1] == '\n';
    count -= count > 0 && bytes[count - 1] == '\r';
    return count;
}

static coh_status add_file(cli_prompts *prompts, const char *flag, const char *path,
                           const char *bytes, size_t count)
{
    char place[PLACE_BYTES];
    const size_t length = without_line_end(bytes, count);
    if (length == 0)
        return cli_fail(COH_ERR_CORRUPT, "%s %s is empty: give at least one character", flag, path);
    snprintf(place, sizeof(place), "%s %s", flag, path);
    return add_text(prompts, place, bytes, length);
}

/* Keeps the message of a prompt that is refused, and prints those of several. Returns COH_OK if the
 * next prompt is to be looked at: not after a failure that is not the prompt's own. */
static coh_status keep_refused(cli_prompts *prompts, coh_status status)
{
    const char *text = coh_last_error();
    if ((status != COH_ERR_CORRUPT && status != COH_ERR_ARGUMENT) ||
        (prompts->refused_count > 0 && strcmp(text, prompts->refused_text) == 0))
        return status;
    if (prompts->refused_count == 1)
        cli_note("%s", prompts->refused_text);
    if (prompts->refused_count > 0 && prompts->refused_count < REFUSED_NAMED)
        cli_note("%s", text);
    if (prompts->refused_count++ > 0)
        return COH_OK;
    prompts->refused = status;
    snprintf(prompts->refused_text, sizeof(prompts->refused_text), "%s", text);
    return COH_OK;
}

/* Fails if prompts of the file were refused: with the message of the only one, or their number. */
static coh_status check_refused(const cli_prompts *prompts, const char *flag, const char *path)
{
    if (prompts->refused_count < 2)
        return prompts->refused_count == 0
                   ? COH_OK
                   : cli_fail(prompts->refused, "%s", prompts->refused_text);
    return cli_fail(
        prompts->refused, "%s %s: %zu prompts are refused (%s): mend them, or leave them out", flag,
        path, prompts->refused_count,
        prompts->refused_count > REFUSED_NAMED ? "the first ten are named above" : "named above");
}

typedef coh_status (*line_taker)(cli_prompts *prompts, const char *place, const char *line,
                                 size_t bytes);

/* Calls `take` for each non-empty line. */
static coh_status each_line(cli_prompts *prompts, const char *flag, const char *path,
                            const char *bytes, size_t count, line_taker take)
{
    char place[PLACE_BYTES];
    int number = 0;
    for (size_t begin = 0, end; begin < count; begin = end) {
        const char *line_end = memchr(bytes + begin, '\n', count - begin);
        end = line_end ? (size_t)(line_end + 1 - bytes) : count;
        const size_t length = without_line_end(bytes + begin, end - begin);
        snprintf(place, sizeof(place), "%s %s:%d", flag, path, ++number);
        const coh_status status = length > 0 ? take(prompts, place, bytes + begin, length) : COH_OK;
        if (status != COH_OK)
            CLI_TRY(keep_refused(prompts, status));
    }
    return check_refused(prompts, flag, path);
}

static coh_status add_lines(cli_prompts *prompts, const char *flag, const char *path,
                            const char *bytes, size_t count)
{
    return each_line(prompts, flag, path, bytes, count, add_text);
}

static coh_status add_json_line(cli_prompts *prompts, const char *place, const char *line,
                                size_t bytes)
{
    json_error_t error;
    json_t *value = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!value)
        return cli_fail(COH_ERR_CORRUPT, "%s is not JSON: %s", place, error.text);
    const coh_status status = add_messages(prompts, place, value);
    json_decref(value);
    return status;
}

/* Adds a list of messages, or a list of conversations. */
static coh_status add_document(cli_prompts *prompts, const char *flag, const char *path,
                               const json_t *root)
{
    char place[PLACE_BYTES], number[PLACE_BYTES + 64];
    const json_t *first = json_array_get(root, 0);
    snprintf(place, sizeof(place), "%s %s", flag, path);
    if (!json_is_array(root) || json_object_get(first, "role") || json_object_get(first, "from"))
        return add_messages(prompts, place, root);
    for (size_t i = 0; i < json_array_size(root); i++) {
        snprintf(number, sizeof(number), "%s, conversation %zu", place, i + 1);
        const coh_status status = add_messages(prompts, number, json_array_get(root, i));
        if (status != COH_OK)
            CLI_TRY(keep_refused(prompts, status));
    }
    return check_refused(prompts, flag, path);
}

static int begins_with_json_line(const char *bytes, size_t count)
{
    for (; count > 0 && (*bytes == '\n' || *bytes == '\r'); count--)
        bytes++;
    const char *end = memchr(bytes, '\n', count);
    json_t *value = json_loadb(bytes, end ? (size_t)(end - bytes) : count, 0, NULL);
    json_decref(value);
    return value != NULL;
}

/* If a file is not one JSON text but its first line is, it is read as JSON lines. */
static coh_status add_conversations(cli_prompts *prompts, const char *flag, const char *path,
                                    const char *bytes, size_t count)
{
    json_error_t error;
    if (count == 0)
        return COH_OK;
    json_t *root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    if (!root && begins_with_json_line(bytes, count))
        return each_line(prompts, flag, path, bytes, count, add_json_line);
    if (!root)
        return cli_fail(COH_ERR_CORRUPT, "%s %s:%d is not JSON: %s", flag, path, error.line,
                        error.text);
    const coh_status status = add_document(prompts, flag, path, root);
    json_decref(root);
    return status;
}

typedef coh_status (*file_taker)(cli_prompts *prompts, const char *flag, const char *path,
                                 const char *bytes, size_t count);

static coh_status take_file(cli_prompts *prompts, const char *flag, const char *path,
                            file_taker take)
{
    char *bytes;
    size_t count;
    const size_t before = prompts->count;
    if (!path)
        return COH_OK;
    prompts->refused_count = 0;
    coh_status status = read_file(flag, path, &bytes, &count);
    if (status == COH_OK)
        status = take(prompts, flag, path, bytes, count);
    free(bytes);
    if (status == COH_OK && prompts->count == before)
        return cli_fail(COH_ERR_CORRUPT, "%s %s holds no prompt: write one", flag, path);
    return status;
}

/* ---- all prompts ---- */

static int is_input(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

coh_status cli_prompts_check_flags(const cli_options *options)
{
    const int is_chat = options->chat || options->messages;
    if (!options->prompt[0] && !options->prompt_file && !options->prompts && !options->messages)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--prompt TEXT is missing: what the text begins with (or --prompt-file, "
                        "--prompts, --messages)");
    if (is_input(options->prompt_file) + is_input(options->prompts) + is_input(options->messages) >
        1)
        return cli_fail(COH_ERR_ARGUMENT, "standard input can be read once only: give \"-\" to one "
                                          "of --prompt-file, --prompts and --messages");
    if (options->messages && !options->chat &&
        (options->prompt[0] || options->prompt_file || options->prompts))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--messages holds conversations, and the other prompts are plain text: add "
                        "--chat to ask each of them as a question, or leave one kind out");
    if (!is_chat && (options->system || cli_given(options, CLI_FLAG_CHAT_FORM)))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s is part of a conversation: add --chat, or leave it "
                        "out",
                        options->system ? "system" : "chat-form");
    return COH_OK;
}

/* Opens the form of the flag, else of the run. */
static coh_status open_form(const cli_inference *inference, coh_chat **out_chat)
{
    const cli_recipe *recipe = &inference->recipe;
    const cli_options *options = inference->options;
    const int is_noted = recipe->form.chat && !cli_given(options, CLI_FLAG_CHAT_FORM);
    const int64_t form = is_noted ? recipe->form.chat_form : options->chat_form;
    return coh_chat_open(inference->tokenizer,
                         strcmp(recipe->tokenizer, "bytes") == 0 ? NULL : recipe->tokenizer,
                         (coh_chat_form)form, out_chat);
}

/* A run on conversations ends a turn also behind a plain text, as its export does. A form that
 * cannot be opened ends nothing: plain text needs none. */
static void take_end_of_turn(cli_prompts *prompts)
{
    coh_chat *chat;
    if (!prompts->inference->recipe.form.chat)
        return;
    cli_note(
        "note: the run was trained on conversations, and the prompt is plain text: --chat asks "
        "it as a question");
    if (open_form(prompts->inference, &chat) != COH_OK)
        return;
    prompts->end_of_turn = coh_chat_end_of_turn(chat);
    coh_chat_close(chat);
}

static coh_status open_chat(cli_prompts *prompts)
{
    const cli_options *options = prompts->inference->options;
    if (!options->chat && !options->messages) {
        take_end_of_turn(prompts);
        return COH_OK;
    }
    CLI_TRY(open_form(prompts->inference, &prompts->chat));
    prompts->end_of_turn = coh_chat_end_of_turn(prompts->chat);
    cli_note("conversations are written as %s", coh_chat_description(prompts->chat));
    return COH_OK;
}

coh_status cli_prompts_open(const cli_inference *inference, cli_prompts *out_prompts)
{
    const cli_options *options = inference->options;
    *out_prompts = (cli_prompts){ .inference = inference, .end_of_turn = -1 };
    CLI_TRY(open_chat(out_prompts));
    CLI_TRY(add_flags(out_prompts));
    CLI_TRY(take_file(out_prompts, "--prompt-file", options->prompt_file, add_file));
    CLI_TRY(take_file(out_prompts, "--prompts", options->prompts, add_lines));
    CLI_TRY(take_file(out_prompts, "--messages", options->messages, add_conversations));
    if (out_prompts->answered_count > 0)
        cli_note("note: --messages %s: the answer at the end of %s is left out, for the model to "
                 "write",
                 options->messages, cli_count(out_prompts->answered_count, "conversation").at);
    return COH_OK;
}

void cli_prompts_close(cli_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        free(prompts->list[i].ids);
        free(prompts->list[i].text);
    }
    free(prompts->list);
    coh_chat_close(prompts->chat);
    *prompts = (cli_prompts){ 0 };
}
