/* engine.h - runs a plan: training steps, evaluation, saving and loading.
 *
 *     coh_engine_create(plan) ──> coh_engine_init or coh_engine_load ──> coh_engine_step ... ──>
 *     coh_engine_save / _hash / _evaluate ... ──> coh_engine_destroy
 *
 * The engine only executes the plan's programs, which are lists of instructions. The *body* is the
 * program of one optimizer step (of one forward pass with COH_PLAN_INFER). From the third step on,
 * no memory is allocated or mapped.
 * Threads: only the thread that created an engine may call it, one call at a time. A call on an
 * engine while another one is under way there fails at once with COH_ERR_ARGUMENT and changes
 * nothing, whether it comes from another thread or from a callback (progress, source, sink, a
 * kind's function). Exceptions, which any thread may call at any time: coh_engine_ask_stop,
 * coh_engine_save_is_done, coh_engine_ledger, coh_engine_ledger_row_at, coh_engine_trace and
 * coh_engine_latencies. Functions without an engine: any thread, or that of their graph. An engine
 * starts a thread per lane (coh-compute, ...) and a pool.
 *
 * A fork copies neither the threads nor the arenas of an engine. In the child every call on it
 * fails with COH_ERR_ARGUMENT, coh_engine_destroy returns at once and frees nothing, and pointers
 * from coh_engine_output are invalid. The parent's engine goes on.
 *
 * Failures: a call that finds bad arguments changes nothing. If an instruction failed, the engine
 * is dead: the call that finds it fails with its sentence, and every later one that runs a program
 * fails with the same status and says that the engine failed earlier. Destroy it and load the last
 * checkpoint into a new one. coh_engine_wait describes the exception, a kind that fails. */
#ifndef COHOBATE_ENGINE_H
#define COHOBATE_ENGINE_H

#include "cohobate/disk.h"
#include "cohobate/plan.h"
#include "cohobate/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan in execution: its arenas, its store and its threads. */
typedef struct coh_engine coh_engine;

/* A parameter group: parameters that share a learning rate factor and a weight decay. `pattern` is
 * a list of shell globs separated by commas. A glob matches a parameter if it matches the name of
 * the parameter or of its operator, either the whole name or the part after one of its dots ("wte",
 * "*.bias", "h.0.*"). If several groups set the same number of a parameter, the last one wins. */
typedef struct coh_parameter_group {
    const char *pattern; /* shorter than COH_PATTERN_BYTES */
    uint32_t sets;       /* COH_GROUP_SETS_RATE, COH_GROUP_SETS_DECAY, or both */
    float rate_factor;   /* multiplies the step's learning_rate; >= 0 */
    /* weight decay of every matching parameter, biases and norms included; >= 0 */
    float weight_decay;
} coh_parameter_group;

/* Bits of coh_parameter_group.sets. */
#define COH_GROUP_SETS_RATE  1u
#define COH_GROUP_SETS_DECAY 2u

/* Counts the trained parameters that `pattern` matches, and their elements. Outputs may be NULL.
 * Fails: COH_ERR_ARGUMENT if an argument is NULL, the pattern is too long or matches no trained
 * parameter, or one of its globs matches no parameter. */
COH_API coh_status coh_parameter_group_count(const coh_graph *graph, const char *pattern,
                                             uint32_t *out_parameter_count,
                                             uint64_t *out_element_count);

/* A hyperparameter that differs from its optimizer's default (optimizer.h). */
typedef struct coh_hyperparameter_value {
    const char *optimizer; /* NULL: every optimizer of the plan that has the hyperparameter */
    const char *name;      /* "beta2" */
    float value;           /* within the optimizer's range */
} coh_hyperparameter_value;

/* Long operations of an engine: INIT (also _init_from, _init_partly, _load_partly), LOAD, SAVE (its
 * numbers), HASH, FETCH (also of states), PUT. */
typedef enum coh_operation {
    COH_OPERATION_INIT,
    COH_OPERATION_LOAD,
    COH_OPERATION_SAVE,
    COH_OPERATION_HASH,
    COH_OPERATION_FETCH,
    COH_OPERATION_PUT
} coh_operation;

/* Receives the progress of an operation: `done` of `total` parameter elements. Called on the
 * compute lane, at most about 100 times in an operation, the last time with done == total. Calls on
 * the engine are refused. An operation that fails may end earlier. */
typedef void (*coh_progress)(void *context, coh_operation operation, uint64_t done, uint64_t total);

/* Most steps whose records are kept. */
enum { COH_RECORD_STEPS_MOST = 1000 };

