/* Tests: what follows "is". */
#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_call call;
typedef coh_jinja_arguments arguments;

static coh_status test_defined(const call *c, int *out)
{
    *out = c->self->kind != COH_JINJA_UNDEFINED;
    return COH_OK;
}

static coh_status test_undefined(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_UNDEFINED;
    return COH_OK;
}

static coh_status test_none(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_NONE;
    return COH_OK;
}

static coh_status test_string(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_STRING;
    return COH_OK;
}

static coh_status test_mapping(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_DICT;
    return COH_OK;
}

static coh_status test_sequence(const call *c, int *out)
{
    const value *v = c->self;
    *out = v->kind == COH_JINJA_STRING || v->kind == COH_JINJA_DICT ||
           v->kind == COH_JINJA_UNDEFINED ||
           (v->kind == COH_JINJA_LIST && v->flavour <= COH_JINJA_A_RANGE);
    return COH_OK;
}

static coh_status test_iterable(const call *c, int *out)
{
    const value *v = c->self;
    *out = v->kind == COH_JINJA_STRING || v->kind == COH_JINJA_DICT ||
           v->kind == COH_JINJA_UNDEFINED || v->kind == COH_JINJA_LIST || v->kind == COH_JINJA_LOOP;
    return COH_OK;
}

static coh_status test_number(const call *c, int *out)
{
    *out = coh_jinja_is_number(c->self);
    return COH_OK;
}

static coh_status test_integer(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_WHOLE;
    return COH_OK;
}

static coh_status test_float(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_REAL;
    return COH_OK;
}

static coh_status test_boolean(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_BOOL;
    return COH_OK;
}

static coh_status test_true(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_BOOL && c->self->whole;
    return COH_OK;
}

static coh_status test_false(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_BOOL && !c->self->whole;
    return COH_OK;
}

static coh_status test_callable(const call *c, int *out)
{
    const value *v = c->self;
    *out = v->kind == COH_JINJA_FUNCTION || v->kind == COH_JINJA_METHOD ||
           v->kind == COH_JINJA_MACRO || v->kind == COH_JINJA_LOOP ||
           v->kind == COH_JINJA_UNDEFINED;
    return COH_OK;
}

/* Is the remainder of a division by `divisor` the one that is wanted? */
static coh_status has_remainder(const call *c, const value *divisor, int wanted, int *out)
{
    value rest;
    const value expected = coh_jinja_whole(wanted);
    COH_TRY(coh_jinja_binary(c->run, '%', c->self, divisor, &rest));
    return coh_jinja_equal(c->run, &rest, &expected, out);
}

static coh_status test_odd(const call *c, int *out)
{
    const value two = coh_jinja_whole(2);
    return has_remainder(c, &two, 1, out);
}

static coh_status test_even(const call *c, int *out)
{
    const value two = coh_jinja_whole(2);
    return has_remainder(c, &two, 0, out);
}

static coh_status test_divisibleby(const call *c, int *out)
{
    return has_remainder(c, &c->bound[0], 0, out);
}

static coh_status test_eq(const call *c, int *out)
{
    return coh_jinja_compare(c->run, COH_JINJA_OP('=', '='), c->self, &c->bound[0], out);
}

static coh_status test_ne(const call *c, int *out)
{
    return coh_jinja_compare(c->run, COH_JINJA_OP('!', '='), c->self, &c->bound[0], out);
}

static coh_status test_lt(const call *c, int *out)
{
    return coh_jinja_compare(c->run, '<', c->self, &c->bound[0], out);
}

static coh_status test_gt(const call *c, int *out)
{
    return coh_jinja_compare(c->run, '>', c->self, &c->bound[0], out);
}

static coh_status test_le(const call *c, int *out)
{
    return coh_jinja_compare(c->run, COH_JINJA_OP('<', '='), c->self, &c->bound[0], out);
}

