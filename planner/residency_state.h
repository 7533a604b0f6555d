/* residency_state.h - the state of one run of residency.c, shared with residency_choose.c and
 * residency_boundary.c. */
#ifndef COH_PLANNER_RESIDENCY_STATE_H
#define COH_PLANNER_RESIDENCY_STATE_H

#include "planner/arena_map.h"
#include "planner/next_use.h"
#include "planner/residency.h"
#include "planner/vacancy.h"

/* State of a snapshot chunk of a free run, after the first body. */
enum { SNAPSHOT_NONE, SNAPSHOT_OPEN, SNAPSHOT_HIT, SNAPSHOT_GONE };

/* ---- extents and moves ---- */

typedef struct coh_runner {
    const coh_level *level;
    const coh_layout *layout;
    const coh_sequence *sequence;
    coh_residency *out; /* NULL: nothing is recorded, only the map is kept */
    coh_arena_map map;
    coh_next_use next;
    coh_vacancy vacancy;
    int32_t *version;     /* by chunk: logical */
    int32_t *far_version; /* by chunk: version of the far copy; -1: useless */
    int32_t *last_write;  /* by chunk: step, -1: before the begin */
    int32_t *far_step;    /* by chunk: the step after which the far copy is written, -1 likewise */
    uint32_t *pinned_extent; /* by chunk: of pinned objects */
    const coh_resident *residents;
    uint32_t resident_count;
    uint64_t *boundary_offset;     /* by chunk: its place at begin and end, or UINT64_MAX */
    uint8_t *snapshot;             /* free run: by chunk */
    uint32_t open_count;           /* of SNAPSHOT_OPEN */
    uint64_t last_begin, last_end; /* the place chosen last */
    int is_compute;                /* the step is no exchange */
    int is_fixed;                  /* each window has a home: no place is searched */
    int packs;       /* the step needs the whole capacity: only the first free place is tried */
    uint64_t takers; /* bit i: operand i of the step takes the place of another one */
    uint32_t step;   /* absolute: the second body of a free run continues the count */
} coh_runner;

static inline const coh_chunk *coh_runner_chunk(const coh_runner *r, uint32_t chunk)
{
    return &r->layout->chunks[chunk];
}

static inline uint32_t coh_runner_first_chunk(const coh_runner *r,
                                              const coh_lowered_operand *operand)
{
    return r->layout->objects[operand->object].chunk_begin;
}

/* Chunks of an object are contiguous, and no window is empty. */
static inline uint64_t coh_runner_window_bytes(const coh_runner *r,
                                               const coh_lowered_operand *operand)
{
    const coh_chunk *begin = coh_runner_chunk(r, coh_runner_first_chunk(r, operand));
    const coh_chunk *first = begin + operand->window_begin, *last = begin + operand->window_end - 1;
    return last->object_offset + last->bytes - first->object_offset;
}

static inline int coh_level_has_home(const coh_level *level, uint32_t chunk)
{
    return level->home_offset != NULL && level->home_offset[chunk] != COH_NO_HOME;
}

static inline int coh_level_has_rule(const coh_level *level, uint32_t chunk, int rule)
{
    return level->rules != NULL && (level->rules[chunk] & rule) != 0;
}

static inline int coh_is_pinned_here(const coh_level *level, const coh_lowered_operand *operand)
{
    return level->tier == COH_TIER_DEVICE && level->layout->objects[operand->object].pinned;
}

/* Returns 1 if an operand of a step, which has these operands, takes the place of the one in whose
 * memory it may be written: neither has a home. */
static inline int coh_level_takes(const coh_level *level, const coh_lowered_operand *operands,
                                  const coh_lowered_operand *operand)
{
    const coh_object *objects = level->layout->objects;
    return operand->takes > 0 && level->tier == COH_TIER_DEVICE &&
           !coh_level_has_home(level, objects[operand->object].chunk_begin) &&
           !coh_level_has_home(level, objects[operands[operand->takes - 1].object].chunk_begin);
}

/* residency.c: one run, in pieces. `out` (may be NULL) is filled as it proceeds. */
coh_status coh_runner_open(coh_runner *r, const coh_level *level, const coh_sequence *sequence,
                           const coh_sequence *next, coh_residency *out);
void coh_runner_close(coh_runner *r);       /* accepts a zeroed struct */
coh_status coh_runner_begin(coh_runner *r); /* places what is resident at the begin */
coh_status coh_runner_step(coh_runner *r, uint32_t local_step);
/* Returns 1 if this tier holds the chunk's value between programs, or would if it were resident. */
int coh_runner_holds_between(const coh_runner *r, uint32_t chunk);

/* Finds the best place for a window that is not in one piece; returns 0 if no place exists next to
 * what the present step holds. Changes nothing. */
int coh_residency_choose(const coh_runner *r, const coh_lowered_operand *operand,
                         uint64_t *out_offset);

/* Returns 1 if the tree of vacant homes has what the map and the next uses say. For assertions: it
 * visits every home. */
int coh_residency_homes_agree(const coh_runner *r);

#endif