/* Options of an engine. coh_engine_create checks every number (COH_ERR_ARGUMENT): hyperparameters
 * within their optimizers' ranges; weight_decay >= 0 and finite; 1 to 1024 threads; delays of at
 * most 1 s. `log_context` is passed to `log`, `go_on_context` to `go_on`. `group_count`,
 * `hyperparameter_count` and `disk_count` are the lengths of the arrays before them. */
typedef struct coh_engine_options {
    uint32_t struct_bytes;   /* sizeof(coh_engine_options); coh_engine_options_init sets it */
    const char *disk_folder; /* holds the working store; needed if the plan has a disk tier */
    uint64_t disk_bytes;     /* upper limit of the store; UINT64_MAX: no limit */
    int32_t thread_count;    /* compute threads, >= 1 */
    float weight_decay;      /* of parameters whose kind has weight decay */
    int32_t poison;          /* test mode. 1: fill every released extent with NaN */
    uint64_t delay_seed;     /* test mode. Not 0: wait a random time before each instruction */
    uint32_t delay_most_us;  /* limit of that time, in microseconds */
    /* Backend of the working store: "uring", "posix" or "mem". 0: io_uring, else posix. */
    const char *store;
    /* Receives sentences for people: a fallback to a slower backend, parameters on which the loss
     * does not depend, ... May be NULL. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
    /* NULL or "host", or a GPU: "cuda:0", "cuda:1", ... A plan made with a GPU's profile runs only
     * on a GPU, and no other plan does. */
    const char *device;
    /* Read by coh_engine_create only. Parameters in no group use the step's learning_rate, and
     * weight_decay if their kind has weight decay. NULL, 0: no groups. */
    const coh_parameter_group *groups;
    uint32_t group_count;
    /* Read by coh_engine_create only. If several values set the same number, the last one wins. A
     * value that no optimizer of the plan has is refused. */
    const coh_hyperparameter_value *hyperparameters;
    uint32_t hyperparameter_count;
    /* Read by coh_engine_create only. Folders that share the working store (disk.h), in place of
     * disk_folder; disk_bytes still limits the whole store. NULL, 0: disk_folder alone. */
    const coh_disk *disks;
    uint32_t disk_count;
    /* Steps whose instructions' begins and ends are kept for coh_engine_recorded (trace.h), at most
     * COH_RECORD_STEPS_MOST. 0: nothing is recorded. Only training steps are recorded. */
    uint64_t record_steps;
    /* Test mode, on the host device: every call of a kind or of an optimizer's update works on
     * guarded copies. A write outside its buffers, or to one that it only reads, fails the step
     * with a sentence that names operator, port and element (as coh_op_check's), or optimizer,
     * parameter and stream; so does an update of a range whose two halves give other bits. After a
     * wrong update the engine answers only destroy. Finds writes up to 128 KiB before or behind a
     * buffer, and those that run on from its end. A write farther away may remain unnoticed or end
     * the process (SIGSEGV), but up to 256 MiB it changes no memory of the engine. Takes memory
     * outside the plan for the largest call, and about twice the time, of small calls more: half a
     * millisecond each. */
    int32_t check_calls;
    /* Called during long operations; NULL: no calls. Steps report by coh_engine_wait. */
    coh_progress progress;
    void *progress_context; /* passed to `progress` */
    /* This rank's handle of a world of as many ranks, with the same pairs and nodes, as the plan's;
     * NULL if the plan has one rank. It must outlive the engine and belongs to this engine alone.
     * All ranks create their engines together, with one plan, and then make the same calls in the
     * same order with the same values; only `inputs` are each rank's own. The numbers of each step
     * are compared, and others than rank 0's end all ranks with COH_ERR_ARGUMENT. A failure of an
     * engine stops the world, so all engines fail with its sentence. Meet in a barrier (world.h)
     * before destroying an engine. Rank 0 alone writes checkpoints: the others take part in
     * coh_engine_save and ignore its path. With rank pattern replicate (rank_pattern.h) any rank
     * may also save, hash, evaluate and so on without the others; with other patterns they would
     * wait for them. */
    coh_world *world;
    /* Longest time that this rank waits for others inside a step; then all ranks fail with
     * COH_ERR_DEVICE and a sentence that names instruction and group. 0: no limit. A rank that
     * validates or saves while the others are in the next step counts as waited for; in a meeting
     * (world.h), and in a save, a hash or an evaluation that all ranks make, it does not. */
    double rank_timeout_s;
    /* Asked by coh_engine_create every few MiB while it writes each block of the working store
     * once, which takes minutes for hundreds of GiB; on other threads, too. Another status than
     * COH_OK ends that: coh_engine_create fails with it, and with the text that was set by
     * coh_kind_fail. NULL: not asked. */
    coh_status (*go_on)(void *go_on_context);
    void *go_on_context;
    /* With a plan of COH_PLAN_INFER on one rank: a graph with the operators, parameters, states and
     * outputs of the plan's graph, in the same order, whose tensors may have fewer elements. A
     * coh_engine_evaluate with that graph (coh_step_input.graph) runs the same program on the same
     * parameters and states, but each operator has the shapes and attributes of this graph. A
     * decoder that takes a prompt in chunks of many tokens thus draws single tokens at the cost of
     * one. Borrowed until coh_engine_destroy. NULL: there is none. */
    const coh_graph *small_graph;
} coh_engine_options;

