/* lower.h - write the instructions of a program that compute or communicate: what is done, in which
 * order, on which objects, and on which lane: the device's, the host's for updates of parameters
 * stored there, or a lane between ranks.
 *
 * Lowering knows no addresses, tiers or budgets. A lowered operand is an object, the chunks it
 * touches, and the window of chunks that must be contiguous. The next stage (residency.h) places
 * every window and adds the movers. */
#ifndef COH_PLANNER_LOWER_H
#define COH_PLANNER_LOWER_H

#include "planner/layout.h"

/* Chunk numbers count from the object's first chunk; ends are exclusive. */
typedef struct coh_lowered_operand {
    int32_t object;
    uint32_t touch_begin, touch_end;
    uint32_t window_begin, window_end; /* covers the touched chunks */
    uint8_t access, role;
    /* 1: used in the next tier out, by an instruction of the host lane. There its chunks are
     * placed one by one; a copy in this tier is stale after the instruction has written. */
    uint8_t is_far;
    /* 1 + index, in its instruction, of the operand in whose memory it is written (in place): what
     * that one reads, nothing reads afterwards. 0: none */
    uint8_t takes;
} coh_lowered_operand;

typedef struct coh_lowered_instruction {
    coh_opcode opcode;
    coh_lane lane; /* HOST: all its operands are far */
    int8_t predicate_cell;
    uint32_t operand_begin, operand_count;
    int32_t call;
    uint32_t comm; /* 1 + index in `comms`; 0: none */
    double flops;
    uint64_t bytes;
} coh_lowered_instruction;

/* The compute instructions of one program. calls and bindings go into the program unchanged; the
 * `operand` of a binding is the index of an operand of its instruction. */
typedef struct coh_lowered {
    coh_program_kind kind;
    coh_lowered_instruction *instructions;
    size_t instruction_count, instruction_capacity;
    coh_lowered_operand *operands;
    size_t operand_count, operand_capacity;
    coh_instruction_call *calls;
    size_t call_count, call_capacity;
    coh_binding *bindings;
    size_t binding_count, binding_capacity;
    coh_comm_call *comms;
    size_t comm_count, comm_capacity;
} coh_lowered;

/* Returns the operator of instruction `index`, -1: none. */
static inline int32_t coh_lowered_operator(const coh_lowered *lowered, uint32_t index)
{
    const int32_t call = lowered->instructions[index].call;
    return call >= 0 ? lowered->calls[call].operator_index : -1;
}

/* Returns 1 if the host lane updates the parameters of operator `op`, unless one before it uses
 * them, too. */
int coh_lower_is_on_host(const coh_graph *graph, size_t op, int32_t host_updates);

/* Lowers one kind of program; a kind that the mode does not have gives no instructions.
 * `recompute`: the blocks recomputed in backward, numbered by blocks_before. `host_updates`:
 * coh_decisions. Fails: COH_ERR_MEMORY. */
coh_status coh_lower(const coh_graph *graph, const coh_plan_options *options,
                     const coh_layout *layout, const coh_object_map *map,
                     const coh_block_set *recompute, int32_t host_updates, coh_program_kind kind,
                     coh_lowered *out_lowered);
/* Puts the instructions, with their operands and groups of ranks, into another order: of the i-th
 * instruction `order[i]` is the present index. Fails: COH_ERR_MEMORY; nothing has then changed. */
coh_status coh_lowered_reorder(const uint32_t *order, coh_lowered *lowered);
void coh_lowered_fini(coh_lowered *lowered); /* accepts a zeroed struct */

#endif
