/* The single large allocation of a tier. Checks what fits, maps from a huge page's border, gives
 * advice to the kernel, binds to NUMA nodes, then touches every page with several threads that take
 * pieces from one counter. Read arena.h first; available.h and topology.h for the limits and the
 * nodes. */
#include "memory/arena.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "memory/available.h"
#include "memory/topology.h"

/* The huge page of x86-64 and of arm64 with 4 KiB pages. */
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
/* One thread's share of the first touch: large enough to amortise the system call, small enough
 * that a thread that loses its core delays little. */
#define TOUCH_PIECE_BYTES  (UINT64_C(16) << 20)
#define TOUCH_THREADS_MOST 32

struct coh_arena {
    unsigned char *base;
    uint64_t bytes;
    coh_ledger *ledger;
    coh_tier tier;
    char name[COH_LEDGER_NAME_BYTES];
    coh_arena_facts facts;
};

typedef struct touch_job {
    unsigned char *base;
    uint64_t bytes;
    _Atomic uint64_t next; /* touching threads add (relaxed): hands out pieces */
} touch_job;

/* Linux older than 5.14 lacks MADV_POPULATE_WRITE; headers may lack it, too. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void *touch(void *argument)
{
    touch_job *job = argument;
    for (;;) {
        uint64_t begin =
            atomic_fetch_add_explicit(&job->next, TOUCH_PIECE_BYTES, memory_order_relaxed);
        if (begin >= job->bytes)
            return NULL;
        uint64_t bytes =
            job->bytes - begin < TOUCH_PIECE_BYTES ? job->bytes - begin : TOUCH_PIECE_BYTES;
        if (madvise(job->base + begin, bytes, MADV_POPULATE_WRITE) == 0)
            continue;
        for (uint64_t at = 0; at < bytes; at += COH_PAGE_BYTES)
            *(volatile unsigned char *)(job->base + begin + at) = 0;
    }
}

static void touch_all(unsigned char *base, uint64_t bytes, int thread_count)
{
    touch_job job = { .base = base, .bytes = bytes };
    pthread_t threads[TOUCH_THREADS_MOST];
    int made = 0;
    int wanted = thread_count - 1 < TOUCH_THREADS_MOST ? thread_count - 1 : TOUCH_THREADS_MOST;
    while (made < wanted && (uint64_t)(made + 1) * TOUCH_PIECE_BYTES < bytes) {
        if (coh_thread_start(&threads[made], touch, &job) != 0)
            break;
        char name[16];
        snprintf(name, sizeof(name), "coh-touch-%u", (made + 1u) % 100u);
        (void)pthread_setname_np(threads[made], name);
        made++;
    }
    (void)touch(&job);
    for (int i = 0; i < made; i++)
        (void)pthread_join(threads[i], NULL);
}

/* Maps `bytes` of fresh address space, from a huge page's border if it is large enough. */
static coh_status map(uint64_t bytes, unsigned char **out_base)
{
    uint64_t slack = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    unsigned char *mapped =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY, "the system refused to map %" PRIu64 " bytes (%s)", bytes,
                        strerror(errno));
    unsigned char *base = mapped;
    if (slack > 0) {
        uint64_t head =
            (HUGE_PAGE_BYTES - ((uintptr_t)mapped & (HUGE_PAGE_BYTES - 1))) & (HUGE_PAGE_BYTES - 1);
        base = mapped + head;
        if (head > 0)
            munmap(mapped, head);
        if (slack > head)
            munmap(base + bytes, slack - head);
    }
    *out_base = base;
    return COH_OK;
}

static coh_status weigh(uint64_t bytes, const char *name)
{
    const char *source;
    uint64_t available = coh_memory_available_bytes(&source);
    uint64_t fits = available > COH_ARENA_RESERVE_BYTES ? available - COH_ARENA_RESERVE_BYTES : 0;
    fits -= fits % COH_PAGE_BYTES;
    if (bytes <= fits)
        return COH_OK;
    return coh_fail(COH_ERR_MEMORY,
                    "the %s needs %" PRIu64 " bytes, %s leaves %" PRIu64 ": at most %" PRIu64
                    " would fit (%u MiB are kept back)",
                    name, bytes, source, available, fits, COH_ARENA_RESERVE_BYTES >> 20);
}

coh_status coh_arena_create(uint64_t bytes, const char *name, coh_tier tier, coh_ledger *ledger,
                            int thread_count, coh_arena **out_arena)
{
    return coh_arena_create_near(COH_NODE_ANY, bytes, name, tier, ledger, thread_count, out_arena);
}

coh_status coh_arena_create_near(int near, uint64_t bytes, const char *name, coh_tier tier,
                                 coh_ledger *ledger, int thread_count, coh_arena **out_arena)
{
    *out_arena = NULL;
    if (bytes == 0 || bytes % COH_PAGE_BYTES != 0 || name == NULL || thread_count < 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "an arena of %" PRIu64 " bytes and %d threads: bytes must be a positive "
                        "multiple of %u, threads at least 1",
                        bytes, thread_count, COH_PAGE_BYTES);
    coh_status status = COH_OK;
    coh_arena *arena = NULL;
    COH_TRY(weigh(bytes, name));
    COH_TRY(COH_ALLOC(1, &arena));
    arena->tier = tier;
    snprintf(arena->name, sizeof(arena->name), "%s", name);
    COH_TRY_GOTO(status, map(bytes, &arena->base), failed);
    arena->bytes = bytes;
    if (ledger != NULL) {
        COH_TRY_GOTO(status, coh_ledger_add(ledger, tier, arena->name, "arena", bytes), failed);
        arena->ledger = ledger;
    }
    coh_placement placement;
    coh_topology_place("", near, arena->base, bytes, &placement);
    arena->facts.node_count = placement.node_count;
    arena->facts.is_near = placement.is_near;
    arena->facts.huge_pages = madvise(arena->base, bytes, MADV_HUGEPAGE) == 0;
    /* Keeps a forked child from sharing these pages copy-on-write while a disk writes into them. */
    (void)madvise(arena->base, bytes, MADV_DONTFORK);
    uint64_t begin_ns = coh_clock_ns();
    touch_all(arena->base, bytes, thread_count);
    arena->facts.touch_ns = coh_clock_ns() - begin_ns;
    *out_arena = arena;
    return COH_OK;
failed:
    coh_arena_destroy(arena);
    return status;
}

void coh_arena_destroy(coh_arena *arena)
{
    if (arena != NULL && arena->base != NULL)
        (void)munmap(arena->base, arena->bytes);
    coh_arena_abandon(arena);
}

void coh_arena_abandon(coh_arena *arena)
{
    if (arena == NULL)
        return;
    if (arena->ledger != NULL)
        coh_ledger_remove(arena->ledger, arena->tier, arena->name, "arena", arena->bytes);
    coh_free(arena);
}

void *coh_arena_base(const coh_arena *arena)
{
    return arena->base;
}

uint64_t coh_arena_bytes(const coh_arena *arena)
{
    return arena->bytes;
}

void coh_arena_read_facts(const coh_arena *arena, coh_arena_facts *out_facts)
{
    *out_facts = arena->facts;
}
