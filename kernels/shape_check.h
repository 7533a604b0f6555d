/* shape_check.h - what the infer functions of the built-in kinds ask of their inputs, with the
 * sentences that say what was wrong. The graph puts the operator's name before them. */
#ifndef COH_KERNELS_SHAPE_CHECK_H
#define COH_KERNELS_SHAPE_CHECK_H

#include "cohobate/model.h"

#define COH_SHAPE_TEXT_BYTES 128

/* "f32 [2,3,4]" */
void coh_shape_text(const coh_shape *shape, char out_text[COH_SHAPE_TEXT_BYTES]);

/* `shape` has this dtype and rank, every dim is 1 .. 2^31 - 1 (what a BLAS takes as a stride) and
 * the bytes fit 62 bits. `port` names it in the sentence; rank 0: any rank from 1. */
coh_status coh_check_tensor(const char *port, const coh_shape *shape, coh_dtype dtype,
                            int32_t rank);

/* The same for a tensor of activations: f32 or bf16. */
coh_status coh_check_float(const char *port, const coh_shape *shape, int32_t rank);

/* An attribute that becomes a dimension: 1 .. 2^31 - 1. */
coh_status coh_check_count(const char *attribute, int64_t count);

/* Shapes agree in every axis but the last `free_axes`. */
coh_status coh_check_leading(const char *port, const coh_shape *shape, const char *other_port,
                             const coh_shape *other, int32_t free_axes);

/* The call's input `port`, i32 [1], is a place in a table of `positions` rows (kernels.h,
 * coh_kernel_check_indices). Fails: COH_ERR_CORRUPT. */
coh_status coh_check_position(const coh_call *call, int port, int64_t positions);

/* One step of a decoder: x is [B,1,..] and `position` i32 [1]. */
coh_status coh_check_step(const coh_shape *x, const coh_shape *position);

/* Elements of all axes but the last. */
int64_t coh_shape_rows(const coh_shape *shape);

coh_shape coh_shape_make(coh_dtype dtype, int32_t rank, int64_t d0, int64_t d1, int64_t d2);

/* Does it make the gradient of parameter `port` in f32, whatever that is? */
int coh_call_has_f32_grads(const coh_call *call, int port);

/* The call's range of rows; the whole table when nothing is split. */
void coh_call_rows(const coh_call *call, int64_t row_count, int64_t *out_begin, int64_t *out_end);

#endif