/* As coh_engine_options_init; `bytes` is the size that the caller was compiled with. */
COH_API void coh_engine_options_init_sized(coh_engine_options *out_options, size_t bytes);
/* Sets the defaults: weight decay 0.1, one thread, the optimizers' own hyperparameters. */
static inline void coh_engine_options_init(coh_engine_options *out_options)
{
    coh_engine_options_init_sized(out_options, sizeof(*out_options));
}

/* Allocates the arenas, opens the store and starts the threads. Plan and graph must outlive it.
 * Fails: COH_ERR_MEMORY with the bytes requested and the bytes that would fit; COH_ERR_FULL (disk);
 * COH_ERR_DEVICE (no driver, no such GPU, a build without CUDA); COH_ERR_ARGUMENT (an option out of
 * range, a plan for another kind of device or another world, ranks with different plans, or a small
 * graph that does not fit the plan's); as go_on. */
COH_API coh_status coh_engine_create(const coh_plan *plan, const coh_engine_options *options,
                                     coh_engine **out_engine);
/* Gives rank 0's plan to all ranks: *out_text is its plan file with that note
 * (coh_plan_write_noted), for coh_plan_file_parse and coh_plan_parse. Other ranks pass NULL for
 * both. The text is valid until this rank's next share or close. A meeting (world.h).
 * Fails: as coh_plan_write_noted, which stops the world; a stopped world. */
COH_API coh_status coh_world_share_plan(coh_world *world, const coh_plan *plan, const char *note,
                                        const char **out_text);
/* The short way: makes a plan and an engine for training with the defaults of both, on the host
 * device, within `memory_bytes`, with a thread for each core (coh_machine_core_count; the number
 * changes no bit). The rest goes to a scratch file in `disk_folder` (NULL:
 * no disk, and all must fit). Destroy the engine, then the plan.
 * Fails: as coh_plan_create and coh_engine_create; both outputs are NULL then. */
COH_API coh_status coh_engine_create_within(const coh_graph *graph, uint64_t memory_bytes,
                                            const char *disk_folder, coh_plan **out_plan,
                                            coh_engine **out_engine);
/* Stops running work, joins the threads, frees the arenas and the store. Accepts NULL. While
 * another call on the engine is under way (see above) it does nothing but set coh_last_error. Of
 * several ranks on GPUs it waits until all ranks destroy theirs, unless their world has stopped. */
COH_API void coh_engine_destroy(coh_engine *engine);

/* Initialises parameters by their kinds' rules from `seed`, and zeroes the optimizer states. No
 * body may be running. Fails: COH_ERR_ARGUMENT if a body is running; with the engine's failure. */
COH_API coh_status coh_engine_init(coh_engine *engine, uint64_t seed);

/* Supplies weights: may overwrite `values`, which holds elements [element_begin,
 * element_begin + count) of a parameter as f32, whatever its dtype. Called on the compute lane,
 * with pieces in any order. Calls on the engine are refused; those on another engine are not. Fails
 * with a text set by coh_kind_fail. */
typedef coh_status (*coh_parameter_source)(void *context, coh_parameter parameter, const char *name,
                                           uint64_t element_begin, uint64_t count, float *values);

/* As coh_engine_init, then passes each piece to `source`, which may overwrite it.
 * Fails: with the source's failure; COH_ERR_NUMBER if it gave a value that is not finite. The
 * engine then needs another init or load. */
COH_API coh_status coh_engine_init_from(coh_engine *engine, uint64_t seed,
                                        coh_parameter_source source, void *context);

