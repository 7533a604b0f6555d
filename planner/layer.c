/* Facts of usual layers, and chains of operators: both only fill in what coh_graph_op needs. Next:
 * cohobate/layer.h, graph.c. */
#include "cohobate/layer.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/struct_bytes.h"
#include "planner/graph.h"

/* ---- layers ---- */

/* Resolves dimensions against input 0; ends at the first 0. */
static coh_status resolve(const char *what, const int64_t dim[COH_RANK_MAX], const coh_shape *input,
                          coh_dtype dtype, coh_shape *out_shape)
{
    *out_shape = (coh_shape){ .dtype = dtype };
    for (int32_t i = 0; i < COH_RANK_MAX && dim[i] != 0; i++) {
        if (dim[i] < -input->rank)
            return coh_fail(COH_ERR_SHAPE, "%s: axis %" PRId64 " of an input of %d dimensions",
                            what, dim[i], input->rank);
        out_shape->dim[i] = dim[i] < 0 ? input->dim[input->rank + dim[i]] : dim[i];
        out_shape->rank = i + 1;
    }
    return COH_OK;
}

static int is_index(const coh_layer *layer, int32_t input)
{
    return layer->index[input].least != 0 || layer->index[input].end != 0;
}

/* Checks the inputs, and finds the dtype of those that are no index: f32 if there is none. */
static coh_status check_dtypes(const coh_layer *layer, const coh_shape *inputs,
                               coh_dtype *out_dtype)
{
    int32_t first = -1;
    *out_dtype = COH_DTYPE_F32;
    for (int32_t i = 0; i < layer->input_count; i++) {
        const coh_dtype dtype = inputs[i].dtype;
        if (inputs[i].rank < 1 || inputs[i].rank > COH_RANK_MAX)
            return coh_fail(COH_ERR_SHAPE, "input %d has %d dimensions, 1 to %d are possible", i,
                            inputs[i].rank, COH_RANK_MAX);
        if (is_index(layer, i)) {
            if (dtype != COH_DTYPE_I32)
                return coh_fail(COH_ERR_SHAPE, "input %d is not i32, and the layer reads indices",
                                i);
            continue;
        }
        if (dtype == COH_DTYPE_I32)
            return coh_fail(
                COH_ERR_SHAPE,
                "input %d is i32, and the layer computes in f32%s: for an integer input "
                "give .index[%d], the range of its values",
                i, layer->takes_bf16 ? " or bf16" : "", i);
        if (dtype != COH_DTYPE_F32 && !(layer->takes_bf16 && dtype == COH_DTYPE_BF16))
            return coh_fail(COH_ERR_SHAPE, "input %d is not f32%s", i,
                            layer->takes_bf16 ? " or bf16" : ", and the layer computes in f32");
        if (first >= 0 && dtype != *out_dtype)
            return coh_fail(COH_ERR_SHAPE, "inputs %d and %d have different dtypes", first, i);
        first = first < 0 ? i : first;
        *out_dtype = dtype;
    }
    return COH_OK;
}

static coh_status infer_parameter(const coh_layer_parameter *from, int32_t index,
                                  const coh_shape *input, coh_dtype dtype,
                                  coh_parameter_facts *out_facts)
{
    *out_facts = (coh_parameter_facts){
        .name = from->name, .init = from->init, .init_std = from->init_std, .decays = from->decays
    };
    COH_TRY(coh_check_number("init_std of a layer", (double)from->init_std, 0, FLT_MAX));
    if (from->dim[0] == 0)
        return coh_fail(COH_ERR_SHAPE, "parameter %d has no dimension", index);
    return resolve("a parameter", from->dim, input, dtype, &out_facts->shape);
}

/* Bytes of f32 numbers with these dimensions; 0: none are given. */
static coh_status infer_bytes(const char *what, const int64_t dim[COH_RANK_MAX],
                              const coh_shape *input, size_t *out_bytes)
{
    coh_shape shape;
    uint64_t bytes = sizeof(float);
    COH_TRY(resolve(what, dim, input, COH_DTYPE_F32, &shape));
    for (int32_t i = 0; i < shape.rank; i++)
        if (shape.dim[i] < 1 || __builtin_mul_overflow(bytes, (uint64_t)shape.dim[i], &bytes))
            return coh_fail(COH_ERR_SHAPE, "%s: dimension %d is %" PRId64, what, i, shape.dim[i]);
    *out_bytes = shape.rank > 0 ? (size_t)bytes : 0;
    return COH_OK;
}

