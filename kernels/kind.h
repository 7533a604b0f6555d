/* kind.h - shared by the built-in operator kinds (kind_*.c): groups of fields that most of them
 * have, checks of inputs and attributes with error texts (the graph prefixes the operator's name),
 * and what kinds do differently on a device than on the host.
 *
 * kind_norm: devices[COH_DEVICE_CUDA].workspace ──> coh_cuda_workspace_norm ──> cuda/scratch.h */
#ifndef COH_KERNELS_KIND_H
#define COH_KERNELS_KIND_H

#include "cohobate/model.h"

/* ---- fields ---- */

#define COH_KIND(kind_name, kind_revision)                                                         \
    .struct_bytes = sizeof(coh_op_kind), .abi_version = COH_KIND_ABI,                              \
    .name = "cohobate." kind_name, .revision = kind_revision

/* Functions that enqueue the same on every device. With further arguments: fields of CUDA's. */
#define COH_KIND_RUNS(forward_of, backward_of)                                                     \
    COH_KIND_RUNS_WITH(forward_of, backward_of, .workspace = NULL)
#define COH_KIND_RUNS_WITH(forward_of, backward_of, ...)                                           \
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_of, .backward = backward_of },           \
                 [COH_DEVICE_CUDA] = {                                                             \
                     .forward = forward_of, .backward = backward_of, __VA_ARGS__ } }

/* Masks of inputs and parameters whose gradients backward adds to if asked, and skips if they are
 * not wanted; those of parameters in f32 if asked. */
#define COH_KIND_GRADIENTS(input_mask, parameter_mask)                                             \
    .can_add_grad = { .inputs = input_mask, .parameters = parameter_mask },                        \
    .can_skip_grad = { .inputs = input_mask, .parameters = parameter_mask },                       \
    .can_widen_grad = parameter_mask

/* y may take x's place, and dx dy's. */
#define COH_KIND_IN_PLACE                                                                          \
    .forward_in_place = { { 0, 0 } }, .backward_in_place = { { 0, 0 } }, .in_place_count = { 1, 1 }

/* ---- checks and shapes ---- */

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

/* Checks a soft cap: 0 for none, or above 0 and finite. */
coh_status coh_check_cap(float cap);

/* Flops of a soft cap per element: a hyperbolic tangent, or its slope. */
#define COH_CAP_FLOPS 25.0

/* Checks that shapes agree in every axis except the last `free_axes`. */
coh_status coh_check_leading(const char *port, const coh_shape *shape, const char *other_port,
                             const coh_shape *other, int32_t free_axes);

/* Checks positions of documents (coh_kind_attention_documents), input `port`, against x, input 0
 * [B,T,..], and adds to the facts what a step's values must be. */
coh_status coh_check_documents(const coh_shape *inputs, int port, coh_op_facts *facts);

/* A tensor seen along one axis: outer x count x inner elements. */
typedef struct coh_axis {
    int32_t axis; /* from 0 on */
    int64_t outer, count, inner;
} coh_axis;
/* Finds axis `axis` of a shape that was checked; -1 is the last one, -2 the one before. */
coh_status coh_axis_of(const coh_shape *shape, int32_t axis, coh_axis *out_axis);

/* Checks that the call's input `port`, i32 [1], is a row of a table of `positions` rows (kernels.h,
 * coh_kernel_check_indices). Fails: COH_ERR_CORRUPT. */
coh_status coh_check_position(const coh_call *call, int port, int64_t positions);

/* Checks one step of a decoder: x is [B,T,..] and `position` i32 [1]. */
coh_status coh_check_step(const coh_shape *x, const coh_shape *position);

/* Returns the number of elements of all axes but the last. */
int64_t coh_shape_rows(const coh_shape *shape);

coh_shape coh_shape_make(coh_dtype dtype, int32_t rank, int64_t d0, int64_t d1, int64_t d2);

/* Returns whether the call makes the gradient of parameter `port` in f32, whatever the parameter's
 * type. */
int coh_call_has_f32_grads(const coh_call *call, int port);

/* Returns the call's range of rows; the whole table if nothing is split. */
void coh_call_rows(const coh_call *call, int64_t row_count, int64_t *out_begin, int64_t *out_end);

/* ---- CUDA: kernels/cuda/kind_workspaces.c ----
 *
 * A kind's file sees only these declarations and no header of a device, so that a new device adds
 * functions here and a row to the tables. They are pure functions of attributes and shapes,
 * compiled with or without CUDA, because a plan for a GPU may be made on a machine without one. */

/* coh_kind_device.workspace of the kinds that need other scratch than on the host. `attributes` are
 * those of the kind. Kinds with dropout or padding have attributes that begin with the plain
 * kind's (its heads, in grouped attention).
 *
 * Attention over one tensor qkv [B,T,3C] */
size_t coh_cuda_workspace_attention(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase);
size_t coh_cuda_workspace_attention_atomic(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase);
size_t coh_cuda_workspace_attention_documents(const void *attributes, const coh_shape *inputs,
                                              coh_phase phase);
size_t coh_cuda_workspace_attention_decode(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase);
/* Attention over q, k and v */
size_t coh_cuda_workspace_attention_grouped(const void *attributes, const coh_shape *inputs,
                                            coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_dropout(const void *attributes, const coh_shape *inputs,
                                                    coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_atomic(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_documents(const void *attributes,
                                                      const coh_shape *inputs, coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_decode(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase);
/* Layernorm, which needs no attributes, and rmsnorm */
size_t coh_cuda_workspace_norm(const void *attributes, const coh_shape *inputs, coh_phase phase);
size_t coh_cuda_workspace_rmsnorm(const void *attributes, const coh_shape *inputs, coh_phase phase);
size_t coh_cuda_workspace_embedding(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase);
/* Positions of documents, its second input */
size_t coh_cuda_workspace_position_documents(const void *attributes, const coh_shape *inputs,
                                             coh_phase phase);
size_t coh_cuda_workspace_cross_entropy(const void *attributes, const coh_shape *inputs,
                                        coh_phase phase);
size_t coh_cuda_workspace_classifier(const void *attributes, const coh_shape *inputs,
                                     coh_phase phase);

/* coh_kind_device.accepts of attention with atomics: COH_OK if cuDNN may take the heads. It may
 * still refuse them on some GPUs. */
coh_status coh_cuda_accepts_attention_atomic(const void *attributes, const coh_shape *inputs);
coh_status coh_cuda_accepts_attention_grouped_atomic(const void *attributes,
                                                     const coh_shape *inputs);

#endif
