/* arena.h - the single large allocation of a tier: mapped once, touched once.
 *
 * The plan says how many bytes a tier needs, and the arena has exactly that size. A step allocates
 * nothing: chunks lie at the offsets that the plan gave them.
 *
 *   create   check free memory -> map -> bind to nodes -> huge pages -> touch by N threads
 *
 * Two facts make this more than one mmap:
 *   - The first touch of fresh memory runs at 0.3-2.5 GB/s. It is done here, by several threads,
 *     and not inside the first step.
 *   - Linux grants more memory than it has and kills the process later. So the arena first checks
 *     the available memory (MemAvailable, the cgroup's limit, RLIMIT_AS: memory/available.h), and
 *     refuses a larger size with a text that says what would fit.
 *
 * With several NUMA nodes, pages are interleaved over the nodes this process may use, because every
 * thread reads every chunk. If a GPU copies from and to the arena, its pages go to the node nearest
 * the GPU if they fit (memory/topology.h). With one node, nothing is bound. */
#ifndef COH_MEMORY_ARENA_H
#define COH_MEMORY_ARENA_H

#include <stdint.h>

#include "base/check.h"
#include "memory/ledger.h"
#include "memory/tier.h"

typedef struct coh_arena coh_arena;

/* Kept free for the rest of the process and the machine: page tables, stacks, libraries, the
 * kernel's own buffers. */
#define COH_ARENA_RESERVE_BYTES (64u << 20)

/* Allocates `bytes` zero bytes, page aligned, for `tier`. bytes: a positive multiple of
 * COH_PAGE_BYTES. `name` (purpose, e.g. "device arena") is copied. The ledger (may be NULL) gets
 * one reservation (tier, name, "arena"), which destroy removes. `thread_count` threads, the caller
 * included, touch every page; if fewer threads can be created, fewer are used.
 * Fails: COH_ERR_ARGUMENT; COH_ERR_MEMORY with bytes requested, bytes available and what would fit.
 * Nothing is left behind. */
coh_status coh_arena_create(uint64_t bytes, const char *name, coh_tier tier, coh_ledger *ledger,
                            int thread_count, coh_arena **out_arena);
/* As coh_arena_create, on memory node `near` (memory/topology.h) if it has room for all of the
 * arena. */
coh_status coh_arena_create_near(int near, uint64_t bytes, const char *name, coh_tier tier,
                                 coh_ledger *ledger, int thread_count, coh_arena **out_arena);
void coh_arena_destroy(coh_arena *arena); /* accepts NULL */
/* As destroy, but the memory stays mapped until the process ends: somebody may still write to
 * it. */
void coh_arena_abandon(coh_arena *arena);

void *coh_arena_base(const coh_arena *arena);
uint64_t coh_arena_bytes(const coh_arena *arena);

/* Facts about the finished arena, for reports. */
typedef struct coh_arena_facts {
    int huge_pages;    /* 1: the kernel accepted the advice (it may still use small pages) */
    int node_count;    /* nodes the pages were spread over; 1: not spread */
    int is_near;       /* 1: pages prefer the requested node */
    uint64_t touch_ns; /* time of the first touch */
    uint64_t pin_ns;   /* time to register it with a GPU's driver; 0: not registered */
} coh_arena_facts;
void coh_arena_read_facts(const coh_arena *arena, coh_arena_facts *out_facts);

#endif
