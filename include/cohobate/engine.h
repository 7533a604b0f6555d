/* engine.h - run a plan.
 *
 *     coh_engine_create(plan) ──> coh_engine_init or coh_engine_load ──> coh_engine_step ... ──>
 *     coh_engine_save / _hash / _evaluate ... ──> coh_engine_destroy
 *
 * Everything a call does is a program of the plan: the engine has no other way to compute. After
 * the second step nothing is allocated or mapped.
 *
 * Threads: an engine belongs to the thread that created it. It starts one thread per lane
 * (coh-compute, coh-read, ...) and a pool of workers. */
#ifndef COHOBATE_ENGINE_H
#define COHOBATE_ENGINE_H

#include "cohobate/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_engine coh_engine;

/* A parameter group: parameters that share a rate and a weight decay. `pattern` is a list of shell
 * globs separated by commas; a glob matches a parameter if it matches the parameter's name or its
 * operator's, whole or what follows one of the name's dots ("wte", "*.bias", "h.0.*"). Of several
 * groups that match a parameter and set the same number the last one counts. */
typedef struct coh_parameter_group {
    const char *pattern; /* less than COH_PATTERN_BYTES (models.h) */
    uint32_t sets;       /* COH_GROUP_SETS_RATE, COH_GROUP_SETS_DECAY, or both */
    float rate_factor;   /* times learning_rate of a step; >= 0 */
    /* AdamW's decay of every parameter that matches, biases and norms included; >= 0 */
    float weight_decay;
} coh_parameter_group;

#define COH_GROUP_SETS_RATE  1u
#define COH_GROUP_SETS_DECAY 2u

/* Counts the trained parameters that a group's pattern matches, and their elements. Both may be
 * NULL. Fails: COH_ERR_ARGUMENT: NULL, a pattern that is too long, that matches nothing trained, or
 * of which one glob matches no parameter. */
COH_API coh_status coh_parameter_group_count(const coh_graph *graph, const char *pattern,
                                             uint32_t *out_parameter_count,
                                             uint64_t *out_element_count);

/* Every number is checked by coh_engine_create (COH_ERR_ARGUMENT): 0 <= beta < 1, epsilon > 0,
 * weight_decay >= 0, all finite; 1 to 1024 threads; delays of at most 1 s. */
typedef struct coh_engine_options {
    uint32_t struct_bytes;   /* sizeof(coh_engine_options); coh_engine_options_init sets it */
    const char *disk_folder; /* of the working store; needed if the plan has a disk tier */
    uint64_t disk_bytes;     /* most the store may take; UINT64_MAX: no limit of ours */
    int32_t thread_count;    /* compute threads, >= 1 */
    /* AdamW (Loshchilov and Hutter 2019, decoupled decay) */
    float beta1, beta2, epsilon, weight_decay;
    /* Test modes. poison: NaN into every released extent. delay_seed != 0: random waits of up to
     * delay_most_us before lines. */
    int32_t poison;
    uint64_t delay_seed;
    uint32_t delay_most_us;
    /* 0: choose (io_uring, posix). Else "uring", "posix", "mem". */
    const char *store;
    /* Where a sentence for people goes (rungs stepped down, ...): may be NULL. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
    /* NULL or "host"; "cuda:0", "cuda:1", ...: a plan for a GPU's profile runs there and no other
     * plan does. */
    const char *device;
    /* Read by coh_engine_create alone. Parameters of no group have the step's learning_rate, and
     * weight_decay where their kind says that they decay. NULL, 0: no groups. */
    const coh_parameter_group *groups;
    uint32_t group_count;
} coh_engine_options;

/* Defaults: beta 0.9, 0.95, epsilon 1e-8, decay 0.1, one thread. */
COH_API void coh_engine_options_init(coh_engine_options *out_options);

