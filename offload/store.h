/* store.h - the working store: bytes that do not fit into memory, kept on disk during a run.
 *
 * The one idea: a READ or WRITE instruction is one request for one chunk. The lane submits in
 * order, the store completes in any order, the lane retires in order. Each request carries what the
 * chunk must be, and the store checks it before it completes, so a wrong chunk is never used.
 *
 *   lane       submit r1 r2 r3 r4 ........ retire r1, r2, r3 (r2 completed first, and waited)
 *   in flight  |r1--------|r2---|r3----|
 *
 * With depth > 1, two requests of one port are NOT ordered. If they touch the same file range or
 * the same memory, the program must have a wait between them, even on one lane; the store does not
 * check.
 *
 * The store is scratch: an unnamed file in each folder, preallocated and written once, that
 * vanishes with the process. A request's parts in several folders are transferred in parallel. The
 * expected checksum and generation of each chunk are in RAM, shared by both ports.
 *
 * Threads: a store has two ports, one for reads and one for writes; each port belongs to one thread
 * (the lanes coh-read and coh-write). Nothing here allocates after `open`. */
#ifndef COH_OFFLOAD_STORE_H
#define COH_OFFLOAD_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "cohobate/disk.h"

typedef struct coh_store coh_store;

typedef enum coh_store_port {
    COH_STORE_READS,
    COH_STORE_WRITES,
    COH_STORE_PORT_COUNT
} coh_store_port;

typedef struct coh_store_facts {
    size_t block_bytes;   /* unit of memory address, file offset and length: a page */
    uint32_t queue_depth; /* pieces in flight inside the store per port */
    uint64_t read_bytes_per_s, write_bytes_per_s; /* measured at open; 0: not measured */
    const char *backend;                          /* "io_uring fixed", "io_uring", "posix", "mem" */
    /* why a better backend is not used: one sentence, print it once; NULL: it is the best */
    const char *reason;
    int direct;           /* 0: through the page cache, memory outside every budget */
    uint64_t retry_count; /* transfers so far that had to be repeated or continued */
} coh_store_facts;

/* Identity of a chunk. Mixed into its checksum in RAM, so that reading a stale, torn or misplaced
 * chunk fails, without a header on disk. `generation` counts the writes of this chunk in this run;
 * the engine derives it from the instruction's version. */
typedef struct coh_chunk_id {
    uint32_t chunk; /* 0 <= chunk < chunk_count */
    uint64_t generation;
} coh_chunk_id;

typedef struct coh_store_request {
    void *memory; /* inside a registered arena; page aligned */
    uint64_t file_offset;
    size_t bytes;
    coh_chunk_id id;
    uint64_t number; /* returned with the completion */
} coh_store_request;

typedef struct coh_store_completion {
    uint64_t number;
    /* COH_OK, COH_ERR_IO, COH_ERR_CORRUPT. coh_last_error of the reaping thread describes the first
     * failed completion of this reap: chunk, offset, found and expected */
    coh_status status;
} coh_store_completion;

typedef struct coh_store_config {
    /* The folders that share the store (stripe.h); each has an unnamed file (O_TMPFILE, or create
     * and unlink). */
    const coh_disk *disks;
    uint32_t disk_count;
    uint64_t bytes;
    uint32_t chunk_count;        /* number of checksums kept */
    uint32_t port_depth;         /* requests in flight per port: the lane depth of the program */
    uint32_t queue_depth;        /* pieces in flight inside the store; 0: automatic */
    struct coh_phantom *phantom; /* of a rehearsal: its clock (engine/phantom.h) */
    /* Asked every few MiB while `open` writes all blocks once, on a thread of each folder: another
     * status than COH_OK ends that, and `open` with it. NULL: not asked. */
    coh_status (*go_on)(void *go_on_context);
    void *go_on_context;
} coh_store_config;

typedef struct coh_store_ops {
    uint32_t struct_bytes;
    const char *name; /* "uring", "posix", "mem" */

    /* Fails: COH_ERR_FULL with bytes wanted and free; COH_ERR_DEVICE if this backend is denied here
     * (try the next); COH_ERR_IO; COH_ERR_MEMORY. */
    coh_status (*open)(const coh_store_config *config, coh_store **out_store);
    void (*close)(coh_store *store); /* accepts NULL; waits for requests in flight */
    coh_status (*facts)(const coh_store *store, coh_store_facts *out_facts);
    /* Registers an arena, before the first request; at most 2 arenas, each once. The arena must
     * outlive the store. If the kernel refuses registered buffers (memlock), the store uses a
     * slower path and reports that in facts.reason; it is not an error. */
    coh_status (*register_arena)(coh_store *store, void *base, size_t bytes);

    /* Queues one request. The caller keeps at most port_depth in flight. The store continues short
     * transfers and retries EAGAIN and EINTR, so the lane sees whole chunks only. */
    coh_status (*submit)(coh_store *store, coh_store_port port, const coh_store_request *request);
    /* Waits for at least `least` completions (0: polls), returns up to `most`. */
    coh_status (*reap)(coh_store *store, coh_store_port port, coh_store_completion *completions,
                       uint32_t least, uint32_t most, uint32_t *out_count);
} coh_store_ops;

extern const coh_store_ops coh_store_uring; /* NULL functions if built without io_uring */
extern const coh_store_ops coh_store_posix, coh_store_mem;

/* Opens the best backend that this machine allows: io_uring with O_DIRECT and registered
 * buffers, then without registration, then posix threads. If O_DIRECT is denied, uses the page
 * cache. facts.reason says why. *out_ops receives the backend's table. `wanted`: NULL, or the only
 * table to use. */
coh_status coh_store_open(const coh_store_config *config, const coh_store_ops *wanted,
                          const coh_store_ops **out_ops, coh_store **out_store);

#endif
