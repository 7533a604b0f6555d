/* residency.h - decide, for one tier, where every window lies, what is evicted to make room, and
 * what must be fetched: farthest next use (Belady 1966) over windows of different sizes, with
 * addresses.
 *
 *   steps      0        1        2        3        4  ...  END   (then the steps that will follow)
 *   operands   w0,x0    w1,x1    w2,x2    w2,x2,g2 ...     boundary map
 *
 * The same code serves every level: device over its far tier (steps are the compute instructions),
 * and host over disk (steps are the movers of the level above, and the instructions of the host
 * lane). A far operand (lower.h) takes no memory here: the data it reads is written out first, and
 * a write makes the copy here stale.
 *
 * The rule at step p, for a window that is not resident: of all places of its size take the one
 * whose present content is needed again latest. If only space unused for `horizon` steps is
 * taken, a fetch can start that many steps early. Content whose next access is a pure write is
 * dead. Changed content is written out on eviction, keyed just after its last producer until
 * move_order.h keys it later; a fetch is keyed just before its first user, until that keys it
 * earlier. */
#ifndef COH_PLANNER_RESIDENCY_H
#define COH_PLANNER_RESIDENCY_H

#include "planner/homes.h"
#include "planner/lower.h"

/* How the boundary map is made. */
enum coh_boundary {
    COH_BOUNDARY_FREE,    /* chunks that a second body in a row still finds, at their places then */
    COH_BOUNDARY_SETTLED, /* the same chunks, at the offsets where a run from the map ends */
    COH_BOUNDARY_FULL,    /* that, and in the rest the chunks that the next body needs first */
    COH_BOUNDARY_WANTED,  /* in all space the chunks that the next body needs first, no others */
    COH_BOUNDARY_LATE, /* SETTLED, and changed chunks that still lie here: they leave next time */
    COH_BOUNDARY_COUNT
};

/* Steps and their operands. The operands of step s: operands[operand_begin[s] .. operand_begin[s
 * + 1]). */
typedef struct coh_sequence {
    uint32_t step_count;
    const uint32_t *operand_begin; /* step_count + 1 */
    const coh_lowered_operand *operands;
    const struct coh_lowered
        *lowered; /* whose instructions are the steps; NULL: they are no instructions */
    /* NULL: a write makes the next version. Else by operand: the version that is read, or that a
     * pure write leaves (the movers of the level above carry it). */
    const int32_t *operand_version;
    int starts_empty; /* 1: no place holds a value at the begin (INIT, IMPORT) */
} coh_sequence;

typedef struct coh_level {
    const coh_layout *layout;
    coh_tier tier;
    uint64_t base_bytes; /* [0, base_bytes) holds pinned objects */
    uint64_t capacity;   /* UINT64_MAX: no limit */
    int has_far;         /* 1: chunks can be written out and fetched again */
    /* NULL, or by chunk: its fixed place in this tier (no search); COH_NO_HOME: placed by
     * search, at or above `floor_bytes`. With a far tier: the chunks pinned here, which are
     * never evicted. */
    const uint64_t *home_offset;
    uint64_t floor_bytes;
    /* NULL, or chunks with fixed places, from the lowest on: while one of them is absent, chunks
     * placed by search may lie there. */
    const uint32_t *home_chunks;
    uint32_t home_count;
    /* NULL, or by chunk: 1 if a nearer tier holds the value between programs, so that the copy here
     * is garbage at the begin and not required at the end */
    const uint8_t *held_nearer;
    /* by chunk: 1 if a copy also lies farther out than the nearest one between programs: of a
     * parameter that is not trained */
    const uint8_t *keeps_far;
    const uint8_t *rules;          /* NULL, or by chunk: enum coh_chunk_rule */
    const struct coh_graph *graph; /* for messages */
    int is_gpu;
    int tie_break;    /* enum coh_tie_break */
    uint32_t horizon; /* steps */
    int patient;      /* enum coh_patient */
    int boundary;     /* enum coh_boundary */
} coh_level;

