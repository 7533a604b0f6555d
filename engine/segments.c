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
        .dtype = owner->dtype,
        .parameter = owner->parameter_begin,
        .parameter_end = owner->parameter_begin + owner->parameter_count,
    };
}

static uint64_t elements_of(coh_dtype dtype, uint64_t bytes)
{
    return dtype == COH_DTYPE_NF4 ? bytes / COH_NF4_BLOCK_BYTES * COH_NF4_BLOCK
                                  : bytes / coh_dtype_bytes(dtype);
}

int coh_segments_next(coh_segments *walk, coh_segment *out_segment)
{
    while (walk->parameter < walk->parameter_end) {
        uint32_t index = walk->parameter++;
        const coh_parameter_layout *parameter = &walk->layout->parameters[index];
        uint64_t first = parameter->offset;
        uint64_t last = first + coh_dtype_array_bytes(walk->dtype, parameter->elements);
        uint64_t begin = walk->begin > first ? walk->begin : first;
        uint64_t end = walk->end < last ? walk->end : last;
        if (begin >= end)
            continue;
        assert((begin - first) % coh_dtype_array_bytes(walk->dtype, COH_GRAIN_ELEMENTS) == 0);
        *out_segment = (coh_segment){
            .parameter = index,
            .element_begin = elements_of(walk->dtype, begin - first),
            .count = elements_of(walk->dtype, end - begin),
            .chunk_element = elements_of(walk->dtype, begin - walk->begin),
        };
        return 1;
    }
    return 0;
}
