/* segments.h - the tensors in a chunk of parameters, and the places of their streams.
 *
 *   WORK, GRAD chunk [a, a+n):   | tensor 3, end | pad | tensor 4, grains 0..5     |
 *   (GRAD in f32 with bf16 WORK: the same elements in twice the bytes)
 *   its STATE chunk, f32:        | m of the same elements  | v of the same elements |
 *   (with AdamW)     bf16:       | low | m of them (f32)   | v of them (f32)        |
 *
 * The one idea: all work that the engine itself does per chunk (INIT, NORM, UPDATE, HASH, SAVE,
 * IMPORT) is a walk over segments: runs of elements of one tensor. Padding between tensors belongs
 * to no segment. A segment begins at the start of a grain, because chunks end at the end of a grain
 * or tensor. So the grain numbers of a segment are exact, and no partial result depends on how
 * tensors were cut into chunks. A place in a chunk is an element index with padding counted. It is
 * the same for a tensor's work, gradient, low bits and moments, whatever their dtypes.
 *
 *    coh_segments walk;
 *    coh_segment segment;
 *    coh_segments_begin(&walk, layout, group, object_offset, bytes);
 *    while (coh_segments_next(&walk, &segment))
 *        use(segment.parameter, segment.element_begin, segment.count,
 *            coh_element_at(work, dtype, segment.chunk_element));
 *
 * Allocates nothing; reads only the layout. */
#ifndef COH_ENGINE_SEGMENTS_H
#define COH_ENGINE_SEGMENTS_H

#include "base/bytes.h"
#include "planner/program.h"

typedef struct coh_segment {
    uint32_t parameter;     /* index in layout->parameters: the tensor's number */
    uint64_t element_begin; /* in the tensor: a multiple of COH_GRAIN_ELEMENTS */
    uint64_t count;         /* elements, >= 1; only the tensor's end may cut the last grain */
    uint64_t chunk_element; /* place of the first one in the chunk */
} coh_segment;

typedef struct coh_segments {
    const coh_layout *layout;
    uint64_t begin, end; /* [a, a+n) in WORK bytes of the group */
    coh_dtype dtype;
    uint32_t parameter, parameter_end;
} coh_segments;

/* Starts a walk over bytes [object_offset, object_offset + bytes) of the WORK of group
 * `group`: one chunk, or several neighbouring ones. */
void coh_segments_begin(coh_segments *walk, const coh_layout *layout, int32_t group,
                        uint64_t object_offset, uint64_t bytes);

/* Returns 1 and the next segment, or 0 at the end. */
int coh_segments_next(coh_segments *walk, coh_segment *out_segment);

/* Returns the number of a segment's grains; the first one is *out_first. Their norm partials lie at
 * the parameter's partial_begin plus the grain's number. */
static inline uint64_t coh_segment_grains(const coh_segment *segment, uint64_t *out_first)
{
    *out_first = segment->element_begin / COH_GRAIN_ELEMENTS;
    return (segment->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

/* Returns the address of element `element` of an array of this dtype; in NF4 it begins a block. */
static inline void *coh_element_at(void *data, coh_dtype dtype, uint64_t element)
{
    return (char *)data + coh_dtype_array_bytes(dtype, element);
}

#endif
