/* Builds the smallest program with many instructions, a graph of `instruction_count` operators in
 * sequence, and runs it with an engine like any other. Its time per instruction, with an empty
 * operator, is the overhead of an instruction. Next: instruction_chain.h. */
#include "engine/instruction_chain.h"

#include <stdio.h>

#include "engine/engine_state.h"

enum { ELEMENTS = 16 };

/* Each operator has a parameter, so that its instruction has the usual operands. */
static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *out_facts)
{
    (void)attributes;
    out_facts->output[0] = inputs[0];
    out_facts->parameter[0] = (coh_parameter_facts){ .name = "weight", .shape = inputs[0] };
    return COH_OK;
}

static coh_status create_graph(coh_instruction_chain *chain, uint32_t instruction_count)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { ELEMENTS } };
    coh_tensor tensor;
    COH_TRY(coh_graph_create(&chain->graph));
    COH_TRY(coh_graph_input(chain->graph, "x", &shape, &tensor));
    for (uint32_t i = 0; i < instruction_count; i++) {
        char name[16];
        const coh_op_args args = { .name = name, .inputs = &tensor, .block = -1 };
        coh_tensor output;
        snprintf(name, sizeof(name), "link%u", (unsigned)i);
        COH_TRY(coh_graph_op(chain->graph, &chain->kind, &args, &output, NULL));
        tensor = output;
    }
    return coh_graph_output(chain->graph, tensor);
}

static coh_status create(coh_instruction_chain *chain, uint32_t instruction_count,
                         int32_t thread_count, const coh_engine_device *device,
                         const coh_profile *profile)
{
    coh_plan_options plan_options;
    coh_engine_options options;
    COH_TRY(create_graph(chain, instruction_count));
    coh_plan_options_init(&plan_options);
    plan_options.mode = COH_PLAN_INFER;
    plan_options.thread_count = thread_count;
    plan_options.profile = profile;
    COH_TRY(coh_plan_create(chain->graph, &plan_options, &chain->plan));
    coh_engine_options_init(&options);
    options.thread_count = thread_count;
    COH_TRY(device != NULL ? coh_engine_create_on(chain->plan, &options, device, &chain->engine)
                           : coh_engine_create(chain->plan, &options, &chain->engine));
    return coh_engine_init(chain->engine, 1);
}

coh_status coh_instruction_chain_create(coh_status (*forward)(const coh_call *call),
                                        uint32_t instruction_count, int32_t thread_count,
                                        const coh_engine_device *device, const coh_profile *profile,
                                        coh_instruction_chain *out_chain)
{
    *out_chain = (coh_instruction_chain){
        .kind = { .struct_bytes = sizeof(coh_op_kind),
                  .abi_version = COH_KIND_ABI,
                  .name = "measure.link",
                  .revision = 1,
                  .input_count = 1,
                  .output_count = 1,
                  .parameter_count = 1,
                  .infer = infer,
                  .devices = { [COH_DEVICE_HOST] = { .forward = forward },
                               [COH_DEVICE_CUDA] = { .forward = forward } } }
    };
    coh_status status = create(out_chain, instruction_count, thread_count, device, profile);
    if (status != COH_OK)
        coh_instruction_chain_fini(out_chain);
    return status;
}

coh_status coh_instruction_chain_run(coh_instruction_chain *chain)
{
    static const float values[ELEMENTS];
    const coh_step_input input = { .struct_bytes = sizeof(input), .inputs = { values } };
    return coh_engine_evaluate(chain->engine, &input, NULL);
}

void coh_instruction_chain_fini(coh_instruction_chain *chain)
{
    coh_engine_destroy(chain->engine);
    coh_plan_destroy(chain->plan);
    coh_graph_destroy(chain->graph);
    *chain = (coh_instruction_chain){ 0 };
}
