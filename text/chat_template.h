/* chat_template.h - writes conversations with a chat template (jinja.h runs it) and finds what the
 * assistant says in the result.
 *
 *   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n     text
 *                  mm                                     mmmmm                 a message's content
 *                                   [------- header -----][---- answer ----]
 *
 * The template is asked three times at the start: for a question, the question with a prompt for
 * generation, and the question with an answer. Their differences are
 *   the header: text before an answer that a prompt for generation ends with,
 *   the lead: text behind it that the model writes, too ("<think>\n\n</think>\n\n", " "),
 *   the tail: text behind an answer, up to the first special token ("\n", " ") if any,
 *   the end: that token ("<|im_end|>", "</s>").
 * In a conversation an answer begins behind the last header before its content (else with its
 * content), and ends behind the end, if the template writes it before the next content; else behind
 * the tail, if that follows; else with its content. A template that marks its answers
 * ({% generation %}) is taken at its word. */
#ifndef COH_TEXT_CHAT_TEMPLATE_H
#define COH_TEXT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

typedef struct coh_chat_template coh_chat_template;

/* Reads a folder's chat template: chat_template.jinja, else chat_template of tokenizer_config.json;
 * a file's path stands for its folder. *out_template: release with coh_free; NULL: it has none.
 * out_path (PATH_MAX bytes): the file that it was in.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT (a malformed file), COH_ERR_MEMORY. */
coh_status coh_chat_template_read(const char *folder, char *out_path, char **out_template);

/* Makes a template of its text; `where` begins messages about it. `begin_of_text` is bos_token for
 * a tokenizer that has none, or -1. The tokenizer must outlive it.
 * Fails: COH_ERR_CORRUPT (it cannot be run here, or refuses a question and its answer),
 * COH_ERR_MEMORY. */
coh_status coh_chat_template_create(coh_tokenizer *tokenizer, const char *where, const char *text,
                                    int32_t begin_of_text, coh_chat_template **out_template);
/* Accepts NULL. */
void coh_chat_template_close(coh_chat_template *chat_template);

/* Appends the ids of a conversation, and for each id a byte: 1 if it overlaps an answer or its end,
 * but not of a message i with learns[i] 0 (`learns` NULL: there is none).
 * Fails: COH_ERR_CORRUPT (the template refuses the conversation), COH_ERR_MEMORY. */
coh_status coh_chat_template_encode(coh_chat_template *chat_template, const coh_chat_turn *messages,
                                    size_t count, const uint8_t *learns, coh_id_list *ids,
                                    coh_byte_list *counts);
/* Appends the ids of a prompt for generation. Fails likewise. */
coh_status coh_chat_template_prompt(coh_chat_template *chat_template, const coh_chat_turn *messages,
                                    size_t count, coh_id_list *ids);

/* The id that ends an answer; -1: none does. */
int32_t coh_chat_template_end_of_turn(const coh_chat_template *chat_template);
/* Does it write this special token around contents? */
int coh_chat_template_writes(const coh_chat_template *chat_template, int32_t id);
/* Blanks that the model writes before an answer, or "". */
const char *coh_chat_template_answer_prefix(const coh_chat_template *chat_template);

#endif
