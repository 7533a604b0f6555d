/* Walks the tensors in a byte range of a group's parameters: intersects the range with each
 * tensor's bytes and skips padding. Next: segments.h. */
#include "engine/segments.h"

#include <assert.h>

void coh_segments_begin(coh_segments *walk, const coh_layout *layout, int32_t group,
                        uint64_t object_offset, uint64_t bytes)
{
    assert(group >= 0 && (uint32_t)group < layout->group_count);
    const coh_group_layout *owner = &layout->groups[group];
    *walk = (coh_segments){
        .layout = layout,
        .begin = object_offset,
        .end = object_offset + bytes,
        .element_bytes = coh_dtype_bytes(owner->dtype),
        .parameter = owner->parameter_begin,
        .parameter_end = owner->parameter_begin + owner->parameter_count,
    };
}

int coh_segments_next(coh_segments *walk, coh_segment *out_segment)
{
    uint64_t element_bytes = walk->element_bytes;
    while (walk->parameter < walk->parameter_end) {
        uint32_t index = walk->parameter++;
        const coh_parameter_layout *parameter = &walk->layout->parameters[index];
        uint64_t first = parameter->offset;
        uint64_t last = first + parameter->elements * element_bytes;
        uint64_t begin = walk->begin > first ? walk->begin : first;
        uint64_t end = walk->end < last ? walk->end : last;
        if (begin >= end)
            continue;
        assert((begin - first) % (COH_GRAIN_ELEMENTS * element_bytes) == 0);
        *out_segment = (coh_segment){
            .parameter = index,
            .element_begin = (begin - first) / element_bytes,
            .count = (end - begin) / element_bytes,
            .chunk_element = (begin - walk->begin) / element_bytes,
        };
        return 1;
    }
    return 0;
}
