/* kernel_table.h - the inside of kernel tables (cohobate/kernels.h): the shapes of a graph's matrix
 * products, and the file format. */
#ifndef COH_ENGINE_KERNEL_TABLE_H
#define COH_ENGINE_KERNEL_TABLE_H

#include "base/check.h"
#include "cohobate/kernels.h"
#include "kernels/algorithm.h"
#include "kernels/product.h"

enum { COH_KERNEL_MACHINE_BYTES = 128 };

/* The shapes of the products of one micro-batch, forward and backward, each once, in the graph's
 * order. */
typedef struct coh_kernel_shapes {
    coh_kernel_timing *shapes; /* use_count: how often each is used */
    size_t count, capacity;
} coh_kernel_shapes;

/* Adds the shapes of `graph` to a zeroed list. User-defined kinds add none: they compute their
 * products themselves. Fails: COH_ERR_MEMORY; call coh_kernel_shapes_fini in either case. */
coh_status coh_kernel_shapes_of(const coh_graph *graph, coh_kernel_shapes *shapes);
void coh_kernel_shapes_fini(coh_kernel_shapes *shapes); /* accepts a zeroed struct */

/* "nt", "nn", "tn", NULL. */
extern const char *const coh_kernel_layout_names[];
/* Finds a layout by its name. Fails: COH_ERR_CORRUPT. */
coh_status coh_kernel_layout_of(const char *name, coh_matmul_layout *out_layout);

/* Converts between the public numbers of products, which start at 0, and those of product.h. */
static inline coh_product coh_kernel_product_of(int32_t product)
{
    return (coh_product)(product + COH_PRODUCT_PANELS);
}

/* Returns the processor's name from /proc/cpuinfo, or "unknown" if there is none. */
void coh_kernel_machine(char name[COH_KERNEL_MACHINE_BYTES]);

/* A table to be written, or one that was read. */
typedef struct coh_kernel_list {
    /* for writing */
    const coh_kernel_timing *shapes;
    size_t shape_count;
    int32_t thread_count;
    /* after reading */
    coh_product_choice *choices;
    int32_t choice_count;
    char machine[COH_KERNEL_MACHINE_BYTES];
    /* for both; the entries of one device are adjacent; sorted after reading */
    coh_algorithm *algorithms;
    int32_t algorithm_count;
} coh_kernel_list;

/* Writes `list` to a file, which appears whole or not at all. Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_kernel_table_write(const coh_kernel_list *list, const char *path);

/* Reads a file into `list`; release it with coh_kernel_list_fini. Fails: COH_ERR_IO,
 * COH_ERR_CORRUPT naming the entry, COH_ERR_MEMORY; the list is empty then. */
coh_status coh_kernel_table_read(const char *path, coh_kernel_list *list);
void coh_kernel_list_fini(coh_kernel_list *list); /* a list that was read, or a zeroed one */

#endif
