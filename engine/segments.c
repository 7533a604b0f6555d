#include "engine/segments.h"

#include <assert.h>

void coh_segments_begin(coh_segments *walk, const coh_layout *layout, coh_stream stream,
                        int32_t group, uint64_t object_offset, uint64_t bytes, void *data)
{
    assert(stream == COH_STREAM_WORK || stream == COH_STREAM_GRAD || stream == COH_STREAM_STATE);
    assert(group >= 0 && (uint32_t)group < layout->group_count);
    const coh_group_layout *owner = &layout->groups[group];
    int is_state = stream == COH_STREAM_STATE;
    uint64_t begin = is_state ? object_offset / 2 : object_offset;
    uint64_t length = is_state ? bytes / 2 : bytes;
    *walk = (coh_segments){
        .layout = layout,
        .begin = begin,
        .end = begin + length,
        .parameter = owner->parameter_begin,
        .parameter_first = owner->parameter_begin,
        .parameter_end = owner->parameter_begin + owner->parameter_count,
        .part = is_state ? COH_PART_M : COH_PART_WORK,
        .part_last = is_state ? COH_PART_V : COH_PART_WORK,
        .data = data,
    };
}

/* The next tensor of the current part that has elements in [begin, end); 0 at the part's end. */
static int next_in_part(coh_segments *walk, coh_segment *out_segment)
{
    while (walk->parameter < walk->parameter_end) {
        uint32_t index = walk->parameter++;
        const coh_parameter_layout *parameter = &walk->layout->parameters[index];
        uint64_t first = parameter->offset;
        uint64_t last = first + parameter->elements * sizeof(float);
        uint64_t begin = walk->begin > first ? walk->begin : first;
        uint64_t end = walk->end < last ? walk->end : last;
        if (begin >= end)
            continue;
        assert((begin - first) % (COH_GRAIN_ELEMENTS * sizeof(float)) == 0);
        *out_segment = (coh_segment){
            .parameter = index,
            .part = walk->part,
            .element_begin = (begin - first) / sizeof(float),
            .count = (end - begin) / sizeof(float),
            .chunk_offset = begin - walk->begin,
            .data = walk->data ? (float *)(void *)(walk->data + (begin - walk->begin)) : NULL,
        };
        return 1;
    }
    return 0;
}

int coh_segments_next(coh_segments *walk, coh_segment *out_segment)
{
    for (;;) {
        if (next_in_part(walk, out_segment))
            return 1;
        if (walk->part == walk->part_last)
            return 0;
        walk->part++;
        walk->parameter = walk->parameter_first;
        if (walk->data)
            walk->data += walk->end - walk->begin;
    }
}
