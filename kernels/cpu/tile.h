/* tile.h - one tile of a matrix product, on the calling thread. matmul.c cuts a product into tiles
 * and passes them to the code that multiplies.
 *
 * Threads: any, for all functions. Nothing allocates once coh_kernels_start has run, except
 * oneDNN. */
#ifndef COH_KERNELS_CPU_TILE_H
#define COH_KERNELS_CPU_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/product.h"

/* c = op(a) op(b) + bias + residual, and with `adds` + c (otherwise c is not read), row-major with
 * the given leading dimensions; op transposes if asked. bias [columns] and residual (laid out as c;
 * may be c) may be NULL. If activated is not NULL, it receives gelu or relu of c, laid out as c; it
 * may be c. a, b, bias and residual are of `dtype`, c and activated of `c_dtype`; sums are f32.
 * Dimensions and strides are below 2^31 (infer checks). */
typedef struct coh_tile {
    int64_t rows, columns, depth;
    coh_dtype dtype, c_dtype;
    const void *a, *b;
    int64_t a_stride, b_stride, c_stride;
    int32_t a_transposed, b_transposed;
    int32_t adds;
    void *c;
    const void *bias, *residual;
    void *activated;
    coh_activation activation;
} coh_tile;

/* Returns the product that the table names for this shape, or the default. */
coh_product coh_product_find(coh_dtype dtype, coh_matmul_layout layout, int64_t rows,
                             int64_t columns, int64_t depth);

/* Runs one tile by `product`: panels, OpenBLAS or oneDNN. If that one does not take such a tile,
 * panels run it, with their bits. OpenBLAS takes f32. Whether oneDNN refuses depends only on the
 * tile's shape, strides, dtypes and operands, on one processor with one version of it: equal tiles
 * have equal bits in every step and run. The exception is a failed allocation inside oneDNN, while
 * it makes code or runs it. Then panels run that one tile, without a message, and it differs in the
 * last bits; the next tile of its shape tries oneDNN again. */
void coh_tile_run_by(coh_product product, const coh_tile *tile);

/* Computes `activated` from c, row by row, after a library's product (matmul.c). */
void coh_tile_activate(const coh_tile *tile);

/* Runs a whole product by `product`, on the pool (matmul.c). */
struct coh_matmul;
void coh_cpu_matmul_by(void *queue, const struct coh_matmul *matmul, coh_product product);
/* Returns the number of tiles it is cut into on a pool of `thread_count` threads. */
int64_t coh_matmul_tile_count(const struct coh_matmul *matmul, coh_product product,
                              int thread_count);

/* Returns the bytes per element of a tensor that a product reads or writes. */
static inline int64_t coh_tile_element_bytes(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? 2 : 4;
}

/* Selects the defaults; `isa` is the table of rows in use, `highest` the highest instruction set
 * that COH_ISA allows. Called once, by coh_kernels_start. */
void coh_products_start(const char *isa, const char *highest);

/* ---- openblas.c ---- */

/* Loads OpenBLAS without a thread pool and maps its buffers, once: no later call allocates. Returns
 * 1, or 0 if it cannot be loaded (coh_openblas_why_not). */
int coh_openblas_start(void);
/* Prints "openblas-0.3.21-Cooperlake"; only if coh_openblas_start returned 1. */
void coh_openblas_name(char *out_name, size_t bytes);
/* Only if coh_openblas_start returned 1. */
void coh_openblas_run(const coh_tile *tile);

/* ---- onednn.c: returns 0 if built without the library ---- */

int coh_onednn_available(void);
/* Prints "onednn-2.6.3". */
void coh_onednn_name(char *out_name, size_t bytes);
/* Returns 1, or 0 if oneDNN does not compute such tiles; c is then unchanged or holds the residual.
 * The first tile of a shape makes its code; each call allocates some small blocks (onednn.c). */
int coh_onednn_run(const coh_tile *tile);

#endif
