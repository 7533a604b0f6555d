/* shape_check.h - checks of inputs and attributes for the infer functions of the built-in kinds,
 * with error texts. The graph prefixes the operator's name. */
#ifndef COH_KERNELS_SHAPE_CHECK_H
#define COH_KERNELS_SHAPE_CHECK_H

#include "cohobate/model.h"

#define COH_SHAPE_TEXT_BYTES 128

/* Prints "f32 [2,3,4]". */
void coh_shape_text(const coh_shape *shape, char out_text[COH_SHAPE_TEXT_BYTES]);

/* Checks that `shape` has this dtype and rank, that every dim is 1 .. 2^31 - 1 (a BLAS's limit of a
 * stride), and that the bytes fit 62 bits. `port` names it in the error text; rank 0: any rank from
 * 1. */
coh_status coh_check_tensor(const char *port, const coh_shape *shape, coh_dtype dtype,
                            int32_t rank);

/* Likewise for a tensor of activations: f32 or bf16. */
coh_status coh_check_float(const char *port, const coh_shape *shape, int32_t rank);

/* Checks an attribute that becomes a dimension: 1 .. 2^31 - 1. */
coh_status coh_check_count(const char *attribute, int64_t count);

/* Checks that shapes agree in every axis except the last `free_axes`. */
coh_status coh_check_leading(const char *port, const coh_shape *shape, const char *other_port,
                             const coh_shape *other, int32_t free_axes);

/* Checks that the call's input `port`, i32 [1], is a row of a table of `positions` rows (kernels.h,
 * coh_kernel_check_indices). Fails: COH_ERR_CORRUPT. */
coh_status coh_check_position(const coh_call *call, int port, int64_t positions);

/* Checks one step of a decoder: x is [B,1,..] and `position` i32 [1]. */
coh_status coh_check_step(const coh_shape *x, const coh_shape *position);

/* Returns the number of elements of all axes but the last. */
int64_t coh_shape_rows(const coh_shape *shape);

coh_shape coh_shape_make(coh_dtype dtype, int32_t rank, int64_t d0, int64_t d1, int64_t d2);

/* Returns whether the call makes the gradient of parameter `port` in f32, whatever the parameter's
 * type. */
int coh_call_has_f32_grads(const coh_call *call, int port);

/* Returns the call's range of rows; the whole table if nothing is split. */
void coh_call_rows(const coh_call *call, int64_t row_count, int64_t *out_begin, int64_t *out_end);

#endif
