/* products.h - matrix products by cuBLASLt: one plan for each form of product, made once.
 *
 *    first time a form is seen          every later time
 *    descriptors, layouts               find the plan by the form's hash
 *    algorithm: stored, else the        set the bias' address
 *      heuristic's first                cublasLtMatmul(stream)
 *
 * While algorithms are measured (kernels/algorithm.h; never in training), a form that is not stored
 * is timed with the heuristic's first few algorithms, on its actual operands, and the fastest is
 * stored. It replaces the first one only if it is 3 % faster, so that noise changes no bits.
 *
 * We are row-major, cuBLASLt is column-major: a row-major matrix [rows, columns] with rows `stride`
 * apart is the column-major [columns x rows] of that leading dimension. So the library computes the
 * transpose, with the operands swapped:
 *
 *    c [rows, columns] = op(a) op(b)     is     D [columns x rows] = op(b)^T op(a)^T
 *
 *              its A is b, as stored      transposed   its B is a, as stored   transposed
 *    NT        [depth x columns]          yes          [depth x rows]          no
 *    NN        [columns x depth]          no           [depth x rows]          no
 *    TN        [columns x depth]          no           [rows x depth]          yes
 *
 * Its bias runs along D's rows, which are our columns. Sums are f32 (f32 operands are not rounded
 * to TF32). If depth is split, the parts are kept and added in f32: the reduction schemes are
 * restricted to that one. The same form, device and library give the same bits. So each object
 * belongs to one stream: two streams that run at once must not share a workspace.
 *
 * Threads: the one that enqueues. A new form allocates; make all plans at start
 * (coh_cuda_products_prepare). */
#ifndef COH_KERNELS_CUDA_PRODUCTS_H
#define COH_KERNELS_CUDA_PRODUCTS_H

#include "kernels/algorithm.h"
#include "kernels/cuda/cublaslt.h"

typedef struct coh_cuda_products coh_cuda_products;

typedef struct coh_cuda_products_config {
    const coh_cublaslt_functions *functions; /* must outlive the products */
    /* Device memory, 256-byte aligned, not shared with another stream: a slot of the device's
     * arena, of COH_CUDA_PRODUCT_WORKSPACE_BYTES (memory/library_workspace.h). */
    void *workspace;
    size_t workspace_bytes;
    const char *device_name; /* for the stored algorithms */
    int multiprocessors;
    /* Only for measuring: its stream, and a clock that first waits until the stream is empty. NULL:
     * nothing is measured. */
    void *stream;
    coh_status (*clock)(void *context, uint64_t *out_ns);
    void *clock_context;
} coh_cuda_products_config;

/* The device's context must be current, here and in every other call.
 * Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
coh_status coh_cuda_products_create(const coh_cuda_products_config *config,
                                    coh_cuda_products **out_products);
void coh_cuda_products_destroy(coh_cuda_products *products); /* accepts NULL */

/* Makes the plan of this product's form, if there is none. Of the addresses only the alignment
 * counts, unless algorithms are measured: then they must be device memory, and c is written.
 * *out_has_run: the plan ran before, so its kernel is on the device, or the form is refused;
 * otherwise the first run loads it. Fails: as coh_cuda_products_run, except for the launch. */
coh_status coh_cuda_products_prepare(coh_cuda_products *products, const coh_matmul *matmul,
                                     int *out_has_run);

/* Enqueues the product. Computes `activated` only if it is the relu in the form. *out_done is 0,
 * and nothing is enqueued, if the library has no algorithm for the form, or cannot be asked: types
 * other than ours, or an address or a stride that it cannot take. That depends only on form, device
 * and library. Fails: COH_ERR_DEVICE (this library refuses a stored algorithm, or a launch fails),
 * COH_ERR_MEMORY. */
coh_status coh_cuda_products_run(coh_cuda_products *products, void *stream,
                                 const coh_matmul *matmul, int *out_done);

typedef struct coh_cuda_products_facts {
    coh_algorithm_device device;
    int64_t plan_count;    /* forms that the library multiplies */
    int64_t refused_count; /* forms that it does not */
    int64_t stored_count;  /* plans with a stored algorithm */
} coh_cuda_products_facts;
void coh_cuda_products_facts_of(const coh_cuda_products *products,
                                coh_cuda_products_facts *out_facts);

/* Calls `visit` with every form that the library refused, in no particular order. */
void coh_cuda_products_refused(const coh_cuda_products *products,
                               void (*visit)(void *context, const coh_product_form *form),
                               void *context);

#endif
