/* Reads a conversation that the assistant is to answer from JSON. The one idea: it has the forms of
 * a conversation that is learned, so what was put aside for validation can be asked. Next:
 * conversations.c for the forms, chat.c for the ids. */
#include "base/json.h"
#include "text/chat.h"
#include "text/conversations.h"

/* A list of messages becomes the member of an object. */
static coh_status parse(const char *json, json_t **out_object)
{
    json_error_t error;
    json_t *value =
        coh_json_decode(json, strlen(json),
                        JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    *out_object = value;
    if (!value && json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "no memory for a conversation");
    if (!value)
        return coh_fail(COH_ERR_CORRUPT, "the conversation is no JSON (%s): correct it",
                        error.text);
    if (json_is_object(value))
        return COH_OK;
    *out_object = json_object();
    if (*out_object && json_object_set_new_nocheck(*out_object, "messages", value) == 0)
        return COH_OK;
    if (!*out_object)
        json_decref(value);
    return coh_fail(COH_ERR_MEMORY, "no memory for a conversation");
}

static coh_status put_system(coh_conversation *c, const char *system)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->turns[i].role == COH_CHAT_SYSTEM)
            return coh_fail(COH_ERR_ARGUMENT, "the conversation has its own system prompt, and "
                                              "another was given: leave one of them out");
    COH_TRY(COH_GROW(&c->turns, &c->capacity, c->count + 1));
    memmove(c->turns + 1, c->turns, c->count * sizeof(*c->turns));
    c->turns[0] = (coh_chat_turn){ COH_CHAT_SYSTEM, system, strlen(system) };
    c->count++;
    return COH_OK;
}

/* The turns belong to the object. */
static coh_status read_turns(json_t *object, const char *system, coh_conversation *c,
                             size_t *out_left_out)
{
    COH_TRY(coh_conversation_read_turns(object, c));
    if (system)
        COH_TRY(put_system(c, system));
    for (; c->count > 0 && c->turns[c->count - 1].role == COH_CHAT_ASSISTANT; c->count--)
        ++*out_left_out;
    return COH_OK;
}

coh_status coh_chat_prompt_json(coh_chat *chat, const char *json, const char *system,
                                int32_t **out_ids, size_t *out_count, size_t *out_left_out)
{
    coh_conversation conversation = { 0 };
    json_t *object = NULL;
    coh_status status;
    if (!chat || !json || !out_ids || !out_count || !out_left_out)
        return coh_fail(COH_ERR_ARGUMENT, "a prompt needs a chat, JSON and places for its results");
    *out_ids = NULL;
    *out_count = *out_left_out = 0;
    COH_TRY_GOTO(status, parse(json, &object), done);
    COH_TRY_GOTO(status, read_turns(object, system, &conversation, out_left_out), done);
    /* An empty array of turns is not NULL. */
    const coh_chat_turn none = { 0 };
    status = coh_chat_prompt(chat, conversation.count ? conversation.turns : &none,
                             conversation.count, out_ids, out_count);
done:
    coh_conversation_fini(&conversation);
    json_decref(object);
    return status;
}
