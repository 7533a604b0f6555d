/* jinja_tree.h - a template as a tree: its tokens (jinja_tokens.c), nodes (jinja_parse.c) and
 * names. Private to jinja_*.c.
 *
 *   {% if a %}{{ b.c }}{% endif %}   IF - BRANCH(NAME a, PRINT(ITEM(NAME b, CONSTANT "c")))
 *
 * Siblings (statements, arguments, items) are linked by `next`. The tree lives in an arena of the
 * template. */
#ifndef COH_TEXT_JINJA_TREE_H
#define COH_TEXT_JINJA_TREE_H

#include "text/jinja_values.h"

enum {
    COH_JINJA_PARSE_DEPTH_MAX = 200, /* brackets in brackets, statements in statements */
    COH_JINJA_NAMES_MAX = 4096,
    COH_JINJA_TREE_BYTES_MAX = 256 << 20,
};

/* ---- tokens ---- */

typedef enum coh_jinja_token_kind {
    COH_JINJA_T_END,
    COH_JINJA_T_DATA, /* text outside of code */
    COH_JINJA_T_BLOCK_BEGIN,
    COH_JINJA_T_BLOCK_END,
    COH_JINJA_T_PRINT_BEGIN,
    COH_JINJA_T_PRINT_END,
    COH_JINJA_T_NAME,
    COH_JINJA_T_STRING, /* without its quotes, not decoded */
    COH_JINJA_T_WHOLE,
    COH_JINJA_T_SIGN, /* one or two signs of punctuation */
} coh_jinja_token_kind;

typedef struct coh_jinja_token {
    coh_jinja_token_kind kind;
    uint32_t line;
    const char *begin;
    size_t bytes;
} coh_jinja_token;

/* The state of the tokenizer. */
typedef struct coh_jinja_lexer {
    const char *where;
    const char *at, *end;
    uint32_t line;      /* at `at` */
    int after_line_end; /* did the token before end with a line end? */
    coh_jinja_token_kind code, pending;
    size_t open; /* brackets: a }} ends code only outside of them */
} coh_jinja_lexer;

void coh_jinja_lexer_init(coh_jinja_lexer *lexer, const char *where, const char *text,
                          size_t bytes);
coh_status coh_jinja_next(coh_jinja_lexer *lexer, coh_jinja_token *out_token);
/* Returns COH_ERR_CORRUPT with "WHERE:LINE: ...". */
coh_status coh_jinja_refuse(const char *where, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- nodes ---- */

typedef enum coh_jinja_node_kind {
    /* expressions */
    COH_JINJA_N_CONSTANT, /* value */
    COH_JINJA_N_NAME,     /* name */
    COH_JINJA_N_LIST,     /* list */
    COH_JINJA_N_TUPLE,    /* list */
    COH_JINJA_N_DICT,     /* list: key, value, key, value */
    COH_JINJA_N_ITEM,     /* first [second]; op: first . second, a constant */
    COH_JINJA_N_SLICE,    /* first [list: three ends, none is a constant] */
    COH_JINJA_N_CALL,     /* first (list) */
    COH_JINJA_N_FILTER,   /* first | index (list) */
    COH_JINJA_N_TEST,     /* first is index (list) */
    COH_JINJA_N_KEYWORD,  /* value = first: an argument by name */
    COH_JINJA_N_NOT,      /* first */
    COH_JINJA_N_BINARY,   /* first op second */
    COH_JINJA_N_SUM,      /* list, with +; second: its last item */
    COH_JINJA_N_CONCAT,   /* list, with ~; likewise */
    COH_JINJA_N_COMPARE,  /* first op second */
    COH_JINJA_N_AND,      /* first, second */
    COH_JINJA_N_OR,       /* first, second */
    COH_JINJA_N_CHOICE,   /* second if first else third (NULL: undefined) */
    COH_JINJA_N_MEMBER,   /* name . value: a target, of a namespace */
    COH_JINJA_N_CAPTURE,  /* what the statements in list write */
    COH_JINJA_N_UNKNOWN,  /* value: what is not known here */
    /* statements */
    COH_JINJA_N_TEXT,       /* value */
    COH_JINJA_N_PRINT,      /* first; op: it must be a string */
    COH_JINJA_N_IF,         /* list of branches */
    COH_JINJA_N_BRANCH,     /* first: the test (NULL: else), list */
    COH_JINJA_N_FOR,        /* first: target, second: what, third: filter or NULL, list */
    COH_JINJA_N_JUMP,       /* op: a coh_jinja_flow */
    COH_JINJA_N_SET,        /* first: target, second: the value */
    COH_JINJA_N_MACRO,      /* name, first: list of parameters, list */
    COH_JINJA_N_PARAMETER,  /* name, value: its text, first: default or NULL */
    COH_JINJA_N_GENERATION, /* list */
} coh_jinja_node_kind;

typedef struct coh_jinja_node {
    uint8_t kind;
    uint16_t op;
    uint32_t line;
    int32_t index;  /* of a name, filter or test; below 0: not known */
    uint32_t count; /* of `list` */
    struct coh_jinja_node *first, *second, *third, *list, *next;
    coh_jinja_value value; /* a constant; the text of a name, filter or test */
} coh_jinja_node;

enum { COH_JINJA_NAME_LISTS = 64, COH_JINJA_NAME_OF_LOOP = 0 };

struct coh_jinja {
    char *where, *text;
    coh_jinja_arena arena;
    coh_jinja_node *body;
    /* Each name of a variable has a number. Names are found by lists of those with one hash. */
    coh_jinja_value *names;
    int32_t *following; /* in a list; -1: none */
    size_t name_count, name_capacity, following_capacity;
    int32_t first[COH_JINJA_NAME_LISTS];
    int marks_answers;
    coh_jinja_value *variables; /* for each name; first those that every run has */
    coh_jinja_run run;          /* kept for its memory */
};

/* The number of a name, which is added if it is new. */
coh_status coh_jinja_name(coh_jinja *program, const char *name, size_t bytes, int32_t *out_index);
/* Carries out the tree. */
coh_status coh_jinja_run_program(coh_jinja_run *run);
/* Parses program->text. */
coh_status coh_jinja_parse(coh_jinja *program, size_t text_bytes);

#endif
