/* Kernel tables as files: JSON, written in one form, and read strictly, so that a damaged or edited
 * table is refused with its line. Next: kernel_table.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "engine/kernel_table.h"

#define FORMAT_NAME    "cohobate kernels"
#define FORMAT_VERSION 1
#define BYTES_MOST     (4u << 20) /* 4,096 algorithms take two thirds of it */

const char *coh_kernel_dtype_name(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? "bf16" : "f32";
}

coh_status coh_kernel_dtype_of(const char *name, coh_dtype *out_dtype)
{
    *out_dtype = strcmp(name, "bf16") == 0 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
    return strcmp(name, coh_kernel_dtype_name(*out_dtype)) == 0
               ? COH_OK
               : coh_fail(COH_ERR_CORRUPT, "its dtype \"%.40s\" is none that is known", name);
}

void coh_kernel_machine(char name[COH_KERNEL_MACHINE_BYTES])
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, COH_KERNEL_MACHINE_BYTES, "unknown");
    while (file && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, COH_KERNEL_MACHINE_BYTES, "%.*s", COH_KERNEL_MACHINE_BYTES - 1,
                 colon + 1 + (colon[1] == ' '));
        break;
    }
    if (file)
        fclose(file);
}

/* ---- writing ---- */

static coh_status write_row(coh_text *text, const coh_kernel_timing *shape, int is_last)
{
    COH_TRY(coh_text_add(text,
                         "    {\"dtype\": \"%s\", \"layout\": \"%s\", \"rows\": %" PRId64
                         ", \"columns\": %" PRId64 ", \"depth\": %" PRId64
                         ", \"product\": \"%s\", \"microseconds\": {",
                         coh_kernel_dtype_name(shape->dtype), shape->layout, shape->rows,
                         shape->columns, shape->depth, coh_kernel_product_name(shape->chosen)));
    const char *comma = "";
    for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++)
        if (shape->seconds[p] > 0) {
            COH_TRY(coh_text_add(text, "%s\"%s\": %.1f", comma, coh_kernel_product_name(p),
                                 shape->seconds[p] * 1e6));
            comma = ", ";
        }
    return coh_text_add(text, "}}%s\n", is_last ? "" : ",");
}

coh_status coh_kernel_table_write(const coh_kernel_list *list, const char *path)
{
    coh_text text = { 0 };
    char machine[COH_KERNEL_MACHINE_BYTES], date[16];
    time_t now = time(NULL);
    struct tm local;
    coh_status status;
    coh_kernel_machine(machine);
    localtime_r(&now, &local);
    strftime(date, sizeof(date), "%Y-%m-%d", &local);
    COH_TRY_GOTO(status,
                 coh_text_add(&text,
                              "{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"machine\": ",
                              FORMAT_NAME, FORMAT_VERSION),
                 done);
    COH_TRY_GOTO(status, coh_text_add_quoted(&text, machine), done);
    COH_TRY_GOTO(status,
                 coh_text_add(&text,
                              ",\n  \"date\": \"%s\",\n  \"threads\": %" PRId32
                              ",\n  \"products\": [\n",
                              date, list->thread_count),
                 done);
    for (size_t i = 0; i < list->shape_count; i++)
        COH_TRY_GOTO(status, write_row(&text, &list->shapes[i], i + 1 == list->shape_count), done);
    COH_TRY_GOTO(status, coh_text_add(&text, "  ]"), done);
    if (list->algorithm_count > 0)
        COH_TRY_GOTO(status, coh_kernel_devices_write(&text, list), done);
    COH_TRY_GOTO(status, coh_text_add(&text, "\n}\n"), done);
    status = coh_file_write_whole(path, text.data, text.bytes);
done:
    coh_text_fini(&text);
    return status;
}

/* ---- reading ---- */

typedef struct file_text {
    char *data;
    size_t bytes;
} file_text;

static coh_status find_name(const char *const *names, int32_t count, const char *what,
                            const char *name, int32_t *out_index)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *out_index = i;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT, "its %s \"%.40s\" is none that is known", what, name);
}

static coh_status check_times(const json_t *times)
{
    const char *names[COH_KERNEL_PRODUCTS], *key;
    json_t *value;
    int32_t ignored;
    for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++)
        names[p] = coh_kernel_product_name(p);
    json_object_foreach((json_t *)times, key, value)
    {
        COH_TRY(find_name(names, COH_KERNEL_PRODUCTS, "measured product", key, &ignored));
        if (!(json_number_value(value) > 0))
            return coh_fail(COH_ERR_CORRUPT, "its time of \"%.40s\" is no number above 0", key);
    }
    return COH_OK;
}

