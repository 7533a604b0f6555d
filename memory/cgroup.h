/* cgroup.h - the control groups this process stands in, from its own up to the machine's.
 *
 * A limit binds everything below it, so who asks for one must look at every group on the way up.
 * Both versions are walked: v2 has one tree, v1 one per controller. Inside a container the path
 * that /proc/self/cgroup names may not be there; the walk then meets what is visible of it.
 *
 * Allocates nothing, uses no stdio; any thread. */
#ifndef COH_MEMORY_CGROUP_H
#define COH_MEMORY_CGROUP_H

/* `folder` is a group's, to be put behind `root`; version is 1 or 2. */
typedef void (*coh_cgroup_visit)(const char *root, const char *folder, int version, void *context);

/* Visits every group that may limit `controller` ("memory", "cpu"). `root` is "" for the machine
 * itself; tests make a tree of their own. */
void coh_cgroup_walk(const char *root, const char *controller, coh_cgroup_visit visit,
                     void *context);

#endif
