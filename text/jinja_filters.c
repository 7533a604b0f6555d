/* Filters. Those of Jinja that are not here are refused when a template calls them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/c_locale.h"
#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_call call;
typedef coh_jinja_arguments arguments;

/* ---- strings ---- */

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

static coh_status filter_title(const call *c, value *out)
{
    return in_case(c, COH_JINJA_WORDS, out);
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

static coh_status filter_safe(const call *c, value *out)
{
    COH_TRY(coh_jinja_str(c->run, c->self, out));
    out->flavour = 1;
    return COH_OK;
}

static coh_status filter_escape(const call *c, value *out)
{
    value string;
    COH_TRY(coh_jinja_str(c->run, c->self, &string));
    if (string.flavour) {
        *out = string;
        return COH_OK;
    }
    return coh_jinja_escape(c->run, &string, out);
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

/* Puts `width` blanks, or the string that is given instead. */
static coh_status put_indent(const call *c, int64_t width)
{
    if (c->bound[0].kind == COH_JINJA_STRING)
        return coh_jinja_put(c->run, &c->bound[0]);
    for (int64_t i = 0; i < width; i++)
        COH_TRY(coh_jinja_put_own(c->run, " ", 1));
    return COH_OK;
}

static coh_status filter_indent(const call *c, value *out)
{
    int64_t width = 4;
    value string, lines;
    const int first = coh_jinja_is_true(&c->bound[1]), blank = coh_jinja_is_true(&c->bound[2]);
    if (c->bound[0].kind != COH_JINJA_STRING)
        COH_TRY(coh_jinja_whole_of(c, 0, 4, &width));
    if (c->self->kind != COH_JINJA_STRING)
        return coh_jinja_fail(c->run, "the filter \"indent\" gets a %s", coh_jinja_type(c->self));
    size_t begin = c->run->out->count;
    COH_TRY(coh_jinja_put(c->run, c->self));
    COH_TRY(coh_jinja_put_own(c->run, "\n", 1));
    COH_TRY(coh_jinja_cut(c->run, begin, &string));
    COH_TRY(coh_jinja_split_lines(c->run, &string, 0, &lines));
    begin = c->run->out->count;
    for (size_t i = 0; i < lines.list->count; i++) {
        const value *line = &lines.list->items[i];
        if (i)
            COH_TRY(coh_jinja_put_own(c->run, "\n", 1));
        if (i ? blank || line->count > 0 : first)
            COH_TRY(put_indent(c, width));
        COH_TRY(coh_jinja_put(c->run, line));
    }
    return coh_jinja_cut(c->run, begin, out);
}

static coh_status filter_tojson(const call *c, value *out)
{
    const value *indent = &c->bound[1], *separators = &c->bound[2];
    const int has_indent = coh_jinja_is_given(indent);
    const size_t begin = c->run->out->count;
    coh_jinja_json form = { .is_ascii = coh_jinja_is_true(&c->bound[0]),
                            .is_sorted = coh_jinja_is_true(&c->bound[3]),
                            .has_indent = has_indent,
                            .between = coh_jinja_text_value(has_indent ? "," : ", "),
                            .behind_key = coh_jinja_text_value(": ") };
    if (coh_jinja_is_given(separators)) {
        coh_jinja_list list;
        COH_TRY(coh_jinja_items(c->run, separators, &list));
        if (list.count != 2 || list.items[0].kind != COH_JINJA_STRING ||
            list.items[1].kind != COH_JINJA_STRING)
            return coh_jinja_fail(c->run, "the separators of \"tojson\" are two strings");
        form.between = list.items[0];
        form.behind_key = list.items[1];
    }
    if (has_indent && indent->kind == COH_JINJA_STRING) {
        form.indent = *indent;
    } else if (has_indent) {
        int64_t width;
        COH_TRY(coh_jinja_whole_of(c, 1, 0, &width));
        for (int64_t i = 0; i < width; i++)
            COH_TRY(coh_jinja_put_own(c->run, " ", 1));
        COH_TRY(coh_jinja_cut(c->run, begin, &form.indent));
    }
    COH_TRY(coh_jinja_put_json(c->run, &form, c->self, 0));
    return coh_jinja_cut(c->run, begin, out);
}

/* ---- numbers ---- */

static coh_status filter_abs(const call *c, value *out)
{
    if (!coh_jinja_is_number(c->self))
        return coh_jinja_fail(c->run, "the filter \"abs\" gets a %s", coh_jinja_type(c->self));
    return coh_jinja_sign(c->run, coh_jinja_number(c->self) < 0 ? '-' : '+', c->self, out);
}

/* The part before the point; 0: it has none in 64 bits. */
static int truncate_real(double real, value *out)
{
    if (!(real > -0x1p63 && real < 0x1p63))
        return 0;
    *out = coh_jinja_whole((int64_t)real);
    return 1;
}

static coh_status refuse_undefined(const call *c)
{
    return coh_jinja_fail(c->run, "the filter \"%s\" gets an undefined value \"%.*s\"",
                          c->signature->name, (int)(c->self->count < 80 ? c->self->count : 80),
                          (const char *)c->self->bytes);
}

static coh_status filter_int(const call *c, value *out)
{
    int64_t base, whole;
    double real;
    if (c->self->kind == COH_JINJA_UNDEFINED)
        return refuse_undefined(c);
    COH_TRY(coh_jinja_whole_of(c, 1, 10, &base));
    *out = c->bound[0].kind == COH_JINJA_MISSING ? coh_jinja_whole(0) : c->bound[0];
    if (coh_jinja_is_integer(c->self)) {
        *out = coh_jinja_whole(c->self->whole);
    } else if (c->self->kind == COH_JINJA_REAL) {
        if (!truncate_real(c->self->real, out) && isfinite(c->self->real))
            return coh_jinja_fail(c->run, "an integer is beyond 64 bits");
    } else if (c->self->kind == COH_JINJA_STRING) {
        if (base >= 0 && base <= 36 && coh_jinja_read_whole(c->self, (int)base, &whole))
            *out = coh_jinja_whole(whole);
        else if (coh_jinja_read_real(c->self, &real))
            (void)truncate_real(real, out);
    }
    return COH_OK;
}

static coh_status filter_float(const call *c, value *out)
{
    double real;
    if (c->self->kind == COH_JINJA_UNDEFINED)
        return refuse_undefined(c);
    *out = c->bound[0].kind == COH_JINJA_MISSING ? coh_jinja_real(0) : c->bound[0];
    if (coh_jinja_is_number(c->self))
        *out = coh_jinja_real(coh_jinja_number(c->self));
    else if (c->self->kind == COH_JINJA_STRING && coh_jinja_read_real(c->self, &real))
        *out = coh_jinja_real(real);
    return COH_OK;
}

/* Half to even of the decimal digits that the number really has, as printf rounds. */
static double round_decimals(double real, int decimals)
{
    char text[400];
    const coh_c_locale locale = coh_c_locale_enter();
    snprintf(text, sizeof(text), "%.*f", decimals, real);
    const double rounded = strtod(text, NULL);
    coh_c_locale_leave(locale);
    return rounded;
}

static coh_status filter_round(const call *c, value *out)
{
    int64_t decimals;
    const value *method = &c->bound[1];
    COH_TRY(coh_jinja_whole_of(c, 0, 0, &decimals));
    if (!coh_jinja_is_number(c->self) || decimals < 0 || decimals > 15)
        return coh_jinja_fail(c->run,
                              "the filter \"round\" gets a %s, or a number of digits beyond "
                              "0..15",
                              coh_jinja_type(c->self));
    const double real = coh_jinja_number(c->self), scale = pow(10, (double)decimals);
    if (method->kind == COH_JINJA_MISSING || coh_jinja_is(method, "common"))
        *out = c->self->kind == COH_JINJA_REAL ? coh_jinja_real(round_decimals(real, (int)decimals))
                                               : coh_jinja_whole(c->self->whole);
    else if (coh_jinja_is(method, "ceil"))
        *out = coh_jinja_real(ceil(real * scale) / scale);
    else if (coh_jinja_is(method, "floor"))
        *out = coh_jinja_real(floor(real * scale) / scale);
    else
        return coh_jinja_fail(c->run, "the filter \"round\" gets a method that is unknown");
    return COH_OK;
}

/* ---- lists ---- */

static coh_status filter_length(const call *c, value *out)
{
    const value *v = c->self;
    if (v->kind == COH_JINJA_STRING) {
        COH_TRY(coh_jinja_spend_bytes(c->run, v->count));
        *out = coh_jinja_whole((int64_t)coh_jinja_character_count(v));
    } else if (v->kind == COH_JINJA_LIST && v->flavour != COH_JINJA_A_GENERATOR) {
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
    if (v->kind == COH_JINJA_STRING && v->count) {
        *out = coh_jinja_part(v, 0, coh_jinja_character(v, 0));
        return COH_OK;
    }
    if (v->kind == COH_JINJA_LIST && v->flavour == COH_JINJA_A_GENERATOR && v->list->count) {
        *out = *v->list->items++; /* the others remain */
        v->list->count--;
        return COH_OK;
    }
    COH_TRY(coh_jinja_items(c->run, v, &list));
    *out = list.count ? list.items[0] : undefined();
    return COH_OK;
}

/* reversed() of Python is not for generators. */
static coh_status check_reversible(const call *c)
{
    if (c->self->kind == COH_JINJA_LIST && c->self->flavour == COH_JINJA_A_GENERATOR)
        return coh_jinja_fail(c->run, "the filter \"%s\" gets a generator", c->signature->name);
    return COH_OK;
}

static coh_status filter_last(const call *c, value *out)
{
    coh_jinja_list list;
    COH_TRY(check_reversible(c));
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    *out = list.count ? list.items[list.count - 1] : undefined();
    return COH_OK;
}

/* A list, or a generator, of the items of a list. */
static coh_status copy_items(runner *run, const coh_jinja_list *list, coh_jinja_flavour flavour,
                             value *out)
{
    COH_TRY(coh_jinja_spend(run, list->count / 16));
    COH_TRY(coh_jinja_list_make(run, flavour, list->count, out));
    if (list->count)
        memcpy(out->list->items, list->items, list->count * sizeof(value));
    return COH_OK;
}

static coh_status filter_list(const call *c, value *out)
{
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    return copy_items(c->run, &list, COH_JINJA_A_LIST, out);
}

static coh_status filter_reverse(const call *c, value *out)
{
    coh_jinja_list list;
    const value ends[3] = { coh_jinja_none(), coh_jinja_none(), coh_jinja_whole(-1) };
    if (c->self->kind == COH_JINJA_STRING)
        return coh_jinja_slice(c->run, c->self, ends, out);
    const int is_generator =
        c->self->kind == COH_JINJA_LIST && c->self->flavour == COH_JINJA_A_GENERATOR;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, is_generator ? COH_JINJA_A_LIST : COH_JINJA_A_GENERATOR,
                                list.count, out));
    for (size_t i = 0; i < list.count; i++)
        out->list->items[i] = list.items[list.count - 1 - i];
    return COH_OK;
}

static coh_status filter_join(const call *c, value *out)
{
    const size_t begin = c->run->out->count;
    coh_jinja_list list;
    value between = coh_jinja_text_value(""), item;
    if (c->bound[0].kind != COH_JINJA_MISSING)
        COH_TRY(coh_jinja_str(c->run, &c->bound[0], &between));
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    for (size_t i = 0; i < list.count; i++) {
        item = list.items[i];
        if (coh_jinja_is_given(&c->bound[1]))
            COH_TRY(coh_jinja_path(c->run, &list.items[i], &c->bound[1], &item));
        if (i)
            COH_TRY(coh_jinja_put(c->run, &between));
        COH_TRY(coh_jinja_put_str(c->run, &item));
    }
    return coh_jinja_cut(c->run, begin, out);
}

static coh_status filter_sum(const call *c, value *out)
{
    coh_jinja_list list;
    value item, sum = c->bound[1].kind == COH_JINJA_MISSING ? coh_jinja_whole(0) : c->bound[1];
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    for (size_t i = 0; i < list.count; i++) {
        item = list.items[i];
        if (coh_jinja_is_given(&c->bound[0]))
            COH_TRY(coh_jinja_path(c->run, &list.items[i], &c->bound[0], &item));
        if (item.kind == COH_JINJA_STRING)
            return coh_jinja_fail(c->run, "the filter \"sum\" gets a str");
        COH_TRY(coh_jinja_binary(c->run, '+', &sum, &item, out));
        sum = *out;
    }
    *out = sum;
    return COH_OK;
}

static coh_status filter_items(const call *c, value *out)
{
    if (c->self->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, 0, out);
    if (c->self->kind != COH_JINJA_DICT)
        return coh_jinja_fail(c->run, "the filter \"items\" gets a %s", coh_jinja_type(c->self));
    return coh_jinja_dict_list(c->run, c->self->dict, 0, COH_JINJA_A_GENERATOR, out);
}

/* ---- sorted lists ---- */

/* What an item is compared by: itself or an attribute, without case unless that counts. */
static coh_status key_of(const call *c, const value *item, const value *path, int has_case,
                         value *out)
{
    *out = *item;
    if (coh_jinja_is_given(path))
        COH_TRY(coh_jinja_path(c->run, item, path, out));
    if (has_case || out->kind != COH_JINJA_STRING)
        return COH_OK;
    const value string = *out;
    return coh_jinja_change_case(c->run, &string, COH_JINJA_LOWER, out);
}

static coh_status keys_of(const call *c, const coh_jinja_list *list, const value *path,
                          int has_case, value *out)
{
    if (path->kind == COH_JINJA_STRING && path->count && memchr(path->bytes, ',', path->count))
        return coh_jinja_fail(c->run, "the filter \"%s\" by several attributes is not known here",
                              c->signature->name);
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_LIST, list->count, out));
    for (size_t i = 0; i < list->count; i++)
        COH_TRY(key_of(c, &list->items[i], path, has_case, &out->list->items[i]));
    return COH_OK;
}

