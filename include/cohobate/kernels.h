/* kernels.h - which code multiplies matrices: measured once, stored in a table, used by runs.
 *
 *     coh_kernels_tune(graph) ──> kernels.json ──> coh_kernels_use ──> plans and engines made later
 *
 * A training step multiplies matrices of a few dozen shapes. There are up to three products (our
 * own packed panels, OpenBLAS, oneDNN); a fixed one is used where no table says otherwise. Another
 * product is other rounding, so nothing is timed while a run goes on: a table is written by a
 * command of its own, and its hash stands in coh_kernel_path(), in every numeric plan. oneDNN
 * allocates inside each of its calls, so a run that multiplies by it is the exception to "nothing
 * is allocated while it trains".
 *
 * The table is JSON: {"format": "cohobate kernels", "version": 1, "machine", "date", "threads",
 * "products": [{"dtype", "layout", "rows", "columns", "depth", "product", "microseconds"}, ...]},
 * written in one form only and read strictly. What was measured on GPUs (measure.h: kernel_table)
 * stands in "devices": [{"name", "multiprocessors", "cublaslt", "products": [{"dtype", "c_dtype",
 * "layout", "rows", "columns", "depth", "strides", "adds", "bias", "relu", "alignment",
 * "algorithm", "microseconds"}, ...]}, ...]: for each device and version of cuBLASLt the
 * algorithms of its products, in the library's own words (kernels/algorithm.h). Lines of other
 * devices and versions are kept and not used. */
#ifndef COHOBATE_KERNELS_H
#define COHOBATE_KERNELS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COH_KERNEL_PRODUCTS = 3 };
/* "panels", "openblas", "onednn". */
COH_API const char *coh_kernel_product_name(int32_t product);

/* What was measured of one shape. */
typedef struct coh_kernel_timing {
    coh_dtype dtype;
    /* "nt": a [rows,depth], b [columns,depth], y = x weightᵀ; "nn": b [depth,columns], dx = dy
     * weight; "tn": a [depth,rows], dweight = dyᵀ x */
    const char *layout;
    int64_t rows, columns, depth;
    int32_t use_count;                   /* per micro-batch */
    double seconds[COH_KERNEL_PRODUCTS]; /* 0: not to be had here */
    int32_t standard, chosen;            /* without a table; by this one */
} coh_kernel_timing;

typedef void (*coh_kernel_report)(void *context, const coh_kernel_timing *timing);

/* Times every product of every shape that a micro-batch of `graph` multiplies, on `thread_count`
 * threads, and writes the table to `path`, whole or not at all. Another product than the standard
 * one is chosen only where it is 3 % faster, so that noise changes no bits. `report` (may be NULL)
 * hears of each shape, on a thread of its own while this call waits.
 * Time: some seconds for 124 M parameters on 256 tokens; wants a machine that does nothing else.
 * Fails: COH_ERR_ARGUMENT when the graph multiplies nothing; COH_ERR_MEMORY; COH_ERR_IO. */
COH_API coh_status coh_kernels_tune(const coh_graph *graph, int32_t thread_count, const char *path,
                                    coh_kernel_report report, void *context);

/* This process multiplies by the table at `path` from now on: before the first plan, while no
 * engine runs. `out_machine` (of `machine_bytes`; NULL: not asked) gets the processor it was
 * measured on where that is not this one, else "".
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT naming line and member, COH_ERR_ARGUMENT when a product is not
 * to be had here; the products stay as they were. */
COH_API coh_status coh_kernels_use(const char *path, char *out_machine, size_t machine_bytes);

/* The hash of the table in use: of its products, as coh_kernel_path() has it, and of the algorithms
 * of all devices. 0: none is in use. */
COH_API uint64_t coh_kernels_hash(void);

/* 1 where the table in use has oneDNN, which allocates inside each of its calls, multiply matrices
 * of `dtype` of some shape; else 0. */
COH_API int coh_kernels_onednn(coh_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
