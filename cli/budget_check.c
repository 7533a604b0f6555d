/* Checks a plan against the memory and the drive that there are now. The one idea: a budget is what
 * a user allows, and a plan within it may still be more than this machine has. Next: budget.c,
 * which sets the budgets. */
#include "cli/budget.h"

#include <stdio.h>

/* Bytes in f32. */
static uint64_t largest_chunk(const coh_plan_summary *summary)
{
    const uint64_t all = sizeof(float) * summary->parameter_count;
    return summary->chunk_bytes < all ? summary->chunk_bytes : all;
}

/* A plan that takes more than may be taken now. `other`: what of it lowering the budget of `tier`
 * leaves as it is. */
static coh_refusal too_much(coh_tier tier, int on_gpu, uint64_t most, uint64_t needed,
                            uint64_t other)
{
    return (coh_refusal){
        .struct_bytes = sizeof(coh_refusal),
        .status = COH_ERR_FULL,
        .reason = COH_REFUSAL_MACHINE,
        .tier = (int32_t)tier,
        .is_gpu = on_gpu,
        .given_bytes = most,
        .needed_bytes = needed,
        .short_bytes = needed - most,
        .is_proven = 1,
        .change_count = most > 0, /* no size of 0 B is a remedy */
        .changes = { { .kind = COH_CHANGE_LOWER,
                       .tier = most > other ? (int32_t)tier : -1,
                       .bytes = most > other ? most - other : most } },
    };
}

/* Next to a GPU no size of the host tier helps where its staging buffers alone are too large: none
 * does, since less is kept without it, or smaller buffers. */
static coh_refusal too_much_beside_gpu(uint64_t most, uint64_t host, uint64_t stages)
{
    coh_refusal refusal = too_much(COH_TIER_HOST, 1, most, host + stages, stages);
    if (most > stages)
        return refusal;
    refusal.change_count = 1;
    refusal.changes[0] = (coh_change){ .kind = host > 0 ? COH_CHANGE_LOWER : COH_CHANGE_LOWER_CHUNK,
                                       .tier = COH_TIER_HOST };
    return refusal;
}

coh_status cli_budget_check_memory(const cli_options *options, int on_gpu,
                                   const coh_plan_summary *summary)
{
    const uint64_t device = on_gpu ? 0 : summary->peak_bytes[COH_TIER_DEVICE];
    const uint64_t host = summary->peak_bytes[COH_TIER_HOST];
    const uint64_t most = cli_budget_most_bytes(options, on_gpu && host > 0);
    const uint64_t stages = on_gpu ? cli_budget_stage_bytes(largest_chunk(summary)) : 0;
    const char *remedy;
    if (device + stages <= most && host <= most - device - stages)
        return COH_OK;
    coh_refusal refusal = on_gpu ? too_much_beside_gpu(most, host, stages)
                                 : too_much(COH_TIER_DEVICE, 0, most, device + host, host);
    const char *limit = coh_machine_limit(&remedy);
    snprintf(refusal.items, sizeof(refusal.items), "%s: %s", limit, remedy);
    return coh_refuse(&refusal);
}

coh_status cli_budget_check_gpu(const cli_options *options, const coh_plan_summary *summary)
{
    const uint64_t needed = summary->peak_bytes[COH_TIER_DEVICE];
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    CLI_TRY(coh_device_summarize(options->device, &device));
    if (needed <= device.memory_bytes)
        return COH_OK;
    const coh_refusal refusal = too_much(COH_TIER_DEVICE, 1, device.memory_bytes, needed, 0);
    return coh_refuse(&refusal);
}

coh_status cli_budget_check_disk(const coh_profile *profile, const char *path,
                                 const coh_plan_summary *summary)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    const uint64_t need = summary->peak_bytes[COH_TIER_DISK];
    CLI_TRY(coh_profile_summarize(profile, &facts));
    if (need <= facts.disk_bytes || (!facts.is_gpu && facts.disk_bytes == 0))
        return COH_OK;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal),
                            .status = COH_ERR_FULL,
                            .reason = COH_REFUSAL_PLAN_FILE,
                            .tier = COH_TIER_DISK,
                            .is_gpu = facts.is_gpu,
                            .given_bytes = facts.disk_bytes,
                            .needed_bytes = need,
                            .short_bytes = need - facts.disk_bytes,
                            .is_proven = 1,
                            .change_count = 2,
                            .changes = {
                                { .kind = COH_CHANGE_RAISE, .tier = COH_TIER_DISK, .bytes = need },
                                { .kind = COH_CHANGE_PLAN_AGAIN } } };
    snprintf(refusal.path, sizeof(refusal.path), "%s", path);
    snprintf(refusal.profile, sizeof(refusal.profile), "%s", facts.name);
    return coh_refuse(&refusal);
}
