/* The workspaces of operator kinds on CUDA, and the limits of cuDNN that a kind's table reports.
 * Plain C that needs no CUDA: sizes come from shapes alone. Next: scratch.h and attention_scratch.h
 * for the formulas, kernels/kind.h for the contracts. */
#include "kernels/kind.h"

#include <inttypes.h>

#include "cohobate/kinds.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/scratch.h"

/* ---- attention ---- */

/* H heads of queries share G heads of keys; letters as in kernels.h. */
typedef struct attention_heads {
    coh_dtype dtype;
    int64_t B, T, H, G, D;
} attention_heads;

/* qkv [B,T,3C] */
static attention_heads heads_of(const void *attributes, const coh_shape *inputs)
{
    const coh_attention_attributes *a = attributes;
    return (attention_heads){ .dtype = inputs[0].dtype,
                              .B = inputs[0].dim[0],
                              .T = inputs[0].dim[1],
                              .H = a->heads,
                              .G = a->heads,
                              .D = inputs[0].dim[2] / 3 / a->heads };
}

/* q [B,T,HD] */
static attention_heads grouped_heads_of(const void *attributes, const coh_shape *inputs)
{
    const coh_attention_grouped_attributes *a = attributes;
    return (attention_heads){ .dtype = inputs[0].dtype,
                              .B = inputs[0].dim[0],
                              .T = inputs[0].dim[1],
                              .H = a->heads,
                              .G = a->kv_heads,
                              .D = inputs[0].dim[2] / a->heads };
}

/* Is this attention of causal pairs alone, scaled by 1 / sqrt(D)? */
static int is_plain(const coh_attention_scores *scores, int64_t T)
{
    return (scores->window == 0 || scores->window >= T) && scores->scale == 0 && scores->cap == 0;
}

static size_t backward_bytes(attention_heads h)
{
    return coh_cuda_attention_scratch_bytes(h.dtype, h.B, h.T, h.H, h.G, h.D);
}

/* Our own kernels need delta alone. */
static size_t own_bytes(attention_heads h, coh_phase phase)
{
    return phase == COH_PHASE_BACKWARD ? coh_attention_scratch_part(4 * h.B * h.H * h.T) : 0;
}

static size_t atomic_backward_bytes(attention_heads h)
{
    return coh_cuda_attention_atomic_bytes(h.dtype, h.B, h.T, h.H, h.G, h.D);
}

size_t coh_cuda_workspace_attention(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase)
{
    return phase == COH_PHASE_BACKWARD ? backward_bytes(heads_of(attributes, inputs)) : 0;
}

/* cuDNN is given plain scores only. */
size_t coh_cuda_workspace_attention_grouped(const void *attributes, const coh_shape *inputs,
                                            coh_phase phase)
{
    const coh_attention_grouped_attributes *a = attributes;
    const attention_heads h = grouped_heads_of(attributes, inputs);
    if (phase != COH_PHASE_BACKWARD)
        return 0;
    return is_plain(&a->scores, h.T) ? backward_bytes(h) : own_bytes(h, phase);
}

size_t coh_cuda_workspace_attention_grouped_dropout(const void *attributes, const coh_shape *inputs,
                                                    coh_phase phase)
{
    return phase == COH_PHASE_BACKWARD ? backward_bytes(grouped_heads_of(attributes, inputs)) : 0;
}

size_t coh_cuda_workspace_attention_documents(const void *attributes, const coh_shape *inputs,
                                              coh_phase phase)
{
    return own_bytes(heads_of(attributes, inputs), phase);
}

size_t coh_cuda_workspace_attention_grouped_documents(const void *attributes,
                                                      const coh_shape *inputs, coh_phase phase)
{
    return own_bytes(grouped_heads_of(attributes, inputs), phase);
}

size_t coh_cuda_workspace_attention_atomic(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase)
{
    return phase == COH_PHASE_BACKWARD ? atomic_backward_bytes(heads_of(attributes, inputs)) : 0;
}

size_t coh_cuda_workspace_attention_grouped_atomic(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase)
{
    return phase == COH_PHASE_BACKWARD ? atomic_backward_bytes(grouped_heads_of(attributes, inputs))
                                       : 0;
}

/* Names the first limit that coh_cudnn_takes_heads finds exceeded. */
static coh_status accept_heads(attention_heads h)
{
    if (coh_cudnn_takes_heads(h.dtype, h.T, h.D))
        return COH_OK;
    if (h.dtype != COH_DTYPE_BF16)
        return coh_kind_fail(COH_ERR_SHAPE, "heads that are not bf16: cuDNN needs bf16");
    if (h.T == 1)
        return coh_kind_fail(COH_ERR_SHAPE, "sequences of 1 token: cuDNN needs 2");
    return coh_kind_fail(COH_ERR_SHAPE,
                         "heads of %" PRId64 " channels: cuDNN needs a multiple of %d, at most %d",
                         h.D, COH_CUDNN_HEAD_WIDTH_UNIT, COH_CUDNN_HEAD_WIDTH_MOST);
}

