/* The table of cuBLASLt algorithms: a sorted array, searched by device and form. Its hash is part
 * of a numeric plan, so it covers every line for a device. Next: algorithm.h;
 * kernels/cuda/products.c uses it. */
#include "kernels/algorithm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"

enum {
    ALIGNMENT_MOST = 256
}; /* the alignment of an arena's objects, and all that a library asks for */

/* Sorted. Written only while no thread reads it. */
static struct {
    coh_algorithm *all;
    int32_t count;
    size_t capacity;
    int is_measured;
} table;

coh_product_form coh_product_form_of(const coh_matmul *m)
{
    const int has_bias = !m->adds && m->bias != NULL;
    const int has_residual = !m->adds && m->residual != NULL;
    uintptr_t addresses = (uintptr_t)m->a | (uintptr_t)m->b | (uintptr_t)m->c | ALIGNMENT_MOST;
    if (has_bias)
        addresses |= (uintptr_t)m->bias;
    if (has_residual)
        addresses |= (uintptr_t)m->residual;
    return (coh_product_form){
        .rows = m->rows,
        .columns = m->columns,
        .depth = m->depth,
        .a_stride = m->a_stride,
        .b_stride = m->b_stride,
        .c_stride = m->c_stride,
        .layout = (int32_t)m->layout,
        .dtype = (int32_t)m->dtype,
        .c_dtype = (int32_t)m->c_dtype,
        .adds = m->adds || has_residual,
        .bias = has_bias,
        .relu =
            m->activated != NULL && m->activated == m->c && m->activation == COH_ACTIVATION_RELU,
        .alignment = (int32_t)(addresses & (~addresses + 1)),
        .mixed = m->dtype != m->c_dtype && (has_bias || has_residual),
    };
}

static int compare_devices(const coh_algorithm_device *a, const coh_algorithm_device *b)
{
    if (a->multiprocessors != b->multiprocessors)
        return a->multiprocessors < b->multiprocessors ? -1 : 1;
    if (a->library_version != b->library_version)
        return a->library_version < b->library_version ? -1 : 1;
    return strncmp(a->name, b->name, sizeof(a->name));
}

/* Any total order will do. */
static int compare(const void *left, const void *right)
{
    const coh_algorithm *a = left, *b = right;
    const int order = compare_devices(&a->device, &b->device);
    return order != 0 ? order : memcmp(&a->form, &b->form, sizeof(a->form));
}

coh_status coh_algorithms_sort(coh_algorithm *algorithms, int32_t count)
{
    if (count > 0)
        qsort(algorithms, (size_t)count, sizeof(*algorithms), compare);
    for (int32_t i = 1; i < count; i++)
        if (compare(&algorithms[i - 1], &algorithms[i]) == 0)
            return coh_fail(COH_ERR_ARGUMENT,
                            "the kernel table names an algorithm of %s for the product %" PRId64
                            " x %" PRId64 " x %" PRId64 " twice: leave one of them",
                            algorithms[i].device.name, algorithms[i].form.rows,
                            algorithms[i].form.columns, algorithms[i].form.depth);
    return COH_OK;
}

void coh_algorithms_take(coh_algorithm *algorithms, int32_t count)
{
    coh_free(table.all);
    table.all = algorithms;
    table.count = count;
    table.capacity = (size_t)count;
}

const coh_algorithm *coh_algorithms_all(int32_t *out_count)
{
    *out_count = table.count;
    return table.count > 0 ? table.all : NULL;
}

void coh_algorithms_measure(int on)
{
    table.is_measured = on;
}

int coh_algorithms_are_measured(void)
{
    return table.is_measured;
}

int coh_algorithms_has_room(void)
{
    return table.count < COH_ALGORITHMS_MAX;
}

coh_status coh_algorithms_add(const coh_algorithm *line)
{
    int32_t at = 0;
    if (!coh_algorithms_has_room())
        return coh_fail(COH_ERR_FULL,
                        "a kernel table names at most %d algorithms: name another file",
                        COH_ALGORITHMS_MAX);
    while (at < table.count && compare(&table.all[at], line) < 0)
        at++;
    if (at < table.count && compare(&table.all[at], line) == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the kernel table names an algorithm of %s for the product %" PRId64
                        " x %" PRId64 " x %" PRId64 " already",
                        line->device.name, line->form.rows, line->form.columns, line->form.depth);
    COH_TRY(COH_GROW(&table.all, &table.capacity, (size_t)table.count + 1));
    memmove(&table.all[at + 1], &table.all[at], (size_t)(table.count - at) * sizeof(table.all[0]));
    table.all[at] = *line;
    table.count++;
    return COH_OK;
}

const uint64_t *coh_algorithm_find(const coh_algorithm_device *device, const coh_product_form *form)
{
    const coh_algorithm wanted = { .device = *device, .form = *form };
    const coh_algorithm *found = table.count == 0 ? NULL
                                                  : bsearch(&wanted, table.all, (size_t)table.count,
                                                            sizeof(wanted), compare);
    return found == NULL ? NULL : found->words;
}

/* XXH3 of the lines, which are sorted; each part's hash is the seed of the next. */
uint64_t coh_algorithms_hash(const coh_algorithm_device *device)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i < table.count; i++) {
        const coh_algorithm *line = &table.all[i];
        if (device != NULL && compare_devices(&line->device, device) != 0)
            continue;
        const int64_t numbers[] = { line->device.multiprocessors, line->device.library_version };
        const void *all[] = { &line->form, line->words, line->device.name, numbers };
        const size_t bytes[] = { sizeof(line->form), sizeof(line->words),
                                 strnlen(line->device.name, COH_DEVICE_NAME_BYTES),
                                 sizeof(numbers) };
        for (int part = 0; part < (device != NULL ? 2 : 4); part++)
            hash = XXH3_64bits_withSeed(all[part], bytes[part], hash);
    }
    return hash;
}
