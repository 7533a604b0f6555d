/* Values: memory, comparison, operators, lists, mappings and their members, as Python has them. A
 * boolean is an integer. */
#include "text/jinja_values.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>

typedef coh_jinja_value value;

/* ---- arena ---- */

enum { ARENA_BYTES_LEAST = 16 << 10 };

static size_t round_up(size_t bytes)
{
    const size_t to = alignof(max_align_t);
    return (bytes + to - 1) / to * to;
}

/* The memory of a block lies behind it. Blocks double, so that there are few. */
static coh_status arena_grow(coh_jinja_arena *arena, size_t bytes)
{
    coh_jinja_block *block;
    size_t capacity = arena->last ? 2 * arena->last->bytes : ARENA_BYTES_LEAST;
    while (capacity < bytes)
        capacity *= 2;
    COH_TRY(coh_alloc(round_up(sizeof(*block)) + capacity, 1, (void **)&block));
    *block = (coh_jinja_block){ arena->last, capacity, 0 };
    arena->last = block;
    return COH_OK;
}

coh_status coh_jinja_arena_take(coh_jinja_arena *arena, size_t bytes, void **out_memory)
{
    bytes = round_up(bytes);
    if (!arena->last || arena->last->bytes - arena->last->used < bytes)
        COH_TRY(arena_grow(arena, bytes));
    *out_memory = (uint8_t *)arena->last + round_up(sizeof(*arena->last)) + arena->last->used;
    arena->last->used += bytes;
    arena->taken += bytes;
    return COH_OK;
}

void coh_jinja_arena_fini(coh_jinja_arena *arena)
{
    for (coh_jinja_block *block = arena->last, *before; block; block = before) {
        before = block->before;
        coh_free(block);
    }
    *arena = (coh_jinja_arena){ 0 };
}

/* ---- limits ---- */

