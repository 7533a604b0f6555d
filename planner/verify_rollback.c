/* Checks that a body can be taken back (rule ROLLBACK): a second run from the same generations
 * finds everything that the first one read. The idea: a chunk that updates write lies in the
 * working store alone between programs, where its versions take two homes in turn. Version 0 is
 * then safe as long as the body writes no even version there. The list of files is in
 * verify_state.h. */
#include <inttypes.h>

#include "planner/verify_state.h"

static coh_status check_residents(coh_verifier *v)
{
    for (uint32_t i = 0; i < v->layout->resident_count; i++) {
        const coh_resident *resident = &v->layout->residents[i];
        if (coh_chunk_keeps_old(v->layout, resident->chunk))
            COH_TRY(coh_verify_breach(v, COH_RULE_ROLLBACK, COH_NO_INSTRUCTION, resident->chunk,
                                      "it lies in the %s tier between programs, where an update "
                                      "overwrites it",
                                      coh_tier_name((coh_tier)resident->tier)));
    }
    return COH_OK;
}

/* Checks that an instruction leaves version 0 of what it writes to the file. */
static coh_status check_file_writes(coh_verifier *v, uint32_t instruction)
{
    for (uint32_t o = 0; o < v->program->instructions[instruction].operand_count; o++) {
        const coh_operand *operand = &coh_instruction_operands(v, instruction)[o];
        if (operand->tier != COH_TIER_DISK || !(operand->access & COH_ACCESS_WRITE))
            continue;
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const coh_touch *touch = &coh_operand_touches(v, operand)[t];
            if (coh_chunk_keeps_old(v->layout, touch->chunk) && touch->version % 2 == 0)
                COH_TRY(coh_verify_breach(v, COH_RULE_ROLLBACK, instruction, touch->chunk,
                                          "version %" PRId32 " overwrites version 0, which a "
                                          "second run reads",
                                          touch->version));
        }
    }
    return COH_OK;
}

coh_status coh_verify_rollback(coh_verifier *v)
{
    if (!v->layout->keeps_old)
        return COH_OK;
    COH_TRY(check_residents(v));
    for (uint32_t i = 0; v->program->kind == COH_PROGRAM_BODY && i < v->program->instruction_count;
         i++) {
        const coh_instruction *instruction = &v->program->instructions[i];
        if (instruction->opcode == COH_OP_UPDATE && instruction->predicate_cell != COH_CELL_NONE)
            COH_TRY(coh_verify_breach(v, COH_RULE_ROLLBACK, i, UINT32_MAX,
                                      "a second run would make this deferred update again"));
        COH_TRY(check_file_writes(v, i));
    }
    return COH_OK;
}
