/* jinja_values.h - the values of a template's run, and the run's state: private to jinja_*.c.
 *
 * The one idea: a run takes memory from an arena that ends with the next run, and values never
 * change, except namespaces. So a string may be a part of another one, or of a message, and nothing
 * is freed. New strings are written at the end of the output, then cut off from there:
 *
 *     const size_t begin = run->out->count;
 *     COH_TRY(coh_jinja_put(run, &left));
 *     COH_TRY(coh_jinja_put(run, &right));
 *     return coh_jinja_cut(run, begin, out);                      // left + right
 *
 * Python is the reference for what operators and methods do. */
#ifndef COH_TEXT_JINJA_VALUES_H
#define COH_TEXT_JINJA_VALUES_H

#include "text/jinja.h"

enum {
    COH_JINJA_STEPS_MAX = 4000000,
    COH_JINJA_MESSAGE_STEPS = 1000, /* more for each message */
    COH_JINJA_BYTES_MAX = 64 << 20, /* of the output; as many again for the values */
    COH_JINJA_DEPTH_MAX = 800,      /* of nodes under evaluation: about 1 KiB of stack each */
    COH_JINJA_RANGE_MAX = 100000,   /* as in Jinja's sandbox */
};

/* ---- arena ---- */

typedef struct coh_jinja_block {
    struct coh_jinja_block *before;
    size_t bytes, used;
} coh_jinja_block;

/* A zeroed arena is empty. */
typedef struct coh_jinja_arena {
    coh_jinja_block *last;
    size_t taken;
} coh_jinja_arena;

/* Takes memory without a value. The memory is aligned for any type. Fails: COH_ERR_MEMORY. */
coh_status coh_jinja_arena_take(coh_jinja_arena *arena, size_t bytes, void **out_memory);
void coh_jinja_arena_fini(coh_jinja_arena *arena);

/* ---- values ---- */

/* In this order: those up to a string can be compared, printed and be keys. */
typedef enum coh_jinja_kind {
    COH_JINJA_MISSING, /* no value: an argument that was not given */
    COH_JINJA_UNDEFINED,
    COH_JINJA_NONE,
    COH_JINJA_BOOL,
    COH_JINJA_WHOLE,
    COH_JINJA_STRING,
    COH_JINJA_LIST,      /* a tuple and a range of Python, too */
    COH_JINJA_GENERATOR, /* a list without length and members; empty after its first use */
    COH_JINJA_DICT,
    COH_JINJA_NAMESPACE,
    COH_JINJA_FUNCTION, /* `index`: as coh_jinja_apply takes it */
    COH_JINJA_METHOD,   /* likewise, of `receiver` */
    COH_JINJA_MACRO,
    COH_JINJA_LOOP,
} coh_jinja_kind;

typedef struct coh_jinja_value {
    uint8_t kind;
    uint8_t is_clock; /* of an undefined value: strftime_now, which can be called */
    uint16_t origin;  /* of all bytes of a string without `origins` */
    uint32_t index;
    union {
        const uint8_t *bytes; /* UTF-8, without an end; the name of an undefined value */
        int64_t whole;        /* of a boolean, too */
        struct coh_jinja_list *list;
        struct coh_jinja_dict *dict; /* of a namespace, too */
        const struct coh_jinja_macro *macro;
        struct coh_jinja_loop *loop;
        const struct coh_jinja_value *receiver; /* of a method */
    };
    size_t count;            /* bytes of a string */
    const uint16_t *origins; /* of each byte; NULL: all are `origin` */
} coh_jinja_value;

typedef struct coh_jinja_list {
    size_t count;
    coh_jinja_value *items;
} coh_jinja_list;

typedef struct coh_jinja_pair {
    coh_jinja_value key, value;
} coh_jinja_pair;

/* In the order of insertion. Few keys: they are compared one after the other. */
typedef struct coh_jinja_dict {
    size_t count, capacity;
    coh_jinja_pair *pairs;
} coh_jinja_dict;

/* The variables of a block; `names` are indexes of the template's names. */
typedef struct coh_jinja_scope {
    struct coh_jinja_scope *parent; /* NULL: the template's own variables are around it */
    size_t count, capacity;
    uint32_t *names;
    coh_jinja_value *values;
} coh_jinja_scope;

typedef struct coh_jinja_macro {
    const struct coh_jinja_node *node;
    coh_jinja_scope *scope;
} coh_jinja_macro;

typedef struct coh_jinja_loop {
    coh_jinja_list list;
    size_t index;
} coh_jinja_loop;

typedef enum coh_jinja_flow {
    COH_JINJA_GO_ON,
    COH_JINJA_BREAK,
    COH_JINJA_CONTINUE,
} coh_jinja_flow;

typedef struct coh_jinja_run {
    struct coh_jinja *program;
    coh_jinja_arena arena;
    const char *where;
    uint32_t line; /* of the node under evaluation, for messages */
    uint64_t steps, steps_max;
    int depth;
    coh_jinja_value *variables; /* of the template, for each name; MISSING: none */
    coh_jinja_scope *scope;     /* NULL: outside of any */
    coh_jinja_text *out;
    uint16_t answering; /* COH_JINJA_ANSWER in {% generation %} */
    coh_jinja_flow flow;
} coh_jinja_run;

