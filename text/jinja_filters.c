/* Filters, and tests, which follow "is". A name that is not here is refused when a template reaches
 * it. */
#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_call call;
typedef coh_jinja_arguments arguments;

/* ---- filters of strings ---- */

static coh_status in_case(const call *c, coh_jinja_case change, value *out)
{
    value string;
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    return coh_jinja_change_case(c->run, &string, change, out);
}

static coh_status filter_lower(const call *c, value *out)
{
    return in_case(c, COH_JINJA_LOWER, out);
}

static coh_status filter_upper(const call *c, value *out)
{
    return in_case(c, COH_JINJA_UPPER, out);
}

static coh_status filter_capitalize(const call *c, value *out)
{
    return in_case(c, COH_JINJA_CAPITALIZE, out);
}

static coh_status filter_trim(const call *c, value *out)
{
    value string;
    if (coh_jinja_is_given(&c->bound[0]) && c->bound[0].kind != COH_JINJA_STRING)
        return coh_jinja_fail(c->run, "the filter \"trim\" gets a %s",
                              coh_jinja_type(&c->bound[0]));
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    COH_TRY(coh_jinja_spend_pairs(c->run, string.count, c->bound[0].count));
    *out = coh_jinja_strip(&string, &c->bound[0], 1, 1);
    return COH_OK;
}

static coh_status filter_string(const call *c, value *out)
{
    return coh_jinja_str(c->run, c->self, out);
}

static coh_status filter_replace(const call *c, value *out)
{
    value string, from, to;
    int64_t most = -1;
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    COH_TRY(coh_jinja_str(c->run, &c->bound[0], &from));
    COH_TRY(coh_jinja_str(c->run, &c->bound[1], &to));
    if (coh_jinja_is_given(&c->bound[2]))
        COH_TRY(coh_jinja_whole_of(c, 2, -1, &most));
    return coh_jinja_replace(c->run, &string, &from, &to, most, out);
}

static int may_be_digit(uint8_t sign)
{
    return (sign >= '0' && sign <= '9') || sign >= 0x80;
}

/* A text without a digit is no number in Python, too. */
static coh_status filter_int(const call *c, value *out)
{
    int64_t whole;
    *out = c->bound[0].kind == COH_JINJA_MISSING ? coh_jinja_whole(0) : c->bound[0];
    if (c->self->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_fail(c->run, "the filter \"int\" gets an undefined value \"%.*s\"",
                              COH_JINJA_SHOWN(c->self));
    if (coh_jinja_is_integer(c->self))
        *out = coh_jinja_whole(c->self->whole);
    if (c->self->kind != COH_JINJA_STRING)
        return COH_OK;
    const value text = coh_jinja_strip(c->self, NULL, 1, 1);
    if (coh_jinja_read_whole(&text, &whole)) {
        *out = coh_jinja_whole(whole);
        return COH_OK;
    }
    for (size_t i = 0; i < text.count; i++)
        if (may_be_digit(text.bytes[i]))
            return coh_jinja_fail(c->run, "the filter \"int\" of \"%.*s\" is not known here",
                                  COH_JINJA_SHOWN(&text));
    return COH_OK;
}

/* ---- filters of lists ---- */

static coh_status filter_length(const call *c, value *out)
{
    const value *v = c->self;
    if (v->kind == COH_JINJA_STRING) {
        COH_TRY(coh_jinja_spend_bytes(c->run, v->count));
        *out = coh_jinja_whole((int64_t)coh_jinja_character_count(v));
    } else if (v->kind == COH_JINJA_LIST) {
        *out = coh_jinja_whole((int64_t)v->list->count);
    } else if (v->kind == COH_JINJA_DICT) {
        *out = coh_jinja_whole((int64_t)v->dict->count);
    } else if (v->kind == COH_JINJA_UNDEFINED) {
        *out = coh_jinja_whole(0);
    } else {
        return coh_jinja_fail(c->run, "a %s has no length", coh_jinja_type(v));
    }
    return COH_OK;
}

static coh_status filter_default(const call *c, value *out)
{
    const int is_missing = c->self->kind == COH_JINJA_UNDEFINED ||
                           (coh_jinja_is_true(&c->bound[1]) && !coh_jinja_is_true(c->self));
    *out = !is_missing                             ? *c->self
           : c->bound[0].kind == COH_JINJA_MISSING ? coh_jinja_text_value("")
                                                   : c->bound[0];
    return COH_OK;
}

static value undefined(void)
{
    return (value){ .kind = COH_JINJA_UNDEFINED, .bytes = (const uint8_t *)"" };
}

static coh_status filter_first(const call *c, value *out)
{
    const value *v = c->self;
    coh_jinja_list list;
    if (v->kind == COH_JINJA_GENERATOR && v->list->count) {
        *out = *v->list->items++; /* the others remain */
        v->list->count--;
        return COH_OK;
    }
    COH_TRY(coh_jinja_items(c->run, v, &list));
    *out = list.count ? list.items[0] : undefined();
    return COH_OK;
}

static coh_status filter_last(const call *c, value *out)
{
    coh_jinja_list list;
    if (c->self->kind == COH_JINJA_GENERATOR)
        return coh_jinja_fail(c->run, "the filter \"last\" gets a generator");
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    *out = list.count ? list.items[list.count - 1] : undefined();
    return COH_OK;
}

static coh_status filter_list(const call *c, value *out)
{
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, list.count, out));
    if (list.count)
        memcpy(out->list->items, list.items, list.count * sizeof(value));
    return COH_OK;
}

