/* Kernel tables as files: the products of host shapes, and the algorithms of cuBLASLt by device.
 * The idea: tables of fields serve both directions; rows and entries are the file's form of what
 * kernel_table.h names. Next: kernel_table.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/json.h"
#include "engine/kernel_table.h"

#define BYTES_MOST (4u << 20) /* 4,096 algorithms take two thirds of it */
#define WHOLE_MOST ((double)INT64_MAX)
#define TIME_MOST  1e15 /* microseconds */

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

/* ---- the form of the file ---- */

static const char *const dtype_names[] = {
    [COH_DTYPE_F32] = "f32", [COH_DTYPE_BF16] = "bf16", NULL
};
typedef struct product_row {
    int32_t dtype, layout, product; /* product: the public number */
    int64_t rows, columns, depth;
    double microseconds[COH_KERNEL_PRODUCTS]; /* 0: not measured */
} product_row;

typedef struct device_entry {
    coh_algorithm_device device;
    coh_algorithm *algorithms;
    uint32_t count;
} device_entry;

typedef struct table_file {
    char machine[COH_KERNEL_MACHINE_BYTES], date[16];
    int32_t thread_count;
    product_row *rows;
    device_entry *devices;
    uint32_t row_count, device_count;
} table_file;

/* Refuses a shape that two rows name: it would be ambiguous which product to use. */
static coh_status check_row(const coh_json_place *at, void *object)
{
    const product_row *b = object;
    for (size_t i = 0; i < at->index; i++) {
        const product_row *a = b - at->index + i;
        if (a->dtype == b->dtype && a->layout == b->layout && a->rows == b->rows &&
            a->columns == b->columns && a->depth == b->depth)
            return coh_json_fail(at,
                                 "its shape %" PRId64 " x %" PRId64 " x %" PRId64
                                 " is that of products[%zu]: leave one of them",
                                 b->rows, b->columns, b->depth, i);
    }
    return COH_OK;
}

static coh_status read_strides(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_product_form *f = &((coh_algorithm *)object)->form;
    int64_t *const strides[] = { &f->a_stride, &f->b_stride, &f->c_stride };
    size_t count;
    (void)field;
    COH_TRY(coh_json_list(at, 3, 3, &count));
    for (size_t i = 0; i < 3; i++) {
        const coh_json_place stride = coh_json_item(at, i);
        COH_TRY(coh_json_whole(&stride, 1, WHOLE_MOST, strides[i]));
    }
    return COH_OK;
}

static void write_strides(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_product_form *f = &((const coh_algorithm *)object)->form;
    coh_json_put(writer, field->name, "[%" PRId64 ", %" PRId64 ", %" PRId64 "]", f->a_stride,
                 f->b_stride, f->c_stride);
}

/* Checks that rows of an operand do not overlap. The layout determines the length of a row. */
static coh_status check_algorithm(const coh_json_place *at, void *object)
{
    const coh_product_form *f = &((const coh_algorithm *)object)->form;
    const int64_t a_row = f->layout == COH_MATMUL_TN ? f->rows : f->depth;
    const int64_t b_row = f->layout == COH_MATMUL_NT ? f->depth : f->columns;
    const coh_json_place alignment = coh_json_member(at, "alignment");
    if (f->a_stride < a_row || f->b_stride < b_row || f->c_stride < f->columns)
        return coh_json_fail(at, "a stride is shorter than a row");
    if ((f->alignment & (f->alignment - 1)) != 0)
        return coh_json_expected(&alignment, "a power of two");
    return COH_OK;
}

#define ROW(member)   COH_JSON_AT(product_row, member)
#define FORM(member)  COH_JSON_AT(coh_algorithm, form.member)
#define COUNT(member) COH_JSON_WHOLE, member, .least = 1, .most = WHOLE_MOST
#define TIME(member)                                                                               \
    COH_JSON_REAL, ROW(member), .least = 1e-6, .most = TIME_MOST, .decimals = 1,                   \
                                .rule = COH_JSON_UNLESS_ZERO

static const coh_json_field time_fields[] = {
    { "panels", TIME(microseconds[COH_PRODUCT_PANELS - COH_PRODUCT_PANELS]) },
    { "openblas", TIME(microseconds[COH_PRODUCT_OPENBLAS - COH_PRODUCT_PANELS]) },
    { "onednn", TIME(microseconds[COH_PRODUCT_ONEDNN - COH_PRODUCT_PANELS]) },
    { 0 },
};
_Static_assert(COH_KERNEL_PRODUCTS == 3, "each product has a time");

