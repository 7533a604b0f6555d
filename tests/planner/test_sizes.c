/* The search with other sizes of chunks: a step that takes long, far above its bound, is no slower
 * than with chunks of half or of twice the chosen size. The machine is so slow that the step of a
 * small model takes as long as that of a large one on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cohobate/models.h"
#include "planner/plan_make.h"
#include "planner/search.h"
#include "tests/length.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* Returns the time of the step as searched, without random changes, which follow; chunk_bytes 0:
 * the search chooses. */
static uint64_t step_ns(const coh_graph *graph, const coh_profile *profile, uint64_t chunk_bytes,
                        uint64_t *out_chunk_bytes)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    coh_plan_options_init(&options);
    options.profile = profile;
    options.device_memory_bytes = 56 * MIB;
    options.host_memory_bytes = 64 * MIB;
    options.disk_bytes = 1024 * MIB;
    options.deferred_update = 0;
    options.chunk_bytes = chunk_bytes;
    strcpy(options.optimizer, "adamw8");
    must(coh_plan_open(graph, &options, &plan));
    must(coh_plan_search(plan));
    const uint64_t ns = plan->step_ns;
    *out_chunk_bytes = plan->decisions.chunk_bytes;
    coh_plan_destroy(plan);
    return ns;
}

static void a_long_step_is_searched_with_other_chunks(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    uint64_t chosen = 0, given = 0;
    must(coh_model_preset("gpt2-nano", 257, &model));
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    must(coh_model_train_graph(&model, 4, 256, &graph));
    must(coh_profile_read("rtx-3090,flops=0.0005x,memory-rate=0.0005x,pcie=8MB/s,disk-read=3MB/s,"
                          "disk-write=2MB/s,update-rate=10MB/s,host-memory-rate=15MB/s",
                          &profile));
    const uint64_t ns = step_ns(graph, profile, 0, &chosen);
    print_message("%.3f s a step with chunks of %llu KiB\n", (double)ns * 1e-9,
                  (unsigned long long)(chosen / KIB));
    for (uint64_t chunk = test_is_short() ? 2 * chosen : chosen / 2; chunk <= 2 * chosen;
         chunk *= 4) {
        const uint64_t other_ns = step_ns(graph, profile, chunk, &given);
        print_message("%.3f s with %llu KiB\n", (double)other_ns * 1e-9,
                      (unsigned long long)(given / KIB));
        assert_true(given == chunk && ns <= other_ns);
    }
    coh_graph_destroy(graph);
    coh_profile_destroy(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        a_long_step_is_searched_with_other_chunks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
