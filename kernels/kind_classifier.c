/* The operator kinds classifier (softmax cross-entropy over a table) and logits (for a decoder).
 * The table may come in ranges of rows, over several calls. Next: kernels.h (coh_classifier). */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/kind.h"

static coh_status infer_table(const coh_classifier_attributes *a, const coh_shape *x,
                              coh_op_facts *facts)
{
    coh_status status = coh_check_float("x", x, 3);
    if (status == COH_OK)
        status = coh_check_count("vocabulary", a->vocabulary);
    if (status == COH_OK)
        status = coh_check_cap(a->cap);
    if (status != COH_OK)
        return status;
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape = coh_shape_make(x->dtype, 2, a->vocabulary, x->dim[2], 0),
        .init = COH_INIT_NORMAL,
        .init_std = a->init_std,
        .decays = 1,
        .row_block = COH_ROW_BLOCK,
    };
    return COH_OK;
}

/* Returns the bytes of logits, a multiple of 64, because sums of floats follow. */
static size_t logit_bytes(coh_dtype dtype, int64_t N, int64_t V)
{
    const size_t bytes = (size_t)coh_kernel_classifier_logits(dtype, N, V) * coh_dtype_bytes(dtype);
    return (bytes + 63) / 64 * 64;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_classifier_attributes *a = attributes;
    coh_status status = infer_table(a, &inputs[0], facts);
    if (status == COH_OK)
        status = coh_check_tensor("targets", &inputs[1], COH_DTYPE_I32, 2);
    if (status != COH_OK)
        return status;
    const coh_shape *x = &inputs[0];
    if (inputs[1].dim[0] != x->dim[0] || inputs[1].dim[1] != x->dim[1]) {
        char x_text[COH_SHAPE_TEXT_BYTES], targets_text[COH_SHAPE_TEXT_BYTES];
        coh_shape_text(x, x_text);
        coh_shape_text(&inputs[1], targets_text);
        return coh_kind_fail(COH_ERR_SHAPE,
                             "x is %s and targets is %s: one target per token is "
                             "needed",
                             x_text, targets_text);
    }
    const int64_t N = x->dim[0] * x->dim[1], C = x->dim[2], V = a->vocabulary;
    facts->index_range[1] = (coh_index_range){ .least = -1, .end = V };
    facts->output[0] = coh_shape_make(COH_DTYPE_F32, 1, 1, 0, 0);
    facts->saved_bytes =
        (size_t)(N * 3 + coh_kernel_classifier_dx_sums(x->dtype, N, C)) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_FORWARD] = logit_bytes(x->dtype, N, V);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        logit_bytes(x->dtype, N, V) +
        (size_t)coh_kernel_classifier_dweight_sums(x->dtype, N, C, V) * sizeof(float);
    facts->cache_bytes = (size_t)(N * coh_logit_stride(V)) * coh_dtype_bytes(x->dtype);
    /* x is read for each block of rows; logits are written once and read once (forward) or read and
     * written three times more (backward) */
    const int64_t block_count = (V + COH_ROW_BLOCK - 1) / COH_ROW_BLOCK;
    const double blocks = (double)block_count;
    const double NC = (double)N * (double)C, VC = (double)V * (double)C;
    const double NV = (double)N * (double)V, element_bytes = (double)coh_dtype_bytes(x->dtype);
    facts->cache_saves_flops = 2.0 * NC * (double)V;
    const double capping = a->cap > 0 ? COH_CAP_FLOPS * NV : 0.0;
    facts->flops[COH_PHASE_FORWARD] = 2.0 * NC * (double)V + capping;
    facts->flops[COH_PHASE_BACKWARD] = 6.0 * NC * (double)V + capping;
    facts->bytes[COH_PHASE_FORWARD] = element_bytes * (blocks * NC + VC + 2.0 * NV);
    facts->bytes[COH_PHASE_BACKWARD] = element_bytes * (4.0 * blocks * NC + 3.0 * VC + 5.0 * NV);
    return COH_OK;
}

static coh_classifier classifier_of(const coh_call *call)
{
    const coh_classifier_attributes *a = call->attributes;
    const coh_shape *x = &call->input[0].shape;
    const int64_t N = x->dim[0] * x->dim[1];
    coh_classifier classifier = {
        .N = N,
        .C = x->dim[2],
        .V = a->vocabulary,
        .cap = a->cap,
        .dtype = x->dtype,
        .x = call->input[0].data,
        .weight = call->parameter[0].data,
        .targets = call->input[1].data,
        .max = call->saved,
        .sum = (float *)call->saved + N,
        .target_logit = (float *)call->saved + 2 * N,
        .logits = call->workspace,
        .cache = call->cache,
    };
    coh_call_rows(call, a->vocabulary, &classifier.row_begin, &classifier.row_end);
    return classifier;
}

