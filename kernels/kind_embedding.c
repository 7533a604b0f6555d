/* The operator kinds embedding and embedding with padding: rows of a table by token. The table may
 * come in ranges of rows, over several calls. Next: kernels.h (coh_embedding). */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_embedding_attributes *a = attributes;
    coh_status status = coh_check_tensor("tokens", &inputs[0], COH_DTYPE_I32, 2);
    if (status == COH_OK)
        status = coh_check_count("vocabulary", a->vocabulary);
    if (status == COH_OK)
        status = coh_check_count("channels", a->channels);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0], T = inputs[0].dim[1];
    facts->index_range[0] = (coh_index_range){ .end = a->vocabulary };
    facts->output[0] = coh_shape_make(a->dtype, 3, B, T, a->channels);
    status = coh_check_float("y", &facts->output[0], 3);
    if (status != COH_OK)
        return status;
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape = coh_shape_make(a->dtype, 2, a->vocabulary, a->channels, 0),
        .init = COH_INIT_NORMAL,
        .init_std = a->init_std,
        .decays = 1,
        .row_block = COH_ROW_BLOCK,
    };
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_embedding_order(B * T) * sizeof(int32_t);
    const double NC = (double)(B * T) * (double)a->channels;
    const double VC = (double)a->vocabulary * (double)a->channels;
    facts->flops[COH_PHASE_BACKWARD] = NC;
    const double element_bytes = (double)coh_dtype_bytes(a->dtype);
    facts->bytes[COH_PHASE_FORWARD] = element_bytes * 2.0 * NC; /* only the rows of the tokens */
    facts->bytes[COH_PHASE_BACKWARD] = element_bytes * (VC + 3.0 * NC);
    return COH_OK;
}

static coh_embedding embedding_of(const coh_call *call)
{
    const coh_embedding_attributes *a = call->attributes;
    coh_embedding embedding = {
        .N = coh_shape_elements(&call->input[0].shape),
        .C = a->channels,
        .dtype = a->dtype,
        .tokens = call->input[0].data,
    };
    coh_call_rows(call, a->vocabulary, &embedding.row_begin, &embedding.row_end);
    return embedding;
}

static coh_status forward(const coh_call *call)
{
    const coh_embedding_attributes *a = call->attributes;
    const coh_embedding embedding = embedding_of(call);
    const coh_index_check check = { .what = "token",
                                    .remedy = "the data was made with another tokenizer",
                                    .indices = embedding.tokens,
                                    .count = embedding.N,
                                    .most = a->vocabulary - 1 };
    const coh_status status =
        embedding.row_begin == 0 ? coh_kernel_check_indices(call->queue, &check) : COH_OK;
    if (status != COH_OK)
        return status;
    coh_kernel_embedding(call->queue, &embedding, call->output[0].data, call->parameter[0].data);
    return COH_OK;
}

static coh_status spread(const coh_call *call, coh_embedding embedding)
{
    embedding.order = call->workspace;
    embedding.f32_grads = coh_call_has_f32_grads(call, 0);
    if (call->parameter_grad[0].data != NULL)
        coh_kernel_embedding_backward(call->queue, &embedding, call->parameter_grad[0].data,
                                      call->output_grad[0].data,
                                      (call->parameter_grad_adds & 1u) != 0);
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    return spread(call, embedding_of(call));
}

/* Fields that both kinds share. */
#define EMBEDDING_KIND                                                                             \
    COH_KIND_GRADIENTS(0u, 1u), .input_count = 1, .output_count = 1, .parameter_count = 1,         \
                                .backward_reads = { .inputs = 1u }, .row_split_parameters = 1u,    \
                                .gpu_row_blocks = COH_GPU_TABLE_BLOCKS

const coh_op_kind coh_kind_embedding = {
    COH_KIND("embedding", 2),
    EMBEDDING_KIND,
    .infer = infer,
    COH_KIND_RUNS_WITH(forward, backward, .workspace = coh_cuda_workspace_embedding),
    .attribute_bytes = sizeof(coh_embedding_attributes),
};

/* ---- with padding: its attributes begin with those of the plain one ---- */

static coh_status infer_padded(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_embedding_padded_attributes *a = attributes;
    coh_status status = infer(&a->embedding, inputs, facts);
    if (status == COH_OK && (a->padding < 0 || a->padding >= a->embedding.vocabulary))
        status = coh_kind_fail(COH_ERR_SHAPE,
                               "the padding is token %" PRId64 ": 0 to %" PRId64 " is possible",
                               a->padding, a->embedding.vocabulary - 1);
    return status;
}

static coh_status backward_padded(const coh_call *call)
{
    const coh_embedding_padded_attributes *a = call->attributes;
    coh_embedding embedding = embedding_of(call);
    embedding.has_padding = 1;
    embedding.padding = (int32_t)a->padding;
    return spread(call, embedding);
}

const coh_op_kind coh_kind_embedding_padded = {
    COH_KIND("embedding_padded", 1),
    EMBEDDING_KIND,
    .infer = infer_padded,
    COH_KIND_RUNS_WITH(forward, backward_padded, .workspace = coh_cuda_workspace_embedding),
    .attribute_bytes = sizeof(coh_embedding_padded_attributes),
};
