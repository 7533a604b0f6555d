/* Measures the verifier over all programs of a published model's plan: bench_verify MODEL PROFILE.
 * Prints one instruction of JSON: seconds of planning without the verifier, seconds of verifying,
 * instructions. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cohobate/models.h"
#include "planner/plan.h"
#include "planner/verify.h"

enum { SEQUENCES = 8, TOKENS = 256, TIMES = 3 };

static void must(coh_status status)
{
    if (status == COH_OK)
        return;
    fprintf(stderr, "%s\n", coh_last_error());
    exit(1);
}

/* Sets all resources of a profile's machine. */
static void set_options(const coh_profile *profile, coh_plan_options *out)
{
    coh_plan_options_init(out);
    out->profile = profile;
    out->thread_count = 2;
    out->device_memory_bytes = profile->memory_bytes[COH_TIER_DEVICE];
    out->emulate_host = 1;
    out->host_memory_bytes = profile->memory_bytes[COH_TIER_HOST];
}

/* Verifies all programs; returns the least time of several runs. */
static double verify_seconds(const coh_plan *plan, uint32_t *out_instructions)
{
    const coh_verify_options limits = { .budget_bytes = { UINT64_MAX, UINT64_MAX, UINT64_MAX } };
    double least = 1e30;
    for (int i = 0; i < TIMES; i++) {
        uint64_t begin = coh_clock_ns();
        *out_instructions = 0;
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
            if (plan->programs[kind].instruction_count == 0)
                continue;
            must(coh_verify(&plan->layout, &plan->programs[kind], &limits, NULL));
            *out_instructions += plan->programs[kind].instruction_count;
        }
        double seconds = (double)(coh_clock_ns() - begin) * 1e-9;
        least = seconds < least ? seconds : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    coh_model model;
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    uint32_t instructions = 0;
    if (argc != 3) {
        fprintf(stderr, "bench_verify MODEL PROFILE\n");
        return 2;
    }
    must(coh_model_preset(argv[1], 0, &model));
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    must(coh_model_train_graph(&model, SEQUENCES, TOKENS, &graph));
    must(coh_profile_read(argv[2], &profile));
    set_options(profile, &options);
    uint64_t begin = coh_clock_ns();
    must(coh_plan_create(graph, &options, &plan));
    double planned = (double)(coh_clock_ns() - begin) * 1e-9;
    double verified = verify_seconds(plan, &instructions);
    printf("{\"model\": \"%s\", \"plan_seconds\": %.3f, \"verify_seconds\": %.3f, \"lines\": %u}\n",
           argv[1], planned, verified, instructions);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    coh_profile_destroy(profile);
    return 0;
}
