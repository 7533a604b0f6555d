/* vacancy.h - find the highest vacant homes that other chunks may use (residency.h) without a visit
 * to each.
 *
 * A home is vacant until step t if its chunk is absent from the tier, no other content lies over
 * it, and the chunk's next use is after t. A binary tree over the homes has the next use of each
 * home that is not taken, and the latest of every subtree: a search skips subtrees in which no home
 * is vacant for long enough. */
#ifndef COH_PLANNER_VACANCY_H
#define COH_PLANNER_VACANCY_H

#include "planner/next_use.h"

typedef struct coh_vacancy {
    const coh_level *level;
    const coh_next_use *next;
    uint32_t leaf_begin; /* the leaf of home i is leaf_begin + i; a power of two; 0: no homes */
    uint64_t *latest;    /* by node: the latest next use; 0: taken, or no home */
    uint32_t *takers;    /* by home: segments of its chunk or over it */
    uint32_t *home_of;   /* by chunk: index of its home in level->home_chunks; UINT32_MAX: none */
} coh_vacancy;

/* Borrows both, which must outlive the vacancy. No segment exists yet. Does nothing for a level
 * without a list of homes. Fails: COH_ERR_MEMORY. */
coh_status coh_vacancy_init(coh_vacancy *vacancy, const coh_level *level, const coh_next_use *next);
void coh_vacancy_fini(coh_vacancy *vacancy); /* accepts a zeroed struct */

/* The chunk got, or lost, a segment of these bytes. Each loss ends one gain. */
void coh_vacancy_take(coh_vacancy *vacancy, uint32_t chunk, uint64_t offset, uint64_t bytes);
void coh_vacancy_release(coh_vacancy *vacancy, uint32_t chunk, uint64_t offset, uint64_t bytes);

/* The next use of the chunk, or of all chunks, changed. */
void coh_vacancy_renew(coh_vacancy *vacancy, uint32_t chunk);
void coh_vacancy_renew_all(coh_vacancy *vacancy);

/* Returns the next use of the chunk of a home that is not taken, else 0. */
static inline uint64_t coh_vacancy_of(const coh_vacancy *vacancy, uint32_t home)
{
    return vacancy->latest[vacancy->leaf_begin + home];
}

/* Finds the highest run of homes vacant until step `until` that has `bytes` bytes; a run extends to
 * the next home that is taken, the last one to level->floor_bytes. Returns 1 and the offset of its
 * first home, or 0. */
int coh_vacancy_find(const coh_vacancy *vacancy, uint64_t until, uint64_t bytes,
                     uint64_t *out_offset);

#endif
