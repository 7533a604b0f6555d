/* Summarises a plan: sums over its tables and nothing else. Public interface: cohobate/plan.h. */
#include "base/struct_bytes.h"
#include "planner/plan.h"

static void count_parameters(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_layout *layout = &plan->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        out->parameter_count += parameter->elements;
        out->parameter_bytes +=
            parameter->elements * coh_dtype_bytes(layout->groups[parameter->group].dtype);
    }
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        if (object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_GRAD ||
            object->stream == COH_STREAM_STATE)
            out->stream_bytes += object->bytes;
    }
}

/* Counts the bytes over the outermost link of a body by their stream. */
static void count_link_bytes(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int with_disk = plan->layout.file_bytes > 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        int crosses =
            with_disk ? instruction->opcode == COH_OP_READ || instruction->opcode == COH_OP_WRITE
                      : instruction->opcode == COH_OP_LOAD || instruction->opcode == COH_OP_STORE;
        if (!crosses)
            continue;
        int32_t object = body->operands[instruction->operand_begin].object;
        switch ((coh_stream)plan->layout.objects[object].stream) {
        case COH_STREAM_WORK:
            out->work_link_bytes += instruction->bytes;
            break;
        case COH_STREAM_GRAD:
            out->grad_link_bytes += instruction->bytes;
            break;
        case COH_STREAM_STATE:
            out->state_link_bytes += instruction->bytes;
            break;
        case COH_STREAM_ACTIVATION:
        case COH_STREAM_ACTIVATION_GRAD:
        case COH_STREAM_SAVED:
        case COH_STREAM_CACHE:
        case COH_STREAM_SCRATCH:
        case COH_STREAM_KEPT:
        case COH_STREAM_CELLS:
        case COH_STREAM_PARTIALS:
        case COH_STREAM_INPUT:
        case COH_STREAM_LOSS:
        case COH_STREAM_OUTPUT:
        case COH_STREAM_COUNT:
            out->other_link_bytes += instruction->bytes;
            break;
        }
        if (instruction->opcode == COH_OP_WRITE)
            out->disk_bytes_written += (double)instruction->bytes;
    }
}

static void count_host_updates(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++)
        if (body->instructions[i].opcode == COH_OP_UPDATE &&
            body->instructions[i].lane == COH_LANE_HOST)
            out->host_update_bytes += body->operands[body->instructions[i].operand_begin].bytes;
}

static void count_calls(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int64_t passes = 0;
    int32_t previous = -1;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_FORWARD)
            continue;
        const coh_instruction_call *call = &body->calls[instruction->call];
        for (uint32_t o = 0; o < instruction->operand_count; o++)
            out->caches += body->operands[instruction->operand_begin + o].role == COH_ROLE_CACHE &&
                           call->microbatch == 0 && call->row_begin == 0;
        passes = call->operator_index == previous ? passes + 1 : 1;
        previous = call->operator_index;
        if (passes > out->row_passes)
            out->row_passes = (int32_t)passes;
    }
    out->recomputes = coh_block_set_count(&plan->decisions.recompute);
}

/* Sums the times of all instructions of an opcode, each priced alone as in the compute bound. */
static uint64_t alone_ns(const coh_plan *plan, coh_opcode opcode)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    double ns = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++)
        if (body->instructions[i].opcode == opcode)
            ns += coh_price_instruction(&plan->pricer, &plan->layout, body, &body->instructions[i])
                      .p50;
    return coh_whole_ns(ns);
}

coh_status coh_plan_summarize(const coh_plan *plan, coh_plan_summary *out_summary)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_plan_summary, out_summary);
    const coh_simulation *body = &plan->simulations[COH_PROGRAM_BODY];
    coh_plan_summary s = { .smallest_device_bytes = plan->smallest_device_bytes,
                           .smallest_is_proven = plan->smallest_is_proven,
                           .step_ns = body->period_ns,
                           .bound_ns = plan->bounds.most_ns,
                           .binding = plan->bounds.binding,
                           .runner_up = plan->bounds.runner_up,
                           .step_alone_ns = plan->forecast.alone_ns,
                           .step_contended_ns = plan->forecast.contended_ns,
                           .step_p10_ns = plan->forecast.p10_ns,
                           .step_p50_ns = plan->forecast.p50_ns,
                           .step_p90_ns = plan->forecast.p90_ns,
                           .drain_ns = plan->simulations[COH_PROGRAM_DRAIN].first_ns,
                           .save_ns = plan->simulations[COH_PROGRAM_SAVE].first_ns,
                           .evaluate_ns = plan->simulations[COH_PROGRAM_EVALUATE].first_ns,
                           .instruction_count = plan->programs[COH_PROGRAM_BODY].instruction_count,
                           .numeric_fingerprint = plan->numeric_fingerprint,
                           .program_hash = plan->program_hash,
                           .sweep_order = plan->options.sweep_order,
                           .disk_limit_bytes = plan->options.disk_bytes,
                           .chunk_bytes = plan->decisions.chunk_bytes };
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        s.peak_bytes[tier] = plan->layout.arena_bytes[tier];
    for (int bound = 0; bound < COH_PLAN_BOUND_COUNT; bound++)
        s.bounds_ns[bound] = plan->bounds.ns[bound];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        s.least_link_bytes[lane] = plan->bounds.least_bytes[lane];
        s.busy_ns[lane] = body->busy_ns[lane];
        s.exposed_ns[lane] = body->exposed_ns[lane];
        s.link_bytes[lane] = body->link_bytes[lane];
    }
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        s.program_count += plan->programs[kind].instruction_count > 0;
        s.verified_instructions += (int32_t)plan->programs[kind].instruction_count;
    }
    count_parameters(plan, &s);
    count_link_bytes(plan, &s);
    count_calls(plan, &s);
    count_host_updates(plan, &s);
    s.forward_ns = alone_ns(plan, COH_OP_FORWARD);
    s.recompute_ns = alone_ns(plan, COH_OP_RECOMPUTE);
    COH_STRUCT_FILL(s, out_summary);
    return COH_OK;
}

const coh_profile *coh_plan_profile(const coh_plan *plan)
{
    if (plan == NULL)
        return NULL;
    return &plan->profile;
}

coh_status coh_plan_memory_curve(const coh_plan *plan, int32_t count, uint64_t *out_bytes)
{
    COH_NEED(plan);
    COH_NEED(out_bytes);
    if (count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "a memory curve of %d points: it has at least one",
                        count);
    return coh_forecast_memory(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                               (uint32_t)count, out_bytes);
}