/* Merges two neighbouring sorted parts of `from`. Items with equal keys keep their order. */
static coh_status merge(const call *c, const value *keys, const size_t *from, size_t begin,
                        size_t middle, size_t end, int is_reverse, size_t *to)
{
    size_t a = begin, b = middle;
    for (size_t i = begin; i < end; i++) {
        int takes_right = a == middle;
        if (a < middle && b < end) {
            COH_TRY(coh_jinja_spend(c->run, 1));
            const value *left = &keys[from[a]], *right = &keys[from[b]];
            COH_TRY(coh_jinja_compare(c->run, is_reverse ? '>' : '<', right, left, &takes_right));
        }
        to[i] = takes_right ? from[b++] : from[a++];
    }
    return COH_OK;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static coh_status sort_by(const call *c, const coh_jinja_list *list, const value *keys,
                          int is_reverse, value *out)
{
    void *memory;
    const size_t count = list->count;
    COH_TRY(coh_jinja_take(c->run, 2 * count, sizeof(size_t), &memory));
    size_t *order = memory, *other = order + count;
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width)
            COH_TRY(merge(c, keys, order, i, least(i + width, count), least(i + 2 * width, count),
                          is_reverse, other));
        size_t *swapped = order;
        order = other;
        other = swapped;
    }
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_LIST, count, out));
    for (size_t i = 0; i < count; i++)
        out->list->items[i] = list->items[order[i]];
    return COH_OK;
}

