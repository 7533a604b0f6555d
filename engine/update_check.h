/* update_check.h - the check mode of an engine for optimizers (coh_engine_options.check_calls):
 * every update works on guarded copies, as calls of kinds do (call_check.h). An update of one range
 * must also have the bits of updates of its two halves. Host device only. */
#ifndef COH_ENGINE_UPDATE_CHECK_H
#define COH_ENGINE_UPDATE_CHECK_H

#include <pthread.h>

#include "cohobate/optimizer.h"
#include "cohobate/status.h"
#include "engine/guard.h"
#include "planner/plan.h"

typedef enum coh_update_fault {
    COH_UPDATE_FAULT_NONE,
    COH_UPDATE_FAULT_WRITES_OUTSIDE,
    COH_UPDATE_FAULT_WRITES_GRAD,
    COH_UPDATE_FAULT_OF_RANGE /* two halves of the range give other bits */
} coh_update_fault;

/* The first wrong update of an engine. */
typedef struct coh_update_finding {
    coh_update_fault fault;
    const coh_optimizer *optimizer;
    int32_t buffer;    /* see update_check.c */
    int64_t offset;    /* byte of the buffer */
    int64_t has_bytes; /* the buffer */
    int64_t count;     /* elements of the range */
    uint64_t first;    /* see coh_update_call */
} coh_update_finding;

/* Memory for the largest update of a plan. Zeroed: there is none. */
typedef struct coh_update_check {
    coh_guarded_memory memory;
    char *whole;           /* results of an update of the whole range */
    pthread_mutex_t mutex; /* held during an update: all threads share the memory */
    int mutex_is_made;
    coh_update_finding finding; /* under the mutex */
} coh_update_check;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_update_check_init(const coh_layout *layout, coh_update_check *out_check);
void coh_update_check_fini(coh_update_check *check);

/* Runs an update on copies, and copies back what it writes; after a finding does nothing. Any
 * thread. `context` is the coh_update_check (coh_update.run). */
void coh_update_check_run(void *context, const coh_optimizer *optimizer,
                          const coh_update_call *call);

/* Fails: COH_ERR_ARGUMENT after a finding. */
coh_status coh_update_check_result(coh_update_check *check, const coh_plan *plan);

#endif
