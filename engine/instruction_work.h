/* instruction_work.h - the work of a program's instructions as functions of plain arguments. The
 * executor calls them on data in its arenas; the profiler calls them on memory that it allocates.
 *
 * Threads: the compute lane's. Nothing here allocates or fails. */
#ifndef COH_ENGINE_INSTRUCTION_WORK_H
#define COH_ENGINE_INSTRUCTION_WORK_H

#include "engine/grains.h"
#include "kernels/kernels.h"
#include "planner/program.h"

/* One binding of a call, resolved: a view that only needs to be copied into the call. */
typedef struct coh_bound_port {
    coh_view view;
    uint8_t role, port;
} coh_bound_port;

/* Returns the port that `binding` describes, with its bytes at `data`. */
coh_bound_port coh_bound_port_of(const coh_binding *binding, void *data);
/* Puts the view where an operator kind looks for it. Ignores roles that are not ports of a call. */
void coh_call_set_port(coh_call *call, const coh_bound_port *port);

/* The work of an ADD: to = from, or to += from with `adds`. An f32 `to` accepts a bf16 `from`. */
void coh_add_views(void *queue, const coh_view *to, const coh_view *from, int adds);

/* One chunk of the parameters of a group: bytes [object_offset, object_offset + bytes) of its
 * WORK. */
typedef struct coh_chunk_place {
    const coh_layout *layout;
    int32_t group;
    uint64_t object_offset, bytes;
} coh_chunk_place;

/* Returns the update of one chunk whose trained parameters are `grains`, at these addresses. The
 * caller fills in cells, partials and the optimizer's numbers. */
coh_update coh_chunk_update(const coh_chunk_place *place, coh_chunk_grains grains, void *work,
                            const void *grad, void *state);

#endif
