/* libFuzzer target: plan.json, and through it the planner: a file that parses is rebuilt for a
 * small graph. A refused file is bad data with a message. */
#include "planner/plan_file.h"
#include "tests/fuzz/fuzz_sealed.h"
#include "tests/planner/toy_graph.h"

static coh_graph *small_graph(void)
{
    static coh_graph *graph; /* one for all inputs */
    const toy_options toy = {
        .layers = 2, .width = 32, .vocabulary = 200, .rows = 40, .is_tied = 1, .caches = 1
    };
    if (graph == NULL)
        check(toy_graph_make(&toy, &graph) == COH_OK);
    return graph;
}

/* Rebuilds a run with the file's options and the present builder's version, so that only the
 * decisions can be refused. Skips files of many micro-batches, whose programs are long. */
static void rebuild(coh_plan_text *file)
{
    coh_plan *plan = NULL;
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .mode = file->options.mode,
                                 .device_memory_bytes = (uint64_t)1 << 40,
                                 .thread_count = 2,
                                 .microbatch_count = file->options.microbatch_count,
                                 .sweep_order = file->options.sweep_order,
                                 .deferred_update = file->options.deferred_update };
    if (options.microbatch_count > 4)
        return;
    file->builder = COH_PLAN_BUILDER_VERSION;
    file->device_kind = COH_DEVICE_HOST;
    const coh_status status = coh_plan_rebuild(small_graph(), &options, "plan", file, &plan);
    check(status == COH_OK || ((status == COH_ERR_CORRUPT || status == COH_ERR_FULL ||
                                status == COH_ERR_ARGUMENT || status == COH_ERR_MEMORY) &&
                               coh_last_error()[0]));
    coh_plan_destroy(plan);
}

static void read_plan(const char *text, size_t bytes)
{
    coh_plan_text file;
    const coh_status status = coh_plan_text_parse(text, bytes, &file);
    check(status == COH_OK || (status == COH_ERR_CORRUPT && coh_last_error()[0]));
    if (status != COH_OK)
        return;
    rebuild(&file);
    coh_plan_text_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_both(data, size, read_plan);
    return 0;
}
