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
                          coh_shape *out_shape)
{
    *out_shape = (coh_shape){ .dtype = input->dtype };
    for (int32_t i = 0; i < COH_RANK_MAX && dim[i] != 0; i++) {
        if (dim[i] < -input->rank)
            return coh_fail(COH_ERR_SHAPE, "%s: axis %" PRId64 " of an input of %d dimensions",
                            what, dim[i], input->rank);
        out_shape->dim[i] = dim[i] < 0 ? input->dim[input->rank + dim[i]] : dim[i];
        out_shape->rank = i + 1;
    }
    return COH_OK;
}

static coh_status check_dtypes(const coh_layer *layer, const coh_shape *inputs)
{
    for (int32_t i = 0; i < layer->input_count; i++) {
        if (inputs[i].rank < 1 || inputs[i].rank > COH_RANK_MAX)
            return coh_fail(COH_ERR_SHAPE, "input %d has %d dimensions, 1 to %d are possible", i,
                            inputs[i].rank, COH_RANK_MAX);
        if (inputs[i].dtype != COH_DTYPE_F32 &&
            !(layer->takes_bf16 && inputs[i].dtype == COH_DTYPE_BF16))
            return coh_fail(COH_ERR_SHAPE, "input %d is not f32%s", i,
                            layer->takes_bf16 ? " or bf16" : ", and the layer computes in f32");
        if (inputs[i].dtype != inputs[0].dtype)
            return coh_fail(COH_ERR_SHAPE, "inputs 0 and %d have different dtypes", i);
    }
    return COH_OK;
}

coh_status coh_layer_infer(const coh_layer *layer, const coh_shape *inputs, coh_op_facts *out_facts)
{
    coh_layer known = { 0 };
    COH_NEED_STRUCT(coh_layer, layer);
    COH_NEED(inputs);
    COH_NEED(out_facts);
    coh_struct_read(layer, &known, sizeof(known));
    COH_TRY(coh_check_integer("inputs of a layer", known.input_count, 1, COH_PORT_MAX));
    COH_TRY(coh_check_integer("parameters of a layer", known.parameter_count, 0, COH_PORT_MAX));
    COH_TRY(check_dtypes(&known, inputs));
    if (known.output[0] == 0)
        out_facts->output[0] = inputs[0];
    else
        COH_TRY(resolve("output", known.output, &inputs[0], &out_facts->output[0]));
    for (int32_t i = 0; i < known.parameter_count; i++) {
        const coh_layer_parameter *from = &known.parameter[i];
        coh_parameter_facts *to = &out_facts->parameter[i];
        *to = (coh_parameter_facts){ .name = from->name,
                                     .init = from->init,
                                     .init_std = from->init_std,
                                     .decays = from->decays };
        COH_TRY(coh_check_number("init_std of a layer", (double)from->init_std, 0, FLT_MAX));
        if (from->dim[0] == 0)
            return coh_fail(COH_ERR_SHAPE, "parameter %d has no dimension", i);
        COH_TRY(resolve("a parameter", from->dim, &inputs[0], &to->shape));
    }
    return COH_OK;
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
