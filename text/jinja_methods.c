/* Methods of strings, mappings and lists. A method that Python has, but that is not here, is in the
 * table without a function, so that it is refused by its name and not taken for a member that is
 * undefined. */
#include "text/characters.h"
#include "text/jinja_values.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;
typedef coh_jinja_call call;

/* ---- strings ---- */

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
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_A_LIST, 0, out));
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

/* Where the last `part` of `string` begins that ends at or before `end`; SIZE_MAX: nowhere. */
static size_t find_last(const value *string, const value *part, size_t end)
{
    for (size_t at = end; at >= part->count; at--) {
        const size_t begin = at - part->count;
        if (memcmp(string->bytes + begin, part->bytes, part->count) == 0)
            return begin;
        if (at == 0)
            break;
    }
    return SIZE_MAX;
}

/* From the end on: the parts are in the opposite order. */
static coh_status split_last(const call *c, int64_t most, parts *p)
{
    size_t end = c->self->count;
    for (size_t at; most != 0; most--) {
        at = find_last(c->self, &c->bound[0], end);
        if (at == SIZE_MAX)
            break;
        COH_TRY(add_part(c->run, p, c->self, at + c->bound[0].count, end));
        end = at;
    }
    return add_part(c->run, p, c->self, 0, end);
}

static coh_status need_separator(const call *c)
{
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, c->bound[0].count));
    return c->bound[0].count
               ? COH_OK
               : coh_jinja_fail(c->run, "%s() gets an empty separator", c->signature->name);
}

/* Checks the separator, and reads the number of splits. */
static coh_status begin_split(const call *c, int64_t *most)
{
    COH_TRY(coh_jinja_whole_of(c, 1, -1, most));
    return coh_jinja_is_given(&c->bound[0]) ? need_separator(c)
                                            : coh_jinja_spend_bytes(c->run, c->self->count);
}

static coh_status str_split(const call *c, value *out)
{
    parts p = { 0 };
    int64_t most;
    COH_TRY(begin_split(c, &most));
    COH_TRY(coh_jinja_is_given(&c->bound[0]) ? split_at(c, most, &p) : split_spaces(c, most, &p));
    return list_of(c->run, &p, out);
}

static coh_status str_rsplit(const call *c, value *out)
{
    parts p = { 0 };
    int64_t most;
    COH_TRY(begin_split(c, &most));
    if (!coh_jinja_is_given(&c->bound[0])) {
        if (most >= 0)
            return coh_jinja_fail(c->run, "rsplit() at white space with a number of splits is not "
                                          "known here");
        COH_TRY(split_spaces(c, most, &p));
        return list_of(c->run, &p, out);
    }
    COH_TRY(split_last(c, most, &p));
    for (size_t i = 0; i < p.count / 2; i++) {
        const value swapped = p.items[i];
        p.items[i] = p.items[p.count - 1 - i];
        p.items[p.count - 1 - i] = swapped;
    }
    return list_of(c->run, &p, out);
}

static coh_status str_splitlines(const call *c, value *out)
{
    return coh_jinja_split_lines(c->run, c->self, coh_jinja_is_true(&c->bound[0]), out);
}

/* The three parts around the separator, which is at `at`. */
static coh_status part_at(const call *c, size_t at, int is_last, value *out)
{
    const value *s = c->self;
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_TUPLE, 3, out));
    value *items = out->list->items;
    const size_t none = is_last ? 0 : s->count;
    const size_t begin = at == SIZE_MAX ? none : at;
    const size_t end = at == SIZE_MAX ? none : at + c->bound[0].count;
    items[0] = coh_jinja_part(s, 0, begin);
    items[1] = coh_jinja_part(s, begin, end);
    items[2] = coh_jinja_part(s, end, s->count);
    return COH_OK;
}

static coh_status str_partition(const call *c, value *out)
{
    COH_TRY(need_separator(c));
    return part_at(c, coh_jinja_find(c->self, &c->bound[0], 0), 0, out);
}

