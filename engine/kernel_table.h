/* kernel_table.h - the inside of kernel tables (cohobate/kernels.h): which shapes a graph
 * multiplies, and the file. */
#ifndef COH_ENGINE_KERNEL_TABLE_H
#define COH_ENGINE_KERNEL_TABLE_H

#include "base/check.h"
#include "cohobate/kernels.h"
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

/* The layout of "nt", "nn" or "tn". Fails: COH_ERR_CORRUPT. */
coh_status coh_kernel_layout_of(const char *name, coh_matmul_layout *out_layout);

/* Between the public numbers of products, from 0, and those of product.h. */
static inline coh_product coh_kernel_product_of(int32_t product)
{
    return (coh_product)(product + COH_PRODUCT_PANELS);
}

/* The processor's name, as /proc/cpuinfo has it; "unknown" where there is none. */
void coh_kernel_machine(char name[COH_KERNEL_MACHINE_BYTES]);

/* Writes and reads the table. `choices` takes COH_PRODUCT_CHOICES_MAX. */
coh_status coh_kernel_table_write(const coh_kernel_shapes *shapes, int32_t thread_count,
                                  const char *path);
coh_status coh_kernel_table_read(const char *path, coh_product_choice *choices, int32_t *out_count,
                                 char machine[COH_KERNEL_MACHINE_BYTES]);

#endif