static coh_status filter_join(const call *c, value *out)
{
    const size_t begin = c->run->out->count;
    coh_jinja_list list;
    value between = coh_jinja_text_value("");
    if (c->bound[0].kind != COH_JINJA_MISSING)
        COH_TRY(coh_jinja_str(c->run, &c->bound[0], &between));
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    for (size_t i = 0; i < list.count; i++) {
        if (i)
            COH_TRY(coh_jinja_put(c->run, &between));
        COH_TRY(coh_jinja_put_str(c->run, &list.items[i]));
    }
    return coh_jinja_cut(c->run, begin, out);
}

/* Is pair `a` before pair `b`? Strings are compared without case. */
static coh_status is_before(runner *run, const coh_jinja_pair *a, const coh_jinja_pair *b,
                            int *out_is)
{
    value keys[2] = { a->key, b->key };
    for (int i = 0; i < 2; i++)
        if (keys[i].kind == COH_JINJA_STRING)
            COH_TRY(coh_jinja_change_case(run, i ? &b->key : &a->key, COH_JINJA_LOWER, &keys[i]));
    return coh_jinja_compare(run, '<', &keys[0], &keys[1], out_is);
}

/* The pairs of a mapping, which are few, in the order of their keys. */
static coh_status filter_dictsort(const call *c, value *out)
{
    if (c->self->kind != COH_JINJA_DICT)
        return coh_jinja_fail(c->run, "the filter \"dictsort\" gets a %s", coh_jinja_type(c->self));
    const coh_jinja_dict *dict = c->self->dict;
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, dict->count, out));
    for (size_t i = 0; i < dict->count; i++) {
        const coh_jinja_pair *pair = &dict->pairs[i];
        value *items = out->list->items, item;
        size_t at = i;
        for (int is_earlier; at > 0; at--) {
            const coh_jinja_pair before = { items[at - 1].list->items[0], { 0 } };
            COH_TRY(coh_jinja_spend(c->run, 1));
            COH_TRY(is_before(c->run, pair, &before, &is_earlier));
            if (!is_earlier)
                break;
            items[at] = items[at - 1];
        }
        COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, 2, &item));
        item.list->items[0] = pair->key;
        item.list->items[1] = pair->value;
        items[at] = item;
    }
    return COH_OK;
}

/* A member by its name; a path to a member of a member is not known here. */
static int is_member_name(const value *name)
{
    return name->kind == COH_JINJA_STRING && name->count > 0 && !may_be_digit(name->bytes[0]) &&
           !memchr(name->bytes, '.', name->count);
}

