/* link_plan.h - all messages of a rank, listed before the first one is sent.
 *
 * The one idea: a program's lines have fixed addresses, so a line that communicates is a fixed list
 * of sends and receives. A transport gets the whole list once, and prepares everything.
 *
 *     line 0    send 4096 bytes to rank 1        receive 4096 bytes from rank 1
 *     line 1    send 64 bytes to ranks 1, 2, 3   receive 64 bytes from ranks 1, 2, 3
 *
 * Messages match by their order: the k-th send to rank b in the plan of rank a belongs to the k-th
 * receive from rank a in the plan of rank b. Lines are not matched: the two may have other numbers.
 *
 * Threads: one at a time. Next: exchange.h makes lines of whole groups, transport.h runs them. */
#ifndef COH_COMM_LINK_PLAN_H
#define COH_COMM_LINK_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* One message as one rank sees it: a send has `from`, a receive has `to`, the other is NULL. */
typedef struct coh_link {
    int32_t peer; /* another rank */
    size_t bytes; /* at least 1 */
    const void *from;
    void *to;
} coh_link;

/* All zero: an empty plan. */
typedef struct coh_link_plan {
    coh_link *links; /* [link_count], line after line */
    size_t link_count, link_capacity;
    size_t *line_ends; /* [line_count]: line i ends before this link, where line i + 1 begins */
    size_t line_count, line_capacity;
    uint8_t *line_lanes; /* [line_count]: 0 or 1, for transports that execute lanes in order */
    size_t lane_capacity;
    uint8_t lane; /* of the lines that are begun from now on */
} coh_link_plan;

enum { COH_LINK_LANES = 2 };

void coh_link_plan_fini(coh_link_plan *plan);

/* Begins the next line, still without links; *out_line is its number. Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_begin(coh_link_plan *plan, uint32_t *out_line);

/* Add a message to the line begun last. The memory must stay valid until the transport is closed.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_send(coh_link_plan *plan, int32_t peer, const void *from, size_t bytes);
coh_status coh_link_plan_receive(coh_link_plan *plan, int32_t peer, void *to, size_t bytes);

/* Checks each link of a rank's plan by itself.
 * Fails: COH_ERR_ARGUMENT naming a link without another rank, bytes or just one address. */
coh_status coh_link_plan_check(const coh_link_plan *plan, int32_t rank, int32_t rank_count);

/* One side of a message: where it lies in the plan of its rank. */
typedef struct coh_link_side {
    size_t line, bytes;
} coh_link_side;

/* Checks that a send to `peer` and the receive there (NULL: none is left) are one message.
 * Fails: COH_ERR_ARGUMENT with lines and bytes. */
coh_status coh_link_match(int32_t peer, const coh_link_side *send, const coh_link_side *receive);
/* Refuses a receive to which `peer` sends nothing. */
coh_status coh_link_refuse_receive(int32_t peer, const coh_link_side *receive);

/* Returns the first link of a line. */
static inline size_t coh_link_plan_first(const coh_link_plan *plan, size_t line)
{
    return line == 0 ? 0 : plan->line_ends[line - 1];
}

#endif