static coh_status test_ge(const call *c, int *out)
{
    return coh_jinja_compare(c->run, COH_JINJA_OP('>', '='), c->self, &c->bound[0], out);
}

static coh_status test_in(const call *c, int *out)
{
    return coh_jinja_contains(c->run, &c->bound[0], c->self, out);
}

/* The same object of Python: known for what has only one object of each value. */
static coh_status test_sameas(const call *c, int *out)
{
    const value *a = c->self, *b = &c->bound[0];
    *out = 0;
    if (a->kind != b->kind)
        return COH_OK;
    if (a->kind == COH_JINJA_LIST || a->kind == COH_JINJA_DICT) {
        *out = a->list == b->list;
        return COH_OK;
    }
    return coh_jinja_equal(c->run, a, b, out);
}

static coh_status test_filter(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_STRING &&
           coh_jinja_filter_index(c->self->bytes, c->self->count) >= 0;
    return COH_OK;
}

static coh_status test_test(const call *c, int *out)
{
    *out = c->self->kind == COH_JINJA_STRING &&
           coh_jinja_test_index(c->self->bytes, c->self->count) >= 0;
    return COH_OK;
}

/* Is the string's case the one that is wanted? */
static coh_status is_in_case(const call *c, const char *method, int *out)
{
    value string, is;
    const arguments none = { 0 };
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    COH_TRY(coh_jinja_method(c->run, coh_jinja_method_index(&string, method, strlen(method)),
                             &string, &none, &is));
    *out = coh_jinja_is_true(&is);
    return COH_OK;
}

static coh_status test_lower(const call *c, int *out)
{
    return is_in_case(c, "islower", out);
}

static coh_status test_upper(const call *c, int *out)
{
    return is_in_case(c, "isupper", out);
}

/* ---- the table of tests ---- */

static const struct test {
    coh_jinja_signature signature;
    coh_status (*function)(const call *c, int *out);
} tests[] = {
    { { "defined", "", 0 }, test_defined },    { { "undefined", "", 0 }, test_undefined },
    { { "none", "", 0 }, test_none },          { { "string", "", 0 }, test_string },
    { { "mapping", "", 0 }, test_mapping },    { { "sequence", "", 0 }, test_sequence },
    { { "iterable", "", 0 }, test_iterable },  { { "number", "", 0 }, test_number },
    { { "integer", "", 0 }, test_integer },    { { "float", "", 0 }, test_float },
    { { "boolean", "", 0 }, test_boolean },    { { "true", "", 0 }, test_true },
    { { "false", "", 0 }, test_false },        { { "odd", "", 0 }, test_odd },
    { { "even", "", 0 }, test_even },          { { "divisibleby", "num", 1 }, test_divisibleby },
    { { "eq", "/other", 1 }, test_eq },        { { "equalto", "/other", 1 }, test_eq },
    { { "==", "/other", 1 }, test_eq },        { { "ne", "/other", 1 }, test_ne },
    { { "!=", "/other", 1 }, test_ne },        { { "lt", "/other", 1 }, test_lt },
    { { "lessthan", "/other", 1 }, test_lt },  { { "<", "/other", 1 }, test_lt },
    { { "gt", "/other", 1 }, test_gt },        { { "greaterthan", "/other", 1 }, test_gt },
    { { ">", "/other", 1 }, test_gt },         { { "le", "/other", 1 }, test_le },
    { { "<=", "/other", 1 }, test_le },        { { "ge", "/other", 1 }, test_ge },
    { { ">=", "/other", 1 }, test_ge },        { { "in", "seq", 1 }, test_in },
    { { "sameas", "other", 1 }, test_sameas }, { { "callable", "", 0 }, test_callable },
    { { "filter", "", 0 }, test_filter },      { { "test", "", 0 }, test_test },
    { { "lower", "", 0 }, test_lower },        { { "upper", "", 0 }, test_upper },
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
    return t->function(&c, out_is);
}
