/* mutations.h - break a valid program in every known way and check that the verifier notices.
 *
 * happens_before.c (is every conflict still ordered?) and poison_run.c (same values, correct
 * totals, within budget?) decide whether a mutation is harmful, never the verifier. The verifier
 * must refuse harmful mutations and accept benign ones. */
#ifndef COH_TESTS_MUTATIONS_H
#define COH_TESTS_MUTATIONS_H

#include "planner/program.h"
#include "planner/verify.h"

typedef enum mutation_kind {
    MUTATE_DROP_WAIT,
    MUTATE_WAIT_ORDINAL,
    MUTATE_WAIT_LANE,
    MUTATE_WAIT_CARRY,
    MUTATE_ADD_WAIT_BACK,
    MUTATE_ADD_WAIT_AHEAD,
    MUTATE_SWAP,
    MUTATE_EXTENT_OFFSET,
    MUTATE_RELOCATE, /* an extent and all operands in it */
    MUTATE_OPERAND_OFFSET,
    MUTATE_OBJECT_OFFSET,
    MUTATE_VERSION,
    MUTATE_MOVER_VERSION,
    MUTATE_USE_COUNT,
    MUTATE_AT_END,
    MUTATE_AT_BEGIN,
    MUTATE_EXTENT_BYTES,
    MUTATE_ACCESS,
    MUTATE_PREDICATE,
    MUTATE_DELETE,   /* ordinals, versions, counts and waits are made consistent again */
    MUTATE_REPEAT,   /* consistent as well */
    MUTATE_RETARGET, /* a RECOMPUTE, or an ADD of replicas, takes another chunk; consistent as
                      * well */
    MUTATE_MICROBATCH,
    MUTATE_OPERATOR,
    MUTATE_ROWS,
    MUTATE_ADDS,
    MUTATE_BINDING,
    MUTATE_TOUCH_EXTENT,
    MUTATE_RESIDENT,
    MUTATE_PEAK,
    MUTATE_BUDGET,
    MUTATE_WEAR,
    MUTATE_LANE,
    MUTATE_DEPTH,
    MUTATE_DTYPE,       /* of a port */
    MUTATE_GROUP_DTYPE, /* of a trained group */
    MUTATE_COMM,        /* of a comm call: its group, part, root or wire */
    MUTATE_LOSE,        /* an instruction loses its cache; the rest is made consistent */
    MUTATE_SPLIT, /* moves the second operand of a visit to a new instruction; the rest is made
                         * consistent */
    MUTATE_KIND_COUNT
} mutation_kind;

typedef struct coh_mutation_report {
    uint32_t total, harmful, benign, caught;
    uint32_t missed;       /* harmful and accepted */
    uint32_t false_alarms; /* benign and refused */
    uint32_t kind_harmful[MUTATE_KIND_COUNT], kind_benign[MUTATE_KIND_COUNT];
    /* Of those that the verifier accepts: with other exchanges between ranks than the original, so
     * that a rank alone with this program would not fit the others; of these, with the original's
     * hash, which is what ranks compare. */
    uint32_t unlike, unnoticed;
    uint32_t rule_caught[COH_RULE_COUNT];
    uint32_t rule_escapes[COH_RULE_COUNT]; /* accepted with only this rule off */
    char first_missed[512], first_false_alarm[1536];
} coh_mutation_report;

/* Runs mutations of a program that is valid under `options`. `most` is 0 for all mutations, else
 * the approximate size of a sample drawn by `seed`. Programs of more than 400 instructions get
 * no DELETE, REPEAT or RETARGET (these derive all waits again). An invalid program is reported
 * as a false alarm. */
coh_mutation_report run_mutations(const coh_layout *layout, const coh_program *program,
                                  const coh_verify_options *options, uint64_t seed, uint32_t most);

void add_report(coh_mutation_report *sum, const coh_mutation_report *report);
void print_report(const char *name, const coh_mutation_report *report);
const char *mutation_name(mutation_kind kind);

#endif
