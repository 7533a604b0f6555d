/* cgroup.h - visits the control groups of this process, from its own up to the root.
 *
 * A limit binds everything below it, so a reader of limits must look at every group on the way up.
 * Both versions are visited: v2 has one tree, v1 one per controller. Inside a container, the path
 * in /proc/self/cgroup may not exist; the walk then visits the part of it that is visible.
 *
 * Allocates nothing, uses no stdio; any thread. */
#ifndef COH_MEMORY_CGROUP_H
#define COH_MEMORY_CGROUP_H

/* `folder` is a group's path relative to `root`; version is 1 or 2. */
typedef void (*coh_cgroup_visit)(const char *root, const char *folder, int version, void *context);

/* Visits every group that may limit `controller` ("memory", "cpu"). `root` is "" for the machine
 * itself; tests make their own tree. */
void coh_cgroup_walk(const char *root, const char *controller, coh_cgroup_visit visit,
                     void *context);

#endif