coh_status coh_jinja_fail(const coh_jinja_run *run, const char *format, ...)
{
    char text[COH_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* The place must not be cut off. */
    return coh_fail(COH_ERR_CORRUPT, "%.800s (%.200s:%u)", text, run->where, run->line);
}

coh_status coh_jinja_spend(coh_jinja_run *run, size_t steps)
{
    run->steps += steps;
    if (run->steps <= run->steps_max)
        return COH_OK;
    return coh_jinja_fail(run, "the chat template takes more than %" PRIu64 " steps",
                          run->steps_max);
}

coh_status coh_jinja_spend_bytes(coh_jinja_run *run, size_t bytes)
{
    return coh_jinja_spend(run, bytes / 64);
}

coh_status coh_jinja_spend_pairs(coh_jinja_run *run, size_t a, size_t b)
{
    return coh_jinja_spend(run, (a / 64 + 1) * (b + 1) - 1);
}

coh_status coh_jinja_take(coh_jinja_run *run, size_t count, size_t bytes, void **out_memory)
{
    *out_memory = NULL;
    if (bytes > 0 && count > (COH_JINJA_BYTES_MAX - run->arena.taken) / bytes)
        return coh_jinja_fail(run, "the values of the chat template take more than %d MiB",
                              COH_JINJA_BYTES_MAX >> 20);
    COH_TRY(coh_jinja_spend_bytes(run, count * bytes));
    return coh_jinja_arena_take(&run->arena, count * bytes, out_memory);
}

coh_status coh_jinja_enter(coh_jinja_run *run)
{
    if (++run->depth <= COH_JINJA_DEPTH_MAX)
        return coh_jinja_spend(run, 1);
    return coh_jinja_fail(run, "the chat template calls itself in more than %d levels",
                          COH_JINJA_DEPTH_MAX);
}

/* ---- comparison ---- */

const char *coh_jinja_type(const value *v)
{
    static const char *const types[] = {
        [COH_JINJA_MISSING] = "missing",   [COH_JINJA_UNDEFINED] = "undefined",
        [COH_JINJA_NONE] = "none",         [COH_JINJA_BOOL] = "bool",
        [COH_JINJA_WHOLE] = "int",         [COH_JINJA_STRING] = "str",
        [COH_JINJA_LIST] = "list",         [COH_JINJA_GENERATOR] = "generator",
        [COH_JINJA_DICT] = "dict",         [COH_JINJA_NAMESPACE] = "namespace",
        [COH_JINJA_FUNCTION] = "function", [COH_JINJA_METHOD] = "method",
        [COH_JINJA_MACRO] = "macro",       [COH_JINJA_LOOP] = "loop",
    };
    return types[v->kind];
}

int coh_jinja_is_true(const value *v)
{
    if (v->kind == COH_JINJA_BOOL || v->kind == COH_JINJA_WHOLE)
        return v->whole != 0;
    if (v->kind == COH_JINJA_STRING)
        return v->count > 0;
    if (v->kind == COH_JINJA_LIST)
        return v->list->count > 0;
    if (v->kind == COH_JINJA_DICT)
        return v->dict->count > 0;
    return v->kind > COH_JINJA_NONE;
}

coh_status coh_jinja_equal(coh_jinja_run *run, const value *a, const value *b, int *out_is)
{
    *out_is = 0;
    if (coh_jinja_is_integer(a) && coh_jinja_is_integer(b)) {
        *out_is = a->whole == b->whole;
        return COH_OK;
    }
    if (a->kind != b->kind)
        return COH_OK;
    if (a->kind == COH_JINJA_STRING) {
        *out_is = a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
        return coh_jinja_spend_bytes(run, a->count);
    }
    if (a->kind > COH_JINJA_STRING)
        return coh_jinja_fail(run, "comparing values of the type %s is not known here",
                              coh_jinja_type(a));
    *out_is = 1;
    return COH_OK;
}

static int64_t order_of_strings(const value *a, const value *b)
{
    const int order = memcmp(a->bytes, b->bytes, a->count < b->count ? a->count : b->count);
    return order ? order : (a->count > b->count) - (a->count < b->count);
}

coh_status coh_jinja_compare(coh_jinja_run *run, uint16_t op, const value *a, const value *b,
                             int *out_is)
{
    const int is_string = a->kind == COH_JINJA_STRING && b->kind == COH_JINJA_STRING;
    if (op == COH_JINJA_OP('=', '=') || op == COH_JINJA_OP('!', '=')) {
        COH_TRY(coh_jinja_equal(run, a, b, out_is));
        *out_is ^= op != COH_JINJA_OP('=', '=');
        return COH_OK;
    }
    if (!is_string && !(coh_jinja_is_integer(a) && coh_jinja_is_integer(b)))
        return coh_jinja_fail(run, "values of the types %s and %s have no order here",
                              coh_jinja_type(a), coh_jinja_type(b));
    const int64_t x = is_string ? order_of_strings(a, b) : a->whole, y = is_string ? 0 : b->whole;
    *out_is = op == '<'                      ? x < y
              : op == '>'                    ? x > y
              : op == COH_JINJA_OP('<', '=') ? x <= y
                                             : x >= y;
    return is_string ? coh_jinja_spend_bytes(run, a->count) : COH_OK;
}

coh_status coh_jinja_contains(coh_jinja_run *run, const value *whole, const value *part,
                              int *out_is)
{
    *out_is = 0;
    if (whole->kind == COH_JINJA_STRING) {
        if (part->kind != COH_JINJA_STRING)
            return coh_jinja_fail(run, "\"in\" looks for a %s in a string", coh_jinja_type(part));
        *out_is = coh_jinja_find(whole, part, 0) != SIZE_MAX;
        return coh_jinja_spend_bytes(run, whole->count);
    }
    if (whole->kind == COH_JINJA_DICT) {
        const value *found;
        COH_TRY(coh_jinja_dict_get(run, whole->dict, part, &found));
        *out_is = found != NULL;
        return COH_OK;
    }
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(run, whole, &list));
    COH_TRY(coh_jinja_spend(run, list.count));
    for (size_t i = 0; i < list.count && !*out_is; i++)
        COH_TRY(coh_jinja_equal(run, &list.items[i], part, out_is));
    return COH_OK;
}

/* ---- operators ---- */

