/* Compares budgets and arenas with the cgroup and memlock limits of a profile. The idea: a plan the
 * system would refuse is rejected before it is built, with the bytes short and the flag to change.
 * Interface: limits.h. */
#include "planner/limits.h"

#include <inttypes.h>

#include "base/check.h"
#include "planner/profile.h"

static int is_gpu(const coh_profile *profile)
{
    return profile->device_kind != COH_DEVICE_HOST;
}

const char *coh_tier_flag(coh_tier tier, int is_gpu)
{
    const char *const flags[COH_TIER_COUNT] = { "--device-memory",
                                                is_gpu ? "--host-memory" : "--emulate-host",
                                                "--disk" };
    return flags[tier];
}

static uint64_t in_main_memory(const coh_profile *profile, uint64_t device, uint64_t host)
{
    uint64_t both;
    if (is_gpu(profile))
        return host;
    return __builtin_add_overflow(device, host, &both) ? UINT64_MAX : both;
}

/* `what`: subject and verb of the message. */
static coh_status check_cgroup(const coh_profile *profile, const char *what, uint64_t device,
                               uint64_t host)
{
    const uint64_t bytes = in_main_memory(profile, device, host), limit = profile->cgroup_bytes;
    const char *flags = is_gpu(profile) ? "--host-memory"
                        : host > 0      ? "--device-memory and --emulate-host together"
                                        : "--device-memory";
    if (bytes <= limit)
        return COH_OK;
    return coh_fail(COH_ERR_FULL,
                    "%s memory: %s %" PRIu64 " bytes of main memory, and the cgroup of profile %s"
                    " has a limit of %" PRIu64 ": %" PRIu64
                    " bytes short; raise its memory.max and measure again, or lower %s to %" PRIu64
                    "B",
                    is_gpu(profile) ? "host" : "device", what, bytes, profile->name, limit,
                    bytes - limit, flags, limit);
}

coh_status coh_limits_check_budgets(const coh_profile *profile, const coh_plan_options *options)
{
    const uint64_t device = options->device_memory_bytes, host = options->host_memory_bytes;
    return check_cgroup(profile, "the budget is", device == UINT64_MAX ? 0 : device,
                        host == UINT64_MAX ? 0 : host);
}

coh_status coh_limits_check_arenas(const coh_profile *profile,
                                   const uint64_t arena_bytes[COH_TIER_COUNT])
{
    const uint64_t host = arena_bytes[COH_TIER_HOST], limit = profile->memlock_bytes;
    if (is_gpu(profile) && host > limit)
        return coh_fail(COH_ERR_FULL,
                        "host memory: the plan pins %" PRIu64
                        " bytes of it, and profile %s allows %" PRIu64
                        " locked bytes (memlock): %" PRIu64
                        " bytes short; ulimit -l unlimited (LimitMEMLOCK=infinity in a service's"
                        " unit) and measure again, or lower --host-memory to %" PRIu64 "B",
                        host, profile->name, limit, host - limit, limit);
    return check_cgroup(profile, "the plan takes", arena_bytes[COH_TIER_DEVICE], host);
}
