/* kind_devices.h - what operator kinds do differently on a device than on the host: the functions
 * that kind_*.c put into coh_op_kind.devices. A kind's file sees only these declarations and no
 * header of a device, so that a new device adds functions here and a row to the tables.
 *
 *    kind_norm: devices[COH_DEVICE_CUDA].workspace ──> coh_cuda_workspace_norm ──> cuda/scratch.h
 *
 * All of them are pure functions of attributes and shapes. They are compiled with or without CUDA,
 * because a plan for a GPU may be made on a machine without one. */
#ifndef COH_KERNELS_KIND_DEVICES_H
#define COH_KERNELS_KIND_DEVICES_H

#include "cohobate/model.h"

/* ---- CUDA: kernels/cuda/kind_workspaces.c ---- */

/* coh_kind_device.workspace of the kinds that need other scratch than on the host. `attributes` are
 * those of the kind. Kinds with dropout or padding have attributes that begin with the plain
 * kind's.
 *
 * Attention over one tensor qkv [B,T,3C] */
size_t coh_cuda_workspace_attention(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase);
size_t coh_cuda_workspace_attention_atomic(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase);
size_t coh_cuda_workspace_attention_decode(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase);
/* Attention over q, k and v */
size_t coh_cuda_workspace_attention_grouped(const void *attributes, const coh_shape *inputs,
                                            coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_atomic(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase);
size_t coh_cuda_workspace_attention_grouped_decode(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase);
/* Layernorm and rmsnorm of x [..,C], which need no attributes */
size_t coh_cuda_workspace_norm(const void *attributes, const coh_shape *inputs, coh_phase phase);
size_t coh_cuda_workspace_embedding(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase);
size_t coh_cuda_workspace_classifier(const void *attributes, const coh_shape *inputs,
                                     coh_phase phase);

/* coh_kind_device.accepts of attention with atomics: COH_OK if cuDNN may take the heads. It may
 * still refuse them on some GPUs. */
coh_status coh_cuda_accepts_attention_atomic(const void *attributes, const coh_shape *inputs);
coh_status coh_cuda_accepts_attention_grouped_atomic(const void *attributes,
                                                     const coh_shape *inputs);

#endif
