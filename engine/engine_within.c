/* The short way to an engine: a plan and an engine with the defaults, within a memory limit. Next:
 * cohobate/engine.h; engine.c for the long way. */
#include "base/check.h"
#include "cohobate/engine.h"

coh_status coh_engine_create_within(const coh_graph *graph, uint64_t memory_bytes,
                                    const char *disk_folder, coh_plan **out_plan,
                                    coh_engine **out_engine)
{
    coh_plan_options plan_options;
    coh_engine_options options;
    COH_NEED(graph);
    COH_NEED(out_plan);
    COH_NEED(out_engine);
    *out_plan = NULL;
    *out_engine = NULL;
    coh_plan_options_init(&plan_options);
    coh_engine_options_init(&options);
    plan_options.device_memory_bytes = memory_bytes;
    plan_options.disk_bytes = disk_folder != NULL ? UINT64_MAX : 0;
    options.disk_folder = disk_folder;
    options.disk_bytes = UINT64_MAX;
    COH_TRY(coh_plan_create(graph, &plan_options, out_plan));
    const coh_status status = coh_engine_create(*out_plan, &options, out_engine);
    if (status != COH_OK) {
        coh_plan_destroy(*out_plan);
        *out_plan = NULL;
    }
    return status;
}
