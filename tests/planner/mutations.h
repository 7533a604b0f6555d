/* mutations.h - break a valid program in every way we know, and see whether the verifier notices.
 *
 * Whether a mutation does harm is decided by happens_before.c (is every conflict still ordered?)
 * and poison_run.c (does it still leave the same values, with honest books, within its budget?),
 * never by the verifier. A harmful mutation must be refused, a benign one accepted. */
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
    MUTATE_RELOCATE, /* extent and all operands in it */
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
    MUTATE_DELETE,   /* the rest made consistent again: ordinals, versions, counts, waits */
    MUTATE_REPEAT,   /* likewise */
    MUTATE_RETARGET, /* a RECOMPUTE reads another chunk; likewise */
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
    MUTATE_GROUP_DTYPE, /* of a group with states */
    MUTATE_LOSE,        /* a line loses its cache; rest consistent */
    MUTATE_SPLIT,       /* the second operand of a visit in a line of its own; rest consistent */
    MUTATE_KIND_COUNT
} mutation_kind;

typedef struct coh_mutation_report {
    uint32_t total, harmful, benign, caught;
    uint32_t missed;       /* harmful and accepted */
    uint32_t false_alarms; /* benign and refused */
    uint32_t kind_harmful[MUTATE_KIND_COUNT], kind_benign[MUTATE_KIND_COUNT];
    uint32_t rule_caught[COH_RULE_COUNT];
    uint32_t rule_escapes[COH_RULE_COUNT]; /* accepted with this one rule off */
    char first_missed[512], first_false_alarm[1536];
} coh_mutation_report;

/* `options` are those under which the program is valid. `most` 0: all mutations; else a sample of
 * about so many, drawn by `seed`. Programs of more than 400 lines get no DELETE, REPEAT or RETARGET
 * (their waits would have to be made anew). The program must be valid: reported as a
 * false alarm if not. */
coh_mutation_report run_mutations(const coh_layout *layout, const coh_program *program,
                                  const coh_verify_options *options, uint64_t seed, uint32_t most);

void add_report(coh_mutation_report *sum, const coh_mutation_report *report);
void print_report(const char *name, const coh_mutation_report *report);
const char *mutation_name(mutation_kind kind);

#endif
