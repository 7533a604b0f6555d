/* cpu_quota.h - how much processor time the control groups (cgroups) of this process allow it.
 *
 * A container may see 64 cores and be throttled after 2 cores' worth of each 100 ms. The quota of
 * our group and of each group above it counts; the smallest one is the limit. cgroup v2 writes
 * "quota period" into cpu.max, v1 uses two files. If a group's folder is not visible from inside a
 * container, the mount point itself is its folder. */
#ifndef COH_ENGINE_CPU_QUOTA_H
#define COH_ENGINE_CPU_QUOTA_H

/* Returns the quota in cores, or 0 if there is no limit. `root` is "" for the machine itself; tests
 * pass a tree of their making. Any thread. */
double coh_cpu_quota_cores(const char *root);

#endif
