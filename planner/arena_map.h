/* arena_map.h - an arena while it is being planned: a list of segments, sorted by offset, that
 * covers it. A segment is free, reserved for a chunk (no extent yet), or holds a chunk (an extent).
 * Free segments remember when their bytes were used last: that is how early something can be
 * fetched into them. */
#ifndef COH_PLANNER_ARENA_MAP_H
#define COH_PLANNER_ARENA_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

#define COH_NO_EXTENT UINT32_MAX

typedef struct coh_segment {
    uint64_t offset, bytes;
    int32_t chunk;                    /* -1: free */
    int32_t previous, next;           /* in order of offset; -1: none */
    int32_t previous_free, next_free; /* of a free one: the free ones around it; -1: none */
    uint32_t extent;
    int64_t last_use;  /* step; -1: before the first */
    uint64_t next_use; /* of the chunk; kept by whoever takes and uses it */
    uint32_t pin_step; /* the step that needs it now; UINT32_MAX: none */
} coh_segment;

/* Strides of an arena of which each knows its first segment. */
enum { COH_ARENA_STRIDES = 1024 };

typedef struct coh_arena_map {
    coh_segment *segments;
    size_t capacity, count;
    int32_t first, last, unused; /* list heads; unused: chain of nodes to take again */
    int32_t first_free;
    int32_t *segment_of_chunk; /* -1: none */
    uint64_t begin, end;
    int stride_bits; /* a stride has 2^this bytes; the last one goes to the end */
    int32_t in_stride[COH_ARENA_STRIDES]; /* the first segment that begins there; -1: none */
    int32_t last_free[COH_ARENA_STRIDES]; /* the last free one there, where its bit is set: */
    uint64_t strides_with_free[COH_ARENA_STRIDES / 64]; /* bit s % 64 of word s / 64 */
    /* By stride with free ones: no room that they make without others is longer. */
    uint64_t *most_free;
    uint64_t strides_with_begin[COH_ARENA_STRIDES / 64]; /* of any segment, as in_stride has it */
} coh_arena_map;

/* `usual_bytes`: about how far from `begin` things will stand, where `end` is far beyond. */
coh_status coh_arena_map_init(coh_arena_map *map, uint64_t begin, uint64_t end,
                              uint64_t usual_bytes, uint32_t chunk_count);
void coh_arena_map_fini(coh_arena_map *map); /* accepts a zeroed struct */

/* Where the last stride but one ends: about how far things stand. */
static inline uint64_t coh_arena_map_usual_end(const coh_arena_map *map)
{
    const uint64_t bytes = (uint64_t)(COH_ARENA_STRIDES - 1) << map->stride_bits;
    return map->end - map->begin < bytes ? map->end : map->begin + bytes;
}

/* The segment that covers `offset`, begin <= offset < end. */
int32_t coh_arena_map_at(const coh_arena_map *map, uint64_t offset);

/* The lowest room of `bytes` from `floor` on that begins with a segment and consists of free ones
 * with last uses up to `latest`; 0: there is none. */
int coh_arena_map_find(const coh_arena_map *map, uint64_t bytes, int64_t latest, uint64_t floor,
                       uint64_t *out_offset);

/* Reserves [offset, offset + bytes), which must be free, for a chunk that has no segment. */
coh_status coh_arena_map_take(coh_arena_map *map, uint32_t chunk, uint64_t offset, uint64_t bytes);

/* Frees a chunk's segment; it keeps its last use. */
void coh_arena_map_release(coh_arena_map *map, int32_t segment);

/* Joins neighbouring free segments whose last uses lie at or before `step`, or are equal. */
void coh_arena_map_settle(coh_arena_map *map, int64_t step);

#endif
