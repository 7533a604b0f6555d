/* jinja_parser.h - the parser's state and its first steps, for the two files that parse:
 * jinja_expressions.c and jinja_parse.c (statements). */
#ifndef COH_TEXT_JINJA_PARSER_H
#define COH_TEXT_JINJA_PARSER_H

#include "text/jinja_tree.h"

typedef coh_jinja_node node;

typedef struct parser {
    coh_jinja *program;
    coh_jinja_lexer lexer;
    coh_jinja_token now, ahead;
    int depth;
    int loops;  /* around the statement; those around a macro or a captured text do not count */
    int macros; /* around the statement */
} parser;

#define REFUSE(p, ...) coh_jinja_refuse((p)->program->where, (p)->now.line, __VA_ARGS__)

/* ---- tokens ---- */

static inline coh_status advance(parser *p)
{
    p->now = p->ahead;
    do
        COH_TRY(coh_jinja_next(&p->lexer, &p->ahead));
    while (p->ahead.kind == COH_JINJA_T_DATA && p->ahead.bytes == 0);
    return COH_OK;
}

static inline int token_is(const coh_jinja_token *t, coh_jinja_token_kind kind, const char *text)
{
    return t->kind == kind && t->bytes == strlen(text) && memcmp(t->begin, text, t->bytes) == 0;
}

static inline int at_sign(const parser *p, const char *sign)
{
    return token_is(&p->now, COH_JINJA_T_SIGN, sign);
}

static inline int at_word(const parser *p, const char *word)
{
    return token_is(&p->now, COH_JINJA_T_NAME, word);
}

static inline coh_status take_sign(parser *p, const char *sign, int *out_is)
{
    *out_is = at_sign(p, sign);
    return *out_is ? advance(p) : COH_OK;
}

static inline coh_status take_word(parser *p, const char *word, int *out_is)
{
    *out_is = at_word(p, word);
    return *out_is ? advance(p) : COH_OK;
}

/* Refuses the current token. */
static inline coh_status unexpected(const parser *p, const char *expected)
{
    const coh_jinja_token *t = &p->now;
    if (t->kind == COH_JINJA_T_END)
        return REFUSE(p, "the template ends where %s is expected", expected);
    if (t->kind == COH_JINJA_T_BLOCK_END || t->kind == COH_JINJA_T_PRINT_END)
        return REFUSE(p, "the code ends where %s is expected", expected);
    const size_t shown = t->bytes < 40 ? t->bytes : 40;
    return REFUSE(p, "\"%.*s\" where %s is expected", (int)shown, t->begin, expected);
}

static inline coh_status expect_sign(parser *p, const char *sign)
{
    char quoted[8] = "\"";
    if (at_sign(p, sign))
        return advance(p);
    strncat(quoted, sign, 3);
    strncat(quoted, "\"", 2);
    return unexpected(p, quoted);
}

static inline coh_status expect_word(parser *p, const char *word)
{
    return at_word(p, word) ? advance(p) : unexpected(p, word);
}

static inline coh_status expect_code_end(parser *p)
{
    return p->now.kind == COH_JINJA_T_BLOCK_END ? advance(p) : unexpected(p, "\"%}\"");
}

/* ---- nodes ---- */

static inline coh_status take_memory(parser *p, size_t bytes, void **out)
{
    if (p->program->arena.taken + bytes > COH_JINJA_TREE_BYTES_MAX)
        return REFUSE(p, "the template is too long");
    return coh_jinja_arena_take(&p->program->arena, bytes, out);
}

static inline coh_status make(parser *p, coh_jinja_node_kind kind, uint32_t line, node **out)
{
    void *memory;
    COH_TRY(take_memory(p, sizeof(**out), &memory));
    *out = memory;
    **out = (node){ .kind = (uint8_t)kind, .height = 1, .line = line };
    return COH_OK;
}

/* Accounts for a child's height: evaluation is recursive. */
static inline coh_status grow(parser *p, node *n, const node *child)
{
    if (!child || child->height < n->height)
        return COH_OK;
    if (child->height >= COH_JINJA_HEIGHT_MAX)
        return REFUSE(p, "the expression has more than %d operators in a row",
                      COH_JINJA_HEIGHT_MAX);
    n->height = (uint16_t)(child->height + 1);
    return COH_OK;
}

static inline coh_status make_of(parser *p, coh_jinja_node_kind kind, uint32_t line, node *first,
                                 node *second, node **out)
{
    COH_TRY(make(p, kind, line, out));
    (*out)->first = first;
    (*out)->second = second;
    COH_TRY(grow(p, *out, first));
    return grow(p, *out, second);
}

/* Appends a child to n->list; *tail is NULL before the first one. */
static inline coh_status append(parser *p, node *n, node **tail, node *child)
{
    if (*tail)
        (*tail)->next = child;
    else
        n->list = child;
    *tail = child;
    n->count++;
    return grow(p, n, child);
}

static inline coh_status enter(parser *p)
{
    if (p->depth++ < COH_JINJA_PARSE_DEPTH_MAX)
        return COH_OK;
    return REFUSE(p, "more than %d levels of nesting", COH_JINJA_PARSE_DEPTH_MAX);
}

static inline coh_status make_constant(parser *p, coh_jinja_value value, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_CONSTANT, p->now.line, out));
    (*out)->value = value;
    return COH_OK;
}

static inline coh_jinja_value token_text(const coh_jinja_token *t)
{
    return coh_jinja_bytes(t->begin, t->bytes, COH_JINJA_OWN);
}

/* ---- expressions ---- */

typedef struct tuple_form {
    int is_simple;      /* only primaries: a target */
    int has_choice;     /* may an item be "a if b else c"? */
    int is_in_brackets; /* may it be empty? */
    int has_members;    /* may an item be a member of a namespace? */
    const char *end;    /* a word that also ends it, or NULL */
} tuple_form;

coh_status coh_jinja_parse_tuple(parser *p, tuple_form form, node **out);
coh_status coh_jinja_parse_expression(parser *p, int has_choice, node **out);
/* A name, a literal or something in brackets. */
coh_status coh_jinja_parse_primary(parser *p, int has_members, node **out);
/* The name of a variable. */
coh_status coh_jinja_parse_name(parser *p, node **out);
/* A filter whose "|" was read. */
coh_status coh_jinja_parse_filter(parser *p, node *of, node **out);

#endif
