/* assemble.h - merge compute instructions and moves in key order and write them out as a
 * program. */
#ifndef COH_PLANNER_ASSEMBLE_H
#define COH_PLANNER_ASSEMBLE_H

#include "planner/lower.h"
#include "planner/residency.h"

/* The steps of the next level out, in key order: the moves of a residency (an `in` reads its chunk
 * in the outer tier, an `out` writes it), and between them the instructions of the host lane. */
typedef struct coh_outer_list {
    uint32_t count;
    uint32_t *operand_begin;
    coh_lowered_operand *operands;
    int32_t *versions; /* by operand */
    uint32_t *at;      /* by step: the device's step that runs next */
} coh_outer_list;

typedef struct coh_assembly {
    const coh_layout *layout;
    coh_lowered *lowered;
    const uint32_t *operand_begin;
    coh_residency *device;
    /* NULL without a host tier: the device's moves then go to and from disk. Its placings are
     * indexed by the needs of the list that coh_outer_list_make gives. */
    coh_residency *host;
} coh_assembly;

/* Lists the steps outside the device level; assembly->host is not read. Fails: COH_ERR_MEMORY;
 * *out_list can then be released. */
coh_status coh_outer_list_make(const coh_assembly *assembly, coh_outer_list *out_list);
void coh_outer_list_fini(coh_outer_list *list); /* accepts a zeroed struct */

/* Writes the whole program except lane depths and waits. Takes the calls, bindings and groups of
 * ranks out of assembly->lowered, and the extents out of its levels. */
coh_status coh_assemble(const coh_assembly *assembly, coh_program *out_program);

#endif
