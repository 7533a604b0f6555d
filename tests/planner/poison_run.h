/* poison_run.h - run a program instruction by instruction on symbols instead of numbers.
 *
 * The arenas and the file are cut at every offset that an operand or extent names. Each piece holds
 * a symbol: a hash of everything computed into it, or poison where an extent was entered or left.
 * Bytes are owned by the extent that entered them. Nothing is shared with the verifier: the
 * verifier checks instructions and versions, this code checks bytes and values.
 *
 * Reports a fault that a run would notice (poison read, another extent's bytes touched, a chunk
 * in another version than its instruction names, wrong totals). Returns a hash of what the run
 * leaves behind: all survivors where the next program looks for them, and each computed value,
 * as often as it was computed (except by RECOMPUTE). Programs with equal hashes did the same. */
#ifndef COH_TESTS_POISON_RUN_H
#define COH_TESTS_POISON_RUN_H

#include "planner/program.h"

typedef struct poison_result {
    int is_faulty;
    char fault[160];
    uint64_t hash;
    uint64_t wear_bytes; /* written to disk in one run */
    uint64_t peak_bytes[COH_TIER_COUNT];
} poison_result;

/* `order` is NULL (issue order), or the instruction numbers of a run in another legal order,
 * used in each run. */
void poison_run(const coh_layout *layout, const coh_program *program, uint32_t run_count,
                const uint32_t *order, poison_result *out);

#endif