static coh_status str_rpartition(const call *c, value *out)
{
    COH_TRY(need_separator(c));
    return part_at(c, find_last(c->self, &c->bound[0], c->self->count), 1, out);
}

static int has_at(const value *string, const value *part, int at_end)
{
    return part->count <= string->count &&
           memcmp(string->bytes + (at_end ? string->count - part->count : 0), part->bytes,
                  part->count) == 0;
}

/* Of one string, or of any in a tuple. */
static coh_status has_affix(const call *c, int at_end, value *out)
{
    const value *affix = &c->bound[0];
    int is = 0;
    COH_TRY(coh_jinja_spend_bytes(c->run, c->self->count));
    if (affix->kind == COH_JINJA_LIST && affix->flavour == COH_JINJA_A_TUPLE) {
        for (size_t i = 0; i < affix->list->count; i++) {
            if (affix->list->items[i].kind != COH_JINJA_STRING)
                return coh_jinja_fail(c->run, "%s() gets a tuple with a %s", c->signature->name,
                                      coh_jinja_type(&affix->list->items[i]));
            is |= has_at(c->self, &affix->list->items[i], at_end);
        }
    } else {
        COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
        is = has_at(c->self, affix, at_end);
    }
    *out = coh_jinja_bool(is);
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

static coh_status remove_affix(const call *c, int at_end, value *out)
{
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    const size_t affix = has_at(c->self, &c->bound[0], at_end) ? c->bound[0].count : 0;
    *out = coh_jinja_part(c->self, at_end ? 0 : affix, c->self->count - (at_end ? affix : 0));
    return COH_OK;
}

static coh_status str_removeprefix(const call *c, value *out)
{
    return remove_affix(c, 0, out);
}

static coh_status str_removesuffix(const call *c, value *out)
{
    return remove_affix(c, 1, out);
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

static coh_status find_character(const call *c, int is_last, int64_t *out)
{
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, c->bound[0].count));
    const size_t at = is_last ? find_last(c->self, &c->bound[0], c->self->count)
                              : coh_jinja_find(c->self, &c->bound[0], 0);
    const value before = coh_jinja_part(c->self, 0, at == SIZE_MAX ? 0 : at);
    *out = at == SIZE_MAX ? -1 : (int64_t)coh_jinja_character_count(&before);
    return COH_OK;
}

static coh_status str_find(const call *c, value *out)
{
    *out = coh_jinja_whole(0);
    return find_character(c, 0, &out->whole);
}

static coh_status str_rfind(const call *c, value *out)
{
    *out = coh_jinja_whole(0);
    return find_character(c, 1, &out->whole);
}

static coh_status str_index(const call *c, value *out)
{
    *out = coh_jinja_whole(0);
    COH_TRY(find_character(c, 0, &out->whole));
    return out->whole < 0 ? coh_jinja_fail(c->run, "index() finds no such part") : COH_OK;
}

static coh_status str_count(const call *c, value *out)
{
    const value *part = &c->bound[0];
    size_t count = 0;
    COH_TRY(coh_jinja_need(c, 0, COH_JINJA_STRING));
    COH_TRY(coh_jinja_spend_pairs(c->run, c->self->count, c->bound[0].count));
    if (part->count == 0)
        count = coh_jinja_character_count(c->self) + 1;
    for (size_t at = 0; part->count && (at = coh_jinja_find(c->self, part, at)) != SIZE_MAX;
         at += part->count)
        count++;
    *out = coh_jinja_whole((int64_t)count);
    return COH_OK;
}

static coh_status str_join(const call *c, value *out)
{
    const size_t begin = c->run->out->count;
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(c->run, &c->bound[0], &list));
    for (size_t i = 0; i < list.count; i++) {
        if (list.items[i].kind != COH_JINJA_STRING)
            return coh_jinja_fail(c->run, "join() gets a list with a %s",
                                  coh_jinja_type(&list.items[i]));
        if (i)
            COH_TRY(coh_jinja_put(c->run, c->self));
        COH_TRY(coh_jinja_put(c->run, &list.items[i]));
    }
    return coh_jinja_cut(c->run, begin, out);
}

