/* algorithm.h - the table of cuBLASLt algorithms, by form of product and device.
 *
 * cuBLASLt has many kernels for a product, and they round differently. So no algorithm is chosen by
 * timing during a run. It is either the library's first proposal, or one that was measured before
 * and stored in a kernel table (cohobate/kernels.h), next to the host's products
 * (kernels/product.h):
 *
 *    coh_product_form_of(matmul)                  the key: shape, types, strides, endings
 *    coh_algorithms_take(list, count)             in each process, before its first product
 *    coh_algorithm_find(device, form)             where a plan is made (kernels/cuda/products.h)
 *    coh_algorithms_measure(1)                    only to measure a device: a form that the table
 *                                                 lacks is timed when its plan is made, and added
 *
 * Nothing here needs CUDA: every build reads a table, and keeps the entries of absent devices
 * without using them. */
#ifndef COH_KERNELS_ALGORITHM_H
#define COH_KERNELS_ALGORITHM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* The key that selects an algorithm, complete: two products of one form run by one plan. All
 * members are 32 or 64 bits wide and all are set, so that forms can be compared as bytes. */
typedef struct coh_product_form {
    int64_t rows, columns, depth;
    int64_t a_stride, b_stride, c_stride; /* in elements */
    int32_t layout, dtype, c_dtype;       /* coh_matmul_layout, coh_dtype */
    int32_t adds;      /* 1: the sum starts from c, or from a residual laid out as c */
    int32_t bias;      /* 1: there is a bias */
    int32_t relu;      /* 1: the product itself writes max(sum, 0) to c */
    int32_t alignment; /* of all addresses: the largest power of two up to 256 that divides them */
    int32_t mixed;     /* 1: bias or residual are of another type than c */
} coh_product_form;

/* Returns the form of a product. relu is part of it if only its result is kept (activated is c):
 * rounding keeps order and sign, so relu before and after rounding gives the same result. gelu is
 * not part of it, and neither is a relu next to c: coh_matmul computes both from the rounded values
 * in c, while a library would apply them to its f32 sums. */
coh_product_form coh_product_form_of(const coh_matmul *matmul);

enum { COH_ALGORITHM_WORDS = 8, COH_DEVICE_NAME_BYTES = 64 };

/* The validity of a stored algorithm: the same device and library give the same bits. */
typedef struct coh_algorithm_device {
    char name[COH_DEVICE_NAME_BYTES]; /* "NVIDIA H200" */
    int32_t multiprocessors;
    int64_t library_version; /* cublasLtGetVersion: 130100 */
} coh_algorithm_device;

/* One line of the table. `words` are cublasLtMatmulAlgo_t as the library gave it: opaque, and valid
 * only for that library version. */
typedef struct coh_algorithm {
    coh_algorithm_device device;
    coh_product_form form;
    uint64_t words[COH_ALGORITHM_WORDS];
    double microseconds; /* of one product, when it was measured; for information only */
} coh_algorithm;

#define COH_ALGORITHMS_MAX 4096

/* Sorts a table, as coh_algorithms_take requires. Fails: COH_ERR_ARGUMENT if a form occurs
 * twice. */
coh_status coh_algorithms_sort(coh_algorithm *algorithms, int32_t count);

/* Uses this sorted table instead of any earlier one and takes ownership of its memory (from
 * coh_alloc; NULL for none). Threads: as coh_kernels_choose. */
void coh_algorithms_take(coh_algorithm *algorithms, int32_t count);

/* Returns the stored algorithm's words, or NULL if the table has none for this form and device.
 * Valid until the next coh_algorithms_take. */
const uint64_t *coh_algorithm_find(const coh_algorithm_device *device,
                                   const coh_product_form *form);

/* Returns the table in use, sorted, valid until it changes. NULL if *out_count is 0. */
const coh_algorithm *coh_algorithms_all(int32_t *out_count);

/* 1: from now on, forms that the table lacks are timed when their plans are made, and added; 0 ends
 * that. Training never asks for it. Threads: as coh_kernels_choose. */
void coh_algorithms_measure(int on);
int coh_algorithms_are_measured(void);
/* Returns 1 if a line can be added. With a full table, forms that it lacks are not timed: they run
 * by the library's first proposal, as in a run with that table. */
int coh_algorithms_has_room(void);
/* Inserts a line at its sorted place. Called by the thread that makes plans, while measuring.
 * Fails: COH_ERR_FULL beyond COH_ALGORITHMS_MAX, COH_ERR_ARGUMENT if the table has the form,
 * COH_ERR_MEMORY; the table is unchanged then. */
coh_status coh_algorithms_add(const coh_algorithm *line);

/* Returns a hash of the lines for this device, independent of their order; 0 if there are none. It
 * is part of the numeric plan of runs on that device. NULL: of all lines, with their devices. */
uint64_t coh_algorithms_hash(const coh_algorithm_device *device);

#endif