static const coh_json_field row_fields[] = {
    { "dtype", COH_JSON_CHOICE, ROW(dtype), .names = dtype_names },
    { "layout", COH_JSON_CHOICE, ROW(layout), .names = coh_kernel_layout_names },
    { "rows", COUNT(ROW(rows)) },
    { "columns", COUNT(ROW(columns)) },
    { "depth", COUNT(ROW(depth)) },
    { "product", COH_JSON_CHOICE, ROW(product), .names = &coh_product_names[COH_PRODUCT_PANELS] },
    { "microseconds", COH_JSON_OBJECT, .fields = time_fields },
    { 0 },
};

static const coh_json_field algorithm_fields[] = {
    { "dtype", COH_JSON_CHOICE, FORM(dtype), .names = dtype_names },
    { "c_dtype", COH_JSON_CHOICE, FORM(c_dtype), .names = dtype_names },
    { "layout", COH_JSON_CHOICE, FORM(layout), .names = coh_kernel_layout_names },
    { "rows", COUNT(FORM(rows)) },
    { "columns", COUNT(FORM(columns)) },
    { "depth", COUNT(FORM(depth)) },
    { "strides", COH_JSON_OWN, .read = read_strides, .write = write_strides },
    { "adds", COH_JSON_FLAG, FORM(adds) },
    { "bias", COH_JSON_FLAG, FORM(bias) },
    { "relu", COH_JSON_FLAG, FORM(relu) },
    { "alignment", COH_JSON_WHOLE, FORM(alignment), .least = 1, .most = 256 },
    { "algorithm", COH_JSON_HEX, COH_JSON_AT(coh_algorithm, words) },
    { "microseconds", COH_JSON_REAL, COH_JSON_AT(coh_algorithm, microseconds), .least = 1e-6,
      .most = TIME_MOST, .decimals = 3 },
    { 0 },
};

static const coh_json_field device_fields[] = {
    { "name", COH_JSON_TEXT, COH_JSON_AT(device_entry, device.name) },
    { "multiprocessors", COH_JSON_WHOLE, COH_JSON_AT(device_entry, device.multiprocessors),
      .least = 1, .most = INT32_MAX },
    { "cublaslt", COUNT(COH_JSON_AT(device_entry, device.library_version)) },
    { "products", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(device_entry, algorithms, count),
      .layout = COH_JSON_LINES, .most = COH_ALGORITHMS_MAX, .fields = algorithm_fields,
      .check = check_algorithm },
    { 0 },
};

static int has_devices(const void *object)
{
    return ((const table_file *)object)->device_count > 0;
}

static const coh_json_field file_fields[] = {
    { "machine", COH_JSON_TEXT, COH_JSON_AT(table_file, machine) },
    { "date", COH_JSON_TEXT, COH_JSON_AT(table_file, date) },
    { "threads", COH_JSON_WHOLE, COH_JSON_AT(table_file, thread_count), .most = INT32_MAX },
    { "products", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(table_file, rows, row_count),
      .layout = COH_JSON_LINES, .most = COH_PRODUCT_CHOICES_MAX, .fields = row_fields,
      .check = check_row },
    { "devices", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(table_file, devices, device_count),
      .layout = COH_JSON_LINES, .most = COH_ALGORITHMS_MAX, .fields = device_fields,
      .is_written = has_devices },
    { 0 },
};

static const coh_json_file kernels_file = {
    .what = "kernel table", .format = "cohobate kernels", .version = 1, .fields = file_fields
};

/* ---- writing ---- */

static void fill_row(const coh_kernel_timing *shape, product_row *row)
{
    coh_matmul_layout layout = COH_MATMUL_NT;
    (void)coh_kernel_layout_of(shape->layout, &layout); /* it has one of the names */
    *row = (product_row){ .dtype = (int32_t)shape->dtype,
                          .layout = (int32_t)layout,
                          .product = shape->chosen,
                          .rows = shape->rows,
                          .columns = shape->columns,
                          .depth = shape->depth };
    for (int32_t p = 0; p < COH_KERNEL_PRODUCTS; p++)
        row->microseconds[p] = shape->seconds[p] * 1e6;
}

static int is_same_device(const coh_algorithm_device *a, const coh_algorithm_device *b)
{
    return a->multiprocessors == b->multiprocessors && a->library_version == b->library_version &&
           strcmp(a->name, b->name) == 0;
}

