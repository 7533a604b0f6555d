/* poison_run.h - run a program line by line on symbols instead of numbers, and see what comes out.
 *
 * Arenas and file are cut at every offset that any operand or extent names. Each piece holds a
 * symbol: a hash of all that was computed into it, or poison where an extent was entered or left.
 * Bytes are owned by the extent that entered them. Nothing is shared with the verifier: it knows
 * lines and versions, this knows bytes and values.
 *
 * Says: did anything go wrong that a run would notice (poison read, bytes of others touched, a
 * chunk found in another version than its line names, books that do not add up), and the hash of
 * what the run leaves behind: all survivors where the next program looks for them, and each thing
 * that was computed, as often as it was (but for RECOMPUTE). Two programs with the
 * same hash did the same. */
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

/* `order`: NULL (issue order), or the line numbers of a run in another legal
 * order, taken in each run. */
void poison_run(const coh_layout *layout, const coh_program *program, uint32_t run_count,
                const uint32_t *order, poison_result *out);

#endif
