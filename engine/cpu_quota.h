/* cpu_quota.h - how much processor time the control groups above this process leave it.
 *
 * A container may see 64 cores and be stopped after 2 cores' worth of each 100 ms. The quota of our
 * group and of each group above it counts; the smallest is the wall. v2 writes "quota period" into
 * cpu.max, v1 two files; a group's folder that is not visible from inside a container is the mount
 * itself. */
#ifndef COH_ENGINE_CPU_QUOTA_H
#define COH_ENGINE_CPU_QUOTA_H

/* Cores' worth of time, 0 where nothing limits it. `root` is "" for the machine itself; tests make
 * a tree of their own. Any thread. */
double coh_cpu_quota_cores(const char *root);

#endif
