/* next_use.h - find when each chunk is accessed next, and whether its content is still needed then.
 *
 * Steps are numbered on: 0 .. n-1 of the current sequence, n is its end, n+1 .. of the sequence
 * that will follow. */
#ifndef COH_PLANNER_NEXT_USE_H
#define COH_PLANNER_NEXT_USE_H

#include "planner/residency.h"

#define COH_NEVER UINT64_MAX

/* Four bytes: those of a long program are read in no order, and eight did not fit in a cache. */
enum { COH_ACCESS_STEP_BITS = 29 };
typedef struct coh_chunk_access {
    uint32_t step : COH_ACCESS_STEP_BITS;
    uint32_t what : 32 - COH_ACCESS_STEP_BITS; /* enum in next_use.c */
} coh_chunk_access;

typedef struct coh_next_use {
    coh_chunk_access *accesses; /* by chunk: [begin[c], begin[c + 1]) in rising step */
    uint32_t *begin;
    uint32_t *cursor; /* by chunk: the next access, an index into accesses */
    uint32_t chunk_count, end_step;
} coh_next_use;

/* `next` may be NULL. */
coh_status coh_next_use_init(coh_next_use *uses, const coh_level *level,
                             const coh_sequence *sequence, const coh_sequence *next);
void coh_next_use_fini(coh_next_use *uses); /* accepts a zeroed struct */

/* Returns 1 if the present content of the chunk is read again, here or farther out, or needed at
 * the end. */
int coh_next_use_is_needed(const coh_next_use *uses, uint32_t chunk);
/* Returns the step of the next access in this tier; COH_NEVER if there is none or the content dies
 * first. Content needed only farther out, or at the end, can be evicted before all else: COH_NEVER
 * - 1. */
uint64_t coh_next_use_step(const coh_next_use *uses, uint32_t chunk);
/* Returns the step that reads a chunk last before its content dies: the present content, or that of
 * a write at the present step. COH_NEVER: the content survives; 0: nothing reads it. */
uint64_t coh_next_use_last_read(const coh_next_use *uses, uint32_t chunk);

/* Marks the chunks that local step `local_step` of `sequence` touches as used at `step`. */
void coh_next_use_advance(coh_next_use *uses, uint32_t step, const coh_sequence *sequence,
                          uint32_t local_step, const coh_layout *layout);
/* Passes the end (free runs). */
void coh_next_use_cross(coh_next_use *uses);

#endif
