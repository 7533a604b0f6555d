/* The list of messages, grown line by line. Read link_plan.h first. */
#include "comm/link_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

void coh_link_plan_fini(coh_link_plan *plan)
{
    coh_free(plan->links);
    coh_free(plan->line_ends);
    coh_free(plan->line_lanes);
    coh_free(plan->collectives);
    coh_free(plan->groups);
    coh_free(plan->members);
    *plan = (coh_link_plan){ 0 };
}

coh_status coh_link_plan_begin(coh_link_plan *plan, uint32_t *out_line)
{
    COH_TRY(COH_GROW(&plan->line_ends, &plan->line_capacity, plan->line_count + 1));
    COH_TRY(COH_GROW(&plan->line_lanes, &plan->lane_capacity, plan->line_count + 1));
    *out_line = (uint32_t)plan->line_count;
    plan->line_lanes[plan->line_count] = plan->lane;
    plan->line_ends[plan->line_count++] = plan->link_count;
    return COH_OK;
}

static coh_status add(coh_link_plan *plan, coh_link link)
{
    assert(plan->line_count > 0);
    COH_TRY(COH_GROW(&plan->links, &plan->link_capacity, plan->link_count + 1));
    plan->links[plan->link_count++] = link;
    plan->line_ends[plan->line_count - 1] = plan->link_count;
    return COH_OK;
}

coh_status coh_link_plan_send(coh_link_plan *plan, int32_t peer, const void *from, size_t bytes)
{
    return add(plan, (coh_link){ .peer = peer, .bytes = bytes, .from = from });
}

coh_status coh_link_plan_receive(coh_link_plan *plan, int32_t peer, void *to, size_t bytes)
{
    return add(plan, (coh_link){ .peer = peer, .bytes = bytes, .to = to });
}

static int is_group(const coh_link_plan *plan, const coh_link_group *group, const int32_t *ranks,
                    int32_t count)
{
    return group->lane == plan->lane && group->count == count &&
           memcmp(&plan->members[group->first], ranks, (size_t)count * sizeof(*ranks)) == 0;
}

coh_status coh_link_plan_group(coh_link_plan *plan, const int32_t *ranks, int32_t count,
                               int32_t index, uint32_t *out_group)
{
    const size_t first = plan->member_count, end = first + (size_t)count;
    uint32_t at = 0;
    while (at < plan->group_count && !is_group(plan, &plan->groups[at], ranks, count))
        at++;
    *out_group = at;
    if (at < plan->group_count)
        return COH_OK;
    COH_TRY(COH_GROW(&plan->members, &plan->member_capacity, end));
    COH_TRY(COH_GROW(&plan->groups, &plan->group_capacity, plan->group_count + 1));
    memcpy(&plan->members[first], ranks, (size_t)count * sizeof(*ranks));
    plan->member_count = end;
    plan->groups[plan->group_count++] =
        (coh_link_group){ .first = first, .count = count, .index = index, .lane = plan->lane };
    return COH_OK;
}

coh_status coh_link_plan_collective(coh_link_plan *plan, coh_collective collective)
{
    assert(plan->line_count > 0 && collective.group < plan->group_count);
    COH_TRY(COH_GROW(&plan->collectives, &plan->collective_capacity, plan->collective_count + 1));
    collective.line = (uint32_t)(plan->line_count - 1);
    plan->collectives[plan->collective_count++] = collective;
    return COH_OK;
}

static coh_status check_link(const coh_link *link, size_t number, int32_t rank, int32_t rank_count)
{
    const int is_one_side = (link->from == NULL) != (link->to == NULL);
    if (link->peer >= 0 && link->peer < rank_count && link->peer != rank && link->bytes > 0 &&
        is_one_side)
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "link %zu has peer %" PRId32 ", %zu bytes and %s: name another rank below %" PRId32
        ", at least 1 byte, and an address to send from or to receive to",
        number, link->peer, link->bytes, is_one_side ? "one address" : "no or two", rank_count);
}

coh_status coh_link_plan_check(const coh_link_plan *plan, int32_t rank, int32_t rank_count)
{
    for (size_t i = 0; i < plan->link_count; i++)
        COH_TRY(check_link(&plan->links[i], i, rank, rank_count));
    return COH_OK;
}

coh_status coh_link_match(int32_t peer, const coh_link_side *send, const coh_link_side *receive)
{
    if (receive == NULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "line %zu sends %zu bytes to rank %" PRId32
                        ", which receives fewer messages from here",
                        send->line, send->bytes, peer);
    if (receive->bytes != send->bytes)
        return coh_fail(COH_ERR_ARGUMENT,
                        "line %zu sends %zu bytes to rank %" PRId32 ", whose line %zu receives %zu",
                        send->line, send->bytes, peer, receive->line, receive->bytes);
    return COH_OK;
}

coh_status coh_link_refuse_receive(int32_t peer, const coh_link_side *receive)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "line %zu receives %zu bytes from rank %" PRId32
                    ", which sends fewer messages here",
                    receive->line, receive->bytes, peer);
}
