/* happens_before.h - which lines of an unrolled program are ordered, the slow and plain way.
 *
 * For every line of every run the whole set of lines that have surely retired before it starts, as
 * bits. The verifier keeps one number per lane instead; this shares nothing with it, and with the
 * waits that the planner derives. Line i of run r has the number r * line_count + i. */
#ifndef COH_TESTS_HAPPENS_BEFORE_H
#define COH_TESTS_HAPPENS_BEFORE_H

#include <stddef.h>
#include <stdint.h>

#include "planner/program.h"

typedef struct hb_order {
    uint32_t node_count, line_count;
    size_t words;
    uint64_t *before; /* row b: lines retired before b starts */
    uint64_t *upto;   /* row b: b, all of its lane before it, and what all those knew */
} hb_order;

/* 1, or 0 where some wait can never be met by a line issued earlier (then nothing is built). */
int hb_order_build(const coh_program *program, uint32_t run_count, hb_order *out);
void hb_order_free(hb_order *order);

static inline int hb_is_before(const hb_order *order, uint32_t a, uint32_t b)
{
    return (int)((order->before[(size_t)b * order->words + a / 64] >> (a % 64)) & 1);
}

/* Two lines that touch a common byte, one of them writing; a was issued first. */
typedef struct hb_conflict {
    uint32_t a, b;
} hb_conflict;

/* All of them over `run_count` runs, found on the bytes of operands; the caller frees. */
size_t hb_conflicts(const coh_program *program, uint32_t run_count, hb_conflict **out);

/* The first conflict that is not ordered; 0: all are. */
int hb_find_race(const coh_program *program, uint32_t run_count, hb_conflict *out);

#endif
