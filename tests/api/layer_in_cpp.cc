// A layer and a chain in C++11, as layer.h says: the structs and functions in place of its macros.
#include <cstdio>
#include <cstring>

#include "cohobate/cohobate.h"

namespace
{

coh_status infer(const void *, const coh_shape *inputs, coh_op_facts *out_facts)
{
    coh_layer layer = coh_layer();
    layer.struct_bytes = sizeof(layer);
    layer.input_count = 1;
    layer.parameter_count = 1;
    layer.parameter[0].name = "gate";
    layer.parameter[0].dim[0] = -1;
    layer.parameter[0].init = COH_INIT_ONE;
    return coh_layer_infer(&layer, inputs, out_facts);
}

coh_status forward(const coh_call *call)
{
    const coh_view &x = call->input[0];
    const int64_t count = coh_shape_elements(&x.shape), width = x.shape.dim[x.shape.rank - 1];
    for (int64_t i = 0; i < count; i++)
        static_cast<float *>(call->output[0].data)[i] =
            static_cast<const float *>(x.data)[i] *
            static_cast<const float *>(call->parameter[0].data)[i % width];
    return COH_OK;
}

coh_status run()
{
    coh_op_kind kind = coh_op_kind();
    kind.struct_bytes = sizeof(kind);
    kind.abi_version = COH_KIND_ABI;
    kind.name = "cpp.gate";
    kind.revision = 1;
    kind.input_count = kind.output_count = kind.parameter_count = 1;
    kind.infer = infer;
    kind.devices[COH_DEVICE_HOST].forward = forward;

    coh_chain_link links[2] = { coh_chain_link(), coh_chain_link() };
    for (coh_chain_link &link : links) {
        link.struct_bytes = sizeof(link);
        link.kind = &kind;
    }
    coh_graph *graph = nullptr;
    coh_tensor input, output;
    coh_parameter again = COH_PARAMETER_NEW;
    coh_shape shape = coh_shape();
    shape.dtype = COH_DTYPE_F32;
    shape.rank = 2;
    shape.dim[0] = 2;
    shape.dim[1] = 3;
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = coh_graph_input(graph, "x", &shape, &input);
    if (status == COH_OK)
        status = coh_graph_chain(graph, input, links, 2, &output);
    if (status == COH_OK)
        status = coh_graph_parameter_find(graph, "0.gate.gate", &again);
    coh_graph_destroy(graph);
    return again.index == 0 ? status : COH_ERR_INTERNAL;
}

} // namespace

int main()
{
    const coh_status status = run();
    if (status != COH_OK)
        std::fprintf(stderr, "%s: %s\n", coh_status_name(status), coh_last_error());
    return status != COH_OK;
}