static coh_status filter_sort(const call *c, value *out)
{
    coh_jinja_list list;
    value keys;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(keys_of(c, &list, &c->bound[2], coh_jinja_is_true(&c->bound[1]), &keys));
    return sort_by(c, &list, keys.list->items, coh_jinja_is_true(&c->bound[0]), out);
}

static coh_status filter_dictsort(const call *c, value *out)
{
    value pairs, keys;
    const value *by = &c->bound[1];
    const int is_by_value = by->kind == COH_JINJA_STRING && coh_jinja_is(by, "value");
    const value path = coh_jinja_whole(is_by_value);
    if (c->self->kind != COH_JINJA_DICT)
        return coh_jinja_fail(c->run, "the filter \"dictsort\" gets a %s", coh_jinja_type(c->self));
    if (by->kind != COH_JINJA_MISSING && !is_by_value && !coh_jinja_is(by, "key"))
        return coh_jinja_fail(c->run, "the filter \"dictsort\" sorts by \"key\" or \"value\"");
    COH_TRY(coh_jinja_dict_list(c->run, c->self->dict, 0, COH_JINJA_A_LIST, &pairs));
    COH_TRY(keys_of(c, pairs.list, &path, coh_jinja_is_true(&c->bound[0]), &keys));
    return sort_by(c, pairs.list, keys.list->items, coh_jinja_is_true(&c->bound[2]), out);
}

