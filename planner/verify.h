/* verify.h - prove a program before it may run.
 *
 * Happens-before by vector clocks, one number per lane, never by time stamps: what holds here holds
 * for any durations. Shares no code with the scheduler: it reads only the tables of program.h. */
#ifndef COH_PLANNER_VERIFY_H
#define COH_PLANNER_VERIFY_H

#include "planner/program.h"

/* The rules, numbered as in docs/verifier.md. */
typedef enum coh_rule {
    COH_RULE_FORM = 1,     /* opcodes, lanes, tiers of the access matrix, sizes, indices */
    COH_RULE_DEADLOCK,     /* issue order is topological: every wait points to an earlier line */
    COH_RULE_READ,         /* RAW: each read finds the (chunk, version) it names, written before */
    COH_RULE_OVERWRITE,    /* WAR: every reader happens before the overwrite */
    COH_RULE_WRITE_ORDER,  /* WAW */
    COH_RULE_OVERLAP,      /* extents with common bytes have ordered lifetimes; use counts true */
    COH_RULE_CAPACITY,     /* highest end <= budget, and peak_bytes is what the extents say */
    COH_RULE_ALIGNMENT,    /* pages, and inside the arena */
    COH_RULE_LOST_DATA,    /* what is read later, or survives, is written back before reuse */
    COH_RULE_EXACTLY_ONCE, /* gradient contributions and updates: each once, in order */
    COH_RULE_RECOMPUTE,    /* same inputs, versions and microbatch as the forward */
    COH_RULE_CLOSURE,      /* end map = boundary map; survivors whole; may follow itself */
    COH_RULE_COMM,         /* several ranks: not yet built */
    COH_RULE_WEAR,         /* disk bytes written per run of the program <= limit */
    COH_RULE_CONSISTENT_SAVE, /* all that a SAVE or HASH reads is of one step */
    COH_RULE_COUNT
} coh_rule;

typedef struct coh_verify_options {
    uint64_t budget_bytes[COH_TIER_COUNT]; /* 0 where the tier is absent */
    uint64_t wear_bytes;                   /* 0: no limit */
    uint32_t rules_off;                    /* bit r: rule r is not applied (tests only) */
} coh_verify_options;

typedef struct coh_verify_result {
    coh_rule rule; /* the first rule broken */
    uint32_t line; /* index of the line, or UINT32_MAX */
} coh_verify_result;

/* Three runs of a body, one of another kind, starting from: residents hold version 0, their copies
 * farther out are stale unless the chunk is read only (and must then be up to date at the end);
 * every other chunk of a surviving object is version 0 in the store (or, without a disk, must be a
 * resident of the host tier); the rest is garbage. Fails: COH_ERR_CORRUPT with a sentence naming
 * rule, line, object and versions; *out_result (may be NULL) says which. COH_ERR_MEMORY. */
coh_status coh_verify(const coh_layout *layout, const coh_program *program,
                      const coh_verify_options *options, coh_verify_result *out_result);

#endif
