/* Looks up the runs of trained parameters in every chunk once, when an engine is made, so that NORM
 * and UPDATE search nothing during a step. Next: grains.h. */
#include "engine/grains.h"

#include "base/alloc.h"
#include "planner/comm_parts.h"

int32_t coh_grain_runs_of(const coh_layout *layout, int32_t group, uint64_t object_offset,
                          uint64_t bytes, const coh_parameter_rule *rules, coh_grain_run *out_runs)
{
    coh_segments walk;
    coh_segment segment;
    int32_t count = 0;
    int64_t first = 0;
    coh_segments_begin(&walk, layout, group, object_offset, bytes);
    while (count < COH_GRAIN_RUNS_MOST && coh_segments_next(&walk, &segment)) {
        const coh_parameter_layout *parameter = &layout->parameters[segment.parameter];
        if (parameter->frozen)
            continue;
        const coh_parameter_rule rule =
            rules ? rules[segment.parameter]
                  : coh_parameter_rule_of(parameter, COH_WEIGHT_DECAY_DEFAULT);
        uint64_t grain_begin;
        const uint64_t grains = coh_segment_grains(&segment, &grain_begin);
        out_runs[count++] = (coh_grain_run){
            .first = first,
            .element = (int64_t)segment.chunk_element,
            .count = (int64_t)segment.count,
            .partial_begin = (int64_t)(parameter->partial_begin + grain_begin),
            .rate_factor = rule.rate_factor,
            .decay = rule.decay,
        };
        first += (int64_t)grains;
    }
    return count;
}

static int32_t runs_of_chunk(const coh_layout *layout, uint32_t index, int32_t rank,
                             const coh_parameter_rule *rules, coh_grain_run *out_runs)
{
    const coh_object *object = &layout->objects[layout->chunks[index].object];
    if (object->stream != COH_STREAM_WORK && object->stream != COH_STREAM_GRAD &&
        object->stream != COH_STREAM_WORK_PART && object->stream != COH_STREAM_GRAD_PART)
        return 0;
    const uint32_t work = coh_chunk_partner(layout, index, layout->groups[object->owner].work);
    const coh_part part = coh_updated_part(layout, work, rank);
    return coh_grain_runs_of(layout, object->owner, layout->chunks[work].object_offset + part.begin,
                             part.bytes, rules, out_runs);
}

coh_status coh_grain_table_init(const coh_layout *layout, int32_t rank,
                                const coh_parameter_rule *rules, coh_grain_table *out_table)
{
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
    size_t count = 0;
    COH_TRY(COH_ALLOC(layout->chunk_count, &out_table->chunks));
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        count += (size_t)runs_of_chunk(layout, i, rank, rules, runs);
    COH_TRY(COH_ALLOC(count, &out_table->runs));
    coh_grain_run *next = out_table->runs;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        coh_chunk_grains *grains = &out_table->chunks[i];
        grains->runs = next;
        grains->run_count = runs_of_chunk(layout, i, rank, rules, next);
        next += grains->run_count;
    }
    return COH_OK;
}

void coh_grain_table_fini(coh_grain_table *table)
{
    coh_free(table->chunks);
    coh_free(table->runs);
    *table = (coh_grain_table){ 0 };
}
