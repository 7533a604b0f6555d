/* Finds the form of a chat template by literal parts of its text: it is a program, which is not
 * run, and anything unfamiliar means that the form is unknown. The one idea: from a turn's header
 * on, literals are read as Jinja writes them, up to the first expression or statement; text there
 * that our forms do not write makes the form unknown. Next: chat.c, the caller. */
#include "text/chat_template.h"

#include <string.h>

#include "base/alloc.h"

#define BLANKS     " \t\n\r\v\f"
#define NAME_SIGNS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

/* ---- the text of a template ---- */

typedef enum place_part {
    PART_TEXT, /* outside of {{ }}, {% %} and {# #} */
    PART_CODE,
    PART_LITERAL, /* a string in code */
} place_part;

/* A place in a template. */
typedef struct place {
    const char *at;
    place_part part;
    const char *code; /* begin of the current code */
    char code_end;    /* '}' of "}}", '%' of "%}" */
    int depth;        /* open brackets in the code */
    char quote;       /* of the literal */
} place;

static int is_quote(char sign)
{
    return sign == '\'' || sign == '"';
}

static void enter_code(place *p)
{
    p->part = PART_CODE;
    p->code_end = p->at[1] == '%' ? '%' : '}';
    p->depth = 0;
    p->at += 2;
    p->at += *p->at == '-' || *p->at == '+';
    p->code = p->at;
}

/* The length of "}}", "-}}" and so on if it ends the code here; else 0. */
static size_t code_end(const place *p)
{
    const size_t sign = *p->at == '-' || *p->at == '+';
    const char *at = p->at + sign;
    return p->depth == 0 && at[0] == p->code_end && at[1] == '}' ? sign + 2 : 0;
}

static void step_in_text(place *p)
{
    if (p->at[0] == '{' && (p->at[1] == '{' || p->at[1] == '%')) {
        enter_code(p);
    } else if (p->at[0] == '{' && p->at[1] == '#') {
        const char *end = strstr(p->at + 2, "#}");
        p->at = end ? end + 2 : p->at + strlen(p->at);
    } else {
        p->at++;
    }
}

static void step_in_code(place *p)
{
    const size_t end = code_end(p);
    if (end) {
        p->part = PART_TEXT;
        p->at += end;
        return;
    }
    if (is_quote(*p->at)) {
        p->part = PART_LITERAL;
        p->quote = *p->at;
    }
    p->depth += strchr("([{", *p->at) != NULL;
    p->depth -= strchr(")]}", *p->at) != NULL;
    p->at++;
}

/* Moves by one sign, or over the begin or end of code; not at the end of the template. */
static void step(place *p)
{
    switch (p->part) {
    case PART_TEXT:
        step_in_text(p);
        break;
    case PART_CODE:
        step_in_code(p);
        break;
    case PART_LITERAL:
        if (*p->at == p->quote)
            p->part = PART_CODE;
        p->at += p->at[0] == '\\' && p->at[1] ? 2 : 1;
        break;
    }
}

/* Moves behind the next `text` that is not in code; returns 0 if there is none. */
static int find_text(place *p, const char *text)
{
    const size_t bytes = strlen(text);
    for (; *p->at; step(p)) {
        if (p->part == PART_CODE || strncmp(p->at, text, bytes) != 0)
            continue;
        p->at += bytes;
        return 1;
    }
    return 0;
}

/* ---- what it writes whatever the messages are ---- */

/* Results of next_byte that are no byte. */
enum {
    BYTE_NONE = -1,   /* an expression, a statement or the end of the template is next */
    BYTE_UNKNOWN = -2 /* an escape or a line end that is not decoded here */
};

/* Moves from code that follows a literal, or begins an expression, to the text that is written
 * next: another literal, or text behind the code. Returns 0 if something else is next. */
static int skip_code(place *p)
{
    p->at += strspn(p->at, BLANKS);
    const size_t end = code_end(p);
    if (end) {
        const int strips = *p->at == '-';
        if (p->code_end == '%')
            return 0;
        step(p);
        p->at += strips ? strspn(p->at, BLANKS) : 0;
        return 1;
    }
    if (*p->at == '+' || *p->at == '~')
        p->at += 1 + strspn(p->at + 1, BLANKS);
    if (!is_quote(*p->at))
        return 0;
    step(p);
    return 1;
}

