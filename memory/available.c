/* Limits of memory, read from /proc, /sys and cgroup files: the machine's, its memory nodes', the
 * groups' and the process's; and the groups' limit of processor time. The lowest one counts. A
 * group's limit binds everything below it, so every group above this process is visited, in cgroup
 * version 1 and 2 alike. Read available.h first. */
#include "memory/available.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

/* ---- the machine ---- */

/* Reads a line of /proc/meminfo, which counts KiB. Returns 0 if it is not there. */
static int meminfo_bytes(const char *root, const char *key, uint64_t *out_bytes)
{
    char text[4096];
    uint64_t kib;
    if (!coh_small_file_read(root, "/proc/meminfo", "", text, sizeof(text)) ||
        !coh_small_file_number(text, key, &kib))
        return 0;
    *out_bytes = kib * 1024;
    return 1;
}

/* Reads a setting of the kernel's memory management; 0 if it cannot be read. */
static uint64_t vm_setting(const char *root, const char *name)
{
    char text[64];
    uint64_t number = 0;
    if (coh_small_file_read(root, "/proc/sys/vm/", name, text, sizeof(text)))
        (void)coh_small_file_number(text, "", &number);
    return number;
}

static uint64_t machine_available(const char *root)
{
    uint64_t bytes;
    return meminfo_bytes(root, "MemAvailable:", &bytes) ? bytes : UINT64_MAX;
}

/* With strict accounting the kernel counts mappings, touched or not, and refuses those beyond
 * CommitLimit. It keeps a reserve for root and one for other programs of the user. */
static uint64_t commit_available(const char *root)
{
    enum { STRICT = 2 };
    uint64_t limit, held;
    if (vm_setting(root, "overcommit_memory") != STRICT ||
        !meminfo_bytes(root, "CommitLimit:", &limit) ||
        !meminfo_bytes(root, "Committed_AS:", &held))
        return UINT64_MAX;
    held +=
        1024 * (vm_setting(root, "admin_reserve_kbytes") + vm_setting(root, "user_reserve_kbytes"));
    return limit > held ? limit - held : 0;
}

/* ---- memory nodes ---- */

enum { NODES_MOST = 1024, WORD_BITS = 8 * sizeof(unsigned long) }; /* the kernel's most */

typedef struct node_set {
    unsigned long words[NODES_MOST / WORD_BITS];
} node_set;

static int has_node(const node_set *set, unsigned long node)
{
    return set->words[node / WORD_BITS] >> node % WORD_BITS & 1;
}

/* Reads a list of nodes, such as "0-1,4". Returns 0 if the text is none. */
static int read_nodes(const char *text, node_set *out)
{
    *out = (node_set){ { 0 } };
    for (const char *at = text;; at++) {
        char *end;
        unsigned long node = strtoul(at, &end, 10), last = node;
        if (end == at)
            return 0;
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at)
                return 0;
        }
        for (; node <= last && node < NODES_MOST; node++)
            out->words[node / WORD_BITS] |= 1ul << node % WORD_BITS;
        if (*end != ',')
            return 1;
        at = end;
    }
}

/* Reads the nodes that the cpuset of this process has. */
static int read_allowed(const char *root, node_set *out)
{
    static const char key[] = "\nMems_allowed_list:";
    char text[8192];
    if (!coh_small_file_read(root, "/proc/self/status", "", text, sizeof(text)))
        return 0;
    const char *line = strstr(text, key);
    return line != NULL && read_nodes(line + strlen(key), out);
}

/* Leaves the nodes that the thread's memory is bound to (numactl --membind), which the cpuset does
 * not tell. Preferred and interleaved pages go to other nodes when theirs are full. */
static void keep_bound(node_set *set)
{
    node_set bound = { { 0 } };
    int mode = 0;
    if (syscall(SYS_get_mempolicy, &mode, bound.words, NODES_MOST, NULL, 0) != 0 ||
        (mode & ~MPOL_MODE_FLAGS) != MPOL_BIND)
        return;
    for (size_t i = 0; i < sizeof(set->words) / sizeof(set->words[0]); i++)
        set->words[i] &= bound.words[i];
}

/* Free pages of a node, and those of the page cache there: once the process may use no other node,
 * the kernel shrinks the cache. Returns 0 if the node cannot be read. */
static int node_available(const char *root, unsigned long node, uint64_t *out_bytes)
{
    static const char *const keys[] = { "MemFree:", "Active(file):", "Inactive(file):" };
    char path[64], key[64], text[4096];
    uint64_t kib;
    *out_bytes = 0;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%lu", node);
    if (!coh_small_file_read(root, path, "/meminfo", text, sizeof(text)))
        return 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        snprintf(key, sizeof(key), "Node %lu %s", node, keys[i]);
        if (!coh_small_file_number(text, key, &kib))
            return 0;
        *out_bytes += kib * 1024;
    }
    return 1;
}

/* What is left of the nodes that this process may use, if these are not all that have memory. */
static uint64_t nodes_available(const char *root)
{
    char text[512];
    node_set with_memory, allowed;
    uint64_t sum = 0, bytes;
    int is_bound = 0;
    if (!coh_small_file_read(root, "/sys/devices/system/node/has_memory", "", text, sizeof(text)) ||
        !read_nodes(text, &with_memory) || !read_allowed(root, &allowed))
        return UINT64_MAX;
    keep_bound(&allowed);
    for (unsigned long node = 0; node < NODES_MOST; node++) {
        if (!has_node(&with_memory, node))
            continue;
        if (!has_node(&allowed, node))
            is_bound = 1;
        else if (node_available(root, node, &bytes))
            sum += bytes;
        else
            return UINT64_MAX;
    }
    return is_bound ? sum : UINT64_MAX;
}

