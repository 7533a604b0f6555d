/* Arguments of calls, and the functions that every template may call. */
#include <stdio.h>

#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_call call;

/* ---- arguments ---- */

/* The place of parameter `name`; -1: there is none, or it is only by position. */
static int parameter_of(const coh_jinja_signature *signature, const value *name)
{
    const char *at = signature->parameters;
    for (int i = 0; *at && *at != '/'; i++) {
        const size_t bytes = strcspn(at, " ");
        if (bytes == name->count && memcmp(at, name->bytes, bytes) == 0)
            return i;
        at += bytes;
        at += *at == ' ';
    }
    return -1;
}

static int parameter_count(const coh_jinja_signature *signature)
{
    int count = signature->parameters[0] != '\0';
    for (const char *at = signature->parameters; *at; at++)
        count += *at == ' ';
    return count;
}

coh_status coh_jinja_bind(runner *run, const coh_jinja_signature *signature,
                          const coh_jinja_arguments *arguments,
                          value out_bound[COH_JINJA_PARAMETERS_MAX])
{
    const int count = parameter_count(signature);
    memset(out_bound, 0, COH_JINJA_PARAMETERS_MAX * sizeof(*out_bound));
    for (size_t i = 0; i < arguments->count; i++) {
        const value *name = arguments->names[i];
        const int at = name ? parameter_of(signature, name) : i < (size_t)count ? (int)i : -1;
        if (at < 0 && name)
            return coh_jinja_fail(run, "%s() has no parameter \"%.*s\"", signature->name,
                                  (int)(name->count < 40 ? name->count : 40),
                                  (const char *)name->bytes);
        if (at < 0)
            return coh_jinja_fail(run, "%s() takes at most %d arguments, not %zu", signature->name,
                                  count, arguments->count);
        if (out_bound[at].kind != COH_JINJA_MISSING)
            return coh_jinja_fail(run, "%s() gets an argument twice", signature->name);
        out_bound[at] = arguments->values[i];
    }
    for (int i = 0; i < signature->needed; i++)
        if (out_bound[i].kind == COH_JINJA_MISSING)
            return coh_jinja_fail(run, "%s() lacks argument %d", signature->name, i + 1);
    return COH_OK;
}

coh_status coh_jinja_need(const call *c, int parameter, coh_jinja_kind kind)
{
    const value *v = &c->bound[parameter];
    if (v->kind == kind || (kind == COH_JINJA_WHOLE && coh_jinja_is_integer(v)))
        return COH_OK;
    return coh_jinja_fail(c->run, "%s() gets a %s as argument %d", c->signature->name,
                          coh_jinja_type(v), parameter + 1);
}

coh_status coh_jinja_whole_of(const call *c, int parameter, int64_t missing, int64_t *out)
{
    *out = missing;
    if (c->bound[parameter].kind == COH_JINJA_MISSING)
        return COH_OK;
    COH_TRY(coh_jinja_need(c, parameter, COH_JINJA_WHOLE));
    *out = c->bound[parameter].whole;
    return COH_OK;
}

/* ---- functions ---- */

static coh_status call_range(const call *c, value *out)
{
    int64_t begin, end, step;
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_WHOLE));
    COH_TRY(coh_jinja_whole_of(c, 1, 0, &end));
    COH_TRY(coh_jinja_whole_of(c, 2, 1, &step));
    begin = c->bound[0].whole;
    if (c->bound[1].kind == COH_JINJA_MISSING) {
        end = begin;
        begin = 0;
    }
    if (step == 0)
        return coh_jinja_fail(c->run, "range() gets step 0");
    const double distance = step > 0 ? (double)end - (double)begin : (double)begin - (double)end;
    const double stride = step > 0 ? (double)step : -(double)step;
    if (distance > COH_JINJA_RANGE_MAX * stride)
        return coh_jinja_fail(c->run, "range() has more than %d numbers", COH_JINJA_RANGE_MAX);
    const size_t count = distance > 0 ? (size_t)((distance - 1) / stride) + 1 : 0;
    COH_TRY(coh_jinja_spend(c->run, count));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_RANGE, count, out));
    for (size_t i = 0; i < count; i++)
        out->list->items[i] = coh_jinja_whole(begin + (int64_t)i * step);
    return COH_OK;
}