/* The quotient rounded down; not for a division by 0 or -1. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static coh_status integers(const coh_jinja_run *run, uint16_t op, int64_t a, int64_t b, value *out)
{
    int64_t result = 0;
    int is_beyond = 0;
    const int divides = op == '%' || op == COH_JINJA_OP('/', '/');
    if (divides && b == 0)
        return coh_jinja_fail(run, "a division by zero");
    if (op == '+')
        is_beyond = __builtin_add_overflow(a, b, &result);
    else if (op == '-')
        is_beyond = __builtin_sub_overflow(a, b, &result);
    else if (op == '*')
        is_beyond = __builtin_mul_overflow(a, b, &result);
    else if (divides && b == -1)
        is_beyond = op != '%' && __builtin_sub_overflow(0, a, &result);
    else if (divides)
        result = op == '%' ? a - floor_divide(a, b) * b : floor_divide(a, b);
    else
        return coh_jinja_fail(run, "the operator %s is not known here", op == '/' ? "/" : "**");
    *out = coh_jinja_whole(result);
    return is_beyond ? coh_jinja_fail(run, "an integer is beyond 64 bits") : COH_OK;
}

static coh_status add_lists(coh_jinja_run *run, const value *a, const value *b, value *out)
{
    const size_t count = a->list->count;
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, count + b->list->count, out));
    if (count)
        memcpy(out->list->items, a->list->items, count * sizeof(value));
    if (b->list->count)
        memcpy(out->list->items + count, b->list->items, b->list->count * sizeof(value));
    return COH_OK;
}

coh_status coh_jinja_binary(coh_jinja_run *run, uint16_t op, const value *a, const value *b,
                            value *out)
{
    const char sign[] = { op >> 8 ? (char)(op >> 8) : (char)op, op >> 8 ? (char)op : '\0', '\0' };
    if (coh_jinja_is_integer(a) && coh_jinja_is_integer(b))
        return integers(run, op, a->whole, b->whole, out);
    if (op == '+' && a->kind == COH_JINJA_LIST && b->kind == COH_JINJA_LIST)
        return add_lists(run, a, b, out);
    if (a->kind == COH_JINJA_UNDEFINED || b->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_fail(run, "\"%.*s\" is undefined, so %s cannot be applied to it",
                              COH_JINJA_SHOWN(a->kind == COH_JINJA_UNDEFINED ? a : b), sign);
    if (op == '%' && a->kind == COH_JINJA_STRING)
        return coh_jinja_fail(run, "formatting a string with %% is not known here");
    return coh_jinja_fail(run, "%s of values of the types %s and %s is not known here", sign,
                          coh_jinja_type(a), coh_jinja_type(b));
}

/* ---- lists ---- */

coh_status coh_jinja_list_make(coh_jinja_run *run, coh_jinja_kind kind, size_t count, value *out)
{
    void *list, *items;
    COH_TRY(coh_jinja_take(run, 1, sizeof(coh_jinja_list), &list));
    COH_TRY(coh_jinja_take(run, count, sizeof(value), &items));
    if (count)
        memset(items, 0, count * sizeof(value));
    *out = (value){ .kind = (uint8_t)kind, .list = list };
    *out->list = (coh_jinja_list){ count, items };
    return COH_OK;
}

static coh_status characters_of(coh_jinja_run *run, const value *string, coh_jinja_list *out)
{
    value list;
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, coh_jinja_character_count(string), &list));
    *out = *list.list;
    for (size_t at = 0, i = 0, bytes; at < string->count; at += bytes) {
        bytes = coh_jinja_character(string, at);
        out->items[i++] = coh_jinja_part(string, at, at + bytes);
    }
    return COH_OK;
}

static coh_status keys_of(coh_jinja_run *run, const coh_jinja_dict *dict, coh_jinja_list *out)
{
    value keys;
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, dict->count, &keys));
    for (size_t i = 0; i < dict->count; i++)
        keys.list->items[i] = dict->pairs[i].key;
    *out = *keys.list;
    return COH_OK;
}

coh_status coh_jinja_items(coh_jinja_run *run, const value *v, coh_jinja_list *out)
{
    *out = (coh_jinja_list){ 0 };
    if (v->kind == COH_JINJA_UNDEFINED)
        return COH_OK;
    if (v->kind == COH_JINJA_STRING)
        return characters_of(run, v, out);
    if (v->kind == COH_JINJA_DICT)
        return keys_of(run, v->dict, out);
    if (v->kind != COH_JINJA_LIST && v->kind != COH_JINJA_GENERATOR)
        return coh_jinja_fail(run, "a value of the type %s has no items", coh_jinja_type(v));
    *out = *v->list;
    if (v->kind == COH_JINJA_GENERATOR)
        v->list->count = 0;
    return COH_OK;
}

/* ---- mappings ---- */

coh_status coh_jinja_dict_make(coh_jinja_run *run, coh_jinja_kind kind, size_t capacity, value *out)
{
    void *dict, *pairs;
    COH_TRY(coh_jinja_take(run, 1, sizeof(coh_jinja_dict), &dict));
    COH_TRY(coh_jinja_take(run, capacity, sizeof(coh_jinja_pair), &pairs));
    *out = (value){ .kind = (uint8_t)kind, .dict = dict };
    *out->dict = (coh_jinja_dict){ 0, capacity, pairs };
    return COH_OK;
}

