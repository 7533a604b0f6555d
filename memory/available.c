/* Three limits of memory, read from /proc and from cgroup files: the machine's, the groups' and the
 * process's; and the groups' limit of processor time. The lowest one counts. A group's limit binds
 * everything below it, so every group above this process is visited, in cgroup version 1 and 2
 * alike. Read available.h first. */
#include "memory/available.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "base/small_file.h"

/* A cgroup limit this high means no limit (v1 writes INT64_MAX rounded down to a page). */
#define NO_LIMIT_BYTES (UINT64_C(1) << 60)

/* ---- control groups ---- */

/* `folder` is a group's path relative to `root`; version is 1 or 2. */
typedef void (*group_visit)(const char *root, const char *folder, int version, void *context);

/* Visits the group and its parents up to the mount point. */
static void walk_up(const char *root, const char *mount, const char *group, int version,
                    group_visit visit, void *context)
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
                           group_visit visit, void *context)
{
    char mount[64];
    int length = snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
    if (length > 0 && (size_t)length < sizeof(mount))
        walk_up(root, mount, group, 1, visit, context);
}

/* Visits every group that may limit `controller` ("memory", "cpu"), from this process's own up
 * to the root. v2 has one tree of groups, v1 one per controller. Inside a container the path in
 * /proc/self/cgroup may not exist; the part of it that is visible is walked. */
static void walk_groups(const char *root, const char *controller, group_visit visit, void *context)
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

/* ---- memory ---- */

static uint64_t machine_available(const char *root)
{
    char text[4096];
    uint64_t kib;
    if (!coh_small_file_read(root, "/proc/meminfo", "", text, sizeof(text)) ||
        !coh_small_file_number(text, "MemAvailable:", &kib))
        return UINT64_MAX;
    return kib * 1024;
}

typedef struct group_files {
    const char *limit, *usage, *reclaimable_key;
} group_files;

static const group_files version_1 = { "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                       "total_inactive_file " };
static const group_files version_2 = { "/memory.max", "/memory.current", "inactive_file " };

typedef struct group_walls {
    uint64_t available, limit;
} group_walls;

/* Takes one group's limit and what is left of it; limits of all groups above apply, too. */
static void take_limit(const char *root, const char *folder, int version, void *context)
{
    const group_files *files = version == 2 ? &version_2 : &version_1;
    group_walls *walls = context;
    char text[8192];
    uint64_t limit_bytes, usage_bytes, reclaimable_bytes = 0;
    if (!coh_small_file_read(root, folder, files->limit, text, sizeof(text)) ||
        !coh_small_file_number(text, "", &limit_bytes) || limit_bytes >= NO_LIMIT_BYTES ||
        !coh_small_file_read(root, folder, files->usage, text, sizeof(text)) ||
        !coh_small_file_number(text, "", &usage_bytes))
        return;
    if (coh_small_file_read(root, folder, "/memory.stat", text, sizeof(text)))
        (void)coh_small_file_number(text, files->reclaimable_key, &reclaimable_bytes);
    if (reclaimable_bytes > usage_bytes)
        reclaimable_bytes = usage_bytes;
    uint64_t held = usage_bytes - reclaimable_bytes;
    uint64_t left = limit_bytes > held ? limit_bytes - held : 0;
    walls->available = left < walls->available ? left : walls->available;
    walls->limit = limit_bytes < walls->limit ? limit_bytes : walls->limit;
}

static uint64_t group_available(const char *root, uint64_t *out_limit)
{
    group_walls walls = { UINT64_MAX, UINT64_MAX };
    walk_groups(root, "memory", take_limit, &walls);
    *out_limit = walls.limit;
    return walls.available;
}

static uint64_t process_available(void)
{
    struct rlimit limit;
    char text[256];
    uint64_t pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !coh_small_file_read("", "/proc/self/statm", "", text, sizeof(text)) ||
        !coh_small_file_number(text, "", &pages))
        return UINT64_MAX;
    uint64_t mapped = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
}

uint64_t coh_memory_available_under(const char *root, const char **out_source)
{
    uint64_t limit;
    uint64_t least = machine_available(root);
    const char *source = "MemAvailable";
    uint64_t group = group_available(root, &limit);
    if (group < least) {
        least = group;
        source = "the memory cgroup";
    }
    uint64_t process = process_available();
    if (process < least) {
        least = process;
        source = "RLIMIT_AS";
    }
    if (out_source != NULL)
        *out_source = source;
    return least;
}

uint64_t coh_memory_available_bytes(const char **out_source)
{
    return coh_memory_available_under("", out_source);
}

uint64_t coh_memory_limit_bytes(void)
{
    uint64_t limit;
    (void)group_available("", &limit);
    return limit;
}

/* ---- processor time ---- */

/* Takes one group's quota into *context, the least so far; 0: none. */
static void take_quota(const char *root, const char *folder, int version, void *context)
{
    char text[128], *end = text;
    double quota = 0, period = 0, *least = context;
    if (version == 2 && coh_small_file_read(root, folder, "/cpu.max", text, sizeof(text))) {
        quota = coh_number_read(text, &end); /* "max" is not a number: `end` stays */
        period = end == text ? 0 : coh_number_read(end, NULL);
    } else if (version == 1) {
        if (coh_small_file_read(root, folder, "/cpu.cfs_quota_us", text, sizeof(text)))
            quota = coh_number_read(text, NULL); /* -1: none */
        if (coh_small_file_read(root, folder, "/cpu.cfs_period_us", text, sizeof(text)))
            period = coh_number_read(text, NULL);
    }
    if (quota > 0 && period > 0 && (*least == 0 || quota / period < *least))
        *least = quota / period;
}

double coh_cpu_quota_cores(const char *root)
{
    double least = 0;
    walk_groups(root, "cpu", take_quota, &least);
    return least;
}

/* ---- throttling ---- */

uint64_t coh_cpu_throttled_ns(int descriptor)
{
    char text[2048];
    uint64_t time;
    const ssize_t bytes = descriptor < 0 ? -1 : pread(descriptor, text, sizeof(text) - 1, 0);
    if (bytes <= 0)
        return UINT64_MAX;
    text[bytes] = '\0';
    if (coh_small_file_number(text, "throttled_usec ", &time)) /* v2 */
        return time * 1000;
    return coh_small_file_number(text, "throttled_time ", &time) ? time : UINT64_MAX; /* v1 */
}

/* Keeps the first file that has a count. */
static void open_throttle(const char *root, const char *folder, int version, void *context)
{
    int *descriptor = context;
    char path[2 * PATH_MAX];
    (void)version;
    const int length = snprintf(path, sizeof(path), "%s%s/cpu.stat", root, folder);
    if (*descriptor >= 0 || length < 0 || (size_t)length >= sizeof(path))
        return;
    *descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (*descriptor >= 0 && coh_cpu_throttled_ns(*descriptor) == UINT64_MAX) {
        close(*descriptor);
        *descriptor = -1;
    }
}

int coh_cpu_throttle_open(const char *root)
{
    int descriptor = -1;
    walk_groups(root, "cpu", open_throttle, &descriptor);
    return descriptor;
}
