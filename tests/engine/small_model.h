/* small_model.h - a model small enough for a plain loop, large enough to be streamed: LAYERS layers
 * x -> x * w + b over ELEMENTS elements, then loss = sum x^2 / (2 ELEMENTS).
 *
 * Its kinds are defined here through the public interface, in f32 or bf16: computed in f32, stored
 * in the model's dtype. */
#ifndef COH_TESTS_ENGINE_SMALL_MODEL_H
#define COH_TESTS_ENGINE_SMALL_MODEL_H

#include "cohobate/engine.h"

/* More than one grain, and not a whole number of them. */
enum { SMALL_LAYERS = 4, SMALL_ELEMENTS = 40000, SMALL_MICROBATCHES = 2 };

/* A step with this seed makes layer 2 write a NaN in its forward. */
#define SMALL_BROKEN_SEED 666u
/* With this seed, layer 2 fails in its forward. */
#define SMALL_FAILING_SEED 667u

coh_status small_model_create(coh_dtype dtype, coh_graph **out_graph);

/* Makes the model with weight and bias of one layer frozen. */
coh_status small_model_create_frozen(coh_dtype dtype, int layer, coh_graph **out_graph);

/* Makes the model with wrapped layers that can neither add to a gradient nor omit one: the planner
 * inserts scratch and ADD instructions. */
coh_status small_model_create_overwriting(coh_dtype dtype, coh_graph **out_graph);

/* Makes the model with layers that may be written in place of their input, and their gradients
 * likewise. */
coh_status small_model_create_in_place(coh_dtype dtype, coh_graph **out_graph);

/* Makes the model with layers that overwrite the gradient of their output, with NaN. */
coh_status small_model_create_spoiling(coh_dtype dtype, coh_graph **out_graph);

/* The model in plain loops. f32: everything between parameters and gradients in double. bf16: every
 * value that the model stores is rounded when stored. */
typedef struct small_oracle {
    coh_dtype dtype;
    float w[SMALL_LAYERS][SMALL_ELEMENTS], b[SMALL_LAYERS][SMALL_ELEMENTS];
    float wm[SMALL_LAYERS][SMALL_ELEMENTS], wv[SMALL_LAYERS][SMALL_ELEMENTS];
    float bm[SMALL_LAYERS][SMALL_ELEMENTS], bv[SMALL_LAYERS][SMALL_ELEMENTS];
    double rate_factor[SMALL_LAYERS][2], decay[SMALL_LAYERS][2]; /* of weight and bias */
    double gw[SMALL_LAYERS][SMALL_ELEMENTS], gb[SMALL_LAYERS][SMALL_ELEMENTS];
    uint64_t applied;
    double loss, norm;
    double previous_norm;
    int clips_by_previous;
} small_oracle;

/* Returns the part of a master that compute reads: all of it, or its high half. */
double small_oracle_work(coh_dtype dtype, float master);
/* Returns a value as a tensor of the model stores it. */
double small_oracle_kept(coh_dtype dtype, double value);

/* Makes deterministic inputs of a step for all micro-batches: as numbers, and in the graph's dtype
 * (at most SMALL_INPUT_BYTES). */
#define SMALL_INPUT_BYTES (SMALL_MICROBATCHES * SMALL_ELEMENTS * sizeof(float))
void small_model_input(coh_dtype dtype, uint64_t step, float *input, void *stored);
void small_oracle_step(small_oracle *oracle, const coh_engine_options *options, const float *input,
                       double rate, double clip);

#endif
