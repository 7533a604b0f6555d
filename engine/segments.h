/* segments.h - which tensors a chunk of parameters holds.
 *
 *   WORK, GRAD chunk [a, a+n):   | tensor 3, end | pad | tensor 4, grains 0..5     |
 *   its STATE chunk [2a, 2a+2n): | m of the same n bytes  | v of the same n bytes  |
 *
 * The one idea: everything that is done per chunk by the engine itself (INIT, NORM, UPDATE, HASH,
 * SAVE, IMPORT) is a walk over segments: runs of elements of one tensor and one stream. Padding
 * between tensors belongs to no segment. A segment begins at a grain start, because chunks end at
 * grain or tensor ends; so grain numbers of a segment are exact and no partial result depends on
 * how tensors were cut into chunks.
 *
 *     coh_segments walk;
 *     coh_segment segment;
 *     coh_segments_begin(&walk, layout, COH_STREAM_STATE, group, object_offset, bytes, data);
 *     while (coh_segments_next(&walk, &segment))
 *         use(segment.parameter, segment.part, segment.element_begin, segment.count, segment.data);
 *
 * Allocates nothing; reads only the layout. */
#ifndef COH_ENGINE_SEGMENTS_H
#define COH_ENGINE_SEGMENTS_H

#include "base/bytes.h"
#include "planner/program.h"

/* What a checkpoint and the logical hash call a stream. A GRAD chunk is walked as COH_PART_WORK. */
typedef enum coh_part { COH_PART_WORK, COH_PART_M, COH_PART_V, COH_PART_COUNT } coh_part;

typedef struct coh_segment {
    uint32_t parameter; /* index in layout->parameters: the tensor's number */
    coh_part part;
    uint64_t element_begin; /* in the tensor: a multiple of COH_GRAIN_ELEMENTS */
    uint64_t count;         /* elements, >= 1; the last grain may be cut by the tensor's end only */
    /* Bytes from the begin of the chunk, as counted in WORK: the same for a tensor's work, grad, m
     * and v, so that UPDATE finds v at state + n + chunk_offset. */
    uint64_t chunk_offset;
    float *data; /* first element; NULL if the walk was begun with NULL */
} coh_segment;

typedef struct coh_segments {
    const coh_layout *layout;
    uint64_t begin, end; /* [a, a+n) in WORK bytes of the group */
    uint32_t parameter, parameter_end, parameter_first;
    coh_part part, part_last;
    char *data; /* of the current part */
} coh_segments;

/* Starts a walk over one chunk (or several neighbouring ones of WORK or GRAD; of STATE exactly one)
 * of group `group`. `stream` is COH_STREAM_WORK, _GRAD or _STATE; `object_offset` and `bytes` are
 * those of the chunk in the object of that stream. STATE gives all m first, then all v. */
void coh_segments_begin(coh_segments *walk, const coh_layout *layout, coh_stream stream,
                        int32_t group, uint64_t object_offset, uint64_t bytes, void *data);

/* 1 and the next segment, or 0 at the end. */
int coh_segments_next(coh_segments *walk, coh_segment *out_segment);

/* Grains of a segment: [*out_first, *out_first + returned). Their norm partials are the parameter's
 * partial_begin + these. */
static inline uint64_t coh_segment_grains(const coh_segment *segment, uint64_t *out_first)
{
    *out_first = segment->element_begin / COH_GRAIN_ELEMENTS;
    return (segment->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

#endif
