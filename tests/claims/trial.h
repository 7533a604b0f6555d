/* trial.h - one training run of a model under one placement, and everything of it that may not
 * depend on the placement.
 *
 *     subject     which model, on how many tokens           one graph
 *     numbers     micro-batches, clipping, ...              one numeric plan: one set of bits
 *     placement   budgets, tiers, chunks, threads, ...      must not change a bit
 *
 * Failures of planner or engine end the test with their sentence. Working stores go into the
 * current folder. Threads: one trial at a time, on the test's thread. */
#ifndef COH_TESTS_CLAIMS_TRIAL_H
#define COH_TESTS_CLAIMS_TRIAL_H

#include "cohobate/engine.h"
#include "cohobate/models.h"

enum { TRIAL_STEPS_MOST = 8, TRIAL_PERCENT_SMALLEST = -1 };

typedef struct trial_subject {
    const coh_model *model;                /* its dtype is ignored; or NULL: a GPT-2 */
    const char *preset;                    /* NULL: `config` is given, whose dtype is ignored */
    int64_t vocabulary, sequences, tokens; /* of a micro-batch */
    coh_dtype dtype;
    coh_gpt2_config config;
    int32_t short_layers; /* of a preset in short runs, which are a third as wide; 0: all of it */
    coh_graph *graph;
} trial_subject;

typedef struct trial_numbers {
    const char *name;
    int32_t microbatch_count;
    float clip; /* 0: updates in backward */
    coh_sweep_order order;
    const char *optimizer; /* NULL: the default */
    uint64_t clip_every;   /* 0: every step may be clipped; N: the last of N, no other */
} trial_numbers;

typedef struct trial_placement {
    const char *name;
    int32_t device_percent; /* percent of the in-memory bytes; 0: no limit; or
                             * TRIAL_PERCENT_SMALLEST */
    int32_t host_percent;   /* percent of the in-memory bytes, for an emulated host tier; 0: none */
    int32_t disk;           /* 1: a working store in the current folder */
    uint64_t chunk_bytes;   /* 0: the planner's choice */
    int32_t thread_count;
    coh_recompute recompute;
    uint64_t device_bytes; /* not 0: replaces device_percent */
    int32_t speculates;    /* 1: its decisions, with updates that speculate */
} trial_placement;

/* How the steps are run. Zero: in sequence, undisturbed. */
typedef struct trial_manner {
    int32_t overlapped; /* two bodies in flight, as in `cohobate train` */
    int32_t poison;
    uint64_t delay_seed;
    uint32_t delay_most_us;
    const char *store;   /* NULL: the engine's choice */
    uint32_t disk_count; /* folders of the store, of unequal rates, at most 3; 0: one */
} trial_manner;

typedef struct trial {
    const trial_subject *subject;
    const trial_numbers *numbers;
    const trial_placement *placement;
    trial_manner manner;
    coh_plan *plan;
    coh_engine *engine;
    coh_plan_summary summary;
    uint64_t device_bytes; /* the budget it was planned for */
} trial;

/* Results of a run. `last` is the last step's result. */
typedef struct trial_outcome {
    uint64_t first_step, step_count;
    double loss[TRIAL_STEPS_MOST], grad_norm[TRIAL_STEPS_MOST];
    uint64_t hash;
    coh_plan_summary summary;
    coh_step_result last;
    uint64_t moved_bytes[COH_LANE_COUNT]; /* over all steps, up to the last one's loss */
    uint64_t twice_count;                 /* steps that ran twice */
} trial_outcome;

/* "f32" or "bf16"; anything else ends the program. */
coh_dtype trial_dtype(const char *name);

/* Builds the graph. */
void trial_subject_open(trial_subject *subject);
void trial_subject_close(trial_subject *subject);

/* Plans; makes no engine yet. */
void trial_plan(trial *t, const trial_subject *subject, const trial_numbers *numbers,
                const trial_placement *placement);
/* Makes the engine, without values: call init or load next. */
void trial_engine(trial *t, const trial_manner *manner);
void trial_init(trial *t); /* from a fixed seed */
/* Makes plan and engine, and runs init. */
void trial_open(trial *t, const trial_subject *subject, const trial_numbers *numbers,
                const trial_placement *placement, const trial_manner *manner);
void trial_close(trial *t);

/* Runs steps [first, first + count); their results go to out->loss[step] and so on. */
void trial_steps(trial *t, uint64_t first, uint64_t count, trial_outcome *out);
/* Returns the inputs of one step: seeded tokens, the same for every placement. Valid until the next
 * call. */
coh_step_input trial_input(const trial *t, uint64_t step);
uint64_t trial_hash(trial *t);

/* Makes an engine, runs init, steps [0, count) and the hash, and destroys the engine; checks that
 * the ledger agrees with the plan to the byte. Keeps the plan. */
void trial_run_plan(trial *t, const trial_manner *manner, uint64_t count, trial_outcome *out);
/* As trial_run_plan, with a new plan. */
void trial_run(const trial_subject *subject, const trial_numbers *numbers,
               const trial_placement *placement, const trial_manner *manner, uint64_t count,
               trial_outcome *out);

/* Compares every loss and norm bit for bit, hash and numeric fingerprint; the message contains
 * `name`. */
void trial_check_equal(const char *name, const trial_outcome *found, const trial_outcome *expected);
/* Checks that the placement's transfers took place, and none in memory; that their bytes are the
 * plan's, except those that a step's loss does not wait for; and that the program is a different
 * one. */
void trial_check_moved(const trial_placement *placement, const trial_outcome *found,
                       const trial_outcome *in_memory);
/* Checks that the ledger equals the plan, to the byte, in every tier. */
void trial_check_peak(const char *name, const trial_outcome *found);

#endif
