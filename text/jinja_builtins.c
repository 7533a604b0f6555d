/* Jinja's filters, tests and functions, and Python's methods: one table of what is known, and what
 * each does. A name that is not here is refused when a template reaches it. Python's other methods
 * are refused by name, so that none is taken for a member that is undefined. */
#include <stdio.h>

#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_arguments arguments;

/* A call: what a filter, test, method or function may read. */
typedef struct call {
    runner *run;
    const char *name;
    const value *self; /* what it is applied to; NULL for a function */
    const arguments *all;
} call;

/* ---- arguments ---- */

/* Argument `i`, or a missing one. */
static const value *argument(const call *c, size_t i)
{
    static const value missing;
    return i < c->all->count ? &c->all->values[i] : &missing;
}

static int is_given(const value *v)
{
    return v->kind != COH_JINJA_MISSING && v->kind != COH_JINJA_NONE;
}

static coh_status need(const call *c, size_t i, coh_jinja_kind kind)
{
    const value *v = argument(c, i);
    if (v->kind == kind || (kind == COH_JINJA_WHOLE && coh_jinja_is_integer(v)))
        return COH_OK;
    return coh_jinja_fail(c->run, "%s() gets a %s as argument %zu", c->name, coh_jinja_type(v),
                          i + 1);
}

/* Reads an integer; `missing` if it is not given. */
static coh_status read_whole(const call *c, size_t i, int64_t missing, int64_t *out)
{
    const value *v = argument(c, i);
    *out = v->kind == COH_JINJA_MISSING ? missing : v->whole;
    return v->kind == COH_JINJA_MISSING ? COH_OK : need(c, i, COH_JINJA_WHOLE);
}

/* ---- strings: filters take any value as one ---- */

static coh_status in_case(const call *c, coh_jinja_case change, value *out)
{
    value string;
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    return coh_jinja_change_case(c->run, &string, change, out);
}

static coh_status do_lower(const call *c, value *out)
{
    return in_case(c, COH_JINJA_LOWER, out);
}

static coh_status do_upper(const call *c, value *out)
{
    return in_case(c, COH_JINJA_UPPER, out);
}

static coh_status do_title(const call *c, value *out)
{
    return in_case(c, COH_JINJA_TITLE, out);
}

static coh_status do_capitalize(const call *c, value *out)
{
    return in_case(c, COH_JINJA_CAPITALIZE, out);
}

