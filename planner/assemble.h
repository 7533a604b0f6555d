/* assemble.h - put compute lines and moves in key order and write them out as a program. */
#ifndef COH_PLANNER_ASSEMBLE_H
#define COH_PLANNER_ASSEMBLE_H

#include "planner/lower.h"
#include "planner/residency.h"

/* A residency's moves in key order, as steps of the next level out: an `in` reads its chunk there,
 * an `out` writes it. */
typedef struct coh_mover_list {
    uint32_t count;
    uint32_t *moves; /* indices into residency.moves */
    uint32_t *need_begin;
    coh_need *needs;
    int32_t *versions;
} coh_mover_list;

coh_status coh_mover_list_make(const coh_layout *layout, const coh_residency *residency,
                               coh_mover_list *out_list);
void coh_mover_list_fini(coh_mover_list *list); /* accepts a zeroed struct */

typedef struct coh_assembly {
    const coh_layout *layout;
    const coh_sheet *sheet;
    const uint32_t *need_begin;
    const coh_residency *device;
    /* NULL without a host tier: the device's moves then go to and from disk */
    const coh_mover_list *movers;
    const coh_residency *host;
} coh_assembly;

/* Everything of a program but lane depths and waits. */
coh_status coh_assemble(const coh_assembly *assembly, coh_program *out_program);

#endif