/* Takes the arenas, opens the store, starts the threads. The plan (and its graph) must outlive it.
 * Fails: COH_ERR_MEMORY with bytes asked and what would fit, COH_ERR_FULL
 * (disk), COH_ERR_DEVICE (no driver, no such GPU, a build without CUDA), COH_ERR_ARGUMENT where the
 * plan is for another kind of device. */
COH_API coh_status coh_engine_create(const coh_plan *plan, const coh_engine_options *options,
                                     coh_engine **out_engine);
/* Stops what runs, ends the threads, gives back arenas and store. Accepts NULL. */
COH_API void coh_engine_destroy(coh_engine *engine);

/* Parameters from their kinds' initialisation and `seed`, states zero. No body may be under way. */
COH_API coh_status coh_engine_init(coh_engine *engine, uint64_t seed);

/* May overwrite the first values of elements [element_begin, element_begin + count) of a parameter,
 * f32 whatever its dtype.
 * Called from the compute lane, in any order of pieces; may not call the engine. */
typedef coh_status (*coh_parameter_source)(void *context, coh_parameter parameter, const char *name,
                                           uint64_t element_begin, uint64_t count, float *values);

/* As coh_engine_init, then each piece goes past `source`: weights from elsewhere, streamed.
 * Fails: with the source's failure; the engine then needs another init or load. */
COH_API coh_status coh_engine_init_from(coh_engine *engine, uint64_t seed,
                                        coh_parameter_source source, void *context);

/* One optimizer step's inputs. inputs[i]: graph input i for all micro-batches, one after the other.
 * Copied before the call returns. */
typedef struct coh_step_input {
    uint64_t step; /* from 0 */
    uint64_t seed;
    float learning_rate; /* 0 or a positive finite number, as clip and loss_factor */
    float clip; /* most global gradient norm; 0: off. Above 0 needs a plan with deferred_update */
    const void *inputs[COH_PORT_MAX];
    /* Multiplies the loss and all gradients; 0 counts as 1. A loss is the sum over the places that
     * count (target >= 0), divided by the number of all: with places / counted, both of the whole
     * step, it is the mean over those that count, however they fall into micro-batches. */
    float loss_factor;
} coh_step_input;

typedef struct coh_step_result {
    uint64_t step;
    double loss;      /* mean over micro-batches, times loss_factor */
    double grad_norm; /* before clipping */
    int32_t finite; /* 0: nothing was updated (deferred) or broken values went out (not deferred) */
    uint64_t applied_count;
    uint64_t step_ns;
    uint64_t exposed_ns[COH_PLAN_LANES]; /* compute stood still for this lane */
    uint64_t link_bytes[COH_PLAN_LANES];
    uint64_t peak_bytes[COH_PLAN_TIERS]; /* counted so far in this run */
    /* of link_bytes, those of parameters that are not trained: they are read, never written */
    uint64_t frozen_bytes[COH_PLAN_LANES];
} coh_step_result;

/* Starts one body. Up to two may be under way: the second one's transfers
 * overlap the first's end.
 * Fails: COH_ERR_ARGUMENT with nothing started: a number that is not finite or is negative; an
 * integer input outside of what its operators take (coh_op_facts.index_range), with input, place,
 * value and limits. */
COH_API coh_status coh_engine_submit(coh_engine *engine, const coh_step_input *input);
/* Waits for the oldest body under way. Fails: the first failure of any line, with its sentence; the
 * engine then only accepts destroy. COH_ERR_ARGUMENT when nothing is under way.
 *
 * A kind's own failure ends its step alone, on the host device and with deferred updates: the step
 * changes no parameter, as one that is not finite, and saving, fetching and further steps go on.
 * Gradients are garbage until the next step. With updates in backward some of them may have gone
 * out before the kind failed, so the engine only accepts destroy. On a GPU the failure is known
 * after later kernels were enqueued: likewise. */
COH_API coh_status coh_engine_wait(coh_engine *engine, coh_step_result *out_result);
/* Submit and wait. */
COH_API coh_status coh_engine_step(coh_engine *engine, const coh_step_input *input,
                                   coh_step_result *out_result);

