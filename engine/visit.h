/* visit.h - a program that shows the engine's parameters and states, chunk after chunk, to a
 * visitor: INIT, IMPORT, HASH, SAVE or EDIT. A model that does not fit in memory passes through
 * one chunk. Visitors see f32 whatever the plan's dtype.
 *
 * A visitor is a struct that begins with a coh_visit. One that fails reports to its caller, not to
 * the executor: a full disk during a save must not end the run. It ignores the runs of elements
 * that still come. */
#ifndef COH_ENGINE_VISIT_H
#define COH_ENGINE_VISIT_H

#include "engine/engine_state.h"

typedef struct coh_visit {
    coh_operation operation; /* for the progress callback */
    /* Does this visitor want the run of elements? */
    int (*wants)(const struct coh_visit *visit, const coh_chunk_visit *run);
    /* Processes a run that it wants. NULL: it wants none. */
    coh_status (*take)(struct coh_visit *visit, const coh_chunk_visit *run);
    int skips_frozen; /* 1: it is not shown tensors without an optimizer */

    /* set by coh_engine_visit */
    coh_engine *engine;
    uint64_t total;      /* elements of parameters to visit */
    uint64_t done, told; /* of those: visited, and passed to `progress` */
    coh_status status;   /* first failure; its text comes from another thread and is kept */
    char text[COH_ERROR_TEXT_BYTES];
} coh_visit;

/* Runs a visited program; `input` may be NULL. Returns the first failure of executor or visitor. */
coh_status coh_engine_visit(coh_engine *engine, coh_program_kind kind, coh_visit *visit,
                            const coh_step_input *input);

/* Fails with COH_ERR_NUMBER at the first value of `count` from `element_begin` on that is not
 * finite. */
coh_status coh_check_values(const char *name, uint64_t element_begin, uint64_t count,
                            const float *values);

/* A choice of `wants`. */
int coh_visit_wants_values_and_states(const coh_visit *visit, const coh_chunk_visit *run);

#endif
