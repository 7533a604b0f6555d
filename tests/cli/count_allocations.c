/* count_allocations.c - preloaded into a process: counts allocations and deallocations through
 * dynamic symbols, from any thread, and writes the counts to the file in COUNT_ALLOCATIONS_FILE at
 * exit.
 *
 * The test compares whole runs of different length: allocations per step show as a difference. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic unsigned long alloc_count, map_count;
static _Atomic size_t early_used;
static _Alignas(64) char early[65536]; /* for dlsym's own calls */

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_munmap)(void *, size_t);
static int (*real_topology_load)(void *);
static _Thread_local int resolving;

#define RESOLVE(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)

static void resolve(void)
{
    resolving = 1;
    RESOLVE(malloc);
    RESOLVE(calloc);
    RESOLVE(realloc);
    RESOLVE(aligned_alloc);
    RESOLVE(posix_memalign);
    RESOLVE(free);
    RESOLVE(mmap);
    RESOLVE(munmap);
    *(void **)&real_topology_load = dlsym(RTLD_NEXT, "hwloc_topology_load");
    resolving = 0;
}

__attribute__((constructor)) static void begin(void)
{
    if (!real_malloc)
        resolve();
}

__attribute__((destructor)) static void end(void)
{
    char line[128];
    const char *path = getenv("COUNT_ALLOCATIONS_FILE");
    int descriptor = path ? open(path, O_CREAT | O_WRONLY | O_TRUNC, 0666) : -1;
    if (descriptor < 0)
        return;
    int length = snprintf(line, sizeof(line), "%lu %lu\n", alloc_count, map_count);
    if (write(descriptor, line, (size_t)length) != length)
        abort();
    close(descriptor);
}

static int is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + sizeof(early);
}

static void *early_alloc(size_t bytes)
{
    size_t at = atomic_fetch_add(&early_used, (bytes + 63) / 64 * 64);
    if (at + bytes > sizeof(early))
        abort();
    return early + at;
}

void *malloc(size_t bytes)
{
    if (!real_malloc && resolving)
        return early_alloc(bytes);
    begin();
    alloc_count++;
    return real_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    if (!real_calloc && (resolving || !real_malloc)) {
        if (resolving)
            return early_alloc(count * bytes);
        begin();
    }
    alloc_count++;
    return real_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    begin();
    alloc_count++;
    if (!is_early(memory))
        return real_realloc(memory, bytes);
    /* The length of the early piece is unknown, so bytes of its neighbour may be copied, too. */
    size_t most = (size_t)(early + sizeof(early) - (char *)memory);
    void *fresh = real_malloc(bytes);
    if (fresh)
        memcpy(fresh, memory, bytes < most ? bytes : most);
    return fresh;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    begin();
    alloc_count++;
    return real_aligned_alloc(alignment, bytes);
}

int posix_memalign(void **out_memory, size_t alignment, size_t bytes)
{
    begin();
    alloc_count++;
    return real_posix_memalign(out_memory, alignment, bytes);
}

void free(void *memory)
{
    if (!memory || is_early(memory))
        return;
    begin();
    real_free(memory);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    begin();
    map_count++;
    return real_mmap(address, bytes, protection, flags, descriptor, offset);
}

int munmap(void *address, size_t bytes)
{
    begin();
    map_count++;
    return real_munmap(address, bytes);
}

/* hwloc reads files of the system whose length differs from run to run: its calls do not count. The
 * process has one thread then. */
int hwloc_topology_load(void *topology);
int hwloc_topology_load(void *topology)
{
    begin();
    const unsigned long allocations = alloc_count, maps = map_count;
    const int failed = real_topology_load(topology);
    alloc_count = allocations;
    map_count = maps;
    return failed;
}
