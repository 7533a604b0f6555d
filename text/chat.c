/* Chooses how conversations are written: by the tokenizer's own chat template, or by a named form,
 * which is a template, too. Next: chat_template.c runs a template and finds the answers;
 * token_jsonl.c and the prompts of generate are callers. */
#include "text/chat.h"

#include <limits.h>
#include <stdio.h>

#include "cohobate/terms.h"
#include "text/chat_forms.h"
#include "text/chat_template.h"

struct coh_chat {
    coh_tokenizer *tokenizer;
    coh_chat_form form; /* AUTO: the tokenizer's own */
    coh_chat_template *program;
    int is_begun; /* the form's begun_text has the ids of before() and the template */
    char description[160];
};

/* ---- its use ---- */

/* The plain form begins as a text does; templates write the token themselves. */
static const coh_id_list *before(const coh_chat *chat)
{
    static const coh_id_list none;
    return chat->form == COH_CHAT_FORM_PLAIN ? &chat->tokenizer->before : &none;
}

coh_status coh_chat_encode(coh_chat *chat, const coh_chat_turn *messages, size_t count,
                           const uint8_t *learns, coh_id_list *ids, coh_byte_list *counts)
{
    const coh_id_list *first = before(chat);
    if (count == 0)
        return coh_fail(COH_ERR_CORRUPT, "the conversation has no message: give it one");
    COH_TRY(coh_id_list_add_all(ids, first->ids, first->count));
    COH_TRY(COH_GROW(&counts->bytes, &counts->capacity, counts->count + first->count));
    if (first->count > 0)
        memset(counts->bytes + counts->count, 0, first->count);
    counts->count += first->count;
    return coh_chat_template_encode(chat->program, messages, count, learns, ids, counts);
}

static coh_status check_turns(const coh_chat_turn *turns, size_t count)
{
    if (count == 0 || turns[count - 1].role != COH_CHAT_USER)
        return coh_fail(COH_ERR_CORRUPT, "the conversation does not end with a user's message, "
                                         "which the assistant could answer: add one");
    for (size_t i = 0; i < count; i++)
        if (turns[i].role < COH_CHAT_SYSTEM || turns[i].role > COH_CHAT_ASSISTANT || !turns[i].text)
            return coh_fail(COH_ERR_ARGUMENT, "turn %zu has no text, or role %d, which is none",
                            i + 1, (int)turns[i].role);
    return COH_OK;
}

coh_status coh_chat_prompt(coh_chat *chat, const coh_chat_turn *turns, size_t count,
                           int32_t **out_ids, size_t *out_count)
{
    coh_id_list ids = { 0 };
    if (!chat || !turns || !out_ids || !out_count)
        return coh_fail(COH_ERR_ARGUMENT, "a prompt needs a chat, turns and a place for its ids");
    *out_ids = NULL;
    *out_count = 0;
    COH_TRY(check_turns(turns, count));
    coh_status status = coh_id_list_add_all(&ids, before(chat)->ids, before(chat)->count);
    if (status == COH_OK)
        status = coh_chat_template_prompt(chat->program, turns, count, &ids);
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
    return chat ? coh_chat_template_end_of_turn(chat->program) : -1;
}

const char *coh_chat_answer_prefix(const coh_chat *chat)
{
    return chat ? coh_chat_template_answer_prefix(chat->program) : "";
}

const char *coh_chat_template_text(const coh_chat *chat)
{
    const coh_chat_form_facts *form = chat ? coh_chat_form_find(chat->form) : NULL;
    if (form == NULL)
        return NULL;
    return before(chat)->count == 0 ? form->template_text
           : chat->is_begun         ? form->begun_text
                                    : NULL;
}

const char *coh_chat_description(const coh_chat *chat)
{
    return chat ? chat->description : "";
}

/* ---- which form ---- */

/* The first token of a form that the vocabulary lacks, or NULL. */
static const char *lacking(const coh_tokenizer *tokenizer, const coh_chat_form_facts *form)
{
    for (int i = 0; i < COH_CHAT_FORM_TOKENS && form->tokens[i]; i++)
        if (coh_tokenizer_token_id(tokenizer, form->tokens[i]) < 0)
            return form->tokens[i];
    return NULL;
}

static int is_llama2(const coh_tokenizer *tokenizer)
{
    return coh_tokenizer_token_id(tokenizer, "<s>") >= 0 &&
           coh_tokenizer_token_id(tokenizer, "</s>") >= 0 &&
           coh_tokenizer_token_id(tokenizer, "<0x0A>") >= 0;
}

/* The form of a tokenizer without a chat template. */
static coh_chat_form find_form(const coh_tokenizer *tokenizer)
{
    static const coh_chat_form forms[] = { COH_CHAT_FORM_GEMMA, COH_CHAT_FORM_CHATML,
                                           COH_CHAT_FORM_LLAMA3 };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (!lacking(tokenizer, coh_chat_form_find(forms[i])))
            return forms[i];
    return is_llama2(tokenizer) ? COH_CHAT_FORM_LLAMA2 : COH_CHAT_FORM_PLAIN;
}

/* Ids of a question by `program`, behind those of `first`. */
static coh_status ask(coh_chat_template *program, const coh_id_list *first, coh_id_list *ids)
{
    const coh_chat_turn question = { COH_CHAT_USER, "Hi", 2 };
    COH_TRY(coh_id_list_add_all(ids, first->ids, first->count));
    return coh_chat_template_prompt(program, &question, 1, ids);
}

