/* step.h - the executor: walks a program on its lanes.
 *
 * It decides nothing. Lines go out in issue order; each lane runs its lines one after the other, waits
 * for the counters a line names, checks its predicate, enters the extents it touches, does it, leaves
 * the extents whose count is used up, and raises `retired`.
 *
 *   step thread:   issue c1   issue c2 ...    issues all device lanes, in the program's order
 *   compute:           [ c1 ][ c2 ]           retired[compute] = 0 1 2
 *   read thread:   [ r1 .............. ]      its own; waits until retired[compute] >= n
 *
 * Line n of lane L in repetition r of a run has the number base[L] + r * length[L] + n. Programs of
 * different kinds meet at a quiet point (all lanes retired), so a first repetition's carried waits hold
 * already and are skipped. */
#ifndef COH_ENGINE_STEP_H
#define COH_ENGINE_STEP_H

#include "base/check.h"
#include "memory/tier.h"
#include "planner/plan.h"

typedef struct coh_step_engine coh_step_engine;

/* What a line of an opcode that only the engine knows does with the chunk it touches. Called on the
 * compute lane with resolved pointers. `first` and `first_bytes` are a chunk of stream `stream` of
 * `object` that begins at object_offset. */
typedef struct coh_chunk_visit {
    const coh_layout *layout;
    coh_opcode opcode;
    coh_stream stream;
    int32_t group;
    uint64_t object_offset, bytes; /* in the object of its own stream */
    void *data;
} coh_chunk_visit;
typedef coh_status (*coh_chunk_visitor)(void *context, const coh_chunk_visit *visit);

#endif
