/* chat_template.h - recognises the form of a chat template, a program in Jinja that is not run, by
 * literal parts of its text. chat.h lists the forms.
 *
 * A template may differ from its form where our conversations never lead, as in turns of tools. It
 * may not write text that the form leaves out: literal text in a turn of the system or the user
 * makes the form unknown, except a ChatML template's default system prompt and the lines of
 * Llama 3.1 that chat.h names. */
#ifndef COH_TEXT_CHAT_TEMPLATE_H
#define COH_TEXT_CHAT_TEMPLATE_H

#include "cohobate/status.h"

/* Does a template write ChatML in our form, judged by its literal parts? *out_has_begin: bos_token
 * precedes the first turn. A default system prompt that is more than text, or two of them, make it
 * another form, since coh_chat_default_system could not return it. */
int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin);
/* Does it write ChatML with Qwen3's blocks of reasoning (chat.h)? */
int coh_chat_template_is_qwen3(const char *template_text);
/* Does it write Gemma's form? *out_refuses_system: it raises an exception for a conversation that
 * begins with a system prompt. */
int coh_chat_template_is_gemma(const char *template_text, int *out_refuses_system);
/* Does it write Llama 3's form, judged by its literal parts? */
int coh_chat_template_is_llama3(const char *template_text);
/* Does it begin with Llama 3.1's lines about its knowledge and today? In a template of that form
 * today is 26 Jul 2024. */
int coh_chat_template_has_date(const char *template_text);
/* The default system prompt in a ChatML template, of several the first, decoded as Jinja writes it;
 * release with coh_free. NULL: none. Fails: COH_ERR_MEMORY. */
coh_status coh_chat_default_system(const char *template_text, char **out_system);

#endif