/* *out is NULL if there is no such key. */
static coh_status find_pair(coh_jinja_run *run, const coh_jinja_dict *dict, const value *key,
                            coh_jinja_pair **out)
{
    *out = NULL;
    COH_TRY(coh_jinja_spend_pairs(run, key->count, dict->count));
    if (key->kind > COH_JINJA_STRING)
        return coh_jinja_fail(run, "a %s as a key is not known here", coh_jinja_type(key));
    for (size_t i = 0; i < dict->count; i++) {
        int is_same;
        COH_TRY(coh_jinja_equal(run, &dict->pairs[i].key, key, &is_same));
        if (is_same) {
            *out = &dict->pairs[i];
            break;
        }
    }
    return COH_OK;
}

coh_status coh_jinja_dict_get(coh_jinja_run *run, const coh_jinja_dict *dict, const value *key,
                              const value **out)
{
    coh_jinja_pair *pair;
    *out = NULL;
    COH_TRY(find_pair(run, dict, key, &pair));
    if (pair)
        *out = &pair->value;
    return COH_OK;
}

coh_status coh_jinja_dict_set(coh_jinja_run *run, coh_jinja_dict *dict, const value *key,
                              const value *v)
{
    coh_jinja_pair *pair;
    COH_TRY(find_pair(run, dict, key, &pair));
    if (pair) {
        pair->value = *v;
        return COH_OK;
    }
    if (dict->count == dict->capacity) {
        const size_t capacity = dict->capacity < 4 ? 8 : 2 * dict->capacity;
        void *pairs;
        COH_TRY(coh_jinja_take(run, capacity, sizeof(coh_jinja_pair), &pairs));
        if (dict->count)
            memcpy(pairs, dict->pairs, dict->count * sizeof(coh_jinja_pair));
        dict->pairs = pairs;
        dict->capacity = capacity;
    }
    dict->pairs[dict->count++] = (coh_jinja_pair){ *key, *v };
    return COH_OK;
}

/* ---- members ---- */

