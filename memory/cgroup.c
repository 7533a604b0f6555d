/* Walks the control groups of this process. /proc/self/cgroup lists its groups; each is visited,
 * then its parents up to the mount point, in version 1 and 2 alike. Read cgroup.h first. */
#include "memory/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/small_file.h"

/* Visits the group and its parents up to the mount point. */
static void walk_up(const char *root, const char *mount, const char *group, int version,
                    coh_cgroup_visit visit, void *context)
{
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof(folder), "%s%s", mount, strcmp(group, "/") ? group : "");
    if (length < 0 || (size_t)length >= sizeof(folder))
        return;
    for (size_t mount_length = strlen(mount);;) {
        visit(root, folder, version, context);
        char *slash = strrchr(folder + mount_length, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* v1 mounts a set of controllers under the list of their names; each name is a link to it. */
static void walk_version_1(const char *root, const char *controller, const char *group,
                           coh_cgroup_visit visit, void *context)
{
    char mount[64];
    int length = snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
    if (length > 0 && (size_t)length < sizeof(mount))
        walk_up(root, mount, group, 1, visit, context);
}

void coh_cgroup_walk(const char *root, const char *controller, coh_cgroup_visit visit,
                     void *context)
{
    char text[8192];
    if (!coh_small_file_read(root, "/proc/self/cgroup", "", text, sizeof(text)))
        return;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        /* "4:cpu,cpuacct:/a/b" (v1) and "0::/a/b" (v2) */
        (void)strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (controllers == NULL || line == NULL)
            continue;
        if (controllers[0] == '\0') {
            walk_up(root, "/sys/fs/cgroup", line, 2, visit, context);
            walk_up(root, "/sys/fs/cgroup/unified", line, 2, visit, context);
        }
        for (char *name; (name = strsep(&controllers, ",")) != NULL;)
            if (strcmp(name, controller) == 0)
                walk_version_1(root, controller, line, visit, context);
    }
}
