/* Finds the form of a chat template by literal parts of its text: it is a program, which is not run,
 * and anything unfamiliar means that the form is unknown. Next: chat.c, the caller. */
#include "text/chat_template.h"

#include <string.h>

#include "base/alloc.h"

/* ---- ChatML ---- */

/* Is "<|im_start|>" followed by an expression for the role, and a line end? */
static int is_role_line(const char *at)
{
    static const char name_signs[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";
    at += strspn(at, "'\"+-{} ");
    size_t name = strspn(at, name_signs);
    const char *role = at + name;
    if (*role == '[')
        role += strspn(role, "['\"");
    else
        role = name >= 4 ? at + name - 4 : at;
    if (strncmp(role, "role", 4) != 0)
        return 0;
    role += 4 + strspn(role + 4, "'\"]+-{} ");
    return role[0] == '\n' || (role[0] == '\\' && role[1] == 'n');
}

int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin)
{
    static const char opening[] = "<|im_start|>";
    /* Each of these would change the text of the same messages. */
    static const char *const others[] = { "<|im_sep|>", "think", "trim", "strip(" };
    const char *begin = strstr(template_text, "bos_token");
    const char *first = strstr(template_text, opening);
    int has_role = 0;
    *out_has_begin = begin && first && begin < first;
    for (const char *at = first; at; at = strstr(at, opening)) {
        at += sizeof(opening) - 1;
        has_role |= is_role_line(at);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        has_role &= strstr(template_text, others[i]) == NULL;
    return has_role && strstr(template_text, "<|im_end|>");
}

/* ---- Llama 3 ---- */

int coh_chat_template_is_llama3(const char *template_text)
{
    return strstr(template_text, "<|start_header_id|>") &&
           strstr(template_text, "<|end_header_id|>") && strstr(template_text, "<|eot_id|>") &&
           (strstr(template_text, "trim") || strstr(template_text, "strip("));
}

/* ---- the default system prompt ---- */

/* The length of the text from `at` to <|im_end|> if it is plain text and not code; else 0. */
static size_t plain_text(const char *at)
{
    const char *end = strstr(at, "<|im_end|>");
    size_t count = strcspn(at, "'\"{}%+");
    return end && (size_t)(end - at) <= count ? (size_t)(end - at) : 0;
}

/* Turns "\\n" inside a string of Jinja's into a line end. */
static void unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (text[0] == '\\' && text[1] == 'n') {
            *to++ = '\n';
            text++;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

coh_status coh_chat_default_system(const char *template_text, char **out_system)
{
    static const char opening[] = "<|im_start|>system";
    *out_system = NULL;
    for (const char *at = template_text; (at = strstr(at, opening)) != NULL;) {
        at += sizeof(opening) - 1;
        if (at[0] == '\n')
            at += 1;
        else if (at[0] == '\\' && at[1] == 'n')
            at += 2;
        else
            continue;
        size_t count = plain_text(at);
        if (count == 0)
            continue;
        COH_TRY(coh_alloc(count + 1, 1, (void **)out_system));
        memcpy(*out_system, at, count);
        unescape(*out_system);
        return COH_OK;
    }
    return COH_OK;
}
