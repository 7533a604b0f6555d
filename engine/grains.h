/* grains.h - the grains of one chunk of parameters, numbered, so that a pool can
 * take them in any order.
 *
 *   chunk   | tensor 3: grain 7, 8 (short) | tensor 4: grain 0, 1, 2 |
 *   pieces        0      1                        2      3   4
 */
#ifndef COH_ENGINE_GRAINS_H
#define COH_ENGINE_GRAINS_H

#include "cohobate/model.h"
#include "engine/segments.h"

typedef struct coh_grains {
    coh_segment segments[COH_PORT_MAX]; /* a group holds parameters of one operator */
    int64_t first[COH_PORT_MAX + 1];    /* piece with which a segment begins */
    int32_t segment_count;
    int64_t grain_count;
} coh_grains;

typedef struct coh_grain {
    uint32_t parameter;
    uint64_t number;        /* in the tensor */
    uint64_t chunk_element; /* where it begins in the chunk */
    uint64_t count;
} coh_grain;

/* Arguments as for coh_segments_begin. */
static inline void coh_grains_collect(coh_grains *grains, const coh_layout *layout, int32_t group,
                                      uint64_t object_offset, uint64_t bytes)
{
    coh_segments walk;
    coh_segments_begin(&walk, layout, group, object_offset, bytes);
    grains->segment_count = 0;
    grains->grain_count = 0;
    while (grains->segment_count < COH_PORT_MAX &&
           coh_segments_next(&walk, &grains->segments[grains->segment_count])) {
        uint64_t first;
        grains->first[grains->segment_count] = grains->grain_count;
        grains->grain_count +=
            (int64_t)coh_segment_grains(&grains->segments[grains->segment_count], &first);
        grains->segment_count++;
    }
    grains->first[grains->segment_count] = grains->grain_count;
}

static inline coh_grain coh_grains_at(const coh_grains *grains, int64_t index)
{
    int32_t s = 0;
    while (index >= grains->first[s + 1])
        s++;
    const coh_segment *segment = &grains->segments[s];
    uint64_t element = (uint64_t)(index - grains->first[s]) * COH_GRAIN_ELEMENTS;
    uint64_t left = segment->count - element;
    return (coh_grain){ .parameter = segment->parameter,
                        .number = (segment->element_begin + element) / COH_GRAIN_ELEMENTS,
                        .chunk_element = segment->chunk_element + element,
                        .count = left < COH_GRAIN_ELEMENTS ? left : COH_GRAIN_ELEMENTS };
}

#endif
