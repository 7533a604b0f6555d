#include "memory/available.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A cgroup limit this high means none (v1 writes INT64_MAX rounded down to a page). */
#define NO_LIMIT_BYTES (UINT64_C(1) << 60)

/* Reads a small file into text, terminated. Returns 0 if it cannot be read. */
static int file_text(const char *root, const char *path, const char *leaf, char *text,
                     size_t text_bytes)
{
    char full[2 * PATH_MAX];
    int length = snprintf(full, sizeof(full), "%s%s%s", root, path, leaf);
    if (length < 0 || (size_t)length >= sizeof(full))
        return 0;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t used = 0;
    while (used < text_bytes - 1) {
        ssize_t got = read(fd, text + used, text_bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fd);
    return used > 0;
}

/* The number after `key` at the begin of a line. */
static int number_after(const char *text, const char *key, uint64_t *out_number)
{
    size_t key_length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, key_length) == 0) {
            char *end = NULL;
            unsigned long long number = strtoull(line + key_length, &end, 10);
            if (end == line + key_length)
                return 0;
            *out_number = number;
            return 1;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return 0;
}

static uint64_t machine_available(const char *root)
{
    char text[4096];
    uint64_t kib;
    if (!file_text(root, "/proc/meminfo", "", text, sizeof(text)) ||
        !number_after(text, "MemAvailable:", &kib))
        return UINT64_MAX;
    return kib * 1024;
}

typedef struct group_files {
    const char *limit, *usage, *reclaimable_key;
} group_files;

static const group_files version_1 = { "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                       "total_inactive_file " };
static const group_files version_2 = { "/memory.max", "/memory.current", "inactive_file " };

/* Walks from the group up to the mount point: every limit above us binds too. Inside a container the
 * path of /proc/self/cgroup may not exist; the walk then meets what is there. */
static void walk_groups(const char *root, const char *mount, const char *group,
                        const group_files *files, uint64_t *available, uint64_t *limit)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof(path))
        return;
    for (size_t mount_length = strlen(mount);;) {
        char text[8192];
        uint64_t limit_bytes, usage_bytes, reclaimable_bytes = 0;
        if (file_text(root, path, files->limit, text, sizeof(text)) &&
            number_after(text, "", &limit_bytes) && limit_bytes < NO_LIMIT_BYTES &&
            file_text(root, path, files->usage, text, sizeof(text)) &&
            number_after(text, "", &usage_bytes)) {
            if (file_text(root, path, "/memory.stat", text, sizeof(text)))
                (void)number_after(text, files->reclaimable_key, &reclaimable_bytes);
            if (reclaimable_bytes > usage_bytes)
                reclaimable_bytes = usage_bytes;
            uint64_t held = usage_bytes - reclaimable_bytes;
            uint64_t left = limit_bytes > held ? limit_bytes - held : 0;
            *available = left < *available ? left : *available;
            *limit = limit_bytes < *limit ? limit_bytes : *limit;
        }
        char *slash = strrchr(path + mount_length, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* /proc/self/cgroup: "4:memory:/a/b" (v1) and "0::/a/b" (v2), one per line. */
static uint64_t group_available(const char *root, uint64_t *out_limit)
{
    char text[8192];
    uint64_t available = UINT64_MAX;
    *out_limit = UINT64_MAX;
    if (!file_text(root, "/proc/self/cgroup", "", text, sizeof(text)))
        return available;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        (void)strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (controllers == NULL || line == NULL)
            continue;
        const char *group = strcmp(line, "/") == 0 ? "" : line;
        if (controllers[0] == '\0') {
            walk_groups(root, "/sys/fs/cgroup", group, &version_2, &available, out_limit);
            walk_groups(root, "/sys/fs/cgroup/unified", group, &version_2, &available, out_limit);
        }
        for (char *controller; (controller = strsep(&controllers, ",")) != NULL;)
            if (strcmp(controller, "memory") == 0)
                walk_groups(root, "/sys/fs/cgroup/memory", group, &version_1, &available,
                            out_limit);
    }
    return available;
}

static uint64_t process_available(void)
{
    struct rlimit limit;
    char text[256];
    uint64_t pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !file_text("", "/proc/self/statm", "", text, sizeof(text)) ||
        !number_after(text, "", &pages))
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
