/* chat_template.h - recognises the form of a chat template, a program in Jinja that is not run, by
 * literal parts of its text. chat.h lists the forms. */
#ifndef COH_TEXT_CHAT_TEMPLATE_H
#define COH_TEXT_CHAT_TEMPLATE_H

#include "cohobate/status.h"

/* Does a template write ChatML in our form, judged by its literal parts? *out_has_begin: bos_token
 * precedes the first turn. */
int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin);
/* Does it write Llama 3's form, judged by its literal parts? */
int coh_chat_template_is_llama3(const char *template_text);
/* The default system prompt in a ChatML template; release with coh_free. NULL: none. */
coh_status coh_chat_default_system(const char *template_text, char **out_system);

#endif
