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
 * A line may also be one call of the transport's library, a collective, that all members of a group
 * make together, such as NCCL's reduce-scatter. Such a line has no links.
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

typedef enum coh_collective_kind {
    COH_COLLECTIVE_GATHER, /* member i sends part i of the window to all */
    COH_COLLECTIVE_REDUCE, /* member i receives part i of the sum of all windows, of f32, added in
                            * the library's order */
} coh_collective_kind;

/* A line that is one call of the transport's library. All parts have one size. */
typedef struct coh_collective {
    coh_collective_kind kind;
    uint32_t line, group;
    /* GATHER: this rank's part, and the window. REDUCE: the window, and where this rank's part of
     * the sum goes. The part may lie at its place in the window. */
    const void *from;
    void *to;
    size_t part_bytes;
} coh_collective;

/* Ranks that make collectives together, on one lane. */
typedef struct coh_link_group {
    size_t first;         /* of its ranks, in the plan's members */
    int32_t count, index; /* its ranks; this one among them */
    uint8_t lane;
} coh_link_group;

/* All zero: an empty plan. */
typedef struct coh_link_plan {
    coh_link *links; /* [link_count], line after line */
    size_t link_count, link_capacity;
    size_t *line_ends; /* [line_count]: line i ends before this link, where line i + 1 begins */
    size_t line_count, line_capacity;
    uint8_t *line_lanes; /* [line_count]: 0 or 1, for transports that execute lanes in order */
    size_t lane_capacity;
    uint8_t lane;                /* of the lines that are begun from now on */
    coh_collective *collectives; /* [collective_count], in the order of their lines */
    size_t collective_count, collective_capacity;
    coh_link_group *groups; /* [group_count]: each once, in the order in which they were named */
    size_t group_count, group_capacity;
    int32_t *members; /* [member_count]: the ranks of all groups */
    size_t member_count, member_capacity;
} coh_link_plan;

enum { COH_LINK_LANES = 2 };

void coh_link_plan_fini(coh_link_plan *plan);

/* Begins the next line, still without links; *out_line is its number. Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_begin(coh_link_plan *plan, uint32_t *out_line);

/* Add a message to the line begun last. The memory must stay valid until the transport is closed.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_send(coh_link_plan *plan, int32_t peer, const void *from, size_t bytes);
coh_status coh_link_plan_receive(coh_link_plan *plan, int32_t peer, void *to, size_t bytes);

/* Names the `count` ranks of a group on the plan's lane, of which this rank is the `index`-th. All
 * ranks name groups of the same sizes and lanes in the same order, whether or not a collective of
 * theirs follows: they connect them together. Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_group(coh_link_plan *plan, const int32_t *ranks, int32_t count,
                               int32_t index, uint32_t *out_group);
/* Makes the line begun last a collective; its member `line` is set. Only transports that have
 * collectives bind such a plan. Fails: COH_ERR_MEMORY. */
coh_status coh_link_plan_collective(coh_link_plan *plan, coh_collective collective);

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