/* A mapping or namespace of a mapping, and of arguments by name. */
static coh_status make_mapping(const call *c, coh_jinja_kind kind, value *out)
{
    COH_TRY(coh_jinja_dict_make(c->run, kind, c->all->count, out));
    for (size_t i = 0; i < c->all->count; i++) {
        const value *name = c->all->names[i];
        if (!name && i > 0)
            return coh_jinja_fail(c->run, "%s() takes one argument without a name",
                                  c->signature->name);
        COH_TRY(name ? coh_jinja_dict_set(c->run, out->dict, name, &c->all->values[i])
                     : coh_jinja_dict_update(c->run, out->dict, &c->all->values[i]));
    }
    return COH_OK;
}

static coh_status call_dict(const call *c, value *out)
{
    return make_mapping(c, COH_JINJA_DICT, out);
}

static coh_status call_namespace(const call *c, value *out)
{
    return make_mapping(c, COH_JINJA_NAMESPACE, out);
}

static coh_status call_raise_exception(const call *c, value *out)
{
    value text;
    COH_TRY(coh_jinja_str(c->run, &c->bound[0], &text));
    (void)out;
    return coh_jinja_fail(c->run, "the chat template refuses the conversation: %.*s",
                          (int)(text.count < 600 ? text.count : 600), (const char *)text.bytes);
}

/* ---- the day ---- */

/* Every run has the same day, so that it can be repeated: the one that templates fall back to. */
static const char *day_part(char letter)
{
    static const struct {
        char letter;
        const char *text;
    } parts_of_day[] = {
        { 'd', "26" },     { 'b', "Jul" }, { 'B', "July" }, { 'Y', "2024" }, { 'm', "07" },
        { 'A', "Friday" }, { 'a', "Fri" }, { 'H', "00" },   { 'M', "00" },   { 'S', "00" },
        { 'j', "208" },    { 'y', "24" },  { 'I', "12" },   { 'p', "AM" },   { '%', "%" },
    };
    for (size_t i = 0; i < sizeof(parts_of_day) / sizeof(parts_of_day[0]); i++)
        if (parts_of_day[i].letter == letter)
            return parts_of_day[i].text;
    return NULL;
}

static const char clock_name[] = "strftime_now";

coh_status coh_jinja_clock(runner *run, const coh_jinja_arguments *arguments, value *out)
{
    static const coh_jinja_signature signature = { clock_name, "format", 1 };
    const size_t begin = run->out->count;
    value bound[COH_JINJA_PARAMETERS_MAX];
    COH_TRY(coh_jinja_bind(run, &signature, arguments, bound));
    if (bound[0].kind != COH_JINJA_STRING)
        return coh_jinja_fail(run, "%s() gets a %s", clock_name, coh_jinja_type(&bound[0]));
    for (size_t i = 0; i < bound[0].count; i++) {
        const char *sign = (const char *)bound[0].bytes + i;
        if (*sign != '%' || i + 1 == bound[0].count) {
            COH_TRY(coh_jinja_put_own(run, sign, 1));
            continue;
        }
        const char *text = day_part(sign[1]);
        if (!text)
            return coh_jinja_fail(run, "the part %%%c of a date is not known here", sign[1]);
        COH_TRY(coh_jinja_put_own(run, text, strlen(text)));
        i++;
    }
    return coh_jinja_cut(run, begin, out);
}

/* ---- the table of functions ---- */

static const struct global {
    uint8_t takes_all;
    coh_jinja_signature signature;
    coh_status (*function)(const call *c, value *out);
} functions[] = {
    { 0, { "range", "/start stop step", 1 }, call_range },
    { 1, { "dict", "", 0 }, call_dict },
    { 1, { "namespace", "", 0 }, call_namespace },
    { 0, { "raise_exception", "message", 1 }, call_raise_exception },
    { 1, { "lipsum", "", 0 }, NULL },
    { 1, { "cycler", "", 0 }, NULL },
    { 1, { "joiner", "", 0 }, NULL },
};
enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

int coh_jinja_function_index(const void *name, size_t bytes)
{
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (coh_jinja_is_named(functions[i].signature.name, name, bytes))
            return i;
    return -1;
}

coh_status coh_jinja_function(runner *run, int index, const coh_jinja_arguments *arguments,
                              value *out)
{
    value bound[COH_JINJA_PARAMETERS_MAX];
    const struct global *f = &functions[index];
    if (!f->function)
        return coh_jinja_fail(run, "the function %s() is not known here", f->signature.name);
    if (!f->takes_all)
        COH_TRY(coh_jinja_bind(run, &f->signature, arguments, bound));
    const call c = { run, &f->signature, NULL, bound, arguments };
    return f->function(&c, out);
}