/* As coh_engine_init_from, but `source` is not asked for the parameters that `own` matches: they
 * keep their kinds' first values, as a new head on a trained body does. `own` is a list of globs as
 * in coh_parameter_group; trained or not makes no difference.
 * Fails: as coh_engine_init_from; COH_ERR_ARGUMENT, with nothing changed: a glob matches no
 * parameter. */
COH_API coh_status coh_engine_init_partly(coh_engine *engine, uint64_t seed, const char *own,
                                          coh_parameter_source source, void *context);

/* Inputs of one optimizer step. inputs[i] is graph input i of all micro-batches, one after the
 * other. Copied before the call returns. */
typedef struct coh_step_input {
    uint32_t struct_bytes;
    uint64_t step;       /* counted from 0 */
    uint64_t seed;       /* of the random numbers that kinds draw in this step */
    float learning_rate; /* 0 or a positive finite number; clip and loss_factor likewise */
    /* Limit of the global gradient norm; 0: off. The gradients are multiplied by clip / norm if the
     * norm is above the limit. With a plan of deferred updates it is the norm of this step. With
     * updates in backward it is that of the step before, because the first update precedes the norm
     * of its step; the first step of a run is not clipped. */
    float clip;
    const void *inputs[COH_PORT_MAX];
    /* Multiplies the loss and all gradients; 0 counts as 1. The loss of a micro-batch is the sum
     * over the unmasked positions (target >= 0) divided by the number of all positions. With
     * loss_factor = positions / unmasked positions, both counted over the whole step, the loss
     * becomes the mean over unmasked positions, however they are distributed over micro-batches. */
    float loss_factor;
    /* For coh_engine_evaluate: the graph whose shapes the inputs and the run have: NULL (the
     * plan's), or coh_engine_options.small_graph. */
    const coh_graph *graph;
} coh_step_input;

/* Facts about a finished step. */
typedef struct coh_step_result {
    uint32_t struct_bytes;
    uint64_t step;    /* as in the step's input */
    double loss;      /* mean over micro-batches, times loss_factor */
    double grad_norm; /* before clipping */
    /* 0: no update was made (deferred updates), or broken values were applied (not deferred) */
    int32_t finite;
    /* number of updates so far, this step's included unless finite is 0; for scan */
    uint64_t applied_count;
    uint64_t step_ns;                    /* from its submission, or the step before, to its loss */
    uint64_t exposed_ns[COH_LANE_COUNT]; /* time that the compute lane waited for this lane */
    uint64_t link_bytes[COH_LANE_COUNT]; /* moved by each lane */
    uint64_t peak_bytes[COH_TIER_COUNT]; /* highest so far in this run */
    /* part of link_bytes: frozen parameters, which are read and never written */
    uint64_t frozen_bytes[COH_LANE_COUNT];
    int32_t is_stop_asked; /* coh_engine_ask_stop was called, on any rank: the same on all ranks */
    int32_t ran_twice;     /* 1: a plan that speculates, a norm above the limit; figures of both */
} coh_step_result;

/* Starts one body and returns. Two bodies may run at once: their transfers overlap.
 * Fails: COH_ERR_ARGUMENT, with nothing started: the plan trains no parameter (all are frozen, or
 * the loss depends on none); a number is negative or not finite; an integer input is outside the
 * range its operators accept (coh_op_facts.index_range), and the text names input, position, value
 * and limits. */
COH_API coh_status coh_engine_submit(coh_engine *engine, const coh_step_input *input);
/* Waits for the oldest running body.
 * Fails: with the first failure of any instruction; the engine is then dead (see above).
 * COH_ERR_ARGUMENT if no body is running.
 *
 * One failure is milder. If a kind's own function fails on the host device and updates are
 * deferred, only that step ends: it changes no parameter, just as a step with a non-finite loss,
 * and saving, fetching and further steps still work. A later body that is under way began with the
 * same parameters, and changes them: coh_engine_undo takes it back. The numbers in *out_result mean
 * nothing then, and gradients are garbage until the next step. If updates are made during backward,
 * some may have been applied before the failure, so the engine is dead. On a GPU it is dead, too,
 * since later kernels were enqueued by then, and so it is with several ranks. */
COH_API coh_status coh_engine_wait(coh_engine *engine, coh_step_result *out_result);
/* Waits for the oldest running body for at most so many milliseconds, and takes no result:
 * *out_is_done is 1 if coh_engine_wait would return at once, with its result or a failure, else 0.
 * For a program that looks at signals or at its windows during long steps. In a plan that
 * speculates coh_engine_wait may then still run the step a second time.
 * Fails: COH_ERR_ARGUMENT if no body is running. */
