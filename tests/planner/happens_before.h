/* happens_before.h - a slow and simple check of which instructions of an unrolled program are
 * ordered.
 *
 * For each instruction of each run, a bit set holds all instructions that must have retired
 * before it starts. The verifier keeps one number per lane instead. This code shares nothing
 * with the verifier or with the planner's derivation of waits. Instruction i of run r has the
 * number r * instruction_count + i. */
#ifndef COH_TESTS_HAPPENS_BEFORE_H
#define COH_TESTS_HAPPENS_BEFORE_H

#include <stddef.h>
#include <stdint.h>

#include "planner/program.h"

typedef struct hb_order {
    uint32_t node_count, instruction_count;
    size_t words;
    uint64_t *before; /* row b: instructions retired before b starts */
    uint64_t
        *upto; /* row b: b, all earlier instructions of its lane, and everything before those */
} hb_order;

/* Returns 1, or 0 if a wait names no instruction issued earlier (then nothing is built). */
int hb_order_build(const coh_program *program, uint32_t run_count, hb_order *out);
void hb_order_free(hb_order *order);

static inline int hb_is_before(const hb_order *order, uint32_t a, uint32_t b)
{
    return (int)((order->before[(size_t)b * order->words + a / 64] >> (a % 64)) & 1);
}

/* Two instructions that touch a common byte, one of them writing; a was issued first. */
typedef struct hb_conflict {
    uint32_t a, b;
} hb_conflict;

/* Finds all conflicts over `run_count` runs by comparing operand bytes; the caller frees *out. */
size_t hb_conflicts(const coh_program *program, uint32_t run_count, hb_conflict **out);

/* Finds the first conflict that is not ordered. Returns 0 if all are ordered. */
int hb_find_race(const coh_program *program, uint32_t run_count, hb_conflict *out);

#endif
