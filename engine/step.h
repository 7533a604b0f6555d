/* step.h - the executor: walks a program on its lanes.
 *
 * It decides nothing. Lines go out in issue order; each lane takes its lines one after the other,
 * waits for the counters a line names, checks its predicate, enters the extents it touches, does
 * it, leaves the extents whose count is used up, and raises `retired`.
 *
 *   step thread:   issue c1   issue c2 ...    issues all device lanes, in the program's order
 *   compute:           [ c1 ][ c2 ]           retired[compute] = 0 1 2
 *   read thread:   [ r1 .............. ]      its own; waits until retired[compute] >= n
 *
 * One run of one program is a *ticket*. Tickets are numbered from 1 and taken up in order; each
 * lane counts its lines from a base per ticket, so line n of a lane in a ticket has the number base
 * + n, and a carried wait is one program's length lower. Up to two tickets of one program overlap:
 * while the first one's last writes leave, the second one's first reads come. Tickets of different
 * programs meet at a quiet point (all lanes retired); the carried waits of a first repetition hold
 * there and are skipped.
 *
 * Failure: the first failing line of any lane wins. Its status and sentence are kept, every counter
 * is closed, so every thread stops promptly; each later call returns that failure.
 *
 * Threads: all calls belong to the thread that created it. It starts coh-step and one thread per
 * lane in use. Nothing is allocated after create. */
#ifndef COH_ENGINE_STEP_H
#define COH_ENGINE_STEP_H

#include "base/check.h"
#include "base/pool.h"
#include "cohobate/engine.h"
#include "engine/line_times.h"
#include "engine/segments.h"
#include "memory/cells.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "memory/tier.h"
#include "offload/store.h"
#include "planner/plan.h"

typedef struct coh_step coh_step;

/* What an INIT, IMPORT, HASH or SAVE line shows of the chunk it touches: a run of whole grains (the
 * tensor's last may be short) of one part of one tensor, in f32 whatever dtype the plan keeps it
 * in. The value of a bf16 parameter is its exact master. INIT and IMPORT keep what the visitor
 * writes. Called on the compute lane, which may use the pool meanwhile. */
typedef struct coh_chunk_visit {
    coh_opcode opcode;
    coh_stream stream;             /* WORK: the value; GRAD; STATE */
    coh_part part;                 /* of GRAD: COH_PART_WORK */
    uint32_t parameter;            /* in the layout */
    uint64_t element_begin, count; /* in the tensor */
    float *values;
} coh_chunk_visit;
typedef coh_status (*coh_chunk_visitor)(void *context, const coh_chunk_visit *visit);
/* Does the visitor look at this one? Asked before `values` are put together. */
typedef int (*coh_chunk_filter)(void *context, const coh_chunk_visit *visit);

static inline float coh_loss_factor(const coh_step_input *step_input)
{
    return step_input->loss_factor > 0 ? step_input->loss_factor : 1.0f;
}

typedef struct coh_step_config {
    /* Layout, programs, graph, microbatch count, deferred_update, link rate. Must outlive the step.
     * `graph` may be NULL where no line runs a kind. */
    const coh_plan *plan;
    const coh_engine_options *options; /* read during create only */
    const coh_device_ops *device_ops;
    /* Beside the host device: which GPU, its kernels, and its driver (NULL: the machine's). */
    int device_index;
    const coh_device_kernels *device_kernels;
    const struct coh_cuda_driver *driver;
    const coh_store_ops *store_ops; /* NULL: the best rung */
    coh_pool *pool;                 /* for kernels of the compute lane; NULL: none */
    coh_ledger *ledger;
} coh_step_config;

/* Arenas, store, threads, all calls resolved. Pinned objects are zero; with poison the rest is NaN.
 * Fails: COH_ERR_MEMORY, COH_ERR_FULL (disk), COH_ERR_DEVICE, COH_ERR_IO, COH_ERR_INTERNAL (a
 * program that no scheduler of ours writes). */
coh_status coh_step_create(const coh_step_config *config, coh_step **out_step);
/* Stops what runs. The ledger is then as before create. Accepts NULL. */
void coh_step_destroy(coh_step *step);

/* What one run is given. FEED copies seed, step, learning rate, clip and inputs;
 * INIT uses the seed. */
typedef struct coh_step_feed {
    const coh_step_input *input; /* NULL: all zero */
    uint64_t microbatch_count;   /* of the inputs: the plan's, 1 (evaluate), 0: there are none */
    /* for INIT (after its own values), IMPORT, HASH, SAVE; may be NULL */
    coh_chunk_visitor visitor;
    coh_chunk_filter visitor_wants; /* NULL: everything */
    void *visitor_context;
    int32_t scan; /* 1: check every value that a kind's line writes */
} coh_step_feed;

/* Starts one run of the program of `kind`. Inputs are copied before it returns. Waits until at most
 * one run is unfinished (of the same program), or none (of another). `out_ticket` may be NULL. */
coh_status coh_step_submit(coh_step *step, coh_program_kind kind, const coh_step_feed *feed,
                           uint64_t *out_ticket);

/* What CLIP found in a ticket; exposed and link figures since the CLIP before. Valid for the two
 * newest tickets. For a program without CLIP: waits for the whole ticket, result all
 * zero but the figures. */
coh_status coh_step_await(coh_step *step, uint64_t ticket, coh_step_result *out_result);

/* The first failure of any line, its sentence made this thread's last error; or
 * COH_OK. Any thread. */
coh_status coh_step_failure(coh_step *step);

/* Ends all threads; what runs is cut off. After a failure, before what a feed points to goes away:
 * a line that had begun still looks at it. The step then only tells its
 * failure and is destroyed. */
void coh_step_halt(coh_step *step);

/* Waits until all lanes have retired everything submitted. */
coh_status coh_step_quiet(coh_step *step);

/* After a run with scan: operator and tensor of the first line that wrote a value that is not
 * finite, or 0 when there was none. */
typedef struct coh_scan_finding {
    int32_t operator_index, microbatch;
    coh_opcode opcode;
    coh_role role;
    int32_t port;
} coh_scan_finding;
int coh_step_scan_finding(const coh_step *step, coh_scan_finding *out_finding);

/* At a quiet point only, as all up to coh_step_times: the cells, from the device and back.
 * Fails: COH_ERR_DEVICE. */
coh_status coh_step_get_cells(coh_step *step, coh_cells *out_cells);
coh_status coh_step_put_cells(coh_step *step, const coh_cells *cells);
/* Where the host finds what a pinned object holds now, until the next run or the next such call.
 * Fails: COH_ERR_DEVICE. */
coh_status coh_step_look(coh_step *step, int32_t object, const void **out_data);
/* Zeroes all pinned objects: before parameters are made or loaded anew. Fails: COH_ERR_DEVICE. */
coh_status coh_step_clear_pinned(coh_step *step);
/* The loss of the first micro-batch; 0 without losses. Fails: COH_ERR_DEVICE. */
coh_status coh_step_first_loss(coh_step *step, double *out_loss);

/* What the body's lines took: at a quiet point. */
const coh_line_times *coh_step_times(const coh_step *step);

/* The figures of the store; 0 when the plan has none. */
int coh_step_store_facts(const coh_step *step, coh_store_facts *out_facts);

#endif
