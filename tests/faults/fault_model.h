/* fault_model.h - models small enough to be trained thousands of times, and common steps of all
 * fault tests: a plan that streams, a few steps, a hash, a cleanup that checks for leaks, and a
 * watchdog that turns a hang into a failure. */
#ifndef COH_TESTS_FAULTS_FAULT_MODEL_H
#define COH_TESTS_FAULTS_FAULT_MODEL_H

#include "cohobate/engine.h"
#include "offload/store.h"

typedef enum fault_model_size {
    FAULT_TWO_OPERATORS, /* embedding and classifier */
    FAULT_FROZEN,        /* the same, and the embedding is frozen */
    FAULT_TINY_GPT,      /* two layers of width 32, in bf16; the others are f32 */
    FAULT_NANO           /* the preset gpt2-nano */
} fault_model_size;

/* Seed of the parameters, number of steps of a run. */
enum { FAULT_SEED = 42, FAULT_STEPS = 2 };

/* Makes the training graph for micro-batches of two short sequences. */
coh_status fault_graph(fault_model_size size, coh_graph **out_graph);

/* Sets options of a plan of two micro-batches: in memory, or streamed through `device_bytes` (0: in
 * memory) with the disk as far tier. */
void fault_plan_options(uint64_t device_bytes, coh_plan_options *out_options);

/* Returns the smallest budget of a plan with the disk as far tier. Ends the test if there is
 * none. */
uint64_t fault_smallest_bytes(const coh_graph *graph);

/* Sets options of an engine on `store`, in the test's current folder. */
void fault_engine_options(const char *store, coh_engine_options *out_options);

/* Sets the norm that steps clip to; 0: off, with updates in backward. Default 1. */
void fault_set_clip(float norm);

/* Sets the store of fault_run. Default NULL: the one that the options name. */
void fault_set_store(const coh_store_ops *store);

/* Returns the inputs of step `step`. The bytes are valid until the next call. */
coh_step_input fault_step_input(uint64_t step);

/* Runs steps [from, to), two in flight where possible, then the hash. Returns the first failure. */
coh_status fault_train(coh_engine *engine, uint64_t from, uint64_t to, uint64_t *out_hash);

/* Runs FAULT_STEPS from FAULT_SEED on a new engine. *out_engine is valid or NULL, whatever the
 * status. */
coh_status fault_run(const coh_plan *plan, const coh_engine_options *options,
                     coh_engine **out_engine, uint64_t *out_hash);

/* Destroys the step, ends the test if the ledger still holds a byte, then destroys the engine.
 * Accepts NULL. */
void fault_destroy(coh_engine *engine);

/* Ends the process after `seconds` with a message that names `what`. 0: off. */
void fault_watchdog(unsigned seconds, const char *what);

/* Checks for one message: not empty, one line, no spaces at its ends. Ends the test otherwise. */
void fault_check_sentence(const char *text);

/* Makes a new folder, in memory if the machine can: a test makes thousands of files. */
void fault_make_folder(char *out_path, size_t path_bytes);

#endif