/* ---- the groups' memory ---- */

/* Files of a group, and keys of its memory.stat: pages that the kernel would give back, and those
 * among them that have to be written first. */
typedef struct group_files {
    const char *limit, *high, *usage; /* high: NULL if there is none */
    const char *clean[3], *unwritten[2];
} group_files;

static const group_files version_1 = { .limit = "/memory.limit_in_bytes",
                                       .usage = "/memory.usage_in_bytes",
                                       .clean = { "total_inactive_file ", "total_active_file " },
                                       .unwritten = { "total_dirty ", "total_writeback " } };
static const group_files version_2 = {
    .limit = "/memory.max",
    .high = "/memory.high",
    .usage = "/memory.current",
    .clean = { "inactive_file ", "active_file ", "slab_reclaimable " },
    .unwritten = { "file_dirty ", "file_writeback " },
};

typedef struct group_walls {
    uint64_t available, limit;
} group_walls;

/* UINT64_MAX: no limit ("max"), or no such file. */
static uint64_t read_limit(const char *root, const char *folder, const char *file)
{
    char text[64];
    uint64_t bytes;
    if (file == NULL || !coh_small_file_read(root, folder, file, text, sizeof(text)) ||
        !coh_small_file_number(text, "", &bytes) || bytes >= NO_LIMIT_BYTES)
        return UINT64_MAX;
    return bytes;
}

static uint64_t sum_of(const char *text, const char *const *keys, size_t key_count)
{
    uint64_t sum = 0, bytes;
    for (size_t i = 0; i < key_count; i++)
        if (keys[i] != NULL && coh_small_file_number(text, keys[i], &bytes))
            sum += bytes;
    return sum;
}

/* Files that are read again and again are active, and a container of them would have no memory
 * left if these did not count: the kernel takes active pages, too, before it kills. */
static uint64_t reclaimable(const char *root, const char *folder, const group_files *files)
{
    char text[8192];
    (void)coh_small_file_read(root, folder, "/memory.stat", text, sizeof(text));
    const uint64_t clean = sum_of(text, files->clean, 3);
    const uint64_t unwritten = sum_of(text, files->unwritten, 2);
    return clean > unwritten ? clean - unwritten : 0;
}

/* Takes one group's limit and what is left of it; limits of all groups above apply, too. Above
 * memory.high the kernel does not kill, but slows the group down until it hardly runs. */
static void take_limit(const char *root, const char *folder, int version, void *context)
{
    const group_files *files = version == 2 ? &version_2 : &version_1;
    group_walls *walls = context;
    const uint64_t limit = read_limit(root, folder, files->limit);
    const uint64_t high = read_limit(root, folder, files->high);
    const uint64_t limit_bytes = high < limit ? high : limit;
    const uint64_t usage_bytes = read_limit(root, folder, files->usage);
    if (limit_bytes == UINT64_MAX || usage_bytes == UINT64_MAX)
        return;
    const uint64_t cache = reclaimable(root, folder, files);
    const uint64_t held = usage_bytes > cache ? usage_bytes - cache : 0;
    const uint64_t left = limit_bytes > held ? limit_bytes - held : 0;
    walls->available = left < walls->available ? left : walls->available;
    walls->limit = limit_bytes < walls->limit ? limit_bytes : walls->limit;
}

static group_walls read_walls(const char *root)
{
    group_walls walls = { UINT64_MAX, UINT64_MAX };
    walk_groups(root, "memory", take_limit, &walls);
    return walls;
}

/* ---- the process ---- */

/* `key`: the line of /proc/self/status that the kernel compares with the limit. */
static uint64_t process_available(int resource, const char *key)
{
    struct rlimit limit;
    char text[8192];
    uint64_t kib;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !coh_small_file_read("", "/proc/self/status", "", text, sizeof(text)) ||
        !coh_small_file_number(text, key, &kib))
        return UINT64_MAX;
    return limit.rlim_cur > kib * 1024 ? limit.rlim_cur - kib * 1024 : 0;
}

/* ---- all of them ---- */

typedef struct named_limit {
    const char *source;
    uint64_t bytes;
} named_limit;

static named_limit lowest(const named_limit *limits, size_t count)
{
    size_t least = 0;
    for (size_t i = 1; i < count; i++)
        if (limits[i].bytes < limits[least].bytes)
            least = i;
    return limits[least];
}

static named_limit of_machine(const char *root)
{
    const named_limit limits[] = {
        { "MemAvailable", machine_available(root) },
        { "the memory nodes", nodes_available(root) },
        { "the commit limit", commit_available(root) },
        { "the memory cgroup", read_walls(root).available },
    };
    return lowest(limits, sizeof(limits) / sizeof(limits[0]));
}

uint64_t coh_memory_available_under(const char *root, const char **out_source)
{
    const named_limit limits[] = {
        of_machine(root),
        { "RLIMIT_AS", process_available(RLIMIT_AS, "VmSize:") },
        { "RLIMIT_DATA", process_available(RLIMIT_DATA, "VmData:") },
    };
    const named_limit least = lowest(limits, sizeof(limits) / sizeof(limits[0]));
    if (out_source != NULL)
        *out_source = least.source;
    return least.bytes;
}

uint64_t coh_memory_of_files_bytes(void)
{
    return of_machine("").bytes;
}

uint64_t coh_memory_available_bytes(const char **out_source)
{
    return coh_memory_available_under("", out_source);
}

uint64_t coh_memory_limit_bytes(void)
{
    return read_walls("").limit;
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
