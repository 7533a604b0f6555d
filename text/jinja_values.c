/* Values: memory, comparison, lists, mappings and their members, as Python has them. */
#include "text/jinja_values.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>

typedef coh_jinja_value value;

/* ---- arena ---- */

enum { ARENA_BYTES_LEAST = 16 << 10 };

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The memory of a block lies behind it. */
static uint8_t *memory_of(coh_jinja_block *block)
{
    return (uint8_t *)block + round_up(sizeof(*block), alignof(max_align_t));
}

/* Makes a block of at least `bytes` the current one. Blocks double, so that there are few. */
static coh_status arena_grow(coh_jinja_arena *arena, size_t bytes)
{
    coh_jinja_block *last = arena->current, *block;
    size_t capacity = last ? 2 * last->bytes : ARENA_BYTES_LEAST;
    while (capacity < bytes)
        capacity *= 2;
    COH_TRY(
        coh_alloc(round_up(sizeof(*block), alignof(max_align_t)) + capacity, 1, (void **)&block));
    block->bytes = capacity;
    block->next = last ? last->next : NULL;
    if (last)
        last->next = block;
    else
        arena->first = block;
    arena->current = block;
    return COH_OK;
}

coh_status coh_jinja_arena_take(coh_jinja_arena *arena, size_t bytes, void **out_memory)
{
    bytes = round_up(bytes, alignof(max_align_t));
    while (!arena->current || arena->current->bytes - arena->current->used < bytes) {
        if (arena->current && arena->current->next && arena->current->next->bytes >= bytes) {
            arena->current = arena->current->next;
            arena->current->used = 0;
        } else {
            COH_TRY(arena_grow(arena, bytes));
        }
    }
    *out_memory = memory_of(arena->current) + arena->current->used;
    arena->current->used += bytes;
    arena->taken += bytes;
    return COH_OK;
}

void coh_jinja_arena_reset(coh_jinja_arena *arena)
{
    arena->current = arena->first;
    if (arena->current)
        arena->current->used = 0;
    arena->taken = 0;
}

