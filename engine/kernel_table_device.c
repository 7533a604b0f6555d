/* The part of a kernel table that concerns devices: the algorithms of cuBLASLt for each form of
 * product. Next: kernel_table.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/kernel_table.h"

enum { HEX_DIGITS = 16 * COH_ALGORITHM_WORDS };

/* ---- writing ---- */

static const char *truth(int value)
{
    return value ? "true" : "false";
}

static coh_status write_product(coh_text *text, const coh_algorithm *a)
{
    const coh_product_form *f = &a->form;
    COH_TRY(coh_text_add(
        text,
        "      {\"dtype\": \"%s\", \"c_dtype\": \"%s\", \"layout\": \"%s\", \"rows\": %" PRId64
        ", \"columns\": %" PRId64 ", \"depth\": %" PRId64 ", \"strides\": [%" PRId64 ", %" PRId64
        ", %" PRId64 "], \"adds\": %s, \"bias\": %s, \"relu\": %s, \"alignment\": %" PRId32
        ", \"algorithm\": \"",
        coh_kernel_dtype_name((coh_dtype)f->dtype), coh_kernel_dtype_name((coh_dtype)f->c_dtype),
        coh_kernel_layout_name((coh_matmul_layout)f->layout), f->rows, f->columns, f->depth,
        f->a_stride, f->b_stride, f->c_stride, truth(f->adds), truth(f->bias), truth(f->relu),
        f->alignment));
    for (int i = 0; i < COH_ALGORITHM_WORDS; i++)
        COH_TRY(coh_text_add(text, "%016" PRIx64, a->words[i]));
    return coh_text_add(text, "\", \"microseconds\": %.3f}", a->microseconds);
}

static int is_same_device(const coh_algorithm_device *a, const coh_algorithm_device *b)
{
    return a->multiprocessors == b->multiprocessors && a->library_version == b->library_version &&
           strcmp(a->name, b->name) == 0;
}

static coh_status write_device(coh_text *text, const coh_algorithm_device *device)
{
    COH_TRY(coh_text_add(text, "    {\"name\": "));
    COH_TRY(coh_text_add_quoted(text, device->name));
    return coh_text_add(
        text, ", \"multiprocessors\": %" PRId32 ", \"cublaslt\": %" PRId64 ", \"products\": [\n",
        device->multiprocessors, device->library_version);
}

coh_status coh_kernel_devices_write(coh_text *text, const coh_kernel_list *list)
{
    COH_TRY(coh_text_add(text, ",\n  \"devices\": [\n"));
    for (int32_t i = 0; i < list->algorithm_count; i++) {
        const coh_algorithm *a = &list->algorithms[i];
        const int is_last = i + 1 == list->algorithm_count;
        if (i == 0 || !is_same_device(&a[-1].device, &a->device))
            COH_TRY(write_device(text, &a->device));
        COH_TRY(write_product(text, a));
        if (is_last || !is_same_device(&a->device, &a[1].device))
            COH_TRY(coh_text_add(text, "\n    ]}%s\n", is_last ? "" : ","));
        else
            COH_TRY(coh_text_add(text, ",\n"));
    }
    return coh_text_add(text, "  ]");
}

/* ---- reading ---- */

