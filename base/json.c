/* Reads and writes JSON. The one idea: a format is a table of fields (coh_json_field), which
 * read_field and write_field follow in opposite directions. jansson parses; places are a chain on
 * the stack, so a message can name "links.h2d.depth". Read json.h first. */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/c_locale.h"

#define SEAL "  \"file_hash\":"

/* ---- places and messages ---- */

coh_json_place coh_json_member(const coh_json_place *object, const char *key)
{
    return (coh_json_place){ .source = object->source,
                             .above = object,
                             .key = key,
                             .value = json_object_get(object->value, key) };
}

coh_json_place coh_json_item(const coh_json_place *list, size_t index)
{
    return (coh_json_place){ .source = list->source,
                             .above = list,
                             .index = index,
                             .value = json_array_get(list->value, index) };
}

/* Writes "entry a.b[3]: ", or nothing for the file itself. */
static void print_place(const coh_json_place *at, char *text, size_t room)
{
    const coh_json_place *chain[32];
    size_t count = 0, used;
    text[0] = '\0';
    for (; at->above != NULL && count < 32; at = at->above)
        chain[count++] = at;
    if (count == 0)
        return;
    used = (size_t)snprintf(text, room, "entry ");
    while (count-- > 0 && used < room) {
        const char *dot = used > sizeof("entry ") - 1 ? "." : "";
        used += (size_t)(chain[count]->key != NULL
                             ? snprintf(text + used, room - used, "%s%.80s", dot, chain[count]->key)
                             : snprintf(text + used, room - used, "[%zu]", chain[count]->index));
    }
    if (used + 3 < room)
        memcpy(text + used, ": ", 3);
}

