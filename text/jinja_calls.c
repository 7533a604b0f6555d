/* Calls: arguments, the methods of strings and mappings, and the functions that every template may
 * call. Python's other methods and Jinja's other functions are refused by name, so that none is
 * taken for something undefined. */
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
                                  COH_JINJA_SHOWN(name));
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

/* ---- methods of strings ---- */

static coh_status strip_by(const call *c, int at_begin, int at_end, value *out)
{
    if (coh_jinja_is_given(&c->bound[0]))
        COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, c->bound[0].count));
    *out = coh_jinja_strip(c->self, &c->bound[0], at_begin, at_end);
    return COH_OK;
}

static coh_status str_strip(const call *c, value *out)
{
    return strip_by(c, 1, 1, out);
}

static coh_status str_lstrip(const call *c, value *out)
{
    return strip_by(c, 1, 0, out);
}

static coh_status str_rstrip(const call *c, value *out)
{
    return strip_by(c, 0, 1, out);
}

/* A growing list of parts. */
typedef struct parts {
    value *items;
    size_t count, capacity;
} parts;

static coh_status add_part(runner *run, parts *p, const value *string, size_t begin, size_t end)
{
    if (p->count == p->capacity) {
        const size_t capacity = p->capacity ? 2 * p->capacity : 8;
        void *items;
        COH_TRY(coh_jinja_take(run, capacity, sizeof(value), &items));
        if (p->count)
            memcpy(items, p->items, p->count * sizeof(value));
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = coh_jinja_part(string, begin, end);
    return coh_jinja_spend(run, 1);
}

static coh_status list_of(runner *run, const parts *p, value *out)
{
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, 0, out));
    out->list->items = p->items;
    out->list->count = p->count;
    return COH_OK;
}

static size_t space_at(const value *string, size_t at)
{
    return coh_jinja_space(string->bytes + at, string->count - at);
}

/* Splits at white space; `most` is the number of splits. */
static coh_status split_spaces(const call *c, int64_t most, parts *p)
{
    const value *s = c->self;
    for (size_t at = 0, bytes;;) {
        while (at < s->count && (bytes = space_at(s, at)) != 0)
            at += bytes;
        if (at == s->count)
            return COH_OK;
        const size_t begin = at;
        if (most-- == 0)
            return add_part(c->run, p, s, begin, s->count);
        while (at < s->count && space_at(s, at) == 0)
            at += coh_jinja_character(s, at);
        COH_TRY(add_part(c->run, p, s, begin, at));
    }
}

static coh_status split_at(const call *c, int64_t most, parts *p)
{
    size_t begin = 0;
    for (size_t at; most != 0; most--) {
        at = coh_jinja_find(c->self, &c->bound[0], begin);
        if (at == SIZE_MAX)
            break;
        COH_TRY(add_part(c->run, p, c->self, begin, at));
        begin = at + c->bound[0].count;
    }
    return add_part(c->run, p, c->self, begin, c->self->count);
}

static coh_status str_split(const call *c, value *out)
{
    parts p = { 0 };
    int64_t most;
    const value *separator = &c->bound[0];
    COH_TRY(coh_jinja_whole_of(c, 1, -1, &most));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, separator->count));
    if (!coh_jinja_is_given(separator)) {
        COH_TRY(split_spaces(c, most, &p));
        return list_of(c->run, &p, out);
    }
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    if (separator->count == 0)
        return coh_jinja_fail(c->run, "split() gets an empty separator");
    COH_TRY(split_at(c, most, &p));
    return list_of(c->run, &p, out);
}

static coh_status has_affix(const call *c, int at_end, value *out)
{
    const value *string = c->self, *affix = &c->bound[0];
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_bytes(c->run, string->count));
    const size_t before = at_end && affix->count < string->count ? string->count - affix->count : 0;
    *out = coh_jinja_bool(affix->count <= string->count &&
                          memcmp(string->bytes + before, affix->bytes, affix->count) == 0);
    return COH_OK;
}

static coh_status str_startswith(const call *c, value *out)
{
    return has_affix(c, 0, out);
}

static coh_status str_endswith(const call *c, value *out)
{
    return has_affix(c, 1, out);
}

static coh_status str_replace(const call *c, value *out)
{
    int64_t most;
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_need(c, 1, COH_JINJA_STRING));
    COH_TRY(coh_jinja_whole_of(c, 2, -1, &most));
    return coh_jinja_replace(c->run, c->self, &c->bound[0], &c->bound[1], most, out);
}

static coh_status str_lower(const call *c, value *out)
{
    return coh_jinja_change_case(c->run, c->self, COH_JINJA_LOWER, out);
}

static coh_status str_upper(const call *c, value *out)
{
    return coh_jinja_change_case(c->run, c->self, COH_JINJA_UPPER, out);
}

static coh_status str_title(const call *c, value *out)
{
    return coh_jinja_change_case(c->run, c->self, COH_JINJA_TITLE, out);
}

static coh_status str_capitalize(const call *c, value *out)
{
    return coh_jinja_change_case(c->run, c->self, COH_JINJA_CAPITALIZE, out);
}

/* ---- methods of mappings ---- */

static coh_status dict_get(const call *c, value *out)
{
    const value *found;
    COH_TRY(coh_jinja_dict_get(c->run, c->self->dict, &c->bound[0], &found));
    *out = found ? *found : c->bound[1].kind != COH_JINJA_MISSING ? c->bound[1] : coh_jinja_none();
    return COH_OK;
}

/* ---- the table of methods ---- */

