/* Counts the bytes that a step of a sequence needs at once, without running the sequence.
 * Interface: residency.h. */
#include "planner/residency_state.h"

#include "base/alloc.h"

/* Returns the offset from which the search places chunks. */
static uint64_t level_base(const coh_level *level)
{
    return level->home_offset != NULL && level->floor_bytes > level->base_bytes ? level->floor_bytes
                                                                                : level->base_bytes;
}

uint64_t coh_residency_step_bytes(const coh_level *level, const coh_sequence *sequence,
                                  uint32_t step)
{
    coh_runner r = { .level = level, .layout = level->layout };
    uint64_t bytes = level_base(level);
    for (uint32_t i = sequence->operand_begin[step]; i < sequence->operand_begin[step + 1]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        int seen =
            coh_is_pinned_here(level, operand) || operand->is_far ||
            coh_level_has_home(level, coh_runner_first_chunk(&r, operand)) ||
            coh_level_takes(level, &sequence->operands[sequence->operand_begin[step]], operand);
        for (uint32_t k = sequence->operand_begin[step]; !seen && k < i; k++)
            seen = sequence->operands[k].object == operand->object && !sequence->operands[k].is_far;
        bytes += seen ? 0 : coh_runner_window_bytes(&r, operand);
    }
    return bytes;
}

/* Goes backwards through the steps and records whether a step's kept objects are needed across its
 * begin; *bytes is the size of those that are. `is_wanted`: by first chunk of an object. */
static void pass_kept(const coh_level *level, const coh_sequence *sequence, uint32_t step,
                      int before, uint8_t *is_wanted, uint64_t *bytes)
{
    for (uint32_t i = sequence->operand_begin[step]; i < sequence->operand_begin[step + 1]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        const coh_object *object = &level->layout->objects[operand->object];
        const int wanted = before && (operand->access & COH_ACCESS_READ) != 0;
        if (!coh_level_has_rule(level, object->chunk_begin, COH_CHUNK_STAYS))
            continue;
        *bytes += wanted ? object->bytes : 0;
        *bytes -= is_wanted[object->chunk_begin] ? object->bytes : 0;
        is_wanted[object->chunk_begin] = (uint8_t)wanted;
    }
}

coh_status coh_residency_kept_bytes(const coh_level *level, const coh_sequence *sequence,
                                    uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    uint8_t *is_wanted = NULL;
    COH_TRY(COH_ALLOC(level->layout->chunk_count, &is_wanted));
    for (uint32_t step = sequence->step_count; step-- > 0;) {
        pass_kept(level, sequence, step, 0, is_wanted, &bytes); /* counted as windows */
        out_bytes[step] = bytes;
        pass_kept(level, sequence, step, 1, is_wanted, &bytes);
    }
    coh_free(is_wanted);
    return COH_OK;
}