coh_status coh_cuda_accepts_attention_atomic(const void *attributes, const coh_shape *inputs)
{
    return accept_heads(heads_of(attributes, inputs));
}

coh_status coh_cuda_accepts_attention_grouped_atomic(const void *attributes,
                                                     const coh_shape *inputs)
{
    const coh_attention_grouped_attributes *a = attributes;
    if (!is_plain(&a->scores, inputs[0].dim[1]))
        return coh_kind_fail(COH_ERR_SHAPE,
                             "scores with a window of %" PRId64 " keys, a scale of %g and a cap of "
                             "%g (0: none): cuDNN is given plain scores only",
                             a->scores.window, (double)a->scores.scale, (double)a->scores.cap);
    return accept_heads(grouped_heads_of(attributes, inputs));
}

/* ---- one step of a decoder ---- */

size_t coh_cuda_workspace_attention_decode(const void *attributes, const coh_shape *inputs,
                                           coh_phase phase)
{
    const coh_attention_decode_attributes *a = attributes;
    const int64_t D = inputs[0].dim[2] / 3 / a->heads;
    if (phase != COH_PHASE_FORWARD)
        return 0;
    return coh_cuda_decode_bytes(inputs[0].dim[0] * a->heads, inputs[0].dim[1], D, a->positions);
}

size_t coh_cuda_workspace_attention_grouped_decode(const void *attributes, const coh_shape *inputs,
                                                   coh_phase phase)
{
    const coh_attention_grouped_decode_attributes *a = attributes;
    const int64_t D = inputs[0].dim[2] / a->heads;
    if (phase != COH_PHASE_FORWARD)
        return 0;
    return coh_cuda_decode_bytes(inputs[0].dim[0] * a->heads, inputs[0].dim[1], D, a->positions);
}

/* ---- norms, embedding, classifier ---- */

static size_t norm_bytes(const coh_shape *x, int64_t heads, coh_phase phase)
{
    if (phase == COH_PHASE_FORWARD)
        return 0;
    return (size_t)coh_cuda_norm_partials(coh_shape_rows(x) * heads, x->dim[x->rank - 1] / heads) *
           sizeof(float);
}

size_t coh_cuda_workspace_norm(const void *attributes, const coh_shape *inputs, coh_phase phase)
{
    (void)attributes;
    return norm_bytes(&inputs[0], 1, phase);
}

size_t coh_cuda_workspace_rmsnorm(const void *attributes, const coh_shape *inputs, coh_phase phase)
{
    const coh_rmsnorm_attributes *a = attributes;
    return norm_bytes(&inputs[0], a->heads ? a->heads : 1, phase);
}

size_t coh_cuda_workspace_embedding(const void *attributes, const coh_shape *inputs,
                                    coh_phase phase)
{
    (void)attributes;
    if (phase == COH_PHASE_FORWARD)
        return 0;
    return (size_t)coh_cuda_embedding_order(coh_shape_elements(&inputs[0])) * sizeof(int32_t);
}

size_t coh_cuda_workspace_position_documents(const void *attributes, const coh_shape *inputs,
                                             coh_phase phase)
{
    return coh_cuda_workspace_embedding(attributes, &inputs[1], phase);
}

size_t coh_cuda_workspace_cross_entropy(const void *attributes, const coh_shape *inputs,
                                        coh_phase phase)
{
    (void)attributes;
    if (phase == COH_PHASE_BACKWARD)
        return 0;
    return (size_t)coh_cuda_cross_entropy_partials(coh_shape_rows(&inputs[0])) * sizeof(float);
}

/* The kernel takes logits and dweight's sums from one slot. */
size_t coh_cuda_workspace_classifier(const void *attributes, const coh_shape *inputs,
                                     coh_phase phase)
{
    const coh_classifier_attributes *a = attributes;
    const coh_shape *x = &inputs[0];
    const int64_t N = x->dim[0] * x->dim[1];
    const size_t logits = coh_cuda_classifier_logit_bytes(x->dtype, N, a->vocabulary);
    if (phase == COH_PHASE_FORWARD)
        return logits;
    return logits + coh_cuda_classifier_sum_bytes(x->dtype, N, x->dim[2], a->vocabulary);
}
