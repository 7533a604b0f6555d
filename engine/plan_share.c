/* Gives rank 0's plan to all ranks, as the text of its file. Next: planner/plan_file.c. */
#include "base/check.h"
#include "base/file_text.h"
#include "cohobate/engine.h"
#include "comm/world.h"
#include "planner/plan_file.h"

coh_status coh_world_share_plan(coh_world *world, const coh_plan *plan, const char *note,
                                const char **out_text)
{
    COH_NEED(world);
    COH_NEED(out_text);
    coh_text text = { 0 };
    if (coh_world_rank(world) > 0)
        return coh_world_share_text(world, "", out_text);
    COH_NEED(plan);
    COH_NEED(note);
    coh_status status = coh_transport_end(world->transport, coh_plan_to_text(plan, note, &text));
    if (status == COH_OK)
        status = coh_world_share_text(world, text.data, out_text);
    coh_text_fini(&text);
    return status;
}
