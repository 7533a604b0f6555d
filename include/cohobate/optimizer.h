/* optimizer.h - an optimizer as a table: its states, its numbers and its update of one range.
 *
 *     streams           m  f32, one per element        v  f32, one per element
 *     hyperparameters   beta1 0.9   beta2 0.95   epsilon 1e-8
 *     update            work, grad, m, v of a range of elements  ->  work, m, v
 *
 * The planner reads the streams: they are the bytes that it places, moves and saves. The engine
 * calls `update` for ranges of elements, on several threads, wherever the data is at that moment.
 * A plan chooses an optimizer by name for each parameter (coh_plan_options). The library has adamw,
 * adamw8, adamw8sr, lion and sgd; a program may register its own before it makes a plan:
 *
 *     static void update(const coh_update_call *call) { ... }
 *     static const coh_optimizer mine = { .struct_bytes = sizeof(mine), .name = "mine",
 *                                         .revision = 1, .stream_count = 1,
 *                                         .streams = { { "velocity", 4, 1, 1 } },
 *                                         .update = update };
 *     coh_optimizer_register(&mine);
 *
 * Rules. An update computes each element from the same element of its streams (or from its block),
 * so that the bits do not depend on how tensors are cut. States begin as zeros.
 * To test yours, train some steps of a small model with coh_engine_options.check_calls: a step
 * fails if an update writes outside its buffers, or if two halves of a range give other bits than
 * the whole.
 * Threads: any; updates run on several threads at once. */
#ifndef COHOBATE_OPTIMIZER_H
#define COHOBATE_OPTIMIZER_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COH_OPTIMIZER_STREAMS = 8,    /* of one optimizer */
    COH_OPTIMIZER_NUMBERS = 8,    /* hyperparameters of one optimizer */
    COH_OPTIMIZER_SCALARS = 4,    /* of one optimizer */
    COH_OPTIMIZER_NAME_BYTES = 16 /* of optimizers, streams and hyperparameters, with the end */
};

/* The optimizer where a name is "" (coh_plan_options, coh_training_note). */
#define COH_OPTIMIZER_DEFAULT "adamw"

/* A stream of states: `bytes_per_block` bytes for every `elements_per_block` elements of a
 * parameter. f32 moments are { "m", 4, 1, 1 }; one f32 scale for 128 elements is { "m_scale", 4,
 * 128, 1 }; one-byte codes are { "m_code", 1, 1, 0 }. The last block of a parameter may be short;
 * it has as many bytes as the others. */
typedef struct coh_state_stream {
    /* a-z, 0-9 and _: names the file NAME.state of a checkpoint (m.bin and v.bin for m and v).
     * Optimizers of one plan that use the same name must give the stream the same form, and share
     * the file. */
    const char *name;
    uint32_t bytes_per_block;    /* 1 to 4096 */
    uint32_t elements_per_block; /* a power of two from 1 to 1024 */
    int32_t is_f32; /* 1: blocks are f32 numbers, and a save refuses NaN and infinity in them */
} coh_state_stream;

/* Returns the bytes of a stream for this many elements, the first of which begins a block. */
static inline uint64_t coh_state_bytes(const coh_state_stream *stream, uint64_t elements)
{
    return (elements + stream->elements_per_block - 1) / stream->elements_per_block *
           stream->bytes_per_block;
}

/* A number that is the same in all steps of a run. */
typedef struct coh_hyperparameter {
    const char *name;  /* a-z, 0-9 and _ */
    float initial;     /* the default */
    float least, most; /* both allowed */
} coh_hyperparameter;

/* The arguments of an update: `count` elements of one parameter, from the start of a block on. All
 * pointers are to those elements (or their blocks). `work` is read and written, `low` too; `grad`
 * is read, in grad_dtype. */