/* After a result with finite == 0 and no body under way: runs that step's body again on the same
 * inputs, looking at every value each operator writes, and names the first operator and tensor that
 * is not finite in `out_sentence` (at least 256 bytes). A later body that ran on the same
 * parameters is taken back (submit it again): `applied_count` is that of the broken step's result.
 * Leaves nothing pending and no parameter changed.
 * Fails: COH_ERR_ARGUMENT with updates in backward: the broken values have gone out already. */
COH_API coh_status coh_engine_scan(coh_engine *engine, const coh_step_input *input,
                                   uint64_t applied_count, char *out_sentence);

/* Applies what waits (deferred updates), so that parameters are those after the last step. Does
 * nothing if nothing waits. evaluate, save and hash call it. */
COH_API coh_status coh_engine_drain(coh_engine *engine);

/* Forward of one micro-batch: mean loss over its items, times loss_factor. In a plan of
 * COH_PLAN_INFER this is the body, and coh_engine_output gives its outputs. `out_loss` may be NULL.
 * Fails: as coh_engine_submit and coh_engine_wait. On the host device a kind's failure ends this
 * call alone; states of kinds (a decoder's keys) are then as far as the kinds got. */
COH_API coh_status coh_engine_evaluate(coh_engine *engine, const coh_step_input *input,
                                       double *out_loss);

/* The bytes of a tensor named by coh_graph_output, as the last run left them. Valid until the next
 * call on the engine. */
COH_API coh_status coh_engine_output(coh_engine *engine, coh_tensor tensor, const void **out_data,
                                     size_t *out_bytes);

/* One hash of the logical parameters and optimizer states, in tensor order by grains: the same
 * whatever the placement. */
COH_API coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash);

/* What a checkpoint says beside the tensors. Sizes in the manifest are checked on load. */
typedef struct coh_checkpoint_note {
    uint64_t step;    /* optimizer steps done (batches consumed) */
    const char *json; /* the caller's own object: model, schedule, data identity and position;
                              copied into the manifest; "{}" if none */
} coh_checkpoint_note;

/* Streams parameters and states through one chunk into folder `path`, atomically and durably:
 * written under a temporary name, flushed, renamed. An existing `path` is refused.
 * Fails: COH_ERR_IO (a full disk too), COH_ERR_NUMBER (never saves a broken number). Nothing is
 * left behind then, and the engine goes on. */
COH_API coh_status coh_engine_save(coh_engine *engine, const char *path,
                                   const coh_checkpoint_note *note);

/* At most so many bytes of disk a checkpoint of an engine of this plan takes, folder and unused
 * ends of pages included. Fails: COH_ERR_FULL (beyond what a file can be), COH_ERR_MEMORY,
 * COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_engine_save_bytes(const coh_plan *plan, uint64_t *out_bytes);

/* Parameters and states from checkpoint `path`; parameters are matched by name and dimensions, and
 * not by dtype: a checkpoint is f32, and a trained bf16 parameter holds all its bits. With
 * COH_PLAN_INFER states are not read. Every grain's hash is checked.
 * `numeric_changed` (may be NULL) gets 1 when the checkpoint was made under another numeric plan.
 * Fails: COH_ERR_CORRUPT naming file and place, COH_ERR_IO. */
COH_API coh_status coh_engine_load(coh_engine *engine, const char *path, int *numeric_changed);

typedef enum coh_fetch { COH_FETCH_VALUE, COH_FETCH_GRADIENT, COH_FETCH_M, COH_FETCH_V } coh_fetch;

/* One parameter's values (or moments) after the last step, or its gradient as the last body left it
 * (deferred updates only; before clipping): for tests and export. `data` takes coh_shape_elements
 * floats, whatever the parameter's dtype: a trained bf16 parameter's values are its exact master.
 * Values and moments drain first; a gradient does not. */
COH_API coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                                    float *data);

