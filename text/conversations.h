/* conversations.h - reads the turns of a conversation from a JSON object, in the forms that data
 * sets have:
 *
 *     {"messages": [{"role": "user", "content": "Hi"}, ...]}          OpenAI's
 *     {"conversations": [{"from": "human", "value": "Hi"}, ...]}      ShareGPT's
 *     {"prompt": "Hi", "completion": "Hello"}                         TRL's; or lists of messages
 *     {"instruction": "Add", "input": "1, 2", "output": "3"}          Alpaca's
 *
 * A member whose text would be lost is refused. docs/data.md describes the forms. */
#ifndef COH_TEXT_CONVERSATIONS_H
#define COH_TEXT_CONVERSATIONS_H

#include <jansson.h>

#include "cohobate/text.h"
#include "text/bad_lines.h"

typedef struct coh_conversation {
    coh_chat_turn *turns; /* their texts belong to the object */
    size_t count, capacity;
    uint8_t *learns; /* for each turn: 0: an answer does not count (of a prompt, or weight 0) */
    size_t learn_capacity;
    size_t prompt_count; /* the first turns that are a prompt */
    coh_bad_line fault;  /* after a failure: what the object lacks */
} coh_conversation;

/* Returns what a value is, for messages: "an array"; NULL: "nothing". */
const char *coh_value_name(const json_t *value);

/* Returns the members by which the object is a conversation, quoted; NULL: it is none. */
const char *coh_conversation_name(const json_t *object);

/* Returns the name of the first member that is a list of objects, such as "data" of an object that
 * holds a whole data set; NULL: none is. */
const char *coh_list_name(const json_t *object);

/* Reads the turns; `out_conversation` is zeroed or was read before. Replaces a content of several
 * parts in the object by their text. Fails: COH_ERR_CORRUPT, the message without a place,
 * COH_ERR_MEMORY. */
coh_status coh_conversation_read(json_t *object, coh_conversation *out_conversation);
/* Likewise one that is to be answered: none of its turns needs to be the assistant's. */
coh_status coh_conversation_read_turns(json_t *object, coh_conversation *out_conversation);
void coh_conversation_fini(coh_conversation *conversation); /* accepts a zeroed struct */

#endif
