/* The short way to an engine: a plan and an engine with the defaults, within a memory limit, and a
 * thread for each core, which the long way leaves to its caller. Next:
 * cohobate/engine.h; engine.c for the long way. */
#include "base/check.h"
#include "base/pool.h"
#include "cohobate/engine.h"
#include "cohobate/machine.h"

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
    COH_TRY(coh_check_path(__func__, "disk_folder", disk_folder));
    coh_plan_options_init(&plan_options);
    coh_engine_options_init(&options);
    const int cores = coh_machine_core_count();
    plan_options.thread_count = options.thread_count =
        cores < COH_THREADS_MOST ? cores : COH_THREADS_MOST;
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
