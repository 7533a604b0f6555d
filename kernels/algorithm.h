/* algorithm.h - which algorithm of cuBLASLt multiplies matrices of which form on which device.
 *
 * The library has many kernels for a product, and another one is other rounding. So none is found
 * out by timing while a run goes on: it is the library's own first proposal, or one that somebody
 * measured before and stored in a kernel table (cohobate/kernels.h), beside the host's products
 * (kernels/product.h):
 *
 *     coh_product_form_of(matmul)                  what decides: shape, types, strides, endings
 *     coh_algorithms_take(list, count)             in each process, before its first product
 *     coh_algorithm_find(device, form)             where a plan is made (kernels/cuda/products.h)
 *     coh_algorithms_measure(1)                    a measurement of the device alone: what is not
 *                                                  found is timed where its plan is made, and added
 *
 * Nothing here needs CUDA: a table is read by every build, and what it says of devices that are not
 * here is kept and not looked at. */
#ifndef COH_KERNELS_ALGORITHM_H
#define COH_KERNELS_ALGORITHM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* What decides which algorithm is right, whole: two products of one form run by one plan. All
 * members are 32 or 64 bits wide and none is left unset, so that forms are compared as bytes. */
typedef struct coh_product_form {
    int64_t rows, columns, depth;
    int64_t a_stride, b_stride, c_stride; /* in elements */
    int32_t layout, dtype, c_dtype;       /* coh_matmul_layout, coh_dtype */
    int32_t adds;      /* the sum begins with what c, or a residual laid out as c, holds */
    int32_t bias;      /* 1: there is one */
    int32_t relu;      /* 1: c gets max(sum, 0), which the product itself writes */
    int32_t alignment; /* of all addresses: the largest power of two up to 256 that divides them */
    int32_t mixed;     /* 1: bias or residual are of another type than c */
} coh_product_form;

/* The form of a product. relu of a sum that nobody keeps (activated is c) is part of it: rounding
 * keeps order and sign, so relu before it and after it are the same. gelu is not, and neither is a
 * relu beside c: coh_matmul makes them of the values that c holds, which a library that applies
 * them to its f32 sums does not. */
coh_product_form coh_product_form_of(const coh_matmul *matmul);

enum { COH_ALGORITHM_WORDS = 8, COH_DEVICE_NAME_BYTES = 64 };

/* What a stored algorithm is good for: the same device and library give the same bits. */
typedef struct coh_algorithm_device {
    char name[COH_DEVICE_NAME_BYTES]; /* "NVIDIA H200" */
    int32_t multiprocessors;
    int64_t library_version; /* cublasLtGetVersion: 130100 */
} coh_algorithm_device;

/* One line of the table. `words` are cublasLtMatmulAlgo_t as the library gave it: opaque, and of
 * that version only. */
typedef struct coh_algorithm {
    coh_algorithm_device device;
    coh_product_form form;
    uint64_t words[COH_ALGORITHM_WORDS];
    double microseconds; /* of one product, when it was measured; decides nothing */
} coh_algorithm;

#define COH_ALGORITHMS_MAX 4096

/* Sorts a table, which coh_algorithms_take wants. Fails: COH_ERR_ARGUMENT for one form twice. */
coh_status coh_algorithms_sort(coh_algorithm *algorithms, int32_t count);

/* Uses this sorted table in place of any earlier one, and owns its memory (coh_alloc's; NULL for
 * none) from now on. Threads: as coh_kernels_choose. */
void coh_algorithms_take(coh_algorithm *algorithms, int32_t count);

/* The stored algorithm's words, or NULL where the table names none for this form here. Valid until
 * the next coh_algorithms_take. */
const uint64_t *coh_algorithm_find(const coh_algorithm_device *device,
                                   const coh_product_form *form);

/* The table in use, sorted, until it changes. NULL where *out_count is 0. */
const coh_algorithm *coh_algorithms_all(int32_t *out_count);

/* 1: from now on forms that the table does not name are timed as their plans are made, and added; 0
 * ends that. Whoever trains never asks for it. Threads: as coh_kernels_choose. */
void coh_algorithms_measure(int on);
int coh_algorithms_are_measured(void);
/* 1: a line can be added. Of a full table what it does not name is not timed, and runs by the
 * library's first proposal, as it does in a run with that table. */
int coh_algorithms_has_room(void);
/* Puts a line in its place. The thread that makes plans, while they are measured.
 * Fails: COH_ERR_FULL beyond COH_ALGORITHMS_MAX, COH_ERR_ARGUMENT where the table names the form,
 * COH_ERR_MEMORY; the table stays as it was. */
coh_status coh_algorithms_add(const coh_algorithm *line);

/* A hash of the lines for this device, whatever their order; 0 where there are none. It belongs to
 * the numeric plan of what runs there. NULL: of all lines, with their devices. */
uint64_t coh_algorithms_hash(const coh_algorithm_device *device);

#endif