static coh_status filter_unique(const call *c, value *out)
{
    coh_jinja_list list;
    value keys;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(keys_of(c, &list, &c->bound[1], coh_jinja_is_true(&c->bound[0]), &keys));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, list.count, out));
    coh_jinja_list seen = { 0, keys.list->items };
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++) {
        int is_seen = 0;
        COH_TRY(coh_jinja_spend(c->run, 1 + seen.count / 4));
        for (size_t k = 0; k < seen.count && !is_seen; k++)
            COH_TRY(coh_jinja_equal(c->run, &seen.items[k], &keys.list->items[i], &is_seen));
        if (is_seen)
            continue;
        seen.items[seen.count++] = keys.list->items[i];
        out->list->items[count++] = list.items[i];
    }
    out->list->count = count;
    return COH_OK;
}

static coh_status extreme(const call *c, uint16_t op, value *out)
{
    coh_jinja_list list;
    value keys;
    size_t best = 0;
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(keys_of(c, &list, &c->bound[1], coh_jinja_is_true(&c->bound[0]), &keys));
    for (size_t i = 1; i < list.count; i++) {
        int is_better;
        COH_TRY(coh_jinja_compare(c->run, op, &keys.list->items[i], &keys.list->items[best],
                                  &is_better));
        if (is_better)
            best = i;
    }
    *out = list.count ? list.items[best] : undefined();
    return COH_OK;
}

