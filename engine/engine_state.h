/* engine_state.h - the inside of a coh_engine, shared by entry.c (one call at a time), engine.c
 * (training), persist.c (loading, saving and hashing parameters), fetch.c and report.c. */
#ifndef COH_ENGINE_ENGINE_STATE_H
#define COH_ENGINE_ENGINE_STATE_H

#include <fenv.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cohobate/engine.h"
#include "engine/background_save.h"
#include "engine/input_check.h"
#include "engine/step.h"

/* Most bodies that are submitted and not yet waited for. */
enum { COH_BODIES_MOST = 2 };

/* The outcome of a body that made its updates before its norm was known (speculate.c). */
typedef struct coh_verdict {
    int is_made;
    coh_step_result result;
    coh_status status; /* of a kind that failed; else COH_OK */
    char text[COH_ERROR_TEXT_BYTES];
} coh_verdict;

struct coh_engine {
    /* Name of the public call under way, or NULL: any thread (entry.c). */
    _Atomic(const char *) call_under_way;
    fenv_t callers_mode; /* floating-point mode of its caller (base/float_mode.h) */
    pid_t process;       /* that created the engine, and has its threads */
    int failure_is_told; /* a call has returned the executor's failure */
    const coh_plan *plan;
    coh_engine_options options;
    coh_ledger *ledger;
    coh_pool *pool;
    coh_step *step;
    coh_input_limit limits[COH_PORT_MAX]; /* by graph input */
    int is_ready;                         /* parameters have values */
    const coh_graph *ran;                 /* whose shapes the last run's outputs have */
    uint64_t under_way[COH_BODIES_MOST];  /* tickets, oldest first */
    int under_way_count;
    coh_verdict verdict; /* on the oldest body under way */
    /* The last step that changed nothing (not finite, or a kind failed): coh_engine_scan, _undo. */
    int is_broken;         /* 0: there was none, or later steps have gone on from its parameters */
    int steps_since;       /* finite ones */
    uint64_t broken_count; /* its applied_count */

    coh_logical_tensor *tensors; /* by layout parameter */
    coh_state_stream streams[COH_LOGICAL_STREAMS];
    coh_logical_table table;  /* of both */
    uint64_t elements;        /* of all tensors */
    uint64_t frozen_elements; /* of those without an optimizer */
    uint32_t trained_count;   /* tensors that an optimizer trains */
    coh_logical_hash *hash;
    coh_checkpoint_writer *writer; /* NULL: this plan does not save */
    int frozen_changed;            /* 1: frozen tensors are no longer those that the writer knows */
    int link_is_told;              /* the log has why their file cannot be shared */
    coh_background_save saver;     /* finishes the writer's checkpoints */
};

/* The device of an engine, and its store. */
typedef struct coh_engine_device {
    const coh_device_ops *ops;
    int index;                            /* among devices of one kind */
    const coh_device_kernels *kernels;    /* NULL: the host's kernels */
    const struct coh_cuda_driver *driver; /* NULL: the machine's driver */
    const coh_store_ops *store_ops;       /* NULL: the one that the options name */
    const struct coh_nccl_calls *nccl;    /* between GPUs; NULL: the machine's */
} coh_engine_device;

/* coh_engine_create on that device. Fails: also COH_ERR_ARGUMENT if the plan is for another kind of
 * device, or if a kind of operator has no kernels for this one. */
coh_status coh_engine_create_on(const coh_plan *plan, const coh_engine_options *options,
                                const coh_engine_device *device, coh_engine **out_engine);

/* Runs one program to its end, at a quiet point. Fails: COH_ERR_ARGUMENT if bodies are under
 * way. */
coh_status coh_engine_run_program(coh_engine *engine, coh_program_kind kind,
                                  const coh_step_feed *feed, coh_step_result *out_result);

/* Fails: with the executor's failure. If a call has returned it before, the text says that the
 * engine is dead since then. */
coh_status coh_engine_check_alive(const coh_engine *engine);

/* Fails: COH_ERR_ARGUMENT as long as the parameters have no values; as coh_engine_check_alive. */
coh_status coh_engine_check_ready(const coh_engine *engine, const char *what);

/* Fails: COH_ERR_ARGUMENT while steps are under way, naming the public call; as
 * coh_engine_check_alive. */
coh_status coh_engine_check_idle(const coh_engine *engine);

/* coh_engine_drain, inside a call. */
coh_status coh_engine_apply_pending(coh_engine *engine);

/* Sets the number of applied updates, with none pending. At a quiet point. */
coh_status coh_engine_set_applied(coh_engine *engine, uint64_t applied_count);

/* ---- speculate.c ---- */

/* In a plan that speculates: waits for the norm of the oldest body under way, if there is no
 * verdict on it yet. Keeps the body if its gradient was not to be clipped; else takes it back,
 * and runs it again with the factor unless it is broken. Only the oldest body has then been
 * submitted. Fails: the step's failure. */
coh_status coh_engine_decide(coh_engine *engine);
/* Makes the state that of `applied_count` updates again, which is the present one or that before
 * the newest body. Fails: as coh_step_undo. */
coh_status coh_engine_take_back(coh_engine *engine, uint64_t applied_count);

/* ---- report.c ---- */

/* coh_engine_instruction_classes, inside a call. */
coh_status coh_engine_list_classes(coh_engine *engine, coh_instruction_class *out_classes,
                                   uint32_t *out_count);

/* ---- persist.c ---- */

/* Makes the tables for hash and checkpoints. Fails: COH_ERR_MEMORY. */
coh_status coh_engine_create_tables(coh_engine *engine);
void coh_engine_destroy_tables(coh_engine *engine);

#endif
