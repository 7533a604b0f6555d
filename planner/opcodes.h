/* opcodes.h - the instruction set: one row per opcode.
 *
 *   opcodes.def   COH_OPCODE(UPDATE, coh_run_update, .form = ..., .operands = { ... })
 *       |
 *       +-- the enum (program.h), the table below: verifier, pricing, text, calibration
 *       +-- the executor functions (engine/instruction.c)
 *
 * To add an instruction: a row in opcodes.def and its function in engine/. The rules that a row
 * cannot hold are those that relate several instructions (each chunk is updated once, the forward
 * of a backward): planner/verify_once.c, verify_calls.c, verify_shares.c. */
#ifndef COH_PLANNER_OPCODES_H
#define COH_PLANNER_OPCODES_H

#include "planner/program.h"

typedef enum coh_opcode_form {
    COH_FORM_ENGINE, /* the engine's own work on the operands that the row lists */
    COH_FORM_CALL,   /* runs an operator kind, or adds a gradient: has a coh_instruction_call */
    COH_FORM_VISIT,  /* shows chunks to a visitor */
    COH_FORM_COMM,   /* executed by a group of ranks together: has a coh_comm_call */
    COH_FORM_MOVE    /* copies chunks from one tier to another: operands FROM and TO */
} coh_opcode_form;

enum {
    COH_MAY_READ = 1 << COH_ACCESS_READ,
    COH_MAY_WRITE = 1 << COH_ACCESS_WRITE,
    COH_MAY_BOTH = 1 << COH_ACCESS_BOTH
};

/* Places of the operands in their rows. The engine finds an operand by its place
 * (coh_bound_operand). */
enum { COH_SLOT_FEED_CELLS, COH_SLOT_FEED_INPUT };
enum { COH_SLOT_NORM_GRAD, COH_SLOT_NORM_PARTIALS };
enum { COH_SLOT_CLIP_CELLS, COH_SLOT_CLIP_PARTIALS, COH_SLOT_CLIP_LOSS };
enum {
    COH_SLOT_UPDATE_WORK,
    COH_SLOT_UPDATE_GRAD,
    COH_SLOT_UPDATE_STATES,
    COH_SLOT_UPDATE_PARTIALS,
    COH_SLOT_UPDATE_CELLS
};
enum { COH_SLOT_CALL_CELLS };
enum { COH_SLOT_FROM, COH_SLOT_TO };
enum { COH_SLOT_VISIT_WORK, COH_SLOT_VISIT_GRAD, COH_SLOT_VISIT_STATES, COH_SLOT_VISIT_KEPT };
enum { COH_SLOT_SETTLE_CELLS };
enum {
    COH_SLOT_COMM_GRAD,
    COH_SLOT_COMM_WIRE,
    COH_SLOT_COMM_LOSS,
    COH_SLOT_COMM_WORK,
    COH_SLOT_COMM_STATES,
    COH_SLOT_COMM_PARTIALS,
    COH_SLOT_COMM_PART
};

/* One operand of an instruction. Of one with a call only the cells are listed: its other operands
 * follow from the call (planner/verify_form.c). */
typedef struct coh_operand_rule {
    uint8_t role, accesses; /* coh_role; bits COH_MAY_* */
    uint8_t flags;
} coh_operand_rule;

enum {
    COH_OPERAND_REQUIRED = 1,  /* every such instruction has it */
    COH_OPERAND_ONE_CHUNK = 2, /* it has exactly one chunk */
    COH_OPERAND_NOT_ON_HOST = 4
};

enum { COH_OPERAND_RULES = 7 };

/* The rate at which the bytes of an instruction outside the links are priced. */
typedef enum coh_price_rule {
    COH_PRICE_MEMORY,      /* memory bandwidth, or the arithmetic if that takes longer */
    COH_PRICE_HOST_UPDATE, /* the same; on the host lane the measured rate of updates */
    COH_PRICE_DRIVE_READ,  /* the drive, which checkpoints share with the store */
    COH_PRICE_DRIVE_WRITE
} coh_price_rule;

typedef struct coh_opcode_row {
    const char *name; /* "FORWARD" */
    const char *word; /* "forward": in reports and profiles */
    coh_opcode_form form;
    uint16_t lanes;   /* bits of coh_lane */
    uint8_t programs; /* bits of coh_program_kind that may contain it */
    uint32_t writes;  /* bits of coh_stream: streams of parameter groups that it may write */
    uint8_t from_tiers, to_tiers; /* movers: bits of coh_tier */
    uint8_t reads_cells;          /* 1: needs the cells; an operand of it if the row lists CELLS */
    uint8_t once;                 /* 1: at most one in a program */
    uint8_t repeats;              /* 1: does the same in every step, so a device may record it */
    uint8_t sums_norm;            /* 1: with operand PARTIALS it sums squares of a gradient */
    coh_price_rule price;
    /* 1 + the opcode whose calibration factor applies to it; 0: none */
    uint8_t calibrated_as;
    coh_operand_rule operands[COH_OPERAND_RULES];
} coh_opcode_row;

/* By coh_opcode. */
extern const coh_opcode_row coh_opcode_rows[COH_OP_COUNT];

static inline const coh_opcode_row *coh_opcode_row_of(const coh_instruction *instruction)
{
    return &coh_opcode_rows[instruction->opcode];
}

static inline int coh_opcode_moves(uint8_t opcode)
{
    return coh_opcode_rows[opcode].form == COH_FORM_MOVE;
}

static inline int coh_opcode_calls(uint8_t opcode)
{
    return coh_opcode_rows[opcode].form == COH_FORM_CALL;
}

static inline int coh_opcode_communicates(uint8_t opcode)
{
    return coh_opcode_rows[opcode].form == COH_FORM_COMM;
}

/* Returns the rule of an operand of this role; NULL: the row has none. */
static inline const coh_operand_rule *coh_opcode_operand(const coh_opcode_row *row, uint8_t role)
{
    for (int i = 0; i < COH_OPERAND_RULES; i++)
        if (row->operands[i].accesses != 0 && row->operands[i].role == role)
            return &row->operands[i];
    return 0;
}

#endif
