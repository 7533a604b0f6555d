/* phantom.h - runs the executor in virtual time, with no memory behind its addresses.
 *
 * The one idea: everything that orders a step is real - programs, binding, threads, queues,
 * counters, waits, extents - and only the work is missing. An arena is reserved address space that
 * nothing may touch. An instruction takes its price on a clock (planner/fluid.h), on which lanes
 * slow one another as in the simulator.
 *
 *   compute h2d d2h host  coh_phantom_start  |            | retire: end, raise `retired`
 *   read write            store: submit      |-> clock -> | retire: the request is complete
 *
 * The clock's thread, coh-phantom, advances it only while all other threads sleep, so at each time
 * of the clock all of them have done what they can, and times do not depend on the machine. If
 * nothing is in service then, the program has a deadlock, and the step fails with that. */
#ifndef COH_ENGINE_PHANTOM_H
#define COH_ENGINE_PHANTOM_H

#include "memory/device.h"
#include "offload/store.h"
#include "planner/plan.h"

typedef struct coh_phantom coh_phantom;
struct coh_step;

/* Takes prices and depths from `plan`. Plan and result outlive the step that gets it
 * (coh_step_config), together with coh_device_host and coh_store_phantom.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_phantom_create(const coh_plan *plan, coh_phantom **out_phantom);
void coh_phantom_destroy(coh_phantom *phantom); /* accepts NULL */

/* Starts the clock for a step; stops it, which wakes everything that waits for it. Stopping is for
 * any thread and accepts NULL; coh_phantom_join then ends its thread. */
coh_status coh_phantom_run(coh_phantom *phantom, struct coh_step *step);
void coh_phantom_stop(coh_phantom *phantom);
void coh_phantom_join(coh_phantom *phantom);

/* The group of all the step's threads; NULL: none. */
coh_awake *coh_phantom_awake(coh_phantom *phantom);

/* coh_device_work, on the lane's thread: begins an instruction once its lane has room. The clock
 * ends it. */
void coh_phantom_start(void *step, uint64_t number, uint32_t index);

/* As an instruction begins and ends: a reader finds each chunk in its arena in the version that the
 * program says, or the step fails; a writer leaves its own. */
void coh_phantom_read_versions(struct coh_step *step, uint64_t number, uint32_t index);
void coh_phantom_write_versions(struct coh_step *step, uint64_t number, uint32_t index);

/* The store of the config's `phantom`. Fails: COH_ERR_INTERNAL if a chunk is read of which another
 * version was written last. */
extern const coh_store_ops coh_store_phantom;

/* For the thread that created the step, whenever it is awake: the clock stands still then. */
typedef struct coh_phantom_time {
    double now_ns;
    double idle_ns; /* the compute lane's so far */
} coh_phantom_time;
coh_phantom_time coh_phantom_clock(const coh_phantom *phantom);

/* Work so far, at a quiet point. */
typedef struct coh_phantom_work {
    uint64_t executed[COH_LANE_COUNT]; /* instructions */
    uint64_t bytes[COH_LANE_COUNT];    /* that the operands of movers name */
    uint64_t file_bytes;               /* of the store; no request is outside */
} coh_phantom_work;
void coh_phantom_read(const coh_phantom *phantom, coh_phantom_work *out_work);

#endif