void coh_jinja_arena_fini(coh_jinja_arena *arena)
{
    for (coh_jinja_block *block = arena->first, *next; block; block = next) {
        next = block->next;
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

coh_status coh_jinja_nest(coh_jinja_run *run)
{
    if (++run->nested <= COH_JINJA_NESTED_MAX)
        return coh_jinja_spend(run, 1);
    return coh_jinja_fail(run, "a value has more than %d levels of lists or mappings",
                          COH_JINJA_NESTED_MAX);
}

/* ---- comparison ---- */

const char *coh_jinja_type(const value *v)
{
    static const char *const flavours[] = { "list", "tuple", "range", "view", "generator" };
    static const char *const types[] = {
        [COH_JINJA_MISSING] = "missing",     [COH_JINJA_UNDEFINED] = "undefined",
        [COH_JINJA_NONE] = "none",           [COH_JINJA_BOOL] = "bool",
        [COH_JINJA_WHOLE] = "int",           [COH_JINJA_REAL] = "float",
        [COH_JINJA_STRING] = "str",          [COH_JINJA_DICT] = "dict",
        [COH_JINJA_NAMESPACE] = "namespace", [COH_JINJA_FUNCTION] = "function",
        [COH_JINJA_METHOD] = "method",       [COH_JINJA_MACRO] = "macro",
        [COH_JINJA_LOOP] = "loop",
    };
    return v->kind == COH_JINJA_LIST ? flavours[v->flavour] : types[v->kind];
}

int coh_jinja_is_true(const value *v)
{
    switch ((coh_jinja_kind)v->kind) {
    case COH_JINJA_MISSING:
    case COH_JINJA_UNDEFINED:
    case COH_JINJA_NONE:
        return 0;
    case COH_JINJA_BOOL:
    case COH_JINJA_WHOLE:
        return v->whole != 0;
    case COH_JINJA_REAL:
        return v->real != 0;
    case COH_JINJA_STRING:
        return v->count > 0;
    case COH_JINJA_LIST:
        return v->flavour == COH_JINJA_A_GENERATOR || v->list->count > 0;
    case COH_JINJA_DICT:
        return v->dict->count > 0;
    case COH_JINJA_NAMESPACE:
    case COH_JINJA_FUNCTION:
    case COH_JINJA_METHOD:
    case COH_JINJA_MACRO:
    case COH_JINJA_LOOP:
        return 1;
    }
    return 0;
}

static coh_status equal_lists(coh_jinja_run *run, const coh_jinja_list *a, const coh_jinja_list *b,
                              int *out_is)
{
    *out_is = a->count == b->count;
    for (size_t i = 0; *out_is && i < a->count; i++)
        COH_TRY(coh_jinja_equal(run, &a->items[i], &b->items[i], out_is));
    return COH_OK;
}

static coh_status equal_dicts(coh_jinja_run *run, const coh_jinja_dict *a, const coh_jinja_dict *b,
                              int *out_is)
{
    const value *other;
    *out_is = a->count == b->count;
    for (size_t i = 0; *out_is && i < a->count; i++) {
        COH_TRY(coh_jinja_dict_get(run, b, &a->pairs[i].key, &other));
        *out_is = other != NULL;
        if (other)
            COH_TRY(coh_jinja_equal(run, &a->pairs[i].value, other, out_is));
    }
    return COH_OK;
}

/* Of two lists or mappings of one type. */
static coh_status equal_nested(coh_jinja_run *run, const value *a, const value *b, int *out_is)
{
    COH_TRY(coh_jinja_nest(run));
    if (a->kind == COH_JINJA_DICT)
        COH_TRY(equal_dicts(run, a->dict, b->dict, out_is));
    else if (a->flavour != b->flavour || a->flavour >= COH_JINJA_A_VIEW)
        *out_is = a->list == b->list;
    else
        COH_TRY(equal_lists(run, a->list, b->list, out_is));
    run->nested--;
    return COH_OK;
}

coh_status coh_jinja_equal(coh_jinja_run *run, const value *a, const value *b, int *out_is)
{
    *out_is = 0;
    if (coh_jinja_is_number(a) && coh_jinja_is_number(b)) {
        *out_is = a->kind == COH_JINJA_REAL || b->kind == COH_JINJA_REAL
                      ? coh_jinja_number(a) == coh_jinja_number(b)
                      : a->whole == b->whole;
        return COH_OK;
    }
    if (a->kind != b->kind)
        return COH_OK;
    switch ((coh_jinja_kind)a->kind) {
    case COH_JINJA_MISSING:
    case COH_JINJA_UNDEFINED:
    case COH_JINJA_NONE:
    case COH_JINJA_BOOL:
    case COH_JINJA_WHOLE:
    case COH_JINJA_REAL:
        *out_is = 1;
        return COH_OK;
    case COH_JINJA_STRING:
        *out_is = a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
        return coh_jinja_spend_bytes(run, a->count);
    case COH_JINJA_LIST:
    case COH_JINJA_DICT:
        return equal_nested(run, a, b, out_is);
    case COH_JINJA_FUNCTION:
        *out_is = a->index == b->index;
        return COH_OK;
    case COH_JINJA_METHOD:
        *out_is = a->index == b->index && a->receiver == b->receiver;
        return COH_OK;
    case COH_JINJA_NAMESPACE:
    case COH_JINJA_MACRO:
    case COH_JINJA_LOOP:
        *out_is = a->dict == b->dict; /* the same object: all of them are pointers */
        return COH_OK;
    }
    return COH_OK;
}

static coh_status order_lists(coh_jinja_run *run, const coh_jinja_list *a, const coh_jinja_list *b,
                              int *out_order)
{
    COH_TRY(coh_jinja_nest(run));
    size_t i = 0;
    for (int is_same = 1; i < a->count && i < b->count; i++) {
        COH_TRY(coh_jinja_equal(run, &a->items[i], &b->items[i], &is_same));
        if (!is_same)
            break;
    }
    if (i < a->count && i < b->count)
        COH_TRY(coh_jinja_order(run, &a->items[i], &b->items[i], out_order));
    else
        *out_order = (a->count > b->count) - (a->count < b->count);
    run->nested--;
    return COH_OK;
}

coh_status coh_jinja_order(coh_jinja_run *run, const value *a, const value *b, int *out_order)
{
    if (coh_jinja_is_integer(a) && coh_jinja_is_integer(b)) {
        *out_order = (a->whole > b->whole) - (a->whole < b->whole);
        return COH_OK;
    }
    if (coh_jinja_is_number(a) && coh_jinja_is_number(b)) {
        const double x = coh_jinja_number(a), y = coh_jinja_number(b);
        *out_order = x != x || y != y ? 2 : (x > y) - (x < y);
        return COH_OK;
    }
    if (a->kind == COH_JINJA_STRING && b->kind == COH_JINJA_STRING) {
        const size_t common = a->count < b->count ? a->count : b->count;
        const int order = memcmp(a->bytes, b->bytes, common);
        *out_order = order > 0 ? 1 : order < 0 ? -1 : (a->count > b->count) - (a->count < b->count);
        return coh_jinja_spend_bytes(run, common);
    }
    if (a->kind == COH_JINJA_LIST && b->kind == COH_JINJA_LIST && a->flavour == b->flavour &&
        a->flavour <= COH_JINJA_A_TUPLE)
        return order_lists(run, a->list, b->list, out_order);
    return coh_jinja_fail(run, "values of the types %s and %s have no order", coh_jinja_type(a),
                          coh_jinja_type(b));
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

/* ---- lists ---- */

coh_status coh_jinja_list_make(coh_jinja_run *run, coh_jinja_flavour flavour, size_t count,
                               value *out)
{
    void *list, *items;
    COH_TRY(coh_jinja_take(run, 1, sizeof(coh_jinja_list), &list));
    COH_TRY(coh_jinja_take(run, count, sizeof(value), &items));
    if (count)
        memset(items, 0, count * sizeof(value));
    *out = (value){ .kind = COH_JINJA_LIST, .flavour = (uint8_t)flavour, .list = list };
    *out->list = (coh_jinja_list){ count, items };
    return COH_OK;
}

static coh_status characters_of(coh_jinja_run *run, const value *string, coh_jinja_list *out)
{
    value list;
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_A_LIST, coh_jinja_character_count(string), &list));
    *out = *list.list;
    for (size_t at = 0, i = 0, bytes; at < string->count; at += bytes) {
        bytes = coh_jinja_character(string, at);
        out->items[i++] = coh_jinja_part(string, at, at + bytes);
    }
    return COH_OK;
}

coh_status coh_jinja_items(coh_jinja_run *run, const value *v, coh_jinja_list *out)
{
    value keys;
    *out = (coh_jinja_list){ 0 };
    switch ((coh_jinja_kind)v->kind) {
    case COH_JINJA_UNDEFINED:
        return COH_OK;
    case COH_JINJA_STRING:
        return characters_of(run, v, out);
    case COH_JINJA_LIST:
        *out = *v->list;
        if (v->flavour == COH_JINJA_A_GENERATOR)
            v->list->count = 0;
        return COH_OK;
    case COH_JINJA_DICT:
        COH_TRY(coh_jinja_dict_list(run, v->dict, 1, COH_JINJA_A_LIST, &keys));
        *out = *keys.list;
        return COH_OK;
    case COH_JINJA_MISSING:
    case COH_JINJA_NONE:
    case COH_JINJA_BOOL:
    case COH_JINJA_WHOLE:
    case COH_JINJA_REAL:
    case COH_JINJA_NAMESPACE:
    case COH_JINJA_FUNCTION:
    case COH_JINJA_METHOD:
    case COH_JINJA_MACRO:
    case COH_JINJA_LOOP:
        break;
    }
    return coh_jinja_fail(run, "a value of the type %s has no items", coh_jinja_type(v));
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

static int is_text(const value *v, const void *bytes, size_t count)
{
    return v->kind == COH_JINJA_STRING && v->count == count && memcmp(v->bytes, bytes, count) == 0;
}

/* *out is NULL if there is no such key. */
static coh_status find_pair(coh_jinja_run *run, const coh_jinja_dict *dict, const value *key,
                            coh_jinja_pair **out)
{
    int is_same = 0;
    *out = NULL;
    COH_TRY(coh_jinja_spend_pairs(run, key->count, dict->count));
    if (key->kind == COH_JINJA_DICT ||
        (key->kind == COH_JINJA_LIST && key->flavour == COH_JINJA_A_LIST))
        return coh_jinja_fail(run, "a %s cannot be a key", coh_jinja_type(key));
    for (size_t i = 0; i < dict->count && !is_same; i++) {
        *out = &dict->pairs[i];
        if (key->kind == COH_JINJA_STRING)
            is_same = is_text(&(*out)->key, key->bytes, key->count);
        else
            COH_TRY(coh_jinja_equal(run, &(*out)->key, key, &is_same));
    }
    if (!is_same)
        *out = NULL;
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

coh_status coh_jinja_dict_update(coh_jinja_run *run, coh_jinja_dict *dict, const value *from)
{
    coh_jinja_list pairs, pair;
    if (from->kind == COH_JINJA_DICT) {
        for (size_t i = 0; i < from->dict->count; i++)
            COH_TRY(coh_jinja_dict_set(run, dict, &from->dict->pairs[i].key,
                                       &from->dict->pairs[i].value));
        return COH_OK;
    }
    COH_TRY(coh_jinja_items(run, from, &pairs));
    for (size_t i = 0; i < pairs.count; i++) {
        COH_TRY(coh_jinja_items(run, &pairs.items[i], &pair));
        if (pair.count != 2)
            return coh_jinja_fail(run, "a mapping is made of pairs; entry %zu has %zu items", i + 1,
                                  pair.count);
        COH_TRY(coh_jinja_dict_set(run, dict, &pair.items[0], &pair.items[1]));
    }
    return COH_OK;
}

coh_status coh_jinja_dict_list(coh_jinja_run *run, const coh_jinja_dict *dict, int part,
                               coh_jinja_flavour flavour, value *out)
{
    COH_TRY(coh_jinja_list_make(run, flavour, dict->count, out));
    for (size_t i = 0; i < dict->count; i++) {
        value *item = &out->list->items[i];
        if (part) {
            *item = part == 1 ? dict->pairs[i].key : dict->pairs[i].value;
            continue;
        }
        COH_TRY(coh_jinja_list_make(run, COH_JINJA_A_TUPLE, 2, item));
        item->list->items[0] = dict->pairs[i].key;
        item->list->items[1] = dict->pairs[i].value;
    }
    return COH_OK;
}

/* ---- members ---- */

static void set_undefined(value *out, const value *name)
{
    *out = (value){ .kind = COH_JINJA_UNDEFINED, .bytes = (const uint8_t *)"" };
    if (name->kind == COH_JINJA_STRING) {
        out->bytes = name->bytes;
        out->count = name->count;
    }
}

static coh_status refuse_undefined(const coh_jinja_run *run, const value *v)
{
    return coh_jinja_fail(run, "\"%.*s\" is undefined, so it has no members",
                          (int)(v->count < 80 ? v->count : 80), (const char *)v->bytes);
}

/* An index from the end is below 0. Returns 0 if there is no such item. */
static int index_of(const value *key, size_t count, size_t *out_index)
{
    int64_t at = key->whole;
    if (at < 0)
        at += (int64_t)count;
    *out_index = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

/* The byte at which character number `index` begins. */
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
    if (v->kind == COH_JINJA_LIST && v->flavour <= COH_JINJA_A_RANGE &&
        index_of(key, v->list->count, &index)) {
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
    const value *found;
    if (v->kind == COH_JINJA_UNDEFINED)
        return refuse_undefined(run, v);
    if (v->kind == COH_JINJA_STRING)
        COH_TRY(coh_jinja_spend_bytes(run, v->count));
    if (v->kind == COH_JINJA_DICT) {
        COH_TRY(coh_jinja_dict_get(run, v->dict, key, &found));
        if (found) {
            *out = *found;
            return COH_OK;
        }
    }
    if (item_by_number(v, key, out))
        return COH_OK;
    if (key->kind == COH_JINJA_STRING && v->kind != COH_JINJA_DICT)
        return coh_jinja_attribute(run, v, key, out);
    const int method =
        key->kind == COH_JINJA_STRING ? coh_jinja_method_index(v, key->bytes, key->count) : -1;
    if (method >= 0)
        return coh_jinja_attribute(run, v, key, out);
    set_undefined(out, key);
    return COH_OK;
}

/* The members of a loop's variable "loop"; methods are not among them. */
static void loop_member(const coh_jinja_loop *loop, const value *name, value *out)
{
    const int64_t index = (int64_t)loop->index, count = (int64_t)loop->list->count;
    const struct {
        const char *name;
        int64_t whole;
    } numbers[] = {
        { "index", index + 1 }, { "index0", index },
        { "length", count },    { "revindex", count - index },
        { "depth", 1 },         { "revindex0", count - index - 1 },
        { "depth0", 0 }, /* loops in themselves are not known here */
    };
    set_undefined(out, name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (coh_jinja_is(name, numbers[i].name))
            *out = coh_jinja_whole(numbers[i].whole);
    if (coh_jinja_is(name, "first"))
        *out = coh_jinja_bool(index == 0);
    else if (coh_jinja_is(name, "last"))
        *out = coh_jinja_bool(index + 1 == count);
    else if (coh_jinja_is(name, "previtem") && index > 0)
        *out = loop->list->items[index - 1];
    else if (coh_jinja_is(name, "nextitem") && index + 1 < count)
        *out = loop->list->items[index + 1];
}

coh_status coh_jinja_attribute(coh_jinja_run *run, const value *v, const value *name, value *out)
{
    const value *found = NULL;
    if (v->kind == COH_JINJA_UNDEFINED)
        return refuse_undefined(run, v);
    const int method = coh_jinja_method_index(v, name->bytes, name->count);
    if (method >= 0) {
        void *receiver;
        COH_TRY(coh_jinja_take(run, 1, sizeof(value), &receiver));
        *(value *)receiver = *v;
        *out = (value){ .kind = COH_JINJA_METHOD, .index = (uint32_t)method, .receiver = receiver };
        return COH_OK;
    }
    if (v->kind == COH_JINJA_LOOP) {
        loop_member(v->loop, name, out);
        return COH_OK;
    }
    if (v->kind == COH_JINJA_DICT || v->kind == COH_JINJA_NAMESPACE)
        COH_TRY(coh_jinja_dict_get(run, v->dict, name, &found));
    if (found)
        *out = *found;
    else
        set_undefined(out, name);
    return COH_OK;
}

coh_status coh_jinja_path(coh_jinja_run *run, const value *v, const value *path, value *out)
{
    *out = *v;
    if (coh_jinja_is_integer(path))
        return coh_jinja_item(run, v, path, out);
    if (path->kind != COH_JINJA_STRING)
        return coh_jinja_fail(run, "an attribute's name is a %s", coh_jinja_type(path));
    for (size_t at = 0, end; at <= path->count; at = end + 1) {
        const value point = coh_jinja_text_value(".");
        end = coh_jinja_find(path, &point, at);
        if (end == SIZE_MAX)
            end = path->count;
        value key = coh_jinja_part(path, at, end), member;
        int64_t number;
        if (key.count && key.bytes[0] >= '0' && key.bytes[0] <= '9' &&
            coh_jinja_read_whole(&key, 10, &number))
            key = coh_jinja_whole(number);
        COH_TRY(coh_jinja_item(run, out, &key, &member));
        *out = member;
    }
    return COH_OK;
}

/* ---- slices ---- */

typedef struct slice {
    int64_t begin, step;
    size_t count;
} slice;

static int64_t clamp(int64_t at, int64_t count, int64_t step)
{
    if (at < 0)
        at = at < -count ? -1 : at + count;
    if (at < 0)
        return step < 0 ? -1 : 0;
    return at < count ? at : step < 0 ? count - 1 : count;
}

static coh_status find_slice(coh_jinja_run *run, const value ends[3], size_t length, slice *out)
{
    const int64_t count = (int64_t)length;
    for (int i = 0; i < 3; i++)
        if (ends[i].kind != COH_JINJA_NONE && !coh_jinja_is_integer(&ends[i]))
            return coh_jinja_fail(run, "a slice ends at a %s", coh_jinja_type(&ends[i]));
    const int64_t step = ends[2].kind == COH_JINJA_NONE ? 1 : ends[2].whole;
    if (step == 0)
        return coh_jinja_fail(run, "a slice has step 0");
    const int64_t begin = ends[0].kind == COH_JINJA_NONE ? (step < 0 ? count - 1 : 0)
                                                         : clamp(ends[0].whole, count, step);
    const int64_t end = ends[1].kind == COH_JINJA_NONE ? (step < 0 ? -1 : count)
                                                       : clamp(ends[1].whole, count, step);
    const uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    const int64_t distance = step < 0 ? begin - end : end - begin;
    *out =
        (slice){ begin, step, distance > 0 ? (size_t)(((uint64_t)distance - 1) / stride + 1) : 0 };
    return COH_OK;
}

static coh_status slice_list(coh_jinja_run *run, const value *v, const slice *s, value *out)
{
    const value *from = v->list->items + (s->count ? s->begin : 0);
    COH_TRY(
        coh_jinja_list_make(run, (coh_jinja_flavour)v->flavour, s->step == 1 ? 0 : s->count, out));
    out->list->count = s->count;
    if (s->step == 1)
        out->list->items = v->list->items + (s->count ? s->begin : 0);
    for (size_t i = 0; s->step != 1 && i < s->count; i++)
        out->list->items[i] = from[(int64_t)i * s->step];
    return COH_OK;
}

static coh_status slice_string(coh_jinja_run *run, const value *v, const slice *s, value *out)
{
    const size_t begin = run->out->count;
    if (s->step == 1) {
        const size_t from = s->count ? character_at(v, 0, (size_t)s->begin) : 0;
        *out = coh_jinja_part(v, from, character_at(v, from, s->count));
        return COH_OK;
    }
    coh_jinja_list characters;
    COH_TRY(characters_of(run, v, &characters));
    for (size_t i = 0; i < s->count; i++)
        COH_TRY(coh_jinja_put(run, &characters.items[s->begin + (int64_t)i * s->step]));
    return coh_jinja_cut(run, begin, out);
}

coh_status coh_jinja_slice(coh_jinja_run *run, const value *v, const value ends[3], value *out)
{
    slice s;
    if (v->kind == COH_JINJA_STRING) {
        COH_TRY(find_slice(run, ends, coh_jinja_character_count(v), &s));
        COH_TRY(coh_jinja_spend_bytes(run, v->count));
        return slice_string(run, v, &s, out);
    }
    if (v->kind == COH_JINJA_LIST && v->flavour <= COH_JINJA_A_RANGE) {
        COH_TRY(find_slice(run, ends, v->list->count, &s));
        return slice_list(run, v, &s, out);
    }
    return coh_jinja_fail(run, "a %s has no slices", coh_jinja_type(v));
}