static const struct method {
    uint8_t kind;
    coh_jinja_signature signature;
    coh_status (*function)(const call *c, value *out);
} methods[] = {
    { COH_JINJA_STRING, { "strip", "/chars", 0 }, str_strip },
    { COH_JINJA_STRING, { "lstrip", "/chars", 0 }, str_lstrip },
    { COH_JINJA_STRING, { "rstrip", "/chars", 0 }, str_rstrip },
    { COH_JINJA_STRING, { "split", "sep maxsplit", 0 }, str_split },
    { COH_JINJA_STRING, { "startswith", "/prefix", 1 }, str_startswith },
    { COH_JINJA_STRING, { "endswith", "/suffix", 1 }, str_endswith },
    { COH_JINJA_STRING, { "replace", "/old new count", 2 }, str_replace },
    { COH_JINJA_STRING, { "lower", "", 0 }, str_lower },
    { COH_JINJA_STRING, { "upper", "", 0 }, str_upper },
    { COH_JINJA_STRING, { "title", "", 0 }, str_title },
    { COH_JINJA_STRING, { "capitalize", "", 0 }, str_capitalize },
    { COH_JINJA_DICT, { "get", "/key default", 1 }, dict_get },
};
enum { METHOD_COUNT = sizeof(methods) / sizeof(methods[0]) };

/* Methods that change a value are missing: in Jinja's sandbox they are undefined. */
static const struct {
    uint8_t kind;
    const char *names; /* each between blanks */
} methods_of_python[] = {
    { COH_JINJA_STRING,
      " casefold center count encode expandtabs find format format_map index isalnum isalpha "
      "isascii "
      "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join "
      "ljust maketrans partition removeprefix removesuffix rfind rindex rjust rpartition rsplit "
      "splitlines swapcase translate zfill " },
    { COH_JINJA_DICT, " copy fromkeys items keys values " },
    { COH_JINJA_LIST, " copy count index " },
    { COH_JINJA_LOOP, " changed cycle depth depth0 " },
};

int coh_jinja_method_index(const value *v, const void *name, size_t bytes)
{
    for (int i = 0; i < METHOD_COUNT; i++)
        if (methods[i].kind == v->kind &&
            coh_jinja_is_named(methods[i].signature.name, name, bytes))
            return i;
    return -1;
}

int coh_jinja_is_method_of_python(const value *v, const value *name)
{
    for (size_t i = 0; i < sizeof(methods_of_python) / sizeof(methods_of_python[0]); i++) {
        const char *at = methods_of_python[i].names;
        if (methods_of_python[i].kind != v->kind || name->count == 0 ||
            memchr(name->bytes, ' ', name->count))
            continue;
        while ((at = memmem(at, strlen(at), name->bytes, name->count)) != NULL) {
            if (at[-1] == ' ' && at[name->count] == ' ')
                return 1;
            at++;
        }
    }
    return 0;
}

coh_status coh_jinja_method(runner *run, int index, const value *receiver,
                            const coh_jinja_arguments *arguments, value *out)
{
    value bound[COH_JINJA_PARAMETERS_MAX];
    const struct method *m = &methods[index];
    COH_TRY(coh_jinja_bind(run, &m->signature, arguments, bound));
    const call c = { run, &m->signature, receiver, bound, arguments };
    return m->function(&c, out);
}

/* ---- functions ---- */

/* The numbers of range(). Returns 0 if they are too many. */
static int count_range(int64_t begin, int64_t end, int64_t step, size_t *out_count)
{
    const uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    const uint64_t distance =
        step < 0 ? (uint64_t)begin - (uint64_t)end : (uint64_t)end - (uint64_t)begin;
    *out_count = 0;
    if (step < 0 ? begin <= end : begin >= end)
        return 1;
    *out_count = (size_t)((distance - 1) / stride) + 1;
    return *out_count <= COH_JINJA_RANGE_MAX;
}

static coh_status call_range(const call *c, value *out)
{
    const int has_end = c->bound[1].kind != COH_JINJA_MISSING;
    int64_t begin, end, step;
    size_t count;
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_WHOLE));
    if (has_end)
        COH_TRY(coh_jinja_need(c, 1, COH_JINJA_WHOLE));
    COH_TRY(coh_jinja_whole_of(c, 2, 1, &step));
    begin = has_end ? c->bound[0].whole : 0;
    end = c->bound[has_end].whole;
    if (step == 0)
        return coh_jinja_fail(c->run, "range() gets step 0");
    if (!count_range(begin, end, step, &count))
        return coh_jinja_fail(c->run, "range() has more than %d numbers", COH_JINJA_RANGE_MAX);
    COH_TRY(coh_jinja_spend(c->run, count));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, count, out));
    for (size_t i = 0; i < count; i++)
        out->list->items[i] = coh_jinja_whole(begin + (int64_t)i * step);
    return COH_OK;
}

static coh_status call_namespace(const call *c, value *out)
{
    COH_TRY(coh_jinja_dict_make(c->run, COH_JINJA_NAMESPACE, c->all->count, out));
    for (size_t i = 0; i < c->all->count; i++) {
        if (!c->all->names[i])
            return coh_jinja_fail(c->run, "namespace() of an argument without a name is not known "
                                          "here");
        COH_TRY(coh_jinja_dict_set(c->run, out->dict, c->all->names[i], &c->all->values[i]));
    }
    return COH_OK;
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
    { 1, { "namespace", "", 0 }, call_namespace },
    { 0, { "raise_exception", "message", 1 }, call_raise_exception },
    { 1, { "dict", "", 0 }, NULL },
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
