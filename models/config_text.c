/* Writes JSON values into a text. The one idea: numbers get the fewest digits that read back as the
 * same value, with a point in every locale. Next: config_write.c and stored.c, the callers. */
#include "models/config_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* ---- numbers ---- */

/* Integers that a double holds exactly are written without an exponent. */
static int print_whole(char number[COH_NUMBER_BYTES], double value)
{
    if (value != floor(value) || !(fabs(value) < 1e15))
        return 0;
    snprintf(number, COH_NUMBER_BYTES, "%.0f.0", value);
    return 1;
}

/* Finds the fewest digits that read back as the same float, and prints the double nearest to
 * them. */
static void print_float(char number[COH_NUMBER_BYTES], float value)
{
    int digits = 1;
    if (print_whole(number, (double)value))
        return;
    do
        snprintf(number, COH_NUMBER_BYTES, "%.*g", digits, (double)value);
    while (strtof(number, NULL) != value && ++digits <= 9);
    coh_number_print(number, strtod(number, NULL));
}

static void print_double(char number[COH_NUMBER_BYTES], double value)
{
    if (!print_whole(number, value))
        coh_number_print(number, value);
}

void coh_config_text_add_float(coh_text *text, float value)
{
    char number[COH_NUMBER_BYTES];
    print_float(number, value);
    (void)coh_text_add(text, "%s", number);
}

void coh_config_text_add_double(coh_text *text, double value)
{
    char number[COH_NUMBER_BYTES];
    print_double(number, value);
    (void)coh_text_add(text, "%s", number);
}

/* ---- values ---- */

static coh_status add_break(coh_text *text, int indent)
{
    return indent < 0 ? COH_OK : coh_text_add(text, "\n%*s", 2 * indent, "");
}

/* Adds what separates members: a comma, and the line break and indent. */
static coh_status add_next(coh_text *text, int first, int indent)
{
    if (!first)
        COH_TRY(coh_text_add(text, indent < 0 ? ", " : ","));
    return add_break(text, indent);
}

static int deeper(int indent)
{
    return indent < 0 ? indent : indent + 1;
}

static coh_status dump_array(coh_text *text, const json_t *array, int indent)
{
    const size_t count = json_array_size(array);
    COH_TRY(coh_text_add(text, "["));
    for (size_t i = 0; i < count; i++) {
        COH_TRY(add_next(text, i == 0, deeper(indent)));
        COH_TRY(coh_config_text_dump(text, json_array_get(array, i), deeper(indent)));
    }
    if (count > 0)
        COH_TRY(add_break(text, indent));
    return coh_text_add(text, "]");
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static coh_status dump_members(coh_text *text, const json_t *object, const char **names,
                               size_t count, int indent)
{
    COH_TRY(coh_text_add(text, "{"));
    for (size_t i = 0; i < count; i++) {
        COH_TRY(add_next(text, i == 0, deeper(indent)));
        COH_TRY(coh_text_add_quoted(text, names[i]));
        COH_TRY(coh_text_add(text, ": "));
        COH_TRY(coh_config_text_dump(text, json_object_get(object, names[i]), deeper(indent)));
    }
    if (count > 0)
        COH_TRY(add_break(text, indent));
    return coh_text_add(text, "}");
}

static coh_status dump_object(coh_text *text, const json_t *object, int indent)
{
    const char **names;
    size_t count = 0;
    COH_TRY(COH_ALLOC(json_object_size(object), &names));
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at))
        names[count++] = json_object_iter_key(at);
    qsort(names, count, sizeof(*names), by_name);
    coh_status status = dump_members(text, object, names, count, indent);
    coh_free(names);
    return status;
}

coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent)
{
    char number[COH_NUMBER_BYTES];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return dump_object(text, value, indent);
    case JSON_ARRAY:
        return dump_array(text, value, indent);
    case JSON_STRING:
        return coh_text_add_quoted(text, json_string_value(value));
    case JSON_INTEGER:
        return coh_text_add(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        print_double(number, json_real_value(value));
        return coh_text_add(text, "%s", number);
    case JSON_TRUE:
        return coh_text_add(text, "true");
    case JSON_FALSE:
        return coh_text_add(text, "false");
    case JSON_NULL:
        break;
    }
    return coh_text_add(text, "null");
}