/* Moves over blanks that "{{-" removes, and into its code; likewise "{{". Returns 0 if a statement
 * or a comment is next, with the blanks that it removes. */
static int skip_to_code(place *p)
{
    const char *code = p->at + strspn(p->at, BLANKS);
    const int strips = code[0] == '{' && code[1] && code[2] == '-';
    const char *indented = p->at + strspn(p->at, " \t"); /* lstrip_blocks */
    if (p->at[-1] == '\n' && indented[0] == '{' && indented[1] != '{')
        code = indented;
    else if (!strips && code > p->at)
        return 1;
    if (code[0] != '{')
        return 1;
    if (code[1] == '%' || code[1] == '#')
        return 0;
    if (code[1] == '{') {
        p->at = code;
        step(p);
    }
    return 1;
}

/* The byte of an escape in a literal, as Python has it. */
static int decode_escape(place *p)
{
    static const char signs[] = "ntr\\'\"", bytes[] = "\n\t\r\\'\"";
    const char *sign = p->at[1] ? strchr(signs, p->at[1]) : NULL;
    if (!sign)
        return BYTE_UNKNOWN;
    p->at += 2;
    return (unsigned char)bytes[sign - signs];
}

/* The next byte that is written at `p`, which moves behind it. */
static int next_byte(place *p)
{
    for (;;) {
        if (p->part == PART_TEXT && !skip_to_code(p))
            return BYTE_NONE;
        if (p->part == PART_CODE) {
            if (!skip_code(p))
                return BYTE_NONE;
            continue;
        }
        if (*p->at == '\0')
            return BYTE_NONE;
        if (*p->at == '\r') /* Jinja writes "\n" */
            return BYTE_UNKNOWN;
        if (p->part == PART_LITERAL && *p->at == p->quote) {
            step(p);
            continue;
        }
        if (p->part == PART_LITERAL && *p->at == '\\')
            return decode_escape(p);
        return (unsigned char)*p->at++;
    }
}

/* Moves behind `text` if it is written next; else returns 0. */
static int take(place *p, const char *text)
{
    place q = *p;
    for (; *text; text++)
        if (next_byte(&q) != (unsigned char)*text)
            return 0;
    *p = q;
    return 1;
}

/* ---- variables ---- */

static int names_system(const char *begin, const char *end)
{
    static const char word[] = "system";
    for (; end - begin >= (ptrdiff_t)sizeof(word) - 1; begin++)
        if (strncmp(begin, word, sizeof(word) - 1) == 0)
            return 1;
    return 0;
}

/* Is the literal that begins at `p` given to a variable whose name speaks of the system prompt, as
 * in {% set system_message = 'You are ...' %}? */
static int is_default_of_variable(const place *p)
{
    const char *end = p->at, *name = p->code + strspn(p->code, BLANKS);
    if (p->at[1] == p->at[0]) /* empty */
        return 0;
    while (end > p->code && strchr(BLANKS, end[-1]))
        end--;
    if (end - p->code > 4 && strncmp(end - 4, "else", 4) == 0 && strncmp(name, "set ", 4) == 0)
        return names_system(name + 4, name + 4 + strcspn(name + 4, "="));
    if (end == p->code || end[-1] != '=')
        return 0;
    for (end--; end > p->code && strchr(BLANKS, end[-1]);)
        end--;
    for (name = end; name > p->code && strchr(NAME_SIGNS, name[-1]);)
        name--;
    return names_system(name, end);
}

/* Has it a default system prompt in a variable? It would be lost. */
static int has_default_variable(const char *template_text)
{
    for (place p = { .at = template_text }; *p.at; step(&p))
        if (p.part == PART_CODE && is_quote(*p.at) && is_default_of_variable(&p))
            return 1;
    return 0;
}

/* ---- roles ---- */

/* The text behind an expression for the role at `at`, which follows the token that opens a turn;
 * NULL if it is none. */
static const char *behind_role(const char *at)
{
    at += strspn(at, "'\"+-{} ");
    size_t name = strspn(at, NAME_SIGNS ".");
    const char *role = at + name;
    if (*role == '[')
        role += strspn(role, "['\"");
    else
        role = name >= 4 ? at + name - 4 : at;
    if (strncmp(role, "role", 4) != 0)
        return NULL;
    role += 4;
    return role + strspn(role, "'\"]+-{} ");
}

