/* Prints a plan's programs as text, one instruction per line, for people and diffs. */
#include <inttypes.h>

#include "base/file_text.h"
#include "planner/plan.h"

coh_status coh_plan_write_program(const coh_plan *plan, const char *path)
{
    COH_NEED(plan);
    COH_NEED(path);
    coh_text text = { 0 };
    coh_status status = COH_OK;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT && status == COH_OK; kind++) {
        const coh_program *p = &plan->programs[kind];
        if (p->instruction_count > 0)
            status =
                coh_text_add(&text, "program %s: %u instructions\n",
                             coh_program_kind_name((coh_program_kind)kind), p->instruction_count);
        for (uint32_t i = 0; i < p->instruction_count && status == COH_OK; i++) {
            const coh_instruction *instruction = &p->instructions[i];
            COH_TRY_GOTO(status,
                         coh_text_add(&text, "%7s %-6u at %-6u %-9s",
                                      coh_lane_name((coh_lane)instruction->lane),
                                      instruction->ordinal, instruction->position,
                                      coh_opcode_name((coh_opcode)instruction->opcode)),
                         done);
            if (instruction->call >= 0 && p->calls[instruction->call].operator_index >= 0)
                COH_TRY_GOTO(
                    status,
                    coh_text_add(&text, " %s/%d",
                                 plan->graph->ops[p->calls[instruction->call].operator_index].name,
                                 p->calls[instruction->call].microbatch),
                    done);
            for (uint32_t k = 0; k < instruction->operand_count; k++) {
                const coh_operand *o = &p->operands[instruction->operand_begin + k];
                COH_TRY_GOTO(
                    status,
                    coh_text_add(
                        &text, " %c%s:%d+%" PRIu64 "@%s+%" PRIu64 ":%" PRIu64 " v%d",
                        "-rwb"[o->access],
                        coh_stream_name((coh_stream)plan->layout.objects[o->object].stream),
                        o -> object, o -> object_offset, coh_tier_name((coh_tier)o->tier),
                        o -> offset, o -> bytes, p -> touches[o->touch_begin].version),
                    done);
            }
            for (uint32_t k = 0; k < instruction->wait_count; k++) {
                const coh_wait *wait = &p->waits[instruction->wait_begin + k];
                COH_TRY_GOTO(status,
                             coh_text_add(&text, " wait:%s>=%u%s",
                                          coh_lane_name((coh_lane)wait->lane), wait->ordinal,
                                          wait->carry ? "'" : ""),
                             done);
            }
            status = coh_text_add(&text, "\n");
        }
    }
    if (status == COH_OK)
        status = coh_file_write_whole(path, text.data, text.bytes);
done:
    coh_text_fini(&text);
    return status;
}