/* Are all characters, of which there is one, in the class? Only ASCII is known. */
static coh_status all_are(const call *c, int (*is_in)(uint8_t sign), value *out)
{
    int is = c->self->count > 0;
    for (size_t i = 0; i < c->self->count; i++) {
        if (c->self->bytes[i] >= 0x80)
            return coh_jinja_fail(c->run, "%s() is known here only for ASCII", c->signature->name);
        is &= is_in(c->self->bytes[i]);
    }
    *out = coh_jinja_bool(is);
    return COH_OK;
}

static int is_digit(uint8_t sign)
{
    return sign >= '0' && sign <= '9';
}

static int is_letter(uint8_t sign)
{
    return (sign | 0x20) >= 'a' && (sign | 0x20) <= 'z';
}

static int is_letter_or_digit(uint8_t sign)
{
    return is_digit(sign) || is_letter(sign);
}

static coh_status str_isdigit(const call *c, value *out)
{
    return all_are(c, is_digit, out);
}

static coh_status str_isalpha(const call *c, value *out)
{
    return all_are(c, is_letter, out);
}

static coh_status str_isalnum(const call *c, value *out)
{
    return all_are(c, is_letter_or_digit, out);
}

static coh_status str_isspace(const call *c, value *out)
{
    *out = coh_jinja_bool(c->self->count > 0 && coh_jinja_strip(c->self, NULL, 1, 0).count == 0);
    return COH_OK;
}

/* Is the case of the letters, of which there is one, `is_upper`? */
static coh_status has_case(const call *c, coh_jinja_case change, value *out)
{
    value same, other;
    const coh_jinja_case opposite = change == COH_JINJA_LOWER ? COH_JINJA_UPPER : COH_JINJA_LOWER;
    COH_TRY(coh_jinja_change_case(c->run, c->self, change, &same));
    COH_TRY(coh_jinja_change_case(c->run, c->self, opposite, &other));
    *out = coh_jinja_bool(same.count == c->self->count && other.count == c->self->count &&
                          memcmp(same.bytes, c->self->bytes, same.count) == 0 &&
                          memcmp(other.bytes, c->self->bytes, other.count) != 0);
    return COH_OK;
}

static coh_status str_islower(const call *c, value *out)
{
    return has_case(c, COH_JINJA_LOWER, out);
}

static coh_status str_isupper(const call *c, value *out)
{
    return has_case(c, COH_JINJA_UPPER, out);
}

/* ---- mappings and lists ---- */

static coh_status dict_keys(const call *c, value *out)
{
    return coh_jinja_dict_list(c->run, c->self->dict, 1, COH_JINJA_A_VIEW, out);
}

static coh_status dict_values(const call *c, value *out)
{
    return coh_jinja_dict_list(c->run, c->self->dict, 2, COH_JINJA_A_VIEW, out);
}

static coh_status dict_items(const call *c, value *out)
{
    return coh_jinja_dict_list(c->run, c->self->dict, 0, COH_JINJA_A_VIEW, out);
}

static coh_status dict_get(const call *c, value *out)
{
    const value *found;
    COH_TRY(coh_jinja_dict_get(c->run, c->self->dict, &c->bound[0], &found));
    *out = found ? *found : c->bound[1].kind != COH_JINJA_MISSING ? c->bound[1] : coh_jinja_none();
    return COH_OK;
}

/* A value never changes, so a copy of it is itself. */
static coh_status copy(const call *c, value *out)
{
    *out = *c->self;
    return COH_OK;
}