coh_status coh_layer_infer(const coh_layer *layer, const coh_shape *inputs, coh_op_facts *out_facts)
{
    coh_layer known = { 0 };
    coh_dtype dtype;
    COH_NEED_STRUCT(coh_layer, layer);
    COH_NEED(inputs);
    COH_NEED(out_facts);
    coh_struct_read(layer, &known, sizeof(known));
    COH_TRY(coh_check_integer("inputs of a layer", known.input_count, 1, COH_PORT_MAX));
    COH_TRY(coh_check_integer("parameters of a layer", known.parameter_count, 0, COH_PORT_MAX));
    COH_TRY(coh_check_integer("is_loss of a layer", known.is_loss, 0, 1));
    COH_TRY(check_dtypes(&known, inputs, &dtype));
    const coh_dtype output_dtype = known.is_loss ? COH_DTYPE_F32 : dtype;
    out_facts->output[0] = inputs[0];
    out_facts->output[0].dtype = output_dtype;
    if (known.output[0] != 0)
        COH_TRY(resolve("output", known.output, &inputs[0], output_dtype, &out_facts->output[0]));
    COH_TRY(infer_bytes("saved", known.saved, &inputs[0], &out_facts->saved_bytes));
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
        COH_TRY(infer_bytes("workspace", known.workspace, &inputs[0],
                            &out_facts->workspace_bytes[phase]));
    for (int32_t i = 0; i < known.input_count; i++)
        out_facts->index_range[i] = known.index[i];
    for (int32_t i = 0; i < known.parameter_count; i++)
        COH_TRY(
            infer_parameter(&known.parameter[i], i, &inputs[0], dtype, &out_facts->parameter[i]));
    return COH_OK;
}

static void clear(const coh_view *grads, uint32_t adds)
{
    for (int i = 0; i < COH_PORT_MAX; i++)
        if (grads[i].data != NULL && !((adds >> i) & 1))
            memset(grads[i].data, 0,
                   (size_t)coh_shape_elements(&grads[i].shape) *
                       coh_dtype_bytes(grads[i].shape.dtype));
}

void coh_layer_clear_grads(const coh_call *call)
{
    if (call == NULL)
        return;
    clear(call->input_grad, call->input_grad_adds);
    clear(call->parameter_grad, call->parameter_grad_adds);
}

/* ---- chains ---- */

/* "3.linear", for operator 3 of kind "cohobate.linear". */
static void name_link(const coh_graph *graph, const coh_op_kind *kind, char *name, size_t bytes)
{
    const char *dot = kind->name != NULL ? strrchr(kind->name, '.') : NULL;
    snprintf(name, bytes, "%zu.%.200s", graph->op_count,
             dot != NULL          ? dot + 1
             : kind->name != NULL ? kind->name
                                  : "operator");
}

static coh_status add_link(coh_graph *graph, const coh_chain_link *link, int32_t index,
                           coh_tensor *tensor)
{
    char name[256];
    const coh_tensor input = *tensor;
    if (link->kind == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "link %d of a chain has no kind", index);
    if (link->kind->abi_version == COH_KIND_ABI &&
        (link->kind->input_count != 1 || link->kind->output_count != 1))
        return coh_fail(COH_ERR_ARGUMENT,
                        "link %d of a chain: a kind of %d inputs and %d outputs; one of each is "
                        "needed, so add it by coh_graph_op",
                        index, link->kind->input_count, link->kind->output_count);
    name_link(graph, link->kind, name, sizeof(name));
    const coh_op_args args = { .name = link->name != NULL ? link->name : name,
                               .attributes = link->attributes,
                               .attribute_bytes = link->attribute_bytes,
                               .inputs = &input,
                               .block = -1 };
    return coh_graph_op(graph, link->kind, &args, tensor, NULL);
}

coh_status coh_graph_chain(coh_graph *graph, coh_tensor input, const coh_chain_link *links,
                           int32_t link_count, coh_tensor *out_output)
{
    COH_NEED(graph);
    COH_NEED_STRUCT(coh_chain_link, links);
    COH_NEED(out_output);
    COH_TRY(coh_graph_check_open(graph, __func__));
    COH_TRY(coh_check_integer("links of a chain", link_count, 1, INT32_MAX));
    const coh_graph_mark before = coh_graph_mark_of(graph);
    const size_t stride = links->struct_bytes;
    coh_tensor tensor = input;
    coh_status status = COH_OK;
    for (int32_t i = 0; status == COH_OK && i < link_count; i++) {
        const coh_chain_link *at =
            (const coh_chain_link *)(const void *)((const char *)links + (size_t)i * stride);
        coh_chain_link link = { 0 };
        status = coh_struct_check("coh_chain_link", at, sizeof(link), _Alignof(coh_chain_link));
        if (status == COH_OK) {
            coh_struct_read(at, &link, sizeof(link));
            status = add_link(graph, &link, i, &tensor);
        }
    }
    if (status != COH_OK)
        coh_graph_cut(graph, before);
    else
        *out_output = tensor;
    return status;
}
