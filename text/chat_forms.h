/* chat_forms.h - the forms of conversations that have names, each as a chat template. They serve
 * tokenizers without a template of their own, and the caller who names one (chat.h lists them). */
#ifndef COH_TEXT_CHAT_FORMS_H
#define COH_TEXT_CHAT_FORMS_H

#include "cohobate/text.h"

enum { COH_CHAT_FORM_TOKENS = 4 };

typedef struct coh_chat_form_facts {
    const char *description, *template_text;
    const char *tokens[COH_CHAT_FORM_TOKENS]; /* of the vocabulary that it needs */
    const char *begin_of_text;                /* bos_token of a tokenizer that names none */
    const char *begun_text; /* template_text behind bos_token, if it writes none itself */
} coh_chat_form_facts;

/* NULL: there is no such form, or it is AUTO. */
const coh_chat_form_facts *coh_chat_form_find(coh_chat_form form);

#endif
