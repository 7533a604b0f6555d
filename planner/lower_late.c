/* Moves updates of the host lane that backward leaves no time for behind all others. Read
 * lower_late.h first. */
#include "planner/lower_late.h"

#include <stdlib.h>

#include "base/alloc.h"

/* An update that is moved. */
typedef struct late_update {
    uint32_t use; /* the first instruction of the next body that reads its parameters */
    uint32_t index;
} late_update;

/* By chunk: the first and the last instruction that touches it, of those that are not on the host
 * lane; UINT32_MAX and 0: none. */
typedef struct touches {
    uint32_t *first, *last;
} touches;

static int is_host_update(const coh_lowered_instruction *instruction)
{
    return instruction->lane == COH_LANE_HOST && instruction->opcode == COH_OP_UPDATE;
}

static uint32_t first_chunk(const coh_layout *layout, const coh_lowered_operand *operand)
{
    return layout->objects[operand->object].chunk_begin + operand->touch_begin;
}

static void find_touches(const coh_layout *layout, const coh_lowered *lowered, touches *of)
{
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++)
        of->first[chunk] = UINT32_MAX;
    for (uint32_t i = 0; i < lowered->instruction_count; i++) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        for (uint32_t k = 0; instruction->lane != COH_LANE_HOST && k < instruction->operand_count;
             k++) {
            const coh_lowered_operand *operand = &lowered->operands[instruction->operand_begin + k];
            const uint32_t begin = first_chunk(layout, operand);
            const uint32_t count = operand->touch_end - operand->touch_begin;
            for (uint32_t chunk = begin; chunk < begin + count; chunk++) {
                of->first[chunk] = of->first[chunk] < i ? of->first[chunk] : i;
                of->last[chunk] = i;
            }
        }
    }
}

/* Returns 1 if no later instruction touches the chunks of an update. Pinned objects do not count:
 * only the first and the last instruction of a body write the cells. */
static int may_move(const coh_layout *layout, const coh_lowered *lowered, const touches *of,
                    uint32_t index)
{
    const coh_lowered_instruction *update = &lowered->instructions[index];
    for (uint32_t k = 0; k < update->operand_count; k++) {
        const coh_lowered_operand *operand = &lowered->operands[update->operand_begin + k];
        if (!layout->objects[operand->object].pinned &&
            of->last[first_chunk(layout, operand)] > index)
            return 0;
    }
    return 1;
}

static int compare_uses(const void *x, const void *y)
{
    const late_update *a = x, *b = y;
    if (a->use != b->use)
        return a->use < b->use ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Writes the new order of the instructions up to the last update on the host lane. */
static uint32_t order_updates(const coh_layout *layout, const coh_lowered *lowered, int late,
                              uint32_t count, const touches *of, late_update *moved,
                              uint32_t *order)
{
    uint32_t written = 0, moved_count = 0;
    double due = 0;
    for (uint32_t i = 0; i < count; i++) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        if (is_host_update(instruction) && may_move(layout, lowered, of, i)) {
            const uint32_t chunk =
                first_chunk(layout, &lowered->operands[instruction->operand_begin]);
            const double bytes = (double)layout->chunks[chunk].bytes;
            due += bytes * late / COH_LATE_PARTS;
            if (due >= bytes) {
                due -= bytes;
                moved[moved_count++] = (late_update){ of->first[chunk], i };
                continue;
            }
        }
        order[written++] = i;
    }
    if (moved_count > 1)
        qsort(moved, moved_count, sizeof(*moved), compare_uses);
    for (uint32_t i = 0; i < moved_count; i++)
        order[written++] = moved[i].index;
    return written;
}

coh_status coh_lower_late(const coh_layout *layout, int late, coh_lowered *lowered)
{
    const uint32_t all = (uint32_t)lowered->instruction_count;
    uint32_t count = all, *order = NULL;
    touches of = { 0 };
    late_update *moved = NULL;
    coh_status status = COH_OK;
    while (count > 0 && !is_host_update(&lowered->instructions[count - 1]))
        count--;
    if (late == 0 || count == 0)
        return COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &of.first), done);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &of.last), done);
    COH_TRY_GOTO(status, COH_ALLOC(all, &moved), done);
    COH_TRY_GOTO(status, COH_ALLOC(all, &order), done);
    find_touches(layout, lowered, &of);
    for (uint32_t i = order_updates(layout, lowered, late, count, &of, moved, order); i < all; i++)
        order[i] = i;
    status = coh_lowered_reorder(order, lowered);
done:
    coh_free(order);
    coh_free(moved);
    coh_free(of.last);
    coh_free(of.first);
    return status;
}