COH_API coh_status coh_engine_wait_for(coh_engine *engine, uint32_t milliseconds, int *out_is_done);
/* Asks all ranks to stop training after the same step. The request travels with the losses of the
 * step that runs, or of the next one if these are gathered already; that step's result has
 * is_stop_asked on every rank, and so have all later ones. The engine itself continues: the callers
 * stop. Threads: any, also in a signal handler. Accepts NULL. */
COH_API void coh_engine_ask_stop(coh_engine *engine);
/* Submits one body and waits for it. Fails: as coh_engine_submit and coh_engine_wait. */
COH_API coh_status coh_engine_step(coh_engine *engine, const coh_step_input *input,
                                   coh_step_result *out_result);

/* Finds the origin of a NaN or infinity. Call it after a result with finite == 0 while no body is
 * running: it runs that step's body again on the same inputs, checks every value that each operator
 * writes, and writes the first non-finite operator and tensor into `out_sentence` (at least 256
 * bytes). `applied_count` is that of the broken step's result. A later body that ran on the same
 * parameters is undone and must be submitted again. Changes no parameter, leaves nothing pending.
 * Fails: COH_ERR_ARGUMENT, with nothing changed, if no result was broken, if more than one body ran
 * since, if a later update was made already (by a hash, a save or a fetch), for another
 * applied_count, and if updates are made during backward, because the broken values were applied
 * already. */
COH_API coh_status coh_engine_scan(coh_engine *engine, const coh_step_input *input,
                                   uint64_t applied_count, char *out_sentence);
/* Makes the parameters those before the last step that changed nothing, because its result had
 * finite == 0 or because a kind failed in it (coh_engine_wait). Call it while no body is running: a
 * later body that ran on the same parameters is undone and must be submitted again. Then a save
 * writes the state before that step. Leaves nothing pending.
 * Fails: COH_ERR_ARGUMENT, with nothing changed, as coh_engine_scan; with the engine's failure. */
COH_API coh_status coh_engine_undo(coh_engine *engine);

/* Applies pending (deferred) updates, so that the parameters are those after the last step. Does
 * nothing if none are pending. evaluate, save and hash call it.
 * Fails: COH_ERR_ARGUMENT if a body is running; with the engine's failure. */
COH_API coh_status coh_engine_drain(coh_engine *engine);

/* Runs forward on one micro-batch; *out_loss (may be NULL) is the mean loss over its items times
 * loss_factor. In a plan of COH_PLAN_INFER this call is the body; coh_engine_output reads its
 * outputs.
 * Fails: as coh_engine_submit and coh_engine_wait. If a kind fails on the host device, only this
 * call fails; the kinds' states (a decoder's keys) may then be partly updated. */
COH_API coh_status coh_engine_evaluate(coh_engine *engine, const coh_step_input *input,
                                       double *out_loss);

/* Returns the bytes of a tensor marked with coh_graph_output, as the last run left them: after a
 * step of several micro-batches those of the last one, and as many as the run's graph has. Valid
 * until the next call on the engine.
 * Fails: COH_ERR_ARGUMENT if the tensor is no output; with the engine's failure. */
COH_API coh_status coh_engine_output(coh_engine *engine, coh_tensor tensor, const void **out_data,
                                     size_t *out_bytes);

/* Hashes parameters and optimizer states in tensor order, grain by grain, then the number of
 * applied updates. Equal numbers after equally many updates have an equal hash in every placement;
 * a run that loaded its weights without states (coh_engine_load_weights) counts from 0.
 * Fails: as coh_engine_drain. */
COH_API coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash);

/* Facts stored in a checkpoint next to the tensors. Loading checks the manifest's sizes. */
typedef struct coh_checkpoint_note {
    uint32_t struct_bytes;
    uint64_t step; /* optimizer steps done (batches consumed) */
    /* the caller's own object: model, schedule, data identity and position; copied into the
     * manifest; "{}" if none */
    const char *json;
} coh_checkpoint_note;

/* Saves parameters and states to a new folder `path`, atomically and durably: streams them through
 * one chunk, writes under a temporary name, flushes and renames. Refuses an existing `path`, and
 * one to which another engine, also of another process, saves at the moment. Of several ranks only
 * rank 0 writes. Parameters that are not trained are linked from the checkpoint that this engine
 * saved or loaded last, if it is still there and they have its values.
 * Fails: COH_ERR_IO (a full disk, too), COH_ERR_NUMBER (NaN and infinity are never saved). Nothing
 * is left behind then, and the engine can be used further. */
