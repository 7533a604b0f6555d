/* Lines in which each member of a group sends a part to each other one. Read exchange.h first. */
#include "comm/exchange.h"

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

/* ---- where the part for or of a member lies ---- */

typedef size_t (*place)(const coh_exchange *exchange, members group, int32_t index);

static size_t part_at(const coh_exchange *exchange, members group, int32_t index)
{
    (void)group;
    return (size_t)index * exchange->part_bytes;
}

static size_t own_part_at(const coh_exchange *exchange, members group, int32_t index)
{
    (void)index;
    return part_at(exchange, group, group.index);
}

/* Among the parts of the other members only. */
static size_t other_part_at(const coh_exchange *exchange, members group, int32_t index)
{
    return part_at(exchange, group, index - (index > group.index));
}

/* ---- the lines ---- */

static coh_status add_line(coh_link_plan *plan, const coh_exchange *exchange, const void *sent,
                           place sent_at, void *received, place received_at, uint32_t *out_line)
{
    const members group = members_of(exchange);
    uint64_t window_bytes;
    COH_TRY(coh_bytes_mul(exchange->part_bytes, (uint64_t)group.count, &window_bytes));
    COH_TRY(coh_link_plan_begin(plan, out_line));
    for (int32_t step = 1; step < group.count; step++) {
        const int32_t to = (group.index + step) % group.count;
        const int32_t from = (group.index + group.count - step) % group.count;
        COH_TRY(coh_link_plan_send(plan, rank_of(exchange, to),
                                   (const unsigned char *)sent + sent_at(exchange, group, to),
                                   exchange->part_bytes));
        COH_TRY(coh_link_plan_receive(
            plan, rank_of(exchange, from),
            (unsigned char *)received + received_at(exchange, group, from), exchange->part_bytes));
    }
    return COH_OK;
}

coh_status coh_exchange_gather(coh_link_plan *plan, const coh_exchange *exchange, void *window,
                               uint32_t *out_line)
{
    return add_line(plan, exchange, window, own_part_at, window, part_at, out_line);
}

coh_status coh_exchange_reduce(coh_link_plan *plan, const coh_exchange *exchange,
                               const void *contribution, void *received, uint32_t *out_line)
{
    return add_line(plan, exchange, contribution, part_at, received, other_part_at, out_line);
}

void coh_exchange_slices(const coh_exchange *exchange, const void *contribution,
                         const void *received, const void **out_slices)
{
    const members group = members_of(exchange);
    for (int32_t i = 0; i < group.count; i++)
        out_slices[i] = i == group.index
                            ? (const unsigned char *)contribution + part_at(exchange, group, i)
                            : (const unsigned char *)received + other_part_at(exchange, group, i);
}
