/* step.h - the executor: walks a program on its lanes.
 *
 * It makes no decisions. Instructions are issued in the program's order. Each lane takes its
 * instructions one after the other: it waits for the counters that an instruction names, checks its
 * predicate, enters the extents it touches, runs it, leaves the extents whose use count is zero,
 * and raises `retired`.
 *
 *   step thread:   issue c1   issue c2 ...    issues all device lanes, in the program's order
 *   compute:           [ c1 ][ c2 ]           retired[compute] = 0 1 2
 *   read thread:   [ r1 .............. ]      its own; waits until retired[compute] >= n
 *
 * One run of one program is a *ticket*. Tickets are numbered from 1 and executed in order. Each
 * lane counts its instructions from a base per ticket: instruction n of a lane in a ticket has the
 * number base + n, and a carried wait is one program's length lower. Up to two tickets of one
 * program overlap: the second one's first reads begin while the first one's last writes are still
 * in flight. Between tickets of different programs there is a quiet point (all lanes retired). The
 * carried waits of the first repetition after a quiet point already hold and are skipped.
 *
 * Failure: the first failing instruction of any lane determines the failure. Its status and error
 * text are kept, and every counter is closed, so that every thread stops promptly. Each later call
 * returns that failure.
 *
 * Threads: all calls belong to the thread that created the step. It starts coh-step and one
 * thread per lane in use. Nothing is allocated after create. */
#ifndef COH_ENGINE_STEP_H
#define COH_ENGINE_STEP_H

#include "base/check.h"
#include "base/pool.h"
#include "cohobate/engine.h"
#include "cohobate/trace.h"
#include "engine/instruction_times.h"
#include "engine/segments.h"
#include "memory/cells.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "memory/tier.h"
#include "offload/store.h"
#include "planner/plan.h"

typedef struct coh_step coh_step;

/* A part of a chunk that an INIT, IMPORT, HASH, SAVE or EDIT instruction shows to the visitor: a
 * run of whole grains (the tensor's last may be short) of one stream of one tensor. Weights and
 * gradients are f32, whatever the dtype in the plan; the value of a bf16 parameter is its exact
 * master. States are the blocks of their stream. INIT, IMPORT and EDIT keep what the visitor
 * writes. Called on the compute lane; the visitor may use the pool. */
typedef struct coh_chunk_visit {
    coh_opcode opcode;
    coh_stream stream;             /* WORK: the value; GRAD; STATE */
    int part;                      /* 0: values. 1 + i: state stream i of the tensor */
    uint32_t parameter;            /* in the layout */
    uint64_t element_begin, count; /* in the tensor */
    void *data;
} coh_chunk_visit;
typedef coh_status (*coh_chunk_visitor)(void *context, const coh_chunk_visit *visit);
/* Returns whether the visitor wants this part. Called before `data` is assembled. */
typedef int (*coh_chunk_filter)(void *context, const coh_chunk_visit *visit);

static inline float coh_loss_factor(const coh_step_input *step_input)
{
    return step_input->loss_factor > 0 ? step_input->loss_factor : 1.0f;
}

typedef struct coh_step_config {
    /* Provides layout, programs, graph, micro-batch count, deferred_update and link rate. Must
     * outlive the step. `graph` may be NULL if no instruction runs an operator kind. */
    const coh_plan *plan;
    const coh_engine_options *options; /* read during create only */
    const coh_device_ops *device_ops;
    /* If not the host device: which GPU, its kernels, and its driver (NULL: the machine's). */
    int device_index;
    const coh_device_kernels *device_kernels;
    const struct coh_cuda_driver *driver;
    const struct coh_nccl_calls *nccl; /* between GPUs; NULL: the machine's */
    const coh_store_ops *store_ops;    /* NULL: the best available kind */
    struct coh_phantom *phantom;       /* of a rehearsal, with the host device; else NULL */
    coh_pool *pool;                    /* for kernels of the compute lane; NULL: none */
    coh_ledger *ledger;
} coh_step_config;

/* Creates arenas, store and threads, and resolves all calls. Pinned objects are zeroed; with poison
 * the rest is NaN. Fails: COH_ERR_MEMORY, COH_ERR_FULL (disk), COH_ERR_DEVICE, COH_ERR_IO,
 * COH_ERR_INTERNAL (a program that no scheduler of ours writes). */
coh_status coh_step_create(const coh_step_config *config, coh_step **out_step);
/* Stops all work. Afterwards the ledger is as before create. Accepts NULL. */
void coh_step_destroy(coh_step *step);

/* The arguments of one run. FEED copies seed, step, learning rate, clip and inputs; INIT uses the
 * seed. */