COH_API coh_status coh_engine_save(coh_engine *engine, const char *path,
                                   const coh_checkpoint_note *note);

/* As coh_engine_save, but returns when all numbers are written. Flushing them to the drive,
 * which takes most of the time on most drives, and renaming continue during the next steps. The
 * checkpoint is of the step at which the call was made. It exists once coh_engine_save_wait
 * returned COH_OK; until then further saves are refused. coh_engine_destroy waits, too, and tells
 * the engine's `log` if the save failed: to learn it as a status, call coh_engine_save_wait first.
 * Fails: as coh_engine_save; COH_ERR_ARGUMENT if a save is under way. */
COH_API coh_status coh_engine_save_begin(coh_engine *engine, const char *path,
                                         const coh_checkpoint_note *note);
/* Does coh_engine_save_wait return at once? 1, too, if no save is under way.
 * Fails: COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_engine_save_is_done(const coh_engine *engine, int *out_is_done);
/* Waits for the save that is under way, and returns its outcome, once. COH_OK if there is none.
 * Fails: as coh_engine_save. The engine can be used further. */
COH_API coh_status coh_engine_save_wait(coh_engine *engine);

/* Returns an upper bound of the disk bytes that a checkpoint of this plan's engine takes, folder
 * and unused ends of pages included.
 * Fails: COH_ERR_FULL (larger than a file can be), COH_ERR_MEMORY, COH_ERR_ARGUMENT (NULL). */
COH_API coh_status coh_engine_save_bytes(const coh_plan *plan, uint64_t *out_bytes);
/* Returns how many of these bytes are parameters that are not trained. The first save writes them;
 * later ones, and those of an engine that loaded a checkpoint with the same values, share its file
 * of them (docs/checkpoint.md) and take so many bytes less.
 * Fails: as coh_engine_save_bytes. */
COH_API coh_status coh_engine_save_frozen_bytes(const coh_plan *plan, uint64_t *out_bytes);

/* Facts about a checkpoint that was loaded. */
typedef struct coh_load_facts {
    uint32_t struct_bytes;
    int32_t numeric_changed; /* 1: it was made under another numeric plan, so bits differ */
    uint64_t step;           /* of its note: the number of the next step */
} coh_load_facts;

/* Loads parameters and states from checkpoint `path`. Parameters are matched by name and
 * dimensions, but not by dtype: a checkpoint is f32, and a trained bf16 parameter holds all its
 * bits. With COH_PLAN_INFER states are not read. Checks every hash. `out_facts` may be NULL.
 * Fails: COH_ERR_CORRUPT naming file and place, COH_ERR_IO; COH_ERR_ARGUMENT if another optimizer
 * made the states of a parameter. */
COH_API coh_status coh_engine_load(coh_engine *engine, const char *path, coh_load_facts *out_facts);

/* As coh_engine_load, then passes each piece of values to `source`, which may overwrite it. The
 * states stay. `out_facts` may be NULL.
 * Fails: as coh_engine_load; with the source's failure. The engine then needs an init or load. */
COH_API coh_status coh_engine_load_from(coh_engine *engine, const char *path,
                                        coh_parameter_source source, void *context,
                                        coh_load_facts *out_facts);

/* As coh_engine_load, but reads no states: they are zero, and the count of updates starts at 0. For
 * a checkpoint of another optimizer. */
COH_API coh_status coh_engine_load_weights(coh_engine *engine, const char *path);

/* As coh_engine_init, then reads the weights of checkpoint `path` into all parameters except those
 * that `own` matches (as in coh_engine_init_partly), by name and dimensions. Tensors that the model
 * does not have, such as the old head, are ignored. No states are read.
 * Fails: COH_ERR_CORRUPT, with nothing changed, if the checkpoint lacks other parameters: the text
 * has their number and the first name; COH_ERR_ARGUMENT, likewise: a glob matches nothing; as
 * coh_engine_load. */
COH_API coh_status coh_engine_load_partly(coh_engine *engine, uint64_t seed, const char *own,
                                          const char *path);

/* Numbers of a parameter that coh_engine_fetch reads: its VALUE or its GRADIENT. */
typedef enum coh_fetch { COH_FETCH_VALUE, COH_FETCH_GRADIENT } coh_fetch;

