/* comm_wire.h - exchanges between ranks whose elements are packed on the way (cohobate/wire.h).
 *
 *     REDUCE   pack all slices  ── exchange ── unpack those of the own part, where they are folded
 *     GATHER   pack the own part ── exchange ── unpack all parts
 *
 * Also what a rank keeps is packed and unpacked: else the sum of an element would depend on the
 * rank that folds it, and so on the size of chunks.
 *
 * The bytes lie in the layout's WIRE object (coh_wire_room, planner/comm_parts.h). */
#ifndef COH_ENGINE_COMM_WIRE_H
#define COH_ENGINE_COMM_WIRE_H

#include "comm/exchange.h"
#include "engine/step_state.h"
#include "planner/comm_parts.h"

/* Adds the line of a REDUCE; line->slices are where slices are folded. `wire`: the WIRE object.
 * Fails: COH_ERR_MEMORY, and as coh_exchange_reduce. */
coh_status coh_comm_wire_reduce(coh_comm_line *line, coh_link_plan *plan,
                                const coh_exchange *exchange, const coh_comm_call *comm,
                                char *contribution, char *wire);

/* Adds the line of a GATHER into `window`; the rank's own part is read from `own`. Fails: as
 * above. */
coh_status coh_comm_wire_gather(coh_comm_line *line, coh_link_plan *plan,
                                const coh_exchange *exchange, const coh_comm_call *comm,
                                char *window, const char *own, char *wire);

/* Before a line starts, and when it is done; of a line on the stored wire nothing. `queue`: of
 * kernels (kernels/table.h). */
void coh_comm_wire_pack(const coh_comm_line *line, void *queue);
void coh_comm_wire_unpack(const coh_comm_line *line, void *queue);

void coh_comm_line_fini(coh_comm_line *line); /* accepts a zeroed struct */

#endif