/* Windows that go to space unused for the horizon, in addition to fetched ones. */
enum coh_patient {
    COH_PATIENT_FETCHES, /* no others */
    COH_PATIENT_ALL,     /* written ones, too */
    COH_PATIENT_MOVED,   /* what compute writes goes to space that no mover used for the horizon */
    COH_PATIENT_COUNT
};

/* Effect of pins on a chunk in a tier that has another one farther out. */
enum coh_chunk_rule {
    COH_CHUNK_STAYS = 1,  /* not evicted while its content is needed */
    COH_CHUNK_LEAVES = 2, /* evicted as soon as it is idle for a while */
    COH_CHUNK_AWAY = 4    /* not in the boundary map */
};

enum coh_tie_break {
    COH_TIE_LOWEST,   /* lowest offset */
    COH_TIE_TWO_ENDS, /* parameters from the bottom, everything else from the top */
    COH_TIE_CLEAN,    /* lowest offset; avoids evicting changed content not yet written out */
    COH_TIE_COUNT
};

/* One chunk to move between this tier and the next one out. */
typedef struct coh_move {
    uint32_t chunk, extent;
    int32_t version;
    int32_t step; /* in: before this step (step_count: the end). out: after it (-1: the begin) */
    int32_t earliest; /* in: the first step before which its place is free and its source there */
    int32_t latest;   /* out: the last step after which it may run, as far as steps tell */
    uint8_t is_out;
} coh_move;

/* The place of an operand's touched chunks: extents touch_extents[touch_begin ..] and the matching
 * versions, one per touched chunk; `offset` of the first. Pinned objects have extents, too. Far
 * operands have versions only. */
typedef struct coh_placing {
    uint64_t offset;
    uint32_t touch_begin;
} coh_placing;

typedef struct coh_residency {
    coh_extent *extents;
    size_t extent_count, extent_capacity;
    coh_move *moves;
    size_t move_count, move_capacity;
    coh_placing *placings;
    size_t placing_count, placing_capacity; /* by operand of the sequence */
    uint32_t *touch_extents;
    size_t touch_count, touch_extent_capacity;
    int32_t *touch_versions;
    size_t touch_version_capacity;
    uint64_t peak_bytes;
} coh_residency;

/* Runs `sequence` from boundary map to boundary map; `next` (may be NULL) is the sequence that will
 * follow, used only for next uses. Residents of other tiers are ignored. Fails: COH_ERR_FULL if the
 * windows of some step do not fit together; COH_ERR_MEMORY. */
coh_status coh_residency_run(const coh_level *level, const coh_sequence *sequence,
                             const coh_sequence *next, const coh_resident *residents,
                             uint32_t resident_count, coh_residency *out_residency);
void coh_residency_fini(coh_residency *residency); /* accepts a zeroed struct */

/* Makes the boundary map of this level: from a free run of two bodies, the chunks that the second
 * one reads before their eviction. Without a far tier: all surviving objects, at their homes.
 * Appends to *residents (coh_alloc_grow). *out_is_only: 1 if every kind of boundary gives this
 * map. */
coh_status coh_residency_boundary(const coh_level *level, const coh_sequence *body,
                                  coh_resident **residents, uint32_t *resident_count,
                                  size_t *resident_capacity, int *out_is_only);

/* The bytes that one step needs at once: the sum of its windows, and all that pins hold
 * permanently. */
uint64_t coh_residency_step_bytes(const coh_level *level, const coh_sequence *sequence,
                                  uint32_t step);
/* By step: the bytes that pins keep from leaving while the step runs, in addition to the step's own
 * windows. `out_bytes` has sequence->step_count elements. Fails: COH_ERR_MEMORY. */
coh_status coh_residency_kept_bytes(const coh_level *level, const coh_sequence *sequence,
                                    uint64_t *out_bytes);

#endif