/* Groups the algorithms, of which those of one device are adjacent. */
static coh_status fill_devices(const coh_kernel_list *list, table_file *file)
{
    device_entry *entry = NULL;
    COH_TRY(COH_ALLOC(list->algorithm_count, &file->devices));
    for (int32_t i = 0; i < list->algorithm_count; i++) {
        coh_algorithm *a = &list->algorithms[i];
        if (entry == NULL || !is_same_device(&entry->device, &a->device)) {
            entry = &file->devices[file->device_count++];
            *entry = (device_entry){ .device = a->device, .algorithms = a };
        }
        entry->count++;
    }
    return COH_OK;
}

coh_status coh_kernel_table_write(const coh_kernel_list *list, const char *path)
{
    table_file file = { .thread_count = list->thread_count,
                        .row_count = (uint32_t)list->shape_count };
    time_t now = time(NULL);
    struct tm local;
    coh_status status;
    coh_kernel_machine(file.machine);
    localtime_r(&now, &local);
    strftime(file.date, sizeof(file.date), "%Y-%m-%d", &local);
    COH_TRY_GOTO(status, COH_ALLOC(list->shape_count, &file.rows), done);
    for (size_t i = 0; i < list->shape_count; i++)
        fill_row(&list->shapes[i], &file.rows[i]);
    COH_TRY_GOTO(status, fill_devices(list, &file), done);
    status = coh_json_file_write(&kernels_file, &file, path);
done:
    coh_free(file.rows);
    coh_free(file.devices);
    return status;
}

/* ---- reading ---- */

static coh_status take_rows(const table_file *file, coh_kernel_list *list)
{
    COH_TRY(COH_ALLOC(file->row_count, &list->choices));
    list->choice_count = (int32_t)file->row_count;
    for (uint32_t i = 0; i < file->row_count; i++) {
        const product_row *row = &file->rows[i];
        list->choices[i] = (coh_product_choice){ .dtype = (coh_dtype)row->dtype,
                                                 .layout = (coh_matmul_layout)row->layout,
                                                 .rows = row->rows,
                                                 .columns = row->columns,
                                                 .depth = row->depth,
                                                 .product = coh_kernel_product_of(row->product) };
    }
    return COH_OK;
}

static coh_status take_devices(const table_file *file, coh_kernel_list *list)
{
    size_t capacity = 0;
    for (uint32_t d = 0; d < file->device_count; d++) {
        const device_entry *entry = &file->devices[d];
        if (entry->count > COH_ALGORITHMS_MAX - (uint32_t)list->algorithm_count)
            return coh_fail(COH_ERR_CORRUPT, "a table has at most %d algorithms",
                            COH_ALGORITHMS_MAX);
        COH_TRY(
            COH_GROW(&list->algorithms, &capacity, list->algorithm_count + (int32_t)entry->count));
        for (uint32_t i = 0; i < entry->count; i++) {
            coh_algorithm *next = &list->algorithms[list->algorithm_count++];
            *next = entry->algorithms[i];
            next->device = entry->device;
        }
    }
    return coh_algorithms_sort(list->algorithms, list->algorithm_count) == COH_OK
               ? COH_OK
               : coh_fail_prefix(COH_ERR_CORRUPT, "its devices");
}

void coh_kernel_list_fini(coh_kernel_list *list)
{
    coh_free(list->choices);
    coh_free(list->algorithms);
    *list = (coh_kernel_list){ 0 };
}

coh_status coh_kernel_table_read(const char *path, coh_kernel_list *list)
{
    table_file file = { 0 };
    *list = (coh_kernel_list){ 0 };
    coh_status status = coh_json_file_read(&kernels_file, path, BYTES_MOST, &file);
    if (status == COH_OK) {
        status = take_rows(&file, list);
        if (status == COH_OK)
            status = take_devices(&file, list);
        if (status != COH_OK)
            status = coh_fail_prefix(status, "%s", path);
    }
    memcpy(list->machine, file.machine, sizeof(list->machine));
    for (uint32_t d = 0; file.devices != NULL && d < file.device_count; d++)
        coh_free(file.devices[d].algorithms);
    coh_free(file.devices);
    coh_free(file.rows);
    if (status == COH_OK)
        return COH_OK;
    coh_kernel_list_fini(list);
    return coh_fail_prefix(status, "kernel table (cohobate tune makes a new one)");
}
