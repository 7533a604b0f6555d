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
    int loops; /* around the statement; those around a macro or a captured text do not count */
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

/* Is it this name or sign? */
static inline int token_is(const coh_jinja_token *t, const char *text)
{
    return (t->kind == COH_JINJA_T_NAME || t->kind == COH_JINJA_T_SIGN) &&
           t->bytes == strlen(text) && memcmp(t->begin, text, t->bytes) == 0;
}

static inline int is_at(const parser *p, const char *text)
{
    return token_is(&p->now, text);
}

static inline coh_status take(parser *p, const char *text, int *out_is)
{
    *out_is = is_at(p, text);
    return *out_is ? advance(p) : COH_OK;
}

/* Refuses the current token. */
static inline coh_status unexpected(const parser *p, const char *expected)
{
    const coh_jinja_token *t = &p->now;
    if (t->kind <= COH_JINJA_T_PRINT_END)
        return REFUSE(p, "the code ends where %s is expected", expected);
    return REFUSE(p, "\"%.*s\" where %s is expected", (int)(t->bytes < 40 ? t->bytes : 40),
                  t->begin, expected);
}

static inline coh_status expect(parser *p, const char *text)
{
    return is_at(p, text) ? advance(p) : unexpected(p, text);
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
    **out = (node){ .kind = (uint8_t)kind, .line = line };
    return COH_OK;
}

static inline coh_status make_of(parser *p, coh_jinja_node_kind kind, uint32_t line, node *first,
                                 node *second, node **out)
{
    COH_TRY(make(p, kind, line, out));
    (*out)->first = first;
    (*out)->second = second;
    return COH_OK;
}

/* Appends a child to n->list; *tail is NULL before the first one. */
static inline void append(node *n, node **tail, node *child)
{
    if (*tail)
        (*tail)->next = child;
    else
        n->list = child;
    *tail = child;
    n->count++;
}

static inline coh_status enter(parser *p)
{
    if (p->depth++ < COH_JINJA_PARSE_DEPTH_MAX)
        return COH_OK;
    return REFUSE(p, "more than %d levels of nesting", COH_JINJA_PARSE_DEPTH_MAX);
}

/* `what` is refused when it is reached. */
static inline coh_status make_unknown(parser *p, const char *what, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_UNKNOWN, p->now.line, out));
    (*out)->value = coh_jinja_text_value(what);
    return COH_OK;
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
