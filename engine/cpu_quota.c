/* Reads the CPU quota of every control group above this process and keeps the smallest. The walk
 * over the groups is memory/cgroup.h. Next: cpu_quota.h. */
#include "engine/cpu_quota.h"

#include <stdlib.h>

#include "base/small_file.h"
#include "memory/cgroup.h"

/* Takes one group's quota into *context, the least so far; 0: none. */
static void take_quota(const char *root, const char *folder, int version, void *context)
{
    char text[128], *end = text;
    double quota = 0, period = 0, *least = context;
    if (version == 2 && coh_small_file_read(root, folder, "/cpu.max", text, sizeof(text))) {
        quota = strtod(text, &end); /* "max" is not a number: `end` stays */
        period = end == text ? 0 : strtod(end, NULL);
    } else if (version == 1) {
        if (coh_small_file_read(root, folder, "/cpu.cfs_quota_us", text, sizeof(text)))
            quota = strtod(text, NULL); /* -1: none */
        if (coh_small_file_read(root, folder, "/cpu.cfs_period_us", text, sizeof(text)))
            period = strtod(text, NULL);
    }
    if (quota > 0 && period > 0 && (*least == 0 || quota / period < *least))
        *least = quota / period;
}

double coh_cpu_quota_cores(const char *root)
{
    double least = 0;
    coh_cgroup_walk(root, "cpu", take_quota, &least);
    return least;
}
