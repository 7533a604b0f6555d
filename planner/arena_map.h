/* arena_map.h - a map of an arena during planning: a list of segments, sorted by offset, that
 * covers the arena. A segment is free, reserved for a chunk (no extent yet), or holds a chunk (with
 * an extent). A free segment remembers the last use of its bytes: a fetch into it can start from
 * then on. */
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
    int32_t previous_free, next_free; /* free segments: the free neighbours; -1: none */
    uint32_t extent;
    int32_t last_use; /* step; -1: before the first */
    /* the step after which a STORE of former content was keyed, or of an exchange that used the
     * bytes: a write there may have to wait for it; -1: none */
    int32_t last_moved;
    uint64_t next_use; /* of the chunk; set by coh_arena_map_set_next_use */
    uint32_t pin_step; /* the step that needs the segment now; UINT32_MAX: none */
    uint32_t room;     /* up to a cache line: searches for a place visit hundreds of segments */
} coh_segment;

/* Bounds of the uses of some content. */
typedef struct coh_arena_uses {
    uint64_t latest_next;
    int64_t earliest_last;
} coh_arena_uses;

/* Content that a search may evict: with some i, its next use is not before next_use[i] and its last
 * use not after last_use[i]. */
enum { COH_ARENA_LIMITS = 4 };
typedef struct coh_arena_limits {
    int count;
    uint64_t next_use[COH_ARENA_LIMITS];
    int64_t last_use[COH_ARENA_LIMITS];
} coh_arena_limits;

static inline int coh_arena_is_within(const coh_arena_limits *limits, uint64_t next_use,
                                      int64_t last_use)
{
    int is_within = 0;
    for (int i = 0; i < limits->count; i++)
        is_within |= next_use >= limits->next_use[i] && last_use <= limits->last_use[i];
    return is_within;
}

/* The arena is divided into at most this many strides; each records its first segment. Searches
 * pass blocks of strides. */
enum { COH_ARENA_STRIDES = 4096, COH_ARENA_BLOCK_STRIDES = 16 };

typedef struct coh_arena_map {
    coh_segment *segments;
    size_t capacity, count;
    int32_t first, last, unused; /* list heads; unused: chain of nodes to reuse */
    int32_t first_free;
    int32_t *segment_of_chunk; /* -1: none */
    uint64_t begin, end;
    int stride_bits;    /* a stride has 2^this bytes; the last one extends to the end */
    uint64_t usual_end; /* about how far chunks lie, in whole strides */
    /* the first segment that begins in the stride; -1: none */
    int32_t in_stride[COH_ARENA_STRIDES];
    /* the last free segment of a stride, valid if the stride's bit is set: */
    int32_t last_free[COH_ARENA_STRIDES];
    uint64_t strides_with_free[COH_ARENA_STRIDES / 64]; /* bit s % 64 of word s / 64 */
    /* By stride with free segments: upper bound of the free bytes that they alone have in one
     * piece. */
    uint64_t *most_free;
    int64_t *oldest_free; /* likewise: lower bound of their last uses */
    /* strides whose last free segment borders on a later stride, as strides_with_free */
    uint64_t strides_ending_free[COH_ARENA_STRIDES / 64];
    /* By stride, then by block of strides: no taken segment that begins there has a later next use,
     * or an earlier last use. */
    coh_arena_uses *uses, *uses_of_block;
    /* By stride: the segment taken last of those that begin there; -1: none. Content comes in order
     * of offset or against it, so the next place is mostly near. */
    int32_t *taken_last;
    /* By stride with free segments: no free segment that begins there merges with the next one
     * before this step. */
    int64_t *settles_at;
    /* strides in which any segment begins, as in_stride */
    uint64_t strides_with_begin[COH_ARENA_STRIDES / 64];
} coh_arena_map;

/* `usual_bytes`: how far from `begin` chunks usually lie, if `end` is far beyond that. */
coh_status coh_arena_map_init(coh_arena_map *map, uint64_t begin, uint64_t end,
                              uint64_t usual_bytes, uint32_t chunk_count);
void coh_arena_map_fini(coh_arena_map *map); /* accepts a zeroed struct */

/* Returns the segment that covers `offset`, begin <= offset < end. */
int32_t coh_arena_map_at(const coh_arena_map *map, uint64_t offset);

/* Finds the lowest range of `bytes` at or above `floor` that begins with a segment and consists of
 * free segments with last uses, or with `of_moves` last_moved, up to `latest`. Returns 0 if there
 * is none. */
int coh_arena_map_find(const coh_arena_map *map, uint64_t bytes, int64_t latest, uint64_t floor,
                       int of_moves, uint64_t *out_offset);

/* Finds the highest range of `bytes` at or above `floor` that ends with a segment and consists of
 * free segments with such last uses. Returns 0 if there is none. */
int coh_arena_map_find_highest(const coh_arena_map *map, uint64_t bytes, int64_t latest,
                               uint64_t floor, int of_moves, uint64_t *out_offset);

/* Reserves [offset, offset + bytes), which must be free, for a chunk that has no segment yet. */
coh_status coh_arena_map_take(coh_arena_map *map, uint32_t chunk, uint64_t offset, uint64_t bytes);

/* Sets the next use of a taken segment, after its last use. */
void coh_arena_map_set_next_use(coh_arena_map *map, int32_t segment, uint64_t next_use);

/* Returns the first segment after `segment` with which a range of `bytes` may begin that is free or
 * taken by chunks within the limits; -1 if there is none. Makes bounds in *map closer. */
int32_t coh_arena_map_after(const coh_arena_map *map, int32_t segment,
                            const coh_arena_limits *limits, uint64_t bytes);

/* Frees the segment of a chunk; the segment keeps its last use. */
void coh_arena_map_release(coh_arena_map *map, int32_t segment);

/* Merges neighbouring free segments if the last uses of both are at or before `step`, or are
 * equal. */
void coh_arena_map_settle(coh_arena_map *map, int64_t step);

#endif