/* Reads one parameter's values after the last step, or its gradient as the last body left it,
 * before clipping. The next body and coh_engine_scan replace the gradient; an init or a load sets
 * it to 0. All other calls leave it, also coh_engine_drain, which applies it. Only plans with
 * deferred_update keep gradients; steps with clip 0 have the same bits with and without it. `data`
 * takes coh_shape_elements floats, whatever the parameter's dtype: the values of a trained bf16
 * parameter are its exact f32 master copy. Values drain first; a gradient does not.
 * Fails: COH_ERR_ARGUMENT (no such parameter, or no gradient is kept); as coh_engine_drain. */
COH_API coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                                    float *data);

/* Takes elements [element_begin, element_begin + count) of a parameter, or of its gradient, as f32.
 * `values` is valid during the call. Called on the compute lane, with pieces of all parameters in
 * any order. Calls on the engine are refused; those on another engine are not. Fails with a text
 * set by coh_kind_fail. */
typedef coh_status (*coh_parameter_sink)(void *context, coh_parameter parameter, const char *name,
                                         uint64_t element_begin, uint64_t count,
                                         const float *values);

/* Passes the values of all parameters, or the gradients of all that are trained, to `sink`. One
 * pass over the model, in one chunk of memory; coh_engine_fetch makes a pass for each parameter.
 * Fails: as coh_engine_fetch; with the sink's failure, after which the engine can be used. */
COH_API coh_status coh_engine_fetch_all(coh_engine *engine, coh_fetch what, coh_parameter_sink sink,
                                        void *context);

/* Overwrites elements [element_begin, element_begin + count) of one parameter, trained or not,
 * with `values`: f32, whatever the parameter's dtype. Drains first. The next step, save or hash
 * uses the new values; optimizer states, the other elements and the states of kinds stay. A trained
 * bf16 parameter takes them exactly, as its f32 master; one without a master rounds them, and one
 * in NF4 (model.h) takes whole blocks of COH_NF4_BLOCK only, which are rounded. A range
 * costs as much as a hash: every parameter passes through the device once.
 * Fails: COH_ERR_ARGUMENT, with nothing written (no such parameter, a range beyond its end or of a
 * part of a block); COH_ERR_NUMBER, with nothing written (NaN or infinity, naming the element); as
 * coh_engine_drain. */
COH_API coh_status coh_engine_put(coh_engine *engine, coh_parameter parameter,
                                  uint64_t element_begin, uint64_t count, const float *values);

/* Reads the state stream `stream` ("m") of one parameter, after draining. `data` takes
 * coh_state_bytes of the parameter's elements.
 * Fails: COH_ERR_ARGUMENT if the parameter is not trained or has no such stream. */
COH_API coh_status coh_engine_fetch_state(coh_engine *engine, coh_parameter parameter,
                                          const char *stream, void *data);

/* Facts about the resources that the engine got, for the paragraph printed at start-up.
 * `store_read_bytes_per_s` and `store_write_bytes_per_s` were measured when the store was opened;
 * 0: not measured. `kernel_path` is coh_kernel_path() of the device. */
typedef struct coh_engine_facts {
    uint32_t struct_bytes;
    uint64_t arena_bytes[COH_TIER_COUNT]; /* reserved */
    uint64_t overhead_bytes;   /* of the process outside the arenas, measured now (VmRSS) */
    const char *store_backend; /* "io_uring fixed", ..., "none" */
    int32_t store_direct;      /* 1: O_DIRECT, 0: page cache, -1: no store */
    uint64_t store_read_bytes_per_s, store_write_bytes_per_s;
    char kernel_path[128];
    /* Arenas of the device and host tiers; 0 if there is no such arena. */
    int32_t arena_huge_pages[COH_TIER_COUNT]; /* 1: the kernel accepted the huge page advice */
    int32_t arena_node_count[COH_TIER_COUNT]; /* NUMA nodes that the arena is spread over */
    /* 1: of several nodes, it is on the one nearest the GPU */
    int32_t arena_is_near[COH_TIER_COUNT];
    uint64_t arena_touch_ns[COH_TIER_COUNT]; /* time of the first touch of every page */
    /* GPU memory outside the arena, measured now. Context: CUDA's context, and what other programs
     * held when the engine was made. Library: kernels and libraries, and what other programs took
     * since. 0: no GPU. */
    uint64_t device_context_bytes, device_library_bytes;
    uint64_t device_free_bytes; /* of a GPU's memory */
} coh_engine_facts;
/* Reads the facts. Call it between other calls; allocates nothing. Fails: COH_ERR_DEVICE. */
COH_API coh_status coh_engine_facts_get(coh_engine *engine, coh_engine_facts *out_facts);