static coh_status strip_by(const call *c, int at_begin, int at_end, value *out)
{
    const value *set = argument(c, 0);
    value string;
    if (is_given(set))
        COH_TRY(need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    COH_TRY(coh_jinja_spend_pairs(c->run, string.count, set->count));
    *out = coh_jinja_strip(&string, set, at_begin, at_end);
    return COH_OK;
}

static coh_status do_strip(const call *c, value *out)
{
    return strip_by(c, 1, 1, out);
}

static coh_status do_lstrip(const call *c, value *out)
{
    return strip_by(c, 1, 0, out);
}

static coh_status do_rstrip(const call *c, value *out)
{
    return strip_by(c, 0, 1, out);
}

static coh_status do_replace(const call *c, value *out)
{
    value string;
    int64_t most;
    COH_TRY(need(c, 0, COH_JINJA_STRING));
    COH_TRY(need(c, 1, COH_JINJA_STRING));
    COH_TRY(read_whole(c, 2, -1, &most));
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    return coh_jinja_replace(c->run, &string, argument(c, 0), argument(c, 1), most, out);
}

static coh_status do_string(const call *c, value *out)
{
    return coh_jinja_str(c->run, c->self, out);
}

static int may_be_digit(uint8_t sign)
{
    return (sign >= '0' && sign <= '9') || sign >= 0x80;
}

/* A text without a digit is no number in Python, too. */
static coh_status do_int(const call *c, value *out)
{
    int64_t whole;
    *out = c->all->count ? *argument(c, 0) : coh_jinja_whole(0);
    if (c->self->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_fail(c->run, "\"%.*s\" is undefined, so it is no integer",
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

static coh_status has_affix(const call *c, int at_end, value *out)
{
    const value *string = c->self, *affix = argument(c, 0);
    COH_TRY(need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_bytes(c->run, string->count));
    const size_t before = at_end && affix->count < string->count ? string->count - affix->count : 0;
    *out = coh_jinja_bool(affix->count <= string->count &&
                          memcmp(string->bytes + before, affix->bytes, affix->count) == 0);
    return COH_OK;
}

static coh_status do_startswith(const call *c, value *out)
{
    return has_affix(c, 0, out);
}

static coh_status do_endswith(const call *c, value *out)
{
    return has_affix(c, 1, out);
}

/* Parts of a string; without items, only their number. */
typedef struct parts {
    value *items;
    size_t count;
} parts;

static void add_part(parts *p, const value *string, size_t begin, size_t end)
{
    if (p->items)
        p->items[p->count] = coh_jinja_part(string, begin, end);
    p->count++;
}

/* Splits at white space; `most` is the number of splits. */
static void split_spaces(const value *s, int64_t most, parts *p)
{
    for (size_t at = 0;;) {
        const value rest = coh_jinja_part(s, at, s->count);
        const size_t begin = s->count - coh_jinja_strip(&rest, NULL, 1, 0).count;
        if (begin == s->count)
            return;
        for (at = begin; at < s->count && !coh_jinja_space(s->bytes + at, s->count - at);)
            at += coh_jinja_character(s, at);
        at = most-- == 0 ? s->count : at;
        add_part(p, s, begin, at);
    }
}

static void split_at(const value *s, const value *separator, int64_t most, parts *p)
{
    size_t begin = 0, at;
    for (; most != 0 && (at = coh_jinja_find(s, separator, begin)) != SIZE_MAX; most--) {
        add_part(p, s, begin, at);
        begin = at + separator->count;
    }
    add_part(p, s, begin, s->count);
}

static coh_status do_split(const call *c, value *out)
{
    parts p = { 0 };
    int64_t most;
    const value *separator = argument(c, 0);
    const int has_separator = is_given(separator);
    if (has_separator)
        COH_TRY(need(c, 0, COH_JINJA_STRING));
    if (has_separator && separator->count == 0)
        return coh_jinja_fail(c->run, "split() gets an empty separator");
    COH_TRY(read_whole(c, 1, -1, &most));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, has_separator ? separator->count : 4));
    for (int fills = 0; fills < 2; fills++) {
        if (fills)
            COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, p.count, out));
        p = (parts){ fills ? out->list->items : NULL, 0 };
        if (has_separator)
            split_at(c->self, separator, most, &p);
        else
            split_spaces(c->self, most, &p);
    }
    return coh_jinja_spend(c->run, p.count);
}

/* ---- lists and mappings ---- */

static coh_status do_length(const call *c, value *out)
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

static coh_status do_default(const call *c, value *out)
{
    const int is_missing = c->self->kind == COH_JINJA_UNDEFINED ||
                           (coh_jinja_is_true(argument(c, 1)) && !coh_jinja_is_true(c->self));
    *out = !is_missing ? *c->self : c->all->count ? *argument(c, 0) : coh_jinja_text_value("");
    return COH_OK;
}

static coh_status do_first(const call *c, value *out)
{
    const value *v = c->self;
    coh_jinja_list list;
    if (v->kind == COH_JINJA_GENERATOR && v->list->count) {
        *out = *v->list->items++; /* the others remain */
        v->list->count--;
        return COH_OK;
    }
    COH_TRY(coh_jinja_items(c->run, v, &list));
    *out = list.count ? list.items[0] : coh_jinja_no_element(c->self);
    return COH_OK;
}

static coh_status do_last(const call *c, value *out)
{
    coh_jinja_list list;
    if (c->self->kind == COH_JINJA_GENERATOR)
        return coh_jinja_fail(c->run, "the filter \"last\" gets a generator");
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    *out = list.count ? list.items[list.count - 1] : coh_jinja_no_element(c->self);
    return COH_OK;
}

static coh_status do_list(const call *c, value *out)
{
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_LIST, list.count, out));
    if (list.count)
        memcpy(out->list->items, list.items, list.count * sizeof(value));
    return COH_OK;
}

static coh_status do_join(const call *c, value *out)
{
    const size_t begin = c->run->out->count;
    coh_jinja_list list;
    value between;
    COH_TRY(coh_jinja_str(c->run, argument(c, 0), &between));
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    for (size_t i = 0; i < list.count; i++) {
        if (i)
            COH_TRY(coh_jinja_put(c->run, &between));
        COH_TRY(coh_jinja_put_str(c->run, &list.items[i]));
    }
    return coh_jinja_cut(c->run, begin, out);
}