static coh_status list_index(const call *c, value *out)
{
    const coh_jinja_list *list = c->self->list;
    for (size_t i = 0; i < list->count; i++) {
        int is;
        COH_TRY(coh_jinja_equal(c->run, &list->items[i], &c->bound[0], &is));
        if (is) {
            *out = coh_jinja_whole((int64_t)i);
            return COH_OK;
        }
    }
    return coh_jinja_fail(c->run, "index() finds no such item");
}

static coh_status list_count(const call *c, value *out)
{
    const coh_jinja_list *list = c->self->list;
    *out = coh_jinja_whole(0);
    COH_TRY(coh_jinja_spend(c->run, list->count));
    for (size_t i = 0; i < list->count; i++) {
        int is;
        COH_TRY(coh_jinja_equal(c->run, &list->items[i], &c->bound[0], &is));
        out->whole += is;
    }
    return COH_OK;
}

/* ---- loops ---- */

static coh_status loop_cycle(const call *c, value *out)
{
    if (c->all->count == 0)
        return coh_jinja_fail(c->run, "cycle() gets nothing to choose from");
    *out = c->all->values[c->self->loop->index % c->all->count];
    return COH_OK;
}

/* Are the arguments others than in the call before? */
static coh_status loop_changed(const call *c, value *out)
{
    value now;
    int is_same = 0;
    COH_TRY(coh_jinja_list_make(c->run, COH_JINJA_A_TUPLE, c->all->count, &now));
    if (c->all->count)
        memcpy(now.list->items, c->all->values, c->all->count * sizeof(value));
    COH_TRY(coh_jinja_equal(c->run, &now, &c->self->loop->changed, &is_same));
    c->self->loop->changed = now;
    *out = coh_jinja_bool(!is_same);
    return COH_OK;
}

/* ---- the table of methods ---- */

typedef coh_status (*function)(const call *c, value *out);

/* `function` NULL: not known here. Methods that change a value are missing: in Jinja's sandbox they
 * are undefined. */
