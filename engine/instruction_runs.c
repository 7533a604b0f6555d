/* Cuts the compute lane into runs in two passes: mark the instructions that other lanes wait
 * for, then start a new run after such an instruction and before each instruction that waits.
 * Next: instruction_runs.h; instruction_replay.c uses the runs. */
#include "engine/instruction_runs.h"

#include "base/alloc.h"
#include "planner/opcodes.h"

/* Does the instruction wait for another lane? Instructions of one lane are in order anyway. */
static int waits_for_another(const coh_program *program, const coh_instruction *instruction)
{
    for (uint32_t i = 0; i < instruction->wait_count; i++)
        if (program->waits[instruction->wait_begin + i].lane != instruction->lane)
            return 1;
    return 0;
}

/* awaited[n]: another lane waits for instruction n of the compute lane, in this run or the next. */
static void mark_awaited(const coh_program *program, uint8_t *awaited)
{
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        for (uint32_t w = 0; w < instruction->wait_count && instruction->lane != COH_LANE_COMPUTE;
             w++) {
            const coh_wait *wait = &program->waits[instruction->wait_begin + w];
            if (wait->lane == COH_LANE_COMPUTE)
                awaited[wait->ordinal] = 1;
        }
    }
}

coh_status coh_instruction_runs_find(const coh_program *program, coh_instruction_run **out_runs,
                                     uint32_t *out_count)
{
    const uint32_t length = program->lane_length[COH_LANE_COMPUTE];
    uint8_t *awaited = NULL;
    coh_instruction_run *runs = NULL;
    uint32_t count = 0;
    int is_open = 0;
    *out_runs = NULL;
    *out_count = 0;
    COH_TRY(COH_ALLOC(length + 1, &awaited));
    const coh_status status = COH_ALLOC(length, &runs);
    mark_awaited(program, awaited);
    for (uint32_t i = 0; status == COH_OK && i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->lane != COH_LANE_COMPUTE)
            continue;
        const int is_one = coh_opcode_row_of(instruction)->repeats;
        if (is_one && (!is_open || waits_for_another(program, instruction)))
            runs[count++] = (coh_instruction_run){ .first = instruction->ordinal };
        if (is_one)
            runs[count - 1].count++;
        is_open = is_one && !awaited[instruction->ordinal];
    }
    coh_free(awaited);
    *out_runs = runs;
    *out_count = count;
    return status;
}