static coh_status filter_map(const call *c, value *out)
{
    const arguments *all = c->all;
    coh_jinja_list list;
    if (!coh_jinja_is_true(c->self)) /* of any type */
        return coh_jinja_list_make(c->run, COH_JINJA_GENERATOR, 0, out);
    if (all->count != 1 || !all->names[0] || !coh_jinja_is(all->names[0], "attribute") ||
        !is_member_name(&all->values[0]))
        return coh_jinja_fail(c->run, "the filter \"map\" is known here only by the name of an "
                                      "attribute");
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_GENERATOR, list.count, out));
    for (size_t i = 0; i < list.count; i++)
        COH_TRY(coh_jinja_item(c->run, &list.items[i], &all->values[0], &out->list->items[i]));
    return COH_OK;
}

/* Keeps the items, as a generator, of which a member passes a test, if that is `wanted`. */
static coh_status choose(const call *c, int wanted, value *out)
{
    const arguments *all = c->all;
    coh_jinja_list list;
    if (!coh_jinja_is_true(c->self)) /* of any type */
        return coh_jinja_list_make(c->run, COH_JINJA_GENERATOR, 0, out);
    const size_t named = all->count > 1 ? 2 : 1;
    for (size_t i = 0; i < named; i++)
        if (all->count == 0 || all->names[i] || all->values[i].kind != COH_JINJA_STRING ||
            !is_member_name(&all->values[0]))
            return coh_jinja_fail(c->run,
                                  "the filter \"%s\" is known here only by the names of an "
                                  "attribute and a test",
                                  c->signature->name);
    const value *path = all->values, *name = path + 1;
    const int test = named > 1 ? coh_jinja_test_index(name->bytes, name->count) : 0;
    if (test < 0)
        return coh_jinja_fail(c->run, "the test \"%.*s\" is not known here", COH_JINJA_SHOWN(name));
    const arguments rest = { all->values + named, all->names + named, all->count - named };
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_GENERATOR, list.count, out));
    out->list->count = 0;
    for (size_t i = 0; i < list.count; i++) {
        value member;
        COH_TRY(coh_jinja_item(c->run, &list.items[i], path, &member));
        COH_TRY(coh_jinja_spend(c->run, 1));
        int is = coh_jinja_is_true(&member);
        if (named > 1)
            COH_TRY(coh_jinja_test(c->run, test, &member, &rest, &is));
        if (is == wanted)
            out->list->items[out->list->count++] = list.items[i];
    }
    return COH_OK;
}

static coh_status filter_selectattr(const call *c, value *out)
{
    return choose(c, 1, out);
}

static coh_status filter_rejectattr(const call *c, value *out)
{
    return choose(c, 0, out);
}

/* ---- the table of filters ---- */

static const struct filter {
    coh_jinja_signature signature;
    coh_status (*function)(const call *c, value *out);
    int takes_all;
} filters[] = {
    { { "trim", "chars", 0 }, filter_trim, 0 },
    { { "lower", "", 0 }, filter_lower, 0 },
    { { "upper", "", 0 }, filter_upper, 0 },
    { { "capitalize", "", 0 }, filter_capitalize, 0 },
    { { "replace", "old new count", 2 }, filter_replace, 0 },
    { { "string", "", 0 }, filter_string, 0 },
    { { "int", "default", 0 }, filter_int, 0 },
    { { "length", "", 0 }, filter_length, 0 },
    { { "count", "", 0 }, filter_length, 0 },
    { { "default", "default_value boolean", 0 }, filter_default, 0 },
    { { "d", "default_value boolean", 0 }, filter_default, 0 },
    { { "first", "", 0 }, filter_first, 0 },
    { { "last", "", 0 }, filter_last, 0 },
    { { "list", "", 0 }, filter_list, 0 },
    { { "join", "d", 0 }, filter_join, 0 },
    { { "dictsort", "", 0 }, filter_dictsort, 0 },
    { { "map", "", 0 }, filter_map, 1 },
    { { "selectattr", "", 0 }, filter_selectattr, 1 },
    { { "rejectattr", "", 0 }, filter_rejectattr, 1 },
};
enum { FILTER_COUNT = sizeof(filters) / sizeof(filters[0]) };

