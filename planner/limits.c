/* Compares budgets and arenas with the cgroup and memlock limits of a profile. The idea: a plan the
 * system would refuse is rejected before it is built, with the bytes short and what to change.
 * Interface: limits.h. */
#include "planner/limits.h"

#include <stdio.h>

#include "base/refusal.h"
#include "planner/profile.h"

static int is_gpu(const coh_profile *profile)
{
    return profile->device_kind != COH_DEVICE_HOST;
}

static uint64_t in_main_memory(const coh_profile *profile, uint64_t device, uint64_t host)
{
    uint64_t both;
    if (is_gpu(profile))
        return host;
    return __builtin_add_overflow(device, host, &both) ? UINT64_MAX : both;
}

static coh_status check_cgroup(const coh_profile *profile, uint64_t device, uint64_t host)
{
    const uint64_t bytes = in_main_memory(profile, device, host), limit = profile->cgroup_bytes;
    const coh_tier tier = is_gpu(profile) ? COH_TIER_HOST : COH_TIER_DEVICE;
    if (bytes <= limit)
        return COH_OK;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_CGROUP, tier, limit, bytes);
    refusal.is_gpu = is_gpu(profile);
    refusal.is_proven = 1;
    snprintf(refusal.profile, sizeof(refusal.profile), "%s", profile->name);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_CGROUP, bytes);
    coh_refusal_lower(&refusal, !is_gpu(profile) && host > 0 ? -1 : (int)tier, limit);
    return coh_refuse(&refusal);
}

coh_status coh_limits_check_budgets(const coh_profile *profile, const coh_plan_options *options)
{
    const uint64_t device = options->device_memory_bytes, host = options->host_memory_bytes;
    return check_cgroup(profile, device == UINT64_MAX ? 0 : device, host == UINT64_MAX ? 0 : host);
}

static coh_status refuse_locked(const coh_profile *profile, uint64_t limit, uint64_t bytes)
{
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_MEMLOCK, COH_TIER_HOST, limit, bytes);
    refusal.is_gpu = refusal.is_proven = 1;
    snprintf(refusal.profile, sizeof(refusal.profile), "%s", profile->name);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_MEMLOCK, bytes);
    coh_refusal_lower(&refusal, COH_TIER_HOST, limit);
    return coh_refuse(&refusal);
}

coh_status coh_limits_check_arenas(const coh_profile *profile,
                                   const uint64_t arena_bytes[COH_TIER_COUNT])
{
    const uint64_t host = arena_bytes[COH_TIER_HOST], limit = profile->memlock_bytes;
    if (is_gpu(profile) && host > limit)
        return refuse_locked(profile, limit, host);
    return check_cgroup(profile, arena_bytes[COH_TIER_DEVICE], host);
}
