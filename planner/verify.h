/* verify.h - prove a program before it may run.
 *
 * Happens-before is decided by vector clocks, one number per lane, never by time stamps: a
 * proof holds for any durations. Shares no code with the scheduler: reads only the tables of
 * program.h. */
#ifndef COH_PLANNER_VERIFY_H
#define COH_PLANNER_VERIFY_H

#include "planner/program.h"

/* The rules, numbered as in docs/verifier.md. */
typedef enum coh_rule {
    COH_RULE_FORM = 1, /* opcodes, lanes, tiers of the access matrix, sizes, indices */
    COH_RULE_DEADLOCK, /* issue order is topological: every wait points to an earlier instruction */
    COH_RULE_READ,     /* RAW: each read finds the (chunk, version) it names, written before */
    COH_RULE_OVERWRITE,   /* WAR: every reader happens before the overwrite */
    COH_RULE_WRITE_ORDER, /* WAW */
    /* extents with common bytes have ordered lifetimes; use counts are right */
    COH_RULE_OVERLAP,
    COH_RULE_CAPACITY,     /* highest end <= budget; peak_bytes matches the extents */
    COH_RULE_ALIGNMENT,    /* pages, and inside the arena */
    COH_RULE_LOST_DATA,    /* data that is read later, or survives, is written back before reuse */
    COH_RULE_EXACTLY_ONCE, /* gradient contributions and updates: each once, in order */
    COH_RULE_RECOMPUTE,    /* same inputs, versions and micro-batch as the forward */
    COH_RULE_CLOSURE,      /* end map = boundary map; survivors are whole; may follow itself */
    COH_RULE_COMM,         /* all ranks run one program: the engine compares its hash */
    COH_RULE_WEAR,         /* disk bytes written per run of the program <= limit */
    COH_RULE_CONSISTENT_SAVE, /* everything that a SAVE or HASH reads belongs to one step */
    /* a body that can be taken back leaves what it updates as it was, in the working store */
    COH_RULE_ROLLBACK,
    COH_RULE_COUNT
} coh_rule;

typedef struct coh_verify_options {
    uint64_t budget_bytes[COH_TIER_COUNT]; /* 0 if the tier is absent */
    uint64_t wear_bytes;                   /* 0: no limit */
    uint32_t rules_off;                    /* bit r: rule r is not applied (tests only) */
} coh_verify_options;

typedef struct coh_verify_result {
    coh_rule rule;        /* the first rule broken */
    uint32_t instruction; /* index of the instruction, or UINT32_MAX */
} coh_verify_result;

/* Verifies three runs of a body, or one run of another kind. At the start, residents hold version
 * 0; their copies farther out are stale, unless the chunk is read only (and must then be up to date
 * at the end). Every other chunk of a surviving object is version 0 in the store (or, without a
 * disk, must be a resident of the host tier); the rest is garbage. Fails: COH_ERR_CORRUPT with a
 * message naming rule, instruction, object and versions, also in *out_result (may be NULL).
 * COH_ERR_MEMORY. */
coh_status coh_verify(const coh_layout *layout, const coh_program *program,
                      const coh_verify_options *options, coh_verify_result *out_result);

#endif
