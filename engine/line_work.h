/* line_work.h - what lines of a program do, as functions of plain arguments: the executor calls
 * them with what stands in its arenas, the measuring of a profile with memory of its own.
 *
 * Threads: the compute lane's. Nothing here allocates or fails. */
#ifndef COH_ENGINE_LINE_WORK_H
#define COH_ENGINE_LINE_WORK_H

#include "engine/grains.h"
#include "kernels/kernels.h"
#include "planner/program.h"

/* One binding of a call, resolved: a view that only needs to be copied into the call. */
typedef struct coh_bound_port {
    coh_view view;
    uint8_t role, port;
} coh_bound_port;

/* The port that `binding` describes, with its bytes at `data`. */
coh_bound_port coh_bound_port_of(const coh_binding *binding, void *data);
/* Puts the view where a kind looks for it. Roles that are no port of a call are left out. */
void coh_call_set_port(coh_call *call, const coh_bound_port *port);

/* What an ADD does: to = from, or to += from with `adds`; f32 `to` takes bf16 as well. */
void coh_add_views(void *queue, const coh_view *to, const coh_view *from, int adds);

/* One chunk of the parameters of a group: bytes [object_offset, object_offset + bytes) of its
 * WORK. */
typedef struct coh_chunk_place {
    const coh_layout *layout;
    int32_t group;
    uint64_t object_offset, bytes;
} coh_chunk_place;

/* The update of one chunk whose trained parameters are `grains`, at these places; cells, partials
 * and the constants of AdamW are the caller's to fill in. */
coh_update coh_chunk_update(const coh_chunk_place *place, coh_chunk_grains grains, void *work,
                            const void *grad, void *state);

#endif