int coh_jinja_filter_index(const void *name, size_t bytes)
{
    for (int i = 0; i < FILTER_COUNT; i++)
        if (coh_jinja_is_named(filters[i].signature.name, name, bytes))
            return i;
    return -1;
}

coh_status coh_jinja_filter(runner *run, int index, const value *in, const arguments *all,
                            value *out)
{
    value bound[COH_JINJA_PARAMETERS_MAX];
    const struct filter *f = &filters[index];
    if (!f->takes_all)
        COH_TRY(coh_jinja_bind(run, &f->signature, all, bound));
    const call c = { run, &f->signature, in, bound, all };
    return f->function(&c, out);
}

/* ---- tests ---- */

static coh_status test_true(const call *c, int *out)
{
    *out = c->self->whole != 0;
    return COH_OK;
}

static coh_status test_false(const call *c, int *out)
{
    *out = c->self->whole == 0;
    return COH_OK;
}

static coh_status test_eq(const call *c, int *out)
{
    return coh_jinja_equal(c->run, c->self, &c->bound[0], out);
}

static coh_status test_ne(const call *c, int *out)
{
    COH_TRY(test_eq(c, out));
    *out = !*out;
    return COH_OK;
}

static coh_status test_in(const call *c, int *out)
{
    return coh_jinja_contains(c->run, &c->bound[0], c->self, out);
}

/* The kinds of values as bits. */
enum {
    ANY = ~0,
    UNDEFINED = 1 << COH_JINJA_UNDEFINED,
    NONE = 1 << COH_JINJA_NONE,
    BOOL = 1 << COH_JINJA_BOOL,
    WHOLE = 1 << COH_JINJA_WHOLE,
    STRING = 1 << COH_JINJA_STRING,
    DICT = 1 << COH_JINJA_DICT,
    SEQUENCE = STRING | DICT | UNDEFINED | 1 << COH_JINJA_LIST,
    ITERABLE = SEQUENCE | 1 << COH_JINJA_GENERATOR | 1 << COH_JINJA_LOOP,
};

/* Holds for a value of one of the kinds, if `function` (NULL: none) agrees. */
static const struct test {
    coh_jinja_signature signature;
    unsigned kinds;
    coh_status (*function)(const call *c, int *out);
} tests[] = {
    { { "defined", "", 0 }, ~UNDEFINED, NULL }, { { "undefined", "", 0 }, UNDEFINED, NULL },
    { { "none", "", 0 }, NONE, NULL },          { { "boolean", "", 0 }, BOOL, NULL },
    { { "true", "", 0 }, BOOL, test_true },     { { "false", "", 0 }, BOOL, test_false },
    { { "integer", "", 0 }, WHOLE, NULL },      { { "number", "", 0 }, WHOLE | BOOL, NULL },
    { { "string", "", 0 }, STRING, NULL },      { { "mapping", "", 0 }, DICT, NULL },
    { { "sequence", "", 0 }, SEQUENCE, NULL },  { { "iterable", "", 0 }, ITERABLE, NULL },
    { { "eq", "/other", 1 }, ANY, test_eq },    { { "equalto", "/other", 1 }, ANY, test_eq },
    { { "==", "/other", 1 }, ANY, test_eq },    { { "ne", "/other", 1 }, ANY, test_ne },
    { { "!=", "/other", 1 }, ANY, test_ne },    { { "in", "seq", 1 }, ANY, test_in },
};
enum { TEST_COUNT = sizeof(tests) / sizeof(tests[0]) };

int coh_jinja_test_index(const void *name, size_t bytes)
{
    for (int i = 0; i < TEST_COUNT; i++)
        if (coh_jinja_is_named(tests[i].signature.name, name, bytes))
            return i;
    return -1;
}

coh_status coh_jinja_test(runner *run, int index, const value *in, const arguments *all,
                          int *out_is)
{
    value bound[COH_JINJA_PARAMETERS_MAX];
    const struct test *t = &tests[index];
    COH_TRY(coh_jinja_bind(run, &t->signature, all, bound));
    const call c = { run, &t->signature, in, bound, all };
    *out_is = (t->kinds >> in->kind & 1) != 0;
    return *out_is && t->function ? t->function(&c, out_is) : COH_OK;
}
