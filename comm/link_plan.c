/* The list of messages, grown line by line. Read link_plan.h first. */
#include "comm/link_plan.h"

#include <assert.h>

#include "base/alloc.h"

void coh_link_plan_fini(coh_link_plan *plan)
{
    coh_free(plan->links);
    coh_free(plan->line_ends);
    *plan = (coh_link_plan){ 0 };
}

coh_status coh_link_plan_begin(coh_link_plan *plan, uint32_t *out_line)
{
    COH_TRY(COH_GROW(&plan->line_ends, &plan->line_capacity, plan->line_count + 1));
    *out_line = (uint32_t)plan->line_count;
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