/* An index from the end is below 0. Returns 0 if there is no such item. */
static int index_of(const value *key, size_t count, size_t *out_index)
{
    int64_t at = key->whole;
    if (at < 0)
        at += (int64_t)count;
    *out_index = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

/* The byte at which character number `index` begins, counted from byte `from` on. */
static size_t character_at(const value *string, size_t from, size_t index)
{
    while (index-- > 0)
        from += coh_jinja_character(string, from);
    return from;
}

static int item_by_number(const value *v, const value *key, value *out)
{
    size_t index;
    if (!coh_jinja_is_integer(key))
        return 0;
    if (v->kind == COH_JINJA_LIST && index_of(key, v->list->count, &index)) {
        *out = v->list->items[index];
        return 1;
    }
    if (v->kind == COH_JINJA_STRING && index_of(key, coh_jinja_character_count(v), &index)) {
        const size_t at = character_at(v, 0, index);
        *out = coh_jinja_part(v, at, at + coh_jinja_character(v, at));
        return 1;
    }
    return 0;
}

coh_status coh_jinja_item(coh_jinja_run *run, const value *v, const value *key, value *out)
{
    const value *found = NULL;
    if (key->kind == COH_JINJA_STRING || v->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_attribute(run, v, key, 1, out);
    if (v->kind == COH_JINJA_STRING)
        COH_TRY(coh_jinja_spend_bytes(run, v->count));
    if (v->kind == COH_JINJA_DICT)
        COH_TRY(coh_jinja_dict_get(run, v->dict, key, &found));
    if (found)
        *out = *found;
    else if (!item_by_number(v, key, out))
        *out = coh_jinja_no_element(v);
    return COH_OK;
}

/* The members of a loop's variable "loop". */
static void loop_member(const coh_jinja_loop *loop, const value *name, value *out)
{
    const int64_t index = (int64_t)loop->index, count = (int64_t)loop->list.count;
    const struct {
        const char *name;
        int64_t whole;
    } numbers[] = { { "index", index + 1 },
                    { "index0", index },
                    { "length", count },
                    { "revindex", count - index },
                    { "revindex0", count - index - 1 } };
    *out = coh_jinja_undefined(name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (coh_jinja_is(name, numbers[i].name))
            *out = coh_jinja_whole(numbers[i].whole);
    if (coh_jinja_is(name, "first"))
        *out = coh_jinja_bool(index == 0);
    else if (coh_jinja_is(name, "last"))
        *out = coh_jinja_bool(index + 1 == count);
    else if (coh_jinja_is(name, "previtem") && index > 0)
        *out = loop->list.items[index - 1];
    else if (coh_jinja_is(name, "nextitem") && index + 1 < count)
        *out = loop->list.items[index + 1];
}

static coh_status bind_method(coh_jinja_run *run, const value *v, int method, value *out)
{
    void *receiver;
    COH_TRY(coh_jinja_take(run, 1, sizeof(value), &receiver));
    *(value *)receiver = *v;
    *out = (value){ .kind = COH_JINJA_METHOD, .index = (uint32_t)method, .receiver = receiver };
    return COH_OK;
}

coh_status coh_jinja_attribute(coh_jinja_run *run, const value *v, const value *name,
                               int prefers_item, value *out)
{
    const value *found = NULL;
    if (v->kind == COH_JINJA_UNDEFINED)
        return coh_jinja_fail(run, "\"%.*s\" is undefined, so it has no members",
                              COH_JINJA_SHOWN(v));
    if (v->kind == COH_JINJA_NAMESPACE || (v->kind == COH_JINJA_DICT && prefers_item))
        COH_TRY(coh_jinja_dict_get(run, v->dict, name, &found));
    const int method = found ? -1 : coh_jinja_find_builtin(COH_JINJA_METHOD_OF, v, name);
    const int is_method = !found && (method >= 0 || coh_jinja_is_method_of_python(v, name));
    if (v->kind == COH_JINJA_DICT && !prefers_item && !is_method)
        COH_TRY(coh_jinja_dict_get(run, v->dict, name, &found));
    if (found)
        *out = *found;
    else if (method >= 0)
        return bind_method(run, v, method, out);
    else if (is_method)
        return coh_jinja_fail(run, "the member \"%.*s\" of a %s is not known here",
                              COH_JINJA_SHOWN(name), coh_jinja_type(v));
    else if (v->kind == COH_JINJA_LOOP)
        loop_member(v->loop, name, out);
    else
        *out = coh_jinja_undefined(name);
    return COH_OK;
}

/* ---- slices ---- */

/* An end of a slice, within 0..count; `missing` if it is left out. */
static coh_status slice_end(coh_jinja_run *run, const value *end, size_t count, size_t missing,
                            size_t *out)
{
    *out = missing;
    if (end->kind == COH_JINJA_NONE)
        return COH_OK;
    if (!coh_jinja_is_integer(end))
        return coh_jinja_fail(run, "a slice ends at a %s", coh_jinja_type(end));
    const int64_t at = end->whole < 0 ? end->whole + (int64_t)count : end->whole;
    *out = at < 0 ? 0 : at < (int64_t)count ? (size_t)at : count;
    return COH_OK;
}

static coh_status reverse(coh_jinja_run *run, const coh_jinja_list *list, value *out)
{
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, list->count, out));
    for (size_t i = 0; i < list->count; i++)
        out->list->items[i] = list->items[list->count - 1 - i];
    return COH_OK;
}

coh_status coh_jinja_slice(coh_jinja_run *run, const value *v, const value ends[3], value *out)
{
    const int is_string = v->kind == COH_JINJA_STRING, has_step = ends[2].kind != COH_JINJA_NONE;
    size_t begin, end;
    if (!is_string && v->kind != COH_JINJA_LIST)
        return coh_jinja_fail(run, "a %s has no slices", coh_jinja_type(v));
    if (has_step && !is_string && ends[0].kind == COH_JINJA_NONE &&
        ends[1].kind == COH_JINJA_NONE && coh_jinja_is_integer(&ends[2]) && ends[2].whole == -1)
        return reverse(run, v->list, out);
    if (has_step)
        return coh_jinja_fail(run,
                              "the step of a slice is not known here, but for a list's [::-1]");
    const size_t count = is_string ? coh_jinja_character_count(v) : v->list->count;
    COH_TRY(slice_end(run, &ends[0], count, 0, &begin));
    COH_TRY(slice_end(run, &ends[1], count, count, &end));
    end = end < begin ? begin : end;
    if (is_string) {
        const size_t at = character_at(v, 0, begin);
        *out = coh_jinja_part(v, at, character_at(v, at, end - begin));
        return coh_jinja_spend_bytes(run, v->count);
    }
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, 0, out));
    *out->list = (coh_jinja_list){ end - begin, v->list->items + begin };
    return COH_OK;
}