/* Does `template_text` contain one of `words`, which NULL ends? */
static int has_word(const char *template_text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(template_text, *words))
            return 1;
    return 0;
}

/* ---- ChatML ---- */

#define CHATML_TURN "<|im_start|>"

typedef enum system_turn {
    SYSTEM_NONE, /* another turn, or one whose text is an expression */
    SYSTEM_LITERAL,
    SYSTEM_UNKNOWN,
} system_turn;

/* Reads the turn that begins at `p`. If its text is literal, `p` moves to it; *out_bytes long. */
static system_turn read_turn(place *p, size_t *out_bytes)
{
    *out_bytes = 0;
    if (!take(p, "system"))
        return SYSTEM_NONE;
    int byte = next_byte(p);
    if (byte != '\n')
        return byte == BYTE_UNKNOWN ? SYSTEM_UNKNOWN : SYSTEM_NONE;
    for (place q = *p; !take(&q, "<|im_end|>"); ++*out_bytes) {
        byte = next_byte(&q);
        if (byte < 0)
            return byte == BYTE_NONE && *out_bytes == 0 ? SYSTEM_NONE : SYSTEM_UNKNOWN;
    }
    return SYSTEM_LITERAL;
}

static int is_same(place a, place b, size_t bytes)
{
    while (bytes > 0 && next_byte(&a) == next_byte(&b))
        bytes--;
    return bytes == 0;
}

/* Finds the default system prompt; out_place->at is NULL if there is none. Returns 0 if it is more
 * than literal text, or there are two different ones. */
static int find_default(const char *template_text, place *out_place, size_t *out_bytes)
{
    *out_place = (place){ 0 };
    *out_bytes = 0;
    for (place p = { .at = template_text }; find_text(&p, CHATML_TURN);) {
        place turn = p;
        size_t bytes;
        const system_turn found = read_turn(&turn, &bytes);
        if (found == SYSTEM_NONE)
            continue;
        if (found == SYSTEM_UNKNOWN)
            return 0;
        if (out_place->at && (bytes != *out_bytes || !is_same(turn, *out_place, bytes)))
            return 0;
        *out_place = turn;
        *out_bytes = bytes;
    }
    return 1;
}

coh_status coh_chat_default_system(const char *template_text, char **out_system)
{
    place prompt;
    size_t bytes;
    *out_system = NULL;
    (void)find_default(template_text, &prompt, &bytes); /* of several, the first */
    if (!prompt.at)
        return COH_OK;
    COH_TRY(coh_alloc(bytes + 1, 1, (void **)out_system));
    for (size_t i = 0; i < bytes; i++)
        (*out_system)[i] = (char)next_byte(&prompt);
    return COH_OK;
}

/* Is "<|im_start|>" followed by an expression for the role, and a line end? */
static int is_role_line(const char *at)
{
    const char *end = behind_role(at);
    return end && (end[0] == '\n' || (end[0] == '\\' && end[1] == 'n'));
}

/* Does some turn of ChatML begin with a role that the messages give? */
static int has_role_line(const char *template_text)
{
    int has_role = 0;
    for (place p = { .at = template_text }; find_text(&p, CHATML_TURN);)
        has_role |= is_role_line(p.at);
    return has_role;
}

int coh_chat_template_is_chatml(const char *template_text, int *out_has_begin)
{
    /* Each of these would change the text of the same messages, or what is code. */
    static const char *const others[] = { "<|im_sep|>", "think", "trim", "strip(", "endraw", NULL };
    const char *begin = strstr(template_text, "bos_token");
    const char *first = strstr(template_text, CHATML_TURN);
    place prompt;
    size_t bytes;
    *out_has_begin = begin && first && begin < first;
    return has_role_line(template_text) && strstr(template_text, "<|im_end|>") &&
           !has_word(template_text, others) && find_default(template_text, &prompt, &bytes) &&
           !has_default_variable(template_text);
}

/* ---- Qwen3 ---- */

/* Does `template_text` contain all of `words`, which NULL ends? */
static int has_words(const char *template_text, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(template_text, *words))
            return 0;
    return 1;
}

