/* Lines in which each member of a group sends a part to each other one. Read exchange.h first. */
#include "comm/exchange.h"

#include "base/alloc.h"
#include "base/bytes.h"

typedef struct members {
    int32_t count, index; /* of the group, of this rank in it */
} members;

static members members_of(const coh_exchange *exchange)
{
    return (members){
        .count = coh_mesh_group_size(exchange->mesh, exchange->axes),
        .index = coh_mesh_group_index(exchange->mesh, exchange->axes, exchange->rank),
    };
}

static int32_t rank_of(const coh_exchange *exchange, int32_t index)
{
    return coh_mesh_group_member(exchange->mesh, exchange->axes, exchange->rank, index);
}

/* ---- where parts lie ---- */

static size_t part_at(const coh_exchange *exchange, int32_t index)
{
    return (size_t)index * exchange->part_bytes;
}

/* Where a REDUCE receives the slice of another member. */
static size_t room_at(const coh_exchange *exchange, members group, int32_t index)
{
    return part_at(exchange, index - (index > group.index));
}

size_t coh_exchange_part_bytes(const coh_exchange *exchange, int32_t index)
{
    const size_t begin = (size_t)index * exchange->part_bytes;
    const size_t left = begin < exchange->window_bytes ? exchange->window_bytes - begin : 0;
    return left < exchange->part_bytes ? left : exchange->part_bytes;
}

/* ---- the lines ---- */

/* Adds a message to member `index`, or from it; an empty one is left out on both sides. */
static coh_status send_to(coh_link_plan *plan, const coh_exchange *exchange, int32_t index,
                          const void *window, size_t at, size_t bytes)
{
    const unsigned char *from = (const unsigned char *)window + at;
    return bytes == 0 ? COH_OK : coh_link_plan_send(plan, rank_of(exchange, index), from, bytes);
}

static coh_status receive_from(coh_link_plan *plan, const coh_exchange *exchange, int32_t index,
                               void *window, size_t at, size_t bytes)
{
    unsigned char *to = (unsigned char *)window + at;
    return bytes == 0 ? COH_OK : coh_link_plan_receive(plan, rank_of(exchange, index), to, bytes);
}

static coh_status begin_line(coh_link_plan *plan, const coh_exchange *exchange, uint32_t *out_line)
{
    uint64_t bytes;
    COH_TRY(coh_bytes_mul(exchange->part_bytes, (uint64_t)members_of(exchange).count, &bytes));
    return coh_link_plan_begin(plan, out_line);
}

/* In step s each member sends to the s-th member after it, so that no link has two messages. */
static int32_t to_in(members group, int32_t step)
{
    return (group.index + step) % group.count;
}

static int32_t from_in(members group, int32_t step)
{
    return (group.index + group.count - step) % group.count;
}

coh_status coh_exchange_gather(coh_link_plan *plan, const coh_exchange *exchange, void *window,
                               uint32_t *out_line)
{
    const members group = members_of(exchange);
    const size_t own_bytes = coh_exchange_part_bytes(exchange, group.index);
    COH_TRY(begin_line(plan, exchange, out_line));
    for (int32_t step = 1; step < group.count; step++) {
        const int32_t from = from_in(group, step);
        COH_TRY(send_to(plan, exchange, to_in(group, step), window, part_at(exchange, group.index),
                        own_bytes));
        COH_TRY(receive_from(plan, exchange, from, window, part_at(exchange, from),
                             coh_exchange_part_bytes(exchange, from)));
    }
    return COH_OK;
}

coh_status coh_exchange_reduce(coh_link_plan *plan, const coh_exchange *exchange,
                               const void *contribution, void *received, uint32_t *out_line)
{
    const members group = members_of(exchange);
    const size_t own_bytes = coh_exchange_part_bytes(exchange, group.index);
    COH_TRY(begin_line(plan, exchange, out_line));
    for (int32_t step = 1; step < group.count; step++) {
        const int32_t to = to_in(group, step), from = from_in(group, step);
        COH_TRY(send_to(plan, exchange, to, contribution, part_at(exchange, to),
                        coh_exchange_part_bytes(exchange, to)));
        COH_TRY(receive_from(plan, exchange, from, received, room_at(exchange, group, from),
                             own_bytes));
    }
    return COH_OK;
}

/* ---- collectives ---- */

/* Names the group of an exchange, which has more than one member. */
static coh_status name_group(coh_link_plan *plan, const coh_exchange *exchange, members group,
                             uint32_t *out_group)
{
    int32_t *ranks;
    COH_TRY(COH_ALLOC(group.count, &ranks));
    for (int32_t i = 0; i < group.count; i++)
        ranks[i] = rank_of(exchange, i);
    const coh_status status = coh_link_plan_group(plan, ranks, group.count, group.index, out_group);
    coh_free(ranks);
    return status;
}

static coh_status add_collective(coh_link_plan *plan, const coh_exchange *exchange,
                                 coh_collective collective, uint32_t *out_line, int *out_is_added)
{
    const members group = members_of(exchange);
    uint64_t bytes;
    *out_is_added = 0;
    if (group.count == 1)
        return COH_OK;
    COH_TRY(name_group(plan, exchange, group, &collective.group));
    COH_TRY(coh_bytes_mul(exchange->part_bytes, (uint64_t)group.count, &bytes));
    if (bytes != exchange->window_bytes || bytes == 0)
        return COH_OK;
    collective.part_bytes = exchange->part_bytes;
    *out_is_added = 1;
    COH_TRY(coh_link_plan_begin(plan, out_line));
    return coh_link_plan_collective(plan, collective);
}

coh_status coh_exchange_gather_collective(coh_link_plan *plan, const coh_exchange *exchange,
                                          void *window, uint32_t *out_line, int *out_is_added)
{
    const size_t at = part_at(exchange, members_of(exchange).index);
    const coh_collective gather = { .kind = COH_COLLECTIVE_GATHER,
                                    .from = (unsigned char *)window + at,
                                    .to = window };
    return add_collective(plan, exchange, gather, out_line, out_is_added);
}

coh_status coh_exchange_reduce_collective(coh_link_plan *plan, const coh_exchange *exchange,
                                          const void *contribution, void *sum, uint32_t *out_line,
                                          int *out_is_added)
{
    const coh_collective reduce = { .kind = COH_COLLECTIVE_REDUCE,
                                    .from = contribution,
                                    .to = sum };
    return add_collective(plan, exchange, reduce, out_line, out_is_added);
}

/* ---- folding ---- */

void coh_exchange_slices(const coh_exchange *exchange, const void *contribution,
                         const void *received, const void **out_slices)
{
    const members group = members_of(exchange);
    for (int32_t i = 0; i < group.count; i++)
        out_slices[i] = i == group.index
                            ? (const unsigned char *)contribution + part_at(exchange, i)
                            : (const unsigned char *)received + room_at(exchange, group, i);
}
