/* residency.h - decide, for one tier, where every window stands, what leaves to make room, and what
 * must be fetched: farthest next use (Belady 1966) over windows of different sizes, with addresses.
 *
 *   steps      0        1        2        3        4  ...  END   (then the steps that will follow)
 *   needs      w0,x0    w1,x1    w2,x2    w2,x2,g2 ...     boundary map
 *
 * The same engine serves every level: device over its far tier (steps are the lines that compute),
 * and host over disk (steps are the movers of the level above, and the lines of the host lane). A
 * far need (lower.h) takes no room here: what it reads is written out before, what it writes makes
 * the copy here stale. The rule at step p, for a window that is not
 * there: of all places of its size take the one whose present content is needed again latest; if
 * only room that stood unused for `horizon` steps is taken, a fetch can start that many steps
 * early. Content whose next access is a pure write is dead, whatever it is. What is evicted with
 * changes is written out, keyed just after its last producer; what is fetched is keyed just before
 * its first user. */
#ifndef COH_PLANNER_RESIDENCY_H
#define COH_PLANNER_RESIDENCY_H

#include "planner/lower.h"

/* How the boundary map is made. */
enum coh_boundary {
    COH_BOUNDARY_FREE,    /* what a second body in a row still finds, where it stood then */
    COH_BOUNDARY_SETTLED, /* the same, at the offsets where a run from it ends */
    COH_BOUNDARY_FULL,    /* that, and what the next body wants first in all room left */
    COH_BOUNDARY_WANTED,  /* what the next body wants first in all room, nothing for its own sake */
    COH_BOUNDARY_COUNT
};

/* Steps and what each needs. needs of step s: needs[need_begin[s] .. need_begin[s + 1]). */
typedef struct coh_sequence {
    uint32_t step_count;
    const uint32_t *need_begin; /* step_count + 1 */
    const coh_need *needs;
    /* NULL: a write makes the next version. Else by need: the version that is read, or that a pure
     * write leaves (movers of the level above carry it along). */
    const int32_t *need_version;
} coh_sequence;

typedef struct coh_level {
    const coh_layout *layout;
    coh_tier tier;
    uint64_t base_bytes; /* [0, base_bytes) is not ours (pinned objects) */
    uint64_t capacity;   /* UINT64_MAX: no limit */
    int has_far;         /* something can be written out and fetched again */
    /* NULL, or by chunk: its one place in this tier, always (no search); COH_NO_HOME: placed by
     * search, at or above `floor_bytes`. With a far tier: what is pinned here, and never leaves. */
    const uint64_t *home_offset;
    uint64_t floor_bytes;
    /* NULL, or by chunk: 1 where a nearer tier holds the value between programs, so that it is
     * garbage here at the begin and not asked for at the end */
    const uint8_t *held_nearer;
    const uint8_t *rules; /* NULL, or by chunk: enum coh_chunk_rule */
    const char *flag;     /* what raises the capacity, for refusals */
    int tie_break;        /* enum coh_tie_break */
    uint32_t horizon;     /* steps */
    int patient;          /* 1: what is written, too, goes where room stood idle for the horizon */
    int boundary;         /* enum coh_boundary */
} coh_level;

#define COH_NO_HOME UINT64_MAX

/* What pins say of a chunk in a tier that has one farther out. */
enum coh_chunk_rule {
    COH_CHUNK_STAYS = 1,  /* while its content is needed it does not leave */
    COH_CHUNK_LEAVES = 2, /* it leaves as soon as it is idle for a while */
    COH_CHUNK_AWAY = 4    /* it is not in the boundary map */
};

enum coh_tie_break {
    COH_TIE_LOWEST,   /* lowest offset */
    COH_TIE_TWO_ENDS, /* parameters from below, everything else from above */
    COH_TIE_CLEAN,    /* lowest offset; what was changed and not written out is spared */
    COH_TIE_COUNT
};

/* One chunk to be moved between this tier and the next one out. */
typedef struct coh_move {
    uint32_t chunk, extent;
    int32_t version;
    int32_t step; /* in: before this step (step_count: the end). out: after it (-1: the begin) */
    uint8_t is_out;
} coh_move;

/* Where the touched chunks of a need stand: extents touch_extents[touch_begin ..] and versions
 * alongside, one per touched chunk; `offset` of the first. Pinned objects: extents too. Far needs:
 * versions alone. */
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
    size_t placing_count, placing_capacity; /* by need of the sequence */
    uint32_t *touch_extents;
    size_t touch_count, touch_extent_capacity;
    int32_t *touch_versions;
    size_t touch_version_capacity;
    uint64_t peak_bytes;
} coh_residency;

/* Runs `sequence` from boundary map to boundary map; `next` (may be NULL) is what will follow, for
 * next uses only. Residents of other tiers are ignored.
 * Fails: COH_ERR_FULL when some step's windows cannot stand together; COH_ERR_MEMORY. */
coh_status coh_residency_run(const coh_level *level, const coh_sequence *sequence,
                             const coh_sequence *next, const coh_resident *residents,
                             uint32_t resident_count, coh_residency *out_residency);
void coh_residency_fini(coh_residency *residency); /* accepts a zeroed struct */

/* The boundary map of this level: from a free run of two bodies, what the second one reads before
 * it was evicted. Without a far tier: all surviving objects, at their homes. Appends to *residents
 * (coh_alloc_grow). */
coh_status coh_residency_boundary(const coh_level *level, const coh_sequence *body,
                                  coh_resident **residents, uint32_t *resident_count,
                                  size_t *resident_capacity);

/* What one step needs at once: the sum of its windows, and what pins hold all the time. */
uint64_t coh_residency_step_bytes(const coh_level *level, const coh_sequence *sequence,
                                  uint32_t step);
/* By step: what pins let not leave while the step runs, beside the step's own windows. `out_bytes`
 * has sequence->step_count places. Fails: COH_ERR_MEMORY. */
coh_status coh_residency_kept_bytes(const coh_level *level, const coh_sequence *sequence,
                                    uint64_t *out_bytes);

#endif