int coh_chat_template_is_qwen3(const char *template_text)
{
    /* How the template finds the last question, and the reasoning in an answer. */
    static const char *const words[] = { "last_query_index",
                                         "startswith('<tool_response>')",
                                         "reasoning_content",
                                         "split('</think>')",
                                         "'\\n<think>\\n' + reasoning_content.strip('\\n')",
                                         "enable_thinking",
                                         "<|im_end|>",
                                         NULL };
    static const char *const others[] = { "<|im_sep|>", "trim", "endraw", "bos_token", NULL };
    place prompt;
    size_t bytes;
    return has_role_line(template_text) && has_words(template_text, words) &&
           !has_word(template_text, others) && find_default(template_text, &prompt, &bytes) &&
           !prompt.at && !has_default_variable(template_text);
}

/* ---- Gemma ---- */

int coh_chat_template_is_gemma(const char *template_text, int *out_refuses_system)
{
    static const char *const words[] = { "<end_of_turn>", "trim", NULL };
    static const char *const assistants[] = { "'model'", "\"model\"", NULL };
    /* Gemma 3 puts the system prompt before the first question, Gemma 2 refuses it. */
    static const char *const prefixes[] = { "'\\n\\n'", "[1:]", NULL };
    static const char *const no_prefix[] = { "first_user_prefix = ''", "first_user_prefix = \"\"",
                                             NULL };
    static const char *const others[] = { "think", "tool", "endraw", NULL };
    const char *begin = strstr(template_text, "bos_token");
    const char *first = strstr(template_text, "<start_of_turn>");
    int has_role = 0;
    for (place p = { .at = template_text }; find_text(&p, "<start_of_turn>");) {
        place turn = p;
        if (is_role_line(p.at))
            has_role = 1;
        else if (!take(&turn, "model\n") || next_byte(&turn) != BYTE_NONE)
            return 0;
    }
    *out_refuses_system = strstr(template_text, "System role not supported") != NULL;
    return has_role && begin && begin < first && has_words(template_text, words) &&
           has_word(template_text, assistants) &&
           (*out_refuses_system ||
            (has_words(template_text, prefixes) && has_word(template_text, no_prefix))) &&
           !has_word(template_text, others) && !has_default_variable(template_text);
}

/* ---- Llama 3 ---- */

#define HEADER_END "<|end_header_id|>"
#define KNOWLEDGE  "Cutting Knowledge Date"

/* Is the turn that begins at `p` one of a role that the messages give? */
static int is_role_turn(place p)
{
    const char *end = behind_role(p.at);
    return end && strncmp(end, HEADER_END, sizeof(HEADER_END) - 1) == 0 &&
           find_text(&p, HEADER_END) && take(&p, "\n\n") && next_byte(&p) == BYTE_NONE;
}

/* Does the turn that begins at `p` have a system's or user's text of the template itself? */
static int is_own_turn(place p)
{
    static const struct {
        const char *role, *known;
    } headers[] = {
        { "system" HEADER_END, KNOWLEDGE },
        { "user" HEADER_END, "Given the following functions" }, /* Llama 3.1's, for tools */
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        if (!take(&p, headers[i].role))
            continue;
        if (!take(&p, "\n\n"))
            return 1;
        place text = p;
        return next_byte(&text) != BYTE_NONE && !take(&p, headers[i].known);
    }
    return 0;
}

int coh_chat_template_has_date(const char *template_text)
{
    return strstr(template_text, KNOWLEDGE ": December 2023") != NULL;
}

int coh_chat_template_is_llama3(const char *template_text)
{
    static const char *const strips[] = { "trim", "strip(", NULL };
    static const char *const others[] = { "think", "endraw", NULL };
    int has_role = 0;
    for (place p = { .at = template_text }; find_text(&p, "<|start_header_id|>");) {
        has_role |= is_role_turn(p);
        if (is_own_turn(p))
            return 0;
    }
    return has_role && strstr(template_text, "<|eot_id|>") && has_word(template_text, strips) &&
           !has_word(template_text, others) && !has_default_variable(template_text) &&
           (!strstr(template_text, KNOWLEDGE) ||
            (coh_chat_template_has_date(template_text) && strstr(template_text, "26 Jul 2024")));
}
