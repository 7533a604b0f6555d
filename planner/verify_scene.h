/* verify_scene.h - memory as the verifier models it while it runs a program on version numbers.
 *
 *   place    where one chunk can lie: an extent's bytes, or the chunk's own range of the file.
 *            Records the version it holds, its writer, and its readers since.
 *   life     one lifetime of an extent, from its first use on: a place, and all instructions that
 *            used it. An extent that stays at a run's end lives on as the extent at the next run's
 *            begin. A life that was left is kept until other lives have taken all of its cells.
 *   cell     bytes of an arena between two neighbouring extent ends; has one tenant, a life.
 *
 * The program is run in issue order. If every two instructions that touch a place, one of them
 * writing, are ordered by the clocks, then every other legal order computes the same. That is
 * what is checked. */
#ifndef COH_PLANNER_VERIFY_SCENE_H
#define COH_PLANNER_VERIFY_SCENE_H

#include "planner/verify_state.h"

#define COH_GARBAGE (-1) /* a version that no instruction names */

/* In place of a life: the extent was not entered in this run; all of its uses were done. */
#define COH_NO_LIFE   UINT32_MAX
#define COH_LIFE_LEFT (UINT32_MAX - 1)

typedef struct coh_scene_place {
    int64_t version; /* counted through all runs: see base */
    uint32_t writer; /* number in its lane; 0: none yet */
    uint32_t writer_instruction;
    uint8_t writer_lane;
    uint32_t readers[COH_LANE_COUNT]; /* highest number since the last write */
} coh_scene_place;

typedef struct coh_life {
    coh_scene_place place;
    uint32_t extent;
    uint32_t cell_count;           /* of which it is the tenant */
    uint32_t uses[COH_LANE_COUNT]; /* highest number that used it, all runs */
    uint32_t use_before; /* of the lane that used it last: the highest number before that use */
    /* numbers that must have retired before any of its instructions starts */
    uint32_t before[COH_LANE_COUNT];
    uint8_t is_left, is_evicted, is_unused;
} coh_life;

typedef struct coh_scene {
    coh_verifier *v;
    /* by chunk */
    coh_scene_place *files;
    int64_t *writes; /* compute instructions that wrote it in this run so far */
    int64_t *writes_per_run;
    int64_t *base;          /* version 0 of this run, counted through all runs */
    int64_t *copies;        /* places that hold the current version */
    uint32_t *resident;     /* [tier][chunk]: 1 + index of the boundary entry, or 0 */
    uint32_t *begin_extent; /* [tier][chunk]: 1 + extent at the begin, or 0 */
    uint32_t *end_extent;
    uint32_t *chunk_mark; /* last instruction that touched it, as instance number * 4 + access */
    /* by touch: 1 if the chunk is read, or survives, after this touch's instruction */
    uint8_t *live_after;
    /* by extent */
    uint32_t *life_of; /* of this run; COH_NO_LIFE, COH_LIFE_LEFT */
    uint32_t *next_life_of;
    uint32_t *used;        /* instructions of this run */
    uint32_t *extent_mark; /* last instance that used it */
    uint32_t *cell_begin, *cell_end;
    coh_life *lives; /* few: as many as lie in the arenas at once */
    size_t life_count, life_capacity;
    uint32_t *unused_lives; /* the numbers of those that nothing refers to */
    size_t unused_count, unused_capacity;
    /* Neighbouring cells with the same tenant form a run, whose first cell has its bit set: bit
     * i % 64 of word i / 64. */
    uint64_t *heads;
    uint32_t *tenants; /* by cell that begins a run: 1 + life, or 0 */
} coh_scene;

/* ---- verify_lifetime.c: extents, their cells, the boundary map ---- */

/* Cuts arenas into cells; checks that extents at begin and end are the boundary map (CLOSURE). */
coh_status coh_scene_map(coh_scene *scene);
/* Makes the lives of the extents that exist when run `run` begins. */
coh_status coh_scene_begin_lives(coh_scene *scene, uint32_t run);
/* Instruction `instruction` (of run `run`) uses an extent: enters it if it was not entered, and
 * checks that it is ordered after the earlier contents. Once per instruction. */
coh_status coh_scene_use(coh_scene *scene, uint32_t run, uint32_t instruction, uint32_t extent);
/* Counts down the uses; the last one leaves the extent (LOST_DATA). `is_live`: see live_after. */
coh_status coh_scene_release(coh_scene *scene, uint32_t instruction, uint32_t extent, int is_live);
/* Checks that use counts are right and that kept extents are there (OVERLAP, CLOSURE). */
coh_status coh_scene_end_lives(coh_scene *scene);

/* ---- verify_bytes.c ---- */

void coh_scene_set_version(coh_scene *scene, coh_scene_place *place, uint32_t chunk,
                           int64_t version);

/* Returns the version in an extent that stays at the end. */
static inline int64_t coh_scene_version(const coh_scene *scene, uint32_t extent)
{
    const uint32_t life = scene->life_of[extent];
    return life < COH_LIFE_LEFT ? scene->lives[life].place.version : COH_GARBAGE;
}

static inline int64_t coh_scene_current(const coh_scene *scene, uint32_t chunk)
{
    return scene->base[chunk] + scene->writes[chunk];
}

static inline size_t coh_tier_chunk(const coh_scene *scene, int tier, uint32_t chunk)
{
    return (size_t)tier * scene->v->layout->chunk_count + chunk;
}

/* Returns 1 if the program starts with garbage instead of values of an earlier run. */
static inline int coh_scene_starts_empty(const coh_scene *scene)
{
    return scene->v->program->kind == COH_PROGRAM_INIT ||
           scene->v->program->kind == COH_PROGRAM_IMPORT;
}

/* Returns the innermost tier whose arena holds the chunk at a boundary, or COH_TIER_DISK. */
static inline coh_tier coh_scene_home(const coh_scene *scene, uint32_t chunk)
{
    for (int tier = COH_TIER_DEVICE; tier <= COH_TIER_HOST; tier++)
        if (scene->resident[coh_tier_chunk(scene, tier, chunk)] != 0)
            return (coh_tier)tier;
    return COH_TIER_DISK;
}

#endif
