#include "kernels/algorithm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    ALIGNMENT_MOST = 256
}; /* what an arena gives its objects, and all that a library asks for */

/* Written by coh_algorithms_take, while nobody reads it. Sorted. */
static struct {
    coh_algorithm *all;
    int32_t count;
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

/* Any order will do that is one. */
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
}

const uint64_t *coh_algorithm_find(const coh_algorithm_device *device, const coh_product_form *form)
{
    const coh_algorithm wanted = { .device = *device, .form = *form };
    const coh_algorithm *found = table.count == 0 ? NULL
                                                  : bsearch(&wanted, table.all, (size_t)table.count,
                                                            sizeof(wanted), compare);
    return found == NULL ? NULL : found->words;
}

/* FNV-1a over the lines, which are sorted. */
uint64_t coh_algorithms_hash(const coh_algorithm_device *device)
{
    const uint64_t none = 0xcbf29ce484222325u;
    uint64_t hash = none;
    for (int32_t i = 0; i < table.count; i++) {
        if (compare_devices(&table.all[i].device, device) != 0)
            continue;
        const unsigned char *parts[] = { (const unsigned char *)&table.all[i].form,
                                         (const unsigned char *)table.all[i].words };
        const size_t bytes[] = { sizeof(table.all[i].form), sizeof(table.all[i].words) };
        for (int part = 0; part < 2; part++)
            for (size_t b = 0; b < bytes[part]; b++)
                hash = (hash ^ parts[part][b]) * 0x100000001b3u;
    }
    return hash == none ? 0 : hash;
}
