/* kernels.h - chooses the library that multiplies matrices: measured once, used by runs.
 *
 *     coh_kernels_tune(graph) ──> kernels.json ──> coh_kernels_use ──> plans and engines made later
 *
 * A training step multiplies matrices of a few dozen shapes. Up to three products (implementations
 * of the matrix product) exist: our own packed panels, OpenBLAS and oneDNN. Without a table entry,
 * a fixed standard product is used. Another product rounds differently, so nothing is timed during
 * a run: a separate command writes the table, and the table's hash is part of coh_kernel_path() and
 * so of every numeric plan. oneDNN allocates inside each call; a run that uses it is the exception
 * to "nothing is allocated while it trains".
 *
 * The table is JSON: {"format": "cohobate kernels", "version": 1, "machine", "date", "threads",
 * "products": [{"dtype", "layout", "rows", "columns", "depth", "product", "microseconds"}, ...]},
 * in one canonical form, read strictly. Measurements on GPUs (measure.h: kernel_table) are in
 * "devices": [{"name", "multiprocessors", "cublaslt", "products": [{"dtype", "c_dtype", "layout",
 * "rows", "columns", "depth", "strides", "adds", "bias", "relu", "alignment", "algorithm",
 * "microseconds"}, ...]}, ...]: for each device and version of cuBLASLt the algorithms of its
 * products, encoded as the library encodes them (kernels/algorithm.h). Entries of other devices and
 * versions are kept but not used.
 * Threads: one at a time, a call with a graph its graph's; not while an engine runs. */
#ifndef COHOBATE_KERNELS_H
#define COHOBATE_KERNELS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number of products. */
enum { COH_KERNEL_PRODUCTS = 3 };
/* Returns "panels", "openblas" or "onednn". */
COH_API const char *coh_kernel_product_name(int32_t product);

/* Measured times of one shape. `dtype` is that of both factors; `rows`, `columns` and `depth` are
 * the sizes in `layout`. */
typedef struct coh_kernel_timing {
    coh_dtype dtype;
    /* "nt": a [rows,depth], b [columns,depth], y = x weightᵀ; "nn": b [depth,columns], dx = dy
     * weight; "tn": a [depth,rows], dweight = dyᵀ x */
    const char *layout;
    int64_t rows, columns, depth;
    int32_t use_count;                   /* uses per micro-batch */
    double seconds[COH_KERNEL_PRODUCTS]; /* 0: not available here */
    int32_t standard, chosen;            /* product without a table; product by this table */
} coh_kernel_timing;

/* Receives the times of one shape. `timing` is valid during the call. */
typedef void (*coh_kernel_report)(void *context, const coh_kernel_timing *timing);

/* Times every product for every shape that a micro-batch of `graph` multiplies, on `thread_count`
 * threads, and writes the table to `path`, whole or not at all. Chooses a product other than the
 * standard one only if it is 3 % faster, so that noise changes no bits. Calls `report` (may be
 * NULL) for each shape, on a separate thread, while this call waits.
 * Time: some seconds for 124 M parameters on 256 tokens; the machine should be otherwise idle.
 * Fails: COH_ERR_ARGUMENT if the graph multiplies nothing; COH_ERR_MEMORY; COH_ERR_IO. */
COH_API coh_status coh_kernels_tune(const coh_graph *graph, int32_t thread_count, const char *path,
                                    coh_kernel_report report, void *context);

/* Makes this process multiply by the table at `path`. Call it before the first plan, while no
 * engine runs. `out_machine` (of `machine_bytes`; may be NULL) receives the processor the table was
 * measured on if it is another one, else "".
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT naming the entry, COH_ERR_ARGUMENT if a product is not
 * available here; the products stay as they were. */
COH_API coh_status coh_kernels_use(const char *path, char *out_machine, size_t machine_bytes);

/* Returns the hash of the table in use: of its products, as in coh_kernel_path(), and of the
 * algorithms of all devices. 0: no table is in use. */
COH_API uint64_t coh_kernels_hash(void);

/* Returns 1 if the table in use lets oneDNN, which allocates inside each call, multiply matrices of
 * `dtype` for some shape; else 0. */
COH_API int coh_kernels_onednn(coh_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
