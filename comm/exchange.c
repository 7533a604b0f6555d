/* Lines in which each member of a group sends a part to each other one. Read exchange.h first. */
#include "comm/exchange.h"

#include "base/bytes.h"

typedef struct members {
    int32_t count, index; /* of the group, of this rank in it */
} members;

static coh_status begin(coh_link_plan *plan, const coh_exchange *exchange, members *out_members,
                        uint32_t *out_line)
{
    uint64_t window_bytes;
    *out_members = (members){
        .count = coh_mesh_group_size(exchange->mesh, exchange->axes),
        .index = coh_mesh_group_index(exchange->mesh, exchange->axes, exchange->rank),
    };
    COH_TRY(coh_bytes_mul(exchange->part_bytes, (uint64_t)out_members->count, &window_bytes));
    return coh_link_plan_begin(plan, out_line);
}

static int32_t rank_of(const coh_exchange *exchange, int32_t index)
{
    return coh_mesh_group_member(exchange->mesh, exchange->axes, exchange->rank, index);
}

/* Returns the place of another member's slice among those received, or of a part in a window. */
static size_t received_at(const coh_exchange *exchange, members group, int32_t index)
{
    return (size_t)(index - (index > group.index)) * exchange->part_bytes;
}

static size_t part_at(const coh_exchange *exchange, int32_t index)
{
    return (size_t)index * exchange->part_bytes;
}

coh_status coh_exchange_gather(coh_link_plan *plan, const coh_exchange *exchange, void *window,
                               uint32_t *out_line)
{
    unsigned char *parts = window;
    members group;
    COH_TRY(begin(plan, exchange, &group, out_line));
    for (int32_t step = 1; step < group.count; step++) {
        const int32_t to = (group.index + step) % group.count;
        const int32_t from = (group.index + group.count - step) % group.count;
        COH_TRY(coh_link_plan_send(plan, rank_of(exchange, to),
                                   parts + part_at(exchange, group.index), exchange->part_bytes));
        COH_TRY(coh_link_plan_receive(plan, rank_of(exchange, from),
                                      parts + part_at(exchange, from), exchange->part_bytes));
    }
    return COH_OK;
}

coh_status coh_exchange_reduce(coh_link_plan *plan, const coh_exchange *exchange,
                               const void *contribution, void *received, uint32_t *out_line)
{
    const unsigned char *slices = contribution;
    unsigned char *others = received;
    members group;
    COH_TRY(begin(plan, exchange, &group, out_line));
    for (int32_t step = 1; step < group.count; step++) {
        const int32_t to = (group.index + step) % group.count;
        const int32_t from = (group.index + group.count - step) % group.count;
        COH_TRY(coh_link_plan_send(plan, rank_of(exchange, to), slices + part_at(exchange, to),
                                   exchange->part_bytes));
        COH_TRY(coh_link_plan_receive(plan, rank_of(exchange, from),
                                      others + received_at(exchange, group, from),
                                      exchange->part_bytes));
    }
    return COH_OK;
}

void coh_exchange_slices(const coh_exchange *exchange, const void *contribution,
                         const void *received, const void **out_slices)
{
    const members group = {
        .count = coh_mesh_group_size(exchange->mesh, exchange->axes),
        .index = coh_mesh_group_index(exchange->mesh, exchange->axes, exchange->rank),
    };
    for (int32_t i = 0; i < group.count; i++)
        out_slices[i] = i == group.index
                            ? (const unsigned char *)contribution + part_at(exchange, i)
                            : (const unsigned char *)received + received_at(exchange, group, i);
}
