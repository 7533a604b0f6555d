/* chat.h - encodes conversations as ids in the well-known chat formats, and marks the assistant's
 * ids. A prompt for generation ends where the assistant's part would begin.
 *
 *   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n        ChatML
 *                                                          +++++ ++++++++++         counts
 *
 * A tokenizer's own chat template is a program (Jinja) and is not run. The special tokens of the
 * vocabulary and literal parts of the template determine its form. The ids are those of
 * transformers' apply_chat_template for the templates named here, without a generation prompt:
 *
 *   form      recognised by                                    templates
 *   ChatML    <|im_start|> and <|im_end|>                      Qwen2, Qwen2.5, SmolLM, SmolLM2
 *   Llama 3   <|start_header_id|>, ..end_header.., <|eot_id|>  Llama 3, 3.1; 3.2 if it is given
 *                                                              date_string='26 Jul 2024'
 *   Llama 2   <<SYS>> in the template; where there is none,    Llama 2 Chat
 *             <s>, </s> and <0x0A>
 *   Gemma     <start_of_turn> and <end_of_turn>                Gemma 2, Gemma 3
 *   Qwen3     <think>, </think> and what the template does     Qwen3
 *             with them; ChatML's tokens
 *   plain     none of these, and no template                   ours: "user: Hi\nassistant: Hello",
 *                                                              end of text after each answer;
 *                                                              begun as a text is
 *
 * Any other template is refused, since training and use would differ; the caller may name a form
 * instead. The template's text is also searched for four facts: whether ChatML begins with
 * bos_token, its default system prompt, the two lines that Llama 3.1 puts before every system
 * prompt, and whether Gemma's refuses a system prompt (chat_template.h). */
#ifndef COH_TEXT_CHAT_H
#define COH_TEXT_CHAT_H

#include "text/tokenizer.h"

/* For opening, closing and prompts for generation see cohobate/text.h. */

/* Is `id` a special token that the form itself writes? */
int coh_chat_writes(const coh_chat *chat, int32_t id);

/* Appends the ids of a whole conversation, and for each id a byte: 1 if it is the assistant's,
 * including the token that ends the assistant's turn. Fails: COH_ERR_CORRUPT, the message without a
 * place (roles in an order that the form cannot express), COH_ERR_MEMORY. */
coh_status coh_chat_encode(coh_chat *chat, const coh_chat_turn *messages, size_t count,
                           coh_id_list *ids, coh_byte_list *counts);

/* ---- parts ---- */

/* Strips white space at both ends, as Python's str.strip. */
coh_slice coh_chat_strip(coh_slice text);

#endif