static coh_status read_words(const char *digits, uint64_t words[COH_ALGORITHM_WORDS])
{
    if (strlen(digits) != HEX_DIGITS || strspn(digits, "0123456789abcdef") != HEX_DIGITS)
        return coh_fail(COH_ERR_CORRUPT, "its algorithm is not %d hexadecimal digits", HEX_DIGITS);
    for (int i = 0; i < HEX_DIGITS; i++) {
        const char c = digits[i];
        words[i / 16] = words[i / 16] << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return COH_OK;
}

/* Checks that rows of an operand do not overlap. The layout determines the length of a row. */
static coh_status check_form(const coh_product_form *f)
{
    const int64_t a_row = f->layout == COH_MATMUL_TN ? f->rows : f->depth;
    const int64_t b_row = f->layout == COH_MATMUL_NT ? f->depth : f->columns;
    if (f->rows < 1 || f->columns < 1 || f->depth < 1)
        return coh_fail(COH_ERR_CORRUPT, "rows, columns and depth are whole numbers above 0");
    if (f->a_stride < a_row || f->b_stride < b_row || f->c_stride < f->columns)
        return coh_fail(COH_ERR_CORRUPT, "a stride is shorter than a row");
    if (f->alignment < 1 || f->alignment > 256 || (f->alignment & (f->alignment - 1)) != 0)
        return coh_fail(COH_ERR_CORRUPT, "its alignment is no power of two from 1 to 256");
    return COH_OK;
}

static coh_status read_product(json_t *value, coh_algorithm *out_algorithm)
{
    coh_product_form *f = &out_algorithm->form;
    const char *dtype, *c_dtype, *layout, *digits;
    json_int_t rows, columns, depth, a_stride, b_stride, c_stride, alignment;
    int adds, bias, relu;
    double *microseconds = &out_algorithm->microseconds;
    json_error_t error;
    coh_dtype of_operands, of_c;
    coh_matmul_layout kind;
    if (json_unpack_ex(value, &error, JSON_STRICT,
                       "{s:s, s:s, s:s, s:I, s:I, s:I, s:[I, I, I], s:b, s:b, s:b, s:I, s:s, s:F}",
                       "dtype", &dtype, "c_dtype", &c_dtype, "layout", &layout, "rows", &rows,
                       "columns", &columns, "depth", &depth, "strides", &a_stride, &b_stride,
                       &c_stride, "adds", &adds, "bias", &bias, "relu", &relu, "alignment",
                       &alignment, "algorithm", &digits, "microseconds", microseconds) != 0)
        return coh_fail(COH_ERR_CORRUPT, "%.200s", error.text);
    COH_TRY(coh_kernel_dtype_of(dtype, &of_operands));
    COH_TRY(coh_kernel_dtype_of(c_dtype, &of_c));
    COH_TRY(coh_kernel_layout_of(layout, &kind));
    *f = (coh_product_form){ .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .a_stride = a_stride,
                             .b_stride = b_stride,
                             .c_stride = c_stride,
                             .layout = (int32_t)kind,
                             .dtype = (int32_t)of_operands,
                             .c_dtype = (int32_t)of_c,
                             .adds = adds,
                             .bias = bias,
                             .relu = relu,
                             .alignment =
                                 alignment < 1 || alignment > 256 ? 0 : (int32_t)alignment };
    COH_TRY(check_form(f));
    if (!(*microseconds > 0))
        return coh_fail(COH_ERR_CORRUPT, "its microseconds are no number above 0");
    return read_words(digits, out_algorithm->words);
}

static coh_status read_device(json_t *value, coh_algorithm_device *out_device, json_t **out_rows)
{
    const char *name;
    json_int_t multiprocessors, version;
    json_error_t error;
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:I, s:I, s:o}", "name", &name,
                       "multiprocessors", &multiprocessors, "cublaslt", &version, "products",
                       out_rows) != 0)
        return coh_fail(COH_ERR_CORRUPT, "%.200s", error.text);
    if (strlen(name) >= COH_DEVICE_NAME_BYTES)
        return coh_fail(COH_ERR_CORRUPT, "its name is longer than any device's");
    if (multiprocessors < 1 || multiprocessors > INT32_MAX || version < 1)
        return coh_fail(COH_ERR_CORRUPT, "its multiprocessors and its cublaslt are above 0");
    if (!json_is_array(*out_rows))
        return coh_fail(COH_ERR_CORRUPT, "its products are no list");
    *out_device = (coh_algorithm_device){ .multiprocessors = (int32_t)multiprocessors,
                                          .library_version = version };
    memcpy(out_device->name, name, strlen(name));
    return COH_OK;
}

static coh_status add_products(const json_t *rows, const coh_algorithm_device *device,
                               size_t *capacity, coh_kernel_list *list)
{
    const size_t count = json_array_size(rows);
    if (count > COH_ALGORITHMS_MAX - (size_t)list->algorithm_count)
        return coh_fail(COH_ERR_CORRUPT, "a table has at most %d algorithms", COH_ALGORITHMS_MAX);
    COH_TRY(COH_GROW(&list->algorithms, capacity, (size_t)list->algorithm_count + count));
    for (size_t i = 0; i < count; i++) {
        coh_algorithm *next = &list->algorithms[list->algorithm_count++];
        *next = (coh_algorithm){ .device = *device };
        const coh_status status = read_product(json_array_get(rows, i), next);
        if (status != COH_OK)
            return coh_fail_prefix(status, "product %zu", i + 1);
    }
    return COH_OK;
}

coh_status coh_kernel_devices_read(json_t *devices, coh_kernel_list *list)
{
    size_t capacity = 0;
    if (!json_is_array(devices))
        return coh_fail(COH_ERR_CORRUPT, "its devices are no list");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        coh_algorithm_device device;
        json_t *rows;
        coh_status status = read_device(json_array_get(devices, i), &device, &rows);
        if (status == COH_OK)
            status = add_products(rows, &device, &capacity, list);
        if (status != COH_OK)
            return coh_fail_prefix(status, "device %zu of the list", i + 1);
    }
    return coh_algorithms_sort(list->algorithms, list->algorithm_count) == COH_OK
               ? COH_OK
               : coh_fail_prefix(COH_ERR_CORRUPT, "its devices");
}