/* What the machine gave: for the one start-up paragraph. */
typedef struct coh_engine_facts {
    uint64_t arena_bytes[COH_PLAN_TIERS];
    uint64_t overhead_bytes; /* of the process beside the arenas, measured now (VmRSS) */
    const char *store_rung;  /* "io_uring fixed", ..., "none" */
    int32_t store_direct;    /* 1: O_DIRECT, 0: page cache, -1: no store */
    uint64_t store_read_bytes_per_s, store_write_bytes_per_s;
    char kernel_path[128];
    /* Of the arenas of device and host tier; zero where there is none. */
    int32_t arena_huge_pages[COH_PLAN_TIERS]; /* 1: the kernel took the advice */
    int32_t arena_node_count[COH_PLAN_TIERS]; /* NUMA nodes they are spread over */
    int32_t arena_is_near[COH_PLAN_TIERS];    /* 1: on the one by the GPU, of several */
    uint64_t arena_touch_ns[COH_PLAN_TIERS];  /* what the first touch took */
    /* Of a GPU's memory beside the arena, measured now: its context with what other programs held
     * as the engine was made; kernels and libraries, and what others took since. 0: no GPU. */
    uint64_t device_context_bytes, device_library_bytes;
    uint64_t device_free_bytes; /* of a GPU's memory */
} coh_engine_facts;
/* Any time between calls; allocates nothing. Fails: COH_ERR_DEVICE. */
COH_API coh_status coh_engine_facts_get(coh_engine *engine, coh_engine_facts *out_facts);

/* Every byte of the tiers by purpose and owner: what is reserved (arenas, working store), and what
 * stands in the arenas, by stream (owner "extents"; "highest end": the peak that
 * the plan promised). */
typedef struct coh_engine_ledger_row {
    const char *tier; /* "device", "host", "disk" */
    char purpose[32], owner[32];
    uint64_t bytes, peak_bytes; /* now, and the most so far */
} coh_engine_ledger_row;

/* Row `index`, from 0; returns 0 past the last. Exact while no step is under
 * way. Allocates nothing. */
COH_API int coh_engine_ledger_row_at(const coh_engine *engine, uint32_t index,
                                     coh_engine_ledger_row *out_row);

/* All rows as a table into `text`, cut to fit. Returns the bytes the whole needs, terminator
 * included. Allocates nothing. */
COH_API size_t coh_engine_ledger(const coh_engine *engine, char *text, size_t text_bytes);

/* What the lines of one class took in a step, and what the plan predicts for them. */
typedef struct coh_line_class {
    const char *opcode, *lane; /* "forward", "compute" */
    const char *kind;          /* that they run: "linear"; "": none */
    uint32_t line_count;
    /* In a step, waits left out; of a lane with several lines in flight the time in which it is
     * busy. Measured: the median of the last runs. */
    double predicted_s, measured_s;
} coh_line_class;

enum { COH_LINE_CLASSES_MOST = 256 };

/* Every class of the body that was measured, in the order in which the body has them; texts live as
 * long as the engine. Steps behind the first one since init, load, evaluate or the like count: none
 * yet, no class. Allocates nothing.
 * Fails: COH_ERR_ARGUMENT while steps are under way; the engine's failure. */
COH_API coh_status coh_engine_line_classes(coh_engine *engine,
                                           coh_line_class out_classes[COH_LINE_CLASSES_MOST],
                                           uint32_t *out_count);

/* Instruction set, products and BLAS core type in use, as in the numeric plan. With the test
 * setting COH_ISA=bf16-pretended it contains "+bf16-pretended". */
COH_API const char *coh_kernel_path(void);

/* OpenBLAS multiplies f32 on processors without AVX-512 and is loaded at run time. If it cannot be
 * loaded, products fall back to panels, which are slower and round differently, and
 * coh_kernel_path() names panels. Returns the reason and the remedy, as a clause; "" if nothing
 * fell back. */
COH_API const char *coh_kernel_fallback(void);

#ifdef __cplusplus
}
#endif
#endif