static coh_status forward(const coh_call *call)
{
    coh_classifier classifier = classifier_of(call);
    const coh_index_check check = { .what = "target",
                                    .remedy = "the data was made with another tokenizer",
                                    .indices = classifier.targets,
                                    .count = classifier.N,
                                    .least = -1,
                                    .most = classifier.V - 1 };
    const coh_status status =
        classifier.row_begin == 0 ? coh_kernel_check_indices(call->queue, &check) : COH_OK;
    if (status != COH_OK)
        return status;
    classifier.loss = call->output[0].data;
    coh_kernel_classifier(call->queue, &classifier);
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    coh_classifier classifier = classifier_of(call);
    classifier.dx = call->input_grad[0].data;
    classifier.dweight = call->parameter_grad[0].data;
    classifier.dx_adds = (call->input_grad_adds & 1u) != 0;
    classifier.dweight_adds = (call->parameter_grad_adds & 1u) != 0;
    classifier.f32_grads = coh_call_has_f32_grads(call, 0);
    classifier.loss_share = call->loss_share;
    classifier.loss_factor = call->loss_factor_cell;
    if (coh_kernel_classifier_dx_sums(classifier.dtype, classifier.N, classifier.C) > 0)
        classifier.dx_sum = (float *)call->saved + 3 * classifier.N;
    if (coh_kernel_classifier_dweight_sums(classifier.dtype, classifier.N, classifier.C,
                                           classifier.V) > 0)
        classifier.dweight_sum =
            (float *)(void *)((char *)call->workspace +
                              logit_bytes(classifier.dtype, classifier.N, classifier.V));
    if (classifier.dx != NULL || classifier.dweight != NULL)
        coh_kernel_classifier_backward(call->queue, &classifier);
    return COH_OK;
}

const coh_op_kind coh_kind_classifier = {
    COH_KIND("classifier", 2),
    .input_count = 2,
    .output_count = 1,
    .parameter_count = 1,
    .backward_reads = { .inputs = 3u, .parameters = 1u },
    COH_KIND_GRADIENTS(1u, 1u),
    .row_split_parameters = 1u,
    .is_loss = 1,
    .infer = infer,
    COH_KIND_RUNS_WITH(forward, backward, .workspace = coh_cuda_workspace_classifier),
    .attribute_bytes = sizeof(coh_classifier_attributes),
    .gpu_row_blocks = COH_GPU_TABLE_BLOCKS,
};

/* ---- logits, for a decoder ---- */

static coh_status infer_logits(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_classifier_attributes *a = attributes;
    coh_status status = infer_table(a, &inputs[0], facts);
    if (status != COH_OK)
        return status;
    const coh_shape *x = &inputs[0];
    facts->output[0] = coh_shape_make(COH_DTYPE_F32, 3, x->dim[0], x->dim[1], a->vocabulary);
    facts->flops[COH_PHASE_FORWARD] = 2.0 * (double)coh_shape_elements(x) * (double)a->vocabulary;
    return coh_check_tensor("logits", &facts->output[0], COH_DTYPE_F32, 3);
}

/* Block by block, so that the product's tiles do not depend on the ranges of the calls. */
static coh_status forward_logits(const coh_call *call)
{
    const coh_classifier_attributes *a = call->attributes;
    const coh_shape *x = &call->input[0].shape;
    const int64_t C = x->dim[2];
    float *logits = call->output[0].data;
    int64_t begin, end;
    coh_call_rows(call, a->vocabulary, &begin, &end);
    for (int64_t v = begin; v < end; v += COH_ROW_BLOCK) {
        coh_matmul product = {
            .layout = COH_MATMUL_NT,
            .dtype = x->dtype,
            .c_dtype = COH_DTYPE_F32,
            .rows = x->dim[0] * x->dim[1],
            .columns = end - v < COH_ROW_BLOCK ? end - v : COH_ROW_BLOCK,
            .depth = C,
            .a = call->input[0].data,
            .b = (const char *)call->parameter[0].data +
                 (size_t)((v - begin) * C) * coh_dtype_bytes(x->dtype),
            .a_stride = C,
            .b_stride = C,
            .c_stride = a->vocabulary,
            .c = logits + v,
        };
        coh_kernel_matmul(call->queue, &product);
    }
    const coh_soft_cap capping = { .rows = x->dim[0] * x->dim[1],
                                   .columns = end - begin,
                                   .stride = a->vocabulary,
                                   .x = logits + begin,
                                   .cap = a->cap };
    if (a->cap > 0)
        coh_kernel_soft_cap(call->queue, &capping);
    return COH_OK;
}

const coh_op_kind coh_kind_logits = {
    COH_KIND("logits", 1),
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .row_split_parameters = 1u,
    .infer = infer_logits,
    COH_KIND_RUNS(forward_logits, NULL),
    .attribute_bytes = sizeof(coh_classifier_attributes),
};
