/* fault_model.h - models small enough to be trained thousands of times, and what every test of
 * faults does with them: a plan that streams, a few steps, a hash, an end that leaves nothing, and
 * a watchdog that makes a hang a failure. */
#ifndef COH_TESTS_FAULTS_FAULT_MODEL_H
#define COH_TESTS_FAULTS_FAULT_MODEL_H

#include "cohobate/engine.h"

typedef enum fault_model_size {
    FAULT_TWO_OPERATORS, /* embedding and classifier */
    FAULT_TINY_GPT,      /* two layers, 32 wide, in bf16; the others are f32 */
    FAULT_NANO           /* the preset gpt2-nano */
} fault_model_size;

/* Seed of the parameters, steps of a run. */
enum { FAULT_SEED = 42, FAULT_STEPS = 2 };

/* The training graph for micro-batches of two short sequences. */
coh_status fault_graph(fault_model_size size, coh_graph **out_graph);

/* Options of a plan of two micro-batches: in memory, or streamed through `device_bytes` (0: in
 * memory) with the disk as far tier. */
void fault_plan_options(uint64_t device_bytes, coh_plan_options *out_options);

/* The smallest budget that plans with the disk as far tier. Ends the test when there is none. */
uint64_t fault_smallest_bytes(const coh_graph *graph);

/* Options of an engine on `store` in the folder this test runs in. */
void fault_engine_options(const char *store, coh_engine_options *out_options);

/* The norm that steps clip to; 0 (updates in backward): off. 1 unless set. */
void fault_set_clip(float norm);

/* What step `step` is trained on. The bytes live until the next call. */
coh_step_input fault_step_input(uint64_t step);

/* Steps [from, to), two under way wherever there are two, then the hash. The first failure. */
coh_status fault_train(coh_engine *engine, uint64_t from, uint64_t to, uint64_t *out_hash);

/* A run of FAULT_STEPS from FAULT_SEED on a new engine. *out_engine lives (or is NULL) whatever
 * comes back. */
coh_status fault_run(const coh_plan *plan, const coh_engine_options *options,
                     coh_engine **out_engine, uint64_t *out_hash);

/* Destroys the engine in its own order, and ends the test if the ledger then still holds a byte.
 * Accepts NULL. */
void fault_destroy(coh_engine *engine);

/* From now on: more than `seconds` end the process with a sentence that names `what`. 0: off. */
void fault_watchdog(unsigned seconds, const char *what);

/* One sentence: not empty, one line, no spaces at its ends. Ends the test otherwise. */
void fault_check_sentence(const char *text);

/* A new folder in memory where the machine has one (a flush of a real disk takes milliseconds, and
 * a test makes thousands), else here. `out_path` takes at least 64 bytes. */
void fault_make_folder(char *out_path);

/* Removes a checkpoint or run folder with all that is in it; one that is not there is none. */
void fault_remove_tree(const char *path);

#endif
