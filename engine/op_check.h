/* op_check.h - what the stages of a check (op_stages.c) share with the function that runs them and
 * passes their findings on (op_check.c). Next: cohobate/op_check.h. */
#ifndef COH_ENGINE_OP_CHECK_H
#define COH_ENGINE_OP_CHECK_H

#include "base/check.h"
#include "base/pool.h"
#include "cohobate/op_check.h"
#include "engine/op_trial.h"

enum { COH_OP_FINDINGS_MOST = 24, COH_OP_SENTENCE_BYTES = 640, COH_OP_PORT_BYTES = 32 };

typedef struct coh_op_record {
    coh_op_fault fault;
    coh_phase phase;
    int64_t element;
    double expected, got;
    char port[COH_OP_PORT_BYTES];
    char sentence[COH_OP_SENTENCE_BYTES];
} coh_op_record;

/* Results of a check, in memory that the child process shares with its parent. */
typedef struct coh_op_shared {
    int32_t count, gradient_count;
    coh_op_record record[COH_OP_FINDINGS_MOST];
    /* If the process ends now: the fault, and where. */
    coh_op_fault crash_fault;
    coh_phase crash_phase;
    const char *crash_cause; /* static; NULL: the fault's usual one */
    int32_t is_finished;     /* the child process has reached its end */
    coh_status status;       /* of the check itself */
    char error[COH_ERROR_TEXT_BYTES];
} coh_op_shared;

typedef struct coh_op_stages {
    const coh_graph *graph;
    const coh_engine_device *device; /* a GPU; NULL: the host */
    uint64_t seed;
    int32_t thread_count;
    coh_port_mask other_gradients;
    coh_op_shared *shared;
    /* Results of an operator with other values, from a process that ran nothing before; NULL:
     * none. */
    const char *fresh;
} coh_op_stages;

/* coh_op_check on that device. Fails: also COH_ERR_DEVICE. */
coh_status coh_op_check_on(const coh_op_kind *kind, const coh_op_check_options *options,
                           const coh_engine_device *device, coh_op_report *out_report);

/* Runs all stages; the findings are in stages->shared. Fails: COH_ERR_MEMORY, COH_ERR_ARGUMENT,
 * COH_ERR_DEVICE. */
coh_status coh_op_stages_run(const coh_op_stages *stages);

/* Runs the operator with other values than the stages' and writes its results to `out_results`
 * (NULL: only their size). Fails: as the kind. */
coh_status coh_op_fresh_run(const coh_op_stages *stages, char *out_results, size_t *out_bytes);

/* Writes the name of a place's port, and the sentence of a finding there. `cause` as below. */
void coh_op_sentence(coh_op_fault fault, const coh_trial_place *place, const char *cause,
                     char out_port[COH_OP_PORT_BYTES], char out_sentence[COH_OP_SENTENCE_BYTES]);

/* Returns the cause of a write outside a buffer of this role, or to one that is only read. NULL:
 * the fault's usual one. */
const char *coh_op_write_cause(coh_op_fault fault, coh_trial_role role);

/* Adds a finding. `place` NULL: none; `cause` NULL: the fault's usual one. */
void coh_op_report_add(coh_op_shared *shared, coh_op_fault fault, const coh_trial_place *place,
                       const char *cause);

#endif