/* One row of the memory ledger: bytes of a tier by purpose and owner. Lists what is reserved
 * (arenas, working store) and what the arenas hold: owner "extents", with a purpose for each stream
 * and "highest end" for the peak that the plan promised. */
typedef struct coh_engine_ledger_row {
    const char *tier; /* "device", "host", "disk" */
    char purpose[32], owner[32];
    uint64_t bytes, peak_bytes; /* now, and the highest so far */
} coh_engine_ledger_row;

/* Reads row `index`, from 0; returns 0 past the last. Exact while no step runs. Allocates
 * nothing. */
COH_API int coh_engine_ledger_row_at(const coh_engine *engine, uint32_t index,
                                     coh_engine_ledger_row *out_row);

/* Prints all rows as a table into `text`, cut to fit. Returns the bytes that the whole table needs,
 * terminator included. Allocates nothing. */
COH_API size_t coh_engine_ledger(const coh_engine *engine, char *text, size_t text_bytes);

/* Measured and predicted time of one class of instructions in a step. */
typedef struct coh_instruction_class {
    const char *opcode, *lane;  /* "forward", "compute" */
    const char *kind;           /* kind of operator they run: "linear"; "": none */
    uint32_t instruction_count; /* of the class, in a step */
    /* Time per step, without waits. If a lane has several instructions in flight, the time during
     * which the lane is busy. Measured: the median of the last runs. */
    double predicted_s, measured_s;
} coh_instruction_class;

/* Most classes of instructions of a plan. */
enum { COH_INSTRUCTION_CLASSES_MOST = 256 };

/* Lists every class of the body that was measured, in the body's order; texts live as long as the
 * engine. The first step after init, load, evaluate or a similar call is not counted; with no other
 * step yet, the list is empty. Allocates nothing.
 * Fails: COH_ERR_ARGUMENT while steps are running; the engine's failure. */
COH_API coh_status coh_engine_instruction_classes(
    coh_engine *engine, coh_instruction_class out_classes[COH_INSTRUCTION_CLASSES_MOST],
    uint32_t *out_count);

/* ---- rehearsal ---- */

/* Limits of a rehearsal's steps. */
enum { COH_REHEARSAL_STEPS_LEAST = 4, COH_REHEARSAL_STEPS_MOST = 10000 };

/* Results of a rehearsal; equal to the plan's summary (coh_plan_summarize) unless it failed. */
typedef struct coh_rehearsal {
    uint32_t struct_bytes;
    int32_t program_count;               /* that were run: the steps, and each other one once */
    uint64_t executed_count;             /* instructions of all runs */
    uint64_t step_ns, predicted_step_ns; /* the pace of the last steps; the plan's */
    uint64_t link_bytes[COH_LANE_COUNT]; /* per step */
    uint64_t idle_ns;                    /* per step: the compute lane waited for other lanes */
    /* Highest end that was in use; disk: the working store, outside of which nothing moved. */
    uint64_t peak_bytes[COH_TIER_COUNT];
} coh_rehearsal;

/* Runs all programs of a plan on the executor, `step_count` steps among them, without a byte behind
 * them: memory is reserved addresses, drives are not opened, and each instruction takes its price
 * by the plan's profile on a separate clock. A plan for any machine can be rehearsed on a small
 * one, and the result does not depend on that machine's speed. There is no loss and no norm.
 * Fails: COH_ERR_INTERNAL, naming the first difference: instructions or bytes that a program
 * executes or moves, a tier's peak, a time of a step by more than 2 % of the step, a chunk that is
 * read in another version than the program says, a deadlock. COH_ERR_MEMORY (addresses, tables);
 * COH_ERR_ARGUMENT. */
COH_API coh_status coh_engine_rehearse(const coh_plan *plan, int32_t step_count,
                                       coh_rehearsal *out_rehearsal);

/* Returns the instruction set, matrix products and BLAS core type in use, as in the numeric plan.
 * With the test setting COH_ISA=bf16-pretended it contains "+bf16-pretended". Static storage, which
 * coh_kernels_use rewrites. */
COH_API const char *coh_kernel_path(void);

/* Returns why products run on the fallback, and the remedy, as a clause; "" if nothing fell back.
 * OpenBLAS multiplies f32 on processors without AVX-512 and is loaded at run time. If it cannot be
 * loaded, products fall back to panels, which are slower and round differently, and
 * coh_kernel_path() names panels. Static storage. */
COH_API const char *coh_kernel_fallback(void);

#ifdef __cplusplus
}
#endif
#endif
