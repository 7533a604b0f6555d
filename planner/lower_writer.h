/* lower_writer.h - the writer with which planner/lower*.c lower a program: one instruction at a
 * time, with its operands. */
#ifndef COH_PLANNER_LOWER_WRITER_H
#define COH_PLANNER_LOWER_WRITER_H

#include "planner/lower.h"

typedef struct coh_lower_writer {
    const coh_graph *graph;
    const coh_plan_options *options;
    const coh_layout *layout;
    const coh_object_map *map;
    const coh_block_set *recompute; /* blocks */
    coh_lowered *lowered;
    int32_t microbatch, replica; /* of the newest call */
    uint8_t
        *chunk_touched; /* by chunk of a gradient or contribution: this replica has written it */
    /* by graph parameter: this replica has written its gradient; for groups of several */
    uint8_t *parameter_written;
    uint8_t *chunk_updated; /* by chunk of WORK: its UPDATE instruction is written */
    uint8_t *group_on_host; /* by group: its UPDATE instructions are on the host lane */
    /* Chunks [begin, end) of a group whose sum over all ranks is under way: their pattern completes
     * them when the next sum is. -1: none. */
    int32_t summed_group;
    uint32_t summed_begin, summed_end;
} coh_lower_writer;

/* Returns 1 if instructions that ranks execute together are written. A lower bound is that of a
 * rank without its world (coh_alone), on the layout of all. */
static inline int coh_lower_has_world(const coh_lower_writer *w)
{
    return coh_fold_replicas(&w->options->ranks) > 1;
}

/* Starts an instruction; its operands and bindings follow. */
coh_status coh_lower_instruction(coh_lower_writer *w, coh_opcode opcode);
/* Adds an operand of chunks [begin, end) to the newest instruction; the window is the same
 * range. */
coh_status coh_lower_operand(coh_lower_writer *w, int32_t object, uint32_t begin, uint32_t end,
                             int access, coh_role role);
/* Adds an operand of all chunks of an object. */
coh_status coh_lower_operand_all(coh_lower_writer *w, int32_t object, int access, coh_role role);
/* Adds a binding to the newest call, for the newest operand. */
coh_status coh_lower_bind(coh_lower_writer *w, coh_role role, int port, uint64_t object_offset,
                          const coh_shape *shape);

/* The rows [begin, end) of `count` that one instruction of a call works on; count 0: not split. */
typedef struct coh_row_range {
    int64_t begin, end, count;
} coh_row_range;

/* Writes one call of an operator in one phase on one micro-batch, as the operator's pattern expands
 * it. opcode: FORWARD, RECOMPUTE or BACKWARD. `final`: the last micro-batch of a replica. */
coh_status coh_lower_call(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                          int final);
/* Writes the instructions of one row range of the call, in rising order: preceding updates, the
 * call, and in backward what follows it. */
coh_status coh_lower_range(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                           int final, coh_row_range rows);

/* Writes an ADD of chunk `chunk` of object `from`, a contribution, to that chunk of `to`, the
 * gradient or another contribution of the same group. */
coh_status coh_lower_fold(coh_lower_writer *w, int32_t from, int32_t to, uint32_t chunk);

/* Writes the instructions that sum chunk `chunk` of a group's gradient over all ranks. Of a divided
 * chunk each rank then has the sum of the part that it updates. */
coh_status coh_lower_sum_ranks(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* Writes the GATHERs of a divided chunk that this rank and others have updated in parts: each rank
 * has then what it keeps of the work. */
coh_status coh_lower_gather_update(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* Writes the GATHERs of a chunk of work of which each rank keeps a part: every rank has all of it
 * then. Nothing for work that is kept whole. */
coh_status coh_lower_gather_work(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* Writes the GATHERs that make the copy of a chunk of work from its parts; and those of the chunk
 * from its copy. */
coh_status coh_lower_gather_copy(coh_lower_writer *w, int32_t group, uint32_t chunk);
coh_status coh_lower_gather_from_copy(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* Writes the GATHER of a divided chunk's states, into the layout's object `gathered`. */
coh_status coh_lower_gather_states(coh_lower_writer *w, int32_t group, uint32_t chunk);
/* Writes the GATHER of the norm partials of divided chunks, if there are any. */
coh_status coh_lower_gather_partials(coh_lower_writer *w);
/* Writes the GATHER of the losses of all ranks, after the last forward. */
coh_status coh_lower_gather_losses(coh_lower_writer *w);

/* Writes INIT, IMPORT, HASH, SAVE or EDIT: one instruction per chunk of an object (-1: none), each
 * with its own window. HASH and SAVE visit only the chunks that this rank owns. With `states`,
 * an object of the same group, the instruction takes its chunk, too. */
coh_status coh_lower_visit(coh_lower_writer *w, coh_opcode opcode, int32_t object, coh_role role,
                           int32_t states);

#endif
