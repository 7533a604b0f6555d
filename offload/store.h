/* store.h - the working store: bytes that do not fit, kept on disk for the length of a run.
 *
 * The one idea: a READ or WRITE line is one request for one chunk; the lane submits in order, the
 * store completes in any order, the lane retires in order. A chunk that comes back wrong is never
 * computed with: each request carries what the chunk must be, and the store checks it before it
 * completes.
 *
 *   lane       submit r1 r2 r3 r4 ........ retire r1, r2, r3 (r2 was first to complete, and waited)
 *   in flight  |r1--------|r2---|r3----|
 *
 * With depth > 1 two requests of one port are NOT ordered. If they touch the same file range or the
 * same memory, the program holds a wait between them (also on the own lane);
 * the store does not look.
 *
 * The store is scratch: an unnamed file, preallocated and written once, that dies with the process.
 * What a chunk must be (checksum, generation) is kept in RAM, shared by both ports.
 *
 * Threads: a store has two ports, one for reads and one for writes; each port belongs to one thread
 * (the lanes coh-read and coh-write). Nothing here allocates after `open`. */
#ifndef COH_OFFLOAD_STORE_H
#define COH_OFFLOAD_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

typedef struct coh_store coh_store;

typedef enum coh_store_port {
    COH_STORE_READS,
    COH_STORE_WRITES,
    COH_STORE_PORT_COUNT
} coh_store_port;

typedef struct coh_store_facts {
    size_t block_bytes;   /* memory, file offset and length are multiples of it: a page */
    uint32_t queue_depth; /* pieces in flight inside the store per port */
    uint64_t read_bytes_per_s, write_bytes_per_s; /* as measured at open; 0: not measured */
    const char *rung;                             /* "io_uring fixed", "io_uring", "posix", "mem" */
    const char *reason; /* NULL, or why a better rung was not taken: one sentence, print once */
    int direct;         /* 0: through the page cache, memory outside every budget */
} coh_store_facts;

/* What a chunk is. Mixed into the checksum, which the store keeps in RAM: so a stale, torn or
 * misplaced chunk is found by reading it, with no header on disk. `generation` counts the writes of
 * this chunk in this run; the engine derives it from the line's version. */
typedef struct coh_chunk_id {
    uint32_t chunk; /* 0 <= chunk < chunk_count */
    uint64_t generation;
} coh_chunk_id;

typedef struct coh_store_request {
    void *memory; /* inside a registered arena; page aligned */
    uint64_t file_offset;
    size_t bytes;
    coh_chunk_id id;
    uint64_t number; /* comes back with the completion */
} coh_store_request;

typedef struct coh_store_completion {
    uint64_t number;
    /* COH_OK, COH_ERR_IO, COH_ERR_CORRUPT; the sentence (coh_last_error of the reaping thread)
     * names chunk, offset, found and expected, of the first failed completion of this reap */
    coh_status status;
} coh_store_completion;

typedef struct coh_store_config {
    const char *folder; /* the unnamed file is made here (O_TMPFILE, or create and unlink) */
    uint64_t bytes;
    uint32_t chunk_count; /* checksums kept */
    uint32_t port_depth;  /* requests in flight per port: the lane depth of the program */
    uint32_t queue_depth; /* pieces in flight inside; 0: the store's choice */
} coh_store_config;

typedef struct coh_store_ops {
    uint32_t struct_bytes;
    const char *name; /* "uring", "posix", "mem" */

    /* Fails: COH_ERR_FULL with bytes wanted and free; COH_ERR_DEVICE when this rung is denied here
     * (try the next); COH_ERR_IO; COH_ERR_MEMORY. */
    coh_status (*open)(const coh_store_config *config, coh_store **out_store);
    void (*close)(coh_store *store); /* accepts NULL; waits for what is in flight */
    coh_status (*facts)(const coh_store *store, coh_store_facts *out_facts);
    /* Before the first request, once per arena (<= 2). The arena must outlive the store. A refusal
     * of registered buffers (memlock) steps down a rung and is told in
     * facts.reason, not an error. */
    coh_status (*register_arena)(coh_store *store, void *base, size_t bytes);

    /* Queue one request. The caller keeps at most port_depth in flight. A short transfer is
     * continued inside; EAGAIN and EINTR are retried; the lane sees whole chunks only. */
    coh_status (*submit)(coh_store *store, coh_store_port port, const coh_store_request *request);
    /* Wait for at least `least` completions (0: poll), give up to `most`. */
    coh_status (*reap)(coh_store *store, coh_store_port port, coh_store_completion *completions,
                       uint32_t least, uint32_t most, uint32_t *out_count);
} coh_store_ops;

extern const coh_store_ops coh_store_uring; /* absent functions (NULL open) when built without */
extern const coh_store_ops coh_store_posix, coh_store_mem;

/* Opens the best rung that this machine allows: io_uring with O_DIRECT and registered buffers, then
 * without registration, then posix threads; O_DIRECT denied falls back to the page cache. Says why
 * in facts.reason. *out_ops gets the table that serves it. `wanted`: NULL, or a table to take and
 * no other (tests, fault injection). */
coh_status coh_store_open(const coh_store_config *config, const coh_store_ops *wanted,
                          const coh_store_ops **out_ops, coh_store **out_store);

/* There is no power cut here: the store is scratch, an unnamed file that is gone with the process,
 * so nothing of it can be found broken later. What a power cut drops and tears is modelled where
 * durability is promised, in the file operations of a save (base/power_cut.h). A lost or torn
 * write while the process lives is what `flip_at` shows: the chunk's mark does not fit. */

/* The mem store's faults: seeded, by operation number, so that a loop over n finds every path. Also
 * honoured by the posix store, so that faults can be injected under a whole run: while a plan is
 * installed coh_store_open takes no store that cannot honour it. Operations count reads and writes
 * together from 0. */
typedef struct coh_fault_plan {
    uint64_t seed;
    int64_t fail_at;  /* -1: never. The operation fails with `fail_errno` (EIO, ENOSPC) */
    int64_t short_at; /* -1: never. The first transfer of it is cut short; must be continued */
    int64_t flip_at;  /* -1: never. One bit of what this operation transfers is flipped */
    int64_t late_at;  /* -1: never. It completes after all others in flight */
    int fail_errno;
    uint32_t delay_most_us; /* each operation takes a random time up to this */
    int reorder;            /* complete in random order within the depth */
} coh_fault_plan;

/* Installs a plan for the process (NULL: none) for stores opened from then on; and how many
 * operations the store that was opened last has seen, and whether the fault was hit. */
void coh_store_fault_plan(const coh_fault_plan *plan);
uint64_t coh_store_fault_operations(void);
int coh_store_fault_was_hit(void);

#endif