static coh_status do_get(const call *c, value *out)
{
    const value *found;
    COH_TRY(coh_jinja_dict_get(c->run, c->self->dict, argument(c, 0), &found));
    *out = found ? *found : c->all->count > 1 ? *argument(c, 1) : coh_jinja_none();
    return COH_OK;
}

/* Is key `a` before key `b`? Strings are compared without case. */
static coh_status is_before(runner *run, const value *a, const value *b, int *out_is)
{
    value x = *a, y = *b;
    if (a->kind == COH_JINJA_STRING)
        COH_TRY(coh_jinja_change_case(run, a, COH_JINJA_LOWER, &x));
    if (b->kind == COH_JINJA_STRING)
        COH_TRY(coh_jinja_change_case(run, b, COH_JINJA_LOWER, &y));
    return coh_jinja_compare(run, '<', &x, &y, out_is);
}

/* The pairs of a mapping, which are few, in the order of their keys. */
static coh_status do_dictsort(const call *c, value *out)
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
            COH_TRY(coh_jinja_spend(c->run, 1));
            COH_TRY(is_before(c->run, &pair->key, &items[at - 1].list->items[0], &is_earlier));
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

static coh_status do_map(const call *c, value *out)
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
                                  c->name);
    const value *path = all->values, *name = path + 1;
    const int test = named > 1 ? coh_jinja_find_builtin(COH_JINJA_TEST, NULL, name) : 0;
    if (test < 0)
        return coh_jinja_fail(c->run, "the test \"%.*s\" is not known here", COH_JINJA_SHOWN(name));
    const arguments rest = { all->values + named, all->names + named, all->count - named };
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_GENERATOR, list.count, out));
    out->list->count = 0;
    for (size_t i = 0; i < list.count; i++) {
        value member, is;
        COH_TRY(coh_jinja_item(c->run, &list.items[i], path, &member));
        COH_TRY(coh_jinja_spend(c->run, 1));
        is = member;
        if (named > 1)
            COH_TRY(coh_jinja_apply(c->run, test, &member, &rest, &is));
        if (coh_jinja_is_true(&is) == wanted)
            out->list->items[out->list->count++] = list.items[i];
    }
    return COH_OK;
}

static coh_status do_selectattr(const call *c, value *out)
{
    return choose(c, 1, out);
}

static coh_status do_rejectattr(const call *c, value *out)
{
    return choose(c, 0, out);
}

/* ---- tests ---- */

static coh_status is_true(const call *c, value *out)
{
    *out = coh_jinja_bool(c->self->whole != 0);
    return COH_OK;
}

static coh_status is_false(const call *c, value *out)
{
    *out = coh_jinja_bool(c->self->whole == 0);
    return COH_OK;
}

static coh_status is_equal(const call *c, value *out)
{
    int is;
    COH_TRY(coh_jinja_equal(c->run, c->self, argument(c, 0), &is));
    *out = coh_jinja_bool(is);
    return COH_OK;
}

static coh_status is_other(const call *c, value *out)
{
    COH_TRY(is_equal(c, out));
    out->whole = !out->whole;
    return COH_OK;
}

