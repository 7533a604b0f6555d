/* Records the accesses of each chunk in order, with a cursor to the next one. The idea: whether
 * content is needed is decided by the next access alone, here or farther out, or at the end.
 * Interface: next_use.h; used by residency.c for evictions. */
#include "planner/next_use.h"

#include <assert.h>

#include "base/alloc.h"
#include "planner/effort.h"

/* An access at a step, here or in the next tier out; or the state of the chunk at the end of the
 * sequence. */
enum { USE_READ, USE_WRITE, FAR_READ, FAR_UPDATE, END_ALIVE, END_DEAD };

static uint8_t what_of(const coh_lowered_operand *operand)
{
    if (operand->is_far)
        return operand->access == COH_ACCESS_READ ? FAR_READ : FAR_UPDATE;
    return operand->access == COH_ACCESS_WRITE ? USE_WRITE : USE_READ;
}

static void count_accesses(uint32_t *count, const coh_layout *layout, const coh_sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->operand_begin[sequence->step_count]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        uint32_t first = layout->objects[operand->object].chunk_begin;
        for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++)
            count[first + k]++;
    }
}

static void add_accesses(coh_next_use *uses, const coh_layout *layout, const coh_sequence *sequence,
                         uint32_t first_step)
{
    for (uint32_t step = 0; step < sequence->step_count; step++)
        for (uint32_t i = sequence->operand_begin[step]; i < sequence->operand_begin[step + 1];
             i++) {
            const coh_lowered_operand *operand = &sequence->operands[i];
            uint32_t first = layout->objects[operand->object].chunk_begin;
            for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++)
                uses->accesses[uses->cursor[first + k]++] =
                    (coh_chunk_access){ .step = first_step + step, .what = what_of(operand) };
        }
}

static void add_ends(coh_next_use *uses, const coh_level *level)
{
    const coh_layout *layout = level->layout;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        int is_held = level->held_nearer != NULL && level->held_nearer[chunk];
        int alive = layout->objects[layout->chunks[chunk].object].survives &&
                    (!is_held || level->keeps_far[chunk]);
        uses->accesses[uses->cursor[chunk]++] =
            (coh_chunk_access){ .step = uses->end_step, .what = alive ? END_ALIVE : END_DEAD };
    }
}

coh_status coh_next_use_init(coh_next_use *uses, const coh_level *level,
                             const coh_sequence *sequence, const coh_sequence *next)
{
    const coh_layout *layout = level->layout;
    uint32_t chunks = layout->chunk_count;
    /* far beyond COH_INSTRUCTIONS_MOST */
    assert((uint64_t)sequence->step_count + (next != NULL ? next->step_count : 0) <
           (1u << COH_ACCESS_STEP_BITS) - 1);
    *uses = (coh_next_use){ .chunk_count = chunks, .end_step = sequence->step_count };
    COH_TRY(COH_ALLOC(chunks + 1, &uses->begin));
    COH_TRY(COH_ALLOC(chunks + 1, &uses->cursor));
    for (uint32_t i = 0; i < chunks; i++)
        uses->cursor[i] = 1;
    count_accesses(uses->cursor, layout, sequence);
    if (next != NULL)
        count_accesses(uses->cursor, layout, next);
    uint64_t total = 0;
    for (uint32_t i = 0; i < chunks; i++) {
        total += uses->cursor[i];
        uses->begin[i + 1] = (uint32_t)total;
    }
    COH_TRY(coh_effort_check_count(total, COH_UNIT_CHUNK_USES));
    COH_TRY(COH_ALLOC(uses->begin[chunks], &uses->accesses));
    for (uint32_t i = 0; i < chunks; i++)
        uses->cursor[i] = uses->begin[i];
    add_accesses(uses, layout, sequence, 0);
    add_ends(uses, level);
    if (next != NULL)
        add_accesses(uses, layout, next, sequence->step_count + 1);
    for (uint32_t i = 0; i < chunks; i++)
        uses->cursor[i] = uses->begin[i];
    return COH_OK;
}

void coh_next_use_fini(coh_next_use *uses)
{
    coh_free(uses->accesses);
    coh_free(uses->begin);
    coh_free(uses->cursor);
    *uses = (coh_next_use){ 0 };
}

int coh_next_use_is_needed(const coh_next_use *uses, uint32_t chunk)
{
    uint32_t next = uses->cursor[chunk];
    if (next >= uses->begin[chunk + 1])
        return 0;
    return uses->accesses[next].what != USE_WRITE && uses->accesses[next].what != END_DEAD;
}

uint64_t coh_next_use_step(const coh_next_use *uses, uint32_t chunk)
{
    uint64_t never = COH_NEVER;
    int left = 0; /* an instruction farther out has read it: a write here ends it */
    for (uint32_t i = uses->cursor[chunk]; i < uses->begin[chunk + 1]; i++) {
        uint8_t what = uses->accesses[i].what;
        if (what == END_DEAD || (what == USE_WRITE && left))
            return never;
        if (what == USE_READ || what == USE_WRITE)
            return uses->accesses[i].step;
        never = COH_NEVER - 1; /* needed, though not here: worth more than free space */
        if (what == FAR_UPDATE)
            return never;
        left |= what == FAR_READ;
    }
    return never;
}

uint64_t coh_next_use_last_read(const coh_next_use *uses, uint32_t chunk)
{
    uint32_t i = uses->cursor[chunk];
    uint64_t last = 0;
    for (i += uses->accesses[i].what == USE_WRITE; i < uses->begin[chunk + 1]; i++) {
        if (uses->accesses[i].what == END_ALIVE)
            return COH_NEVER;
        if (uses->accesses[i].what == USE_WRITE || uses->accesses[i].what == END_DEAD)
            return last;
        last = uses->accesses[i].step;
    }
    return last;
}

void coh_next_use_advance(coh_next_use *uses, uint32_t step, const coh_sequence *sequence,
                          uint32_t local_step, const coh_layout *layout)
{
    for (uint32_t i = sequence->operand_begin[local_step];
         i < sequence->operand_begin[local_step + 1]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        uint32_t first = layout->objects[operand->object].chunk_begin;
        for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++) {
            uint32_t *cursor = &uses->cursor[first + k];
            while (*cursor < uses->begin[first + k + 1] && uses->accesses[*cursor].step <= step)
                (*cursor)++;
        }
    }
}

void coh_next_use_cross(coh_next_use *uses)
{
    for (uint32_t i = 0; i < uses->chunk_count; i++)
        while (uses->cursor[i] < uses->begin[i + 1] &&
               uses->accesses[uses->cursor[i]].step <= uses->end_step)
            uses->cursor[i]++;
}
