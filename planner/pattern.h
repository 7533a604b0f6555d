/* pattern.h - how one operator becomes instructions.
 *
 * A pattern lays out the parameters of an operator, expands a call of it into lines, and gives the
 * cost in closed form. The lines it emits must add up to that cost exactly (a test compares them).
 * The executor knows no pattern by name.
 *
 *     replicate   the whole operator on the one device, in one line
 *     slice       the row-split parameter in row ranges, one line each: a table that is gathered
 *                 from or passed over, or a product in pieces of its output columns
 *
 * Patterns that span several ranks (patterns.md of the design) implement the same table. */
#ifndef COH_PLANNER_PATTERN_H
#define COH_PLANNER_PATTERN_H

#include "planner/lower_writer.h"

/* The context of an operator. */
typedef struct coh_pattern_scene {
    const coh_graph *graph;
    const coh_layout *layout;
    const coh_object_map *map;
} coh_pattern_scene;

/* Levels of links between ranks: in a pair, in a node, between nodes. */
enum { COH_PATTERN_LEVELS = 3 };

/* How an operator's parameters are partitioned. */
typedef struct coh_shard {
    int32_t parts;         /* 1: whole */
    int64_t rows_per_part; /* of the split parameter's rows, except in the last part; 0: whole */
    int64_t row_count;     /* 0: whole */
    int32_t port;          /* of the split parameter; -1: none */
} coh_shard;

typedef struct coh_pattern {
    const char *name;
    uint8_t classes; /* bits of coh_group_class that may have it */
    /* Returns the partition of the operator's parameters. */
    coh_shard (*shard)(const coh_pattern_scene *scene, int32_t op);
    /* Writes the lines of a call (coh_lower_call). */
    coh_status (*expand)(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                         int final);
    /* Bytes that a rank receives over the links of one level for the operator, per micro-batch. */
    uint64_t (*volume)(const coh_pattern_scene *scene, int32_t op, int level);
    /* The most bytes of WORK that one line of the operator needs at once, padding included. */
    uint64_t (*memory)(const coh_pattern_scene *scene, int32_t op);
} coh_pattern;

/* By coh_pattern_id. */
extern const coh_pattern *const coh_pattern_rows[COH_PATTERN_COUNT];

/* Returns the pattern that the decisions give an operator: that of its class. */
const coh_pattern *coh_pattern_of(const coh_pattern_scene *scene, int32_t op);

#endif
