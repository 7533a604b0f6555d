/* chat.h - conversations as ids: the well-known chat formats, and which ids the assistant said. A
 * prompt for generation ends where the assistant's part would begin.
 *
 *   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n        ChatML
 *                                                          +++++ ++++++++++         counts
 *
 * A tokenizer's own chat template is a program (Jinja) and is not run. Which of the forms below it
 * has is told by the special tokens of the vocabulary and by literal parts of the template; ids are
 * then those that transformers' apply_chat_template gives for the templates named here, without a
 * generation prompt:
 *
 *   form      told by                                          templates
 *   ChatML    <|im_start|> and <|im_end|>                      Qwen2, Qwen2.5, SmolLM, SmolLM2
 *   Llama 3   <|start_header_id|>, ..end_header.., <|eot_id|>  Llama 3, 3.1; 3.2 where it is given
 *                                                              date_string='26 Jul 2024'
 *   Llama 2   <<SYS>> in the template; where there is none,    Llama 2 Chat
 *             <s>, </s> and <0x0A>
 *   plain     none of these, and no template                   ours: "user: Hi\nassistant: Hello",
 *                                                              end of text after each answer;
 *                                                              begun as a text is
 *
 * A template that is none of them is refused: the model would learn conversations that nobody ever
 * gives it. The caller may name a form instead. Of the template's text there are looked up, too:
 * whether ChatML begins with bos_token and has a system prompt for conversations without one; and
 * the two lines that Llama 3.1 puts before every system prompt. */
#ifndef COH_TEXT_CHAT_H
#define COH_TEXT_CHAT_H

#include "text/tokenizer.h"

/* Opening, closing and prompts for generation: cohobate/text.h. */

typedef struct coh_chat_message {
    coh_chat_role role;
    coh_slice content; /* UTF-8 */
} coh_chat_message;

/* Is `id` a special token that the form itself writes? */
int coh_chat_writes(const coh_chat *chat, int32_t id);

/* Appends the ids of a whole conversation, and for each a byte: 1 where it is the assistant's, the
 * token that ends its turn included. Fails: COH_ERR_CORRUPT, the sentence without a place (roles
 * in an order that the form has no way to write), COH_ERR_MEMORY. */
coh_status coh_chat_encode(coh_chat *chat, const coh_chat_message *messages, size_t count,
                           coh_id_list *ids, coh_byte_list *counts);

/* ---- parts (chat_template.c) ---- */

/* Without the white space at both ends, as Python's str.strip. */
coh_slice coh_chat_strip(coh_slice text);
/* The text of the chat template that a folder has, and the file where it stands (PATH_MAX bytes);
 * NULL: it has none. Release with coh_free. */
coh_status coh_chat_template_read(const char *folder, char *out_path, char **out_template);
/* Whether a template writes ChatML as it is written here, by its literal parts; *out_has_begin:
 * bos_token stands before the first turn. */
int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin);
/* Whether it writes Llama 3's form, likewise. */
int coh_chat_template_is_llama3(const char *template_text);
/* The system prompt that a ChatML template spells out, release with coh_free; NULL: it has none. */
coh_status coh_chat_default_system(const char *template_text, char **out_system);

#endif
