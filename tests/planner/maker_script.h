/* maker_script.h - the interface between the two halves of the program maker: a script lists the
 * computations and names no addresses. */
#ifndef COH_TESTS_MAKER_SCRIPT_H
#define COH_TESTS_MAKER_SCRIPT_H

#include "tests/planner/program_maker.h"

#define MAKER_PAGE ((uint64_t)4096)

enum { WISH_MOST = 10, SCRIPT_MOST = 160 };

/* Chunks [first, first + count) of an object, contiguous in the device tier. */
typedef struct maker_wish {
    int32_t object;
    uint32_t first, count;
    uint8_t access, role;
} maker_wish;

typedef struct script_instruction {
    uint8_t opcode;
    int8_t predicate_cell;
    int has_call;
    coh_instruction_call call;
    maker_wish wishes[WISH_MOST];
    int wish_count;
} script_instruction;

typedef struct maker_script {
    script_instruction instructions[SCRIPT_MOST];
    int count;
} maker_script;

/* Chooses addresses and writes the program (maker_stream.c). */
void stream_script(const maker_recipe *recipe, const maker_script *script, made_program *made);

#endif