static const struct method {
    uint8_t kind, is_of_tuples, takes_all;
    coh_jinja_signature signature;
    function function;
} methods[] = {
    { COH_JINJA_STRING, 0, 0, { "strip", "/chars", 0 }, str_strip },
    { COH_JINJA_STRING, 0, 0, { "lstrip", "/chars", 0 }, str_lstrip },
    { COH_JINJA_STRING, 0, 0, { "rstrip", "/chars", 0 }, str_rstrip },
    { COH_JINJA_STRING, 0, 0, { "split", "sep maxsplit", 0 }, str_split },
    { COH_JINJA_STRING, 0, 0, { "rsplit", "sep maxsplit", 0 }, str_rsplit },
    { COH_JINJA_STRING, 0, 0, { "splitlines", "keepends", 0 }, str_splitlines },
    { COH_JINJA_STRING, 0, 0, { "partition", "/sep", 1 }, str_partition },
    { COH_JINJA_STRING, 0, 0, { "rpartition", "/sep", 1 }, str_rpartition },
    { COH_JINJA_STRING, 0, 0, { "startswith", "/prefix", 1 }, str_startswith },
    { COH_JINJA_STRING, 0, 0, { "endswith", "/suffix", 1 }, str_endswith },
    { COH_JINJA_STRING, 0, 0, { "removeprefix", "/prefix", 1 }, str_removeprefix },
    { COH_JINJA_STRING, 0, 0, { "removesuffix", "/suffix", 1 }, str_removesuffix },
    { COH_JINJA_STRING, 0, 0, { "replace", "/old new count", 2 }, str_replace },
    { COH_JINJA_STRING, 0, 0, { "lower", "", 0 }, str_lower },
    { COH_JINJA_STRING, 0, 0, { "upper", "", 0 }, str_upper },
    { COH_JINJA_STRING, 0, 0, { "title", "", 0 }, str_title },
    { COH_JINJA_STRING, 0, 0, { "capitalize", "", 0 }, str_capitalize },
    { COH_JINJA_STRING, 0, 0, { "find", "/sub", 1 }, str_find },
    { COH_JINJA_STRING, 0, 0, { "rfind", "/sub", 1 }, str_rfind },
    { COH_JINJA_STRING, 0, 0, { "index", "/sub", 1 }, str_index },
    { COH_JINJA_STRING, 0, 0, { "count", "/sub", 1 }, str_count },
    { COH_JINJA_STRING, 0, 0, { "join", "/items", 1 }, str_join },
    { COH_JINJA_STRING, 0, 0, { "isdigit", "", 0 }, str_isdigit },
    { COH_JINJA_STRING, 0, 0, { "isalpha", "", 0 }, str_isalpha },
    { COH_JINJA_STRING, 0, 0, { "isalnum", "", 0 }, str_isalnum },
    { COH_JINJA_STRING, 0, 0, { "isspace", "", 0 }, str_isspace },
    { COH_JINJA_STRING, 0, 0, { "islower", "", 0 }, str_islower },
    { COH_JINJA_STRING, 0, 0, { "isupper", "", 0 }, str_isupper },
    { COH_JINJA_STRING, 0, 1, { "format", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "format_map", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "casefold", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "center", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "encode", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "expandtabs", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "isascii", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "isdecimal", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "isidentifier", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "isnumeric", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "isprintable", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "istitle", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "ljust", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "maketrans", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "rindex", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "rjust", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "swapcase", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "translate", "", 0 }, NULL },
    { COH_JINJA_STRING, 0, 1, { "zfill", "", 0 }, NULL },
    { COH_JINJA_DICT, 0, 0, { "items", "", 0 }, dict_items },
    { COH_JINJA_DICT, 0, 0, { "keys", "", 0 }, dict_keys },
    { COH_JINJA_DICT, 0, 0, { "values", "", 0 }, dict_values },
    { COH_JINJA_DICT, 0, 0, { "get", "/key default", 1 }, dict_get },
    { COH_JINJA_DICT, 0, 0, { "copy", "", 0 }, copy },
    { COH_JINJA_DICT, 0, 1, { "fromkeys", "", 0 }, NULL },
    { COH_JINJA_LIST, 1, 0, { "index", "/value", 1 }, list_index },
    { COH_JINJA_LIST, 1, 0, { "count", "/value", 1 }, list_count },
    { COH_JINJA_LIST, 0, 0, { "copy", "", 0 }, copy },
    { COH_JINJA_LOOP, 0, 1, { "cycle", "", 0 }, loop_cycle },
    { COH_JINJA_LOOP, 0, 1, { "changed", "", 0 }, loop_changed },
};
enum { METHOD_COUNT = sizeof(methods) / sizeof(methods[0]) };

int coh_jinja_method_index(const value *v, const void *name, size_t bytes)
{
    if (v->kind == COH_JINJA_LIST && v->flavour > COH_JINJA_A_RANGE)
        return -1;
    for (int i = 0; i < METHOD_COUNT; i++) {
        const struct method *m = &methods[i];
        if (m->kind != v->kind || !coh_jinja_is_named(m->signature.name, name, bytes))
            continue;
        if (v->kind != COH_JINJA_LIST || v->flavour == COH_JINJA_A_LIST || m->is_of_tuples)
            return i;
    }
    return -1;
}

coh_status coh_jinja_method(runner *run, int index, const value *receiver,
                            const coh_jinja_arguments *arguments, value *out)
{
    value bound[COH_JINJA_PARAMETERS_MAX];
    const struct method *m = &methods[index];
    if (!m->function)
        return coh_jinja_fail(run, "the method %s() of a %s is not known here", m->signature.name,
                              coh_jinja_type(receiver));
    if (!m->takes_all)
        COH_TRY(coh_jinja_bind(run, &m->signature, arguments, bound));
    const call c = { run, &m->signature, receiver, bound, arguments };
    COH_TRY(m->function(&c, out));
    return COH_OK;
}