static coh_status read_row(json_t *value, coh_product_choice *out_choice)
{
    const char *dtype, *layout, *product, *names[COH_KERNEL_PRODUCTS];
    json_int_t rows, columns, depth;
    json_t *times;
    json_error_t error;
    int32_t index;
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "dtype",
                       &dtype, "layout", &layout, "rows", &rows, "columns", &columns, "depth",
                       &depth, "product", &product, "microseconds", &times) != 0)
        return coh_fail(COH_ERR_CORRUPT, "%.200s", error.text);
    if (rows < 1 || columns < 1 || depth < 1)
        return coh_fail(COH_ERR_CORRUPT, "rows, columns and depth are whole numbers above 0");
    if (!json_is_object(times))
        return coh_fail(COH_ERR_CORRUPT, "its microseconds are no object");
    COH_TRY(check_times(times));
    *out_choice = (coh_product_choice){ .rows = rows, .columns = columns, .depth = depth };
    COH_TRY(coh_kernel_dtype_of(dtype, &out_choice->dtype));
    COH_TRY(coh_kernel_layout_of(layout, &out_choice->layout));
    for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++)
        names[p] = coh_kernel_product_name(p);
    COH_TRY(find_name(names, COH_KERNEL_PRODUCTS, "product", product, &index));
    out_choice->product = coh_kernel_product_of(index);
    return COH_OK;
}

/* Finds the line on which product `index` begins, since jansson does not keep it. The products are
 * the first list that is a direct member of the table's object; the devices are the only other
 * one. */
static int line_of_row(const file_text *text, size_t index)
{
    int line = 1, depth = 0, in_string = 0;
    size_t commas = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        const char c = text->data[i];
        const int is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
        if (depth == 2 && commas == index && !is_blank)
            return line;
        line += c == '\n';
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string) {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            commas += depth == 2 && c == ',';
        }
    }
    return line;
}

/* Refuses a shape that two lines name: it would be ambiguous which product to use. */
static coh_status check_is_new(const coh_product_choice *choices, size_t index)
{
    const coh_product_choice *b = &choices[index];
    for (size_t i = 0; i < index; i++) {
        const coh_product_choice *a = &choices[i];
        if (a->dtype == b->dtype && a->layout == b->layout && a->rows == b->rows &&
            a->columns == b->columns && a->depth == b->depth)
            return coh_fail(COH_ERR_CORRUPT,
                            "its shape %" PRId64 " x %" PRId64 " x %" PRId64
                            " is that of product %zu: leave one of them",
                            b->rows, b->columns, b->depth, i + 1);
    }
    return COH_OK;
}

static coh_status read_rows(const file_text *text, const json_t *rows, coh_kernel_list *list)
{
    size_t count = json_array_size(rows);
    if (!json_is_array(rows) || count > COH_PRODUCT_CHOICES_MAX)
        return coh_fail(COH_ERR_CORRUPT, "its products are no list of at most %d",
                        COH_PRODUCT_CHOICES_MAX);
    COH_TRY(COH_ALLOC(count, &list->choices));
    for (size_t i = 0; i < count; i++)
        if (read_row(json_array_get(rows, i), &list->choices[i]) != COH_OK ||
            check_is_new(list->choices, i) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "line %d: product %zu of the list",
                                   line_of_row(text, i), i + 1);
    list->choice_count = (int32_t)count;
    return COH_OK;
}

static coh_status read_root(const file_text *text, json_t *root, coh_kernel_list *list)
{
    const char *format, *measured_on, *date;
    json_int_t version, threads;
    json_t *rows, *devices = NULL;
    json_error_t error;
    if (json_unpack_ex(root, &error, JSON_STRICT, "{s:s, s:I, s:s, s:s, s:I, s:o, s?o}", "format",
                       &format, "version", &version, "machine", &measured_on, "date", &date,
                       "threads", &threads, "products", &rows, "devices", &devices) != 0)
        return coh_fail(COH_ERR_CORRUPT, "it is no kernel table: %.200s", error.text);
    if (strcmp(format, FORMAT_NAME) != 0 || version != FORMAT_VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "its format is \"%.40s\", version %lld, not \"%s\", version %d", format,
                        (long long)version, FORMAT_NAME, FORMAT_VERSION);
    snprintf(list->machine, sizeof(list->machine), "%s", measured_on);
    COH_TRY(read_rows(text, rows, list));
    return devices == NULL ? COH_OK : coh_kernel_devices_read(devices, list);
}

void coh_kernel_list_fini(coh_kernel_list *list)
{
    coh_free(list->choices);
    coh_free(list->algorithms);
    *list = (coh_kernel_list){ 0 };
}

coh_status coh_kernel_table_read(const char *path, coh_kernel_list *list)
{
    file_text text;
    json_error_t error;
    *list = (coh_kernel_list){ 0 };
    COH_TRY(coh_file_read_whole(path, BYTES_MOST, &text.data, &text.bytes));
    json_t *root = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, &error);
    coh_status status;
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        status = coh_fail(COH_ERR_MEMORY, "out of memory while reading it");
    else if (!root)
        status = coh_fail(COH_ERR_CORRUPT, "line %d: %.200s", error.line, error.text);
    else
        status = read_root(&text, root, list);
    json_decref(root);
    coh_free(text.data);
    if (status == COH_OK)
        return COH_OK;
    coh_kernel_list_fini(list);
    return coh_fail_prefix(status, "kernel table %s (cohobate tune makes a new one)", path);
}