static coh_status filter_min(const call *c, value *out)
{
    return extreme(c, '<', out);
}

static coh_status filter_max(const call *c, value *out)
{
    return extreme(c, '>', out);
}

/* ---- filters that apply others ---- */

/* The arguments behind the first `count`. */
static arguments behind(const arguments *all, size_t count)
{
    if (all->count == count)
        return (arguments){ 0 };
    return (arguments){ all->values + count, all->names + count, all->count - count };
}

static const value *argument_named(const arguments *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->names[i] && coh_jinja_is(all->names[i], name))
            return &all->values[i];
    return NULL;
}

/* Is argument `at` given by position? It must be a string then. */
static coh_status name_at(const call *c, size_t at, const value **out)
{
    *out = at < c->all->count && !c->all->names[at] ? &c->all->values[at] : NULL;
    if (*out && (*out)->kind != COH_JINJA_STRING)
        return coh_jinja_fail(c->run, "the filter \"%s\" gets a %s as a name", c->signature->name,
                              coh_jinja_type(*out));
    return COH_OK;
}

static coh_status map_attribute(const call *c, const value *path, value *out)
{
    const value *missing = argument_named(c->all, "default");
    coh_jinja_list list;
    if (c->all->count > 1 + (missing != NULL))
        return coh_jinja_fail(c->run, "the filter \"map\" gets an argument that is unknown");
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, list.count, out));
    for (size_t i = 0; i < list.count; i++) {
        value *item = &out->list->items[i];
        COH_TRY(coh_jinja_path(c->run, &list.items[i], path, item));
        if (item->kind == COH_JINJA_UNDEFINED && missing)
            *item = *missing;
    }
    return COH_OK;
}

static coh_status filter_map(const call *c, value *out)
{
    const value *path = argument_named(c->all, "attribute"), *name;
    coh_jinja_list list;
    if (path && !c->all->names[0])
        path = NULL;
    if (!coh_jinja_is_true(c->self)) /* of any type */
        return coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, 0, out);
    if (path)
        return map_attribute(c, path, out);
    COH_TRY(name_at(c, 0, &name));
    if (!name)
        return coh_jinja_fail(c->run, "the filter \"map\" lacks a filter");
    const arguments rest = behind(c->all, 1);
    const int filter = coh_jinja_filter_index(name->bytes, name->count);
    if (filter < 0)
        return coh_jinja_fail(c->run, "the filter \"%.*s\" is not known here",
                              (int)least(name->count, 40), (const char *)name->bytes);
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, list.count, out));
    for (size_t i = 0; i < list.count; i++)
        COH_TRY(coh_jinja_filter(c->run, filter, &list.items[i], &rest, &out->list->items[i]));
    return COH_OK;
}

