/* product.h - selects the code that multiplies matrices.
 *
 * There are up to three products: our own packed panels, OpenBLAS (f32) and oneDNN. Each shape goes
 * to one of them, and the selection changes bits, so it is never made by timing during a run. It
 * follows from the processor, or from a table that was measured before and stored:
 *
 *    coh_kernels_time(pool, &choice, &seconds)   for every product of every shape
 *    coh_kernels_choose(fastest, count)          in each process, before its first product
 *    coh_kernel_path()                           then names the products and the table's hash
 *
 * The defaults: bf16 by panels, f32 by panels with AVX-512 and by OpenBLAS without. If OpenBLAS
 * cannot be loaded, f32 uses panels, too, which round differently. oneDNN is used only if a table
 * names it. It makes code when a shape first runs and allocates a few small blocks in every call:
 * the one exception to "nothing is allocated". */
#ifndef COH_KERNELS_PRODUCT_H
#define COH_KERNELS_PRODUCT_H

#include <stdint.h>

#include "cohobate/model.h"

/* Functions that may be applied to a product's elements after they are stored (kernels.h). */
typedef enum coh_activation { COH_ACTIVATION_GELU, COH_ACTIVATION_RELU } coh_activation;

typedef enum coh_matmul_layout { COH_MATMUL_NT, COH_MATMUL_NN, COH_MATMUL_TN } coh_matmul_layout;

typedef enum coh_product {
    COH_PRODUCT_DEFAULT,
    COH_PRODUCT_PANELS,
    COH_PRODUCT_OPENBLAS,
    COH_PRODUCT_ONEDNN,
    COH_PRODUCT_COUNT
} coh_product;

/* One line of the table: products of exactly this shape are computed by `product`. */
typedef struct coh_product_choice {
    coh_dtype dtype; /* of the operands */
    coh_matmul_layout layout;
    int64_t rows, columns, depth;
    coh_product product;
} coh_product_choice;

#define COH_PRODUCT_CHOICES_MAX 512

/* "default", "panels", "openblas", "onednn", NULL. */
extern const char *const coh_product_names[COH_PRODUCT_COUNT + 1];
const char *coh_product_name(coh_product product);

/* Returns 1 if this build and this processor can compute such products by `product`. */
int coh_product_available(coh_product product, coh_dtype dtype);

/* Returns the processor's default product for this element type. */
coh_product coh_product_default(coh_dtype dtype);

/* Copies the table, which replaces any earlier one; shapes that it does not name keep their
 * default. Threads: no thread may be inside a kernel. Call it before the first coh_kernel_path()
 * that goes into a plan. Fails: COH_ERR_ARGUMENT for more than COH_PRODUCT_CHOICES_MAX lines, a
 * duplicate shape, or a product that is not available here; the old table stays. */
coh_status coh_kernels_choose(const coh_product_choice *choices, int32_t count);

/* Returns 1 if the table in use names this product for some shape of this element type. */
int coh_product_is_named(coh_product product, coh_dtype dtype);

/* Measures the median wall time of a few runs of choice->product on that shape, on the pool behind
 * `queue`, after a warm-up run. Allocates the operands and frees them. Fails: COH_ERR_ARGUMENT if
 * the product is not available; COH_ERR_MEMORY. */
coh_status coh_kernels_time(void *queue, const coh_product_choice *choice, double *out_seconds);

/* Return OpenBLAS' configuration ("OpenBLAS 0.3.21 DYNAMIC_ARCH ...") and its core type; "" if it
 * cannot be loaded. OpenBLAS is a shared library of the system; the first of these calls, or the
 * first product that needs it, loads it. */
const char *coh_openblas_config(void);
const char *coh_openblas_core(void);
/* Returns why it cannot be loaded and what to do, as a clause; "" if it was loaded. */
const char *coh_openblas_why_not(void);

/* How products of bf16 are computed on this processor. */
typedef enum coh_bf16_support {
    COH_BF16_WIDENED,  /* widened to f32: no bf16 products here, or COH_ISA bars them */
    COH_BF16_HARDWARE, /* by AVX512_BF16 or AMX */
    COH_BF16_PRETENDED /* widened, but priced as fast and the default dtype: for tests */
} coh_bf16_support;

coh_bf16_support coh_kernels_bf16(void);

#endif