/* Returns COH_ERR_CORRUPT with a text that ends with the place. */
coh_status coh_jinja_fail(const coh_jinja_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts steps: 1 for a node, and for work on bytes or items. Fails beyond steps_max. */
coh_status coh_jinja_spend(coh_jinja_run *run, size_t steps);
coh_status coh_jinja_spend_bytes(coh_jinja_run *run, size_t bytes);
/* Of work on each of `a` with each of `b`, which is few. */
coh_status coh_jinja_spend_pairs(coh_jinja_run *run, size_t a, size_t b);
/* Takes memory of the arena, within COH_JINJA_BYTES_MAX. */
coh_status coh_jinja_take(coh_jinja_run *run, size_t count, size_t bytes, void **out_memory);
/* Begins a recursion of nodes, which ends with run->depth--. */
coh_status coh_jinja_enter(coh_jinja_run *run);

/* The begin of a string or of an undefined value's name, for "%.*s" of a message. */
#define COH_JINJA_SHOWN(v) (int)((v)->count < 80 ? (v)->count : 80), (const char *)(v)->bytes

static inline coh_jinja_value coh_jinja_none(void)
{
    return (coh_jinja_value){ .kind = COH_JINJA_NONE };
}

static inline coh_jinja_value coh_jinja_bool(int is_true)
{
    return (coh_jinja_value){ .kind = COH_JINJA_BOOL, .whole = is_true != 0 };
}

static inline coh_jinja_value coh_jinja_whole(int64_t whole)
{
    return (coh_jinja_value){ .kind = COH_JINJA_WHOLE, .whole = whole };
}

static inline coh_jinja_value coh_jinja_bytes(const void *bytes, size_t count, uint16_t origin)
{
    return (coh_jinja_value){
        .kind = COH_JINJA_STRING, .bytes = bytes, .count = count, .origin = origin
    };
}

/* The template's own string. */
static inline coh_jinja_value coh_jinja_text_value(const char *text)
{
    return coh_jinja_bytes(text, strlen(text), COH_JINJA_OWN);
}

/* `name` is that of messages. */
static inline coh_jinja_value coh_jinja_undefined(const coh_jinja_value *name)
{
    coh_jinja_value v = *name;
    v.kind = COH_JINJA_UNDEFINED;
    return v;
}

/* An element that `v` has not. */
static inline coh_jinja_value coh_jinja_no_element(const coh_jinja_value *v)
{
    const coh_jinja_value name =
        coh_jinja_text_value(v->kind == COH_JINJA_NONE   ? "an element of none"
                             : v->kind == COH_JINJA_LIST ? "an element of a list"
                                                         : "an element");
    return coh_jinja_undefined(&name);
}

/* The bytes begin..end of a string. */
static inline coh_jinja_value coh_jinja_part(const coh_jinja_value *string, size_t begin,
                                             size_t end)
{
    coh_jinja_value part = *string;
    part.bytes = string->bytes + begin;
    part.count = end - begin;
    if (part.origins)
        part.origins = string->origins + begin;
    return part;
}

static inline int coh_jinja_is(const coh_jinja_value *string, const char *text)
{
    return string->count == strlen(text) && memcmp(string->bytes, text, string->count) == 0;
}

static inline int coh_jinja_is_integer(const coh_jinja_value *v)
{
    return v->kind == COH_JINJA_WHOLE || v->kind == COH_JINJA_BOOL;
}

/* Python's name of the type, for messages. */
const char *coh_jinja_type(const coh_jinja_value *v);
int coh_jinja_is_true(const coh_jinja_value *v);
/* Fails for values that cannot be compared here: lists, mappings, functions. */
coh_status coh_jinja_equal(coh_jinja_run *run, const coh_jinja_value *a, const coh_jinja_value *b,
                           int *out_is);
coh_status coh_jinja_contains(coh_jinja_run *run, const coh_jinja_value *whole,
                              const coh_jinja_value *part, int *out_is);

/* Operators of one or two signs, as COH_JINJA_OP of them. */
#define COH_JINJA_OP(a, b) ((uint16_t)((a) << 8 | (b)))
coh_status coh_jinja_binary(coh_jinja_run *run, uint16_t op, const coh_jinja_value *a,
                            const coh_jinja_value *b, coh_jinja_value *out);
/* The operators == != < > <= >=. */
coh_status coh_jinja_compare(coh_jinja_run *run, uint16_t op, const coh_jinja_value *a,
                             const coh_jinja_value *b, int *out_is);

/* ---- lists and mappings ---- */

/* `kind`: a list or a generator. The items are missing. */
coh_status coh_jinja_list_make(coh_jinja_run *run, coh_jinja_kind kind, size_t count,
                               coh_jinja_value *out);
/* The items of anything that a loop may run over. They belong to the value: do not write. */
coh_status coh_jinja_items(coh_jinja_run *run, const coh_jinja_value *v, coh_jinja_list *out);
coh_status coh_jinja_dict_make(coh_jinja_run *run, coh_jinja_kind kind, size_t capacity,
                               coh_jinja_value *out);
/* *out is NULL if there is no such key. */
coh_status coh_jinja_dict_get(coh_jinja_run *run, const coh_jinja_dict *dict,
                              const coh_jinja_value *key, const coh_jinja_value **out);
coh_status coh_jinja_dict_set(coh_jinja_run *run, coh_jinja_dict *dict, const coh_jinja_value *key,
                              const coh_jinja_value *value);

/* ---- members ---- */

/* v[key], v.name and v[begin:end:step] (an end may be none). An unknown member is undefined, but a
 * method that only Python knows is refused. */
coh_status coh_jinja_item(coh_jinja_run *run, const coh_jinja_value *v, const coh_jinja_value *key,
                          coh_jinja_value *out);
coh_status coh_jinja_attribute(coh_jinja_run *run, const coh_jinja_value *v,
                               const coh_jinja_value *name, int prefers_item, coh_jinja_value *out);
coh_status coh_jinja_slice(coh_jinja_run *run, const coh_jinja_value *v,
                           const coh_jinja_value ends[3], coh_jinja_value *out);

/* ---- calls ---- */

/* Arguments of a call: those by position, then those by name. */
typedef struct coh_jinja_arguments {
    coh_jinja_value *values;
    const coh_jinja_value **names; /* NULL: by position */
    size_t count;
} coh_jinja_arguments;

/* What is built in, by use. */
typedef enum coh_jinja_use {
    COH_JINJA_FILTER,
    COH_JINJA_TEST,
    COH_JINJA_METHOD_OF, /* a method of `self` */
    COH_JINJA_GLOBAL,    /* a function that every template may call */
} coh_jinja_use;

/* The index of what has this name and, unless `self` is NULL, is for its type; -1: nothing. */
int coh_jinja_find_builtin(coh_jinja_use use, const coh_jinja_value *self,
                           const coh_jinja_value *name);
/* Calls it. The result of a test is a boolean. */
coh_status coh_jinja_apply(coh_jinja_run *run, int index, const coh_jinja_value *self,
                           const coh_jinja_arguments *arguments, coh_jinja_value *out);
/* Has Python such a method of this type, but is it not known here? */
int coh_jinja_is_method_of_python(const coh_jinja_value *v, const coh_jinja_value *name);

/* ---- strings ---- */

/* Append to the output: a string; bytes of the template; str() of a value. */
coh_status coh_jinja_put(coh_jinja_run *run, const coh_jinja_value *string);
coh_status coh_jinja_put_own(coh_jinja_run *run, const char *text, size_t bytes);
coh_status coh_jinja_put_str(coh_jinja_run *run, const coh_jinja_value *v);
/* Removes what was appended since `begin`, and makes it a string. */
coh_status coh_jinja_cut(coh_jinja_run *run, size_t begin, coh_jinja_value *out);
/* The value as a string, as Python's str(). Fails for lists, mappings and functions. */
coh_status coh_jinja_str(coh_jinja_run *run, const coh_jinja_value *v, coh_jinja_value *out);

/* The bytes of the character at `at`: 1 for an invalid one. */
size_t coh_jinja_character(const coh_jinja_value *string, size_t at);
size_t coh_jinja_character_count(const coh_jinja_value *string);
/* Bytes of the white space at `text`, as Python's str.isspace and \s; 0: none. */
size_t coh_jinja_space(const uint8_t *text, size_t bytes);
/* Removes characters of `set` (MISSING or none: white space) at the beginning, the end. */
coh_jinja_value coh_jinja_strip(const coh_jinja_value *string, const coh_jinja_value *set,
                                int at_begin, int at_end);
/* Where `part` begins at or after `from`; SIZE_MAX: nowhere. */
size_t coh_jinja_find(const coh_jinja_value *string, const coh_jinja_value *part, size_t from);
/* Replaces at most `most` times; below 0: everywhere. */
coh_status coh_jinja_replace(coh_jinja_run *run, const coh_jinja_value *string,
                             const coh_jinja_value *from, const coh_jinja_value *to, int64_t most,
                             coh_jinja_value *out);

typedef enum coh_jinja_case {
    COH_JINJA_LOWER,
    COH_JINJA_UPPER,
    COH_JINJA_TITLE,      /* str.title */
    COH_JINJA_CAPITALIZE, /* str.capitalize */
} coh_jinja_case;
coh_status coh_jinja_change_case(coh_jinja_run *run, const coh_jinja_value *string,
                                 coh_jinja_case change, coh_jinja_value *out);
/* Reads decimal digits with a sign or without; 0: not a number of 64 bits. */
int coh_jinja_read_whole(const coh_jinja_value *string, int64_t *out_whole);

#endif
