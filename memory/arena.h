/* arena.h - the one large piece of memory of a tier, taken once and touched once.
 *
 * The plan says how many bytes a tier needs; the arena is that many bytes and never another one.
 * The step then allocates nothing: chunks stand at the offsets that the plan gave them.
 *
 *   create   ask what is free -> map -> bind to nodes -> huge pages -> touch by N threads
 *
 * Two facts make this more than one mmap:
 *   - Fresh memory costs 0.3-2.5 GB/s at its first touch, so it is touched here, by several
 *     threads, and not inside the first step.
 *   - Linux promises more than it has, and kills the process later. So what is available
 *     (MemAvailable, the cgroup's limit, RLIMIT_AS: memory/available.h) is asked for first, and an
 *     absurd size is refused with a sentence that says what would fit.
 *
 * Several NUMA nodes: pages are interleaved over the nodes this process may use, since every thread
 * reads every chunk; those of an arena that a GPU copies from and to go to the node by it, where
 * they fit (memory/topology.h). One node: nothing is bound. */
#ifndef COH_MEMORY_ARENA_H
#define COH_MEMORY_ARENA_H

#include <stdint.h>

#include "base/check.h"
#include "memory/ledger.h"
#include "memory/tier.h"

typedef struct coh_arena coh_arena;

/* Left over for the rest of the process and machine when what is available is weighed: page tables,
 * stacks, libraries, the kernel's own buffers. */
#define COH_ARENA_RESERVE_BYTES (64u << 20)

/* `bytes` zero bytes, page aligned, for `tier`. bytes: a positive multiple of COH_PAGE_BYTES.
 * `name` (what for, e.g. "device arena") is copied; the ledger (may be NULL) gets one reservation
 * (tier, name, "arena"), taken out by destroy. `thread_count` threads (the caller is one) touch
 * every page; threads that cannot be made are done without.
 * Fails: COH_ERR_ARGUMENT; COH_ERR_MEMORY with bytes asked, bytes available and what would fit.
 * Nothing is left behind. */
coh_status coh_arena_create(uint64_t bytes, const char *name, coh_tier tier, coh_ledger *ledger,
                            int thread_count, coh_arena **out_arena);
/* The same, on the memory node `near` (memory/node.h) where there is room for all of it. */
coh_status coh_arena_create_near(int near, uint64_t bytes, const char *name, coh_tier tier,
                                 coh_ledger *ledger, int thread_count, coh_arena **out_arena);
void coh_arena_destroy(coh_arena *arena); /* accepts NULL */

void *coh_arena_base(const coh_arena *arena);
uint64_t coh_arena_bytes(const coh_arena *arena);

/* How it came out, for reports. */
typedef struct coh_arena_facts {
    int huge_pages;    /* the kernel took the advice (it may still use small ones) */
    int node_count;    /* nodes the pages were spread over; 1: not spread */
    int is_near;       /* 1: they prefer the node that was asked for */
    uint64_t touch_ns; /* what the first touch took */
    uint64_t pin_ns;   /* what registering it with a GPU's driver took; 0: it was not */
} coh_arena_facts;
void coh_arena_read_facts(const coh_arena *arena, coh_arena_facts *out_facts);

#endif
