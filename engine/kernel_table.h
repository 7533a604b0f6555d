/* kernel_table.h - the inside of kernel tables (cohobate/kernels.h): which shapes a graph
 * multiplies, and the file. */
#ifndef COH_ENGINE_KERNEL_TABLE_H
#define COH_ENGINE_KERNEL_TABLE_H

#include <jansson.h>

#include "base/check.h"
#include "base/file_text.h"
#include "cohobate/kernels.h"
#include "kernels/algorithm.h"
#include "kernels/product.h"

enum { COH_KERNEL_MACHINE_BYTES = 128 };

/* The shapes of one micro-batch, forward and backward, each once, in the order of the graph. */
typedef struct coh_kernel_shapes {
    coh_kernel_timing *shapes; /* use_count says how often */
    size_t count, capacity;
} coh_kernel_shapes;

/* Adds those of `graph` to a zeroed list. Kinds of others bring none: their products are their own.
 * Fails: COH_ERR_MEMORY; release what there is in either case. */
coh_status coh_kernel_shapes_of(const coh_graph *graph, coh_kernel_shapes *shapes);
void coh_kernel_shapes_fini(coh_kernel_shapes *shapes); /* accepts a zeroed struct */

/* "nt", "nn" or "tn", and back. Fails: COH_ERR_CORRUPT. */
const char *coh_kernel_layout_name(coh_matmul_layout layout);
coh_status coh_kernel_layout_of(const char *name, coh_matmul_layout *out_layout);

/* Between the public numbers of products, from 0, and those of product.h. */
static inline coh_product coh_kernel_product_of(int32_t product)
{
    return (coh_product)(product + COH_PRODUCT_PANELS);
}

/* The processor's name, as /proc/cpuinfo has it; "unknown" where there is none. */
void coh_kernel_machine(char name[COH_KERNEL_MACHINE_BYTES]);

/* A table, as it is written and as it was read. */
typedef struct coh_kernel_list {
    /* written */
    const coh_kernel_timing *shapes;
    size_t shape_count;
    int32_t thread_count;
    /* read */
    coh_product_choice *choices;
    int32_t choice_count;
    char machine[COH_KERNEL_MACHINE_BYTES];
    /* both; those of one device stand together. Sorted when they were read. */
    coh_algorithm *algorithms;
    int32_t algorithm_count;
} coh_kernel_list;

/* Writes `list`, whole or not at all. Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_kernel_table_write(const coh_kernel_list *list, const char *path);

/* Reads into `list`; release it with coh_kernel_list_fini. Fails: COH_ERR_IO, COH_ERR_CORRUPT
 * naming line and member, COH_ERR_MEMORY; the list is empty then. */
coh_status coh_kernel_table_read(const char *path, coh_kernel_list *list);
void coh_kernel_list_fini(coh_kernel_list *list); /* of one that was read; accepts a zeroed one */

/* kernel_table_device.c: the member "devices" of a table. Reading adds to list->algorithms. */
coh_status coh_kernel_devices_write(coh_text *text, const coh_kernel_list *list);
coh_status coh_kernel_devices_read(json_t *devices, coh_kernel_list *list);

/* "f32" or "bf16". Fails: COH_ERR_CORRUPT. */
const char *coh_kernel_dtype_name(coh_dtype dtype);
coh_status coh_kernel_dtype_of(const char *name, coh_dtype *out_dtype);

#endif
