/* op_shapes.h - the operators of tests/kernels/shapes.h as options of coh_op_check, for its tests
 * on the host, on the stub driver's GPU and on a real one. */
#ifndef COH_TESTS_ENGINE_OP_SHAPES_H
#define COH_TESTS_ENGINE_OP_SHAPES_H

#include <string.h>

#include "cohobate/op_check.h"
#include "tests/kernels/shapes.h"

static inline int op_is_linear(const coh_op_kind *kind)
{
    static const char begin[] = "cohobate.linear";
    return strncmp(kind->name, begin, strlen(begin)) == 0;
}

/* Has the case a weight in NF4? */
static inline int op_shape_is_packed(const shape_case *one)
{
    return op_is_linear(one->kind) &&
           ((const coh_linear_attributes *)one->attributes)->stored == COH_DTYPE_NF4;
}

/* The size of a case's attributes: of the last version of the kind's struct. */
static inline size_t op_attribute_bytes(const coh_op_kind *kind)
{
    return kind == &coh_kind_rmsnorm ? sizeof(coh_rmsnorm_attributes)
           : kind == &coh_kind_rope  ? sizeof(coh_rope_attributes)
           : kind == &coh_kind_attention_grouped || kind == &coh_kind_attention_grouped_atomic ||
                   kind == &coh_kind_attention_grouped_documents
               ? sizeof(coh_attention_grouped_attributes)
           : kind == &coh_kind_attention_grouped_dropout ||
                   kind == &coh_kind_attention_grouped_documents_dropout
               ? sizeof(coh_attention_grouped_dropout_attributes)
           : kind == &coh_kind_classifier ? sizeof(coh_classifier_attributes)
           : op_is_linear(kind)           ? sizeof(coh_linear_attributes)
           : kind == &coh_kind_position   ? sizeof(coh_position_attributes)
                                          : kind->attribute_bytes;
}

/* Makes case `index` and fills in its part of the options; `inputs` must outlive them. */
static inline void op_shape_create(coh_case *one, int index, coh_shape inputs[4],
                                   coh_op_check_options *options)
{
    const coh_op_kind *kind = shape_case_at(index)->kind;
    shape_case_create(one, index, 1);
    for (int i = 0; i < 4; i++)
        inputs[i] = one->call.input[i].shape;
    options->inputs = inputs;
    options->attributes = one->attributes;
    options->attribute_bytes = op_attribute_bytes(kind);
    options->seed = (uint64_t)index;
    if (kind == &coh_kind_embedding_padded)
        options->other_gradients.parameters = 1; /* its padding is not trained */
}

#endif
