/* engine_trial.h - a small GPT-2 trained for some steps, on the host device and on the GPU that the
 * stub driver plays, so that the two can be compared bit for bit.
 *
 * The one idea: what was trained is the same for every plan, and an outcome holds all that may not
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
    double loss_after; /* of an evaluation */
    uint64_t hash;
    uint64_t live_before, live_after, live_peak; /* bytes in use on the device */
} trial_outcome;

/* What may not change a bit. */
typedef struct trial_placement {
    const char *name;
    int device_percent; /* of the in-memory bytes; 0: no limit */
    uint64_t disk_bytes;
    int poison;
    int deferred;
    int microbatches; /* 0: TRIAL_MICROBATCHES, else fewer */
    int f32_gradients;
} trial_placement;

/* The host device, and the stub's GPU with the host's kernels (host_twins.h). */
extern const coh_engine_device trial_host, trial_gpu;

coh_graph *trial_graph(coh_dtype dtype, int layers);
/* `profile` NULL: for the host device, in memory. Fails the running test where there is none. */
coh_plan *trial_plan(const coh_graph *graph, const coh_profile *profile, const trial_placement *p);

/* The inputs of a step; `ids` holds them and lives as long. */
typedef struct trial_ids {
    int32_t tokens[TRIAL_IDS], targets[TRIAL_IDS];
} trial_ids;
coh_step_input trial_input(const coh_plan *plan, uint64_t step, trial_ids *ids);

/* All steps, an evaluation and the hash, of an engine that has parameters. */
void trial_run_steps(coh_engine *engine, trial_outcome *out);
/* An engine made for it, and unmade. */
void trial_run(const coh_plan *plan, const trial_placement *p, const coh_engine_device *device,
               trial_outcome *out);
void trial_check_equal(const trial_placement *p, const trial_outcome *a, const trial_outcome *b);

#endif
