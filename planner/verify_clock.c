/* Checks that every wait points to an earlier instruction (rule DEADLOCK), and computes what
 * each instruction knows to have retired when it starts. The idea: a vector clock per
 * instruction, with one number per lane. verify_bytes.c uses the clocks; the numbering is in
 * verify_state.h. */
#include <inttypes.h>
#include <string.h>

#include "planner/verify_state.h"

/* ---- DEADLOCK ---- */

/* Returns 1 if an instruction issued before instruction `index` of the same run satisfies
 * `wait`. */
static int points_back(const coh_verifier *v, uint32_t index, const coh_wait *wait)
{
    return v->lane_instructions[v->lane_first[wait->lane] + wait->ordinal - 1] < index;
}

coh_status coh_verify_issue(coh_verifier *v)
{
    const coh_program *program = v->program;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->ordinal != v->ordinals[i])
            COH_TRY(coh_verify_breach(v, COH_RULE_DEADLOCK, i, UINT32_MAX,
                                      "it is number %" PRIu32 " of its lane and says %" PRIu32,
                                      v->ordinals[i], instruction->ordinal));
        for (uint32_t w = 0; w < instruction->wait_count; w++) {
            const coh_wait *wait = &program->waits[instruction->wait_begin + w];
            const char *lane = coh_lane_name((coh_lane)wait->lane);
            if (wait->ordinal == 0 || wait->ordinal > v->lane_length[wait->lane])
                COH_TRY(coh_verify_breach(v, COH_RULE_DEADLOCK, i, UINT32_MAX,
                                          "it waits for instruction %" PRIu32
                                          " of the lane %s, which has "
                                          "%" PRIu32,
                                          wait->ordinal, lane, v->lane_length[wait->lane]));
            else if (wait->carry ? program->kind != COH_PROGRAM_BODY : !points_back(v, i, wait))
                COH_TRY(coh_verify_breach(
                    v, COH_RULE_DEADLOCK, i, UINT32_MAX,
                    "it waits for instruction %" PRIu32 " of the lane %s, which %s", wait->ordinal,
                    lane,
                    wait->carry ? "no run of this kind came before" : "is issued no earlier"));
        }
    }
    return COH_OK;
}

/* ---- clocks ---- */

static void join(uint32_t *clock, const uint32_t *other)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (other[lane] > clock[lane])
            clock[lane] = other[lane];
}

/* Joins the knowledge that lane `lane` has retired its instruction `number`. Instructions of a
 * lane start in order, so the knowledge of instruction `number` at its start includes that of
 * all earlier instructions. */
static void join_retired(coh_verifier *v, uint32_t *clock, int lane, uint32_t number)
{
    uint32_t run = (number - 1) / v->lane_length[lane];
    uint32_t instruction =
        v->lane_instructions[v->lane_first[lane] + (number - 1) % v->lane_length[lane]];
    join(clock, coh_instruction_clock(v, run, instruction));
    if (number > clock[lane])
        clock[lane] = number;
}

static void clock_of_instruction(coh_verifier *v, uint32_t run, uint32_t index, uint32_t *clock)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    uint32_t number = run * v->lane_length[instruction->lane] + v->ordinals[index];
    uint32_t depth = v->program->lane_depth[instruction->lane];
    if (number > 1) { /* the preceding instruction was issued: its waits were satisfied */
        uint32_t last = number - 1;
        uint32_t last_instruction =
            v->lane_instructions[v->lane_first[instruction->lane] +
                                 (last - 1) % v->lane_length[instruction->lane]];
        join(clock, coh_instruction_clock(v, (last - 1) / v->lane_length[instruction->lane],
                                          last_instruction));
    }
    if (depth > 0 && number > depth && number - depth > clock[instruction->lane])
        clock[instruction->lane] =
            number - depth; /* what it knew is known from the preceding one */
    for (uint32_t w = 0; w < instruction->wait_count; w++) {
        const coh_wait *wait = &v->program->waits[instruction->wait_begin + w];
        if (wait->ordinal == 0 || wait->ordinal > v->lane_length[wait->lane] ||
            (wait->carry ? run == 0 : !points_back(v, index, wait)))
            continue; /* a first run begins with nothing in flight; other cases broke DEADLOCK */
        join_retired(v, clock, wait->lane,
                     (run - (wait->carry ? 1 : 0)) * v->lane_length[wait->lane] + wait->ordinal);
    }
}

void coh_verify_clocks(coh_verifier *v, uint32_t run)
{
    const size_t count = v->program->instruction_count, first = run % COH_CLOCK_RUNS * count;
    memset(&v->clocks[first * COH_LANE_COUNT], 0, count * COH_LANE_COUNT * sizeof(*v->clocks));
    for (uint32_t i = 0; i < count; i++)
        clock_of_instruction(v, run, i, &v->clocks[(first + i) * COH_LANE_COUNT]);
}