typedef struct coh_update_call {
    int64_t count;
    uint64_t first; /* number of the first one among all elements of the model's parameters */
    float rate;     /* learning rate, times the factor of the parameter's group */
    float scale;    /* factor of the gradient: clipping */
    float decay;    /* weight decay of the parameter; 0: none */
    const float *hyperparameters;  /* in the table's order */
    const float *scalars;          /* in the table's order */
    const coh_random_cell *random; /* seed and number of the step that made the gradient */
    /* work: f32, or bf16 if the optimizer has takes_bf16 and the parameter is bf16. The f32 master
     * of a bf16 parameter is then (work << 16) + low, with `low` signed, and `low` not NULL. With
     * rounds_work `low` is NULL: the update rounds the new work to bf16 by itself. */
    coh_dtype work_dtype, grad_dtype;
    void *work;
    uint16_t *low;
    const void *grad;
    void *states[COH_OPTIMIZER_STREAMS]; /* in the table's order */
} coh_update_call;

/* An optimizer: `stream_count` of `streams`, `hyperparameter_count` of `hyperparameters` and
 * `scalar_count` of `scalars` are used. */
typedef struct coh_optimizer {
    uint32_t struct_bytes;
    const char *name; /* a-z, 0-9 and _; in plans, checkpoints and messages */
    /* Raise it when the bits of an update change; part of fingerprints. If the meaning of a stream
     * changes, rename the stream as well: checkpoints know names and forms only. */
    int32_t revision;
    int32_t stream_count; /* may be 0 */
    coh_state_stream streams[COH_OPTIMIZER_STREAMS];
    int32_t hyperparameter_count;
    coh_hyperparameter hyperparameters[COH_OPTIMIZER_NUMBERS];
    /* Scalars that depend on the number of updates t, counted from 1: scalar i is 1 - h^t with
     * hyperparameter h = hyperparameters[scalars[i]] (Adam's bias corrections). */
    int32_t scalar_count;
    int32_t scalars[COH_OPTIMIZER_SCALARS];
    /* Computes one update. Called on any thread, for several ranges at once, in the default
     * floating-point mode; must not call the library. The sums of squares for the gradient's norm
     * are the engine's. */
    void (*update)(const coh_update_call *call);
    /* 0: `work` and `grad` are f32 in every call; the engine converts those of bf16 parameters. 1:
     * they have the plan's dtypes. */
    int32_t takes_bf16;
    /* Name of its kernel in the library's CUDA module; NULL: none, so a plan for a GPU refuses it.
     * A registered optimizer must leave it NULL. */
    const char *cuda_kernel;
    /* Price: arithmetic of one element that takes longer than its bytes, as the number of f32
     * operations that a matrix product does in that time. 0: the bytes take longer. */
    double flops;
    /* 0: a bf16 parameter has an f32 master: `low`, 2 bytes an element, is stored with the states.
     * 1: it has none. Its work is bf16 between updates, and the new work is rounded stochastically,
     * so that its mean is the f32 result (Croci, Fasi, Higham, Mary and Mikaitis 2022): rounding to
     * nearest would lose every change below half a unit in the last place, 2^-9 of the work. Unless
     * takes_bf16 is set the engine rounds, with random bits that are a function of the seed, the
     * step and the element's number. Initial and loaded weights are rounded to nearest. */
    int32_t rounds_work;
} coh_optimizer;

/* Adds an optimizer to the process's list. The struct and its texts must live as long as the
 * process. Any thread; registering the same struct again does nothing.
 * Fails: COH_ERR_ARGUMENT: a name, count or range is not allowed, or another optimizer has the
 * name. */
COH_API coh_status coh_optimizer_register(const coh_optimizer *optimizer);

/* Returns the optimizer of this name, or NULL. */
COH_API const coh_optimizer *coh_optimizer_find(const char *name);

/* Returns the number of optimizers. */
COH_API int32_t coh_optimizer_count(void);
/* Returns optimizer `index` from 0, the library's own first; NULL past the last. */
COH_API const coh_optimizer *coh_optimizer_at(int32_t index);

#ifdef __cplusplus
}
#endif
#endif