/* Finds whether a template can write the tokens before a text: it can write bos_token, and a
 * tokenizer may read the text behind a token in it otherwise than a text of its own. */
static coh_status find_begun(coh_chat *chat, const coh_chat_form_facts *form)
{
    coh_chat_template *begun = NULL;
    coh_id_list ours = { 0 }, theirs = { 0 }, none = { 0 };
    if (before(chat)->count == 0)
        return COH_OK;
    coh_status status =
        coh_chat_template_create(chat->tokenizer, form->description, form->begun_text, -1, &begun);
    if (status == COH_OK)
        status = ask(begun, &none, &theirs);
    if (status == COH_OK)
        status = ask(chat->program, before(chat), &ours);
    chat->is_begun = status == COH_OK && ours.count == theirs.count &&
                     memcmp(ours.ids, theirs.ids, ours.count * sizeof(*ours.ids)) == 0;
    coh_chat_template_close(begun);
    coh_free(ours.ids);
    coh_free(theirs.ids);
    return status == COH_ERR_MEMORY ? status : COH_OK; /* bos_token may be none */
}

static coh_status open_form(coh_chat *chat)
{
    const coh_chat_form_facts *form = coh_chat_form_find(chat->form);
    if (form == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "there is no form of conversations of number %d",
                        (int)chat->form);
    const char *lacks = lacking(chat->tokenizer, form);
    if (lacks)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the tokenizer has no token \"%s\", which the form that was asked for "
                        "is written with: choose another form",
                        lacks);
    if (chat->form == COH_CHAT_FORM_LLAMA2 && coh_tokenizer_end_of_text(chat->tokenizer) < 0)
        return coh_fail(COH_ERR_ARGUMENT, "the tokenizer has no end of text, with which Llama 2's "
                                          "form ends an answer: name one in its "
                                          "tokenizer_config.json, or choose another form");
    snprintf(chat->description, sizeof(chat->description), "%s", form->description);
    COH_TRY(coh_chat_template_create(chat->tokenizer, form->description, form->template_text,
                                     coh_tokenizer_token_id(chat->tokenizer, form->begin_of_text),
                                     &chat->program));
    return form->begun_text ? find_begun(chat, form) : COH_OK;
}

/* Puts the ways on behind the reason why a template cannot be run. Templates write the token that
 * begins a text themselves, and a tokenizer that adds one would repeat it. */
static coh_status refuse(const coh_tokenizer *tokenizer)
{
    char why[COH_ERROR_TEXT_BYTES];
    const int begins = tokenizer->before.count > 0;
    const coh_slice begin =
        begins ? coh_token_table_at(&tokenizer->pipeline->names, tokenizer->before.ids[0])
               : (coh_slice){ "", 0 };
    coh_error_save(why);
    return coh_fail(
        COH_ERR_CORRUPT,
        "%.500s; choose a form with %s chatml|llama3|llama2|plain|gemma|qwen3, or write "
        "conversations out with apply_chat_template and give the texts with %s%s%.*s%s",
        why, coh_term_text(COH_TERM_CHAT_FORM), coh_term_text(COH_TERM_CHAT_TEXT),
        begins ? ", without the \"" : "", begin.count < 100 ? (int)begin.count : 100, begin.bytes,
        begins ? "\" that is put before each" : "");
}

static coh_status open_own(coh_chat *chat, const char *path, const char *template_text)
{
    const char *name = strrchr(path, '/');
    const coh_status status =
        coh_chat_template_create(chat->tokenizer, path, template_text, -1, &chat->program);
    if (status == COH_ERR_CORRUPT)
        return refuse(chat->tokenizer);
    COH_TRY(status);
    snprintf(chat->description, sizeof(chat->description),
             "the tokenizer's chat template (%.100s)%s", name ? name + 1 : path,
             coh_chat_end_of_turn(chat) < 0 ? "; no token ends an answer" : "");
    return COH_OK;
}

static coh_status choose_form(coh_chat *chat, const char *folder)
{
    char *template_text = NULL, path[PATH_MAX];
    if (chat->form != COH_CHAT_FORM_AUTO)
        return open_form(chat);
    coh_status status = folder ? coh_chat_template_read(folder, path, &template_text) : COH_OK;
    if (status == COH_ERR_CORRUPT)
        return refuse(chat->tokenizer);
    COH_TRY(status);
    if (!template_text) {
        chat->form = find_form(chat->tokenizer);
        return open_form(chat);
    }
    status = open_own(chat, path, template_text);
    coh_free(template_text);
    return status;
}

coh_status coh_chat_open(coh_tokenizer *tokenizer, const char *folder, coh_chat_form form,
                         coh_chat **out_chat)
{
    coh_chat *chat;
    if (!out_chat)
        return coh_fail(COH_ERR_ARGUMENT, "opening a chat needs a place for it");
    *out_chat = NULL;
    if (!tokenizer)
        return coh_fail(COH_ERR_ARGUMENT, "a chat needs a tokenizer");
    COH_TRY(coh_check_path(__func__, "folder", folder));
    COH_TRY(COH_ALLOC(1, &chat));
    chat->tokenizer = tokenizer;
    chat->form = form;
    const coh_status status = choose_form(chat, folder);
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
    coh_chat_template_close(chat->program);
    coh_free(chat);
}

int coh_chat_writes(const coh_chat *chat, int32_t id)
{
    return coh_chat_template_writes(chat->program, id);
}
