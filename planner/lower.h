/* lower.h - write down the lines of a program that compute: what is done, in which order, on which
 * objects, on which lane: the device's, or the host's for updates of parameters that stand there.
 *
 * Nothing here knows of addresses, tiers or budgets. A line has *needs*: an object, the chunks it
 * touches, and the window of chunks that must lie next to one another. The next stage (residency.h)
 * finds a place for every window and adds the movers. */
#ifndef COH_PLANNER_LOWER_H
#define COH_PLANNER_LOWER_H

#include "planner/layout.h"

/* Chunk numbers count from the object's first chunk; ends are exclusive. */
typedef struct coh_need {
    int32_t object;
    uint32_t touch_begin, touch_end;
    uint32_t window_begin, window_end; /* covers the touched chunks */
    uint8_t access, role;
    /* 1: wanted in the next tier out, by a line of the host lane. There its chunks stand each by
     * itself; a copy in this tier is stale once the line has written. */
    uint8_t is_far;
} coh_need;

typedef struct coh_sheet_line {
    coh_opcode opcode;
    coh_lane lane; /* COMPUTE, or HOST: all its needs are far */
    int8_t predicate_cell;
    uint32_t need_begin, need_count;
    int32_t call;
    double flops;
    uint64_t bytes;
} coh_sheet_line;

/* The lines of one program that compute. calls and bindings go into the program as they are; a
 * binding's `operand` is the number of a need of its line. */
typedef struct coh_sheet {
    coh_program_kind kind;
    coh_sheet_line *lines;
    size_t line_count, line_capacity;
    coh_need *needs;
    size_t need_count, need_capacity;
    coh_line_call *calls;
    size_t call_count, call_capacity;
    coh_binding *bindings;
    size_t binding_count, binding_capacity;
} coh_sheet;

/* `recompute`: the blocks that are recomputed in backward, by coh_graph_blocks_before.
 * `row_passes`: a row-split parameter is taken in at most so many ranges (1: whole).
 * `host_updates`: see coh_decisions; 0 without a host tier. Fails: COH_ERR_MEMORY. A kind of
 * program that this mode does not have gives an empty sheet. */
coh_status coh_lower(const coh_graph *graph, const coh_plan_options *options,
                     const coh_layout *layout, const coh_object_map *map,
                     const coh_block_set *recompute, int row_passes, int host_updates,
                     coh_program_kind kind, coh_sheet *out_sheet);
void coh_sheet_fini(coh_sheet *sheet); /* accepts a zeroed struct */

#endif
