/* The table of the instruction set, from its rows. Next: opcodes.h. */
#include "planner/opcodes.h"

#define COH_OPCODE(name_, run, ...) [COH_OP_##name_] = { .name = #name_, __VA_ARGS__ },
const coh_opcode_row coh_opcode_rows[COH_OP_COUNT] = {
#include "planner/opcodes.def"
};
#undef COH_OPCODE