typedef struct coh_step_feed {
    const coh_step_input *input; /* NULL: all zero */
    uint64_t microbatch_count;   /* of the inputs: the plan's; 1: evaluate; 0: there are none */
    /* for INIT (after its own values), IMPORT, HASH, SAVE, EDIT; may be NULL */
    coh_chunk_visitor visitor;
    coh_chunk_filter visitor_wants; /* NULL: everything */
    void *visitor_context;
    int32_t skips_frozen; /* 1: the visitor is not shown tensors without an optimizer */
    int32_t scan;         /* 1: check every value that a kind's instruction writes */
    double norm;          /* of a body that speculates: its updates are clipped by this norm */
} coh_step_feed;

/* Starts one run of the program of `kind`. Inputs are copied before it returns. Waits until at most
 * one run of the same program is unfinished, or none of another. `out_ticket` may be NULL. */
coh_status coh_step_submit(coh_step *step, coh_program_kind kind, const coh_step_feed *feed,
                           uint64_t *out_ticket);

/* Returns the results of CLIP in a ticket, and the exposed and link figures since the CLIP before.
 * Valid for the two newest tickets. For a program without CLIP: waits for the whole ticket; all
 * results except the figures are zero. */
coh_status coh_step_await(coh_step *step, uint64_t ticket, coh_step_result *out_result);

/* Waits until coh_step_await would return at once, or until `limit_ns` are over: returns 0 then. Of
 * a program without CLIP: returns 1. */
int coh_step_await_for(coh_step *step, uint64_t ticket, uint64_t limit_ns);

/* coh_engine_ask_stop. */
void coh_step_ask_stop(coh_step *step);
/* Waits for a quiet point and takes back the newest body: everything that its updates wrote is as
 * before it, except the cells. Fails: COH_ERR_ARGUMENT if the layout does not keep the old values,
 * or something has run since. */
coh_status coh_step_undo(coh_step *step);
/* Runs the body of ticket `number`, which was taken back, once more, with its own inputs; its
 * updates are clipped by `norm`. The ticket is one of the two newest. */
coh_status coh_step_repeat(coh_step *step, uint64_t number, double norm, uint64_t *out_ticket);
/* Returns 1 if the gradient of the body of ticket `number`, one of the two newest, is to be scaled
 * down, its norm being `norm`. */
int coh_step_is_clipped(const coh_step *step, uint64_t number, double norm);

/* Returns the first failure of any instruction and makes its text this thread's last error; or
 * COH_OK. Any thread. */
coh_status coh_step_failure(coh_step *step);

/* Did any instruction fail? Leaves this thread's last error. Any thread. */
int coh_step_has_failed(coh_step *step);
/* Does this thread run a function of an operator kind for the step? Accepts NULL. Any thread. */
int coh_step_is_in_kind(const coh_step *step);

/* Ends all threads and cancels running work. Call it after a failure, before the memory that a
 * feed points to is freed: an instruction that has begun still reads it. After that the step can
 * only report its failure and be destroyed. */
void coh_step_halt(coh_step *step);

/* Waits until all lanes have retired ticket `number`, and until all have retired everything
 * submitted. */
coh_status coh_step_finish(coh_step *step, uint64_t number);
coh_status coh_step_quiet(coh_step *step);

/* After a run with scan: operator and tensor of the first instruction that wrote a value that is
 * not finite, or 0 when there was none. */
typedef struct coh_scan_finding {
    int32_t operator_index, microbatch;
    coh_opcode opcode;
    coh_role role;
    int32_t port;
} coh_scan_finding;
int coh_step_scan_finding(const coh_step *step, coh_scan_finding *out_finding);

/* Copy the cells from the device and back. At a quiet point only, as all functions up to
 * coh_step_times. Fails: COH_ERR_DEVICE. */
coh_status coh_step_get_cells(coh_step *step, coh_cells *out_cells);
coh_status coh_step_put_cells(coh_step *step, const coh_cells *cells);
/* Returns a host address of a pinned object's present contents, valid until the next run or the
 * next such call. Fails: COH_ERR_DEVICE. */
coh_status coh_step_look(coh_step *step, int32_t object, const void **out_data);
/* Zeroes all pinned objects, before parameters are initialised or loaded again. Fails:
 * COH_ERR_DEVICE. */
coh_status coh_step_clear_pinned(coh_step *step);
/* Returns the loss of the first micro-batch; 0 without losses. Fails: COH_ERR_DEVICE. */
coh_status coh_step_first_loss(coh_step *step, double *out_loss);

/* Returns the measured times of the body's instructions: at a quiet point. */
const coh_instruction_times *coh_step_times(const coh_step *step);

/* coh_engine_recorded. */
coh_status coh_step_recorded(coh_step *step, uint64_t index, coh_trace_step *out_step);
/* coh_engine_latencies. */
coh_status coh_step_latencies(const coh_step *step, coh_trace_latency *out_latencies);
/* Finds the body's instructions that the device issues together with others: 1 for each of them,
 * by index. */
void coh_step_shared(const coh_step *step, uint8_t *out_is_shared);

/* Returns the figures of the store; returns 0 when the plan has none. */
int coh_step_store_facts(const coh_step *step, coh_store_facts *out_facts);

#endif