static void describe(const json_t *value, char *text, size_t room)
{
    char *dumped = json_is_number(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    if (value == NULL)
        snprintf(text, room, "nothing");
    else if (json_is_string(value))
        snprintf(text, room, "\"%.40s\"", json_string_value(value));
    else if (dumped != NULL)
        snprintf(text, room, "%.40s", dumped);
    else
        snprintf(text, room, "%s",
                 json_is_object(value)  ? "an object"
                 : json_is_array(value) ? "a list"
                 : json_is_true(value)  ? "true"
                 : json_is_false(value) ? "false"
                 : json_is_null(value)  ? "null"
                                        : "a number");
    free(dumped);
}

coh_status coh_json_fail(const coh_json_place *at, const char *format, ...)
{
    char place[300], text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    print_place(at, place, sizeof(place));
    return coh_fail(COH_ERR_CORRUPT, "%s%s", place, text);
}

coh_status coh_json_expected(const coh_json_place *at, const char *format, ...)
{
    char text[400], found[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    describe(at->value, found, sizeof(found));
    return coh_json_fail(at, "expected %s, found %s", text, found);
}

/* ---- reading values ---- */

json_t *coh_json_decode(const char *text, size_t bytes, size_t flags, json_error_t *error)
{
    const coh_c_locale locale = coh_c_locale_enter();
    json_t *root = json_loadb(text, bytes, flags, error);
    coh_c_locale_leave(locale);
    return root;
}

static coh_status load(const char *text, size_t bytes, int takes_large, json_t **out_root)
{
    json_error_t error;
    *out_root = coh_json_decode(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out_root == NULL && takes_large && json_error_code(&error) == json_error_numeric_overflow)
        *out_root =
            coh_json_decode(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (*out_root != NULL)
        return COH_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading it");
    return coh_fail(COH_ERR_CORRUPT, "line %d is not JSON: %s: give a whole copy, or another file",
                    error.line, error.text);
}

coh_status coh_json_load(const char *text, size_t bytes, json_t **out_root)
{
    return load(text, bytes, 0, out_root);
}

coh_status coh_json_load_any(const char *text, size_t bytes, json_t **out_root)
{
    return load(text, bytes, 1, out_root);
}

coh_status coh_json_whole(const coh_json_place *at, double least, double most, int64_t *out_value)
{
    const json_int_t value = json_integer_value(at->value);
    if (!json_is_integer(at->value) || (double)value < least || (double)value > most)
        return most >= (double)INT64_MAX
                   ? coh_json_expected(at, "a whole number from %.0f on", least)
                   : coh_json_expected(at, "a whole number %.0f..%.0f", least, most);
    *out_value = value;
    return COH_OK;
}

coh_status coh_json_real(const coh_json_place *at, double least, double most, double *out_value)
{
    const double value = json_number_value(at->value);
    if (!json_is_number(at->value) || !(value >= least) || !(value <= most))
        return coh_json_expected(at, "a number from %g to %g", least, most);
    *out_value = value;
    return COH_OK;
}

coh_status coh_json_string(const coh_json_place *at, size_t bytes_most, const char **out_text)
{
    *out_text = json_string_value(at->value);
    if (*out_text == NULL || strlen(*out_text) > bytes_most)
        return coh_json_expected(at, "a text of at most %zu bytes", bytes_most);
    for (const char *c = *out_text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return coh_json_fail(at, "it holds a control character");
    return COH_OK;
}

coh_status coh_json_flag(const coh_json_place *at, int32_t *out_flag)
{
    if (!json_is_boolean(at->value))
        return coh_json_expected(at, "true or false");
    *out_flag = json_is_true(at->value);
    return COH_OK;
}

coh_status coh_json_hex(const coh_json_place *at, size_t count, uint64_t *out_words)
{
    const char *text = json_string_value(at->value);
    if (text == NULL || strlen(text) != 16 * count ||
        strspn(text, "0123456789abcdef") != 16 * count)
        return coh_json_expected(at, "%zu hexadecimal digits in quotes", 16 * count);
    for (size_t i = 0; i < 16 * count; i++)
        out_words[i / 16] = out_words[i / 16] << 4 |
                            (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    return COH_OK;
}

coh_status coh_json_list(const coh_json_place *at, double least, double most, size_t *out_count)
{
    *out_count = json_array_size(at->value);
    if (!json_is_array(at->value) || (double)*out_count < least || (double)*out_count > most)
        return coh_json_expected(at, "a list of %.0f to %.0f entries", least, most);
    return COH_OK;
}

static coh_status read_decimal(const coh_json_place *at, uint64_t *out_value)
{
    const char *text = json_string_value(at->value);
    errno = 0;
    if (text == NULL || *text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return coh_json_expected(at, "a whole number in quotes");
    *out_value = strtoull(text, NULL, 10);
    return errno == 0 ? COH_OK : coh_json_expected(at, "a number that 64 bits hold");
}

/* ---- reading fields ---- */

static void store(void *member, size_t bytes, int64_t value)
{
    switch (bytes) {
    case 1:
        *(uint8_t *)member = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)member = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)member = (uint32_t)value;
        break;
    default:
        *(uint64_t *)member = (uint64_t)value;
    }
}

static coh_status fail_unknown(const coh_json_place *at)
{
    return coh_json_fail(at, "it is not known here, so what it changes is not supported");
}

static coh_status read_choice(const coh_json_field *field, const coh_json_place *at, void *member)
{
    char known[300] = "";
    const char *text = json_string_value(at->value);
    size_t used = 0;
    for (int i = 0; field->names[i] != NULL; i++) {
        const char *name = field->names[i];
        if (name[0] != '\0' && text != NULL && strcmp(name, text) == 0) {
            store(member, field->bytes, i);
            return COH_OK;
        }
        if (name[0] != '\0' && used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s\"%s\"",
                                     used > 0 ? ", " : "", name);
    }
    return coh_json_expected(at, "one of %s", known);
}

static coh_status read_text(const coh_json_field *field, const coh_json_place *at, void *member)
{
    const char *text;
    COH_TRY(coh_json_string(at, field->bytes - 1, &text));
    memcpy(member, text, strlen(text) + 1);
    return COH_OK;
}

static coh_status read_string(const coh_json_field *field, const coh_json_place *at, void *member)
{
    if (field->is_null && json_is_null(at->value))
        return COH_OK;
    if (!json_is_string(at->value) ||
        (field->most > 0 && (double)json_string_length(at->value) > field->most))
        return field->most > 0
                   ? coh_json_expected(at, "a text of at most %.0f bytes", field->most)
                   : coh_json_expected(at, field->is_null ? "a text or null" : "a text");
    return coh_alloc_text(json_string_value(at->value), (char **)member);
}

static coh_status read_object(const coh_json_field *field, const coh_json_place *at, void *member)
{
    COH_TRY(coh_json_read(field->fields, at, member));
    return field->check != NULL ? field->check(at, member) : COH_OK;
}

static coh_status read_array(const coh_json_field *field, const coh_json_place *at, void *object)
{
    size_t count;
    char *items;
    COH_TRY(coh_json_list(at, field->least, field->most, &count));
    COH_TRY(coh_alloc(count, field->item_bytes, (void **)&items));
    *(void **)((char *)object + field->offset) = items;
    store((char *)object + field->count_offset, sizeof(uint32_t), (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        const coh_json_place item = coh_json_item(at, i);
        COH_TRY(read_object(field, &item, items + i * field->item_bytes));
    }
    return COH_OK;
}

static coh_status read_map(const coh_json_field *field, const coh_json_place *at, char *items)
{
    const int count = (int)(field->bytes / field->item_bytes);
    const char *key;
    json_t *value;
    if (!json_is_object(at->value))
        return coh_json_expected(at, "an object");
    json_object_foreach(at->value, key, value)
    {
        const coh_json_place item = coh_json_member(at, key);
        int i = 0;
        while (i < count && (field->name_of(i) == NULL || strcmp(field->name_of(i), key) != 0))
            i++;
        if (i == count)
            return fail_unknown(&item);
        COH_TRY(read_object(field, &item, items + (size_t)i * field->item_bytes));
    }
    return COH_OK;
}

static coh_status read_field(const coh_json_field *field, const coh_json_place *at, void *object)
{
    void *member = (char *)object + field->offset;
    int64_t whole = 0;
    switch (field->kind) {
    case COH_JSON_WHOLE:
        COH_TRY(coh_json_whole(at, field->least, field->most, &whole));
        store(member, field->bytes, whole);
        return COH_OK;
    case COH_JSON_LIMIT:
        *(uint64_t *)member = UINT64_MAX;
        if (json_is_null(at->value))
            return COH_OK;
        COH_TRY(coh_json_whole(at, 0, (double)INT64_MAX, &whole));
        *(uint64_t *)member = (uint64_t)whole;
        return COH_OK;
    case COH_JSON_DECIMAL:
        return read_decimal(at, member);
    case COH_JSON_HEX:
        return coh_json_hex(at, field->bytes / sizeof(uint64_t), member);
    case COH_JSON_REAL:
        return coh_json_real(at, field->least, field->most, member);
    case COH_JSON_FLAG:
        return coh_json_flag(at, member);
    case COH_JSON_TEXT:
        return read_text(field, at, member);
    case COH_JSON_STRING:
        return read_string(field, at, member);
    case COH_JSON_CHOICE:
        return read_choice(field, at, member);
    case COH_JSON_OBJECT:
        return read_object(field, at, member);
    case COH_JSON_ARRAY:
        return read_array(field, at, object);
    case COH_JSON_MAP:
        return read_map(field, at, member);
    case COH_JSON_OWN:
        return field->read(field, at, object);
    }
    return COH_OK;
}

static int is_of_version(const coh_json_field *field, int version)
{
    return version >= field->since && (field->until == 0 || version <= field->until);
}

static coh_status check_known(const coh_json_field *fields, const coh_json_place *at)
{
    const char *key;
    json_t *value;
    if (!json_is_object(at->value))
        return coh_json_expected(at, "an object");
    json_object_foreach(at->value, key, value)
    {
        const coh_json_field *field = fields;
        while (field->name != NULL &&
               (strcmp(field->name, key) != 0 || !is_of_version(field, at->source->version)))
            field++;
        if (field->name == NULL) {
            const coh_json_place unknown = coh_json_member(at, key);
            return fail_unknown(&unknown);
        }
    }
    return COH_OK;
}

coh_status coh_json_read(const coh_json_field *fields, const coh_json_place *at, void *object)
{
    COH_TRY(check_known(fields, at));
    for (const coh_json_field *field = fields; field->name != NULL; field++) {
        const coh_json_place member = coh_json_member(at, field->name);
        const int may_lack = field->rule != COH_JSON_NEEDED || field->is_written != NULL;
        if (is_of_version(field, at->source->version) && !(may_lack && member.value == NULL))
            COH_TRY(read_field(field, &member, object));
    }
    return COH_OK;
}

/* ---- writing values ---- */

/* Begins a value: the comma and line break before it, and its key. Returns 0 after a failure. */
static int begin_value(coh_json_writer *w, const char *key)
{
    if (w->status == COH_OK && w->level > 0) {
        const int has_lines = w->open[w->level - 1].layout != COH_JSON_INLINE;
        if (w->open[w->level - 1].has_entry)
            w->status = coh_text_add(w->text, has_lines ? "," : ", ");
        if (w->status == COH_OK && has_lines)
            w->status = coh_text_add(w->text, "\n%*s", 2 * w->broken, "");
        w->open[w->level - 1].has_entry = 1;
    }
    if (w->status == COH_OK && key != NULL)
        w->status = coh_text_add_quoted(w->text, key);
    if (w->status == COH_OK && key != NULL)
        w->status = coh_text_add(w->text, ": ");
    return w->status == COH_OK;
}

void coh_json_begin(coh_json_writer *w, const char *key, char bracket, coh_json_layout layout)
{
    assert(w->level < COH_JSON_LEVELS);
    if (!begin_value(w, key))
        return;
    w->status = coh_text_add(w->text, "%c", bracket);
    w->open[w->level].bracket = (char)(bracket + 2); /* '{' and '}', '[' and ']' are 2 apart */
    w->open[w->level].layout = (int8_t)layout;
    w->open[w->level++].has_entry = 0;
    w->broken += layout != COH_JSON_INLINE;
}

void coh_json_end(coh_json_writer *w)
{
    if (w->status != COH_OK)
        return;
    w->level--;
    w->broken -= w->open[w->level].layout != COH_JSON_INLINE;
    if (w->open[w->level].layout == COH_JSON_LINES)
        w->status = coh_text_add(w->text, "\n%*s", 2 * w->broken, "");
    if (w->status == COH_OK)
        w->status = coh_text_add(w->text, "%c", w->open[w->level].bracket);
}

void coh_json_put_text(coh_json_writer *w, const char *key, const char *value)
{
    if (begin_value(w, key))
        w->status =
            value != NULL ? coh_text_add_quoted(w->text, value) : coh_text_add(w->text, "null");
}

void coh_json_put_real(coh_json_writer *w, const char *key, double value)
{
    if (begin_value(w, key))
        w->status = coh_text_add_number(w->text, value);
}

void coh_json_put(coh_json_writer *w, const char *key, const char *format, ...)
{
    va_list arguments;
    if (!begin_value(w, key))
        return;
    va_start(arguments, format);
    w->status = coh_text_add_list(w->text, format, arguments);
    va_end(arguments);
}

/* ---- writing fields ---- */

/* Loads a member; those with a limit below 0 are signed. */
static int64_t load_whole(const coh_json_field *field, const void *member)
{
    const int is_signed = field->least < 0;
    switch (field->bytes) {
    case 1:
        return is_signed ? *(const int8_t *)member : *(const uint8_t *)member;
    case 2:
        return is_signed ? *(const int16_t *)member : *(const uint16_t *)member;
    case 4:
        return is_signed ? *(const int32_t *)member : (int64_t) * (const uint32_t *)member;
    default:
        return *(const int64_t *)member;
    }
}

static int is_zero(const coh_json_field *field, const void *member)
{
    switch (field->kind) {
    case COH_JSON_TEXT:
        return *(const char *)member == '\0';
    case COH_JSON_REAL:
        return *(const double *)member == field->otherwise;
    default:
        return load_whole(field, member) == 0;
    }
}

static void write_array(const coh_json_field *field, coh_json_writer *w, const void *object)
{
    const char *items = *(void *const *)((const char *)object + field->offset);
    const uint32_t count = *(const uint32_t *)((const char *)object + field->count_offset);
    coh_json_begin(w, field->name, '[',
                   field->layout != COH_JSON_LINES_IF_ANY ? field->layout
                   : count > 0                            ? COH_JSON_LINES
                                                          : COH_JSON_INLINE);
    for (uint32_t i = 0; i < count; i++) {
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_write(field->fields, w, items + i * field->item_bytes);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void write_map(const coh_json_field *field, coh_json_writer *w, const char *items)
{
    const int count = (int)(field->bytes / field->item_bytes);
    coh_json_begin(w, field->name, '{', COH_JSON_LINES);
    for (int i = 0; i < count; i++, items += field->item_bytes) {
        if (field->name_of(i) == NULL || !field->is_set(items))
            continue;
        coh_json_begin(w, field->name_of(i), '{', COH_JSON_INLINE);
        coh_json_write(field->fields, w, items);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void write_hex(const coh_json_field *field, coh_json_writer *w, const uint64_t *words)
{
    if (!begin_value(w, field->name))
        return;
    w->status = coh_text_add(w->text, "\"");
    for (size_t i = 0; i < field->bytes / sizeof(*words) && w->status == COH_OK; i++)
        w->status = coh_text_add(w->text, "%016" PRIx64, words[i]);
    if (w->status == COH_OK)
        w->status = coh_text_add(w->text, "\"");
}

static void write_real(const coh_json_field *field, coh_json_writer *w, double value)
{
    char text[COH_NUMBER_BYTES];
    if (field->decimals == 0) {
        coh_json_put_real(w, field->name, value);
        return;
    }
    coh_number_print_fixed(text, field->decimals, value);
    coh_json_put(w, field->name, "%s", text);
}

static void write_field(const coh_json_field *field, coh_json_writer *w, const void *object)
{
    const void *member = (const char *)object + field->offset;
    switch (field->kind) {
    case COH_JSON_WHOLE:
        coh_json_put(w, field->name, "%" PRId64, load_whole(field, member));
        break;
    case COH_JSON_LIMIT:
        if (*(const uint64_t *)member > INT64_MAX)
            coh_json_put_text(w, field->name, NULL);
        else
            coh_json_put(w, field->name, "%" PRIu64, *(const uint64_t *)member);
        break;
    case COH_JSON_DECIMAL:
        coh_json_put(w, field->name, "\"%" PRIu64 "\"", *(const uint64_t *)member);
        break;
    case COH_JSON_HEX:
        write_hex(field, w, member);
        break;
    case COH_JSON_REAL:
        write_real(field, w, *(const double *)member);
        break;
    case COH_JSON_FLAG:
        coh_json_put(w, field->name, "%s", *(const int32_t *)member ? "true" : "false");
        break;
    case COH_JSON_TEXT:
        coh_json_put_text(w, field->name, member);
        break;
    case COH_JSON_STRING:
        coh_json_put_text(w, field->name, *(char *const *)member);
        break;
    case COH_JSON_CHOICE:
        coh_json_put_text(w, field->name, field->names[load_whole(field, member)]);
        break;
    case COH_JSON_OBJECT:
        coh_json_begin(w, field->name, '{', field->layout);
        coh_json_write(field->fields, w, member);
        coh_json_end(w);
        break;
    case COH_JSON_ARRAY:
        write_array(field, w, object);
        break;
    case COH_JSON_MAP:
        write_map(field, w, member);
        break;
    case COH_JSON_OWN:
        field->write(field, w, object);
        break;
    }
}

void coh_json_write(const coh_json_field *fields, coh_json_writer *w, const void *object)
{
    for (const coh_json_field *field = fields; field->name != NULL; field++) {
        const void *member = (const char *)object + field->offset;
        if (field->until == 0 && (field->is_written != NULL ? field->is_written(object)
                                                            : field->rule != COH_JSON_UNLESS_ZERO ||
                                                                  !is_zero(field, member)))
            write_field(field, w, object);
    }
}

/* ---- files ---- */

static coh_status read_version(const coh_json_file *file, const coh_json_place *root)
{
    int64_t found = 0;
    const coh_json_place version = coh_json_member(root, "version");
    const char *format = json_string_value(json_object_get(root->value, "format"));
    if (format == NULL || strcmp(format, file->format) != 0)
        return coh_fail(COH_ERR_CORRUPT, "not a %s: \"format\" is not \"%s\"", file->what,
                        file->format);
    COH_TRY(coh_json_whole(&version, 1, INT32_MAX, &found));
    if (found != file->version)
        return coh_fail(COH_ERR_CORRUPT, "%s format version %" PRId64 ", this program reads %d",
                        file->what, found, file->version);
    /* the head is checked: what remains is the fields */
    json_object_del(root->value, "format");
    json_object_del(root->value, "version");
    return COH_OK;
}

/* Returns the last occurrence of the seal, or NULL. */
static const char *find_seal(const char *text)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, SEAL)) != NULL; at++)
        found = at;
    return found;
}

static coh_status check_seal(const coh_json_file *file, const coh_json_place *hash,
                             const char *text, size_t bytes)
{
    uint64_t expected = 0;
    const char *seal = find_seal(text);
    COH_TRY(coh_json_hex(hash, 1, &expected));
    if (strlen(text) != bytes || seal == NULL ||
        XXH3_64bits(text, (size_t)(seal - text)) != expected)
        return coh_fail(
            COH_ERR_CORRUPT,
            "its bytes are not those its hash names: it was edited or damaged, or written "
            "again by a tool that sorts or indents; %s",
            file->remedy);
    return COH_OK;
}

static coh_status read_root(const coh_json_file *file, const coh_json_place *root, const char *text,
                            size_t bytes)
{
    void *object = root->source->object;
    coh_json_place hash = coh_json_member(root, "file_hash");
    COH_TRY(read_version(file, root));
    json_incref(hash.value);
    if (file->remedy != NULL)
        json_object_del(root->value, "file_hash");
    coh_status status = coh_json_read(file->fields, root, object);
    if (status == COH_OK && file->remedy != NULL &&
        !(hash.value == NULL && file->may_lack_hash != NULL && file->may_lack_hash(object)))
        status = check_seal(file, &hash, text, bytes);
    json_decref(hash.value);
    return status;
}

coh_status coh_json_file_parse(const coh_json_file *file, const char *text, size_t bytes,
                               void *object)
{
    const coh_json_source source = { .version = file->version, .object = object };
    coh_json_place root = { .source = &source };
    COH_TRY(coh_json_load(text, bytes, &root.value));
    coh_status status = read_root(file, &root, text, bytes);
    json_decref(root.value);
    return status;
}

coh_status coh_json_file_read(const coh_json_file *file, const char *path, uint64_t most,
                              void *object)
{
    char *text;
    size_t bytes;
    COH_TRY(coh_file_read_whole(path, most, &text, &bytes));
    coh_status status = coh_json_file_parse(file, text, bytes, object);
    coh_free(text);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

/* Appends the text up to the hash, or up to the closing bracket. */
static coh_status add_fields(const coh_json_file *file, const void *object, coh_text *text)
{
    coh_json_writer writer = { .text = text, .object = object };
    coh_json_begin(&writer, NULL, '{', COH_JSON_LINES);
    coh_json_put_text(&writer, "format", file->format);
    coh_json_put(&writer, "version", "%d", file->version);
    coh_json_write(file->fields, &writer, object);
    COH_TRY(writer.status);
    return coh_text_add(text, file->remedy != NULL ? ",\n" : "\n");
}

coh_status coh_json_seal(coh_text *text)
{
    const uint64_t hash = XXH3_64bits(text->data, text->bytes);
    return coh_text_add(text, SEAL " \"%016" PRIx64 "\"\n}\n", hash);
}

coh_status coh_json_file_add(const coh_json_file *file, const void *object, coh_text *text)
{
    COH_TRY(add_fields(file, object, text));
    return file->remedy != NULL ? coh_json_seal(text) : coh_text_add(text, "}\n");
}

coh_status coh_json_file_write(const coh_json_file *file, const void *object, const char *path)
{
    coh_text text = { 0 };
    char format[64];
    snprintf(format, sizeof(format), "\"%s\"", file->format);
    COH_TRY(coh_file_check_own(path, "{", format, file->what));
    coh_status status = coh_json_file_add(file, object, &text);
    if (status == COH_OK)
        status = coh_file_write_whole(path, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

coh_status coh_json_file_hash(const coh_json_file *file, const void *object, uint64_t *out_hash)
{
    coh_text text = { 0 };
    coh_status status = add_fields(file, object, &text);
    *out_hash = status == COH_OK ? XXH3_64bits(text.data, text.bytes) : 0;
    coh_text_fini(&text);
    return status;
}
