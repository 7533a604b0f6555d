/* engine_trial.h - a small GPT-2 trained for some steps, on the host device and on the stub
 * driver's GPU, for bitwise comparison.
 *
 * The one idea: training is the same for every plan, and an outcome holds everything that may not
 * differ by a bit. */
#ifndef COH_TESTS_CUDA_ENGINE_TRIAL_H
#define COH_TESTS_CUDA_ENGINE_TRIAL_H

#include "cohobate/models.h"
#include "cohobate/profile.h"
#include "engine/engine_state.h"
#include "planner/plan.h"

enum {
    TRIAL_STEPS = 3,
    TRIAL_SEQUENCES = 2,
    TRIAL_TOKENS = 16,
    TRIAL_MICROBATCHES = 2,
    TRIAL_IDS = TRIAL_MICROBATCHES * TRIAL_SEQUENCES * TRIAL_TOKENS
};
#define TRIAL_GPU_BYTES ((uint64_t)2 << 30)
#define TRIAL_MANY      UINT64_MAX

typedef struct trial_outcome {
    coh_step_result steps[TRIAL_STEPS];
    double loss_after; /* loss of an evaluation */
    uint64_t hash;
    uint64_t live_before, live_after, live_peak; /* bytes in use on the device */
} trial_outcome;

/* Options that may not change a bit. */
typedef struct trial_placement {
    const char *name;
    int device_percent; /* percent of the in-memory bytes; 0: no limit */
    uint64_t disk_bytes;
    int poison;
    int deferred;
    int microbatches; /* 0: TRIAL_MICROBATCHES, else fewer */
    int f32_gradients;
    int host_percent; /* without a disk: percent of the in-memory bytes; 0: more than enough */
    int searches;     /* 1: as usual in a short run, too, if no sanitizer looks */
} trial_placement;

/* The host device, and the stub's GPU with the host's kernels (host_twins.h). */
extern const coh_engine_device trial_host, trial_gpu;

coh_graph *trial_graph(coh_dtype dtype, int layers);
/* Makes a plan; `profile` NULL: in memory, for the host device. Fails the running test if there is
 * no plan. */
coh_plan *trial_plan(const coh_graph *graph, const coh_profile *profile, const trial_placement *p);

/* The inputs of a step; `ids` stores them and must outlive them. */
typedef struct trial_ids {
    int32_t tokens[TRIAL_IDS], targets[TRIAL_IDS];
} trial_ids;
coh_step_input trial_input(const coh_plan *plan, uint64_t step, trial_ids *ids);

/* Runs all steps, an evaluation and the hash on an engine that has parameters. */
void trial_run_steps(coh_engine *engine, trial_outcome *out);
/* Makes an engine, runs it, and destroys it. */
void trial_run(const coh_plan *plan, const trial_placement *p, const coh_engine_device *device,
               trial_outcome *out);
void trial_check_equal(const trial_placement *p, const trial_outcome *a, const trial_outcome *b);

#endif
