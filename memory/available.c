/* Three limits of memory, read from /proc and from cgroup files: the machine's, the groups' and the
 * process's. The lowest one counts. Read available.h first; cgroup.h for the walk over groups. */
#include "memory/available.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/small_file.h"
#include "memory/cgroup.h"

/* A cgroup limit this high means no limit (v1 writes INT64_MAX rounded down to a page). */
#define NO_LIMIT_BYTES (UINT64_C(1) << 60)

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
    coh_cgroup_walk(root, "memory", take_limit, &walls);
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
