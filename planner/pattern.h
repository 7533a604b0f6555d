/* pattern.h - the life of a parameter group: where its parts lie, how operators use them, and every
 * instruction that belongs to the group.
 *
 *     replicate   the whole operator on every rank, in one instruction
 *     slice       the row-split parameter in row ranges, one instruction each: a table that is
 *                 gathered from or passed over, or a product in pieces of its output columns
 * Besides, the ranks may divide a group's streams (coh_group_layout.axes): each has the states of a
 * part of each chunk, updates that part, and gets what it keeps of the work beyond it.
 *
 *     INIT, IMPORT                visit
 *     UPDATE before a forward     prepare      if updates are deferred
 *     FORWARD ... BACKWARD        expand       contribute: overwrite or add
 *     ADD of replicas             finish       after the last contribution of a replica
 *     sum over the ranks          finish       after that of the last replica
 *     NORM, UPDATE                complete     when the gradient is summed
 *     deferred UPDATEs            drain
 *     HASH, SAVE                  visit        the chunks that this rank owns
 *
 * A pattern is a table of functions. Lowering (lower.c) decides the order of sweeps and asks the
 * pattern for the instructions. The pattern of a group is a decision (pattern_choice.h). The costs
 * are given in closed form, and every program is compared with them (coh_pattern_check). The
 * executor knows no pattern by name.
 *
 * The formulas hold for any number of ranks (coh_layout.mesh). Each rank sums a part of the
 * gradient, and then all have the sum again (comm_parts.h), or, of a divided chunk, the updated
 * work. While a gradient is summed, backward continues: it is completed when the next sum begins.
 *
 *     compute |  BWD 3   |  BWD 2   |  NORM 3  |  BWD 1   |  NORM 2  | ...
 *     comm0              | sum of 3 |          | sum of 2 |          | ...
 *
 * GATHERs over the axes that divide the states, but not the work, follow the update of a chunk;
 * those over the axes that divide the work come before each use. */
#ifndef COH_PLANNER_PATTERN_H
#define COH_PLANNER_PATTERN_H

#include "planner/lower_writer.h"

/* The context of an operator. */
typedef struct coh_pattern_scene {
    const coh_graph *graph;
    const coh_layout *layout;
    const coh_object_map *map;
} coh_pattern_scene;

/* How an operator's parameters are partitioned. */
typedef struct coh_shard {
    int32_t parts;         /* 1: whole */
    int64_t rows_per_part; /* of the split parameter's rows, except in the last part; 0: whole */
    int64_t row_count;     /* 0: whole */
    int32_t port;          /* of the split parameter; -1: none */
} coh_shard;

/* Where a contribution to the gradient of a parameter goes. */
typedef struct coh_contribution {
    int32_t object; /* -1: nowhere, the parameter is frozen */
    int access;     /* to the chunks: WRITE if it is the first of its replica, else BOTH */
    int adds;       /* 1: to what earlier contributions to this parameter left */
} coh_contribution;

typedef struct coh_pattern {
    const char *name;
    uint8_t classes; /* bits of coh_group_class that may have it */

    /* Returns the partition of the operator's parameters. */
    coh_shard (*shard)(const coh_pattern_scene *scene, int32_t op);
    /* Returns the rank that owns chunk `chunk` of the `count` chunks of a group's work, and the
     * chunks of gradient and states that belong to it. */
    int32_t (*owner)(const coh_layout *layout, uint32_t chunk, uint32_t count);

    /* Writes the instructions of a call (coh_lower_call). */
    coh_status (*expand)(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                         int final);
    /* Writes what must precede the first FORWARD of a step that reads chunks [begin, end) of the
     * group. */
    coh_status (*prepare)(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
    /* Writes what must precede any call that reads chunks [begin, end) of the group: GATHERs of
     * divided work. A FORWARD of a step makes the copy of the work that later calls use. */
    coh_status (*gather)(coh_lower_writer *w, coh_opcode opcode, int32_t group, uint32_t begin,
                         uint32_t end);
    /* Takes note of a contribution to the gradient of a graph parameter, in chunks [begin, end) of
     * its group, and returns where it goes. */
    coh_contribution (*contribute)(coh_lower_writer *w, int32_t parameter, uint32_t begin,
                                   uint32_t end);
    /* Writes what follows the last contribution of a replica to chunks [begin, end). */
    coh_status (*finish)(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
    /* Writes what follows the sum of chunks [begin, end) over all replicas and ranks. */
    coh_status (*complete)(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
    /* Writes the UPDATE of one chunk, on the lane of its group. */
    coh_status (*update)(coh_lower_writer *w, int32_t group, uint32_t chunk);
    /* Writes the deferred updates that are not written yet. */
    coh_status (*drain)(coh_lower_writer *w, int32_t group);
    /* Writes the INIT, IMPORT, HASH, SAVE or EDIT instructions of the group. */
    coh_status (*visit)(coh_lower_writer *w, coh_opcode opcode, int32_t group);

    /* Returns the bytes that a rank receives for the group over the links of one level, in a
     * program of one kind: at most, since the last parts of a window may be shorter. Each use of a
     * chunk of divided work adds coh_gathered_bytes. */
    uint64_t (*volume)(const coh_layout *layout, int32_t group, coh_program_kind kind,
                       coh_link_level level);
    /* Returns the most bytes of WORK that one instruction of the operator needs at once, padding
     * included. */
    uint64_t (*memory)(const coh_pattern_scene *scene, int32_t op);
} coh_pattern;

/* By coh_pattern_id. */
extern const coh_pattern *const coh_pattern_rows[COH_PATTERN_COUNT];

/* Returns the pattern that the decisions give an operator: that of its class. */
const coh_pattern *coh_pattern_of(const coh_pattern_scene *scene, int32_t op);
/* Returns the pattern of a group of the layout. */
static inline const coh_pattern *coh_pattern_of_group(const coh_layout *layout, int32_t group)
{
    return coh_pattern_rows[layout->groups[group].pattern];
}

/* Returns the bytes that a rank receives over the links of one level when a chunk of work is
 * gathered for a call of an opcode. */
uint64_t coh_gathered_bytes(const coh_layout *layout, uint32_t chunk, coh_program_kind kind,
                            coh_opcode opcode, coh_link_level level);

/* Completes the chunks whose sum over all ranks is under way, if any. */
coh_status coh_pattern_settle(coh_lower_writer *w);

/* Compares a program with the closed forms of its patterns: the instructions of each call and
 * the most WORK of one of them, and the bytes received over each level of links. Fails:
 * COH_ERR_INTERNAL with the operator or the lane, COH_ERR_MEMORY. */
coh_status coh_pattern_check(const coh_pattern_scene *scene, const coh_program *program);

#endif