/* Keeps the items, by one of their attributes if `has_path`, for which a test is `wanted`. */
static coh_status choose(const call *c, int has_path, int wanted, value *out)
{
    const value *path = NULL, *name;
    coh_jinja_list list;
    if (!coh_jinja_is_true(c->self)) /* of any type */
        return coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, 0, out);
    if (has_path && c->all->count == 0)
        return coh_jinja_fail(c->run, "the filter \"%s\" lacks an attribute", c->signature->name);
    if (has_path)
        path = &c->all->values[0];
    COH_TRY(name_at(c, (size_t)has_path, &name));
    const int test = name ? coh_jinja_test_index(name->bytes, name->count) : 0;
    if (test < 0)
        return coh_jinja_fail(c->run, "the test \"%.*s\" is not known here",
                              (int)least(name->count, 40), (const char *)name->bytes);
    const arguments rest = behind(c->all, (size_t)has_path + (name != NULL));
    COH_TRY(coh_jinja_items(c->run, c->self, &list));
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_GENERATOR, list.count, out));
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++) {
        value item = list.items[i];
        int is;
        if (path)
            COH_TRY(coh_jinja_path(c->run, &list.items[i], path, &item));
        COH_TRY(coh_jinja_spend(c->run, 1));
        is = coh_jinja_is_true(&item);
        if (name)
            COH_TRY(coh_jinja_test(c->run, test, &item, &rest, &is));
        if (is == wanted)
            out->list->items[count++] = list.items[i];
    }
    out->list->count = count;
    return COH_OK;
}

static coh_status filter_select(const call *c, value *out)
{
    return choose(c, 0, 1, out);
}

static coh_status filter_reject(const call *c, value *out)
{
    return choose(c, 0, 0, out);
}

static coh_status filter_selectattr(const call *c, value *out)
{
    return choose(c, 1, 1, out);
}

static coh_status filter_rejectattr(const call *c, value *out)
{
    return choose(c, 1, 0, out);
}

/* ---- the table of filters ---- */

static const struct filter {
    uint8_t takes_all;
    coh_jinja_signature signature;
    coh_status (*function)(const call *c, value *out);
} filters[] = {
    { 0, { "trim", "chars", 0 }, filter_trim },
    { 0, { "tojson", "ensure_ascii indent separators sort_keys", 0 }, filter_tojson },
    { 0, { "length", "", 0 }, filter_length },
    { 0, { "count", "", 0 }, filter_length },
    { 0, { "lower", "", 0 }, filter_lower },
    { 0, { "upper", "", 0 }, filter_upper },
    { 0, { "title", "", 0 }, filter_title },
    { 0, { "capitalize", "", 0 }, filter_capitalize },
    { 0, { "join", "d attribute", 0 }, filter_join },
    { 0, { "default", "default_value boolean", 0 }, filter_default },
    { 0, { "d", "default_value boolean", 0 }, filter_default },
    { 0, { "first", "", 0 }, filter_first },
    { 0, { "last", "", 0 }, filter_last },
    { 0, { "list", "", 0 }, filter_list },
    { 0, { "string", "", 0 }, filter_string },
    { 0, { "int", "default base", 0 }, filter_int },
    { 0, { "float", "default", 0 }, filter_float },
    { 0, { "replace", "old new count", 2 }, filter_replace },
    { 0, { "reverse", "", 0 }, filter_reverse },
    { 0, { "sort", "reverse case_sensitive attribute", 0 }, filter_sort },
    { 0, { "unique", "case_sensitive attribute", 0 }, filter_unique },
    { 1, { "map", "", 0 }, filter_map },
    { 1, { "select", "", 0 }, filter_select },
    { 1, { "reject", "", 0 }, filter_reject },
    { 1, { "selectattr", "", 0 }, filter_selectattr },
    { 1, { "rejectattr", "", 0 }, filter_rejectattr },
    { 0, { "items", "", 0 }, filter_items },
    { 0, { "dictsort", "case_sensitive by reverse", 0 }, filter_dictsort },
    { 0, { "indent", "width first blank", 0 }, filter_indent },
    { 0, { "safe", "", 0 }, filter_safe },
    { 0, { "escape", "", 0 }, filter_escape },
    { 0, { "e", "", 0 }, filter_escape },
    { 0, { "abs", "", 0 }, filter_abs },
    { 0, { "round", "precision method", 0 }, filter_round },
    { 0, { "min", "case_sensitive attribute", 0 }, filter_min },
    { 0, { "max", "case_sensitive attribute", 0 }, filter_max },
    { 0, { "sum", "attribute start", 0 }, filter_sum },
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
    COH_TRY(coh_jinja_enter(run));
    if (!f->takes_all)
        COH_TRY(coh_jinja_bind(run, &f->signature, all, bound));
    const call c = { run, &f->signature, in, bound, all };
    COH_TRY(f->function(&c, out));
    run->depth--;
    return COH_OK;
}