static coh_status is_in(const call *c, value *out)
{
    int is;
    COH_TRY(coh_jinja_contains(c->run, argument(c, 0), c->self, &is));
    *out = coh_jinja_bool(is);
    return COH_OK;
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

static coh_status do_range(const call *c, value *out)
{
    int64_t begin, end, step;
    size_t count;
    COH_TRY(read_whole(c, 0, 0, &begin));
    COH_TRY(read_whole(c, 1, begin, &end));
    COH_TRY(read_whole(c, 2, 1, &step));
    begin = c->all->count > 1 ? begin : 0;
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

static coh_status do_namespace(const call *c, value *out)
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

static coh_status do_raise_exception(const call *c, value *out)
{
    value text;
    COH_TRY(coh_jinja_str(c->run, argument(c, 0), &text));
    (void)out;
    return coh_jinja_fail(c->run, "the chat template refuses the conversation: %.*s",
                          (int)(text.count < 600 ? text.count : 600), (const char *)text.bytes);
}

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

static coh_status do_strftime_now(const call *c, value *out)
{
    const size_t begin = c->run->out->count;
    const value *format = argument(c, 0);
    COH_TRY(need(c, 0, COH_JINJA_STRING));
    for (size_t i = 0; i < format->count; i++) {
        const char *sign = (const char *)format->bytes + i;
        const int is_part = *sign == '%' && i + 1 < format->count;
        const char *text = is_part ? day_part(sign[1]) : sign;
        if (!text)
            return coh_jinja_fail(c->run, "the part %%%c of a date is not known here", sign[1]);
        COH_TRY(coh_jinja_put_own(c->run, text, is_part ? strlen(text) : 1));
        i += (size_t)is_part;
    }
    return coh_jinja_cut(c->run, begin, out);
}

/* ---- the table ---- */

/* The kinds of values as bits. */
enum {
    UNDEFINED = 1 << COH_JINJA_UNDEFINED,
    NONE = 1 << COH_JINJA_NONE,
    BOOL = 1 << COH_JINJA_BOOL,
    WHOLE = 1 << COH_JINJA_WHOLE,
    STRING = 1 << COH_JINJA_STRING,
    DICT = 1 << COH_JINJA_DICT,
    SEQUENCE = STRING | DICT | UNDEFINED | 1 << COH_JINJA_LIST,
    ITERABLE = SEQUENCE | 1 << COH_JINJA_GENERATOR | 1 << COH_JINJA_LOOP,
    ANY = ~0,
};

enum { ALL = 255 }; /* arguments of any number, by name, too */

/* A method is one of the kinds' values. A test holds only for a value of these kinds, and then as
 * `function` (NULL: always) says. A function that is NULL is not known here. */
static const struct builtin {
    uint8_t use, needed, most; /* numbers of arguments */
    unsigned kinds;
    const char *name;
    coh_status (*function)(const call *c, value *out);
} builtins[] = {
    { COH_JINJA_FILTER, 0, 0, ANY, "capitalize", do_capitalize },
    { COH_JINJA_FILTER, 0, 0, ANY, "count", do_length },
    { COH_JINJA_FILTER, 0, 2, ANY, "d", do_default },
    { COH_JINJA_FILTER, 0, 2, ANY, "default", do_default },
    { COH_JINJA_FILTER, 0, 0, ANY, "dictsort", do_dictsort },
    { COH_JINJA_FILTER, 0, 0, ANY, "first", do_first },
    { COH_JINJA_FILTER, 0, 1, ANY, "int", do_int },
    { COH_JINJA_FILTER, 0, 1, ANY, "join", do_join },
    { COH_JINJA_FILTER, 0, 0, ANY, "last", do_last },
    { COH_JINJA_FILTER, 0, 0, ANY, "length", do_length },
    { COH_JINJA_FILTER, 0, 0, ANY, "list", do_list },
    { COH_JINJA_FILTER, 0, 0, ANY, "lower", do_lower },
    { COH_JINJA_FILTER, 0, ALL, ANY, "map", do_map },
    { COH_JINJA_FILTER, 0, ALL, ANY, "rejectattr", do_rejectattr },
    { COH_JINJA_FILTER, 2, 3, ANY, "replace", do_replace },
    { COH_JINJA_FILTER, 0, ALL, ANY, "selectattr", do_selectattr },
    { COH_JINJA_FILTER, 0, 0, ANY, "string", do_string },
    { COH_JINJA_FILTER, 0, 1, ANY, "trim", do_strip },
    { COH_JINJA_FILTER, 0, 0, ANY, "upper", do_upper },
    { COH_JINJA_TEST, 1, 1, ANY, "!=", is_other },
    { COH_JINJA_TEST, 1, 1, ANY, "==", is_equal },
    { COH_JINJA_TEST, 0, 0, BOOL, "boolean", NULL },
    { COH_JINJA_TEST, 0, 0, ~UNDEFINED, "defined", NULL },
    { COH_JINJA_TEST, 1, 1, ANY, "eq", is_equal },
    { COH_JINJA_TEST, 1, 1, ANY, "equalto", is_equal },
    { COH_JINJA_TEST, 0, 0, BOOL, "false", is_false },
    { COH_JINJA_TEST, 1, 1, ANY, "in", is_in },
    { COH_JINJA_TEST, 0, 0, WHOLE, "integer", NULL },
    { COH_JINJA_TEST, 0, 0, ITERABLE, "iterable", NULL },
    { COH_JINJA_TEST, 0, 0, DICT, "mapping", NULL },
    { COH_JINJA_TEST, 1, 1, ANY, "ne", is_other },
    { COH_JINJA_TEST, 0, 0, NONE, "none", NULL },
    { COH_JINJA_TEST, 0, 0, WHOLE | BOOL, "number", NULL },
    { COH_JINJA_TEST, 0, 0, SEQUENCE, "sequence", NULL },
    { COH_JINJA_TEST, 0, 0, STRING, "string", NULL },
    { COH_JINJA_TEST, 0, 0, BOOL, "true", is_true },
    { COH_JINJA_TEST, 0, 0, UNDEFINED, "undefined", NULL },
    { COH_JINJA_METHOD_OF, 0, 0, STRING, "capitalize", do_capitalize },
    { COH_JINJA_METHOD_OF, 1, 1, STRING, "endswith", do_endswith },
    { COH_JINJA_METHOD_OF, 1, 2, DICT, "get", do_get },
    { COH_JINJA_METHOD_OF, 0, 0, STRING, "lower", do_lower },
    { COH_JINJA_METHOD_OF, 0, 1, STRING, "lstrip", do_lstrip },
    { COH_JINJA_METHOD_OF, 2, 3, STRING, "replace", do_replace },
    { COH_JINJA_METHOD_OF, 0, 1, STRING, "rstrip", do_rstrip },
    { COH_JINJA_METHOD_OF, 0, 2, STRING, "split", do_split },
    { COH_JINJA_METHOD_OF, 1, 1, STRING, "startswith", do_startswith },
    { COH_JINJA_METHOD_OF, 0, 1, STRING, "strip", do_strip },
    { COH_JINJA_METHOD_OF, 0, 0, STRING, "title", do_title },
    { COH_JINJA_METHOD_OF, 0, 0, STRING, "upper", do_upper },
    { COH_JINJA_GLOBAL, 0, ALL, ANY, "cycler", NULL },
    { COH_JINJA_GLOBAL, 0, ALL, ANY, "dict", NULL },
    { COH_JINJA_GLOBAL, 0, ALL, ANY, "joiner", NULL },
    { COH_JINJA_GLOBAL, 0, ALL, ANY, "lipsum", NULL },
    { COH_JINJA_GLOBAL, 0, ALL, ANY, "namespace", do_namespace },
    { COH_JINJA_GLOBAL, 1, 1, ANY, "raise_exception", do_raise_exception },
    { COH_JINJA_GLOBAL, 1, 3, ANY, "range", do_range },
    { COH_JINJA_GLOBAL, 1, 1, ANY, "strftime_now", do_strftime_now },
};

int coh_jinja_find_builtin(coh_jinja_use use, const value *self, const value *name)
{
    for (int i = 0; i < (int)(sizeof(builtins) / sizeof(builtins[0])); i++)
        if (builtins[i].use == use && (!self || builtins[i].kinds >> self->kind & 1) &&
            name->count && builtins[i].name[0] == (char)name->bytes[0] &&
            coh_jinja_is(name, builtins[i].name))
            return i;
    return -1;
}

coh_status coh_jinja_apply(runner *run, int index, const value *self, const arguments *all,
                           value *out)
{
    const struct builtin *b = &builtins[index];
    const call c = { run, b->name, self, all };
    if (!b->function && b->use != COH_JINJA_TEST)
        return coh_jinja_fail(run, "the function %s() is not known here", b->name);
    for (size_t i = 0; i < all->count && b->most != ALL; i++)
        if (all->names[i])
            return coh_jinja_fail(run, "%s() with an argument by name is not known here", b->name);
    if (all->count < b->needed || (all->count > b->most && b->most != ALL))
        return coh_jinja_fail(run, "%s() takes from %d to %d arguments, not %zu", b->name,
                              b->needed, b->most, all->count);
    if (b->use != COH_JINJA_TEST || (b->function && b->kinds >> self->kind & 1))
        return b->function(&c, out);
    *out = coh_jinja_bool((int)(b->kinds >> self->kind & 1));
    return COH_OK;
}

/* Methods that change a value are missing: in Jinja's sandbox they are undefined. */
static const struct {
    uint8_t kind;
    const char *names; /* each between blanks */
} methods_of_python[] = {
    { COH_JINJA_STRING,
      " casefold center count encode expandtabs find format format_map index isalnum isalpha "
      "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
      "isupper "
      "join ljust maketrans partition removeprefix removesuffix rfind rindex rjust rpartition "
      "rsplit splitlines swapcase translate zfill " },
    { COH_JINJA_DICT, " copy fromkeys items keys values " },
    { COH_JINJA_LIST, " copy count index " },
    { COH_JINJA_LOOP, " changed cycle depth depth0 " },
};

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
