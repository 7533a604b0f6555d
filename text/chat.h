/* chat.h - encodes conversations as ids in the well-known chat formats, and marks the assistant's
 * ids. A prompt for generation ends where the assistant's part would begin.
 *
 *   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n        ChatML
 *                                                          +++++ ++++++++++         counts
 *
 * A tokenizer's own chat template is run where it has one (chat_template.h), and the ids are those
 * of transformers' apply_chat_template. Without one, special tokens of the vocabulary determine the
 * form, which the caller may also name:
 *
 *   form      recognised by                                    written as by the templates of
 *   ChatML    <|im_start|> and <|im_end|>                      Qwen2, Qwen2.5, SmolLM, SmolLM2
 *   Llama 3   <|start_header_id|>, ..end_header.., <|eot_id|>  Llama 3
 *   Llama 2   <s>, </s> and <0x0A>                             Llama 2 Chat
 *   Gemma     <start_of_turn> and <end_of_turn>                Gemma 3
 *   Qwen3     named only; ChatML's tokens and <think>          Qwen3
 *   plain     none of these                                    ours: "user: Hi\nassistant: Hello",
 *                                                              end of text after each answer;
 *                                                              begun as a text is
 *
 * without a default system prompt. */
#ifndef COH_TEXT_CHAT_H
#define COH_TEXT_CHAT_H

#include "text/tokenizer.h"

/* For opening, closing and prompts for generation see cohobate/text.h. */

/* Is `id` a special token that the form itself writes? */
int coh_chat_writes(const coh_chat *chat, int32_t id);

/* Appends the ids of a whole conversation, and for each id a byte: 1 if it is the assistant's,
 * including the token that ends the assistant's turn. `learns`: for each message; 0: an answer in
 * it is not marked; NULL: all are. Fails: COH_ERR_CORRUPT, the message without a place (roles in an
 * order that the form cannot express), COH_ERR_MEMORY. */
coh_status coh_chat_encode(coh_chat *chat, const coh_chat_turn *messages, size_t count,
                           const uint8_t *learns, coh_id_list *ids, coh_byte_list *counts);

#endif
