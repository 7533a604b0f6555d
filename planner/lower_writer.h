/* lower_writer.h - the pen that planner/lower*.c write a sheet with: one line at a time, needs
 * first. */
#ifndef COH_PLANNER_LOWER_WRITER_H
#define COH_PLANNER_LOWER_WRITER_H

#include "planner/lower.h"

typedef struct coh_lower_writer {
    const coh_graph *graph;
    const coh_plan_options *options;
    const coh_layout *layout;
    const coh_object_map *map;
    const coh_block_set *recompute; /* blocks */
    int row_passes;
    coh_sheet *sheet;
    uint8_t *chunk_touched;     /* by chunk: its gradient was written in this step */
    uint8_t *parameter_written; /* by graph parameter: its gradient was, in groups of several */
    uint8_t *chunk_updated;     /* by chunk of WORK: its UPDATE line is written */
    uint8_t *group_on_host;     /* by group: its UPDATE lines are the host lane's */
} coh_lower_writer;

/* Starts a line; its needs and bindings follow. */
coh_status coh_lower_line(coh_lower_writer *w, coh_opcode opcode);
/* Adds a need of the newest line for chunks [begin, end), window the same. */
coh_status coh_lower_need(coh_lower_writer *w, int32_t object, uint32_t begin, uint32_t end,
                          int access, coh_role role);
/* All chunks of an object. */
coh_status coh_lower_need_all(coh_lower_writer *w, int32_t object, int access, coh_role role);
/* Adds a binding to the newest call, on the newest need. */
coh_status coh_lower_bind(coh_lower_writer *w, coh_role role, int port, uint64_t object_offset,
                          const coh_shape *shape);

/* The rows [begin, end) of count that one line of a call works on; count 0: not split. */
typedef struct coh_row_range {
    int64_t begin, end, count;
} coh_row_range;

/* One call of an operator in one phase on one micro-batch, as the operator's pattern expands it.
 * opcode: FORWARD, RECOMPUTE or BACKWARD. `final`: the last micro-batch of the step. */
coh_status coh_lower_call(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                          int final);
/* The lines of one range of it, in rising order: updates that come before, the call, and in
 * backward what follows it. */
coh_status coh_lower_range(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                           int final, coh_row_range rows);

/* The UPDATE line of one chunk of a group, on the lane of that group. */
coh_status coh_lower_update(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* The NORM line of one chunk. */
coh_status coh_lower_norm(coh_lower_writer *w, int32_t group, uint32_t chunk);

#endif
